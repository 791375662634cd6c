//! Phase one of two-phase aggregation: a producer's own partial aggregates.
//!
//! Rows of hot keys are aggregated where they are, by the thread that read them, into panes like those of
//! the shards: one for each window and owner. A pane is *moved* to its owner, in band, at the latest with
//! the first watermark that passes the end of its window; the owner merges it and drops it. So each
//! partial is merged exactly once by construction: it is in one place at any time, and the ring is
//! first in, first out. Which keys are hot may change at any row: a pane holds whatever keys were put
//! into it, and the owner finds its row for each by the key.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::blame::Blame;
use super::board::{Board, PartialsBoard, ProducerBoard};
use super::message::{Closing, Part, Partial, Prepared};
use crate::config::Job;
use crate::state::pane::{OneKeyRows, Pane, Scratch};
use crate::state::spread::{SpreadPart, Spreading};
use crate::time::window::Span;

/// Partials of one window and owner.
#[derive(Debug, Default)]
struct Held {
    /// By salt, of the salts that this producer holds.
    panes: Vec<Pane>,
    /// Those of an earlier hot set, with readers.
    sealed: Vec<Pane>,
    sent: u32,
    closed: bool,
}

impl Held {
    /// Moves panes out, numbered.
    fn send(&mut self, window: Span, keys_max: usize, out: &mut Vec<Partial>) {
        let sealed = self.sealed.drain(..).filter(|pane| pane.len() > 0);
        let large = self.panes.extract_if(.., |pane| pane.len() > keys_max);
        for pane in sealed.chain(large) {
            out.push(Partial { window, number: self.sent, pane });
            self.sent += 1;
        }
    }
}

/// Partial aggregates of one producer.
#[derive(Debug)]
pub(crate) struct Partials {
    job: Arc<Job>,
    /// Number of shards.
    workers: usize,
    /// By span, then by owner; a span stays until it is closed for all owners.
    windows: BTreeMap<Span, Vec<Held>>,
    scratch: Scratch,
    /// Rows aggregated here.
    pub(crate) rows: u64,
    /// Partials (keys times windows) handed on.
    pub(crate) handed_on: u64,
    /// No pane holds more keys.
    keys_max: usize,
    /// Panes of earlier hot sets may be waiting to be handed on, to any owner.
    sealed: bool,
    /// Where readers see them.
    board: Option<PartialsBoard>,
}

impl Partials {
    /// For so many shards; `hot` if rows of hot keys are treated apart.
    pub(crate) fn new(job: Arc<Job>, workers: usize, hot: bool) -> Self {
        let mut partials = Self {
            job,
            workers,
            windows: BTreeMap::new(),
            scratch: Scratch::default(),
            rows: 0,
            handed_on: 0,
            keys_max: 0,
            sealed: false,
            board: None,
        };
        partials.go_over(workers, hot);
        partials
    }

    /// From now on for so many shards: all that was held has been handed on, and is numbered anew. Rows of hot keys
    /// whose partials grow large may be handed on to the shards that their values belong to, if the job does so.
    pub(crate) fn go_over(&mut self, workers: usize, hot: bool) {
        debug_assert_eq!(self.held(), 0, "all has been handed on");
        self.workers = workers;
        self.windows.clear();
        let parts = || vec_of(workers, SpreadPart::default);
        self.scratch.spreading = (hot && self.job.spreads(workers)).then(|| Spreading {
            window: [0; 3],
            owner: 0,
            parts: parts(),
        });
    }

    /// From now on readers see the partials, if there is a board for it.
    pub(crate) fn show(&mut self, boards: Option<(&Arc<Board>, &Arc<ProducerBoard>)>) {
        self.board = boards.map(|(board, producer)| PartialsBoard::new(board, producer));
    }

    /// Takes note, for readers, of how many messages have gone to each shard.
    pub(crate) fn set_sent(&mut self, sent: impl Iterator<Item = u64>) {
        if let Some(board) = &mut self.board {
            board.set_sent(sent);
        }
    }

    /// Other keys are hot from now on. Rows of theirs may be on their way to their owner, so with readers, what comes
    /// now goes into panes of its own, and what there is is handed on next time.
    pub(crate) fn seal(&mut self) {
        let Some(board) = &mut self.board else { return };
        board.begin_hot_set();
        for held in self.windows.values_mut().flatten() {
            held.sealed.append(&mut held.panes);
        }
        self.sealed = true;
    }

    /// Moves the rows that are to be handed on into the parts of `prepared`, which hold none.
    pub(crate) fn take_spread(&mut self, prepared: &mut Prepared) {
        let Some(spreading) = &mut self.scratch.spreading else { return };
        let Prepared { keys, parts, .. } = prepared;
        for (part, spread) in parts.iter_mut().zip(&mut spreading.parts) {
            std::mem::swap(&mut part.spread, spread);
            let mut start = 0;
            for run in &part.spread.runs {
                // Whoever gets the run looks its key up by the first row, and not all hot rows are hashed.
                keys.hash_rows(&part.spread.rows[start..=start]);
                start = run.end;
            }
        }
    }

