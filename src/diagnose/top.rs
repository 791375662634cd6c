//! The heaviest of many keys, with their exact counts, in bounded memory.
//!
//! **Invariant:** every key with more rows than [`TopKeys::threshold`] is held, and no more than twice
//! `limit` keys are. Which keys are held does not depend on the order in which they came.

use arrow::array::{Array, ArrayRef, AsArray, Int64Array, UInt32Array};
use arrow::compute::{SortOptions, concat, sort_to_indices, take};
use arrow::datatypes::Int64Type;
use arrow::error::ArrowError;

/// Keys and their counts as they came, those that were too light left out.
#[derive(Debug)]
pub struct TopKeys {
    limit: usize,
    /// Keys with so many rows or fewer may be missing.
    threshold: i64,
    /// Key columns, and the counts last.
    parts: Vec<Vec<ArrayRef>>,
    held: usize,
}

impl TopKeys {
    /// Holds at least the `limit` heaviest keys, unless there are ties.
    pub fn new(limit: usize) -> Self {
        Self { limit: limit.max(1), threshold: 0, parts: Vec::new(), held: 0 }
    }

    /// Adds keys, each one for the first time.
    ///
    /// # Errors
    /// If the columns are not alike.
    pub fn add(&mut self, columns: &[ArrayRef], counts: &Int64Array) -> Result<(), ArrowError> {
        let heavy = (0_u32..).zip(counts.values()).filter(|(_, count)| **count > self.threshold);
        let heavy = heavy.map(|(row, _)| row).collect::<Vec<_>>();
        if heavy.is_empty() {
            return Ok(());
        }
        self.held += heavy.len();
        let rows = UInt32Array::from(heavy);
        let mut part = Vec::with_capacity(columns.len() + 1);
        for column in columns {
            part.push(take(column, &rows, None)?);
        }
        part.push(take(counts, &rows, None)?);
        self.parts.push(part);
        if self.held > 2 * self.limit { self.prune() } else { Ok(()) }
    }

    /// Adds what another has held of other keys.
    ///
    /// # Errors
    /// If the columns are not alike.
    pub fn merge(&mut self, other: Self) -> Result<(), ArrowError> {
        self.threshold = self.threshold.max(other.threshold);
        self.held += other.held;
        self.parts.extend(other.parts);
        if self.held > 2 * self.limit { self.prune() } else { Ok(()) }
    }

    /// Key columns and counts of the keys held, heaviest first, those of one count in the keys' order.
    ///
    /// # Errors
    /// If columns cannot be sorted.
    pub fn finish(mut self) -> Result<(Vec<ArrayRef>, Vec<i64>), ArrowError> {
        if self.held > self.limit {
            self.prune()?;
        } else {
            self.gather()?;
        }
        // Below the threshold of another that was merged in, some may be missing.
        let Some(mut part) = self.parts.pop() else { return Ok((Vec::new(), Vec::new())) };
        let counts = part.pop().expect("counts are the last column");
        let counts = counts.as_primitive::<Int64Type>();
        let held = counts.values().iter().filter(|count| **count > self.threshold).count();
        let columns = part.iter().map(|column| column.slice(0, held)).collect();
        Ok((columns, counts.values()[..held].to_vec()))
    }

    /// All parts as one, sorted.
    fn gather(&mut self) -> Result<(), ArrowError> {
        let Some(first) = self.parts.first() else { return Ok(()) };
        let mut whole = Vec::with_capacity(first.len());
        for column in 0..first.len() {
            let pieces = self.parts.iter().map(|part| part[column].as_ref()).collect::<Vec<_>>();
            whole.push(concat(&pieces)?);
        }
        let order = sorted(&whole)?;
        let whole = whole.iter().map(|column| take(column, &order, None));
        self.parts = vec![whole.collect::<Result<_, _>>()?];
        Ok(())
    }

    /// Drops keys that are not among the heaviest. Of keys with as many rows as the first that is too
    /// many, all are dropped, so that the order in which keys came does not matter.
    fn prune(&mut self) -> Result<(), ArrowError> {
        self.gather()?;
        let Some(part) = self.parts.first_mut() else { return Ok(()) };
        let counts = part.last().expect("counts are the last column");
        let counts = counts.as_primitive::<Int64Type>().values();
        let next = counts.get(self.limit).copied().unwrap_or(0);
        self.threshold = self.threshold.max(next);
        self.held = counts.iter().filter(|count| **count > self.threshold).count();
        let held = self.held;
        for column in part.iter_mut() {
            // A copy, so that what was dropped is freed.
            let rows = UInt32Array::from_iter_values(0..u32::try_from(held).unwrap_or(u32::MAX));
            *column = take(column, &rows, None)?;
        }
        Ok(())
    }
}

/// Order by count, descending, then by key.
fn sorted(columns: &[ArrayRef]) -> Result<UInt32Array, ArrowError> {
    let counts = columns.last().expect("counts are the last column");
    let descending = SortOptions { descending: true, nulls_first: false };
    if columns.len() == 1 {
        return sort_to_indices(counts, Some(descending), None);
    }
    let converter = arrow::row::RowConverter::new(
        columns[..columns.len() - 1]
            .iter()
            .map(|column| arrow::row::SortField::new(column.data_type().clone()))
            .collect(),
    )?;
    let keys = converter.convert_columns(&columns[..columns.len() - 1])?;
    let counts = counts.as_primitive::<Int64Type>().values();
    let mut order = (0..u32::try_from(counts.len()).unwrap_or(u32::MAX)).collect::<Vec<_>>();
    order.sort_unstable_by(|a, b| {
        let (a, b) = (*a as usize, *b as usize);
        counts[b].cmp(&counts[a]).then_with(|| keys.row(a).cmp(&keys.row(b)))
    });
    Ok(UInt32Array::from(order))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;

    fn keys(columns: &[ArrayRef]) -> Vec<i64> {
        columns[0].as_primitive::<Int64Type>().values().to_vec()
    }

    proptest! {
        #[test]
        fn the_heaviest_are_held_whatever_the_order(
            counts in prop::collection::vec(1_i64..30, 1..200),
            limit in 1_usize..20,
            pieces in 1_usize..9,
            split in any::<bool>(),
        ) {
            let mut tops = [TopKeys::new(limit), TopKeys::new(limit)];
            let numbered = (0_i64..).zip(counts.iter().copied()).collect::<Vec<_>>();
            for (i, piece) in numbered.chunks(numbered.len().div_ceil(pieces)).enumerate() {
                let (keys, counts): (Vec<i64>, Vec<i64>) = piece.iter().copied().unzip();
                let columns = [Arc::new(Int64Array::from(keys)) as ArrayRef];
                let top = &mut tops[usize::from(split) * (i % 2)];
                top.add(&columns, &Int64Array::from(counts)).unwrap();
                prop_assert!(top.held <= 2 * limit);
            }
            let [mut top, other] = tops;
            top.merge(other).unwrap();
            let (columns, found) = top.finish().unwrap();
            let mut expected = numbered;
            expected.sort_by_key(|(key, count)| (-count, *key));
            let found_keys = if columns.is_empty() { Vec::new() } else { keys(&columns) };
            let pairs = found_keys.into_iter().zip(found).collect::<Vec<_>>();
            // A prefix of the truth that leaves out no key above the threshold.
            prop_assert_eq!(&pairs[..], &expected[..pairs.len()]);
            prop_assert!(pairs.len() <= limit);
            if pairs.len() < expected.len().min(limit) {
                prop_assert_eq!(expected[pairs.len()].1, expected[limit].1);
            }
        }
    }
}
