//! What the threads of one engine share: errors, the registry of producers, and how far time has come.
//!
//! All of it is control plane, touched per batch at most.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

use super::align::Aligner;
use super::assign::RowCounts;
use super::barrier::{Barriers, CheckpointCounts};
use super::board::Board;
use super::outlet::Outlet;
use super::report::RescaleReport;
use super::restore::Restored;
use super::sink::{Sink, lock};
use super::skew_control::SkewControl;
use super::stats::WorkerStats;
use super::timer::Timer;
use super::topology::{IngestShared, Topology};
use super::wake::Wake;
use crate::checkpoint::RowTotals;
use crate::config::Job;
use crate::error::RunError;
use crate::state::pane::image::ImageLayout;

/// State of one engine.
pub(crate) struct EngineShared {
    pub(crate) job: Arc<Job>,
    pub(crate) sink: Outlet,
    /// How state is laid out in checkpoints.
    pub(crate) layout: ImageLayout,
    /// Brings all threads to one cut.
    pub(crate) barriers: Arc<Barriers>,
    /// The checkpoint that this run goes on from.
    pub(crate) restored: Option<Restored>,
    /// Checkpoints of this run.
    pub(crate) checkpoints: CheckpointCounts,
    /// Shards that have given all their results.
    pub(crate) shards_done: AtomicUsize,
    /// Set once, when the run has failed or was abandoned: everybody stops.
    stopped: AtomicBool,
    error: Mutex<Option<RunError>>,
    /// No producer will be added any more.
    pub(crate) closing: AtomicBool,
    /// Counts changes of the set of producers.
    pub(crate) version: AtomicU64,
    /// Windows that end at or before this may have been closed by some shard.
    pub(crate) closed_to: AtomicI64,
    /// The shards, until the run is rescaled.
    topology: Mutex<Arc<Topology>>,
    /// Held by whoever brings all threads to a barrier or asks all shards: one thing at a time.
    pub(crate) control: Mutex<()>,
    /// The run is being rescaled: producers that come now wait. Changed under the lock of `ingests`.
    pub(crate) rescaling: AtomicBool,
    /// What workers have counted whose shards are no more.
    pub(crate) retired: Mutex<Retired>,
    pub(crate) ingests: Mutex<Vec<Arc<IngestShared>>>,
    /// Counts of producers that have closed.
    pub(crate) finished_counts: Mutex<RowCounts>,
    pub(crate) rows_in: AtomicU64,
    /// Where the inputs stand, if handles are to be kept together or workers read.
    pub(crate) aligner: Arc<Aligner>,
    /// Decides which keys are hot, in modes with hot keys.
    pub(crate) skew: Option<Arc<SkewControl>>,
    /// Held while a request is put to all shards, so that all get requests in one order.
    pub(crate) asking: Mutex<()>,
    /// Producers so far, to number them.
    pub(crate) producers: AtomicU32,
    /// Counts requests for all partials that producers hold.
    pub(crate) partials_wanted: AtomicU64,
    /// The handles of producing threads.
    handles: Mutex<Vec<Weak<dyn Served>>>,
    /// The workers read sources themselves.
    pub(crate) reads: bool,
    pub(crate) rows_hot_at_producers: AtomicU64,
    /// Row at which a producer first gave up two-phase mode; `u64::MAX` if none has.
    pub(crate) two_phase_given_up: AtomicU64,
    /// Rows of each owner, hot ones included, of producers that have closed.
    pub(crate) owner_rows: Mutex<Vec<u64>>,
    pub(crate) started: Instant,
    /// Hands on what silent appenders hold.
    pub(crate) timer: Arc<Timer>,
    /// Where readers see the state, if there may be any.
    pub(crate) board: Option<Arc<Board>>,
}

impl std::fmt::Debug for EngineShared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EngineShared").field("job", &self.job).finish_non_exhaustive()
    }
}

/// A producer that others may act for while nobody uses it.
pub(crate) trait Served: Send + Sync {
    /// Hands on the partials that readers want, unless it is in use: then it does so itself before it rests.
    fn give_wanted(&self);
}

/// What workers have counted whose shards are no more.
#[derive(Debug, Default)]
pub(crate) struct Retired {
    pub(crate) stats: WorkerStats,
    pub(crate) rescales: Vec<RescaleReport>,
}

