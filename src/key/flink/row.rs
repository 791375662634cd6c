//! Keys of Flink SQL: a binary row, and the hash of its bytes.
//!
//! A row begins with a byte for its kind (0) and a bit a field for NULL, in whole words of 8 bytes; then one
//! word a field, which holds a number, a text of up to 7 bytes, or where in the row's tail a longer text is.

use crate::kernel::Kernel;

/// Longest text that lies within its field's word.
const INLINE_BYTES: usize = 7;

/// Seed of the hash.
const SEED: u32 = 42;

#[inline(always)]
fn mix(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

#[inline(always)]
#[expect(clippy::cast_possible_wrap, reason = "bits, as in Java")]
fn finish(hash: u32, length: u32) -> i32 {
    super::bit_mix((hash ^ length) as i32)
}

/// Hash of a row's bytes, as Flink's `MurmurHashUtils.hashBytesByWords` with its seed: `MurmurHash3` (Appleby)
/// of 32 bits.
#[expect(clippy::cast_possible_truncation, reason = "a key is shorter than 4 GB")]
pub fn hash_bytes(bytes: &[u8]) -> i32 {
    let (words, rest) = bytes.as_chunks::<4>();
    debug_assert!(rest.is_empty(), "rows are whole words");
    let hash = words.iter().fold(SEED, |hash, word| mix(hash, u32::from_le_bytes(*word)));
    finish(hash, bytes.len() as u32)
}

/// Hash of a row of one field that is not NULL and lies within its word.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "halves of a word")]
pub(super) fn hash_word(word: u64) -> i32 {
    let empty = mix(mix(SEED, 0), 0);
    finish(mix(mix(empty, word as u32), (word >> 32) as u32), 16)
}

/// The word of a text that lies within it.
#[inline(always)]
pub(super) fn inline_text(text: &[u8]) -> Option<u64> {
    if text.len() > INLINE_BYTES {
        return None;
    }
    let mut word = [0; 8];
    word[..text.len()].copy_from_slice(text);
    let length = text.len() as u64 | 0x80;
    Some(u64::from_le_bytes(word) | (length << 56))
}

/// Writes binary rows, one after the other, into the same memory.
#[derive(Debug)]
pub struct RowWriter {
    bytes: Vec<u8>,
    nulls: usize,
    fields: usize,
    next: usize,
}

impl RowWriter {
    /// A writer of rows with so many fields.
    pub fn new(fields: usize) -> Self {
        let nulls = (fields + 8).div_ceil(64) * 8;
        let mut writer = Self { bytes: Vec::new(), nulls, fields, next: 0 };
        writer.start();
        writer
    }

    /// Begins a row, in which every field is still to be written.
    pub fn start(&mut self) {
        self.bytes.clear();
        self.bytes.resize(self.nulls + 8 * self.fields, 0);
        self.next = 0;
    }

    /// The next field is NULL.
    pub fn null(&mut self) {
        let bit = self.next + 8;
        self.bytes[bit / 8] |= 1 << (bit % 8);
        self.next += 1;
    }

    /// The next field is a number, in the low bytes of a word.
    pub fn word(&mut self, word: u64) {
        let at = self.nulls + 8 * self.next;
        self.bytes[at..at + 8].copy_from_slice(&word.to_le_bytes());
        self.next += 1;
    }

    /// The next field is a text.
    pub fn text(&mut self, text: &[u8]) {
        if let Some(word) = inline_text(text) {
            return self.word(word);
        }
        self.word(((self.bytes.len() as u64) << 32) | text.len() as u64);
        self.bytes.extend_from_slice(text);
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
    }

    /// The row's bytes.
    pub fn bytes(&self) -> &[u8] {
        debug_assert_eq!(self.next, self.fields, "every field is written");
        &self.bytes
    }
}

/// Hashes of rows of one field, from its words.
#[derive(Debug)]
pub(super) struct WordRowHashes<'a, W> {
    pub(super) words: W,
    pub(super) hashes: &'a mut [i32],
}

impl<W: IntoIterator<Item = u64>> Kernel for WordRowHashes<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (hash, word) in self.hashes.iter_mut().zip(self.words) {
            *hash = hash_word(word);
        }
    }
}
