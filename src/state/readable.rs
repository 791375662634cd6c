//! What readers on other threads see of a table while its one writer writes.
//!
//! Everything is published before what refers to it: bytes of a long key and a chunk's address before the row, the
//! row's key before its index entry. Memory stays where it is; an index that has grown too small is kept for readers
//! that are still searching it. So a search needs no more than loads that see what was written before
//! (acquire), and ends at the row or where the key was not.
//!
//! The words of a row are a sequence lock (Boehm, "Can seqlocks get along with programming language memory models?",
//! 2012) whose number, the row's *stamp*, is that of the writer's chunk of rows: the writer stamps the rows of a chunk,
//! changes them in as many passes as there are accumulators, and then says that the chunk is done. A row whose stamp is
//! not done yet is being written; one whose stamp is the same after its words were copied was not touched meanwhile.
//!
//! **Invariant:** one writer. It may forget what is here only when it holds the last reference.
//!
//! Cost: for the writer a store for each row that it finds, in a line that it writes to anyway, and two for each
//! chunk; for a reader the cache misses of any search.
#![allow(unsafe_code, reason = "a reader reaches rows, index and bytes by address")]

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};

use crossbeam::utils::CachePadded;

use crate::key::batch::{is_long, key_len};
use crate::sys::WordChunk;

/// The stamp of a row that has a key, and nothing else yet.
pub(crate) const NEW: u64 = u64::MAX;

/// Most chunks of rows, and most sizes of an index: both are numbered by powers of two below 2^33.
const SIZES_MAX: usize = 33;

/// Most chunks of bytes of long keys.
pub(crate) const BYTE_CHUNKS_MAX: usize = 64;

/// How long a writer lets a reader have a row that it writes to all the time: about a microsecond.
const PAUSE_SPINS: u32 = 24;

/// A table as readers see it.
pub(crate) struct Readable {
    /// Words of a row; the last one is its stamp.
    stride: usize,
    /// Words of its key.
    width: usize,
    /// Rows of the first chunk; each later one doubles the total.
    first_chunk_rows: usize,
    progress: CachePadded<Progress>,
    /// Set by a reader that has tried for long.
    is_wanted: CachePadded<AtomicBool>,
    /// The index has two to the power of so many entries.
    index_bits: AtomicU32,
    /// By that power.
    indexes: [AtomicPtr<u64>; SIZES_MAX],
    /// For each chunk, where row 0 would lie if the chunk's rows went on downwards to it.
    origins: [AtomicPtr<u64>; SIZES_MAX],
    bytes: [AtomicPtr<u64>; BYTE_CHUNKS_MAX],
    /// The row of the NULL key of one word, and one; zero if there is none.
    null_row: AtomicU32,
    /// Owns what the addresses lead to. Only the writer takes it.
    memory: Mutex<Memory>,
}

/// What the writer changes with every chunk of rows.
#[derive(Default)]
struct Progress {
    /// The last chunk whose rows are done.
    done: AtomicU64,
    /// Rows with a stamp.
    len: AtomicU32,
    /// Of partials: rows that their owner has taken over, counted from the first.
    merged: AtomicU32,
}

#[derive(Default)]
struct Memory {
    rows: Vec<Arc<WordChunk>>,
    indexes: Vec<Arc<WordChunk>>,
    bytes: Vec<Arc<WordChunk>>,
}

/// A key that is looked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SoughtKey<'a> {
    pub(crate) hash: u64,
    /// As in a batch of keys; the second word of a long key counts for nothing.
    pub(crate) words: [u64; 2],
    /// The bytes of a long key.
    pub(crate) long: &'a [u8],
}

/// A row that was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FoundRow<'a> {
    pub(crate) id: u32,
    words: &'a [AtomicU64],
}

/// What came of copying a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copied {
    /// The words are those that the row had when it bore this stamp.
    Whole(u64),
    /// The row has a key and no state yet.
    New,
    /// It is being written.
    Torn,
}

impl fmt::Debug for Readable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readable").field("len", &self.len()).finish_non_exhaustive()
    }
}

fn no_addresses<const N: usize>() -> [AtomicPtr<u64>; N] {
    std::array::from_fn(|_| AtomicPtr::new(std::ptr::null_mut()))
}

