//! Keys of one batch in canonical form: one or two words a row, ready to be hashed and compared.
//!
//! A key of one number is one word. A key of bytes is two: its length with its first four bytes, then
//! either the next eight bytes (keys of up to [`INLINE_BYTES`] bytes are wholly inside) or, for longer
//! keys, the position of its bytes. Equal words mean equal keys, except for long keys, whose bytes are
//! compared too.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::DataType;

use super::hash::{NULL_HASH, hash_word};
use crate::kernel::{Isa, Kernel};

/// Byte keys of up to this length lie inside their two words (the layout of Arrow's views).
pub(crate) const INLINE_BYTES: usize = 12;

/// First word of a NULL byte key: a length no real key has.
pub(crate) const NULL_BYTES: u64 = u32::MAX as u64;

/// Keys of a batch.
#[derive(Debug, Default)]
pub(crate) struct KeyBatch {
    /// `width` words per row.
    pub(crate) words: KeyWords,
    /// Words per key: 1 or 2.
    pub(crate) width: usize,
    /// For keys of one word: which rows are not NULL; `None` if all are. A NULL has word 0.
    pub(crate) nulls: Option<NullBuffer>,
    /// For byte keys: where long keys are found.
    pub(crate) long: LongKeys,
    /// One hash per row, where [`Self::hashed`] or for the rows hashed by [`Self::hash_rows`].
    pub(crate) hashes: Vec<u64>,
    /// Whether all rows have been hashed.
    pub(crate) hashed: bool,
}

impl KeyBatch {
    /// Hash of the key of `row`, for keys of one word.
    #[inline(always)]
    pub(crate) fn hash_of_word(&self, row: usize) -> u64 {
        if self.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
            return NULL_HASH;
        }
        hash_word(self.words.as_slice()[row])
    }

    /// Hashes all rows, if that has not been done.
    pub(crate) fn hash_all(&mut self, isa: Isa) {
        if self.hashed {
            return;
        }
        self.hashed = true;
        let words = self.words.as_slice();
        self.hashes.resize(words.len(), 0);
        isa.run(HashWords { words, hashes: &mut self.hashes });
        if let Some(nulls) = &self.nulls {
            for (row, hash) in self.hashes.iter_mut().enumerate() {
                if nulls.is_null(row) {
                    *hash = NULL_HASH;
                }
            }
        }
    }

    /// Hashes `rows` only, if not all are hashed; for keys of one word.
    pub(crate) fn hash_rows(&mut self, rows: &[u32]) {
        if self.hashed {
            return;
        }
        let words = self.words.as_slice();
        self.hashes.resize(words.len(), 0);
        for &row in rows {
            let row = row as usize;
            self.hashes[row] = match &self.nulls {
                Some(nulls) if nulls.is_null(row) => NULL_HASH,
                _ => hash_word(words[row]),
            };
        }
    }

    /// Gives the bytes of the byte key of `row`, or `None` for NULL, to `visit`.
    pub(crate) fn visit_bytes(&self, row: usize, visit: &mut dyn FnMut(Option<&[u8]>)) {
        let words = self.words.as_slice();
        let (w0, w1) = (words[2 * row], words[2 * row + 1]);
        if w0 == NULL_BYTES {
            visit(None);
        } else if is_long(w0) {
            visit(Some(self.long.bytes(w0, w1)));
        } else {
            visit(Some(&short_bytes(w0, w1)[..key_len(w0)]));
        }
    }
}

/// Hashes keys of one word.
#[derive(Debug)]
struct HashWords<'a> {
    words: &'a [u64],
    hashes: &'a mut [u64],
}

impl Kernel for HashWords<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (hash, word) in self.hashes.iter_mut().zip(self.words) {
            *hash = hash_word(*word);
        }
    }
}

/// Words of a batch, lent from the input or written for it.
#[derive(Debug)]
pub(crate) enum KeyWords {
    /// The input's own column.
    Lent(ScalarBuffer<u64>),
    /// Written by the encoder; the memory is kept from batch to batch.
    Own(Vec<u64>),
}

impl Default for KeyWords {
    fn default() -> Self {
        Self::Own(Vec::new())
    }
}

