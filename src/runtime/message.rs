//! What travels from a producer to a shard.
//!
//! Rows are lent, not copied: all shards get the same [`Prepared`] batch and each reads the rows that
//! the router selected for it. Control (watermark, end) travels in band behind the rows it follows, so a
//! shard that has seen a watermark has seen every row before it.

use std::sync::Arc;
use std::time::Instant;

use arrow::record_batch::RecordBatch;

use crate::column::Column;
use crate::key::batch::KeyBatch;
use crate::state::pane::Pane;
use crate::state::spread::SpreadPart;
use crate::time::window::Span;

/// One step of one producer, for one shard.
#[derive(Debug)]
pub(crate) struct Message {
    /// Rows for this shard, if any.
    pub(crate) rows: Option<Arc<Prepared>>,
    /// Partial aggregates of keys that this shard owns.
    pub(crate) partials: Vec<Partial>,
    /// Spans for which no more partials will follow, ascending.
    pub(crate) closings: Vec<Closing>,
    /// The producer's watermark after the rows and partials.
    pub(crate) watermark: i64,
    /// Behind all that: the barrier of a checkpoint.
    pub(crate) barrier: Option<u64>,
    /// The producer has closed; nothing follows.
    pub(crate) end: bool,
}

impl Message {
    /// Partials and a watermark.
    pub(crate) fn new(partials: Vec<Partial>, closings: Vec<Closing>, watermark: i64) -> Self {
        Self { rows: None, partials, closings, watermark, barrier: None, end: false }
    }
}

/// Partial aggregates of one span of windows, on their way to the shard that owns their keys.
#[derive(Debug)]
pub(crate) struct Partial {
    /// Their windows.
    pub(crate) window: Span,
    /// How many came before it, of this producer, owner and window: for the owner's ledger.
    pub(crate) number: u32,
    /// Keys of one owner.
    pub(crate) pane: Pane,
}

/// The promise that no more partials of a span will follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closing {
    /// The windows of the partials.
    pub(crate) window: Span,
    /// How many were sent.
    pub(crate) sent: u32,
}

/// A batch that has been hashed, assigned to windows and split by owner. Immutable while lent; its
/// memory is used again when no shard holds it any more.
#[derive(Debug, Default)]
pub(crate) struct Prepared {
    /// When its rows were taken in.
    pub(crate) taken_in: Option<Instant>,
    pub(crate) keys: KeyBatch,
    /// The columns that aggregates read, in the plan's order.
    pub(crate) columns: Vec<Column>,
    /// The rows themselves, in a job with a process.
    pub(crate) batch: Option<RecordBatch>,
    /// One part for each shard.
    pub(crate) parts: Vec<Part>,
}

/// The rows of one shard.
#[derive(Debug, Default)]
pub(crate) struct Part {
    /// Row numbers, grouped by span, ascending within each.
    pub(crate) selection: Vec<u32>,
    /// One run of `selection` for each span.
    pub(crate) segments: Vec<Segment>,
    /// Rows of hot keys of any owner, for their values' sake.
    pub(crate) spread: SpreadPart,
}

impl Part {
    /// Forgets the rows and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.selection.clear();
        self.segments.clear();
        self.spread.clear();
    }

    /// Whether the shard has nothing to do.
    pub(crate) fn is_empty(&self) -> bool {
        self.selection.is_empty() && self.spread.rows.is_empty()
    }
}

/// Rows of one span of windows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Segment {
    /// Their windows; [`Span::ALL`] in a job without windows.
    pub(crate) window: Span,
    /// End of the run; it starts where the one before ends.
    pub(crate) end: usize,
}
