//! An engine without threads: the caller's loop does all the work, step by step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::record_batch::RecordBatch;

use super::blame::panicked;
use super::engine::Engine;
use super::ingest::{Ingest, TryPushError};
use super::metrics::Metrics;
use super::reader::{ReadError, Reader};
use super::report::RunReport;
use super::shard::{Progress, Shard};
use super::sink::Sink;
use super::stats::WorkerStats;
use crate::config::Job;
use crate::error::RunError;

/// Messages each shard takes in one step.
const STEP_MESSAGES: usize = 4;

/// An engine that runs inside the caller's loop: for tests, simulations, and programs that own their threads.
///
/// Nothing happens between two calls. Feed handles with [`Ingest::try_push`], or [`Driver::push`]: a plain
/// [`Ingest::push`] on the same thread would wait for room that only [`Driver::step`] can make. An
/// [`Appender`](crate::Appender) works too, with `try_append`; it starts the timer's thread.
///
/// Results are the same as with threads. Dropping it without [`Driver::finish`] abandons the run.
#[derive(Debug)]
pub struct Driver {
    engine: Engine,
    shards: Vec<Shard>,
    done: Vec<bool>,
}

impl Driver {
    /// A job that is driven by the caller.
    pub fn new(job: Job, sink: impl Sink + 'static) -> Self {
        let engine = Engine::without_threads(job, Arc::new(sink));
        let shared = engine.shared();
        let workers = shared.topology().workers();
        let shards = (0..workers).map(|id| Shard::new(id, Arc::clone(shared))).collect();
        Self { engine, shards, done: vec![false; workers] }
    }

    /// Opens a handle for one more producer.
    ///
    /// # Errors
    /// If the run has failed.
    pub fn ingest(&self) -> Result<Ingest, RunError> {
        self.engine.ingest()
    }

    /// Does a bounded amount of work: a few batches of each shard. True if there was something to do.
    ///
    /// # Errors
    /// Whatever made the run fail.
    pub fn step(&mut self) -> Result<bool, RunError> {
        let mut worked = false;
        for (id, shard) in self.shards.iter_mut().enumerate() {
            if self.engine.shared().is_stopped() {
                return Err(self.engine.shared().take_error().unwrap_or(RunError::Stopped));
            }
            let step = catch_unwind(AssertUnwindSafe(|| shard.step(STEP_MESSAGES)));
            let step =
                step.unwrap_or_else(|panic| Err(panicked(format!("shard {id}"), panic.as_ref())));
            match step {
                Ok(Progress::Worked) => worked = true,
                Ok(Progress::Idle) => {}
                Ok(Progress::Done) => {
                    worked |= !std::mem::replace(&mut self.done[id], true);
                }
                Err(error) => {
                    self.engine.shared().fail(error);
                    return Err(self.engine.shared().take_error().unwrap_or(RunError::Stopped));
                }
            }
            shard.publish(0);
        }
        Ok(worked)
    }

    /// Feeds a batch through a handle of this driver, doing steps while there is no room.
    ///
    /// # Errors
    /// As [`Ingest::push`], and whatever made the run fail.
    pub fn push(&mut self, ingest: &mut Ingest, batch: RecordBatch) -> Result<(), RunError> {
        let mut batch = batch;
        loop {
            match ingest.try_push(batch) {
                Ok(()) => return Ok(()),
                Err(TryPushError::Full(back)) => batch = back,
                Err(TryPushError::Run(error)) => {
                    return Err(self.engine.shared().take_error().unwrap_or(error));
                }
            }
            self.step()?;
        }
    }

    /// See [`Engine::reader`](super::engine::Engine::reader).
    ///
    /// # Errors
    /// As there.
    pub fn reader(&self) -> Result<Reader, ReadError> {
        self.engine.reader()
    }

    /// What the shards tell of themselves.
    pub fn metrics(&self) -> Metrics {
        self.engine.metrics()
    }

    /// Closes `handles`, which must be all that are open, does what is left, and reports. (A handle that is
    /// closed by itself waits for room; here steps are done meanwhile.)
    ///
    /// # Errors
    /// Whatever made the run fail.
    pub fn finish(
        mut self,
        handles: impl IntoIterator<Item = Ingest>,
    ) -> Result<RunReport, RunError> {
        for handle in handles {
            let intake = handle.shared();
            while !super::sink::lock(&intake).try_end()? {
                self.step()?;
            }
        }
        self.engine.begin_finish();
        while !self.done.iter().all(|done| *done) {
            if !self.step()? && !self.done.iter().all(|done| *done) {
                // Another thread's handle is still open.
                std::thread::yield_now();
            }
        }
        let stats = self
            .shards
            .iter()
            .map(|shard| WorkerStats { shard: shard.stats.clone(), ..WorkerStats::default() });
        let stats = stats.collect::<Vec<_>>();
        self.engine.end(&stats)
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if !self.done.iter().all(|done| *done) {
            let shared = self.engine.shared();
            shared.stop();
            shared.timer.stop();
            shared.sink.ended();
        }
    }
}
