//! Instructions of each stage and of a whole engine on one thread, under callgrind: numbers that do not
//! depend on what else the machine does. AVX-512 is not among them, as valgrind does not know it.
//!
//! `just bench-counts` runs this and compares with `counts-baseline.csv`. Every bench checks of its result what
//! costs next to nothing to look at (a hash, a number of keys), within what is counted; those of whole engines
//! check that every row was counted, after that.

use std::hint::black_box;
use std::sync::Arc;

use gungraun::Callgrind;
use gungraun::prelude::*;
use saltmill::Job;
use saltmill::arrow::array::{ArrayRef, AsArray};
use saltmill::arrow::datatypes::Int64Type;
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::internals::{
    NumberConsumer, NumberProducer, Routing, Stages, equal_mask, mask_rows, masked_reduce, min_max,
    number_ring, run_inline,
};
use saltmill::kernel::Isa;
use saltmill::skew::sketch::{Sketch, SketchConfig};

/// Rows of a batch.
const BATCH: usize = 8192;
/// Batches that go through a table, and rows in them.
const TABLE_ROWS: u64 = 64 << 10;
const ENGINE_ROWS: u64 = 256 << 10;

fn isa(name: &str) -> Isa {
    Isa::parse(name).expect("valgrind knows AVX2, if the processor has it")
}

/// A column in which one row of eight is 7, and its mask.
fn column(name: &str) -> (Isa, Vec<u64>, Vec<u64>, Vec<u32>) {
    let values = (0..BATCH as u64).map(|i| if i * 5 % 8 == 0 { 7 } else { i * 16 });
    let values = values.collect::<Vec<_>>();
    let mut mask = vec![0; BATCH / 64];
    equal_mask(isa(name), &values, 7, &mut mask);
    (isa(name), values, mask, Vec::with_capacity(BATCH + 64))
}

#[library_benchmark]
#[bench::portable(column("portable"))]
#[bench::avx2(column("avx2"))]
fn kernel_equal_mask(input: (Isa, Vec<u64>, Vec<u64>, Vec<u32>)) -> Vec<u64> {
    let (isa, values, mut mask, _) = input;
    equal_mask(isa, black_box(&values), 7, &mut mask);
    assert_eq!(mask[0] & 1, 1);
    black_box(mask)
}

#[library_benchmark]
#[bench::portable(column("portable"))]
#[bench::avx2(column("avx2"))]
fn kernel_mask_rows(input: (Isa, Vec<u64>, Vec<u64>, Vec<u32>)) -> Vec<u32> {
    let (isa, _, mask, mut rows) = input;
    mask_rows(isa, black_box(&mask), &mut rows);
    assert_eq!(rows.len(), BATCH / 8);
    black_box(rows)
}

fn masked(name: &str) -> (Isa, Vec<i64>, Vec<u64>) {
    let (isa, _, mask, _) = column(name);
    (isa, (0..8192).collect(), mask)
}

#[library_benchmark]
#[bench::portable(masked("portable"))]
#[bench::avx2(masked("avx2"))]
fn kernel_masked_reduce(input: (Isa, Vec<i64>, Vec<u64>)) -> (i128, i64, i64) {
    let reduced = masked_reduce(input.0, black_box(&input.1), &input.2);
    // Every eighth row from 0 on.
    assert_eq!(reduced, (4_190_208, 0, 8184));
    black_box(reduced)
}

fn numbers(name: &str) -> (Isa, Vec<i64>) {
    (isa(name), (0..8192).map(|i: i64| i * 4801 % 8192 - 4096).collect())
}

#[library_benchmark]
#[bench::portable(numbers("portable"))]
#[bench::avx2(numbers("avx2"))]
fn kernel_min_max(input: (Isa, Vec<i64>)) -> Option<(i64, i64)> {
    let found = min_max(input.0, black_box(&input.1));
    assert_eq!(found, Some((-4096, 4095)));
    black_box(found)
}

/// A job and one stream of it.
fn stream(rows: u64, keys: u64, distribution: &str, text: bool) -> (Arc<Job>, Vec<RecordBatch>) {
    let batches = saltmill_benches::stream(rows, keys, distribution, text);
    let job = saltmill_benches::job(&batches, 1, SkewMode::Off).isa(isa("avx2"));
    (Arc::new(job.build().expect("a valid job")), batches)
}

/// A batch, and what its hashes come to.
fn one_batch(text: bool) -> (Stages, RecordBatch, u64) {
    let (job, batches) = stream(BATCH as u64, 1000, "uniform", text);
    let mut stages = Stages::new(&job);
    // Once, for its memory.
    stages.encode(&batches[0]).expect("a batch of the job");
    let hashes = stages.hash();
    (stages, batches[0].clone(), hashes)
}

#[library_benchmark]
#[bench::int64(one_batch(false))]
#[bench::text(one_batch(true))]
fn batch_encode_hash(input: (Stages, RecordBatch, u64)) -> u64 {
    let (mut stages, batch, expected) = input;
    stages.encode(black_box(&batch)).expect("a batch of the job");
    let hashes = stages.hash();
    assert_eq!(hashes, expected);
    black_box(hashes)
}

fn routing(text: bool) -> (Routing, RecordBatch) {
    let batch = saltmill_benches::batch(BATCH as u64, 1000, text);
    let job = saltmill_benches::job(std::slice::from_ref(&batch), 2, SkewMode::Off);
    let job = job.isa(isa("avx2")).build().expect("a valid job");
    let mut routing = Routing::new(&Arc::new(job));
    routing.route(&batch).expect("a batch of the job");
    (routing, batch)
}

