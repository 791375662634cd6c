//! What a stream's keys look like: rows and keys of each key group, and the heaviest keys.
//!
//! A [`Profiler`] takes keys with their exact counts, each key once, as the engine's aggregation hands them
//! out; several of them, one a thread, are merged. Rows and keys of every key group are exact, in whatever
//! assignment, and so are the counts of the heaviest keys.
//!
//! **Cost:** a hash and an addition per key, assignment and number of key groups. **Memory:** some counters
//! a key group, and the heaviest keys.

use arrow::array::{ArrayRef, Int64Array};

use super::placement::{Assignment, PlacedKeys, Placement};
use super::top::TopKeys;
use crate::error::ConfigError;
use crate::key::group::{key_group, shard_of_group};
use crate::runtime::report::KeyValue;

/// Keys whose counts are kept one by one.
pub const TOP_KEYS: usize = 4_096;

/// What is to be counted.
#[derive(Debug, Clone)]
pub struct ProfileConfig {
    /// Subtasks of the job in question.
    pub parallelism: u32,
    /// Its key groups.
    pub max_parallelism: u32,
    /// Other numbers of key groups to count for.
    pub other_groups: Vec<u32>,
    /// Rows of a mini-batch of two-phase aggregation, per subtask.
    pub mini_batch_rows: u64,
}

/// Rows and keys of each key group.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupCounts {
    /// Rows.
    pub rows: Vec<u64>,
    /// Different keys; empty if they were not counted.
    pub keys: Vec<u64>,
}

impl GroupCounts {
    pub(super) fn new(groups: u32) -> Self {
        Self { rows: vec![0; groups as usize], keys: vec![0; groups as usize] }
    }

    fn add(&mut self, groups: &[u16], counts: &Int64Array) {
        for (group, count) in groups.iter().zip(counts.values()) {
            self.rows[usize::from(*group)] += count.unsigned_abs();
            self.keys[usize::from(*group)] += 1;
        }
    }

    /// Adds one row a group named.
    pub(super) fn add_rows(&mut self, groups: &[u16]) {
        for group in groups {
            self.rows[usize::from(*group)] += 1;
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.rows.iter_mut().zip(&other.rows).for_each(|(sum, rows)| *sum += rows);
        self.keys.iter_mut().zip(&other.keys).for_each(|(sum, keys)| *sum += keys);
    }

    /// Key groups.
    pub fn groups(&self) -> u32 {
        u32::try_from(self.rows.len()).expect("at most 2^15 key groups")
    }

    /// Rows of each of so many subtasks.
    pub fn rows_of_subtasks(&self, subtasks: u32) -> Vec<u64> {
        by_subtask(&self.rows, subtasks)
    }
}

/// Sums over the key groups that each subtask owns.
pub fn by_subtask(of_groups: &[u64], subtasks: u32) -> Vec<u64> {
    let groups = u32::try_from(of_groups.len()).expect("at most 2^15 key groups");
    let mut sums = vec![0; subtasks as usize];
    for (group, count) in (0..).zip(of_groups) {
        sums[usize::from(shard_of_group(group, subtasks, groups))] += count;
    }
    sums
}

/// Counts keys. See the module's documentation.
#[derive(Debug)]
pub struct Profiler {
    placement: Placement,
    config: ProfileConfig,
    rows: u64,
    keys: u64,
    squares: f64,
    groups: GroupCounts,
    others: Vec<GroupCounts>,
    /// By Saltmill's own assignment, if the one in question is another.
    native: Option<(Placement, GroupCounts)>,
    /// Rows expected at each key group if mini-batches are aggregated before the exchange.
    partials: Vec<f64>,
    top: TopKeys,
    scratch: Vec<u16>,
}

impl Profiler {
    /// Counts nothing yet.
    ///
    /// # Errors
    /// If the keys cannot be placed.
    pub fn new(placement: &Placement, config: &ProfileConfig) -> Result<Self, ConfigError> {
        let native = match placement.assignment() {
            Assignment::Native => None,
            Assignment::Flink(_) => Some((
                placement.with(Assignment::Native)?,
                GroupCounts::new(config.max_parallelism),
            )),
        };
        Ok(Self {
            placement: placement.clone(),
            config: config.clone(),
            rows: 0,
            keys: 0,
            squares: 0.0,
            groups: GroupCounts::new(config.max_parallelism),
            others: config.other_groups.iter().map(|groups| GroupCounts::new(*groups)).collect(),
            native,
            partials: vec![0.0; config.max_parallelism as usize],
            top: TopKeys::new(TOP_KEYS),
            scratch: Vec::new(),
        })
    }

