//! Where results go, and what a slow consumer does to the engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use saltmill::append::RowError;
use saltmill::arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, StringArray};
use saltmill::arrow::datatypes::{DataType, Field, Int64Type, Schema, TimeUnit};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::runtime::sink::{Sink, WhenFull, channel, channel_with};
use saltmill::{Aggregate, Engine, Job, JobBuilder, Latest, Window};

fn job() -> JobBuilder {
    let fields = vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("time", DataType::Timestamp(TimeUnit::Millisecond, None), false),
    ];
    Job::builder(Arc::new(Schema::new(fields)))
        .key(["key"])
        .event_time("time")
        .window(Window::tumbling(Duration::from_secs(1)))
        .aggregate(Aggregate::count())
        .workers(1)
}

fn batch(value: i64) -> RecordBatch {
    let values: ArrayRef = Arc::new(Int64Array::from(vec![value, value]));
    RecordBatch::try_from_iter([("v", values)]).unwrap()
}

fn value(batch: &RecordBatch) -> i64 {
    batch.column(0).as_primitive::<Int64Type>().value(0)
}

#[test]
fn a_full_channel_drops_as_chosen_and_counts() {
    for (when_full, kept) in [(WhenFull::DropOldest, [7, 8, 9]), (WhenFull::DropNewest, [0, 1, 2])]
    {
        let (sink, receiver) = channel_with(3, when_full);
        for i in 0..10 {
            sink.results(0, batch(i)).unwrap();
        }
        let dropped = receiver.dropped();
        assert_eq!((dropped.batches, dropped.rows), (7, 14));
        sink.finishing();
        sink.ended();
        assert_eq!(receiver.map(|batch| value(&batch)).collect::<Vec<_>>(), kept);
    }
}

#[test]
fn a_slow_consumer_holds_the_engine_back_within_the_channels_bound() {
    let (sink, mut receiver) = channel(2);
    let engine = Engine::start(job().ring_capacity(1).build().unwrap(), sink).unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap().batch_rows(1);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for window in 0..100_i64 {
                appender.append((window.to_string(), window * 1000)).unwrap();
            }
            done.store(true, Ordering::SeqCst);
            drop(appender);
        });
        std::thread::sleep(Duration::from_millis(50));
        assert!(!done.load(Ordering::SeqCst), "nobody took results, and 100 windows went by");
        // The last window stays open until the run is finished.
        let taken = receiver.by_ref().take(99).count();
        assert_eq!(taken, 99);
    });
    assert_eq!(engine.finish().unwrap().rows_out, 100);
    assert_eq!(receiver.count(), 1);
}

#[test]
fn a_task_receives_results_and_learns_of_the_end() {
    let (sink, mut receiver) = channel(1);
    let engine = Engine::start(job().build().unwrap(), sink).unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let rows = runtime.block_on(async {
        let receiving = tokio::spawn(async move {
            let mut rows = 0;
            while let Some(batch) = receiver.recv().await {
                rows += batch.num_rows();
            }
            rows
        });
        for window in 0..50_i64 {
            appender.append_async(("k", window * 1000)).await.unwrap();
            tokio::task::yield_now().await;
        }
        appender.close_async().await.unwrap();
        let finished = std::thread::spawn(|| engine.finish().unwrap().rows_out);
        let rows = receiving.await.unwrap();
        assert_eq!(finished.join().unwrap(), 50);
        rows
    });
    assert_eq!(rows, 50);
}

#[test]
fn the_latest_result_of_a_key_can_be_asked_for_at_any_time() {
    let job = job().workers(2).build().unwrap();
    let latest = Latest::new(&job);
    let engine = Engine::start(job, latest.clone()).unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap();
    let count = |key: Option<&str>| {
        let row = latest.get((key,)).unwrap()?;
        assert_eq!(row.num_rows(), 1);
        Some(row.column_by_name("count").unwrap().as_primitive::<Int64Type>().value(0))
    };
    assert!(latest.is_empty());
    for (key, time) in [(Some("a"), 1), (Some("a"), 2), (None, 3), (Some("b"), 4)] {
        appender.append((key, time)).unwrap();
    }
    appender.watermark(1000).unwrap();
    let deadline = std::time::Instant::now() + Duration::from_secs(10);
    while latest.len() < 3 {
        assert!(std::time::Instant::now() < deadline);
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!((count(Some("a")), count(None), count(Some("b"))), (Some(2), Some(1), Some(1)));
    appender.append((Some("a"), 1500)).unwrap();
    appender.close().unwrap();
    engine.finish().unwrap();
    assert_eq!((count(Some("a")), count(Some("b")), count(Some("c"))), (Some(1), Some(1), None));
    assert!(matches!(latest.get((1,)), Err(RowError::Type { .. })));
    assert!(matches!(latest.get(("a", 1)), Err(RowError::TooMany { .. })));
}

#[test]
fn latest_finds_keys_of_several_columns_and_floats_in_any_form() {
    let keys: ArrayRef = Arc::new(Float64Array::from(vec![-0.0, 0.0, f64::NAN, -f64::NAN]));
    let names: ArrayRef = Arc::new(StringArray::from(vec!["x"; 4]));
    let batch = RecordBatch::try_from_iter([("f", keys), ("name", names)]).unwrap();
    let job = Job::builder(batch.schema()).key(["f", "name"]).aggregate(Aggregate::count());
    let job = job.build().unwrap();
    let latest = Latest::new(&job);
    let engine = Engine::start(job, latest.clone()).unwrap();
    engine.ingest().unwrap().push(batch).unwrap();
    engine.finish().unwrap();
    assert_eq!(latest.len(), 2);
    for key in [0.0, -0.0, f64::NAN, -f64::NAN] {
        let row = latest.get((key, "x")).unwrap().unwrap();
        assert_eq!(row.column(2).as_primitive::<Int64Type>().value(0), 2);
    }
}
