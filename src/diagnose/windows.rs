//! Skew in time: windows in which the load is far less even than over the whole stream.

use std::collections::BTreeMap;

use arrow::array::{ArrayRef, Int64Array};
use hashbrown::HashMap;

use super::placement::Placement;
use super::profile::{Profile, to_f64};
use crate::error::ConfigError;
use crate::key::group::shard_of_group;
use crate::runtime::report::KeyValue;
use crate::skew::imbalance::Imbalance;

/// Heaviest keys kept of each window.
const TOP_OF_WINDOW: usize = 3;

/// Windows that are looked at, the earliest; rows of later ones are counted only.
const WINDOWS_MAX: usize = if cfg!(test) { 20 } else { 50_000 };

/// A key is hot in a window if it has at least this part of a subtask's fair share there, ..
const HOT_OF_FAIR_SHARE: f64 = 0.5;
/// .. at least so many times its share of the whole stream, ..
const HOT_OF_USUAL: f64 = 4.0;
/// .. and makes the busiest subtask at least so many times as busy as the mean.
const HOT_MAX_OVER_MEAN: f64 = 1.5;

/// Windows with fewer rows say nothing: in a handful, some key always has a large share.
const WINDOW_ROWS_MIN: u64 = 100;
/// The same as a part of the median window.
const WINDOW_OF_MEDIAN_MIN: f64 = 0.1;

/// Counts of one window.
#[derive(Debug, Clone, PartialEq)]
pub struct WindowCounts {
    /// Its start, in the unit of the event time.
    pub start: i64,
    /// Its rows.
    pub rows: u64,
    /// Its different keys.
    pub keys: u64,
    /// Rows of each subtask.
    pub loads: Vec<u64>,
    /// The heaviest keys with their rows, heaviest first.
    pub top: Vec<(Vec<KeyValue>, u64)>,
}

impl WindowCounts {
    fn new(start: i64, subtasks: u32) -> Self {
        let loads = vec![0; subtasks as usize];
        Self { start, rows: 0, keys: 0, loads, top: Vec::new() }
    }

    /// How uneven its rows are.
    pub fn imbalance(&self) -> Imbalance {
        Imbalance::of(&self.loads)
    }

    fn offer(&mut self, rows: u64, key: impl FnOnce() -> Vec<KeyValue>) {
        if self.top.len() == TOP_OF_WINDOW
            && self.top.last().is_some_and(|(_, least)| rows <= *least)
        {
            return;
        }
        let at = self.top.partition_point(|(_, other)| *other >= rows);
        self.top.insert(at, (key(), rows));
        self.top.truncate(TOP_OF_WINDOW);
    }

    fn merge(&mut self, other: Self) {
        self.rows += other.rows;
        self.keys += other.keys;
        self.loads.iter_mut().zip(&other.loads).for_each(|(sum, rows)| *sum += rows);
        for (key, rows) in other.top {
            self.offer(rows, || key);
        }
    }
}

/// Counts keys by window, each key of a window once.
#[derive(Debug)]
pub struct WindowProfiler {
    placement: Placement,
    parallelism: u32,
    max_parallelism: u32,
    windows: BTreeMap<i64, WindowCounts>,
    rows_beyond: u64,
    scratch: Vec<u16>,
}

impl WindowProfiler {
    /// Counts nothing yet.
    pub fn new(placement: &Placement, parallelism: u32, max_parallelism: u32) -> Self {
        let (windows, scratch) = (BTreeMap::new(), Vec::new());
        let placement = placement.clone();
        Self { placement, parallelism, max_parallelism, windows, rows_beyond: 0, scratch }
    }

    /// Another of the same kind that has counted nothing.
    #[must_use]
    pub fn emptied(&self) -> Self {
        Self::new(&self.placement, self.parallelism, self.max_parallelism)
    }

    /// Takes keys of the window that starts at `start`, with the rows of each.
    ///
    /// # Errors
    /// If a key cannot be placed.
    pub fn add(
        &mut self,
        start: i64,
        columns: &[ArrayRef],
        counts: &Int64Array,
    ) -> Result<(), ConfigError> {
        let groups = &mut self.scratch;
        self.placement.place(columns, counts.len())?.groups(self.max_parallelism, groups);
        let window = self.windows.entry(start);
        let window = window.or_insert_with(|| WindowCounts::new(start, self.parallelism));
        window.keys += counts.len() as u64;
        for (row, (group, rows)) in groups.iter().zip(counts.values()).enumerate() {
            let rows = rows.unsigned_abs();
            window.rows += rows;
            let owner = shard_of_group(*group, self.parallelism, self.max_parallelism);
            window.loads[usize::from(owner)] += rows;
            window.offer(rows, || columns.iter().map(|c| KeyValue::of(c, row)).collect());
        }
        self.keep_the_earliest();
        Ok(())
    }

