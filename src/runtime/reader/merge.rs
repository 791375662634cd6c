//! Copies of rows made into one state, by the accumulators themselves.

use crate::aggregate::Side;
use crate::aggregate::plan::Plan;
use crate::state::rows::{LocalRows, Rows};

/// Merges copies.
#[derive(Debug)]
pub(super) struct Merger<'a> {
    plan: &'a Plan,
    /// The accumulators that are wanted.
    accumulators: &'a [usize],
    /// One for each accumulator of the plan, once there has been something to merge.
    sides: Vec<Side>,
    into: LocalRows,
    from: LocalRows,
    kept: LocalRows,
}

impl<'a> Merger<'a> {
    pub(super) fn new(plan: &'a Plan, accumulators: &'a [usize]) -> Self {
        let rows = || LocalRows::new(plan.words);
        let (into, from, kept) = (rows(), rows(), rows());
        Self { plan, accumulators, sides: Vec::new(), into, from, kept }
    }

    /// The first accumulator whose state is not wholly in these words.
    #[inline]
    pub(super) fn beside(&self, words: &[u64]) -> Option<usize> {
        beside(self.plan, self.accumulators, words)
    }

    fn merge_all<'w>(&mut self, states: impl Iterator<Item = &'w [u64]>) {
        if self.sides.is_empty() {
            let new_side = |placed: &crate::aggregate::plan::Placed| placed.accumulator.new_side();
            self.sides.extend(self.plan.accumulators.iter().map(new_side));
        }
        self.into.clear();
        for words in states {
            if self.into.len() == 0 {
                self.into.push(words);
                continue;
            }
            self.from.clear();
            self.from.push(words);
            let mut into = self.into.rows();
            let from = self.from.rows();
            for one in self.accumulators {
                let placed = &self.plan.accumulators[*one];
                let side = &mut self.sides[*one];
                // The copies have nothing beside them (`beside`).
                placed.accumulator.merge(&mut into, side, &from, &Side::None, placed.offset);
            }
        }
    }

    /// One state of many, and what is beside it.
    pub(super) fn merge<'w>(
        &mut self,
        states: impl Iterator<Item = &'w [u64]>,
    ) -> (&[u64], &[Side]) {
        self.merge_all(states);
        (self.into.row(0), &self.sides)
    }

    /// Keeps one state of many as a row.
    pub(super) fn keep<'w>(&mut self, states: impl Iterator<Item = &'w [u64]>) {
        self.merge_all(states);
        self.kept.push(self.into.row(0));
    }

    /// Rows kept.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The rows kept, and what is beside them.
    pub(super) fn kept(&mut self) -> (Rows<'_>, &[Side]) {
        (self.kept.rows(), &self.sides)
    }
}

/// The first of these accumulators whose state is not wholly in these words.
#[inline]
pub(super) fn beside(plan: &Plan, accumulators: &[usize], words: &[u64]) -> Option<usize> {
    accumulators.iter().copied().find(|one| {
        let placed = &plan.accumulators[*one];
        let state = &words[placed.offset..placed.offset + placed.accumulator.words()];
        !placed.accumulator.is_in_row(Some(state))
    })
}
