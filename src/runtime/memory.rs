//! An input that is in memory already: for benches, tests, and programs that have their batches at hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow::record_batch::RecordBatch;

use super::source::{Source, Take, Unit};
use crate::error::{ConfigError, SourceError};
use crate::kernel::Isa;
use crate::kernel::reduce::MinMax;
use crate::time::event_time::times;

/// Batches as a [`Source`], each one unit of work. Clones share the batches and start at the first.
#[derive(Debug)]
pub struct MemorySource {
    batches: Arc<[RecordBatch]>,
    /// The event-time column, if the job has one.
    time: Option<usize>,
    next: AtomicUsize,
}

impl MemorySource {
    /// A source of `batches`, whose column `time` is the event time.
    pub fn new(batches: impl Into<Arc<[RecordBatch]>>, time: Option<usize>) -> Self {
        Self { batches: batches.into(), time, next: AtomicUsize::new(0) }
    }
}

impl Clone for MemorySource {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.batches), self.time)
    }
}

impl Source for MemorySource {
    fn take(&self) -> Result<Take, SourceError> {
        let index = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(batch) = self.batches.get(index) else { return Ok(Take::End) };
        let batch = Some(batch.clone());
        let ticket = index as u64;
        Ok(Take::Unit(Box::new(MemoryUnit { ticket, batch, time: self.time, time_min: None })))
    }
}

#[derive(Debug)]
struct MemoryUnit {
    ticket: u64,
    batch: Option<RecordBatch>,
    time: Option<usize>,
    time_min: Option<i64>,
}

impl Unit for MemoryUnit {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        let (Some(batch), Some(time)) = (&self.batch, self.time) else { return Ok(None) };
        let times = times(batch.column(time)).map_err(|error: ConfigError| SourceError {
            input: "memory".into(),
            place: None,
            message: error.to_string(),
        })?;
        if let Some(nulls) = &times.nulls {
            return Ok(nulls.valid_indices().map(|row| times.values[row]).max());
        }
        let range = Isa::best().run(MinMax(&times.values));
        self.time_min = range.map(|(min, _)| min);
        Ok(range.map(|(_, max)| max))
    }

    fn time_min(&self) -> Option<i64> {
        self.time_min
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        Ok(self.batch.take())
    }
}
