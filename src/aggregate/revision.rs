//! How often the result of a key and window was corrected: the column `revision`.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array, LargeBinaryArray};
use arrow::datatypes::{DataType, Field};

use crate::aggregate::plan::{Output, Placed, Plan};
use crate::aggregate::saved::{check_count, restore_words};
use crate::aggregate::{Accumulator, Damaged, Misfit, Part, Scalar, Side, Unsaved};
use crate::column::Column;
use crate::kernel::Isa;
use crate::state::rows::Rows;

/// Name of the column.
pub(crate) const REVISION: &str = "revision";

/// One word: corrections given so far. Rows do not change it; the owner of the window counts it up.
#[derive(Debug)]
struct Revision;

impl Plan {
    /// Counts corrections of each key besides all else, as the last result column; answers the word among
    /// those of the accumulators.
    pub(crate) fn keep_revision(&mut self) -> usize {
        let offset = self.words;
        self.words += Revision.words();
        self.outputs.push(Output {
            field: Field::new(REVISION, DataType::Int32, false),
            placed: self.accumulators.len(),
            part: Part::Rows,
            text: REVISION.to_owned(),
        });
        self.accumulators.push(Placed {
            accumulator: Box::new(Revision),
            offset,
            column: None,
            filter: None,
            spreads: false,
        });
        offset
    }
}

impl Accumulator for Revision {
    fn words(&self) -> usize {
        1
    }

    fn init(&self, state: &mut [u64]) {
        state[0] = 0;
    }

    fn update(&self, _: &mut Rows<'_>, _: usize, _: &mut Side, _: Option<&Column>, _: &[u32]) {}

    fn update_dense(&self, _: Isa, _: &mut [u64], _: &mut Side, _: Option<&Column>, _: &[u32]) {}

    fn merge(&self, _: &mut Rows<'_>, _: &mut Side, _: &Rows<'_>, _: &Side, _: usize) {}

    fn emit(&self, _: Part, rows: &Rows<'_>, offset: usize, _: &Side) -> Result<ArrayRef, Misfit> {
        let counts = (0..rows.len()).map(|k| rows.state(k, offset, 1)[0]);
        let counts = counts.map(|count| i32::try_from(count).unwrap_or(i32::MAX));
        Ok(Arc::new(counts.collect::<Int32Array>()))
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
