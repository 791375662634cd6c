//! The table of a pane against a `BTreeMap`, under colliding hashes.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| saltmill::fuzzing::table(data));
