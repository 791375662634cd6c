//! Sliding (hopping) windows: requests of the last minute, every ten seconds, with out-of-order events.
//!
//!     cargo run --release --example sliding_windows

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use saltmill::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use saltmill::arrow::util::pretty::pretty_format_batches;
use saltmill::{Aggregate, Engine, Job, Window, channel};

fn main() -> Result<(), Box<dyn Error>> {
    let schema = Schema::new(vec![
        Field::new("service", DataType::Utf8, false),
        Field::new("at", DataType::Timestamp(TimeUnit::Second, None), false),
        Field::new("millis", DataType::Float64, false),
    ]);
    let job = Job::builder(Arc::new(schema))
        .key(["service"])
        .event_time("at")
        // Events may be five seconds late.
        .out_of_orderness(Duration::from_secs(5))
        .window(Window::hopping(Duration::from_mins(1), Duration::from_secs(10)))
        .aggregates([
            Aggregate::count().alias("requests"),
            Aggregate::avg("millis").alias("mean_ms"),
            Aggregate::max("millis").alias("max_ms"),
        ])
        .build()?;

    let (sink, results) = channel(16);
    let engine = Engine::start(job, sink)?;
    let mut appender = engine.ingest()?.appender()?;
    for second in 0..180_i64 {
        for request in 0..20_u32 {
            let service = if request % 4 == 0 { "search" } else { "checkout" };
            // A row is in six windows, but is kept once.
            let at = second - i64::from(request % 5);
            let slow = if (60..90).contains(&second) && service == "search" { 10.0 } else { 1.0 };
            appender.append((service, at, f64::from(request + 5) * slow))?;
        }
    }
    appender.close()?;
    let report = engine.finish()?;

    let mut batches = results.collect::<Vec<_>>();
    // Windows leave each shard in order; of two shards they may come in any.
    batches.sort_by_key(|batch| format!("{:?}", batch.column(0).slice(0, 1)));
    println!("{}", pretty_format_batches(&batches)?);
    println!(
        "{} rows in, {} late, {} result rows",
        report.rows_in, report.rows_late, report.rows_out
    );
    Ok(())
}
