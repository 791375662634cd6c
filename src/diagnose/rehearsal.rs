//! A rehearsal: what Saltmill itself would do with a stream, its learning included.
//!
//! Hot keys must be learnt, and until a key is known its rows go to the one shard that owns it; afterwards they
//! stay with the worker that reads them, so that it matters how the input is cut into units, too. Both are
//! part of what a run of *this* input comes to, and the shorter it is the more. So the keys of sampled rows are
//! kept unit by unit while the input is read for counting, and then shown to the same [`Observer`]s and
//! [`Learner`] that a run has, by workers that take units by the same rule.
//!
//! Which worker takes which unit is left to chance in a run, and in a rehearsal: several are held, the one in the
//! middle is the prediction, and the least and the most uneven say how much chance there is.
//!
//! **Memory:** 8 bytes for one row in [`DENSE_EVERY`] at first and one in [`SAMPLE_EVERY`] later, 32 MB at most.

use std::sync::Arc;

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take;
use hashbrown::HashMap;

use super::placement::Placement;
use super::profile::{Profile, to_f64};
use crate::error::ConfigError;
use crate::key::group::shard_of_group;
use crate::runtime::source_set::is_ahead;
use crate::skew::hot_set::HotSet;
use crate::skew::imbalance::Imbalance;
use crate::skew::learner::{Learner, Observer, SAMPLE_EVERY};
use crate::skew::policy::{Policy, PolicyConfig};
use crate::skew::sample::{Sampler, splitmix64};

/// At the start, when keys are learnt, one of so many rows is kept: a part of those that a run samples.
const DENSE_EVERY: u32 = SAMPLE_EVERY / DENSER;
/// That is so many times as many as a run samples.
const DENSER: u32 = 10;

/// Rows that count as the start.
const DENSE_ROWS: u64 = 16_000_000;

/// Samples that are kept; of what comes then, only the rows are counted.
const SAMPLES_MAX: u64 = 4_000_000;

/// Workers that are rehearsed at most; an engine has no more.
const WORKERS_MAX: u32 = 128;

/// Rehearsals of a short stream, ..
const REHEARSALS_MAX: u64 = 9;
/// .. and samples that are gone through in all rehearsals together.
const SAMPLES_ALL: u64 = 2_000_000;

/// Sampled keys of one unit of an input.
#[derive(Debug)]
pub struct UnitSample {
    /// Position among the units of all inputs, as they were taken.
    order: u64,
    /// One row of so many was kept; 0 if none was.
    every: u32,
    sampler: Sampler,
    /// Rows, and samples, of each batch.
    batches: Vec<(u32, u32)>,
    /// Hashes of the sampled rows' keys.
    hashes: Vec<u64>,
}

impl UnitSample {
    /// Of a unit before which so many rows were read.
    pub fn new(order: u64, rows_before: u64) -> Self {
        let samples_before = rows_before.min(DENSE_ROWS) / u64::from(DENSE_EVERY)
            + rows_before.saturating_sub(DENSE_ROWS) / u64::from(SAMPLE_EVERY);
        let every = match rows_before {
            _ if samples_before >= SAMPLES_MAX => 0,
            ..DENSE_ROWS => DENSE_EVERY,
            _ => SAMPLE_EVERY,
        };
        let sampler = Sampler::new(every, order);
        Self { order, every, sampler, batches: Vec::new(), hashes: Vec::new() }
    }

    /// Samples the next batch of the unit, of which `columns` are the key.
    ///
    /// # Errors
    /// If the columns are not the key's.
    pub fn add(
        &mut self,
        placement: &Placement,
        columns: &[ArrayRef],
        rows: usize,
    ) -> Result<(), ConfigError> {
        let mut picked = Vec::new();
        if self.every > 0 {
            #[expect(clippy::cast_possible_truncation, reason = "a batch has less than 2^32 rows")]
            self.sampler.sample(rows, |row| picked.push(row as u32));
        }
        #[expect(clippy::cast_possible_truncation, reason = "a batch has less than 2^32 rows")]
        self.batches.push((rows as u32, picked.len() as u32));
        if picked.is_empty() {
            return Ok(());
        }
        let (samples, picked) = (picked.len(), UInt32Array::from(picked));
        let columns = columns.iter().map(|column| take(column, &picked, None));
        let columns = columns
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| ConfigError::Inconsistent(format!("keys: {error}")))?;
        self.hashes.extend(placement.native(&columns, samples)?);
        Ok(())
    }

    fn rows(&self) -> u64 {
        self.batches.iter().map(|(rows, _)| u64::from(*rows)).sum()
    }
}

/// Sampled keys of a stream.
#[derive(Debug, Default)]
pub struct StreamSample {
    units: Vec<UnitSample>,
}

