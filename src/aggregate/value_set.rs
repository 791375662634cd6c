//! Sets of values, by their canonical keys.
//!
//! Numbers are words in an open-addressing table with a load of at most 3/4, 11 to 21 bytes a value;
//! large tables lie on huge pages. Text and rows of several columns are the two words of a byte key, long ones
//! with their bytes in an arena.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

use crate::aggregate::Damaged;
use crate::aggregate::saved::{Reader, put_bytes, put_len, put_words};
use crate::key::batch::{
    INLINE_BYTES, KeyBatch, NULL_BYTES, is_long, key_len, long_words, short_bytes, short_words,
};
use crate::key::hash::{hash_long, hash_short, hash_word};
use crate::sys::{WordChunk, prefetch};

/// A set that a [`Distinct`](super::distinct::Distinct) keeps.
pub(super) trait ValueSet: Default + std::fmt::Debug + Send + Sync + 'static {
    /// Words of a key.
    const WIDTH: usize;

    /// Adds the key of `row`.
    fn insert(&mut self, keys: &KeyBatch, row: usize);
    /// Loads what [`ValueSet::insert`] of the key of `row` will look at.
    fn prefetch(&self, keys: &KeyBatch, row: usize);
    /// Adds all of `other`.
    fn extend(&mut self, other: &Self);
    /// How many of its values are not in the set that `bucket` finds for their hash.
    fn count_beyond<'a>(&self, bucket: impl Fn(u64) -> Option<&'a Self>) -> usize
    where
        Self: 'a;
    fn len(&self) -> usize;
    fn heap_bytes(&self) -> usize;
    /// Appends the union of `sets`.
    fn save(sets: &[&Self], out: &mut Vec<u8>);
    /// The set that was saved as `bytes`.
    fn load(bytes: &[u8]) -> Result<Self, Damaged>;
}

/// Slots of the smallest table.
const SLOTS_MIN: usize = 8;

/// A set of 64-bit words.
#[derive(Debug, Default)]
pub(super) struct WordSet {
    /// Zero is an empty slot; the slots are a power of two.
    slots: Option<WordChunk>,
    /// `hash >> shift` is the slot where a search starts.
    shift: u32,
    /// Words in the slots.
    filled: usize,
    has_zero: bool,
}

impl WordSet {
    /// The set of `words`, no two of them equal.
    pub(super) fn of(words: &[u64]) -> Self {
        let mut set = Self::default();
        let slots = (words.len() * 4).div_ceil(3).next_power_of_two().max(SLOTS_MIN);
        set.make_slots(slots);
        for word in words {
            set.insert_word(*word, hash_word(*word));
        }
        set
    }

    /// Adds `word`, whose hash is `hash_word(word)`.
    #[inline(always)]
    pub(super) fn insert_word(&mut self, word: u64, hash: u64) {
        if word == 0 {
            self.has_zero = true;
            return;
        }
        let slots = self.slots.as_ref().map_or(0, WordChunk::len);
        if (self.filled + 1) * 4 > slots * 3 {
            self.grow();
        }
        self.filled += usize::from(self.place(word, hash));
    }

    /// Puts `word` into its slot; whether it was not there. There is an empty slot.
    #[inline(always)]
    fn place(&mut self, word: u64, hash: u64) -> bool {
        let slots = self.slots.as_mut().expect("grown before").words_mut();
        let mask = slots.len() - 1;
        let mut slot = slot(hash, self.shift);
        loop {
            let found = &mut slots[slot & mask];
            if *found == 0 {
                *found = word;
                return true;
            }
            if *found == word {
                return false;
            }
            slot += 1;
        }
    }

    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let old = self.slots.take();
        let slots = old.as_ref().map_or(SLOTS_MIN, |old| old.len() * 2);
        self.make_slots(slots);
        for word in old.iter().flat_map(WordChunk::words) {
            if *word != 0 {
                self.place(*word, hash_word(*word));
            }
        }
    }

    /// Replaces the slots by `slots` empty ones.
    fn make_slots(&mut self, slots: usize) {
        self.slots = Some(WordChunk::new(slots));
        self.shift = u64::BITS - slots.trailing_zeros();
    }

    fn contains(&self, word: u64, hash: u64) -> bool {
        if word == 0 {
            return self.has_zero;
        }
        let Some(slots) = &self.slots else { return false };
        let (slots, mask) = (slots.words(), slots.len() - 1);
        let mut slot = slot(hash, self.shift);
        // There is an empty slot, since the load is bounded.
        while slots[slot & mask] != 0 {
            if slots[slot & mask] == word {
                return true;
            }
            slot += 1;
        }
        false
    }

    /// The words, in any order.
    pub(super) fn iter(&self) -> impl Iterator<Item = u64> + '_ {
        let slots = self.slots.iter().flat_map(WordChunk::words);
        slots.copied().filter(|word| *word != 0).chain(self.has_zero.then_some(0))
    }
}

