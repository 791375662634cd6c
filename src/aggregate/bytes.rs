//! Min and max of text and binary, in the order of their bytes (of UTF-8 text: of its code points).
//!
//! A row holds, for each of min and max, the first eight bytes of the best so far, which decide most
//! comparisons without leaving the row, and the place of the whole of it in the pane's [`ByteStore`].
//! A better value is written over the old one, so memory is bounded by keys x longest value.
//!
//! Words, each only if wanted: rows, values that are not null, then for min and for max: prefix, place
//! (0: no value yet).

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, StringArray, StringViewArray,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use crate::aggregate::emit::States;
use crate::aggregate::input::Ordered;
use crate::aggregate::saved::{
    Reader, check_count, no_bytes, put_bytes, restore_each, save_each, some_bytes,
};
use crate::aggregate::{Accumulator, Damaged, Misfit, Part, Side, Unsaved};
use crate::column::{BytesArray, BytesVisitor, Column, Lane};
use crate::kernel::Isa;
use crate::state::rows::Rows;

/// Byte strings by place, counted from 1.
#[derive(Debug, Default)]
pub(crate) struct ByteStore {
    buffers: Vec<Vec<u8>>,
    /// Places in use; buffers beyond are kept for their memory.
    used: usize,
    heap_bytes: usize,
}

impl ByteStore {
    /// Bytes in use and reserved.
    pub(super) fn bytes(&self) -> usize {
        self.heap_bytes + size_of_val(self.buffers.as_slice())
    }

    pub(super) fn clear(&mut self) {
        self.used = 0;
    }

    fn get(&self, place: u64) -> &[u8] {
        &self.buffers[index(place)]
    }

    /// Writes `bytes` over what is at `place` (a new one if 0), and returns the place.
    fn put(&mut self, place: u64, bytes: &[u8]) -> u64 {
        let place = if place == 0 {
            if self.used == self.buffers.len() {
                self.buffers.push(Vec::new());
            }
            self.used += 1;
            self.used as u64
        } else {
            place
        };
        let buffer = &mut self.buffers[index(place)];
        self.heap_bytes -= buffer.capacity();
        buffer.clear();
        buffer.extend_from_slice(bytes);
        self.heap_bytes += buffer.capacity();
        place
    }
}

fn index(place: u64) -> usize {
    usize::try_from(place - 1).expect("a place is an index that fitted before")
}

fn store(side: &Side) -> &ByteStore {
    let Side::Bytes(store) = side else { unreachable!("`new_side` of bytes makes a store") };
    store
}

fn store_mut(side: &mut Side) -> &mut ByteStore {
    let Side::Bytes(store) = side else { unreachable!("`new_side` of bytes makes a store") };
    store
}

/// The first eight bytes, zeros after the end; in the order of the bytes as far as it decides.
#[inline(always)]
fn prefix(bytes: &[u8]) -> u64 {
    if let Some(first) = bytes.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut padded = [0; 8];
    padded[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(padded)
}

/// Which of two byte strings is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Smallest,
    Largest,
}

impl Keep {
    fn prefers<T: Ord + ?Sized>(self, new: &T, old: &T) -> bool {
        match self {
            Self::Smallest => new < old,
            Self::Largest => new > old,
        }
    }

    /// Writes `bytes` to the prefix and place in `state` if it is better than what is there.
    #[inline(always)]
    fn offer(self, state: &mut [u64], store: &mut ByteStore, bytes: &[u8]) {
        let (new, place) = (prefix(bytes), state[1]);
        let better = place == 0
            || self.prefers(&new, &state[0])
            || (new == state[0] && self.prefers(bytes, store.get(place)));
        if better {
            state[0] = new;
            state[1] = store.put(place, bytes);
        }
    }
}

/// The accumulator of one column of text or binary.
#[derive(Debug)]
pub(super) struct Bytes {
    rows: bool,
    values: bool,
    keep: Vec<Keep>,
    form: Form,
}

/// What the bytes are of.
#[derive(Debug)]
pub(super) enum Form {
    /// A column of this type (a dictionary's value type).
    Plain(DataType),
    /// One column of the rows of these.
    Row(Arc<Ordered>, usize),
}

