//! See `bodies::text`.
#![no_main]
#![allow(dead_code, reason = "one body of several")]

#[path = "../bodies.rs"]
mod bodies;
#[path = "../../tests/lattice/mod.rs"]
mod lattice;
#[path = "../../tests/oracle/mod.rs"]
mod oracle;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::text(data));
