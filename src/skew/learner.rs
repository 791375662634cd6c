//! Learning which keys are hot, from sampled rows to a new hot set: what producers do each for itself
//! ([`Observer`]), and what they decide together ([`Learner`]).
//!
//! Both are plain values, so that what a run would learn from a stream, and when, can be replayed.
//!
//! **Cost:** an [`Observer`] looks at one row in [`SAMPLE_EVERY`] and is due to tell the learner every
//! [`REPORT_SAMPLES`] of these: from the first few thousand rows on more often, since a stream may be short
//! and every row of a hot key that passes before it is known goes to one shard.

use super::estimate::Merger;
use super::hot_set::HotSet;
use super::policy::Policy;
use super::sample::Sampler;
use super::sketch::{Sketch, SketchConfig, Snapshot, epoch_at};

/// One of so many rows is sampled: at one of 128, sampling a stream of one key would take more than 3 % of
/// the time that such a stream needs.
pub const SAMPLE_EVERY: u32 = 160;

/// Sampled rows between two reports of a producer, ..
pub const REPORT_SAMPLES: u32 = 192;

/// .. and before its first one. The next is due when it has as many again, until that is
/// [`REPORT_SAMPLES`].
const REPORT_SAMPLES_FIRST: u32 = 24;

/// Shares below this part of the least threshold need not be carried around.
const SNAPSHOT_SHARE: f64 = 0.5;

/// The same where keys were named beforehand, which are reported however small they are.
const SNAPSHOT_SHARE_MIN: f64 = 1.0 / 2048.0;

/// One producer's samples, and when they are due to be told.
#[derive(Debug, Clone)]
pub struct Observer {
    sampler: Sampler,
    sketch: Sketch,
    /// Sampled rows since the last report.
    unreported: u32,
    /// Sampled rows with which the next one is due.
    due: u32,
}

impl Observer {
    /// An observer that has seen nothing; each producer has its own `seed`.
    pub fn new(seed: u64) -> Self {
        let config = SketchConfig { sample_every: SAMPLE_EVERY, ..SketchConfig::default() };
        Self {
            sampler: Sampler::new(SAMPLE_EVERY, seed),
            sketch: Sketch::new(config),
            unreported: 0,
            due: REPORT_SAMPLES_FIRST,
        }
    }

    /// Whether reports are still more frequent than later.
    pub fn is_new(&self) -> bool {
        self.due < REPORT_SAMPLES
    }

    /// Follows the stream to its epoch, `rows_seen` rows of all producers into it: all forget together,
    /// however fast each is.
    pub fn follow(&mut self, rows_seen: u64) {
        self.sketch.rotate_to(epoch_at(rows_seen));
    }

    /// Samples a batch of `rows` rows; `key` gives the hash of a row's key, and the word that goes with it.
    #[inline]
    pub fn sample(&mut self, rows: usize, mut key: impl FnMut(usize) -> (u64, u64)) {
        let Self { sampler, sketch, unreported, .. } = self;
        sampler.sample(rows, |row| {
            let (hash, word) = key(row);
            sketch.offer(hash, word);
            *unreported += 1;
        });
    }

    /// Counts a row that was sampled before.
    pub fn offer(&mut self, hash: u64, word: u64) {
        self.sketch.offer(hash, word);
        self.unreported += 1;
    }

    /// Whether a report is due.
    pub fn is_due(&self) -> bool {
        self.unreported >= self.due
    }

    /// The report was given.
    pub fn reported(&mut self) {
        self.unreported = 0;
        let samples = u32::try_from(self.sketch.samples()).unwrap_or(u32::MAX);
        self.due = if self.is_new() {
            samples.clamp(REPORT_SAMPLES_FIRST, REPORT_SAMPLES)
        } else {
            REPORT_SAMPLES
        };
    }

    /// What was counted.
    pub fn sketch(&self) -> &Sketch {
        &self.sketch
    }
}

/// The least share that a snapshot tells.
fn snapshot_share_min(policy: &Policy) -> f64 {
    let config = policy.config();
    if config.given.is_empty() {
        config.demote_share() * SNAPSHOT_SHARE
    } else {
        SNAPSHOT_SHARE_MIN
    }
}

/// What all producers know together, and what follows from it.
#[derive(Debug)]
pub struct Learner {
    policy: Policy,
    merger: Merger,
    /// The latest of each producer.
    snapshots: Vec<Snapshot>,
    /// Places in `snapshots` whose producer has gone. What it saw last counts until it is outdated or
    /// another producer takes the place, so memory depends on how many there are at a time.
    vacant: Vec<usize>,
    snapshot_share_min: f64,
}

impl Learner {
    /// A learner that has been told nothing.
    pub fn new(policy: Policy) -> Self {
        let snapshot_share_min = snapshot_share_min(&policy);
        let (merger, snapshots, vacant) = (Merger::new(), Vec::new(), Vec::new());
        Self { policy, merger, snapshots, vacant, snapshot_share_min }
    }

    /// From now on so many workers share the load.
    pub fn set_workers(&mut self, workers: u16) {
        self.policy.set_workers(workers);
        self.snapshot_share_min = snapshot_share_min(&self.policy);
    }

    /// What decides.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// A place for a new producer.
    pub fn join(&mut self) -> usize {
        self.vacant.pop().unwrap_or_else(|| {
            let snapshot = Snapshot { sample_every: SAMPLE_EVERY, ..Snapshot::default() };
            self.snapshots.push(snapshot);
            self.snapshots.len() - 1
        })
    }

    /// The producer in `place` has gone.
    pub fn leave(&mut self, place: usize) {
        self.vacant.push(place);
    }

    /// Takes in what the producer in `place` has seen, `rows_seen` rows of all producers into the stream, and
    /// decides. Returns the new hot set if it is another one than before.
    pub fn take_in(&mut self, place: usize, sketch: &Sketch, rows_seen: u64) -> Option<HotSet> {
        sketch.snapshot_into(self.snapshot_share_min, &mut self.snapshots[place]);
        let estimates = self.merger.merge(&self.snapshots);
        self.policy.decide(estimates, rows_seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::skew::policy::PolicyConfig;

    #[test]
    fn reports_become_rarer_to_a_limit() {
        let mut observer = Observer::new(1);
        let mut between = Vec::new();
        let mut last = 0;
        for row in 0..200_000_u64 {
            observer.sample(1, |_| (row, row));
            if observer.is_due() {
                assert_eq!(observer.is_new(), between.len() < 4, "{between:?}");
                observer.reported();
                let samples = observer.sketch().samples();
                between.push(samples - last);
                last = samples;
            }
        }
        assert_eq!(between[..6], [24, 24, 48, 96, 192, 192], "{between:?}");
        assert!(between[4..].iter().all(|samples| *samples == 192), "{between:?}");
    }

    #[test]
    fn a_key_with_most_rows_is_known_within_a_batch() {
        let mut learner = Learner::new(Policy::new(PolicyConfig::new(8)).unwrap());
        let mut observer = Observer::new(3);
        let place = learner.join();
        observer.sample(8_192, |row| if row % 5 == 0 { (row as u64, 0) } else { (1 << 40, 7) });
        assert!(observer.is_due());
        let set = learner.take_in(place, observer.sketch(), 0).expect("a new set");
        assert_eq!((set.keys()[0].hash, set.keys()[0].example), (1 << 40, 7));
        assert_eq!(set.len(), 1);
        learner.leave(place);
        assert_eq!(learner.join(), place, "its place is free");
        assert_eq!(learner.join(), place + 1);
    }
}
