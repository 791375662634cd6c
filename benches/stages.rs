//! Stages of the data plane, one by one: kernels on each instruction set, tables, rings.
//!
//! `cargo bench --manifest-path benches/Cargo.toml --bench stages`

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use saltmill::Job;
use saltmill::arrow::array::AsArray;
use saltmill::arrow::datatypes::Int64Type;
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::internals::{
    Routing, Stages, equal_mask, mask_rows, masked_reduce, min_max, number_ring,
};
use saltmill::kernel::Isa;
use saltmill::skew::sketch::{Sketch, SketchConfig};

/// Rows of the batch that kernels work on: it fits into the second-level cache, as an engine's does.
const BATCH: usize = 8192;
/// Rows that go through a table.
const TABLE_ROWS: u64 = 1 << 20;

fn group<'a>(criterion: &'a mut Criterion, name: &str, rows: u64) -> BenchmarkGroup<'a, WallTime> {
    let mut group = criterion.benchmark_group(name);
    group.throughput(Throughput::Elements(rows)).sample_size(20);
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    group
}

/// Pseudo-random words of which one in `every` is 7.
fn words(every: u64) -> Vec<u64> {
    let mut state = 1_u64;
    let mut next = || {
        state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        state >> 33
    };
    (0..BATCH).map(|_| if next() % every == 0 { 7 } else { next() | 8 }).collect()
}

fn kernels(criterion: &mut Criterion) {
    for (name, isa) in saltmill_benches::isas() {
        let mut group = group(criterion, "kernel", BATCH as u64);
        let values = words(3).iter().map(|word| word.cast_signed() - (1 << 30)).collect::<Vec<_>>();
        let expected = values.iter().min().copied().zip(values.iter().max().copied());
        assert_eq!(min_max(isa, &values), expected);
        group.bench_function(BenchmarkId::new("min_max", name), |bencher| {
            bencher.iter(|| min_max(isa, black_box(&values)));
        });
        for (share, every) in [("80 %", 1), ("10 %", 10), ("1 %", 100)] {
            let values = if every == 1 { mostly_hot() } else { words(every) };
            let mut mask = vec![0; BATCH / 64];
            let mut rows = Vec::with_capacity(BATCH + 64);
            equal_mask(isa, &values, 7, &mut mask);
            mask_rows(isa, &mask, &mut rows);
            let expected = (0..BATCH).filter(|row| values[*row] == 7);
            assert!(rows.iter().map(|row| *row as usize).eq(expected), "{name}");
            group.bench_function(BenchmarkId::new(format!("equal_mask, {share}"), name), |b| {
                b.iter(|| equal_mask(isa, black_box(&values), 7, &mut mask));
            });
            let numbers = (0..BATCH as i64).collect::<Vec<_>>();
            let sum = rows.iter().map(|row| i128::from(*row)).sum::<i128>();
            assert_eq!(masked_reduce(isa, &numbers, &mask).0, sum);
            group.bench_function(BenchmarkId::new(format!("masked_reduce, {share}"), name), |b| {
                b.iter(|| masked_reduce(isa, black_box(&numbers), black_box(&mask)));
            });
            group.bench_function(BenchmarkId::new(format!("mask_rows, {share}"), name), |b| {
                b.iter(|| mask_rows(isa, black_box(&mask), &mut rows));
            });
        }
        group.finish();
    }
}

/// Four rows of five are 7.
fn mostly_hot() -> Vec<u64> {
    words(5).iter().map(|word| if *word == 7 { 8 } else { 7 }).collect()
}

/// A job over `batches` on one shard.
fn job(batches: &[RecordBatch], isa: Isa) -> Arc<Job> {
    Arc::new(
        saltmill_benches::job(batches, 1, SkewMode::Off).isa(isa).build().expect("a valid job"),
    )
}

fn batch_stages(criterion: &mut Criterion) {
    for text in [false, true] {
        let batches = [saltmill_benches::batch(BATCH as u64, 1000, text)];
        let keys = if text { "text" } else { "int64" };
        for (name, isa) in saltmill_benches::isas() {
            let mut group = group(criterion, "batch", BATCH as u64);
            let job = job(&batches, isa);
            let mut stages = Stages::new(&job);
            let hash = |stages: &mut Stages| {
                stages.encode(&batches[0]).expect("a batch of the job");
                stages.hash()
            };
            let expected = hash(&mut Stages::new(&self::job(&batches, Isa::PORTABLE)));
            group.bench_function(BenchmarkId::new(format!("encode, hash, {keys}"), name), |b| {
                b.iter(|| assert_eq!(hash(&mut stages), expected));
            });
            let mut routing = Routing::new(&job);
            group.bench_function(BenchmarkId::new(format!("route, {keys}"), name), |b| {
                b.iter(|| {
                    let selected = routing.route(&batches[0]).expect("a batch of the job");
                    assert_eq!(selected, BATCH);
                });
            });
            if !text {
                one_key(&mut group, name, &job);
            }
            group.finish();
        }
    }
}

/// The rows of a hot key.
fn one_key(group: &mut BenchmarkGroup<'_, WallTime>, name: &str, job: &Arc<Job>) {
    let batch = saltmill_benches::batch(BATCH as u64, 1, false);
    let mut stages = Stages::new(job);
    stages.encode(&batch).expect("a batch of the job");
    stages.hash();
    group.bench_function(BenchmarkId::new("reduce one key", name), |b| {
        b.iter(|| assert_eq!(stages.update_one_key(), 1));
    });
}

