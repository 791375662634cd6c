//! Counters and gauges of a running engine: stored by its threads, read by anybody.
//!
//! A worker stores its own numbers once a round (some batches), relaxed, into memory that only it writes;
//! so counting costs the data plane a few plain stores per batch. [`Engine::metrics`] reads them without
//! stopping anybody: each number is right by itself, at slightly different moments.
//!
//! [`Engine::metrics`]: super::engine::Engine::metrics

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crossbeam::utils::CachePadded;

use super::assign::RowCounts;
use super::latency::{Latencies, LatencyMeter};
use crate::spill::SpillStats;

/// What one worker stores.
#[derive(Debug, Default)]
pub(crate) struct ShardMeter {
    cells: CachePadded<ShardCells>,
}

#[derive(Debug)]
struct ShardCells {
    rows_in: AtomicU64,
    rows_hot: AtomicU64,
    rows_out: AtomicU64,
    windows_emitted: AtomicU64,
    open_windows: AtomicU64,
    busy_ns: AtomicU64,
    idle_ns: AtomicU64,
    backpressured_ns: AtomicU64,
    cpu_ns: AtomicU64,
    queue_messages: AtomicU64,
    state_keys: AtomicU64,
    state_bytes: AtomicU64,
    spilled_bytes: AtomicU64,
    spilled_runs: AtomicU64,
    spill_ns: AtomicU64,
    watermark: AtomicI64,
    window_close: LatencyMeter,
    end_to_end: LatencyMeter,
}

impl Default for ShardCells {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            rows_in: zero(),
            rows_hot: zero(),
            rows_out: zero(),
            windows_emitted: zero(),
            open_windows: zero(),
            busy_ns: zero(),
            idle_ns: zero(),
            backpressured_ns: zero(),
            cpu_ns: zero(),
            queue_messages: zero(),
            state_keys: zero(),
            state_bytes: zero(),
            spilled_bytes: zero(),
            spilled_runs: zero(),
            spill_ns: zero(),
            watermark: AtomicI64::new(i64::MIN),
            window_close: LatencyMeter::default(),
            end_to_end: LatencyMeter::default(),
        }
    }
}

impl ShardMeter {
    /// Stores rows aggregated, those of hot keys among them, result rows, and windows closed.
    pub(crate) fn store_rows(&self, rows_in: u64, rows_hot: u64, rows_out: u64, windows: u64) {
        self.cells.rows_in.store(rows_in, Relaxed);
        self.cells.rows_hot.store(rows_hot, Relaxed);
        self.cells.rows_out.store(rows_out, Relaxed);
        self.cells.windows_emitted.store(windows, Relaxed);
    }

    /// Stores how many windows are open.
    pub(crate) fn store_windows(&self, open: usize) {
        self.cells.open_windows.store(open as u64, Relaxed);
    }

    /// Stores what a worker did with its time.
    pub(crate) fn store_times(&self, busy: Duration, idle: Duration, backpressured: Duration) {
        self.cells.busy_ns.store(nanos(busy), Relaxed);
        self.cells.idle_ns.store(nanos(idle), Relaxed);
        self.cells.backpressured_ns.store(nanos(backpressured), Relaxed);
    }

    /// Stores the processor time of the worker's thread.
    pub(crate) fn store_cpu(&self, cpu: Duration) {
        self.cells.cpu_ns.store(nanos(cpu), Relaxed);
    }

    /// Stores how many messages wait for the shard.
    pub(crate) fn store_queue(&self, messages: usize) {
        self.cells.queue_messages.store(messages as u64, Relaxed);
    }

    /// Stores how far the shard has come in event time.
    pub(crate) fn store_watermark(&self, watermark: i64) {
        self.cells.watermark.store(watermark, Relaxed);
    }

    /// Stores the size of the state.
    pub(crate) fn store_state(&self, keys: usize, bytes: usize) {
        self.cells.state_keys.store(keys as u64, Relaxed);
        self.cells.state_bytes.store(bytes as u64, Relaxed);
    }

    /// Stores what was written to disk.
    pub(crate) fn store_spilled(&self, spilled: SpillStats) {
        self.cells.spilled_bytes.store(spilled.bytes, Relaxed);
        self.cells.spilled_runs.store(spilled.runs, Relaxed);
        self.cells.spill_ns.store(nanos(spilled.time), Relaxed);
    }

