//! From a batch of rows to a [`Prepared`] batch: keys and hashes, windows and lateness, owners.
//!
//! One pass over the key columns, one over the times, one over the hashes. Rows of one window, by far
//! the most frequent case, take a short way. Nothing is allocated once the pool of prepared batches has
//! warmed up, and values are not copied.

use std::sync::Arc;
use std::time::Instant;

use arrow::record_batch::RecordBatch;

use super::assign::{Assignment, EXCLUDED, RowCounts, WindowScratch, row_number};
use super::hot::{ColdRows, HotKeys};
use super::message::{Part, Prepared, Segment};
use super::partials::Partials;
use super::sink::Sink;
use super::split::Owners;
use super::topology::Topology;
use crate::config::{Job, SkewMode};
use crate::error::RunError;
use crate::time::watermark::Watermark;
use crate::time::window::Span;

/// Rows after which two-phase mode is judged.
const TWO_PHASE_TRIAL_ROWS: u64 = 262_144;

/// Prepares the batches of one producer.
#[derive(Debug)]
pub(crate) struct Router {
    job: Arc<Job>,
    owners: Owners,
    /// Prepared batches, lent out or free.
    pool: Vec<Arc<Prepared>>,
    /// The input's watermark.
    pub(crate) watermark: Watermark,
    pub(crate) counts: RowCounts,
    windows: WindowScratch,
    /// Least and largest event time of the rows to come, if known.
    expected: Option<(i64, i64)>,
    /// Which rows are hot; none in a job that does not ask.
    hot: Option<HotKeys>,
    /// Partial aggregates that have not been handed on.
    pub(crate) partials: Partials,
    /// Whether all rows are aggregated here first.
    two_phase: bool,
    /// Rows of each owner, hot ones included.
    pub(crate) owner_rows: Vec<u64>,
}

impl Router {
    /// A router of a producer; `hot` if hot keys are to be treated apart.
    pub(crate) fn new(job: Arc<Job>, topology: &Topology, hot: Option<HotKeys>) -> Self {
        let owners = Owners::new(&job, topology.shard_of_groups());
        let out_of_orderness = job.time.as_ref().map_or(0, |time| time.out_of_orderness);
        let workers = topology.workers();
        let partials = Partials::new(Arc::clone(&job), workers, hot.is_some());
        let two_phase = job.skew == SkewMode::TwoPhase;
        let owner_rows = vec![0; workers];
        Self {
            job,
            expected: None,
            hot,
            partials,
            two_phase,
            owner_rows,
            owners,
            pool: Vec::new(),
            watermark: Watermark::new(out_of_orderness),
            counts: RowCounts::default(),
            windows: WindowScratch::default(),
        }
    }

    /// From now on rows go to other shards; all partials have been handed on.
    pub(crate) fn go_over(&mut self, topology: &Topology) {
        self.owners = Owners::new(&self.job, topology.shard_of_groups());
        self.partials.go_over(topology.workers(), self.hot.is_some());
        self.owner_rows = vec![0; topology.workers()];
    }

    /// Prepares `batch`, which has the job's schema. Late and rejected rows are counted and, if wanted,
    /// given to `sink`.
    pub(crate) fn route(
        &mut self,
        batch: &RecordBatch,
        rows_seen: u64,
        sink: &dyn Sink,
    ) -> Result<Arc<Prepared>, RunError> {
        let mut lent = self.take_free();
        let prepared = Arc::get_mut(&mut lent).expect("`take_free` gives one nobody else holds");
        prepared.taken_in = Some(Instant::now());
        self.job.keys.encode(batch, &mut prepared.keys)?;
        prepared.columns.clear();
        prepared.batch = self.job.process.as_ref().map(|_| batch.clone());
        for input in &self.job.plan.inputs {
            prepared.columns.push(input.read(batch, self.job.isa)?);
        }
        prepared.parts.resize_with(self.owner_rows.len(), Part::default);
        for part in &mut prepared.parts {
            part.clear();
        }
        self.counts.rows_in += batch.num_rows() as u64;
        if let Some(hot) = &mut self.hot
            && hot.begin_batch(&prepared.keys, rows_seen)
        {
            self.partials.seal();
        }
        match self.windows.assign(&self.job, batch, self.expected, &mut self.watermark)? {
            Assignment::One(window) => self.split_one_window(prepared, window),
            Assignment::Nothing => {
                self.windows.side_outputs(&mut self.counts, batch, sink)?;
            }
            Assignment::Mixed => {
                self.split_mixed(prepared);
                self.windows.side_outputs(&mut self.counts, batch, sink)?;
            }
        }
        if let Some(hot) = &mut self.hot {
            hot.sample(&prepared.keys, rows_seen);
        }
        for (rows, part) in self.owner_rows.iter_mut().zip(&prepared.parts) {
            *rows += part.selection.len() as u64;
        }
        if self.two_phase {
            self.aggregate_all(prepared);
        }
        self.pool.push(Arc::clone(&lent));
        Ok(lent)
    }

