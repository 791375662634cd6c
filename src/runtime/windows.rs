//! The windows of one shard, from the first row to the last result.
//!
//! Rows and partials are kept once per [`Span`] of windows, in a pane each. When the watermark reaches a
//! window's end, all panes whose spans begin with that window are merged into its result; then the window
//! is taken off these spans, panes of spans that are now equal are merged, and panes of which no window is
//! left are used again. So a window that no other overlaps costs no merge at all, a cumulating window
//! one merge of the latest step, and a hopping window one merge for each slice in it.
//!
//! **Invariant:** every span begins after the watermark, and all spans of one end and one beginning are one.
//!
//! **Cost:** a search among the open spans per run of rows; memory of a pane per open span, bounded by the
//! job's limit of open windows.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use crate::config::Job;
use crate::error::RunError;
use crate::state::pane::{Pane, Scratch};
use crate::time::window::{Span, Windows};

/// Panes kept with their memory for later windows.
const SPARE_PANES_MAX: usize = 4;

/// Bounds of a window, `[start, end)`; none in a job without windows.
pub(crate) type Bounds = Option<(i64, i64)>;

/// What is done with a window's result: the pane that holds it and the window's bounds.
pub(crate) type Give<'a> =
    &'a mut dyn FnMut(&mut Pane, Bounds, &mut Scratch) -> Result<(), RunError>;

/// Open windows of one shard.
#[derive(Debug)]
pub(crate) struct OpenWindows {
    job: Arc<Job>,
    /// Panes by the windows that their rows are in.
    open: BTreeMap<Span, Pane>,
    spare: Vec<Pane>,
    scratch: Scratch,
}

/// Size of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StateSize {
    pub(crate) keys: usize,
    pub(crate) bytes: usize,
    pub(crate) huge_pages: bool,
}

impl OpenWindows {
    pub(crate) fn new(job: Arc<Job>) -> Self {
        Self { job, open: BTreeMap::new(), spare: Vec::new(), scratch: Scratch::default() }
    }

    /// The pane of `span`, opened if needed, and what work on it needs.
    ///
    /// # Errors
    /// If that would be more than the job allows to be open.
    pub(crate) fn pane(&mut self, span: Span) -> Result<(&mut Pane, &mut Scratch), RunError> {
        let open = self.open.len();
        let pane = match self.open.entry(span) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => {
                let job = &self.job;
                if open >= job.open_windows_max {
                    return Err(RunError::Limit(format!(
                        "more than {} windows are open in one shard; raise the limit of open windows \
                         (--open-windows), or lower the out-of-orderness, or make the windows longer",
                        job.open_windows_max
                    )));
                }
                entry.insert(self.spare.pop().unwrap_or_else(|| Pane::new(&job.keys, &job.plan)))
            }
        };
        Ok((pane, &mut self.scratch))
    }

    /// Panes in use.
    pub(crate) fn len(&self) -> usize {
        self.open.len()
    }

    /// Looks at every pane.
    pub(crate) fn size(&self) -> StateSize {
        let mut size = StateSize { keys: 0, bytes: 0, huge_pages: true };
        for pane in self.open.values() {
            size.keys += pane.len();
            size.bytes += pane.bytes();
            size.huge_pages &= pane.huge_pages();
        }
        size
    }

    /// Gives the results of all windows that end at or before `watermark`, in order of their end, and
    /// closes them.
    pub(crate) fn close(&mut self, watermark: i64, give: Give<'_>) -> Result<(), RunError> {
        while let Some((&span, _)) = self.open.first_key_value() {
            if span.point > watermark {
                break;
            }
            self.close_window(span.point, give)?;
        }
        Ok(())
    }

    /// Gives the result of the window that ends at `end`, the first that is open.
    fn close_window(&mut self, end: i64, give: Give<'_>) -> Result<(), RunError> {
        let mut parts = Vec::new();
        while let Some(entry) = self.open.first_entry() {
            if entry.key().point > end {
                break;
            }
            parts.push(entry.remove_entry());
        }
        let job = Arc::clone(&self.job);
        let bounds = job.windows.as_ref().map(|windows| (windows.start_of(end), end));
        if let [(_, only)] = &mut *parts {
            give(only, bounds, &mut self.scratch)?;
        } else {
            let mut whole = self.spare_pane();
            for (_, part) in &mut parts {
                whole.merge(&job.plan, part, &mut self.scratch);
            }
            give(&mut whole, bounds, &mut self.scratch)?;
            self.recycle(whole);
        }
        for (span, pane) in parts {
            match &job.windows {
                Some(windows) if span.last > end => {
                    self.reopen(Span::on_time(windows.end_after(end), span.last), pane);
                }
                _ => self.recycle(pane),
            }
        }
        Ok(())
    }

    /// Puts a pane back under the windows that are left of its span.
    fn reopen(&mut self, span: Span, mut pane: Pane) {
        if let Some(mut other) = self.open.remove(&span) {
            if other.len() > pane.len() {
                std::mem::swap(&mut other, &mut pane);
            }
            pane.merge(&self.job.plan, &mut other, &mut self.scratch);
            self.recycle(other);
        }
        self.open.insert(span, pane);
    }

    /// An empty pane.
    fn spare_pane(&mut self) -> Pane {
        self.spare.pop().unwrap_or_else(|| Pane::new(&self.job.keys, &self.job.plan))
    }

    fn recycle(&mut self, mut pane: Pane) {
        if self.spare.len() < SPARE_PANES_MAX {
            pane.clear();
            self.spare.push(pane);
        }
    }

    /// Gives the results of all open windows as they stand, in order of their end, and changes nothing.
    pub(crate) fn snapshot(&mut self, give: Give<'_>) -> Result<(), RunError> {
        let job = Arc::clone(&self.job);
        let Some(windows) = &job.windows else {
            return self.open.values_mut().try_for_each(|pane| give(pane, None, &mut self.scratch));
        };
        for (end, spans) in windows_of(windows, self.open.keys()) {
            let bounds = Some((windows.start_of(end), end));
            if let [only] = *spans {
                let pane = self.open.get_mut(&only).expect("a span that is open");
                give(pane, bounds, &mut self.scratch)?;
                continue;
            }
            let mut whole = self.spare_pane();
            for span in &spans {
                let part = self.open.get_mut(span).expect("a span that is open");
                whole.merge(&job.plan, part, &mut self.scratch);
            }
            give(&mut whole, bounds, &mut self.scratch)?;
            self.recycle(whole);
        }
        Ok(())
    }
}

/// The windows of `spans` by their end, each with the spans that it is part of.
fn windows_of<'a>(
    windows: &Windows,
    spans: impl Iterator<Item = &'a Span>,
) -> BTreeMap<i64, Vec<Span>> {
    let mut found = BTreeMap::<i64, Vec<Span>>::new();
    for span in spans {
        let mut end = span.first;
        loop {
            found.entry(end).or_default().push(*span);
            if end >= span.last {
                break;
            }
            end = windows.end_after(end);
        }
    }
    found
}
