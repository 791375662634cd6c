//! Steady state allocates nothing: once panes, rings and pools have warmed up, a batch costs no
//! allocation on any thread, as long as no window opens or closes.
//!
//! `SALTMILL_ALLOC_TRACE=1` prints where the first allocations come from.
#![allow(unsafe_code, reason = "an allocator that counts is an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::backtrace::Backtrace;
use std::cell::Cell;
use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, Int64Array, TimestampMillisecondArray};
use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::{Aggregate, Collected, Engine, Job, Window};

/// Counts allocations of all threads while [`COUNTING`] is set.
struct Counting;

static COUNTING: AtomicBool = AtomicBool::new(false);
static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);
static BYTES: AtomicU64 = AtomicU64::new(0);
/// Allocations still to be printed.
static TRACES: AtomicI64 = AtomicI64::new(0);

thread_local! {
    /// Printing allocates; that is not to be printed.
    static PRINTING: Cell<bool> = const { Cell::new(false) };
}

fn note(bytes: usize) {
    if !COUNTING.load(Ordering::Relaxed) || PRINTING.get() {
        return;
    }
    ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
    BYTES.fetch_add(bytes as u64, Ordering::Relaxed);
    if TRACES.fetch_sub(1, Ordering::Relaxed) > 0 {
        PRINTING.set(true);
        let _ = writeln!(std::io::stderr(), "allocation at\n{}", Backtrace::force_capture());
        PRINTING.set(false);
    }
}

// SAFETY: hands every request on to the system's allocator and returns what that returns.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as in `alloc`; `ptr` came from the same allocator.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as in `dealloc`.
        unsafe { System.realloc(ptr, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROWS: i64 = 1000;
/// Rounds that are measured.
const ROUNDS: u64 = 5;
const BATCHES: usize = 300;

/// A batch of 500 keys in one window of a second.
fn batch() -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values((0..ROWS).map(|i| i * 7 % 500)));
    let times = (0..ROWS).map(|i| 5000 + i % 1000);
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from_iter_values(times));
    let values: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    RecordBatch::try_from_iter([("key", keys), ("time", times), ("value", values)]).unwrap()
}

/// Allocations of `BATCHES` batches after as many to warm up.
fn allocations(skew: SkewMode, workers: usize) -> u64 {
    let batch = batch();
    let job = Job::builder(batch.schema())
        .key(["key"])
        .event_time("time")
        .window(Window::tumbling(Duration::from_secs(1)))
        .aggregates([
            Aggregate::count(),
            Aggregate::sum("value"),
            Aggregate::min("value"),
            Aggregate::max("value"),
        ])
        .workers(workers)
        .ring_capacity(4)
        .skew(skew);
    let engine = Engine::start(job.build().unwrap(), Collected::new()).unwrap();
    let mut ingest = engine.ingest().unwrap();
    // Made beforehand: to clone a batch allocates.
    let rounds = 0..=ROUNDS;
    let rounds = rounds.map(|_| vec![batch.clone(); BATCHES]).collect::<Vec<_>>();
    let mut rounds = rounds.into_iter();
    let mut push = |ingest: &mut saltmill::Ingest| {
        for batch in rounds.next().unwrap() {
            ingest.push(batch).unwrap();
        }
        // Until the shards have taken everything.
        std::thread::sleep(Duration::from_millis(300));
    };
    push(&mut ingest);
    let trace = std::env::var_os("SALTMILL_ALLOC_TRACE").is_some();
    TRACES.store(if trace { 5 } else { 0 }, Ordering::SeqCst);
    // How many batches are under way at once depends on the threads' luck, and each that was never under way
    // before brings its buffers: the best of some rounds is the steady state.
    let mut least = u64::MAX;
    for _ in 0..ROUNDS {
        ALLOCATIONS.store(0, Ordering::SeqCst);
        COUNTING.store(true, Ordering::SeqCst);
        push(&mut ingest);
        COUNTING.store(false, Ordering::SeqCst);
        least = least.min(ALLOCATIONS.load(Ordering::SeqCst));
    }
    drop(ingest);
    let report = engine.finish().unwrap();
    assert_eq!(report.rows_in, ROWS.cast_unsigned() * (1 + ROUNDS) * BATCHES as u64);
    least
}

/// Rows of an appender: nothing between two batches, and a few words per batch for the heads of its arrays,
/// whatever its size: the memory of the rows comes back.
fn appended_rows_allocate_nothing() {
    const COLUMNS: u64 = 4;
    let fields = vec![
        Field::new("key", DataType::Int64, true),
        Field::new("time", DataType::Timestamp(TimeUnit::Millisecond, None), true),
        Field::new("value", DataType::Float64, true),
        Field::new("name", DataType::Utf8, true),
    ];
    let job = Job::builder(Arc::new(Schema::new(fields)))
        .key(["key"])
        .event_time("time")
        .window(Window::tumbling(Duration::from_secs(1)))
        .aggregates([Aggregate::count(), Aggregate::max("value")])
        .workers(2)
        .skew(SkewMode::Off);
    let engine = Engine::start(job.build().unwrap(), Collected::new()).unwrap();
    let appender = engine.ingest().unwrap().appender().unwrap();
    let mut appender = appender.batch_rows(1000).latency(Duration::from_secs(3600));
    let mut append = |from: i64, rows: i64| {
        for i in from..from + rows {
            appender.append((i % 500, 5000 + i % 1000, i as f64, "some text")).unwrap();
        }
    };
    let measured = |what: &mut dyn FnMut()| {
        ALLOCATIONS.store(0, Ordering::SeqCst);
        BYTES.store(0, Ordering::SeqCst);
        COUNTING.store(true, Ordering::SeqCst);
        what();
        COUNTING.store(false, Ordering::SeqCst);
        (ALLOCATIONS.load(Ordering::SeqCst), BYTES.load(Ordering::SeqCst))
    };
    append(0, 300_000);
    std::thread::sleep(Duration::from_millis(300));
    let (allocations, _) = measured(&mut || append(0, 999));
    assert_eq!(allocations, 0, "999 rows between two batches");
    append(999, 1);
    // Luck decides how many batches are under way at once, see above.
    let rounds = (0..ROUNDS).map(|_| {
        std::thread::sleep(Duration::from_millis(100));
        measured(&mut || append(0, 100_000))
    });
    let (allocations, bytes) = rounds.min().unwrap();
    println!("100 batches of 1000 rows: {allocations} allocations, {bytes} bytes");
    // Per column the array, its buffers' heads and the list of them; the list of columns; room for luck.
    assert!(allocations <= 100 * (COLUMNS * 5 + 4), "{allocations} allocations in 100 batches");
    assert!(bytes < 100 * 4000, "{bytes} bytes for 100 batches of 37 KB");
    drop(appender);
    engine.finish().unwrap();
}

/// One test, since allocations of all threads are counted.
#[test]
fn a_batch_allocates_nothing() {
    appended_rows_allocate_nothing();
    for (name, skew) in [("off", SkewMode::Off), ("adaptive", SkewMode::Adaptive)] {
        for workers in [1, 2, 3] {
            let allocations = allocations(skew.clone(), workers);
            println!("skew {name}, {workers} workers: {allocations} in {BATCHES} batches");
            // The adaptive mode may rotate an epoch of its sketch meanwhile.
            let most = if name == "off" { 0 } else { BATCHES as u64 / 10 };
            assert!(
                allocations <= most,
                "skew {name}, {workers} workers: {allocations} allocations in {BATCHES} batches; \
                 SALTMILL_ALLOC_TRACE=1 says where"
            );
        }
    }
}
