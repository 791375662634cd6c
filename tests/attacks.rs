//! What callers, sinks and producers can do to an engine, and what must come of it: an error or the
//! right results, never a hang and never a lost row.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::time::{Duration, Instant};

use arrow::array::{
    Array, ArrayRef, AsArray, DictionaryArray, Int32Array, Int64Array, StringArray,
    TimestampMillisecondArray, TimestampSecondArray,
};
use arrow::datatypes::{DataType, Field, Int32Type, Int64Type, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use saltmill::config::{HotList, SkewMode};
use saltmill::error::SinkError;
use saltmill::runtime::sink::Callback;
use saltmill::{
    Aggregate, Collected, ConfigError, Engine, Job, JobBuilder, RunError, TryPushError, Window,
    channel,
};

/// Longest time that anything here may take.
const PATIENCE: Duration = Duration::from_secs(240);

/// Runs `body` and fails if it does not end in time: a hang is a failure, not a wait.
fn in_time<R: Send + 'static>(body: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, wait) = mpsc::channel();
    let thread = std::thread::Builder::new()
        .spawn(move || done.send(body()))
        .expect("a thread can be started");
    match wait.recv_timeout(PATIENCE) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            std::panic::resume_unwind(thread.join().expect_err("it panicked"))
        }
    }
}

/// Columns `key`, `time` (milliseconds) and `value`.
fn schema() -> SchemaRef {
    let time = DataType::Timestamp(TimeUnit::Millisecond, None);
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, true),
        Field::new("time", time, true),
        Field::new("value", DataType::Int64, true),
    ]))
}

/// One row for each of `times`; key and value count up.
fn rows(times: impl IntoIterator<Item = i64>) -> RecordBatch {
    let times = times.into_iter().collect::<Vec<_>>();
    let numbers = || Arc::new(Int64Array::from_iter_values(0..times.len() as i64)) as ArrayRef;
    let columns =
        vec![numbers(), Arc::new(TimestampMillisecondArray::from(times.clone())), numbers()];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// Windows of 10 milliseconds, two workers, the smallest rings.
fn job() -> JobBuilder {
    Job::builder(schema())
        .key(["key"])
        .event_time("time")
        .window(Window::tumbling(Duration::from_millis(10)))
        .aggregates([Aggregate::count(), Aggregate::sum("value")])
        .workers(2)
        .ring_capacity(1)
}

fn total_count(batches: &[RecordBatch]) -> i64 {
    let counts = batches.iter().map(|batch| batch.column_by_name("count").unwrap());
    counts.map(|counts| counts.as_primitive::<Int64Type>().values().iter().sum::<i64>()).sum()
}

#[test]
fn try_push_with_full_rings_loses_nothing() {
    in_time(|| {
        let (reached, gate) = (Arc::new(AtomicBool::new(false)), Arc::new(Barrier::new(2)));
        let results = Collected::new();
        let kept = results.clone();
        let (at_gate, shard_gate) = (Arc::clone(&reached), Arc::clone(&gate));
        let sink = Callback(move |batch| {
            if !at_gate.swap(true, Ordering::SeqCst) {
                shard_gate.wait();
            }
            saltmill::Sink::results(&kept, 0, batch)
        });
        let engine = Engine::start(job().workers(1).build().unwrap(), sink).unwrap();
        let mut ingest = engine.ingest().unwrap();
        let mut taken = 14;
        ingest.push(rows([0; 7])).unwrap();
        ingest.push(rows([10; 7])).unwrap();
        while !reached.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1));
        }
        // The shard stands still in the sink.
        let mut given_back = 0;
        for i in 2..100 {
            let batch = rows([i * 10; 7]);
            match ingest.try_push(batch.clone()) {
                Ok(()) => taken += 7,
                Err(TryPushError::Full(back)) => {
                    assert_eq!(back, batch);
                    given_back += 1;
                }
                Err(TryPushError::Run(error)) => panic!("{error}"),
            }
        }
        assert!(given_back > 90, "{given_back} given back by a ring of one place");
        gate.wait();
        ingest.close().unwrap();
        let report = engine.finish().unwrap();
        assert_eq!(report.rows_in, taken);
        assert_eq!(total_count(&results.take()), i64::try_from(taken).unwrap());
    });
}

