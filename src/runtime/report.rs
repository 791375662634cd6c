//! What a run did: rows accounted for, shards, imbalance.

use std::time::Duration;

/// Report of a finished run.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct RunReport {
    /// Rows that came in, those included that a source could not read.
    pub rows_in: u64,
    /// Rows that are in the results.
    pub rows_aggregated: u64,
    /// Rows whose windows were all closed.
    pub rows_late: u64,
    /// Rows that could not be used, by reason.
    pub rows_rejected: Vec<(String, u64)>,
    /// Panes closed, summed over shards.
    pub windows_emitted: u64,
    /// Result rows.
    pub rows_out: u64,
    /// From the start of the engine to its end.
    pub elapsed: Duration,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Whether all large state lay on huge pages, as far as there was any.
    pub huge_pages: bool,
    /// One entry a shard.
    pub shards: Vec<ShardReport>,
}

/// One shard's part of a [`RunReport`].
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ShardReport {
    /// First and last key group.
    pub key_groups: (u16, u16),
    /// Rows whose aggregation work this shard's thread did.
    pub rows_in: u64,
    /// Of these, rows of hot keys.
    pub rows_hot: u64,
    /// Result rows.
    pub rows_out: u64,
    /// Time its thread worked.
    pub busy: Duration,
    /// Time its thread had nothing to do.
    pub idle: Duration,
    /// Time its thread could only wait for others to make room.
    pub backpressured: Duration,
    /// Processor time of its thread.
    pub cpu: Duration,
    /// Keys held at the time of the largest state.
    pub state_keys_max: usize,
    /// Largest size of the state, in bytes.
    pub state_bytes_max: usize,
}

impl RunReport {
    /// Rows that could not be used, all reasons together.
    pub fn rows_rejected_total(&self) -> u64 {
        self.rows_rejected.iter().map(|(_, rows)| rows).sum()
    }

    /// Rows per second over the whole run.
    pub fn rows_per_second(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rows = self.rows_in as f64;
        rows / self.elapsed.as_secs_f64().max(1e-9)
    }
}
