//! A pane: the keys of one shard (or of one producer's partials) in one window, with their aggregates.
//!
//! Both phases of two-phase aggregation are panes: a producer's pane holds partials of hot keys, the
//! owner's pane holds the whole; `merge` is how one flows into the other.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::BooleanBuffer;

use super::readable::Readable;
use super::rows::RowPtr;
use super::spread::Spreading;
use super::table::{LOOKUP_ROWS, LOOKUP_STEP, Table};
use crate::aggregate::plan::{Output, Plan};
use crate::aggregate::{Misfit, Side};
use crate::column::{Column, Lane};
use crate::error::{Overflow, RunError};
use crate::kernel::select::{MaskRows, MaskedRows};
use crate::key::batch::KeyBatch;
use crate::key::encode::KeyEncoder;

mod corrections;
pub(crate) mod image;
mod split;
pub(crate) mod sessions;

/// What a key is taken to keep beside its row as long as none does.
const BESIDE_BYTES: usize = 64;

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
    passing: Passing,
    /// Where rows are handed on to, if they may be.
    pub(crate) spreading: Option<Spreading>,
}

/// How what one pane holds comes into another.
#[derive(Debug, Clone, Copy)]
enum Join {
    /// It stays where it was, too.
    Copy,
    /// It is taken.
    Take,
    /// It is taken, and kept beside what others have of the same keys.
    Bucket((usize, usize)),
}

/// The rows of a selection that pass a filter, and their rows of the table.
#[derive(Debug, Default)]
struct Passing {
    rows: Vec<u32>,
    ptrs: Vec<RowPtr>,
    mask: Vec<u64>,
    /// The rows of `mask`, once they were asked for.
    listed: Vec<u32>,
}

/// The mask that a filter is.
fn mask_of(filter: &Column) -> &BooleanBuffer {
    let Lane::Mask(mask) = &filter.values else { unreachable!("a filter is a mask") };
    mask
}

impl Passing {
    /// Selects the rows that pass, with their rows of the table.
    fn select(&mut self, filter: &Column, rows: &[u32], ptrs: &[RowPtr]) {
        let mask = mask_of(filter);
        self.rows.clear();
        self.ptrs.clear();
        for (row, ptr) in rows.iter().zip(ptrs) {
            if mask.value(*row as usize) {
                self.rows.push(*row);
                self.ptrs.push(*ptr);
            }
        }
    }

    /// Selects the rows of one key that pass.
    fn narrow(&mut self, filter: &Column, rows: OneKeyRows<'_>) {
        let passes = mask_of(filter);
        self.rows.clear();
        self.mask.clear();
        self.listed.clear();
        match rows {
            OneKeyRows::Listed(rows) => {
                self.rows.extend(rows.iter().filter(|row| passes.value(**row as usize)));
            }
            OneKeyRows::Masked(rows) => {
                let chunks = passes.bit_chunks();
                let both = rows.mask.iter().zip(chunks.iter_padded());
                self.mask.extend(both.map(|(mask, passes)| mask & passes));
            }
        }
    }

    /// The selected rows in the form of `rows`, and where they may be listed; none if none passes.
    fn one_key(&mut self, rows: OneKeyRows<'_>) -> Option<(OneKeyRows<'_>, &mut Vec<u32>)> {
        let rows = match rows {
            OneKeyRows::Listed(_) if self.rows.is_empty() => return None,
            OneKeyRows::Listed(_) => OneKeyRows::Listed(&self.rows),
            OneKeyRows::Masked(_) => OneKeyRows::Masked(MaskedRows::of(&self.mask)?),
        };
        Some((rows, &mut self.listed))
    }
}

impl Pane {
    /// An empty pane.
    pub(crate) fn new(keys: &KeyEncoder, plan: &Plan) -> Self {
        let table = Table::new(keys.width(), &plan.template());
        Self { table, sides: new_sides(plan) }
    }

    /// The same for readers on other threads too.
    pub(crate) fn new_readable(keys: &KeyEncoder, plan: &Plan) -> Self {
        let table = Table::new_readable(keys.width(), &plan.template());
        Self { table, sides: new_sides(plan) }
    }

    /// Where readers see it, if they may.
    pub(crate) fn readable(&self) -> Option<&Arc<Readable>> {
        self.table.readable()
    }

    /// Whether a reader may still see it, so that it cannot be cleared.
    pub(crate) fn is_shared(&mut self) -> bool {
        self.table.is_shared()
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.table.len()
    }

    /// Bytes of keys and aggregates.
    pub(crate) fn bytes(&self) -> usize {
        self.table.bytes() + self.sides.iter().map(Side::bytes).sum::<usize>()
    }

    /// Bytes of memory taken, in use or not: what a budget has to account for. What lies beside the rows is an
    /// estimate, in which vectors have a half more than they need.
    pub(crate) fn reserved(&self) -> usize {
        self.table.reserved() + self.beside().0
    }

