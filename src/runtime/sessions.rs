//! Session windows of one shard.
//!
//! Time is cut into slices no longer than the gap, so that rows of one key in one slice are always in one
//! session, whatever is between them: up to here sessions are tumbling windows, and hot keys are
//! aggregated and merged as in these. A pane of a slice also keeps each key's least and largest time. Once a
//! slice is complete, the sessions that were open before it are joined to the keys of its pane
//! ([`Pane::continue_sessions`]); the pane then holds what is open after it.
//!
//! **Invariant:** results depend on the rows alone. A row is late if it lies before its input's watermark,
//! so no row that is not late can touch a session that was closed.
//!
//! **Cost:** each open session moves once per slice, at most some five times after its last row. A session is
//! given with the first end of a slice after its own end, at most a quarter of the gap later.

use super::emit::{Bounds, Give, Results};
use crate::config::Job;
use crate::error::RunError;
use crate::state::pane::sessions::Stitch;
use crate::state::pane::{Pane, Scratch};

/// Sessions that have not ended.
#[derive(Debug)]
pub(crate) struct Sessions {
    gap: i64,
    /// Where the times of a session stand.
    extent: usize,
    open: Pane,
    /// The least end of an open session.
    first_end: i64,
    closed: Pane,
    /// Only for a look at sessions that are still open.
    is_copy: bool,
}

impl Sessions {
    /// None, in a job with session windows.
    pub(crate) fn new(job: &Job) -> Option<Self> {
        let (gap, extent) = job.sessions?;
        let pane = || Pane::new(&job.keys, &job.plan);
        Some(Self {
            gap,
            extent,
            open: pane(),
            first_end: i64::MAX,
            closed: pane(),
            is_copy: false,
        })
    }

    /// The pane of open sessions, for checkpoints.
    pub(crate) fn open_mut(&mut self) -> &mut Pane {
        &mut self.open
    }

    /// Looks for the least end of an open session, after some have come out of a checkpoint.
    pub(crate) fn find_first_end(&mut self) {
        // Only the gap is looked at.
        let stitch = Stitch { extent: self.extent, gap: self.gap, begin: i64::MIN };
        let len = u32::try_from(self.open.len()).expect("row ids are 32 bits");
        self.first_end = self.first_end.min(self.open.first_session_end(0..len, stitch));
    }

    /// Takes the pane of open sessions, in whose place there is an empty one; their ends are remembered.
    pub(crate) fn take_open(&mut self, job: &Job) -> Pane {
        std::mem::replace(&mut self.open, Pane::new(&job.keys, &job.plan))
    }

    /// All panes, for their size.
    pub(crate) fn panes(&self) -> [&Pane; 2] {
        [&self.open, &self.closed]
    }

    /// What follows is [`Sessions::enter_piece`] for all sessions.
    pub(crate) fn begin_pieces(&mut self) {
        self.first_end = i64::MAX;
    }

    /// [`Sessions::enter`] for some of the keys: of these, `before` are the open sessions, and `slice` the rows of the
    /// slice; what is open then is in `slice`.
    pub(crate) fn enter_piece(
        &mut self,
        job: &Job,
        begin: i64,
        (before, slice): (&mut Pane, &mut Pane),
        scratch: &mut Scratch,
        give: Give<'_>,
    ) -> Result<(), RunError> {
        let stitch = Stitch { extent: self.extent, gap: self.gap, begin };
        slice.continue_sessions(&job.plan, before, &mut self.closed, stitch, scratch);
        let len = u32::try_from(slice.len()).expect("row ids are 32 bits");
        self.first_end = self.first_end.min(slice.first_session_end(0..len, stitch));
        self.give_closed(scratch, give)
    }

    /// The pane of open sessions, for its size.
    pub(crate) fn open(&self) -> &Pane {
        &self.open
    }

    /// Goes on to a slice of time that begins at `begin` and whose rows are all in `pane`; gives the
    /// sessions that ended before it. What is left is an empty pane.
    pub(crate) fn enter(
        &mut self,
        job: &Job,
        begin: i64,
        pane: &mut Pane,
        scratch: &mut Scratch,
        give: Give<'_>,
    ) -> Result<(), RunError> {
        let stitch = Stitch { extent: self.extent, gap: self.gap, begin };
        pane.continue_sessions(&job.plan, &mut self.open, &mut self.closed, stitch, scratch);
        std::mem::swap(&mut self.open, pane);
        pane.clear();
        let len = u32::try_from(self.open.len()).expect("row ids are 32 bits");
        self.first_end = self.open.first_session_end(0..len, stitch);
        self.give_closed(scratch, give)
    }

    fn give_closed(&mut self, scratch: &mut Scratch, give: Give<'_>) -> Result<(), RunError> {
        if self.closed.len() > 0 {
            let bounds = Bounds::Sessions { gap: self.gap, extent: self.extent };
            let (pane, is_early) = (&mut self.closed, self.is_copy);
            give(Results { pane, changed: None, bounds, is_early, continues: false }, scratch)?;
            self.closed.clear();
        }
        Ok(())
    }

    /// Whether a session ends at or before `time`.
    pub(crate) fn end_by(&self, time: i64) -> bool {
        self.first_end <= time
    }

    /// A copy of what is open.
    pub(crate) fn copy(&mut self, job: &Job, scratch: &mut Scratch) -> Self {
        let mut copy = self.empty_copy(job);
        copy.open.merge(&job.plan, &mut self.open, scratch);
        copy
    }

    /// The same without any session.
    pub(crate) fn empty_copy(&self, job: &Job) -> Self {
        let copy = Self::new(job).expect("a job with sessions");
        Self { first_end: self.first_end, is_copy: true, ..copy }
    }
}
