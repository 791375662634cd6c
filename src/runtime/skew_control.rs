//! Where what the producers see of the keys comes together, and the hot set is decided and published.
//!
//! Each producer samples its rows into a sketch of its own. Every so often it leaves a snapshot here, if
//! nobody else is here just now (it never waits), and whoever leaves one decides. A new hot set is
//! published with its epoch; producers look at the epoch once a batch.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use hashbrown::HashMap;

use super::report::{HotKeyReport, KeyValue};
use super::sink::lock;
use crate::checkpoint::HotKeyState;
use crate::skew::hot_set::{Cause, HotSet};
use crate::skew::learner::Learner;
use crate::skew::policy::Policy;
use crate::skew::sketch::Sketch;

/// Names of hot keys that are remembered for the report.
const NAMES_MAX: usize = 8192;

/// Decides which keys are hot, for all producers of an engine.
#[derive(Debug)]
pub(crate) struct SkewControl {
    epoch: AtomicU32,
    any_hot: AtomicBool,
    current: Mutex<Arc<HotSet>>,
    learner: Mutex<Learner>,
    names: Mutex<HashMap<u64, Vec<KeyValue>>>,
    workers: AtomicU16,
}

impl SkewControl {
    pub(crate) fn new(policy: Policy) -> Self {
        let workers = policy.config().workers;
        let current = policy.current();
        Self {
            epoch: AtomicU32::new(current.epoch()),
            any_hot: AtomicBool::new(!current.is_empty()),
            current: Mutex::new(Arc::new(current)),
            learner: Mutex::new(Learner::new(policy)),
            names: Mutex::default(),
            workers: AtomicU16::new(workers),
        }
    }

    /// From now on there are so many shards. Which keys are hot follows with the next report.
    pub(crate) fn rescale(&self, workers: usize) {
        let workers = u16::try_from(workers).expect("validated: at most 2^15");
        self.workers.store(workers, Ordering::Relaxed);
        lock(&self.learner).set_workers(workers);
    }

    /// Epoch of the hot set in force.
    #[inline]
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(Ordering::Acquire)
    }

    /// The hot set in force.
    pub(crate) fn current(&self) -> Arc<HotSet> {
        Arc::clone(&lock(&self.current))
    }

    /// A place for a new producer.
    pub(crate) fn join(&self) -> usize {
        lock(&self.learner).join()
    }

    /// Takes in what producer `slot` has seen, and decides. Does nothing, and says so (false), if another
    /// producer is at it.
    pub(crate) fn report(&self, slot: usize, sketch: &Sketch, rows_seen: u64) -> bool {
        let Ok(mut learner) = self.learner.try_lock() else { return false };
        self.take_in(&mut learner, slot, sketch, rows_seen);
        true
    }

    /// Takes in what a producer that goes has seen last, so that the report covers the whole stream, and
    /// waits for its turn. Its snapshot ages with the others.
    pub(crate) fn report_last(&self, slot: usize, sketch: &Sketch, rows_seen: u64) {
        let mut learner = lock(&self.learner);
        self.take_in(&mut learner, slot, sketch, rows_seen);
        learner.leave(slot);
    }

    fn take_in(&self, learner: &mut Learner, slot: usize, sketch: &Sketch, rows_seen: u64) {
        if let Some(set) = learner.take_in(slot, sketch, rows_seen) {
            self.put_in_force(set);
        }
    }

    fn put_in_force(&self, set: HotSet) {
        let epoch = set.epoch();
        self.any_hot.store(!set.is_empty(), Ordering::Relaxed);
        *lock(&self.current) = Arc::new(set);
        self.epoch.store(epoch, Ordering::Release);
    }

    /// Whether any key is hot now.
    pub(crate) fn is_any_hot(&self) -> bool {
        self.any_hot.load(Ordering::Relaxed)
    }

    /// Puts a hot set in force that no policy decided.
    #[cfg(test)]
    pub(crate) fn publish(&self, keys: Vec<crate::skew::hot_set::HotKey>) {
        // Far above the epochs of the policy, which goes on deciding.
        let epoch = self.epoch().max(1 << 20) + 1;
        self.put_in_force(HotSet::new(epoch, keys));
    }

    /// Remembers what the key with this hash is called.
    pub(crate) fn name(&self, hash: u64, key: impl FnOnce() -> Vec<KeyValue>) {
        let mut names = lock(&self.names);
        if names.len() < NAMES_MAX && !names.contains_key(&hash) {
            names.insert(hash, key());
        }
    }

    /// How many keys are hot, how often one became hot, and how often one cooled down.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let learner = lock(&self.learner);
        let (hot, demoted) = (learner.policy().hot_keys() as u64, learner.policy().demotions());
        let given = learner.policy().config().given.len() as u64;
        (hot, (hot + demoted).saturating_sub(given), demoted)
    }

    /// The keys that are hot, for a checkpoint. Those named beforehand will be named again.
    pub(crate) fn hot_key_states(&self) -> Vec<HotKeyState> {
        let learner = lock(&self.learner);
        let current = learner.policy().current();
        let found = current.keys().iter().filter(|key| key.cause != Cause::Given);
        found
            .map(|key| HotKeyState {
                hash: key.hash,
                example: key.example,
                share: key.share,
                share_low: key.share_low,
                share_high: key.share_high,
            })
            .collect()
    }

    /// All decisions that are remembered, in words and numbers.
    pub(crate) fn hot_keys(&self) -> Vec<HotKeyReport> {
        let names = lock(&self.names);
        let learner = lock(&self.learner);
        let reports = learner.policy().decisions().map(|decision| {
            let key = names.get(&decision.hash).cloned().unwrap_or_default();
            let text = key.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            HotKeyReport {
                explanation: decision.explain(&text, self.workers.load(Ordering::Relaxed)),
                key,
                share: decision.share,
                share_low: decision.share_low,
                share_high: decision.share_high,
                salts: decision.salts,
                cause: decision.cause,
                promoted_at_row: decision.promoted_at_row,
                demoted_at_row: decision.demoted_at_row,
            }
        });
        reports.collect()
    }
}
