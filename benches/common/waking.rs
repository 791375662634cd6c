//! What an idle engine costs, and how long it takes to wake up.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use saltmill::arrow::array::{ArrayRef, Int64Array, TimestampMillisecondArray};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::runtime::sink::Callback;
use saltmill::{Aggregate, Engine, Ingest, Job, Window};

/// Rows of a batch that wakes the engine.
const ROWS: i64 = 100;

/// An engine fed by a handle, and when results arrived.
pub struct Waking {
    engine: Engine,
    ingest: Ingest,
    arrivals: Receiver<(Instant, usize)>,
    /// Start of the next window.
    next_ms: i64,
}

impl Waking {
    pub fn start(workers: usize) -> Self {
        let job = Job::builder(batch(0).schema())
            .key(["key"])
            .event_time("time")
            .window(Window::tumbling(Duration::from_millis(1)))
            .aggregates([Aggregate::count(), Aggregate::sum("value")])
            .workers(workers)
            .build()
            .expect("a valid job");
        let (sender, arrivals): (Sender<(Instant, usize)>, _) = channel();
        let sink = Callback(move |results: RecordBatch| {
            // The receiver is gone only when everything has been measured.
            let _ = sender.send((Instant::now(), results.num_rows()));
            Ok(())
        });
        let engine = Engine::start(job, sink).expect("it starts");
        let ingest = engine.ingest().expect("it runs");
        Self { engine, ingest, arrivals, next_ms: 0 }
    }

    /// Processor time of the process over wall time, while the engine waits for rows.
    pub fn idle_share(&self, period: Duration) -> f64 {
        // Until it has noticed that there is nothing to do.
        std::thread::sleep(Duration::from_millis(200));
        let (started, before) = (Instant::now(), processor_time());
        std::thread::sleep(period);
        (processor_time() - before).as_secs_f64() / started.elapsed().as_secs_f64()
    }

    /// From a batch that completes a window, pushed into an engine that sleeps, to the first result.
    pub fn wake(&mut self, asleep: Duration) -> Duration {
        std::thread::sleep(asleep);
        let batch = batch(self.next_ms);
        self.next_ms += 1;
        let started = Instant::now();
        self.ingest.push(batch).expect("it runs");
        self.ingest.watermark(self.next_ms).expect("it runs");
        let (first, mut rows) = self.arrivals.recv().expect("a result follows");
        while rows < usize::try_from(ROWS).expect("few") {
            rows += self.arrivals.recv().expect("the other shards' results follow").1;
        }
        first - started
    }

    /// Ends the engine; every row must have come out.
    pub fn finish(self) {
        self.ingest.close().expect("it runs");
        let report = self.engine.finish().expect("it succeeds");
        assert_eq!(report.rows_aggregated, (self.next_ms * ROWS).cast_unsigned());
        assert_eq!(report.rows_out, report.rows_aggregated);
    }
}

/// A row for each of some keys, all in the millisecond `time_ms`.
fn batch(time_ms: i64) -> RecordBatch {
    let keys: ArrayRef = Arc::new(Int64Array::from_iter_values(0..ROWS));
    let times = TimestampMillisecondArray::from_iter_values((0..ROWS).map(|_| time_ms));
    let columns = [("key", Arc::clone(&keys)), ("time", Arc::new(times)), ("value", keys)];
    RecordBatch::try_from_iter(columns).expect("columns of one length")
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (u64::try_from(time.tv_sec), u32::try_from(time.tv_nsec));
    Duration::new(seconds.unwrap_or(0), nanos.unwrap_or(0))
}
