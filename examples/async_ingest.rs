//! Producers and a consumer that are async tasks, on tokio: waiting for room or for a result holds no thread
//! of the runtime. Nothing here is particular to tokio but the spawning and sleeping.
//!
//!     cargo run --release --example async_ingest

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use saltmill::arrow::array::AsArray;
use saltmill::arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use saltmill::{Aggregate, Appender, Engine, Job, RunError, TryAppendError, Window, channel};

const PRODUCERS: i64 = 8;
const ROWS: i64 = 50_000;

/// A sensor that sends a value a millisecond, in bursts.
async fn sensor(id: i64, mut appender: Appender) -> Result<(), Box<dyn Error + Send + Sync>> {
    for row in 0..ROWS {
        // Waits for room if the engine is behind; the thread serves other tasks meanwhile.
        appender.append_async((id % 3, row, row % 100)).await?;
        if row % 10_000 == 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
    Ok(appender.close_async().await?)
}

/// One that would rather lose a value than wait: it takes the row back when there is no room.
async fn impatient(mut appender: Appender) -> Result<u64, RunError> {
    let mut given_up = 0;
    for row in 0..ROWS {
        match appender.try_append((99, row, 1)) {
            Ok(()) => {}
            Err(TryAppendError::Full(_row)) => given_up += 1,
            Err(TryAppendError::Run(error)) => return Err(error),
            Err(TryAppendError::Row(error)) => unreachable!("the row fits: {error}"),
        }
        if row % 100 == 0 {
            tokio::task::yield_now().await;
        }
    }
    appender.close_async().await?;
    Ok(given_up)
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let schema = Schema::new(vec![
        Field::new("sensor", DataType::Int64, false),
        Field::new("at", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        Field::new("value", DataType::Int64, false),
    ]);
    let job = Job::builder(Arc::new(schema))
        .key(["sensor"])
        .event_time("at")
        .window(Window::tumbling(Duration::from_secs(1)))
        .aggregates([Aggregate::count(), Aggregate::sum("value")])
        .build()?;
    let (sink, mut results) = channel(8);
    let engine = Engine::start(job, sink)?;
    // All handles are open before the first row: windows wait for everybody.
    let appender = || engine.ingest()?.appender();
    let appenders = (0..PRODUCERS).map(|_| appender()).collect::<Result<Vec<_>, _>>()?;
    let last = appender()?;

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    let (rows, given_up) = runtime.block_on(async {
        let consumer = tokio::spawn(async move {
            let mut rows = 0;
            while let Some(batch) = results.recv().await {
                let counts = batch.column_by_name("count").expect("asked for");
                rows += counts.as_primitive::<Int64Type>().values().iter().sum::<i64>();
            }
            rows
        });
        let sensors =
            (0_i64..).zip(appenders).map(|(id, appender)| tokio::spawn(sensor(id, appender)));
        let sensors = sensors.collect::<Vec<_>>();
        let impatient = tokio::spawn(impatient(last));
        for sensor in sensors {
            sensor.await??;
        }
        let given_up = impatient.await??;
        // Finishing waits for the last results, which is a thread's business.
        let report = tokio::task::spawn_blocking(|| engine.finish()).await??;
        println!(
            "{} rows in, {} late, {} result rows",
            report.rows_in, report.rows_late, report.rows_out
        );
        Ok::<_, Box<dyn Error + Send + Sync>>((consumer.await?, given_up))
    })?;
    println!("the consumer saw {rows} rows; {given_up} were given up for want of room");
    Ok(())
}
