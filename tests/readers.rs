//! Readers beside a running engine: whatever they see of a key is a state that the key really had.
//!
//! Each producer numbers the rows of each key, 1, 2, 3, .., in the column `n`. A state that holds, of one producer, all
//! rows up to some row therefore has a count, sum, least and largest number that follow from each other; so has a
//! window of it, since time goes on with the rows. A row too many or too few anywhere, an aggregate that is ahead of
//! another, or a partial counted twice or not at all breaks the tie.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use saltmill::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use saltmill::arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::{HotList, Pinning, SkewMode};
use saltmill::runtime::reader::{Current, Scalar};
use saltmill::{Aggregate, Collected, ConfigError, Driver, Engine, Job, ReadError, Reader, Window};

const PRODUCERS: i64 = 2;
const KEYS: i64 = 2000;
const HOT: i64 = 7;
const BATCH_ROWS: usize = 1000;
/// Rows of a producer within one unit of time.
const ROWS_PER_TICK: u64 = 20;

/// Reads of one setting; a million in all.
const READS: u64 = 1_000_000 / 12;

fn schema() -> SchemaRef {
    let number = |name| Field::new(name, DataType::Int64, false);
    Arc::new(Schema::new(vec![number("key"), number("ts"), number("producer"), number("n")]))
}

/// Of each producer: count, sum, min, max.
fn aggregates() -> Vec<Aggregate> {
    let of = |producer| {
        let only = format!("filter (where producer = {producer}) as");
        format!(
            "count(n) {only} c{producer}, sum(n) {only} s{producer}, min(n) {only} l{producer}, max(n) {only} h{producer}"
        )
    };
    let all = (0..PRODUCERS).map(of).collect::<Vec<_>>().join(", ");
    Aggregate::parse_list(&all).unwrap()
}

/// Rows of one producer, without an end.
struct Rows {
    producer: i64,
    random: u64,
    made: u64,
    next: BTreeMap<i64, i64>,
}

impl Rows {
    fn new(producer: i64) -> Self {
        let seed = producer.unsigned_abs() + 1;
        Self { producer, random: seed, made: 0, next: BTreeMap::new() }
    }

