//! A pane's keys, given to several panes by key group: what a rescale does with it.

use std::ops::{Range, RangeInclusive};

use super::{Join, LOOKUP_ROWS, LOOKUP_STEP, Pane, Scratch};
use crate::aggregate::Side;
use crate::aggregate::plan::Plan;
use crate::key::encode::KeyEncoder;
use crate::key::group::key_group;

impl Pane {
    /// An empty pane with room for so many keys, in memory whose pages have been written.
    pub(crate) fn warm(keys: &KeyEncoder, plan: &Plan, expected: usize) -> Self {
        let mut pane = Self::new(keys, plan);
        pane.table.warm(expected);
        pane
    }

    /// Takes the keys of these of so many key groups, with their states, from a pane of other keys, which stays as
    /// it is. About `expected` will come, for which room is made at once.
    ///
    /// What is in the rows is taken as it stands: counts of corrections belong to a key and are never added up. What
    /// lies beside the rows is merged into states of no rows.
    ///
    /// **Cost:** one pass over all keys of `from`; a row and an index entry to write for each that is taken.
    pub(crate) fn copy_groups(
        &mut self,
        plan: &Plan,
        from: &mut Self,
        (groups, max_parallelism): (&RangeInclusive<u16>, u32),
        expected: usize,
        scratch: &mut Scratch,
    ) {
        let len = u32::try_from(from.len()).expect("row ids are 32 bits");
        self.table.reserve(expected);
        for start in (0..len).step_by(LOOKUP_ROWS) {
            let ids = start..(start + LOOKUP_STEP).min(len);
            from.select_groups((groups, max_parallelism), ids, scratch);
            self.table.insert_all(&scratch.keys, &scratch.selection, &mut scratch.ptrs);
            self.copy_looked_up(plan, from, scratch);
        }
    }

    /// Merges those of the keys `ids` of `from` that are in these of so many key groups, and leaves `from` as it is.
    /// Says where to go on.
    pub(crate) fn merge_groups(
        &mut self,
        plan: &Plan,
        from: &mut Self,
        (groups, max_parallelism): (&RangeInclusive<u16>, u32),
        ids: Range<u32>,
        scratch: &mut Scratch,
    ) -> u32 {
        let len = u32::try_from(from.len()).expect("row ids are 32 bits").min(ids.end);
        for start in (ids.start..len).step_by(LOOKUP_ROWS) {
            from.select_groups(
                (groups, max_parallelism),
                start..(start + LOOKUP_STEP).min(len),
                scratch,
            );
            self.table.lookup(plan.isa, &scratch.keys, &scratch.selection, &mut scratch.ptrs);
            self.merge_looked_up(plan, from, scratch, Join::Copy);
        }
        len
    }

    /// Exports the keys `ids`, and selects those of these key groups, with their rows.
    fn select_groups(
        &mut self,
        (groups, max_parallelism): (&RangeInclusive<u16>, u32),
        ids: Range<u32>,
        scratch: &mut Scratch,
    ) {
        self.table.export_keys(ids.clone(), &mut scratch.keys);
        let hashes = &scratch.keys.hashes;
        let is_mine = |hash: u64| groups.contains(&key_group(hash, max_parallelism));
        scratch.selection.clear();
        scratch.from.clear();
        for (k, id) in (0..).zip(ids) {
            if is_mine(hashes[k as usize]) {
                scratch.selection.push(k);
                scratch.from.push(self.table.rows_mut().ptr(id));
            }
        }
    }

    /// Copies the states of the rows of `from` at `scratch.from` to the rows at `scratch.ptrs`.
    fn copy_looked_up(&mut self, plan: &Plan, from: &mut Self, scratch: &Scratch) {
        let width = self.table.width();
        let states = from.table.rows_mut().rows(&scratch.from);
        let mut rows = self.table.rows_mut().rows(&scratch.ptrs);
        for (i, placed) in plan.accumulators.iter().enumerate() {
            let (one, offset) = (&placed.accumulator, width + placed.offset);
            match (&mut self.sides[i], &from.sides[i]) {
                (Side::None, Side::None) => rows.for_each(offset, one.words(), |k, words| {
                    words.copy_from_slice(states.state(k, offset, words.len()));
                }),
                (into, side) => one.merge(&mut rows, into, &states, side, offset),
            }
        }
    }
}
