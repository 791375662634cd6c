//! From estimates to decisions: which keys become hot, which cool down, and over how many salts.
//!
//! A key becomes hot for one of two causes, kept apart in every decision:
//!
//! - [`Cause::Balance`]: its certain share is at least [`Thresholds::balance`] divided by the
//!   square of the number of workers. That is far below a fair share on purpose: what spoils the
//!   balance in a long-tailed stream is not one key but the luck of a few dozen, of a few percent
//!   of a fair share each. The square, since the more workers there are, the less each carries and
//!   the unluckier the unluckiest is.
//! - [`Cause::Speed`]: a row of a key that is seen often costs 5-10 ns on the cold path, as its state stays
//!   in the nearest cache; on the hot path a fraction of a nanosecond, but each hot key costs 0.1-0.2 ns
//!   for *every* row, which is compared with it. So a key pays for itself from about one row in 40.
//!
//! **Invariants.** Only a share that is certain ([`Estimate::share_low`]) makes a key hot, so
//! chance does not (on uniform data over 1,000 keys or more nothing is promoted). A key cools down
//! below [`Thresholds::demote_ratio`] of the lower threshold and not before
//! [`PolicyConfig::stay_rows_min`] rows; as a share that can do both does not exist, a key at a
//! threshold does not flap. The set changes at most once per [`PolicyConfig::change_rows_min`]
//! rows and a few times more at the start, whatever the stream does, and never holds more than
//! [`PolicyConfig::hot_keys_max`] keys; the log is bounded too, and says how much it dropped.
//!
//! **Cost:** one hash-map entry per candidate and decision; nothing per row. Deterministic.
//!
//! **Not here:** when to ask (the engine does, every some ten thousand rows), and publishing the
//! set.

use std::collections::VecDeque;

use hashbrown::{HashMap, HashSet};

use super::decision::Decision;
use super::estimate::Estimate;
use super::hot_set::{Cause, HOT_KEYS_LIMIT, HOT_KEYS_MAX_DEFAULT, HotKey, HotSet};
use crate::error::ConfigError;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod simulation;

/// Most salts chosen by [`Salts::Auto`].
pub const SALTS_AUTO_MAX: u16 = 128;

/// Most salts that may be asked for.
pub const SALTS_LIMIT: u16 = 1_024;

/// How many partial aggregates a hot key gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Salts {
    /// Chosen from the key's share; see [`salts_for`].
    #[default]
    Auto,
    /// This many for every hot key.
    Fixed(u16),
}

impl Salts {
    /// Reads `auto` or a number.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        let number = text.parse().ok().filter(|salts| (1..=SALTS_LIMIT).contains(salts));
        number.map(Self::Fixed).ok_or_else(|| ConfigError::Syntax {
            what: "number of salts",
            text: text.to_owned(),
            why: format!("expected auto or a number from 1 to {SALTS_LIMIT}"),
        })
    }
}

/// The first two changes of the set are at least this part of [`PolicyConfig::change_rows_min`] apart, and
/// the next ones as far as they are into the run, until that is all of it.
const CHANGE_ROWS_FIRST: u64 = 8;

/// Shares at which keys become hot and cool down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// Hot for balance: certain share of all rows, times the square of the number of workers.
    pub balance: f64,
    /// Hot for balance: certain share of all rows, whatever the number of workers.
    pub balance_share_min: f64,
    /// Hot for speed: certain share of all rows. 1 or more switches this cause off.
    pub speed_share: f64,
    /// Cools down below this part of the lower of the two thresholds.
    pub demote_ratio: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            balance: 0.07,
            balance_share_min: 1.0 / 900.0,
            speed_share: 1.0 / 40.0,
            demote_ratio: 0.4,
        }
    }
}

/// Settings of a [`Policy`].
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyConfig {
    /// Workers (= shards) that share the load.
    pub workers: u16,
    /// Most hot keys at a time, given ones included.
    pub hot_keys_max: usize,
    /// Salts per hot key.
    pub salts: Salts,
    /// When keys become hot and cool down.
    pub thresholds: Thresholds,
    /// Rows that a key stays hot at least.
    pub stay_rows_min: u64,
    /// Rows between two changes of the set at least, but for the first few.
    pub change_rows_min: u64,
    /// Ended decisions that are remembered; the oldest are dropped and counted.
    pub log_max: usize,
    /// Hashes of keys that are hot from the first row to the last.
    pub given: Vec<u64>,
    /// Whether to promote other keys than the given ones.
    pub adaptive: bool,
}

