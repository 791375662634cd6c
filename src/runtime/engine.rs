//! The engine: starts the threads, hands out producers' handles, ends the run.

use std::ops::RangeInclusive;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;

use super::affinity;
use super::align::InputDrift;
use super::assign::RowCounts;
use super::blame::panicked;
use super::checkpointer::{Checkpointer, Checkpoints};
use super::ingest::Ingest;
use super::intake::Intake;
use super::metrics::Metrics;
use super::reader::{ReadError, Reader};
use super::report::{CheckpointReport, HotKeyReport, InputReport, RunReport, ShardReport};
use super::restore::Restored;
use super::shard::Shard;
use super::shared::EngineShared;
use super::sink::{Sink, lock};
use super::source::Source;
use super::source_set::{Even, SourceSet};
use super::stats::WorkerStats;
use super::topology::Request;
use super::wake::Sleeper;
use super::worker::{self, Feed};
use crate::checkpoint::{Checkpoint, Manifest};
use crate::config::{Job, SkewMode};
use crate::error::{CheckpointError, RunError};
use crate::spill::SpillFiles;
use crate::time::event_time::Unit;
use crate::time::watermark::Lateness;

/// How long dropping an engine waits for its threads.
const DROP_WAIT: Duration = Duration::from_secs(5);

/// A running job.
///
/// Dropping it without [`Engine::finish`] abandons the run and stops its threads. That waits for code given to the
/// engine (a sink, a source) that is under way, for five seconds at most; a thread that is held longer
/// is left behind and ends when that code does.
#[derive(Debug)]
pub struct Engine {
    shared: Arc<EngineShared>,
    sources: Option<Arc<SourceSet>>,
    threads: Mutex<Vec<JoinHandle<Option<WorkerStats>>>>,
    checkpointer: Option<Checkpointer>,
}

/// How an engine is to be started.
#[derive(Debug)]
#[must_use = "nothing starts until `start`"]
pub struct EngineBuilder {
    job: Job,
    sources: Option<Vec<Arc<dyn Source>>>,
    checkpoints: Option<Checkpoints>,
    checkpoint: Option<Checkpoint>,
}

impl EngineBuilder {
    /// The engine reads these sources itself, each one input with its own watermark, all with the job's schema.
    pub fn sources(mut self, sources: Vec<Arc<dyn Source>>) -> Self {
        self.sources = Some(sources);
        self
    }

    /// Takes checkpoints.
    pub fn checkpoints(mut self, checkpoints: Checkpoints) -> Self {
        self.checkpoints = Some(checkpoints);
        self
    }

    /// Goes on where a checkpoint was taken, of a job with the same keys, windows and aggregates, with any number
    /// of workers. Sources go on where theirs stood.
    pub fn restore(mut self, checkpoint: Checkpoint) -> Self {
        self.checkpoint = Some(checkpoint);
        self
    }

    /// Starts the engine.
    ///
    /// # Errors
    /// If the checkpoint is damaged or of another job, if the job's state cannot be saved but checkpoints are asked
    /// for, or if a thread cannot be started.
    pub fn start(self, sink: impl Sink + 'static) -> Result<Engine, RunError> {
        Engine::start_threads(self, Arc::new(sink))
    }
}

