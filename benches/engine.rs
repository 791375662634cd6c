//! Whole engines, from memory into memory, over cardinality, skew, type of the key and workers. Results are
//! checked against the plainest program before anything is measured.
//!
//! `SALTMILL_BENCH_ROWS=5000000 cargo bench --manifest-path benches/Cargo.toml --bench engine -- H80`

use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::runtime::memory::MemorySource;
use saltmill::runtime::source::Source;
use saltmill::{Collected, Engine};
use saltmill_benches::naive;

/// Rows of each stream, unless the environment says otherwise.
const ROWS: u64 = 2_000_000;

fn rows() -> u64 {
    let text = std::env::var("SALTMILL_BENCH_ROWS").ok();
    text.map_or(ROWS, |text| text.parse().expect("SALTMILL_BENCH_ROWS is a number"))
}

/// The time of one run and its results.
fn run(
    batches: &Arc<[RecordBatch]>,
    workers: usize,
    skew: SkewMode,
) -> (Duration, Vec<RecordBatch>) {
    let job = saltmill_benches::job(batches, workers, skew).build().expect("a valid job");
    let time = batches[0].schema().index_of("ts").expect("a generated stream");
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(Arc::clone(batches), Some(time)));
    let results = Collected::new();
    let started = Instant::now();
    let engine = Engine::start_on(job, vec![source], results.clone()).expect("it starts");
    let report = engine.finish().expect("it succeeds");
    let time = started.elapsed();
    assert_eq!((report.rows_aggregated, report.rows_late), (saltmill_benches::rows(batches), 0));
    (time, results.take())
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = if cores > 2 { vec![1, 2, cores] } else { vec![1, 2] };
    let window_ms = i64::try_from(saltmill_benches::WINDOW.as_millis()).expect("short");
    for (name, keys, distribution) in saltmill_benches::STREAMS {
        for text in [false, true] {
            let kind = if text { "text" } else { "int64" };
            // Made and checked only if something of it is asked for.
            let mut stream: Option<Arc<[RecordBatch]>> = None;
            let mut group = criterion.benchmark_group(format!("{name}, {kind}"));
            group.throughput(Throughput::Elements(rows())).sample_size(10);
            group.warm_up_time(Duration::from_millis(200)).measurement_time(Duration::from_secs(1));
            for skew in [SkewMode::Off, SkewMode::Adaptive] {
                for &workers in &workers {
                    let mode = if skew == SkewMode::Off { "off" } else { "adaptive" };
                    let id = BenchmarkId::new(mode, workers);
                    group.bench_function(id, |bencher| {
                        let batches = stream.get_or_insert_with(|| {
                            let batches =
                                saltmill_benches::stream(rows(), keys, distribution, text);
                            let batches: Arc<[RecordBatch]> = batches.into();
                            let expected = naive::digest(&batches, window_ms);
                            let (_, results) = run(&batches, 3, SkewMode::Adaptive);
                            assert_eq!(naive::digest_of_results(&results), expected);
                            batches
                        });
                        bencher.iter_custom(|rounds| {
                            (0..rounds).map(|_| run(batches, workers, skew.clone()).0).sum()
                        });
                    });
                }
            }
            group.finish();
        }
    }
    criterion.final_summary();
}
