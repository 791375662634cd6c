//! What a shard has from those before it, after a rescale, and has not copied yet.
//!
//! A new shard begins at once, with panes for all windows that are open, and copies the keys that are its own out of
//! the old shards' panes bit by bit, between messages. Rows come meanwhile: so what a key had before is merged into
//! what it has since, as partials are. Nobody changes an old pane any more; all new shards copy from it.
//!
//! **Invariant:** a pane is looked at as a whole (closed, saved, handed over, shown) only once nothing of it is left
//! to copy.
//!
//! **Cost:** a lookup for each key that is copied, in steps of [`STEP_KEYS`] keys of the old pane.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};

use crossbeam::channel::Sender;

use super::{OpenWindows, new_pane, recycle};
use crate::runtime::sink::lock;
use crate::state::pane::Pane;
use crate::time::window::Span;

/// Keys looked at between two messages: a fraction of a millisecond.
const STEP_KEYS: u32 = 4096;

/// A pane of a shard that is no more.
pub(crate) type OldPane = Arc<Mutex<Pane>>;

/// What is left to copy.
#[derive(Debug, Default)]
pub(super) struct Inheritance {
    parts: Vec<Part>,
    /// Dropped when nothing is left.
    settled: Option<Sender<Infallible>>,
}

/// The keys of some key groups in one old pane.
#[derive(Debug)]
struct Part {
    span: Span,
    from: OldPane,
    groups: RangeInclusive<u16>,
    /// Keys before this have been copied.
    next: u32,
}

impl Inheritance {
    pub(super) fn add(&mut self, span: Span, from: OldPane, groups: RangeInclusive<u16>) {
        self.parts.push(Part { span, from, groups, next: 0 });
    }
}

impl OpenWindows {
    /// All open panes, for shards to come.
    pub(crate) fn leave_open(&mut self) -> BTreeMap<Span, OldPane> {
        self.settle();
        let open = std::mem::take(&mut self.open);
        open.into_iter().map(|(span, pane)| (span, Arc::new(Mutex::new(pane)))).collect()
    }

    /// Drops `settled` as soon as nothing is left to copy.
    pub(crate) fn tell_when_settled(&mut self, settled: Sender<Infallible>) {
        if self.is_settling() {
            self.inheritance.settled = Some(settled);
        }
    }

    /// Whether something is left to copy.
    pub(crate) fn is_settling(&self) -> bool {
        !self.inheritance.parts.is_empty()
    }

    /// Copies a little of what is left; false if there was nothing.
    pub(crate) fn settle_step(&mut self) -> bool {
        let Some(mut part) = self.inheritance.parts.pop() else { return false };
        if self.settle_keys(&mut part, STEP_KEYS) {
            self.finish(&part);
        } else {
            self.inheritance.parts.push(part);
        }
        true
    }

    /// Copies all that is left.
    pub(crate) fn settle(&mut self) {
        self.settle_to(i64::MAX);
    }

    /// Copies all that is left of the panes that are needed by `point`.
    pub(super) fn settle_to(&mut self, point: i64) {
        let parts = std::mem::take(&mut self.inheritance.parts);
        let (due, left) = parts.into_iter().partition(|part| part.span.point <= point);
        self.inheritance.parts = left;
        for mut part in due {
            while !self.settle_keys(&mut part, STEP_KEYS) {}
            self.finish(&part);
        }
    }

    /// Copies what is this shard's of so many keys; true if there are no more.
    fn settle_keys(&mut self, part: &mut Part, keys: u32) -> bool {
        let job = &self.job;
        let mut from = lock(&part.from);
        let ids = part.next..part.next.saturating_add(keys);
        let pane = self.open.entry(part.span).or_insert_with(|| new_pane(job));
        let mine = (&part.groups, job.max_parallelism);
        part.next = pane.merge_groups(&job.plan, &mut from, mine, ids, &mut self.scratch);
        part.next as usize >= from.len()
    }

    /// A window of which nothing has come to this shard after all is not open in it.
    fn finish(&mut self, part: &Part) {
        let is_last = self.inheritance.parts.iter().all(|other| other.span != part.span);
        if let Entry::Occupied(entry) = self.open.entry(part.span)
            && is_last
            && entry.get().len() == 0
        {
            recycle(&mut self.spare, entry.remove());
        }
        if !self.is_settling() {
            self.inheritance.settled = None;
        }
    }
}
