//! Inputs that end early: when Ctrl-C is pressed, after so many rows, or when they are stopped. They count the
//! rows that they give, and let somebody look at them.

use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arrow::record_batch::RecordBatch;

use super::interrupt::Interrupt;
use crate::error::SourceError;
use crate::runtime::source::{Source, Take, Unit};

/// How long a reader waits for a text input.
const PENDING: Duration = Duration::from_micros(200);

/// Gives `visit` each unit of a source that nobody else waits for; several threads may share one.
pub(super) fn each_unit<E: From<SourceError>>(
    source: &dyn Source,
    mut visit: impl FnMut(&mut dyn Unit) -> Result<(), E>,
) -> Result<(), E> {
    loop {
        match source.take()? {
            Take::End => return Ok(()),
            Take::Pending => std::thread::sleep(PENDING),
            Take::Unit(mut unit) => visit(unit.as_mut())?,
        }
    }
}

/// Looks at what is read, on the threads that read.
pub(super) trait Onlooker: Debug + Send + Sync {
    /// A unit was taken; so many rows had been read before.
    fn unit(&self, rows_before: u64) -> Box<dyn UnitOnlooker>;
}

/// Looks at the rows of one unit.
pub(super) trait UnitOnlooker: Debug + Send {
    /// The next rows.
    fn batch(&mut self, batch: &RecordBatch) -> Result<(), SourceError>;
}

/// What ends the inputs, and how far they have come. Clones are one.
#[derive(Debug, Clone)]
pub(super) struct Reading(Arc<State>);

#[derive(Debug)]
struct State {
    interrupt: Interrupt,
    limit: u64,
    onlooker: Option<Arc<dyn Onlooker>>,
    /// Rows handed out, or about to be.
    rows: AtomicU64,
    stopped: AtomicBool,
    cut: AtomicBool,
}

impl Reading {
    /// Reading of at most `limit` rows.
    pub(super) fn new(
        interrupt: &Interrupt,
        limit: Option<u64>,
        onlooker: Option<Arc<dyn Onlooker>>,
    ) -> Self {
        Self(Arc::new(State {
            interrupt: interrupt.clone(),
            limit: limit.unwrap_or(u64::MAX),
            onlooker,
            rows: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            cut: AtomicBool::new(false),
        }))
    }

    /// Ends all inputs where they are.
    pub(super) fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    /// Rows handed out.
    pub(super) fn rows(&self) -> u64 {
        self.0.rows.load(Ordering::Relaxed).min(self.0.limit)
    }

    /// Whether an input ended before its end.
    pub(super) fn is_cut(&self) -> bool {
        self.0.cut.load(Ordering::Relaxed)
    }

    /// The sources, all of which end together.
    pub(super) fn wrap(&self, sources: Vec<Arc<dyn Source>>) -> Vec<Arc<dyn Source>> {
        let wrap = |source| Arc::new(Ending { source, reading: self.clone() }) as Arc<dyn Source>;
        sources.into_iter().map(wrap).collect()
    }

    fn is_stopped(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
            || self.0.rows.load(Ordering::Relaxed) >= self.0.limit
    }

    fn note_cut(&self) {
        self.0.cut.store(true, Ordering::Relaxed);
    }

    /// Rows that may be handed out of the next `rows`.
    fn admit(&self, rows: u64) -> u64 {
        let before = self.0.rows.fetch_add(rows, Ordering::Relaxed);
        self.0.limit.saturating_sub(before).min(rows)
    }
}

#[derive(Debug)]
struct Ending {
    source: Arc<dyn Source>,
    reading: Reading,
}

impl Source for Ending {
    fn take(&self) -> Result<Take, SourceError> {
        if self.reading.is_stopped() || self.reading.0.interrupt.is_asked() {
            self.reading.note_cut();
            return Ok(Take::End);
        }
        Ok(match self.source.take()? {
            Take::Unit(unit) => {
                let reading = self.reading.clone();
                let onlooker = reading.0.onlooker.as_ref();
                let onlooker = onlooker.map(|onlooker| onlooker.unit(reading.rows()));
                Take::Unit(Box::new(EndingUnit { unit, reading, onlooker }))
            }
            other => other,
        })
    }

    fn rejected(&self) -> Vec<(String, u64)> {
        self.source.rejected()
    }

    fn name(&self) -> String {
        self.source.name()
    }

    fn position(&self) -> Option<String> {
        self.source.position()
    }

    fn resume(&self, position: &str) -> Result<(), SourceError> {
        self.source.resume(position)
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }
}

#[derive(Debug)]
struct EndingUnit {
    unit: Box<dyn Unit>,
    reading: Reading,
    onlooker: Option<Box<dyn UnitOnlooker>>,
}

impl Unit for EndingUnit {
    fn ticket(&self) -> u64 {
        self.unit.ticket()
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        self.unit.time_max()
    }

    fn time_min(&self) -> Option<i64> {
        self.unit.time_min()
    }

    /// A unit that was begun is read to its end when Ctrl-C is pressed, as whole units are what an input
    /// consists of; not beyond a limit, though.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        if self.reading.is_stopped() {
            self.reading.note_cut();
            return Ok(None);
        }
        let Some(batch) = self.unit.next_batch()? else { return Ok(None) };
        let rows = batch.num_rows();
        let admitted = usize::try_from(self.reading.admit(rows as u64)).expect("at most `rows`");
        if admitted < rows {
            self.reading.note_cut();
        }
        let batch = batch.slice(0, admitted);
        if let Some(onlooker) = &mut self.onlooker {
            onlooker.batch(&batch)?;
        }
        Ok((admitted > 0).then_some(batch))
    }
}
