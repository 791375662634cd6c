//! How uneven the load of the shards is, in numbers, and what the number of key groups has to do
//! with it.
//!
//! Two numbers describe loads: the coefficient of variation (`CoV`: standard deviation over mean, 0
//! for even loads, `sqrt(shards - 1)` when one shard does everything) and max/mean (how many times
//! a fair share the busiest shard carries, which is the factor by which the job is slower than it
//! could be).
//!
//! **Invariant:** loads that are all 0 count as even: `CoV` 0, max/mean 1; so do no loads at all.
//!
//! **Cost:** a few operations per shard and period; nothing per row.
//!
//! **Not here:** which rows are counted, and when a period ends. Time stays outside.

use std::collections::VecDeque;

use crate::key::group::{MAX_PARALLELISM_LIMIT, shard_of_group};

/// `CoV` above which the load counts as skewed unless the job says otherwise.
pub const COV_ALERT_DEFAULT: f64 = 0.5;

/// Numbers of key groups that most numbers of workers divide.
const COMPOSITE: [u32; 14] =
    [12, 24, 60, 120, 240, 360, 720, 1_440, 2_880, 5_040, 10_080, 15_120, 20_160, 27_720];

/// Unevenness of the loads of some shards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Imbalance {
    /// Standard deviation over mean.
    pub cov: f64,
    /// Largest load over mean.
    pub max_over_mean: f64,
}

impl Default for Imbalance {
    fn default() -> Self {
        Self { cov: 0.0, max_over_mean: 1.0 }
    }
}

impl Imbalance {
    /// Unevenness of these loads (rows, busy nanoseconds, ..).
    pub fn of(loads: &[u64]) -> Self {
        let total: f64 = loads.iter().map(|&load| to_f64(load)).sum();
        if total <= 0.0 {
            return Self::default();
        }
        let shards = to_f64(loads.len() as u64);
        let mean = total / shards;
        let squares: f64 = loads.iter().map(|&load| (to_f64(load) - mean).powi(2)).sum();
        let max = loads.iter().copied().max().unwrap_or(0);
        Self { cov: (squares / shards).sqrt() / mean, max_over_mean: to_f64(max) / mean }
    }

    /// Whether the `CoV` is above a limit, such as [`COV_ALERT_DEFAULT`].
    pub fn alerts(&self, cov_limit: f64) -> bool {
        self.cov > cov_limit
    }
}

/// Loads per period, of the last few periods, from counters that only grow.
#[derive(Debug, Clone)]
pub struct SlidingLoads {
    /// Counters at the end of the last period.
    totals: Vec<u64>,
    periods: VecDeque<Vec<u64>>,
    periods_max: usize,
}

impl SlidingLoads {
    /// For this many shards, remembering this many periods (at least 1).
    pub fn new(shards: usize, periods_max: usize) -> Self {
        let periods_max = periods_max.max(1);
        Self { totals: vec![0; shards], periods: VecDeque::with_capacity(periods_max), periods_max }
    }

    /// Ends a period. `totals` are the shards' counters since the start of the run. Returns the
    /// period's imbalance.
    ///
    /// # Panics
    /// If the number of shards is another one than before.
    pub fn end_period(&mut self, totals: &[u64]) -> Imbalance {
        assert_eq!(totals.len(), self.totals.len(), "number of shards");
        let mut loads =
            if self.periods.len() == self.periods_max { self.periods.pop_front() } else { None }
                .unwrap_or_default();
        loads.clear();
        loads.extend(totals.iter().zip(&self.totals).map(|(now, then)| now.saturating_sub(*then)));
        self.totals.copy_from_slice(totals);
        let imbalance = Imbalance::of(&loads);
        self.periods.push_back(loads);
        imbalance
    }

    /// Loads of the last `periods` periods together (as many as there are).
    pub fn loads(&self, periods: usize) -> Vec<u64> {
        let mut sums = vec![0; self.totals.len()];
        for loads in self.periods.iter().rev().take(periods) {
            sums.iter_mut().zip(loads).for_each(|(sum, load)| *sum += load);
        }
        sums
    }

