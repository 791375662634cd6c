//! Corrected results: rows that came late are merged into a window that was given already.

use std::ops::Range;

use arrow::array::ArrayRef;

use super::{LOOKUP_ROWS, LOOKUP_STEP, Pane, Scratch};
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
        let at = self.table.width() + revision;
        self.look_up_keys_of(plan, late, 0..len, scratch);
        self.table.rows_mut().rows(&scratch.ptrs).for_each(at, 1, |_, state| state[0] += 1);
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
        self.emit_columns(plan, scratch, &mut columns).map_err(|failure| {
            failure.explain(plan, |row| keys.text(&other.table.keys(ids.clone()), row), window)
        })?;
        Ok(columns)
    }

    /// The rows here of the keys `ids` of another pane, however many, into `scratch.ptrs`.
    fn look_up_keys_of(
        &mut self,
        plan: &Plan,
        other: &Self,
        ids: Range<u32>,
        scratch: &mut Scratch,
    ) {
        scratch.ptrs.clear();
        for start in ids.clone().step_by(LOOKUP_ROWS) {
            let piece = start..ids.end.min(start + LOOKUP_STEP);
            other.table.export_keys(piece.clone(), &mut scratch.keys);
            scratch.selection.clear();
            scratch.selection.extend(0..piece.end - piece.start);
            self.table.lookup(plan.isa, &scratch.keys, &scratch.selection, &mut scratch.from);
            scratch.ptrs.append(&mut scratch.from);
        }
    }
}