#[library_benchmark]
#[bench::int64(routing(false))]
#[bench::text(routing(true))]
fn batch_route(input: (Routing, RecordBatch)) -> usize {
    let (mut routing, batch) = input;
    let selected = routing.route(black_box(&batch)).expect("a batch of the job");
    assert_eq!(selected, BATCH);
    black_box(selected)
}

fn one_key() -> Stages {
    let (job, batches) = stream(BATCH as u64, 1, "uniform", false);
    let mut stages = Stages::new(&job);
    stages.encode(&batches[0]).expect("a batch of the job");
    stages.hash();
    stages.update_one_key();
    stages
}

#[library_benchmark]
#[bench::int64(one_key())]
fn batch_reduce_one_key(mut stages: Stages) -> usize {
    let keys = stages.update_one_key();
    assert_eq!(keys, 1);
    black_box(keys)
}

/// Prepared batches of a stream, over one pane; filled already if `warm`.
fn table(text: bool, warm: bool) -> Stages {
    let (job, batches) = stream(TABLE_ROWS, 10_000, "uniform", text);
    let mut stages = Stages::new(&job);
    stages.encode(&batches[0]).expect("a batch of the job");
    stages.hash();
    if warm {
        stages.update();
    }
    stages
}

#[library_benchmark]
#[bench::int64(table(false, true))]
#[bench::text(table(true, true))]
fn table_update(mut stages: Stages) -> usize {
    let keys = stages.update();
    assert!(keys > 9_900);
    black_box(keys)
}

#[library_benchmark]
#[bench::int64(table(false, false))]
#[bench::text(table(true, false))]
fn table_insert(mut stages: Stages) -> usize {
    let keys = stages.update();
    assert!(keys > 9_900);
    black_box(keys)
}

#[library_benchmark]
#[bench::int64(table(false, true), table(false, true))]
fn table_merge(mut owner: Stages, mut partial: Stages) -> usize {
    let keys = owner.merge(&mut partial);
    assert!(keys > 9_900);
    black_box(keys)
}

#[library_benchmark]
#[bench::int64(table(false, true))]
fn table_emit(mut stages: Stages) -> Vec<ArrayRef> {
    let columns = stages.emit().expect("the results fit");
    assert_eq!(columns.len(), 5);
    black_box(columns)
}

fn hashes() -> (Sketch, Vec<u64>) {
    let hash = |i: u64| if i % 4 == 0 { i.wrapping_mul(0x9E37_79B9_7F4A_7C15) } else { 7 };
    (Sketch::new(SketchConfig::default()), (0..BATCH as u64).map(hash).collect())
}

#[library_benchmark]
#[bench::one_key_of_three_rows_in_four(hashes())]
fn sketch_offer(input: (Sketch, Vec<u64>)) -> Sketch {
    let (mut sketch, hashes) = input;
    for &hash in black_box(&hashes) {
        sketch.offer(hash, hash);
    }
    assert_eq!(sketch.samples(), BATCH as u64);
    black_box(sketch)
}

#[library_benchmark]
#[bench::of_64(number_ring(64))]
fn ring_push_pop(ring: (NumberProducer, NumberConsumer)) -> u64 {
    let (mut producer, mut consumer) = ring;
    for value in 0..BATCH as u64 {
        assert!(producer.push(black_box(value)));
        assert_eq!(consumer.pop(), Some(value));
    }
    BATCH as u64
}

fn engine(keys: u64, distribution: &str, text: bool) -> (Job, Vec<RecordBatch>) {
    let batches = saltmill_benches::stream(ENGINE_ROWS, keys, distribution, text);
    let job = saltmill_benches::job(&batches, 2, SkewMode::Adaptive).isa(isa("avx2"));
    (job.build().expect("a valid job"), batches)
}

/// Every row must be in the results once.
fn counted(results: Vec<RecordBatch>) {
    let count = |batch: &RecordBatch| -> i64 {
        let counts = batch.column_by_name("count").expect("asked for");
        counts.as_primitive::<Int64Type>().values().iter().sum()
    };
    assert_eq!(results.iter().map(count).sum::<i64>().cast_unsigned(), ENGINE_ROWS);
}

#[library_benchmark]
#[bench::u1k(args = [engine(1_000, "uniform", false)], teardown = counted)]
#[bench::u1m(args = [engine(1_000_000, "uniform", false)], teardown = counted)]
#[bench::z11(args = [engine(1_000_000, "zipf:1.1", false)], teardown = counted)]
#[bench::h80(args = [engine(1_000_000, "hot:0.8", false)], teardown = counted)]
#[bench::h99(args = [engine(1_000_000, "hot:0.99", false)], teardown = counted)]
#[bench::text_h80(args = [engine(1_000_000, "hot:0.8", true)], teardown = counted)]
fn engine_inline(input: (Job, Vec<RecordBatch>)) -> Vec<RecordBatch> {
    let (job, batches) = input;
    black_box(run_inline(job, &batches).expect("it succeeds"))
}

library_benchmark_group!(
    name = kernels,
    benchmarks = [kernel_equal_mask, kernel_mask_rows, kernel_masked_reduce, kernel_min_max]
);
library_benchmark_group!(
    name = batch,
    benchmarks = [batch_encode_hash, batch_route, batch_reduce_one_key]
);
library_benchmark_group!(
    name = table,
    benchmarks = [table_update, table_insert, table_merge, table_emit]
);
library_benchmark_group!(name = control, benchmarks = [sketch_offer, ring_push_pop]);
library_benchmark_group!(name = engine, benchmarks = engine_inline);

main!(
    config = LibraryBenchmarkConfig::default().tool(Callgrind::with_args(["--cache-sim=no"])),
    library_benchmark_groups = [kernels, batch, table, control, engine]
);
