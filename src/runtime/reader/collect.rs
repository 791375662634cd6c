//! The state of one key at one instant.

use std::sync::atomic::Ordering;

use super::merge::Merger;
use super::{ReadError, SPILLED, not_in_row};
use crate::aggregate::Side;
use crate::config::Job;
use crate::runtime::board::{Board, OpenSpans, ProducerBoard, ShownPartial};
use crate::runtime::grace::Guard;
use crate::state::readable::{Copied, FoundRow, Readable, SoughtKey};
use crate::time::window::Span;

/// Tries after which the writer is asked to pause, and after how many more again.
const WANTED_AFTER: u32 = 32;

/// What was found in one pane.
#[derive(Debug)]
struct Part<'g> {
    span: Span,
    pane: &'g Readable,
    row: Option<FoundRow<'g>>,
    found: Found,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    /// The key has no row there, or one without a state.
    Nothing,
    /// A partial that the owner has taken over, and has in its own row.
    Merged,
    /// The words of the row, which had this stamp, are the next ones.
    State(u64),
}

/// A key's state.
#[derive(Debug)]
pub(super) struct Collected<'g> {
    closed_to: i64,
    parts: Vec<Part<'g>>,
    /// Of each part with a state, its words.
    words: Vec<u64>,
    stride: usize,
}

/// What there is of a key where only one pane can have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Alone {
    /// More panes may have it, or the row is being written: [`collect`] it.
    Unknown,
    /// Nothing.
    Nothing,
    /// Its state in this span, whose words were copied.
    State(Span, i64),
}

/// The same as [`collect`] for a shard with one open span, of which no producer has partials: the row's own stamp is
/// all that has to be looked at twice, beside the lists.
#[inline]
pub(super) fn copy_alone(
    board: &Board,
    guard: &Guard<'_>,
    shard: usize,
    key: &SoughtKey<'_>,
    words: &mut [u64],
) -> Alone {
    let open = board.shards[shard].get(guard);
    let all = board.producers.get(guard);
    let [(span, pane)] = open.panes.as_slice() else { return Alone::Unknown };
    if all.iter().any(|producer| !producer.partials.get(guard).is_empty()) {
        return Alone::Unknown;
    }
    let Some(row) = pane.find(key) else {
        // A key that has no row now had none before, and its partials come later than this look at them, or not
        // at all.
        let is_same = std::ptr::eq(all, board.producers.get(guard))
            && all.iter().all(|producer| producer.partials.get(guard).is_empty());
        return if is_same { Alone::Nothing } else { Alone::Unknown };
    };
    let Copied::Whole(stamp) = pane.copy(&row, words) else { return Alone::Unknown };
    let is_same = std::ptr::eq(open, board.shards[shard].get(guard))
        && std::ptr::eq(all, board.producers.get(guard))
        && all.iter().all(|producer| producer.partials.get(guard).is_empty())
        && row.is_at(stamp);
    if is_same { Alone::State(*span, open.closed_to) } else { Alone::Unknown }
}

/// What a producer showed.
struct Producer<'g> {
    board: &'g ProducerBoard,
    shown: &'g Vec<ShownPartial>,
    /// Messages that the owner had taken in of it.
    taken: u64,
}

/// Reads everything that is known of a key, and looks whether it was so at one instant; none if something changed
/// meanwhile.
#[inline]
pub(super) fn collect<'g>(
    board: &'g Board,
    guard: &'g Guard<'_>,
    shard: usize,
    key: &SoughtKey<'_>,
    stride: usize,
    tries: u32,
) -> Option<Collected<'g>> {
    let open = board.shards[shard].get(guard);
    let all = board.producers.get(guard);
    let mut collected = Collected {
        closed_to: open.closed_to,
        parts: Vec::with_capacity(open.panes.len()),
        words: Vec::with_capacity(stride),
        stride,
    };
    for (span, pane) in &open.panes {
        collected.look(key, *span, pane, false, tries)?;
    }
    let mut producers = Vec::new();
    for producer in all {
        let taken = producer.taken[shard].load(Ordering::Acquire);
        let shown = producer.partials.get(guard);
        for partial in shown {
            // What has been taken over wholly is so for good.
            let counts = partial.owner == shard && partial.after <= taken;
            if counts && partial.pane.merged() < u32::MAX {
                collected.look(key, partial.span, &partial.pane, true, tries)?;
            }
        }
        producers.push(Producer { board: producer, shown, taken });
    }
    let is_same = std::ptr::eq::<OpenSpans>(open, board.shards[shard].get(guard))
        && std::ptr::eq(all, board.producers.get(guard))
        && producers.iter().all(|producer| producer.is_same(guard, shard))
        && collected.parts.iter().all(|part| part.is_same(key));
    is_same.then_some(collected)
}

