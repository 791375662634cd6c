//! See `model.rs`; here, what it is run on.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::Table;
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
