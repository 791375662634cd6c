//! The ride-sharing case: `system_dispatch` is 80 % of the events among 10,000 real drivers.
//!
//!     cargo run --release --example ride_sharing

#![expect(clippy::print_stdout, reason = "an example talks to people")]

mod common;

use saltmill::config::SkewMode;
use saltmill::skew::policy::Salts;

fn main() {
    let rows = 4_000_000;
    println!("{rows} events, 80 % of them of system_dispatch, 10,000 drivers, 8 workers");
    let batches = common::stream(rows, 0.8, "system_dispatch", 10_000, "driver-");
    common::compare(&batches, 8, SkewMode::Adaptive, Salts::Auto);
}
