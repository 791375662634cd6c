//! Barriers: how all threads of a run come to one cut while rows flow.
//!
//! A checkpoint is asked for by a number, one larger than the one before. Each producer, between two batches or slices,
//! hands on all partials it holds and sends every shard a barrier with that number, in band. A shard that has taken a
//! producer's barrier takes nothing more of it until the barriers of all others have come (or these have ended); then
//! its state holds all rows before the cut and none after. It makes an image of it and goes on. Producers wait for
//! nobody, except workers that read sources: they finish the units they have in hand and wait for each other, so
//! that each input can be continued from one place.
//!
//! **Invariant:** what a producer sends before its barrier is in the images of all shards, what it sends after in none.
//! A producer that begins while a cut is taken counts as having passed the barrier before its first row.
//!
//! **No deadlock:** a producer sends its barrier to all shards together, and a shard holds back only producers whose
//! barrier it has, so a barrier that waits in a full ring is always being waited for by a shard that takes from that
//! ring.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender, unbounded};

use super::assign::RowCounts;
use super::handover::ShardState;
use super::sink::lock;
use crate::checkpoint::{InputState, SectionImage};

/// Counts barriers, and gathers what producers and shards say as they pass them.
#[derive(Debug)]
pub(crate) struct Barriers {
    wanted: AtomicU64,
    abandoned: AtomicU64,
    /// The last one that was for a rescale, behind which there are other shards.
    rescale: AtomicU64,
    cut: Mutex<Cut>,
    given: Sender<ShardCut>,
    taken: Receiver<ShardCut>,
    handed_over: Sender<ShardState>,
    states: Receiver<ShardState>,
}

/// How many checkpoints a run has taken.
#[derive(Debug, Default)]
pub(crate) struct CheckpointCounts {
    pub(crate) taken: AtomicU64,
    pub(crate) failed: AtomicU64,
}

/// Rows of some producers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProducerTotals {
    pub(crate) counts: RowCounts,
    /// Rows that they aggregated themselves.
    pub(crate) rows_hot: u64,
}

impl ProducerTotals {
    fn add(&mut self, other: &Self) {
        self.counts.add(&other.counts);
        self.rows_hot += other.rows_hot;
    }
}

#[derive(Debug, Default)]
struct Cut {
    /// Of producers that have ended.
    finished: ProducerTotals,
    /// Of all producers, before the newest barrier.
    before: ProducerTotals,
    /// Producers that have not passed the newest barrier.
    left: usize,
    /// Where inputs stood at it, and what they had rejected; none if no worker read any more.
    inputs: Option<Inputs>,
    /// Where handles with a name stood at it, and those that have ended.
    handles: Vec<InputState>,
    finished_handles: Vec<InputState>,
}

/// Where inputs stand, and rows that they could not turn into rows, by reason.
pub(crate) type Inputs = (Vec<InputState>, Vec<(String, u64)>);

/// A shard's state at a barrier.
#[derive(Debug)]
pub(crate) struct ShardCut {
    pub(crate) barrier: u64,
    pub(crate) shard: usize,
    pub(crate) sections: Vec<SectionImage>,
    pub(crate) rows_in: u64,
    pub(crate) rows_out: u64,
    pub(crate) windows_emitted: u64,
    /// All windows that end at or before this are closed, and no producer sends rows of windows that end at or
    /// before that.
    pub(crate) closed: i64,
    pub(crate) passed: i64,
    /// From the first barrier to the last.
    pub(crate) alignment: Duration,
    /// Time that the image took.
    pub(crate) capture: Duration,
}

impl Barriers {
    pub(crate) fn new() -> Self {
        let (given, taken) = unbounded();
        let (handed_over, states) = unbounded();
        Self {
            wanted: AtomicU64::new(0),
            abandoned: AtomicU64::new(0),
            rescale: AtomicU64::new(0),
            cut: Mutex::default(),
            given,
            taken,
            handed_over,
            states,
        }
    }

