//! Different values of hot keys, counted by many shards: `count(distinct x)` under skew.
//!
//! A partial of a hot key at every producer would be a copy of its set at every producer. So once a
//! producer's own set of a hot key has grown large, it hands on the key's further rows: not to the owner of
//! the key, but each to the shard that its *value* belongs to ([`bucket_of`]). A (key, bucket) pair is then a unit
//! of work with one writer, and no value is in two buckets. When a window closes, every shard gives its
//! buckets, moved and not copied, to the owners of the keys through their *boxes* here, and the owner adds
//! the counts. What was counted before (by the owner while the key was cold, by producers while their
//! sets were small) may overlap with the buckets; that is found out by looking those few values up.
//!
//! **Invariant:** a shard gives its buckets of a window before it says that it has passed its end, and an
//! owner closes a window only when all shards have said so. Giving waits for nobody, so nobody waits for ever.

use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

use super::sink::lock;
use crate::state::pane::Pane;
use crate::time::window::Span;

/// Buckets of one span of windows, on their way to the shard that owns their keys.
#[derive(Debug)]
pub(crate) struct Bucket {
    pub(crate) window: Span,
    /// The shard that filled it.
    pub(crate) from: usize,
    /// The last barrier that this shard had passed by then.
    pub(crate) barrier: u64,
    pub(crate) pane: Pane,
}

/// Where shards meet to exchange buckets.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// By owner.
    boxes: Vec<Mutex<Vec<Bucket>>>,
    /// How far each shard has given all its buckets.
    passed: Vec<AtomicI64>,
    /// How often each shard has given its buckets of open windows, for early results.
    gifts: Vec<AtomicU64>,
    /// The last barrier before which each shard has given all its buckets.
    given_before: Vec<AtomicU64>,
}

impl Exchange {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            boxes: (0..shards).map(|_| Mutex::default()).collect(),
            passed: (0..shards).map(|_| AtomicI64::new(i64::MIN)).collect(),
            gifts: (0..shards).map(|_| AtomicU64::new(0)).collect(),
            given_before: (0..shards).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Gives a bucket to the owner of its keys.
    pub(crate) fn give(&self, owner: usize, bucket: Bucket) {
        lock(&self.boxes[owner]).push(bucket);
    }

    /// Takes what was given to `owner`, which has passed `barrier` last; what was given behind the next one stays.
    pub(crate) fn take(&self, owner: usize, barrier: u64) -> Vec<Bucket> {
        lock(&self.boxes[owner]).extract_if(.., |bucket| bucket.barrier <= barrier).collect()
    }

    /// Says that `shard` has given all buckets that lie before a barrier.
    pub(crate) fn give_before(&self, shard: usize, barrier: u64) {
        self.given_before[shard].store(barrier, Ordering::SeqCst);
    }

    /// Whether all shards have given all buckets that lie before a barrier.
    pub(crate) fn all_given_before(&self, barrier: u64) -> bool {
        self.given_before.iter().all(|given| given.load(Ordering::SeqCst) >= barrier)
    }

    /// Says that `shard` has given its buckets of all windows that end at or before `watermark`.
    pub(crate) fn pass(&self, shard: usize, watermark: i64) {
        self.passed[shard].store(watermark, Ordering::SeqCst);
    }

    /// Up to where all shards have given their buckets.
    pub(crate) fn passed_by_all(&self) -> i64 {
        let passed = self.passed.iter().map(|passed| passed.load(Ordering::SeqCst));
        passed.min().expect("there is a shard")
    }

    /// Says that `shard` has given its buckets of open windows once more.
    pub(crate) fn count_gift(&self, shard: usize) {
        self.gifts[shard].fetch_add(1, Ordering::SeqCst);
    }

    /// How often all shards have done so.
    pub(crate) fn gifts_of_all(&self) -> u64 {
        let gifts = self.gifts.iter().map(|gifts| gifts.load(Ordering::SeqCst));
        gifts.min().expect("there is a shard")
    }
}
