//! The hot path of a router: which rows of a batch belong to hot keys, and sampling for the sketch.
//!
//! Rows are recognised by hash; whole keys are compared before a row is taken out, so that two keys of
//! one hash cannot be mixed up: the second is simply cold.

use std::sync::Arc;

use arrow::buffer::NullBuffer;

use super::blame::BatchKey;
use super::report::KeyValue;
use super::skew_control::SkewControl;
use super::split::fill_mask;
use crate::config::Job;
use crate::kernel::Kernel;
use crate::kernel::select::{
    Compare, CompareMask, LANES, MaskRows, MaskedRows, count_rows, each_row,
};
use crate::key::batch::{KeyBatch, is_long, key_len};
use crate::key::hash::{NULL_HASH, hash_word};
use crate::skew::hot_set::HotSet;
use crate::skew::learner::Observer;
use crate::state::pane::OneKeyRows;

/// A hot key with at least one of so many rows of a batch is reduced under its mask, straight from the
/// columns; the rows of others are listed first.
const MASKED_SHARE: usize = if cfg!(test) { 3 } else { 16 };

/// If at least one of so many rows is cold, all rows are hashed and split by masks; fewer are listed first.
const COLD_MASKED_SHARE: usize = 4;

/// Most hot keys for which a column is compared with each in turn; more are looked up by hash.
const MASKED_KEYS_MAX: usize = if cfg!(test) { 4 } else { 16 };

/// One producer's view of the hot keys.
#[derive(Debug)]
pub(crate) struct HotKeys {
    control: Arc<SkewControl>,
    job: Arc<Job>,
    slot: usize,
    set: Arc<HotSet>,
    slots: Vec<Slot>,
    observer: Observer,
    /// Whether the rows of this batch have been sampled.
    sampled: bool,
    /// Producers among which a key's salts are dealt out.
    producers: usize,
    /// Counts batches, to take the salts in turn.
    turn: usize,
    rows: HotRows,
}

/// What is known here of one hot key.
#[derive(Debug, Clone, Default)]
struct Slot {
    /// First word of the key.
    word: u64,
    /// It is the NULL key of a column of numbers.
    null: bool,
    /// The whole key, once a row of it was seen here; for keys whose word does not tell.
    key: Option<OwnKey>,
    /// Whether the control knows what it is called.
    is_named: bool,
    /// Salts that this producer holds of the key.
    salts: usize,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct OwnKey {
    words: [u64; 2],
    bytes: Box<[u8]>,
    null: bool,
}

/// Hot rows of one batch, by key.
#[derive(Debug, Default)]
pub(crate) struct HotRows {
    /// Rows that are not hot, ascending, unless [`Self::cold_masked`].
    cold: Vec<u32>,
    /// Rows that are not hot are those of [`Self::rest`].
    cold_masked: bool,
    /// For each key that has rows: where they are.
    pub(crate) runs: Vec<HotRun>,
    /// Listed rows of hot keys, grouped by key, ascending within each.
    hot: Vec<u32>,
    found: Vec<(u32, u32)>,
    counts: Vec<u32>,
    /// For each of the keys compared with the whole column, its rows as bits.
    masks: Vec<Vec<u64>>,
    /// Rows that no key has claimed yet.
    rest: Vec<u64>,
}

/// Rows of one hot key in one batch.
#[derive(Debug, Clone)]
pub(crate) struct HotRun {
    pub(crate) hash: u64,
    /// The salt in turn.
    pub(crate) salt: usize,
    rows: RunRows,
}

/// Rows of a batch that are not hot.
#[derive(Debug)]
pub(crate) enum ColdRows<'a> {
    /// Their numbers, ascending; they have been hashed.
    Listed(&'a [u32]),
    /// Their bits; all rows have been hashed.
    Masked(&'a [u64]),
}

/// Where the rows of a run are.
#[derive(Debug, Clone)]
enum RunRows {
    /// In [`HotRows::hot`].
    Listed(std::ops::Range<usize>),
    /// In [`HotRows::masks`], with the first of them and their number.
    Masked { place: usize, first: u32, count: usize },
}

impl HotRows {
    /// The rows of a run.
    pub(crate) fn of(&self, run: &HotRun) -> OneKeyRows<'_> {
        match run.rows.clone() {
            RunRows::Listed(range) => OneKeyRows::Listed(&self.hot[range]),
            RunRows::Masked { place, first, count } => {
                let mask = &self.masks[place];
                OneKeyRows::Masked(MaskedRows { mask, first, count })
            }
        }
    }

    /// The rows that are not hot.
    pub(crate) fn cold(&self) -> ColdRows<'_> {
        if self.cold_masked { ColdRows::Masked(&self.rest) } else { ColdRows::Listed(&self.cold) }
    }

