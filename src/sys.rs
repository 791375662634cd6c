//! What only the operating system and the processor can give: mapped memory on huge pages, prefetch.
//!
//! The twin of a mapped chunk is a plain heap chunk (small chunks are one), tested against each other.
#![allow(unsafe_code, reason = "raw memory and a prefetch hint")]

use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};

use memmap2::MmapMut;

/// Chunks from this size are mapped, in bytes: one huge page.
const LARGE_BYTES: usize = 2 << 20;

/// Fixed memory of zeroed 64-bit words that never moves.
#[derive(Debug)]
pub(crate) struct WordChunk {
    base: NonNull<u64>,
    words: usize,
    huge_pages: bool,
    /// Owns the memory; `base` points into it.
    owner: Owner,
}

#[derive(Debug)]
enum Owner {
    /// Kept only to be dropped; never touched through the box while `base` is in use.
    Heap(*mut [u64]),
    Mapped(#[expect(dead_code, reason = "owns the mapping")] MmapMut),
}

// SAFETY: the chunk owns its memory (a leaked box or an anonymous mapping) and hands out only raw
// pointers; nothing about it is tied to the thread that made it.
unsafe impl Send for WordChunk {}
// SAFETY: `&WordChunk` gives only the address, the length and a flag.
unsafe impl Sync for WordChunk {}

impl WordChunk {
    /// `words` zeroed words; mapped and advised to huge pages if large.
    pub(crate) fn new(words: usize) -> Self {
        let bytes = words * size_of::<u64>();
        if bytes >= LARGE_BYTES
            && let Ok(chunk) = Self::mapped(words)
        {
            return chunk;
        }
        let owner: *mut [u64] = Box::into_raw(vec![0_u64; words].into_boxed_slice());
        let base = NonNull::new(owner.cast::<u64>()).expect("a box is not null");
        Self { base, words, huge_pages: false, owner: Owner::Heap(owner) }
    }

    fn mapped(words: usize) -> std::io::Result<Self> {
        // One huge page more than asked for, so that the words can start on a huge-page boundary.
        let mut map = MmapMut::map_anon(words * size_of::<u64>() + LARGE_BYTES)?;
        #[cfg(target_os = "linux")]
        let huge_pages = map.advise(memmap2::Advice::HugePage).is_ok();
        #[cfg(not(target_os = "linux"))]
        let huge_pages = false;
        let start = map.as_mut_ptr();
        let skip = start.align_offset(LARGE_BYTES);
        assert!(skip <= LARGE_BYTES, "a byte pointer can always be aligned");
        // SAFETY: the mapping is `LARGE_BYTES` longer than the words, and `skip <= LARGE_BYTES`.
        let aligned = unsafe { start.add(skip) };
        #[expect(clippy::cast_ptr_alignment, reason = "aligned to a huge page just above")]
        let base = NonNull::new(aligned.cast::<u64>()).expect("a mapping is not null");
        Ok(Self { base, words, huge_pages, owner: Owner::Mapped(map) })
    }

    /// The first word.
    #[inline(always)]
    pub(crate) fn as_ptr(&self) -> NonNull<u64> {
        self.base
    }

    /// Number of words.
    pub(crate) fn len(&self) -> usize {
        self.words
    }

    /// Whether this chunk is of a size that is mapped.
    pub(crate) fn is_large(&self) -> bool {
        self.words * size_of::<u64>() >= LARGE_BYTES
    }

    /// Whether the kernel accepted the advice to use huge pages.
    pub(crate) fn huge_pages(&self) -> bool {
        self.huge_pages
    }

    /// The words.
    pub(crate) fn words(&self) -> &[u64] {
        // SAFETY: `base` points to `words` initialised (zeroed) words owned by `self`.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.words) }
    }

