//! Counting when there are too many keys to count each: rows of every key group exactly, heavy keys from a
//! sketch within bounds, different keys by a sample of them.
//!
//! **Memory:** some counters a key group, 4,096 counters of the sketch, at most 32,768 sampled keys and
//! 16,384 values of keys that came up again: a few MB, whatever the stream.

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::{concat, take};
use hashbrown::HashMap;

use super::placement::Placement;
use super::profile::{Bundles, Counted, GroupCounts, Profile, ProfileConfig, TopColumns, to_f64};
use crate::error::ConfigError;
use crate::skew::estimate::Merger;
use crate::skew::sample::Sampler;
use crate::skew::sketch::{Sketch, SketchConfig, Snapshot};

/// The sketch sees one row in so many.
const SAMPLE_EVERY: u32 = 16;

/// Counters of the sketch: shares are known to within 1 in so many, and by chance.
const COUNTERS: u16 = 4_096;

/// Heavy keys reported.
const TOP: usize = 512;

/// Places to remember the last sampled key in, to see that one comes again.
const SEEN_PLACES: usize = 1 << 16;

/// Keys whose values are kept.
const VALUES_MAX: usize = 16_384;

/// Counts rows of keys. One a thread; see the module's documentation.
#[derive(Debug)]
pub struct BoundedProfiler {
    placement: Placement,
    config: ProfileConfig,
    rows: u64,
    /// First the groups in question, then other numbers of groups.
    groups: Vec<GroupCounts>,
    native: GroupCounts,
    sampler: Sampler,
    sketch: Sketch,
    values: HeavyValues,
    distinct: DistinctSample,
    scratch: Vec<u16>,
}

impl BoundedProfiler {
    /// Counts nothing yet. Give each thread its own `seed`.
    pub fn new(placement: &Placement, config: &ProfileConfig, seed: u64) -> Self {
        let groups = std::iter::once(config.max_parallelism).chain(config.other_groups.clone());
        Self {
            placement: placement.clone(),
            config: config.clone(),
            rows: 0,
            groups: groups.map(GroupCounts::new).collect(),
            native: GroupCounts::new(config.max_parallelism),
            sampler: Sampler::new(SAMPLE_EVERY, seed),
            sketch: Sketch::new(SketchConfig {
                counters: COUNTERS,
                sample_every: SAMPLE_EVERY,
                // One epoch: nothing is to be forgotten.
                epoch_samples: u32::MAX,
            }),
            values: HeavyValues::default(),
            distinct: DistinctSample::default(),
            scratch: Vec::new(),
        }
    }

    /// Takes the keys of some rows.
    ///
    /// # Errors
    /// If a key cannot be placed.
    pub fn add(&mut self, columns: &[ArrayRef], rows: usize) -> Result<(), ConfigError> {
        let placed = self.placement.place(columns, rows)?;
        let hashes = self.placement.native(columns, rows)?;
        for counts in self.groups.iter_mut().rev() {
            placed.groups(counts.groups(), &mut self.scratch);
            counts.add_rows(&self.scratch);
        }
        // The groups in question are left in the scratch.
        for (hash, group) in hashes.iter().zip(&self.scratch) {
            self.distinct.offer(*hash, *group);
        }
        let native_groups = self.native.groups();
        for hash in &hashes {
            let group = crate::key::group::key_group(*hash, native_groups);
            self.native.rows[usize::from(group)] += 1;
        }
        let (sketch, values) = (&mut self.sketch, &mut self.values);
        let mut heavy = Vec::new();
        self.sampler.sample(rows, |row| {
            sketch.offer(hashes[row], 0);
            if values.comes_again(hashes[row]) {
                heavy.push(row);
            }
        });
        self.rows += rows as u64;
        values.keep(&heavy, &hashes, columns)
    }

    /// Puts together what several have counted of one stream.
    ///
    /// # Errors
    /// If the heavy keys cannot be placed.
    ///
    /// # Panics
    /// If there is none.
    pub fn finish(all: Vec<Self>) -> Result<Profile, ConfigError> {
        let snapshots = all.iter().map(|one| {
            let mut snapshot = Snapshot { sample_every: SAMPLE_EVERY, ..Snapshot::default() };
            one.sketch.snapshot_into(0.0, &mut snapshot);
            snapshot
        });
        let snapshots = snapshots.collect::<Vec<_>>();
        let mut merger = Merger::new();
        let estimates = merger.merge(&snapshots).to_vec();
        let mut all = all.into_iter();
        let mut sum = all.next().expect("at least one thread counts");
        for other in all {
            sum.rows += other.rows;
            let counts = sum.groups.iter_mut().chain([&mut sum.native]);
            counts.zip(other.groups.iter().chain([&other.native])).for_each(|(s, o)| s.merge(o));
            sum.values.by_hash.extend(other.values.by_hash);
            sum.distinct.merge(other.distinct);
        }
        let all_rows = to_f64(sum.rows);
        let named = estimates
            .iter()
            .filter_map(|estimate| Some((sum.values.by_hash.get(&estimate.hash)?, estimate)));
        let (mut rows, mut bounds, mut parts) = (Vec::new(), Vec::new(), Vec::new());
        for (values, estimate) in named.take(TOP) {
            rows.push(round(estimate.share * all_rows));
            bounds.push((
                round(estimate.share_low * all_rows),
                round(estimate.share_high * all_rows),
            ));
            parts.push(values);
        }
        let columns = (0..parts.first().map_or(0, |part| part.len())).map(|column| {
            let pieces = parts.iter().map(|part| part[column].as_ref()).collect::<Vec<_>>();
            concat(&pieces).map_err(|error| ConfigError::Inconsistent(format!("keys: {error}")))
        });
        let top = TopColumns { columns: columns.collect::<Result<_, _>>()?, rows };
        sum.profile(top, &bounds)
    }

