//! The 90 % key: one user sends nine of ten events, and adding workers changes nothing until its rows are
//! aggregated where they are.
//!
//!     cargo run --release --example hot_keys

#![expect(clippy::print_stdout, reason = "an example talks to people")]

mod common;

use saltmill::config::SkewMode;
use saltmill::skew::policy::Salts;

fn main() {
    let rows = 4_000_000;
    println!("{rows} events, 90 % of them of one user, 8 workers");
    let batches = common::stream(rows, 0.9, "guest", 100_000, "user-");
    common::compare(&batches, 8, SkewMode::Adaptive, Salts::Auto);
}