impl StreamSample {
    /// Of these units, whatever order they come in.
    pub fn new(mut units: Vec<UnitSample>) -> Self {
        units.sort_by_key(|unit| unit.order);
        Self { units }
    }

    fn samples(&self) -> u64 {
        self.units.iter().map(|unit| unit.hashes.len() as u64).sum()
    }

    /// Rows of units that were sampled.
    fn rows_sampled(&self) -> u64 {
        self.units.iter().filter(|unit| unit.every > 0).map(UnitSample::rows).sum()
    }

    /// Rows that each of as many workers as the job has subtasks would aggregate; none if it has more than
    /// are rehearsed, or nothing was sampled.
    ///
    /// # Errors
    /// If the policy refuses so many workers.
    pub fn rehearse(&self, profile: &Profile) -> Result<Option<Rehearsed>, ConfigError> {
        let (workers, samples) = (profile.config.parallelism, self.samples());
        if samples == 0 || workers > WORKERS_MAX {
            return Ok(None);
        }
        let times = (SAMPLES_ALL / samples).clamp(1, REHEARSALS_MAX);
        let mut outcomes = Vec::new();
        for seed in 0..times {
            let mut rehearsal = Rehearsal::new(self, workers, seed)?;
            rehearsal.run();
            outcomes.push(rehearsal.loads(profile));
        }
        let badness = |loads: &Vec<u64>| Imbalance::of(loads).max_over_mean;
        outcomes.sort_by(|a, b| badness(a).total_cmp(&badness(b)));
        let spread = (badness(&outcomes[0]), badness(&outcomes[outcomes.len() - 1]));
        let loads = outcomes.swap_remove(outcomes.len() / 2);
        Ok(Some(Rehearsed { loads, spread }))
    }
}

/// What rehearsals came to.
#[derive(Debug)]
pub struct Rehearsed {
    /// Rows that each worker aggregates, in the rehearsal in the middle.
    pub loads: Vec<u64>,
    /// Largest over mean of the least and the most uneven rehearsal.
    pub spread: (f64, f64),
}

/// A worker of a rehearsal.
struct Worker {
    observer: Observer,
    /// Its place with the learner.
    place: usize,
    /// Picks those of the samples kept that a run would have made.
    thinner: Sampler,
    set: Arc<HotSet>,
    /// Units taken since reading was to be even; none once there are no more.
    taken: Option<u64>,
    at: Option<Place>,
    /// Rows of hot keys that it has aggregated.
    hot_rows: u64,
}

/// Where a worker is: a unit, its next batch, and that one's first sample.
#[derive(Clone, Copy)]
struct Place {
    unit: usize,
    batch: usize,
    sample: usize,
}

/// A run over sampled rows.
struct Rehearsal<'a> {
    units: &'a [UnitSample],
    sampled_share: (u64, u64),
    learner: Learner,
    set: Arc<HotSet>,
    workers: Vec<Worker>,
    random: u64,
    /// The next unit to be taken.
    next: usize,
    rows_seen: u64,
    even: bool,
    /// Rows of each key that were aggregated where they were read.
    hot_rows: HashMap<u64, u64>,
}

impl<'a> Rehearsal<'a> {
    fn new(sample: &'a StreamSample, workers: u32, seed: u64) -> Result<Self, ConfigError> {
        let count = u16::try_from(workers).expect("at most WORKERS_MAX");
        let mut learner = Learner::new(Policy::new(PolicyConfig::new(count))?);
        let set = Arc::new(learner.policy().current());
        let mut random = seed;
        let workers = (0..workers).map(|_| Worker {
            observer: Observer::new(0),
            place: learner.join(),
            thinner: Sampler::new(DENSER, splitmix64(&mut random)),
            set: Arc::clone(&set),
            taken: Some(0),
            at: None,
            hot_rows: 0,
        });
        let workers = workers.collect();
        let all = sample.units.iter().map(UnitSample::rows).sum();
        Ok(Self {
            units: &sample.units,
            sampled_share: (sample.rows_sampled(), all),
            learner,
            set,
            workers,
            random,
            next: 0,
            rows_seen: 0,
            even: false,
            hot_rows: HashMap::new(),
        })
    }

    /// Lets all workers take one batch in turn, each time in another order, until there is no more.
    fn run(&mut self) {
        let mut order = (0..self.workers.len()).collect::<Vec<_>>();
        while self.workers.iter().any(|worker| worker.taken.is_some()) {
            for last in (1..order.len()).rev() {
                let other = splitmix64(&mut self.random) % (last as u64 + 1);
                order.swap(last, usize::try_from(other).expect("at most `last`"));
            }
            for worker in &order {
                self.step(*worker);
            }
        }
    }

