//! The windows of one shard, from the first row to the last result.
//!
//! Rows and partials are kept once per [`Span`] of windows, in a pane each. When the watermark reaches a
//! span's point, its pane is merged into the results of those of its windows that end by then; they are
//! taken off the span, panes of spans that are now equal are merged, and panes of which no window is
//! left are used again. So a window that no other overlaps costs no merge at all, a cumulating window
//! one merge of the latest step, and a hopping window one merge for each slice in it.
//!
//! With an allowed lateness, results stay here until so long after their window's end. Spans of late rows
//! have points after the ends of their windows; at each such point the results of the windows are
//! corrected, and given again for the keys of the late rows.
//!
//! **Invariant:** every span's point lies after the watermark; spans without late rows of one end and one
//! beginning are one.
//!
//! **Cost:** a search among the open spans per run of rows; memory of a pane per open span and, with an
//! allowed lateness, per result that is kept; both bounded by the job's limit of open windows.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::record_batch::RecordBatch;

use super::board::ShardBoard;
use super::emit::{Bounds, Give, Results};
use super::sessions::Sessions;
use super::sink::lock;
use crate::checkpoint::{Section, SectionImage, SectionKind, SectionRows};
use crate::config::Job;
use crate::error::{CheckpointError, RunError};
use crate::state::pane::image::ImageLayout;
use crate::state::pane::{Pane, Scratch};
use crate::time::window::{Span, Windows};

mod budget;
mod inherit;
mod spilled;

use budget::Budget;
use inherit::Inheritance;
pub(crate) use inherit::OldPane;

/// Panes kept with their memory for later windows.
const SPARE_PANES_MAX: usize = 4;

/// Windows of one shard.
#[derive(Debug)]
pub(crate) struct OpenWindows {
    job: Arc<Job>,
    /// Panes by the windows that their rows are in.
    open: BTreeMap<Span, Pane>,
    /// Results that may still be corrected, by the end of their window.
    given: BTreeMap<i64, Pane>,
    sessions: Option<Sessions>,
    /// How far windows are closed.
    watermark: i64,
    spare: Vec<Pane>,
    scratch: Scratch,
    /// The most panes that were in use at once.
    len_max: usize,
    /// How much of all this may be in memory, and the rest of it; none: all.
    budget: Option<Budget>,
    /// Where readers see the open panes.
    board: Option<ShardBoard>,
    /// What other shards had, and this one has not yet.
    inheritance: Inheritance,
}

/// Size of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateSize {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
    pub(crate) huge_pages: bool,
}

impl OpenWindows {
    /// Of one shard of so many, whose open panes readers see on `board`.
    pub(crate) fn new(job: Arc<Job>, workers: usize, board: Option<ShardBoard>) -> Self {
        Self {
            sessions: Sessions::new(&job),
            budget: Budget::new(&job, workers),
            job,
            open: BTreeMap::new(),
            given: BTreeMap::new(),
            watermark: i64::MIN,
            spare: Vec::new(),
            scratch: Scratch::default(),
            len_max: 0,
            board,
            inheritance: Inheritance::default(),
        }
    }

    /// Shows readers the panes that are open now.
    fn show(&mut self) {
        if let Some(board) = &mut self.board {
            board.show(&self.open, self.watermark);
        }
    }

    /// The pane of `span`, opened if needed, with room for `rows` rows, and what work on it needs.
    ///
    /// # Errors
    /// If that would be more than the job allows to be open or to be in memory.
    pub(crate) fn pane(
        &mut self,
        span: Span,
        rows: usize,
    ) -> Result<(&mut Pane, &mut Scratch), RunError> {
        if let Some(board) = &mut self.board {
            board.poll();
        }
        if self.budget.is_some() {
            self.make_room_for(span, rows)?;
            let is_new = !self.open.contains_key(&span);
            self.open_pane(span)?;
            self.note(span, is_new);
        }
        self.open_pane(span)
    }

    fn open_pane(&mut self, span: Span) -> Result<(&mut Pane, &mut Scratch), RunError> {
        if !self.open.contains_key(&span) {
            self.open(span)?;
        }
        let pane = self.open.get_mut(&span).expect("opened if it was not");
        Ok((pane, &mut self.scratch))
    }

