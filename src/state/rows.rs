//! The rows of a pane: one row per key, key and accumulators side by side, never moved.
//!
//! A row is `stride` 64-bit words. Rows live in chunks that double in size, so that a pane with ten
//! keys is small, a pane with ten million needs few chunks, and no row ever changes its address:
//! pointers handed out by a lookup stay good while the store lives, and a later reader on another
//! thread needs no lock. Large chunks are mapped and advised to huge pages, which decides the speed
//! of random access.
//!
//! This module owns the only way from a row pointer to its words, [`Rows`]; the accumulators above it
//! are safe code. It knows nothing of keys, hashes or aggregates.
//!
//! Cost: one address computation a row; the words of a row touch one or two cache lines.
#![allow(unsafe_code, reason = "rows are reached through pointers that were looked up before")]

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::readable::{NEW, Readable};
use crate::sys::{self, WordChunk};

/// Most chunks: ids are 32 bits.
const CHUNKS_MAX: usize = 33;

/// Rows that are written ahead at a time.
const WRITE_AHEAD_ROWS: usize = if cfg!(test) { 3 } else { 64 };

/// Words of a cache line.
const LINE_WORDS: usize = 8;

/// Rows of the first chunk; every later chunk doubles the total.
const FIRST_CHUNK_ROWS: usize = if cfg!(test) { 4 } else { 64 };

/// Address of one row of a [`RowStore`], as remembered between lookup and update.
///
/// Useless without a [`Rows`], which can be built only by the store the pointer came from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct RowPtr(*mut u64);

// SAFETY: a `RowPtr` is a number until it is dereferenced, which only `Rows` does, and a `Rows`
// borrows the store, so the usual rules for `&mut RowStore` decide which thread may use it.
unsafe impl Send for RowPtr {}

impl fmt::Debug for RowPtr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RowPtr({:p})", self.0)
    }
}

impl RowPtr {
    /// Of no row.
    pub(crate) const NONE: Self = Self(std::ptr::null_mut());

    /// Asks the processor to load the cache lines of the row's first and last word, of `words`: short rows
    /// lie in one or two.
    #[inline(always)]
    pub(crate) fn prefetch(self, words: usize) {
        sys::prefetch(self.0);
        sys::prefetch(self.0.wrapping_add(words - 1));
    }

    /// The same for lines that other processors may have: from them, too, so that writing will not have to wait.
    #[inline(always)]
    pub(crate) fn prefetch_to_write(self, words: usize) {
        sys::prefetch_to_write(self.0);
        sys::prefetch_to_write(self.0.wrapping_add(words - 1));
    }
}

/// Append-only rows of `stride` words each, addressed by dense ids `0, 1, 2, ...`.
pub(crate) struct RowStore {
    chunks: Vec<Arc<WordChunk>>,
    /// For each chunk, where row 0 would lie if the chunk's rows went on downwards to it. An array of all
    /// that there can be, so that finding a row needs no check.
    origins: [RowPtr; CHUNKS_MAX],
    /// A new row.
    template: Vec<u64>,
    len: usize,
    /// Rows that are written: those in use, and some ahead, which are copies of the template.
    written: usize,
    /// The most rows that were written at any time since the store was made: so far its memory was touched.
    touched: usize,
    capacity: usize,
    /// Where readers see the rows, whose last word is their stamp then.
    readable: Option<Arc<Readable>>,
    /// The number of the chunk of rows being written.
    chunk: u64,
}

