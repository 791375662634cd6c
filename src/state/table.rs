//! The table of a pane: from keys to rows.
//!
//! An open-addressing index of 64-bit entries (32-bit tag, 32-bit row id + 1; 0 is empty) in front of
//! a [`RowStore`]. A slot is the tag's high bits, so that growing the index is one sequential pass over
//! its entries and never looks at a key. Rows are appended in the order their keys first appear, which
//! packs the rows of frequent keys together.
//!
//! A batch is looked up in stages that run in step: index entries are prefetched, then probed and their
//! rows prefetched, then keys compared. So a cold row costs about two cache misses, both overlapped with
//! other rows' work.
//!
//! **Invariant:** one row per key; a row's key never changes; row ids are dense, in order of insertion.

use std::ops::Range;
use std::sync::Arc;

use arrow::buffer::NullBuffer;

use super::arena::Arena;
use super::readable::Readable;
use super::rows::{RowPtr, RowStore};
use crate::kernel::{Isa, Kernel};
use crate::key::batch::{INLINE_BYTES, KeyBatch, NULL_BYTES, is_long, key_len, short_bytes};
use crate::key::encode::DecodeKeys;
use crate::sys::{self, WordChunk, prefetch};

/// Rows looked up at a time at most: what belongs to them stays in the nearest caches between the passes of
/// several accumulators.
pub(crate) const LOOKUP_ROWS: usize = if cfg!(test) { 64 } else { 512 };

/// The same as a number of rows.
#[expect(clippy::cast_possible_truncation, reason = "a small constant")]
pub(crate) const LOOKUP_STEP: u32 = LOOKUP_ROWS as u32;

/// Rows between two stages of a lookup.
const DISTANCE: usize = 16;

/// Entries of an index that is taken for cached, with its rows.
const INDEX_CACHED: usize = if cfg!(test) { 128 } else { 8192 };

/// Up to this size an index is at most a quarter full, since it fits a near cache all the same, and
/// searches that go on past the first slot are mispredicted.
const INDEX_SPARSE: usize = if cfg!(test) { 128 } else { 8192 };

/// Bytes that a key is taken to have as long as none has come, if keys are bytes.
const LONG_BYTES: usize = 64;

/// Entries of an empty table's index: small, since a pane may have few keys, and enough that its first keys
/// do not make it grow.
const INDEX_MIN: usize = 128;

/// The rows being looked up, and what is found.
struct Lookups<'a> {
    keys: &'a KeyBatch,
    selection: &'a [u32],
    tags: &'a [u32],
    out: &'a mut [RowPtr],
}

/// How far a lookup has come.
struct Progress {
    probed: usize,
    verified: usize,
    clashes: usize,
}

/// [`Table::lookup`] for keys of `W` words.
struct Lookup<'a, const W: usize> {
    table: &'a mut Table,
    keys: &'a KeyBatch,
    selection: &'a [u32],
    out: &'a mut [RowPtr],
}

impl<const W: usize> Kernel for Lookup<'_, W> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.table.lookup_all::<W>(self.keys, self.selection, self.out);
    }
}

/// Rows by key.
#[derive(Debug)]
pub(crate) struct Table {
    /// Readers may share it.
    index: Arc<WordChunk>,
    /// `tag >> shift` is the slot where a search starts.
    shift: u32,
    /// Keys for which the index has room.
    keys_max: usize,
    rows: RowStore,
    arena: Arena,
    /// Words of the key at the start of each row: 1 or 2.
    width: usize,
    /// Words of a row.
    row_words: usize,
    /// Row of the NULL key, for keys of one word (NULL byte keys have words of their own).
    null_row: Option<u32>,
}

impl Table {
    /// An empty table for keys of `width` words, whose rows continue with `state` for a new key.
    pub(crate) fn new(width: usize, state: &[u64]) -> Self {
        Self::of_rows(width, RowStore::new(template(width, state)))
    }

    /// The same for readers on other threads too.
    pub(crate) fn new_readable(width: usize, state: &[u64]) -> Self {
        Self::of_rows(width, RowStore::new_readable(template(width, state), width))
    }

