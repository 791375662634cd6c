//! What checkpoints cost: one of a million keys, throughput while one is taken every second, and how long shards wait
//! for the last producer at a barrier beside a key with 80 % of the rows, skew handling off and on.
//!
//!     cargo bench --manifest-path benches/Cargo.toml --bench checkpoints

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use saltmill::arrow::array::{ArrayRef, AsArray, Int64Array};
use saltmill::arrow::datatypes::Int64Type;
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::runtime::report::CheckpointReport;
use saltmill::{
    Aggregate, Checkpoint, CheckpointDir, Checkpoints, Collected, Engine, Job, RunError,
};

const KEYS: i64 = 1_000_000;
const BATCH_ROWS: i64 = 8192;
/// Long enough for some checkpoints at one a second.
const RUN: Duration = Duration::from_secs(5);

/// A stream that producers push again and again: `hot` of a hundred rows have one key.
fn stream(producer: i64, hot: i64) -> Vec<RecordBatch> {
    let batch = |n: i64| {
        let key = |i: i64| {
            let row = (n * 2 + producer) * BATCH_ROWS + i;
            if row.wrapping_mul(7919).rem_euclid(100) < hot {
                42
            } else {
                row.wrapping_mul(2_654_435_761).rem_euclid(KEYS)
            }
        };
        let keys: ArrayRef = Arc::new((0..BATCH_ROWS).map(key).collect::<Int64Array>());
        let values: ArrayRef = Arc::new((0..BATCH_ROWS).map(|i| n ^ i).collect::<Int64Array>());
        RecordBatch::try_from_iter([("key", keys), ("value", values)]).expect("two columns")
    };
    (0..120).map(batch).collect()
}

struct Run {
    rows_per_s: f64,
    taken: Vec<CheckpointReport>,
}

/// Pushes from two threads for a while; a checkpoint every second if `dir` is given, and checks the result.
fn run(streams: &[Vec<RecordBatch>], skew: SkewMode, dir: Option<&Path>) -> Result<Run, RunError> {
    let aggregates = Aggregate::parse_list("count, sum(value), min(value), max(value)");
    let job = Job::builder(streams[0][0].schema())
        .key(["key"])
        .aggregates(aggregates.expect("a list"))
        .skew(skew)
        .workers(2);
    let results = Collected::new();
    let mut builder = Engine::builder(job.build().expect("a valid job"));
    if let Some(dir) = dir {
        let dir = CheckpointDir::open(dir).expect("a directory of its own");
        builder = builder.checkpoints(Checkpoints::new(Arc::new(dir)));
    }
    let engine = builder.start(results.clone())?;
    let mut taken = Vec::new();
    let started = Instant::now();
    std::thread::scope(|scope| -> Result<(), RunError> {
        let producers = streams.iter().map(|stream| {
            let ingest = engine.ingest();
            scope.spawn(move || -> Result<(), RunError> {
                let mut ingest = ingest?;
                let mut batches = stream.iter().cycle();
                while started.elapsed() < RUN {
                    for batch in batches.by_ref().take(8) {
                        ingest.push(batch.clone())?;
                    }
                }
                ingest.close()
            })
        });
        let producers = producers.collect::<Vec<_>>();
        if dir.is_some() {
            for second in 1..RUN.as_secs() {
                std::thread::sleep(Duration::from_secs(second).saturating_sub(started.elapsed()));
                taken.push(engine.checkpoint()?);
            }
        }
        producers.into_iter().try_for_each(|one| one.join().expect("producers do not panic"))
    })?;
    let report = engine.finish()?;
    #[expect(clippy::cast_precision_loss, reason = "a rate")]
    let rows_per_s = report.rows_in as f64 / started.elapsed().as_secs_f64();
    let counts = results.take();
    let counts = counts.iter().flat_map(|batch| batch.column(1).as_primitive::<Int64Type>().values());
    assert_eq!(counts.sum::<i64>().unsigned_abs(), report.rows_in, "every row is counted once");
    Ok(Run { rows_per_s, taken })
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn ms(of: impl Fn(&CheckpointReport) -> Duration, taken: &[CheckpointReport]) -> String {
    let mut values = taken.iter().map(|one| of(one).as_secs_f64() * 1e3).collect::<Vec<_>>();
    let middle = median(&mut values);
    format!("{middle:.2} ms (to {:.2})", values.last().copied().unwrap_or(f64::NAN))
}

fn main() -> Result<(), RunError> {
    // `cargo bench` hands its own options on.
    let root = PathBuf::from(std::env::temp_dir()).join(format!("saltmill-bench-{}", std::process::id()));
    let streams = [0, 1].map(|producer| stream(producer, 0));
    let (mut without, mut with, mut taken) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..3 {
        without.push(run(&streams, SkewMode::Adaptive, None)?.rows_per_s);
        let dir = root.join(round.to_string());
        let run = run(&streams, SkewMode::Adaptive, Some(&dir))?;
        Checkpoint::find(&dir)?.verify()?;
        with.push(run.rows_per_s);
        taken.extend(run.taken);
    }
    #[expect(clippy::cast_precision_loss, reason = "a ratio")]
    let bytes_per_key = taken.last().map_or(0.0, |one| one.bytes as f64 / one.keys.max(1) as f64);
    println!("a checkpoint of {} keys, of 4 aggregates:", taken.last().map_or(0, |one| one.keys));
    println!("  from request to end {}", ms(|one| one.duration, &taken));
    println!("  shards stand still  {}", ms(|one| one.capture, &taken));
    println!("  bytes a key         {bytes_per_key:.1}");
    let (before, after) = (median(&mut without) / 1e6, median(&mut with) / 1e6);
    println!("throughput, M rows/s: {before:.1} without, {after:.1} with one every second: {:.3}", after / before);
    let streams = [0, 1].map(|producer| stream(producer, 80));
    for (name, skew) in [("off", SkewMode::Off), ("adaptive", SkewMode::Adaptive)] {
        let dir = root.join(name);
        let run = run(&streams, skew, Some(&dir))?;
        println!(
            "80 % of one key, skew {name}: {:.1} M rows/s, alignment {}",
            run.rows_per_s / 1e6,
            ms(|one| one.alignment, &run.taken)
        );
    }
    let _ = std::fs::remove_dir_all(&root);
    Ok(())
}
