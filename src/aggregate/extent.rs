//! Least and largest event time of a key's rows: what sessions are put together by. Never emitted as such.

use arrow::array::{ArrayRef, LargeBinaryArray};

use crate::aggregate::input::Input;
use crate::aggregate::plan::{Placed, Plan};
use crate::aggregate::saved::restore_words;
use crate::aggregate::{Accumulator, Damaged, Misfit, Part, Side, Unsaved};
use crate::column::{Column, Lane};
use crate::kernel::Isa;
use crate::state::rows::Rows;

/// Two words: the least time, `i64::MAX` before the first row, and the largest, `i64::MIN` before.
#[derive(Debug)]
struct Extent;

impl Plan {
    /// Keeps the extent of the schema's column `column`, which holds event times, besides all else; answers
    /// its first word among those of the accumulators.
    pub(crate) fn keep_extent(&mut self, column: usize) -> usize {
        let column = self.input(Input::Column(column));
        let offset = self.words;
        self.words += Extent.words();
        self.accumulators.push(Placed {
            accumulator: Box::new(Extent),
            offset,
            column: Some(column),
            filter: None,
            spreads: false,
        });
        offset
    }
}

fn widen(state: &mut [u64], least: i64, largest: i64) {
    state[0] = state[0].cast_signed().min(least).cast_unsigned();
    state[1] = state[1].cast_signed().max(largest).cast_unsigned();
}

/// The time of each row; all rows that get here have one.
fn time(column: Option<&Column>) -> impl Fn(u32) -> i64 {
    let values = column.map(|column| &column.values);
    move |row| match values {
        Some(Lane::I64(values)) => values[row as usize],
        Some(Lane::U64(values)) => values[row as usize].cast_signed(),
        _ => unreachable!("event times are whole numbers"),
    }
}

impl Accumulator for Extent {
    fn words(&self) -> usize {
        2
    }

    fn init(&self, state: &mut [u64]) {
        state[0] = i64::MAX.cast_unsigned();
        state[1] = i64::MIN.cast_unsigned();
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
        let time = time(column);
        rows.for_each(offset, 2, |k, state| {
            let time = time(selection[k]);
            widen(state, time, time);
        });
    }

    fn update_dense(
        &self,
        _: Isa,
        state: &mut [u64],
        _: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        let time = time(column);
        for row in selection {
            widen(state, time(*row), time(*row));
        }
    }

    fn merge(&self, into: &mut Rows<'_>, _: &mut Side, from: &Rows<'_>, _: &Side, offset: usize) {
        assert_eq!(into.len(), from.len(), "merged row by row");
        into.for_each(offset, 2, |k, state| {
            let from = from.state(k, offset, 2);
            widen(state, from[0].cast_signed(), from[1].cast_signed());
        });
    }

    fn emit(&self, _: Part, _: &Rows<'_>, _: usize, _: &Side) -> Result<ArrayRef, Misfit> {
        unreachable!("no output asks for it")
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
        restore_words(rows, (offset, 2), saved, |state| {
            let (least, largest) = (state[0].cast_signed(), state[1].cast_signed());
            if least <= largest || (least, largest) == (i64::MAX, i64::MIN) {
                return Ok(());
            }
            Err(Damaged::new("a least and a largest time", format!("{least} and {largest}")))
        })
    }
}