    /// Bytes of memory beyond [`Pane::reserved`] that the pane takes at most while `rows` rows come, all of new keys.
    /// Beside the rows, an estimate: as much a key as before, and a vector that grows is there twice.
    pub(crate) fn growth(&self, rows: usize) -> usize {
        let (beside, growing) = self.beside();
        let each = beside.checked_div(self.len()).unwrap_or(0).max(BESIDE_BYTES);
        self.table.growth(rows) + if growing == 0 { 0 } else { each * rows + beside / 2 }
    }

    /// Bytes beside the rows, and how many accumulators keep something there.
    fn beside(&self) -> (usize, usize) {
        let sides = self.sides.iter().filter(|side| !matches!(side, Side::None));
        sides.fold((0, 0), |(bytes, count), side| (bytes + side.bytes() * 3 / 2, count + 1))
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
            self.table.rows_mut().begin(&scratch.ptrs);
            self.update_rows(plan, columns, rows, scratch);
            self.table.rows_mut().end();
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
        self.table.rows_mut().begin(&scratch.ptrs);
        self.update_row(plan, columns, rows, scratch);
        self.table.rows_mut().end();
    }

    /// Aggregates rows of one key into the row at `scratch.ptrs`.
    #[inline]
    fn update_row(
        &mut self,
        plan: &Plan,
        columns: &[Column],
        rows: OneKeyRows<'_>,
        scratch: &mut Scratch,
    ) {
        let width = self.table.width();
        let mut states = self.table.rows_mut().rows(&scratch.ptrs);
        let Scratch { selection: listed, passing, spreading, .. } = scratch;
        listed.clear();
        let mut filtered_by = None;
        for (i, (placed, side)) in plan.accumulators.iter().zip(&mut self.sides).enumerate() {
            // Rows are listed when the first accumulator asks for it.
            let (rows, listed) = match placed.filter {
                None => (rows, &mut *listed),
                Some(filter) => {
                    if filtered_by != placed.filter {
                        passing.narrow(&columns[filter], rows);
                        filtered_by = placed.filter;
                    }
                    let Some(passing) = passing.one_key(rows) else { continue };
                    passing
                }
            };
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
            if let Some(spreading) = spreading.as_mut().filter(|_| placed.spreads)
                && placed.accumulator.wants_spreading(state, side)
            {
                placed.accumulator.spread(column, selection, &mut spreading.parts);
                spreading.end_run(i);
                continue;
            }
            placed.accumulator.update_dense(plan.isa, state, side, column, selection);
        }
    }

    /// Aggregates rows that were handed on, of one key, for one accumulator. Whether they pass its filter
    /// was asked before.
    pub(crate) fn update_spread(
        &mut self,
        (plan, accumulator): (&Plan, usize),
        keys: &KeyBatch,
        columns: &[Column],
        rows: &[u32],
        scratch: &mut Scratch,
    ) {
        self.table.lookup(plan.isa, keys, &rows[..1], &mut scratch.ptrs);
        let width = self.table.width();
        let placed = &plan.accumulators[accumulator];
        let mut states = self.table.rows_mut().rows(&scratch.ptrs);
        let state = states.state_mut(0, width + placed.offset, placed.accumulator.words());
        let column = placed.column.map(|column| &columns[column]);
        let side = &mut self.sides[accumulator];
        placed.accumulator.update_dense(plan.isa, state, side, column, rows);
    }

    fn update_rows(
        &mut self,
        plan: &Plan,
        columns: &[Column],
        rows: &[u32],
        scratch: &mut Scratch,
    ) {
        let width = self.table.width();
        let mut filtered_by = None;
        // Accumulators with one filter stand side by side, so each filter selects once.
        for (placed, side) in plan.accumulators.iter().zip(&mut self.sides) {
            let (mut rows, mut ptrs) = (rows, scratch.ptrs.as_slice());
            if let Some(filter) = placed.filter {
                if filtered_by != placed.filter {
                    scratch.passing.select(&columns[filter], rows, ptrs);
                    filtered_by = placed.filter;
                }
                (rows, ptrs) = (&scratch.passing.rows, &scratch.passing.ptrs);
            }
            let mut states = self.table.rows_mut().rows(ptrs);
            let column = placed.column.map(|column| &columns[column]);
            placed.accumulator.update(&mut states, width + placed.offset, side, column, rows);
        }
    }

    /// Merges all of `from`, which holds partials of the same job and window and stays as it is.
    pub(crate) fn merge(&mut self, plan: &Plan, from: &mut Self, scratch: &mut Scratch) {
        self.merge_from(plan, from, scratch, Join::Copy);
    }

    /// The same where `from` is not used again: what it holds beside its rows is taken, not copied.
    pub(crate) fn absorb(&mut self, plan: &Plan, from: &mut Self, scratch: &mut Scratch) {
        self.merge_from(plan, from, scratch, Join::Take);
    }

    /// The same of what was handed on to the `bucket`-th of so many shards.
    pub(crate) fn adopt(
        &mut self,
        plan: &Plan,
        from: &mut Self,
        bucket: (usize, usize),
        scratch: &mut Scratch,
    ) {
        self.merge_from(plan, from, scratch, Join::Bucket(bucket));
    }

