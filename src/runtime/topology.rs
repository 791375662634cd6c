//! Which shards there are, and which key groups are whose: what changes when a run is rescaled.
//!
//! Here, too, what shards know of producers, and how each reaches the other.
//!
//! Everything else that threads share outlives a rescale ([`EngineShared`](super::shared::EngineShared)). A shard, and
//! a producer, belongs to one topology; a producer goes over to the next one behind a barrier
//! ([`rescale`](super::rescale)), so that no message ever meets a shard of another topology.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use arrow::record_batch::RecordBatch;
use crossbeam::channel::Sender;

use super::board::ProducerBoard;
use super::exchange::Exchange;
use super::message::Message;
use super::metrics::{InputMeter, ShardMeter};
use super::ring::{Consumer, Producer, ring};
use super::sink::lock;
use super::wake::Wake;
use crate::config::Job;
use crate::error::RunError;
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

/// Something asked of a shard from outside.
#[derive(Debug)]
pub(crate) enum Request {
    /// The current results of all open windows, without closing them.
    Snapshot(Sender<Result<Vec<RecordBatch>, RunError>>),
}

/// What shards may know of a producer.
#[derive(Debug)]
pub(crate) struct IngestShared {
    /// Number among the producers of the run.
    pub(crate) id: u32,
    /// The last barrier before its first row.
    pub(crate) born: u64,
    /// Number among the inputs, of a handle of a job with event time; a worker speaks for all inputs.
    pub(crate) input: Option<usize>,
    state: AtomicU8,
    /// Whether a worker owns it, which serves it all the time.
    pub(crate) of_worker: bool,
    /// The latest request for partials that it has met.
    pub(crate) partials_given: AtomicU64,
    /// Wakes the producer when a ring has room again.
    pub(crate) wake: Arc<Wake>,
    /// When it last did something, in microseconds since the engine started.
    last_active_us: AtomicU64,
    /// What it tells of itself while it runs.
    pub(crate) meter: InputMeter,
    /// Where it shows partials to readers.
    pub(crate) board: Option<Arc<ProducerBoard>>,
    /// Where it goes on after a rescale, until it does.
    pub(crate) transfer: Mutex<Option<Transfer>>,
}

/// Where a producer goes on after a rescale.
#[derive(Debug)]
pub(crate) struct Transfer {
    pub(crate) topology: Arc<Topology>,
    /// To each shard.
    pub(crate) rings: Vec<Producer<Message>>,
    /// What it has promised.
    pub(crate) watermark: i64,
}

/// Nothing is being done with it: the idle clock runs.
const QUIET: u8 = 0;
/// Excused from holding back the watermark.
const IDLE: u8 = 1;
/// A call is under way, or rows wait in it for room: silent perhaps, but not by its own will.
const BUSY: u8 = 2;

impl IngestShared {
    pub(crate) fn new(
        id: u32,
        of_worker: bool,
        input: Option<usize>,
        born: u64,
        wake: Arc<Wake>,
        board: Option<Arc<ProducerBoard>>,
    ) -> Self {
        Self {
            id,
            born,
            board,
            input,
            of_worker,
            partials_given: AtomicU64::new(0),
            // A worker speaks for its sources, whose silence is judged where they are read.
            state: AtomicU8::new(if of_worker { BUSY } else { QUIET }),
            wake,
            last_active_us: AtomicU64::new(0),
            meter: InputMeter::default(),
            transfer: Mutex::default(),
        }
    }

    /// Whether it is excused from holding back the watermark.
    pub(crate) fn is_idle(&self) -> bool {
        self.state.load(Ordering::SeqCst) == IDLE
    }

    pub(crate) fn set_idle(&self) {
        self.state.store(IDLE, Ordering::SeqCst);
    }

    /// Something is done with it, so it is not idle until [`IngestShared::rest`]; true if it was.
    pub(crate) fn begin(&self) -> bool {
        self.state.swap(BUSY, Ordering::SeqCst) == IDLE
    }

    /// All it had has been handed on: from now on it is silent.
    pub(crate) fn rest(&self, now_us: u64) {
        self.touch(now_us);
        let _ = self.state.compare_exchange(BUSY, QUIET, Ordering::SeqCst, Ordering::SeqCst);
    }

    pub(crate) fn touch(&self, now_us: u64) {
        self.last_active_us.store(now_us, Ordering::Relaxed);
    }

    /// Marks it idle if it has been silent for `timeout_us` while it could have delivered.
    pub(crate) fn check_idle(&self, now_us: u64, timeout_us: u64) -> bool {
        let silent = now_us.saturating_sub(self.last_active_us.load(Ordering::Relaxed));
        silent >= timeout_us
            && self.state.compare_exchange(QUIET, IDLE, Ordering::SeqCst, Ordering::SeqCst).is_ok()
    }
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
