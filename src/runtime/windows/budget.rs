//! How much memory a shard's state may take, and where what does not fit goes.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::config::Job;
use crate::error::RunError;
use crate::spill::{Block, Lane, Merge, PaneFormat, Run, RunWriter, SpillFiles, SpillStats};
use crate::state::pane::image::ImageLayout;
use crate::state::pane::{Pane, Scratch};
use crate::time::window::Span;

/// What the process takes without any state: the program, and what every run has once.
const ENGINE_BYTES: u64 = 24 << 20;

/// What each worker takes beside its state: batches that are read, under way in rings and given as results, partials
/// of hot keys (bounded in `runtime/intake.rs`), and what writing and merging runs takes.
const WORKER_BYTES: u64 = 24 << 20;

/// The part of the limit that goes into what was not foreseen: fragments, and pages that are given back late.
const OVERHEAD: u64 = 32;

/// A shard whose state cannot be written to disk may have so much of it whatever the limit.
const STATE_BYTES_MIN: usize = 1 << 20;

/// Rows that come back from disk at a time, at least: some batches of results.
const MERGE_ROWS: usize = if cfg!(test) { 8 } else { 16_384 };

/// The budget of one shard and its state on disk.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes that the state in memory may take.
    bytes: usize,
    /// Bytes that it takes, but for what the pane handed out last has grown by.
    pub(super) used: usize,
    /// That pane, and what it took then.
    pub(super) last: Option<(Span, usize)>,
    layout: ImageLayout,
    /// Whether all aggregates can be written to disk.
    can_spill: bool,
    files: SpillFiles,
    /// Runs of open spans; besides, there may be a pane.
    pub(super) open: BTreeMap<Span, Vec<Run>>,
    /// Runs of results that may still be corrected, which have no pane then; disjoint.
    pub(super) given: BTreeMap<i64, Vec<Run>>,
    /// Runs of open sessions, of which none is in memory then; disjoint.
    pub(super) sessions: Vec<Run>,
    /// Open spans that have runs but no pane.
    pub(super) without_pane: usize,
}

/// What is done with rows that came back: one pane for each lane.
pub(super) type Each<'a> = &'a mut dyn FnMut(&mut [Pane], &mut Scratch) -> Result<(), RunError>;

impl Budget {
    /// Of each of so many shards of a job with a limit.
    pub(super) fn new(job: &Job, workers: usize) -> Option<Self> {
        let memory = job.memory.as_ref()?;
        let layout = job.image_layout();
        Some(Self {
            bytes: usize::try_from(state_bytes(memory.bytes, workers)).unwrap_or(usize::MAX),
            used: 0,
            last: None,
            files: SpillFiles::new(&memory.spill_dir, layout.schema()),
            layout,
            can_spill: job.plan.check_can_save().is_ok(),
            open: BTreeMap::new(),
            given: BTreeMap::new(),
            sessions: Vec::new(),
            without_pane: 0,
        })
    }

    /// Whether there is room for `more` bytes.
    pub(super) fn has_room(&self, more: usize) -> bool {
        self.used.saturating_add(more) <= self.bytes
    }

