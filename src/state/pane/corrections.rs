//! Corrected results: rows that came late are merged into a window that was given already.

use std::ops::Range;

use arrow::array::ArrayRef;

use super::{LOOKUP_ROWS, Pane, Scratch};
use crate::aggregate::plan::Plan;
use crate::error::RunError;
use crate::key::encode::KeyEncoder;

impl Pane {
    /// Merges the late rows in `late` and counts one correction of each of their keys, in the word
    /// `revision` of the aggregates.
    pub(crate) fn correct(
        &mut self,
        plan: &Plan,
        late: &mut Self,
        revision: usize,
        scratch: &mut Scratch,
    ) {
        self.merge(plan, late, scratch);
        let len = u32::try_from(late.len()).expect("row ids are 32 bits");
        let step = u32::try_from(LOOKUP_ROWS).expect("a small constant");
        let at = self.table.width() + revision;
        for start in (0..len).step_by(LOOKUP_ROWS) {
            self.look_up_keys_of(plan, late, start..(start + step).min(len), scratch);
            let mut rows = self.table.rows_mut().rows(&scratch.ptrs);
            rows.for_each(at, 1, |_, state| state[0] += 1);
        }
    }

    /// What [`Pane::emit`] gives, for the keys `ids` of another pane, which are all in this one too.
    pub(crate) fn emit_keys_of(
        &mut self,
        plan: &Plan,
        keys: &KeyEncoder,
        (other, ids): (&Self, Range<u32>),
        window: Option<&dyn Fn() -> String>,
        scratch: &mut Scratch,
    ) -> Result<Vec<ArrayRef>, RunError> {
        self.look_up_keys_of(plan, other, ids.clone(), scratch);
        let mut columns = keys.decode(&other.table.keys(ids.clone()));
        let text = |row| keys.text(&other.table.keys(ids.clone()), row);
        self.emit_rows(plan, &text, window, scratch, &mut columns)?;
        Ok(columns)
    }

    /// The rows here of the keys `ids` of another pane, into `scratch.ptrs`.
    fn look_up_keys_of(
        &mut self,
        plan: &Plan,
        other: &Self,
        ids: Range<u32>,
        scratch: &mut Scratch,
    ) {
        other.table.export_keys(ids.clone(), &mut scratch.keys);
        scratch.selection.clear();
        scratch.selection.extend(0..ids.end - ids.start);
        scratch.ptrs.clear();
        self.table.lookup(plan.isa, &scratch.keys, &scratch.selection, &mut scratch.ptrs);
    }
}