impl EngineShared {
    pub(crate) fn new(
        job: Arc<Job>,
        sink: Arc<dyn Sink>,
        wakes: Vec<Arc<Wake>>,
        reads: bool,
        restored: Option<Restored>,
    ) -> Self {
        let mut policy = job.skew_policy().expect("validated when the job was built");
        let rows_in = restored.as_ref().map_or(0, |restored| restored.manifest.rows.rows_in);
        if let (Some(policy), Some(restored)) = (&mut policy, &restored) {
            policy.resume(&restored.hot_keys(), rows_in);
        }
        let skew = policy.map(|policy| Arc::new(SkewControl::new(policy)));
        let closed_to = restored.as_ref().and_then(|restored| restored.manifest.time.closed_to);
        let unit = job.time.as_ref().map(|time| time.unit);
        let max_drift = job.alignment.as_ref().zip(unit);
        let max_drift = max_drift.map(|(alignment, unit)| unit.at_least(alignment.max_drift));
        let aligner = Aligner::new(job.alignment.as_ref(), max_drift);
        let owner_rows = Mutex::new(vec![0; job.workers]);
        let topology = Mutex::new(Arc::new(Topology::even(&job, wakes)));
        Self {
            sink: Outlet::new(sink, job.workers),
            layout: job.image_layout(),
            barriers: Arc::new(Barriers::new()),
            restored,
            checkpoints: CheckpointCounts::default(),
            shards_done: AtomicUsize::new(0),
            board: job.readers.then(|| Arc::new(Board::new(job.workers))),
            job,
            topology,
            control: Mutex::default(),
            rescaling: AtomicBool::new(false),
            retired: Mutex::default(),
            asking: Mutex::default(),
            stopped: AtomicBool::new(false),
            error: Mutex::new(None),
            closing: AtomicBool::new(false),
            version: AtomicU64::new(0),
            closed_to: AtomicI64::new(closed_to.unwrap_or(i64::MIN)),
            ingests: Mutex::default(),
            finished_counts: Mutex::default(),
            rows_in: AtomicU64::new(rows_in),
            aligner: Arc::new(aligner),
            skew,
            producers: AtomicU32::new(0),
            partials_wanted: AtomicU64::new(0),
            handles: Mutex::default(),
            reads,
            rows_hot_at_producers: AtomicU64::new(0),
            two_phase_given_up: AtomicU64::new(u64::MAX),
            owner_rows,
            started: Instant::now(),
            timer: Timer::new(),
        }
    }

    /// Whether the run is being rescaled. For whoever holds the list of producers.
    pub(crate) fn is_rescaling(&self) -> bool {
        self.rescaling.load(Ordering::SeqCst)
    }

    /// The shards that there are now.
    pub(crate) fn topology(&self) -> Arc<Topology> {
        Arc::clone(&lock(&self.topology))
    }

    /// From now on there are these shards.
    pub(crate) fn set_topology(&self, topology: Arc<Topology>) {
        *lock(&self.topology) = topology;
    }

    /// Rows of the run before the checkpoint that it went on from.
    pub(crate) fn base(&self) -> RowTotals {
        self.restored.as_ref().map(|restored| restored.manifest.rows.clone()).unwrap_or_default()
    }

    pub(crate) fn now_us(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Whether the run has failed or was abandoned.
    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Whether the run has failed, was abandoned, or is ending.
    pub(crate) fn is_over(&self) -> bool {
        self.is_stopped() || self.shards_done.load(Ordering::SeqCst) > 0
    }

    /// Ends the run with `error`, unless it has ended already.
    pub(crate) fn fail(&self, error: RunError) {
        {
            let mut first = lock(&self.error);
            // What follows from a stop says nothing about its cause.
            if first.is_none() && !(matches!(error, RunError::Stopped) && self.is_stopped()) {
                *first = Some(error);
            }
        }
        self.stop();
    }

    /// Ends the run.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
        if let Some(board) = &self.board {
            board.stop();
        }
        // A shard may be waiting for a consumer that waits for the end of the run.
        self.sink.finishing();
        self.notify_all();
    }

    /// Makes a handle known to whoever wants its partials.
    pub(crate) fn enter(&self, handle: Weak<dyn Served>) {
        let mut handles = lock(&self.handles);
        handles.retain(|one| one.strong_count() > 0);
        handles.push(handle);
    }

    /// Asks all producers for their partials; answers which request that is. Handles that nobody is using
    /// are served at once, see [`EngineShared::serve_handles`].
    pub(crate) fn want_partials(&self) -> u64 {
        let wanted = self.partials_wanted.fetch_add(1, Ordering::SeqCst) + 1;
        self.notify_all();
        self.serve_handles();
        wanted
    }

    /// Hands on wanted partials of handles that nobody is using just now.
    pub(crate) fn serve_handles(&self) {
        let handles = lock(&self.handles).clone();
        for handle in handles.iter().filter_map(Weak::upgrade) {
            handle.give_wanted();
        }
    }

    pub(crate) fn take_error(&self) -> Option<RunError> {
        lock(&self.error).take()
    }

    pub(crate) fn notify_all(&self) {
        self.topology().notify_all();
        for ingest in lock(&self.ingests).iter() {
            ingest.wake.notify();
        }
    }
}
