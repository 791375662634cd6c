//! Runs merged back, some rows at a time.

use std::cmp::Reverse;

use arrow::array::RecordBatch;

use super::run::{PaneFormat, Run, RunWriter};
use super::{Block, SpillFiles};
use crate::aggregate::Damaged;
use crate::error::RunError;
use crate::key::batch::KeyBatch;
use crate::state::pane::image::{half_of, keys_of};
use crate::state::pane::{Pane, Scratch};

/// Bytes of memory for each byte of a block: it is there as read, its keys, and, for a moment, once more.
const BLOCK_COPIES: usize = 3;

/// Runs that are merged into one pane.
#[derive(Debug, Clone, Default)]
pub(crate) struct Lane {
    pub(crate) runs: Vec<Run>,
    /// No two of them have a key in common.
    pub(crate) is_disjoint: bool,
}

impl Lane {
    /// Of runs that may have keys in common.
    pub(crate) fn of(runs: Vec<Run>) -> Self {
        Self { runs, is_disjoint: false }
    }

    /// Of runs that have no keys in common.
    pub(crate) fn disjoint(runs: Vec<Run>) -> Self {
        Self { runs, is_disjoint: true }
    }

    /// Whether merging it takes more than `bytes` for the blocks in memory, and fewer runs would take less.
    pub(crate) fn is_wide(&self, bytes: usize) -> bool {
        self.runs.len() > 2 && self.block_bytes() > bytes
    }

    fn block_bytes(&self) -> usize {
        self.runs.iter().map(Run::block_bytes).sum::<usize>() * BLOCK_COPIES
    }

    /// Merges runs, the shortest first, until one block of each takes no more than `bytes`, or two are left.
    ///
    /// # Errors
    /// As those of [`Merge::next`] and [`RunWriter::append`].
    pub(crate) fn narrow(
        &mut self,
        format: PaneFormat<'_>,
        files: &mut SpillFiles,
        (bytes, block_bytes): (usize, usize),
        scratch: &mut Scratch,
    ) -> Result<(), RunError> {
        while self.is_wide(bytes) {
            self.runs.sort_by_key(|run| Reverse(run.rows()));
            let mut part = Self { runs: Vec::new(), is_disjoint: self.is_disjoint };
            while let Some(run) = self.runs.pop() {
                part.runs.push(run);
                if part.is_wide(bytes) {
                    self.runs.extend(part.runs.pop());
                    break;
                }
            }
            let mut merge = Merge::new(format, vec![part])?;
            let mut pane = [format.pane()];
            let mut out = RunWriter::new(files, format, block_bytes);
            while merge.next(&mut pane, (usize::MAX, bytes), scratch)? {
                out.append(&mut pane[0], scratch)?;
                pane[0].clear();
            }
            self.runs.push(out.finish());
        }
        Ok(())
    }
}

/// Runs of several lanes, gone through together in the order of hashes. What lanes hold of the same keys comes at the
/// same time, into one pane for each lane.
#[derive(Debug)]
pub(crate) struct Merge<'a> {
    format: PaneFormat<'a>,
    lanes: Vec<(Vec<Cursor>, bool)>,
    /// Rows on their way into a pane that may have their keys.
    between: Pane,
}

/// How far a run has been read.
#[derive(Debug)]
struct Cursor {
    blocks: std::vec::IntoIter<Block>,
    /// The block being read, and its keys.
    image: RecordBatch,
    keys: KeyBatch,
    /// The first of its rows that has not been taken.
    at: usize,
}

impl<'a> Merge<'a> {
    /// Begins with the first rows of all runs.
    ///
    /// # Errors
    /// If the system refuses.
    pub(crate) fn new(format: PaneFormat<'a>, lanes: Vec<Lane>) -> Result<Self, RunError> {
        let mut all = Vec::with_capacity(lanes.len());
        for Lane { runs, is_disjoint } in lanes {
            let mut cursors = Vec::with_capacity(runs.len());
            for run in runs {
                cursors.extend(Cursor::new(&run, format)?);
            }
            all.push((cursors, is_disjoint));
        }
        Ok(Self { lanes: all, between: format.pane(), format })
    }

