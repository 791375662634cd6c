//! What panics or fails in code given to the engine: an error that says where, and nothing hangs.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use saltmill::aggregate::{CustomAggregate, GroupedRows};
use saltmill::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use saltmill::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::{HotList, SkewMode};
use saltmill::error::{SinkError, SourceError};
use saltmill::process::{Context, Key, KeyRows, KeyedProcess, ProcessError, Timer};
use saltmill::runtime::sink::{Rejection, Sink};
use saltmill::runtime::source::{Source, Take, Unit};
use saltmill::{Aggregate, Collected, Engine, Job, JobBuilder, RunError, Window};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("time", DataType::Int64, true),
    ]))
}

fn job() -> JobBuilder {
    Job::builder(schema())
        .key(["key"])
        .event_time("time")
        .window(Window::tumbling(Duration::from_secs(1)))
        .workers(3)
}

/// Which call panics.
#[derive(Debug, Clone, Copy, PartialEq)]
enum At {
    Update,
    Merge,
    Emit,
    Results,
    Progress,
    Late,
    Rejected,
    OnRows,
    OnTimer,
    Take,
    NextBatch,
    Clock,
}

#[derive(Debug)]
struct Faulty(At);

impl CustomAggregate for Faulty {
    type State = i64;

    fn name(&self) -> &str {
        "faulty"
    }

    fn result_type(&self, _: &[&Field]) -> Result<DataType, String> {
        Ok(DataType::Int64)
    }

    fn update(&self, arguments: &[ArrayRef], rows: GroupedRows<'_, '_, Self>) {
        let times = arguments[0].as_primitive::<Int64Type>();
        rows.for_each(|state, row| {
            *state += 1;
            assert!(self.0 != At::Update || times.value(row) != 666, "in update");
        });
    }

    fn merge(&self, into: &mut i64, from: &i64) {
        assert!(self.0 != At::Merge, "in merge");
        *into += from;
    }

    fn emit(&self, states: &[&i64]) -> ArrayRef {
        assert!(self.0 != At::Emit, "in emit");
        Arc::new(states.iter().map(|state| Some(**state)).collect::<Int64Array>())
    }
}

#[derive(Debug)]
struct FaultySink(At);

impl Sink for FaultySink {
    fn results(&self, _: usize, _: RecordBatch) -> Result<(), SinkError> {
        assert!(self.0 != At::Results, "in results");
        Ok(())
    }

    fn progress(&self, _: usize, _: i64) -> Result<(), SinkError> {
        assert!(self.0 != At::Progress, "in progress");
        Ok(())
    }

    fn wants_side_outputs(&self) -> bool {
        true
    }

    fn late(&self, _: RecordBatch) -> Result<(), SinkError> {
        assert!(self.0 != At::Late, "in late");
        Ok(())
    }

    fn rejected(&self, _: Rejection, _: RecordBatch) -> Result<(), SinkError> {
        assert!(self.0 != At::Rejected, "in rejected");
        Ok(())
    }
}

#[derive(Debug)]
struct FaultyProcess(At);

impl KeyedProcess for FaultyProcess {
    type State = ();

    fn output(&self) -> Vec<Field> {
        Vec::new()
    }

    fn on_rows(
        &self,
        key: &Key<'_>,
        rows: &KeyRows<'_>,
        (): &mut (),
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        let times = rows.column("time").as_primitive::<Int64Type>();
        assert_eq!(key.columns()[0].len(), 1);
        let bad = rows.rows().any(|row| times.value(row) == 666);
        assert!(self.0 != At::OnRows || !bad, "in on_rows");
        if bad {
            ctx.set_timer(700);
        }
        Ok(())
    }

    fn on_timer(
        &self,
        _: &Key<'_>,
        _: Timer,
        (): &mut (),
        _: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        Err("in on_timer".into())
    }
}

#[derive(Debug)]
struct FaultySource(At, Mutex<bool>);

impl Source for FaultySource {
    fn take(&self) -> Result<Take, SourceError> {
        assert!(self.0 != At::Take, "in take");
        if std::mem::replace(&mut *self.1.lock().unwrap(), true) {
            return Ok(Take::Pending);
        }
        Ok(Take::Unit(Box::new(FaultyUnit)))
    }
}

#[derive(Debug)]
struct FaultyUnit;

impl Unit for FaultyUnit {
    fn ticket(&self) -> u64 {
        0
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        Ok(Some(1))
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        panic!("in next_batch")
    }
}

