//! Whatever is hot, and whenever that changes, the results are the same to the last bit.
//!
//! Producers and shards are stepped on one thread in an order drawn from a seed; between any two steps the
//! hot set may be replaced by a random one, drawn from keys of the stream and strangers. The result rows
//! are compared with those of one shard that treats no key apart.

use std::mem::discriminant;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, BooleanArray, Decimal128Array, Float64Array, Int32Array, Int64Array, StringArray,
    TimestampMillisecondArray,
};
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};

use super::ingest::TryPushError;
use super::intake::Intake;
use super::shard::{Progress, Shard};
use super::shared::EngineShared;
use super::sink::Collected;
use super::wake::Sleeper;
use crate::aggregate::spec::{Aggregate, Function};
use crate::config::{Job, SkewMode};
use crate::kernel::Isa;
use crate::key::batch::KeyBatch;
use crate::key::hash::hash_word;
use crate::skew::hot_set::{Cause, HotKey};
use crate::skew::policy::Salts;
use crate::skew::sample::splitmix64;
use crate::time::window::Window;

/// Draws numbers from a seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(splitmix64(&mut self.0) >> 33).unwrap() % bound
    }

    fn pick<T: Clone>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())].clone()
    }
}

/// One stream and the job over it.
struct Case {
    keys: Vec<&'static str>,
    window: Window,
    mode: SkewMode,
    salts: Salts,
    workers: usize,
    batch_rows: usize,
    ring_capacity: usize,
    isa: Isa,
    /// Enough that no row is late, or so much that nothing closes before the end.
    out_of_orderness: Duration,
    /// Bytes that the engine may take: next to nothing stays in memory, or some.
    memory: Option<u64>,
    batches: Vec<RecordBatch>,
}

impl Case {
    fn draw(random: &mut Random) -> Self {
        let keys = random.pick(&[
            vec!["number"],
            vec!["short"],
            vec!["long"],
            vec!["number", "short"],
            vec!["number", "long"],
            vec![],
        ]);
        let millis = random.pick(&[50, 1000]);
        let size = Duration::from_millis(millis);
        let slide = Duration::from_millis(millis * random.pick(&[20, 70, 130]) / 100);
        let gap = Duration::from_millis(random.pick(&[1, 2, 7, 30]));
        let window = random.pick(&[
            Window::None,
            Window::tumbling(size),
            Window::hopping(size, slide),
            Window::cumulate(size, size * 3),
            Window::Session { gap },
        ]);
        let batches = (0..random.below(12) + 1).map(|i| batch(random, i)).collect();
        Self {
            keys,
            window,
            mode: random.pick(&[SkewMode::Adaptive, SkewMode::Adaptive, SkewMode::TwoPhase]),
            salts: random.pick(&[
                Salts::Auto,
                Salts::Fixed(1),
                Salts::Fixed(2),
                Salts::Fixed(3),
                Salts::Fixed(64),
            ]),
            workers: random.below(8) + 1,
            batch_rows: random.pick(&[1, 2, 37, 1023]),
            ring_capacity: random.pick(&[1, 2, 64]),
            isa: random.pick(&Isa::available()),
            out_of_orderness: Duration::from_millis(random.pick(&[100, 1_000_000])),
            memory: random.pick(&[Some(1), Some(1_000_000)]).filter(|_| random.below(12) == 0),
            batches,
        }
    }

    fn job(&self) -> Job {
        let job = Job::builder(self.batches[0].schema());
        let job = self.memory.into_iter().fold(job, |job, bytes| job.memory_limit(bytes));
        job.key(self.keys.iter().copied())
            .event_time("ts")
            .out_of_orderness(self.out_of_orderness)
            .window(self.window)
            .aggregates(aggregates())
            .workers(self.workers)
            .batch_rows(self.batch_rows)
            .ring_capacity(self.ring_capacity)
            .isa(self.isa)
            .skew(self.mode.clone())
            .salts(self.salts)
            .build()
            .unwrap()
    }

    /// The same rows through one shard, all rows cold.
    fn plainly(&self) -> Self {
        Self {
            keys: self.keys.clone(),
            window: self.window,
            mode: SkewMode::Off,
            salts: Salts::Auto,
            workers: 1,
            batch_rows: 4096,
            ring_capacity: 64,
            isa: Isa::PORTABLE,
            out_of_orderness: self.out_of_orderness,
            memory: None,
            batches: self.batches.clone(),
        }
    }
}