    fn of_rows(width: usize, rows: RowStore) -> Self {
        let mut table = Self {
            index: Arc::new(WordChunk::new(0)),
            shift: 0,
            keys_max: 0,
            row_words: rows.stride(),
            arena: Arena::default(),
            rows,
            width,
            null_row: None,
        };
        table.set_index(WordChunk::new(INDEX_MIN));
        table
    }

    /// Where readers see it, if they may.
    pub(crate) fn readable(&self) -> Option<&Arc<Readable>> {
        self.rows.readable()
    }

    /// Whether a reader may still see it.
    pub(crate) fn is_shared(&mut self) -> bool {
        self.rows.readable().is_some() && self.rows.readable_mut().is_none()
    }

    /// Number of keys.
    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of keys, states and index.
    pub(crate) fn bytes(&self) -> usize {
        self.rows.bytes() + self.index.len() * size_of::<u64>() + self.arena.bytes()
    }

    /// Bytes of memory that keys, states and index have taken, whether they are in use or not.
    pub(crate) fn reserved(&self) -> usize {
        self.rows.reserved()
            + sys::reserved(size_of_val(self.index.words()))
            + self.arena.reserved()
    }

    /// Bytes of memory beyond [`Table::reserved`] that the table takes at most while `keys` new keys come: an index
    /// that grows is there twice, old and new. Long keys are taken for as long
    /// as they were on the average.
    pub(crate) fn growth(&self, keys: usize) -> usize {
        let all = self.len() + keys;
        let index = if all <= self.keys_max {
            0
        } else {
            sys::reserved(index_capacity(all) * size_of::<u64>())
        };
        let first = if self.width == 2 { LONG_BYTES } else { 0 };
        let long = self.arena.bytes().checked_div(self.len()).unwrap_or(first) * keys;
        self.rows.growth(keys) + index + self.arena.growth(long)
    }

    /// Whether large memory lies on huge pages as far as the kernel was willing.
    pub(crate) fn huge_pages(&self) -> bool {
        self.rows.huge_pages() && (!self.index.is_large() || self.index.huge_pages())
    }

    /// Words of a key; the states of a row start there.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// The words of row `id`: key, then states.
    pub(crate) fn row(&self, id: u32) -> &[u64] {
        self.rows.row(id)
    }

    /// Asks the processor to load row `id`.
    pub(crate) fn prefetch_row(&self, id: u32) {
        self.rows.ptr(id).prefetch(self.row_words);
    }

    /// The rows.
    pub(crate) fn rows_mut(&mut self) -> &mut RowStore {
        &mut self.rows
    }

    /// Forgets all keys. Memory is kept, but an index much larger than the last use needed shrinks, so
    /// that one large window does not tax all later ones.
    ///
    /// # Panics
    /// If a reader may still see it ([`Table::is_shared`]).
    pub(crate) fn clear(&mut self) {
        assert!(!self.is_shared(), "what a reader sees is not cleared");
        if let Some(readable) = self.rows.readable_mut() {
            readable.reset();
        }
        let wanted = index_capacity(self.rows.len());
        let index = Arc::get_mut(&mut self.index).filter(|index| wanted * 8 > index.len());
        if let Some(index) = index {
            index.words_mut().fill(0);
            if let Some(readable) = self.rows.readable() {
                readable.set_index(&self.index);
            }
        } else {
            self.set_index(WordChunk::new(wanted));
        }
        self.rows.clear();
        self.arena.clear();
        self.null_row = None;
    }

    /// Writes to `out` the row of the key of each of the batch rows `selection`, at most [`LOOKUP_ROWS`],
    /// inserting keys that are new. The rows must have been hashed.
    pub(crate) fn lookup(
        &mut self,
        isa: Isa,
        keys: &KeyBatch,
        selection: &[u32],
        out: &mut Vec<RowPtr>,
    ) {
        assert_eq!(keys.width, self.width, "the keys are of the table's kind");
        assert!(selection.len() <= LOOKUP_ROWS, "the caller looks up in pieces");
        out.resize(selection.len(), RowPtr::NONE);
        if self.width == 1 {
            isa.run(Lookup::<1> { table: self, keys, selection, out });
        } else {
            isa.run(Lookup::<2> { table: self, keys, selection, out });
        }
    }

