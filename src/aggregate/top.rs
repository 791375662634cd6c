//! `top_n` and `bottom_n`: the n largest or smallest values of a key, perhaps with a payload.
//!
//! Rows are ordered bytes, value before payload, so ties are broken by the payload and never by arrival. A
//! heap of at most n rows is kept, the worst on top: a row that is no better costs one comparison.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::sync::Arc;

use arrow::array::{ArrayRef, ListArray, StructArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};
use arrow::datatypes::{DataType, FieldRef, Fields};

use crate::aggregate::input::Ordered;
use crate::aggregate::keyed::{Groups, Keyed};
use crate::aggregate::saved::{Reader, put_bytes};
use crate::aggregate::{Damaged, Misfit, Part, Unsaved};
use crate::column::{BytesArray, BytesColumn, BytesVisitor, Column, Lane};

/// The accumulator's description.
#[derive(Debug)]
pub(super) struct Top {
    pub(super) n: usize,
    /// Of the largest, or of the smallest.
    pub(super) largest: bool,
    /// Value, and payload if there is one.
    pub(super) rows: Arc<Ordered>,
    /// What the result is a list of.
    pub(super) item: FieldRef,
}

/// The best rows of a key.
#[derive(Debug, Default)]
pub(super) struct Best {
    rows: BinaryHeap<Row>,
    /// Capacity of the rows' bytes.
    heap_bytes: usize,
}

/// A row; the greater, the worse.
#[derive(Debug)]
struct Row {
    bytes: Vec<u8>,
    largest: bool,
}

impl Row {
    fn compare(&self, bytes: &[u8]) -> Ordering {
        let order = self.bytes.as_slice().cmp(bytes);
        if self.largest { order.reverse() } else { order }
    }
}

impl Ord for Row {
    fn cmp(&self, other: &Self) -> Ordering {
        self.compare(&other.bytes)
    }
}

impl PartialOrd for Row {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Row {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Row {}

impl Top {
    #[inline(always)]
    fn offer(&self, best: &mut Best, bytes: &[u8]) {
        if best.rows.len() < self.n {
            let row = Row { bytes: bytes.to_vec(), largest: self.largest };
            best.heap_bytes += row.bytes.capacity();
            best.rows.push(row);
            return;
        }
        // Looked at first: `peek_mut` puts the heap in order again even if nothing changed.
        if best.rows.peek().is_none_or(|worst| worst.compare(bytes) != Ordering::Greater) {
            return;
        }
        let mut worst = best.rows.peek_mut().expect("looked at just now");
        best.heap_bytes -= worst.bytes.capacity();
        worst.bytes.clear();
        worst.bytes.extend_from_slice(bytes);
        best.heap_bytes += worst.bytes.capacity();
    }
}

/// Bytes of the rows of a column.
pub(super) fn rows_of(column: &Column) -> &BytesColumn {
    let Lane::Bytes(rows) = &column.values else { unreachable!("the plan asks for rows") };
    rows
}

struct Update<'a, 'g, 'r> {
    top: &'a Top,
    column: &'a Column,
    groups: Groups<'g, 'r, Top>,
}

impl BytesVisitor for Update<'_, '_, '_> {
    type Output = ();

    fn visit<A: BytesArray>(self, array: &A) {
        self.groups.for_each(self.column.nulls.as_ref(), |best, row| {
            self.top.offer(best, array.bytes(row));
        });
    }
}

impl Keyed for Top {
    type State = Best;

    fn update(&self, column: &Column, groups: Groups<'_, '_, Self>) {
        rows_of(column).visit(Update { top: self, column, groups });
    }

    fn merge(&self, into: &mut Best, from: &Best) {
        for row in &from.rows {
            self.offer(into, &row.bytes);
        }
    }

    fn emit(&self, part: Part, states: &[Option<&Best>]) -> Result<ArrayRef, Misfit> {
        assert_eq!(part, Part::List, "of the best rows");
        let mut rows = Vec::new();
        for best in states.iter().flatten() {
            let start = rows.len();
            rows.extend(best.rows.iter());
            rows[start..].sort();
        }
        let lengths = states.iter().map(|best| best.map_or(0, |best| best.rows.len()));
        let offsets = OffsetBuffer::from_lengths(lengths);
        let nulls: NullBuffer = states.iter().map(Option::is_some).collect();
        let mut columns = self.rows.decode_all(rows.iter().map(|row| row.bytes.as_slice()));
        let values: ArrayRef = match self.item.data_type() {
            DataType::Struct(fields) if columns.len() > 1 => {
                Arc::new(StructArray::new(Fields::clone(fields), columns, None))
            }
            _ => columns.swap_remove(0),
        };
        let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
        Ok(Arc::new(ListArray::new(Arc::clone(&self.item), offsets, values, nulls)))
    }

    fn heap_bytes(&self, state: &Best) -> usize {
        state.heap_bytes + state.rows.capacity() * size_of::<Row>()
    }

    fn save(&self, state: &Best, out: &mut Vec<u8>) -> Result<(), Unsaved> {
        let mut rows: Vec<&Row> = state.rows.iter().collect();
        rows.sort();
        for row in rows {
            put_bytes(out, &row.bytes);
        }
        Ok(())
    }

    fn load(&self, bytes: &[u8]) -> Result<Best, Damaged> {
        let mut reader = Reader::new(bytes);
        let mut best = Best::default();
        while !reader.is_empty() {
            let row = reader.take_bytes()?;
            if best.rows.len() == self.n {
                return Err(Damaged::new(format!("at most {} rows", self.n), "more"));
            }
            self.rows.check(row)?;
            self.offer(&mut best, row);
        }
        Ok(best)
    }
}