    /// Takes out hot rows, and selects the others for their owners.
    fn split_one_window(&mut self, prepared: &mut Prepared, window: Span) {
        match self.hot.as_mut().filter(|hot| !hot.is_empty()) {
            None => {
                prepared.keys.hash_all(self.job.isa);
                self.owners.split_all(&prepared.keys.hashes, &mut prepared.parts);
            }
            Some(hot) => {
                let rows = hot.split(&mut prepared.keys);
                for run in &rows.runs {
                    let owner = self.owners.of(run.hash);
                    let hot_rows = rows.of(run);
                    self.owner_rows[owner] += hot_rows.count() as u64;
                    self.partials.add_one_key(window, (owner, run.salt), prepared, hot_rows);
                }
                let Prepared { keys, parts, .. } = prepared;
                match rows.cold() {
                    ColdRows::Listed(rows) => self.owners.split_listed(rows, &keys.hashes, parts),
                    ColdRows::Masked(mask) => self.owners.split_masked(mask, &keys.hashes, parts),
                }
            }
        }
        self.partials.take_spread(prepared);
        for part in &mut prepared.parts {
            if !part.selection.is_empty() {
                part.segments.push(Segment { window, end: part.selection.len() });
            }
        }
    }

    /// The same for a batch of several windows, where runs of one key and window are short: hot rows are
    /// looked up in the partials like any row.
    fn split_mixed(&mut self, prepared: &mut Prepared) {
        if let Some(hot) = self.hot.as_mut().filter(|hot| !hot.is_empty()) {
            let rows = hot.split(&mut prepared.keys);
            if !rows.runs.is_empty() {
                prepared.keys.hash_all(self.job.isa);
                let cold = &mut self.windows.hot_ordinals;
                cold.clear();
                cold.resize(self.windows.ordinals.len(), EXCLUDED);
                rows.each(|row| {
                    let row = row as usize;
                    std::mem::swap(&mut cold[row], &mut self.windows.ordinals[row]);
                });
                std::mem::swap(&mut self.windows.hot_ordinals, &mut self.windows.ordinals);
                self.split_by_window(prepared);
                self.aggregate_all(prepared);
                std::mem::swap(&mut self.windows.hot_ordinals, &mut self.windows.ordinals);
            }
        }
        prepared.keys.hash_all(self.job.isa);
        self.split_by_window(prepared);
    }

    /// Aggregates all selected rows here, instead of handing them to their owners.
    fn aggregate_all(&mut self, prepared: &mut Prepared) {
        for owner in 0..prepared.parts.len() {
            let part = std::mem::take(&mut prepared.parts[owner]);
            if self.owner_rows_counted_here() {
                self.owner_rows[owner] += part.selection.len() as u64;
            }
            self.partials.add_part(owner, prepared, &part);
            prepared.parts[owner] = part;
            prepared.parts[owner].clear();
        }
    }

    /// Hot rows of mixed batches are counted where they are aggregated; rows of two-phase mode were
    /// counted when they were selected.
    fn owner_rows_counted_here(&self) -> bool {
        !self.two_phase
    }

    /// Ends two-phase mode where partials are nearly as many as rows: then it costs and gains nothing.
    /// True if it was ended just now.
    pub(crate) fn give_up_two_phase(&mut self) -> bool {
        let rows = self.partials.rows;
        if self.two_phase
            && rows >= TWO_PHASE_TRIAL_ROWS
            && (self.partials.handed_on + self.partials.held()) * 2 > rows
        {
            self.two_phase = false;
            return true;
        }
        false
    }

    /// See [`Intake::expect_times`](super::intake::Intake::expect_times).
    pub(crate) fn expect_times(&mut self, range: Option<(i64, i64)>) {
        self.expected = range;
    }

    /// Tells the control of hot keys that this producer has gone.
    pub(crate) fn leave(&self, rows_seen: u64) {
        if let Some(hot) = &self.hot {
            hot.leave(rows_seen);
        }
    }

    /// A prepared batch that no shard holds any more, or a new one.
    fn take_free(&mut self) -> Arc<Prepared> {
        match self.pool.iter().position(|prepared| Arc::strong_count(prepared) == 1) {
            Some(free) => self.pool.swap_remove(free),
            None => Arc::default(),
        }
    }

    /// Counting sort of the rows by owner and window.
    fn split_by_window(&mut self, prepared: &mut Prepared) {
        let WindowScratch { spans, ordinals, counts, ranks, .. } = &mut self.windows;
        let mut order = (0..spans.len()).collect::<Vec<_>>();
        order.sort_unstable_by_key(|ordinal| spans[*ordinal]);
        ranks.clear();
        ranks.resize(spans.len(), 0);
        for (rank, ordinal) in order.iter().enumerate() {
            ranks[*ordinal] = u32::try_from(rank).expect("no more windows than rows");
        }
        let shards = self.owner_rows.len();
        let owners = &self.owners;
        counts.clear();
        counts.resize(spans.len() * shards, 0);
        for (hash, ordinal) in prepared.keys.hashes.iter().zip(&*ordinals) {
            if *ordinal != EXCLUDED {
                counts[ranks[*ordinal as usize] as usize * shards + owners.of(*hash)] += 1;
            }
        }
        for (shard, part) in prepared.parts.iter_mut().enumerate() {
            let mut next = 0;
            for (rank, ordinal) in order.iter().enumerate() {
                let count = &mut counts[rank * shards + shard];
                if *count > 0 {
                    let start = next;
                    next += *count;
                    *count = start;
                    part.segments.push(Segment { window: spans[*ordinal], end: next });
                }
            }
            part.selection.resize(next, 0);
        }
        for (row, (hash, ordinal)) in prepared.keys.hashes.iter().zip(&*ordinals).enumerate() {
            if *ordinal != EXCLUDED {
                let shard = owners.of(*hash);
                let place = &mut counts[ranks[*ordinal as usize] as usize * shards + shard];
                prepared.parts[shard].selection[*place] = row_number(row);
                *place += 1;
            }
        }
    }
}
