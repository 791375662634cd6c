//! The faces of skew: which of them a stream shows.

use super::profile::{Profile, TopKey, by_subtask, to_f64};
use super::windows::{HotWindow, Windows};
use crate::runtime::report::KeyValue;
use crate::skew::imbalance::{GroupFit, Imbalance};

/// Busiest subtask over the mean below which a load counts as even.
pub const EVEN_MAX_OVER_MEAN: f64 = 1.1;

/// The same for a load that is not worth a cure.
pub const MILD_MAX_OVER_MEAN: f64 = 1.5;

/// A key is hot if it has this part of a subtask's fair share.
pub const HOT_OF_FAIR_SHARE: f64 = 0.25;

/// A key alone makes its subtask the busiest if it has this part of a fair share, ..
const ALONE_OF_FAIR_SHARE: f64 = 0.5;

/// .. and so many times the rows of a mean key: among a handful of like keys none is hot.
const ALONE_OF_MEAN: f64 = 2.0;

/// Keys that look like nobody in particular are called out from this share on, ..
const DEFAULT_SHARE_MIN: f64 = 0.001;
/// .. if they have so many times the rows of a mean key.
const DEFAULT_OF_MEAN: f64 = 5.0;

/// Texts that stand for "not known", in lower case.
const DEFAULT_TEXTS: [&str; 14] = [
    "",
    "-",
    "--",
    "?",
    "guest",
    "unknown",
    "n/a",
    "na",
    "nan",
    "none",
    "null",
    "undefined",
    "anonymous",
    "default",
];

/// A way to be skewed, or not to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Face {
    /// The subtasks are about equally busy.
    EvenlyBusy,
    /// A few keys have so many rows that their subtasks are busier than the others.
    KeySkew,
    /// Some subtasks own more key groups than others.
    UnevenGroups,
    /// There are too few keys to spread them evenly.
    FewKeys,
    /// Some windows are far less even than the whole.
    TimeSkew,
}

impl Face {
    /// Name in JSON.
    pub fn id(self) -> &'static str {
        match self {
            Self::EvenlyBusy => "evenly_busy",
            Self::KeySkew => "key_skew",
            Self::UnevenGroups => "uneven_key_groups",
            Self::FewKeys => "few_keys",
            Self::TimeSkew => "time_skew",
        }
    }
}

/// Hot keys that one subtask owns together.
#[derive(Debug, Clone, PartialEq)]
pub struct Collision {
    /// The subtask.
    pub subtask: u16,
    /// The keys, heaviest first.
    pub keys: Vec<TopKey>,
    /// Rows of all of them, in times a subtask's fair share.
    pub of_fair_share: f64,
}

/// What was found.
#[derive(Debug, Clone, PartialEq)]
pub struct Findings {
    /// Rows of each subtask.
    pub loads: Vec<u64>,
    /// Keys of each subtask.
    pub keys: Vec<u64>,
    /// Unevenness of the rows.
    pub imbalance: Imbalance,
    /// What it would be without the hot keys.
    pub without_hot: Imbalance,
    /// How the key groups divide.
    pub fit: GroupFit,
    /// Faces, the gravest first; [`Face::EvenlyBusy`] stands alone or before time skew.
    pub faces: Vec<Face>,
    /// Hot keys, heaviest first.
    pub hot: Vec<TopKey>,
    /// Hot keys that meet in one subtask.
    pub collisions: Vec<Collision>,
    /// Heavy keys that look like "not known", heaviest first.
    pub defaults: Vec<TopKey>,
    /// Keys that are hot in some windows only.
    pub hot_windows: Vec<HotWindow>,
}

impl Findings {
    /// Looks at a profile, and at its windows if it was counted by window.
    pub fn new(profile: &Profile, windows: Option<&Windows>) -> Self {
        let subtasks = profile.config.parallelism;
        let loads = profile.loads();
        let fair = to_f64(profile.counted.rows) / f64::from(subtasks);
        let hot = profile.top.iter();
        let hot = hot.take_while(|key| to_f64(key.rows) >= HOT_OF_FAIR_SHARE * fair);
        let hot = hot.cloned().collect::<Vec<_>>();
        let mut cold = loads.clone();
        for key in &hot {
            let load = &mut cold[usize::from(key.subtask)];
            *load = load.saturating_sub(key.rows);
        }
        let mut findings = Self {
            keys: by_subtask(&profile.counted.groups.keys, subtasks),
            imbalance: Imbalance::of(&loads),
            without_hot: Imbalance::of(&cold),
            fit: GroupFit::new(profile.config.max_parallelism, subtasks),
            faces: Vec::new(),
            collisions: collisions(&hot, fair),
            defaults: defaults(profile),
            hot_windows: windows.map_or_else(Vec::new, |windows| windows.hot_only_here(profile)),
            loads,
            hot,
        };
        findings.faces = findings.judge(profile);
        findings
    }

