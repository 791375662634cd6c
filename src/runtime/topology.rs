//! Which shards there are, and which key groups are whose: what changes when a run is rescaled.
//!
//! Everything else that threads share outlives a rescale ([`EngineShared`](super::shared::EngineShared)). A shard, and
//! a producer, belongs to one topology; a producer goes over to the next one behind a barrier
//! ([`rescale`](super::rescale)), so that no message ever meets a shard of another topology.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use super::exchange::Exchange;
use super::message::Message;
use super::metrics::ShardMeter;
use super::ring::{Consumer, Producer, ring};
use super::shared::{IngestShared, Request};
use super::sink::lock;
use super::wake::Wake;
use crate::config::Job;
use crate::key::group::groups_of_shard;

/// The shards of a run, until it is rescaled.
#[derive(Debug)]
pub(crate) struct Topology {
    /// The barrier behind which it begins.
    pub(crate) barrier: u64,
    /// Key groups of each shard: contiguous, ascending, all.
    ranges: Vec<RangeInclusive<u16>>,
    pub(crate) doors: Vec<Door>,
    /// What each worker tells of itself while it runs.
    pub(crate) meters: Vec<ShardMeter>,
    /// Where shards exchange what they counted for each other, in jobs that do so.
    pub(crate) exchange: Option<Exchange>,
}

/// How others reach a shard's thread.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) wake: Arc<Wake>,
    /// Rings of new producers, to be adopted by the shard.
    pub(crate) arrivals: Mutex<Vec<Arrival>>,
    /// Requests to be answered by the shard.
    pub(crate) requests: Mutex<Vec<Request>>,
    /// Whether `requests` holds any.
    pub(crate) requested: AtomicBool,
}

/// A ring from a producer that the shard does not know yet.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) ring: Consumer<Message>,
    pub(crate) ingest: Arc<IngestShared>,
    /// What it has promised before, to shards of an earlier topology.
    pub(crate) watermark: i64,
}

impl Topology {
    /// One shard for each of `wakes`, with as many key groups each as go.
    pub(crate) fn even(job: &Job, wakes: Vec<Arc<Wake>>) -> Self {
        let ranges = even_ranges(wakes.len(), job.max_parallelism);
        Self::new(job, wakes, ranges, 0)
    }

    /// One shard for each of `wakes`, with these key groups.
    pub(crate) fn new(
        job: &Job,
        wakes: Vec<Arc<Wake>>,
        ranges: Vec<RangeInclusive<u16>>,
        barrier: u64,
    ) -> Self {
        assert_eq!(wakes.len(), ranges.len(), "each shard has its key groups");
        let meters = wakes.iter().map(|_| ShardMeter::default()).collect();
        let exchange = job.spreads(wakes.len()).then(|| Exchange::new(wakes.len()));
        let doors = wakes
            .into_iter()
            .map(|wake| Door {
                wake,
                arrivals: Mutex::default(),
                requests: Mutex::default(),
                requested: AtomicBool::new(false),
            })
            .collect();
        Self { barrier, ranges, doors, meters, exchange }
    }

    /// Number of shards.
    pub(crate) fn workers(&self) -> usize {
        self.doors.len()
    }

    /// The key groups of each shard.
    pub(crate) fn ranges(&self) -> &[RangeInclusive<u16>] {
        &self.ranges
    }

    /// The shard of each key group.
    pub(crate) fn shard_of_groups(&self) -> Vec<u16> {
        let shards = (0_u16..).zip(&self.ranges);
        shards.flat_map(|(shard, range)| range.clone().map(move |_| shard)).collect()
    }

    /// Connects a producer to all shards, which has promised `watermark`: rings to them, in their order.
    pub(crate) fn connect(
        &self,
        ingest: &Arc<IngestShared>,
        ring_capacity: usize,
        watermark: i64,
    ) -> Vec<Producer<Message>> {
        let connect = |door: &Door| {
            let (producer, consumer) = ring(ring_capacity);
            let ingest = Arc::clone(ingest);
            lock(&door.arrivals).push(Arrival { ring: consumer, ingest, watermark });
            producer
        };
        self.doors.iter().map(connect).collect()
    }

    /// Wakes all shards.
    pub(crate) fn notify_all(&self) {
        self.doors.iter().for_each(|door| door.wake.notify());
    }
}

/// As many key groups for each shard as go.
pub(crate) fn even_ranges(workers: usize, max_parallelism: u32) -> Vec<RangeInclusive<u16>> {
    let shards = u16::try_from(workers).expect("validated: at most 2^15 shards");
    (0..shards).map(|shard| groups_of_shard(shard, shards.into(), max_parallelism)).collect()
}
