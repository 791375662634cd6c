//! The windows of a job, in the event time's unit: where a row belongs, and when it is late.

use std::time::Duration;

use super::Window;
use super::calendar::Calendar;
use super::fixed::{Cumulate, Grid};
use super::session::Session;
use super::span::{Place, Slice, Span};
use crate::error::ConfigError;
use crate::time::event_time::Unit;

/// Windows of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Windows {
    kind: Kind,
    /// How long after its end a window may still be corrected.
    lateness: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Grid(Grid),
    Cumulate(Cumulate),
    Calendar(Calendar),
    Session(Session),
}

impl Windows {
    /// The windows over a time column of this unit, whose type holds times within `limits`; `None` for a
    /// job without windows.
    pub(crate) fn new(
        window: Window,
        unit: Unit,
        limits: (i64, i64),
    ) -> Result<Option<Self>, ConfigError> {
        let kind = match window {
            Window::None => return Ok(None),
            Window::Tumbling { size, offset } => {
                Kind::Grid(Grid::new((size, size), offset, unit, limits)?)
            }
            Window::Hopping { size, slide, offset } => {
                Kind::Grid(Grid::new((size, slide), offset, unit, limits)?)
            }
            Window::Cumulate { step, max, offset } => {
                Kind::Cumulate(Cumulate::new((step, max), offset, unit, limits)?)
            }
            Window::Calendar { unit: calendar_unit, count, zone } => {
                Kind::Calendar(Calendar::new(calendar_unit, count, zone, unit, limits)?)
            }
            Window::ProcessingTime { size } => {
                Kind::Grid(Grid::new((size, size), Duration::ZERO, unit, limits)?)
            }
            Window::Session { gap } => Kind::Session(Session::new(gap, unit, limits)?),
        };
        Ok(Some(Self { kind, lateness: 0 }))
    }

    /// The same with results corrected for so long after their window's end.
    ///
    /// # Errors
    /// If it cannot be done for these windows.
    pub(crate) fn allow_lateness(mut self, lateness: i64) -> Result<Self, ConfigError> {
        if lateness > 0 && self.session().is_some() {
            return Err(ConfigError::Unsupported {
                what:
                    "an allowed lateness for session windows, where a late row may join sessions \
                       that were given already,"
                        .into(),
                instead:
                    "use the out-of-orderness (--out-of-orderness), which delays results by as much"
                        .into(),
            });
        }
        self.lateness = lateness;
        Ok(self)
    }

    /// How long after its end a window may still be corrected.
    pub(crate) fn lateness(&self) -> i64 {
        self.lateness
    }

    /// What is particular to session windows, if that is what they are.
    pub(crate) fn session(&self) -> Option<Session> {
        match self.kind {
            Kind::Session(session) => Some(session),
            _ => None,
        }
    }

    /// The windows that `time` lies in.
    #[inline]
    pub(crate) fn locate(&self, time: i64) -> Place {
        match &self.kind {
            Kind::Grid(grid) => grid.locate(time),
            Kind::Cumulate(cumulate) => cumulate.locate(time),
            Kind::Calendar(calendar) => calendar.locate(time),
            Kind::Session(session) => session.locate(time),
        }
    }

    /// What a row of `slice` is filed under if its input's watermark is `watermark` at that row; `None`
    /// if the row is late: all windows of the slice are closed, and the lateness is over.
    ///
    /// (A row of a session window is late earlier, if it lies before the watermark itself.)
    #[inline]
    pub(crate) fn span(&self, slice: &Slice, watermark: i64) -> Option<Span> {
        if watermark < slice.first {
            return Some(Span::on_time(slice.first, slice.last));
        }
        if watermark >= self.closed_at(slice) {
            return None;
        }
        // Windows whose lateness is over are not corrected any more.
        let first = slice.first.max(self.end_after(watermark.saturating_sub(self.lateness)));
        Some(Span { point: self.point_after(watermark), first, last: slice.last })
    }

    /// The watermark from which rows of the slice are late.
    #[inline]
    pub(crate) fn closed_at(&self, slice: &Slice) -> i64 {
        slice.last.saturating_add(self.lateness)
    }

    /// Start of the window that ends at `end`.
    pub(crate) fn start_of(&self, end: i64) -> i64 {
        match &self.kind {
            Kind::Grid(grid) => grid.start_of(end),
            Kind::Cumulate(cumulate) => cumulate.start_of(end),
            Kind::Calendar(calendar) => calendar.start_of(end),
            Kind::Session(session) => session.start_of(end),
        }
    }

    /// The first end of a window after `time`.
    pub(crate) fn end_after(&self, time: i64) -> i64 {
        match &self.kind {
            Kind::Grid(grid) => grid.end_after(time),
            Kind::Cumulate(cumulate) => cumulate.end_after(time),
            Kind::Calendar(calendar) => calendar.end_after(time),
            Kind::Session(session) => session.end_after(time),
        }
    }

    /// The least watermark above `watermark` at which something may be given: the end of a window or of its
    /// lateness. Between two such points, corrections are gathered.
    pub(crate) fn point_after(&self, watermark: i64) -> i64 {
        let end = self.end_after(watermark);
        if self.lateness == 0 {
            return end;
        }
        let over = self.end_after(watermark.saturating_sub(self.lateness));
        end.min(over.saturating_add(self.lateness))
    }

    /// The ends of the windows of `span`, in order.
    pub(crate) fn ends(&self, span: &Span) -> impl Iterator<Item = i64> + use<'_> {
        let last = span.last;
        let next = move |end: &i64| (*end < last).then(|| self.end_after(*end));
        std::iter::successors(Some(span.first), next)
    }

    /// The latest end of a window at or before `time`, of windows that lie side by side.
    pub(crate) fn passed(&self, time: i64) -> i64 {
        match self.locate(time) {
            Place::In(slice) => slice.start,
            _ => i64::MIN,
        }
    }

    /// How far results are complete once the watermark is `watermark`.
    pub(crate) fn end_by(&self, watermark: i64) -> i64 {
        self.session().map_or(watermark, |session| session.end_by(watermark))
    }
}

#[cfg(test)]
mod tests;
