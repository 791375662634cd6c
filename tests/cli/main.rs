//! The `saltmill` program from outside: what people type, what they get, and what they are told when
//! something is wrong.
//!
//! - `usage`: help, exit codes, options that are wrong.
//! - `bad_input`: inputs and outputs that are wrong; each gets one clear line, or its rows are counted.
//! - `aggregates`: what cannot be aggregated, windows that cannot be, and odd values that can.
//! - `streaming`: results while standard input is open, closed pipes, Ctrl-C.
//! - `outputs`: statistics, late and rejected rows, formats, `gen` and `bench`.
//! - `windows`: every kind of window, lateness, limits.
//! - `ordered`: the same bytes for any number of workers and any batch size.
//! - `keygroups`: owners of key groups and keys.
//! - `metrics`: a run that Prometheus scrapes, or a person watches.
//! - `resume`: checkpoints, and runs that go on after a kill.
//! - `memory`: limits of memory, and what they cost.
//! - `diagnose`: what is found and predicted, against counts made in another way.
//! - `page`: the page of `diagnose` in a browser.
#![cfg(feature = "cli")]

mod support;

mod usage;
mod bad_input;
mod aggregates;
mod streaming;
mod outputs;
mod page;
mod ordered;
mod keygroups;
mod diagnose;
mod metrics;
mod windows;
mod resume;
mod memory;
