//! See `model.rs`; here, what it is run on.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::{LOOKUP_ROWS, LOOKUP_STEP, Table};
use crate::kernel::Isa;
use crate::key::batch::KeyBatch;
use crate::state::readable::{Copied, SoughtKey};

use super::model::{Hashing, Op, batch, byte_key, count, counts, run, run_bytes, word_key};

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let keys = prop_oneof![
        prop::collection::vec(0..8_u16, 0..100),
        prop::collection::vec(0..300_u16, 0..400),
        Just((0..300).collect::<Vec<u16>>()),
        Just(vec![5; 100]),
    ];
    let lookup = (keys, 1..4_usize).prop_map(|(keys, every)| Op::Lookup { keys, every });
    prop::collection::vec(prop_oneof![6 => lookup, 1 => Just(Op::Clear)], 1..8)
}

fn hashing() -> impl Strategy<Value = Hashing> {
    prop_oneof![
        Just(Hashing::Real),
        Just(Hashing::Equal),
        Just(Hashing::EqualTag),
        Just(Hashing::Four),
        Just(Hashing::Last)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn keys_of_one_word(hashing in hashing(), ops in ops()) {
        run(1, word_key, hashing, &ops);
    }

    #[test]
    fn keys_of_bytes(hashing in hashing(), ops in ops()) {
        run(2, byte_key, hashing, &ops);
    }
}

#[test]
fn keys_that_are_all_new_are_inserted_without_being_compared() {
    for (width, key) in [(1, word_key as fn(u16) -> Option<Vec<u8>>), (2, byte_key)] {
        for hashing in [Hashing::Real, Hashing::Equal, Hashing::EqualTag, Hashing::Last] {
            let keys = (0..300).map(key).collect::<Vec<_>>();
            let keys = batch(width, &keys, hashing);
            let (mut table, mut ptrs) = (Table::new(width, &[0, !0]), Vec::new());
            table.warm(100);
            for selection in (0..300).collect::<Vec<u32>>().chunks(50) {
                table.insert_all(&keys, selection, &mut ptrs);
                assert_eq!(ptrs.len(), selection.len());
            }
            assert_eq!(table.len(), 300);
            // Looked up, all are there.
            (0..300)
                .collect::<Vec<u32>>()
                .chunks(50)
                .for_each(|some| count(&mut table, &keys, some));
            assert_eq!(table.len(), 300);
            assert!((0..300).all(|id| counts(&mut table, id) == 1));
        }
    }
}

#[test]
fn many_keys_grow_the_index_and_a_small_use_shrinks_it() {
    let mut table = Table::new(1, &[0, !0]);
    let words = (0..100_000_u64).map(|i| Some((i * 7919).to_le_bytes().to_vec()));
    let keys = batch(1, &words.collect::<Vec<_>>(), Hashing::Real);
    let selection = (0..100_000).collect::<Vec<_>>();
    for _ in 0..2 {
        count(&mut table, &keys, &selection);
    }
    assert_eq!(table.len(), 100_000);
    assert!((0..100_000).all(|id| counts(&mut table, id) == 2));
    let bytes = table.bytes();
    table.clear();
    count(&mut table, &keys, &selection[..10]);
    table.clear();
    count(&mut table, &keys, &selection[..10]);
    assert_eq!(table.len(), 10);
    assert!(table.bytes() < bytes / 50, "{} of {bytes} bytes are kept in use", table.bytes());
}

/// Keys `0 .. keys` of one word.
fn words(keys: u64) -> KeyBatch {
    let words = (0..keys).map(|i| Some(i.to_le_bytes().to_vec())).collect::<Vec<_>>();
    batch(1, &words, Hashing::Real)
}

/// Adds one to all words of the rows that were found, one pass for each word, as accumulators do.
fn add(table: &mut Table, keys: &KeyBatch, selection: &[u32], states: usize) {
    let mut ptrs = Vec::new();
    for selection in selection.chunks(LOOKUP_ROWS) {
        table.lookup(Isa::PORTABLE, keys, selection, &mut ptrs);
        table.rows_mut().begin(&ptrs);
        for word in 0..states {
            table.rows_mut().rows(&ptrs).for_each(1 + word, 1, |_, state| state[0] += 1);
        }
        table.rows_mut().end();
    }
}

#[test]
fn a_reader_beside_the_writer_sees_whole_rows() {
    const KEYS: u64 = 3000;
    const STATES: usize = 6;
    let mut table = Table::new_readable(1, &[0; STATES]);
    let (readable, keys) = (Arc::clone(table.readable().unwrap()), words(KEYS));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers = [3, 5].map(|step| {
            let (readable, keys, stop) = (&readable, &keys, &stop);
            scope.spawn(move || {
                let (mut state, mut whole) = ([0; STATES], 0);
                let mut last = vec![0; usize::try_from(KEYS).unwrap()];
                let mut key = 0;
                while !stop.load(Ordering::Relaxed) {
                    key = (key + step) % KEYS;
                    let hash = keys.hashes[usize::try_from(key).unwrap()];
                    let sought = SoughtKey { hash, words: [key, 0], long: &[] };
                    let Some(row) = readable.find(&sought) else { continue };
                    if let Copied::Whole(_) = readable.copy(&row, &mut state) {
                        let last = &mut last[usize::try_from(key).unwrap()];
                        assert!(state.iter().all(|word| *word == state[0]), "{key}: {state:?}");
                        assert!(*last <= state[0] && state[0] > 0, "{key}: {last}, {state:?}");
                        *last = state[0];
                        whole += 1;
                    } else {
                        readable.want();
                    }
                }
                whole
            })
        });
        // Few keys at first, which are there all the time, and more and more.
        let mut rounds = 0;
        for known in (10..u32::try_from(KEYS).unwrap()).step_by(10).chain([3000; 300]) {
            add(&mut table, &keys, &(0..known).collect::<Vec<_>>(), STATES);
            rounds += 1;
        }
        stop.store(true, Ordering::Relaxed);
        assert!(readers.into_iter().map(|one| one.join().unwrap()).sum::<u64>() > 0);
        assert_eq!(table.row(0)[1..=STATES], [rounds; STATES]);
    });
}

