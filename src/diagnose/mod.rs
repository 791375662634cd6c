//! Diagnosis of skew: what a stream's keys do to the subtasks of a job, and what each cure would do about
//! it. Pure logic over counts: no files, no threads, no clock.
//!
//! The way of a diagnosis: keys with their counts (from the engine's own aggregation) go through
//! [`placement`] into a [`profile`] and, by window, into [`windows`]; [`findings`] names the faces of skew that it
//! shows; [`predict`] replays it through every cure, and [`rehearsal`] through Saltmill itself; [`advice`] says
//! what to do, and [`flink_sql`] how to write that down for Flink. Where there are too many keys to count,
//! [`bounded`] takes the place of the aggregation, with key groups counted exactly and heavy keys within bounds.

pub mod placement;
pub mod top;
pub mod profile;
pub mod bounded;
pub mod windows;
pub mod findings;
pub mod rehearsal;
pub mod predict;
pub mod advice;
pub mod flink_sql;
#[cfg(test)]
mod tests;

use advice::Advice;
use findings::Findings;
use predict::Prediction;
use profile::Profile;
use rehearsal::StreamSample;
use windows::Windows;

use crate::error::ConfigError;

/// Everything that is known and advised about a stream.
#[derive(Debug, Clone)]
pub struct Diagnosis {
    /// What was counted.
    pub profile: Profile,
    /// The same by window.
    pub windows: Option<Windows>,
    /// The faces of skew.
    pub findings: Findings,
    /// What each cure would come to.
    pub predictions: Vec<Prediction>,
    /// What to do.
    pub advice: Advice,
}

impl Diagnosis {
    /// Diagnoses what was counted. Without a sample, what Saltmill would come to while it learns is not
    /// predicted.
    ///
    /// # Errors
    /// If a salted key cannot be placed.
    pub fn new(
        profile: Profile,
        windows: Option<Windows>,
        sample: Option<&StreamSample>,
    ) -> Result<Self, ConfigError> {
        let findings = Findings::new(&profile, windows.as_ref());
        let predictions = predict::predictions(&profile, sample)?;
        let advice = Advice::new(&profile, &findings, &predictions);
        Ok(Self { profile, windows, findings, predictions, advice })
    }
}