impl Form {
    /// Checks that bytes of a file can be given as a result of this form.
    fn check(&self, bytes: &[u8]) -> Result<(), Damaged> {
        let (fits, expected) = match self {
            Self::Plain(text @ (DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)) => {
                (str::from_utf8(bytes).is_ok(), text.to_string())
            }
            Self::Plain(sized @ DataType::FixedSizeBinary(size)) => {
                (usize::try_from(*size) == Ok(bytes.len()), sized.to_string())
            }
            Self::Plain(_) => return Ok(()),
            Self::Row(rows, _) => return rows.check(bytes),
        };
        if fits {
            return Ok(());
        }
        Err(Damaged::new(expected, format!("{} other bytes", bytes.len())))
    }
}

impl Bytes {
    /// Keeps what is asked for.
    pub(super) fn new(wanted: &[Part], form: Form) -> Self {
        let has = |part| wanted.contains(&part);
        let keep = [(Part::Min, Keep::Smallest), (Part::Max, Keep::Largest)];
        Self {
            rows: has(Part::Rows),
            values: has(Part::Values),
            keep: keep.into_iter().filter(|(part, _)| has(*part)).map(|(_, keep)| keep).collect(),
            form,
        }
    }

    /// First word of the kept byte strings.
    fn first(&self) -> usize {
        usize::from(self.rows) + usize::from(self.values)
    }

    fn place_of(&self, keep: Keep) -> usize {
        let nth = self.keep.iter().position(|kept| *kept == keep).expect("asked for in `new`");
        self.first() + 2 * nth + 1
    }

    #[inline(always)]
    fn step(&self, state: &mut [u64], store: &mut ByteStore, bytes: &[u8]) {
        if self.values {
            state[usize::from(self.rows)] += 1;
        }
        for (keep, state) in self.keep.iter().zip(state[self.first()..].chunks_exact_mut(2)) {
            keep.offer(state, store, bytes);
        }
    }
}

impl Accumulator for Bytes {
    fn words(&self) -> usize {
        self.first() + 2 * self.keep.len()
    }

    fn init(&self, state: &mut [u64]) {
        state.fill(0);
    }

    fn new_side(&self) -> Side {
        Side::Bytes(ByteStore::default())
    }

    fn update(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        side: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        assert_eq!(rows.len(), selection.len(), "one row for each selected row of the batch");
        let (bytes, nulls) = parts(column);
        let into = Into::Rows { rows, offset };
        bytes.visit(Update { bytes: self, nulls, into, store: store_mut(side), selection });
    }

    fn update_dense(
        &self,
        _: Isa,
        state: &mut [u64],
        side: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        let (bytes, nulls) = parts(column);
        let into = Into::One(state);
        bytes.visit(Update { bytes: self, nulls, into, store: store_mut(side), selection });
    }

    fn merge(
        &self,
        into: &mut Rows<'_>,
        into_side: &mut Side,
        from: &Rows<'_>,
        from_side: &Side,
        offset: usize,
    ) {
        assert_eq!(into.len(), from.len(), "merged row by row");
        let (first, words) = (self.first(), self.words());
        into.for_each(offset, words, |k, into| {
            let from = from.state(k, offset, words);
            for count in 0..first {
                into[count] += from[count];
            }
            let pairs = into[first..].chunks_exact_mut(2).zip(from[first..].chunks_exact(2));
            for (keep, (into, from)) in self.keep.iter().zip(pairs) {
                if from[1] != 0 {
                    keep.offer(into, store_mut(into_side), store(from_side).get(from[1]));
                }
            }
        });
    }

    fn emit(
        &self,
        part: Part,
        rows: &Rows<'_>,
        offset: usize,
        side: &Side,
    ) -> Result<ArrayRef, Misfit> {
        let states = States { rows, offset, words: self.words() };
        let keep = match part {
            Part::Rows => return Ok(states.counts(0)),
            Part::Values => return Ok(states.counts(usize::from(self.rows))),
            Part::Min => Keep::Smallest,
            Part::Max => Keep::Largest,
            part => unreachable!("{part:?} of bytes"),
        };
        let place = self.place_of(keep);
        let store = store(side);
        let values = states.iter().map(|state| match state[place] {
            0 => None,
            place => Some(store.get(place)),
        });
        let nulls = states.nulls(|state| state[place] != 0);
        Ok(match &self.form {
            Form::Plain(data_type) => array(data_type, values, nulls),
            Form::Row(rows, field) => rows.decode(values, *field),
        })
    }

