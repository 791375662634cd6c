//! The windows of a shard whose state does not all fit into memory.
//!
//! A span has a pane, or runs on disk, or both. When its rows are needed, the pane becomes a run too, and all
//! runs of the window are merged, some keys at a time: results come in several pieces, each key once. Rows stay
//! where they are: a span that a window was taken off takes its runs along.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use super::budget::Budget;
use super::{OpenWindows, SectionKind, Sessions};
use crate::checkpoint::{Section, SectionImage, SectionRows};
use crate::config::Job;
use crate::error::RunError;
use crate::runtime::emit::{Bounds, Give, Results};
use crate::spill::{Lane, Run, SpillStats};
use crate::state::pane::{Pane, Scratch};
use crate::time::window::{Span, Windows};

/// Spans, each with all of its runs.
pub(super) type SpanRuns = BTreeMap<Span, Vec<Run>>;

/// State that may be written to disk.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Sessions,
    Given(i64),
    Open(Span),
}

/// Gives the first pane as the results of one window.
fn give_first(
    panes: &mut [Pane],
    (bounds, is_early): (Bounds, bool),
    continues: &mut bool,
    (give, scratch): (Give<'_>, &mut Scratch),
) -> Result<(), RunError> {
    let pane = &mut panes[0];
    let results = Results {
        pane,
        changed: None,
        bounds,
        is_early,
        continues: std::mem::replace(continues, true),
    };
    give(results, scratch)
}

impl OpenWindows {
    /// The budget, where there is known to be one.
    fn budget(&mut self) -> &mut Budget {
        self.budget.as_mut().expect("only a shard with a budget has state on disk")
    }

    /// What was spilled so far.
    pub(crate) fn spilled(&self) -> SpillStats {
        self.budget.as_ref().map(Budget::stats).unwrap_or_default()
    }

    /// Open windows and results that are on disk only.
    pub(super) fn len_on_disk(&self) -> usize {
        self.budget.as_ref().map_or(0, |budget| budget.without_pane + budget.given.len())
    }

    /// Whether any state is on disk.
    pub(super) fn has_spilled(&self) -> bool {
        self.budget.as_ref().is_some_and(|budget| {
            !budget.open.is_empty() || !budget.given.is_empty() || !budget.sessions.is_empty()
        })
    }

    /// Whether an image of all state may be in memory beside it, until it is written.
    pub(super) fn has_room_for_image(&mut self) -> bool {
        self.recount();
        let on_disk = self.has_spilled();
        self.budget.as_ref().is_none_or(|budget| !on_disk && budget.is_hardly_used())
    }

    /// Adds up what the state takes.
    pub(super) fn recount(&mut self) {
        let Some(budget) = &mut self.budget else { return };
        let sessions = self.sessions.iter().flat_map(Sessions::panes);
        let panes = self.open.values().chain(self.given.values()).chain(&self.spare);
        budget.used = panes.chain(sessions).map(Pane::reserved).sum();
        budget.last = None;
        budget.without_pane =
            budget.open.keys().filter(|span| !self.open.contains_key(span)).count();
    }

    /// Makes room for `rows` rows of `span`, all of new keys perhaps.
    ///
    /// # Errors
    /// If there is none to be made.
    pub(super) fn make_room_for(&mut self, span: Span, rows: usize) -> Result<(), RunError> {
        let Some(budget) = &mut self.budget else { return Ok(()) };
        if let Some((last, before)) = budget.last.take()
            && let Some(pane) = self.open.get(&last)
        {
            budget.used = budget.used + pane.reserved() - before;
        }
        let more = match self.open.get(&span) {
            Some(pane) => pane.growth(rows),
            None => Pane::new(&self.job.keys, &self.job.plan).growth(rows),
        };
        if budget.has_room(more) { Ok(()) } else { self.make_room(more) }
    }

    /// Takes note of the pane that is handed out.
    pub(super) fn note(&mut self, span: Span, is_new: bool) {
        let (Some(budget), Some(pane)) = (&mut self.budget, self.open.get(&span)) else { return };
        let bytes = pane.reserved();
        budget.last = Some((span, bytes));
        if is_new {
            // One of the spare panes may have been counted already; the next count puts that right.
            budget.used += bytes;
            budget.without_pane -= usize::from(budget.open.contains_key(&span));
        }
    }

    /// Writes state to disk until there is room for `more` bytes: first what is needed again only if rows come late,
    /// and of each kind the largest panes first.
    ///
    /// # Errors
    /// If that does not help, or the system refuses.
    pub(super) fn make_room(&mut self, more: usize) -> Result<(), RunError> {
        self.spare.clear();
        self.recount();
        let job = Arc::clone(&self.job);
        if self.budget().has_room(more) {
            return Ok(());
        }
        if let Err(why) = job.plan.check_can_save() {
            return self.budget().too_large(more, &why).map_or(Ok(()), Err);
        }
        let goal = self.budget().goal(more);
        for (victim, bytes) in self.victims() {
            if self.budget().used <= goal {
                break;
            }
            self.spill(&job, victim)?;
            let budget = self.budget();
            budget.used = budget.used.saturating_sub(bytes);
        }
        self.recount();
        Ok(())
    }

    /// What may be written to disk, in the order in which it is to be, and what that frees.
    fn victims(&self) -> Vec<(Victim, usize)> {
        let open = self.open.iter().map(|(span, pane)| (Victim::Open(*span), pane.reserved()));
        let given = self.given.iter().map(|(end, pane)| (Victim::Given(*end), pane.reserved()));
        let sessions = self.sessions.iter().map(|it| (Victim::Sessions, it.open().reserved()));
        let mut victims = open.chain(given).chain(sessions).collect::<Vec<_>>();
        victims
            .sort_by_key(|(victim, bytes)| (!matches!(victim, Victim::Given(_)), Reverse(*bytes)));
        victims
    }

    fn spill(&mut self, job: &Job, victim: Victim) -> Result<(), RunError> {
        let Self { open, given, sessions, budget, scratch, .. } = self;
        let budget = budget.as_mut().expect("only a shard with a budget spills");
        match victim {
            Victim::Open(span) => {
                let Some(mut pane) = open.remove(&span) else { return Ok(()) };
                let run = budget.write(job, &mut pane, scratch)?;
                // Its memory is free before runs are merged.
                drop(pane);
                if run.rows() > 0 {
                    budget.add_open(job, span, run, scratch)?;
                }
            }
            Victim::Given(end) => {
                let Some(mut pane) = given.remove(&end) else { return Ok(()) };
                let run = budget.write(job, &mut pane, scratch)?;
                budget.given.entry(end).or_default().push(run);
            }
            Victim::Sessions => {
                let Some(sessions) = sessions.as_mut().filter(|it| it.open().len() > 0) else {
                    return Ok(());
                };
                sessions.find_first_end();
                let mut pane = sessions.take_open(job);
                let run = budget.write(job, &mut pane, scratch)?;
                budget.sessions.push(run);
            }
        }
        Ok(())
    }

    /// The first point at which something is needed.
    pub(super) fn next_point(&self) -> Option<i64> {
        let in_memory = self.open.first_key_value().map(|(span, _)| span.point);
        let on_disk = self.budget.as_ref().and_then(|budget| budget.open.first_key_value());
        in_memory.into_iter().chain(on_disk.map(|(span, _)| span.point)).min()
    }

    /// Takes out the runs of spans that are needed at `point`, if there are any or results on disk may be concerned:
    /// then those of `parts` too, which become runs.
    pub(super) fn take_runs(
        &mut self,
        point: i64,
        parts: &mut Vec<(Span, Pane)>,
    ) -> Result<Option<SpanRuns>, RunError> {
        let Some(budget) = &mut self.budget else { return Ok(None) };
        let mut runs = SpanRuns::new();
        while let Some(first) = budget.open.first_entry().filter(|first| first.key().point <= point)
        {
            let (span, of) = first.remove_entry();
            runs.insert(span, of);
        }
        let on_disk = !runs.is_empty() || !budget.given.is_empty() || !budget.sessions.is_empty();
        if !on_disk && !budget.is_too_much(parts.iter().map(|(_, pane)| pane)) {
            return Ok(None);
        }
        let job = Arc::clone(&self.job);
        for (span, mut pane) in parts.drain(..) {
            let run = budget.write(&job, &mut pane, &mut self.scratch)?;
            runs.entry(span).or_default().push(run);
        }
        let merge_bytes = budget.merge_bytes();
        self.recount();
        if !self.budget().has_room(merge_bytes) {
            self.make_room(merge_bytes)?;
        }
        Ok(Some(runs))
    }

    /// What is due at `point`, of spans that are on disk.
    pub(super) fn close_runs(
        &mut self,
        point: i64,
        parts: SpanRuns,
        give: Give<'_>,
    ) -> Result<(), RunError> {
        let job = Arc::clone(&self.job);
        match &job.windows {
            Some(windows) if windows.session().is_some() => {
                let begin = windows.start_of(point);
                return self.enter_runs(begin, parts.into_values().flatten().collect(), give);
            }
            Some(windows) if windows.lateness() > 0 => {
                self.close_or_correct_runs(windows, point, &parts, give)?;
            }
            _ => {
                let lane = Lane::of(parts.values().flatten().cloned().collect());
                let (how, mut continues) = ((self.bounds(point), false), false);
                let Self { budget, scratch, .. } = self;
                let budget = budget.as_mut().expect("what is on disk has a budget");
                budget.merge(&job, vec![lane], None, scratch, &mut |panes, scratch| {
                    give_first(panes, how, &mut continues, (&mut *give, scratch))
                })?;
            }
        }
        self.reopen_runs(point, parts)
    }

    /// The result of the window that ends at `point`, which is kept, and corrections of those that ended before.
    fn close_or_correct_runs(
        &mut self,
        windows: &Windows,
        point: i64,
        parts: &SpanRuns,
        give: Give<'_>,
    ) -> Result<(), RunError> {
        let job = Arc::clone(&self.job);
        let revision = job.revision.expect("a job that allows late rows counts corrections");
        let mut by_end = BTreeMap::<i64, Vec<Run>>::new();
        for (span, runs) in parts {
            for end in windows.ends(span).take_while(|end| *end <= point) {
                by_end.entry(end).or_default().extend_from_slice(runs);
            }
        }
        for (end, late) in by_end {
            let bounds = self.bounds(end);
            if self.given.contains_key(&end) {
                self.spill(&job, Victim::Given(end))?;
            }
            let Self { budget, scratch, .. } = self;
            let budget = budget.as_mut().expect("what is on disk has a budget");
            let mut given = budget.given.remove(&end).unwrap_or_default();
            let kept = if end == point {
                let mut continues = false;
                let lanes = vec![Lane::of(late)];
                budget.merge(&job, lanes, Some(0), scratch, &mut |panes, scratch| {
                    give_first(panes, (bounds, false), &mut continues, (&mut *give, scratch))
                })?
            } else {
                let given = std::mem::take(&mut given);
                let lanes = vec![Lane::disjoint(given), Lane::of(late)];
                budget.merge(&job, lanes, Some(0), scratch, &mut |panes, scratch| {
                    let [given, late] = panes else { unreachable!("two lanes") };
                    if late.len() == 0 {
                        return Ok(());
                    }
                    given.correct(&job.plan, late, revision, scratch);
                    let (pane, changed) = (given, Some(late));
                    let results =
                        Results { pane, changed, bounds, is_early: false, continues: false };
                    give(results, scratch)
                })?
            };
            // Beside those of other keys that a shard gave which was ahead, before a restore or a rescale.
            given.push(kept);
            budget.given.insert(end, given);
        }
        Ok(())
    }

    /// Puts runs back under the windows that are left of their spans after `end`.
    fn reopen_runs(&mut self, end: i64, parts: SpanRuns) -> Result<(), RunError> {
        let job = Arc::clone(&self.job);
        for (span, runs) in parts {
            let Some(windows) = job.windows.as_ref().filter(|_| span.last > end) else { continue };
            let span = Span::on_time(windows.end_after(end), span.last);
            let Self { budget, scratch, .. } = self;
            let budget = budget.as_mut().expect("what is on disk has a budget");
            for run in runs {
                budget.add_open(&job, span, run, scratch)?;
            }
        }
        Ok(())
    }

    /// Goes on to a slice of time that begins at `begin`, all of whose rows are in `slice`: sessions that are on disk.
    fn enter_runs(&mut self, begin: i64, slice: Vec<Run>, give: Give<'_>) -> Result<(), RunError> {
        let job = Arc::clone(&self.job);
        self.spill(&job, Victim::Sessions)?;
        let Self { budget, scratch, sessions, .. } = self;
        let budget = budget.as_mut().expect("what is on disk has a budget");
        let sessions = sessions.as_mut().expect("a job with sessions");
        let before = std::mem::take(&mut budget.sessions);
        let lanes = vec![Lane::disjoint(before), Lane::of(slice)];
        sessions.begin_pieces();
        let run = budget.merge(&job, lanes, Some(1), scratch, &mut |panes, scratch| {
            let [open, slice] = panes else { unreachable!("two lanes") };
            sessions.enter_piece(&job, begin, (open, slice), scratch, &mut *give)
        })?;
        if budget.is_small(std::slice::from_ref(&run)) {
            let lanes = vec![Lane::disjoint(vec![run])];
            budget.merge(&job, lanes, None, scratch, &mut |panes, scratch| {
                sessions.open_mut().absorb(&job.plan, &mut panes[0], scratch);
                Ok(())
            })?;
        } else {
            budget.sessions.push(run);
        }
        Ok(())
    }

    /// Gives sessions that ended by `complete`, if they are on disk.
    pub(super) fn end_sessions_on_disk(
        &mut self,
        complete: i64,
        give: Give<'_>,
    ) -> Result<bool, RunError> {
        if self.budget.as_ref().is_none_or(|budget| budget.sessions.is_empty()) {
            return Ok(false);
        }
        self.enter_runs(complete, Vec::new(), give)?;
        Ok(true)
    }

    /// The runs of a span, those of its pane included, which stays.
    fn runs_of(&mut self, span: Span) -> Result<Vec<Run>, RunError> {
        let Self { open, budget, scratch, job, .. } = self;
        let budget = budget.as_mut().expect("what is on disk has a budget");
        let mut runs = budget.open.get(&span).cloned().unwrap_or_default();
        if let Some(pane) = open.get_mut(&span) {
            runs.push(budget.write(job, pane, scratch)?);
        }
        Ok(runs)
    }

    /// Gives the results of an open window as they stand, of spans some of which are on disk.
    pub(super) fn snapshot_runs(
        &mut self,
        bounds: Bounds,
        spans: &[Span],
        give: Give<'_>,
    ) -> Result<(), RunError> {
        let job = Arc::clone(&self.job);
        let mut runs = Vec::new();
        for span in spans {
            runs.extend(self.runs_of(*span)?);
        }
        let Self { budget, scratch, .. } = self;
        let budget = budget.as_mut().expect("what is on disk has a budget");
        let mut continues = false;
        budget.merge(&job, vec![Lane::of(runs)], None, scratch, &mut |panes, scratch| {
            give_first(panes, (bounds, true), &mut continues, (&mut *give, scratch))
        })?;
        Ok(())
    }

    /// Gives all sessions as they stand, some of which are on disk.
    pub(super) fn snapshot_session_runs(
        &mut self,
        windows: &Windows,
        give: Give<'_>,
    ) -> Result<(), RunError> {
        let job = Arc::clone(&self.job);
        let (spans, mut lanes) = (self.open_spans(), Vec::new());
        let Self { budget, sessions, scratch, .. } = self;
        let budget = budget.as_mut().expect("what is on disk has a budget");
        let sessions = sessions.as_mut().expect("a job with sessions");
        let mut open = budget.sessions.clone();
        open.push(budget.write(&job, sessions.open_mut(), scratch)?);
        lanes.push(Lane::disjoint(open));
        for span in &spans {
            lanes.push(Lane::of(self.runs_of(*span)?));
        }
        let Self { budget, sessions, scratch, .. } = self;
        let budget = budget.as_mut().expect("what is on disk has a budget");
        let sessions = sessions.as_mut().expect("a job with sessions");
        let begins = spans.iter().map(|span| windows.start_of(span.point)).collect::<Vec<_>>();
        budget.merge(&job, lanes, None, scratch, &mut |panes, scratch| {
            let mut copy = sessions.empty_copy(&job);
            let [open, slices @ ..] = panes else { unreachable!("at least one lane") };
            std::mem::swap(copy.open_mut(), open);
            for (begin, slice) in begins.iter().zip(slices) {
                copy.enter(&job, *begin, slice, scratch, &mut *give)?;
            }
            copy.enter(&job, i64::MAX, open, scratch, &mut *give)
        })?;
        Ok(())
    }

    /// The open spans, in memory or on disk.
    pub(super) fn open_spans(&self) -> Vec<Span> {
        let on_disk = self.budget.iter().flat_map(|budget| budget.open.keys());
        let mut spans = self.open.keys().chain(on_disk).copied().collect::<Vec<_>>();
        spans.sort_unstable();
        spans.dedup();
        spans
    }

    /// Whether a span has runs on disk.
    pub(super) fn is_on_disk(&self, span: &Span) -> bool {
        self.budget.as_ref().is_some_and(|budget| budget.open.contains_key(span))
    }

    /// Whether these spans are to be merged from runs: some are on disk, or there is no room for the whole.
    pub(super) fn merges_runs(&self, spans: &[Span]) -> bool {
        let panes = || spans.iter().filter_map(|span| self.open.get(span));
        spans.iter().any(|span| self.is_on_disk(span))
            || self.budget.as_ref().is_some_and(|budget| budget.is_too_much(panes()))
    }

    /// Whether sessions as they stand are to be found from runs.
    pub(super) fn copies_sessions_from_runs(&self) -> bool {
        let open = self.sessions.iter().map(Sessions::open);
        let mut panes = self.open.values().chain(open);
        self.has_spilled()
            || self.budget.as_ref().is_some_and(|budget| budget.is_too_much(&mut panes))
    }

    /// Puts a pane aside whose rows belong to a span that has a pane already, if there is no room to merge them.
    pub(super) fn set_aside(
        &mut self,
        span: Span,
        pane: &Pane,
        other: &mut Pane,
    ) -> Result<bool, RunError> {
        let Self { budget, scratch, job, .. } = self;
        let Some(budget) = budget else { return Ok(false) };
        if !budget.is_too_much([pane, &*other].into_iter()) {
            return Ok(false);
        }
        let run = budget.write(job, other, scratch)?;
        if run.rows() > 0 {
            budget.add_open(job, span, run, scratch)?;
        }
        Ok(true)
    }

    /// Makes room for so many rows of a section of a checkpoint.
    ///
    /// # Errors
    /// As [`OpenWindows::make_room`].
    pub(crate) fn make_room_for_section(
        &mut self,
        section: &Section,
        rows: usize,
    ) -> Result<(), RunError> {
        if self.budget.is_none() {
            return Ok(());
        }
        self.recount();
        let Section { kind, point, first, last, .. } = *section;
        let pane = match kind {
            SectionKind::Open => self.open.get(&Span { point, first, last }),
            SectionKind::Given => self.given.get(&last),
            _ => self.sessions.as_ref().map(Sessions::open),
        };
        let more = match pane {
            Some(pane) => pane.growth(rows),
            None => Pane::new(&self.job.keys, &self.job.plan).growth(rows),
        };
        if self.budget().has_room(more) { Ok(()) } else { self.make_room(more) }
    }

    /// Everything that is kept, as sections of a checkpoint that come into memory one after the other.
    pub(super) fn image_in_runs(&mut self) -> Result<Vec<SectionImage>, RunError> {
        let job = Arc::clone(&self.job);
        let mut sections = Vec::new();
        let mut add = |kind, span: Span, run: &Run| {
            let Span { point, first, last } = span;
            sections.extend(run.blocks().iter().map(|block| SectionImage {
                section: Section { kind, point, first, last, rows: block.rows as u64 },
                image: SectionRows::Spilled(block.clone()),
            }));
        };
        for span in self.open_spans() {
            for run in self.runs_of(span)? {
                add(SectionKind::Open, span, &run);
            }
        }
        let Self { given, sessions, budget, scratch, .. } = self;
        let budget = budget.as_mut().expect("what is on disk has a budget");
        for (end, pane) in given {
            add(SectionKind::Given, Span::on_time(*end, *end), &budget.write(&job, pane, scratch)?);
        }
        for (end, runs) in &budget.given {
            for run in runs {
                add(SectionKind::Given, Span::on_time(*end, *end), run);
            }
        }
        if let Some(sessions) = sessions {
            let run = budget.write(&job, sessions.open_mut(), scratch)?;
            add(SectionKind::Sessions, Span::ALL, &run);
            budget.sessions.iter().for_each(|run| add(SectionKind::Sessions, Span::ALL, run));
        }
        Ok(sections)
    }
}