    /// Counts a closing of windows that took so long, and whose newest rows came in so long ago.
    pub(crate) fn window_closed(&self, took: Duration, newest_rows: Option<Duration>) {
        self.cells.window_close.observe(took);
        if let Some(age) = newest_rows {
            self.cells.end_to_end.observe(age);
        }
    }

    /// Adds the latencies so far to these.
    pub(crate) fn add_latencies(&self, window_close: &mut Latencies, end_to_end: &mut Latencies) {
        self.cells.window_close.add_to(window_close);
        self.cells.end_to_end.add_to(end_to_end);
    }

    /// The numbers as they stand.
    pub(crate) fn read(&self, key_groups: (u16, u16)) -> ShardMetrics {
        let cells = &self.cells;
        let time = |cell: &AtomicU64| Duration::from_nanos(cell.load(Relaxed));
        ShardMetrics {
            key_groups,
            rows_in: cells.rows_in.load(Relaxed),
            rows_hot: cells.rows_hot.load(Relaxed),
            rows_out: cells.rows_out.load(Relaxed),
            windows_emitted: cells.windows_emitted.load(Relaxed),
            open_windows: cells.open_windows.load(Relaxed),
            busy: time(&cells.busy_ns),
            idle: time(&cells.idle_ns),
            backpressured: time(&cells.backpressured_ns),
            cpu: time(&cells.cpu_ns),
            queue_messages: cells.queue_messages.load(Relaxed),
            state_keys: cells.state_keys.load(Relaxed),
            state_bytes: cells.state_bytes.load(Relaxed),
            spilled_bytes: cells.spilled_bytes.load(Relaxed),
            spilled_runs: cells.spilled_runs.load(Relaxed),
            spill_time: time(&cells.spill_ns),
            watermark: told(&cells.watermark),
        }
    }
}

/// An event time, if it was ever stored and is not the end of time.
fn told(cell: &AtomicI64) -> Option<i64> {
    Some(cell.load(Relaxed)).filter(|time| ![i64::MIN, i64::MAX].contains(time))
}

/// What a producer's handle stores.
#[derive(Debug)]
pub(crate) struct InputMeter {
    cells: CachePadded<InputCells>,
}

#[derive(Debug)]
struct InputCells {
    rows_in: AtomicU64,
    late: AtomicU64,
    null_time: AtomicU64,
    time_out_of_range: AtomicU64,
    between_windows: AtomicU64,
    watermark: AtomicI64,
    held_back_ns: AtomicU64,
}

impl Default for InputMeter {
    fn default() -> Self {
        let zero = AtomicU64::default;
        let cells = InputCells {
            rows_in: zero(),
            late: zero(),
            null_time: zero(),
            time_out_of_range: zero(),
            between_windows: zero(),
            watermark: AtomicI64::new(i64::MIN),
            held_back_ns: zero(),
        };
        Self { cells: CachePadded::new(cells) }
    }
}

impl InputMeter {
    /// Stores what became of its rows.
    pub(crate) fn store_rows(&self, counts: &RowCounts) {
        self.cells.rows_in.store(counts.rows_in, Relaxed);
        self.cells.late.store(counts.late, Relaxed);
        self.cells.null_time.store(counts.null_time, Relaxed);
        self.cells.time_out_of_range.store(counts.time_out_of_range, Relaxed);
        self.cells.between_windows.store(counts.between_windows, Relaxed);
    }

    /// Stores how far it has come in event time.
    pub(crate) fn store_watermark(&self, watermark: i64) {
        self.cells.watermark.store(watermark, Relaxed);
    }

    /// Adds time in which the engine had no room for its rows.
    pub(crate) fn add_held_back(&self, time: Duration) {
        self.cells.held_back_ns.fetch_add(nanos(time), Relaxed);
    }

    /// Rows that were late or could not be used.
    pub(crate) fn left_out(&self) -> RowCounts {
        let cells = &self.cells;
        RowCounts {
            late: cells.late.load(Relaxed),
            null_time: cells.null_time.load(Relaxed),
            time_out_of_range: cells.time_out_of_range.load(Relaxed),
            between_windows: cells.between_windows.load(Relaxed),
            ..RowCounts::default()
        }
    }

