//! Keyed processes: rows in order, state, timers of both kinds, and what a job with one may not have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use saltmill::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use saltmill::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::process::{
    Context, Key, KeyRows, KeyedProcess, ListState, MapState, ProcessError, TimeDomain, Timer,
    ValueState,
};
use saltmill::runtime::memory::MemorySource;
use saltmill::runtime::source::Source;
use saltmill::{Aggregate, Checkpoint, Collected, Engine, Job, JobBuilder, Window};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("time", DataType::Int64, false),
        Field::new("value", DataType::Int64, false),
    ]))
}

fn job(process: impl KeyedProcess) -> JobBuilder {
    Job::builder(schema()).key(["key"]).event_time("time").process(process).workers(2)
}

/// Closes a session of a key when nothing has come for 100, by a timer that is moved with each row.
#[derive(Debug)]
struct Sessions;

#[derive(Debug, Default)]
struct Session {
    first: ValueState<i64>,
    last: i64,
    values: ListState<i64>,
    by_value: MapState<i64, u32>,
}
saltmill::keyed_state!(Session { first, last, values, by_value });

const GAP: i64 = 100;

impl KeyedProcess for Sessions {
    type State = Session;

    fn output(&self) -> Vec<Field> {
        ["first", "last", "rows", "most"]
            .map(|name| Field::new(name, DataType::Int64, false))
            .to_vec()
    }

    fn on_rows(
        &self,
        _: &Key<'_>,
        rows: &KeyRows<'_>,
        state: &mut Session,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        let times = rows.column("time").as_primitive::<Int64Type>();
        let values = rows.column("value").as_primitive::<Int64Type>();
        for row in rows.rows() {
            let time = times.value(row);
            if state.first.is_some() {
                let old = Timer { time: state.last + GAP, domain: TimeDomain::Event };
                assert!(ctx.delete_timer(old), "the timer that was set is there");
            }
            // The row may come before the timer of a session that it is too late for.
            if state.first.is_some() && time >= state.last + GAP {
                state.give(ctx)?;
                *state = Session::default();
            }
            state.first.get_or_insert(time);
            state.last = time;
            state.values.push(values.value(row));
            *state.by_value.entry(values.value(row)).or_default() += 1;
            ctx.set_timer(time + GAP);
        }
        Ok(())
    }

    fn on_timer(
        &self,
        _: &Key<'_>,
        timer: Timer,
        state: &mut Session,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        assert_eq!(timer, Timer { time: state.last + GAP, domain: TimeDomain::Event });
        assert!(ctx.watermark() >= timer.time);
        state.give(ctx)?;
        ctx.clear();
        Ok(())
    }
}

impl Session {
    fn give(&self, ctx: &mut Context<'_>) -> Result<(), ProcessError> {
        let most = self.by_value.values().max().copied().unwrap_or(0);
        let first = self.first.ok_or("a session without a row")?;
        Ok(ctx.emit((first, self.last, self.values.len() as u64, most))?)
    }
}

/// Key, time and value of each row; sessions never overlap as every key's times grow.
fn rows() -> Vec<(Option<String>, i64, i64)> {
    let mut time = 0;
    let rows = (0..3000_i64).map(|i| {
        time += if i % 97 == 0 { 150 } else { i % 5 };
        let key = (i * i % 11 > 0).then(|| format!("key-with-a-long-name-{}", i * i % 11));
        (key, time, i % 7)
    });
    rows.collect()
}

fn expected() -> Vec<(Option<String>, [i64; 4])> {
    let mut open: BTreeMap<Option<String>, (i64, i64, Vec<i64>)> = BTreeMap::new();
    let mut closed = Vec::new();
    let mut close = |key: Option<String>, (first, last, values): (i64, i64, Vec<i64>)| {
        let most = (0..7).map(|value| values.iter().filter(|it| **it == value).count()).max();
        closed.push((key, [first, last, values.len() as i64, most.unwrap() as i64]));
    };
    for (key, time, value) in rows() {
        if open.get(&key).is_some_and(|(_, last, _)| last + GAP <= time) {
            close(key.clone(), open.remove(&key).unwrap());
        }
        let session = open.entry(key).or_insert((time, time, Vec::new()));
        session.1 = time;
        session.2.push(value);
    }
    open.into_iter().for_each(|(key, session)| close(key, session));
    closed.sort();
    closed
}