impl PolicyConfig {
    /// The defaults for this many workers.
    pub fn new(workers: u16) -> Self {
        Self {
            workers,
            hot_keys_max: HOT_KEYS_MAX_DEFAULT,
            salts: Salts::Auto,
            thresholds: Thresholds::default(),
            stay_rows_min: 262_144,
            change_rows_min: 65_536,
            log_max: 4_096,
            given: Vec::new(),
            adaptive: true,
        }
    }

    fn check(&self) -> Result<(), ConfigError> {
        let refuse = |what, found: String, expected: &str| {
            Err(ConfigError::OutOfRange { what, found, expected: expected.to_owned() })
        };
        let t = &self.thresholds;
        let shares = [t.balance, t.balance_share_min, t.speed_share];
        if self.workers == 0 {
            return refuse("the number of workers", "0".into(), "at least 1");
        }
        if self.hot_keys_max > HOT_KEYS_LIMIT {
            let found = self.hot_keys_max.to_string();
            return refuse("the largest number of hot keys", found, "at most 4,096");
        }
        if self.given.len() > self.hot_keys_max {
            let found = self.given.len().to_string();
            let expected = format!("at most {}; name fewer keys", self.hot_keys_max);
            return refuse("the number of hot keys named beforehand", found, &expected);
        }
        if let Salts::Fixed(salts) = self.salts
            && !(1..=SALTS_LIMIT).contains(&salts)
        {
            return refuse("the number of salts", salts.to_string(), "1 to 1,024, or auto");
        }
        if let Some(share) = shares.iter().find(|s| s.is_nan() || **s <= 0.0) {
            return refuse("a threshold for hot keys", share.to_string(), "above 0");
        }
        if t.demote_ratio.is_nan() || t.demote_ratio < 0.0 || t.demote_ratio >= 1.0 {
            let found = t.demote_ratio.to_string();
            return refuse("the demotion ratio of hot keys", found, "at least 0 and below 1");
        }
        Ok(())
    }

    /// Certain share from which a key is hot for balance; out of reach with a single worker.
    pub fn balance_share(&self) -> f64 {
        if self.workers < 2 {
            return f64::INFINITY;
        }
        let fair = 1.0 / f64::from(self.workers);
        (self.thresholds.balance * fair * fair).max(self.thresholds.balance_share_min)
    }

    /// Share below which a key cools down.
    pub fn demote_share(&self) -> f64 {
        self.thresholds.demote_ratio * self.balance_share().min(self.thresholds.speed_share)
    }

    fn cause(&self, share_low: f64) -> Option<Cause> {
        if share_low >= self.balance_share() {
            Some(Cause::Balance)
        } else if share_low >= self.thresholds.speed_share {
            Some(Cause::Speed)
        } else {
            None
        }
    }

    fn salts(&self, share: f64) -> u16 {
        match self.salts {
            Salts::Auto => salts_for(share, self.workers),
            Salts::Fixed(salts) => salts,
        }
    }
}

/// Salts that a key of this share needs: twice its multiple of a fair share, as a power of two from
/// 2 to [`SALTS_AUTO_MAX`]. The factor 2 leaves each partial with at most half a worker's fair
/// share, so that it fits beside the worker's cold keys.
pub fn salts_for(share: f64, workers: u16) -> u16 {
    let wanted = 2.0 * share * f64::from(workers);
    let mut salts = 2;
    while f64::from(salts) < wanted && salts < SALTS_AUTO_MAX {
        salts *= 2;
    }
    salts
}

/// A key that is hot now.
#[derive(Debug, Clone)]
struct Member {
    /// Shares and salts as of the last estimate.
    now: Decision,
    /// As they were when the share was largest: what is remembered when the key has cooled down.
    peak: Decision,
    salts_since: u64,
}

/// Decides which keys are hot. See the module's documentation.
#[derive(Debug)]
pub struct Policy {
    config: PolicyConfig,
    epoch: u32,
    members: Vec<Member>,
    ended: VecDeque<Decision>,
    dropped: u64,
    changed_at: Option<u64>,
    /// Place of each candidate in the estimates; kept for its memory.
    places: HashMap<u64, usize>,
    /// Hashes of the members; likewise.
    hot: HashSet<u64>,
}