impl KeyWords {
    /// All words.
    #[inline(always)]
    pub(crate) fn as_slice(&self) -> &[u64] {
        match self {
            Self::Lent(words) => words,
            Self::Own(words) => words,
        }
    }

    /// An empty vector to write to, reusing memory if there is any.
    pub(crate) fn start(&mut self) -> &mut Vec<u64> {
        if let Self::Lent(_) = self {
            *self = Self::Own(Vec::new());
        }
        match self {
            Self::Own(words) => {
                words.clear();
                words
            }
            Self::Lent(_) => unreachable!("replaced just above"),
        }
    }
}

/// Bytes of the keys that are too long for their words.
#[derive(Debug, Default)]
pub(crate) enum LongKeys {
    /// Keys are numbers, or none is long.
    #[default]
    None,
    /// The second word is an offset into this buffer.
    Lent(Buffer),
    /// The second word is a row of this array of views.
    Views(ArrayRef),
    /// The second word is an offset into bytes written by the encoder.
    Own(Vec<u8>),
}

impl LongKeys {
    /// Bytes of the long key with these words.
    #[inline]
    pub(crate) fn bytes(&self, w0: u64, w1: u64) -> &[u8] {
        let (len, start) = (key_len(w0), usize::try_from(w1).expect("offsets fit into memory"));
        match self {
            Self::None => unreachable!("a long key without its bytes"),
            Self::Lent(buffer) => &buffer.as_slice()[start..start + len],
            Self::Own(bytes) => &bytes[start..start + len],
            Self::Views(array) => match array.data_type() {
                DataType::Utf8View => array.as_string_view().value(start).as_bytes(),
                _ => array.as_binary_view().value(start),
            },
        }
    }

    /// An empty vector to write to, reusing memory if there is any.
    pub(crate) fn start(&mut self) -> &mut Vec<u8> {
        if !matches!(self, Self::Own(_)) {
            *self = Self::Own(Vec::new());
        }
        match self {
            Self::Own(bytes) => {
                bytes.clear();
                bytes
            }
            _ => unreachable!("replaced just above"),
        }
    }
}

/// Length of the byte key whose first word is `w0`.
#[inline(always)]
pub(crate) fn key_len(w0: u64) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "32 bits of it are meant")]
    let len = w0 as u32;
    len as usize
}

/// Whether the byte key lies outside its words.
#[inline(always)]
pub(crate) fn is_long(w0: u64) -> bool {
    key_len(w0) > INLINE_BYTES && w0 != NULL_BYTES
}

/// The words of the key `bytes[start..start + len]`, which is short; bytes after it in `bytes` are
/// read in one load where there are enough, and masked away.
#[inline(always)]
pub(crate) fn short_words(bytes: &[u8], start: usize, len: usize) -> [u64; 2] {
    debug_assert!(len <= INLINE_BYTES);
    let text = if let Some(wide) = bytes.get(start..start + 16) {
        let wide = u128::from_le_bytes(wide.try_into().expect("16 bytes"));
        wide & ((1_u128 << (8 * len)) - 1)
    } else {
        let mut padded = [0_u8; 16];
        padded[..len].copy_from_slice(&bytes[start..start + len]);
        u128::from_le_bytes(padded)
    };
    #[expect(clippy::cast_possible_truncation, reason = "the text is split over two words")]
    let words = [(len as u64) | ((text as u64) << 32), (text >> 32) as u64];
    words
}

/// The words of a long key that is found at `position`: length and first four bytes, then `position`.
#[inline(always)]
pub(crate) fn long_words(key: &[u8], position: usize) -> [u64; 2] {
    let prefix = u32::from_le_bytes(key[..4].try_into().expect("a long key has four bytes"));
    [key.len() as u64 | (u64::from(prefix) << 32), position as u64]
}

/// The bytes of a short key, in the first `key_len(w0)` bytes of the result.
#[inline]
pub(crate) fn short_bytes(w0: u64, w1: u64) -> [u8; INLINE_BYTES] {
    let mut bytes = [0; INLINE_BYTES];
    bytes[..4].copy_from_slice(&w0.to_le_bytes()[4..]);
    bytes[4..].copy_from_slice(&w1.to_le_bytes());
    bytes
}
