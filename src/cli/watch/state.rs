//! What is shown: the engine's numbers as rates, and what is wrong with them.

use std::fmt::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use indicatif::HumanCount;

use crate::runtime::engine::MetricsReader;
use crate::runtime::load_history::LoadHistory;
use crate::runtime::metrics::{Metrics, ShardMetrics};
use crate::runtime::report::HotKeyReport;
use crate::skew::decision::percent;
use crate::skew::imbalance::{COV_ALERT_DEFAULT, Imbalance};

/// A part of the time above which a worker counts as held back.
const BACKPRESSURED_ALERT: f64 = 0.5;

/// Inputs further apart than this are remarkable, in seconds of event time.
const DRIFT_ALERT_S: f64 = 600.0;

/// Event times this far from the clock belong to old data, whose lag says nothing, in seconds.
const LIVE_WITHIN_S: f64 = 86_400.0;

/// Shorter steps give no rates.
const STEP_MIN: Duration = Duration::from_millis(50);

/// One shard between two looks.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ShardRates {
    pub(super) rows_per_s: f64,
    pub(super) hot: f64,
    pub(super) busy: f64,
    pub(super) backpressured: f64,
    pub(super) queue_messages: u64,
    pub(super) state_keys: u64,
    pub(super) state_bytes: u64,
}

/// The newest numbers, and what they mean.
#[derive(Debug)]
pub(super) struct WatchState {
    pub(super) metrics: Metrics,
    pub(super) hot_keys: Vec<HotKeyReport>,
    pub(super) shards: Vec<ShardRates>,
    pub(super) rows_per_s: f64,
    history: LoadHistory,
}

impl WatchState {
    /// Of an engine that has just begun.
    pub(super) fn new(reader: &MetricsReader) -> Self {
        let metrics = reader.metrics();
        let shards = metrics.shards.len();
        Self {
            metrics,
            hot_keys: Vec::new(),
            shards: vec![ShardRates::default(); shards],
            rows_per_s: 0.0,
            history: LoadHistory::new(shards),
        }
    }

    /// Looks again.
    pub(super) fn look(&mut self, reader: &MetricsReader) {
        self.take(reader.metrics());
        self.hot_keys = reader.hot_keys();
    }

    fn take(&mut self, metrics: Metrics) {
        let step = metrics.uptime.saturating_sub(self.metrics.uptime);
        if step >= STEP_MIN {
            let pairs = self.metrics.shards.iter().zip(&metrics.shards);
            self.shards = pairs.map(|(before, now)| rates(before, now, step)).collect();
            let rows = metrics.rows_in - self.metrics.rows_in;
            self.rows_per_s = to_f64(rows) / step.as_secs_f64();
        }
        self.history.record(&metrics);
        self.metrics = metrics;
    }

    /// Unevenness over the last ten seconds.
    pub(super) fn imbalance(&self) -> Imbalance {
        self.history.imbalance()[0]
    }

    /// The event time up to which all windows are closed, in seconds since 1970.
    pub(super) fn watermark_s(&self) -> Option<f64> {
        let watermarks = self.metrics.shards.iter().map(|shard| shard.watermark);
        let least = watermarks.min().flatten()?;
        self.metrics.seconds(least)
    }

    /// How far that is behind the clock, for streams of today.
    pub(super) fn lag_s(&self) -> Option<f64> {
        let now = UNIX_EPOCH.elapsed().ok()?.as_secs_f64();
        let lag = now - self.watermark_s()?;
        (lag.abs() < LIVE_WITHIN_S).then_some(lag)
    }

    /// What should not be.
    pub(super) fn alerts(&self) -> Vec<String> {
        let mut alerts = Vec::new();
        let imbalance = self.imbalance();
        if imbalance.alerts(COV_ALERT_DEFAULT) {
            alerts.push(format!(
                "shards are uneven: the busiest has {:.2} times the mean, CoV {:.2}",
                imbalance.max_over_mean, imbalance.cov
            ));
        }
        for (id, shard) in self.shards.iter().enumerate() {
            if shard.backpressured > BACKPRESSURED_ALERT {
                let part = percent(shard.backpressured);
                alerts.push(format!("worker {id} waits for room {part} of the time"));
            }
        }
        for input in &self.metrics.inputs {
            if let Some(drift) = self.metrics.span_seconds(input.drift)
                && drift > DRIFT_ALERT_S
            {
                alerts.push(format!("input {} is {drift:.0} s of event time ahead", input.name));
            }
        }
        if self.metrics.rows_late > 0 {
            alerts.push(format!("{} rows were late", HumanCount(self.metrics.rows_late)));
        }
        for (reason, rows) in &self.metrics.rows_rejected {
            alerts.push(format!("{} rows could not be used: {reason}", HumanCount(*rows)));
        }
        alerts
    }

