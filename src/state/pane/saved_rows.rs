//! Rows of a pane outside of it: their keys, their words, and what the side stores keep for them.

use arrow::array::LargeBinaryArray;

use super::{LOOKUP_ROWS, Pane, Scratch};
use crate::aggregate::plan::Plan;
use crate::aggregate::{Damaged, Unsaved};
use crate::key::batch::KeyBatch;

/// All rows of a pane.
#[derive(Debug, Default)]
pub(crate) struct SavedRows {
    /// The keys.
    pub(crate) keys: KeyBatch,
    /// The words of all accumulators, row after row.
    pub(crate) words: Vec<u64>,
    /// What each accumulator saved beside them.
    pub(crate) sides: Vec<Option<LargeBinaryArray>>,
}

impl Pane {
    /// Saves all rows.
    pub(crate) fn save_rows(
        &mut self,
        plan: &Plan,
        scratch: &mut Scratch,
    ) -> Result<SavedRows, Unsaved> {
        let ids = 0..u32::try_from(self.len()).expect("row ids are 32 bits");
        let width = self.table.width();
        let mut saved = SavedRows::default();
        self.table.export_keys(ids.clone(), &mut saved.keys);
        scratch.ptrs.clear();
        scratch.ptrs.extend(ids.map(|id| self.table.rows_mut().ptr(id)));
        let rows = self.table.rows_mut().rows(&scratch.ptrs);
        for k in 0..rows.len() {
            saved.words.extend_from_slice(rows.state(k, width, plan.words));
        }
        for (placed, side) in plan.accumulators.iter().zip(&self.sides) {
            saved.sides.push(placed.accumulator.save(&rows, width + placed.offset, side)?);
        }
        Ok(saved)
    }

    /// Takes rows back, whose keys this pane does not hold.
    pub(crate) fn restore_rows(
        &mut self,
        plan: &Plan,
        saved: &SavedRows,
        scratch: &mut Scratch,
    ) -> Result<(), Damaged> {
        let all: Vec<u32> = (0..).take(saved.keys.hashes.len()).collect();
        let mut ptrs = Vec::with_capacity(all.len());
        for rows in all.chunks(LOOKUP_ROWS) {
            self.table.lookup(plan.isa, &saved.keys, rows, &mut scratch.ptrs);
            ptrs.extend_from_slice(&scratch.ptrs);
        }
        let width = self.table.width();
        let mut rows = self.table.rows_mut().rows(&ptrs);
        rows.for_each(width, plan.words, |k, state| {
            state.copy_from_slice(&saved.words[k * plan.words..][..plan.words]);
        });
        for (i, placed) in plan.accumulators.iter().enumerate() {
            let (side, bytes) = (&mut self.sides[i], saved.sides[i].as_ref());
            placed.accumulator.restore(&mut rows, width + placed.offset, side, bytes)?;
        }
        Ok(())
    }
}