fn read(batches: &[RecordBatch]) -> Vec<(Option<String>, [i64; 4])> {
    let mut read = Vec::new();
    for batch in batches {
        let keys = batch.column(0).as_string::<i32>();
        let number =
            |column: usize, row| batch.column(column).as_primitive::<Int64Type>().value(row);
        for row in 0..batch.num_rows() {
            let key = keys.is_valid(row).then(|| keys.value(row).to_owned());
            read.push((key, [1, 2, 3, 4].map(|column| number(column, row))));
        }
    }
    read.sort();
    read
}

fn batch(rows: &[(Option<String>, i64, i64)]) -> RecordBatch {
    let keys: ArrayRef = Arc::new(rows.iter().map(|row| row.0.clone()).collect::<StringArray>());
    let times: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.1)));
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.2)));
    RecordBatch::try_new(schema(), vec![keys, times, values]).unwrap()
}

#[test]
fn sessions_by_timers_are_what_a_plain_program_finds() {
    for (workers, batch_rows) in [(1, 1), (2, 7), (3, 500)] {
        let results = Collected::new();
        let job = job(Sessions).workers(workers).ring_capacity(1).build().unwrap();
        let engine = Engine::start(job, results.clone()).unwrap();
        let mut appender = engine.ingest().unwrap().appender().unwrap().batch_rows(batch_rows);
        for (key, time, value) in rows() {
            appender.append((key.as_deref(), time, value)).unwrap();
        }
        appender.close().unwrap();
        let report = engine.finish().unwrap();
        assert_eq!(report.rows_in, 3000);
        assert_eq!(report.rows_aggregated, 3000);
        let expected = expected();
        assert_eq!(report.rows_out, expected.len() as u64);
        assert_eq!(read(&results.take()), expected, "{workers} workers, {batch_rows} rows a batch");
    }
}

#[test]
fn sources_feed_processes_too() {
    let rows = rows();
    let batches = rows.chunks(100).map(batch).collect::<Vec<_>>();
    let results = Collected::new();
    // One worker, since the order in which units of one input come from two is nobody's.
    let job = job(Sessions).workers(1).build().unwrap();
    let source: Arc<dyn Source> = Arc::new(MemorySource::new(batches, Some(1)));
    let report = Engine::start_on(job, vec![source], results.clone()).unwrap().finish().unwrap();
    assert_eq!(report.rows_in, 3000);
    assert_eq!(read(&results.take()), expected());
}

/// Says when a key has been silent for 20 ms.
#[derive(Debug)]
struct Silence;

impl KeyedProcess for Silence {
    type State = i64;

    fn output(&self) -> Vec<Field> {
        vec![Field::new("after", DataType::Int64, false)]
    }

    fn on_rows(
        &self,
        _: &Key<'_>,
        _: &KeyRows<'_>,
        since: &mut i64,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        *since = ctx.processing_time();
        ctx.set_processing_timer(*since + 20);
        // Far away: it must not hold up the end of the run.
        ctx.set_processing_timer(*since + 3_600_000);
        Ok(())
    }

    fn on_timer(
        &self,
        _: &Key<'_>,
        timer: Timer,
        since: &mut i64,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        assert_eq!(timer.domain, TimeDomain::Processing);
        ctx.emit((ctx.processing_time() - *since,))?;
        Ok(())
    }
}

#[test]
fn timers_by_the_clock_fire_while_nothing_comes() {
    let results = Collected::new();
    let job = Job::builder(schema()).key(["key"]).process(Silence).workers(2).build().unwrap();
    let engine = Engine::start(job, results.clone()).unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap();
    for key in ["a", "b", "c"] {
        appender.append((key, 0, 0)).unwrap();
    }
    let deadline = Instant::now() + Duration::from_secs(10);
    let mut after = Vec::new();
    while after.len() < 3 {
        assert!(Instant::now() < deadline, "{after:?}");
        std::thread::sleep(Duration::from_millis(2));
        for batch in results.take() {
            after.extend(batch.column(1).as_primitive::<Int64Type>().values().to_vec());
        }
    }
    assert!(after.iter().all(|after| (20..2000).contains(after)), "{after:?}");
    drop(appender);
    assert_eq!(engine.finish().unwrap().rows_out, 3);
    assert!(results.take().is_empty());
}

/// Sets a timer whenever one fires.
#[derive(Debug)]
struct ForEver;

