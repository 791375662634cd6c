//! Windows: which rows are aggregated together.

use std::time::Duration;

mod duration;
mod span;
mod fixed;
mod calendar;
mod session;
mod parse;
mod windows;

pub use calendar::{CalendarUnit, Zone};
pub use duration::parse_duration;
pub(crate) use span::{Place, Slice, Span};
pub(crate) use windows::Windows;

/// Windows of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Window {
    /// One result per key, at the end.
    #[default]
    None,
    /// Windows `[start, start + size)` side by side, one of them starting at `offset` after
    /// 1970-01-01 00:00.
    Tumbling {
        /// Length of each window; must be a whole number of the event time's units.
        size: Duration,
        /// Shift of all windows.
        offset: Duration,
    },
    /// Windows `[start, start + size)` with a start every `slide`, one of them at `offset` after
    /// 1970-01-01 00:00. A row is in every window that holds its time; it is kept once, not once for
    /// each window. With a slide longer than the size there are gaps, whose rows are in no window and are
    /// rejected as `between_windows`.
    Hopping {
        /// Length of each window.
        size: Duration,
        /// From the start of one window to the start of the next; need not divide the size.
        slide: Duration,
        /// Shift of all windows.
        offset: Duration,
    },
    /// Windows that grow: they start together every `max` and end after `step`, after twice `step`, and so
    /// on up to `max`, so that each gives the result since the start.
    Cumulate {
        /// From the end of one window to the end of the next.
        step: Duration,
        /// Length of the longest window, a whole number of steps.
        max: Duration,
        /// Shift of all windows.
        offset: Duration,
    },
    /// Windows of `count` calendar days, weeks (from Monday) or months (from January) in a time zone,
    /// which begin with the first instant of the local day: local midnight, the first of two, or, where
    /// clocks go forward over midnight, the first instant after. Days may have 23 or 25 hours.
    /// Timestamps without a zone are taken as UTC.
    Calendar {
        /// What is counted.
        unit: CalendarUnit,
        /// How many are in a window.
        count: u32,
        /// Whose calendar; for a column of dates, UTC.
        zone: Zone,
    },
    /// Windows `[start, start + size)` of processing time: a row is in the window in which it was taken in, by
    /// the system's clock, read once a batch. There is no event time, and no row is late. Bounds are
    /// timestamps of milliseconds in UTC. For live inputs: results are not the same from run to run.
    ProcessingTime {
        /// Length of each window, a whole number of milliseconds.
        size: Duration,
    },
    /// Per key, windows `[first row, last row + gap)` around rows whose times differ by less than `gap` from
    /// one to the next. A row is late if it lies before its input's watermark.
    Session {
        /// Time without rows that ends a session.
        gap: Duration,
    },
}

impl Window {
    /// Tumbling windows that start at multiples of `size` since 1970-01-01 00:00.
    pub fn tumbling(size: Duration) -> Self {
        Self::Tumbling { size, offset: Duration::ZERO }
    }

    /// Hopping windows that start at multiples of `slide` since 1970-01-01 00:00.
    pub fn hopping(size: Duration, slide: Duration) -> Self {
        Self::Hopping { size, slide, offset: Duration::ZERO }
    }

    /// Cumulating windows that start at multiples of `max` since 1970-01-01 00:00.
    pub fn cumulate(step: Duration, max: Duration) -> Self {
        Self::Cumulate { step, max, offset: Duration::ZERO }
    }
}
