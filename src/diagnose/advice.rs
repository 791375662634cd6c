//! What to do, in the order in which it should be tried: nothing, if nothing is wrong; two-phase
//! aggregation; aggregation before the exchange; salting; sidetracking for a key above half of the rows;
//! alignment of watermarks where the skew is in event time. And what people try that does not help.

use super::findings::{Face, Findings, MILD_MAX_OVER_MEAN, of_fair_share};
use super::predict::{Cure, Prediction, sidetracked};
use super::profile::{Profile, TopKey};
use crate::runtime::report::KeyValue;
use crate::skew::decision::percent;
use crate::skew::policy::salts_for;

/// A cure is enough if the busiest subtask then has at most this many times the mean, ..
const GOOD_MAX_OVER_MEAN: f64 = 1.25;
/// .. or if it takes away this part of the excess.
const GOOD_PART_OF_EXCESS: f64 = 0.8;

/// A key with a larger share is worth a way of its own.
const SIDETRACK_SHARE: f64 = 0.5;

/// Something to do, or not to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// In a few words.
    pub title: String,
    /// What, and why.
    pub text: String,
}

/// What to do and what not.
#[derive(Debug, Clone, PartialEq)]
pub struct Advice {
    /// The diagnosis in a sentence or two.
    pub summary: String,
    /// In the order to try; the first is the recommendation.
    pub steps: Vec<Step>,
    /// What does not help, with the reason.
    pub anti_patterns: Vec<Step>,
    /// Salts for hand-written salting, if it is among the steps.
    pub salts: Option<u16>,
}

/// A key as people write it.
pub fn key_text(key: &[KeyValue]) -> String {
    let shown = key.iter().map(|value| match value {
        KeyValue::Text(text) if text.trim().len() != text.len() || text.is_empty() => {
            format!("\"{text}\"")
        }
        other => other.to_string(),
    });
    shown.collect::<Vec<_>>().join(", ")
}

fn step(title: &str, text: String) -> Step {
    Step { title: title.to_owned(), text }
}

fn ratio(value: f64) -> String {
    format!("{value:.2}")
}

impl Advice {
    /// From what was found and what the cures would come to.
    pub fn new(profile: &Profile, findings: &Findings, predictions: &[Prediction]) -> Self {
        let adviser = Adviser { profile, findings, predictions };
        let salts = adviser.salts();
        let is_uneven = findings.has(Face::KeySkew) || findings.has(Face::FewKeys);
        Self {
            summary: adviser.summary(),
            steps: adviser.steps(salts),
            anti_patterns: adviser.anti_patterns(),
            salts: is_uneven.then_some(salts),
        }
    }
}

struct Adviser<'a> {
    profile: &'a Profile,
    findings: &'a Findings,
    predictions: &'a [Prediction],
}

