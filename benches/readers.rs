//! Readers beside a writer at full speed: how long reads take, and what they cost the writer.
//!
//! `cargo bench --manifest-path benches/Cargo.toml --bench readers -- --seconds 3`; `just bench-readers`. Prints CSV.
//!
//! One worker reads batches from memory and aggregates them (count, sum, min, max by int64 key) as fast as it can; a
//! reader on a thread of its own gets random keys as fast as it can. Rounds of the three settings take turns, and
//! the medians of their throughputs are compared:
//!
//! - `off`: a job without readers.
//! - `on`: a job with readers, of which there is none.
//! - `beside`: one reader at full speed.
//!
//! Every state read is checked (values are chosen so that count, sum, min and max follow from each other), and so is
//! the result of every round.

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use saltmill::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use saltmill::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::{Pinning, SkewMode};
use saltmill::error::SourceError;
use saltmill::runtime::source::{Source, Take, Unit};
use saltmill::{Aggregate, Collected, Engine, Job, Reader};

const BATCH_ROWS: usize = 8192;

fn schema() -> SchemaRef {
    let number = |name| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![number("key"), number("value")]))
}

fn mix(seed: u64) -> u64 {
    let x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// The value of all rows of a key, so that its sum is `count * value` and its min and max are `value`.
fn value_of(key: i64) -> i64 {
    key * 3 + 1
}

/// Batches in memory, given again and again until it is stopped.
#[derive(Debug)]
struct Memory {
    batches: Vec<RecordBatch>,
    next: AtomicUsize,
    rows: AtomicU64,
    stop: AtomicBool,
}

#[derive(Debug)]
struct Endless(Arc<Memory>);

#[derive(Debug)]
struct One {
    ticket: u64,
    batch: Option<RecordBatch>,
}

impl Source for Endless {
    fn take(&self) -> Result<Take, SourceError> {
        if self.0.stop.load(Ordering::Relaxed) {
            return Ok(Take::End);
        }
        let ticket = self.0.next.fetch_add(1, Ordering::Relaxed);
        let batch = self.0.batches[ticket % self.0.batches.len()].clone();
        self.0.rows.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
        Ok(Take::Unit(Box::new(One { ticket: ticket as u64, batch: Some(batch) })))
    }
}

impl Unit for One {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        Ok(None)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        Ok(self.batch.take())
    }
}

/// What a round came to.
struct Round {
    rows_per_second: f64,
    /// By the processor time of the writer's thread, so that what else the machine does counts little.
    rows_per_cpu_second: f64,
    reads: Histogram<u64>,
}