    /// Takes keys with the rows of each. `rows_all` is the number of rows of the whole stream.
    ///
    /// # Errors
    /// If a key cannot be placed.
    pub fn add(
        &mut self,
        columns: &[ArrayRef],
        counts: &Int64Array,
        rows_all: u64,
    ) -> Result<(), ConfigError> {
        let placed = self.placement.place(columns, counts.len())?;
        self.count(&placed, counts, rows_all);
        if let Some((native, groups)) = &mut self.native {
            let placed = native.place(columns, counts.len())?;
            placed.groups(self.config.max_parallelism, &mut self.scratch);
            groups.add(&self.scratch, counts);
        }
        self.top
            .add(columns, counts)
            .map_err(|error| ConfigError::Inconsistent(format!("keys: {error}")))
    }

    fn count(&mut self, placed: &PlacedKeys, counts: &Int64Array, rows_all: u64) {
        let groups = &mut self.scratch;
        for other in &mut self.others {
            placed.groups(other.groups(), groups);
            other.add(groups, counts);
        }
        placed.groups(self.config.max_parallelism, groups);
        self.groups.add(groups, counts);
        self.keys += counts.len() as u64;
        let bundles = Bundles::new(&self.config, rows_all);
        for (group, count) in groups.iter().zip(counts.values()) {
            let count = count.unsigned_abs();
            self.rows += count;
            self.squares += to_f64(count) * to_f64(count);
            self.partials[usize::from(*group)] += bundles.partials(count);
        }
    }

    /// Takes in what another has counted of other keys of the same stream.
    ///
    /// # Errors
    /// If its keys are of another kind.
    pub fn merge(&mut self, other: Self) -> Result<(), ConfigError> {
        self.rows += other.rows;
        self.keys += other.keys;
        self.squares += other.squares;
        self.groups.merge(&other.groups);
        self.others.iter_mut().zip(&other.others).for_each(|(sum, own)| sum.merge(own));
        if let (Some((_, sum)), Some((_, own))) = (&mut self.native, &other.native) {
            sum.merge(own);
        }
        self.partials.iter_mut().zip(&other.partials).for_each(|(sum, own)| *sum += own);
        self.top
            .merge(other.top)
            .map_err(|error| ConfigError::Inconsistent(format!("keys: {error}")))
    }

    /// What was counted.
    ///
    /// # Errors
    /// If the heaviest keys cannot be placed.
    pub fn finish(self) -> Result<Profile, ConfigError> {
        let (columns, counts) = self
            .top
            .finish()
            .map_err(|error| ConfigError::Inconsistent(format!("keys: {error}")))?;
        let rows = counts.iter().map(|count| count.unsigned_abs());
        let top = TopColumns { columns, rows: rows.clone().collect() };
        let native = self.native.map(|(_, groups)| groups);
        let bounds = rows.map(|rows| (rows, rows)).collect::<Vec<_>>();
        Profile::new(
            &self.placement,
            &self.config,
            top,
            &bounds,
            Counted {
                rows: self.rows,
                keys: self.keys,
                exact: true,
                effective_keys: to_f64(self.rows).powi(2) / self.squares.max(1.0),
                native: native.unwrap_or_else(|| self.groups.clone()),
                groups: self.groups,
                others: self.others,
                partials: self.partials,
            },
        )
    }
}

/// How rows fall into mini-batches.
pub(super) struct Bundles {
    number: f64,
    /// Logarithm of the probability that a row is not in a given one.
    log_outside: f64,
}

impl Bundles {
    pub(super) fn new(config: &ProfileConfig, rows_all: u64) -> Self {
        let rows = to_f64(rows_all.max(1));
        // Each subtask before the exchange reads its part of the rows and bundles it.
        let least = f64::from(config.parallelism);
        let number = (rows / to_f64(config.mini_batch_rows.max(1))).max(least);
        Self { number, log_outside: (-1.0 / number).ln_1p() }
    }

