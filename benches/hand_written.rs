//! One worker against what a careful programmer would write by hand for this one query: a loop over the
//! columns and a hash table per window, reused from window to window. Both take turns in one process on the
//! same rows and must give the same results.
//!
//! `SALTMILL_BENCH_ROWS=50000000 cargo bench --manifest-path benches/Cargo.toml --bench hand_written`

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use saltmill::arrow::array::{ArrayRef, AsArray, Int64Array, TimestampMillisecondArray};
use saltmill::arrow::datatypes::{Int64Type, TimestampMillisecondType};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::runtime::memory::MemorySource;
use saltmill::runtime::source::Source;
use saltmill::{Collected, Engine};
use saltmill_benches::naive;

/// As in the binary, for both sides.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ROWS: u64 = 10_000_000;
const ROUNDS: usize = 5;

/// Multiplies by an odd constant and folds: as cheap as hashes of one number get.
#[derive(Default)]
struct Multiply(u64);

impl Hasher for Multiply {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_i64(&mut self, value: i64) {
        let wide = u128::from(value.cast_unsigned()) * 0x9E37_79B9_7F4A_7C15;
        #[expect(clippy::cast_possible_truncation, reason = "both halves are used")]
        let halves = (wide as u64, (wide >> 64) as u64);
        self.0 = halves.0 ^ halves.1;
    }
}

#[derive(Clone, Copy)]
struct State {
    count: i64,
    sum: i64,
    min: i64,
    max: i64,
}

type Table = HashMap<i64, State, BuildHasherDefault<Multiply>>;

/// The hand-written program. Times are in order, as the generator makes them, so a window is done when
/// the next begins.
fn by_hand(batches: &[RecordBatch], window_ms: i64) -> Vec<RecordBatch> {
    let mut table = Table::default();
    let mut results = Vec::new();
    let mut open = None;
    for batch in batches {
        let column = |name: &str| batch.column_by_name(name).expect("a generated stream");
        let times = column("ts").as_primitive::<TimestampMillisecondType>().values();
        let keys = column("key").as_primitive::<Int64Type>().values();
        let values = column("value").as_primitive::<Int64Type>().values();
        for ((&time, &key), &value) in times.iter().zip(keys).zip(values) {
            let window = time.div_euclid(window_ms);
            if open != Some(window) {
                emit(&mut table, open.replace(window), window_ms, &mut results);
            }
            table
                .entry(key)
                .and_modify(|state| {
                    state.count += 1;
                    state.sum += value;
                    state.min = state.min.min(value);
                    state.max = state.max.max(value);
                })
                .or_insert(State { count: 1, sum: value, min: value, max: value });
        }
    }
    emit(&mut table, open, window_ms, &mut results);
    results
}

/// The results of a window in the engine's columns.
fn emit(table: &mut Table, window: Option<i64>, window_ms: i64, results: &mut Vec<RecordBatch>) {
    let Some(window) = window else { return };
    let start = window * window_ms;
    let column = |value: fn(&State) -> i64| -> ArrayRef {
        Arc::new(table.values().map(value).collect::<Int64Array>())
    };
    let bound = |time: i64| -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from(vec![time; table.len()]))
    };
    let keys: ArrayRef = Arc::new(table.keys().copied().collect::<Int64Array>());
    let columns = [
        ("window_start", bound(start)),
        ("window_end", bound(start + window_ms)),
        ("key", keys),
        ("count", column(|state| state.count)),
        ("sum", column(|state| state.sum)),
        ("min", column(|state| state.min)),
        ("max", column(|state| state.max)),
    ];
    results.push(RecordBatch::try_from_iter(columns).expect("columns of one length"));
    table.clear();
}

fn engine(batches: &Arc<[RecordBatch]>, workers: usize) -> Vec<RecordBatch> {
    let job =
        saltmill_benches::job(batches, workers, SkewMode::Adaptive).build().expect("a valid job");
    let time = batches[0].schema().index_of("ts").expect("a generated stream");
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(Arc::clone(batches), Some(time)));
    let results = Collected::new();
    let engine = Engine::start_on(job, vec![source], results.clone()).expect("it starts");
    engine.finish().expect("it succeeds");
    results.take()
}

/// How long `run` took; its results are checked and dropped outside of that time.
fn timed(expected: u64, run: impl FnOnce() -> Vec<RecordBatch>) -> Duration {
    let started = Instant::now();
    let results = run();
    let time = started.elapsed();
    assert_eq!(naive::digest_of_results(&results), expected, "results differ");
    time
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

#[expect(clippy::cast_precision_loss, reason = "rates for people")]
fn main() {
    let text = std::env::var("SALTMILL_BENCH_ROWS").ok();
    let rows = text.map_or(ROWS, |text| text.parse().expect("SALTMILL_BENCH_ROWS is a number"));
    let window_ms = i64::try_from(saltmill_benches::WINDOW.as_millis()).expect("short");
    println!(
        "stream,rows,by_hand_m_rows_per_s,one_worker_m_rows_per_s,one_over_by_hand,two_workers_m_rows_per_s,two_over_one"
    );
    for (name, keys, distribution) in saltmill_benches::STREAMS {
        // Enough rows a millisecond for a stream that ends with its tenth window.
        let batches =
            Arc::<[RecordBatch]>::from(saltmill_benches::stream(rows, keys, distribution, false));
        let needed = |batch: &RecordBatch| batch.project(&[0, 1, 2]).expect("ts, key, value");
        let batches = batches.iter().map(needed).collect::<Arc<[_]>>();
        let expected = naive::digest(&batches, window_ms);
        let (mut hand, mut one, mut two) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=ROUNDS {
            let by_hand = timed(expected, || by_hand(&batches, window_ms));
            let one_worker = timed(expected, || engine(&batches, 1));
            let two_workers = timed(expected, || engine(&batches, 2));
            // The first round warms up.
            if round > 0 {
                hand.push(by_hand.as_secs_f64());
                one.push(one_worker.as_secs_f64());
                two.push(two_workers.as_secs_f64());
            }
        }
        let ratio = |slow: &[f64], fast: &[f64]| {
            median(slow.iter().zip(fast).map(|(slow, fast)| slow / fast).collect())
        };
        let rate = |times: &[f64]| rows as f64 / median(times.to_vec()) / 1e6;
        println!(
            "{name},{rows},{:.2},{:.2},{:.3},{:.2},{:.3}",
            rate(&hand),
            rate(&one),
            ratio(&hand, &one),
            rate(&two),
            ratio(&one, &two),
        );
    }
}