impl Policy {
    /// A policy whose first set, [`current`](Self::current), holds the given keys.
    pub fn new(mut config: PolicyConfig) -> Result<Self, ConfigError> {
        let mut seen = HashSet::new();
        config.given.retain(|&hash| seen.insert(hash));
        config.check()?;
        let member = |&hash: &u64| {
            let unknown =
                Estimate { hash, example: 0, share: 0.0, share_low: 0.0, share_high: 1.0 };
            // Nothing is known of its share yet: enough salts for a key that is all there is.
            Member::new(&unknown, 0, config.salts(1.0), Cause::Given)
        };
        let members = config.given.iter().map(member).collect();
        Ok(Self {
            config,
            epoch: 0,
            members,
            ended: VecDeque::new(),
            dropped: 0,
            changed_at: None,
            places: HashMap::new(),
            hot: HashSet::new(),
        })
    }

    /// Goes on with keys that were hot at a checkpoint, `rows_seen` rows into the run: they count as promoted just now,
    /// and stay hot until there is something to judge them by. Those that this run's settings have no room for, or
    /// would not promote at their share, are left out.
    pub fn resume(&mut self, hot: &[Estimate], rows_seen: u64) {
        if !self.config.adaptive {
            return;
        }
        for estimate in hot {
            let is_known = self.members.iter().any(|member| member.now.hash == estimate.hash);
            let Some(cause) = self.config.cause(estimate.share_low).filter(|_| !is_known) else {
                continue;
            };
            if self.members.len() < self.config.hot_keys_max {
                let salts = self.config.salts(estimate.share);
                self.members.push(Member::new(estimate, rows_seen, salts, cause));
                self.changed_at = Some(rows_seen);
            }
        }
        self.epoch += 1;
    }

    /// From now on so many workers share the load; what follows is decided next.
    pub fn set_workers(&mut self, workers: u16) {
        self.config.workers = workers.max(1);
    }

    /// The settings in force.
    pub fn config(&self) -> &PolicyConfig {
        &self.config
    }

    /// The set in force, as an own copy.
    pub fn current(&self) -> HotSet {
        HotSet::new(self.epoch, self.members.iter().map(Member::hot_key).collect())
    }

    /// Takes in the newest estimates (each key once, in any order), `rows_seen` rows into the run.
    /// Returns the new set if it is another one than before.
    pub fn decide(&mut self, estimates: &[Estimate], rows_seen: u64) -> Option<HotSet> {
        self.places.clear();
        self.places.extend(estimates.iter().enumerate().map(|(place, e)| (e.hash, place)));
        for member in &mut self.members {
            let estimate = self.places.get(&member.now.hash).map(|&place| estimates[place]);
            member.refresh(estimate, &self.config);
        }
        let wait = self.changed_at.map_or(0, |row| row + self.change_rows(row));
        if !self.config.adaptive || rows_seen < wait {
            return None;
        }
        let demoted = self.demote(rows_seen);
        let resalted = self.resalt(rows_seen);
        let promoted = self.promote(estimates, rows_seen);
        (demoted | resalted | promoted).then(|| {
            self.epoch += 1;
            self.changed_at = Some(rows_seen);
            self.current()
        })
    }

    /// Every decision that is remembered: ended ones in the order they ended, then those in force.
    pub fn decisions(&self) -> impl Iterator<Item = &Decision> {
        self.ended.iter().chain(self.members.iter().map(|member| &member.now))
    }

    /// How many keys are hot now.
    pub fn hot_keys(&self) -> usize {
        self.members.len()
    }

    /// How many decisions have ended: how often a key has cooled down.
    pub fn demotions(&self) -> u64 {
        self.ended.len() as u64 + self.dropped
    }

    /// Ended decisions that were dropped because the log was full.
    pub fn decisions_dropped(&self) -> u64 {
        self.dropped
    }

    /// Rows until the next change, after one at `row`: fewer at first, when little is known and a short stream
    /// has not much left.
    fn change_rows(&self, row: u64) -> u64 {
        let min = self.config.change_rows_min;
        row.clamp(min / CHANGE_ROWS_FIRST, min)
    }

    fn demote(&mut self, rows_seen: u64) -> bool {
        let below = self.config.demote_share();
        let mut changed = false;
        let mut place = 0;
        while place < self.members.len() {
            let member = &self.members[place];
            if member.now.share < below && self.may_leave(member, rows_seen) {
                self.end(place, rows_seen);
                changed = true;
            } else {
                place += 1;
            }
        }
        changed
    }

