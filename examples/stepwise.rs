//! The engine without threads of its own: the program's loop does the work, step by step, so that every run is the
//! same. For simulations and tests, and for programs that own their threads.
//!
//!     cargo run --release --example stepwise

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use saltmill::arrow::array::{ArrayRef, Int64Array};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::{Aggregate, Collected, Driver, Job, Window};

fn batch(from: i64) -> Result<RecordBatch, Box<dyn Error>> {
    let rows = from..from + 500;
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.clone().map(|i| i * i % 7)));
    let times: ArrayRef = Arc::new(Int64Array::from_iter_values(rows));
    Ok(RecordBatch::try_from_iter([("key", keys), ("ms", times)])?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let job = Job::builder(batch(0)?.schema())
        .key(["key"])
        .event_time("ms")
        .window(Window::tumbling(Duration::from_secs(2)))
        .aggregate(Aggregate::count())
        .workers(3)
        .build()?;
    let results = Collected::new();
    let mut driver = Driver::new(job, results.clone());
    let mut ingest = driver.ingest()?;
    let (mut steps, mut at) = (0, Vec::new());
    for i in 0..20 {
        driver.push(&mut ingest, batch(i * 500)?)?;
        // Until there is nothing left to do: from here on, nothing happens by itself.
        while driver.step()? {
            steps += 1;
        }
        if !results.take().is_empty() {
            at.push(i);
        }
    }
    let report = driver.finish([ingest])?;
    println!("{} rows in {steps} steps; windows closed after batches {at:?}", report.rows_in);
    assert_eq!(at, [4, 8, 12, 16], "the same in every run");
    Ok(())
}