    #[inline(always)]
    fn lookup_all<const W: usize>(
        &mut self,
        keys: &KeyBatch,
        selection: &[u32],
        out: &mut [RowPtr],
    ) {
        let mut tags = [0; LOOKUP_ROWS];
        let tags = &mut tags[..selection.len()];
        for (to, row) in tags.iter_mut().zip(selection) {
            *to = tag(keys.hashes[*row as usize]);
        }
        let mut progress = Progress { probed: 0, verified: 0, clashes: 0 };
        let mut batch = Lookups { keys, selection, tags, out };
        loop {
            let found = if self.is_cached() {
                self.find_known::<W, false>(&mut batch, &mut progress)
            } else {
                self.find_known::<W, true>(&mut batch, &mut progress)
            };
            let Some(slot) = found else { break };
            let at = progress.probed;
            let row = selection[at];
            batch.out[at] = if self.has_room() {
                self.insert::<W>(keys, row, slot)
            } else {
                self.lookup_again::<W>(keys, row)
            };
            progress.probed += 1;
        }
        if progress.clashes > 0 {
            for (ptr, row) in batch.out.iter_mut().zip(selection) {
                if *ptr == RowPtr::NONE {
                    *ptr = self.lookup_again::<W>(keys, *row);
                }
            }
        }
    }

    /// Whether index and rows stay in the nearer caches, so that prefetching would be in vain.
    fn is_cached(&self) -> bool {
        self.index.len() <= INDEX_CACHED
    }

    /// Looks rows up until a key comes that is not there: answers the empty slot where its search ended.
    /// A row whose tag is another key's is left out and counted as a clash.
    ///
    /// With `AHEAD`, three stages in step: index entries are prefetched `2 * DISTANCE` rows before their
    /// keys are compared, rows `DISTANCE` before. One of each a turn, so that requests to memory leave
    /// evenly and none waits for a free line buffer.
    #[inline(always)]
    fn find_known<const W: usize, const AHEAD: bool>(
        &self,
        batch: &mut Lookups<'_>,
        progress: &mut Progress,
    ) -> Option<usize> {
        let Lookups { keys, selection, tags, out } = batch;
        let (tags, rows) = (&tags[..selection.len()], selection.len());
        let out = &mut out[..rows];
        let (index, shift) = (self.index.words(), self.shift);
        let mask = index.len() - 1;
        let is_readable = self.rows.readable().is_some();
        if AHEAD && progress.probed == 0 {
            for tag in &tags[..rows.min(DISTANCE)] {
                prefetch(index.as_ptr().wrapping_add((*tag >> shift) as usize));
            }
        }
        while progress.probed < rows {
            let at = progress.probed;
            if AHEAD && let Some(tag) = tags.get(at + DISTANCE) {
                prefetch(index.as_ptr().wrapping_add((*tag >> shift) as usize));
            }
            let tag = tags[at];
            let mut slot = (tag >> shift) as usize & mask;
            let ptr = loop {
                let entry = index[slot];
                if entry >> 32 == u64::from(tag) && entry != 0 {
                    break self.rows.ptr(id_of(entry));
                }
                if entry == 0 {
                    return Some(slot);
                }
                slot = (slot + 1) & mask;
            };
            out[at] = ptr;
            progress.probed += 1;
            if AHEAD {
                if is_readable {
                    ptr.prefetch_to_write(self.row_words);
                } else {
                    ptr.prefetch(self.row_words);
                }
                if at >= progress.verified + DISTANCE {
                    let k = progress.verified;
                    self.verify::<W>(keys, selection[k], &mut out[k], progress);
                    progress.verified += 1;
                }
            } else {
                self.verify::<W>(keys, selection[at], &mut out[at], progress);
                progress.verified = at + 1;
            }
        }
        if AHEAD {
            for k in progress.verified..rows {
                self.verify::<W>(keys, selection[k], &mut out[k], progress);
            }
        }
        None
    }