    fn may_leave(&self, member: &Member, rows_seen: u64) -> bool {
        member.now.cause != Cause::Given
            && rows_seen >= member.now.promoted_at_row + self.config.stay_rows_min
    }

    fn end(&mut self, place: usize, rows_seen: u64) {
        let mut decision = self.members.remove(place).peak;
        decision.demoted_at_row = Some(rows_seen);
        self.ended.push_back(decision);
        if self.ended.len() > self.config.log_max {
            self.ended.pop_front();
            self.dropped += 1;
        }
    }

    /// More salts as soon as a twentieth less of the share would still need them, fewer only when a
    /// quarter is enough, and not again at once: a share at a step of the salts does not make the
    /// set change to and fro.
    fn resalt(&mut self, rows_seen: u64) -> bool {
        let mut changed = false;
        for member in &mut self.members {
            if member.now.share <= 0.0 {
                continue;
            }
            let (share, salts) = (member.now.share, member.now.salts);
            let grow = self.config.salts(share * 0.95) > salts;
            let settled = rows_seen >= member.salts_since + self.config.stay_rows_min;
            let shrink = settled && self.config.salts(share) <= salts / 4;
            if grow || shrink {
                member.now.salts = self.config.salts(share);
                member.salts_since = rows_seen;
                member.remember_peak();
                changed = true;
            }
        }
        changed
    }

    fn promote(&mut self, estimates: &[Estimate], rows_seen: u64) -> bool {
        let mut hot = std::mem::take(&mut self.hot);
        hot.clear();
        hot.extend(self.members.iter().map(|member| member.now.hash));
        let mut wanted: Vec<(&Estimate, Cause)> = estimates
            .iter()
            .filter(|estimate| !hot.contains(&estimate.hash))
            .filter_map(|estimate| Some((estimate, self.config.cause(estimate.share_low)?)))
            .collect();
        self.hot = hot;
        wanted.sort_unstable_by(|(a, _), (b, _)| {
            b.share_low.total_cmp(&a.share_low).then(a.hash.cmp(&b.hash))
        });
        let mut changed = false;
        for (estimate, cause) in wanted {
            if self.members.len() >= self.config.hot_keys_max
                && !self.make_room(estimate.share_low, rows_seen)
            {
                break;
            }
            let salts = self.config.salts(estimate.share);
            self.members.push(Member::new(estimate, rows_seen, salts, cause));
            changed = true;
        }
        changed
    }

    /// Ends the stay of the smallest hot key if the newcomer is certainly at least twice as large.
    fn make_room(&mut self, share_low: f64, rows_seen: u64) -> bool {
        let smallest = (0..self.members.len())
            .filter(|&place| self.may_leave(&self.members[place], rows_seen))
            .min_by(|&a, &b| self.members[a].now.share.total_cmp(&self.members[b].now.share));
        match smallest {
            Some(place) if share_low >= 2.0 * self.members[place].now.share => {
                self.end(place, rows_seen);
                true
            }
            _ => false,
        }
    }
}

impl Member {
    fn new(estimate: &Estimate, row: u64, salts: u16, cause: Cause) -> Self {
        let now = Decision {
            hash: estimate.hash,
            example: estimate.example,
            promoted_at_row: row,
            demoted_at_row: None,
            share: estimate.share,
            share_low: estimate.share_low,
            share_high: estimate.share_high,
            salts,
            cause,
        };
        Self { peak: now.clone(), now, salts_since: row }
    }

    /// Takes in the newest estimate. A key without one has fallen below what the sketch tells
    /// apart.
    fn refresh(&mut self, estimate: Option<Estimate>, config: &PolicyConfig) {
        let Some(estimate) = estimate else {
            self.now.share = 0.0;
            self.now.share_low = 0.0;
            return;
        };
        self.now.example = estimate.example;
        self.now.share = estimate.share;
        self.now.share_low = estimate.share_low;
        self.now.share_high = estimate.share_high;
        if self.now.cause == Cause::Speed
            && config.cause(estimate.share_low) == Some(Cause::Balance)
        {
            self.now.cause = Cause::Balance;
        }
        self.remember_peak();
    }

    fn remember_peak(&mut self) {
        if self.now.share >= self.peak.share {
            self.peak = self.now.clone();
        }
    }

    fn hot_key(&self) -> HotKey {
        let now = &self.now;
        HotKey {
            hash: now.hash,
            example: now.example,
            salts: now.salts,
            cause: now.cause,
            share: now.share,
            share_low: now.share_low,
            share_high: now.share_high,
        }
    }
}
