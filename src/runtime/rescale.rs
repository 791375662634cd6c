//! Rescaling a run while producers go on pushing: shards come or go, key groups move, results stay equal.
//!
//! All threads are brought to one barrier, as for a checkpoint: then the old shards hold every row before it, and no
//! partial is anywhere else. They hand over their state and end. New shards, whose threads were started beforehand,
//! take the key groups that are theirs, each for itself. Producers go over behind the barrier, each when it next has
//! something to do, to rings that were made for all of them at once: so a shard knows every producer, and what it has
//! promised, before its first message.
//!
//! **Invariant:** a message meets only shards of the topology it was made for. State is moved as it stands, so results
//! are those of a run that was never rescaled.
//!
//! **No deadlock:** as for barriers ([`barrier`](super::barrier)); old shards take until all barriers have come, and a
//! producer that has sent its barrier waits for this thread only, which waits for nobody else.
//!
//! **Cost:** a pause, for producers and results, from the barrier until the new shards have begun. Whole panes are
//! moved where all their key groups are; others are copied key by key, by the new shards between messages
//! (`windows/inherit.rs`), so that the pause hardly depends on how many keys there are. Results kept for corrections,
//! open sessions, and what goes over as sections are copied within the pause.

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};

use super::affinity;
use super::engine::Engine;
use super::handover::ShardState;
use super::report::RescaleReport;
use super::shard::Shard;
use super::sink::lock;
use super::stats::WorkerStats;
use super::topology::{IngestShared, Transfer};
use super::topology::{Topology, even_ranges};
use super::wake::Sleeper;
use super::worker::{self, Feed};
use crate::config::Job;
use crate::error::RunError;
use crate::key::group::check_parts;
use crate::state::pane::Pane;

/// How long this thread waits for a shard before it looks whether the run still goes on, and whether a handle that
/// nobody uses can hand on more.
const LOOK: Duration = Duration::from_micros(50);

/// Panes with memory that is there, for each new shard, at most.
const WARM_PANES_MAX: u64 = 4;

/// Smaller panes are not worth it.
const WARM_KEYS_MIN: usize = 10_000;

/// Key groups are not all of one size, and keys come meanwhile.
const WARM_MARGIN: f64 = 1.1;

/// What a thread that was started beforehand is to run.
pub(super) struct Start {
    shard: Shard,
    feed: Option<Feed>,
    before: Arc<Vec<Mutex<ShardState>>>,
    ready: Sender<()>,
    settled: Sender<Infallible>,
}

/// Threads that wait for the shards they are to run. Dropped, they end.
struct Recruits {
    sleepers: Vec<Sleeper>,
    starts: Vec<Sender<(Start, Sleeper)>>,
    threads: Vec<JoinHandle<Option<WorkerStats>>>,
}

impl Engine {
    /// Goes on with another number of shards while producers keep pushing: key groups and their state move, results
    /// are the same. Returns when all state is where it belongs.
    ///
    /// Producers wait for the first part of that ([`RescaleReport::pause`]), and `try_push` gives batches back.
    /// Checkpoints, snapshots and further rescales wait for their turn.
    ///
    /// Shards that wait for whoever takes their results do not get on with it: call this from another thread than the
    /// one that empties a bounded channel.
    ///
    /// # Errors
    /// [`RunError::Limit`] for a job with readers, for no shards or more than key groups
    /// ([`JobBuilder::max_parallelism`](crate::JobBuilder::max_parallelism)), and if threads cannot be started, with
    /// nothing changed; [`RunError::Stopped`] if the run has ended.
    pub fn rescale(&self, workers: usize) -> Result<RescaleReport, RunError> {
        let Job { max_parallelism: groups, readers, .. } = *self.shared().job;
        if readers {
            let text = "a job with readers keeps its number of shards; leave JobBuilder::readers out, or go on from a \
                        savepoint with another number of workers";
            return Err(RunError::Limit(text.to_owned()));
        }
        check_parts(groups, "number of workers", workers)
            .map_err(|error| RunError::Limit(error.to_string()))?;
        self.rescale_to(even_ranges(workers, groups))
    }