impl fmt::Debug for RowStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowStore")
            .field("stride", &self.stride())
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl RowStore {
    /// An empty store of rows that begin as copies of `template`.
    pub(crate) fn new(template: Vec<u64>) -> Self {
        assert!(!template.is_empty(), "a row has at least its key");
        Self {
            chunks: Vec::new(),
            origins: [RowPtr::NONE; CHUNKS_MAX],
            template,
            len: 0,
            written: 0,
            touched: 0,
            capacity: 0,
            readable: None,
            chunk: 0,
        }
    }

    /// The same for readers on other threads too; the key is the first `width` words.
    pub(crate) fn new_readable(mut template: Vec<u64>, width: usize) -> Self {
        // Where one word more makes rows lie in cache lines of their own, or two in one, it is worth it.
        let is_odd = template.len() + 1 == 3 || (template.len() + 1) % LINE_WORDS == LINE_WORDS - 1;
        template.resize(template.len() + usize::from(is_odd), 0);
        template.push(NEW);
        let readable = Readable::new(template.len(), width, FIRST_CHUNK_ROWS);
        Self { readable: Some(Arc::new(readable)), ..Self::new(template) }
    }

    /// Where readers see the rows, if they may.
    pub(crate) fn readable(&self) -> Option<&Arc<Readable>> {
        self.readable.as_ref()
    }

    /// The same, alone: nobody else can see the rows; none if somebody can, or nobody ever could.
    pub(crate) fn readable_mut(&mut self) -> Option<&mut Readable> {
        self.readable.as_mut().and_then(Arc::get_mut)
    }

    /// Tells readers that the rows at `ptrs`, which came from this store, are being written until
    /// [`RowStore::end`].
    #[inline]
    pub(crate) fn begin(&mut self, ptrs: &[RowPtr]) {
        if self.readable.is_some() {
            self.stamp(ptrs);
        }
    }

    fn stamp(&mut self, ptrs: &[RowPtr]) {
        self.chunk += 1;
        let last = self.stride() - 1;
        for ptr in ptrs {
            debug_assert!(self.owns(*ptr), "a pointer of this store");
            let stamp = ptr.0.wrapping_add(last);
            // SAFETY: the last of the `stride` words of a row of this store (`begin`), which lives while `self`
            // does; as a stamp it is written and read atomically only, but for the copy of the template
            // that is made before the row can be found.
            unsafe { AtomicU64::from_ptr(stamp) }.store(self.chunk, Ordering::Relaxed);
        }
        // No reader sees what follows without the stamps (`FoundRow::is_at`).
        fence(Ordering::Release);
    }

    /// Tells readers that the rows of [`RowStore::begin`] are as they should be.
    #[inline]
    pub(crate) fn end(&mut self) {
        if let Some(readable) = &self.readable {
            readable.complete(self.chunk, self.len);
        }
    }

    /// Words of a row.
    #[inline(always)]
    pub(crate) fn stride(&self) -> usize {
        self.template.len()
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of the rows in use. Chunks beyond the last row are reserved but not touched.
    pub(crate) fn bytes(&self) -> usize {
        self.len * self.stride() * size_of::<u64>()
    }

    /// Whether all large chunks lie on huge pages as far as the kernel was willing.
    pub(crate) fn huge_pages(&self) -> bool {
        self.chunks.iter().all(|chunk| !chunk.is_large() || chunk.huge_pages())
    }

    /// Forgets the rows and keeps the memory. No reader may see them any more.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
        self.written = 0;
    }

    /// Appends a row, whose first words are to be `head`, and returns its id and address.
    #[inline(always)]
    pub(crate) fn push<const N: usize>(&mut self, head: [u64; N]) -> (u32, RowPtr) {
        if self.len == self.written {
            self.write_ahead();
        }
        let id = self.len;
        self.len += 1;
        let ptr = self.address(id);
        assert!(N <= self.stride(), "a row has room for its head");
        // SAFETY: `address(id)` points to `stride >= N` words inside a chunk that this store owns and
        // borrows mutably here.
        unsafe { *ptr.0.cast::<[u64; N]>() = head };
        (u32::try_from(id).expect("`grow` keeps ids within 32 bits"), ptr)
    }

    /// Copies the template into the next rows: a few at a time, so that they are still in the cache when
    /// they are used, and by copies that double, which costs less than one copy a row.
    #[cold]
    #[inline(never)]
    fn write_ahead(&mut self) {
        if self.len == self.capacity {
            self.grow();
        }
        // The chunk of row `len` begins at 0 or at a power of two times the first, and doubles the total.
        let chunk_end = FIRST_CHUNK_ROWS.max((self.len + 1).next_power_of_two());
        let rows = WRITE_AHEAD_ROWS.min(chunk_end - self.len);
        let words = rows * self.stride();
        let start = self.address(self.len);
        // SAFETY: rows `len .. len + rows` lie in one chunk (above), which this store owns and borrows
        // mutably here; all of a chunk is initialised (`WordChunk::new` zeroes it).
        let all = unsafe { std::slice::from_raw_parts_mut(start.0, words) };
        let mut done = self.stride();
        all[..done].copy_from_slice(&self.template);
        while done < words {
            let more = done.min(words - done);
            let (from, to) = all.split_at_mut(done);
            to[..more].copy_from_slice(&from[..more]);
            done += more;
        }
        self.written = self.len + rows;
        self.touched = self.touched.max(self.written);
    }

    /// Bytes of memory that the rows have taken so far, whether they are in use or not. Of chunks on huge pages
    /// all pages that were touched count as a whole.
    pub(crate) fn reserved(&self) -> usize {
        self.reserved_for(self.touched)
    }

    /// Bytes of memory that `keys` more rows would take beyond [`RowStore::reserved`].
    pub(crate) fn growth(&self, keys: usize) -> usize {
        self.reserved_for(self.touched.max(self.len + keys + WRITE_AHEAD_ROWS)) - self.reserved()
    }

    fn reserved_for(&self, rows: usize) -> usize {
        sys::reserved(rows * self.stride() * size_of::<u64>())
    }

    /// Makes room for so many rows, in memory that is there: its pages have been written.
    pub(crate) fn warm(&mut self, rows: usize) {
        while self.capacity < rows {
            self.grow();
            // Nobody else has one that was just made.
            let chunk = self.chunks.last_mut().and_then(Arc::get_mut);
            chunk.expect("one was added").words_mut().fill(0);
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let rows = if self.capacity == 0 { FIRST_CHUNK_ROWS } else { self.capacity };
        assert!(u32::try_from(self.capacity + rows).is_ok(), "a pane holds at most 2^32 keys");
        let chunk = Arc::new(WordChunk::new(rows * self.stride()));
        let origin = chunk.as_ptr().as_ptr().wrapping_sub(self.capacity * self.stride());
        if let Some(readable) = &self.readable {
            readable.add_rows(&chunk, origin);
        }
        self.origins[self.chunks.len()] = RowPtr(origin);
        self.chunks.push(chunk);
        self.capacity += rows;
    }

    /// Address of row `id`: chunk `c > 0` holds the ids `FIRST << (c - 1) .. FIRST << c`.
    #[inline(always)]
    fn address(&self, id: usize) -> RowPtr {
        debug_assert!(id < self.capacity, "row {id} of {}", self.capacity);
        let chunk = (usize::BITS - (id / FIRST_CHUNK_ROWS).leading_zeros()) as usize;
        // Wrapping, since the origin of a later chunk lies outside of it; the sum is inside again.
        RowPtr(self.origins[chunk].0.wrapping_add(id * self.stride()))
    }

    /// Address of row `id`.
    ///
    /// # Panics
    /// If there is no such row.
    #[inline(always)]
    pub(crate) fn ptr(&self, id: u32) -> RowPtr {
        assert!((id as usize) < self.len, "no row {id}, there are {}", self.len);
        self.address(id as usize)
    }

    /// The words of row `id`.
    #[inline(always)]
    pub(crate) fn row(&self, id: u32) -> &[u64] {
        let ptr = self.ptr(id);
        // SAFETY: `ptr` is the address of an initialised row of `stride` words (`push`) inside a chunk
        // that lives as long as `self`; `&self` keeps writers out.
        unsafe { std::slice::from_raw_parts(ptr.0, self.stride()) }
    }

    /// The first `N` words of the row at `ptr`, which came from this store.
    #[inline(always)]
    pub(crate) fn head<const N: usize>(&self, ptr: RowPtr) -> &[u64; N] {
        debug_assert!(N <= self.stride() && self.owns(ptr), "a pointer of this store");
        // SAFETY: pointers are made only by `address` of the store the table owns, and the table hands
        // its own pointers back (checked in debug builds); rows never move or vanish while the store
        // lives; `N <= stride` (`Table::new` asserts it for its key width).
        unsafe { &*ptr.0.cast::<[u64; N]>() }
    }

    /// Mutable access to the rows at `ptrs`, which came from this store.
    #[inline]
    pub(crate) fn rows<'a>(&'a mut self, ptrs: &'a [RowPtr]) -> Rows<'a> {
        assert!(!ptrs.contains(&RowPtr::NONE), "every row was found");
        debug_assert!(ptrs.iter().all(|ptr| self.owns(*ptr)), "pointers of this store");
        Rows { ptrs, stride: self.stride(), store: PhantomData }
    }

    /// Whether `ptr` is the address of a row of this store; for assertions.
    fn owns(&self, ptr: RowPtr) -> bool {
        let address = ptr.0.addr();
        self.chunks.iter().any(|chunk| {
            let start = chunk.as_ptr().as_ptr().addr();
            let end = start + chunk.len() * size_of::<u64>();
            (start..end).contains(&address)
                && (address - start).is_multiple_of(self.stride() * size_of::<u64>())
        })
    }
}

/// Copies of rows, or of the states in them, that belong to no store: what a reader works with.
#[derive(Debug)]
pub(crate) struct LocalRows {
    words: Vec<u64>,
    stride: usize,
    /// The rows of `words`, when they were last asked for.
    ptrs: Vec<RowPtr>,
}

impl LocalRows {
    /// No rows, of `stride` words.
    pub(crate) fn new(stride: usize) -> Self {
        Self { words: Vec::new(), stride, ptrs: Vec::new() }
    }

    /// Number of rows.
    pub(crate) fn len(&self) -> usize {
        self.words.len().checked_div(self.stride).unwrap_or(0)
    }

    /// Adds a row.
    pub(crate) fn push(&mut self, row: &[u64]) {
        assert_eq!(row.len(), self.stride, "a row of as many words as the others");
        self.words.extend_from_slice(row);
    }

    /// The words of a row.
    pub(crate) fn row(&self, k: usize) -> &[u64] {
        &self.words[k * self.stride..][..self.stride]
    }

    /// Forgets all rows, and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.words.clear();
    }

    /// All rows in order.
    pub(crate) fn rows(&mut self) -> Rows<'_> {
        self.ptrs.clear();
        let start = self.words.as_mut_ptr();
        let rows = (0..self.len()).map(|k| RowPtr(start.wrapping_add(k * self.stride)));
        self.ptrs.extend(rows);
        // Pointers into `words`, which nobody else can reach while the rows are borrowed.
        Rows { ptrs: &self.ptrs, stride: self.stride, store: PhantomData }
    }
}

