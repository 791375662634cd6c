//! Inputs in memory, for `bench`: loaded once by all cores, given to each run anew without a copy.

use std::sync::{Arc, Mutex};

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;

use super::reading::each_unit;
use crate::error::SourceError;
use crate::runtime::memory::MemorySource;
use crate::runtime::sink::lock;
use crate::runtime::source::Source;

/// Rows of a unit, about.
const UNIT_ROWS: usize = 64 << 10;

/// One input.
#[derive(Debug, Clone)]
pub(super) struct Loaded {
    batches: Arc<[RecordBatch]>,
    time: Option<usize>,
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
        let mut parts = Parts { waiting: Vec::new(), rows: 0, done: Vec::new() };
        for batch in units.into_iter().flat_map(|(_, batches)| batches) {
            parts.add(batch)?;
        }
        parts.flush()?;
        Ok(Self { batches: parts.done.into(), time })
    }

    pub(super) fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.num_rows() as u64).sum()
    }

    /// A source over it.
    pub(super) fn source(&self) -> Arc<dyn Source> {
        Arc::new(MemorySource::new(Arc::clone(&self.batches), self.time))
    }
}

fn load_units(
    source: &dyn Source,
    has_time: bool,
    units: &Mutex<Vec<(u64, Vec<RecordBatch>)>>,
) -> Result<(), SourceError> {
    each_unit(source, |unit| {
        if has_time {
            // Part of the contract: some units decode here.
            unit.time_max()?;
        }
        let mut batches = Vec::new();
        while let Some(batch) = unit.next_batch()? {
            batches.push(batch);
        }
        lock(units).push((unit.ticket(), batches));
        Ok(())
    })
}

/// Batches gathered to units.
struct Parts {
    waiting: Vec<RecordBatch>,
    rows: usize,
    done: Vec<RecordBatch>,
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
        self.waiting.clear();
        self.rows = 0;
        self.done.push(batch);
        Ok(())
    }
}