    /// Whether there is no room for what these panes come to when they are merged in memory, and there is another
    /// way.
    pub(super) fn is_too_much<'a>(&self, panes: impl Iterator<Item = &'a Pane>) -> bool {
        let (count, bytes) =
            panes.fold((0, 0), |(count, bytes), pane| (count + 1, bytes + pane.reserved()));
        // Twice, as an index that grows is there twice.
        self.can_spill && count > 1 && !self.has_room(2 * bytes)
    }

    /// Whether the state in memory is so small that a copy of it does not matter.
    pub(super) fn is_hardly_used(&self) -> bool {
        self.used <= self.bytes / 8
    }

    /// To how much the state in memory is brought down once there is no room for `more`: by so much that it does not
    /// come to that again soon.
    pub(super) fn goal(&self, more: usize) -> usize {
        (self.bytes / 2).min(self.bytes.saturating_sub(more))
    }

    /// Bytes that are needed to merge runs back.
    pub(super) fn merge_bytes(&self) -> usize {
        self.bytes / 8 + self.cursor_bytes()
    }

    /// Whether rows that take so much on disk may come back into memory for good.
    pub(super) fn is_small(&self, runs: &[Run]) -> bool {
        let bytes = runs.iter().flat_map(|run| run.blocks().iter()).map(Block::bytes);
        bytes.sum::<usize>() <= self.bytes / 8
    }

    /// What was spilled so far.
    pub(super) fn stats(&self) -> SpillStats {
        self.files.stats
    }

    /// Bytes of the blocks that are in memory while runs are merged.
    fn cursor_bytes(&self) -> usize {
        (self.bytes / 4).max(64 << 10)
    }

    fn block_bytes(&self) -> usize {
        (self.bytes / 256).clamp(4 << 10, 1 << 20)
    }

    /// Writes a pane, which stays as it is.
    ///
    /// # Errors
    /// If the system refuses, or a state cannot be saved.
    pub(super) fn write(
        &mut self,
        job: &Job,
        pane: &mut Pane,
        scratch: &mut Scratch,
    ) -> Result<Run, RunError> {
        let block_bytes = self.block_bytes();
        let format = PaneFormat { keys: &job.keys, plan: &job.plan, layout: &self.layout };
        let mut run = RunWriter::new(&mut self.files, format, block_bytes);
        run.append(pane, scratch)?;
        Ok(run.finish())
    }

    /// Adds a run to an open span, whose runs are merged if they become too many.
    ///
    /// # Errors
    /// As [`Budget::merge`].
    pub(super) fn add_open(
        &mut self,
        job: &Job,
        span: Span,
        run: Run,
        scratch: &mut Scratch,
    ) -> Result<(), RunError> {
        let mut runs = self.open.remove(&span).unwrap_or_default();
        runs.push(run);
        let lane = self.narrow(job, Lane::of(runs), 1, scratch)?;
        self.open.insert(span, lane.runs);
        Ok(())
    }

    /// Merges runs of a lane, one of several, if there are too many to be gone through together.
    fn narrow(
        &mut self,
        job: &Job,
        mut lane: Lane,
        lanes: usize,
        scratch: &mut Scratch,
    ) -> Result<Lane, RunError> {
        let (bytes, block_bytes) = (self.cursor_bytes() / lanes, self.block_bytes());
        let format = PaneFormat { keys: &job.keys, plan: &job.plan, layout: &self.layout };
        lane.narrow(format, &mut self.files, (bytes, block_bytes), scratch)?;
        Ok(lane)
    }

    /// Merges the runs of each lane, and gives the rows to `each`, some keys at a time, those that lanes have in common
    /// at the same time. What is then in the pane of the lane `keep` is written to a run, which is the answer.
    ///
    /// # Errors
    /// If the system refuses, the state of a few keys is beyond the budget alone, or `each` fails.
    pub(super) fn merge(
        &mut self,
        job: &Job,
        lanes: Vec<Lane>,
        keep: Option<usize>,
        scratch: &mut Scratch,
        each: Each<'_>,
    ) -> Result<Run, RunError> {
        let count = lanes.len();
        let lanes = lanes.into_iter().map(|lane| self.narrow(job, lane, count, scratch));
        let lanes = lanes.collect::<Result<Vec<_>, _>>()?;
        let (bytes, block_bytes) = (self.bytes, self.block_bytes());
        let format = PaneFormat { keys: &job.keys, plan: &job.plan, layout: &self.layout };
        let mut panes = (0..count).map(|_| format.pane()).collect::<Vec<_>>();
        let mut merge = Merge::new(format, lanes)?;
        let mut run = keep.map(|_| RunWriter::new(&mut self.files, format, block_bytes));
        let mut spent = Duration::ZERO;
        loop {
            let started = Instant::now();
            let any = merge.next(&mut panes, (MERGE_ROWS, bytes / 8), scratch)?;
            spent += started.elapsed();
            if !any {
                break;
            }
            check_keys(&panes, bytes)?;
            each(&mut panes, scratch)?;
            if let (Some(keep), Some(run)) = (keep, &mut run) {
                run.append(&mut panes[keep], scratch)?;
            }
            panes.iter_mut().for_each(Pane::clear);
        }
        let run = run.map(RunWriter::finish).unwrap_or_default();
        self.files.stats.time += spent;
        Ok(run)
    }

    /// Why the state does not fit, although all of it was written to disk that can be.
    pub(super) fn too_large(&self, more: usize, why: &str) -> Option<RunError> {
        let needed = self.used.saturating_add(more);
        (needed > self.bytes.max(STATE_BYTES_MIN)).then(|| {
            RunError::Limit(format!(
                "the state of one shard takes {} in memory and the next batch may take {} more, but its part of the \
                 memory limit is {}; it cannot be written to disk: {why}; raise the limit (--memory-limit)",
                bytes_text(self.used),
                bytes_text(more),
                bytes_text(self.bytes)
            ))
        })
    }
}

