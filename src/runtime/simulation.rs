//! Producers and shards on one thread, in an order drawn from a seed: stalls, full rings, watermarks,
//! idleness, handles that come and go, snapshots, and shutdown at any moment. What comes out is held
//! against the oracle of the tests, and every row is accounted for.
//!
//! `SALTMILL_SEEDS=N` sets how many seeds are tried, `SALTMILL_SEED=N` repeats one.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;

use super::ingest::TryPushError;
use super::intake::Intake;
use super::shard::{Progress, Shard};
use super::shared::EngineShared;
use super::sink::{Collected, lock};
use super::topology::IngestShared;
use super::wake::Sleeper;
use crate::aggregate::spec::Aggregate;
use crate::config::{HotList, Job, SkewMode};
use crate::error::RunError;
use crate::skew::policy::Salts;
use crate::time::window::Window;

#[expect(dead_code, reason = "shared with tests that use more of it")]
#[path = "../../tests/oracle/mod.rs"]
mod oracle;

use oracle::rng::Rng;
use oracle::value::{Value, read};
use oracle::{Ask, Func, Input, Kind, Outcome, Row, Spec, Step, Windows};

/// Steps of shards in which all that is left must have been done.
const STEPS_MAX: usize = 100_000;

/// One seed's world.
struct Simulation {
    rng: Rng,
    spec: Spec,
    engine: Arc<EngineShared>,
    shards: Vec<Shard>,
    results: Collected,
    producers: Vec<Producer>,
    /// What all producers did, those that have closed included.
    inputs: Vec<Input>,
    /// How far event time has come, roughly.
    now: i64,
}

struct Producer {
    ingest: Intake,
    shared: Arc<IngestShared>,
    /// Index into [`Simulation::inputs`].
    input: usize,
}

