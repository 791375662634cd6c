//! How state is saved beside the words of the rows, and taken back.
//!
//! The words of a row are saved as they are by whoever saves a pane. Where they refer to the pane's side store,
//! an accumulator gives one byte string for each row besides; a row without any is null, and if all are, there
//! is none at all. Numbers are little-endian. A *length* is LEB128: seven bits a byte, low ones first, the highest
//! bit of a byte says that more follow; no more bytes than needed.
//!
//! What a row has:
//!
//! - sum or mean of floats beyond its window: the spill, 34 words;
//! - moments beyond their windows: for each sum that has one, in the order of the words, its spill, 67 words;
//! - min and max of text or binary, `first`, `last`, `arg_min`, `arg_max`: those there are, min first, all
//!   but the last behind their length;
//! - different values of 64 bits: the words of the canonical keys, ascending;
//! - different values of other kinds: their number (a length), then for each its length and bytes, in the order of
//!   hash and bytes;
//! - `approx_distinct`: 0 and the hashes, ascending; or 1 and the 4,096 registers;
//! - quantiles: 0 and the places of the values, ascending; or 1, count, least and greatest place, then for
//!   each power of two, ascending, its number (16 bits), which of its 64 buckets are not empty (64 bits), and the
//!   counts of those (64 bits each);
//! - `top_n`, `bottom_n`: for each row, best first, its length and bytes;
//! - `mode`: the number of values (a length), then for each its length, bytes and how often (a length), in the
//!   order of hash and bytes;
//! - custom aggregates: what they write.
//!
//! These are functions of what was seen, whatever the order, but for spills: when a part of a sum goes to the spill
//! depends on the order, and only window and spill together do not. Large sets that were spread over shards are
//! saved as one, so that they can be taken back by any number of shards.
//!
//! Bytes that come back may be damaged, so everything is checked that a later panic could come from: what does
//! not hold here is an error, or the state of something else that might have been seen.

use std::fmt;

use arrow::array::{Array, LargeBinaryArray};
use arrow::buffer::{NullBuffer, OffsetBuffer};

use crate::state::rows::Rows;

/// Why a state cannot be saved, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unsaved(pub(crate) String);

impl fmt::Display for Unsaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Saved state that no state is saved as; the caller knows file, pane and aggregate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damaged {
    /// Which of the rows; none if it is not about one.
    pub(crate) row: Option<usize>,
    /// What there should have been.
    pub(crate) expected: String,
    /// What there was.
    pub(crate) found: String,
}

impl Damaged {
    pub(super) fn new(expected: impl Into<String>, found: impl Into<String>) -> Self {
        Self { row: None, expected: expected.into(), found: found.into() }
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(row) = self.row {
            write!(f, "row {row}: ")?;
        }
        write!(f, "expected {}, found {}", self.expected, self.found)
    }
}

/// Most rows or values that a count may say it has seen: enough for two years at a billion a second, and so few
/// that counts and sums of 64-bit numbers taken back can be added up without a thought.
const COUNT_MAX: u64 = 1 << 56;

/// Checks a count.
pub(super) fn check_count(count: u64) -> Result<(), Damaged> {
    if count <= COUNT_MAX {
        return Ok(());
    }
    Err(Damaged::new(format!("a count of at most {COUNT_MAX}"), count.to_string()))
}

/// Checks a sum of at most [`COUNT_MAX`] numbers of 64 bits.
pub(super) fn check_sum(sum: i128) -> Result<(), Damaged> {
    const SUM_MAX: u128 = (COUNT_MAX as u128) << 64;
    if sum.unsigned_abs() <= SUM_MAX {
        return Ok(());
    }
    Err(Damaged::new(format!("a sum of at most {SUM_MAX}"), sum.to_string()))
}

