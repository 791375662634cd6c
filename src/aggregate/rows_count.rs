//! Counts that no other accumulator keeps: of rows, and of the values of a column of any type.

use arrow::array::{ArrayRef, LargeBinaryArray};

use crate::aggregate::emit::States;
use crate::aggregate::saved::{check_count, restore_words};
use crate::aggregate::{Accumulator, Damaged, Misfit, Part, Scalar, Side, Unsaved};
use crate::column::Column;
use crate::kernel::Isa;
use crate::kernel::select::MaskedRows;
use crate::state::rows::Rows;

/// One word: the number of rows, or of rows whose value is not null.
#[derive(Debug)]
pub(super) enum Counter {
    /// Of rows; has no column.
    Rows,
    /// Of values.
    Values,
}

impl Accumulator for Counter {
    fn words(&self) -> usize {
        1
    }

    fn init(&self, state: &mut [u64]) {
        state[0] = 0;
    }

    fn update(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        _: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        assert_eq!(rows.len(), selection.len(), "one row for each selected row of the batch");
        match column.and_then(|column| column.nulls.as_ref()) {
            None => rows.for_each(offset, 1, |_, state| state[0] += 1),
            Some(nulls) => rows.for_each(offset, 1, |k, state| {
                state[0] += u64::from(nulls.is_valid(selection[k] as usize));
            }),
        }
    }

    fn update_dense(
        &self,
        _: Isa,
        state: &mut [u64],
        _: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        let count = match column.and_then(|column| column.nulls.as_ref()) {
            None => selection.len(),
            Some(nulls) => selection.iter().filter(|row| nulls.is_valid(**row as usize)).count(),
        };
        state[0] += count as u64;
    }

    fn update_masked(
        &self,
        _: Isa,
        state: &mut [u64],
        column: Option<&Column>,
        rows: &MaskedRows<'_>,
    ) -> bool {
        let count = match column.and_then(|column| column.nulls.as_ref()) {
            None => rows.count,
            Some(nulls) => {
                let valid = nulls.inner().bit_chunks();
                let chosen = rows.mask.iter().zip(valid.iter_padded());
                chosen.map(|(mask, valid)| (mask & valid).count_ones() as usize).sum()
            }
        };
        state[0] += count as u64;
        true
    }

    fn merge(&self, into: &mut Rows<'_>, _: &mut Side, from: &Rows<'_>, _: &Side, offset: usize) {
        assert_eq!(into.len(), from.len(), "merged row by row");
        into.for_each(offset, 1, |k, state| state[0] += from.state(k, offset, 1)[0]);
    }

    fn emit(
        &self,
        part: Part,
        rows: &Rows<'_>,
        offset: usize,
        _: &Side,
    ) -> Result<ArrayRef, Misfit> {
        assert!(matches!(part, Part::Rows | Part::Values), "{part:?} of {self:?}");
        Ok(States { rows, offset, words: 1 }.counts(0))
    }

    fn scalar(&self, _: Part, state: &[u64], _: &Side) -> Option<Scalar> {
        Some(Scalar::Integer(state[0].into()))
    }

    fn save(&self, _: &Rows<'_>, _: usize, _: &Side) -> Result<Option<LargeBinaryArray>, Unsaved> {
        Ok(None)
    }

    fn restore(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        _: &mut Side,
        saved: Option<&LargeBinaryArray>,
    ) -> Result<(), Damaged> {
        restore_words(rows, (offset, 1), saved, |state| check_count(state[0]))
    }
}