    /// Compares the key of a row that was found by its tag; takes it away where it differs (two keys of one
    /// tag).
    #[inline(always)]
    fn verify<const W: usize>(
        &self,
        keys: &KeyBatch,
        row: u32,
        ptr: &mut RowPtr,
        progress: &mut Progress,
    ) {
        let words = keys.words.as_slice();
        let key = &words[row as usize * W..row as usize * W + W];
        let head = self.rows.head::<W>(*ptr);
        // The second word of a long key is a place, not a part of the key.
        let equal = if W == 1 { key[0] == head[0] } else { key == head && !is_long(key[0]) };
        let equal = equal || (W == 2 && self.long_keys_equal::<W>(keys, key, *ptr));
        if !equal {
            *ptr = RowPtr::NONE;
            progress.clashes += 1;
        }
    }

    #[inline]
    fn long_keys_equal<const W: usize>(&self, keys: &KeyBatch, key: &[u64], ptr: RowPtr) -> bool {
        let head = self.rows.head::<W>(ptr);
        key[0] == head[0]
            && is_long(key[0])
            && keys.long.bytes(key[0], key[1]) == self.arena.get(head[1], key_len(key[0]))
    }

    /// Makes room for so many keys more, at once.
    pub(crate) fn reserve(&mut self, keys: usize) {
        let capacity = index_capacity(self.rows.len() + keys);
        if capacity > self.index.len() {
            self.grow_to(capacity);
        }
    }

    /// Makes room for so many keys in an empty table, in memory that is there: so that they cost no page faults.
    pub(crate) fn warm(&mut self, keys: usize) {
        self.reserve(keys);
        if let Some(index) = Arc::get_mut(&mut self.index) {
            index.words_mut().fill(0);
        }
        self.rows.warm(keys);
    }

    /// [`Table::lookup`] of keys that are all new, each once: so none is compared with what is there.
    pub(crate) fn insert_all(&mut self, keys: &KeyBatch, selection: &[u32], out: &mut Vec<RowPtr>) {
        assert_eq!(keys.width, self.width, "the keys are of the table's kind");
        self.reserve(selection.len());
        out.clear();
        if self.width == 1 {
            self.insert_each::<1>(keys, selection, out);
        } else {
            self.insert_each::<2>(keys, selection, out);
        }
    }

    fn insert_each<const W: usize>(
        &mut self,
        keys: &KeyBatch,
        selection: &[u32],
        out: &mut Vec<RowPtr>,
    ) {
        let mask = self.index.len() - 1;
        let place = |row: u32| (tag(keys.hashes[row as usize]) >> self.shift) as usize & mask;
        for row in selection {
            prefetch(self.index.words().as_ptr().wrapping_add(place(*row)));
        }
        for row in selection {
            let mut slot = (tag(keys.hashes[*row as usize]) >> self.shift) as usize & mask;
            while self.index.words()[slot] != 0 {
                slot = (slot + 1) & mask;
            }
            out.push(self.insert::<W>(keys, *row, slot));
        }
    }

