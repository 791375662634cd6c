//! The number of shards changes while producers push at full speed: keys and sums are conserved, the results are
//! those of a run that was never rescaled, and each pause is printed.
//!
//!     cargo run --release --example live_rescale

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use saltmill::arrow::array::{ArrayRef, AsArray, Int64Array};
use saltmill::arrow::datatypes::Int64Type;
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::{Aggregate, Collected, Engine, Job};

const KEYS: i64 = 1_000_000;
const BATCH_ROWS: i64 = 8192;

/// The `n`-th batch of a producer: every third row has one key, the others go through all keys in turn.
fn batch(n: i64) -> RecordBatch {
    let row = |i: i64| {
        let number = n * BATCH_ROWS + i;
        if number % 3 == 0 { 7 } else { number.wrapping_mul(2_654_435_761).rem_euclid(KEYS) }
    };
    let keys: ArrayRef = Arc::new((0..BATCH_ROWS).map(row).collect::<Int64Array>());
    let values: ArrayRef = Arc::new((0..BATCH_ROWS).map(|i| n + i).collect::<Int64Array>());
    RecordBatch::try_from_iter([("key", keys), ("value", values)]).expect("two columns")
}

/// Count, sum, least and largest value by key.
fn by_key(batches: &[RecordBatch]) -> BTreeMap<i64, [i64; 4]> {
    let columns = batches.iter().map(|batch| {
        let column = |i: usize| batch.column(i).as_primitive::<Int64Type>().values().clone();
        [0, 1, 2, 3, 4].map(column)
    });
    let rows = columns.flat_map(|[key, count, sum, min, max]| {
        (0..key.len())
            .map(move |i| (key[i], [count[i], sum[i], min[i], max[i]]))
            .collect::<Vec<_>>()
    });
    rows.collect()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let schema = batch(0).schema();
    let aggregates = Aggregate::parse_list("count, sum(value), min(value), max(value)")?;
    let job = Job::builder(schema).key(["key"]).aggregates(aggregates).workers(4);
    let results = Collected::new();
    let engine = Engine::start(job.clone().build()?, results.clone())?;
    let enough = AtomicBool::new(false);
    // What the producers push again and again, made beforehand so that they are as fast as can be.
    let lists =
        [0, 1].map(|producer| (0..150).map(|n| batch(2 * n + producer)).collect::<Vec<_>>());
    let pushed = std::thread::scope(|scope| -> Result<Vec<usize>, saltmill::RunError> {
        let producers = lists.iter().map(|list| {
            let (mut ingest, enough) = (engine.ingest(), &enough);
            scope.spawn(move || {
                let ingest = ingest.as_mut().expect("the engine runs");
                let mut pushed = 0;
                while !enough.load(Ordering::Relaxed) {
                    ingest.push(list[pushed % list.len()].clone())?;
                    pushed += 1;
                }
                Ok(pushed)
            })
        });
        let producers = producers.collect::<Vec<_>>();
        std::thread::sleep(Duration::from_secs(1));
        for workers in [8, 3, 7, 4, 1, 2] {
            let report = engine.rescale(workers)?;
            println!(
                "{} -> {} shards at row {}: a pause of {:.1} ms, {:.1} ms of it to come to one cut; all state moved \
                 after {:.1} ms",
                report.from,
                report.to,
                report.at_row,
                report.pause.as_secs_f64() * 1e3,
                report.alignment.as_secs_f64() * 1e3,
                report.settled.as_secs_f64() * 1e3,
            );
            std::thread::sleep(Duration::from_millis(300));
        }
        enough.store(true, Ordering::Relaxed);
        producers.into_iter().map(|one| one.join().expect("producers do not panic")).collect()
    })?;
    let report = engine.finish()?;
    println!(
        "{} rows of {} keys, {} rescales",
        report.rows_in,
        report.rows_out,
        report.rescales.len()
    );

    // The same rows, without rescaling.
    let plain = Collected::new();
    let engine = Engine::start(job.build()?, plain.clone())?;
    let mut ingest = engine.ingest()?;
    for (list, pushed) in lists.iter().zip(&pushed) {
        (0..*pushed).try_for_each(|n| ingest.push(list[n % list.len()].clone()))?;
    }
    drop(ingest);
    engine.finish()?;
    let (rescaled, plain) = (by_key(&results.take()), by_key(&plain.take()));
    let rows = rescaled.values().map(|[count, ..]| count).sum::<i64>();
    assert_eq!(rows.unsigned_abs(), report.rows_in, "every row is counted once");
    assert!(rescaled == plain, "the results are those of a run that was never rescaled");
    println!("equal to a run that was never rescaled");
    Ok(())
}
