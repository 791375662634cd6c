//! The run as JSON: `--stats`.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use super::json::Json;
use crate::error::SinkError;
use crate::runtime::report::{Cause, RunReport, ShardReport};
use crate::skew::imbalance::Imbalance;

/// Version of the layout.
const VERSION: u32 = 1;

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
    let mut late = Json::object();
    for (reason, rows) in &report.rows_late_by_reason {
        late.int(reason.name(), *rows);
    }
    let mut inputs = Json::array();
    for input in &report.inputs {
        let mut json = Json::object();
        json.float("drift_max_s", input.drift_max.as_secs_f64())
            .float("held_back_s", input.held_back.as_secs_f64());
        inputs.element(&json);
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
        .member("rows_late_by_reason", &late)
        .member("rows_rejected", &rejected)
        .int("windows_emitted", report.windows_emitted)
        .int("rows_out", report.rows_out)
        .int("rows_early", report.rows_early)
        .float("elapsed_s", report.elapsed.as_secs_f64())
        .float("rows_per_s", report.rows_per_second())
        .text("isa", report.isa.name())
        .int("workers", report.shards.len() as u64)
        .int("max_parallelism", report.max_parallelism)
        .raw("huge_pages", if report.huge_pages { "true" } else { "false" })
        .raw("interrupted", if interrupted { "true" } else { "false" })
        .member("inputs", &inputs)
        .member("shards", &shards)
        .member("imbalance", &imbalance(report))
        .member("hot_keys", &hot_keys(report));
    match report.two_phase_given_up_at_row {
        Some(row) => json.int("two_phase_given_up_at_row", row),
        None => json.raw("two_phase_given_up_at_row", "null"),
    };
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
        .int("state_bytes_max", shard.state_bytes_max as u64)
        .int("open_windows_max", shard.open_windows_max as u64)
        .int("spilled_bytes", shard.spilled_bytes)
        .int("spilled_runs", shard.spilled_runs)
        .float("spill_s", shard.spill_time.as_secs_f64());
    json
}

fn imbalance(report: &RunReport) -> Json {
    let of = |load: fn(&ShardReport) -> u64| {
        Imbalance::of(&report.shards.iter().map(load).collect::<Vec<_>>())
    };
    let rows = of(|shard| shard.rows_in);
    let busy = of(|shard| u64::try_from(shard.busy.as_nanos()).unwrap_or(u64::MAX));
    let unmitigated = Imbalance::of(&report.unmitigated_rows);
    let mut json = Json::object();
    json.float("rows_max_over_mean", rows.max_over_mean)
        .float("rows_cov", rows.cov)
        .float("busy_max_over_mean", busy.max_over_mean)
        .float("unmitigated_rows_max_over_mean", unmitigated.max_over_mean);
    json
}

/// Keys that were found hot.
fn hot_keys(report: &RunReport) -> Json {
    let mut keys = Json::array();
    for hot in &report.hot_keys {
        let mut key = Json::array();
        for value in &hot.key {
            key.element_key(value);
        }
        let mut entry = Json::object();
        entry
            .member("key", &key)
            .float("share", hot.share)
            .float("share_low", hot.share_low)
            .float("share_high", hot.share_high)
            .int("salts", hot.salts)
            .text("cause", cause(hot.cause))
            .int("promoted_at_row", hot.promoted_at_row);
        match hot.demoted_at_row {
            Some(row) => entry.int("demoted_at_row", row),
            None => entry.raw("demoted_at_row", "null"),
        };
        entry.text("explanation", &hot.explanation);
        keys.element(&entry);
    }
    keys
}

fn cause(cause: Cause) -> &'static str {
    match cause {
        Cause::Balance => "balance",
        Cause::Speed => "speed",
        Cause::Given => "given",
    }
}
