//! A producer's handle, for programs that feed an engine themselves.
//!
//! A handle is used by one thread at a time. Between two calls anybody may see to it that partials it
//! holds are handed on ([`Served`]), so a reader sees all rows that were pushed, however silent their
//! producers are. That costs each call an uncontended lock, and rows nothing.

use std::sync::{Arc, Mutex, PoisonError, TryLockError};

use arrow::record_batch::RecordBatch;

use super::intake::Intake;
pub use super::intake::TryPushError;
use super::shared::{EngineShared, Served};
use super::sink::lock;
use crate::error::RunError;

/// A handle through which one thread feeds rows into an [`Engine`](super::engine::Engine).
///
/// Rows of one handle are in order: its watermark is the largest event time pushed so far less the
/// job's out-of-orderness. Windows close when all open handles have passed their end, so open all
/// handles before pushing to one, and close (or drop) those that are done.
#[derive(Debug)]
pub struct Ingest(Arc<Mutex<Intake>>);

impl Ingest {
    /// Opens a handle and makes it known to all shards and readers.
    pub(crate) fn open(engine: &Arc<EngineShared>) -> Self {
        let intake = Arc::new(Mutex::new(Intake::open(engine)));
        let weak = Arc::downgrade(&intake);
        engine.enter(weak);
        Self(intake)
    }

    /// The same, under a name for checkpoints.
    pub(crate) fn open_named(engine: &Arc<EngineShared>, name: String) -> Self {
        let ingest = Self::open(engine);
        lock(&ingest.0).set_name(name);
        ingest
    }

    /// What others share of it.
    pub(crate) fn shared(&self) -> Arc<Mutex<Intake>> {
        Arc::clone(&self.0)
    }

    /// Feeds a batch, waiting for room as long as needed.
    ///
    /// # Errors
    /// If the batch does not have the job's schema, or the run has failed.
    pub fn push(&mut self, batch: RecordBatch) -> Result<(), RunError> {
        lock(&self.0).push(batch)
    }

    /// The same, and takes note of where the rows after the batch will come from, in the caller's own words (the
    /// offset of a queue, say). A checkpoint holds the position of the last batch in it, of handles with a name
    /// ([`Engine::ingest_named`](crate::Engine::ingest_named)).
    ///
    /// # Errors
    /// As [`Ingest::push`].
    pub fn push_at(
        &mut self,
        batch: RecordBatch,
        position: impl Into<String>,
    ) -> Result<(), RunError> {
        lock(&self.0).push_at(batch, position.into())
    }

    /// The position of the last [`Ingest::push_at`]; in a run that goes on from a checkpoint, at first the one
    /// in the checkpoint.
    pub fn position(&self) -> Option<String> {
        lock(&self.0).position().map(str::to_owned)
    }

    /// Feeds a batch if there is room, else gives it back. A batch that was taken may still be partly in
    /// the handle; later calls, [`Ingest::flush`] and closing hand it on.
    ///
    /// # Errors
    /// [`TryPushError::Full`] with the batch if an earlier one has not been handed on yet, or the input is too
    /// far ahead of the others ([`JobBuilder::alignment`](crate::JobBuilder::alignment)).
    pub fn try_push(&mut self, batch: RecordBatch) -> Result<(), TryPushError> {
        lock(&self.0).try_push(batch)
    }

    /// Promises that no row before `time` (in the unit of the event-time column) will follow; rows that
    /// break the promise are late. Waits for room.
    pub fn watermark(&mut self, time: i64) -> Result<(), RunError> {
        lock(&self.0).watermark(time)
    }

    /// Excuses this handle from holding back the watermark, until its next push.
    pub fn idle(&mut self) -> Result<(), RunError> {
        lock(&self.0).idle()
    }

    /// Hands on what [`Ingest::try_push`] left in the handle, waiting for room.
    pub fn flush(&mut self) -> Result<(), RunError> {
        lock(&self.0).wait_flush()
    }

    /// Ends this producer: hands on what is left and releases its hold on the watermark. Dropping the
    /// handle does the same, without telling of an error.
    pub fn close(self) -> Result<(), RunError> {
        lock(&self.0).end()
    }
}

impl Drop for Ingest {
    fn drop(&mut self) {
        // Here and not when the last reference goes, which may be that of whoever is serving it.
        lock(&self.0).end_quietly();
    }
}

impl Served for Mutex<Intake> {
    fn give_wanted(&self) {
        match self.try_lock() {
            Ok(mut intake) => intake.give_wanted(),
            Err(TryLockError::Poisoned(intake)) => PoisonError::into_inner(intake).give_wanted(),
            Err(TryLockError::WouldBlock) => {}
        }
    }
}
