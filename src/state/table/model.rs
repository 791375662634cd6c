//! The table against a `BTreeMap`, under hashes that collide as badly as they can. For tests and the
//! fuzzer.

use std::collections::BTreeMap;

use arrow::buffer::NullBuffer;

use super::{LOOKUP_ROWS, Table};
use crate::kernel::Isa;
use crate::key::batch::{
    INLINE_BYTES, KeyBatch, KeyWords, LongKeys, NULL_BYTES, is_long, long_words, short_words,
};
use crate::key::encode::DecodeKeys;
use crate::key::hash::{NULL_HASH, hash_long, hash_short, hash_word};
use crate::state::readable::{Copied, SoughtKey};

/// A key as a person sees it; `None` is NULL.
pub(super) type Key = Option<Vec<u8>>;

/// How keys are hashed. The NULL key of one word keeps its own hash, as the encoder promises.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hashing {
    /// As in a run.
    Real,
    /// All keys have one hash.
    Equal,
    /// All keys have one tag (low half) and different high halves.
    EqualTag,
    /// Four hashes in all.
    Four,
    /// Tags at the very end of the index, so that searches wrap around.
    Last,
}

impl Hashing {
    fn apply(self, real: u64) -> u64 {
        match self {
            Self::Real => real,
            Self::Equal => 0x1234_5678_9abc_def0,
            Self::EqualTag => real & !u64::from(u32::MAX) | 0x9abc_def0,
            Self::Four => (real & 3) << 30,
            Self::Last => real | 0xffff_ff00,
        }
    }
}

/// One step of a test: keys to be looked up together, or a new window.
#[derive(Debug, Clone)]
pub(super) enum Op {
    Lookup { keys: Vec<u16>, every: usize },
    Clear,
}

