//! The bounds against exact counts, on streams of every kind, over many seeds.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers of a test"
)]

use hashbrown::HashMap;
use proptest::prelude::*;

use super::*;
use crate::skew::estimate::{Merger, share_bounds};
use crate::skew::sample::{Sampler, splitmix64};

/// Streams of small key numbers; `adversary` evicts a key just as it has entered.
fn stream(kind: &str, rows: usize, seed: u64) -> Vec<u64> {
    let mut state = seed;
    let mut uniform = move || (splitmix64(&mut state) >> 11) as f64 / (1_u64 << 53) as f64;
    (0..rows)
        .map(|row| {
            let draw = uniform();
            match kind {
                "uniform" => (draw * 5_000.0) as u64,
                "few" => (draw * 40.0) as u64,
                // Rank of a Pareto tail: share of rank r falls as r^-1.5.
                "zipf" => (draw.powi(-2)) as u64,
                // One key at a time, 50 rows each.
                "bursty" => (row / 50) as u64,
                // Half on one key; the others each come twice, far enough apart to be evicted
                // between.
                "adversary" if row % 2 == 0 => 0,
                "adversary" => 1 + (row / 2 % (rows / 4).max(1)) as u64,
                _ => unreachable!("unknown stream"),
            }
        })
        .collect()
}

const KINDS: [&str; 5] = ["uniform", "few", "zipf", "bursty", "adversary"];

fn spread(key: u64) -> u64 {
    let mut state = key;
    splitmix64(&mut state)
}

fn exact(keys: &[u64]) -> HashMap<u64, u32> {
    let mut counts = HashMap::new();
    for &key in keys {
        *counts.entry(spread(key)).or_insert(0) += 1;
    }
    counts
}

/// All invariants of one epoch, against the exact counts of its rows.
fn check_part(part: &Part, counters: u32, truth: &HashMap<u64, u32>, counts_add_up: bool) {
    let mut tracked = HashMap::new();
    for entry in &part.entries {
        let real = truth.get(&entry.hash).copied().unwrap_or(0);
        assert!(entry.count >= real, "{entry:?} against {real}");
        assert!(entry.count - entry.error <= real, "{entry:?} against {real}");
        assert!(tracked.insert(entry.hash, entry.example).is_none(), "tracked twice");
        assert!(entry.error <= part.samples / counters);
    }
    for (hash, &real) in truth {
        assert!(tracked.contains_key(hash) || real <= part.floor, "{real} > {}", part.floor);
    }
    if counts_add_up {
        assert_eq!(part.entries.iter().map(|e| e.count).sum::<u32>(), part.samples);
        assert!(part.floor <= part.samples / counters);
    }
}

#[test]
fn bounds_hold_on_every_stream() {
    for kind in KINDS {
        for seed in 0..20 {
            for (counters, rows) in [(1_u16, 200), (7, 3_000), (64, 20_000)] {
                let keys = stream(kind, rows, seed);
                let mut summary = Summary::new(usize::from(counters));
                let mut all = Part::default();
                for (row, &key) in keys.iter().enumerate() {
                    summary.offer(spread(key), row as u64);
                }
                let truth = exact(&keys);
                summary.all_into(&mut all);
                check_part(&all, u32::from(counters), &truth, true);
                for entry in &all.entries {
                    let last = keys.iter().rposition(|&k| spread(k) == entry.hash).unwrap();
                    assert_eq!(entry.example, last as u64, "the newest example is kept");
                }
                let mut candidates = Part::default();
                summary.part_into(0.01, &mut candidates);
                check_part(&candidates, u32::from(counters), &truth, false);
            }
        }
    }
}

impl Summary {
    /// Every counter, without the choice that `part_into` makes.
    fn all_into(&self, out: &mut Part) {
        *out = Part { samples: self.samples, floor: self.floor, entries: Vec::new() };
        for slot in 0..self.len {
            let (count, error) = (self.counts[slot], self.errors[slot]);
            let (hash, example) = (self.hashes[slot], self.examples[slot]);
            out.entries.push(Entry { hash, example, count, error });
        }
    }
}

#[test]
fn epochs_forget() {
    let config = SketchConfig { counters: 16, sample_every: 1, epoch_samples: 100 };
    let mut sketch = Sketch::new(config);
    let bytes = sketch.memory_bytes();
    (0..150).for_each(|_| sketch.offer(1, 0));
    (0..150).for_each(|_| sketch.offer(2, 0));
    // Rows 200..300 are the current epoch, 100..200 the previous one.
    let seen = |sketch: &Sketch, hash| -> u32 {
        let snapshot = sketch.snapshot(0.0);
        let both = snapshot.previous.entries.iter().chain(&snapshot.current.entries);
        both.filter(|e| e.hash == hash).map(|e| e.count).sum()
    };
    assert_eq!((sketch.epoch(), sketch.samples()), (2, 200));
    assert_eq!((seen(&sketch, 1), seen(&sketch, 2)), (50, 150));
    sketch.rotate_to(2);
    assert_eq!(sketch.epoch(), 2, "an epoch already reached is no change");
    sketch.rotate_to(3);
    assert_eq!((seen(&sketch, 1), seen(&sketch, 2)), (0, 100));
    (0..10).for_each(|_| sketch.offer(3, 0));
    sketch.rotate_to(9);
    assert_eq!((sketch.epoch(), sketch.samples(), seen(&sketch, 3)), (9, 0, 0));
    assert_eq!(sketch.memory_bytes(), bytes);
}