    /// The whole search, key by key: for tags that more than one key has.
    #[cold]
    #[inline(never)]
    fn lookup_again<const W: usize>(&mut self, keys: &KeyBatch, row: u32) -> RowPtr {
        if !self.has_room() {
            self.grow();
        }
        let tag = tag(keys.hashes[row as usize]);
        let words = keys.words.as_slice();
        let key = &words[row as usize * W..row as usize * W + W];
        let mask = self.index.len() - 1;
        let mut slot = (tag >> self.shift) as usize & mask;
        loop {
            let entry = self.index.words()[slot];
            if entry == 0 {
                return self.insert::<W>(keys, row, slot);
            }
            if entry >> 32 == u64::from(tag) {
                let ptr = self.rows.ptr(id_of(entry));
                let head = self.rows.head::<W>(ptr);
                if (key == head && !(W == 2 && is_long(key[0])))
                    || (W == 2 && self.long_keys_equal::<W>(keys, key, ptr))
                {
                    return ptr;
                }
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Appends the row of a new key and enters it at the empty `slot`.
    #[inline(always)]
    fn insert<const W: usize>(&mut self, keys: &KeyBatch, row: u32, slot: usize) -> RowPtr {
        let i = row as usize;
        let mut key = [0; W];
        key.copy_from_slice(&keys.words.as_slice()[i * W..i * W + W]);
        if W == 2 && is_long(key[0]) {
            let bytes = keys.long.bytes(key[0], key[1]);
            key[1] = self.arena.push(bytes, self.rows.readable().map(|readable| &**readable));
        }
        let (id, ptr) = self.rows.push(key);
        if W == 1 && keys.nulls.as_ref().is_some_and(|nulls| nulls.is_null(i)) {
            self.null_row = Some(id);
            if let Some(readable) = self.rows.readable() {
                readable.set_null_row(id);
            }
        }
        // Last: from now on readers find it.
        let entry = (u64::from(tag(keys.hashes[i])) << 32) | (u64::from(id) + 1);
        self.index.publish(slot, entry);
        ptr
    }

    /// Whether the index has room for one more key.
    #[inline(always)]
    fn has_room(&self) -> bool {
        self.rows.len() < self.keys_max
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        self.grow_to(self.index.len() * 2);
    }

    fn grow_to(&mut self, capacity: usize) {
        assert!(capacity <= 1 << 32, "a table holds at most 2^31 keys");
        let shift = shift_of(capacity);
        let mut index = WordChunk::new(capacity);
        let (entries, mask) = (index.words_mut(), capacity - 1);
        for &entry in self.index.words().iter().filter(|entry| **entry != 0) {
            let mut slot = ((entry >> 32) as usize) >> shift;
            while entries[slot & mask] != 0 {
                slot += 1;
            }
            entries[slot & mask] = entry;
        }
        self.set_index(index);
    }

    fn set_index(&mut self, index: WordChunk) {
        self.shift = shift_of(index.len());
        self.keys_max = keys_max(index.len());
        self.index = Arc::new(index);
        if let Some(readable) = self.rows.readable() {
            readable.set_index(&self.index);
        }
    }

    /// The keys of the rows `ids`, to be decoded.
    pub(crate) fn keys(&self, ids: Range<u32>) -> TableKeys<'_> {
        TableKeys { table: self, ids }
    }

    /// Shows the bytes of a row's key, `None` for NULL; for byte keys.
    fn visit_key(&self, id: u32, visit: &mut dyn FnMut(Option<&[u8]>)) {
        let row = self.rows.row(id);
        let len = key_len(row[0]);
        if row[0] == NULL_BYTES {
            visit(None);
        } else if len <= INLINE_BYTES {
            visit(Some(&short_bytes(row[0], row[1])[..len]));
        } else {
            visit(Some(self.arena.get(row[1], len)));
        }
    }

    /// The keys of these rows, in this order, to be decoded.
    pub(crate) fn listed_keys<'a>(&'a self, ids: &'a [u32]) -> ListedKeys<'a> {
        ListedKeys { table: self, ids }
    }

    /// Writes the keys of the rows `ids` as a batch, hashes included, so that they can be looked up in
    /// another table: how a partial finds its owner's row. `hash` gives the hash of a key's words.
    pub(crate) fn export_keys(&self, ids: Range<u32>, out: &mut KeyBatch) {
        use crate::key::hash::{NULL_HASH, hash_long, hash_short, hash_word};
        out.width = self.width;
        out.nulls = None;
        out.hashed = true;
        out.hashes.clear();
        let text = out.long.start();
        let words = out.words.start();
        for id in ids.clone() {
            let row = self.rows.row(id);
            match (self.width, row[0]) {
                (1, word) if self.null_row == Some(id) => {
                    out.hashes.push(NULL_HASH);
                    words.push(word);
                }
                (1, word) => {
                    out.hashes.push(hash_word(word));
                    words.push(word);
                }
                (_, w0) if is_long(w0) => {
                    let bytes = self.arena.get(row[1], key_len(w0));
                    out.hashes.push(hash_long(bytes));
                    words.extend_from_slice(&[w0, text.len() as u64]);
                    text.extend_from_slice(bytes);
                }
                (_, w0) => {
                    out.hashes.push(if w0 == NULL_BYTES {
                        NULL_HASH
                    } else {
                        hash_short(w0, row[1])
                    });
                    words.extend_from_slice(&row[..2]);
                }
            }
        }
        if let Some(null_row) = self.null_row.filter(|row| self.width == 1 && ids.contains(row)) {
            out.nulls = Some(ids.map(|id| id != null_row).collect());
        }
    }
}

/// Keys of rows of a table, in any order.
#[derive(Debug)]
pub(crate) struct ListedKeys<'a> {
    table: &'a Table,
    ids: &'a [u32],
}

impl DecodeKeys for ListedKeys<'_> {
    fn len(&self) -> usize {
        self.ids.len()
    }