/// Every batch of a stream into one pane; answers its keys and the sum of their counts.
fn fill(stages: &mut [Stages], pane: &mut Stages) -> (usize, i64) {
    let mut keys = 0;
    for stage in stages.iter_mut() {
        stage.clear();
        stage.update();
        keys = pane.merge(stage);
    }
    let counts = pane.emit().expect("counts fit");
    let counts = counts[1].as_primitive::<Int64Type>().values();
    (keys, counts.iter().sum())
}

fn tables(criterion: &mut Criterion) {
    let isa = Isa::best();
    for (name, keys) in [("1K", 1_000), ("100K", 100_000), ("1M", 1_000_000)] {
        for text in [false, true] {
            let batches = saltmill_benches::stream(TABLE_ROWS, keys, "uniform", text);
            let job = job(&batches, isa);
            let kind = if text { "text" } else { "int64" };
            let distinct = distinct_keys(&batches);
            let mut group = group(criterion, "table", TABLE_ROWS);
            group.sample_size(10);
            let update = |stages: &mut Stages| {
                let mut keys = 0;
                for batch in &batches {
                    stages.encode(batch).expect("a batch of the job");
                    stages.hash();
                    keys = stages.update();
                }
                assert_eq!(keys, distinct);
            };
            let mut warm = Stages::new(&job);
            group.bench_function(BenchmarkId::new(format!("update warm, {kind}"), name), |b| {
                b.iter(|| update(&mut warm));
            });
            group.bench_function(BenchmarkId::new(format!("insert, {kind}"), name), |b| {
                b.iter(|| {
                    warm.clear();
                    update(&mut warm);
                });
            });
            group.bench_function(BenchmarkId::new(format!("first use, {kind}"), name), |b| {
                b.iter_batched(
                    || Stages::new(&job),
                    |mut stages| {
                        update(&mut stages);
                        stages
                    },
                    BatchSize::PerIteration,
                );
            });
            group.finish();
        }
    }
    merging(criterion);
}

/// Partials of 16 batches into their owner's pane, and emission.
fn merging(criterion: &mut Criterion) {
    let batches = saltmill_benches::stream(TABLE_ROWS, 100_000, "uniform", false);
    let job = job(&batches, Isa::best());
    let mut partials = batches
        .iter()
        .map(|batch| {
            let mut stages = Stages::new(&job);
            stages.encode(batch).expect("a batch of the job");
            stages.hash();
            stages
        })
        .collect::<Vec<_>>();
    let distinct = distinct_keys(&batches);
    let mut group = group(criterion, "table", TABLE_ROWS);
    group.sample_size(10);
    let mut owner = Stages::new(&job);
    group.bench_function("partials, merge, emit", |b| {
        b.iter(|| {
            owner.clear();
            let (keys, rows) = fill(&mut partials, &mut owner);
            assert_eq!((keys, rows.cast_unsigned()), (distinct, TABLE_ROWS));
        });
    });
    group.finish();
}

fn distinct_keys(batches: &[RecordBatch]) -> usize {
    use hashbrown::HashSet;
    let numbers = |batch: &RecordBatch| {
        let keys = batch.column_by_name("key")?.as_primitive_opt::<Int64Type>()?;
        Some(keys.values().to_vec())
    };
    if numbers(&batches[0]).is_some() {
        return batches.iter().filter_map(numbers).flatten().collect::<HashSet<_>>().len();
    }
    let texts = |batch: &RecordBatch| {
        let keys = batch.column_by_name("key").expect("a generated stream").as_string::<i32>();
        keys.iter().flatten().map(str::to_owned).collect::<Vec<_>>()
    };
    batches.iter().flat_map(texts).collect::<HashSet<_>>().len()
}

fn sketch(criterion: &mut Criterion) {
    let mut group = group(criterion, "sketch", BATCH as u64);
    for (name, hashes) in [("uniform", words(u64::MAX)), ("80 % one key", mostly_hot())] {
        let mut sketch = Sketch::new(SketchConfig::default());
        group.bench_function(BenchmarkId::new("offer", name), |b| {
            b.iter(|| {
                for &hash in &hashes {
                    sketch.offer(hash, hash);
                }
            });
            assert!(sketch.samples() >= hashes.len() as u64);
        });
    }
    group.finish();
}

fn rings(criterion: &mut Criterion) {
    const VALUES: u64 = 1 << 16;
    let mut group = group(criterion, "ring", VALUES);
    group.bench_function("one thread, capacity 64", |b| {
        let (mut producer, mut consumer) = number_ring(64);
        b.iter(|| {
            for value in 0..VALUES {
                assert!(producer.push(value));
                assert_eq!(consumer.pop(), Some(value));
            }
        });
    });
    for capacity in [1, 8, 64] {
        group.bench_function(BenchmarkId::new("two threads, capacity", capacity), |b| {
            b.iter_custom(|rounds| two_threads(capacity, rounds * VALUES));
        });
    }
    group.finish();
}

/// The time to hand over `values` numbers, checked to arrive in order.
fn two_threads(capacity: usize, values: u64) -> Duration {
    let (mut producer, mut consumer) = number_ring(capacity);
    let started = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for value in 0..values {
                while !producer.push(value) {
                    std::thread::yield_now();
                }
            }
        });
        for expected in 0..values {
            let value = loop {
                match consumer.pop() {
                    Some(value) => break value,
                    None => std::thread::yield_now(),
                }
            };
            assert_eq!(value, expected);
        }
    });
    started.elapsed()
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    kernels(&mut criterion);
    batch_stages(&mut criterion);
    tables(&mut criterion);
    sketch(&mut criterion);
    rings(&mut criterion);
    criterion.final_summary();
}