    /// Imbalance over the last `periods` periods together.
    pub fn over(&self, periods: usize) -> Imbalance {
        Imbalance::of(&self.loads(periods))
    }
}

/// Loads of the shards if every row went to the owner of its key, from the rows of each key group.
///
/// # Panics
/// If there are no workers, or fewer key groups than workers, or more groups than allowed.
pub fn unmitigated_loads(group_rows: &[u64], workers: u32) -> Vec<u64> {
    let groups = u32::try_from(group_rows.len()).unwrap_or(u32::MAX);
    assert!(workers > 0 && workers <= groups && groups <= MAX_PARALLELISM_LIMIT);
    let mut loads = vec![0; workers as usize];
    for (group, rows) in (0..).zip(group_rows) {
        loads[usize::from(shard_of_group(group, workers, groups))] += rows;
    }
    loads
}

/// How well a number of key groups fits a number of workers.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupFit {
    /// Key groups of the job.
    pub max_parallelism: u32,
    /// Workers of the job.
    pub workers: u32,
    /// Key groups of the worker that has fewest.
    pub groups_min: u32,
    /// Key groups of the worker that has most.
    pub groups_max: u32,
    /// Load of the busiest worker over the mean, with all groups alike; 1 if it divides evenly.
    pub max_over_mean: f64,
    /// The nearest number of key groups that divides evenly, if this one does not and there is one:
    /// among those that most numbers of workers divide if possible, else a multiple of the workers.
    pub better: Option<u32>,
}

impl GroupFit {
    /// Looks at `max_parallelism` key groups on `workers` workers. Both at least 1, more groups
    /// than workers, as the job's checks ensure.
    ///
    /// # Panics
    /// If there are no workers.
    pub fn new(max_parallelism: u32, workers: u32) -> Self {
        let groups_min = max_parallelism / workers;
        let groups_max = max_parallelism.div_ceil(workers);
        let max_over_mean = f64::from(groups_max) * f64::from(workers) / f64::from(max_parallelism);
        let better = (groups_min != groups_max).then(|| better(max_parallelism, workers)).flatten();
        Self { max_parallelism, workers, groups_min, groups_max, max_over_mean, better }
    }

    /// Whether every worker has the same number of key groups.
    pub fn is_even(&self) -> bool {
        self.groups_min == self.groups_max
    }

    /// What a person should know: nothing if the groups divide evenly.
    pub fn advice(&self) -> Option<String> {
        if self.is_even() {
            return None;
        }
        let busier = (self.max_over_mean - 1.0) * 100.0;
        let weight = match busier {
            ..3.0 => "harmless",
            3.0..15.0 => "noticeable",
            _ => "serious",
        };
        let cure = self.better.map_or_else(
            || format!("use a number of workers that divides {}", self.max_parallelism),
            |better| {
                let each = better / self.workers;
                format!(
                    "--max-parallelism {better} gives {each} to each; it is fixed for the life of \
                     the state"
                )
            },
        );
        Some(format!(
            "{} key groups do not divide by {} workers: some own {}, some {}, so with perfectly even \
             keys the busiest worker still has {:.2} times the mean load ({weight}); {cure}",
            self.max_parallelism,
            self.workers,
            self.groups_max,
            self.groups_min,
            self.max_over_mean,
        ))
    }
}

fn better(max_parallelism: u32, workers: u32) -> Option<u32> {
    let nearest = |candidates: &mut dyn Iterator<Item = u32>| {
        candidates
            .filter(|groups| {
                groups % workers == 0 && (workers..=MAX_PARALLELISM_LIMIT).contains(groups)
            })
            .min_by_key(|groups| groups.abs_diff(max_parallelism))
    };
    let below = max_parallelism / workers * workers;
    nearest(&mut COMPOSITE.into_iter())
        .or_else(|| nearest(&mut [below, below.saturating_add(workers)].into_iter()))
}

