//! Takes checkpoints of a running engine, on a thread of its own: when asked, and every so often.
//!
//! The thread asks for a barrier, gathers the images that shards give when they pass it, and writes them down. So
//! the data path pays for the images, which are copies in memory, and not for the disk. One checkpoint is taken
//! at a time. A failure (a full disk) is counted and told, and the run goes on.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded, unbounded};

use super::assign::RowCounts;
use super::barrier::{ProducerTotals, ShardCut};
use super::report::CheckpointReport;
use super::restore::job_state;
use super::shared::EngineShared;
use super::sink::lock;
use super::source_set::SourceSet;
use crate::checkpoint::{
    CheckpointDir, FORMAT, InputState, Manifest, OutputState, RowTotals, TimeState,
};
use crate::error::{CheckpointError, RunError};
use crate::time::clock::Clock;
use crate::time::watermark::Lateness;

/// How long the thread waits for a shard before it looks whether the run still goes on.
const LOOK: Duration = Duration::from_millis(1);

/// Where a run's checkpoints go, and how often they are taken.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    dir: Arc<CheckpointDir>,
    every: Option<Duration>,
    keep: usize,
}

impl Checkpoints {
    /// Checkpoints go to `dir`, and are taken when [`Engine::checkpoint`](super::engine::Engine::checkpoint) asks
    /// for one.
    pub fn new(dir: Arc<CheckpointDir>) -> Self {
        Self { dir, every: None, keep: 2 }
    }

    /// Also takes one so often, counted from the end of the one before.
    #[must_use]
    pub fn every(mut self, every: Duration) -> Self {
        self.every = Some(every);
        self
    }

    /// How many are kept; older ones are removed. Default: 2. At least 1.
    #[must_use]
    pub fn keep(mut self, keep: usize) -> Self {
        self.keep = keep.max(1);
        self
    }
}

type Reply = Sender<Result<CheckpointReport, RunError>>;

/// The thread that takes checkpoints.
#[derive(Debug)]
pub(crate) struct Checkpointer {
    /// Where requests go: with none, savepoints are possible only.
    requests: Option<Sender<(Option<PathBuf>, Reply)>>,
    thread: Option<JoinHandle<()>>,
}

impl Checkpointer {
    /// Starts the thread.
    ///
    /// # Errors
    /// If it cannot be started.
    pub(crate) fn start(
        shared: &Arc<EngineShared>,
        sources: Option<&Arc<SourceSet>>,
        checkpoints: Option<Checkpoints>,
    ) -> Result<Self, RunError> {
        let (requests, asked) = unbounded();
        let taker =
            Taker { shared: Arc::clone(shared), sources: sources.cloned(), checkpoints, asked };
        let name = "saltmill-checkpoint".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || taker.run());
        let thread = thread.map_err(|source| RunError::System {
            what: "cannot start the thread that takes checkpoints".to_owned(),
            source,
        })?;
        Ok(Self { requests: Some(requests), thread: Some(thread) })
    }

    /// Takes a checkpoint, into the job's directory or another one, and waits for it.
    pub(crate) fn take(&self, dir: Option<PathBuf>) -> Result<CheckpointReport, RunError> {
        let (reply, answer) = bounded(1);
        let requests = self.requests.as_ref().ok_or(RunError::Stopped)?;
        requests.send((dir, reply)).map_err(|_| RunError::Stopped)?;
        answer.recv().map_err(|_| RunError::Stopped)?
    }

    /// Ends the thread, which may be in the middle of a checkpoint: it finishes it if the run still goes on.
    pub(crate) fn stop(&mut self) {
        self.requests = None;
        if let Some(thread) = self.thread.take() {
            // It has no panics of its own; those of a sink are the shards' to meet, too.
            let _ = thread.join();
        }
    }
}

struct Taker {
    shared: Arc<EngineShared>,
    sources: Option<Arc<SourceSet>>,
    checkpoints: Option<Checkpoints>,
    asked: Receiver<(Option<PathBuf>, Reply)>,
}