    fn step(&mut self, number: usize) {
        if self.workers[number].at.is_none() && !self.take_unit(number) {
            return;
        }
        let worker = &mut self.workers[number];
        let Some(place) = &mut worker.at else { return };
        let unit = &self.units[place.unit];
        let (rows, samples) = unit.batches[place.batch];
        let hashes = &unit.hashes[place.sample..][..samples as usize];
        place.batch += 1;
        place.sample += hashes.len();
        if place.batch == unit.batches.len() {
            worker.at = None;
        }
        let samples_first = worker.observer.is_new();
        if samples_first {
            self.sample(number, hashes, unit.every);
        }
        let worker = &mut self.workers[number];
        worker.set = Arc::clone(&self.set);
        for hash in hashes {
            if worker.set.find(*hash).is_some() {
                worker.hot_rows += u64::from(unit.every);
                *self.hot_rows.entry(*hash).or_default() += u64::from(unit.every);
            }
        }
        if !samples_first {
            self.sample(number, hashes, unit.every);
        }
        self.rows_seen += u64::from(rows);
    }

    /// Whether the worker has a unit now.
    fn take_unit(&mut self, number: usize) -> bool {
        let even = !self.set.is_empty();
        if even && !self.even {
            for worker in &mut self.workers {
                let at_hand = u64::from(worker.at.is_some());
                worker.taken = worker.taken.map(|_| at_hand);
            }
        }
        self.even = even;
        let least = self.workers.iter().filter_map(|worker| worker.taken).min();
        let Some((own, least)) = self.workers[number].taken.zip(least) else { return false };
        if even && is_ahead(own, least) {
            return false;
        }
        let worker = &mut self.workers[number];
        while let Some(unit) = self.units.get(self.next) {
            let place = Place { unit: self.next, batch: 0, sample: 0 };
            self.next += 1;
            if !unit.batches.is_empty() {
                worker.taken = Some(own + 1);
                worker.at = Some(place);
                return true;
            }
        }
        worker.taken = None;
        false
    }

    fn sample(&mut self, number: usize, hashes: &[u64], every: u32) {
        let worker = &mut self.workers[number];
        worker.observer.follow(self.rows_seen);
        if every == DENSE_EVERY {
            let Worker { thinner, observer, .. } = worker;
            thinner.sample(hashes.len(), |at| observer.offer(hashes[at], 0));
        } else {
            for hash in hashes {
                worker.observer.offer(*hash, 0);
            }
        }
        if worker.observer.is_due() {
            let sketch = worker.observer.sketch();
            if let Some(set) = self.learner.take_in(worker.place, sketch, self.rows_seen) {
                self.set = Arc::new(set);
            }
            worker.observer.reported();
        }
    }

    /// Rows of each worker: hot ones where they were read, all others at the owner of their key. Rows of keys
    /// are those that were counted; what part of them was hot, and where, is known from samples.
    fn loads(&self, profile: &Profile) -> Vec<u64> {
        let (subtasks, groups) = (profile.config.parallelism, profile.config.max_parallelism);
        let mut loads = profile.counted.native.rows_of_subtasks(subtasks);
        let counted = profile.top.iter().map(|key| (key.native_hash, key.rows));
        let counted = counted.collect::<HashMap<_, _>>();
        let mut sampled = HashMap::<u64, u64>::new();
        for unit in self.units {
            for hash in unit.hashes.iter().filter(|hash| self.hot_rows.contains_key(*hash)) {
                *sampled.entry(*hash).or_default() += u64::from(unit.every);
            }
        }
        let (rows_sampled, rows_all) = self.sampled_share;
        let part_sampled = to_f64(rows_sampled) / to_f64(rows_all.max(1));
        let mut spread = 0;
        for (hash, hot) in &self.hot_rows {
            let sampled = sampled.get(hash).copied().unwrap_or(*hot).max(1);
            let hot_part = to_f64(*hot) / to_f64(sampled);
            // Behind the last sample nothing changes any more.
            let hot_later = if self.set.find(*hash).is_some() { 1.0 } else { 0.0 };
            let hot_part = part_sampled * hot_part + (1.0 - part_sampled) * hot_later;
            let rows = counted.get(hash).copied().unwrap_or(sampled);
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "a part of the key's rows"
            )]
            let rows = (to_f64(rows) * hot_part).round() as u64;
            let group = crate::key::group::key_group(*hash, groups);
            let load = &mut loads[usize::from(shard_of_group(group, subtasks, groups))];
            let rows = rows.min(*load);
            *load -= rows;
            spread += rows;
        }
        let all = self.workers.iter().map(|worker| worker.hot_rows).sum::<u64>().max(1);
        let (mut before, mut given) = (0, 0);
        for (load, worker) in loads.iter_mut().zip(&self.workers) {
            before += worker.hot_rows;
            let until = u128::from(spread) * u128::from(before) / u128::from(all);
            let until = u64::try_from(until).expect("at most all hot rows");
            *load += until - given;
            given = until;
        }
        loads
    }
}
