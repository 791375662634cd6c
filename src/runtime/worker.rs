//! A worker: the thread that owns a shard and, in a run over sources, reads them as well.
//!
//! Reading and owning on one thread leaves no core idle whatever the ratio of the two: a worker whose
//! rings are full does its shard's work, one whose shard has nothing to do reads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;

use super::intake::Intake;
use super::shard::{Progress, Shard};
use super::shared::EngineShared;
use super::source::Unit;
use super::source_set::{Next, SourceSet, Taken};
use super::stats::WorkerStats;
use super::wake::Sleeper;
use crate::config::Job;
use crate::error::{RunError, SourceError};
use crate::time::event_time::times;
use crate::time::window::Place;

/// Messages a shard takes between two looks at the feed.
const STEP_MESSAGES: usize = 4;

/// Rounds without work before a worker sleeps: first spinning, then yielding.
const SPIN_ROUNDS: u32 = 20;
const YIELD_ROUNDS: u32 = 30;

/// How long a worker sleeps when nobody wakes it.
const SLEEP: Duration = Duration::from_millis(100);
/// How long a worker with a feed sleeps, whose source does not wake it.
const SLEEP_POLLING: Duration = Duration::from_millis(1);

/// How often a worker tells what is not at hand: its processor time, and what waits in its rings.
const TOLD_EVERY: Duration = Duration::from_millis(10);

/// The reading half of a worker.
#[derive(Debug)]
pub(crate) struct Feed {
    worker: usize,
    sources: Arc<SourceSet>,
    intake: Intake,
    unit: Option<(Taken, Turn)>,
    done: bool,
}

/// Whether a unit's rows may be routed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// Its largest event time is not known yet.
    Unknown,
    /// Waits until all units before it are known.
    Waiting(Option<i64>),
    /// Its rows may be routed.
    Now,
}

/// What a step of a feed came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fed {
    Worked,
    /// The rings are full.
    HeldBack,
    /// No data now.
    Pending,
    Done,
}

impl Feed {
    pub(crate) fn new(worker: usize, sources: Arc<SourceSet>, intake: Intake) -> Self {
        Self { worker, sources, intake, unit: None, done: false }
    }

    fn step(&mut self) -> Result<Fed, RunError> {
        if let Some(clock) = &self.intake.job().clock {
            // Rows to come are later.
            let now = clock.now();
            self.intake.promise(now);
        }
        if !self.intake.try_flush()? {
            if self.intake.is_transferring() && self.intake.is_empty() {
                // Others go on with the inputs.
                self.intake.retire();
                self.done = true;
                return Ok(Fed::Done);
            }
            return Ok(Fed::HeldBack);
        }
        if self.done {
            return Ok(Fed::Done);
        }
        let Some((taken, turn)) = &mut self.unit else { return self.take_unit() };
        match *turn {
            Turn::Unknown => {
                let max_time = if self.sources.has_time() {
                    max_time(&mut taken.unit, self.intake.job())?
                } else {
                    None
                };
                *turn = Turn::Waiting(max_time);
            }
            Turn::Waiting(max_time) => {
                let ticket = taken.unit.ticket();
                match self.sources.sequence(taken.input, ticket, max_time) {
                    Some((before, floor)) => {
                        self.intake.continue_at(before, floor);
                        self.intake.expect_times(taken.unit.time_min().zip(max_time));
                        *turn = Turn::Now;
                    }
                    None => return Ok(Fed::Pending),
                }
            }
            Turn::Now => {
                if let Some(batch) = taken.unit.next_batch()? {
                    let own = (taken.input, self.intake.input_watermark());
                    self.intake.promise(self.sources.promise(Some(own)));
                    self.sources.add_rows(taken.input, batch.num_rows());
                    self.intake.offer_checked(batch)?;
                    self.intake.try_flush()?;
                } else {
                    self.intake.expect_times(None);
                    self.unit = None;
                }
            }
        }
        Ok(Fed::Worked)
    }

    fn take_unit(&mut self) -> Result<Fed, RunError> {
        let next = self.sources.take(self.worker)?;
        self.intake.promise(self.sources.promise(None));
        match next {
            Next::Unit(taken) => {
                self.unit = Some((taken, Turn::Unknown));
                Ok(Fed::Worked)
            }
            Next::Pending => Ok(Fed::Pending),
            Next::Barrier { is_last } => {
                // Behind a rescale it is for others to go on.
                if is_last && !self.sources.is_rescaling() {
                    self.intake.cut_inputs(self.sources.positions(), self.sources.rejected())?;
                    self.sources.complete();
                }
                self.intake.queue_barrier();
                Ok(Fed::Worked)
            }
            Next::End => {
                self.intake.queue_end();
                self.done = true;
                Ok(Fed::Worked)
            }
        }
    }
}