    /// Each profiler keeps the earliest windows that it has seen, so those that are the earliest of all are
    /// kept by every one.
    fn keep_the_earliest(&mut self) {
        while self.windows.len() > WINDOWS_MAX {
            let latest = self.windows.pop_last();
            self.rows_beyond += latest.map_or(0, |(_, counts)| counts.rows);
        }
    }

    /// Takes in what another has counted of other keys.
    pub fn merge(&mut self, other: Self) {
        self.rows_beyond += other.rows_beyond;
        for (start, counts) in other.windows {
            match self.windows.entry(start) {
                std::collections::btree_map::Entry::Occupied(mut own) => {
                    own.get_mut().merge(counts);
                }
                std::collections::btree_map::Entry::Vacant(place) => drop(place.insert(counts)),
            }
        }
        self.keep_the_earliest();
    }

    /// The windows in order of time.
    pub fn finish(self) -> Windows {
        let windows = self.windows.into_values().collect();
        Windows { windows, rows_beyond: self.rows_beyond }
    }
}

/// Counts by window.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Windows {
    /// In order of time.
    pub windows: Vec<WindowCounts>,
    /// Rows of windows that were too many to be looked at.
    pub rows_beyond: u64,
}

/// A key that is hot in a window, though not over the whole stream.
#[derive(Debug, Clone, PartialEq)]
pub struct HotWindow {
    /// The window's start.
    pub start: i64,
    /// Its rows.
    pub rows: u64,
    /// The key.
    pub key: Vec<KeyValue>,
    /// The key's share of the window.
    pub share: f64,
    /// The key's share of the whole stream is this, or less.
    pub share_overall: f64,
    /// Unevenness of the window.
    pub imbalance: Imbalance,
}

impl Windows {
    /// Rows of a window in the middle.
    pub fn rows_median(&self) -> u64 {
        let mut rows = self.windows.iter().map(|window| window.rows).collect::<Vec<_>>();
        rows.sort_unstable();
        rows.get(rows.len() / 2).copied().unwrap_or(0)
    }

    /// Windows with enough rows to say something.
    pub fn telling(&self) -> impl Iterator<Item = &WindowCounts> {
        let median = to_f64(self.rows_median());
        self.windows.iter().filter(move |window| {
            window.rows >= WINDOW_ROWS_MIN && to_f64(window.rows) >= WINDOW_OF_MEDIAN_MIN * median
        })
    }

    /// Max/mean of the telling windows: in the middle, and of the worst.
    pub fn max_over_mean(&self) -> Option<(f64, &WindowCounts)> {
        let ratio = |window: &&WindowCounts| window.imbalance().max_over_mean;
        let mut ratios = self.telling().map(|window| ratio(&window)).collect::<Vec<_>>();
        ratios.sort_by(f64::total_cmp);
        let worst = self.telling().max_by(|a, b| ratio(a).total_cmp(&ratio(b)))?;
        Some((ratios[ratios.len() / 2], worst))
    }

    /// Keys that are hot in some windows only, by how uneven they make them.
    pub fn hot_only_here(&self, profile: &Profile) -> Vec<HotWindow> {
        let usual = profile.top.iter().map(|key| (text(&key.key), profile.share(key.rows)));
        let usual = usual.collect::<HashMap<_, _>>();
        // What is not among the heaviest keys is lighter than the lightest of them.
        let rest = profile.top.last().map_or(0.0, |key| profile.share(key.rows));
        let subtasks = f64::from(profile.config.parallelism);
        let mut hot = Vec::new();
        for window in self.telling() {
            let imbalance = window.imbalance();
            let Some((key, rows)) = window.top.first() else { continue };
            let share = to_f64(*rows) / to_f64(window.rows.max(1));
            let share_overall = usual.get(&text(key)).copied().unwrap_or(rest);
            if share * subtasks >= HOT_OF_FAIR_SHARE
                && share >= HOT_OF_USUAL * share_overall
                && imbalance.max_over_mean >= HOT_MAX_OVER_MEAN
            {
                let (start, rows, key) = (window.start, window.rows, key.clone());
                hot.push(HotWindow { start, rows, key, share, share_overall, imbalance });
            }
        }
        let badness = |window: &HotWindow| window.imbalance.max_over_mean;
        hot.sort_by(|a, b| badness(b).total_cmp(&badness(a)).then(a.start.cmp(&b.start)));
        hot
    }
}

fn text(key: &[KeyValue]) -> String {
    use std::fmt::Write as _;
    key.iter().fold(String::new(), |mut text, value| {
        let _ = write!(text, "{value:?};");
        text
    })
}