    /// The same, to shards with these key groups.
    fn rescale_to(&self, ranges: Vec<RangeInclusive<u16>>) -> Result<RescaleReport, RunError> {
        let shared = self.shared();
        let turn = lock(&shared.control);
        if shared.is_over() || self.is_finished() {
            return Err(RunError::Stopped);
        }
        let old = shared.topology();
        let recruits = self.recruit(&ranges)?;
        let started = Instant::now();
        let at_row = shared.rows_in.load(Ordering::Relaxed);
        let barrier = {
            let open = lock(&shared.ingests);
            shared.rescaling.store(true, Ordering::SeqCst);
            shared.barriers.ask_for_rescale(open.len())
        };
        shared.notify_all();
        let states = self.gather(&old, barrier)?;
        let recruits = self.relieve(recruits)?;
        let alignment = states.iter().map(|state| state.alignment).max().unwrap_or_default();
        let wakes = recruits.sleepers.iter().map(|sleeper| Arc::clone(sleeper.wake())).collect();
        let topology = Arc::new(Topology::new(&shared.job, wakes, ranges, barrier));
        shared.sink.rescale(topology.workers());
        *lock(&shared.owner_rows) = vec![0; topology.workers()];
        if let Some(skew) = &shared.skew {
            skew.rescale(topology.workers());
        }
        let transfers = self.connect_producers(&topology, &states);
        let before = Arc::new(states.into_iter().map(Mutex::new).collect::<Vec<_>>());
        let settled = self.put_to_work(recruits, &topology, &before)?;
        let pause = started.elapsed();
        self.transfer_producers(transfers);
        // Nothing is ever sent: all shards have what is theirs when all have dropped their end.
        let _ = settled.recv();
        let report = RescaleReport {
            from: old.workers(),
            to: topology.workers(),
            at_row,
            alignment,
            pause,
            settled: started.elapsed(),
        };
        lock(&shared.retired).rescales.push(report.clone());
        drop(turn);
        Ok(report)
    }

    /// Starts threads that wait, with memory for the state that is to come: page faults cost more than copying it.
    fn recruit(&self, ranges: &[RangeInclusive<u16>]) -> Result<Recruits, RunError> {
        let (shared, workers) = (self.shared(), ranges.len());
        let cores = affinity::cores(&shared.job.pinning, workers);
        let sleepers = (0..workers).map(|_| Sleeper::new()).collect();
        let mut recruits = Recruits { sleepers, starts: Vec::new(), threads: Vec::new() };
        let (warm, warmed) = bounded(workers);
        for (id, groups) in ranges.iter().enumerate() {
            let (start, started) = bounded::<(Start, Sleeper)>(1);
            let (engine, warm) = (Arc::clone(shared), warm.clone());
            let expected = self.expected_panes(groups);
            let body = move || {
                let Job { keys, plan, .. } = &*engine.job;
                let panes = expected.map(|expected| Pane::warm(keys, plan, expected));
                let panes = panes.collect::<Vec<_>>();
                // Whoever waits for it may have gone away.
                let _ = warm.send(());
                drop(warm);
                // None if it is not needed after all.
                let Ok((start, sleeper)) = started.recv() else { return Ok(None) };
                let Start { mut shard, feed, before, ready, settled } = start;
                shard.take_over(&before, panes, settled)?;
                // What is left is dropped by whoever rescales.
                drop(before);
                let _ = ready.send(());
                drop(ready);
                worker::run(&engine, shard, feed, &sleeper).map(Some)
            };
            recruits.threads.push(self.spawn(id, cores.get(id).copied(), body)?);
            recruits.starts.push(start);
        }
        drop(warm);
        wait_for_all(&warmed, workers)?;
        Ok(recruits)
    }

    /// How many keys the panes will hold, about, that are copied for a shard with these key groups: the largest of
    /// them, since there may be many.
    fn expected_panes(&self, groups: &RangeInclusive<u16>) -> impl Iterator<Item = usize> + use<> {
        let shared = self.shared();
        let topology = shared.topology();
        let (mut keys, mut panes) = (0.0, 1);
        for (meter, from) in topology.meters.iter().zip(topology.ranges()) {
            let metrics = meter.read((*from.start(), *from.end()));
            let common = from.clone().filter(|group| groups.contains(group)).count();
            panes = panes.max(metrics.open_windows);
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let share = common as f64 / from.len() as f64;
            #[expect(clippy::cast_precision_loss, reason = "an estimate")]
            let its = metrics.state_keys as f64 * share;
            keys += its;
        }
        #[expect(clippy::cast_precision_loss, reason = "an estimate")]
        let each = keys / panes as f64 * WARM_MARGIN;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative")]
        let each = each as usize;
        let is_worth_it = each >= WARM_KEYS_MIN && shared.job.process.is_none();
        let count = if is_worth_it { panes.min(WARM_PANES_MAX) } else { 0 };
        (0..count).map(move |_| each)
    }

