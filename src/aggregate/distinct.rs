//! `count(distinct x)`: the set of the values of each key, and the number of them.
//!
//! Values are told apart as keys are: all NaN are one, both zeros are one. Rows in which any of the
//! columns is null are left out. Merging is the union of sets, the larger one kept and the smaller one
//! added to it. Cost: a cache miss a row once a set is larger than the cache, overlapped for runs of one key.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};

use crate::aggregate::keyed::{Groups, Keyed};
use crate::aggregate::value_set::ValueSet;
use crate::aggregate::{Misfit, Part};
use crate::column::{Column, Lane};
use crate::key::batch::KeyBatch;

/// Keeps sets of this kind.
#[derive(Debug, Default)]
pub(super) struct Distinct<S>(PhantomData<S>);

/// The canonical keys that a column is.
pub(super) fn keys_of(column: &Column) -> &KeyBatch {
    let Lane::Keys(keys) = &column.values else { unreachable!("the plan asks for keys") };
    keys
}

impl<S: ValueSet> Keyed for Distinct<S> {
    type State = S;

    fn update(&self, column: &Column, groups: Groups<'_, '_, Self>) {
        let keys = keys_of(column);
        assert_eq!(keys.width, S::WIDTH, "the set is of the keys' kind");
        let ahead = |set: &S, row: usize| set.prefetch(keys, row);
        groups.for_each_ahead(column.nulls.as_ref(), ahead, |set, row| set.insert(keys, row));
    }

    fn merge(&self, into: &mut S, from: &S) {
        into.extend(from);
    }

    fn absorb(&self, into: &mut S, from: &mut S) {
        if into.len() < from.len() {
            std::mem::swap(into, from);
        }
        into.extend(from);
    }

    fn emit(&self, part: Part, states: &[Option<&S>]) -> Result<ArrayRef, Misfit> {
        assert_eq!(part, Part::Distinct, "of a set");
        Ok(counts(states.iter().map(|set| set.map_or(0, ValueSet::len))))
    }

    fn heap_bytes(&self, state: &S) -> usize {
        state.heap_bytes()
    }
}

/// Counts as a result column.
pub(super) fn counts(counts: impl Iterator<Item = usize>) -> ArrayRef {
    let counts = counts.map(|count| i64::try_from(count).expect("values are fewer than 2^63"));
    Arc::new(counts.collect::<Int64Array>())
}