/// Saves `rows` rows: `save(k, out)` appends the bytes of the `k`-th and answers whether it has any.
pub(super) fn save_each(
    rows: usize,
    mut save: impl FnMut(usize, &mut Vec<u8>) -> Result<bool, Unsaved>,
) -> Result<Option<LargeBinaryArray>, Unsaved> {
    let mut bytes = Vec::new();
    let mut offsets = vec![0];
    let mut valid = Vec::with_capacity(rows);
    for k in 0..rows {
        let has_any = save(k, &mut bytes)?;
        valid.push(has_any);
        offsets.push(i64::try_from(bytes.len()).expect("memory is smaller than 2^63 bytes"));
    }
    let nulls = NullBuffer::from(valid);
    if nulls.null_count() == rows {
        return Ok(None);
    }
    let nulls = Some(nulls).filter(|nulls| nulls.null_count() > 0);
    let offsets = OffsetBuffer::new(offsets.into());
    Ok(Some(LargeBinaryArray::new(offsets, bytes.into(), nulls)))
}

/// Takes rows back: `restore(state, bytes)` of the words of each and what was saved for it. Ends at the first error;
/// then the rows and their side store are to be given up.
pub(super) fn restore_each(
    rows: &mut Rows<'_>,
    (offset, words): (usize, usize),
    saved: Option<&LargeBinaryArray>,
    mut restore: impl FnMut(&mut [u64], Option<&[u8]>) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    if let Some(saved) = saved.filter(|saved| saved.len() != rows.len()) {
        let found = format!("those of {}", saved.len());
        return Err(Damaged::new(format!("the states of {} rows", rows.len()), found));
    }
    let mut result = Ok(());
    rows.for_each(offset, words, |k, state| {
        if result.is_ok() {
            let bytes = saved.filter(|saved| saved.is_valid(k)).map(|saved| saved.value(k));
            result = restore(state, bytes).map_err(|damaged| Damaged { row: Some(k), ..damaged });
        }
    });
    result
}

/// Takes back rows whose words are all there is; `check` says which words can be.
pub(super) fn restore_words(
    rows: &mut Rows<'_>,
    at: (usize, usize),
    saved: Option<&LargeBinaryArray>,
    check: impl Fn(&[u64]) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    restore_each(rows, at, saved, |state, bytes| {
        no_bytes(bytes)?;
        check(state)
    })
}

/// Checks that nothing was saved for a row whose words are all there is.
pub(super) fn no_bytes(bytes: Option<&[u8]>) -> Result<(), Damaged> {
    match bytes {
        None => Ok(()),
        Some(bytes) => {
            let found = format!("{} bytes", bytes.len());
            Err(Damaged::new("nothing beside the words of the row", found))
        }
    }
}

/// The bytes of a row whose words refer to some.
pub(super) fn some_bytes(bytes: Option<&[u8]>) -> Result<Reader<'_>, Damaged> {
    let bytes = bytes.ok_or_else(|| Damaged::new("a state beside the words of the row", "none"))?;
    Ok(Reader::new(bytes))
}

