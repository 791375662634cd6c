//! What a shard leaves to those that come after it, when the run is rescaled.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::windows::{OldPane, OpenWindows};
use crate::checkpoint::SectionImage;
use crate::time::window::Span;

/// What a shard leaves behind.
#[derive(Debug)]
pub(crate) struct ShardState {
    pub(crate) shard: usize,
    pub(crate) groups: RangeInclusive<u16>,
    pub(crate) kept: KeptState,
    /// The watermark of each producer, by its number.
    pub(crate) promised: Vec<(u32, i64)>,
    /// All windows that end at or before this are closed.
    pub(crate) closed: i64,
    /// The largest watermark of any producer.
    pub(crate) furthest: i64,
    /// From the first barrier to the last.
    pub(crate) alignment: Duration,
}

/// The state of a shard.
#[derive(Debug)]
pub(crate) enum KeptState {
    /// In memory: to be moved, or copied row by row. The open panes stand beside the rest.
    Panes(Box<OpenWindows>, BTreeMap<Span, OldPane>),
    /// Of a process, and where some of it is on disk: as in a checkpoint.
    Sections(Vec<SectionImage>),
}
