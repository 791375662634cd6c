//! What a job may not be, said before anything is started.

use super::{JobBuilder, SkewMode, Window, positive};
use crate::error::ConfigError;

impl JobBuilder {
    pub(super) fn validate_limits(&self) -> Result<(), ConfigError> {
        positive("ring capacity", self.ring_capacity, 1 << 16)?;
        positive("batch size", self.batch_rows, 1 << 24)?;
        positive("memory limit", usize::from(self.memory_limit != Some(0)), usize::MAX)?;
        if self.memory_limit.is_none() && self.spill_dir.is_some() {
            let text =
                "a spill directory is for state beyond a memory limit; set one (--memory-limit)";
            return Err(ConfigError::Inconsistent(text.to_owned()));
        }
        positive("limit of open windows", self.open_windows_max, usize::MAX)
    }

    /// Refuses readers of what has no rows of a fixed size.
    pub(super) fn validate_readers(&self) -> Result<(), ConfigError> {
        let (what, instead) = match (&self.process, self.window) {
            _ if !self.readers => return Ok(()),
            _ if self.memory_limit.is_some() => (
                "a reader of state that may be on disk",
                "leave the memory limit out, or take results into a `Latest`",
            ),
            (Some(_), _) => {
                ("a reader of the state of a process", "let the process give what is to be seen")
            }
            (None, Window::Session { .. }) => (
                "a reader of session windows",
                "take early results (emit_every) into a `Latest`, or `Engine::snapshot`",
            ),
            _ => return Ok(()),
        };
        Err(ConfigError::Unsupported { what: what.to_owned(), instead: instead.to_owned() })
    }

    /// Refuses a job with nothing to do, and what a process has no use for.
    pub(super) fn validate_process(&mut self) -> Result<(), ConfigError> {
        if self.process.is_none() {
            if self.aggregates.is_empty() {
                return Err(ConfigError::Inconsistent(
                    "the job has no aggregate; ask for at least one, for example count".into(),
                ));
            }
            return Ok(());
        }
        let refused = [
            (!self.aggregates.is_empty(), "aggregates: it takes their place"),
            (self.window != Window::None, "windows: it sets timers of its own"),
            (self.emit_every.is_some(), "early results: it gives rows when it likes"),
            (self.memory_limit.is_some(), "memory limit: its state cannot be written to disk"),
            (
                matches!(self.skew, SkewMode::TwoPhase | SkewMode::Hot(_)),
                "hot keys: its state has one writer; leave the skew mode out",
            ),
        ];
        if let Some((_, what)) = refused.iter().find(|(given, _)| *given) {
            return Err(ConfigError::Inconsistent(format!("a job with a process has no {what}")));
        }
        self.skew = SkewMode::Off;
        Ok(())
    }
}