#[test]
fn a_dropped_handle_hands_on_its_rows_and_releases_the_watermark() {
    in_time(|| {
        let results = Collected::new();
        let engine = Engine::start(job().build().unwrap(), results.clone()).unwrap();
        let mut kept = engine.ingest().unwrap();
        let mut dropped = engine.ingest().unwrap();
        kept.push(rows(0..100)).unwrap();
        let _ = dropped.try_push(rows(0..50));
        std::thread::sleep(Duration::from_millis(20));
        // The second handle stands at 49: windows up to 40 may close, and no others.
        let mut seen = total_count(&results.take());
        assert!(seen <= 40 + 40, "held back by the second handle, but {seen} are out");
        drop(dropped);
        let start = Instant::now();
        // Windows up to 90 can close; the last one waits for the first handle.
        while seen < 90 + 50 && start.elapsed() < PATIENCE {
            seen += total_count(&results.take());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(seen, 140);
        drop(kept);
        assert_eq!(engine.finish().unwrap().rows_in, 150);
        assert_eq!(total_count(&results.take()), 10);
    });
}

#[test]
fn dropping_the_engine_frees_producers_that_wait_in_push() {
    in_time(|| {
        let stuck = Arc::new(AtomicBool::new(true));
        let still = Arc::clone(&stuck);
        let sink = Callback(move |_| {
            while still.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            Ok(())
        });
        let engine = Engine::start(job().build().unwrap(), sink).unwrap();
        let producers = (0..3)
            .map(|_| {
                let mut ingest = engine.ingest().unwrap();
                std::thread::Builder::new()
                    .spawn(move || {
                        for i in 0.. {
                            if let Err(error) = ingest.push(rows(i * 100..i * 100 + 100)) {
                                return error;
                            }
                        }
                        unreachable!("the loop has no end")
                    })
                    .unwrap()
            })
            .collect::<Vec<_>>();
        std::thread::sleep(Duration::from_millis(100));
        stuck.store(false, Ordering::SeqCst);
        drop(engine);
        for producer in producers {
            assert!(matches!(producer.join().unwrap(), RunError::Stopped));
        }
    });
}

#[test]
fn dropping_the_engine_does_not_wait_for_a_receiver_that_does_not_read() {
    in_time(|| {
        let (sink, receiver) = channel(1);
        let engine = Engine::start(job().build().unwrap(), sink).unwrap();
        let mut ingest = engine.ingest().unwrap();
        for i in 0..20 {
            if ingest.try_push(rows(i * 100..i * 100 + 100)).is_err() {
                break;
            }
        }
        std::thread::sleep(Duration::from_millis(50));
        drop(engine);
        assert!(matches!(ingest.push(rows(0..1)), Err(RunError::Stopped)));
        // What was delivered can still be read, and then the results end.
        assert!(receiver.count() >= 1);
    });
}

#[test]
fn a_channel_of_one_place_may_be_read_after_finish() {
    in_time(|| {
        let (sink, receiver) = channel(1);
        let engine = Engine::start(job().build().unwrap(), sink).unwrap();
        // One window: nothing is emitted before the end.
        engine.ingest().unwrap().push(rows([5; 100])).unwrap();
        let report = engine.finish().unwrap();
        assert_eq!(report.rows_out, 100);
        assert_eq!(total_count(&receiver.collect::<Vec<_>>()), 100);
    });
}

#[test]
fn a_reader_that_goes_away_ends_the_run_with_an_error() {
    in_time(|| {
        let (sink, receiver) = channel(1);
        let engine = Engine::start(job().build().unwrap(), sink).unwrap();
        let mut ingest = engine.ingest().unwrap();
        drop(receiver);
        let pushed = (0..1000).try_for_each(|i| ingest.push(rows(i * 100..i * 100 + 100)));
        assert!(matches!(pushed, Err(RunError::Stopped)), "{pushed:?}");
        drop(ingest);
        let error = engine.finish().unwrap_err();
        assert!(matches!(error, RunError::Sink(SinkError::Closed)), "{error:?}");
    });
}

#[test]
fn a_sink_that_fails_is_the_error_of_the_run() {
    in_time(|| {
        let sink = Callback(|_| Err(SinkError::Failed("disk full".into())));
        let engine = Engine::start(job().build().unwrap(), sink).unwrap();
        let mut ingest = engine.ingest().unwrap();
        let pushed = (0..1000).try_for_each(|i| ingest.push(rows(i * 100..i * 100 + 100)));
        assert!(pushed.is_err());
        drop(ingest);
        assert!(engine.ingest().is_err(), "a run that has failed takes no producers");
        let error = engine.finish().unwrap_err().to_string();
        assert!(error.contains("disk full"), "{error}");
    });
}

/// A sink that wants late rows and cannot keep them.
struct NoLateRows;

impl saltmill::Sink for NoLateRows {
    fn results(&self, _: usize, _: RecordBatch) -> Result<(), SinkError> {
        Ok(())
    }

    fn wants_side_outputs(&self) -> bool {
        true
    }

    fn late(&self, _: RecordBatch) -> Result<(), SinkError> {
        Err(SinkError::Failed("no room for late rows".into()))
    }
}

#[test]
fn late_rows_that_cannot_be_kept_are_the_error_of_the_run() {
    in_time(|| {
        let engine = Engine::start(job().build().unwrap(), NoLateRows).unwrap();
        let mut ingest = engine.ingest().unwrap();
        assert!(ingest.push(rows([100, 1])).is_err());
        assert!(matches!(ingest.push(rows([100])), Err(RunError::Stopped)));
        drop(ingest);
        let error = engine.finish().unwrap_err().to_string();
        assert!(error.contains("no room for late rows"), "{error}");
    });
}

#[test]
fn a_null_inside_a_dictionary_is_a_null() {
    in_time(|| {
        let values = StringArray::from(vec![Some("a"), None]);
        let keys = Int32Array::from(vec![0, 1, 1]);
        let dictionary = DictionaryArray::<Int32Type>::new(keys, Arc::new(values));
        let of = |nullable| {
            let field = Field::new("key", dictionary.data_type().clone(), nullable);
            Arc::new(Schema::new(vec![field]))
        };
        let column: ArrayRef = Arc::new(dictionary.clone());
        let job = |nullable| {
            Job::builder(of(nullable)).key(["key"]).aggregate(Aggregate::count_of("key")).workers(1)
        };
        let results = Collected::new();
        let engine = Engine::start(job(true).build().unwrap(), results.clone()).unwrap();
        let batch = RecordBatch::try_new(of(true), vec![Arc::clone(&column)]).unwrap();
        engine.ingest().unwrap().push(batch.clone()).unwrap();
        assert_eq!(engine.finish().unwrap().rows_out, 2);
        let found = results.take();
        let counts = found
            .iter()
            .map(|batch| batch.column(1).as_primitive::<Int64Type>().values().iter().sum::<i64>());
        assert_eq!(counts.sum::<i64>(), 1, "nulls are not counted");
        // Declared without nulls, it is refused, and does not end up as a null that cannot be.
        let engine = Engine::start(job(false).build().unwrap(), Collected::new()).unwrap();
        let error = engine.ingest().unwrap().push(batch).unwrap_err().to_string();
        assert!(error.contains("\"key\"") && error.contains("null"), "{error}");
        engine.finish().unwrap();
    });
}

#[test]
fn a_sink_that_panics_is_an_error_and_not_a_hang() {
    in_time(|| {
        let sink = Callback(|_| panic!("a sink of glass"));
        let engine = Engine::start(job().build().unwrap(), sink).unwrap();
        let mut ingest = engine.ingest().unwrap();
        ingest.push(rows(0..5)).unwrap();
        drop(ingest);
        let error = engine.finish().unwrap_err();
        assert!(matches!(error, RunError::Panicked { .. }), "{error:?}");
        assert!(error.to_string().contains("a sink of glass"), "{error}");
    });
}

#[test]
fn a_silent_input_does_not_hold_back_the_others() {
    in_time(|| {
        let results = Collected::new();
        let job = job().idle_timeout(Duration::from_millis(30)).build().unwrap();
        let engine = Engine::start(job, results.clone()).unwrap();
        let mut silent = engine.ingest().unwrap();
        let mut busy = engine.ingest().unwrap();
        silent.push(rows(0..3)).unwrap();
        let start = Instant::now();
        let (mut seen, mut pushed) = (0, 0);
        while seen == 0 && start.elapsed() < PATIENCE {
            busy.push(rows(pushed..pushed + 10)).unwrap();
            pushed += 10;
            std::thread::sleep(Duration::from_millis(2));
            seen += total_count(&results.take());
        }
        assert!(seen > 0, "windows close although one input is silent");
        // Its rows are late now where the others went on, and counted.
        silent.push(rows(0..3)).unwrap();
        drop((silent, busy));
        let report = engine.finish().unwrap();
        assert_eq!(report.rows_late, 3);
        assert_eq!(report.rows_in, u64::try_from(pushed).unwrap() + 6);
        assert_eq!(seen + total_count(&results.take()), pushed + 3);
    });
}

#[test]
fn snapshots_change_nothing() {
    in_time(|| {
        let sums = |snapshots: bool| {
            let results = Collected::new();
            let engine = Engine::start(job().build().unwrap(), results.clone()).unwrap();
            let mut ingest = engine.ingest().unwrap();
            for i in 0..20 {
                ingest.push(rows(i * 5..i * 5 + 5)).unwrap();
                if snapshots {
                    let seen = engine.snapshot().unwrap();
                    assert!(total_count(&seen) <= (i + 1) * 5);
                }
            }
            if snapshots {
                let start = Instant::now();
                // Rows of the last two windows at most are open; all others have been emitted.
                while total_count(&engine.snapshot().unwrap()) != 10 {
                    assert!(start.elapsed() < PATIENCE, "the last window is seen whole");
                    std::thread::sleep(Duration::from_millis(1));
                }
                let pictures = [engine.snapshot().unwrap(), engine.snapshot().unwrap()];
                assert_eq!(total_count(&pictures[0]), total_count(&pictures[1]));
            }
            drop(ingest);
            let report = engine.finish().unwrap();
            assert_eq!(report.rows_in, 100);
            let mut text = results
                .take()
                .iter()
                .flat_map(|batch| {
                    let text =
                        arrow::util::pretty::pretty_format_batches(std::slice::from_ref(batch));
                    text.unwrap().to_string().lines().map(str::to_owned).collect::<Vec<_>>()
                })
                .collect::<Vec<_>>();
            text.sort();
            text.dedup();
            text
        };
        assert_eq!(sums(true), sums(false));
    });
}

/// More keys at once than are looked up at a time.
#[test]
fn many_keys_of_a_window_are_corrected() {
    in_time(|| {
        let keys = 3000;
        for workers in [1, 2] {
            let job = job().workers(workers).allowed_lateness(Duration::from_secs(60));
            let results = Collected::new();
            let engine = Engine::start(job.build().unwrap(), results.clone()).unwrap();
            let mut ingest = engine.ingest().unwrap();
            ingest.push(rows(vec![0; keys])).unwrap();
            ingest.push(rows([20])).unwrap();
            ingest.push(rows(vec![5; keys])).unwrap();
            ingest.push(rows([40])).unwrap();
            ingest.close().unwrap();
            assert_eq!(engine.finish().unwrap().rows_late, 0);
            let mut corrected = 0;
            for batch in results.take() {
                let column = |name: &str| batch.column_by_name(name).unwrap();
                let revisions = column("revision").as_primitive::<Int32Type>().values().to_vec();
                let counts = column("count").as_primitive::<Int64Type>().values().to_vec();
                for (revision, count) in revisions.into_iter().zip(counts) {
                    assert_eq!(count, i64::from(revision) + 1);
                    corrected += usize::from(revision == 1);
                }
            }
            assert_eq!(corrected, keys);
        }
    });
}

/// Without windows nothing ends before the run does.
#[test]
fn a_promise_ends_nothing_where_there_are_no_windows() {
    in_time(|| {
        let job = job().window(Window::None).build().unwrap();
        let results = Collected::new();
        let engine = Engine::start(job, results.clone()).unwrap();
        let mut ingest = engine.ingest().unwrap();
        for _ in 0..5 {
            ingest.push(rows(0..10)).unwrap();
            ingest.watermark(i64::MAX).unwrap();
        }
        ingest.close().unwrap();
        assert_eq!(engine.finish().unwrap().rows_aggregated, 50);
        assert_eq!(total_count(&results.take()), 50);
    });
}

/// Partials of hot keys stay with the producer, which may be silent; a reader sees their rows all the same,
/// at once and as often as it looks.
#[test]
fn a_snapshot_sees_every_row_pushed_before_it() {
    in_time(|| {
        let hot = HotList::Text(vec![Some("0".into()), None]);
        for skew in [SkewMode::Hot(hot), SkewMode::TwoPhase, SkewMode::Adaptive, SkewMode::Off] {
            let job = job().window(Window::None).skew(skew.clone()).build().unwrap();
            let results = Collected::new();
            let engine = Engine::start(job, results.clone()).unwrap();
            let mut handles = [engine.ingest().unwrap(), engine.ingest().unwrap()];
            let mut pushed = 0;
            for round in 0..60 {
                // One row of key 0, one of key 1: the same keys in every batch.
                handles[round % 2].push(rows(0..2)).unwrap();
                pushed += 2;
                assert_eq!(total_count(&engine.snapshot().unwrap()), pushed, "{skew:?}, {round}");
            }
            // A handle that is left behind, and one that goes while somebody looks.
            let [first, second] = handles;
            let looked = std::thread::scope(|scope| {
                scope.spawn(|| drop(first));
                total_count(&engine.snapshot().unwrap())
            });
            assert_eq!(looked, pushed, "{skew:?}");
            drop(second);
            assert_eq!(engine.finish().unwrap().rows_in, 120);
            assert_eq!(total_count(&results.take()), 120, "{skew:?}");
        }
    });
}

#[test]
fn batches_of_another_schema_are_refused_and_the_run_goes_on() {
    in_time(|| {
        let results = Collected::new();
        let engine = Engine::start(job().build().unwrap(), results.clone()).unwrap();
        let mut ingest = engine.ingest().unwrap();
        let good = rows(0..5);
        let fewer = good.project(&[0, 1]).unwrap();
        let swapped = good.project(&[2, 1, 0]).unwrap();
        let texts: ArrayRef = Arc::new(StringArray::from(vec!["1"; 5]));
        let seconds: ArrayRef = Arc::new(TimestampSecondArray::from(vec![1; 5]));
        let with = |column: usize, array: &ArrayRef| {
            let mut columns = good.columns().to_vec();
            columns[column] = Arc::clone(array);
            RecordBatch::try_from_iter(["key", "time", "value"].into_iter().zip(columns)).unwrap()
        };
        for (bad, named) in [
            (fewer, "2 columns"),
            (swapped, "\"value\""),
            (with(2, &texts), "Utf8"),
            (with(1, &seconds), "Timestamp(s)"),
        ] {
            let error = ingest.push(bad.clone()).unwrap_err();
            assert!(matches!(error, RunError::Batch(_)), "{error:?}");
            assert!(error.to_string().contains(named), "{error} should name {named}");
            assert!(matches!(ingest.try_push(bad), Err(TryPushError::Run(RunError::Batch(_)))));
        }
        ingest.push(good).unwrap();
        drop(ingest);
        assert_eq!(engine.finish().unwrap().rows_in, 5);
        assert_eq!(total_count(&results.take()), 5);
    });
}

#[test]
fn nulls_in_a_column_declared_without_are_refused() {
    in_time(|| {
        let schema =
            |nullable| Arc::new(Schema::new(vec![Field::new("value", DataType::Int64, nullable)]));
        let job = Job::builder(schema(false)).aggregate(Aggregate::sum("value")).build().unwrap();
        let engine = Engine::start(job, Collected::new()).unwrap();
        let values = Int64Array::from(vec![Some(1), None]);
        let batch = RecordBatch::try_new(schema(true), vec![Arc::new(values)]).unwrap();
        let error = engine.ingest().unwrap().push(batch).unwrap_err().to_string();
        assert!(error.contains("\"value\"") && error.contains("null"), "{error}");
        assert_eq!(engine.finish().unwrap().rows_in, 0);
    });
}

#[test]
fn jobs_that_cannot_run_are_refused_with_the_reason() {
    let refused = |job: JobBuilder| job.build().expect_err("it cannot run");
    let text = |job: JobBuilder| refused(job).to_string();
    assert!(matches!(refused(job().workers(0)), ConfigError::OutOfRange { .. }));
    assert!(text(job().workers(0)).contains("number of workers is 0"));
    let many = text(job().workers(9).max_parallelism(8));
    assert!(many.contains('9') && many.contains("1 to 8"), "{many}");
    assert!(text(job().max_parallelism(0)).contains("max parallelism"));
    assert!(text(job().max_parallelism(1 << 16)).contains("max parallelism"));
    assert!(text(job().ring_capacity(0)).contains("ring capacity"));
    assert!(text(job().batch_rows(0)).contains("batch size"));
    assert!(text(job().key(["kye"])).contains("did you mean \"key\""));
    assert!(text(job().key(["key", "key"])).contains("named twice"));
    assert!(text(job().aggregate(Aggregate::sum("valeu"))).contains("did you mean \"value\""));
    assert!(text(job().aggregate(Aggregate::sum("value"))).contains("sum_value"));
    assert!(text(job().aggregate(Aggregate::min("value").alias("key"))).contains("\"key\""));
    assert!(text(job().aggregate(Aggregate::sum("time"))).contains("sum(time)"));
    assert!(text(job().event_time("tiem")).contains("did you mean \"time\""));
    assert!(text(job().window(Window::tumbling(Duration::ZERO))).contains("longer than 0"));
    assert!(text(job().window(Window::tumbling(Duration::from_micros(1)))).contains("whole"));
    let windowless = Job::builder(schema()).aggregate(Aggregate::count());
    let timeless = windowless.clone().window(Window::tumbling(Duration::from_secs(1)));
    assert!(text(timeless).contains("event-time column"));
    assert!(text(Job::builder(schema()).key(["key"])).contains("no aggregate"));
    let field = |name| Field::new(name, DataType::Int64, false);
    let twice = Arc::new(Schema::new(vec![field("x"), field("x"), field("y")]));
    let twice = Job::builder(twice).aggregate(Aggregate::count());
    assert!(text(twice.clone().key(["x"])).contains("more than one column called \"x\""));
    assert!(text(twice.clone().aggregate(Aggregate::sum("x"))).contains("more than one"));
    assert!(twice.key(["y"]).build().is_ok(), "columns that are not used may share a name");
}

#[test]
fn a_sum_that_does_not_fit_names_key_and_window() {
    in_time(|| {
        let engine = Engine::start(job().build().unwrap(), Collected::new()).unwrap();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(Int64Array::from(vec![7, 7, 8])),
            Arc::new(TimestampMillisecondArray::from(vec![3, 4, 5])),
            Arc::new(Int64Array::from(vec![i64::MAX, 1, 1])),
        ];
        let batch = RecordBatch::try_new(schema(), columns).unwrap();
        engine.ingest().unwrap().push(batch).unwrap();
        let error = engine.finish().unwrap_err().to_string();
        for part in
            ["sum(value)", "key 7", "1970-01-01T00:00:00.010", "9223372036854775808", "sum_decimal"]
        {
            assert!(error.contains(part), "{error} should contain {part}");
        }
    });
}

