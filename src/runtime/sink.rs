//! Where results go.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use arrow::record_batch::RecordBatch;

use super::report::CheckpointReport;
use crate::checkpoint::OutputState;
use crate::error::{CheckpointError, SinkError};

/// Why a row could not be aggregated.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Rejection {
    /// Its event time is null.
    NullTime,
    /// Its window would not lie within the range of times.
    TimeOutOfRange,
    /// It lies between two windows, in a job whose windows leave gaps.
    BetweenWindows,
}

impl Rejection {
    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::NullTime => "null_time",
            Self::TimeOutOfRange => "time_out_of_range",
            Self::BetweenWindows => "between_windows",
        }
    }
}

/// Consumer of results. Called by all shards, each on its own thread; a call that waits holds its shard
/// back, and through it the producers.
pub trait Sink: Send + Sync {
    /// Results of one shard: rows of the job's output schema, of one window.
    fn results(&self, shard: usize, batch: RecordBatch) -> Result<(), SinkError>;

    /// `shard` has given every result of windows that end at or before `watermark`.
    fn progress(&self, shard: usize, watermark: i64) -> Result<(), SinkError> {
        let _ = (shard, watermark);
        Ok(())
    }

    /// The run was rescaled ([`Engine::rescale`](crate::Engine::rescale)): from now on results and progress come of
    /// so many shards, which have other keys than those before, and none of those any more. What the shards before
    /// have given stands.
    fn rescaled(&self, shards: usize) {
        let _ = shards;
    }

    /// The engine is being finished, or has failed: whoever finished it may read results only afterwards, so
    /// from now on the sink must not wait for that.
    fn finishing(&self) {}

    /// All shards have stopped: no result will follow. Handles of producers may still keep the sink alive.
    fn ended(&self) {}

    /// Whether late and rejected rows are wanted. Without, they are only counted.
    fn wants_side_outputs(&self) -> bool {
        false
    }

    /// Rows, in the input's columns, whose windows are all closed.
    fn late(&self, rows: RecordBatch) -> Result<(), SinkError> {
        let _ = rows;
        Ok(())
    }

    /// Rows, in the input's columns, that could not be used.
    fn rejected(&self, reason: Rejection, rows: RecordBatch) -> Result<(), SinkError> {
        let _ = (reason, rows);
        Ok(())
    }

    /// In a run over sources, at a checkpoint: all rows before it have been read, and none after, so that what
    /// was said of them through [`Sink::late`] and [`Sink::rejected`] is complete. Called before
    /// [`Sink::cut`]; where rows come through handles, it is not called.
    fn cut_inputs(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// At a checkpoint: all results before it have been given, and none after. Answers where each output stands, in
    /// words of the sink's own, which stand in the checkpoint: a run that goes on from it gives all results
    /// from there again. Must not wait for long: shards stand still.
    fn cut(&self) -> Result<Vec<OutputState>, SinkError> {
        Ok(Vec::new())
    }

    /// Makes outputs durable up to where they stood at the last [`Sink::cut`], before the checkpoint counts as
    /// complete. Called on a thread of its own.
    fn sync(&self) -> Result<(), SinkError> {
        Ok(())
    }

    /// A checkpoint was taken, or failed; then the run goes on, and the last one before it is still good.
    fn checkpointed(&self, outcome: Result<&CheckpointReport, &CheckpointError>) {
        let _ = outcome;
    }
}

/// A sink that the engine and whoever started it share.
impl<S: Sink + ?Sized> Sink for Arc<S> {
    fn results(&self, shard: usize, batch: RecordBatch) -> Result<(), SinkError> {
        (**self).results(shard, batch)
    }

    fn progress(&self, shard: usize, watermark: i64) -> Result<(), SinkError> {
        (**self).progress(shard, watermark)
    }

    fn rescaled(&self, shards: usize) {
        (**self).rescaled(shards);
    }

    fn finishing(&self) {
        (**self).finishing();
    }

    fn ended(&self) {
        (**self).ended();
    }

    fn wants_side_outputs(&self) -> bool {
        (**self).wants_side_outputs()
    }

    fn late(&self, rows: RecordBatch) -> Result<(), SinkError> {
        (**self).late(rows)
    }

    fn rejected(&self, reason: Rejection, rows: RecordBatch) -> Result<(), SinkError> {
        (**self).rejected(reason, rows)
    }

    fn cut_inputs(&self) -> Result<(), SinkError> {
        (**self).cut_inputs()
    }

    fn cut(&self) -> Result<Vec<OutputState>, SinkError> {
        (**self).cut()
    }

    fn sync(&self) -> Result<(), SinkError> {
        (**self).sync()
    }

    fn checkpointed(&self, outcome: Result<&CheckpointReport, &CheckpointError>) {
        (**self).checkpointed(outcome);
    }
}

/// A sink that keeps results in memory until they are taken.
#[derive(Debug, Clone, Default)]
pub struct Collected(Arc<Mutex<Vec<RecordBatch>>>);

impl Collected {
    /// An empty one. Clones share what is collected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what has been collected so far.
    pub fn take(&self) -> Vec<RecordBatch> {
        std::mem::take(&mut *lock(&self.0))
    }
}

impl Sink for Collected {
    fn results(&self, _: usize, batch: RecordBatch) -> Result<(), SinkError> {
        lock(&self.0).push(batch);
        Ok(())
    }
}

/// A sink that calls a function with each batch.
pub struct Callback<F>(
    /// The function; called from several threads.
    pub F,
);

impl<F> fmt::Debug for Callback<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Callback")
    }
}