impl Adviser<'_> {
    fn prediction(&self, wanted: impl Fn(Cure) -> bool) -> Option<&Prediction> {
        self.predictions.iter().find(|prediction| wanted(prediction.cure))
    }

    fn subtasks(&self) -> u32 {
        self.profile.config.parallelism
    }

    fn max_over_mean(&self) -> f64 {
        self.findings.imbalance.max_over_mean
    }

    fn is_mild(&self) -> bool {
        self.max_over_mean() < MILD_MAX_OVER_MEAN
    }

    /// Salts for all keys: the least that bring the load near even, else what the heaviest key needs.
    fn salts(&self) -> u16 {
        let good = self.predictions.iter().find_map(|prediction| match prediction.cure {
            Cure::Salting(salts) if self.is_good(prediction) => Some(salts),
            _ => None,
        });
        let workers = u16::try_from(self.subtasks()).expect("at most 2^15 subtasks");
        let share = self.profile.top.first().map_or(0.0, |key| self.profile.share(key.rows));
        good.unwrap_or_else(|| salts_for(share, workers))
    }

    fn is_good(&self, prediction: &Prediction) -> bool {
        // As if all rows were even: what the busiest subtask has left to lose.
        let now = self.max_over_mean();
        let then = now / prediction.speed_up.max(f64::MIN_POSITIVE);
        then <= GOOD_MAX_OVER_MEAN || (now - then) >= GOOD_PART_OF_EXCESS * (now - 1.0)
    }

    fn summary(&self) -> String {
        let (findings, subtasks) = (self.findings, self.subtasks());
        let busiest = format!(
            "the busiest of {subtasks} subtasks gets {} times the mean",
            ratio(self.max_over_mean())
        );
        let mut parts = Vec::new();
        for face in &findings.faces {
            parts.push(match face {
                Face::EvenlyBusy => format!("no key skew: {busiest}"),
                Face::KeySkew => format!("key skew: {busiest}, because of {}", self.culprits()),
                Face::UnevenGroups => format!(
                    "uneven key groups: {} key groups on {subtasks} subtasks, some own {}, some {}; \
                     {busiest}",
                    findings.fit.max_parallelism, findings.fit.groups_max, findings.fit.groups_min
                ),
                Face::FewKeys => format!(
                    "few keys: {} keys, of which {:.0} alike would be as uneven, do not spread evenly \
                     over {subtasks} subtasks; {busiest}, and no single key is the reason",
                    self.profile.counted.keys, self.profile.counted.effective_keys
                ),
                Face::TimeSkew => {
                    let worst = &findings.hot_windows[0];
                    format!(
                        "time skew: in {} key {} has {} of the rows, {} of the whole stream",
                        windows_text(findings.hot_windows.len()),
                        key_text(&worst.key),
                        percent(worst.share),
                        percent(worst.share_overall),
                    )
                }
            });
        }
        parts.join("; ")
    }

    /// The keys that make their subtask the busiest.
    fn culprits(&self) -> String {
        let busiest = self.findings.loads.iter().zip(0_u16..).max_by_key(|(rows, _)| **rows);
        let subtask = busiest.map_or(0, |(_, subtask)| subtask);
        let all = self.findings.hot.iter().filter(|key| key.subtask == subtask).collect::<Vec<_>>();
        let named = all.iter().take(3).map(|key| self.named(key)).collect::<Vec<_>>();
        match (named.len(), all.len()) {
            (0, _) => "its hot keys together".to_owned(),
            (_, more) if more > 3 => format!("keys {} and {} more", named.join(", "), more - 3),
            (1, _) => format!("key {}", named[0]),
            _ => format!("keys {}", named.join(" and ")),
        }
    }

    fn named(&self, key: &TopKey) -> String {
        let share = self.profile.share(key.rows);
        let fair = of_fair_share(self.profile, key.rows);
        format!("{} ({}, {fair:.2} times a fair share)", key_text(&key.key), percent(share))
    }

    fn steps(&self, salts: u16) -> Vec<Step> {
        let mut steps = Vec::new();
        let findings = self.findings;
        if findings.has(Face::UnevenGroups) {
            steps.push(self.better_groups());
        }
        if !findings.defaults.is_empty() && !findings.has(Face::EvenlyBusy) {
            steps.push(self.defaults());
        }
        if findings.has(Face::EvenlyBusy) {
            steps.push(self.nothing());
        } else if self.is_mild() && !findings.has(Face::UnevenGroups) {
            steps.push(self.leave_it());
            steps.push(self.two_phase("If it hurts all the same: two-phase aggregation"));
        } else if findings.has(Face::KeySkew) {
            self.cures(salts, &mut steps);
        } else if findings.has(Face::FewKeys) {
            steps.push(self.two_phase("Two-phase aggregation"));
            steps.push(self.salting(salts));
        }
        if findings.has(Face::TimeSkew) {
            steps.push(self.time_skew());
        }
        steps
    }

    fn nothing(&self) -> Step {
        step(
            "Nothing to do about keys",
            format!(
                "No salting is needed: the busiest subtask has {} times the mean load. If the job is slow, all \
                 subtasks are about equally busy: the operator is slow or there are too few of them; \
                 profile it, or raise the parallelism.",
                ratio(self.max_over_mean())
            ),
        )
    }

    fn leave_it(&self) -> Step {
        step(
            "Leave it",
            format!(
                "No salting is needed at this parallelism: the skew is mild. An even load would be {} times as \
                 fast at best, and each salt costs state and a second exchange.",
                ratio(self.max_over_mean())
            ),
        )
    }

    /// The cures for hot keys, in their order; one that is enough ends the list of those to try first.
    fn cures(&self, salts: u16, steps: &mut Vec<Step>) {
        steps.push(self.two_phase("Two-phase aggregation"));
        steps.push(step(
            "Aggregate before the exchange",
            "In a DataStream job, which has no local phase of its own: a keyed pre-aggregation in a map \
             operator, bounded by rows and by time, does the same as two-phase SQL. Larger mini-batches \
             send less of a hot key: each sends it once."
                .to_owned(),
        ));
        steps.push(self.salting(salts));
        if self.profile.top.first().is_some_and(|k| self.profile.share(k.rows) > SIDETRACK_SHARE) {
            steps.push(self.sidetracking());
        } else if !sidetracked(self.profile).is_empty() {
            let Step { text, .. } = self.sidetracking();
            steps.push(step("Or salt the hot keys only", text));
        }
    }

    fn outcome(&self, prediction: Option<&Prediction>) -> String {
        let Some(prediction) = prediction else { return String::new() };
        let verdict = if self.is_good(prediction) { "" } else { ", which is not enough alone" };
        format!(
            "predicted max/mean {} (now {}), {} times as fast{verdict}",
            ratio(prediction.imbalance.max_over_mean),
            ratio(self.max_over_mean()),
            ratio(prediction.speed_up),
        )
    }

    fn two_phase(&self, title: &str) -> Step {
        let found = self.prediction(|cure| cure == Cure::TwoPhase);
        let sent = found.map_or(0, |found| found.loads.iter().sum::<u64>());
        step(
            title,
            format!(
                "Every subtask aggregates mini-batches of {} rows before the exchange, so that a hot key is sent \
                 once per batch: {} of the rows cross it; {}. Needs aggregates that can be merged: count, \
                 sum, min, max, avg do; a count of distinct values needs split distinct.",
                self.profile.config.mini_batch_rows,
                percent(self.profile.share(sent)),
                self.outcome(found),
            ),
        )
    }

    fn salting(&self, salts: u16) -> Step {
        let found = self.prediction(|cure| cure == Cure::Salting(salts));
        step(
            "Salting",
            format!(
                "A second key column with {salts} salts, partial aggregates per key and salt, then merged per \
                 key: {}. Each salt costs state and merging; fewer may collide in one subtask.",
                self.outcome(found)
            ),
        )
    }

    fn sidetracking(&self) -> Step {
        let hot = sidetracked(self.profile);
        let found = self.prediction(|cure| matches!(cure, Cure::Sidetracking { .. }));
        let named = hot.iter().take(5).map(|key| key_text(&key.key)).collect::<Vec<_>>().join("; ");
        let more =
            if hot.len() > 5 { format!(" and {} more", hot.len() - 5) } else { String::new() };
        step(
            "Sidetracking",
            format!(
                "A way of its own for the hot keys ({named}{more}), salted, while all others stay as they are: \
                 {}. The list has to be kept up to date as keys heat and cool.",
                self.outcome(found)
            ),
        )
    }

    fn defaults(&self) -> Step {
        let keys = self.findings.defaults.iter().take(5);
        let keys = keys.map(|key| self.named(key)).collect::<Vec<_>>().join("; ");
        step(
            "Look at keys that stand for \"not known\"",
            format!(
                "{keys}: usually not a key at all. If its result means nothing, filter its rows out or aggregate \
                 them apart before anything else; that costs nothing and may be all there is to do."
            ),
        )
    }

    fn better_groups(&self) -> Step {
        let fit = &self.findings.fit;
        let better = fit.better.map_or_else(
            || format!("Use a parallelism that divides {}", fit.max_parallelism),
            |better| {
                let found = self.prediction(|cure| cure == Cure::MaxParallelism(better));
                format!(
                    "With {better} key groups each owns {}: {}",
                    better / fit.workers,
                    self.outcome(found)
                )
            },
        );
        step(
            "A number of key groups that divides evenly",
            format!(
                "{better}. It is fixed for the life of the state, so it takes a restart without."
            ),
        )
    }

    fn time_skew(&self) -> Step {
        let worst = &self.findings.hot_windows[0];
        step(
            "Skew in event time",
            format!(
                "In single windows one key takes over ({}, max/mean {} there), which averages over the whole \
                 stream hide. Cures chosen once do not fit: two-phase aggregation and adaptive salting do, \
                 lists of hot keys do not. If inputs run apart in event time, align their watermarks \
                 (WATERMARK ALIGNMENT, scan.watermark.alignment.*), so that one cannot flood windows that \
                 the others have not reached.",
                key_text(&worst.key),
                ratio(worst.imbalance.max_over_mean),
            ),
        )
    }

    fn anti_patterns(&self) -> Vec<Step> {
        if !self.findings.has(Face::KeySkew) && !self.findings.has(Face::UnevenGroups) {
            return Vec::new();
        }
        let mut found = Vec::new();
        let more = self.predictions.iter().rev();
        let more = more.filter_map(|p| match p.cure {
            Cure::Parallelism(subtasks) if subtasks > self.subtasks() => Some((subtasks, p)),
            _ => None,
        });
        if let Some((subtasks, prediction)) = more.max_by_key(|(subtasks, _)| *subtasks) {
            found.push(step(
                "More parallelism alone",
                format!(
                    "All rows of a key go to one subtask, however many there are: {subtasks} subtasks instead of \
                     {} would be {} times as fast, at max/mean {}.",
                    self.subtasks(),
                    ratio(prediction.speed_up),
                    ratio(prediction.imbalance.max_over_mean)
                ),
            ));
        }
        if let Some(prediction) = self.prediction(|cure| cure == Cure::Rehash) {
            found.push(step(
                "Hashing the key again, or another hash",
                format!(
                    "Equal keys have equal hashes; a hot key only moves to another subtask: max/mean {} instead \
                     of {}.",
                    ratio(prediction.imbalance.max_over_mean),
                    ratio(self.max_over_mean())
                ),
            ));
        }
        found.push(step(
            "Random rebalance",
            "rebalance() or shuffle() before the aggregation evens the operators in front of the exchange only: the \
             exchange by key behind it brings every row of a key together again. Without that exchange the \
             results are wrong."
                .to_owned(),
        ));
        found
    }
}

fn windows_text(count: usize) -> String {
    if count == 1 { "1 window".to_owned() } else { format!("{count} windows, as in the worst,") }
}