#[inline(always)]
fn slot(hash: u64, shift: u32) -> usize {
    usize::try_from(hash >> shift).expect("slots fit into memory")
}

impl ValueSet for WordSet {
    const WIDTH: usize = 1;

    #[inline(always)]
    fn insert(&mut self, keys: &KeyBatch, row: usize) {
        self.insert_word(keys.words.as_slice()[row], keys.hashes[row]);
    }

    #[inline(always)]
    fn prefetch(&self, keys: &KeyBatch, row: usize) {
        if let Some(slots) = &self.slots {
            prefetch(&raw const slots.words()[slot(keys.hashes[row], self.shift)]);
        }
    }

    fn extend(&mut self, other: &Self) {
        for word in other.iter() {
            self.insert_word(word, hash_word(word));
        }
    }

    fn count_beyond<'a>(&self, bucket: impl Fn(u64) -> Option<&'a Self>) -> usize {
        let beyond = |word: &u64| {
            let hash = hash_word(*word);
            bucket(hash).is_none_or(|bucket| !bucket.contains(*word, hash))
        };
        self.iter().filter(beyond).count()
    }

    fn len(&self) -> usize {
        self.filled + usize::from(self.has_zero)
    }

    fn heap_bytes(&self) -> usize {
        self.slots.as_ref().map_or(0, |slots| slots.len() * size_of::<u64>())
    }

    fn save(sets: &[&Self], out: &mut Vec<u8>) {
        let mut words = Vec::with_capacity(sets.iter().map(|set| set.len()).sum());
        words.extend(sets.iter().flat_map(|set| set.iter()));
        words.sort_unstable();
        words.dedup();
        out.reserve(words.len() * size_of::<u64>());
        put_words(out, words);
    }

    fn load(bytes: &[u8]) -> Result<Self, Damaged> {
        Ok(Self::of(&Reader::new(bytes).rest_ascending(true)?))
    }
}

/// A byte key on its way out of sets: hash, words, and the bytes that those of a long one are among.
type Saved<'a> = (u64, [u64; 2], &'a [u8]);

/// A set of byte keys.
#[derive(Debug, Default)]
pub(super) struct ByteSet {
    /// The words of each key; the second one of a long key is its place in the arena.
    keys: HashTable<[u64; 2]>,
    /// Bytes of long keys.
    long: Vec<u8>,
}

impl ByteSet {
    /// Whether it was not there, here and below.
    fn insert_short(&mut self, words: [u64; 2], hash: u64) -> bool {
        let entry = self.keys.entry(hash, |known| *known == words, hash_of(&self.long));
        if let Entry::Vacant(vacant) = entry {
            vacant.insert(words);
            return true;
        }
        false
    }

    fn insert_long(&mut self, w0: u64, bytes: &[u8], hash: u64) -> bool {
        let long = &self.long;
        let same = |known: &[u64; 2]| known[0] == w0 && bytes_at(long, *known) == bytes;
        if let Entry::Vacant(vacant) = self.keys.entry(hash, same, hash_of(long)) {
            vacant.insert([w0, self.long.len() as u64]);
            self.long.extend_from_slice(bytes);
            return true;
        }
        false
    }
}

impl ByteSet {
    /// Whether it has the key of these words, whose bytes are in `long` if it is a long one.
    fn contains(&self, words: [u64; 2], long: &[u8], hash: u64) -> bool {
        let is_same = |known: &[u64; 2]| {
            if is_long(words[0]) {
                known[0] == words[0] && bytes_at(&self.long, *known) == bytes_at(long, words)
            } else {
                *known == words
            }
        };
        self.keys.find(hash, is_same).is_some()
    }
}

