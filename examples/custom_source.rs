//! A source of one's own: the engine's workers pull from it themselves, so that reading, decoding and
//! aggregating share the cores. Here it is a log in memory, cut into blocks of lines that workers decode in
//! parallel; lines that are no events are rejected and counted.
//!
//!     cargo run --release --example custom_source

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use saltmill::arrow::array::{ArrayRef, Int64Array, StringArray};
use saltmill::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::error::SourceError;
use saltmill::runtime::source::{Source, Take, Unit};
use saltmill::{Aggregate, Collected, Engine, Job, Window};

const BLOCK_LINES: usize = 1000;

#[derive(Debug)]
struct Log {
    schema: SchemaRef,
    lines: Vec<String>,
    next: AtomicUsize,
    rejected: Arc<AtomicU64>,
}

impl Source for Log {
    fn take(&self) -> Result<Take, SourceError> {
        // Any number of workers ask at once; each block is handed out once, numbered without gaps.
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(lines) = self.lines.chunks(BLOCK_LINES).nth(ticket) else { return Ok(Take::End) };
        Ok(Take::Unit(Box::new(Block {
            ticket: ticket as u64,
            lines: lines.to_vec(),
            schema: Arc::clone(&self.schema),
            rejected: Arc::clone(&self.rejected),
            decoded: None,
        })))
    }

    fn rejected(&self) -> Vec<(String, u64)> {
        vec![("no_event".to_owned(), self.rejected.load(Ordering::Relaxed))]
    }
}

#[derive(Debug)]
struct Block {
    ticket: u64,
    lines: Vec<String>,
    schema: SchemaRef,
    rejected: Arc<AtomicU64>,
    decoded: Option<RecordBatch>,
}

impl Unit for Block {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    /// Called first, on the worker's thread: the place to decode.
    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        let events = self.lines.iter().map(|line| {
            let (time, user) = line.split_once(' ')?;
            Some((time.parse::<i64>().ok()?, user))
        });
        let (good, bad): (Vec<_>, Vec<_>) = events.partition(Option::is_some);
        self.rejected.fetch_add(bad.len() as u64, Ordering::Relaxed);
        let (times, users): (Vec<i64>, Vec<&str>) = good.into_iter().flatten().unzip();
        let latest = times.iter().max().copied();
        let columns: Vec<ArrayRef> =
            vec![Arc::new(Int64Array::from(times)), Arc::new(StringArray::from(users))];
        let batch = RecordBatch::try_new(Arc::clone(&self.schema), columns);
        self.decoded = Some(batch.map_err(|error| SourceError {
            input: "log".to_owned(),
            place: Some(format!("block {}", self.ticket)),
            message: error.to_string(),
        })?);
        Ok(latest)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        Ok(self.decoded.take())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let schema = Arc::new(Schema::new(vec![
        Field::new("ms", DataType::Int64, false),
        Field::new("user", DataType::Utf8, false),
    ]));
    let lines = (0..100_000_u64).map(|i| match i % 1000 {
        999 => "# rotated".to_owned(),
        _ => format!("{} user-{}", i / 10, i * i % 13),
    });
    let log = Log {
        schema: Arc::clone(&schema),
        lines: lines.collect(),
        next: AtomicUsize::new(0),
        rejected: Arc::default(),
    };
    let job = Job::builder(schema)
        .key(["user"])
        .event_time("ms")
        .window(Window::tumbling(Duration::from_secs(5)))
        .aggregate(Aggregate::count())
        .build()?;
    let results = Collected::new();
    let report = Engine::start_on(job, vec![Arc::new(log)], results.clone())?.finish()?;
    println!("{} lines, rejected: {:?}", report.rows_in, report.rows_rejected);
    println!("{} result rows in {} batches", report.rows_out, results.take().len());
    Ok(())
}