#[test]
fn a_thousand_handles_come_and_go() {
    in_time(|| {
        let results = Collected::new();
        let engine = Engine::start(job().build().unwrap(), results.clone()).unwrap();
        let mut holder = engine.ingest().unwrap();
        holder.push(rows([0])).unwrap();
        for i in 0..1000 {
            let mut ingest = engine.ingest().unwrap();
            if i % 3 > 0 {
                ingest.push(rows([i; 2])).unwrap();
            }
            if i % 2 == 0 {
                ingest.close().unwrap();
            }
        }
        drop(holder);
        let report = engine.finish().unwrap();
        assert_eq!(report.rows_in, 1 + 2 * 666);
        assert_eq!(report.rows_late, 0, "the first handle held time back");
        assert_eq!(total_count(&results.take()), 1 + 2 * 666);
    });
}

#[test]
fn sixty_four_producers() {
    in_time(|| {
        let results = Collected::new();
        let job = job().workers(3).out_of_orderness(Duration::from_millis(5)).build().unwrap();
        let engine = Engine::start(job, results.clone()).unwrap();
        let handles = (0..64).map(|_| engine.ingest().unwrap()).collect::<Vec<_>>();
        let pushed = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for mut handle in handles {
                let pushed = &pushed;
                scope.spawn(move || {
                    for i in 0..20 {
                        handle.push(rows(i * 10..i * 10 + 25)).unwrap();
                        pushed.fetch_add(25, Ordering::SeqCst);
                    }
                });
            }
        });
        let report = engine.finish().unwrap();
        assert_eq!(report.rows_in, 64 * 20 * 25);
        assert_eq!(report.rows_in, report.rows_aggregated + report.rows_late);
        let counted = u64::try_from(total_count(&results.take())).unwrap();
        assert_eq!(counted, report.rows_aggregated);
    });
}