/// The largest event time in the unit that moves the watermark. Times outside of all windows are rejected
/// and must not make others late; when the unit's largest time is one of them, which is rare, the unit is
/// decoded in whole to find the largest of the others.
fn max_time(unit: &mut Box<dyn Unit>, job: &Job) -> Result<Option<i64>, RunError> {
    let Some(largest) = unit.time_max()? else { return Ok(None) };
    let (Some(windows), Some(time)) = (&job.windows, &job.time) else { return Ok(Some(largest)) };
    let counts = |time: &i64| windows.locate(*time) != Place::OutOfRange;
    if counts(&largest) {
        return Ok(Some(largest));
    }
    let mut decoded = Decoded { ticket: unit.ticket(), batches: VecDeque::new() };
    let mut largest = None;
    while let Some(batch) = unit.next_batch()? {
        // A batch of another schema is refused later, with the reason.
        if let Some(Ok(times)) = batch.columns().get(time.column).map(times) {
            let valid = |i: &usize| times.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*i));
            let times = (0..times.values.len()).filter(valid).map(|i| times.values[i]);
            largest = largest.max(times.filter(counts).max());
        }
        decoded.batches.push_back(batch);
    }
    *unit = Box::new(decoded);
    Ok(largest)
}

/// A unit that has been decoded in whole.
#[derive(Debug)]
struct Decoded {
    ticket: u64,
    batches: VecDeque<RecordBatch>,
}

impl Unit for Decoded {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        unreachable!("asked once, before it was decoded")
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        Ok(self.batches.pop_front())
    }
}

/// Runs a worker to its end.
pub(crate) fn run(
    engine: &EngineShared,
    mut shard: Shard,
    mut feed: Option<Feed>,
    sleeper: &Sleeper,
) -> Result<WorkerStats, RunError> {
    let mut stats = WorkerStats::default();
    let mut quiet = 0_u32;
    let mut last = Instant::now();
    let mut told = last;
    loop {
        if engine.is_stopped() {
            return Err(RunError::Stopped);
        }
        let progress = shard.step(STEP_MESSAGES)?;
        let reading = match &mut feed {
            Some(feed) => feed.step()?,
            None => Fed::Done,
        };
        if progress == Progress::Done && reading == Fed::Done {
            break;
        }
        let worked = progress == Progress::Worked || reading == Fed::Worked;
        if worked {
            quiet = 0;
        } else {
            quiet += 1;
            rest(quiet, &mut shard, reading, sleeper);
        }
        let now = Instant::now();
        let spent = now - last;
        last = now;
        if worked {
            stats.busy += spent;
        } else if reading == Fed::HeldBack {
            stats.backpressured += spent;
        } else {
            stats.idle += spent;
        }
        let meter = shard.meter();
        meter.store_times(stats.busy, stats.idle, stats.backpressured);
        shard.publish(feed.as_ref().map_or(0, |feed| feed.intake.rows_hot()));
        if now - told >= TOLD_EVERY {
            told = now;
            meter.store_cpu(cpu_time());
            shard.publish_queue();
        }
    }
    stats.cpu = cpu_time();
    stats.shard = shard.stats.clone();
    stats.rows_hot = feed.map_or(0, |feed| feed.intake.rows_hot());
    Ok(stats)
}

/// Waits a little, and longer the longer nothing has happened.
fn rest(quiet: u32, shard: &mut Shard, reading: Fed, sleeper: &Sleeper) {
    if quiet <= SPIN_ROUNDS {
        std::hint::spin_loop();
    } else if quiet <= SPIN_ROUNDS + YIELD_ROUNDS {
        std::thread::yield_now();
    } else {
        let timeout = match (reading, shard.clock_interval()) {
            (Fed::Done, None) => SLEEP,
            (Fed::Done, Some(interval)) => interval.min(SLEEP),
            _ => SLEEP_POLLING,
        };
        sleeper.sleep(timeout, || shard.has_work());
    }
}

/// Processor time of this thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
