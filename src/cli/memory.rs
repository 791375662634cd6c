//! Inputs in memory, for `bench`: loaded once by all cores, given to each run anew without a copy.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;

use crate::error::SourceError;
use crate::runtime::sink::lock;
use crate::runtime::source::{Source, Take, Unit};
use crate::time::event_time::max_time;

/// Rows of a unit, about.
const UNIT_ROWS: usize = 64 << 10;
/// How long a loader waits for the reader of a text input.
const PENDING: Duration = Duration::from_micros(200);

/// One input.
#[derive(Debug, Clone)]
pub(super) struct Loaded(Arc<Vec<Part>>);

/// One unit: a batch and its largest event time.
#[derive(Debug, Clone)]
struct Part {
    batch: RecordBatch,
    time_max: Option<i64>,
}

impl Loaded {
    /// Reads a source to its end. `time` is the event-time column.
    pub(super) fn load(source: &dyn Source, time: Option<usize>) -> Result<Self, SourceError> {
        let loaders = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let units = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let loaders = (0..loaders)
                .map(|_| scope.spawn(|| load_units(source, time.is_some(), &units)))
                .collect::<Vec<_>>();
            loaders.into_iter().try_for_each(|loader| {
                loader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })?;
        let mut units = units.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        units.sort_by_key(|(ticket, _)| *ticket);
        let mut parts = Parts { time, waiting: Vec::new(), rows: 0, done: Vec::new() };
        for batch in units.into_iter().flat_map(|(_, batches)| batches) {
            parts.add(batch)?;
        }
        parts.flush()?;
        Ok(Self(Arc::new(parts.done)))
    }

    pub(super) fn rows(&self) -> u64 {
        self.0.iter().map(|part| part.batch.num_rows() as u64).sum()
    }

    /// A source over it.
    pub(super) fn source(&self) -> Arc<dyn Source> {
        Arc::new(MemorySource { parts: self.clone(), next: AtomicUsize::new(0) })
    }
}

fn load_units(
    source: &dyn Source,
    has_time: bool,
    units: &Mutex<Vec<(u64, Vec<RecordBatch>)>>,
) -> Result<(), SourceError> {
    loop {
        match source.take()? {
            Take::End => return Ok(()),
            Take::Pending => std::thread::sleep(PENDING),
            Take::Unit(mut unit) => {
                if has_time {
                    // Part of the contract: some units decode here.
                    unit.time_max()?;
                }
                let mut batches = Vec::new();
                while let Some(batch) = unit.next_batch()? {
                    batches.push(batch);
                }
                lock(units).push((unit.ticket(), batches));
            }
        }
    }
}

/// Batches gathered to units.
struct Parts {
    time: Option<usize>,
    waiting: Vec<RecordBatch>,
    rows: usize,
    done: Vec<Part>,
}

impl Parts {
    fn add(&mut self, batch: RecordBatch) -> Result<(), SourceError> {
        self.rows += batch.num_rows();
        self.waiting.push(batch);
        if self.rows >= UNIT_ROWS { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), SourceError> {
        let Some(first) = self.waiting.first() else { return Ok(()) };
        let batch = concat_batches(&first.schema(), &self.waiting).map_err(|e| SourceError {
            input: "loading into memory".to_owned(),
            place: None,
            message: e.to_string(),
        })?;
        let time_max = self.time.and_then(|time| max_time(batch.column(time)));
        self.waiting.clear();
        self.rows = 0;
        self.done.push(Part { batch, time_max });
        Ok(())
    }
}

#[derive(Debug)]
struct MemorySource {
    parts: Loaded,
    next: AtomicUsize,
}

impl Source for MemorySource {
    fn take(&self) -> Result<Take, SourceError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(part) = self.parts.0.get(index) else { return Ok(Take::End) };
        let (batch, time_max) = (Some(part.batch.clone()), part.time_max);
        Ok(Take::Unit(Box::new(MemoryUnit { ticket: index as u64, batch, time_max })))
    }
}

#[derive(Debug)]
struct MemoryUnit {
    ticket: u64,
    batch: Option<RecordBatch>,
    time_max: Option<i64>,
}

impl Unit for MemoryUnit {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        Ok(self.time_max)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        Ok(self.batch.take())
    }
}
