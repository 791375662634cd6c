//! What shards and workers count, each for itself.

use std::time::Duration;

use crate::spill::SpillStats;

/// What a shard counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShardStats {
    pub(crate) rows_in: u64,
    pub(crate) rows_out: u64,
    pub(crate) rows_early: u64,
    pub(crate) open_windows_max: usize,
    pub(crate) windows_emitted: u64,
    pub(crate) state_keys_max: usize,
    pub(crate) state_bytes_max: usize,
    pub(crate) no_huge_pages: bool,
    pub(crate) spilled: SpillStats,
    /// Messages taken.
    pub(super) messages: u64,
    /// When the size of the state is to be looked at next.
    pub(super) check_at: u64,
}

/// What a worker did with its time, and what its shard counted.
#[derive(Debug, Clone, Default)]
pub(crate) struct WorkerStats {
    pub(crate) shard: ShardStats,
    /// Rows that its feed aggregated into partials.
    pub(crate) rows_hot: u64,
    pub(crate) busy: Duration,
    pub(crate) idle: Duration,
    pub(crate) backpressured: Duration,
    pub(crate) cpu: Duration,
}

impl WorkerStats {
    /// Adds what another worker counted; times and largest sizes are each worker's own.
    pub(crate) fn add(&mut self, other: &Self) {
        self.rows_hot += other.rows_hot;
        self.shard.rows_in += other.shard.rows_in;
        self.shard.rows_out += other.shard.rows_out;
        self.shard.rows_early += other.shard.rows_early;
        self.shard.windows_emitted += other.shard.windows_emitted;
        self.shard.no_huge_pages |= other.shard.no_huge_pages;
        self.shard.spilled.add(&other.shard.spilled);
    }
}