impl<F: Fn(RecordBatch) -> Result<(), SinkError> + Send + Sync> Sink for Callback<F> {
    fn results(&self, _: usize, batch: RecordBatch) -> Result<(), SinkError> {
        self.0(batch)
    }
}

/// What a [`channel`] does with a result for which it has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum WhenFull {
    /// The shard waits, and through it the producers: nothing is lost.
    #[default]
    Wait,
    /// The oldest result that waits is dropped.
    DropOldest,
    /// The new result is dropped.
    DropNewest,
}

/// A sink and the receiver of its results. A full channel holds the engine back, until the engine is
/// finished: then the limit is lifted, so that a thread may first finish the engine and then read.
pub fn channel(capacity: usize) -> (ChannelSink, Receiver) {
    channel_with(capacity, WhenFull::Wait)
}

/// A [`channel`] that drops results rather than hold the engine back, if so chosen; the receiver counts
/// what was dropped. It keeps to its capacity also while the engine is finished.
pub fn channel_with(capacity: usize, when_full: WhenFull) -> (ChannelSink, Receiver) {
    let state = State {
        queue: VecDeque::new(),
        capacity: capacity.max(1),
        when_full,
        dropped: Dropped::default(),
        closed: false,
        ended: false,
        task: None,
    };
    let shared = Arc::new(Channel { state: Mutex::new(state), changed: Condvar::new() });
    (ChannelSink(Arc::clone(&shared)), Receiver(shared))
}

/// The engine's end of [`channel`].
#[derive(Debug)]
pub struct ChannelSink(Arc<Channel>);

/// The consumer's end of [`channel`]: an iterator over results that ends with the run.
#[derive(Debug)]
pub struct Receiver(Arc<Channel>);

#[derive(Debug)]
struct Channel {
    state: Mutex<State>,
    changed: Condvar,
}

/// Results that a channel had no room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Dropped {
    /// Batches.
    pub batches: u64,
    /// Rows in them.
    pub rows: u64,
}

#[derive(Debug)]
struct State {
    queue: VecDeque<RecordBatch>,
    capacity: usize,
    when_full: WhenFull,
    dropped: Dropped,
    /// The task that waits for a result.
    task: Option<Waker>,
    /// The receiver is gone.
    closed: bool,
    /// No result will follow.
    ended: bool,
}

impl Channel {
    /// Wakes whoever waits for a result.
    fn tell(&self, mut state: MutexGuard<'_, State>) {
        let task = state.task.take();
        drop(state);
        self.changed.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Sink for ChannelSink {
    fn results(&self, _: usize, batch: RecordBatch) -> Result<(), SinkError> {
        let mut state = lock(&self.0.state);
        let mut batch = Some(batch);
        while state.queue.len() >= state.capacity && !state.closed {
            let dropped = match state.when_full {
                WhenFull::Wait => {
                    state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
                    continue;
                }
                WhenFull::DropOldest => state.queue.pop_front(),
                WhenFull::DropNewest => batch.take(),
            };
            let rows = dropped.map_or(0, |batch| batch.num_rows() as u64);
            state.dropped.batches += 1;
            state.dropped.rows += rows;
            if batch.is_none() {
                return Ok(());
            }
        }
        if state.closed {
            return Err(SinkError::Closed);
        }
        state.queue.extend(batch);
        self.0.tell(state);
        Ok(())
    }

    fn finishing(&self) {
        let mut state = lock(&self.0.state);
        if state.when_full == WhenFull::Wait {
            state.capacity = usize::MAX;
        }
        drop(state);
        self.0.changed.notify_all();
    }

    fn ended(&self) {
        let mut state = lock(&self.0.state);
        state.ended = true;
        self.0.tell(state);
    }
}

impl Drop for ChannelSink {
    fn drop(&mut self) {
        self.ended();
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        lock(&self.0.state).closed = true;
        self.0.changed.notify_all();
    }
}

impl Receiver {
    /// The next result if one is there.
    pub fn try_next(&self) -> Option<RecordBatch> {
        let batch = lock(&self.0.state).queue.pop_front();
        self.0.changed.notify_all();
        batch
    }
}

impl Receiver {
    /// What the channel had no room for so far, in a channel that drops.
    pub fn dropped(&self) -> Dropped {
        lock(&self.0.state).dropped
    }

    /// The next result from async code; `None` when the run is over. One task at a time may wait.
    pub async fn recv(&mut self) -> Option<RecordBatch> {
        poll_fn(|cx| self.poll_recv(cx)).await
    }

    /// [`Receiver::recv`] for futures written by hand.
    pub fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<RecordBatch>> {
        let mut state = lock(&self.0.state);
        if let Some(batch) = state.queue.pop_front() {
            drop(state);
            self.0.changed.notify_all();
            return Poll::Ready(Some(batch));
        }
        if state.ended {
            return Poll::Ready(None);
        }
        state.task = Some(cx.waker().clone());
        Poll::Pending
    }
}

impl Iterator for Receiver {
    type Item = RecordBatch;

    /// Waits for the next result; `None` when the run is over.
    fn next(&mut self) -> Option<RecordBatch> {
        let mut state = lock(&self.0.state);
        loop {
            if let Some(batch) = state.queue.pop_front() {
                self.0.changed.notify_all();
                return Some(batch);
            }
            if state.ended {
                return None;
            }
            state = self.0.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Locks, also after a panic elsewhere: the data under these locks is valid at every step.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