    /// The states of all old shards, in order, once each has met the barrier of all producers.
    fn gather(&self, old: &Topology, barrier: u64) -> Result<Vec<ShardState>, RunError> {
        let shared = self.shared();
        let mut states = Vec::with_capacity(old.workers());
        while states.len() < old.workers() {
            // Those in use see to it themselves before they rest.
            shared.serve_handles();
            match shared.barriers.take_state(LOOK) {
                Some(state) => states.push(state),
                None if shared.is_over() => {
                    // Shards that have ended by themselves have nothing to hand over.
                    shared.barriers.abandon(barrier);
                    let open = lock(&shared.ingests);
                    shared.rescaling.store(false, Ordering::SeqCst);
                    drop(open);
                    shared.notify_all();
                    return Err(RunError::Stopped);
                }
                None => {}
            }
        }
        states.sort_by_key(|state| state.shard);
        Ok(states)
    }

    /// New threads take the place of those whose shards have handed over; keeps what these have counted.
    fn relieve(&self, mut recruits: Recruits) -> Result<Recruits, RunError> {
        let threads = std::mem::take(&mut recruits.threads);
        let old = std::mem::replace(&mut *lock(self.threads()), threads);
        for thread in old {
            let stats = thread.join().unwrap_or(None).ok_or(RunError::Stopped)?;
            lock(&self.shared().retired).stats.add(&stats);
        }
        Ok(recruits)
    }

    /// Makes all producers known to the new shards.
    fn connect_producers(
        &self,
        topology: &Arc<Topology>,
        states: &[ShardState],
    ) -> Vec<(Arc<IngestShared>, Transfer)> {
        let shared = self.shared();
        let capacity = shared.job.ring_capacity;
        // None comes or goes while the run is being rescaled.
        let open = lock(&shared.ingests);
        let connect = |ingest: &Arc<IngestShared>| {
            let promised = states.iter().flat_map(|state| &state.promised);
            let promised = promised.filter(|(id, _)| *id == ingest.id).map(|(_, time)| *time);
            // All shards were told the same with the barrier.
            let watermark = promised.min().unwrap_or(i64::MIN);
            let rings = topology.connect(ingest, capacity, watermark);
            let topology = Arc::clone(topology);
            (Arc::clone(ingest), Transfer { topology, rings, watermark })
        };
        let transfers = open.iter().map(connect).collect();
        shared.set_topology(Arc::clone(topology));
        shared.version.fetch_add(1, Ordering::SeqCst);
        transfers
    }

    /// Lets all producers go on. Later than they could, since rows that wait in rings help nobody, and whoever puts
    /// them there takes time from the shards that take over.
    fn transfer_producers(&self, transfers: Vec<(Arc<IngestShared>, Transfer)>) {
        let open = lock(&self.shared().ingests);
        for (ingest, transfer) in transfers {
            *lock(&ingest.transfer) = Some(transfer);
            // It waits for room, or its task does.
            ingest.wake.notify();
        }
        self.shared().rescaling.store(false, Ordering::SeqCst);
        drop(open);
    }

    /// Has the new shards take over, and waits until they have.
    fn put_to_work(
        &self,
        recruits: Recruits,
        topology: &Arc<Topology>,
        before: &Arc<Vec<Mutex<ShardState>>>,
    ) -> Result<Receiver<Infallible>, RunError> {
        let shared = self.shared();
        let Recruits { sleepers, starts, .. } = recruits;
        if let Some(sources) = self.sources() {
            sources.rescale(topology.workers());
        }
        // All feeds are known to all shards before the first of these runs.
        let feeds = sleepers.iter().enumerate().map(|(id, sleeper)| self.feed(id, sleeper));
        let feeds = feeds.collect::<Vec<_>>();
        let (ready, taken_over) = bounded(topology.workers());
        let (settled, all_settled) = bounded(0);
        let all = starts.into_iter().zip(sleepers).zip(feeds).enumerate();
        for (id, ((start, sleeper), feed)) in all {
            let one = Shard::of(Arc::clone(topology), id, Arc::clone(shared));
            let (before, ready, settled) = (Arc::clone(before), ready.clone(), settled.clone());
            let one = Start { shard: one, feed, before, ready, settled };
            let start = start.send((one, sleeper));
            start.map_err(|_| RunError::Stopped)?;
        }
        drop((ready, settled));
        wait_for_all(&taken_over, topology.workers())?;
        Ok(all_settled)
    }
}

/// Waits until all have sent, and fails if one has gone before.
fn wait_for_all(ready: &Receiver<()>, workers: usize) -> Result<(), RunError> {
    (0..workers).try_for_each(|_| ready.recv().map_err(|_| RunError::Stopped))
}
