//! A pane: the keys of one shard (or of one producer's partials) in one window, with their aggregates.
//!
//! Both phases of two-phase aggregation are panes: a producer's pane holds partials of hot keys, the
//! owner's pane holds the whole; `merge` is how one flows into the other.

use std::ops::Range;

use arrow::array::ArrayRef;

use super::rows::RowPtr;
use super::table::{LOOKUP_ROWS, Table};
use crate::aggregate::plan::Plan;
use crate::aggregate::{Misfit, Side};
use crate::column::Column;
use crate::error::{Overflow, RunError};
use crate::kernel::select::MaskRows;
use crate::key::batch::KeyBatch;
use crate::key::encode::KeyEncoder;

mod corrections;
pub(crate) mod sessions;

/// Keys and aggregates of one window.
#[derive(Debug)]
pub(crate) struct Pane {
    table: Table,
    sides: Vec<Side>,
}

/// Rows of a batch that all have one key; there is at least one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OneKeyRows<'a> {
    /// Their numbers, ascending.
    Listed(&'a [u32]),
    /// Their bits.
    Masked(MaskedRows<'a>),
}

/// Rows of a batch as bits, 64 rows a word, with what is known of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MaskedRows<'a> {
    pub(crate) mask: &'a [u64],
    /// The first row.
    pub(crate) first: u32,
    /// How many there are.
    pub(crate) count: usize,
}

impl OneKeyRows<'_> {
    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        match self {
            Self::Listed(rows) => rows.len(),
            Self::Masked(rows) => rows.count,
        }
    }

    fn first(&self) -> u32 {
        match self {
            Self::Listed(rows) => rows[0],
            Self::Masked(rows) => rows.first,
        }
    }
}

/// Memory a pane needs while it works, kept by whoever works on panes.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    ptrs: Vec<RowPtr>,
    from: Vec<RowPtr>,
    selection: Vec<u32>,
    keys: KeyBatch,
}

impl Pane {
    /// An empty pane.
    pub(crate) fn new(keys: &KeyEncoder, plan: &Plan) -> Self {
        let table = Table::new(keys.width(), &plan.template());
        Self { table, sides: new_sides(plan) }
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of keys and aggregates.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.sides.iter().map(Side::bytes).sum::<usize>()
    }

    /// Whether its large memory lies on huge pages.
    pub(crate) fn huge_pages(&self) -> bool {
        self.table.huge_pages()
    }

