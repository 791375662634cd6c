//! What each cure would do to the load of the subtasks, by replaying the counted keys through the job's own
//! assignment.
//!
//! Heavy keys are replayed one by one, with the hash that their salted form would have; the many light ones
//! beside them go where their key groups go, or, where they are salted too, evenly. The load that counts is
//! rows received by the subtasks behind the exchange. A cure cannot be faster than an even split of all
//! rows, which also have to be read: speed-ups are limited by that.

use super::placement::{Assignment, Placement};
use super::profile::{Profile, TopColumns, TopKey, by_subtask, to_f64};
use super::rehearsal::StreamSample;
use crate::error::ConfigError;
use crate::key::group::{groups_of_shard, shard_of_group};
use crate::skew::imbalance::Imbalance;
use crate::skew::policy::PolicyConfig;

/// Numbers of salts that are tried.
const SALTS: [u16; 7] = [2, 4, 8, 16, 32, 64, 128];

/// Keys with at least this part of a subtask's fair share are salted apart when hot keys are sidetracked.
pub const SIDETRACK_OF_FAIR_SHARE: f64 = 0.1;

/// Most keys that are sidetracked: each one has to be named.
pub const SIDETRACK_KEYS_MAX: usize = 64;

/// A number of salts is enough if its max/mean is at most this, ..
const ENOUGH: f64 = 1.25;
/// .. or, where none is, at most so many times the best one's.
const NEAR_BEST: f64 = 1.05;

/// Keys below this part of a subtask's fair share are not replayed one by one.
const REPLAYED_OF_FAIR_SHARE: f64 = 1.0 / 1024.0;

/// Something that can be done about skew, or that people try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cure {
    /// Mini-batches are aggregated before the exchange.
    TwoPhase,
    /// Every key gets one of so many salts.
    Salting(u16),
    /// So many hot keys, named beforehand, are salted; the others are not.
    Sidetracking {
        /// Hot keys.
        keys: usize,
        /// Salts of each.
        salts: u16,
    },
    /// Another number of subtasks.
    Parallelism(u32),
    /// Another number of key groups.
    MaxParallelism(u32),
    /// Saltmill with as many workers on this input, from its first row on.
    Adaptive,
    /// The same once it knows the hot keys, as on a long stream.
    AdaptiveLearned,
    /// The keys are hashed once more.
    Rehash,
}

impl Cure {
    /// Name in reports.
    pub fn name(self) -> String {
        match self {
            Self::TwoPhase => "two-phase".into(),
            Self::Salting(salts) => format!("salting, {salts} salts"),
            Self::Sidetracking { keys, salts } => {
                let plural = if keys == 1 { "" } else { "s" };
                format!("sidetracking {keys} hot key{plural}, {salts} salts")
            }
            Self::Parallelism(subtasks) => format!("parallelism {subtasks}"),
            Self::MaxParallelism(groups) => format!("max parallelism {groups}"),
            Self::Adaptive => "Saltmill, adaptive".into(),
            Self::AdaptiveLearned => "Saltmill, hot keys known".into(),
            Self::Rehash => "hashing the key again".into(),
        }
    }

    /// Name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Self::TwoPhase => "two_phase",
            Self::Salting(_) => "salting",
            Self::Sidetracking { .. } => "sidetracking",
            Self::Parallelism(_) => "parallelism",
            Self::MaxParallelism(_) => "max_parallelism",
            Self::Adaptive => "adaptive",
            Self::AdaptiveLearned => "adaptive_learned",
            Self::Rehash => "rehash",
        }
    }
}

/// What a cure would come to.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// Which.
    pub cure: Cure,
    /// Rows received by each subtask.
    pub loads: Vec<u64>,
    /// Unevenness of these.
    pub imbalance: Imbalance,
    /// How many times as fast as now, if the busiest subtask sets the pace.
    pub speed_up: f64,
    /// Where chance has a hand in it: largest over mean if all goes well, and if it does not.
    pub spread: Option<(f64, f64)>,
}