#[expect(clippy::cast_precision_loss, reason = "ratios need no more than 52 bits")]
fn to_f64(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "small numbers of a test"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::group::groups_of_shard;

    #[test]
    fn known_loads() {
        let near = |loads: &[u64], cov: f64, ratio: f64| {
            let found = Imbalance::of(loads);
            let (off_cov, off_ratio) = (found.cov - cov, found.max_over_mean - ratio);
            assert!(off_cov.abs() < 1e-9 && off_ratio.abs() < 1e-9, "{loads:?}: {found:?}");
        };
        near(&[], 0.0, 1.0);
        near(&[0, 0], 0.0, 1.0);
        near(&[5, 5, 5], 0.0, 1.0);
        near(&[8, 0, 0, 0, 0, 0, 0, 0], 7.0_f64.sqrt(), 8.0);
        near(&[1, 3], 0.5, 1.5);
        near(&[u64::MAX, u64::MAX], 0.0, 1.0);
        assert!(!Imbalance::of(&[1, 3]).alerts(COV_ALERT_DEFAULT));
        assert!(Imbalance::of(&[1, 4]).alerts(COV_ALERT_DEFAULT));
    }

    #[test]
    fn periods_slide() {
        let mut sliding = SlidingLoads::new(2, 3);
        assert!(sliding.end_period(&[10, 10]).cov.abs() < 1e-9);
        assert!((sliding.end_period(&[30, 10]).max_over_mean - 2.0).abs() < 1e-9);
        sliding.end_period(&[30, 11]);
        assert_eq!((sliding.loads(1), sliding.loads(2)), (vec![0, 1], vec![20, 1]));
        assert_eq!(sliding.loads(9), [30, 11]);
        sliding.end_period(&[32, 13]);
        assert_eq!(sliding.loads(9), [22, 3], "the first period has left");
        assert!((sliding.over(1).max_over_mean - 1.0).abs() < 1e-9);
    }

    #[test]
    fn twelve_groups_on_seven_workers() {
        let fit = GroupFit::new(12, 7);
        assert_eq!((fit.groups_min, fit.groups_max, fit.better), (1, 2, Some(5_040)));
        assert_eq!(
            fit.advice().unwrap(),
            "12 key groups do not divide by 7 workers: some own 2, some 1, so with perfectly even \
             keys the busiest worker still has 1.17 times the mean load (serious); \
             --max-parallelism 5040 gives 720 to each; it is fixed for the life of the state"
        );
        assert_eq!(GroupFit::new(128, 8).advice(), None);
        let fit = GroupFit::new(128, 3);
        assert_eq!((fit.groups_min, fit.groups_max, fit.better), (42, 43, Some(120)));
        assert!(fit.advice().unwrap().contains("harmless"));
        assert_eq!(GroupFit::new(128, 11).better, Some(27_720));
        assert_eq!(GroupFit::new(128, 13).better, Some(130));
        assert_eq!(GroupFit::new(100, 97).better, Some(97));
    }

    proptest! {
        #[test]
        fn fit_tells_what_the_shards_own(groups in 1_u32..3_000, pick in 0.0_f64..1.0) {
            let workers = 1 + (f64::from(groups.min(100) - 1) * pick) as u32;
            let fit = GroupFit::new(groups, workers);
            let owned: Vec<u64> = (0..workers)
                .map(|shard| groups_of_shard(shard as u16, workers, groups).count() as u64)
                .collect();
            prop_assert_eq!(owned.iter().copied().max(), Some(u64::from(fit.groups_max)));
            prop_assert_eq!(owned.iter().copied().min(), Some(u64::from(fit.groups_min)));
            prop_assert!((Imbalance::of(&owned).max_over_mean - fit.max_over_mean).abs() < 1e-9);
            prop_assert_eq!(unmitigated_loads(&vec![1; groups as usize], workers), owned);
            prop_assert_eq!(fit.advice().is_some(), groups % workers != 0);
            if let Some(better) = fit.better {
                prop_assert_eq!(better % workers, 0);
            }
        }

        #[test]
        fn measures_stay_in_their_ranges(loads in prop::collection::vec(0_u64..1_000_000, 1..50)) {
            let Imbalance { cov, max_over_mean } = Imbalance::of(&loads);
            let shards = loads.len() as f64;
            prop_assert!((0.0..=(shards - 1.0).sqrt() + 1e-9).contains(&cov));
            prop_assert!((1.0 - 1e-9..=shards + 1e-9).contains(&max_over_mean));
        }
    }
}