/// What came of a run in which `at` panics, and whether it names the key.
fn outcome(at: At, skew: SkewMode) -> RunError {
    let sink = FaultySink(at);
    let builder = match at {
        At::OnRows | At::OnTimer => Job::builder(schema())
            .key(["key"])
            .event_time("time")
            .process(FaultyProcess(at))
            .workers(3),
        At::Clock => Job::builder(schema())
            .key(["key"])
            .window(Window::ProcessingTime { size: Duration::from_millis(5) })
            .processing_clock(|| panic!("in clock"))
            .aggregate(Aggregate::count()),
        _ => job().aggregate(Aggregate::custom(Faulty(at), ["time"])).skew(skew),
    };
    let job = builder.build().unwrap();
    if let At::Take | At::NextBatch = at {
        let source = Arc::new(FaultySource(at, Mutex::new(false)));
        return Engine::start_on(job, vec![source], sink).unwrap().finish().unwrap_err();
    }
    let engine = Engine::start(job, sink).unwrap();
    let mut stopped = false;
    let mut appender = engine.ingest().unwrap().appender().unwrap().batch_rows(8);
    for i in 0..2000_i64 {
        let (key, time) = match i {
            500 => (Some("the bad one"), Some(666)),
            501 => (Some("late"), Some(-5000)),
            502 => (None, None),
            _ => (Some("hot"), Some(i + i64::from(i == 666))),
        };
        // Whoever pushes is told, and does not go down with it.
        stopped |= appender.append((key, time)).is_err();
    }
    stopped |= appender.close().is_err();
    let error = engine.finish().unwrap_err();
    // On a shard it may happen when everything has been pushed.
    if matches!(at, At::Late | At::Rejected) {
        assert!(stopped, "{at:?}: the handle went on as if nothing had happened");
    }
    error
}

#[test]
fn a_panic_in_any_code_given_to_the_engine_is_an_error_that_says_where() {
    let hot = |keys: &[&str]| {
        let keys = keys.iter().map(|key| Some((*key).to_owned())).collect();
        SkewMode::Hot(HotList::Text(keys))
    };
    let cases = [
        (At::Update, SkewMode::Off, true),
        (At::Update, SkewMode::TwoPhase, true),
        (At::Update, hot(&["the bad one", "hot"]), true),
        (At::Merge, hot(&["hot"]), false),
        (At::Emit, SkewMode::Off, false),
        (At::Results, SkewMode::Off, false),
        (At::Progress, SkewMode::Off, false),
        (At::Late, SkewMode::Off, false),
        (At::Rejected, SkewMode::Off, false),
        (At::OnRows, SkewMode::Off, true),
        (At::OnTimer, SkewMode::Off, true),
        (At::Take, SkewMode::Off, false),
        (At::NextBatch, SkewMode::Off, false),
        (At::Clock, SkewMode::Off, false),
    ];
    // Panics are meant here; the default hook would print them all.
    std::panic::set_hook(Box::new(|_| {}));
    let outcomes = cases.map(|(at, skew, named)| {
        let started = Instant::now();
        (at, outcome(at, skew), named, started.elapsed())
    });
    let _ = std::panic::take_hook();
    for (at, error, named, elapsed) in outcomes {
        let text = error.to_string();
        println!("{at:?}: {text}");
        assert!(elapsed < Duration::from_secs(5), "{at:?} took {elapsed:?}");
        let where_ = match at {
            At::OnRows => "in on_rows",
            At::OnTimer => "in on_timer",
            At::NextBatch => "in next_batch",
            At::Update => "in update",
            At::Merge => "in merge",
            At::Emit => "in emit",
            At::Results => "in results",
            At::Progress => "in progress",
            At::Late => "in late",
            At::Rejected => "in rejected",
            At::Take => "in take",
            At::Clock => "in clock",
        };
        assert!(text.contains(where_), "{at:?}: {text}");
        assert_eq!(text.contains("the bad one"), named, "{at:?}: {text}");
        if at == At::OnTimer {
            assert!(matches!(error, RunError::Process { .. }), "{error:?}");
        } else {
            assert!(matches!(error, RunError::Panicked { .. }), "{error:?}");
        }
    }
}

/// A sink that stands still until it is told not to.
#[derive(Clone, Default)]
struct Stuck(Arc<AtomicBool>);

impl Sink for Stuck {
    fn results(&self, _: usize, _: RecordBatch) -> Result<(), SinkError> {
        while !self.0.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(())
    }
}

#[test]
fn dropping_an_engine_ends_within_a_bound_whatever_its_sink_does() {
    let stuck = Stuck::default();
    let job = job().aggregate(Aggregate::count()).build().unwrap();
    let engine = Engine::start(job, stuck.clone()).unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap();
    appender.append(("a", 1)).unwrap();
    appender.watermark(5000).unwrap();
    let started = Instant::now();
    drop(engine);
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(8), "{elapsed:?}");
    assert!(matches!(appender.flush(), Err(RunError::Stopped)));
    stuck.0.store(true, Ordering::SeqCst);
}

#[test]
fn dropping_a_busy_engine_is_quick_and_tells_its_producers() {
    let engine =
        Engine::start(job().aggregate(Aggregate::count()).build().unwrap(), Collected::new())
            .unwrap();
    let keys: ArrayRef = Arc::new(StringArray::from(vec!["a"; 1000]));
    let times: ArrayRef = Arc::new(Int64Array::from_iter_values(0..1000));
    let batch = RecordBatch::try_new(schema(), vec![keys, times]).unwrap();
    let mut ingest = engine.ingest().unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap();
    std::thread::scope(|scope| {
        let pushing = scope.spawn(move || while ingest.push(batch.clone()).is_ok() {});
        let appending = scope.spawn(move || while appender.append(("b", 5)).is_ok() {});
        std::thread::sleep(Duration::from_millis(20));
        let started = Instant::now();
        drop(engine);
        assert!(started.elapsed() < Duration::from_secs(2), "{:?}", started.elapsed());
        pushing.join().unwrap();
        appending.join().unwrap();
    });
}