/// The writer's side.
impl Readable {
    /// Of rows of `stride` words, the first `width` of which are the key.
    pub(crate) fn new(stride: usize, width: usize, first_chunk_rows: usize) -> Self {
        Self {
            stride,
            width,
            first_chunk_rows,
            progress: CachePadded::default(),
            is_wanted: CachePadded::default(),
            index_bits: AtomicU32::new(0),
            indexes: no_addresses(),
            origins: no_addresses(),
            bytes: no_addresses(),
            null_row: AtomicU32::new(0),
            memory: Mutex::default(),
        }
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Shows a chunk of rows, the next one.
    pub(crate) fn add_rows(&self, chunk: &Arc<WordChunk>, origin: *mut u64) {
        let mut memory = self.memory();
        self.origins[memory.rows.len()].store(origin, Ordering::Release);
        memory.rows.push(Arc::clone(chunk));
    }

    /// Shows an index that holds everything the one before it does.
    pub(crate) fn set_index(&self, index: &Arc<WordChunk>) {
        let bits = index.len().trailing_zeros();
        self.indexes[bits as usize].store(index.as_ptr().as_ptr(), Ordering::Release);
        self.memory().indexes.push(Arc::clone(index));
        self.index_bits.store(bits, Ordering::Release);
    }

    /// Shows a chunk of bytes, the next one.
    pub(crate) fn add_bytes(&self, chunk: &Arc<WordChunk>) {
        let mut memory = self.memory();
        self.bytes[memory.bytes.len()].store(chunk.as_ptr().as_ptr(), Ordering::Release);
        memory.bytes.push(Arc::clone(chunk));
    }

    /// Takes note of the row of the NULL key.
    pub(crate) fn set_null_row(&self, id: u32) {
        self.null_row.store(id + 1, Ordering::Release);
    }

    /// Says that all rows of the chunk are as they should be, and gives way to a reader that asked for it.
    #[inline]
    pub(crate) fn complete(&self, chunk: u64, len: usize) {
        let len = u32::try_from(len).expect("row ids are 32 bits");
        if self.progress.len.load(Ordering::Relaxed) != len {
            self.progress.len.store(len, Ordering::Release);
        }
        self.progress.done.store(chunk, Ordering::Release);
        if self.is_wanted.load(Ordering::Relaxed) {
            self.give_way();
        }
    }

    #[cold]
    fn give_way(&self) {
        self.is_wanted.store(false, Ordering::Relaxed);
        for _ in 0..PAUSE_SPINS {
            std::hint::spin_loop();
        }
    }

    /// Of partials: says that the owner has taken over the first `rows`, all if there are no more, inside a chunk of
    /// its own rows.
    pub(crate) fn set_merged(&self, rows: u32) {
        self.progress.merged.store(rows, Ordering::Release);
    }

    /// Forgets keys and indexes. Chunks of rows and bytes are used again.
    pub(crate) fn reset(&mut self) {
        let memory = self.memory.get_mut().unwrap_or_else(PoisonError::into_inner);
        memory.indexes.clear();
        self.indexes = no_addresses();
        self.index_bits = AtomicU32::new(0);
        self.null_row = AtomicU32::new(0);
        self.progress.len = AtomicU32::new(0);
        self.progress.merged = AtomicU32::new(0);
        *self.is_wanted = AtomicBool::new(false);
    }
}

/// The readers' side.
impl Readable {
    /// Rows that have a state, at least.
    pub(crate) fn len(&self) -> u32 {
        self.progress.len.load(Ordering::Acquire)
    }

    /// Of partials: rows that the owner has taken over.
    #[inline]
    pub(crate) fn merged(&self) -> u32 {
        self.progress.merged.load(Ordering::Acquire)
    }

    /// Asks the writer to pause for a moment after its chunk.
    pub(crate) fn want(&self) {
        self.is_wanted.store(true, Ordering::Relaxed);
    }

