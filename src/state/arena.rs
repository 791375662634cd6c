//! Bytes of long keys, append-only, in chunks that never move.
#![allow(unsafe_code, reason = "bytes are written to chunks that readers share")]

use std::sync::Arc;

use super::readable::{BYTE_CHUNKS_MAX, Readable};
use crate::sys::WordChunk;

/// Bytes of the first chunk; later ones double up to [`CHUNK_MAX`].
const CHUNK_MIN: usize = 4 << 10;
const CHUNK_MAX: usize = 1 << 20;
/// The same where readers know all chunks by number, of which there are few.
const CHUNK_MAX_READABLE: usize = 1 << 30;

/// Append-only bytes. A place is a chunk number (high 32 bits) and an offset (low 32 bits).
#[derive(Debug, Default)]
pub(crate) struct Arena {
    chunks: Vec<Chunk>,
    /// The chunk being filled; those after it are empty, kept from an earlier use.
    current: usize,
    /// Capacity of all chunks.
    reserved: usize,
}

#[derive(Debug)]
struct Chunk {
    memory: Arc<WordChunk>,
    /// Bytes in use.
    len: usize,
}

impl Chunk {
    fn room(&self) -> usize {
        self.memory.len() * size_of::<u64>() - self.len
    }
}

impl Arena {
    /// Appends `bytes` and returns their place; readers see new chunks in `readable`.
    pub(crate) fn push(&mut self, bytes: &[u8], readable: Option<&Readable>) -> u64 {
        while self.current < self.chunks.len() {
            if self.chunks[self.current].room() >= bytes.len() {
                break;
            }
            self.current += 1;
        }
        if self.current == self.chunks.len() {
            self.grow(bytes.len(), readable);
        }
        let chunk = &mut self.chunks[self.current];
        let place = ((self.current as u64) << 32) | chunk.len as u64;
        // SAFETY: the bytes from `len` on are in no key: `get` gives only those before it, borrowed from `self`, and
        // readers know only places that were published after they had been written. `&mut self` keeps other
        // writers out, and a chunk whose `len` was set back is seen by nobody else (`clear`).
        unsafe { chunk.memory.write_bytes(chunk.len, bytes) };
        chunk.len += bytes.len();
        place
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self, least: usize, readable: Option<&Readable>) {
        let most = if readable.is_some() { CHUNK_MAX_READABLE } else { CHUNK_MAX };
        let size = (CHUNK_MIN << self.current.min(18)).min(most).max(least);
        let memory = Arc::new(WordChunk::new(size.div_ceil(size_of::<u64>())));
        if let Some(readable) = readable {
            assert!(self.current < BYTE_CHUNKS_MAX, "long keys of a window take 46 GiB at most");
            readable.add_bytes(&memory);
        }
        self.reserved += memory.len() * size_of::<u64>();
        self.chunks.push(Chunk { memory, len: 0 });
    }

    /// The `len` bytes at `place`.
    #[inline]
    pub(crate) fn get(&self, place: u64, len: usize) -> &[u8] {
        #[expect(clippy::cast_possible_truncation, reason = "a place is taken apart")]
        let (chunk, offset) = ((place >> 32) as usize, place as u32 as usize);
        self.chunks[chunk].memory.bytes(offset, len)
    }

    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        self.chunks.iter().map(|chunk| chunk.len).sum()
    }

    /// Bytes of memory taken, in use or not.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Bytes of memory that `bytes` more take at most.
    pub(crate) fn growth(&self, bytes: usize) -> usize {
        // The last new chunk may be as large as all before it, and what does not fit into the rest of a chunk leaves it
        // empty.
        let last = CHUNK_MAX.min(self.reserved + 2 * bytes + CHUNK_MIN);
        if bytes == 0 { 0 } else { 2 * bytes + last }
    }

    /// Forgets the bytes and keeps the memory. Nobody else may see it any more.
    pub(crate) fn clear(&mut self) {
        self.chunks.iter_mut().for_each(|chunk| chunk.len = 0);
        self.current = 0;
    }
}