    /// Calls `visit` with each hot row.
    pub(crate) fn each(&self, mut visit: impl FnMut(u32)) {
        for run in &self.runs {
            match self.of(run) {
                OneKeyRows::Listed(rows) => rows.iter().for_each(|row| visit(*row)),
                OneKeyRows::Masked(rows) => each_row(rows.mask, &mut visit),
            }
        }
    }
}

impl HotKeys {
    pub(crate) fn new(job: Arc<Job>, control: Arc<SkewControl>, producers: usize) -> Self {
        let slot = control.join();
        let mut keys = Self {
            set: control.current(),
            control,
            job,
            slot,
            slots: Vec::new(),
            observer: Observer::new(slot as u64),
            sampled: false,
            producers: producers.max(1),
            turn: 0,
            rows: HotRows::default(),
        };
        keys.adopt();
        keys
    }

    fn adopt(&mut self) {
        self.slots.clear();
        let producers = self.producers;
        let given = &self.job.given_hot;
        self.slots.extend(self.set.keys().iter().map(|key| {
            let known = given.iter().find(|(hash, _)| *hash == key.hash);
            let word = known.map_or(key.example, |(_, word)| *word);
            Slot {
                word,
                // Its hash is not that of its word.
                null: key.hash == NULL_HASH && hash_word(word) != NULL_HASH,
                key: None,
                is_named: false,
                salts: usize::from(key.salts).div_ceil(producers),
            }
        }));
    }

    /// Takes the hot set that is in force from this batch on. The first batches are sampled before, so that
    /// what they tell is used for them. Answers whether it is another set than that of the batch before.
    pub(crate) fn begin_batch(&mut self, keys: &KeyBatch, rows_seen: u64) -> bool {
        self.sampled = false;
        if self.observer.is_new() {
            self.sample(keys, rows_seen);
        }
        if self.control.epoch() == self.set.epoch() {
            return false;
        }
        self.set = self.control.current();
        self.adopt();
        true
    }

    /// Samples the rows of a batch, if that has not been done. Called when its keys have been read, or else
    /// each sampled row would be a cache miss.
    pub(crate) fn sample(&mut self, keys: &KeyBatch, rows_seen: u64) {
        if std::mem::replace(&mut self.sampled, true) {
            return;
        }
        let observer = &mut self.observer;
        observer.follow(rows_seen);
        let (words, width) = (keys.words.as_slice(), keys.width);
        observer.sample(words.len() / width, |row| {
            let hash = if width == 1 { keys.hash_of_word(row) } else { keys.hashes[row] };
            (hash, words[row * width])
        });
        if observer.is_due() && self.control.report(self.slot, observer.sketch(), rows_seen) {
            observer.reported();
        }
    }

    /// Whether no key is hot.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Splits a batch into cold rows and runs of hot rows. Afterwards at least the cold rows and the first
    /// row of each run are hashed.
    pub(crate) fn split(&mut self, keys: &mut KeyBatch) -> &HotRows {
        self.rows.runs.clear();
        self.rows.hot.clear();
        self.rows.cold.clear();
        self.rows.cold_masked = false;
        if self.slots.len() <= MASKED_KEYS_MAX {
            self.split_by_masks(keys);
        } else {
            keys.hash_all(self.job.isa);
            self.split_by_hash(keys);
        }
        self.turn = self.turn.wrapping_add(1);
        &self.rows
    }