    /// The numbers as they stand.
    pub(crate) fn read(&self, name: String, idle: bool) -> InputMetrics {
        InputMetrics {
            name,
            rows_in: self.cells.rows_in.load(Relaxed),
            watermark: told(&self.cells.watermark),
            drift: 0,
            idle,
            ended: false,
            held_back: Duration::from_nanos(self.cells.held_back_ns.load(Relaxed)),
        }
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The engine's numbers at one moment.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct Metrics {
    /// Since the engine was started.
    pub uptime: Duration,
    /// Rows taken in.
    pub rows_in: u64,
    /// Rows whose windows were all closed.
    pub rows_late: u64,
    /// Rows that could not be used, by reason.
    pub rows_rejected: Vec<(String, u64)>,
    /// Nanoseconds in a unit of event time; none if the job has no event time.
    pub time_unit_nanos: Option<u64>,
    /// One entry an input: a source, or an open handle.
    pub inputs: Vec<InputMetrics>,
    /// One entry a shard.
    pub shards: Vec<ShardMetrics>,
    /// Keys that are hot now.
    pub hot_keys: u64,
    /// Times a key became hot, keys named beforehand left out.
    pub promotions: u64,
    /// Times a hot key cooled down.
    pub demotions: u64,
    /// From when a shard knows that windows have ended to when it has handed out their results.
    pub window_close: Latencies,
    /// From when the newest rows of a shard were taken in to when it has handed out the windows that ended.
    pub end_to_end: Latencies,
}

/// One input's numbers.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct InputMetrics {
    /// Its number among the inputs, or that of the handle.
    pub name: String,
    /// Rows taken in.
    pub rows_in: u64,
    /// No row before this event time is expected any more.
    pub watermark: Option<i64>,
    /// How far its watermark is ahead of the one furthest behind, in units of event time.
    pub drift: u64,
    /// It is silent and holds nobody back.
    pub idle: bool,
    /// It has no more rows.
    pub ended: bool,
    /// Time in which the engine had no room for its rows.
    pub held_back: Duration,
}

/// One shard's numbers.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ShardMetrics {
    /// First and last key group.
    pub key_groups: (u16, u16),
    /// Rows whose aggregation work this shard's thread did.
    pub rows_in: u64,
    /// Of these, rows of hot keys.
    pub rows_hot: u64,
    /// Result rows.
    pub rows_out: u64,
    /// Windows closed.
    pub windows_emitted: u64,
    /// Windows that have rows and are not closed.
    pub open_windows: u64,
    /// Time its thread worked.
    pub busy: Duration,
    /// Time its thread had nothing to do.
    pub idle: Duration,
    /// Time its thread could only wait for others to make room.
    pub backpressured: Duration,
    /// Processor time of its thread, some milliseconds behind.
    pub cpu: Duration,
    /// Batches and control messages that wait in its rings, some milliseconds ago.
    pub queue_messages: u64,
    /// Keys in its state, summed over open windows, some batches behind.
    pub state_keys: u64,
    /// Bytes of its state in memory, some batches behind.
    pub state_bytes: u64,
    /// Bytes of state that were written to disk because of the memory limit, some batches behind.
    pub spilled_bytes: u64,
    /// Times that state was written to disk.
    pub spilled_runs: u64,
    /// Time spent with that and with merging it again.
    pub spill_time: Duration,
    /// All windows that end at or before this event time are closed.
    pub watermark: Option<i64>,
}

impl Metrics {
    /// Says how far each input is ahead of the one that is furthest behind, those left out that are idle or
    /// have ended.
    pub(crate) fn find_drift(&mut self) {
        let counts = |input: &&InputMetrics| !input.idle && !input.ended;
        let least = self.inputs.iter().filter(counts).filter_map(|input| input.watermark).min();
        let Some(least) = least else { return };
        for input in &mut self.inputs {
            let ahead =
                input.watermark.map_or(0, |watermark| watermark.abs_diff(least.min(watermark)));
            input.drift = if input.ended { 0 } else { ahead };
        }
    }

    /// An event time in seconds since 1970.
    pub fn seconds(&self, time: i64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "as clocks are compared")]
        let (time, unit) = (time as f64, self.time_unit_nanos? as f64);
        Some(time * unit / 1e9)
    }

    /// A span of event time in seconds.
    pub fn span_seconds(&self, span: u64) -> Option<f64> {
        #[expect(clippy::cast_precision_loss, reason = "as clocks are compared")]
        let (span, unit) = (span as f64, self.time_unit_nanos? as f64);
        Some(span * unit / 1e9)
    }

    /// Bytes of the state of all shards.
    pub fn state_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.state_bytes).sum()
    }
}
