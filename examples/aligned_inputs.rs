//! Two inputs, one ten times slower: how many windows stay open while the slow one lags, without and with
//! alignment.
//!
//!     cargo run --release --example aligned_inputs

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use saltmill::arrow::array::{ArrayRef, Int64Array, TimestampSecondArray};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::time::alignment::Alignment;
use saltmill::{Aggregate, Collected, Engine, Job, RunError, Window};

/// Seconds of event time in each input, a batch and a window for each.
const SECONDS: i64 = 150;

/// What a batch of the fast input takes; one of the slow input takes ten times as long.
const PACE: Duration = Duration::from_millis(1);

/// The rows of one second, of ten keys.
fn batch(second: i64) -> Result<RecordBatch, Box<dyn Error>> {
    let columns: [(&str, ArrayRef); 2] = [
        ("key", Arc::new(Int64Array::from_iter_values(0..10))),
        ("ts", Arc::new(TimestampSecondArray::from_iter_values([second; 10]))),
    ];
    Ok(RecordBatch::try_from_iter(columns)?)
}

/// Runs both inputs and prints how it goes; answers the most windows seen open.
fn run(drift: Option<Duration>) -> Result<u64, Box<dyn Error>> {
    let batches = (0..SECONDS).map(batch).collect::<Result<Vec<_>, _>>()?;
    let mut job = Job::builder(batches[0].schema())
        .key(["key"])
        .event_time("ts")
        .window(Window::tumbling(Duration::from_secs(1)))
        .aggregate(Aggregate::count())
        .workers(1);
    if let Some(drift) = drift {
        job = job.alignment(Alignment::new(drift));
    }
    let engine = Engine::start(job.build()?, Collected::new())?;
    let handles = [engine.ingest()?, engine.ingest()?];
    let mut most = 0;
    thread::scope(|scope| -> Result<(), RunError> {
        let feeds = [PACE, 10 * PACE].into_iter().zip(handles).map(|(pace, mut handle)| {
            let batches = &batches;
            scope.spawn(move || {
                for batch in batches {
                    thread::sleep(pace);
                    // Waits while this input is too far ahead.
                    handle.push(batch.clone())?;
                }
                handle.close()
            })
        });
        let feeds = feeds.collect::<Vec<_>>();
        for tick in 0_u32.. {
            if feeds.iter().all(thread::ScopedJoinHandle::is_finished) {
                break;
            }
            let metrics = engine.metrics();
            let open = metrics.shards.iter().map(|shard| shard.open_windows).sum();
            most = most.max(open);
            // The fast input is done soon, so the beginning is shown more closely.
            if tick % (if tick < 20 { 4 } else { 30 }) == 0 {
                let ahead = metrics.inputs.iter().map(|input| input.drift).max().unwrap_or(0);
                println!("{open:>6} windows open, the fast input is {ahead:>4} s ahead");
            }
            thread::sleep(10 * PACE);
        }
        feeds.into_iter().try_for_each(|feed| feed.join().expect("feeding does not panic"))
    })?;
    let report = engine.finish()?;
    println!("{most:>6} at most; {} rows, {} late\n", report.rows_in, report.rows_late);
    Ok(most)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("without alignment:");
    let apart = run(None)?;
    println!("with at most 10 s between the inputs:");
    let aligned = run(Some(Duration::from_secs(10)))?;
    println!("{apart} windows open at most without alignment, {aligned} with it");
    Ok(())
}
