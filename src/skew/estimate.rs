//! Shares of keys over all ingests, with bounds that can be relied on.
//!
//! [`Merger::merge`] adds up the snapshots of all ingests. Two errors are kept apart and both are
//! in the bounds: the sketch's, which is certain (a key's sampled rows lie between the sum of
//! `count - error` and the sum of `count`, with the floor where it is not tracked), and the
//! sample's, which is a matter of chance.
//!
//! **Invariant:** for any key and any one merge, the probability that its share of the rows covered
//! lies below `share_low` is at most [`ERROR_PROBABILITY`], and the same for `share_high`. A key's
//! sampled rows are a sum of independent draws (see [`sample`](super::sample)), for which the
//! Chernoff bounds `P(X >= m + t) <= exp(-t^2 / (2 (m + t/3)))` and `P(X <= m - t) <= exp(-t^2 / (2
//! m))` hold, `m` being the expected number. They are solved for `m`, once for the key's rows and
//! once for all other rows (which is sharper for a key that is nearly everything), and the sharper
//! one is taken at half the probability each. Wilson's interval is narrower but only nearly right,
//! and worst for just the small shares that must not be promoted by chance.
//!
//! **Cost:** one hash-map entry per candidate and ingest, a sort, four square roots per candidate;
//! no allocation once the maps have grown.

use hashbrown::HashMap;

use super::sketch::{Part, Snapshot};

/// How often, at most, a share lies below its lower bound; the same above its upper bound.
pub const ERROR_PROBABILITY: f64 = 1e-6;

/// What is known of one key's share of the rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Estimate {
    /// Hash of the key.
    pub hash: u64,
    /// The word that came with one of the key's sampled rows.
    pub example: u64,
    /// Most likely share of the rows, `0 ..= 1`.
    pub share: f64,
    /// The share is hardly below this.
    pub share_low: f64,
    /// The share is hardly above this.
    pub share_high: f64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    example: u64,
    /// Certain sampled rows.
    low: u64,
    /// Possible sampled rows where the key is tracked.
    high: u64,
    /// Floors of the parts in which the key is tracked.
    floors: u64,
}

/// Adds up snapshots. Keep one and use it again: it keeps its memory.
#[derive(Debug, Default)]
pub struct Merger {
    sums: HashMap<u64, Sums>,
    estimates: Vec<Estimate>,
    samples: u64,
    rows: u64,
}

impl Merger {
    /// An empty merger.
    pub fn new() -> Self {
        Self::default()
    }

    /// Estimates of all candidates, largest share first. Snapshots of an earlier epoch than the
    /// newest count for what they still hold of the newest two (an idle ingest does not rotate).
    ///
    /// # Panics
    /// If the ingests do not all sample at the same rate.
    pub fn merge(&mut self, snapshots: &[Snapshot]) -> &[Estimate] {
        self.sums.clear();
        self.estimates.clear();
        (self.samples, self.rows) = (0, 0);
        let newest = snapshots.iter().map(|s| s.epoch).max().unwrap_or(0);
        let every = snapshots.first().map_or(1, |s| s.sample_every);
        let mut floor_total = 0;
        for snapshot in snapshots {
            assert_eq!(snapshot.sample_every, every, "ingests must sample at one rate");
            let behind = newest - snapshot.epoch;
            if behind == 0 {
                floor_total += self.add(&snapshot.previous);
            }
            if behind <= 1 {
                floor_total += self.add(&snapshot.current);
            }
        }
        self.rows = self.samples * u64::from(every);
        for (&hash, sums) in &self.sums {
            let high = (sums.high + floor_total - sums.floors).min(self.samples);
            let middle = to_f64(sums.low + sums.high) / 2.0;
            let share = middle / to_f64(self.samples);
            let (share_low, share_high) = if every == 1 {
                (to_f64(sums.low) / to_f64(self.samples), to_f64(high) / to_f64(self.samples))
            } else {
                share_bounds(sums.low, high, self.samples)
            };
            let example = sums.example;
            self.estimates.push(Estimate { hash, example, share, share_low, share_high });
        }
        self.estimates
            .sort_unstable_by(|a, b| b.share.total_cmp(&a.share).then(a.hash.cmp(&b.hash)));
        &self.estimates
    }

    /// The estimates of the last merge.
    pub fn estimates(&self) -> &[Estimate] {
        &self.estimates
    }

    /// Sampled rows in the last merge.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// Rows that those samples stand for: what the shares are shares of.
    pub fn rows_covered(&self) -> u64 {
        self.rows
    }

    fn add(&mut self, part: &Part) -> u64 {
        self.samples += u64::from(part.samples);
        for entry in &part.entries {
            let sums = self.sums.entry(entry.hash).or_default();
            sums.example = entry.example;
            sums.low += u64::from(entry.count - entry.error);
            sums.high += u64::from(entry.count);
            sums.floors += u64::from(part.floor);
        }
        u64::from(part.floor)
    }
}

/// Bounds of a key's share of the rows, when between `low` and `high` of `samples` sampled rows
/// were its own. Each is wrong with a probability of at most [`ERROR_PROBABILITY`].
pub fn share_bounds(low: u64, high: u64, samples: u64) -> (f64, f64) {
    if samples == 0 {
        return (0.0, 1.0);
    }
    // Half the probability each for the bound from the key's rows and that from all others.
    let log = (2.0 / ERROR_PROBABILITY).ln();
    let all = to_f64(samples);
    let (own_low, own_high) = (to_f64(low), to_f64(high));
    let share_low = expected_low(own_low, log).max(all - expected_high(all - own_low, log)) / all;
    let share_high =
        expected_high(own_high, log).min(all - expected_low(all - own_high, log)) / all;
    (share_low.clamp(0.0, 1.0), share_high.clamp(0.0, 1.0))
}

/// Smallest expectation for which `seen` or more is not too unlikely: `t^2 = 2 log (seen - 2t/3)`.
fn expected_low(seen: f64, log: f64) -> f64 {
    let part = 2.0 / 3.0 * log;
    (seen - ((part * part + 2.0 * log * seen).sqrt() - part)).max(0.0)
}

/// Largest expectation for which `seen` or less is not too unlikely: `t^2 = 2 log (seen + t)`.
fn expected_high(seen: f64, log: f64) -> f64 {
    seen + log + (log * log + 2.0 * log * seen).sqrt()
}

#[expect(clippy::cast_precision_loss, reason = "shares need no more than 52 bits")]
fn to_f64(count: u64) -> f64 {
    count as f64
}
