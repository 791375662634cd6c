//! What a run did: rows accounted for, shards, imbalance.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float64Type, Int64Type, UInt64Type};

use crate::checkpoint::RowTotals;
use crate::kernel::Isa;
pub use crate::skew::hot_set::Cause;
use crate::skew::imbalance::Imbalance;
pub use crate::time::watermark::Lateness;

/// Report of a finished run.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RunReport {
    /// Rows that came in, those included that a source could not read.
    pub rows_in: u64,
    /// Rows that are in the results.
    pub rows_aggregated: u64,
    /// Rows whose windows were all closed, and their lateness over.
    pub rows_late: u64,
    /// Late rows by reason, reasons that did not occur left out.
    pub rows_late_by_reason: Vec<(Lateness, u64)>,
    /// Rows that could not be used, by reason.
    pub rows_rejected: Vec<(String, u64)>,
    /// Panes closed, summed over shards.
    pub windows_emitted: u64,
    /// Result rows, early ones left out.
    pub rows_out: u64,
    /// Rows of early results.
    pub rows_early: u64,
    /// What became of the inputs (sources, or handles in the order in which they were opened) in event time.
    pub inputs: Vec<InputReport>,
    /// From the start of the engine to its end.
    pub elapsed: Duration,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Instruction set of the kernels.
    pub isa: Isa,
    /// Whether all large state lay on huge pages, as far as there was any.
    pub huge_pages: bool,
    /// One entry a shard.
    pub shards: Vec<ShardReport>,
    /// Rows of hot keys that were aggregated by the producers' own threads (those of handles, not of
    /// workers that read).
    pub rows_hot_at_producers: u64,
    /// Rows that each shard would have aggregated if every row had gone to its owner.
    pub unmitigated_rows: Vec<u64>,
    /// Keys that were hot at some time, those that no longer were at the end first.
    pub hot_keys: Vec<HotKeyReport>,
    /// Rows after which two-phase aggregation of all keys was given up because it did not pay.
    pub two_phase_given_up_at_row: Option<u64>,
    /// Changes of the number of shards. [`RunReport::shards`] and [`RunReport::unmitigated_rows`] tell of the shards
    /// since the last one, all totals of the whole run.
    pub rescales: Vec<RescaleReport>,
}

impl RunReport {
    /// The rows of the run, as they stand in checkpoints.
    pub fn totals(&self) -> RowTotals {
        let late = self.rows_late_by_reason.iter();
        RowTotals {
            rows_in: self.rows_in,
            aggregated: self.rows_aggregated,
            late: late.map(|(reason, rows)| (reason.name().to_owned(), *rows)).collect(),
            rejected: self.rows_rejected.iter().cloned().collect(),
            windows_emitted: self.windows_emitted,
            rows_out: self.rows_out,
        }
    }
}

/// What a checkpoint took.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CheckpointReport {
    /// Its number.
    pub id: u64,
    /// Its folder.
    pub path: PathBuf,
    /// Rows of the run up to it.
    pub rows_in: u64,
    /// Keys in it, each counted once for each pane it is in.
    pub keys: u64,
    /// Bytes of state.
    pub bytes: u64,
    /// The longest time, over shards, from the first barrier to the last.
    pub alignment: Duration,
    /// The longest time, over shards, that a shard stood still to make an image of its state.
    pub capture: Duration,
    /// From the request to the end.
    pub duration: Duration,
}

/// What a rescale took.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RescaleReport {
    /// Number of shards before.
    pub from: usize,
    /// Number of shards since.
    pub to: usize,
    /// Rows that had come in when it was asked for.
    pub at_row: u64,
    /// The longest time, over shards, from the first barrier to the last.
    pub alignment: Duration,
    /// From the request until all producers could go on: longer than any of them had to wait.
    pub pause: Duration,
    /// From the request until all state was where it belongs: the new shards copy what is theirs between messages.
    pub settled: Duration,
}

/// A key that was hot, and why.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct HotKeyReport {
    /// The key, one value per key column; empty if no row of it was seen.
    pub key: Vec<KeyValue>,
    /// Its share of the rows (when it was largest, if the key is no longer hot).
    pub share: f64,
    /// The share is hardly below this.
    pub share_low: f64,
    /// The share is hardly above this.
    pub share_high: f64,
    /// Partial aggregates over which its rows were spread, per window.
    pub salts: u16,
    /// Why it was promoted.
    pub cause: Cause,
    /// Rows of the run when it was promoted.
    pub promoted_at_row: u64,
    /// Rows of the run when it was demoted.
    pub demoted_at_row: Option<u64>,
    /// The decision in words.
    pub explanation: String,
}

