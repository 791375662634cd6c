//! Per-user totals per second of a stream made up on the spot, printed as a table.
//!
//!     cargo run --release --example quickstart

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::sync::Arc;
use std::time::Duration;

use saltmill::arrow::array::{ArrayRef, Int64Array, StringArray, TimestampMillisecondArray};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::arrow::util::display::array_value_to_string;
use saltmill::{Aggregate, Collected, Engine, Job, Window};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // 300,000 purchases within three seconds; every second one is a guest's.
    let rows = 0..300_000_i64;
    let users = rows.clone().map(|row| match row % 2 {
        0 => "guest".to_owned(),
        _ => format!("user-{}", row * row % 7),
    });
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("user", Arc::new(StringArray::from_iter_values(users))),
        ("amount", Arc::new(Int64Array::from_iter_values(rows.clone().map(|row| row % 100)))),
        ("ts", Arc::new(TimestampMillisecondArray::from_iter_values(rows.map(|row| row / 100)))),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    let job = Job::builder(batch.schema())
        .key(["user"])
        .event_time("ts")
        .window(Window::tumbling(Duration::from_secs(1)))
        .aggregates([Aggregate::count(), Aggregate::sum("amount"), Aggregate::avg("amount")])
        .build()?;
    let results = Collected::new();
    let engine = Engine::start(job, results.clone())?;
    engine.ingest()?.push(batch)?;
    let report = engine.finish()?;

    let mut lines = Vec::new();
    for batch in results.take() {
        for row in 0..batch.num_rows() {
            let cells = batch.columns().iter().map(|column| array_value_to_string(column, row));
            lines.push(cells.collect::<Result<Vec<_>, _>>()?);
        }
    }
    lines.sort();
    println!(
        "{:<22}{:<22}{:<8}{:>8}{:>10}  avg",
        "window_start", "window_end", "user", "count", "sum"
    );
    for line in &lines {
        let [start, end, user, count, sum, avg] = line.as_slice() else { continue };
        println!("{start:<22}{end:<22}{user:<8}{count:>8}{sum:>10}  {avg}");
    }
    println!("{} rows in, {} result rows", report.rows_in, report.rows_out);
    Ok(())
}
