//! Bitwise and, or and xor of one column of integers, in one pass.
//!
//! Words: the number of values that are not null, then and, or, xor of the values as 64-bit words; signed
//! integers are sign-extended, so that the low bits are right for every width.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, LargeBinaryArray, UInt64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;

use crate::aggregate::emit::States;
use crate::aggregate::saved::{check_count, restore_words};
use crate::aggregate::{Accumulator, Damaged, Misfit, Part, Side, Unsaved};
use crate::column::{Column, Lane};
use crate::kernel::Isa;
use crate::state::rows::Rows;

const WORDS: usize = 4;

/// The accumulator of a column of this type of integers.
#[derive(Debug)]
pub(super) struct Bits {
    pub(super) input: DataType,
}

/// Calls `$body` with a function from a row to its word.
macro_rules! with_words {
    ($column:expr, $word:ident => $body:expr) => {
        match &$column.values {
            Lane::I64(values) => {
                let $word = |row: usize| values[row].cast_unsigned();
                $body
            }
            Lane::U64(values) => {
                let $word = |row: usize| values[row];
                $body
            }
            other => unreachable!("the plan asks for integers, not {other:?}"),
        }
    };
}

#[inline(always)]
fn add(state: &mut [u64], word: u64) {
    state[0] += 1;
    state[1] &= word;
    state[2] |= word;
    state[3] ^= word;
}

impl Accumulator for Bits {
    fn words(&self) -> usize {
        WORDS
    }

    fn init(&self, state: &mut [u64]) {
        state.copy_from_slice(&[0, u64::MAX, 0, 0]);
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
        let column = column.expect("bits have a column");
        with_words!(column, word => rows.for_each(offset, WORDS, |k, state| {
            let row = selection[k] as usize;
            if column.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                add(state, word(row));
            }
        }));
    }

    fn update_dense(
        &self,
        _: Isa,
        state: &mut [u64],
        _: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        let column = column.expect("bits have a column");
        with_words!(column, word => for row in selection {
            let row = *row as usize;
            if column.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row)) {
                add(state, word(row));
            }
        });
    }

    fn merge(&self, into: &mut Rows<'_>, _: &mut Side, from: &Rows<'_>, _: &Side, offset: usize) {
        assert_eq!(into.len(), from.len(), "merged row by row");
        into.for_each(offset, WORDS, |k, into| {
            let from = from.state(k, offset, WORDS);
            into[0] += from[0];
            into[1] &= from[1];
            into[2] |= from[2];
            into[3] ^= from[3];
        });
    }

    fn emit(
        &self,
        part: Part,
        rows: &Rows<'_>,
        offset: usize,
        _: &Side,
    ) -> Result<ArrayRef, Misfit> {
        let at = match part {
            Part::BitAnd => 1,
            Part::BitOr => 2,
            Part::BitXor => 3,
            part => unreachable!("{part:?} of bits"),
        };
        let states = States { rows, offset, words: WORDS };
        let nulls = states.nulls(|state| state[0] > 0);
        let words: Vec<u64> =
            states.iter().map(|state| if state[0] > 0 { state[at] } else { 0 }).collect();
        let wide: ArrayRef = if self.input.is_signed_integer() {
            let words: Vec<i64> = words.into_iter().map(u64::cast_signed).collect();
            Arc::new(Int64Array::new(words.into(), nulls))
        } else {
            Arc::new(UInt64Array::new(words.into(), nulls))
        };
        Ok(cast(&wide, &self.input).expect("bits of narrow values are narrow"))
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
        let width = self.input.primitive_width().expect("integers have a width");
        let unused = u64::BITS - 8 * u32::try_from(width).expect("at most eight bytes");
        let is_narrow = |word: u64| {
            let high = word << unused;
            let again = if self.input.is_signed_integer() {
                (high.cast_signed() >> unused).cast_unsigned()
            } else {
                high >> unused
            };
            again == word
        };
        restore_words(rows, (offset, WORDS), saved, |state| {
            check_count(state[0])?;
            let is_empty = *state == [0, u64::MAX, 0, 0];
            if is_empty || (state[0] > 0 && state[1..].iter().all(|word| is_narrow(*word))) {
                return Ok(());
            }
            Err(Damaged::new(format!("bits of {}", self.input), format!("{:x?}", &state[1..])))
        })
    }
}