/// Predicts every cure for a stream; what Saltmill comes to while it learns only with a sample.
///
/// # Errors
/// If a salted key cannot be placed.
pub fn predictions(
    profile: &Profile,
    sample: Option<&StreamSample>,
) -> Result<Vec<Prediction>, ConfigError> {
    let replay = Replay::new(profile)?;
    let config = &profile.config;
    let mut all = vec![replay.two_phase()];
    for salts in SALTS {
        all.push(replay.salting(salts)?);
    }
    if let Some(prediction) = replay.sidetracking()? {
        all.push(prediction);
    }
    for subtasks in [config.parallelism / 2, config.parallelism * 2, config.parallelism * 4] {
        if (1..=config.max_parallelism).contains(&subtasks) && subtasks != config.parallelism {
            let loads = profile.counted.groups.rows_of_subtasks(subtasks);
            all.push(replay.prediction(Cure::Parallelism(subtasks), loads));
        }
    }
    for counts in &profile.counted.others {
        let loads = counts.rows_of_subtasks(config.parallelism);
        all.push(replay.prediction(Cure::MaxParallelism(counts.groups()), loads));
    }
    if let Some(found) = sample.map(|sample| sample.rehearse(profile)).transpose()?.flatten() {
        let spread = Some(found.spread);
        all.push(Prediction { spread, ..replay.prediction(Cure::Adaptive, found.loads) });
    }
    all.push(replay.adaptive_learned());
    all.push(replay.rehash()?);
    Ok(all)
}

/// The hot keys that are worth to be named, heaviest first.
pub fn sidetracked(profile: &Profile) -> &[TopKey] {
    let fair = to_f64(profile.counted.rows) / f64::from(profile.config.parallelism);
    let heavy = |key: &&TopKey| to_f64(key.rows) >= SIDETRACK_OF_FAIR_SHARE * fair;
    let keys = profile.top.iter().take_while(heavy).count();
    &profile.top[..keys.min(SIDETRACK_KEYS_MAX)]
}

struct Replay<'a> {
    profile: &'a Profile,
    salted: Placement,
    subtasks: u32,
    groups: u32,
    busiest: u64,
    /// Keys that are replayed one by one.
    heavy: usize,
}

impl<'a> Replay<'a> {
    fn new(profile: &'a Profile) -> Result<Self, ConfigError> {
        let subtasks = profile.config.parallelism;
        let busiest = profile.loads().into_iter().max().unwrap_or(0);
        let fair = to_f64(profile.counted.rows) / f64::from(subtasks);
        let least = REPLAYED_OF_FAIR_SHARE * fair;
        let heavy = profile.top.iter().take_while(|key| to_f64(key.rows) >= least).count();
        let salted = profile.placement.salted()?;
        let groups = profile.config.max_parallelism;
        Ok(Self { profile, salted, subtasks, groups, busiest, heavy })
    }

    fn rows(&self) -> u64 {
        self.profile.counted.rows
    }

    fn prediction(&self, cure: Cure, loads: Vec<u64>) -> Prediction {
        let imbalance = Imbalance::of(&loads);
        // All rows are read and sent by as many subtasks, evenly at best.
        let even = self.rows().div_ceil(loads.len().max(1) as u64);
        let slowest = loads.iter().copied().max().unwrap_or(0).max(even).max(1);
        let speed_up = to_f64(self.busiest.max(1)) / to_f64(slowest);
        Prediction { cure, loads, imbalance, speed_up, spread: None }
    }

