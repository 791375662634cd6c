//! The 99 % key with 64 salts, named beforehand, so that it is spread from the first row on.
//!
//!     cargo run --release --example extreme_key

#![expect(clippy::print_stdout, reason = "an example talks to people")]

mod common;

use saltmill::config::{HotList, SkewMode};
use saltmill::skew::policy::Salts;

fn main() {
    let rows = 4_000_000;
    println!("{rows} events, 99 % of them of one bot, 8 workers, 64 salts");
    let batches = common::stream(rows, 0.99, "bot", 100_000, "user-");
    let bot = HotList::Text(vec![Some("bot".to_owned())]);
    common::compare(&batches, 8, SkewMode::Hot(bot), Salts::Fixed(64));
}