    #[cold]
    #[inline(never)]
    fn open(&mut self, span: Span) -> Result<(), RunError> {
        // One that is on disk is open already.
        let open = self.len() - usize::from(self.is_on_disk(&span));
        if open >= self.job.open_windows_max {
            return Err(RunError::Limit(format!(
                "more than {} windows are open in one shard; raise the limit of open windows \
                 (--open-windows), or lower the out-of-orderness or lateness, or make the \
                 windows longer",
                self.job.open_windows_max
            )));
        }
        self.len_max = self.len_max.max(open + 1);
        let pane = self.spare_pane();
        self.open.insert(span, pane);
        self.show();
        Ok(())
    }

    /// What work on panes needs.
    pub(crate) fn scratch(&mut self) -> &mut Scratch {
        &mut self.scratch
    }

    /// Panes in use.
    pub(crate) fn len(&self) -> usize {
        self.open.len() + self.given.len() + self.len_on_disk()
    }

    /// The most panes that were in use at once.
    pub(crate) fn len_max(&self) -> usize {
        self.len_max
    }

    /// Looks at every pane.
    pub(crate) fn size(&self) -> StateSize {
        let mut size = StateSize { keys: 0, bytes: 0, huge_pages: true };
        let sessions = self.sessions.iter().map(Sessions::open);
        for pane in self.open.values().chain(self.given.values()).chain(sessions) {
            size.keys += pane.len();
            size.bytes += pane.bytes();
            size.huge_pages &= pane.huge_pages();
        }
        size
    }

    /// Closes all windows that end at or before `watermark`, in order of their end, and gives their
    /// results and corrections. Answers how far results are complete now: the watermark, or a little
    /// less for sessions.
    pub(crate) fn close(&mut self, watermark: i64, give: Give<'_>) -> Result<i64, RunError> {
        let job = Arc::clone(&self.job);
        self.watermark = watermark;
        let mut closed_any = false;
        self.settle_to(watermark);
        while let Some(point) = self.next_point().filter(|point| *point <= watermark) {
            closed_any = true;
            let mut parts = self.take_parts(point);
            if let Some(runs) = self.take_runs(point, &mut parts)? {
                self.close_runs(point, runs, give)?;
                continue;
            }
            match (&job.windows, &mut self.sessions) {
                (Some(windows), Some(sessions)) => {
                    for (_, mut part) in parts {
                        let begin = windows.start_of(point);
                        sessions.enter(&job, begin, &mut part, &mut self.scratch, give)?;
                        recycle(&mut self.spare, part);
                    }
                }
                (Some(windows), None) if windows.lateness() > 0 => {
                    self.close_or_correct(windows, point, parts, give)?;
                }
                _ => self.close_window(point, parts, give)?,
            }
        }
        let complete = self.close_kept(&job, watermark, give)?;
        if closed_any {
            self.recount();
        }
        Ok(complete)
    }

    /// Drops results that cannot be corrected any more, and gives the sessions that have ended.
    fn close_kept(&mut self, job: &Job, watermark: i64, give: Give<'_>) -> Result<i64, RunError> {
        let Some(windows) = &job.windows else { return Ok(watermark) };
        if let Some(budget) = &mut self.budget {
            budget.given.retain(|end, _| end.saturating_add(windows.lateness()) > watermark);
        }
        while let Some(entry) = self.given.first_entry() {
            if entry.key().saturating_add(windows.lateness()) > watermark {
                break;
            }
            recycle(&mut self.spare, entry.remove());
        }
        let Some(sessions) = &mut self.sessions else { return Ok(watermark) };
        let complete = windows.end_by(watermark);
        if sessions.end_by(complete) && !self.end_sessions_on_disk(complete, give)? {
            let Some(sessions) = &mut self.sessions else { return Ok(complete) };
            let mut part = take_spare(&mut self.spare, job);
            sessions.enter(job, complete, &mut part, &mut self.scratch, give)?;
            recycle(&mut self.spare, part);
        }
        Ok(complete)
    }

    /// Takes out the spans that are needed at `point`, the first of all.
    fn take_parts(&mut self, point: i64) -> Vec<(Span, Pane)> {
        let mut parts = Vec::new();
        while let Some(entry) = self.open.first_entry() {
            if entry.key().point > point {
                break;
            }
            parts.push(entry.remove_entry());
        }
        parts
    }

    /// Gives the result of the window that ends at `end`, of which these are the parts.
    fn close_window(
        &mut self,
        end: i64,
        mut parts: Vec<(Span, Pane)>,
        give: Give<'_>,
    ) -> Result<(), RunError> {
        let bounds = self.bounds(end);
        if let [(_, only)] = &mut *parts {
            give(
                Results { pane: only, changed: None, bounds, is_early: false, continues: false },
                &mut self.scratch,
            )?;
        } else {
            let mut whole = self.merged(&mut parts);
            give(
                Results {
                    pane: &mut whole,
                    changed: None,
                    bounds,
                    is_early: false,
                    continues: false,
                },
                &mut self.scratch,
            )?;
            recycle(&mut self.spare, whole);
        }
        self.reopen(end, parts)
    }