    fn roll(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.random ^ (self.random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    }

    /// Now and then one key, and another each time, takes most rows, and cools down again.
    fn key(&mut self) -> i64 {
        let phase = self.made / 200_000;
        let roll = self.roll();
        if phase.is_multiple_of(2) && !roll.is_multiple_of(4) {
            return HOT + i64::try_from(phase / 2 % 5).unwrap();
        }
        // More keys as time goes on, so that indexes grow.
        let keys = KEYS.unsigned_abs().min(100 + self.made / 50);
        i64::try_from((roll >> 8) % keys).unwrap()
    }

    fn batch(&mut self) -> RecordBatch {
        let (mut keys, mut times, mut numbers) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..BATCH_ROWS {
            let key = self.key();
            let next = self.next.entry(key).or_insert(0);
            *next += 1;
            numbers.push(*next);
            keys.push(key);
            times.push(i64::try_from(self.made / ROWS_PER_TICK).unwrap());
            self.made += 1;
        }
        let producers = vec![self.producer; BATCH_ROWS];
        let columns = [keys, times, producers, numbers];
        let columns = columns.map(|values| Arc::new(Int64Array::from(values)) as ArrayRef);
        RecordBatch::try_new(schema(), columns.to_vec()).unwrap()
    }
}

/// Checks one producer's part of a state; answers its largest number.
fn check(key: i64, window: Option<(i64, i64)>, values: &[Scalar], from_start: bool) -> i128 {
    let Scalar::Integer(count) = values[0] else { panic!("a count, not {values:?}") };
    if count == 0 {
        assert_eq!(values[1..], [Scalar::Null; 3], "key {key} in {window:?}");
        return 0;
    }
    let number = |value| match value {
        Scalar::Integer(value) => value,
        other => panic!("{other:?} of key {key}"),
    };
    let (sum, low, high) = (number(values[1]), number(values[2]), number(values[3]));
    let told = format!("key {key} in {window:?}: count {count} sum {sum} min {low} max {high}");
    assert_eq!(count, high - low + 1, "{told}");
    assert_eq!(2 * sum, (low + high) * count, "{told}");
    assert!(!from_start || low == 1, "{told}");
    high
}

/// Reads at random until it has read enough; of each key, what was seen before is seen again.
fn read(reader: &Reader, seed: i64, reads: u64, windowed: bool, seen: &AtomicU64) {
    let mut rows = Rows::new(seed);
    let mut last = BTreeMap::<(i64, Option<(i64, i64)>, usize), i128>::new();
    let mut i = 0;
    // And until enough has been found, however late the producers are.
    while i < reads || seen.load(Ordering::Relaxed) < READS / 10 {
        i += 1;
        let roll = rows.roll();
        let key = if roll.is_multiple_of(3) {
            HOT + (roll >> 8) as i64 % 5
        } else {
            (roll >> 8) as i64 % KEYS
        };
        let mut ends = i64::MIN;
        let windows = reader.each_int(key, |window, values| {
            assert_eq!(window.is_some(), windowed);
            if let Some((_, end)) = window {
                assert!(end > ends, "windows in order");
                ends = end;
            }
            for (producer, values) in values.chunks_exact(4).enumerate() {
                let high = check(key, window, values, !windowed);
                let before = last.insert((key, window, producer), high).unwrap_or(0);
                assert!(before <= high, "key {key} in {window:?}: {high} after {before}");
            }
        });
        seen.fetch_add(windows.unwrap() as u64, Ordering::Relaxed);
        if i % 50_000 == 0 {
            last.clear();
            let groups = (roll >> 20) as u16 % 128;
            for batch in reader.scan(groups..=groups).unwrap() {
                check_batch(&batch, windowed);
            }
            if let Some(batch) = reader.get((key,)).unwrap() {
                check_batch(&batch, windowed);
            }
        }
    }
}

fn check_batch(batch: &RecordBatch, windowed: bool) {
    assert!(batch.num_rows() > 0);
    let number = |column: &str, row: usize| {
        let column = batch.column_by_name(column).unwrap();
        if column.is_null(row) {
            return Scalar::Null;
        }
        Scalar::Integer(column.as_primitive::<Int64Type>().value(row).into())
    };
    for row in 0..batch.num_rows() {
        let key = number("key", row).as_i64().unwrap();
        for producer in 0..PRODUCERS {
            let values = ["c", "s", "l", "h"].map(|name| number(&format!("{name}{producer}"), row));
            check(key, None, &values, !windowed);
        }
    }
}

/// Two producers, two readers, and a third reader that both share.
fn stress(workers: usize, window: Window, skew: SkewMode) {
    let windowed = window != Window::None;
    let job = Job::builder(schema())
        .key(["key"])
        .event_time("ts")
        .window(window)
        .aggregates(aggregates())
        .skew(skew)
        .workers(workers)
        .pinning(Pinning::Off)
        .readers(true)
        .build()
        .unwrap();
    let results = Collected::new();
    let engine = Engine::start(job, results.clone()).unwrap();
    let (reader, stop, seen) =
        (engine.reader().unwrap(), AtomicBool::new(false), AtomicU64::new(0));
    let totals = std::thread::scope(|scope| {
        let handles = (0..PRODUCERS).map(|_| engine.ingest().unwrap()).collect::<Vec<_>>();
        let producers = (0..).zip(handles).map(|(producer, mut ingest)| {
            let stop = &stop;
            scope.spawn(move || {
                let mut rows = Rows::new(producer);
                while !stop.load(Ordering::Relaxed) || rows.made < 500_000 {
                    ingest.push(rows.batch()).unwrap();
                }
                ingest.close().unwrap();
                rows.made
            })
        });
        let producers = producers.collect::<Vec<_>>();
        let readers = (0..4).map(|seed| {
            let (shared, own, seen) = (&reader, reader.clone(), &seen);
            scope.spawn(move || {
                let reader = if seed < 2 { shared } else { &own };
                read(reader, 100 + seed, READS / 4, windowed, seen);
            })
        });
        // All are joined, and then the producers told, whatever came of it.
        let read = readers.collect::<Vec<_>>().into_iter().map(|one| one.join());
        let read = read.collect::<Vec<_>>();
        stop.store(true, Ordering::Relaxed);
        let made = producers.into_iter().map(|one| one.join().unwrap()).sum::<u64>();
        read.into_iter().for_each(|read| read.unwrap());
        made
    });
    let report = engine.finish().unwrap();
    assert_eq!((report.rows_in, report.rows_late), (totals, 0));
    for key in 0..KEYS {
        assert_eq!(reader.get_int(key).unwrap(), [], "all windows have closed");
    }
    for batch in results.take() {
        check_batch(&batch, windowed);
    }
}

fn tumbling() -> Window {
    Window::tumbling(Duration::from_millis(1000))
}

fn hopping() -> Window {
    Window::hopping(Duration::from_millis(1000), Duration::from_millis(250))
}

#[test]
fn one_worker() {
    stress(1, Window::None, SkewMode::Adaptive);
    stress(1, tumbling(), SkewMode::Adaptive);
    stress(1, hopping(), SkewMode::Adaptive);
    stress(1, tumbling(), SkewMode::TwoPhase);
}

#[test]
fn two_workers() {
    stress(2, Window::None, SkewMode::Adaptive);
    stress(2, tumbling(), SkewMode::Adaptive);
    stress(2, hopping(), SkewMode::Adaptive);
    stress(2, Window::None, SkewMode::TwoPhase);
}

#[test]
fn eight_workers() {
    stress(8, Window::None, SkewMode::Adaptive);
    stress(8, tumbling(), SkewMode::Adaptive);
    stress(8, hopping(), SkewMode::Adaptive);
    stress(8, tumbling(), SkewMode::Off);
}

/// One batch of rows `(key, n)`.
fn texts(rows: &[(Option<&str>, i64)]) -> RecordBatch {
    let keys = rows.iter().map(|(key, _)| *key).collect::<StringArray>();
    let numbers = rows.iter().map(|(_, n)| *n).collect::<Int64Array>();
    let schema = Schema::new(vec![
        Field::new("key", DataType::Utf8, true),
        Field::new("n", DataType::Int64, false),
    ]);
    RecordBatch::try_new(Arc::new(schema), vec![Arc::new(keys), Arc::new(numbers)]).unwrap()
}

/// Waits until the reader sees so many rows of a key.
fn wait(reader: &Reader, key: Option<&str>, rows: i64) -> RecordBatch {
    loop {
        if let Some(batch) = reader.get((key,)).unwrap()
            && batch.column_by_name("count").unwrap().as_primitive::<Int64Type>().value(0) == rows
        {
            return batch;
        }
        std::thread::yield_now();
    }
}

#[test]
fn keys_of_text_and_the_null_key() {
    let long = "a key that is too long for two words";
    let batch =
        texts(&[(Some("ann"), 1), (None, 2), (Some(long), 3), (Some(long), 4), (Some(""), 5)]);
    let aggregates = Aggregate::parse_list("count, sum(n), avg(n) as mean").unwrap();
    let job = Job::builder(batch.schema()).key(["key"]).aggregates(aggregates).readers(true);
    let engine = Engine::start(job.workers(2).build().unwrap(), Collected::new()).unwrap();
    let reader = engine.reader().unwrap();
    let mut ingest = engine.ingest().unwrap();
    ingest.push(batch).unwrap();
    for (key, rows, sum) in
        [(Some("ann"), 1, 1), (None, 1, 2), (Some(long), 2, 7), (Some(""), 1, 5)]
    {
        let batch = wait(&reader, key, rows);
        assert_eq!(&batch.schema(), reader.schema());
        assert_eq!(batch.column(2).as_primitive::<Int64Type>().value(0), sum);
        let shown = batch.column(0).as_string::<i32>();
        assert_eq!((shown.is_valid(0).then(|| shown.value(0)), batch.num_rows()), (key, 1));
    }
    assert!(reader.get(("nobody",)).unwrap().is_none());
    assert!(reader.get(("a key that is too long for 2 words!!",)).unwrap().is_none());
    let mut all = Vec::new();
    for batch in reader.scan(0..=127).unwrap() {
        let shown = batch.column(0).as_string::<i32>();
        all.extend(
            (0..batch.num_rows())
                .map(|row| shown.is_valid(row).then(|| shown.value(row).to_owned())),
        );
    }
    all.sort();
    let expected = [None, Some(""), Some(long), Some("ann")].map(|key| key.map(str::to_owned));
    assert_eq!(all, expected);
    let error = reader.get((5,)).unwrap_err();
    assert!(error.to_string().starts_with("the key does not fit: column \"key\""), "{error}");
    assert!(matches!(reader.get_int(5).unwrap_err(), ReadError::NoIntegerKey));
    ingest.close().unwrap();
    engine.finish().unwrap();
    assert!(reader.get(("ann",)).unwrap().is_none());
}

/// Rows of one producer, as `(key, ts, n)`.
fn numbers(rows: &[(i64, i64, i64)]) -> RecordBatch {
    let column = |of: fn(&(i64, i64, i64)) -> i64| -> ArrayRef {
        Arc::new(rows.iter().map(of).collect::<Int64Array>())
    };
    let columns =
        vec![column(|row| row.0), column(|row| row.1), column(|_| 0), column(|row| row.2)];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// Step by step: partials are seen where they are, and once, wherever that is; windows as long as they are open.
#[test]
fn a_hot_key_is_seen_before_its_partials_arrive() {
    let hot = SkewMode::Hot(HotList::Text(vec![Some("7".to_owned())]));
    let job = Job::builder(schema())
        .key(["key"])
        .event_time("ts")
        .window(hopping())
        .aggregates(Aggregate::parse_list("count, sum(n)").unwrap())
        .skew(hot)
        .workers(2)
        .readers(true)
        .build()
        .unwrap();
    let mut driver = Driver::new(job, Collected::new());
    let reader = driver.reader().unwrap();
    let mut ingest = driver.ingest().unwrap();
    let state = |key| -> Vec<(i64, [i64; 2])> {
        let windows = reader.get_int(key).unwrap().into_iter();
        let value = |one: &Current, i: usize| one.values[i].as_i64().unwrap();
        windows.map(|one| (one.window.unwrap().1, [value(&one, 0), value(&one, 1)])).collect()
    };
    let of_all = |ends: [i64; 4], value| ends.map(|end| (end, value)).to_vec();
    driver.push(&mut ingest, numbers(&[(7, 10, 5), (8, 10, 6), (7, 20, 7)])).unwrap();
    let first = [250, 500, 750, 1000];
    assert_eq!((state(7), state(8)), (of_all(first, [2, 12]), Vec::new()), "one is in the ring");
    while driver.step().unwrap() {}
    assert_eq!((state(7), state(8)), (of_all(first, [2, 12]), of_all(first, [1, 6])));
    // The first window is over, and the partials have been taken over.
    driver.push(&mut ingest, numbers(&[(7, 260, 1), (8, 260, 2)])).unwrap();
    let second = [(500, [3, 13]), (750, [3, 13]), (1000, [3, 13]), (1250, [1, 1])];
    while driver.step().unwrap() {}
    assert_eq!(state(7), second);
    let second = [(500, [2, 8]), (750, [2, 8]), (1000, [2, 8]), (1250, [1, 2])];
    assert_eq!(state(8), second);
    let batch = reader.get((8,)).unwrap().unwrap();
    let ends = batch.column_by_name("window_end").unwrap().as_primitive::<Int64Type>().values();
    assert_eq!((ends.as_ref(), batch.num_rows()), (&[500, 750, 1000, 1250][..], 4));
    // Far ahead: only the last row's windows are left.
    driver.push(&mut ingest, numbers(&[(8, 5010, 3)])).unwrap();
    while driver.step().unwrap() {}
    assert_eq!((state(7), state(8)), (Vec::new(), of_all([5250, 5500, 5750, 6000], [1, 3])));
    driver.finish([ingest]).unwrap();
    assert_eq!(state(8), []);
}

#[test]
fn what_is_not_in_the_row_is_named() {
    let batch = texts(&[(Some("ann"), 1), (Some("ann"), 1)]);
    let aggregates = Aggregate::parse_list("count, count(distinct n) as different").unwrap();
    let job =
        || Job::builder(batch.schema()).key(["key"]).aggregates(aggregates.clone()).workers(1);
    let engine = Engine::start(job().readers(true).build().unwrap(), Collected::new()).unwrap();
    let reader = engine.reader().unwrap();
    let mut ingest = engine.ingest().unwrap();
    ingest.push(batch.clone()).unwrap();
    let error = reader.get(("ann",)).unwrap_err();
    assert!(
        error.to_string().contains("count(distinct n) cannot be read without a lock"),
        "{error}"
    );
    let error = reader.select(["coumt"]).unwrap_err();
    assert_eq!(error.to_string(), "the job has no aggregate \"coumt\"; it has count, different");
    let counts = reader.select(["count"]).unwrap();
    let batch = wait(&counts, Some("ann"), 2);
    assert_eq!(batch.num_columns(), 2);
    drop(ingest);
    engine.finish().unwrap();

    let engine = Engine::start(job().build().unwrap(), Collected::new()).unwrap();
    assert!(matches!(engine.reader().unwrap_err(), ReadError::Off));
    let sessions =
        Job::builder(schema()).key(["key"]).event_time("ts").aggregate(Aggregate::count());
    let sessions = sessions.window(Window::parse("session:1s").unwrap()).readers(true).build();
    assert!(matches!(sessions.unwrap_err(), ConfigError::Unsupported { .. }));
}

#[test]
fn sums_of_floats_that_leave_the_row_are_named() {
    let schema = Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, false),
        Field::new("x", DataType::Float64, false),
    ]));
    let aggregates =
        Aggregate::parse_list("count, sum(x) as s, avg(x) as a, max(x) as m, var_pop(x) as v");
    let job = Job::builder(schema).key(["key"]).aggregates(aggregates.unwrap()).readers(true);
    let engine = Engine::start(job.workers(1).build().unwrap(), Collected::new()).unwrap();
    let reader = engine.reader().unwrap();
    let numbers = reader.select(["s", "a", "m"]).unwrap();
    let mut appender = engine.ingest().unwrap().appender().unwrap();
    for row in [(1, 0.5), (1, 0.25), (2, 1e300), (2, 1.0)] {
        appender.append(row).unwrap();
    }
    appender.flush().unwrap();
    let means = reader.select(["a"]).unwrap();
    while means.get_int(1).unwrap().first().is_none_or(|one| one.values != [Scalar::Float(0.375)])
        || means.get_int(2).is_ok()
    {
        std::thread::yield_now();
    }
    let values = [0.75, 0.375, 0.5].map(Scalar::Float).to_vec();
    assert_eq!(numbers.get_int(1).unwrap()[0].values, values);
    assert_eq!(reader.get((1,)).unwrap().unwrap().num_rows(), 1);
    assert!(matches!(reader.get_int(1).unwrap_err(), ReadError::NoScalar { .. }));
    let error = numbers.get_int(2).unwrap_err();
    assert!(
        error.to_string().starts_with("sum(x) cannot be read without a lock for this key"),
        "{error}"
    );
    appender.close().unwrap();
    engine.finish().unwrap();
}