#[test]
fn a_key_of_a_million_characters_comes_back_whole() {
    in_time(|| {
        let field = Field::new("key", DataType::Utf8, false);
        let schema = Arc::new(Schema::new(vec![field]));
        let mut other = "k".repeat(1_000_000);
        let long = other.clone();
        other.replace_range(999_999.., "x");
        let keys = StringArray::from(vec![long.as_str(), "k", &other, &long]);
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![Arc::new(keys)]).unwrap();
        let results = Collected::new();
        let job = Job::builder(schema).key(["key"]).aggregate(Aggregate::count()).workers(2);
        let engine = Engine::start(job.build().unwrap(), results.clone()).unwrap();
        engine.ingest().unwrap().push(batch).unwrap();
        engine.finish().unwrap();
        let mut found = Vec::new();
        for batch in results.take() {
            let counts = batch.column(1).as_primitive::<Int64Type>().clone();
            for (key, count) in batch.column(0).as_string::<i32>().iter().zip(&counts) {
                found.push((key.unwrap().to_owned(), count.unwrap()));
            }
        }
        found.sort();
        assert_eq!(found, [("k".to_owned(), 1), (long, 2), (other, 1)]);
    });
}

#[test]
fn explicit_watermarks_close_windows_and_make_rows_late() {
    in_time(|| {
        let results = Collected::new();
        let engine = Engine::start(job().build().unwrap(), results.clone()).unwrap();
        let mut ingest = engine.ingest().unwrap();
        ingest.push(rows([1, 2, 3])).unwrap();
        ingest.watermark(10).unwrap();
        let start = Instant::now();
        let mut seen = 0;
        while seen < 3 && start.elapsed() < PATIENCE {
            seen += total_count(&results.take());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(seen, 3, "the watermark closed the window without a later row");
        ingest.watermark(-50).unwrap();
        ingest.push(rows([9, 10])).unwrap();
        drop(ingest);
        let report = engine.finish().unwrap();
        assert_eq!((report.rows_late, report.rows_aggregated), (1, 4));
    });
}
