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
    busy_ns: AtomicU64,
    idle_ns: AtomicU64,
    backpressured_ns: AtomicU64,
    cpu_ns: AtomicU64,
    queue_messages: AtomicU64,
    state_keys: AtomicU64,
    state_bytes: AtomicU64,
    watermark: AtomicI64,
}

impl Default for ShardCells {
    fn default() -> Self {
        let zero = AtomicU64::default;
        Self {
            rows_in: zero(),
            rows_hot: zero(),
            rows_out: zero(),
            windows_emitted: zero(),
            busy_ns: zero(),
            idle_ns: zero(),
            backpressured_ns: zero(),
            cpu_ns: zero(),
            queue_messages: zero(),
            state_keys: zero(),
            state_bytes: zero(),
            watermark: AtomicI64::new(i64::MIN),
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
            busy: time(&cells.busy_ns),
            idle: time(&cells.idle_ns),
            backpressured: time(&cells.backpressured_ns),
            cpu: time(&cells.cpu_ns),
            queue_messages: cells.queue_messages.load(Relaxed),
            state_keys: cells.state_keys.load(Relaxed),
            state_bytes: cells.state_bytes.load(Relaxed),
            watermark: Some(cells.watermark.load(Relaxed)).filter(|time| *time != i64::MIN),
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
    /// One entry a shard.
    pub shards: Vec<ShardMetrics>,
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
    /// Bytes of its state, some batches behind.
    pub state_bytes: u64,
    /// All windows that end at or before this event time are closed.
    pub watermark: Option<i64>,
}

impl Metrics {
    /// Bytes of the state of all shards.
    pub fn state_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.state_bytes).sum()
    }
}