#[test]
fn crafted_collisions_stay_correct() {
    // All keys start their probe at the same place of the index.
    let inverse = 0xf1de_83e1_9937_733d_u64;
    assert_eq!(inverse.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1);
    let crafted = |key: u64| (0x00ff_ffff_ffff_0000 + key).wrapping_mul(inverse);
    let mut summary = Summary::new(64);
    let mut truth = HashMap::new();
    let mut state = 5;
    for _ in 0..20_000 {
        let key = crafted(splitmix64(&mut state) % 300);
        summary.offer(key, key);
        *truth.entry(key).or_insert(0) += 1;
    }
    let mut part = Part::default();
    summary.all_into(&mut part);
    check_part(&part, 64, &truth, true);
}

#[test]
fn shares_hold_over_sampling_and_ingests() {
    let mut merger = Merger::new();
    let (mut checked, rows) = (0, 200_000);
    for kind in KINDS {
        for seed in 0..12 {
            let keys = stream(kind, rows, seed);
            let ingests = 1 + seed as usize % 8;
            let mut snapshots = Vec::new();
            for (ingest, part) in keys.chunks(rows.div_ceil(ingests)).enumerate() {
                let mut sketch =
                    Sketch::new(SketchConfig { counters: 128, ..SketchConfig::default() });
                let every = sketch.config().sample_every;
                Sampler::new(every, seed * 100 + ingest as u64)
                    .sample(part.len(), |row| sketch.offer(spread(part[row]), part[row]));
                snapshots.push(sketch.snapshot(1.0 / 2_048.0));
            }
            let truth = exact(&keys);
            for estimate in merger.merge(&snapshots) {
                let real = f64::from(truth[&estimate.hash]) / rows as f64;
                assert_eq!(spread(estimate.example), estimate.hash);
                assert!(
                    estimate.share_low <= estimate.share && estimate.share <= estimate.share_high
                );
                assert!(
                    estimate.share_low <= real && real <= estimate.share_high,
                    "{kind} seed {seed}: {real} outside of {estimate:?}"
                );
                checked += 1;
            }
            let covered = merger.rows_covered().abs_diff(rows as u64);
            assert!(covered <= 64 * ingests as u64, "{covered}");
        }
    }
    assert!(checked > 1_000, "only {checked} candidates");
}

#[test]
fn idle_ingests_age_in_the_merge() {
    let config = SketchConfig { counters: 16, sample_every: 1, epoch_samples: 1_000 };
    let (mut busy, mut idle) = (Sketch::new(config), Sketch::new(config));
    (0..100).for_each(|_| idle.offer(7, 0));
    (0..100).for_each(|_| busy.offer(8, 0));
    let share = |busy: &Sketch, idle: &Sketch| {
        let mut merger = Merger::new();
        let estimates = merger.merge(&[busy.snapshot(0.0), idle.snapshot(0.0)]).to_vec();
        estimates.iter().find(|e| e.hash == 7).map_or(0.0, |e| e.share)
    };
    assert!((share(&busy, &idle) - 0.5).abs() < 1e-9);
    busy.rotate_to(1);
    assert!((share(&busy, &idle) - 0.5).abs() < 1e-9, "still within two epochs");
    busy.rotate_to(2);
    (0..100).for_each(|_| busy.offer(8, 0));
    assert!(share(&busy, &idle).abs() < 1e-9, "gone though the idle ingest never rotated");
}

#[test]
fn bounds_cover_and_are_not_idle() {
    assert_eq!(share_bounds(0, 0, 0), (0.0, 1.0));
    let (low, high) = share_bounds(630, 630, 1_000);
    assert!(low > 0.5 && high < 0.73, "{low} {high}");
    let (low, _) = share_bounds(9_900, 9_900, 10_000);
    assert!(low > 0.98, "sharp near 1: {low}");
    let (_, high) = share_bounds(0, 0, 10_000);
    assert!(high < 0.003, "{high}");
    // Exactly: P(Binomial(2000, share_low) >= 40) must be at most 1e-6.
    let (low, high) = share_bounds(40, 40, 2_000);
    let below = binomial_cdf(2_000, low, 39);
    assert!(1.0 - below < 1e-6, "{}", 1.0 - below);
    assert!(binomial_cdf(2_000, high, 40) < 1e-6);
}

fn binomial_cdf(trials: u32, chance: f64, upto: u32) -> f64 {
    let mut term = (f64::from(trials) * (1.0 - chance).ln()).exp();
    let mut sum = term;
    for hits in 0..upto {
        term *= f64::from(trials - hits) / f64::from(hits + 1) * chance / (1.0 - chance);
        sum += term;
    }
    sum
}

proptest! {
    #[test]
    fn any_stream(counters in 1_u16..20, keys in prop::collection::vec(0_u64..60, 0..800)) {
        let mut summary = Summary::new(usize::from(counters));
        for &key in &keys {
            summary.offer(spread(key), key);
        }
        let mut part = Part::default();
        summary.all_into(&mut part);
        check_part(&part, u32::from(counters), &exact(&keys), true);
    }
}