    fn judge(&self, profile: &Profile) -> Vec<Face> {
        let mut faces = Vec::new();
        let excess = |ratio: f64| ratio - 1.0;
        let all = excess(self.imbalance.max_over_mean);
        if all <= excess(EVEN_MAX_OVER_MEAN) {
            faces.push(Face::EvenlyBusy);
        } else {
            let cold = excess(self.without_hot.max_over_mean);
            let groups = excess(self.fit.max_over_mean);
            if cold <= all / 2.0 && self.busiest_has_a_hot_key(profile) {
                faces.push(Face::KeySkew);
            }
            // Without hot keys, unless they are many, only the groups are left as a reason.
            if groups > excess(EVEN_MAX_OVER_MEAN) && groups >= cold / 2.0 {
                faces.push(Face::UnevenGroups);
            }
            if faces.is_empty() {
                faces.push(if self.busiest_has_a_hot_key(profile) {
                    Face::KeySkew
                } else {
                    Face::FewKeys
                });
            }
        }
        if !self.hot_windows.is_empty() {
            faces.push(Face::TimeSkew);
        }
        faces
    }

    /// Whether the busiest subtask owns a key that alone explains it; many middling ones are another matter.
    fn busiest_has_a_hot_key(&self, profile: &Profile) -> bool {
        let mean = to_f64(profile.counted.rows) / to_f64(profile.counted.keys.max(1));
        let busiest = self.loads.iter().max().copied().unwrap_or(0);
        // Of equals, any will do.
        self.hot.iter().any(|key| {
            self.loads[usize::from(key.subtask)] == busiest
                && of_fair_share(profile, key.rows) >= ALONE_OF_FAIR_SHARE
                && to_f64(key.rows) >= ALONE_OF_MEAN * mean
        })
    }

    /// Whether a face was found.
    pub fn has(&self, face: Face) -> bool {
        self.faces.contains(&face)
    }
}

fn collisions(hot: &[TopKey], fair: f64) -> Vec<Collision> {
    let mut collisions: Vec<Collision> = Vec::new();
    for key in hot {
        let of_fair_share = to_f64(key.rows) / fair.max(1.0);
        match collisions.iter_mut().find(|collision| collision.subtask == key.subtask) {
            Some(collision) => {
                collision.keys.push(key.clone());
                collision.of_fair_share += of_fair_share;
            }
            None => collisions.push(Collision {
                subtask: key.subtask,
                keys: vec![key.clone()],
                of_fair_share,
            }),
        }
    }
    // Two that are half a fair share together do no harm.
    collisions.retain(|collision| collision.keys.len() > 1 && collision.of_fair_share > 0.75);
    collisions.sort_by(|a, b| b.of_fair_share.total_cmp(&a.of_fair_share));
    collisions
}

fn defaults(profile: &Profile) -> Vec<TopKey> {
    let mean = to_f64(profile.counted.rows) / to_f64(profile.counted.keys.max(1));
    let heavy = |key: &&TopKey| {
        profile.share(key.rows) >= DEFAULT_SHARE_MIN && to_f64(key.rows) >= DEFAULT_OF_MEAN * mean
    };
    let keys = profile.top.iter().take_while(heavy);
    keys.filter(|key| key.key.iter().any(looks_like_nobody)).cloned().collect()
}

/// Whether a value is one that programs put where they do not know one.
pub fn looks_like_nobody(value: &KeyValue) -> bool {
    match value {
        KeyValue::Null => true,
        KeyValue::Integer(number) => matches!(number, 0 | -1),
        KeyValue::Float(number) => {
            number.is_nan() || [0.0, -1.0].iter().any(|known| (number - known).abs() < f64::EPSILON)
        }
        KeyValue::Text(text) => {
            let text = text.trim().to_lowercase();
            DEFAULT_TEXTS.contains(&text.as_str()) || matches!(text.as_str(), "0" | "-1")
        }
        KeyValue::Boolean(_) => false,
    }
}

/// Rows in times a fair share of the subtasks.
pub fn of_fair_share(profile: &Profile, rows: u64) -> f64 {
    profile.share(rows) * f64::from(profile.config.parallelism)
}
