//! The job's sink, and in front of it the line that a checkpoint draws through the results.
//!
//! Shards pass a barrier one after the other. Results of a shard that has passed are held until all have; then the
//! sink says where its outputs stand, and takes what was held. So every output is cut at one place: before it
//! lie the results of all shards up to the barrier, and nothing else.

use std::sync::{Arc, Mutex};

use arrow::record_batch::RecordBatch;

use super::sink::{Rejection, Sink, lock};
use crate::checkpoint::OutputState;
use crate::error::SinkError;

/// See the module's documentation.
pub(crate) struct Outlet {
    sink: Arc<dyn Sink>,
    line: Mutex<Line>,
}

#[derive(Debug)]
struct Line {
    /// Which shards have passed the barrier.
    passed: Vec<bool>,
    /// What came of those since, in order.
    held: Vec<(usize, Held)>,
    /// The last barrier that all have passed, and where the outputs stood.
    complete: Option<(u64, Vec<OutputState>)>,
    /// No barrier up to this is waited for.
    abandoned: u64,
}

#[derive(Debug)]
enum Held {
    Results(RecordBatch),
    Progress(i64),
}

impl std::fmt::Debug for Outlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outlet").field("line", &self.line).finish_non_exhaustive()
    }
}

impl Outlet {
    pub(crate) fn new(sink: Arc<dyn Sink>, shards: usize) -> Self {
        let line =
            Line { passed: vec![false; shards], held: Vec::new(), complete: None, abandoned: 0 };
        Self { sink, line: Mutex::new(line) }
    }

    /// The job's own sink.
    pub(crate) fn sink(&self) -> &dyn Sink {
        &*self.sink
    }

    /// From now on results come of so many other shards.
    pub(crate) fn rescale(&self, shards: usize) {
        lock(&self.line).passed = vec![false; shards];
        self.sink.rescaled(shards);
    }

    /// `shard` has given everything that comes before the barrier.
    pub(crate) fn pass(&self, shard: usize, barrier: u64) -> Result<(), SinkError> {
        let mut line = lock(&self.line);
        if barrier <= line.abandoned {
            return Ok(());
        }
        line.passed[shard] = true;
        if line.passed.iter().all(|passed| *passed) {
            line.complete = Some((barrier, self.sink.cut()?));
            self.release(&mut line)?;
        }
        Ok(())
    }

    /// Nobody waits for this barrier any more.
    pub(crate) fn abandon(&self, barrier: u64) -> Result<(), SinkError> {
        let mut line = lock(&self.line);
        line.abandoned = barrier;
        self.release(&mut line)
    }

    /// Where the outputs stood at the barrier; none if it has not been passed by all.
    pub(crate) fn take_cut(&self, barrier: u64) -> Option<Vec<OutputState>> {
        let complete = lock(&self.line).complete.take()?;
        (complete.0 == barrier).then_some(complete.1)
    }

    fn release(&self, line: &mut Line) -> Result<(), SinkError> {
        line.passed.fill(false);
        line.held.drain(..).try_for_each(|(shard, held)| match held {
            Held::Results(batch) => self.sink.results(shard, batch),
            Held::Progress(watermark) => self.sink.progress(shard, watermark),
        })
    }

    /// Holds what comes of a shard that has passed; gives it back if it has not.
    fn hold(&self, shard: usize, held: Held) -> Option<Held> {
        let mut line = lock(&self.line);
        if !line.passed[shard] {
            return Some(held);
        }
        line.held.push((shard, held));
        None
    }
}

impl Sink for Outlet {
    fn results(&self, shard: usize, batch: RecordBatch) -> Result<(), SinkError> {
        match self.hold(shard, Held::Results(batch)) {
            Some(Held::Results(batch)) => self.sink.results(shard, batch),
            _ => Ok(()),
        }
    }

    fn progress(&self, shard: usize, watermark: i64) -> Result<(), SinkError> {
        match self.hold(shard, Held::Progress(watermark)) {
            Some(Held::Progress(watermark)) => self.sink.progress(shard, watermark),
            _ => Ok(()),
        }
    }

    fn finishing(&self) {
        self.sink.finishing();
    }

    fn ended(&self) {
        self.sink.ended();
    }

    fn wants_side_outputs(&self) -> bool {
        self.sink.wants_side_outputs()
    }

    fn late(&self, rows: RecordBatch) -> Result<(), SinkError> {
        self.sink.late(rows)
    }

    fn rejected(&self, reason: Rejection, rows: RecordBatch) -> Result<(), SinkError> {
        self.sink.rejected(reason, rows)
    }

    fn cut_inputs(&self) -> Result<(), SinkError> {
        self.sink.cut_inputs()
    }
}