/// Rows of one store, in the order of the batch rows that belong to them. A row may occur many times.
pub(crate) struct Rows<'a> {
    ptrs: &'a [RowPtr],
    stride: usize,
    store: PhantomData<&'a mut RowStore>,
}

impl fmt::Debug for Rows<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("len", &self.ptrs.len()).finish_non_exhaustive()
    }
}

impl Rows<'_> {
    /// Number of pointers.
    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.ptrs.len()
    }

    /// The `words` words at `offset` of the `k`-th row, to read.
    ///
    /// # Panics
    /// If there is no `k`-th row or the words lie outside a row.
    #[inline(always)]
    pub(crate) fn state(&self, k: usize, offset: usize, words: usize) -> &[u64] {
        assert!(offset + words <= self.stride, "words {offset}+{words} of {}", self.stride);
        let start = self.ptrs[k].0.wrapping_add(offset);
        // SAFETY: the pointer is a row of a store (`RowStore::rows`) or a copy (`LocalRows::rows`), all initialised;
        // the words lie inside it (asserted); no `&mut` is alive, as that would borrow `self` mutably.
        unsafe { std::slice::from_raw_parts(start, words) }
    }

    /// The `words` words at `offset` of the `k`-th row, to write.
    ///
    /// # Panics
    /// As [`Rows::state`].
    #[inline(always)]
    pub(crate) fn state_mut(&mut self, k: usize, offset: usize, words: usize) -> &mut [u64] {
        assert!(offset + words <= self.stride, "words {offset}+{words} of {}", self.stride);
        let start = self.ptrs[k].0.wrapping_add(offset);
        // SAFETY: as in `state`; `&mut self` makes this the only reference into any row.
        unsafe { std::slice::from_raw_parts_mut(start, words) }
    }

    /// Calls `f(k, words)` for each row in order, with the `words` words at `offset`.
    ///
    /// With a `words` known at compile time the slice's length is too, so indexing costs no check.
    #[inline(always)]
    pub(crate) fn for_each(
        &mut self,
        offset: usize,
        words: usize,
        mut f: impl FnMut(usize, &mut [u64]),
    ) {
        assert!(offset + words <= self.stride, "words {offset}+{words} of {}", self.stride);
        for (k, ptr) in self.ptrs.iter().enumerate() {
            let start = ptr.0.wrapping_add(offset);
            // SAFETY: as in `state_mut`; one `&mut` at a time, ended before the next is made, so
            // that equal pointers do not alias.
            let state = unsafe { std::slice::from_raw_parts_mut(start, words) };
            f(k, state);
        }
    }
}
