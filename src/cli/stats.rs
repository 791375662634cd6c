//! The run as JSON: `--stats`.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use super::json::Json;
use crate::error::SinkError;
use crate::runtime::report::{RunReport, ShardReport};

/// Version of the layout.
const VERSION: u32 = 1;

/// Name of the instruction set that the kernels of a run used.
pub(super) fn isa(_: &RunReport) -> &'static str {
    "portable"
}

/// The file for the report, opened before the run so that a wrong name is found before the work is done.
#[derive(Debug)]
pub(super) struct StatsFile {
    file: File,
    name: String,
}

impl StatsFile {
    /// Opens and empties it.
    pub(super) fn create(path: &Path) -> Result<Self, SinkError> {
        let name = path.display().to_string();
        let file = File::create(path).map_err(|e| unwritable(&name, &e))?;
        Ok(Self { file, name })
    }

    /// Writes the report.
    pub(super) fn write(mut self, report: &RunReport, interrupted: bool) -> Result<(), SinkError> {
        let text = format!("{}\n", to_json(report, interrupted).finish());
        self.file.write_all(text.as_bytes()).map_err(|e| unwritable(&self.name, &e))
    }
}

fn unwritable(name: &str, error: &std::io::Error) -> SinkError {
    SinkError::Failed(format!("{name}: cannot be written: {error}"))
}

fn to_json(report: &RunReport, interrupted: bool) -> Json {
    let mut rejected = Json::object();
    for (reason, rows) in &report.rows_rejected {
        rejected.int(reason, *rows);
    }
    let mut shards = Json::array();
    for (id, shard) in report.shards.iter().enumerate() {
        shards.element(&shard_json(id, shard));
    }
    let mut json = Json::object();
    json.int("version", VERSION)
        .int("rows_in", report.rows_in)
        .int("rows_aggregated", report.rows_aggregated)
        .int("rows_late", report.rows_late)
        .member("rows_rejected", &rejected)
        .int("windows_emitted", report.windows_emitted)
        .int("rows_out", report.rows_out)
        .float("elapsed_s", report.elapsed.as_secs_f64())
        .float("rows_per_s", report.rows_per_second())
        .text("isa", isa(report))
        .int("workers", report.shards.len() as u64)
        .int("max_parallelism", report.max_parallelism)
        .raw("huge_pages", if report.huge_pages { "true" } else { "false" })
        .raw("interrupted", if interrupted { "true" } else { "false" })
        .member("shards", &shards)
        .member("imbalance", &imbalance(report))
        .member("hot_keys", &hot_keys(report));
    json
}

fn shard_json(id: usize, shard: &ShardReport) -> Json {
    let (first, last) = shard.key_groups;
    let mut json = Json::object();
    json.int("shard", id as u64)
        .raw("key_groups", &format!("[{first}, {last}]"))
        .int("rows_in", shard.rows_in)
        .int("rows_hot", shard.rows_hot)
        .int("rows_out", shard.rows_out)
        .float("busy_s", shard.busy.as_secs_f64())
        .float("idle_s", shard.idle.as_secs_f64())
        .float("backpressured_s", shard.backpressured.as_secs_f64())
        .float("cpu_s", shard.cpu.as_secs_f64())
        .int("state_keys_max", shard.state_keys_max as u64)
        .int("state_bytes_max", shard.state_bytes_max as u64);
    json
}

fn imbalance(report: &RunReport) -> Json {
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    let rows = report.shards.iter().map(|shard| shard.rows_in as f64).collect::<Vec<_>>();
    let busy = report.shards.iter().map(|shard| shard.busy.as_secs_f64()).collect::<Vec<_>>();
    let mut json = Json::object();
    json.float("rows_max_over_mean", max_over_mean(&rows))
        .float("rows_cov", coefficient_of_variation(&rows))
        .float("busy_max_over_mean", max_over_mean(&busy))
        .float("unmitigated_rows_max_over_mean", max_over_mean(&unmitigated_rows(report)));
    json
}

/// What each shard's rows would be with every row at its owner.
fn unmitigated_rows(report: &RunReport) -> Vec<f64> {
    #[expect(clippy::cast_precision_loss, reason = "a ratio for people")]
    let rows = |shard: &ShardReport| shard.rows_in as f64;
    report.shards.iter().map(rows).collect()
}

/// Keys that were found hot.
fn hot_keys(_: &RunReport) -> Json {
    Json::array()
}

/// The largest over the mean; 1 if all are 0.
pub(super) fn max_over_mean(values: &[f64]) -> f64 {
    let mean = mean(values);
    if mean > 0.0 { values.iter().copied().fold(0.0, f64::max) / mean } else { 1.0 }
}

/// Standard deviation over mean; 0 if all are 0.
fn coefficient_of_variation(values: &[f64]) -> f64 {
    let mean = mean(values);
    if mean > 0.0 {
        let squares = values.iter().map(|value| (value - mean).powi(2)).collect::<Vec<_>>();
        self::mean(&squares).sqrt() / mean
    } else {
        0.0
    }
}

fn mean(values: &[f64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "few values")]
    let count = values.len().max(1) as f64;
    values.iter().sum::<f64>() / count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_of_known_loads() {
        let loads = [30.0, 10.0, 10.0, 10.0];
        assert!((max_over_mean(&loads) - 2.0).abs() < 1e-12);
        assert!((coefficient_of_variation(&loads) - 75.0_f64.sqrt() / 15.0).abs() < 1e-12);
        assert!((max_over_mean(&[0.0, 0.0]) - 1.0).abs() < 1e-12);
        assert!(coefficient_of_variation(&[0.0, 0.0]).abs() < 1e-12);
    }
}