    /// What is due at `point` where late rows are allowed: the result of the window that ends there, and
    /// corrections of those that ended before.
    fn close_or_correct(
        &mut self,
        windows: &Windows,
        point: i64,
        mut parts: Vec<(Span, Pane)>,
        give: Give<'_>,
    ) -> Result<(), RunError> {
        let due = parts.iter().enumerate().flat_map(|(i, (span, _))| {
            windows.ends(span).take_while(|end| *end <= point).map(move |end| (end, i))
        });
        let mut by_end = BTreeMap::<i64, Vec<usize>>::new();
        for (end, part) in due {
            by_end.entry(end).or_default().push(part);
        }
        for (end, of) in by_end {
            let mut whole = self.spare_pane();
            match *of {
                // Of no other window, as all are that do not overlap.
                [only] if parts[only].0.first == parts[only].0.last => {
                    std::mem::swap(&mut whole, &mut parts[only].1);
                }
                _ => {
                    for part in of {
                        whole.merge(&self.job.plan, &mut parts[part].1, &mut self.scratch);
                    }
                }
            }
            let bounds = self.bounds(end);
            if end == point {
                give(
                    Results {
                        pane: &mut whole,
                        changed: None,
                        bounds,
                        is_early: false,
                        continues: false,
                    },
                    &mut self.scratch,
                )?;
                self.keep_given(end, whole);
                continue;
            }
            let mut given = self.given.remove(&end).unwrap_or_else(|| self.spare_pane());
            let revision =
                self.job.revision.expect("a job that allows late rows counts corrections");
            given.correct(&self.job.plan, &mut whole, revision, &mut self.scratch);
            let changed = Some(&mut whole);
            give(
                Results { pane: &mut given, changed, bounds, is_early: false, continues: false },
                &mut self.scratch,
            )?;
            self.given.insert(end, given);
            recycle(&mut self.spare, whole);
        }
        self.reopen(point, parts)
    }

    /// Keeps a result that may be corrected, beside what there is of the same window: after a restore or a rescale,
    /// other keys' results may have been given before, by a shard that was ahead.
    fn keep_given(&mut self, end: i64, mut whole: Pane) {
        let Some(given) = self.given.get_mut(&end) else {
            self.given.insert(end, whole);
            return;
        };
        let groups = self.job.max_parallelism;
        let all = 0..=u16::try_from(groups - 1).expect("at most 2^15 key groups");
        let keys = whole.len();
        given.copy_groups(&self.job.plan, &mut whole, (&all, groups), keys, &mut self.scratch);
        recycle(&mut self.spare, whole);
    }

    /// Puts parts back under the windows that are left of their spans after `end`.
    fn reopen(&mut self, end: i64, parts: Vec<(Span, Pane)>) -> Result<(), RunError> {
        let job = Arc::clone(&self.job);
        let mut over = Vec::new();
        for (span, mut pane) in parts {
            let Some(windows) = job.windows.as_ref().filter(|_| span.last > end) else {
                over.push(pane);
                continue;
            };
            let span = Span::on_time(windows.end_after(end), span.last);
            if let Some(mut other) = self.open.remove(&span) {
                if other.len() > pane.len() {
                    std::mem::swap(&mut other, &mut pane);
                }
                if self.board.is_some() {
                    // Readers see both until they see what is made of them.
                    let mut both = self.spare_pane();
                    both.merge(&job.plan, &mut pane, &mut self.scratch);
                    over.push(std::mem::replace(&mut pane, both));
                    pane.merge(&job.plan, &mut other, &mut self.scratch);
                } else if !self.set_aside(span, &pane, &mut other)? {
                    pane.absorb(&job.plan, &mut other, &mut self.scratch);
                }
                over.push(other);
            }
            self.open.insert(span, pane);
        }
        self.show();
        for pane in over {
            recycle(&mut self.spare, pane);
        }
        Ok(())
    }

    fn bounds(&self, end: i64) -> Bounds {
        match &self.job.windows {
            None => Bounds::None,
            Some(windows) => Bounds::Window { start: windows.start_of(end), end },
        }
    }

    /// A pane with everything in `parts`, which are left as they are.
    fn merged(&mut self, parts: &mut [(Span, Pane)]) -> Pane {
        let mut whole = self.spare_pane();
        for (_, part) in parts {
            whole.merge(&self.job.plan, part, &mut self.scratch);
        }
        whole
    }