/// Everything that lies before a barrier.
struct Cut {
    producers: ProducerTotals,
    inputs: Vec<InputState>,
    rejected: Vec<(String, u64)>,
    outputs: Vec<OutputState>,
    shards: Vec<ShardCut>,
}

impl Taker {
    fn run(&self) {
        let every = self.checkpoints.as_ref().and_then(|checkpoints| checkpoints.every);
        loop {
            let asked = match every {
                Some(every) => self.asked.recv_timeout(every),
                None => self.asked.recv().map_err(|_| RecvTimeoutError::Disconnected),
            };
            match asked {
                Ok((dir, reply)) => {
                    // Whoever asked may have gone away.
                    let _ = reply.send(self.take_and_tell(dir));
                }
                Err(RecvTimeoutError::Timeout) => {
                    // Told to the sink; a run that is over needs none.
                    let _ = self.take_and_tell(None);
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn take_and_tell(&self, dir: Option<PathBuf>) -> Result<CheckpointReport, RunError> {
        let outcome = self.take(dir);
        let counts = &self.shared.checkpoints;
        match &outcome {
            Ok(report) => {
                counts.taken.fetch_add(1, Ordering::Relaxed);
                self.shared.sink.sink().checkpointed(Ok(report));
            }
            Err(RunError::Checkpoint(error)) => {
                counts.failed.fetch_add(1, Ordering::Relaxed);
                self.shared.sink.sink().checkpointed(Err(error));
            }
            Err(_) => {}
        }
        outcome
    }

    fn take(&self, savepoint: Option<PathBuf>) -> Result<CheckpointReport, RunError> {
        let started = Instant::now();
        let begun_ms = u64::try_from(Clock::system().now()).unwrap_or(0);
        let other;
        let (dir, keep) = match (savepoint, &self.checkpoints) {
            (Some(path), _) => {
                other = CheckpointDir::open(path)?;
                (&other, usize::MAX)
            }
            (None, Some(checkpoints)) => (&*checkpoints.dir, checkpoints.keep),
            (None, None) => {
                let text = "the engine was started without a directory for checkpoints";
                return Err(CheckpointError::Unsaved(text.to_owned()).into());
            }
        };
        let id = dir.next_id()?;
        let cut = self.cut()?;
        // Outputs first: what the checkpoint says of them must be there.
        self.shared.sink.sink().sync()?;
        let (mut alignment, mut capture) = (Duration::ZERO, Duration::ZERO);
        for shard in &cut.shards {
            alignment = alignment.max(shard.alignment);
            capture = capture.max(shard.capture);
        }
        let manifest = self.manifest(id, begun_ms, &cut)?;
        let shards = cut.shards.into_iter().map(|shard| shard.sections).collect();
        let manifest = dir.write(manifest, self.shared.layout.schema(), shards)?;
        dir.prune(keep)?;
        Ok(CheckpointReport {
            id,
            path: dir.folder(id),
            rows_in: manifest.rows.rows_in,
            keys: manifest.keys(),
            bytes: manifest.state_bytes(),
            alignment,
            capture,
            duration: started.elapsed(),
        })
    }

    /// Brings all threads to one cut.
    fn cut(&self) -> Result<Cut, RunError> {
        let (shared, barriers) = (&self.shared, &self.shared.barriers);
        let _turn = lock(&shared.control);
        let barrier = {
            let open = lock(&shared.ingests);
            barriers.ask(open.len())
        };
        shared.notify_all();
        let shards = shared.topology().workers();
        let mut given = Vec::with_capacity(shards);
        while given.len() < shards {
            // Those in use see to it themselves before they rest.
            shared.serve_handles();
            match barriers.take(LOOK) {
                Some(cut) if cut.barrier == barrier => given.push(cut),
                None if shared.is_over() => {
                    barriers.abandon(barrier);
                    shared.sink.abandon(barrier)?;
                    shared.notify_all();
                    return Err(RunError::Stopped);
                }
                // A cut that was given up, or nothing yet.
                _ => {}
            }
        }
        given.sort_by_key(|cut| cut.shard);
        let defect = |what: &str| RunError::Defect(format!("at a checkpoint, {what}"));
        let producers = barriers.before().ok_or_else(|| defect("a producer was passed over"))?;
        let outputs =
            shared.sink.take_cut(barrier).ok_or_else(|| defect("the outputs were not cut"))?;
        let (inputs, rejected) = barriers
            .take_inputs()
            .or_else(|| self.sources.as_ref().map(|one| (one.positions(), one.rejected())))
            .unwrap_or_else(|| (barriers.take_handles(), Vec::new()));
        Ok(Cut { producers, inputs, rejected, outputs, shards: given })
    }

    fn manifest(&self, id: u64, begun_ms: u64, cut: &Cut) -> Result<Manifest, RunError> {
        let shared = &self.shared;
        let base = shared.base();
        let ProducerTotals { counts, rows_hot } = &cut.producers;
        let sum = |of: fn(&ShardCut) -> u64| cut.shards.iter().map(of).sum::<u64>();
        let retired = lock(&shared.retired).stats.shard.clone();
        let aggregated = rows_hot + sum(|shard| shard.rows_in) + retired.rows_in;
        let unusable = counts.rejected().iter().map(|(_, rows)| rows).sum::<u64>();
        let accounted = aggregated + counts.late + unusable;
        if accounted != counts.rows_in {
            return Err(RunError::RowsLost { rows_in: counts.rows_in, accounted });
        }
        let rejected_before = cut.rejected.iter().map(|(_, rows)| rows).sum::<u64>();
        let rows = RowTotals {
            rows_in: counts.rows_in + rejected_before,
            aggregated,
            late: late_by_reason(counts),
            rejected: rejected_by_reason(counts, &cut.rejected),
            windows_emitted: sum(|shard| shard.windows_emitted) + retired.windows_emitted,
            rows_out: sum(|shard| shard.rows_out) + retired.rows_out,
        };
        let known = |time: i64| (time != i64::MIN).then_some(time);
        let closed = cut.shards.iter().map(|shard| shard.closed).min().unwrap_or(i64::MIN);
        // Of the cut: by now the engine may have gone on, to where the run that goes on from here is not yet.
        let passed = cut.shards.iter().map(|shard| shard.passed).max().unwrap_or(i64::MIN);
        Ok(Manifest {
            format: FORMAT,
            id,
            saltmill: env!("CARGO_PKG_VERSION").to_owned(),
            begun_ms,
            finished: false,
            job: job_state(&shared.job),
            workers: cut.shards.len(),
            rows: rows.plus(&base),
            time: TimeState { passed: known(closed), closed_to: known(passed) },
            inputs: cut.inputs.clone(),
            outputs: cut.outputs.clone(),
            hot_keys: shared.skew.as_ref().map(|skew| skew.hot_key_states()).unwrap_or_default(),
            files: Vec::new(),
        })
    }
}

/// Late rows by the names of the reasons, those that did not occur left out.
fn late_by_reason(counts: &RowCounts) -> BTreeMap<String, u64> {
    let reasons = Lateness::ALL.iter().map(|reason| (*reason, counts.late_by[*reason as usize]));
    reasons
        .filter(|(_, rows)| *rows > 0)
        .map(|(reason, rows)| (reason.name().to_owned(), rows))
        .collect()
}

/// Rows that could not be used, by the names of the reasons: those of the engine, and those of inputs.
fn rejected_by_reason(counts: &RowCounts, inputs: &[(String, u64)]) -> BTreeMap<String, u64> {
    let mut rejected = BTreeMap::new();
    let own = counts.rejected().map(|(reason, rows)| (reason.name().to_owned(), rows));
    for (reason, rows) in own.into_iter().chain(inputs.iter().cloned()) {
        if rows > 0 {
            *rejected.entry(reason).or_default() += rows;
        }
    }
    rejected
}
