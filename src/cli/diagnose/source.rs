//! Inputs that end early: after so many rows, or when they are stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;

use crate::cli::interrupt::Interrupt;
use crate::error::SourceError;
use crate::runtime::source::{Source, Take, Unit};

/// What ends the inputs, and how far they have come.
#[derive(Debug, Clone)]
pub(super) struct Reading(Arc<State>);

#[derive(Debug)]
struct State {
    interrupt: Interrupt,
    limit: u64,
    /// Rows handed out, or about to be.
    rows: AtomicU64,
    stopped: AtomicBool,
    cut: AtomicBool,
}

impl Reading {
    /// Reading of at most `limit` rows.
    pub(super) fn new(interrupt: &Interrupt, limit: Option<u64>) -> Self {
        Self(Arc::new(State {
            interrupt: interrupt.clone(),
            limit: limit.unwrap_or(u64::MAX),
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
        let wrap = |source| Arc::new(Limited { source, reading: self.clone() }) as Arc<dyn Source>;
        sources.into_iter().map(wrap).collect()
    }

    fn has_ended(&self) -> bool {
        self.0.stopped.load(Ordering::Relaxed)
            || self.0.rows.load(Ordering::Relaxed) >= self.0.limit
            || self.0.interrupt.is_asked()
    }

    /// Rows that may be handed out of the next `rows`.
    fn admit(&self, rows: u64) -> u64 {
        let before = self.0.rows.fetch_add(rows, Ordering::Relaxed);
        self.0.limit.saturating_sub(before).min(rows)
    }
}

#[derive(Debug)]
struct Limited {
    source: Arc<dyn Source>,
    reading: Reading,
}

impl Source for Limited {
    fn take(&self) -> Result<Take, SourceError> {
        if self.reading.has_ended() {
            self.reading.0.cut.store(true, Ordering::Relaxed);
            return Ok(Take::End);
        }
        Ok(match self.source.take()? {
            Take::Unit(unit) => {
                Take::Unit(Box::new(LimitedUnit { unit, reading: self.reading.clone() }))
            }
            other => other,
        })
    }

    fn rejected(&self) -> Vec<(String, u64)> {
        self.source.rejected()
    }

    fn is_live(&self) -> bool {
        self.source.is_live()
    }
}

#[derive(Debug)]
struct LimitedUnit {
    unit: Box<dyn Unit>,
    reading: Reading,
}

impl Unit for LimitedUnit {
    fn ticket(&self) -> u64 {
        self.unit.ticket()
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        self.unit.time_max()
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        if self.reading.has_ended() {
            self.reading.0.cut.store(true, Ordering::Relaxed);
            return Ok(None);
        }
        let Some(batch) = self.unit.next_batch()? else { return Ok(None) };
        let rows = batch.num_rows();
        let admitted = usize::try_from(self.reading.admit(rows as u64)).expect("at most `rows`");
        if admitted < rows {
            self.reading.0.cut.store(true, Ordering::Relaxed);
        }
        Ok((admitted > 0).then(|| batch.slice(0, admitted)))
    }
}
