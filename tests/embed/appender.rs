//! Rows one at a time: order, latency, room, handles that come and go, async code, and nothing lost.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use saltmill::append::RowError;
use saltmill::arrow::array::{Array, ArrayRef, AsArray, Int64Array, TimestampMillisecondArray};
use saltmill::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef, TimeUnit};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::error::SinkError;
use saltmill::runtime::sink::{Callback, Sink};
use saltmill::time::alignment::Alignment;
use saltmill::{
    Aggregate, AppendError, Collected, Engine, Job, JobBuilder, RunError, TryAppendError, Window,
};

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, true),
        Field::new("time", DataType::Timestamp(TimeUnit::Millisecond, None), false),
        Field::new("value", DataType::Int64, true),
    ]))
}

fn job() -> JobBuilder {
    Job::builder(schema())
        .key(["key"])
        .aggregates([Aggregate::count(), Aggregate::sum("value")])
        .workers(2)
}

fn windowed() -> JobBuilder {
    job().event_time("time").window(Window::tumbling(Duration::from_secs(1)))
}

/// Count and sum of each key over all windows.
fn totals(batches: &[RecordBatch]) -> BTreeMap<Option<i64>, (i64, i64)> {
    let mut totals = BTreeMap::new();
    for batch in batches {
        let column = |name| batch.column_by_name(name).unwrap();
        let keys = column("key").as_primitive::<Int64Type>();
        let counts = column("count").as_primitive::<Int64Type>();
        let sums = batch.column(batch.num_columns() - 1).as_primitive::<Int64Type>();
        for row in 0..batch.num_rows() {
            let total: &mut (i64, i64) = totals.entry(keys.iter().nth(row).unwrap()).or_default();
            total.0 += counts.value(row);
            total.1 += if sums.is_valid(row) { sums.value(row) } else { 0 };
        }
    }
    totals
}

/// Waits until `done`, for ten seconds at most.
fn until(what: &str, mut done: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !done() {
        assert!(Instant::now() < deadline, "{what} did not come about");
        std::thread::sleep(Duration::from_micros(200));
    }
}

#[test]
fn rows_give_what_they_should() {
    for skew in [SkewMode::Off, SkewMode::Adaptive, SkewMode::TwoPhase] {
        let results = Collected::new();
        let engine =
            Engine::start(windowed().skew(skew).build().unwrap(), results.clone()).unwrap();
        let mut appender = engine.ingest().unwrap().appender().unwrap().batch_rows(100);
        let mut expected = BTreeMap::new();
        for i in 0..10_000_i64 {
            let key = (i % 7 > 0).then_some(i % 7);
            appender.append((key, i, (i % 11 > 0).then_some(i))).unwrap();
            let total: &mut (i64, i64) = expected.entry(key).or_default();
            total.0 += 1;
            total.1 += if i % 11 > 0 { i } else { 0 };
        }
        appender.close().unwrap();
        let report = engine.finish().unwrap();
        assert_eq!((report.rows_in, report.rows_late), (10_000, 0));
        assert_eq!(totals(&results.take()), expected);
    }
}

#[test]
fn rows_of_a_silent_appender_are_handed_on_in_time() {
    let engine = Engine::start(job().build().unwrap(), Collected::new()).unwrap();
    let mut quick = engine.ingest().unwrap().appender().unwrap().latency(Duration::from_millis(20));
    let mut slow = engine.ingest().unwrap().appender().unwrap().latency(Duration::from_secs(3600));
    let started = Instant::now();
    quick.append((1, 0, 1)).unwrap();
    slow.append((2, 0, 1)).unwrap();
    until("the row", || engine.rows_in() == 1);
    assert!(started.elapsed() >= Duration::from_millis(20), "handed on before it had waited");
    // Again, after the timer has been at rest.
    std::thread::sleep(Duration::from_millis(50));
    quick.append((1, 0, 2)).unwrap();
    until("the second row", || engine.rows_in() == 2);
    assert_eq!(totals(&engine.snapshot().unwrap()), BTreeMap::from([(Some(1), (2, 3))]));
    slow.flush().unwrap();
    assert_eq!(engine.rows_in(), 3);
    let mut at_once = engine.ingest().unwrap().appender().unwrap().latency(Duration::ZERO);
    at_once.append((3, 0, 1)).unwrap();
    assert_eq!(engine.rows_in(), 4);
    drop((quick, slow, at_once));
    assert_eq!(engine.finish().unwrap().rows_in, 4);
}