/// Bytes for the state of one shard: what is left of the limit, and at least a half of it.
fn state_bytes(limit: u64, workers: usize) -> u64 {
    let others = ENGINE_BYTES + WORKER_BYTES * workers as u64 + limit / OVERHEAD;
    limit.saturating_sub(others).max(limit / 2) / workers as u64
}

/// Rows come back in small pieces, so that what does not fit then is the state of a few keys.
fn check_keys(panes: &[Pane], budget: usize) -> Result<(), RunError> {
    let bytes = panes.iter().map(Pane::reserved).sum::<usize>();
    if bytes <= budget.max(STATE_BYTES_MIN) {
        return Ok(());
    }
    let keys = panes.iter().map(Pane::len).max().unwrap_or(0);
    Err(RunError::Limit(format!(
        "the state of {keys} {} alone takes {}, more than the {} that are a shard's part of the memory limit; raise \
         the limit (--memory-limit), or ask for an aggregate that keeps less (approx_distinct for count(distinct))",
        if keys == 1 { "key" } else { "keys" },
        bytes_text(bytes),
        bytes_text(budget)
    )))
}

/// A number of bytes to be read by a person.
fn bytes_text(bytes: usize) -> String {
    if bytes < 1 << 20 { format!("{bytes} bytes") } else { format!("{} MiB", bytes >> 20) }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, Int64Array, RecordBatch, StringArray};
    use proptest::prelude::*;

    use super::*;
    use crate::aggregate::spec::Aggregate;
    use crate::key::batch::KeyBatch;

    #[test]
    fn shards_share_what_is_left_of_the_limit() {
        const MB: u64 = 1_000_000;
        for (limit, workers, expected) in [
            (1_000 * MB, 2, 446_626_264),
            (1_000 * MB, 7, 109_631_915),
            // Too little for what is not state: a half of it.
            (50 * MB, 2, 12_500_000),
            (1, 7, 0),
        ] {
            assert_eq!(state_bytes(limit, workers), expected, "{limit} of {workers}");
        }
    }

    proptest! {
        /// The check before a run of rows is right only if no pane takes more than it said.
        #[test]
        fn a_pane_grows_by_no_more_than_was_said(
            batches in proptest::collection::vec(1_usize..900, 1..40),
            (text, clears) in (any::<bool>(), any::<bool>()),
        ) {
            let rows = |start: usize, rows: usize| {
                let key = |row: usize| format!("a key of more than twelve bytes {row:08}");
                let numbers = (start..start + rows).map(|row| i64::try_from(row).ok()).collect::<Int64Array>();
                let numbers: ArrayRef = Arc::new(numbers);
                let texts: StringArray = (start..start + rows).map(|row| Some(key(row))).collect();
                let columns = [("n", numbers), ("t", Arc::new(texts) as ArrayRef)];
                RecordBatch::try_from_iter(columns).unwrap()
            };
            let job = Job::builder(rows(0, 1).schema())
                .key([if text { "t" } else { "n" }])
                .aggregates(Aggregate::parse_list("count, sum(n), min(n), max(n)").unwrap())
                .workers(1)
                .build()
                .unwrap();
            let mut pane = Pane::new(&job.keys, &job.plan);
            let (mut scratch, mut keys, mut start) = (Scratch::default(), KeyBatch::default(), 0);
            for (i, count) in batches.into_iter().enumerate() {
                let batch = rows(start, count);
                start += count;
                job.keys.encode(&batch, &mut keys).unwrap();
                keys.hash_all(job.plan.isa);
                let inputs = job.plan.inputs.iter();
                let columns = inputs.map(|input| input.read(&batch, job.isa).unwrap()).collect::<Vec<_>>();
                let selection = (0..u32::try_from(count).unwrap()).collect::<Vec<_>>();
                let most = pane.reserved() + pane.growth(count);
                pane.update(&job.plan, &keys, &columns, &selection, &mut scratch);
                prop_assert!(pane.reserved() <= most, "{} of {most}", pane.reserved());
                prop_assert!(pane.bytes() <= pane.reserved());
                if clears && i % 5 == 4 {
                    pane.clear();
                    prop_assert!(pane.reserved() > 0, "memory that is kept counts");
                }
            }
        }
    }
}
