//! How uneven the shards were over the last seconds and minutes, from metrics taken now and then.

use std::time::Duration;

use super::metrics::Metrics;
use crate::skew::imbalance::{Imbalance, SlidingLoads};

/// Length of a period.
const PERIOD: Duration = Duration::from_secs(1);

/// The spans that are looked back over, in periods, and their names.
pub const SPANS: [(usize, &str); 3] = [(10, "10s"), (60, "1m"), (300, "5m")];

/// Rows of each shard over sliding spans of time. Give it the engine's metrics once a second or more often.
#[derive(Debug)]
pub struct LoadHistory {
    loads: SlidingLoads,
    taken_at: Duration,
}

impl LoadHistory {
    /// For an engine with so many shards.
    pub fn new(shards: usize) -> Self {
        let periods_max = SPANS.iter().map(|(periods, _)| *periods).max().unwrap_or(1);
        Self { loads: SlidingLoads::new(shards, periods_max), taken_at: Duration::ZERO }
    }

    /// Ends a period if it has lasted long enough. Metrics that come late count as one period.
    ///
    /// # Panics
    /// If the metrics are of an engine with another number of shards.
    pub fn record(&mut self, metrics: &Metrics) {
        if metrics.uptime >= self.taken_at + PERIOD {
            self.taken_at = metrics.uptime;
            let rows = metrics.shards.iter().map(|shard| shard.rows_in);
            self.loads.end_period(&rows.collect::<Vec<_>>());
        }
    }

    /// Unevenness of the rows over each of [`SPANS`], or as much of it as there is.
    pub fn imbalance(&self) -> [Imbalance; SPANS.len()] {
        SPANS.map(|(periods, _)| self.loads.over(periods))
    }

    /// Rows of all shards in the last period.
    pub fn rows_per_second(&self) -> u64 {
        self.loads.loads(1).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::metrics::ShardMetrics;

    fn metrics(second: u64, rows: [u64; 2]) -> Metrics {
        let shard = |rows_in| ShardMetrics { rows_in, ..ShardMetrics::default() };
        let shards = rows.map(shard).to_vec();
        Metrics { uptime: Duration::from_secs(second), shards, ..Metrics::default() }
    }

    #[test]
    fn spans_look_back_as_far_as_they_say() {
        let mut history = LoadHistory::new(2);
        // All rows to one shard for ten seconds, then even for ten.
        for second in 1_u64..=20 {
            let skewed = second.min(10) * 100;
            let even = second.saturating_sub(10) * 50;
            history.record(&metrics(second, [skewed + even, even]));
            // In between nothing happens.
            history.record(&metrics(second, [skewed + even, even]));
        }
        let [ten, minute, five] = history.imbalance();
        assert!((ten.max_over_mean - 1.0).abs() < 1e-9 && ten.cov < 1e-9, "{ten:?}");
        assert!((minute.max_over_mean - 1.5).abs() < 1e-9, "{minute:?}");
        assert!((five.cov - minute.cov).abs() < 1e-9);
        assert_eq!(history.rows_per_second(), 100);
    }
}
