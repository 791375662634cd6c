//! Time that goes wrong: inputs of different speed, inputs that fall silent, the clock as time, results
//! before their windows end.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use saltmill::arrow::array::{AsArray as _, Int64Array, RecordBatch, TimestampMillisecondArray};
use saltmill::arrow::datatypes::{Int64Type, SchemaRef, TimestampMillisecondType};
use saltmill::config::SkewMode;
use saltmill::error::SourceError;
use saltmill::runtime::source::{Source, Take, Unit};
use saltmill::time::alignment::Alignment;
use saltmill::{
    Aggregate, Collected, Engine, Ingest, Job, JobBuilder, RunReport, TryPushError, Window,
};

/// How long anything here may take on a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Rows of seven keys in turn at these times.
fn batch(times: impl IntoIterator<Item = i64>) -> RecordBatch {
    let times = TimestampMillisecondArray::from_iter_values(times);
    let keys = (0..times.values().len())
        .map(|row| i64::try_from(row % 7).unwrap())
        .collect::<Int64Array>();
    RecordBatch::try_from_iter([("k", Arc::new(keys) as _), ("t", Arc::new(times) as _)]).unwrap()
}

fn schema() -> SchemaRef {
    batch([0]).schema()
}

fn job() -> JobBuilder {
    Job::builder(schema())
        .key(["k"])
        .event_time("t")
        .window(Window::tumbling(millis(10)))
        .aggregate(Aggregate::count())
        .workers(2)
        .batch_rows(100)
        .skew(SkewMode::Off)
}

/// An input of units of ten rows, one millisecond apart, each of which takes a while to come.
#[derive(Debug)]
struct Paced {
    left: Mutex<(VecDeque<RecordBatch>, u64, Instant)>,
    pace: Duration,
    /// Falls silent at the end, for so long.
    silence: Duration,
}

impl Paced {
    fn new(units: i64, pace: Duration, silence: Duration) -> Arc<Self> {
        let units = (0..units).map(|unit| batch(unit * 10..unit * 10 + 10)).collect();
        Arc::new(Self { left: Mutex::new((units, 0, Instant::now())), pace, silence })
    }
}

impl Source for Paced {
    fn take(&self) -> Result<Take, SourceError> {
        let mut left = self.left.lock().unwrap();
        let (units, ticket, last) = &mut *left;
        let wait = if units.is_empty() { self.silence } else { self.pace };
        if last.elapsed() < wait {
            return Ok(Take::Pending);
        }
        let Some(rows) = units.pop_front() else { return Ok(Take::End) };
        *last = Instant::now();
        *ticket += 1;
        Ok(Take::Unit(Box::new(Part { ticket: *ticket - 1, rows: Some(rows) })))
    }