/// One value of a key, for reports.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum KeyValue {
    /// NULL.
    Null,
    /// A boolean.
    Boolean(bool),
    /// An integer.
    Integer(i128),
    /// A float.
    Float(f64),
    /// Anything else, as text.
    Text(String),
}

impl fmt::Display for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("null"),
            Self::Boolean(value) => value.fmt(f),
            Self::Integer(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
            Self::Text(value) => value.fmt(f),
        }
    }
}

impl KeyValue {
    /// The value of `column` at `row`.
    pub(crate) fn of(column: &ArrayRef, row: usize) -> Self {
        if column.is_null(row) {
            return Self::Null;
        }
        let one = column.slice(row, 1);
        let number = |to: DataType| cast(&one, &to).ok().filter(|array| array.is_valid(0));
        match column.data_type() {
            DataType::Boolean => Self::Boolean(one.as_boolean().value(0)),
            DataType::UInt64 => {
                Self::Integer(i128::from(one.as_primitive::<UInt64Type>().value(0)))
            }
            other if other.is_integer() => match number(DataType::Int64) {
                Some(wide) => Self::Integer(i128::from(wide.as_primitive::<Int64Type>().value(0))),
                None => Self::Text(text(column, row)),
            },
            other if other.is_floating() => match number(DataType::Float64) {
                Some(wide) => Self::Float(wide.as_primitive::<Float64Type>().value(0)),
                None => Self::Text(text(column, row)),
            },
            _ => Self::Text(text(column, row)),
        }
    }
}

fn text(column: &ArrayRef, row: usize) -> String {
    arrow::util::display::array_value_to_string(column, row)
        .unwrap_or_else(|_| "(not printable)".to_owned())
}

/// One input's part of a [`RunReport`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct InputReport {
    /// How far its watermark was ahead of the last input's of its group, at most. Inputs that were idle, had
    /// ended or not begun do not count.
    pub drift_max: Duration,
    /// How long it was held back by alignment.
    pub held_back: Duration,
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
    /// Most windows (or slices of windows that overlap) that were open at once.
    pub open_windows_max: usize,
    /// Bytes of state that were written to disk because of the memory limit.
    pub spilled_bytes: u64,
    /// Times that state was written to disk: panes, and what was merged of them on disk.
    pub spilled_runs: u64,
    /// Time spent with writing state to disk and merging it again, waiting for the disk included.
    pub spill_time: Duration,
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

/// What skew did to the run and what was done about it, as a table for people: each shard's rows as they
/// were aggregated and as they would have been with every row at the owner of its key, its processor time,
/// and why keys were hot.
#[derive(Debug, Clone, Copy)]
pub struct SkewTable<'a>(pub &'a RunReport);

/// Hot keys that are listed.
const LISTED_KEYS: usize = 10;

impl fmt::Display for SkewTable<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        writeln!(
            f,
            "{:>5}  {:>13}  {:>13}  {:>13}  {:>8}",
            "shard", "rows if off", "rows", "of hot keys", "cpu s"
        )?;
        for (id, shard) in report.shards.iter().enumerate() {
            let before = report.unmitigated_rows.get(id).copied().unwrap_or_default();
            let cpu = shard.cpu.as_secs_f64();
            let (rows, hot) = (shard.rows_in, shard.rows_hot);
            writeln!(f, "{id:>5}  {before:>13}  {rows:>13}  {hot:>13}  {cpu:>8.3}")?;
        }
        let after = report.shards.iter().map(|shard| shard.rows_in).collect::<Vec<_>>();
        let (before, after) = (Imbalance::of(&report.unmitigated_rows), Imbalance::of(&after));
        writeln!(
            f,
            "rows, largest over mean: {:.2} if off, {:.2} now; CoV {:.2} if off, {:.2} now",
            before.max_over_mean, after.max_over_mean, before.cov, after.cov
        )?;
        for key in report.hot_keys.iter().take(LISTED_KEYS) {
            writeln!(f, "hot: {}", key.explanation)?;
        }
        match report.hot_keys.len().checked_sub(LISTED_KEYS) {
            Some(more) if more > 0 => writeln!(f, "and {more} more keys")?,
            _ => {}
        }
        if let Some(row) = report.two_phase_given_up_at_row {
            writeln!(
                f,
                "two-phase aggregation of all keys was given up at row {row}: partials were nearly as many \
                 as rows"
            )?;
        }
        Ok(())
    }
}