    /// The row of a key, if there is one.
    #[inline]
    pub(crate) fn find(&self, key: &SoughtKey<'_>) -> Option<FoundRow<'_>> {
        let bits = self.index_bits.load(Ordering::Acquire);
        let entries = self.indexes[bits as usize].load(Ordering::Acquire).cast::<AtomicU64>();
        // SAFETY: `set_index` stored the address of an index of `1 << bits` words before it stored `bits`, and
        // `Table` makes a first one before anybody sees this. `memory` owns it until `reset`, which takes `&mut
        // self`. All words are initialised; the writer writes them only through `WordChunk::publish`, atomically.
        let entries = unsafe { std::slice::from_raw_parts(entries.cast_const(), 1 << bits) };
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the tag")]
        let tag = key.hash as u32;
        let mask = entries.len() - 1;
        let mut slot = (tag >> (32 - bits)) as usize & mask;
        // It is never full.
        loop {
            let entry = entries[slot].load(Ordering::Acquire);
            if entry == 0 {
                return None;
            }
            if entry >> 32 == u64::from(tag) {
                #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
                let row = self.row(entry as u32 - 1);
                if self.is_key(&row, key) {
                    return Some(row);
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Row `id`, which an index entry or `len` has shown to be there.
    #[inline]
    pub(crate) fn row(&self, id: u32) -> FoundRow<'_> {
        let chunk = (usize::BITS - (id as usize / self.first_chunk_rows).leading_zeros()) as usize;
        let origin = self.origins[chunk].load(Ordering::Acquire);
        assert!(!origin.is_null(), "row {id} is there");
        let words = origin.wrapping_add(id as usize * self.stride).cast::<AtomicU64>();
        // SAFETY:
        // - `origin + id * stride` is the address of row `id` (`RowStore::address`, the same arithmetic), whose chunk
        //   was published (`add_rows`) before its index entry and before `len` counted it, and `memory` owns the chunk
        //   until the last reference to this is gone.
        // - The words are initialised (`WordChunk::new`) and aligned; `AtomicU64` has the layout of `u64`.
        // - The writer writes the stamp atomically, and the other words as plain memory, maybe while they are
        //   read here. That is the race of every sequence lock over plain data, which the language's model does not
        //   allow in so many words and every compiler for the processors we run on keeps, as for
        //   `crossbeam::atomic::AtomicCell`: a load here is one instruction whose value is thrown away unless the
        //   stamp proves that nobody wrote (`copy`). The key's words are written before the row is published,
        //   and never again.
        let words = unsafe { std::slice::from_raw_parts(words.cast_const(), self.stride) };
        FoundRow { id, words }
    }

    #[inline]
    fn is_key(&self, row: &FoundRow<'_>, key: &SoughtKey<'_>) -> bool {
        let word = |i: usize| row.words[i].load(Ordering::Relaxed);
        if self.width == 1 {
            return word(0) == key.words[0];
        }
        if word(0) != key.words[0] {
            return false;
        }
        if is_long(key.words[0]) { self.long_key(row) == key.long } else { word(1) == key.words[1] }
    }

    /// The bytes of a row's long key.
    fn long_key(&self, row: &FoundRow<'_>) -> &[u8] {
        let [length, place] = [0, 1].map(|i| row.words[i].load(Ordering::Relaxed));
        #[expect(clippy::cast_possible_truncation, reason = "a place is taken apart")]
        let (chunk, offset) = ((place >> 32) as usize, place as u32 as usize);
        let bytes = self.bytes[chunk].load(Ordering::Acquire).cast::<u8>();
        let start = bytes.wrapping_add(offset).cast_const();
        // SAFETY: the place is that of so many bytes in chunk `chunk` (`Arena::push`), which was published before the
        // row (`add_bytes`), and the bytes were written before the row was published and are never written again.
        // `memory` owns the chunk until the last reference to this is gone.
        unsafe { std::slice::from_raw_parts(start, key_len(length)) }
    }

    /// Copies the words behind the key of `row`, without the stamp, to `to`, if nobody writes to them meanwhile.
    #[inline]
    pub(crate) fn copy(&self, row: &FoundRow<'_>, to: &mut [u64]) -> Copied {
        let (stamp, words) = row.words.split_last().expect("a row has a stamp");
        let before = stamp.load(Ordering::Acquire);
        if before == NEW {
            return Copied::New;
        }
        // With it comes everything that the chunk wrote, if it is done.
        if before > self.progress.done.load(Ordering::Acquire) {
            return Copied::Torn;
        }
        for (to, word) in to.iter_mut().zip(&words[self.width..]) {
            *to = word.load(Ordering::Relaxed);
        }
        if row.is_at(before) { Copied::Whole(before) } else { Copied::Torn }
    }

    /// The words of a row's key, and the bytes of a long one.
    pub(crate) fn key_of(&self, id: u32) -> ([u64; 2], &[u8]) {
        let row = self.row(id);
        let first = row.words[0].load(Ordering::Relaxed);
        if self.width == 1 {
            return ([first, 0], &[]);
        }
        if is_long(first) {
            return ([first, 0], self.long_key(&row));
        }
        ([first, row.words[1].load(Ordering::Relaxed)], &[])
    }

    /// Whether the row has the NULL key of one word.
    pub(crate) fn is_null(&self, id: u32) -> bool {
        self.null_row.load(Ordering::Acquire) == id + 1
    }
}

impl FoundRow<'_> {
    /// Whether the row still bears this stamp: then nobody has written to it between two such looks, as far as what
    /// was read before tells.
    #[inline]
    pub(crate) fn is_at(&self, stamp: u64) -> bool {
        // What was read before is read before the stamp. If any of it came from a later chunk, the fence
        // meets the one behind that chunk's stamps (`RowStore::begin`), and its stamp is seen here.
        fence(Ordering::Acquire);
        self.words.last().expect("a row has a stamp").load(Ordering::Relaxed) == stamp
    }

    /// Whether the row has a key and no state yet.
    #[inline]
    pub(crate) fn is_new(&self) -> bool {
        self.is_at(NEW)
    }
}
