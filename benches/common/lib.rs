//! Streams and jobs that the benches share. Every stream is the generator's own, so that a bench, the
//! command line and the comparison with other engines mean the same by a name.

use std::time::Duration;

use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::io::{Distribution, GenerateOptions, KeyType, StreamGenerator};
use saltmill::kernel::Isa;
use saltmill::{Aggregate, Job, JobBuilder, Pinning, Window};

pub mod naive;
pub mod waking;

/// The streams of the reports: name, keys, distribution.
pub const STREAMS: [(&str, u64, &str); 7] = [
    ("U1K", 1_000, "uniform"),
    ("U1M", 1_000_000, "uniform"),
    ("U10M", 10_000_000, "uniform"),
    ("Z1.1", 1_000_000, "zipf:1.1"),
    ("Z1.5", 1_000_000, "zipf:1.5"),
    ("H80", 1_000_000, "hot:0.8"),
    ("H99", 1_000_000, "hot:0.99"),
];

/// Ten windows in every stream, as in the reports.
const WINDOWS: u64 = 10;
/// Their length.
pub const WINDOW: Duration = Duration::from_millis(500);

/// The batches of a stream of `rows` rows with ten windows.
pub fn stream(rows: u64, keys: u64, distribution: &str, text: bool) -> Vec<RecordBatch> {
    let window_ms = u64::try_from(WINDOW.as_millis()).expect("short");
    generate(rows, keys, distribution, text, (rows / (WINDOWS * window_ms)).max(1))
}

/// One batch of rows of one window, so that it can be routed again and again.
pub fn batch(rows: u64, keys: u64, text: bool) -> RecordBatch {
    generate(rows, keys, "uniform", text, rows).swap_remove(0)
}

fn generate(
    rows: u64,
    keys: u64,
    distribution: &str,
    text: bool,
    rows_per_ms: u64,
) -> Vec<RecordBatch> {
    let options = GenerateOptions {
        rows,
        keys,
        distribution: Distribution::parse(distribution).expect("a distribution of the table"),
        key_type: if text { KeyType::Text } else { KeyType::Int64 },
        rows_per_ms,
        ..GenerateOptions::default()
    };
    StreamGenerator::new(options).expect("valid options").collect()
}

/// Count, sum, least and largest value by key and window, with every row at its owner unless `skew` says
/// otherwise.
pub fn job(batches: &[RecordBatch], workers: usize, skew: SkewMode) -> JobBuilder {
    Job::builder(batches[0].schema())
        .key(["key"])
        .event_time("ts")
        .window(Window::tumbling(WINDOW))
        .aggregates([
            Aggregate::count(),
            Aggregate::sum("value"),
            Aggregate::min("value"),
            Aggregate::max("value"),
        ])
        .workers(workers)
        .pinning(Pinning::Auto)
        .skew(skew)
}

/// Instruction sets of this processor under their names.
pub fn isas() -> Vec<(&'static str, Isa)> {
    Isa::available().into_iter().map(|isa| (isa.name(), isa)).collect()
}

/// Rows of all batches.
pub fn rows(batches: &[RecordBatch]) -> u64 {
    batches.iter().map(|batch| batch.num_rows() as u64).sum()
}
