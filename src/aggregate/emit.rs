//! What `emit` of most accumulators needs: the words of each row in turn, and which rows have a value.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::buffer::NullBuffer;

use crate::aggregate::Misfit;
use crate::state::rows::Rows;

/// The words of one accumulator in the rows to be emitted.
#[derive(Debug, Clone, Copy)]
pub(super) struct States<'a> {
    pub(super) rows: &'a Rows<'a>,
    pub(super) offset: usize,
    pub(super) words: usize,
}

impl<'a> States<'a> {
    /// The words of each row.
    pub(super) fn iter(self) -> impl ExactSizeIterator<Item = &'a [u64]> {
        (0..self.rows.len()).map(move |k| self.rows.state(k, self.offset, self.words))
    }

    /// Which rows are valid; `None` if all are.
    pub(super) fn nulls(self, valid: impl Fn(&[u64]) -> bool) -> Option<NullBuffer> {
        Some(self.iter().map(valid).collect::<NullBuffer>()).filter(|nulls| nulls.null_count() > 0)
    }

    /// The counts kept in word `at`.
    pub(super) fn counts(self, at: usize) -> ArrayRef {
        let counts = self.iter().map(|state| state[at].cast_signed()).collect::<Vec<_>>();
        Arc::new(Int64Array::new(counts.into(), None))
    }

    /// One value for each row, `T::default()` for rows without any.
    pub(super) fn try_collect<T: Default>(
        self,
        nulls: Option<&NullBuffer>,
        value: impl Fn(&'a [u64]) -> Result<T, Misfit>,
    ) -> Result<Vec<T>, Misfit> {
        self.iter()
            .enumerate()
            .map(|(row, state)| {
                if nulls.is_some_and(|nulls| nulls.is_null(row)) {
                    return Ok(T::default());
                }
                value(state).map_err(|misfit| Misfit { row, ..misfit })
            })
            .collect()
    }
}