/// Every function there is, some of them several times.
fn aggregates() -> Vec<Aggregate> {
    let text = "count, count(v), sum(v), min(v), max(v), avg(v), count(f), sum(f), min(f), \
                max(f), avg(f), sum(d), avg(d), min(d), min(short), max(long), sum_decimal(v), \
                first(short), last(v), arg_min(f, long), arg_max(v, f), bit_xor(v), any_value(f), \
                sum(f) filter (where v > 0) as some_f, count filter (where short is null) as nulls, \
                max(v) filter (where v > 0 and f < 1) as some_v, \
                stddev(f), corr(v, f), count(distinct v), count(distinct long, v), approx_distinct(f), \
                median(f), approx_quantile(v, 0.9), top_n(v, 3, short), bottom_n(f, 2), mode(v), \
                count(distinct f), var_samp(v), var_pop(f), stddev_pop(v), covar_samp(v, f), covar_pop(f, v), \
                bit_and(v), bit_or(v), bool_and(b), bool_or(b), any_value(long)";
    let aggregates = Aggregate::parse_list(text).unwrap();
    for function in Function::all() {
        let same = |a: &Aggregate| discriminant(&a.function) == discriminant(function);
        assert!(aggregates.iter().any(same), "{function} is not asked for");
    }
    aggregates
}

/// Rows of which more than half have one key, NULL in some batches.
fn batch(random: &mut Random, index: usize) -> RecordBatch {
    let rows = random.below(300) + 1;
    let heavy = random.pick(&[None, Some(7), Some(0)]);
    let ids: Vec<Option<i64>> = (0..rows)
        .map(|_| if random.below(10) < 6 { heavy } else { Some(random.below(20) as i64) })
        .collect();
    let short = ids.iter().map(|id| id.map(|id| format!("user-{id}")));
    let long = ids.iter().map(|id| id.map(|id| format!("a key of more than twelve bytes, {id}")));
    let null_or = |random: &mut Random, value: i64| (random.below(9) > 0).then_some(value);
    let v: Vec<_> = (0..rows)
        .map(|_| {
            let value = random.pick(&[0, -5, 1 << 40, i64::from(i32::MAX)]);
            null_or(random, value)
        })
        .collect();
    let f: Vec<_> = (0..rows)
        .map(|_| Some(random.pick(&[0.1, -1e17, 1e17, 3.5e-9, -0.0, 1e300, -1e300, 0.7])))
        .collect();
    let d = Decimal128Array::from_iter((0..rows).map(|row| Some(row as i128 * 37 - 500)));
    let b = (0..rows).map(|row| (row % 5 > 0).then_some(row % 3 > 0));
    let ts = (0..rows).map(|row| Some((index * 40 + row % 60) as i64 - 100));
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        (
            "number",
            Arc::new(Int32Array::from_iter(ids.iter().map(|id| id.map(|id| id as i32)))),
            true,
        ),
        ("short", Arc::new(short.collect::<StringArray>()), true),
        ("long", Arc::new(long.collect::<StringArray>()), true),
        ("v", Arc::new(Int64Array::from(v)), true),
        ("f", Arc::new(Float64Array::from(f)), true),
        ("d", Arc::new(d.with_precision_and_scale(20, 2).unwrap()), true),
        ("b", Arc::new(b.collect::<BooleanArray>()), true),
        ("ts", Arc::new(ts.collect::<TimestampMillisecondArray>()), true),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Runs a case on this thread, in an order and with hot sets drawn from `random`; the result rows,
/// encoded and sorted.
fn run(case: &Case, random: &mut Random) -> Vec<Vec<u8>> {
    let job = Arc::new(case.job());
    let results = Collected::new();
    let sleepers = (0..case.workers).map(|_| Sleeper::new()).collect::<Vec<_>>();
    let wakes = sleepers.iter().map(|sleeper| Arc::clone(sleeper.wake())).collect();
    let engine = Arc::new(EngineShared::new(
        Arc::clone(&job),
        Arc::new(results.clone()),
        wakes,
        false,
        None,
    ));
    let mut shards =
        (0..case.workers).map(|id| Shard::new(id, Arc::clone(&engine))).collect::<Vec<_>>();
    let count = random.below(3) + 1;
    let mut ingests = (0..count).map(|_| Intake::open(&engine)).collect::<Vec<_>>();
    let hashes = hashes_of(&job, &case.batches);
    let mut waiting = case.batches.clone();
    waiting.reverse();
    while !waiting.is_empty() || !ingests.is_empty() {
        match random.below(4) {
            0 => publish(&engine, &hashes, random),
            1 | 2 if !ingests.is_empty() => {
                let at = random.below(ingests.len());
                if let Some(batch) = waiting.pop() {
                    match ingests[at].try_push(batch) {
                        Ok(()) => {}
                        Err(TryPushError::Full(batch)) => waiting.push(batch),
                        Err(TryPushError::Run(error)) => panic!("{error}"),
                    }
                } else if ingests[at].try_flush().unwrap() {
                    ingests[at].queue_end();
                    while !ingests[at].try_flush().unwrap() {
                        step(&mut shards, random);
                    }
                    ingests.remove(at);
                }
            }
            _ => step(&mut shards, random),
        }
    }
    engine.closing.store(true, std::sync::atomic::Ordering::SeqCst);
    // All in turn: shards may wait for each other's buckets.
    let working = |shard: &mut Shard| shard.step(1).unwrap() != Progress::Done;
    while shards.iter_mut().map(working).fold(false, |any, one| any | one) {}
    encoded(&results.take())
}

fn step(shards: &mut [Shard], random: &mut Random) {
    let at = random.below(shards.len());
    shards[at].step(1 + random.below(3)).unwrap();
}

/// Hash and first word of every key of the stream.
fn hashes_of(job: &Job, batches: &[RecordBatch]) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    for batch in batches {
        let mut keys = KeyBatch::default();
        job.keys.encode(batch, &mut keys).unwrap();
        keys.hash_all(Isa::PORTABLE);
        let words = keys.words.as_slice();
        all.extend(keys.hashes.iter().enumerate().map(|(i, hash)| (*hash, words[i * keys.width])));
    }
    all.sort_unstable();
    all.dedup();
    all
}