    /// For few keys: compares a whole column with each, a vector at a time: the words of keys of one word,
    /// which are hashed only where they are cold, or the hashes of others.
    fn split_by_masks(&mut self, keys: &mut KeyBatch) {
        let rows = &mut self.rows;
        let by_word = keys.width == 1;
        let values = if by_word { keys.words.as_slice() } else { keys.hashes.as_slice() };
        let isa = self.job.isa;
        let words = values.len().div_ceil(LANES);
        fill_mask(&mut rows.rest, values.len());
        rows.masks.resize_with(MASKED_KEYS_MAX, Vec::new);
        for (place, slot) in self.slots.iter_mut().enumerate() {
            let mask = &mut rows.masks[place];
            mask.resize(words, 0);
            let hash = self.set.keys()[place].hash;
            let operand = if by_word { slot.word } else { hash };
            isa.run(CompareMask { values, compare: Compare::Equal, operand, mask });
            if !by_word {
                slot.restrict_to_own(keys, mask);
            } else if let Some(nulls) = &keys.nulls {
                restrict_to(nulls, slot.null, mask);
            } else if slot.null {
                continue;
            }
            let Some(MaskedRows { first, count, .. }) = MaskedRows::of(mask) else { continue };
            for (rest, mask) in rows.rest.iter_mut().zip(&*mask) {
                *rest &= !mask;
            }
            let start = rows.hot.len();
            let rows_of_key = if count * MASKED_SHARE >= values.len() {
                RunRows::Masked { place, first, count }
            } else {
                isa.run(MaskRows { mask, rows: &mut rows.hot });
                RunRows::Listed(start..rows.hot.len())
            };
            slot.named(&self.control, hash, || key_values(&self.job, keys, first as usize));
            let salt = self.turn % slot.salts;
            rows.runs.push(HotRun { hash, salt, rows: rows_of_key });
        }
        rows.cold_masked = count_rows(&rows.rest) * COLD_MASKED_SHARE >= values.len();
        if rows.cold_masked {
            keys.hash_all(isa);
        } else {
            isa.run(MaskRows { mask: &rows.rest, rows: &mut rows.cold });
            keys.hash_rows(&rows.cold);
        }
        // A run is looked up by its first row.
        for run in &rows.runs {
            let first = match &run.rows {
                RunRows::Listed(range) => rows.hot[range.start],
                RunRows::Masked { first, .. } => *first,
            };
            keys.hashes[first as usize] = run.hash;
        }
    }

    /// For many keys, or keys of bytes: looks each row's hash up, and compares whole keys where equal
    /// hashes are not proof enough.
    fn split_by_hash(&mut self, keys: &KeyBatch) {
        let HotRows { cold, hot, runs, found, counts, .. } = &mut self.rows;
        self.job.isa.run(FindHot { hashes: &keys.hashes, set: &self.set, cold, found });
        counts.clear();
        counts.resize(self.slots.len() + 1, 0);
        // Numbers without NULL: their hash is a bijection.
        if keys.width == 1 && keys.nulls.is_none() && !cfg!(feature = "force-hash-collisions") {
            for (place, _) in found.iter() {
                counts[*place as usize + 1] += 1;
            }
        } else {
            let mut strangers = false;
            for (place, row) in found.iter_mut() {
                if self.slots[*place as usize].holds(keys, *row as usize) {
                    counts[*place as usize + 1] += 1;
                } else {
                    cold.push(*row);
                    *place = u32::MAX;
                    strangers = true;
                }
            }
            if strangers {
                cold.sort_unstable();
                found.retain(|(place, _)| *place != u32::MAX);
            }
        }
        for (place, slot) in self.slots.iter().enumerate() {
            let count = counts[place + 1];
            // Where the rows of this key begin, and those of the next.
            counts[place + 1] = counts[place] + count;
            if count > 0 {
                let hash = self.set.keys()[place].hash;
                let range = counts[place] as usize..counts[place + 1] as usize;
                let salt = self.turn % slot.salts;
                runs.push(HotRun { hash, salt, rows: RunRows::Listed(range) });
            }
        }
        hot.resize(found.len(), 0);
        let mut next = std::mem::take(counts);
        for (place, row) in found.iter() {
            let next = &mut next[*place as usize];
            hot[*next as usize] = *row;
            *next += 1;
        }
        for place in 0..self.slots.len() {
            let end = next[place] as usize;
            let start = if place == 0 { 0 } else { next[place - 1] as usize };
            if end > start {
                let hash = self.set.keys()[place].hash;
                let row = hot[start] as usize;
                self.slots[place].named(&self.control, hash, || key_values(&self.job, keys, row));
            }
        }
        *counts = next;
    }

    /// Tells the control what was last seen, and that this producer has gone.
    pub(crate) fn leave(&self, rows_seen: u64) {
        self.control.report_last(self.slot, self.observer.sketch(), rows_seen);
    }
}

