//! The windows of a job, in the event time's unit: where a row belongs, and when it is late.

use super::Window;
use super::calendar::Calendar;
use super::fixed::{Cumulate, Grid};
use super::span::{Place, Slice, Span};
use crate::error::ConfigError;
use crate::time::event_time::Unit;

/// Windows of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Windows {
    kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Kind {
    Grid(Grid),
    Cumulate(Cumulate),
    Calendar(Calendar),
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
        };
        Ok(Some(Self { kind }))
    }

    /// The windows that `time` lies in.
    #[inline]
    pub(crate) fn locate(&self, time: i64) -> Place {
        match &self.kind {
            Kind::Grid(grid) => grid.locate(time),
            Kind::Cumulate(cumulate) => cumulate.locate(time),
            Kind::Calendar(calendar) => calendar.locate(time),
        }
    }

    /// What a row of `slice` is filed under if its input's watermark is `watermark` at that row; `None`
    /// if the row is late: all windows of the slice are closed.
    #[inline]
    pub(crate) fn span(&self, slice: &Slice, watermark: i64) -> Option<Span> {
        if watermark < slice.first {
            return Some(Span::on_time(slice.first, slice.last));
        }
        if watermark >= slice.last {
            return None;
        }
        Some(Span::on_time(self.end_after(watermark), slice.last))
    }

    /// Start of the window that ends at `end`.
    pub(crate) fn start_of(&self, end: i64) -> i64 {
        match &self.kind {
            Kind::Grid(grid) => grid.start_of(end),
            Kind::Cumulate(cumulate) => cumulate.start_of(end),
            Kind::Calendar(calendar) => calendar.start_of(end),
        }
    }

    /// The first end of a window after `time`.
    pub(crate) fn end_after(&self, time: i64) -> i64 {
        match &self.kind {
            Kind::Grid(grid) => grid.end_after(time),
            Kind::Cumulate(cumulate) => cumulate.end_after(time),
            Kind::Calendar(calendar) => calendar.end_after(time),
        }
    }

    /// The least watermark above `watermark` at which something may be given.
    pub(crate) fn point_after(&self, watermark: i64) -> i64 {
        self.end_after(watermark)
    }
}

#[cfg(test)]
mod tests;
