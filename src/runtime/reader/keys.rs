//! Keys that a reader has found.

use arrow::buffer::NullBuffer;
use hashbrown::HashTable;

use crate::key::batch::{INLINE_BYTES, NULL_BYTES, is_long, key_len, short_bytes};
use crate::key::encode::DecodeKeys;
use crate::key::hash::{NULL_HASH, hash_long, hash_short, hash_word};
use crate::runtime::board::Board;
use crate::runtime::grace::Entry;
use crate::state::readable::{Readable, SoughtKey};

/// Keys by position.
#[derive(Debug)]
pub(super) struct KeyList {
    width: usize,
    keys: Vec<Listed>,
    /// Bytes of long keys.
    long: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
struct Listed {
    hash: u64,
    /// The second word of a long key is where its bytes begin.
    words: [u64; 2],
    is_null: bool,
}

impl KeyList {
    pub(super) fn new(width: usize) -> Self {
        Self { width, keys: Vec::new(), long: Vec::new() }
    }

    pub(super) fn push(&mut self, key: &SoughtKey<'_>, is_null: bool) {
        let mut words = key.words;
        if self.width == 2 && is_long(words[0]) {
            words[1] = self.long.len() as u64;
            self.long.extend_from_slice(key.long);
        }
        self.keys.push(Listed { hash: key.hash, words, is_null });
    }

    /// The `k`-th key, to be looked for, and whether it is the NULL key of one word.
    pub(super) fn sought(&self, k: usize) -> (SoughtKey<'_>, bool) {
        let Listed { hash, words, is_null } = self.keys[k];
        (SoughtKey { hash, words, long: self.long_of(words) }, is_null)
    }

    fn long_of(&self, words: [u64; 2]) -> &[u8] {
        if self.width == 1 || !is_long(words[0]) {
            return &[];
        }
        let start = usize::try_from(words[1]).expect("offsets fit into memory");
        &self.long[start..start + key_len(words[0])]
    }

    /// Whether the `k`-th key is this one.
    fn is(&self, k: usize, key: &SoughtKey<'_>, is_null: bool) -> bool {
        let one = &self.keys[k];
        let long = self.width == 2 && is_long(key.words[0]);
        one.is_null == is_null
            && one.words[0] == key.words[0]
            && if long { self.long_of(one.words) == key.long } else { one.words[1] == key.words[1] }
    }
}

impl DecodeKeys for KeyList {
    fn len(&self) -> usize {
        self.keys.len()
    }

    fn words(&self) -> (Vec<u64>, Option<NullBuffer>) {
        let words = self.keys.iter().map(|key| key.words[0]).collect();
        let nulls = self.keys.iter().map(|key| !key.is_null).collect::<NullBuffer>();
        (words, Some(nulls).filter(|nulls| nulls.null_count() > 0))
    }

    fn bytes(&self, k: usize, visit: &mut dyn FnMut(Option<&[u8]>)) {
        let [w0, w1] = self.keys[k].words;
        if w0 == NULL_BYTES {
            visit(None);
        } else if key_len(w0) <= INLINE_BYTES {
            visit(Some(&short_bytes(w0, w1)[..key_len(w0)]));
        } else {
            visit(Some(self.long_of([w0, w1])));
        }
    }
}

/// The keys of one shard that readers see, each once, whose hash is wanted.
pub(super) fn all_keys(
    board: &Board,
    entry: &Entry,
    shard: usize,
    width: usize,
    wanted: impl Fn(u64) -> bool,
) -> KeyList {
    let (mut keys, mut known) = (KeyList::new(width), HashTable::<usize>::new());
    let guard = entry.enter();
    let open = board.shards[shard].get(&guard).panes.iter().map(|(_, pane)| &**pane);
    let producers = board.producers.get(&guard).iter();
    let partials = producers.flat_map(|producer| producer.partials.get(&guard));
    let partials = partials.filter(|partial| partial.owner == shard).map(|partial| &*partial.pane);
    for pane in open.chain(partials) {
        for id in 0..pane.len() {
            let (key, is_null) = key_of(pane, id, width);
            if !wanted(key.hash) || known.find(key.hash, |k| keys.is(*k, &key, is_null)).is_some() {
                continue;
            }
            let listed = &keys.keys;
            known.insert_unique(key.hash, listed.len(), |k| listed[*k].hash);
            keys.push(&key, is_null);
        }
    }
    keys
}

fn key_of(pane: &Readable, id: u32, width: usize) -> (SoughtKey<'_>, bool) {
    let (words, long) = pane.key_of(id);
    let is_null = width == 1 && pane.is_null(id);
    let hash = if is_null || (width == 2 && words[0] == NULL_BYTES) {
        NULL_HASH
    } else if width == 1 {
        hash_word(words[0])
    } else if is_long(words[0]) {
        hash_long(long)
    } else {
        hash_short(words[0], words[1])
    };
    (SoughtKey { hash, words, long }, is_null)
}