fn bytes_at(long: &[u8], [w0, w1]: [u64; 2]) -> &[u8] {
    let start = usize::try_from(w1).expect("a place in memory");
    &long[start..start + key_len(w0)]
}

/// The hash of a key that is in the set.
fn hash_of(long: &[u8]) -> impl Fn(&[u64; 2]) -> u64 {
    move |words| {
        if is_long(words[0]) {
            hash_long(bytes_at(long, *words))
        } else {
            hash_short(words[0], words[1])
        }
    }
}

impl ValueSet for ByteSet {
    const WIDTH: usize = 2;

    #[inline(always)]
    fn insert(&mut self, keys: &KeyBatch, row: usize) {
        let words = keys.words.as_slice();
        let (w0, w1) = (words[2 * row], words[2 * row + 1]);
        if is_long(w0) {
            self.insert_long(w0, keys.long.bytes(w0, w1), keys.hashes[row]);
        } else {
            self.insert_short([w0, w1], keys.hashes[row]);
        }
    }

    fn prefetch(&self, _: &KeyBatch, _: usize) {}

    fn extend(&mut self, other: &Self) {
        for words in &other.keys {
            let hash = hash_of(&other.long)(words);
            if is_long(words[0]) {
                self.insert_long(words[0], bytes_at(&other.long, *words), hash);
            } else {
                self.insert_short(*words, hash);
            }
        }
    }

    fn count_beyond<'a>(&self, bucket: impl Fn(u64) -> Option<&'a Self>) -> usize {
        let beyond = |words: &&[u64; 2]| {
            let hash = hash_of(&self.long)(words);
            bucket(hash).is_none_or(|bucket| !bucket.contains(**words, &self.long, hash))
        };
        self.keys.iter().filter(beyond).count()
    }

    fn len(&self) -> usize {
        self.keys.len()
    }

    fn heap_bytes(&self) -> usize {
        // A byte of control for every place, and places for one value in seven more.
        self.keys.capacity() * (size_of::<[u64; 2]>() + 1) * 8 / 7 + self.long.capacity()
    }

    fn save(sets: &[&Self], out: &mut Vec<u8>) {
        let mut keys = Vec::with_capacity(sets.iter().map(|set| set.len()).sum());
        for set in sets {
            let hash = hash_of(&set.long);
            keys.extend(set.keys.iter().map(|words| (hash(words), *words, set.long.as_slice())));
        }
        let compare = |(_, a, a_long): &Saved<'_>, (_, b, b_long): &Saved<'_>| {
            // With equal first words both are long, or none.
            a[0].cmp(&b[0]).then_with(|| {
                if is_long(a[0]) {
                    bytes_at(a_long, *a).cmp(bytes_at(b_long, *b))
                } else {
                    a[1].cmp(&b[1])
                }
            })
        };
        // By hash, which nearly always decides: the bytes of long keys lie elsewhere.
        keys.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| compare(a, b)));
        keys.dedup_by(|a, b| a.0 == b.0 && compare(a, b).is_eq());
        put_len(out, keys.len() as u64);
        for (_, words, long) in keys {
            if is_long(words[0]) {
                put_bytes(out, bytes_at(long, words));
            } else {
                put_bytes(out, &short_bytes(words[0], words[1])[..key_len(words[0])]);
            }
        }
    }

    fn load(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut reader = Reader::new(bytes);
        let count = reader.take_number()?;
        let mut set =
            Self { keys: HashTable::with_capacity(count.min(reader.left() / 4)), long: Vec::new() };
        for _ in 0..count {
            let key = reader.take_bytes()?;
            if key.len() as u64 >= NULL_BYTES {
                return Err(Damaged::new("a value of less than 4 GiB", key.len().to_string()));
            }
            let is_new = if key.len() > INLINE_BYTES {
                set.insert_long(long_words(key, 0)[0], key, hash_long(key))
            } else {
                let words = short_words(key, 0, key.len());
                set.insert_short(words, hash_short(words[0], words[1]))
            };
            if !is_new {
                return Err(Damaged::new("different values", "one of them twice"));
            }
        }
        reader.finish()?;
        Ok(set)
    }
}