    fn merge_from(&mut self, plan: &Plan, from: &mut Self, scratch: &mut Scratch, join: Join) {
        let len = u32::try_from(from.len()).expect("row ids are 32 bits");
        let step = LOOKUP_STEP;
        for start in (0..len).step_by(LOOKUP_ROWS) {
            let ids = start..(start + step).min(len);
            from.table.export_keys(ids.clone(), &mut scratch.keys);
            scratch.selection.clear();
            scratch.selection.extend(0..ids.end - ids.start);
            self.table.lookup(plan.isa, &scratch.keys, &scratch.selection, &mut scratch.ptrs);
            scratch.from.clear();
            scratch.from.extend(ids.clone().map(|id| from.table.rows_mut().ptr(id)));
            self.table.rows_mut().begin(&scratch.ptrs);
            self.merge_looked_up(plan, from, scratch, join);
            if let (Join::Take, Some(readable)) = (join, from.readable()) {
                // A reader adds a partial to its owner's row until this, and sees from the row's stamp if it
                // should not have.
                readable.set_merged(ids.end);
            }
            self.table.rows_mut().end();
        }
        if let (Join::Take, Some(readable)) = (join, from.readable()) {
            readable.set_merged(u32::MAX);
        }
    }

    /// Merges the rows of `from` at `scratch.from` into the rows at `scratch.ptrs`.
    fn merge_looked_up(&mut self, plan: &Plan, from: &mut Self, scratch: &Scratch, join: Join) {
        let width = self.table.width();
        let mut into = self.table.rows_mut().rows(&scratch.ptrs);
        let partials = from.table.rows_mut().rows(&scratch.from);
        for (i, placed) in plan.accumulators.iter().enumerate() {
            let (into_side, from_side) = (&mut self.sides[i], &mut from.sides[i]);
            let (one, offset) = (&placed.accumulator, width + placed.offset);
            match join {
                Join::Copy => one.merge(&mut into, into_side, &partials, from_side, offset),
                Join::Bucket(bucket) if placed.spreads => {
                    let (into, from) = ((&mut into, into_side), (&partials, from_side));
                    one.adopt(into, from, offset, bucket);
                }
                Join::Take | Join::Bucket(_) => {
                    one.absorb(&mut into, into_side, &partials, from_side, offset);
                }
            }
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
        if let Err(failure) = self.emit_columns(plan, scratch, &mut columns) {
            let key = |row| keys.text(&self.table.keys(ids.clone()), row);
            return Err(failure.explain(plan, key, window));
        }
        Ok(columns)
    }

    /// Appends the aggregates of the rows at `scratch.ptrs`; or says which output is wrong, and how.
    fn emit_columns(
        &mut self,
        plan: &Plan,
        scratch: &Scratch,
        columns: &mut Vec<ArrayRef>,
    ) -> Result<(), EmitFailure> {
        let width = self.table.width();
        for (i, output) in plan.outputs.iter().enumerate() {
            let placed = &plan.accumulators[output.placed];
            let side = &self.sides[output.placed];
            let rows = self.table.rows_mut().rows(&scratch.ptrs);
            let column = placed.accumulator.emit(output.part, &rows, width + placed.offset, side);
            let column = column.map_err(|misfit| EmitFailure::Misfit(i, misfit))?;
            check_result(&column, scratch.ptrs.len(), output)?;
            columns.push(column);
        }
        Ok(())
    }
}

/// Why results could not be given.
enum EmitFailure {
    /// The value of this output does not fit its type.
    Misfit(usize, Misfit),
    /// An aggregate that is not ours did not give what it said.
    Custom(RunError),
}

impl EmitFailure {
    fn explain(
        self,
        plan: &Plan,
        key: impl FnOnce(usize) -> String,
        window: Option<&dyn Fn() -> String>,
    ) -> RunError {
        match self {
            Self::Misfit(output, misfit) => RunError::Overflow(Box::new(Overflow {
                aggregate: plan.outputs[output].text.clone(),
                key: key(misfit.row),
                window: window.map(|text| text()),
                value: misfit.value,
                data_type: misfit.data_type,
                advice: misfit.advice,
            })),
            Self::Custom(error) => error,
        }
    }
}

/// What an aggregate that is not ours gives may not be what it said.
fn check_result(column: &ArrayRef, rows: usize, output: &Output) -> Result<(), EmitFailure> {
    let expected = output.field.data_type();
    if column.len() == rows && column.data_type() == expected {
        return Ok(());
    }
    Err(EmitFailure::Custom(RunError::CustomAggregate {
        aggregate: output.text.clone(),
        what: format!(
            "it gave {} results of type {} for {rows} states and type {expected}",
            column.len(),
            column.data_type()
        ),
    }))
}

fn new_sides(plan: &Plan) -> Vec<Side> {
    plan.accumulators.iter().map(|placed| placed.accumulator.new_side()).collect()
}