/// The `i`-th key of one word: NULL, zero (which NULL's word also is), and others.
pub(super) fn word_key(i: u16) -> Key {
    let word = |word: u64| Some(word.to_le_bytes().to_vec());
    match i {
        0 => None,
        1 => word(0),
        2 => word(u64::MAX),
        _ => word(u64::from(i).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    }
}

/// The `i`-th byte key: NULL, empty, short ones that differ in trailing zeros only, and long ones that
/// agree in length and first bytes.
pub(super) fn byte_key(i: u16) -> Key {
    let number = i.to_be_bytes();
    Some(match i {
        0 => return None,
        1 => Vec::new(),
        2..15 => vec![0; usize::from(i) - 1],
        _ if i.is_multiple_of(3) => number.to_vec(),
        _ if i % 3 == 1 => [&[7; 30][..], &number].concat(),
        _ => [&[7; INLINE_BYTES - 2][..], &number, &vec![9; usize::from(i % 5)]].concat(),
    })
}

pub(super) fn batch(width: usize, keys: &[Key], hashing: Hashing) -> KeyBatch {
    let mut batch = KeyBatch { width, ..KeyBatch::default() };
    let (mut words, mut text) = (Vec::new(), Vec::new());
    for key in keys {
        let (key_words, hash) = match key {
            None if width == 1 => (vec![0], NULL_HASH),
            None => (vec![NULL_BYTES, 0], hashing.apply(NULL_HASH)),
            Some(bytes) if width == 1 => {
                let word =
                    u64::from_le_bytes(bytes.as_slice().try_into().expect("a key of one word"));
                (vec![word], hashing.apply(hash_word(word)))
            }
            Some(bytes) if bytes.len() <= INLINE_BYTES => {
                let [a, b] = short_words(bytes, 0, bytes.len());
                (vec![a, b], hashing.apply(hash_short(a, b)))
            }
            Some(bytes) => {
                let place = text.len();
                text.extend_from_slice(bytes);
                (long_words(bytes, place).to_vec(), hashing.apply(hash_long(bytes)))
            }
        };
        words.extend(key_words);
        batch.hashes.push(hash);
    }
    if width == 1 && keys.contains(&None) {
        batch.nulls = Some(keys.iter().map(Option::is_some).collect::<NullBuffer>());
    }
    batch.words = KeyWords::Own(words);
    batch.long = LongKeys::Own(text);
    batch
}

/// Keys of the table in the order of its rows, with the count that stands in each row.
fn contents(table: &mut Table) -> Vec<(Key, u64)> {
    let len = u32::try_from(table.len()).unwrap();
    let width = table.width();
    let keys = table.keys(0..len);
    let (words, nulls) = if width == 1 { keys.words() } else { Default::default() };
    let decoded = (0..table.len())
        .map(|k| {
            if width == 1 {
                let valid = nulls.as_ref().is_none_or(|nulls| nulls.is_valid(k));
                return valid.then(|| words[k].to_le_bytes().to_vec());
            }
            let mut key = None;
            keys.bytes(k, &mut |bytes| key = bytes.map(<[u8]>::to_vec));
            key
        })
        .collect::<Vec<_>>();
    decoded.into_iter().zip(0..len).map(|(key, id)| (key, counts(table, id))).collect()
}

/// The count in row `id`, which stands there twice: in its first word and, inverted, in its last.
pub(super) fn counts(table: &mut Table, id: u32) -> u64 {
    let width = table.width();
    let row = table.rows_mut().row(id);
    assert_eq!(row[width], !row[width + 1], "row {id} is whole");
    row[width]
}

/// Looks `keys` up and counts one for each.
pub(super) fn count(table: &mut Table, keys: &KeyBatch, selection: &[u32]) {
    let width = table.width();
    let mut ptrs = Vec::new();
    let isas = Isa::available();
    for selection in selection.chunks(LOOKUP_ROWS) {
        table.lookup(isas[selection.len() % isas.len()], keys, selection, &mut ptrs);
        assert_eq!(ptrs.len(), selection.len());
        table.rows_mut().begin(&ptrs);
        table.rows_mut().rows(&ptrs).for_each(width, 2, |_, state| {
            state[0] += 1;
            state[1] = !state[0];
        });
        table.rows_mut().end();
    }
}

/// The count that a reader on another thread would see of a key.
fn seen(table: &Table, key: &Key, hashing: Hashing) -> Option<u64> {
    let (readable, width) = (table.readable().expect("made for readers"), table.width());
    let keys = batch(width, std::slice::from_ref(key), hashing);
    let words = keys.words.as_slice();
    let long =
        if width == 2 && is_long(words[0]) { keys.long.bytes(words[0], words[1]) } else { &[] };
    let words = [words[0], words.get(1).copied().unwrap_or(0)];
    let row = readable.find(&SoughtKey { hash: keys.hashes[0], words, long })?;
    assert_eq!(readable.is_null(row.id), width == 1 && key.is_none());
    let mut state = [0; 2];
    let Copied::Whole(stamp) = readable.copy(&row, &mut state) else { panic!("nobody writes") };
    assert!(row.is_at(stamp) && !row.is_new() && state[0] == !state[1]);
    Some(state[0])
}

fn check(table: &mut Table, model: &BTreeMap<Key, u64>, key: fn(u16) -> Key, hashing: Hashing) {
    let contents = contents(table);
    assert_eq!(contents.len(), model.len(), "one row for each key");
    assert_eq!(contents.into_iter().collect::<BTreeMap<_, _>>(), *model);
    if let Some(readable) = table.readable() {
        assert_eq!(readable.len() as usize, model.len());
        for i in 0..300 {
            let key = key(i);
            assert_eq!(seen(table, &key, hashing), model.get(&key).copied(), "{key:?}");
        }
    }
}

pub(super) fn run(width: usize, key: fn(u16) -> Key, hashing: Hashing, ops: &[Op]) {
    run_on(Table::new(width, &[0, !0]), key, hashing, ops);
    run_on(Table::new_readable(width, &[0, !0]), key, hashing, ops);
}

fn run_on(mut table: Table, key: fn(u16) -> Key, hashing: Hashing, ops: &[Op]) {
    let width = table.width();
    let mut model = BTreeMap::<Key, u64>::new();
    for op in ops {
        match op {
            Op::Lookup { keys, every } => {
                let keys = keys.iter().copied().map(key).collect::<Vec<_>>();
                let selection = (0..keys.len()).step_by(*every).collect::<Vec<_>>();
                for i in &selection {
                    *model.entry(keys[*i].clone()).or_default() += 1;
                }
                let selection =
                    selection.into_iter().map(|i| u32::try_from(i).unwrap()).collect::<Vec<_>>();
                count(&mut table, &batch(width, &keys, hashing), &selection);
            }
            Op::Clear => {
                check(&mut table, &model, key, hashing);
                table.clear();
                model.clear();
            }
        }
        check(&mut table, &model, key, hashing);
    }
    export_into_another(&mut table, &model);
}

/// The keys of a table, exported in parts, meet in another table that has some of them already.
fn export_into_another(from: &mut Table, model: &BTreeMap<Key, u64>) {
    let width = from.width();
    let mut into = Table::new(width, &[0, !0]);
    let len = u32::try_from(from.len()).unwrap();
    let mut keys = KeyBatch::default();
    // First a part of them, so that some are there already.
    for ids in [len / 2..len, 0..len / 3, len / 3..len] {
        from.export_keys(ids.clone(), &mut keys);
        let selection = (0..ids.end - ids.start).collect::<Vec<_>>();
        count(&mut into, &keys, &selection);
    }
    let found = contents(&mut into).into_iter().map(|(key, _)| key).collect::<Vec<_>>();
    assert_eq!(found.len(), model.len(), "exported keys find their rows again");
    assert!(found.iter().all(|key| model.contains_key(key)));
}

/// Runs the steps that `data` chooses.
pub(crate) fn run_bytes(data: &[u8]) {
    let mut bytes = data.iter().copied();
    let mut byte = || bytes.next();
    let wide = byte().unwrap_or(0) % 2 == 1;
    let hashing = [Hashing::Real, Hashing::Equal, Hashing::EqualTag, Hashing::Four, Hashing::Last]
        [usize::from(byte().unwrap_or(0) % 5)];
    let mut ops = Vec::new();
    while let Some(op) = byte() {
        if op < 20 {
            ops.push(Op::Clear);
            continue;
        }
        let every = usize::from(op % 3) + 1;
        let keys = (0..op).map_while(|_| byte()).map(u16::from);
        // Some of many keys, or many of few.
        let keys = if op % 2 == 0 { keys.collect() } else { keys.map(|key| key % 8).collect() };
        ops.push(Op::Lookup { keys, every });
    }
    if wide { run(2, byte_key, hashing, &ops) } else { run(1, word_key, hashing, &ops) }
}