    /// Number of the newest barrier asked for.
    #[inline]
    pub(crate) fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::SeqCst)
    }

    /// Asks for a barrier behind which there are other shards, as [`Barriers::ask`].
    pub(crate) fn ask_for_rescale(&self, producers: usize) -> u64 {
        // Only one thing is asked for at a time, and nobody looks before it is.
        self.rescale.store(self.wanted() + 1, Ordering::SeqCst);
        self.ask(producers)
    }

    /// Whether there are other shards behind this barrier.
    pub(crate) fn is_rescale(&self, barrier: u64) -> bool {
        self.rescale.load(Ordering::SeqCst) == barrier
    }

    /// A shard gives all it has, and ends.
    pub(crate) fn hand_over(&self, state: ShardState) {
        // The receiver lives as long as this.
        let _ = self.handed_over.send(state);
    }

    /// The next shard that has ended, waiting a little while.
    pub(crate) fn take_state(&self, timeout: Duration) -> Option<ShardState> {
        self.states.recv_timeout(timeout).ok()
    }

    /// Asks for a barrier of so many producers, none of which can come or go meanwhile.
    pub(crate) fn ask(&self, producers: usize) -> u64 {
        let mut cut = lock(&self.cut);
        cut.before = cut.finished;
        cut.left = producers;
        cut.inputs = None;
        let Cut { handles, finished_handles, .. } = &mut *cut;
        handles.clone_from(finished_handles);
        self.wanted.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Nobody need wait for this barrier any more.
    pub(crate) fn abandon(&self, barrier: u64) {
        self.abandoned.fetch_max(barrier, Ordering::SeqCst);
    }

    /// Whether a barrier was given up.
    pub(crate) fn is_abandoned(&self, barrier: u64) -> bool {
        self.abandoned.load(Ordering::SeqCst) >= barrier
    }

    /// A producer has sent a barrier to all shards, after these rows of its.
    pub(crate) fn passed(&self, totals: &ProducerTotals, handle: Option<InputState>) {
        let mut cut = lock(&self.cut);
        cut.handles.extend(handle);
        cut.before.add(totals);
        cut.left -= 1;
    }

    /// A producer has ended, which had passed the barrier `passed` last.
    pub(crate) fn ended(&self, passed: u64, totals: &ProducerTotals, handle: Option<InputState>) {
        let mut cut = lock(&self.cut);
        cut.finished.add(totals);
        cut.finished_handles.extend(handle.clone());
        if passed < self.wanted() {
            cut.handles.extend(handle);
            cut.before.add(totals);
            cut.left -= 1;
        }
    }

    /// Rows of all producers before the newest barrier, once all have passed it.
    pub(crate) fn before(&self) -> Option<ProducerTotals> {
        let cut = lock(&self.cut);
        (cut.left == 0).then_some(cut.before)
    }

    /// Takes note of where all inputs stand at the newest barrier.
    pub(crate) fn set_inputs(&self, inputs: Vec<InputState>, rejected: Vec<(String, u64)>) {
        lock(&self.cut).inputs = Some((inputs, rejected));
    }

    /// Where all inputs stood at the newest barrier, if workers were reading them then.
    pub(crate) fn take_inputs(&self) -> Option<Inputs> {
        lock(&self.cut).inputs.take()
    }

    /// Where handles with a name stood at the newest barrier.
    pub(crate) fn take_handles(&self) -> Vec<InputState> {
        std::mem::take(&mut lock(&self.cut).handles)
    }

    /// A shard gives its state.
    pub(crate) fn give(&self, cut: ShardCut) {
        // The receiver lives as long as this.
        let _ = self.given.send(cut);
    }

    /// The next state that a shard has given, waiting a little while.
    pub(crate) fn take(&self, timeout: Duration) -> Option<ShardCut> {
        self.taken.recv_timeout(timeout).ok()
    }
}
