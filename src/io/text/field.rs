//! Where the fields of a batch of records are.

use crate::io::text::value::Fault;

/// A field's text: a range of the chunk, or of the batch's scratch text if it had to be rewritten
/// (escapes). Eight bytes, since a batch has rows * columns of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Field {
    at: u32,
    /// Length; the highest bit says that it is in the scratch text. All ones is null.
    len: u32,
}

const SCRATCH: u32 = 1 << 31;

impl Field {
    pub(crate) const NULL: Self = Self { at: 0, len: u32::MAX };

    /// A range of the chunk. Chunks hold at most one record above the chunk size, so 32 bits do.
    #[inline]
    pub(crate) fn in_chunk(start: usize, end: usize) -> Self {
        debug_assert!(end < SCRATCH as usize);
        #[expect(clippy::cast_possible_truncation, reason = "chunks are below 2^31 bytes")]
        Self { at: start as u32, len: (end - start) as u32 }
    }

    /// A range of the scratch text.
    pub(crate) fn in_scratch(start: usize, end: usize) -> Self {
        let mut field = Self::in_chunk(start, end);
        field.len |= SCRATCH;
        field
    }

    #[inline]
    pub(crate) fn is_null(self) -> bool {
        self.len == u32::MAX
    }

    pub(crate) fn byte_len(self) -> usize {
        (self.len & !SCRATCH) as usize
    }

    #[inline]
    pub(crate) fn is_empty(self) -> bool {
        self.len & !SCRATCH == 0
    }
}

/// The bytes that fields point into.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Texts<'a> {
    pub(crate) chunk: &'a [u8],
    /// The chunk as text if all of it is UTF-8; then no field needs a check of its own.
    pub(crate) utf8: Option<&'a str>,
    pub(crate) scratch: &'a [u8],
}

impl<'a> Texts<'a> {
    #[inline]
    pub(crate) fn bytes(&self, field: Field) -> &'a [u8] {
        let (at, len) = (field.at as usize, (field.len & !SCRATCH) as usize);
        let text = if field.len & SCRATCH == 0 { self.chunk } else { self.scratch };
        &text[at..at + len]
    }

    #[inline]
    pub(crate) fn text(&self, field: Field) -> Result<&'a str, Fault> {
        if let (Some(text), true) = (self.utf8, field.len & SCRATCH == 0) {
            let (at, len) = (field.at as usize, field.len as usize);
            return text.get(at..at + len).ok_or(Fault::NotUtf8);
        }
        std::str::from_utf8(self.bytes(field)).map_err(|_| Fault::NotUtf8)
    }
}

/// The records of a batch: their places and the fields of the wanted columns, row by row.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    /// Fields, `width` of them a row.
    pub(crate) fields: Vec<Field>,
    pub(crate) width: usize,
    /// Start and end of each record in the chunk, without its line break.
    pub(crate) places: Vec<(u32, u32)>,
    /// Rewritten text of fields.
    pub(crate) scratch: Vec<u8>,
    /// Records that have no row: place, reason.
    pub(crate) broken: Vec<Broken>,
}

/// A record that has no row.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) place: (u32, u32),
    pub(crate) fault: BrokenBy,
}

/// What is wrong with a record as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum BrokenBy {
    /// It has this many fields instead of the header's.
    Ragged { found: usize, expected: usize },
    /// It is no JSON object, for this reason.
    Json(String),
}

impl Rows {
    pub(crate) fn new(width: usize) -> Self {
        Self { width, ..Self::default() }
    }

    pub(crate) fn clear(&mut self) {
        self.fields.clear();
        self.places.clear();
        self.scratch.clear();
        self.broken.clear();
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The fields of one column, top down.
    pub(crate) fn column(&self, index: usize) -> impl ExactSizeIterator<Item = Field> + '_ {
        self.fields.iter().skip(index).step_by(self.width.max(1)).copied()
    }
}

#[expect(clippy::cast_possible_truncation, reason = "chunks are below 2^31 bytes")]
pub(crate) fn place(start: usize, end: usize) -> (u32, u32) {
    (start as u32, end as u32)
}
