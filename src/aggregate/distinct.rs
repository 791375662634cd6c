//! `count(distinct x)`: the set of the values of each key, and the number of them.
//!
//! Values are told apart as keys are: all NaN are one, both zeros are one. Rows in which any of the
//! columns is null are left out. Merging is the union of sets, the larger one kept and the smaller one
//! added to it. Large sets of hot keys are spread over shards by value, and their counts added. Cost: a
//! cache miss a row once a set is larger than the cache, overlapped for runs of one key.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};

use crate::aggregate::keyed::{Groups, Keyed};
use crate::aggregate::value_set::ValueSet;
use crate::aggregate::{Damaged, Misfit, Part, Unsaved};
use crate::column::{Column, Lane};
use crate::key::batch::KeyBatch;
use crate::state::spread::SpreadPart;

/// Values of a hot key that every producer may have in a set of its own. Small, so that copies do not count;
/// large, so that keys with few different values, which repeat, are not spread.
#[cfg(not(test))]
const SPREAD_FROM: usize = 4096;
#[cfg(test)]
const SPREAD_FROM: usize = 3;

/// Keeps sets of this kind.
#[derive(Debug, Default)]
pub(super) struct Distinct<S>(PhantomData<S>);

/// The canonical keys that a column is.
pub(super) fn keys_of(column: &Column) -> &KeyBatch {
    let Lane::Keys(keys) = &column.values else { unreachable!("the plan asks for keys") };
    keys
}

/// The values of a key.
#[derive(Debug, Default)]
pub(super) struct Values<S> {
    /// Those that were not spread over shards.
    own: S,
    /// Those that were, by the shard they belong to. They may be among the others too.
    #[expect(clippy::box_collection, reason = "most keys have none, and a box is one word")]
    buckets: Option<Box<Vec<S>>>,
}

impl<S: ValueSet> Values<S> {
    fn count(&self) -> usize {
        let Some(buckets) = &self.buckets else { return self.own.len() };
        let bucket = |hash: u64| buckets.get(bucket_of(hash, buckets.len()));
        buckets.iter().map(ValueSet::len).sum::<usize>() + self.own.count_beyond(bucket)
    }
}

/// Adds `from` to `into`, the smaller one to the larger.
fn unite<S: ValueSet>(into: &mut S, from: &mut S) {
    if into.len() < from.len() {
        std::mem::swap(into, from);
    }
    into.extend(from);
}

/// The shard, of so many, that a value belongs to. Sets are searched by the high bits of a hash, so the low
/// ones choose here: else all values of a shard would crowd in one part of its sets.
#[inline(always)]
fn bucket_of(hash: u64, shards: usize) -> usize {
    let low = hash & u64::from(u32::MAX);
    usize::try_from((low * shards as u64) >> 32).expect("less than the number of shards")
}

impl<S: ValueSet> Keyed for Distinct<S> {
    type State = Values<S>;

    fn update(&self, column: &Column, groups: Groups<'_, '_, Self>) {
        let keys = keys_of(column);
        assert_eq!(keys.width, S::WIDTH, "the set is of the keys' kind");
        let ahead = |values: &Values<S>, row: usize| values.own.prefetch(keys, row);
        let nulls = column.nulls.as_ref();
        groups.for_each_ahead(nulls, ahead, |values, row| values.own.insert(keys, row));
    }

    fn merge(&self, into: &mut Values<S>, from: &Values<S>) {
        into.own.extend(&from.own);
        let Some(from) = &from.buckets else { return };
        // Bucket by bucket, so that no set of all values is built, and grown, beside them.
        let buckets = into.buckets.get_or_insert_default();
        buckets.resize_with(from.len(), S::default);
        buckets.iter_mut().zip(from.iter()).for_each(|(into, from)| into.extend(from));
    }

    fn absorb(&self, into: &mut Values<S>, from: &mut Values<S>) {
        unite(&mut into.own, &mut from.own);
        match (&mut into.buckets, from.buckets.take()) {
            (_, None) => {}
            (empty @ None, buckets) => *empty = buckets,
            (Some(into), Some(mut from)) => {
                into.iter_mut().zip(from.iter_mut()).for_each(|(into, from)| unite(into, from));
            }
        }
    }

