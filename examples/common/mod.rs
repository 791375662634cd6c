//! What the examples of skew share: a stream with one hot key, a run of it, and tables for people.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use saltmill::arrow::array::{
    ArrayRef, Float64Array, Int64Array, StringArray, TimestampMillisecondArray,
};
use saltmill::arrow::compute::{SortColumn, concat_batches, lexsort_to_indices, take_record_batch};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::error::SinkError;
use saltmill::runtime::memory::MemorySource;
use saltmill::runtime::report::SkewTable;
use saltmill::runtime::sink::Sink;
use saltmill::skew::policy::Salts;
use saltmill::{Aggregate, Engine, Job, RunReport, Window};

/// Rows per unit of work.
const BATCH_ROWS: usize = 16_384;

/// One batch of a stream in which `hot` takes `share` of the rows and `others` the rest evenly.
pub(crate) fn stream(
    rows: usize,
    share: f64,
    hot: &str,
    others: usize,
    prefix: &str,
) -> Vec<RecordBatch> {
    let mut random = 7_u64;
    let mut next = move || {
        // SplitMix64: small, and the same everywhere.
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) >> 11
    };
    let unit = |word: u64| word as f64 / (1_u64 << 53) as f64;
    let mut batches = Vec::new();
    for start in (0..rows).step_by(BATCH_ROWS) {
        let len = BATCH_ROWS.min(rows - start);
        let keys = (0..len).map(|_| {
            if unit(next()) < share {
                hot.to_owned()
            } else {
                format!("{prefix}{}", next() as usize % others)
            }
        });
        let keys: StringArray = keys.map(Some).collect();
        let values: Int64Array = (0..len).map(|_| Some((next() % 1000) as i64)).collect();
        let amounts: Float64Array = (0..len).map(|_| Some(unit(next()) * 100.0)).collect();
        // One row a microsecond.
        let times: TimestampMillisecondArray =
            (start..start + len).map(|row| Some(row as i64 / 1000)).collect();
        let columns: Vec<(&str, ArrayRef)> = vec![
            ("key", Arc::new(keys)),
            ("value", Arc::new(values)),
            ("amount", Arc::new(amounts)),
            ("ts", Arc::new(times)),
        ];
        batches.push(RecordBatch::try_from_iter(columns).expect("columns of one length"));
    }
    batches
}

/// What a run gave.
pub(crate) struct Outcome {
    pub(crate) report: RunReport,
    /// All result rows, ordered by window and key.
    pub(crate) results: RecordBatch,
    /// From the first to the last result of a window, at the median.
    pub(crate) emission: Duration,
}

#[derive(Clone, Default)]
struct Timed(Arc<Mutex<Vec<(Instant, RecordBatch)>>>);

impl Sink for Timed {
    fn results(&self, _: usize, batch: RecordBatch) -> Result<(), SinkError> {
        self.0.lock().expect("no panic while locked").push((Instant::now(), batch));
        Ok(())
    }
}

/// Runs the stream through `workers` shards in windows of one second.
pub(crate) fn run(
    batches: &[RecordBatch],
    workers: usize,
    mode: SkewMode,
    salts: Salts,
) -> Outcome {
    let job = Job::builder(batches[0].schema())
        .key(["key"])
        .event_time("ts")
        .window(Window::tumbling(Duration::from_secs(1)))
        .aggregates([
            Aggregate::count(),
            Aggregate::sum("value"),
            Aggregate::max("value"),
            Aggregate::avg("amount"),
        ])
        .workers(workers)
        .skew(mode)
        .salts(salts)
        .build()
        .expect("a job that fits the stream");
    let schema = Arc::clone(job.output_schema());
    let sink = Timed::default();
    let source = Arc::new(MemorySource::new(batches.to_vec(), Some(3)));
    let engine = Engine::start_on(job, vec![source], sink.clone()).expect("threads start");
    let report = engine.finish().expect("the run succeeds");
    let emitted = std::mem::take(&mut *sink.0.lock().expect("no panic while locked"));
    let mut spans = std::collections::BTreeMap::<String, (Instant, Instant)>::new();
    for (at, batch) in &emitted {
        let window = format!("{:?}", batch.column(0).slice(0, 1));
        let span = spans.entry(window).or_insert((*at, *at));
        *span = (span.0.min(*at), span.1.max(*at));
    }
    let mut spans = spans.values().map(|(first, last)| *last - *first).collect::<Vec<_>>();
    spans.sort_unstable();
    let results =
        concat_batches(&schema, emitted.iter().map(|(_, batch)| batch)).expect("one schema");
    let order = [0, 2]
        .map(|column| SortColumn { values: Arc::clone(results.column(column)), options: None });
    let order = lexsort_to_indices(&order, None).expect("sortable");
    let results = take_record_batch(&results, &order).expect("indices of the batch");
    Outcome { report, results, emission: spans[spans.len() / 2] }
}

/// Prints what each shard did.
pub(crate) fn print(title: &str, outcome: &Outcome) {
    let report = &outcome.report;
    println!("\n{title}");
    print!("{}", SkewTable(report));
    println!(
        "{:.1} M rows/s; results of a window within {:?}",
        report.rows_per_second() / 1e6,
        outcome.emission
    );
}

/// Runs a stream with handling of skew off and on, prints both, and checks that the results are equal.
pub(crate) fn compare(batches: &[RecordBatch], workers: usize, mode: SkewMode, salts: Salts) {
    let off = run(batches, workers, SkewMode::Off, Salts::Auto);
    print("handling of skew off: every row goes to the owner of its key", &off);
    let on = run(batches, workers, mode, salts);
    print("handling of skew on", &on);
    assert_eq!(off.results, on.results, "results are the same, floats to the last bit");
    println!("\n{} result rows, equal in both runs to the last bit", on.results.num_rows());
}