/// Puts a random hot set in force: none, a few or many keys, strangers among them.
fn publish(engine: &EngineShared, hashes: &[(u64, u64)], random: &mut Random) {
    let Some(control) = &engine.skew else { return };
    let mut keys: Vec<HotKey> = Vec::new();
    for _ in 0..random.pick(&[0, 1, 2, 5, 30]) {
        let stranger = splitmix64(&mut random.0);
        let (hash, example) = if random.below(8) == 0 {
            (hash_word(stranger), stranger)
        } else {
            random.pick(hashes)
        };
        if keys.iter().all(|key| key.hash != hash) {
            keys.push(HotKey {
                hash,
                example,
                salts: random.pick(&[1, 2, 3, 64]),
                cause: Cause::Balance,
                share: 0.5,
                share_low: 0.5,
                share_high: 0.5,
            });
        }
    }
    control.publish(keys);
}

fn encoded(batches: &[RecordBatch]) -> Vec<Vec<u8>> {
    let Some(first) = batches.first() else { return Vec::new() };
    let fields =
        first.schema().fields().iter().map(|f| SortField::new(f.data_type().clone())).collect();
    let converter = RowConverter::new(fields).unwrap();
    let mut rows = Vec::new();
    for batch in batches {
        let encoded = converter.convert_columns(batch.columns()).unwrap();
        rows.extend(encoded.iter().map(|row| row.as_ref().to_vec()));
    }
    rows.sort_unstable();
    rows
}

#[test]
fn results_are_the_same_whatever_is_hot_and_when() {
    let seeds = std::env::var("SALTMILL_SEEDS").ok().and_then(|text| text.parse().ok());
    let mut hot_at_all = 0;
    for seed in 0..seeds.unwrap_or(1000_u64) {
        let random = &mut Random(seed);
        let case = Case::draw(random);
        let expected = run(&case.plainly(), &mut Random(seed));
        let found = run(&case, random);
        assert!(
            expected == found,
            "seed {seed}: key {:?}, {:?}, {:?}, {:?}, {} workers, {} rows a batch, ring of {}, {}, {:?} bytes",
            case.keys,
            case.window,
            case.mode,
            case.salts,
            case.workers,
            case.batch_rows,
            case.ring_capacity,
            case.isa,
            case.memory
        );
        hot_at_all += usize::from(!expected.is_empty());
    }
    assert!(hot_at_all > 0, "the streams have results");
}