impl KeyedProcess for ForEver {
    type State = u32;

    fn output(&self) -> Vec<Field> {
        vec![Field::new("n", DataType::UInt32, false)]
    }

    fn on_rows(
        &self,
        _: &Key<'_>,
        _: &KeyRows<'_>,
        _: &mut u32,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        ctx.set_timer(10);
        Ok(())
    }

    fn on_timer(
        &self,
        _: &Key<'_>,
        timer: Timer,
        fired: &mut u32,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        *fired += 1;
        ctx.set_timer(timer.time + 10);
        ctx.emit((*fired,))?;
        Ok(())
    }
}

#[test]
fn a_timer_that_sets_the_next_fires_until_the_end_and_not_beyond() {
    let results = Collected::new();
    let engine = Engine::start(job(ForEver).build().unwrap(), results.clone()).unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap();
    appender.append(("a", 5, 0)).unwrap();
    appender.watermark(55).unwrap();
    appender.close().unwrap();
    // At 10, 20, .. 50, and that of 60 at the end.
    assert_eq!(engine.finish().unwrap().rows_out, 6);
}

#[test]
fn a_job_with_a_process_has_nothing_else() {
    let refused = [
        job(Sessions).aggregate(Aggregate::count()),
        job(Sessions).window(Window::tumbling(Duration::from_secs(1))),
        job(Sessions).emit_every(Duration::from_secs(1)),
        job(Sessions).skew(SkewMode::TwoPhase),
    ];
    for builder in refused {
        let error = builder.build().unwrap_err().to_string();
        assert!(error.starts_with("a job with a process has no"), "{error}");
    }
}

#[test]
fn state_and_timers_move_when_the_run_is_rescaled() {
    let results = Collected::new();
    let job = job(Sessions).workers(2).ring_capacity(1).build().unwrap();
    let engine = Engine::start(job, results.clone()).unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap().batch_rows(7);
    let mut counts = [3, 1, 8, 2, 5].into_iter();
    for (i, (key, time, value)) in rows().into_iter().enumerate() {
        appender.append((key.as_deref(), time, value)).unwrap();
        if i % 550 == 549 {
            // Rows wait in the appender meanwhile.
            engine.rescale(counts.next().unwrap()).unwrap();
        }
    }
    assert_eq!(counts.next(), None);
    appender.close().unwrap();
    let report = engine.finish().unwrap();
    assert_eq!((report.rows_aggregated, report.rescales.len(), report.shards.len()), (3000, 5, 5));
    assert_eq!(read(&results.take()), expected());
}

#[test]
fn state_and_timers_go_on_from_a_checkpoint_at_another_number_of_workers() {
    let rows = rows();
    let folder = std::env::temp_dir().join(format!("saltmill-process-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for (number, (before, after)) in [(1, 3), (3, 2)].into_iter().enumerate() {
        let path = folder.join(number.to_string());
        let append = |engine: &Engine, rows: &[(Option<String>, i64, i64)]| {
            let mut appender = engine.ingest().unwrap().appender().unwrap().batch_rows(50);
            for (key, time, value) in rows {
                appender.append((key.as_deref(), *time, *value)).unwrap();
            }
            appender.flush().unwrap();
            appender
        };
        let (first, second) = (Collected::new(), Collected::new());
        let job_first = job(Sessions).workers(before).build().unwrap();
        let engine = Engine::builder(job_first).start(first.clone()).unwrap();
        // Open until the engine is gone: its end is not to fire what is left.
        let appender = append(&engine, &rows[..1234]);
        engine.savepoint(&path).unwrap();
        let mut given = first.take();
        drop(engine);
        drop(appender);
        let checkpoint = Checkpoint::find(&path).unwrap();
        let job_second = job(Sessions).workers(after).build().unwrap();
        let engine = Engine::builder(job_second).restore(checkpoint).start(second.clone()).unwrap();
        append(&engine, &rows[1234..]).close().unwrap();
        engine.finish().unwrap();
        given.extend(second.take());
        assert_eq!(read(&given), expected(), "{before} workers, then {after}");
        // Of another process, it is refused.
        let other = job(ForEver).build().unwrap();
        let checkpoint = Checkpoint::find(&path).unwrap();
        let refused = Engine::builder(other).restore(checkpoint).start(Collected::new());
        println!("{}", refused.unwrap_err());
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