    fn is_live(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Part {
    ticket: u64,
    rows: Option<RecordBatch>,
}

impl Unit for Part {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        let rows = self.rows.as_ref().unwrap();
        let times = rows.column(1).as_primitive::<TimestampMillisecondType>();
        Ok(times.values().iter().copied().max())
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        Ok(self.rows.take())
    }
}

fn open_windows(report: &RunReport) -> usize {
    report.shards.iter().map(|shard| shard.open_windows_max).max().unwrap()
}

/// One input is more than ten times slower than the other: with alignment the faster one's windows stay within the
/// drift, without it they grow.
#[test]
fn the_faster_input_is_held_back() {
    let run = |job: JobBuilder| {
        let sources: Vec<Arc<dyn Source>> = vec![
            Paced::new(300, Duration::ZERO, Duration::ZERO),
            Paced::new(300, Duration::from_micros(500), Duration::ZERO),
        ];
        let results = Collected::new();
        let engine = Engine::start_on(job.build().unwrap(), sources, results.clone()).unwrap();
        let report = engine.finish().unwrap();
        assert_eq!((report.rows_in, report.rows_late), (6000, 0));
        let rows = results.take().iter().map(RecordBatch::num_rows).sum::<usize>();
        assert_eq!(rows, 300 * 7, "each window of ten rows has all seven keys");
        report
    };
    let apart = run(job());
    assert!(open_windows(&apart) > 100, "{} windows were open", open_windows(&apart));
    let aligned = run(job().alignment(Alignment::new(millis(50))));
    // Five windows of drift, what two workers had in hand, and some that shards had not been told to close.
    assert!(open_windows(&aligned) <= 25, "{} windows were open", open_windows(&aligned));
    let fast = aligned.inputs[0];
    assert!(fast.held_back > Duration::ZERO, "{fast:?}");
    assert!(fast.drift_max <= millis(50 + 20), "{fast:?}");
    assert!(apart.inputs[0].drift_max > millis(1000), "{:?}", apart.inputs[0]);
    assert_eq!(apart.inputs[0].held_back, Duration::ZERO);
}

/// An input that falls silent stops nobody once it is idle, and one in another group never does.
#[test]
fn a_silent_input_leaves_its_group() {
    for (groups, idle) in [(vec![0, 0], true), (vec![0, 1], false)] {
        let silence = if idle { Duration::from_secs(2) } else { millis(100) };
        let sources: Vec<Arc<dyn Source>> = vec![
            Paced::new(200, Duration::ZERO, Duration::ZERO),
            Paced::new(1, Duration::ZERO, silence),
        ];
        let mut job = job().alignment(Alignment::new(millis(20)).groups(groups));
        if idle {
            job = job.idle_timeout(millis(50));
        }
        let job = job.build().unwrap();
        let engine = Engine::start_on(job, sources, Collected::new()).unwrap();
        let start = Instant::now();
        while engine.rows_in() < 2010 {
            assert!(start.elapsed() < PATIENCE, "{} rows came in", engine.rows_in());
            std::thread::sleep(millis(1));
        }
        assert!(!idle || start.elapsed() < Duration::from_secs(2), "it waited for the silent one");
        let report = engine.finish().unwrap();
        assert_eq!(report.rows_in, 2010);
        assert!(idle || report.inputs[0].held_back == Duration::ZERO, "its group is its own");
    }
}

fn push(handle: &mut Ingest, times: std::ops::Range<i64>) {
    handle.push(batch(times)).unwrap();
}

/// Handles wait for each other in `push`, whichever is behind.
#[test]
fn handles_wait_for_each_other() {
    let job = job().alignment(Alignment::new(millis(100)));
    let engine = Engine::start(job.build().unwrap(), Collected::new()).unwrap();
    let mut handles = [engine.ingest().unwrap(), engine.ingest().unwrap()];
    std::thread::scope(|scope| {
        for (number, handle) in handles.iter_mut().enumerate() {
            scope.spawn(move || {
                for step in 0..100 {
                    push(handle, step * 50..step * 50 + 50);
                    if number == 1 && step % 10 == 0 {
                        std::thread::sleep(millis(2));
                    }
                }
            });
        }
    });
    // Whoever is still open is not waited for once it has closed.
    let [mut first, second] = handles;
    second.close().unwrap();
    push(&mut first, 100_000..100_010);
    push(&mut first, 200_000..200_010);
    first.close().unwrap();
    let report = engine.finish().unwrap();
    assert_eq!((report.rows_in, report.rows_late), (10_020, 0));
    assert!(report.inputs[0].drift_max <= millis(150), "{:?}", report.inputs);
    assert!(report.inputs[1].drift_max <= millis(150), "{:?}", report.inputs);
}

/// One thread feeds both handles with `try_push`: the one ahead gets its batch back.
#[test]
fn a_handle_that_is_ahead_gets_its_batch_back() {
    let job = job().alignment(Alignment::new(millis(10)).update_interval(Duration::ZERO));
    let engine = Engine::start(job.build().unwrap(), Collected::new()).unwrap();
    let (mut ahead, mut behind) = (engine.ingest().unwrap(), engine.ingest().unwrap());
    push(&mut ahead, 0..30);
    match ahead.try_push(batch(30..40)) {
        Err(TryPushError::Full(back)) => assert_eq!(back.num_rows(), 10),
        other => panic!("{other:?}"),
    }
    push(&mut behind, 0..25);
    ahead.try_push(batch(30..40)).unwrap();
    behind.idle().unwrap();
    push(&mut ahead, 1000..1010);
    push(&mut ahead, 2000..2010);
    drop((ahead, behind));
    assert_eq!(engine.finish().unwrap().rows_in, 85);
}

/// Starts and counts of all windows, from results of one key.
fn windows(batches: &[RecordBatch], count: usize) -> Vec<(i64, i64)> {
    let mut found = Vec::new();
    for batch in batches {
        let starts = batch.column(0).as_primitive::<TimestampMillisecondType>();
        let counts = batch.column(count).as_primitive::<Int64Type>();
        found.extend(starts.values().iter().copied().zip(counts.values().iter().copied()));
    }
    found.sort_unstable();
    found
}

fn wait_for(
    results: &Collected,
    mut enough: impl FnMut(&[RecordBatch]) -> bool,
) -> Vec<RecordBatch> {
    let start = Instant::now();
    let mut all = Vec::new();
    loop {
        all.extend(results.take());
        if enough(&all) {
            return all;
        }
        assert!(start.elapsed() < PATIENCE, "nothing more came than {all:?}");
        std::thread::sleep(millis(1));
    }
}

/// Windows of processing time go by the clock alone, and close while nobody pushes.
#[test]
fn processing_time_goes_by_the_clock() {
    let clock = Arc::new(AtomicI64::new(1_000_005));
    let now = Arc::clone(&clock);
    let job = Job::builder(schema())
        .window(Window::ProcessingTime { size: millis(10) })
        .processing_clock(move || now.load(Ordering::SeqCst))
        .aggregate(Aggregate::count())
        .workers(2);
    let results = Collected::new();
    let engine = Engine::start(job.build().unwrap(), results.clone()).unwrap();
    let (mut first, mut second) = (engine.ingest().unwrap(), engine.ingest().unwrap());
    push(&mut first, 0..3);
    push(&mut second, 500..504);
    clock.store(1_000_010, Ordering::SeqCst);
    let closed = wait_for(&results, |all| !all.is_empty());
    assert_eq!(windows(&closed, 2), [(1_000_000, 7)]);
    push(&mut second, -5..0);
    clock.store(1_000_077, Ordering::SeqCst);
    push(&mut first, 0..1);
    drop((first, second));
    let report = engine.finish().unwrap();
    assert_eq!((report.rows_in, report.rows_late), (13, 0));
    let left = windows(&results.take(), 2);
    assert_eq!(left, [(1_000_010, 5), (1_000_070, 1)]);
}

/// A source of processing time gives its windows while it is silent.
#[test]
fn processing_time_does_not_wait_for_silent_sources() {
    let clock = Arc::new(AtomicI64::new(0));
    let now = Arc::clone(&clock);
    let job = Job::builder(schema())
        .window(Window::ProcessingTime { size: millis(10) })
        .processing_clock(move || now.load(Ordering::SeqCst))
        .aggregate(Aggregate::count())
        .workers(2);
    let results = Collected::new();
    let sources: Vec<Arc<dyn Source>> = vec![Paced::new(4, Duration::ZERO, millis(300))];
    let engine = Engine::start_on(job.build().unwrap(), sources, results.clone()).unwrap();
    let start = Instant::now();
    while engine.rows_in() < 40 {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(millis(1));
    }
    std::thread::sleep(millis(20));
    clock.store(10, Ordering::SeqCst);
    let closed = wait_for(&results, |all| !all.is_empty());
    assert_eq!(windows(&closed, 2), [(0, 40)]);
    assert_eq!(engine.finish().unwrap().rows_out, 1);
}

/// Early results are marked, come only with news, and change nothing.
#[test]
fn early_results_change_nothing() {
    let job = Job::builder(schema())
        .event_time("t")
        .window(Window::hopping(millis(20), millis(10)))
        .out_of_orderness(millis(100))
        .aggregate(Aggregate::count())
        .workers(2)
        .emit_every(millis(20));
    let results = Collected::new();
    let engine = Engine::start(job.build().unwrap(), results.clone()).unwrap();
    let mut handle = engine.ingest().unwrap();
    let is_final = |batch: &RecordBatch| batch.column(3).as_boolean().value(0);
    push(&mut handle, 0..15);
    let early = wait_for(&results, |all| all.len() >= 3);
    assert!(early.iter().all(|batch| !is_final(batch)));
    assert_eq!(windows(&early[..3], 2), [(-10, 10), (0, 15), (10, 5)]);
    std::thread::sleep(millis(100));
    assert!(results.take().is_empty(), "nothing has changed");
    push(&mut handle, 15..16);
    wait_for(&results, |all| windows(all, 2).contains(&(0, 16)));
    handle.close().unwrap();
    let report = engine.finish().unwrap();
    let last = results.take().into_iter().filter(is_final).collect::<Vec<_>>();
    assert_eq!(windows(&last, 2), [(-10, 10), (0, 16), (10, 6)]);
    assert_eq!((report.rows_out, report.rows_early >= 6), (3, true));
}

/// A hundred thousand windows open at once cost what their rows cost, and one more than allowed is an error.
#[test]
fn a_storm_of_windows_is_borne_or_refused() {
    let run = |limit: usize, skew: SkewMode| {
        let job = job()
            .out_of_orderness(Duration::from_secs(1_000_000))
            .open_windows_max(limit)
            .workers(1)
            .batch_rows(8192)
            .skew(skew);
        let engine = Engine::start(job.build().unwrap(), Collected::new()).unwrap();
        let mut handle = engine.ingest().unwrap();
        for part in 0..20 {
            let times = (0..5000).map(|row| (part * 5000 + row) * 10);
            // Twice each, far apart.
            if handle.push(batch(times.clone())).is_err() || handle.push(batch(times)).is_err() {
                break;
            }
        }
        drop(handle);
        engine.finish()
    };
    let start = Instant::now();
    for skew in [SkewMode::Off, SkewMode::TwoPhase] {
        let report = run(100_000, skew).unwrap();
        assert_eq!(report.windows_emitted, 100_000);
        assert_eq!(report.rows_in, 200_000);
        assert_eq!(open_windows(&report), 100_000);
    }
    assert!(start.elapsed() < PATIENCE, "it took {:?}", start.elapsed());
    let error = run(99_999, SkewMode::Off).unwrap_err().to_string();
    assert!(error.contains("more than 99999 windows are open"), "{error}");
}
