//! What keeps the inputs of a run together in event time.

use std::time::Duration;

/// Watermark alignment of the inputs of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alignment {
    /// How far the inputs of a group may be apart in event time.
    pub(crate) max_drift: Duration,
    /// How often the group's last input is looked for.
    pub(crate) update_interval: Duration,
    /// Group of each input; those beyond the end are in group 0.
    pub(crate) groups: Vec<u32>,
}

impl Alignment {
    /// All inputs in one group, at most `max_drift` apart, looked at every millisecond.
    pub fn new(max_drift: Duration) -> Self {
        Self { max_drift, update_interval: Duration::from_millis(1), groups: Vec::new() }
    }

    /// How often the group's last input is looked for. Default: every millisecond.
    #[must_use]
    pub fn update_interval(mut self, interval: Duration) -> Self {
        self.update_interval = interval;
        self
    }

    /// The group of each input, in the order in which sources are given or handles are opened; inputs beyond
    /// the end are in group 0. Default: all are in group 0.
    #[must_use]
    pub fn groups(mut self, groups: impl IntoIterator<Item = u32>) -> Self {
        self.groups = groups.into_iter().collect();
        self
    }
}