    /// An empty pane.
    fn spare_pane(&mut self) -> Pane {
        take_spare(&mut self.spare, &self.job)
    }

    /// Gives the results of all open windows as they stand, in order of their end, and changes nothing.
    pub(crate) fn snapshot(&mut self, give: Give<'_>) -> Result<(), RunError> {
        self.settle();
        let job = Arc::clone(&self.job);
        let Some(windows) = &job.windows else {
            let bounds = Bounds::None;
            if self.is_on_disk(&Span::ALL) {
                return self.snapshot_runs(bounds, &[Span::ALL], give);
            }
            return self.open.values_mut().try_for_each(|pane| {
                give(
                    Results { pane, changed: None, bounds, is_early: true, continues: false },
                    &mut self.scratch,
                )
            });
        };
        if self.sessions.is_some() {
            if self.copies_sessions_from_runs() {
                return self.snapshot_session_runs(windows, give);
            }
            return self.snapshot_sessions(windows, give);
        }
        let mut by_end = BTreeMap::<i64, Vec<Span>>::new();
        for span in self.open_spans() {
            for end in windows.ends(&span).filter(|end| *end > self.watermark) {
                by_end.entry(end).or_default().push(span);
            }
        }
        for (end, spans) in by_end {
            let bounds = self.bounds(end);
            if self.merges_runs(&spans) {
                self.snapshot_runs(bounds, &spans, give)?;
                continue;
            }
            let mut whole = self.spare_pane();
            for span in &spans {
                let part = self.open.get_mut(span).expect("a span that is open");
                if let [_] = *spans {
                    give(
                        Results {
                            pane: part,
                            changed: None,
                            bounds,
                            is_early: true,
                            continues: false,
                        },
                        &mut self.scratch,
                    )?;
                } else {
                    whole.merge(&job.plan, part, &mut self.scratch);
                }
            }
            if spans.len() > 1 {
                give(
                    Results {
                        pane: &mut whole,
                        changed: None,
                        bounds,
                        is_early: true,
                        continues: false,
                    },
                    &mut self.scratch,
                )?;
            }
            recycle(&mut self.spare, whole);
        }
        Ok(())
    }

    fn snapshot_sessions(&mut self, windows: &Windows, give: Give<'_>) -> Result<(), RunError> {
        let Some(sessions) = &mut self.sessions else { return Ok(()) };
        let job = &self.job;
        let mut copy = sessions.copy(job, &mut self.scratch);
        let mut part = Pane::new(&job.keys, &job.plan);
        for (span, pane) in &mut self.open {
            part.merge(&job.plan, pane, &mut self.scratch);
            copy.enter(job, windows.start_of(span.point), &mut part, &mut self.scratch, give)?;
        }
        copy.enter(job, i64::MAX, &mut part, &mut self.scratch, give)
    }
}

impl OpenWindows {
    /// Everything that is kept, as sections of a checkpoint.
    pub(crate) fn image(&mut self, layout: &ImageLayout) -> Result<Vec<SectionImage>, RunError> {
        self.settle();
        if !self.has_room_for_image() {
            return self.image_in_runs();
        }
        let mut sections = Vec::new();
        let (job, scratch) = (Arc::clone(&self.job), &mut self.scratch);
        let mut add = |kind, span: Span, pane: &mut Pane| {
            if pane.len() == 0 {
                return Ok(());
            }
            let image = pane.image(&job.plan, layout, scratch);
            let image = image.map_err(|why| CheckpointError::Unsaved(why.to_string()))?;
            let Span { point, first, last } = span;
            let rows = image.num_rows() as u64;
            let section = Section { kind, point, first, last, rows };
            sections.push(SectionImage { section, image: SectionRows::Memory(image) });
            Ok::<(), CheckpointError>(())
        };
        for (span, pane) in &mut self.open {
            add(SectionKind::Open, *span, pane)?;
        }
        for (end, pane) in &mut self.given {
            add(SectionKind::Given, Span::on_time(*end, *end), pane)?;
        }
        if let Some(sessions) = &mut self.sessions {
            add(SectionKind::Sessions, Span::ALL, sessions.open_mut())?;
        }
        Ok(sections)
    }