    fn words(&self) -> (Vec<u64>, Option<NullBuffer>) {
        let word = |(k, id): (usize, &u32)| {
            if let Some(ahead) = self.ids.get(k + DISTANCE) {
                self.table.prefetch_row(*ahead);
            }
            self.table.rows.row(*id)[0]
        };
        let words = self.ids.iter().enumerate().map(word).collect();
        let null = self.table.null_row;
        (words, null.map(|null| self.ids.iter().map(|id| *id != null).collect()))
    }

    fn bytes(&self, k: usize, visit: &mut dyn FnMut(Option<&[u8]>)) {
        self.table.visit_key(self.ids[k], visit);
    }
}

/// Keys of some rows of a table.
#[derive(Debug)]
pub(crate) struct TableKeys<'a> {
    table: &'a Table,
    ids: Range<u32>,
}

impl DecodeKeys for TableKeys<'_> {
    fn len(&self) -> usize {
        self.ids.len()
    }

    fn words(&self) -> (Vec<u64>, Option<NullBuffer>) {
        let words = self.ids.clone().map(|id| self.table.rows.row(id)[0]).collect();
        let null = self.table.null_row.filter(|id| self.ids.contains(id));
        (words, null.map(|null| self.ids.clone().map(|id| id != null).collect()))
    }

    fn bytes(&self, k: usize, visit: &mut dyn FnMut(Option<&[u8]>)) {
        self.table.visit_key(self.id(k), visit);
    }
}

impl TableKeys<'_> {
    fn id(&self, k: usize) -> u32 {
        self.ids.start + u32::try_from(k).expect("row ids are 32 bits")
    }
}

/// A new row: room for the key, then its state.
fn template(width: usize, state: &[u64]) -> Vec<u64> {
    assert!(matches!(width, 1 | 2), "keys are one or two words");
    let mut template = vec![0; width];
    template.extend_from_slice(state);
    template
}

/// The part of the hash that the index keeps: not the part that chose the key group.
#[inline(always)]
fn tag(hash: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
    let tag = hash as u32;
    tag
}

#[inline(always)]
fn id_of(entry: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
    let id = entry as u32 - 1;
    id
}

/// Most keys for an index of this capacity: a load of 5/8, or a quarter if it is small.
fn keys_max(capacity: usize) -> usize {
    if capacity <= INDEX_SPARSE { capacity / 4 } else { capacity * 5 / 8 }
}

/// Smallest index for `keys` keys.
fn index_capacity(keys: usize) -> usize {
    let mut capacity = INDEX_MIN;
    while keys_max(capacity) < keys {
        capacity *= 2;
    }
    capacity
}

fn shift_of(capacity: usize) -> u32 {
    32 - capacity.trailing_zeros()
}

#[cfg(any(test, fuzzing))]
pub(crate) mod model;
#[cfg(test)]
mod tests;