/// One round.
fn round(setting: &str, batches: &[RecordBatch], keys: u64, seconds: f64) -> Round {
    let job = Job::builder(schema())
        .key(["key"])
        .aggregates(Aggregate::parse_list("count, sum(value), min(value), max(value)").expect("valid"))
        .skew(SkewMode::Off)
        .workers(1)
        .pinning(Pinning::Off)
        .readers(setting != "off")
        .build()
        .expect("valid");
    let memory = Arc::new(Memory {
        batches: batches.to_vec(),
        next: AtomicUsize::new(0),
        rows: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    });
    let results = Collected::new();
    let sources: Vec<Arc<dyn Source>> = vec![Arc::new(Endless(Arc::clone(&memory)))];
    let engine = Engine::builder(job).sources(sources).start(results.clone()).expect("it starts");
    // All keys are there, and memory is warm.
    while memory.rows.load(Ordering::Relaxed) < 2 * (batches.len() * BATCH_ROWS) as u64 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let cpu = || engine.metrics().shards[0].cpu.as_secs_f64();
    let (started, before) = (Instant::now(), memory.rows.load(Ordering::Relaxed));
    let cpu_before = cpu();
    let time = Duration::from_secs_f64(seconds);
    let reads = if setting == "beside" {
        read(&engine.reader().expect("it has readers"), keys, started, time)
    } else {
        std::thread::sleep(time);
        histogram()
    };
    let rows = memory.rows.load(Ordering::Relaxed) - before;
    let (elapsed, busy) = (started.elapsed().as_secs_f64(), cpu() - cpu_before);
    memory.stop.store(true, Ordering::Relaxed);
    let report = engine.finish().expect("it succeeds");
    let mut counted = 0;
    for batch in results.take() {
        let column = |i: usize| batch.column(i).as_primitive::<Int64Type>().values().clone();
        let [keys, counts, sums, mins, maxs] = [0, 1, 2, 3, 4].map(column);
        for row in 0..batch.num_rows() {
            let value = value_of(keys[row]);
            assert_eq!((sums[row], mins[row], maxs[row]), (counts[row] * value, value, value));
            counted += counts[row].unsigned_abs();
        }
    }
    assert_eq!(counted, report.rows_aggregated, "every row is in a result");
    let (rows_per_second, rows_per_cpu_second) = (rows as f64 / elapsed, rows as f64 / busy);
    Round { rows_per_second, rows_per_cpu_second, reads }
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

/// Reads random keys for so long, and checks what it reads.
fn read(reader: &Reader, keys: u64, started: Instant, time: Duration) -> Histogram<u64> {
    let mut histogram = histogram();
    let mut seed = 1;
    while started.elapsed() < time {
        for _ in 0..64 {
            seed += 1;
            let key = (mix(seed) % keys) as i64;
            let before = Instant::now();
            let mut seen = [0; 4];
            let found = reader.each_int(black_box(key), |_, values| {
                for (seen, value) in seen.iter_mut().zip(values) {
                    *seen = value.as_i64().expect("it fits");
                }
            });
            let took = before.elapsed();
            histogram.saturating_record(u64::try_from(took.as_nanos()).expect("short"));
            if found.expect("it runs") == 1 {
                let value = value_of(key);
                assert_eq!(seen[1..], [seen[0] * value, value, value], "key {key}");
            }
        }
    }
    histogram
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let words = std::env::args().skip(1).filter(|word| word != "--bench").collect::<Vec<_>>();
    let mut given = HashMap::new();
    for pair in words.chunks(2) {
        let value = pair.get(1).cloned().unwrap_or_default();
        given.insert(pair[0].trim_start_matches('-').to_owned(), value);
    }
    let number = |name: &str, default: f64| {
        given.get(name).map_or(default, |text| text.parse().expect("options are numbers"))
    };
    let keys = number("keys", 1e6) as u64;
    let (seconds, rounds) = (number("seconds", 2.0), number("rounds", 5.0) as usize);
    // Every key, in an order that is no order, some times over.
    let all = (0..4 * keys).map(|i| (mix(i / keys * keys + mix(i) % keys) % keys) as i64);
    let all = (0..keys as i64).chain(all).collect::<Vec<_>>();
    let batches = all.chunks(BATCH_ROWS).map(|keys| {
        let values = keys.iter().map(|key| value_of(*key)).collect::<Int64Array>();
        let columns: Vec<ArrayRef> = vec![Arc::new(Int64Array::from(keys.to_vec())), Arc::new(values)];
        RecordBatch::try_new(schema(), columns).expect("valid")
    });
    let batches = batches.collect::<Vec<_>>();
    assert!(batches.iter().all(|batch| batch.column(0).null_count() == 0));
    let mut clock = histogram();
    for _ in 0..100_000 {
        let before = Instant::now();
        clock.saturating_record(u64::try_from(black_box(before).elapsed().as_nanos()).expect("short"));
    }
    let mut throughputs = HashMap::<&str, Vec<(f64, f64)>>::new();
    let mut reads = histogram();
    println!("setting,round,rows_per_second,rows_per_cpu_second,reads,p50_ns,p90_ns,p99_ns,p999_ns,max_ns");
    for round_number in 0..rounds {
        for setting in ["off", "on", "beside"] {
            let Round { rows_per_second, rows_per_cpu_second, reads: histogram } =
                round(setting, &batches, keys, seconds);
            let at = |quantile| histogram.value_at_quantile(quantile);
            println!(
                "{setting},{round_number},{rows_per_second:.0},{rows_per_cpu_second:.0},{},{},{},{},{},{}",
                histogram.len(),
                at(0.5),
                at(0.9),
                at(0.99),
                at(0.999),
                histogram.max()
            );
            throughputs.entry(setting).or_default().push((rows_per_second, rows_per_cpu_second));
            reads.add(&histogram).expect("the same bounds");
        }
    }
    let median_of = |setting: &str, of: fn(&(f64, f64)) -> f64| median(throughputs[setting].iter().map(of).collect());
    for setting in ["on", "beside"] {
        let change = |of| (median_of(setting, of) / median_of("off", of) - 1.0) * 100.0;
        println!(
            "# {setting}: {:+.1} % of the throughput without readers, {:+.1} % of that per processor second",
            change(|one| one.0),
            change(|one| one.1)
        );
    }
    println!(
        "# reads: p50 {} ns, p99 {} ns, of {}; a look at the clock takes {} ns of it",
        reads.value_at_quantile(0.5),
        reads.value_at_quantile(0.99),
        reads.len(),
        clock.value_at_quantile(0.5)
    );
}