    /// Takes rows of a section of a checkpoint in, beside those that are there; says why if they are not what they
    /// should be.
    pub(crate) fn restore(
        &mut self,
        layout: &ImageLayout,
        section: &Section,
        image: &RecordBatch,
    ) -> Result<(), String> {
        let job = Arc::clone(&self.job);
        let new = || new_pane(&job);
        let Section { kind, point, first, last, .. } = *section;
        let pane = match (kind, &mut self.sessions) {
            (SectionKind::Open, _) => {
                self.open.entry(Span { point, first, last }).or_insert_with(new)
            }
            (SectionKind::Given, _) => self.given.entry(last).or_insert_with(new),
            (SectionKind::Sessions, Some(sessions)) => sessions.open_mut(),
            (SectionKind::Process, _) => {
                return Err("it holds the state of a process, which the job has not".to_owned());
            }
            (SectionKind::Sessions, None) => {
                return Err("it holds sessions, of which the job has none".to_owned());
            }
        };
        let restored = if kind == SectionKind::Open && pane.len() > 0 {
            // What a shard had on disk may hold a key more than once.
            pane.restore_merging(&job.plan, layout, image, (&mut new(), &mut self.scratch))
        } else {
            pane.restore(&job.plan, layout, image, &mut self.scratch)
        };
        restored.map_err(|why| why.to_string())
    }

    /// Keeps these panes, which are empty, for windows to come.
    pub(crate) fn lend(&mut self, panes: Vec<Pane>) {
        self.spare.extend(panes);
    }

    /// Takes what belongs to the key groups `groups` from a shard that had the key groups `from` and is no more. The
    /// rest it keeps, for others. `is_only` if nothing comes from any other shard. What is in `open`, its open panes,
    /// is copied later, if it is not moved as a whole.
    pub(crate) fn take_over(
        &mut self,
        (other, open): (&mut Self, &BTreeMap<Span, OldPane>),
        from: &RangeInclusive<u16>,
        groups: &RangeInclusive<u16>,
        is_only: bool,
    ) {
        let job = Arc::clone(&self.job);
        let is_whole = groups.start() <= from.start() && from.end() <= groups.end();
        let common = from.clone().filter(|group| groups.contains(group)).count();
        let new = || Pane::new(&job.keys, &job.plan);
        for (span, old) in open {
            // Where nothing else comes, the pane itself is moved; else a warm one costs no page faults.
            let is_moved = is_whole && (is_only || self.spare.is_empty());
            match self.open.entry(*span) {
                Entry::Vacant(entry) if is_moved => {
                    entry.insert(std::mem::replace(&mut *lock(old), new()));
                }
                entry => {
                    entry.or_insert_with(|| self.spare.pop().unwrap_or_else(new));
                    self.inheritance.add(*span, Arc::clone(old), groups.clone());
                }
            }
        }
        let Self { scratch, spare, .. } = self;
        let mut copy = |into: &mut Pane, pane: &mut Pane| {
            let expected = pane.len() * common / from.len();
            into.copy_groups(&job.plan, pane, (groups, job.max_parallelism), expected, scratch);
        };
        for (end, pane) in &mut other.given {
            copy(self.given.entry(*end).or_insert_with(|| spare.pop().unwrap_or_else(new)), pane);
        }
        if let (Some(mine), Some(others)) = (&mut self.sessions, &mut other.sessions) {
            copy(mine.open_mut(), others.open_mut());
        }
        self.given.retain(|_, pane| pane.len() > 0);
    }

    /// Goes on where windows that end at or before `watermark` are closed.
    pub(crate) fn go_on_at(&mut self, watermark: i64) {
        self.watermark = watermark;
        self.len_max = self.len();
        if let Some(sessions) = &mut self.sessions {
            sessions.find_first_end();
        }
        self.show();
    }
}

/// An empty pane, which readers may see if there are any.
fn new_pane(job: &Job) -> Pane {
    if job.readers {
        Pane::new_readable(&job.keys, &job.plan)
    } else {
        Pane::new(&job.keys, &job.plan)
    }
}

/// Keeps a pane's memory for later.
fn recycle(spare: &mut Vec<Pane>, mut pane: Pane) {
    if spare.len() < SPARE_PANES_MAX {
        if !pane.is_shared() {
            pane.clear();
        }
        spare.push(pane);
    }
}

/// An empty pane, of memory that was used before if there is any that no reader sees.
fn take_spare(spare: &mut Vec<Pane>, job: &Job) -> Pane {
    let mut found = (0..spare.len()).rev();
    let Some(place) = found.find(|place| !spare[*place].is_shared()) else { return new_pane(job) };
    let mut pane = spare.swap_remove(place);
    if pane.len() > 0 {
        pane.clear();
    }
    pane
}