    /// Writes a word, also while other threads read it as an atomic one: they see all that was written before. The
    /// only way to write to a chunk that others share.
    #[inline(always)]
    pub(crate) fn publish(&self, at: usize, value: u64) {
        assert!(at < self.words, "word {at} of {}", self.words);
        let word = self.base.as_ptr().wrapping_add(at);
        // SAFETY: the word lies in the chunk (asserted), is aligned and initialised, and lives as long as `self`. Who
        // publishes is the chunk's one writer, so that plain reads through `words` are its own; others read atomically.
        unsafe { AtomicU64::from_ptr(word) }.store(value, Ordering::Release);
    }

    /// `len` bytes from byte `start` on.
    #[inline(always)]
    pub(crate) fn bytes(&self, start: usize, len: usize) -> &[u8] {
        let size = self.words * size_of::<u64>();
        assert!(start <= size && len <= size - start, "bytes {start}+{len} of {size}");
        let first = self.base.as_ptr().cast::<u8>().wrapping_add(start);
        // SAFETY: the bytes lie in the chunk (asserted), which `self` owns, and all of it is initialised (zeroed).
        unsafe { std::slice::from_raw_parts(first, len) }
    }

    /// Writes bytes from byte `start` on, to a chunk that others may share.
    ///
    /// # Safety
    /// Nobody may read or write these bytes at the same time, nor hold a reference to any of them.
    pub(crate) unsafe fn write_bytes(&self, start: usize, bytes: &[u8]) {
        let size = self.words * size_of::<u64>();
        assert!(
            start <= size && bytes.len() <= size - start,
            "bytes {start}+{} of {size}",
            bytes.len()
        );
        let first = self.base.as_ptr().cast::<u8>().wrapping_add(start);
        // SAFETY: the bytes lie in the chunk (asserted), which `self` owns; that nobody else uses them is the caller's
        // promise, and so `bytes`, which somebody uses, does not overlap them.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), first, bytes.len()) };
    }

    /// The words, to write.
    pub(crate) fn words_mut(&mut self) -> &mut [u64] {
        // SAFETY: as in `words`; `&mut self` makes it the only reference made through the chunk.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.words) }
    }
}

impl Drop for WordChunk {
    fn drop(&mut self) {
        if let Owner::Heap(owner) = self.owner {
            // SAFETY: `owner` came from `Box::into_raw` in `new` and is given back once.
            drop(unsafe { Box::from_raw(owner) });
        }
    }
}

/// Bytes of memory that data of this size takes, if all of it is touched: large chunks take whole huge pages, and may
/// begin in the middle of one.
pub(crate) fn reserved(bytes: usize) -> usize {
    if bytes < LARGE_BYTES { bytes } else { bytes.next_multiple_of(LARGE_BYTES) }
}

/// Asks the processor to load the cache line at `address` for reading and writing. Never faults.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch is a hint; any address is allowed and none is dereferenced.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// The same for writing to a line that other processors may hold: they give it up now and not at the first write.
#[inline(always)]
pub(crate) fn prefetch_to_write<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as for `prefetch`, and it changes nothing but caches; processors without it do nothing (all of 64 bits
    // take it for an instruction). By hand, since the compiler gives a plain prefetch where it is not told
    // that the processor has it.
    unsafe {
        std::arch::asm!(
            "prefetchw [{0}]", in(reg) address, options(nostack, preserves_flags, readonly)
        );
    };
    #[cfg(not(target_arch = "x86_64"))]
    prefetch(address);
}

/// Maps a whole file for reading.
///
/// The map shows the file as it is, not as it was: a program that changes the file while it is read
/// changes what is read, and one that shortens it ends this process with `SIGBUS`. Inputs are files
/// that nobody writes to any more; that is said in the help.
pub(crate) fn map_file(file: &std::fs::File) -> std::io::Result<memmap2::Mmap> {
    // SAFETY:
    // - The map is read-only and private to this process, so Rust code never writes through it.
    // - All that is read from it is validated as untrusted bytes after it was read (the decoders
    //   check offsets and UTF-8), so other content leads to an error.
    // - A file shortened by another process while mapped cannot be ruled out from here; it is the
    //   documented condition above, and the effect is a signal, not a wrong result.
    unsafe { memmap2::Mmap::map(file) }
}
