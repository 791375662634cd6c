//! Splitting the rows of a batch among the shards that own their keys.
//!
//! With two shards, which is what small machines have, whole vectors of hashes are compared with the least
//! hash of the second, as key groups are contiguous ranges of hashes; with more, the owner of each row is
//! looked up.

use super::message::Part;
use crate::config::Job;
use crate::kernel::Isa;
use crate::kernel::select::{Compare, CompareMask, LANES, MaskRows, each_row};
use crate::key::group::{first_hash, key_group};

/// Who owns which key.
#[derive(Debug)]
pub(super) struct Owners {
    isa: Isa,
    max_parallelism: u32,
    /// Shard of each key group.
    of_group: Vec<u16>,
    /// The least hash of the second shard.
    second_from: u64,
    /// Rows as bits, while they are split.
    mask: Vec<u64>,
    rest: Vec<u64>,
}

impl Owners {
    /// The shard of each key group is given.
    pub(super) fn new(job: &Job, of_group: Vec<u16>) -> Self {
        let second = (0..).zip(&of_group).find(|(_, shard)| **shard > 0);
        let second_from =
            second.map_or(u64::MAX, |(group, _)| first_hash(group, job.max_parallelism));
        Self {
            isa: job.isa,
            max_parallelism: job.max_parallelism,
            of_group,
            second_from,
            mask: Vec::new(),
            rest: Vec::new(),
        }
    }

    /// The shard that owns the keys of this hash.
    #[inline(always)]
    pub(super) fn of(&self, hash: u64) -> usize {
        usize::from(self.of_group[usize::from(key_group(hash, self.max_parallelism))])
    }

    /// Selects all rows, each for its owner.
    pub(super) fn split_all(&mut self, hashes: &[u64], parts: &mut [Part]) {
        let mut all = std::mem::take(&mut self.rest);
        fill_mask(&mut all, hashes.len());
        self.split_masked(&all, hashes, parts);
        self.rest = all;
    }

    /// Selects the rows of `mask`. All rows have been hashed.
    pub(super) fn split_masked(&mut self, mask: &[u64], hashes: &[u64], parts: &mut [Part]) {
        let isa = self.isa;
        match parts {
            [only] => isa.run(MaskRows { mask, rows: &mut only.selection }),
            [first, second] => {
                let seconds = &mut self.mask;
                seconds.resize(mask.len(), 0);
                let (compare, operand) = (Compare::AtLeast, self.second_from);
                isa.run(CompareMask { values: hashes, compare, operand, mask: seconds });
                seconds.iter_mut().zip(mask).for_each(|(second, mask)| *second &= mask);
                isa.run(MaskRows { mask: seconds, rows: &mut second.selection });
                seconds.iter_mut().zip(mask).for_each(|(second, mask)| *second ^= mask);
                isa.run(MaskRows { mask: seconds, rows: &mut first.selection });
            }
            many => {
                // Room for all rows in each, so that no later batch makes one grow.
                for part in many.iter_mut() {
                    part.selection.reserve(hashes.len());
                }
                each_row(mask, |row| many[self.of(hashes[row as usize])].selection.push(row));
            }
        }
    }

    /// Selects `rows`, which have been hashed.
    pub(super) fn split_listed(&self, rows: &[u32], hashes: &[u64], parts: &mut [Part]) {
        match parts {
            [only] => only.selection.extend_from_slice(rows),
            [first, second] => {
                // Both are written, one advances: a branch would be mispredicted every other row.
                let (first, second) = (&mut first.selection, &mut second.selection);
                first.resize(rows.len(), 0);
                second.resize(rows.len(), 0);
                let (mut firsts, mut seconds) = (0, 0);
                for row in rows {
                    let to_second = usize::from(hashes[*row as usize] >= self.second_from);
                    first[firsts] = *row;
                    second[seconds] = *row;
                    firsts += 1 - to_second;
                    seconds += to_second;
                }
                first.truncate(firsts);
                second.truncate(seconds);
            }
            many => {
                for part in many.iter_mut() {
                    part.selection.reserve(hashes.len());
                }
                for row in rows {
                    many[self.of(hashes[*row as usize])].selection.push(*row);
                }
            }
        }
    }
}

/// Makes `mask` the bits of `rows` rows, all set.
pub(super) fn fill_mask(mask: &mut Vec<u64>, rows: usize) {
    mask.clear();
    mask.resize(rows.div_ceil(LANES), u64::MAX);
    if let Some(last) = mask.last_mut() {
        *last >>= (LANES - rows % LANES) % LANES;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::datatypes::{DataType, Field, Schema};
    use proptest::prelude::*;

    use super::*;
    use crate::aggregate::spec::Aggregate;
    use crate::key::group::shard_of_group;

    proptest! {
        #[test]
        fn every_row_goes_to_its_owner(
            hashes in prop::collection::vec(any::<u64>(), 0..300),
            workers in 1_usize..4,
            every in 1_usize..4,
        ) {
            let schema = Schema::new(vec![Field::new("k", DataType::Int64, false)]);
            let job = Job::builder(Arc::new(schema)).key(["k"]).aggregates([Aggregate::count()]);
            let job = job.workers(workers).build().unwrap();
            let of_group = (0..128).map(|group| shard_of_group(group, job.shards(), 128));
                let mut owners = Owners::new(&job, of_group.collect());
            let split = |split: &mut dyn FnMut(&mut [Part])| {
                let mut parts = Vec::new();
                parts.resize_with(workers, Part::default);
                split(&mut parts);
                parts.into_iter().map(|part| part.selection).collect::<Vec<_>>()
            };
            let rows = (0_u32..).take(hashes.len());
            let some = rows.clone().step_by(every).collect::<Vec<_>>();
            let owned = |rows: &mut dyn Iterator<Item = u32>| {
                let mut parts = vec![Vec::new(); workers];
                let groups = rows.map(|row| (row, key_group(hashes[row as usize], 128)));
                groups.for_each(|(row, group)| {
                    parts[usize::from(shard_of_group(group, job.shards(), 128))].push(row);
                });
                parts
            };
            let mut mask = vec![0; hashes.len().div_ceil(LANES)];
            some.iter().for_each(|row| mask[*row as usize / LANES] |= 1 << (*row as usize % LANES));
            let expected = owned(&mut some.iter().copied());
            prop_assert_eq!(split(&mut |parts| owners.split_all(&hashes, parts)), owned(&mut rows.clone()));
            prop_assert_eq!(split(&mut |parts| owners.split_masked(&mask, &hashes, parts)), expected.clone());
            prop_assert_eq!(split(&mut |parts| owners.split_listed(&some, &hashes, parts)), expected);
        }
    }
}