    fn adopt(&self, into: &mut Values<S>, from: &mut Values<S>, (bucket, shards): (usize, usize)) {
        let buckets = into.buckets.get_or_insert_default();
        buckets.resize_with(shards, S::default);
        unite(&mut buckets[bucket], &mut from.own);
    }

    fn wants_spreading(&self, state: &Values<S>) -> bool {
        state.own.len() > SPREAD_FROM
    }

    fn spread(&self, column: &Column, selection: &[u32], parts: &mut [SpreadPart]) {
        let (keys, nulls) = (keys_of(column), column.nulls.as_ref());
        for row in selection {
            let at = *row as usize;
            if nulls.is_none_or(|nulls| nulls.is_valid(at)) {
                parts[bucket_of(keys.hashes[at], parts.len())].rows.push(*row);
            }
        }
    }

    fn emit(&self, part: Part, states: &[Option<&Values<S>>]) -> Result<ArrayRef, Misfit> {
        assert_eq!(part, Part::Distinct, "of a set");
        Ok(counts(states.iter().map(|values| values.map_or(0, Values::count))))
    }

    fn heap_bytes(&self, state: &Values<S>) -> usize {
        let buckets = state.buckets.iter().flat_map(|buckets| buckets.iter());
        state.own.heap_bytes() + buckets.map(|set| set.heap_bytes() + size_of::<S>()).sum::<usize>()
    }

    /// As one set: what is taken back may be spread over another number of shards, or none.
    fn save(&self, state: &Values<S>, out: &mut Vec<u8>) -> Result<(), Unsaved> {
        let buckets = state.buckets.iter().flat_map(|buckets| buckets.iter());
        let sets: Vec<&S> = std::iter::once(&state.own).chain(buckets).collect();
        S::save(&sets, out);
        Ok(())
    }

    fn load(&self, bytes: &[u8]) -> Result<Values<S>, Damaged> {
        Ok(Values { own: S::load(bytes)?, buckets: None })
    }
}

/// Counts as a result column.
pub(super) fn counts(counts: impl Iterator<Item = usize>) -> ArrayRef {
    let counts = counts.map(|count| i64::try_from(count).expect("values are fewer than 2^63"));
    Arc::new(counts.collect::<Int64Array>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aggregate::value_set::WordSet;
    use crate::key::hash::hash_word;

    /// Values of a hot key, some of its own and others spread over `shards`.
    fn spread(
        own: std::ops::Range<u64>,
        others: std::ops::Range<u64>,
        shards: usize,
    ) -> Values<WordSet> {
        let mut buckets: Vec<Vec<u64>> = vec![Vec::new(); shards];
        others.for_each(|word| buckets[bucket_of(hash_word(word), shards)].push(word));
        let buckets = buckets.iter().map(|words| WordSet::of(words)).collect();
        Values { own: WordSet::of(&own.collect::<Vec<_>>()), buckets: Some(Box::new(buckets)) }
    }

    #[test]
    fn spread_sets_are_saved_as_one() {
        let keyed = Distinct::<WordSet>::default();
        let save = |values: &Values<WordSet>| {
            let mut out = Vec::new();
            keyed.save(values, &mut out).unwrap();
            out
        };
        let values = spread(0..30, 20..100, 3);
        assert_eq!(values.count(), 100);
        let bytes = save(&values);
        assert_eq!(bytes.len(), 800);
        assert_eq!(save(&spread(0..100, 0..0, 5)), bytes, "wherever the values were");
        let loaded = keyed.load(&bytes).unwrap();
        assert_eq!(loaded.count(), 100);
        // Goes on being spread, over another number of shards.
        let mut more = spread(0..0, 90..150, 4);
        let mut loaded = loaded;
        keyed.absorb(&mut more, &mut loaded);
        assert_eq!(more.count(), 150);
        assert!(keyed.wants_spreading(&more));
    }
}
