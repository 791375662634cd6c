//! Panes as runs: how they are written.

use std::ops::RangeInclusive;
use std::sync::Arc;

use super::{Block, SpillFiles};
use crate::aggregate::plan::Plan;
use crate::error::RunError;
use crate::key::encode::KeyEncoder;
use crate::state::pane::image::ImageLayout;
use crate::state::pane::{Pane, Scratch};

/// Rows of a block at most.
const BLOCK_ROWS_MAX: usize = if cfg!(test) { 16 } else { 16_384 };

/// What panes of one job are made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PaneFormat<'a> {
    pub(crate) keys: &'a KeyEncoder,
    pub(crate) plan: &'a Plan,
    pub(crate) layout: &'a ImageLayout,
}

impl PaneFormat<'_> {
    /// An empty pane.
    pub(crate) fn pane(&self) -> Pane {
        Pane::new(self.keys, self.plan)
    }
}

/// Rows on disk, of one pane or of some that were merged: each key once, in the order of the hashes. A clone is of the
/// same rows.
#[derive(Debug, Clone, Default)]
pub(crate) struct Run {
    blocks: Arc<[Block]>,
}

impl Run {
    /// Its rows in blocks, in the order of hashes. No two blocks have a hash's high half in common.
    pub(crate) fn blocks(&self) -> &Arc<[Block]> {
        &self.blocks
    }

    /// Number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.blocks.iter().map(|block| block.rows).sum()
    }

    /// Bytes of the largest block, which is in memory while the run is merged.
    pub(crate) fn block_bytes(&self) -> usize {
        self.blocks.iter().map(Block::bytes).max().unwrap_or(0)
    }
}

/// Writes one run.
#[derive(Debug)]
pub(crate) struct RunWriter<'a> {
    files: &'a mut SpillFiles,
    format: PaneFormat<'a>,
    /// Bytes that a block should have at most.
    block_bytes: usize,
    /// Rows that are put in order at once at most, so that their order takes little memory beside them.
    ordered_rows: usize,
    blocks: Vec<Block>,
}

impl<'a> RunWriter<'a> {
    /// A run in `files` that takes about `block_bytes` of memory while it is written and, later, merged.
    pub(crate) fn new(
        files: &'a mut SpillFiles,
        format: PaneFormat<'a>,
        block_bytes: usize,
    ) -> Self {
        let ordered_rows = (4 * block_bytes / size_of::<u64>()).max(BLOCK_ROWS_MAX);
        Self { files, format, block_bytes, ordered_rows, blocks: Vec::new() }
    }

    /// Appends the rows of a pane, which stays as it is. Their hashes lie behind those of all rows that were appended
    /// before.
    ///
    /// # Errors
    /// If an aggregate's state cannot be saved, or the system refuses.
    pub(crate) fn append(
        &mut self,
        pane: &mut Pane,
        scratch: &mut Scratch,
    ) -> Result<(), RunError> {
        let Some(all) = pane.hash_halves(scratch) else { return Ok(()) };
        let parts = pane.len().div_ceil(self.ordered_rows);
        let bytes_each = (pane.bytes() / pane.len()).max(1);
        let block_rows = (self.block_bytes / bytes_each).clamp(1, BLOCK_ROWS_MAX);
        let mut order = Vec::new();
        for halves in parts_of(&all, parts) {
            pane.order_by_hash(&halves, scratch, &mut order);
            let mut rest = order.as_slice();
            while !rest.is_empty() {
                let (block, behind) = rest.split_at(block_end(rest, block_rows));
                rest = behind;
                let PaneFormat { plan, layout, .. } = self.format;
                let image = pane.image_of_listed(plan, layout, block, scratch);
                let image = image.map_err(|why| RunError::Limit(why.to_string()))?;
                self.blocks.push(self.files.write(&image)?);
            }
        }
        Ok(())
    }

    /// The run.
    pub(crate) fn finish(self) -> Run {
        self.files.stats.runs += 1;
        Run { blocks: self.blocks.into() }
    }
}

/// Where a block ends that has about `rows` of the rows listed: rows of one half stay together, so that whoever has
/// met the end of a block knows that no later one has rows of that half.
fn block_end(listed: &[u64], rows: usize) -> usize {
    let half = |entry: &u64| entry >> 32;
    let Some(last) = listed.get(rows - 1).map(half) else { return listed.len() };
    rows + listed[rows..].iter().take_while(|entry| half(entry) == last).count()
}

/// Cuts a range of halves of hashes into parts of about the same length.
fn parts_of(all: &RangeInclusive<u32>, parts: usize) -> Vec<RangeInclusive<u32>> {
    let (least, largest) = (u64::from(*all.start()), u64::from(*all.end()));
    let length = (largest - least + 1).div_ceil(parts as u64);
    let starts = (0..).map(|i| least + i * length).take_while(|start| *start <= largest);
    let half = |at: u64| u32::try_from(at).expect("within the range");
    starts.map(|start| half(start)..=half((start + length - 1).min(largest))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_the_range_once() {
        for (all, parts) in
            [(0..=u32::MAX, 7), (5..=5, 3), (10..=12, 2), (10..=12, 9), (0..=1 << 20, 64)]
        {
            let cut = parts_of(&all, parts);
            assert!(cut.len() <= parts, "{all:?} in {parts}");
            assert_eq!((cut[0].start(), cut.last().unwrap().end()), (all.start(), all.end()));
            for two in cut.windows(2) {
                assert_eq!(u64::from(*two[0].end()) + 1, u64::from(*two[1].start()));
            }
        }
    }

    #[test]
    fn blocks_keep_equal_halves_together() {
        let listed = [1, 2, 2, 2, 3].map(|half: u64| half << 32);
        assert_eq!([1, 2, 3, 4, 5, 9].map(|rows| block_end(&listed, rows)), [1, 4, 4, 4, 5, 5]);
    }
}