    /// Forgets everything and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.table.clear();
        self.sides.iter_mut().for_each(Side::clear);
    }

    /// Aggregates the rows `selection` of a batch.
    pub(crate) fn update(
        &mut self,
        plan: &Plan,
        keys: &KeyBatch,
        columns: &[Column],
        selection: &[u32],
        scratch: &mut Scratch,
    ) {
        for rows in selection.chunks(LOOKUP_ROWS) {
            self.table.lookup(plan.isa, keys, rows, &mut scratch.ptrs);
            self.update_rows(plan, &scratch.ptrs, columns, rows);
        }
    }

    /// Aggregates `rows` of a batch, which all have the same key, into that key's row: each accumulator
    /// reduces them in registers and touches the row once.
    pub(crate) fn update_one_key(
        &mut self,
        plan: &Plan,
        keys: &KeyBatch,
        columns: &[Column],
        rows: OneKeyRows<'_>,
        scratch: &mut Scratch,
    ) {
        self.table.lookup(plan.isa, keys, &[rows.first()], &mut scratch.ptrs);
        let width = self.table.width();
        let mut states = self.table.rows_mut().rows(&scratch.ptrs);
        // Rows are listed when the first accumulator asks for it.
        let listed = &mut scratch.selection;
        listed.clear();
        for (placed, side) in plan.accumulators.iter().zip(&mut self.sides) {
            let column = placed.column.map(|column| &columns[column]);
            let state = states.state_mut(0, width + placed.offset, placed.accumulator.words());
            let selection = match rows {
                OneKeyRows::Listed(rows) => rows,
                OneKeyRows::Masked(rows) => {
                    if placed.accumulator.update_masked(plan.isa, state, column, &rows) {
                        continue;
                    }
                    if listed.is_empty() {
                        plan.isa.run(MaskRows { mask: rows.mask, rows: &mut *listed });
                    }
                    &*listed
                }
            };
            placed.accumulator.update_dense(plan.isa, state, side, column, selection);
        }
    }

    fn update_rows(&mut self, plan: &Plan, ptrs: &[RowPtr], columns: &[Column], rows: &[u32]) {
        let width = self.table.width();
        let mut states = self.table.rows_mut().rows(ptrs);
        for (placed, side) in plan.accumulators.iter().zip(&mut self.sides) {
            let column = placed.column.map(|column| &columns[column]);
            placed.accumulator.update(&mut states, width + placed.offset, side, column, rows);
        }
    }

    /// Merges all of `from`, which holds partials of the same job and window.
    pub(crate) fn merge(&mut self, plan: &Plan, from: &mut Self, scratch: &mut Scratch) {
        let len = u32::try_from(from.len()).expect("row ids are 32 bits");
        let step = u32::try_from(LOOKUP_ROWS).expect("a small constant");
        for start in (0..len).step_by(LOOKUP_ROWS) {
            let ids = start..(start + step).min(len);
            from.table.export_keys(ids.clone(), &mut scratch.keys);
            scratch.selection.clear();
            scratch.selection.extend(0..ids.end - ids.start);
            self.table.lookup(plan.isa, &scratch.keys, &scratch.selection, &mut scratch.ptrs);
            scratch.from.clear();
            scratch.from.extend(ids.map(|id| from.table.rows_mut().ptr(id)));
            self.merge_looked_up(plan, from, scratch);
        }
    }

    /// Merges the rows of `from` at `scratch.from` into the rows at `scratch.ptrs`.
    fn merge_looked_up(&mut self, plan: &Plan, from: &mut Self, scratch: &Scratch) {
        let width = self.table.width();
        let mut into = self.table.rows_mut().rows(&scratch.ptrs);
        let partials = from.table.rows_mut().rows(&scratch.from);
        for (i, placed) in plan.accumulators.iter().enumerate() {
            let (into_side, from_side) = (&mut self.sides[i], &from.sides[i]);
            let offset = width + placed.offset;
            placed.accumulator.merge(&mut into, into_side, &partials, from_side, offset);
        }
    }

    /// The key columns and then the aggregates of the keys `ids`, in the order of the job's output.
    pub(crate) fn emit(
        &mut self,
        plan: &Plan,
        keys: &KeyEncoder,
        ids: Range<u32>,
        window: Option<&dyn Fn() -> String>,
        scratch: &mut Scratch,
    ) -> Result<Vec<ArrayRef>, RunError> {
        let mut columns = keys.decode(&self.table.keys(ids.clone()));
        scratch.ptrs.clear();
        scratch.ptrs.extend(ids.clone().map(|id| self.table.rows_mut().ptr(id)));
        if let Err(misfit) = self.emit_columns(plan, scratch, &mut columns) {
            let key = keys.text(&self.table.keys(ids), misfit.1.row);
            return Err(overflow(plan, key, window, misfit));
        }
        Ok(columns)
    }

    /// Appends the aggregates of the rows at `scratch.ptrs` to `columns`; `key` tells their keys.
    fn emit_rows(
        &mut self,
        plan: &Plan,
        key: &dyn Fn(usize) -> String,
        window: Option<&dyn Fn() -> String>,
        scratch: &Scratch,
        columns: &mut Vec<ArrayRef>,
    ) -> Result<(), RunError> {
        self.emit_columns(plan, scratch, columns)
            .map_err(|misfit| overflow(plan, key(misfit.1.row), window, misfit))
    }

    /// Appends the aggregates of the rows at `scratch.ptrs`; or says which output does not fit, and how.
    fn emit_columns(
        &mut self,
        plan: &Plan,
        scratch: &Scratch,
        columns: &mut Vec<ArrayRef>,
    ) -> Result<(), (usize, Misfit)> {
        let width = self.table.width();
        for (i, output) in plan.outputs.iter().enumerate() {
            let placed = &plan.accumulators[output.placed];
            let side = &self.sides[output.placed];
            let rows = self.table.rows_mut().rows(&scratch.ptrs);
            let column = placed.accumulator.emit(output.part, &rows, width + placed.offset, side);
            columns.push(column.map_err(|misfit| (i, misfit))?);
        }
        Ok(())
    }
}

fn overflow(
    plan: &Plan,
    key: String,
    window: Option<&dyn Fn() -> String>,
    (output, misfit): (usize, Misfit),
) -> RunError {
    RunError::Overflow(Box::new(Overflow {
        aggregate: plan.outputs[output].text.clone(),
        key,
        window: window.map(|text| text()),
        value: misfit.value,
        data_type: misfit.data_type,
        advice: misfit.advice,
    }))
}

fn new_sides(plan: &Plan) -> Vec<Side> {
    plan.accumulators.iter().map(|placed| placed.accumulator.new_side()).collect()
}