#[test]
fn a_wrong_row_is_refused_and_the_next_one_is_taken() {
    let results = Collected::new();
    let engine = Engine::start(job().build().unwrap(), results.clone()).unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap();
    appender.append((1, 5, 10)).unwrap();
    let error = appender.append((1, None::<i64>, 10)).unwrap_err();
    assert!(
        matches!(&error, AppendError::Row(RowError::Null { column }) if column == "time"),
        "{error}"
    );
    let error = appender.append((1, "noon", 10)).unwrap_err().to_string();
    assert!(error.contains("\"time\"") && error.contains("str"), "{error}");
    assert!(matches!(
        appender.try_append((1, 2)),
        Err(TryAppendError::Row(RowError::Missing { .. }))
    ));
    appender.append((1, 6, None::<i64>)).unwrap();
    drop(appender);
    assert_eq!(engine.finish().unwrap().rows_in, 2);
    assert_eq!(totals(&results.take()), BTreeMap::from([(Some(1), (2, 10))]));
}

#[test]
fn a_schema_with_lists_has_no_appender_but_takes_batches() {
    let fields = vec![
        Field::new("key", DataType::Int64, true),
        Field::new("list", DataType::new_list(DataType::Int64, true), true),
    ];
    let job =
        Job::builder(Arc::new(Schema::new(fields))).key(["key"]).aggregate(Aggregate::count());
    let engine = Engine::start(job.build().unwrap(), Collected::new()).unwrap();
    let error = engine.ingest().unwrap().appender().unwrap_err().to_string();
    assert!(error.contains("\"list\"") && error.contains("push batches"), "{error}");
    engine.finish().unwrap();
}

/// A sink that stands still until it is opened.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().unwrap() = true;
        self.0.1.notify_all();
    }

    fn wait(&self) {
        let mut open = self.0.0.lock().unwrap();
        while !*open {
            open = self.0.1.wait(open).unwrap();
        }
    }
}

impl Sink for Gate {
    fn results(&self, _: usize, _: RecordBatch) -> Result<(), SinkError> {
        self.wait();
        Ok(())
    }

    fn finishing(&self) {
        self.open();
    }
}

#[test]
fn without_room_a_row_comes_back_and_none_is_lost() {
    let gate = Gate::default();
    let engine =
        Engine::start(windowed().workers(1).ring_capacity(1).build().unwrap(), gate.clone())
            .unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap().batch_rows(10);
    // The first window's results stand before the gate, and behind them the shard.
    appender.append((1, 0, 1)).unwrap();
    appender.watermark(1000).unwrap();
    let mut taken = 1_u64;
    let back = loop {
        match appender.try_append((2, 1500, 1)) {
            Ok(()) => taken += 1,
            Err(TryAppendError::Full(row)) => break row,
            Err(error) => panic!("{error}"),
        }
        assert!(taken < 1000, "the ring holds one batch");
    };
    assert_eq!(back, (2, 1500, 1));
    // Also from async code: it is pending, until there is room.
    {
        let mut ready = pin!(appender.ready());
        let mut context = Context::from_waker(Waker::noop());
        assert!(ready.as_mut().poll(&mut context).is_pending());
        gate.open();
        until("room", || ready.as_mut().poll(&mut context).is_ready());
    }
    appender.try_append(back).unwrap();
    drop(appender);
    assert_eq!(engine.finish().unwrap().rows_in, taken + 1);
}