    fn save(
        &self,
        rows: &Rows<'_>,
        offset: usize,
        side: &Side,
    ) -> Result<Option<LargeBinaryArray>, Unsaved> {
        let store = store(side);
        save_each(rows.len(), |k, out| {
            let state = rows.state(k, offset, self.words());
            let places = state[self.first()..].chunks_exact(2).map(|kept| kept[1]);
            let mut places = places.filter(|place| *place != 0).peekable();
            let any = places.peek().is_some();
            while let Some(place) = places.next() {
                let bytes = store.get(place);
                match places.peek() {
                    Some(_) => put_bytes(out, bytes),
                    None => out.extend_from_slice(bytes),
                }
            }
            Ok(any)
        })
    }

    fn restore(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        side: &mut Side,
        saved: Option<&LargeBinaryArray>,
    ) -> Result<(), Damaged> {
        let (store, first) = (store_mut(side), self.first());
        restore_each(rows, (offset, self.words()), saved, |state, bytes| {
            state[..first].iter().try_for_each(|count| check_count(*count))?;
            let mut left = state[first..].chunks_exact(2).filter(|kept| kept[1] != 0).count();
            let mut reader = if left > 0 { some_bytes(bytes)? } else { Reader::new(&[]) };
            if left == 0 {
                no_bytes(bytes)?;
            }
            for kept in state[first..].chunks_exact_mut(2) {
                if kept[1] == 0 {
                    kept[0] = 0;
                    continue;
                }
                left -= 1;
                let bytes = if left == 0 { reader.take_rest() } else { reader.take_bytes()? };
                self.form.check(bytes)?;
                kept[0] = prefix(bytes);
                kept[1] = store.put(0, bytes);
            }
            Ok(())
        })
    }
}

fn parts(column: Option<&Column>) -> (&crate::column::BytesColumn, Option<&NullBuffer>) {
    let column = column.expect("bytes have a column");
    let Lane::Bytes(bytes) = &column.values else {
        unreachable!("a column has the lane of its type")
    };
    (bytes, column.nulls.as_ref())
}

enum Into<'a, 'r> {
    Rows { rows: &'a mut Rows<'r>, offset: usize },
    One(&'a mut [u64]),
}

/// An update on its way to the array's form.
struct Update<'a, 'r> {
    bytes: &'a Bytes,
    nulls: Option<&'a NullBuffer>,
    into: Into<'a, 'r>,
    store: &'a mut ByteStore,
    selection: &'a [u32],
}

impl BytesVisitor for Update<'_, '_> {
    type Output = ();

    fn visit<A: BytesArray>(self, array: &A) {
        let Self { bytes, nulls, into, store, selection } = self;
        let mut step = |state: &mut [u64], row: u32| {
            let row = row as usize;
            state[0] += u64::from(bytes.rows);
            if nulls.is_none_or(|nulls| nulls.is_valid(row)) {
                bytes.step(state, store, array.bytes(row));
            }
        };
        match into {
            Into::Rows { rows, offset } => {
                rows.for_each(offset, bytes.words(), |k, state| step(state, selection[k]));
            }
            Into::One(state) => selection.iter().for_each(|row| step(state, *row)),
        }
    }
}

/// An array of type `data_type` of `values`.
fn array<'a>(
    data_type: &DataType,
    values: impl Iterator<Item = Option<&'a [u8]>>,
    nulls: Option<NullBuffer>,
) -> ArrayRef {
    let texts = |value: Option<&'a [u8]>| {
        value.map(|bytes| std::str::from_utf8(bytes).expect("it came from a text column"))
    };
    match data_type {
        DataType::Utf8 => Arc::new(values.map(texts).collect::<StringArray>()),
        DataType::LargeUtf8 => Arc::new(values.map(texts).collect::<LargeStringArray>()),
        DataType::Utf8View => Arc::new(values.map(texts).collect::<StringViewArray>()),
        DataType::Binary => Arc::new(values.collect::<BinaryArray>()),
        DataType::LargeBinary => Arc::new(values.collect::<LargeBinaryArray>()),
        DataType::BinaryView => Arc::new(values.collect::<BinaryViewArray>()),
        DataType::FixedSizeBinary(size) => {
            let width = usize::try_from(*size).expect("a size is not negative");
            let mut bytes = Vec::new();
            values.for_each(|value| match value {
                Some(value) => bytes.extend_from_slice(value),
                None => bytes.resize(bytes.len() + width, 0),
            });
            Arc::new(FixedSizeBinaryArray::new(*size, bytes.into(), nulls))
        }
        other => unreachable!("{other} is not text or binary"),
    }
}
