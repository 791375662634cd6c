//! Reads the current totals of accounts, from threads of its own, while payments stream in: without locks, and with no
//! wait for a window's end.
//!
//!     cargo run --release --example readers

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use saltmill::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::{Aggregate, Collected, Engine, Job, Window};

fn main() -> Result<(), Box<dyn Error>> {
    let schema = Schema::new(vec![
        Field::new("account", DataType::Int64, false),
        Field::new("time", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        Field::new("cents", DataType::Int64, false),
    ]);
    let job = Job::builder(Arc::new(schema))
        .key(["account"])
        .event_time("time")
        .window(Window::tumbling(Duration::from_mins(1)))
        .aggregates(Aggregate::parse_list("count, sum(cents), max(cents)")?)
        .readers(true)
        .build()?;
    let engine = Engine::start(job, Collected::new())?;
    let reader = engine.reader()?;
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| -> Result<(), Box<dyn Error + Send + Sync>> {
        // Two threads ask for limits, as a service would that has a payment to approve.
        let askers = [1, 2].map(|seed| {
            let (reader, stop) = (reader.clone(), &stop);
            scope.spawn(move || {
                let (mut asked, mut over) = (0_u64, 0_u64);
                let started = Instant::now();
                while !stop.load(Ordering::Relaxed) {
                    let account = (asked.wrapping_mul(0x9e37_79b9) >> seed) % 10_000;
                    let found = reader.each_int(account.cast_signed(), |_window, values| {
                        over += u64::from(values[1].as_i64() > Some(100_000));
                    });
                    if found.is_err() {
                        break;
                    }
                    asked += 1;
                }
                (asked, over, started.elapsed())
            })
        });
        let mut appender = engine.ingest()?.appender()?;
        for i in 0..2_000_000_i64 {
            // Account 0 takes a third of all payments: it becomes hot, and is read all the same.
            let account = if i % 3 == 0 { 0 } else { i * 7919 % 10_000 };
            appender.append((account, i / 20, i % 500))?;
        }
        appender.flush()?;
        if let Some(batch) = reader.get((0,))? {
            println!("account 0 now:");
            println!("  {:?}", reader.get_int(0)?);
            println!("  as a batch: {} row(s) of {}", batch.num_rows(), batch.schema());
        }
        let all: usize = reader.scan(0..=15)?.iter().map(RecordBatch::num_rows).sum();
        println!("{all} accounts in the first 16 of 128 key groups");
        stop.store(true, Ordering::Relaxed);
        for asker in askers {
            let (asked, over, elapsed) = asker.join().expect("it does not panic");
            let each = elapsed.as_nanos() / u128::from(asked.max(1));
            println!("asked {asked} times, {each} ns each; {over} times over the limit");
        }
        appender.close()?;
        Ok(())
    })
    .map_err(|error| error.to_string())?;
    let report = engine.finish()?;
    println!("{} rows in, {} results", report.rows_in, report.rows_out);
    Ok(())
}