impl Slot {
    /// Whether `row`, whose hash is the hot key's, has the same key. The first such row settles which
    /// key that is.
    #[inline(always)]
    fn holds(&mut self, keys: &KeyBatch, row: usize) -> bool {
        let words = keys.words.as_slice();
        if let Some(key) = &self.key {
            let same = if keys.width == 1 {
                key.words[0] == words[row]
            } else {
                key.words[0] == words[2 * row]
                    && (key.words[1] == words[2 * row + 1] || is_long(key.words[0]))
            };
            // NULL and long keys are settled out of the way of the plain ones.
            return same && (key.is_plain(keys) || key.equals_slowly(keys, row));
        }
        self.key = Some(OwnKey::of(keys, row));
        true
    }

    /// Clears in `mask`, which holds the rows with the hot key's hash, those that have another key.
    fn restrict_to_own(&mut self, keys: &KeyBatch, mask: &mut [u64]) {
        for (first, word) in (0..).step_by(LANES).zip(mask) {
            let mut rows = *word;
            while rows != 0 {
                let bit = rows.trailing_zeros();
                if !self.holds(keys, first + bit as usize) {
                    *word &= !(1 << bit);
                }
                rows &= rows - 1;
            }
        }
    }

    /// Tells the control, once, what the key is called.
    #[inline(always)]
    fn named(&mut self, control: &SkewControl, hash: u64, key: impl FnOnce() -> Vec<KeyValue>) {
        if !self.is_named {
            self.is_named = true;
            control.name(hash, key);
        }
    }
}

/// Keeps in `mask` the rows that are NULL, if `null`, else those that are not.
fn restrict_to(nulls: &NullBuffer, null: bool, mask: &mut [u64]) {
    let chunks = nulls.inner().bit_chunks();
    for (word, valid) in mask.iter_mut().zip(chunks.iter_padded()) {
        *word &= if null { !valid } else { valid };
    }
}

/// Looks up which rows are hot.
#[derive(Debug)]
struct FindHot<'a> {
    hashes: &'a [u64],
    set: &'a HotSet,
    cold: &'a mut Vec<u32>,
    /// Place in the set, and row.
    found: &'a mut Vec<(u32, u32)>,
}

impl Kernel for FindHot<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.cold.resize(self.hashes.len(), 0);
        self.found.resize(self.hashes.len(), (0, 0));
        let (mut colds, mut hots) = (0, 0);
        let (cold, found) = (&mut self.cold[..], &mut self.found[..]);
        self.set.find_all(self.hashes, |row, place| {
            // Both are written, one advances: a branch would be mispredicted at middling shares.
            cold[colds] = row;
            found[hots] = (place.unwrap_or(0), row);
            colds += usize::from(place.is_none());
            hots += usize::from(place.is_some());
        });
        self.cold.truncate(colds);
        self.found.truncate(hots);
    }
}

impl OwnKey {
    fn of(keys: &KeyBatch, row: usize) -> Self {
        let words = keys.words.as_slice();
        let null = keys.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        if keys.width == 1 {
            return Self { words: [words[row], 0], bytes: Box::default(), null };
        }
        let (w0, w1) = (words[2 * row], words[2 * row + 1]);
        let bytes = if is_long(w0) { keys.long.bytes(w0, w1).into() } else { Box::default() };
        Self { words: [w0, if is_long(w0) { 0 } else { w1 }], bytes, null }
    }

    /// Whether equal words are enough.
    #[inline(always)]
    fn is_plain(&self, keys: &KeyBatch) -> bool {
        keys.nulls.is_none() && !self.null && self.bytes.is_empty()
    }

    #[inline(never)]
    fn equals_slowly(&self, keys: &KeyBatch, row: usize) -> bool {
        let null = keys.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        if null != self.null {
            return false;
        }
        if keys.width == 2 && is_long(self.words[0]) {
            let words = keys.words.as_slice();
            debug_assert_eq!(key_len(self.words[0]), self.bytes.len());
            return keys.long.bytes(words[2 * row], words[2 * row + 1]) == &*self.bytes;
        }
        true
    }
}

/// The values of one key of a batch.
fn key_values(job: &Job, keys: &KeyBatch, row: usize) -> Vec<KeyValue> {
    let columns = job.keys.decode(&BatchKey { keys, row });
    columns.iter().map(|column| KeyValue::of(column, 0)).collect()
}
