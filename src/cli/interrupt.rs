//! Ctrl-C: the first ends the inputs, so that the run ends as if they had ended there; the second ends
//! the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use arrow::record_batch::RecordBatch;

use crate::error::SourceError;
use crate::runtime::source::{Source, Take, Unit};

/// Work is under way. Before (0), nothing has been read that could be kept, and Ctrl-C ends the process at
/// once.
const RUNNING: u8 = 1;
/// Ctrl-C was pressed once.
const ASKED: u8 = 2;

/// Exit code of a process ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Whether Ctrl-C was pressed. Clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicU8>);

impl Interrupt {
    /// Listens to Ctrl-C from now on.
    pub(super) fn listen() -> Self {
        let interrupt = Self::default();
        let state = Arc::clone(&interrupt.0);
        let asked = move || {
            if state.compare_exchange(RUNNING, ASKED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                super::watch::give_back_screen();
                std::process::exit(INTERRUPTED);
            }
        };
        // Without a handler Ctrl-C ends the process the hard way, which is no reason not to work.
        let _ = ctrlc::set_handler(asked);
        interrupt
    }

    /// From now on there is something to keep.
    pub(super) fn begin(&self) {
        self.0.store(RUNNING, Ordering::SeqCst);
    }

    /// Whether Ctrl-C was pressed since [`Interrupt::begin`].
    pub(super) fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst) == ASKED
    }
}

/// A source that ends when Ctrl-C is pressed, and counts the rows it gave.
#[derive(Debug)]
pub(super) struct Interruptible {
    source: Arc<dyn Source>,
    interrupt: Interrupt,
    rows: Arc<AtomicU64>,
    cut: Arc<AtomicBool>,
}

impl Interruptible {
    /// Wraps all sources of a run. `rows` counts what they give, `cut` tells whether one was ended
    /// before its end.
    pub(super) fn wrap(
        sources: Vec<Arc<dyn Source>>,
        interrupt: &Interrupt,
        rows: &Arc<AtomicU64>,
        cut: &Arc<AtomicBool>,
    ) -> Vec<Arc<dyn Source>> {
        let wrap = |source| {
            let (rows, cut) = (Arc::clone(rows), Arc::clone(cut));
            Arc::new(Self { source, interrupt: interrupt.clone(), rows, cut }) as Arc<dyn Source>
        };
        sources.into_iter().map(wrap).collect()
    }
}

impl Source for Interruptible {
    fn take(&self) -> Result<Take, SourceError> {
        if self.interrupt.is_asked() {
            self.cut.store(true, Ordering::Relaxed);
            return Ok(Take::End);
        }
        Ok(match self.source.take()? {
            Take::Unit(unit) => {
                Take::Unit(Box::new(Counted { unit, rows: Arc::clone(&self.rows) }))
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
struct Counted {
    unit: Box<dyn Unit>,
    rows: Arc<AtomicU64>,
}

impl Unit for Counted {
    fn ticket(&self) -> u64 {
        self.unit.ticket()
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        self.unit.time_max()
    }

    fn time_min(&self) -> Option<i64> {
        self.unit.time_min()
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let batch = self.unit.next_batch()?;
        let rows = batch.as_ref().map_or(0, RecordBatch::num_rows);
        self.rows.fetch_add(rows as u64, Ordering::Relaxed);
        Ok(batch)
    }
}