    /// Bundles in which a key of `count` rows is expected to occur at least once: what it sends.
    pub(super) fn partials(&self, count: u64) -> f64 {
        // Of rows spread at random, all lie outside of it.
        let missed = (to_f64(count) * self.log_outside).exp();
        self.number * (1.0 - missed)
    }
}

/// The heaviest keys as columns.
#[derive(Debug, Clone)]
pub struct TopColumns {
    /// Their key columns.
    pub columns: Vec<ArrayRef>,
    /// Rows of each.
    pub rows: Vec<u64>,
}

/// A heavy key.
#[derive(Debug, Clone, PartialEq)]
pub struct TopKey {
    /// Its values.
    pub key: Vec<KeyValue>,
    /// Its rows: exact, or the most likely number.
    pub rows: u64,
    /// It has at least so many.
    pub rows_low: u64,
    /// It has at most so many.
    pub rows_high: u64,
    /// Its key group.
    pub group: u16,
    /// The subtask that owns it.
    pub subtask: u16,
    /// Saltmill's hash of it.
    pub native_hash: u64,
    /// The worker that would own it in Saltmill.
    pub native_worker: u16,
}

/// Sums over all keys.
#[derive(Debug, Clone)]
pub struct Counted {
    /// Rows.
    pub rows: u64,
    /// Different keys.
    pub keys: u64,
    /// Whether all numbers are exact; if not, keys are an estimate and heavy keys have bounds.
    pub exact: bool,
    /// Number of equally heavy keys that would be as uneven: 1 / sum of squared shares.
    pub effective_keys: f64,
    /// By the assignment in question.
    pub groups: GroupCounts,
    /// The same for other numbers of key groups.
    pub others: Vec<GroupCounts>,
    /// By Saltmill's own assignment.
    pub native: GroupCounts,
    /// Rows expected at each key group behind mini-batches.
    pub partials: Vec<f64>,
}

/// What a stream's keys look like.
#[derive(Debug, Clone)]
pub struct Profile {
    /// What was asked.
    pub config: ProfileConfig,
    /// Whose assignment it is about.
    pub placement: Placement,
    /// Sums.
    pub counted: Counted,
    /// The heaviest keys, heaviest first.
    pub top: Vec<TopKey>,
    /// The same as columns.
    pub top_columns: TopColumns,
}

impl Profile {
    /// Puts together what was counted, and places the heaviest keys.
    ///
    /// # Errors
    /// If they cannot be placed.
    pub fn new(
        placement: &Placement,
        config: &ProfileConfig,
        top_columns: TopColumns,
        bounds: &[(u64, u64)],
        counted: Counted,
    ) -> Result<Self, ConfigError> {
        let groups_all = config.max_parallelism;
        let rows = &top_columns.rows;
        let (mut groups, mut native) = (Vec::new(), Vec::new());
        if !rows.is_empty() {
            placement.place(&top_columns.columns, rows.len())?.groups(groups_all, &mut groups);
            native = placement.native(&top_columns.columns, rows.len())?;
        }
        let owner = |group: u16| shard_of_group(group, config.parallelism, groups_all);
        let top = rows.iter().enumerate().map(|(i, &rows)| TopKey {
            key: top_columns.columns.iter().map(|column| KeyValue::of(column, i)).collect(),
            rows,
            rows_low: bounds[i].0,
            rows_high: bounds[i].1,
            group: groups[i],
            subtask: owner(groups[i]),
            native_hash: native[i],
            native_worker: owner(key_group(native[i], groups_all)),
        });
        let top = top.collect();
        let (config, placement) = (config.clone(), placement.clone());
        Ok(Self { config, placement, counted, top, top_columns })
    }

    /// A key's share of all rows.
    pub fn share(&self, rows: u64) -> f64 {
        to_f64(rows) / to_f64(self.counted.rows.max(1))
    }

    /// Rows of each subtask.
    pub fn loads(&self) -> Vec<u64> {
        self.counted.groups.rows_of_subtasks(self.config.parallelism)
    }
}

#[expect(clippy::cast_precision_loss, reason = "ratios need no more than 52 bits")]
pub(super) fn to_f64(count: u64) -> f64 {
    count as f64
}
