//! Latencies in a few ranges, counted by one thread and read by anybody.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the ranges, in seconds; the last range has none.
pub const LATENCY_BOUNDS_S: [f64; 17] = [
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0,
];

/// Ranges, the open one included.
const RANGES: usize = LATENCY_BOUNDS_S.len() + 1;

/// Counts latencies.
#[derive(Debug, Default)]
pub(crate) struct LatencyMeter {
    counts: [AtomicU64; RANGES],
    sum_ns: AtomicU64,
}

impl LatencyMeter {
    /// Counts one.
    pub(crate) fn observe(&self, latency: Duration) {
        let seconds = latency.as_secs_f64();
        let range = LATENCY_BOUNDS_S.partition_point(|bound| *bound < seconds);
        self.counts[range].fetch_add(1, Relaxed);
        let nanos = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        self.sum_ns.fetch_add(nanos, Relaxed);
    }

    /// Adds what was counted so far to `sum`.
    pub(crate) fn add_to(&self, sum: &mut Latencies) {
        for (total, count) in sum.counts.iter_mut().zip(&self.counts) {
            *total += count.load(Relaxed);
        }
        sum.sum += Duration::from_nanos(self.sum_ns.load(Relaxed));
    }
}

/// Latencies as counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Latencies {
    /// How many fell between each of [`LATENCY_BOUNDS_S`] and the one before it, then how many above the last.
    pub counts: [u64; RANGES],
    /// Sum of all.
    pub sum: Duration,
}

impl Default for Latencies {
    fn default() -> Self {
        Self { counts: [0; RANGES], sum: Duration::ZERO }
    }
}

impl Latencies {
    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// In which range a part of them (0.5, 0.99) lies: its upper bound in seconds; none if there are no
    /// latencies, infinite if it is above all bounds.
    pub fn quantile_s(&self, part: f64) -> Option<f64> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank"
        )]
        let rank = (part * self.count() as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        for (range, count) in self.counts.iter().enumerate() {
            below += count;
            if below >= rank {
                return Some(LATENCY_BOUNDS_S.get(range).copied().unwrap_or(f64::INFINITY));
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_fall_into_their_ranges() {
        let meter = LatencyMeter::default();
        let mut sum = Latencies::default();
        meter.add_to(&mut sum);
        assert_eq!((sum.count(), sum.quantile_s(0.5)), (0, None));
        for millis in [0, 1, 2, 3, 2_000, 60_000] {
            meter.observe(Duration::from_millis(millis));
        }
        meter.add_to(&mut sum);
        assert_eq!(sum.count(), 6);
        assert_eq!(sum.sum, Duration::from_millis(62_006));
        // A bound belongs to the range below it.
        assert_eq!((sum.counts[0], sum.counts[3], sum.counts[RANGES - 1]), (1, 1, 1));
        assert_eq!(sum.quantile_s(0.5), Some(0.002_5));
        assert_eq!(sum.quantile_s(0.8), Some(2.5));
        assert_eq!(sum.quantile_s(1.0), Some(f64::INFINITY));
    }
}