#[test]
fn what_a_reader_holds_outlives_the_table() {
    let mut table = Table::new_readable(2, &[0]);
    let long = |i: u64| Some([&[b'x'; 40][..], &i.to_le_bytes()].concat());
    let keys = batch(2, &(0..2000).map(long).collect::<Vec<_>>(), Hashing::Real);
    add_to_first(&mut table, &keys);
    let readable = Arc::clone(table.readable().unwrap());
    assert!(table.is_shared());
    drop(table);
    let text = long(1234).unwrap();
    let sought = SoughtKey {
        hash: keys.hashes[1234],
        words: [keys.words.as_slice()[2 * 1234], 0],
        long: &text,
    };
    let row = readable.find(&sought).expect("it is there");
    assert_eq!(readable.key_of(row.id).1, text);
    let mut state = [0];
    assert!(matches!(readable.copy(&row, &mut state), Copied::Whole(_)));
    assert_eq!(state, [1]);
}

fn add_to_first(table: &mut Table, keys: &KeyBatch) {
    let rows = u32::try_from(keys.hashes.len()).unwrap();
    let (mut ptrs, width) = (Vec::new(), table.width());
    for start in (0..rows).step_by(LOOKUP_ROWS) {
        let selection = (start..rows.min(start + LOOKUP_STEP)).collect::<Vec<_>>();
        table.lookup(Isa::PORTABLE, keys, &selection, &mut ptrs);
        table.rows_mut().begin(&ptrs);
        table.rows_mut().rows(&ptrs).for_each(width, 1, |_, state| state[0] += 1);
        table.rows_mut().end();
    }
}

#[test]
#[should_panic(expected = "what a reader sees is not cleared")]
fn a_table_is_not_cleared_under_a_reader() {
    let mut table = Table::new_readable(1, &[0]);
    let _readable = Arc::clone(table.readable().unwrap());
    table.clear();
}

/// The seeds of the fuzz target, which cannot reach the table from outside the crate.
#[test]
fn fuzz_seeds() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds/table");
    let mut seeds = 0;
    for seed in fs::read_dir(folder).unwrap() {
        let path = seed.unwrap().path();
        println!("{}", path.display());
        run_bytes(&fs::read(path).unwrap());
        seeds += 1;
    }
    assert!(seeds > 0);
}
