//! Another number of shards while rows come and windows close: more keys than a shard copies between two messages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use saltmill::arrow::array::{ArrayRef, Int64Array, TimestampMillisecondArray};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::arrow::util::display::array_value_to_string;
use saltmill::{Aggregate, Collected, Engine, Job, Window};

const KEYS: i64 = 60_000;
const ROWS: i64 = 8192;
const BATCHES: i64 = 40;
/// Event time from one batch to the next of a producer.
const STEP_MS: i64 = 70;

/// The `n`-th batch of a producer: each goes through all keys in turn, and time goes on.
fn batch(producer: i64, n: i64) -> RecordBatch {
    let rows = || 0..ROWS;
    let key = |i: i64| ((n * 2 + producer) * ROWS + i).wrapping_mul(7919).rem_euclid(KEYS);
    let keys: ArrayRef = Arc::new(rows().map(key).collect::<Int64Array>());
    let time = |i: i64| n * STEP_MS + i * STEP_MS / ROWS;
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(rows().map(time)));
    let values: ArrayRef = Arc::new(rows().map(|i| (i ^ n) % 50).collect::<Int64Array>());
    RecordBatch::try_from_iter([("key", keys), ("ts", times), ("value", values)]).unwrap()
}

/// All rows as text, in order.
fn lines(batches: &[RecordBatch]) -> Vec<String> {
    let line = |batch: &RecordBatch, row| {
        let value = |column| array_value_to_string(column, row).unwrap();
        batch.columns().iter().map(|column| value(column)).collect::<Vec<_>>().join(",")
    };
    let rows =
        batches.iter().flat_map(|batch| (0..batch.num_rows()).map(move |row| line(batch, row)));
    let mut rows = rows.collect::<Vec<_>>();
    rows.sort_unstable();
    rows
}

/// Results of two producers' rows, rescaled again and again to these numbers of shards until all are pushed.
fn run(window: Option<Window>, shards: &[usize]) -> Vec<String> {
    let aggregates = "count, sum(value), min(value), count(distinct value)";
    let mut job = Job::builder(batch(0, 0).schema())
        .key(["key"])
        .event_time("ts")
        .aggregates(Aggregate::parse_list(aggregates).unwrap())
        .workers(2);
    if let Some(window) = window {
        job = job.window(window);
    }
    let results = Collected::new();
    let engine = Engine::start(job.build().unwrap(), results.clone()).unwrap();
    let pushed = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let ingests = [0, 1].map(|producer| (producer, engine.ingest().unwrap()));
        let producers = ingests.map(|(producer, mut ingest)| {
            scope.spawn(move || {
                (0..BATCHES).for_each(|n| ingest.push(batch(producer, n)).unwrap());
                ingest.close().unwrap();
            })
        });
        let (engine, pushed) = (&engine, &pushed);
        let rescales = scope.spawn(move || {
            let mut count = 0;
            for workers in shards.iter().cycle() {
                if pushed.load(Ordering::SeqCst) {
                    break;
                }
                let report = engine.rescale(*workers).unwrap();
                assert!(report.pause <= report.settled);
                count += 1;
            }
            count
        });
        producers.into_iter().for_each(|one| one.join().unwrap());
        pushed.store(true, Ordering::SeqCst);
        let count = rescales.join().unwrap();
        assert!(shards.is_empty() || count > 0, "it was rescaled");
    });
    engine.finish().unwrap();
    lines(&results.take())
}

#[test]
fn results_are_equal_where_windows_close_while_state_moves() {
    let second = Duration::from_secs(1);
    let windows = [
        None,
        Some(Window::tumbling(second)),
        Some(Window::hopping(second, Duration::from_millis(250))),
        Some(Window::Session { gap: Duration::from_millis(200) }),
    ];
    for window in windows {
        let plain = run(window, &[]);
        let rescaled = run(window, &[3, 5, 1, 4, 2, 6]);
        assert_eq!(plain.len(), rescaled.len(), "{window:?}");
        let other = plain.iter().zip(&rescaled).find(|(one, other)| one != other);
        assert!(other.is_none(), "{window:?}: {other:?}");
    }
}