impl Engine {
    /// Starts a job that is fed through [`Ingest`] handles.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start(job: Job, sink: impl Sink + 'static) -> Result<Self, RunError> {
        Self::builder(job).start(sink)
    }

    /// Starts a job that reads `sources` itself, each one input with its own watermark, all with the
    /// job's schema. [`Engine::finish`] then waits for their end.
    ///
    /// # Errors
    /// If a thread cannot be started.
    pub fn start_on(
        job: Job,
        sources: Vec<Arc<dyn Source>>,
        sink: impl Sink + 'static,
    ) -> Result<Self, RunError> {
        Self::builder(job).sources(sources).start(sink)
    }

    /// Starts the description of an engine that takes checkpoints, or goes on from one.
    pub fn builder(job: Job) -> EngineBuilder {
        EngineBuilder { job, sources: None, checkpoints: None, checkpoint: None }
    }

    /// An engine whose shards the caller runs, see [`Driver`](super::driver::Driver).
    pub(crate) fn without_threads(job: Job, sink: Arc<dyn Sink>) -> Self {
        let wakes = (0..job.workers).map(|_| Arc::clone(Sleeper::new().wake())).collect();
        let shared = Arc::new(EngineShared::new(Arc::new(job), sink, wakes, false, None));
        Self { shared, sources: None, threads: Mutex::default(), checkpointer: None }
    }

    /// What its threads share.
    pub(crate) fn shared(&self) -> &Arc<EngineShared> {
        &self.shared
    }

    /// Its inputs, if it reads them itself.
    pub(super) fn sources(&self) -> Option<&Arc<SourceSet>> {
        self.sources.as_ref()
    }

    /// The threads of its shards.
    pub(super) fn threads(&self) -> &Mutex<Vec<JoinHandle<Option<WorkerStats>>>> {
        &self.threads
    }

    fn start_threads(how: EngineBuilder, sink: Arc<dyn Sink>) -> Result<Self, RunError> {
        let EngineBuilder { job, sources, checkpoints, checkpoint } = how;
        if checkpoints.is_some() {
            job.plan.check_can_save().map_err(CheckpointError::Unsaved)?;
        }
        if let Some(memory) = &job.memory {
            SpillFiles::check(&memory.spill_dir)?;
        }
        let restored = checkpoint.map(|one| Restored::open(one, &job)).transpose()?;
        let job = Arc::new(job);
        let time = job.time.as_ref().filter(|_| job.has_watermarks());
        let out_of_orderness = time.map(|time| time.out_of_orderness);
        let sleepers = (0..job.workers).map(|_| Sleeper::new()).collect::<Vec<_>>();
        let wakes = sleepers.iter().map(|sleeper| Arc::clone(sleeper.wake())).collect();
        let shared =
            Arc::new(EngineShared::new(Arc::clone(&job), sink, wakes, sources.is_some(), restored));
        let sources = sources.map(|sources| {
            let even = match (&job.skew, &shared.skew) {
                (SkewMode::TwoPhase, _) => Even::Always,
                (_, Some(control)) => Even::WhileHot(Arc::clone(control)),
                _ => Even::Never,
            };
            let how = (job.workers, even);
            // By the clock, nobody waits for an input.
            let idle_timeout = job.idle_timeout.filter(|_| job.clock.is_none());
            let aligner = Arc::clone(&shared.aligner);
            let barriers = Arc::clone(&shared.barriers);
            Arc::new(SourceSet::new(
                sources,
                out_of_orderness,
                idle_timeout,
                how,
                (aligner, barriers),
            ))
        });
        if let (Some(sources), Some(restored)) = (&sources, &shared.restored) {
            let Manifest { inputs, time, .. } = &restored.manifest;
            sources.resume(inputs, time.closed_to)?;
        }
        let cores = affinity::cores(&job.pinning, job.workers);
        let mut engine = Self { shared, sources, threads: Mutex::default(), checkpointer: None };
        // All feeds are known to all shards before the first thread runs.
        let feeds = sleepers.iter().enumerate();
        let feeds = feeds.map(|(id, sleeper)| engine.feed(id, sleeper)).collect::<Vec<_>>();
        if engine.sources.is_some() {
            engine.shared.closing.store(true, Ordering::SeqCst);
        }
        for (id, (sleeper, feed)) in sleepers.into_iter().zip(feeds).enumerate() {
            let core = cores.get(id).copied();
            engine.start_thread(id, core, feed, sleeper)?;
        }
        let (shared, sources) = (&engine.shared, engine.sources.as_ref());
        engine.checkpointer = Some(Checkpointer::start(shared, sources, checkpoints)?);
        Ok(engine)
    }

    /// What a worker reads with, in a run over sources.
    pub(super) fn feed(&self, worker: usize, sleeper: &Sleeper) -> Option<Feed> {
        let sources = self.sources.as_ref()?;
        let intake = Intake::open_for_worker(&self.shared, Arc::clone(sleeper.wake()));
        Some(Feed::new(worker, Arc::clone(sources), intake))
    }

    fn start_thread(
        &mut self,
        id: usize,
        core: Option<usize>,
        feed: Option<Feed>,
        sleeper: Sleeper,
    ) -> Result<(), RunError> {
        let shared = Arc::clone(&self.shared);
        let body = move || {
            let mut state = Shard::new(id, Arc::clone(&shared));
            if let Some(restored) = &shared.restored {
                state.restore(restored)?;
            }
            worker::run(&shared, state, feed, &sleeper).map(Some)
        };
        let thread = self.spawn(id, core, body)?;
        lock(&self.threads).push(thread);
        Ok(())
    }

    /// Starts the thread of a shard, whose errors and panics are the run's.
    pub(super) fn spawn(
        &self,
        id: usize,
        core: Option<usize>,
        body: impl FnOnce() -> Result<Option<WorkerStats>, RunError> + Send + 'static,
    ) -> Result<JoinHandle<Option<WorkerStats>>, RunError> {
        let shared = Arc::clone(&self.shared);
        let name = format!("saltmill-shard-{id}");
        let body = move || {
            if let Some(core) = core {
                affinity::pin(core);
            }
            match catch_unwind(AssertUnwindSafe(body)) {
                Ok(Ok(done)) => return done,
                Ok(Err(error)) => shared.fail(error),
                Err(panic) => shared.fail(panicked(format!("shard {id}"), panic.as_ref())),
            }
            None
        };
        let thread = std::thread::Builder::new().name(name.clone()).spawn(body);
        thread.map_err(|source| RunError::System {
            what: format!("cannot start the thread {name}; lower the number of workers"),
            source,
        })
    }

    /// Opens a handle for one more producing thread.
    ///
    /// # Errors
    /// If the engine has stopped, or reads sources itself.
    pub fn ingest(&self) -> Result<Ingest, RunError> {
        if self.shared.is_stopped() || self.sources.is_some() {
            return Err(RunError::Stopped);
        }
        Ok(Ingest::open(&self.shared))
    }

    /// The same, under a name: a checkpoint then says where this input stands, and the handle of the same name in a
    /// run that goes on from it continues there, watermark included. Names should differ.
    ///
    /// # Errors
    /// As [`Engine::ingest`].
    pub fn ingest_named(&self, name: impl Into<String>) -> Result<Ingest, RunError> {
        if self.shared.is_stopped() || self.sources.is_some() {
            return Err(RunError::Stopped);
        }
        Ok(Ingest::open_named(&self.shared, name.into()))
    }

    /// Rows taken in so far.
    pub fn rows_in(&self) -> u64 {
        self.shared.rows_in.load(Ordering::Relaxed)
    }

    /// What the threads tell of themselves while they run. Cheap, and stops nobody.
    pub fn metrics(&self) -> Metrics {
        self.metrics_reader().metrics()
    }

    /// A reader of metrics for other threads, which may outlive the engine.
    pub fn metrics_reader(&self) -> MetricsReader {
        MetricsReader { shared: Arc::clone(&self.shared), sources: self.sources.clone() }
    }

    /// A reader of the current aggregates of any key, for other threads; it may outlive the engine.
    ///
    /// # Errors
    /// If the job was not built with [`JobBuilder::readers`](crate::JobBuilder::readers).
    pub fn reader(&self) -> Result<Reader, ReadError> {
        Reader::new(&self.shared)
    }

    /// Whether all threads have ended, after which [`Engine::finish`] does not wait.
    pub fn is_finished(&self) -> bool {
        lock(&self.threads).iter().all(JoinHandle::is_finished)
    }

    /// The results as they stand, of all open windows, without closing them.
    ///
    /// Each shard answers between two batches, for itself, behind what was sent to it before. So every row is
    /// in it that was pushed before, by a call that has returned; rows that [`Ingest::try_push`] left in
    /// its handle for want of room are not.
    ///
    /// # Errors
    /// If the run has failed, or a result does not fit its type.
    pub fn snapshot(&self) -> Result<Vec<RecordBatch>, RunError> {
        let _turn = lock(&self.shared.control);
        self.collect_partials();
        let (reply, replies) = crossbeam::channel::unbounded();
        let topology = self.shared.topology();
        {
            let _turn = lock(&self.shared.asking);
            for door in &topology.doors {
                lock(&door.requests).push(Request::Snapshot(reply.clone()));
                door.requested.store(true, Ordering::SeqCst);
                door.wake.notify();
            }
        }
        drop(reply);
        let mut batches = Vec::new();
        for _ in &topology.doors {
            loop {
                match replies.recv_timeout(Duration::from_millis(20)) {
                    Ok(part) => {
                        batches.extend(part?);
                        break;
                    }
                    Err(_) if self.shared.is_stopped() || self.is_finished() => {
                        return Err(RunError::Stopped);
                    }
                    Err(_) => {}
                }
            }
        }
        Ok(batches)
    }

    /// Takes a checkpoint into the directory that the engine was started with ([`EngineBuilder::checkpoints`]), and
    /// waits until it is complete. The run goes on meanwhile.
    ///
    /// # Errors
    /// If there is no such directory, it cannot be written (the run goes on), or the run has ended.
    pub fn checkpoint(&self) -> Result<CheckpointReport, RunError> {
        self.checkpointer.as_ref().ok_or(RunError::Stopped)?.take(None)
    }

    /// The same into a directory of its own, which nothing removes.
    ///
    /// # Errors
    /// As [`Engine::checkpoint`].
    pub fn savepoint(&self, dir: impl Into<PathBuf>) -> Result<CheckpointReport, RunError> {
        self.shared.job.plan.check_can_save().map_err(CheckpointError::Unsaved)?;
        self.checkpointer.as_ref().ok_or(RunError::Stopped)?.take(Some(dir.into()))
    }

    /// Has all producers hand on their partials: those in use do it themselves before they rest, the others
    /// are served here.
    fn collect_partials(&self) {
        let wanted = self.shared.want_partials();
        let given = || {
            self.shared.serve_handles();
            let ingests = lock(&self.shared.ingests);
            ingests.iter().all(|one| one.partials_given.load(Ordering::SeqCst) >= wanted)
        };
        while !given() && !self.shared.is_stopped() && !self.is_finished() {
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Waits until every handle is closed and every result is out, and reports.
    ///
    /// # Errors
    /// Whatever made the run fail.
    pub fn finish(mut self) -> Result<RunReport, RunError> {
        self.begin_finish();
        let threads = std::mem::take(&mut *lock(&self.threads));
        let mut stats = Vec::with_capacity(threads.len());
        for thread in threads {
            stats.extend(thread.join().unwrap_or(None));
        }
        self.checkpointer.iter_mut().for_each(Checkpointer::stop);
        self.end(&stats)
    }

    /// From now on no producer will be added.
    pub(crate) fn begin_finish(&self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        self.shared.sink.finishing();
        self.shared.notify_all();
    }

    /// Reports, once all shards have ended.
    pub(crate) fn end(&self, stats: &[WorkerStats]) -> Result<RunReport, RunError> {
        self.shared.timer.stop();
        self.shared.sink.ended();
        if let Some(error) = self.shared.take_error() {
            return Err(error);
        }
        if stats.len() != self.shared.topology().workers() {
            return Err(RunError::Stopped);
        }
        self.report(stats)
    }

    /// How far inputs were apart, and held back, in a job with windows of event time.
    fn inputs(&self) -> Vec<InputReport> {
        let job = &self.shared.job;
        let Some(time) = job.time.as_ref().filter(|_| job.windows.is_some()) else {
            return Vec::new();
        };
        let report = |drift: InputDrift| InputReport {
            drift_max: duration(drift.drift_max, time.unit),
            held_back: drift.held,
        };
        self.shared.aligner.drifts().into_iter().map(report).collect()
    }

    fn report(&self, stats: &[WorkerStats]) -> Result<RunReport, RunError> {
        let job = &self.shared.job;
        let counts = *lock(&self.shared.finished_counts);
        let mut rejected =
            self.sources.as_ref().map(|sources| sources.rejected()).unwrap_or_default();
        let rows_in = counts.rows_in + rejected.iter().map(|(_, rows)| rows).sum::<u64>();
        add_rejected(&mut rejected, &counts);
        let topology = self.shared.topology();
        let shards = stats.iter().zip(topology.ranges());
        let shards = shards.map(|(stats, groups)| shard_report(groups, stats));
        // Those of shards before the last rescale, too.
        let retired = lock(&self.shared.retired);
        let mut total = retired.stats.clone();
        for stats in stats {
            total.add(stats);
        }
        let rows_hot_at_producers = self.shared.rows_hot_at_producers.load(Ordering::Relaxed);
        let given_up = self.shared.two_phase_given_up.load(Ordering::Relaxed);
        let base = self.shared.base();
        for (reason, rows) in base.rejected {
            add_rows(&mut rejected, &reason, rows);
        }
        let late_before = |reason: Lateness| base.late.get(reason.name()).copied().unwrap_or(0);
        let report = RunReport {
            rows_in: rows_in + base.rows_in,
            rows_aggregated: total.shard.rows_in
                + total.rows_hot
                + rows_hot_at_producers
                + base.aggregated,
            rows_late: counts.late + base.late.values().sum::<u64>(),
            rows_late_by_reason: Lateness::ALL
                .iter()
                .map(|reason| (*reason, counts.late_by[*reason as usize] + late_before(*reason)))
                .filter(|(_, rows)| *rows > 0)
                .collect(),
            rows_rejected: rejected,
            windows_emitted: total.shard.windows_emitted + base.windows_emitted,
            rows_out: total.shard.rows_out + base.rows_out,
            rows_early: total.shard.rows_early,
            inputs: self.inputs(),
            elapsed: self.shared.started.elapsed(),
            max_parallelism: job.max_parallelism,
            isa: job.isa,
            huge_pages: !total.shard.no_huge_pages,
            shards: shards.collect(),
            rows_hot_at_producers,
            unmitigated_rows: lock(&self.shared.owner_rows).clone(),
            hot_keys: self.shared.skew.as_ref().map(|skew| skew.hot_keys()).unwrap_or_default(),
            two_phase_given_up_at_row: (given_up != u64::MAX).then_some(given_up),
            rescales: retired.rescales.clone(),
        };
        let accounted = report.rows_aggregated + report.rows_late + report.rows_rejected_total();
        if accounted != report.rows_in {
            return Err(RunError::RowsLost { rows_in: report.rows_in, accounted });
        }
        Ok(report)
    }
}

/// Reads the metrics of an engine. Clones read the same.
#[derive(Debug, Clone)]
pub struct MetricsReader {
    shared: Arc<EngineShared>,
    sources: Option<Arc<SourceSet>>,
}

impl MetricsReader {
    /// The keys that are hot now, heaviest first.
    pub fn hot_keys(&self) -> Vec<HotKeyReport> {
        let all = self.shared.skew.as_ref().map(|skew| skew.hot_keys()).unwrap_or_default();
        let mut hot =
            all.into_iter().filter(|key| key.demoted_at_row.is_none()).collect::<Vec<_>>();
        hot.sort_by(|a, b| b.share.total_cmp(&a.share));
        hot
    }

    /// The numbers as they stand.
    pub fn metrics(&self) -> Metrics {
        let (shared, job) = (&self.shared, &self.shared.job);
        let topology = shared.topology();
        let shards = topology.meters.iter().zip(topology.ranges());
        let (hot_keys, promotions, demotions) =
            shared.skew.as_ref().map(|skew| skew.counts()).unwrap_or_default();
        let mut metrics = Metrics {
            uptime: shared.started.elapsed(),
            rows_in: shared.rows_in.load(Ordering::Relaxed),
            time_unit_nanos: job
                .time
                .as_ref()
                .map(|time| u64::try_from(time.unit.nanos()).expect("a day at most")),
            shards: shards.map(|(meter, groups)| meter.read(bounds(groups))).collect(),
            hot_keys,
            promotions,
            demotions,
            ..Metrics::default()
        };
        for meter in &topology.meters {
            meter.add_latencies(&mut metrics.window_close, &mut metrics.end_to_end);
        }
        self.inputs(&mut metrics);
        metrics.find_drift();
        metrics
    }

    /// Adds what inputs tell, and rows that were left out.
    fn inputs(&self, metrics: &mut Metrics) {
        // A producer that closes is in one of both at any time (`Intake::queue_end`).
        let (open, mut counts) = {
            let open = lock(&self.shared.ingests);
            (open.clone(), *lock(&self.shared.finished_counts))
        };
        for ingest in &open {
            counts.add(&ingest.meter.left_out());
        }
        metrics.rows_late = counts.late;
        let mut rejected =
            self.sources.as_ref().map(|sources| sources.rejected()).unwrap_or_default();
        add_rejected(&mut rejected, &counts);
        metrics.rows_rejected = rejected;
        metrics.inputs = if let Some(sources) = &self.sources {
            sources.metrics()
        } else {
            open.iter().map(|one| one.meter.read(one.id.to_string(), one.is_idle())).collect()
        };
    }
}

/// Adds rows that the engine itself rejected to those that sources did.
fn add_rejected(rejected: &mut Vec<(String, u64)>, counts: &RowCounts) {
    for (reason, rows) in counts.rejected() {
        add_rows(rejected, reason.name(), rows);
    }
}

fn add_rows(rejected: &mut Vec<(String, u64)>, reason: &str, rows: u64) {
    match rejected.iter_mut().find(|(known, _)| known == reason) {
        Some((_, sum)) => *sum += rows,
        None if rows > 0 => rejected.push((reason.to_owned(), rows)),
        None => {}
    }
}

/// A length of event time.
fn duration(units: i64, unit: Unit) -> Duration {
    let nanos = u128::from(units.max(0).cast_unsigned()).saturating_mul(unit.nanos());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// First and last key group of a shard.
fn bounds(groups: &RangeInclusive<u16>) -> (u16, u16) {
    (*groups.start(), *groups.end())
}

fn shard_report(groups: &RangeInclusive<u16>, stats: &WorkerStats) -> ShardReport {
    ShardReport {
        key_groups: bounds(groups),
        rows_in: stats.shard.rows_in + stats.rows_hot,
        rows_hot: stats.rows_hot,
        rows_out: stats.shard.rows_out,
        busy: stats.busy,
        idle: stats.idle,
        backpressured: stats.backpressured,
        cpu: stats.cpu,
        state_keys_max: stats.shard.state_keys_max,
        state_bytes_max: stats.shard.state_bytes_max,
        open_windows_max: stats.shard.open_windows_max,
        spilled_bytes: stats.shard.spilled.bytes,
        spilled_runs: stats.shard.spilled.runs,
        spill_time: stats.shard.spilled.time,
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        if !lock(&self.threads).is_empty() {
            self.shared.stop();
            self.checkpointer.iter_mut().for_each(Checkpointer::stop);
            let deadline = Instant::now() + DROP_WAIT;
            while !self.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_micros(200));
            }
            // One that has not ended is held by code given to the engine, and left to it.
            let threads = std::mem::take(&mut *lock(&self.threads));
            for thread in threads.into_iter().filter(JoinHandle::is_finished) {
                // A panic was caught inside the thread; there is nobody left to tell.
                let _ = thread.join();
            }
            self.shared.timer.stop();
            self.shared.sink.ended();
        }
    }
}