    fn two_phase(&self) -> Prediction {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "an expected number of rows"
        )]
        let of_groups = self.profile.counted.partials.iter().map(|rows| rows.round() as u64);
        let loads = by_subtask(&of_groups.collect::<Vec<_>>(), self.subtasks);
        self.prediction(Cure::TwoPhase, loads)
    }

    fn salting(&self, salts: u16) -> Result<Prediction, ConfigError> {
        let mut loads = vec![0; self.subtasks as usize];
        let replayed = self.add_salted(self.heavy, salts, &mut loads)?;
        self.add_evenly(self.rows() - replayed, &mut loads);
        Ok(self.prediction(Cure::Salting(salts), loads))
    }

    fn sidetracking(&self) -> Result<Option<Prediction>, ConfigError> {
        let hot = sidetracked(self.profile);
        if hot.is_empty() {
            return Ok(None);
        }
        let mut cold = self.profile.loads();
        for key in hot {
            let load = &mut cold[usize::from(key.subtask)];
            *load = load.saturating_sub(key.rows);
        }
        let mut all = Vec::with_capacity(SALTS.len());
        for salts in SALTS {
            let mut loads = cold.clone();
            self.add_salted(hot.len(), salts, &mut loads)?;
            let cure = Cure::Sidetracking { keys: hot.len(), salts };
            all.push(self.prediction(cure, loads));
        }
        // The fewest salts that are enough.
        let ratio = |prediction: &Prediction| prediction.imbalance.max_over_mean;
        let best = all.iter().map(ratio).fold(f64::INFINITY, f64::min);
        Ok(all.into_iter().find(|prediction| ratio(prediction) <= (NEAR_BEST * best).max(ENOUGH)))
    }

    /// What Saltmill does once it knows the hot keys: their rows are aggregated by whoever reads them, all
    /// others by the owner.
    fn adaptive_learned(&self) -> Prediction {
        let workers = u16::try_from(self.subtasks).expect("at most 2^15 subtasks");
        let policy = PolicyConfig::new(workers);
        let share = policy.balance_share().min(policy.thresholds.speed_share);
        let hot = self.profile.top.iter().take(policy.hot_keys_max);
        let hot = hot.take_while(|key| self.profile.share(key.rows) >= share);
        let mut loads = self.profile.counted.native.rows_of_subtasks(self.subtasks);
        let mut spread = 0;
        for key in hot {
            let load = &mut loads[usize::from(key.native_worker)];
            let rows = key.rows.min(*load);
            *load -= rows;
            spread += rows;
        }
        split(spread, &mut loads);
        self.prediction(Cure::AdaptiveLearned, loads)
    }

    /// The same keys by another hash: that of the key with one and the same salt. Hot keys stay whole.
    fn rehash(&self) -> Result<Prediction, ConfigError> {
        let mut loads = vec![0; self.subtasks as usize];
        let replayed = self.add_salted(self.heavy, 1, &mut loads)?;
        self.add_evenly(self.rows() - replayed, &mut loads);
        Ok(self.prediction(Cure::Rehash, loads))
    }

    /// Adds the rows of the heaviest `keys` keys, each split over its salts; returns how many they are.
    fn add_salted(&self, keys: usize, salts: u16, loads: &mut [u64]) -> Result<u64, ConfigError> {
        let TopColumns { columns, rows } = &self.profile.top_columns;
        let columns = columns.iter().map(|column| column.slice(0, keys)).collect::<Vec<_>>();
        let mut groups = Vec::new();
        let of_key = u64::from(salts);
        for salt in 0..salts {
            let placed = self.salted.place_salted(&columns, keys, i32::from(salt))?;
            placed.groups(self.groups, &mut groups);
            for (key, group) in groups.iter().enumerate() {
                // The first salts take one row more where it does not divide.
                let part = (rows[key] + of_key - 1 - u64::from(salt)) / of_key;
                loads[usize::from(shard_of_group(*group, self.subtasks, self.groups))] += part;
            }
        }
        Ok(rows[..keys].iter().sum())
    }

    /// Adds rows of so many keys that they lie evenly in the key groups.
    fn add_evenly(&self, rows: u64, loads: &mut [u64]) {
        let groups = u64::from(self.groups);
        let mut before = 0;
        for (subtask, load) in (0..).zip(loads) {
            let owned = groups_of_shard(subtask, self.subtasks, self.groups).count() as u64;
            let share = |groups_below: u64| {
                u128::from(rows) * u128::from(groups_below) / u128::from(groups)
            };
            let part = share(before + owned) - share(before);
            *load += u64::try_from(part).expect("at most all rows");
            before += owned;
        }
    }
}

/// Adds rows in equal parts.
fn split(rows: u64, loads: &mut [u64]) {
    let parts = loads.len().max(1) as u64;
    for (i, load) in (0..).zip(loads) {
        *load += rows / parts + u64::from(i < rows % parts);
    }
}

/// The assignment in words.
pub fn whose(assignment: Assignment) -> &'static str {
    if assignment.is_flink() { "Flink" } else { "Saltmill" }
}
