//! Bytes of long keys, append-only, in chunks that never move.

/// Bytes of the first chunk; later ones double up to [`CHUNK_MAX`].
const CHUNK_MIN: usize = 4 << 10;
const CHUNK_MAX: usize = 1 << 20;

/// Append-only bytes. A place is a chunk number (high 32 bits) and an offset (low 32 bits).
#[derive(Debug, Default)]
pub(crate) struct Arena {
    chunks: Vec<Vec<u8>>,
    /// The chunk being filled; those after it are empty, kept from an earlier use.
    current: usize,
    /// Capacity of all chunks.
    reserved: usize,
}

impl Arena {
    /// Appends `bytes` and returns their place.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> u64 {
        while self.current < self.chunks.len() {
            let chunk = &self.chunks[self.current];
            if chunk.capacity() - chunk.len() >= bytes.len() {
                break;
            }
            self.current += 1;
        }
        if self.current == self.chunks.len() {
            let size = (CHUNK_MIN << self.current.min(8)).min(CHUNK_MAX).max(bytes.len());
            self.chunks.push(Vec::with_capacity(size));
            self.reserved += size;
        }
        let chunk = &mut self.chunks[self.current];
        let place = ((self.current as u64) << 32) | chunk.len() as u64;
        chunk.extend_from_slice(bytes);
        place
    }

    /// The `len` bytes at `place`.
    #[inline]
    pub(crate) fn get(&self, place: u64, len: usize) -> &[u8] {
        #[expect(clippy::cast_possible_truncation, reason = "a place is taken apart")]
        let (chunk, offset) = ((place >> 32) as usize, place as u32 as usize);
        &self.chunks[chunk][offset..offset + len]
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.iter().map(Vec::len).sum()
    }

    /// Bytes of memory taken, in use or not.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Bytes of memory that `bytes` more take at most.
    pub(crate) fn growth(&self, bytes: usize) -> usize {
        if bytes == 0 { 0 } else { bytes + CHUNK_MAX.min(self.reserved.max(CHUNK_MIN)) }
    }

    /// Forgets the bytes and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.chunks.iter_mut().for_each(Vec::clear);
        self.current = 0;
    }
}
