//! `mode(x)`: the most frequent value of a key; of several, the smallest.
//!
//! Kept is how often each value occurs, by its ordered bytes (both zeros are one value), so memory grows with
//! the number of different values.

use std::cmp::Reverse;
use std::sync::Arc;

use arrow::array::ArrayRef;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::aggregate::input::Ordered;
use crate::aggregate::keyed::{Groups, Keyed};
use crate::aggregate::saved::{Reader, check_count, put_bytes, put_len};
use crate::aggregate::top::rows_of;
use crate::aggregate::{Damaged, Misfit, Part, Unsaved};
use crate::column::{BytesArray, BytesVisitor, Column};
use crate::key::hash::hash_long;

/// The accumulator's description.
#[derive(Debug)]
pub(super) struct Mode {
    /// The one column.
    pub(super) rows: Arc<Ordered>,
}

/// How often each value occurs.
#[derive(Debug, Default)]
pub(super) struct Counts {
    counts: HashTable<Counted>,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Counted {
    start: usize,
    len: usize,
    count: u64,
}

impl Counted {
    fn bytes<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start..self.start + self.len]
    }
}

impl Counts {
    /// Whether the value is new.
    #[inline(always)]
    fn add(&mut self, value: &[u8], count: u64) -> bool {
        let bytes = &self.bytes;
        let same = |known: &Counted| known.bytes(bytes) == value;
        let hash = |known: &Counted| hash_long(known.bytes(bytes));
        match self.counts.entry(hash_long(value), same, hash) {
            Entry::Occupied(mut known) => {
                known.get_mut().count += count;
                false
            }
            Entry::Vacant(vacant) => {
                vacant.insert(Counted { start: bytes.len(), len: value.len(), count });
                self.bytes.extend_from_slice(value);
                true
            }
        }
    }

    fn most_frequent(&self) -> Option<&[u8]> {
        let counts = self.counts.iter();
        let best = counts.max_by_key(|known| (known.count, Reverse(known.bytes(&self.bytes))));
        best.map(|known| known.bytes(&self.bytes))
    }
}

struct Update<'a, 'g, 'r> {
    column: &'a Column,
    groups: Groups<'g, 'r, Mode>,
}

impl BytesVisitor for Update<'_, '_, '_> {
    type Output = ();

    fn visit<A: BytesArray>(self, array: &A) {
        self.groups.for_each(self.column.nulls.as_ref(), |counts, row| {
            counts.add(array.bytes(row), 1);
        });
    }
}

impl Keyed for Mode {
    type State = Counts;

    fn update(&self, column: &Column, groups: Groups<'_, '_, Self>) {
        rows_of(column).visit(Update { column, groups });
    }

    fn merge(&self, into: &mut Counts, from: &Counts) {
        for known in &from.counts {
            into.add(known.bytes(&from.bytes), known.count);
        }
    }

    fn absorb(&self, into: &mut Counts, from: &mut Counts) {
        if into.counts.len() < from.counts.len() {
            std::mem::swap(into, from);
        }
        self.merge(into, from);
    }

    fn emit(&self, part: Part, states: &[Option<&Counts>]) -> Result<ArrayRef, Misfit> {
        assert_eq!(part, Part::Mode, "of counts");
        let values = states.iter().map(|counts| counts.and_then(Counts::most_frequent));
        Ok(self.rows.decode(values, 0))
    }

    fn heap_bytes(&self, state: &Counts) -> usize {
        state.counts.capacity() * (size_of::<Counted>() + 1) * 8 / 7 + state.bytes.capacity()
    }

    fn save(&self, state: &Counts, out: &mut Vec<u8>) -> Result<(), Unsaved> {
        let saved = |known: &Counted| {
            let value = known.bytes(&state.bytes);
            (hash_long(value), value, known.count)
        };
        let mut counts: Vec<(u64, &[u8], u64)> = state.counts.iter().map(saved).collect();
        // By hash, which nearly always decides without a look at the bytes.
        counts.sort_unstable();
        put_len(out, counts.len() as u64);
        for (_, value, count) in counts {
            put_bytes(out, value);
            put_len(out, count);
        }
        Ok(())
    }

    fn load(&self, bytes: &[u8]) -> Result<Counts, Damaged> {
        let mut reader = Reader::new(bytes);
        let len = reader.take_number()?;
        if len == 0 {
            return Err(Damaged::new("at least one value", "none"));
        }
        let capacity = len.min(reader.left() / 4);
        let mut counts = Counts { counts: HashTable::with_capacity(capacity), bytes: Vec::new() };
        for _ in 0..len {
            let (value, count) = (reader.take_bytes()?, reader.take_len()?);
            self.rows.check(value)?;
            check_count(count)?;
            if !counts.add(value, count) {
                return Err(Damaged::new("different values", "one of them twice"));
            }
        }
        reader.finish()?;
        Ok(counts)
    }
}