impl Producer<'_> {
    /// Whether it shows what it did, and as much of that counts.
    fn is_same(&self, guard: &Guard<'_>, shard: usize) -> bool {
        let taken = self.board.taken[shard].load(Ordering::Acquire);
        std::ptr::eq(self.shown, self.board.partials.get(guard))
            && (taken == self.taken
                || !self.shown.iter().any(|partial| {
                    partial.owner == shard && (self.taken + 1..=taken).contains(&partial.after)
                }))
    }
}

impl Part<'_> {
    /// Whether the same would be found again.
    #[inline]
    fn is_same(&self, key: &SoughtKey<'_>) -> bool {
        match (self.found, &self.row) {
            (Found::State(stamp), Some(row)) => row.is_at(stamp),
            (Found::Nothing, None) => self.pane.find(key).is_none_or(|row| row.is_new()),
            (Found::Nothing, Some(row)) => row.is_new(),
            // Once and for all.
            (Found::Merged, _) => true,
            (Found::State(_), None) => unreachable!("a state has a row"),
        }
    }
}

impl<'g> Collected<'g> {
    /// Looks into one pane; none if the key's row is being written.
    #[inline]
    fn look(
        &mut self,
        key: &SoughtKey<'_>,
        span: Span,
        pane: &'g Readable,
        is_partial: bool,
        tries: u32,
    ) -> Option<()> {
        let row = pane.find(key);
        let mut found = Found::Nothing;
        if let Some(row) = &row {
            let start = self.words.len();
            self.words.resize(start + self.stride, 0);
            match pane.copy(row, &mut self.words[start..]) {
                Copied::Torn => {
                    if tries % WANTED_AFTER == WANTED_AFTER - 1 {
                        pane.want();
                    }
                    return None;
                }
                Copied::New => self.words.truncate(start),
                // Asked last: what was copied before the owner took it over counts only if that is not yet in
                // the owner's row as it was read, which the second look at that row tells.
                Copied::Whole(_) if is_partial && row.id < pane.merged() => {
                    self.words.truncate(start);
                    found = Found::Merged;
                }
                Copied::Whole(stamp) => found = Found::State(stamp),
            }
        }
        self.parts.push(Part { span, pane, row, found });
        Some(())
    }

    /// The parts that have a state, with its words.
    fn states(&self) -> impl Iterator<Item = (Span, &[u64])> {
        let found = self.parts.iter().filter(|part| matches!(part.found, Found::State(_)));
        found
            .enumerate()
            .map(|(i, part)| (part.span, &self.words[i * self.stride..][..self.stride]))
    }

    /// The windows that are open and have the key, in order, each with the states of which it is made.
    fn windows(&self, job: &Job) -> Vec<(i64, &[u64])> {
        let Some(windows) = &job.windows else {
            return self.states().map(|(_, words)| (i64::MAX, words)).collect();
        };
        let mut all = Vec::new();
        for (span, words) in self.states() {
            let ends = windows.ends(&span).filter(|end| *end > self.closed_to);
            all.extend(ends.map(|end| (end, words)));
        }
        all.sort_by_key(|(end, _)| *end);
        all
    }

    /// Refuses states that are not in the row.
    fn check(&self, job: &Job, merger: &Merger<'_>) -> Result<(), ReadError> {
        for (_, words) in self.states() {
            if let Some(accumulator) = merger.beside(words) {
                return Err(not_in_row(&job.plan, accumulator, SPILLED));
            }
        }
        Ok(())
    }

    /// Calls `each` with every window, in order: start and end, the words of the state, and what is beside them.
    #[inline]
    pub(super) fn each_window(
        &self,
        job: &Job,
        merger: &mut Merger<'_>,
        mut each: impl FnMut(Option<(i64, i64)>, &[u64], Option<&[Side]>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        self.check(job, merger)?;
        let windows = self.windows(job);
        for window in windows.chunk_by(|(a, _), (b, _)| a == b) {
            let bounds = job.windows.as_ref().map(|one| (one.start_of(window[0].0), window[0].0));
            if let [(_, words)] = window {
                each(bounds, words, None)?;
            } else {
                let (words, sides) = merger.merge(window.iter().map(|(_, words)| *words));
                each(bounds, words, Some(sides))?;
            }
        }
        Ok(())
    }

    /// The same, but the merger keeps the states; `each` is told the window of each.
    pub(super) fn keep_windows(
        &self,
        job: &Job,
        merger: &mut Merger<'_>,
        mut each: impl FnMut(Option<(i64, i64)>),
    ) -> Result<(), ReadError> {
        self.check(job, merger)?;
        for window in self.windows(job).chunk_by(|(a, _), (b, _)| a == b) {
            merger.keep(window.iter().map(|(_, words)| *words));
            each(job.windows.as_ref().map(|one| (one.start_of(window[0].0), window[0].0)));
        }
        Ok(())
    }
}