    fn pane(&mut self, window: Span, owner: usize, salt: usize) -> (&mut Pane, &mut Scratch, &Job) {
        let job = &self.job;
        let owners = self.windows.entry(window);
        let owners = owners.or_insert_with(|| vec_of(self.workers, Held::default));
        let held = &mut owners[owner];
        debug_assert!(!held.closed, "rows of a closed window are late");
        while held.panes.len() <= salt {
            let pane = match &mut self.board {
                None => Pane::new(&job.keys, &job.plan),
                Some(board) => {
                    let pane = Pane::new_readable(&job.keys, &job.plan);
                    board.show(owner, window, &pane);
                    pane
                }
            };
            held.panes.push(pane);
        }
        (&mut held.panes[salt], &mut self.scratch, job)
    }

    /// Aggregates `rows`, which all have one key, into that key's partial of this salt.
    pub(crate) fn add_one_key(
        &mut self,
        window: Span,
        (owner, salt): (usize, usize),
        prepared: &Prepared,
        rows: OneKeyRows<'_>,
    ) {
        if let Some(spreading) = &mut self.scratch.spreading {
            spreading.window = [window.point, window.first, window.last];
            spreading.owner = owner;
        }
        let (pane, scratch, job) = self.pane(window, owner, salt);
        let blame = Blame { encoder: &job.keys, keys: &prepared.keys };
        pane.update_one_key(&job.plan, &prepared.keys, &prepared.columns, rows, scratch);
        drop(blame);
        let keys = pane.len();
        self.keys_max = self.keys_max.max(keys);
        self.rows += rows.count() as u64;
    }

    /// Aggregates the rows of `part`, all owned by `owner`.
    pub(crate) fn add_part(&mut self, owner: usize, prepared: &Prepared, part: &Part) {
        let mut start = 0;
        for segment in &part.segments {
            let rows = &part.selection[start..segment.end];
            start = segment.end;
            let (pane, scratch, job) = self.pane(segment.window, owner, 0);
            let blame = Blame { encoder: &job.keys, keys: &prepared.keys };
            pane.update(&job.plan, &prepared.keys, &prepared.columns, rows, scratch);
            drop(blame);
            let keys = pane.len();
            self.keys_max = self.keys_max.max(keys);
        }
        self.rows += part.selection.len() as u64;
    }

    /// Takes out the partials of `owner` that are needed once the watermark is `watermark`, and closes their
    /// spans: rows that follow are filed under later ones.
    pub(crate) fn take_closed(
        &mut self,
        owner: usize,
        watermark: i64,
    ) -> (Vec<Partial>, Vec<Closing>) {
        let (mut partials, mut closings) = (Vec::new(), Vec::new());
        for (&window, owners) in &mut self.windows {
            if window.point > watermark {
                break;
            }
            let held = &mut owners[owner];
            held.send(window, 0, &mut partials);
            if !held.closed && held.sent > 0 {
                closings.push(Closing { window, sent: held.sent });
            }
            held.closed = true;
        }
        while let Some(first) = self.windows.first_entry() {
            if !first.get().iter().all(|held| held.closed) {
                break;
            }
            first.remove();
        }
        (self.hand_on(partials), closings)
    }

    /// Takes out the partials of `owner` in panes that hold more than `keys_max` keys; their windows stay
    /// open.
    pub(crate) fn take_early(&mut self, owner: usize, keys_max: usize) -> Vec<Partial> {
        let mut partials = Vec::new();
        // There may be many windows, and this is asked with every batch.
        if self.keys_max <= keys_max && !self.sealed {
            return partials;
        }
        for (window, owners) in &mut self.windows {
            owners[owner].send(*window, keys_max, &mut partials);
        }
        let held = self.windows.values().flatten();
        self.sealed = held.clone().any(|held| !held.sealed.is_empty());
        self.keys_max = held.flat_map(|held| &held.panes).map(Pane::len).max().unwrap_or(0);
        self.hand_on(partials)
    }

    fn hand_on(&mut self, partials: Vec<Partial>) -> Vec<Partial> {
        self.handed_on += partials.iter().map(|partial| partial.pane.len() as u64).sum::<u64>();
        partials
    }

    /// Partials held now.
    pub(crate) fn held(&self) -> u64 {
        let held = self.windows.values().flatten();
        let panes = held.flat_map(|held| held.panes.iter().chain(&held.sealed));
        panes.map(|pane| pane.len() as u64).sum()
    }
}

fn vec_of<T>(len: usize, make: impl Fn() -> T) -> Vec<T> {
    (0..len).map(|_| make()).collect()
}