    /// Puts the next rows into `panes`, one for each lane, which are empty; at least about `rows_min` of them, unless
    /// that takes more than `bytes_max` or there are no more. False if there were none.
    ///
    /// # Errors
    /// If the system refuses, a file is damaged, or the state of a few keys alone takes more than `bytes_max`.
    pub(crate) fn next(
        &mut self,
        panes: &mut [Pane],
        (rows_min, bytes_max): (usize, usize),
        scratch: &mut Scratch,
    ) -> Result<bool, RunError> {
        let mut any = false;
        while let Some(bound) = self.bound() {
            for (lane, pane) in self.lanes.iter_mut().zip(&mut *panes) {
                take_up_to(self.format, (lane, bound), pane, (&mut self.between, scratch))?;
            }
            any = true;
            let bytes = panes.iter().map(Pane::reserved).sum::<usize>();
            let rows = panes.iter().map(Pane::len).max().unwrap_or(0);
            if rows >= rows_min || bytes >= bytes_max {
                break;
            }
        }
        Ok(any)
    }

    /// The largest half of a hash up to which all rows are in memory: the least of those at the ends of the blocks.
    fn bound(&self) -> Option<u32> {
        self.lanes.iter().flat_map(|(cursors, _)| cursors).map(Cursor::last).min()
    }
}

/// Moves the rows of a lane up to `bound` into a pane, of whose keys they have none.
fn take_up_to(
    format: PaneFormat<'_>,
    ((cursors, is_disjoint), bound): (&mut (Vec<Cursor>, bool), u32),
    pane: &mut Pane,
    (between, scratch): (&mut Pane, &mut Scratch),
) -> Result<(), RunError> {
    let ready = |cursor: &Cursor| cursor.end_of(bound) - cursor.at;
    // Of one run, no key can be there already: best of the one with the most rows.
    let first = (0..cursors.len()).max_by_key(|i| ready(&cursors[*i]));
    let Some(first) = first else { return Ok(()) };
    cursors.swap(0, first);
    for (i, cursor) in cursors.iter_mut().enumerate() {
        let rows = cursor.at..cursor.end_of(bound);
        cursor.at = rows.end;
        let PaneFormat { plan, layout, .. } = format;
        let are_new = i == 0 || *is_disjoint;
        pane.take_in(
            plan,
            layout,
            (&cursor.image, &cursor.keys, rows),
            (between, are_new),
            scratch,
        )
        .map_err(|why| damaged(&why))?;
        cursor.refill(format)?;
    }
    cursors.retain(|cursor| cursor.at < cursor.image.num_rows());
    Ok(())
}

impl Cursor {
    /// None if the run has no rows.
    fn new(run: &Run, format: PaneFormat<'_>) -> Result<Option<Self>, RunError> {
        let mut blocks = run.blocks().to_vec().into_iter();
        let Some(first) = blocks.next() else { return Ok(None) };
        let (image, keys) = (first.read()?, KeyBatch::default());
        let mut cursor = Self { blocks, image, keys, at: 0 };
        cursor.hash(format)?;
        Ok(Some(cursor))
    }

    /// Goes on to the next block, if this one has been taken and there is one.
    fn refill(&mut self, format: PaneFormat<'_>) -> Result<(), RunError> {
        if self.at < self.image.num_rows() {
            return Ok(());
        }
        let Some(next) = self.blocks.next() else { return Ok(()) };
        // Of the block before, nothing stays in memory beside this one.
        self.keys = KeyBatch::default();
        self.image = RecordBatch::new_empty(self.image.schema());
        self.image = next.read()?;
        self.at = 0;
        self.hash(format)
    }

    fn hash(&mut self, format: PaneFormat<'_>) -> Result<(), RunError> {
        let PaneFormat { plan, layout, .. } = format;
        keys_of(layout, &self.image, plan.isa, &mut self.keys).map_err(|why| damaged(&why))
    }

    /// The half of the hash of its last row in memory.
    fn last(&self) -> u32 {
        self.keys.hashes.last().map_or(u32::MAX, |hash| half_of(*hash))
    }

    /// The first row in memory with a half beyond `bound`.
    fn end_of(&self, bound: u32) -> usize {
        let left = &self.keys.hashes[self.at..];
        self.at + left.partition_point(|hash| half_of(*hash) <= bound)
    }
}

fn damaged(why: &Damaged) -> RunError {
    RunError::Defect(format!("spilled state came back changed: {why}"))
}
