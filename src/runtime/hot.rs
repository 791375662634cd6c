//! The hot path of a router: which rows of a batch belong to hot keys, and sampling for the sketch.
//!
//! Rows are recognised by hash; whole keys are compared before a row is taken out, so that two keys of
//! one hash cannot be mixed up: the second is simply cold.

use std::sync::Arc;

use super::report::KeyValue;
use super::skew_control::SkewControl;
use crate::config::Job;
use crate::key::batch::{KeyBatch, is_long, key_len};
use crate::key::encode::DecodeKeys;
use crate::skew::hot_set::HotSet;
use crate::skew::sample::Sampler;
use crate::skew::sketch::{Sketch, SketchConfig};

/// Sampled rows between two snapshots given to the control.
const REPORT_SAMPLES: u32 = 256;

/// One producer's view of the hot keys.
#[derive(Debug)]
pub(crate) struct HotKeys {
    control: Arc<SkewControl>,
    job: Arc<Job>,
    slot: usize,
    set: Arc<HotSet>,
    slots: Vec<Slot>,
    sampler: Sampler,
    sketch: Sketch,
    unreported: u32,
    /// Producers among which a key's salts are dealt out.
    producers: usize,
    /// Counts batches, to take the salts in turn.
    turn: usize,
    rows: HotRows,
}

/// What is known here of one hot key.
#[derive(Debug, Clone, Default)]
struct Slot {
    /// The key, once a row of it was seen here.
    key: Option<OwnKey>,
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
    /// Rows that are not hot, ascending.
    pub(crate) cold: Vec<u32>,
    /// Rows of hot keys, grouped by key, ascending within each.
    pub(crate) hot: Vec<u32>,
    /// For each key that has rows: its hash, the salt in turn, and the end of its run in `hot`.
    pub(crate) runs: Vec<HotRun>,
    found: Vec<(u32, u32)>,
    counts: Vec<u32>,
}

/// Rows of one hot key in one batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HotRun {
    pub(crate) hash: u64,
    pub(crate) salt: usize,
    pub(crate) end: usize,
}

impl HotKeys {
    pub(crate) fn new(
        job: Arc<Job>,
        control: Arc<SkewControl>,
        slot: usize,
        producers: usize,
    ) -> Self {
        let config = SketchConfig::default();
        let sampler = Sampler::new(config.sample_every, slot as u64);
        let mut keys = Self {
            set: control.current(),
            control,
            job,
            slot,
            slots: Vec::new(),
            sampler,
            sketch: Sketch::new(config),
            unreported: 0,
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
        self.slots.extend(self.set.keys().iter().map(|key| Slot {
            key: None,
            salts: usize::from(key.salts).div_ceil(producers),
        }));
    }

    /// Samples the rows of a batch and takes the hot set that is in force from this batch on.
    pub(crate) fn observe(&mut self, keys: &KeyBatch, rows_seen: u64) {
        if self.control.adaptive {
            let (sketch, words) = (&mut self.sketch, keys.words.as_slice());
            let (width, mut picked) = (keys.width, 0);
            self.sampler.sample(keys.hashes.len(), |row| {
                sketch.offer(keys.hashes[row], words[row * width]);
                picked += 1;
            });
            self.unreported += picked;
            if self.unreported >= REPORT_SAMPLES {
                self.unreported = 0;
                self.control.report(self.slot, &self.sketch, rows_seen);
            }
        }
        if self.control.epoch() != self.set.epoch() {
            self.set = self.control.current();
            self.adopt();
        }
    }

    /// Whether no key is hot.
    pub(crate) fn is_empty(&self) -> bool {
        self.set.is_empty()
    }

    /// Splits a batch into cold rows and runs of hot rows.
    pub(crate) fn split(&mut self, keys: &KeyBatch) -> &HotRows {
        let HotRows { cold, hot, runs, found, counts } = &mut self.rows;
        let rows = keys.hashes.len();
        runs.clear();
        hot.clear();
        cold.resize(rows, 0);
        found.resize(rows, (0, 0));
        let (mut colds, mut hots) = (0, 0);
        for (row, hash) in keys.hashes.iter().enumerate() {
            #[expect(clippy::cast_possible_truncation, reason = "a batch has less than 2^32 rows")]
            let row = row as u32;
            // Both are written, one advances: a branch would be mispredicted at middling shares.
            let place = self.set.find(*hash);
            cold[colds] = row;
            found[hots] = (place.unwrap_or(0), row);
            colds += usize::from(place.is_none());
            hots += usize::from(place.is_some());
        }
        cold.truncate(colds);
        found.truncate(hots);
        counts.clear();
        counts.resize(self.slots.len() + 1, 0);
        let mut strangers = false;
        for (place, row) in found.iter_mut() {
            let slot = &mut self.slots[*place as usize];
            if slot.holds(keys, *row as usize, &self.job, &self.control) {
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
        for (place, slot) in self.slots.iter().enumerate() {
            let count = counts[place + 1];
            counts[place + 1] = counts[place] + count;
            if count > 0 {
                runs.push(HotRun {
                    hash: self.set.keys()[place].hash,
                    salt: self.turn % slot.salts,
                    end: counts[place + 1] as usize,
                });
            }
        }
        hot.resize(found.len(), 0);
        for (place, row) in found.iter() {
            let next = &mut counts[*place as usize];
            hot[*next as usize] = *row;
            *next += 1;
        }
        self.turn = self.turn.wrapping_add(1);
        &self.rows
    }

    /// Tells the control that this producer has gone.
    pub(crate) fn leave(&self) {
        self.control.leave(self.slot);
    }
}

impl Slot {
    /// Whether `row`, whose hash is the hot key's, has the same key. The first such row settles which
    /// key that is.
    #[inline(always)]
    fn holds(&mut self, keys: &KeyBatch, row: usize, job: &Job, control: &SkewControl) -> bool {
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
        control.name(keys.hashes[row], || key_values(job, keys, row));
        true
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

/// One key of a batch, to be decoded.
struct BatchKey<'a> {
    keys: &'a KeyBatch,
    row: usize,
}

impl DecodeKeys for BatchKey<'_> {
    fn len(&self) -> usize {
        1
    }

    fn word(&self, _: usize) -> Option<u64> {
        let valid = self.keys.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(self.row));
        valid.then(|| self.keys.words.as_slice()[self.row])
    }

    fn bytes(&self, _: usize, visit: &mut dyn FnMut(Option<&[u8]>)) {
        self.keys.visit_bytes(self.row, visit);
    }
}