    fn profile(mut self, top: TopColumns, bounds: &[(u64, u64)]) -> Result<Profile, ConfigError> {
        let others = self.groups.split_off(1);
        let mut groups = self.groups.pop().expect("those in question are first");
        groups.keys = self.distinct.of_groups(groups.rows.len());
        let keys = self.distinct.keys().max(top.rows.len() as u64);
        let counted = Counted {
            rows: self.rows,
            keys,
            exact: false,
            effective_keys: effective_keys(self.rows, keys, &top.rows),
            partials: groups.rows.iter().map(|rows| to_f64(*rows)).collect(),
            native: self.native,
            groups,
            others,
        };
        let bundles = Bundles::new(&self.config, self.rows);
        let mut profile = Profile::new(&self.placement, &self.config, top, bounds, counted)?;
        // Of a light key, every row is a partial of its own.
        for key in &profile.top {
            let partials = &mut profile.counted.partials[usize::from(key.group)];
            *partials = (*partials - to_f64(key.rows) + bundles.partials(key.rows)).max(0.0);
        }
        Ok(profile)
    }
}

/// Light keys counted as equally heavy.
fn effective_keys(rows: u64, keys: u64, top: &[u64]) -> f64 {
    let share = |rows_of: u64| to_f64(rows_of) / to_f64(rows.max(1));
    let heavy: f64 = top.iter().map(|rows_of| share(*rows_of).powi(2)).sum();
    let rest = share(rows.saturating_sub(top.iter().sum()));
    let light = to_f64(keys.saturating_sub(top.len() as u64).max(1));
    1.0 / (heavy + rest * rest / light).max(f64::MIN_POSITIVE)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of rows")]
fn round(rows: f64) -> u64 {
    rows.round() as u64
}

/// Values of keys that were sampled twice with few others between: heavy ones certainly are.
#[derive(Debug)]
struct HeavyValues {
    seen: Vec<u64>,
    by_hash: HashMap<u64, Vec<ArrayRef>>,
}

impl Default for HeavyValues {
    fn default() -> Self {
        Self { seen: vec![0; SEEN_PLACES], by_hash: HashMap::new() }
    }
}

impl HeavyValues {
    /// Whether the key was seen lately and its values are not kept yet.
    fn comes_again(&mut self, hash: u64) -> bool {
        #[expect(clippy::cast_possible_truncation, reason = "low bits")]
        let place = hash as usize % SEEN_PLACES;
        std::mem::replace(&mut self.seen[place], hash) == hash
            && self.by_hash.len() < VALUES_MAX
            && !self.by_hash.contains_key(&hash)
    }

    fn keep(
        &mut self,
        rows: &[usize],
        hashes: &[u64],
        columns: &[ArrayRef],
    ) -> Result<(), ConfigError> {
        for &row in rows {
            // A copy of one value: a slice would keep the whole batch.
            let index = UInt32Array::from_iter_values(u32::try_from(row));
            let values = columns.iter().map(|column| take(column, &index, None));
            let values = values
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| ConfigError::Inconsistent(format!("keys: {error}")))?;
            self.by_hash.insert(hashes[row], values);
        }
        Ok(())
    }
}

/// A sample of the different keys: those whose hash ends in so many zero bits that they are few
/// (Flajolet, "On adaptive sampling", 1990). The number of keys is known to within 1 % or so.
#[derive(Debug, Default)]
struct DistinctSample {
    zeros: u32,
    groups: HashMap<u64, u16>,
}

/// Sampled keys at most.
const SAMPLED_KEYS_MAX: usize = 32_768;

impl DistinctSample {
    #[inline]
    fn offer(&mut self, hash: u64, group: u16) {
        if hash.trailing_zeros() >= self.zeros {
            self.groups.insert(hash, group);
            self.thin();
        }
    }

    fn thin(&mut self) {
        while self.groups.len() > SAMPLED_KEYS_MAX {
            self.zeros += 1;
            let zeros = self.zeros;
            self.groups.retain(|hash, _| hash.trailing_zeros() >= zeros);
        }
    }

    fn merge(&mut self, other: Self) {
        self.zeros = self.zeros.max(other.zeros);
        let zeros = self.zeros;
        self.groups.extend(other.groups);
        self.groups.retain(|hash, _| hash.trailing_zeros() >= zeros);
        self.thin();
    }

    fn keys(&self) -> u64 {
        (self.groups.len() as u64) << self.zeros
    }

    fn of_groups(&self, groups: usize) -> Vec<u64> {
        let mut keys = vec![0; groups];
        for group in self.groups.values() {
            keys[usize::from(*group)] += 1 << self.zeros;
        }
        keys
    }
}