    /// The whole in a line.
    pub(super) fn line(&self) -> String {
        let imbalance = self.imbalance();
        let mut line = format!(
            "{:.1} s: {} rows, {}, busiest shard {:.2} times the mean, CoV {:.2}",
            self.metrics.uptime.as_secs_f64(),
            HumanCount(self.metrics.rows_in),
            rate(self.rows_per_s),
            imbalance.max_over_mean,
            imbalance.cov
        );
        if let Some(key) = self.hot_keys.first() {
            let name = key.key.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let number = self.hot_keys.len();
            let _ = write!(
                line,
                ", {number} hot (first {name}, {}, {} salts)",
                percent(key.share),
                key.salts
            );
        }
        if let Some(lag) = self.lag_s() {
            let _ = write!(line, ", {lag:.1} s behind the clock");
        }
        for alert in self.alerts() {
            let _ = write!(line, "; {alert}");
        }
        line
    }
}

fn rates(before: &ShardMetrics, now: &ShardMetrics, step: Duration) -> ShardRates {
    let part = |before: Duration, now: Duration| {
        now.saturating_sub(before).as_secs_f64() / step.as_secs_f64()
    };
    let rows = to_f64(now.rows_in.saturating_sub(before.rows_in));
    let hot = to_f64(now.rows_hot.saturating_sub(before.rows_hot));
    ShardRates {
        rows_per_s: rows / step.as_secs_f64(),
        hot: if rows > 0.0 { hot / rows } else { 0.0 },
        busy: part(before.busy, now.busy),
        backpressured: part(before.backpressured, now.backpressured),
        queue_messages: now.queue_messages,
        state_keys: now.state_keys,
        state_bytes: now.state_bytes,
    }
}

/// Rows per second as people say it.
pub(super) fn rate(rows_per_s: f64) -> String {
    match rows_per_s {
        1e6.. => format!("{:.1}M rows/s", rows_per_s / 1e6),
        1e3.. => format!("{:.1}K rows/s", rows_per_s / 1e3),
        _ => format!("{rows_per_s:.0} rows/s"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "rates for people")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    fn shard(rows_in: u64, busy_s: u64, backpressured_s: u64) -> ShardMetrics {
        ShardMetrics {
            rows_in,
            rows_hot: rows_in / 2,
            busy: Duration::from_secs(busy_s),
            backpressured: Duration::from_secs(backpressured_s),
            queue_messages: 3,
            state_keys: 1_234,
            state_bytes: 5 << 20,
            watermark: Some(60_000),
            ..ShardMetrics::default()
        }
    }

    /// Two shards after ten seconds, the first with nine times the rows of the second.
    pub(in crate::cli::watch) fn skewed() -> WatchState {
        let empty = vec![ShardMetrics::default(); 2];
        let metrics = Metrics { shards: empty, ..Metrics::default() };
        let mut state = WatchState {
            metrics,
            hot_keys: Vec::new(),
            shards: vec![ShardRates::default(); 2],
            rows_per_s: 0.0,
            history: LoadHistory::new(2),
        };
        state.take(Metrics {
            uptime: Duration::from_secs(10),
            rows_in: 10_000_000,
            rows_late: 12,
            rows_rejected: vec![("null_time".into(), 3)],
            time_unit_nanos: Some(1_000_000),
            shards: vec![shard(9_000_000, 9, 0), shard(1_000_000, 1, 8)],
            ..Metrics::default()
        });
        state
    }

    #[test]
    fn rates_and_alerts_follow_from_two_looks() {
        let state = skewed();
        assert!((state.rows_per_s - 1e6).abs() < 1e-6);
        assert_eq!((state.shards[0].rows_per_s, state.shards[0].busy), (900_000.0, 0.9));
        assert_eq!(state.watermark_s(), Some(60.0));
        assert_eq!(state.lag_s(), None, "old data is not behind");
        let alerts = state.alerts();
        assert!(alerts[0].contains("1.80 times the mean, CoV 0.80"), "{alerts:?}");
        assert_eq!(alerts[1..3], ["worker 1 waits for room 80 % of the time", "12 rows were late"]);
        assert!(alerts[3].ends_with("null_time"), "{alerts:?}");
        let line = state.line();
        assert!(
            line.starts_with("10.0 s: 10,000,000 rows, 1.0M rows/s, busiest shard 1.80"),
            "{line}"
        );
    }
}