/// Appends words.
pub(super) fn put_words(out: &mut Vec<u8>, words: impl IntoIterator<Item = u64>) {
    words.into_iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

/// Appends a length.
pub(super) fn put_len(out: &mut Vec<u8>, mut len: u64) {
    while len >= 0x80 {
        out.push(len.to_le_bytes()[0] | 0x80);
        len >>= 7;
    }
    out.push(len.to_le_bytes()[0]);
}

/// Appends bytes behind their length.
pub(super) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what was saved, from the front.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader<'a> {
    left: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self { left: bytes }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.left.is_empty()
    }

    /// Bytes not read yet.
    pub(super) const fn left(&self) -> usize {
        self.left.len()
    }

    /// Everything that is left.
    pub(super) fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.left)
    }

    pub(super) fn take(&mut self, len: u64) -> Result<&'a [u8], Damaged> {
        let taken = usize::try_from(len).ok().and_then(|len| self.left.split_at_checked(len));
        let Some((taken, left)) = taken else {
            let found = format!("the end after {}", self.left.len());
            return Err(Damaged::new(format!("{len} more bytes"), found));
        };
        self.left = left;
        Ok(taken)
    }

    fn take_array<const N: usize>(&mut self) -> Result<[u8; N], Damaged> {
        Ok(self.take(N as u64)?.try_into().expect("so many were taken"))
    }

    pub(super) fn take_u8(&mut self) -> Result<u8, Damaged> {
        self.take_array().map(u8::from_le_bytes)
    }

    pub(super) fn take_u16(&mut self) -> Result<u16, Damaged> {
        self.take_array().map(u16::from_le_bytes)
    }

    pub(super) fn take_u64(&mut self) -> Result<u64, Damaged> {
        self.take_array().map(u64::from_le_bytes)
    }

    /// `N` words.
    pub(super) fn take_words<const N: usize>(&mut self) -> Result<[u64; N], Damaged> {
        let mut words = [0; N];
        for word in &mut words {
            *word = self.take_u64()?;
        }
        Ok(words)
    }

    /// Everything that is left, as words in strictly ascending (`strictly`) or ascending order.
    pub(super) fn rest_ascending(&mut self, strictly: bool) -> Result<Vec<u64>, Damaged> {
        let (words, rest) = self.take_rest().as_chunks();
        if !rest.is_empty() {
            return Err(Damaged::new("whole words", format!("{} bytes after them", rest.len())));
        }
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let in_order = |a: &u64, b: &u64| if strictly { a < b } else { a <= b };
        if !words.is_sorted_by(in_order) {
            return Err(Damaged::new("words in ascending order", "another order"));
        }
        Ok(words)
    }

    /// A length.
    pub(super) fn take_len(&mut self) -> Result<u64, Damaged> {
        let mut len = 0_u64;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.take_u8()?;
            let bits = u64::from(byte & 0x7f);
            let is_last = byte & 0x80 == 0;
            if bits << shift >> shift != bits || (is_last && bits == 0 && shift > 0) {
                break;
            }
            len |= bits << shift;
            if is_last {
                return Ok(len);
            }
        }
        Err(Damaged::new("a length", "more bytes than the length needs"))
    }

    /// A number of things that take at least a byte each of what follows.
    pub(super) fn take_number(&mut self) -> Result<usize, Damaged> {
        let number = self.take_len()?;
        let fits = usize::try_from(number).ok().filter(|number| *number <= self.left.len());
        fits.ok_or_else(|| {
            let found = format!("{number} of them announced");
            Damaged::new(format!("values in {} bytes", self.left.len()), found)
        })
    }

    /// Bytes behind their length.
    pub(super) fn take_bytes(&mut self) -> Result<&'a [u8], Damaged> {
        let len = self.take_len()?;
        self.take(len)
    }

    /// Checks that nothing is left.
    pub(super) fn finish(self) -> Result<(), Damaged> {
        if self.left.is_empty() {
            return Ok(());
        }
        Err(Damaged::new("the end", format!("{} more bytes", self.left.len())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_come_back_and_have_one_form() {
        for len in
            [0, 1, 127, 128, 300, 16_383, 16_384, u64::from(u32::MAX), u64::MAX - 1, u64::MAX]
        {
            let mut bytes = Vec::new();
            put_len(&mut bytes, len);
            let mut reader = Reader::new(&bytes);
            assert_eq!(reader.take_len(), Ok(len));
            reader.finish().unwrap();
            for end in 0..bytes.len() {
                assert!(Reader::new(&bytes[..end]).take_len().is_err(), "{len} cut off at {end}");
            }
        }
        let too_many = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x03];
        for wrong in [&[0x80, 0x00][..], &[0xff, 0x80, 0x00], &too_many, &[0xff; 12]] {
            assert!(Reader::new(wrong).take_len().is_err(), "{wrong:x?}");
        }
    }

    #[test]
    fn a_reader_says_what_is_missing() {
        let mut reader = Reader::new(&[7, 1, 2]);
        let error = reader.clone().take_bytes().unwrap_err();
        assert_eq!(error.to_string(), "expected 7 more bytes, found the end after 2");
        assert_eq!(reader.take_u8(), Ok(7));
        assert!(reader.clone().take_u64().is_err() && reader.clone().take(u64::MAX).is_err());
        assert_eq!(reader.take_u16(), Ok(0x0201));
        assert!(reader.is_empty() && Reader::new(&[9, 0]).take_number().is_err());
        let error = Reader::new(&[1]).finish().unwrap_err();
        assert_eq!(error.to_string(), "expected the end, found 1 more bytes");
    }
}