fn fields() -> Vec<Field> {
    vec![
        Field::new("key", DataType::Int64, true),
        Field::new("time", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("value", DataType::Float64, true),
    ]
}

/// The last one is spread over shards by its values where a key is hot.
const AGGREGATES: &str = "count, sum(value), min(value), count(distinct value)";

fn skew(rng: &mut Rng) -> SkewMode {
    let keys = [None, Some("1".to_owned()), Some("3".to_owned())];
    match rng.below(4) {
        0 => SkewMode::Off,
        1 => SkewMode::TwoPhase,
        2 => SkewMode::Hot(HotList::Text(keys[..1].to_vec())),
        _ => SkewMode::Hot(HotList::Text(keys.to_vec())),
    }
}

/// The job of a seed, for the engine and for the oracle; and a few words about it.
fn job(rng: &mut Rng) -> (Job, Spec, String) {
    let mut windows = rng.percent(85).then(|| Windows {
        column: 1,
        kind: *rng.pick(&[
            Kind::Tumbling { size: 5 },
            Kind::Tumbling { size: 10 },
            Kind::Hopping { size: 10, slide: 4 },
            Kind::Hopping { size: 6, slide: 8 },
            Kind::Cumulate { step: 3, max: 9 },
            Kind::Session { gap: 1 },
            Kind::Session { gap: 5 },
        ]),
        lateness: *rng.pick(&[0, 0, 3, 12]),
        offset: *rng.pick(&[0, 3]),
        out_of_orderness: *rng.pick(&[0, 0, 4, 30]),
    });
    if let Some(Windows { kind: Kind::Session { .. }, lateness, .. }) = &mut windows {
        *lateness = 0;
    }
    let millis = |n: i128| Duration::from_millis(u64::try_from(n).unwrap());
    let skew = skew(rng);
    let (workers, capacity) = (rng.within(1..4), *rng.pick(&[1, 1, 1, 3]));
    let (batch, idle) = (*rng.pick(&[1, 3, 100]), rng.percent(30));
    let mini_batch = rng.percent(30);
    let words = format!(
        "{skew:?} {windows:?} workers={workers} ring={capacity} batch={batch} idle={idle} \
         mini_batch={mini_batch}"
    );
    let mut builder = Job::builder(Arc::new(Schema::new(fields())))
        .key(["key"])
        .aggregates(Aggregate::parse_list(AGGREGATES).expect("they are well written"))
        .skew(skew)
        .salts(Salts::Fixed(2))
        .workers(workers)
        .max_parallelism(8)
        .ring_capacity(capacity)
        .batch_rows(batch);
    if let Some(windows) = &windows {
        let offset = millis(windows.offset);
        builder = builder
            .event_time("time")
            .window(match windows.kind {
                Kind::Tumbling { size } => Window::Tumbling { size: millis(size), offset },
                Kind::Hopping { size, slide } => {
                    Window::Hopping { size: millis(size), slide: millis(slide), offset }
                }
                Kind::Cumulate { step, max } => {
                    Window::Cumulate { step: millis(step), max: millis(max), offset }
                }
                Kind::Months { .. } => unreachable!("not drawn"),
                Kind::Session { gap } => Window::Session { gap: millis(gap) },
            })
            .out_of_orderness(millis(windows.out_of_orderness))
            .allowed_lateness(millis(windows.lateness));
    }
    if idle {
        // Whoever is silent when a shard looks is idle.
        builder = builder.idle_timeout(Duration::ZERO);
    }
    if mini_batch {
        builder = builder.mini_batch_rows(10);
    }
    let spec = Spec {
        types: fields().iter().map(|field| field.data_type().clone()).collect(),
        keys: vec![0],
        windows,
        aggregates: vec![
            Ask::new(Func::Rows, []),
            Ask::new(Func::Sum, [2]),
            Ask::new(Func::Min, [2]),
            Ask::new(Func::Distinct, [2]),
        ],
    };
    (builder.build().unwrap(), spec, words)
}

impl Simulation {
    fn new(mut rng: Rng) -> (Self, String) {
        let (job, spec, words) = job(&mut rng);
        let job = Arc::new(job);
        let results = Collected::new();
        let sleepers = (0..job.workers).map(|_| Sleeper::new()).collect::<Vec<_>>();
        let wakes = sleepers.iter().map(|sleeper| Arc::clone(sleeper.wake())).collect();
        let sink = Arc::new(results.clone());
        let engine = Arc::new(EngineShared::new(Arc::clone(&job), sink, wakes, false, None));
        let shards = (0..job.workers).map(|id| Shard::new(id, Arc::clone(&engine))).collect();
        let producers = Vec::new();
        (Self { rng, spec, engine, shards, results, producers, inputs: Vec::new(), now: 0 }, words)
    }

    fn closed_to(&self) -> i64 {
        self.engine.closed_to.load(Ordering::SeqCst)
    }

    fn open(&mut self) {
        let ingest = Intake::open(&self.engine);
        let shared = Arc::clone(lock(&self.engine.ingests).last().unwrap());
        // Where the engine went on without it, its rows are late.
        let steps = vec![Step::Watermark(self.closed_to())];
        self.inputs.push(Input { columns: vec![Vec::new(); 3], steps });
        self.producers.push(Producer { ingest, shared, input: self.inputs.len() - 1 });
    }

    /// Rows of the next batch; they count only if they are taken.
    fn rows(&mut self) -> Vec<[Value; 3]> {
        let rng = &mut self.rng;
        let rows = rng.below(12);
        self.now += i64::try_from(rng.below(8)).unwrap();
        let now = self.now;
        let row = |_| {
            let key = match rng.below(10) {
                0 => Value::Null,
                1..5 => Value::Int(1),
                _ => Value::Int(i128::try_from(rng.below(20)).unwrap()),
            };
            let time = i128::from(now) - i128::try_from(rng.below(12)).unwrap();
            let time = if rng.percent(3) { Value::Null } else { Value::Int(time) };
            let value = *rng.pick(&[0.1, 0.2, -0.3, 1e16, -1e16, 1.0]);
            [key, time, if rng.percent(10) { Value::Null } else { Value::of_f64(value) }]
        };
        (0..rows).map(row).collect()
    }

    fn push(&mut self, at: usize) -> Result<(), RunError> {
        let rows = self.rows();
        let columns = (0..3).map(|column| {
            let values = rows.iter().map(|row| row[column].clone()).collect::<Vec<_>>();
            oracle::build::array(fields()[column].data_type(), &values, &mut Rng::new(0))
        });
        let schema = Arc::clone(self.engine.job.schema());
        let batch = RecordBatch::try_new(schema, columns.collect()).unwrap();
        let floor = self.closed_to();
        let Producer { ingest, shared, input } = &mut self.producers[at];
        let was_idle = shared.is_idle();
        match ingest.try_push(batch) {
            Ok(()) => {}
            Err(TryPushError::Full(_)) => return Ok(()),
            Err(TryPushError::Run(error)) => return Err(error),
        }
        let input = &mut self.inputs[*input];
        if was_idle {
            input.steps.push(Step::Watermark(floor));
        }
        let start = input.columns[0].len();
        input.steps.push(Step::Push(start..start + rows.len()));
        for row in rows {
            for (column, value) in input.columns.iter_mut().zip(row) {
                column.push(value);
            }
        }
        Ok(())
    }

    /// Steps one shard.
    fn step(&mut self) -> Result<Progress, RunError> {
        let at = self.rng.below(self.shards.len());
        let budget = self.rng.within(1..4);
        if self.rng.percent(5) {
            self.shards[at].snapshot()?;
        }
        self.shards[at].step(budget)
    }

    /// Steps all shards until none has anything to do.
    fn settle(&mut self) -> Result<(), RunError> {
        for _ in 0..STEPS_MAX {
            let mut worked = false;
            for shard in &mut self.shards {
                worked |= shard.step(4)? == Progress::Worked;
            }
            if !worked {
                return Ok(());
            }
        }
        panic!("shards find something to do for ever");
    }

    /// Hands on all that the producer holds.
    fn flush(&mut self, at: usize) -> Result<(), RunError> {
        for _ in 0..STEPS_MAX {
            if self.producers[at].ingest.try_flush()? {
                return Ok(());
            }
            self.step()?;
        }
        panic!("a producer gets no room");
    }

    fn watermark(&mut self, at: usize) -> Result<(), RunError> {
        self.flush(at)?;
        // With rings empty, the call below does not wait.
        self.settle()?;
        let time = self.now - 10 + i64::try_from(self.rng.below(15)).unwrap();
        let floor = self.closed_to();
        let Producer { shared, input, .. } = &self.producers[at];
        let steps = &mut self.inputs[*input].steps;
        if shared.is_idle() {
            steps.push(Step::Watermark(floor));
        }
        steps.push(Step::Watermark(time));
        for _ in 0..STEPS_MAX {
            if self.producers[at].ingest.try_watermark(time)? {
                return Ok(());
            }
            self.step()?;
        }
        panic!("a watermark gets no room");
    }

    fn idle(&mut self, at: usize) -> Result<(), RunError> {
        self.flush(at)?;
        self.settle()?;
        let floor = self.closed_to();
        let Producer { shared, input, .. } = &self.producers[at];
        if shared.is_idle() {
            self.inputs[*input].steps.push(Step::Watermark(floor));
        }
        for _ in 0..STEPS_MAX {
            if self.producers[at].ingest.try_idle()? {
                return Ok(());
            }
            self.step()?;
        }
        panic!("a producer cannot become idle");
    }

    fn close(&mut self, at: usize) -> Result<(), RunError> {
        self.flush(at)?;
        if self.rng.percent(50) {
            for _ in 0..STEPS_MAX {
                if self.producers[at].ingest.try_end()? {
                    self.producers.swap_remove(at);
                    return Ok(());
                }
                self.step()?;
            }
            panic!("a producer cannot end");
        }
        self.producers[at].ingest.queue_end();
        self.flush(at)?;
        self.producers.swap_remove(at);
        Ok(())
    }

    fn act(&mut self) -> Result<(), RunError> {
        let at = self.rng.below(self.producers.len());
        match self.rng.below(40) {
            0 if self.producers.len() < 5 => self.open(),
            1 if self.producers.len() > 1 => self.close(at)?,
            2 => self.watermark(at)?,
            3 => self.idle(at)?,
            4..16 => self.push(at)?,
            16..20 => drop(self.producers[at].ingest.try_flush()?),
            _ => drop(self.step()?),
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), RunError> {
        while !self.producers.is_empty() {
            let at = self.rng.below(self.producers.len());
            self.close(at)?;
        }
        self.engine.closing.store(true, Ordering::SeqCst);
        let mut left = STEPS_MAX;
        // All in turn: shards may wait for each other's buckets.
        let working = |shard: &mut Shard| shard.step(4).unwrap() != Progress::Done;
        while self.shards.iter_mut().map(working).fold(false, |any, one| any | one) {
            left = left.checked_sub(1).expect("the run ends");
        }
        Ok(())
    }

    /// The run has been stopped: everybody is told so, and nobody waits.
    fn check_stopped(mut self) {
        for producer in &mut self.producers {
            assert!(matches!(producer.ingest.try_flush(), Err(RunError::Stopped)));
            assert!(matches!(producer.ingest.wait_flush(), Err(RunError::Stopped)));
        }
        self.producers.clear();
        // Shards may go on stepping until their threads look; it does no harm.
        for shard in &mut self.shards {
            shard.step(10).unwrap();
        }
    }

    fn check(self) -> Result<(), String> {
        let expected = oracle::expect(&self.spec, &self.inputs);
        let counts = *lock(&self.engine.finished_counts);
        let found = Outcome {
            rows_in: counts.rows_in,
            aggregated: counts.aggregated(),
            late: counts.late,
            null_time: counts.null_time,
            out_of_range: counts.time_out_of_range,
            between: counts.between_windows,
            rows: None,
        };
        let rows = expected.rows.clone().unwrap();
        if found != (Outcome { rows: None, ..expected.clone() }) {
            return Err(format!("counted {found:?}, expected {expected:?}"));
        }
        let hot = self.engine.rows_hot_at_producers.load(Ordering::Relaxed);
        let cold = self.shards.iter().map(|shard| shard.stats.rows_in).sum::<u64>();
        if hot + cold != found.aggregated {
            return Err(format!("{hot} rows hot, {cold} cold, {} in all", found.aggregated));
        }
        let mut results = Vec::<Row>::new();
        for batch in self.results.take() {
            for row in 0..batch.num_rows() {
                results.push(batch.columns().iter().map(|column| read(column, row)).collect());
            }
        }
        self.spec.sort(&mut results);
        match results.iter().zip(&rows).position(|(found, expected)| found != expected) {
            None if results.len() == rows.len() => Ok(()),
            None => Err(format!("{} result rows, expected {}", results.len(), rows.len())),
            Some(i) => Err(format!("result row {:?}, expected {:?}", results[i], rows[i])),
        }
    }
}

fn simulate(seed: u64) -> Result<(), String> {
    let (mut simulation, words) = Simulation::new(Rng::new(seed));
    let line =
        |why: String| format!("SALTMILL_SEED={seed} cargo test --lib simulation: {why} | {words}");
    let stop_at = simulation.rng.percent(10).then(|| simulation.rng.below(200));
    simulation.open();
    for action in 0..200 {
        if Some(action) == stop_at {
            simulation.engine.stop();
            simulation.check_stopped();
            return Ok(());
        }
        simulation.act().map_err(|error| line(error.to_string()))?;
    }
    simulation.finish().map_err(|error| line(error.to_string()))?;
    simulation.check().map_err(line)
}

#[test]
fn any_order_of_steps_gives_the_same_results() {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    let seeds = match number("SALTMILL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SALTMILL_SEEDS").unwrap_or(1000_u64),
    };
    let failures = seeds.filter_map(|seed| simulate(seed).err()).collect::<Vec<_>>();
    assert!(failures.is_empty(), "{} seeds:\n{}", failures.len(), failures.join("\n"));
}