#[test]
fn async_tasks_wait_without_holding_the_thread() {
    let results = Collected::new();
    let slow = Callback({
        let results = results.clone();
        move |batch| {
            std::thread::sleep(Duration::from_micros(300));
            results.results(0, batch)
        }
    });
    let engine = Engine::start(windowed().ring_capacity(1).build().unwrap(), slow).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    let ticks = Arc::new(AtomicU64::new(0));
    let waits = Arc::new(AtomicU64::new(0));
    runtime.block_on(async {
        let ticking = tokio::spawn({
            let ticks = Arc::clone(&ticks);
            async move {
                loop {
                    ticks.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
        // All handles first: what comes while another has gone on is late.
        let appenders = (0..4).map(|_| engine.ingest().unwrap().appender().unwrap().batch_rows(16));
        let appenders = appenders.collect::<Vec<_>>();
        let tasks = appenders.into_iter().enumerate().map(|(task, mut appender)| {
            let waits = Arc::clone(&waits);
            tokio::spawn(async move {
                for i in 0..2000 {
                    let mut first = true;
                    std::future::poll_fn(|cx| {
                        let poll = appender.poll_ready(cx);
                        if poll.is_pending() && std::mem::take(&mut first) {
                            waits.fetch_add(1, Ordering::Relaxed);
                        }
                        poll
                    })
                    .await
                    .unwrap();
                    appender.append_async((task as i64, i * 10, 1)).await.unwrap();
                    if i % 64 == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                // Batches as well, behind the rows.
                let keys: ArrayRef = Arc::new(Int64Array::from(vec![task as i64; 10]));
                let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![19_999; 10]));
                let ones: ArrayRef = Arc::new(Int64Array::from(vec![1; 10]));
                for _ in 0..50 {
                    let columns = [&keys, &times, &ones].map(Arc::clone).to_vec();
                    let batch = RecordBatch::try_new(schema(), columns).unwrap();
                    appender.push_async(batch).await.unwrap();
                }
                appender.watermark_async(20_000).await.unwrap();
                appender.close_async().await.unwrap();
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        ticking.abort();
    });
    let report = engine.finish().unwrap();
    assert_eq!((report.rows_in, report.rows_late), (10_000, 0));
    assert!(waits.load(Ordering::Relaxed) > 0, "nobody had to wait, so this tested nothing");
    assert!(ticks.load(Ordering::Relaxed) > 5, "{ticks:?} ticks: a wait held the thread");
    let expected = (0..4).map(|task| (Some(task), (2500, 2500))).collect();
    assert_eq!(totals(&results.take()), expected);
}

#[test]
fn a_task_that_is_ahead_is_woken_when_the_others_have_come() {
    let alignment = Alignment::new(Duration::from_secs(1));
    let job = windowed().alignment(alignment).build().unwrap();
    let engine = Engine::start(job, Collected::new()).unwrap();
    let appender = || engine.ingest().unwrap().appender().unwrap().batch_rows(1);
    let (mut ahead, mut behind) = (appender(), appender());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let done = Arc::new(AtomicBool::new(false));
    behind.append((1, 0, 1)).unwrap();
    let task = runtime.spawn({
        let done = Arc::clone(&done);
        async move {
            ahead.append_async((2, 5000, 1)).await.unwrap();
            ahead.append_async((2, 5001, 1)).await.unwrap();
            ahead.append_async((2, 5002, 1)).await.unwrap();
            ahead.close_async().await.unwrap();
            done.store(true, Ordering::SeqCst);
        }
    });
    std::thread::sleep(Duration::from_millis(30));
    assert!(!done.load(Ordering::SeqCst), "it ran ahead");
    behind.append((1, 5000, 1)).unwrap();
    until("the task that was ahead", || done.load(Ordering::SeqCst));
    runtime.block_on(task).unwrap();
    drop(behind);
    assert_eq!(engine.finish().unwrap().rows_in, 5);
}

#[test]
fn a_thousand_handles_come_and_go() {
    let results = Collected::new();
    let engine = Engine::start(job().ring_capacity(1).build().unwrap(), results.clone()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4_i64 {
            let engine = &engine;
            scope.spawn(move || {
                for handle in 0..250_i64 {
                    let mut appender = engine.ingest().unwrap().appender().unwrap();
                    for row in 0..handle % 5 {
                        appender.append((thread, row, 1)).unwrap();
                    }
                    match handle % 3 {
                        0 => appender.close().unwrap(),
                        1 => appender.into_ingest().unwrap().close().unwrap(),
                        _ => drop(appender),
                    }
                }
            });
        }
    });
    let report = engine.finish().unwrap();
    assert_eq!(report.rows_in, 2000);
    assert_eq!(totals(&results.take()), (0..4).map(|key| (Some(key), (500, 500))).collect());
}

#[test]
fn sixty_four_producers_get_through_rings_of_one() {
    for skew in [SkewMode::Off, SkewMode::Adaptive] {
        let results = Collected::new();
        let job = windowed().ring_capacity(1).skew(skew).build().unwrap();
        let engine = Engine::start(job, results.clone()).unwrap();
        let appenders =
            (0..64).map(|_| engine.ingest().unwrap().appender().unwrap().batch_rows(50));
        let appenders = appenders.collect::<Vec<_>>();
        std::thread::scope(|scope| {
            for (producer, mut appender) in appenders.into_iter().enumerate() {
                scope.spawn(move || {
                    for row in 0..1000_i64 {
                        let key = if row % 5 > 0 { 1000 } else { producer as i64 };
                        appender.append((key, row * 5, 1)).unwrap();
                    }
                    appender.close().unwrap();
                });
            }
            // Whoever looks meanwhile disturbs nobody.
            for _ in 0..20 {
                engine.snapshot().unwrap();
            }
        });
        let report = engine.finish().unwrap();
        assert_eq!((report.rows_in, report.rows_late), (64_000, 0));
        let totals = totals(&results.take());
        assert_eq!(totals[&Some(1000)], (64 * 800, 64 * 800));
        assert_eq!(totals.len(), 65);
    }
}

#[test]
fn an_appender_outlives_its_engine_without_harm() {
    let engine = Engine::start(job().build().unwrap(), Collected::new()).unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap();
    appender.append((1, 0, 1)).unwrap();
    drop(engine);
    let mut told = false;
    for _ in 0..5000 {
        if let Err(AppendError::Run(RunError::Stopped)) = appender.append((1, 0, 1)) {
            told = true;
            break;
        }
    }
    assert!(told, "rows went nowhere and nobody said so");
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(appender.poll_ready(&mut context), Poll::Ready(Err(RunError::Stopped))));
    assert!(matches!(appender.close(), Err(RunError::Stopped)));
}
