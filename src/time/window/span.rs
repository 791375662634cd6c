//! What a row is filed under: the windows that it counts in.
//!
//! Time is cut into *slices*, so that all times of a slice lie in the same windows: those whose ends are
//! `first ..= last` on the grid of window ends. A row is filed once, however many windows it lies in,
//! under the [`Span`] of its windows that are still open *at that row in its own input*. A row that is
//! too late for some of its windows only is therefore in exactly those that are left, whatever the
//! engine as a whole has closed by then.
//!
//! **Invariant:** once an input's watermark has reached a span's `point`, no row of that input is filed
//! under it any more: partials of the span are complete, and whoever has them all may use them.

/// Times that lie in the same windows, and which these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    /// First time of the slice.
    pub(crate) start: i64,
    /// First time after the slice.
    pub(crate) end: i64,
    /// End of the first window that holds the slice.
    pub(crate) first: i64,
    /// End of the last window that holds the slice.
    pub(crate) last: i64,
}

/// Where a time lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// In the windows of this slice.
    In(Slice),
    /// Between two windows, in none.
    Between,
    /// A window of it would not lie within the range of times.
    OutOfRange,
}

/// Rows that count in the same windows and are used for the first time at the same watermark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Span {
    /// The watermark at which the rows are needed first: the end of the first window, or, for rows
    /// that correct windows already given, the time of the correction.
    pub(crate) point: i64,
    /// End of the first window.
    pub(crate) first: i64,
    /// End of the last window.
    pub(crate) last: i64,
}

impl Span {
    /// All rows of a job without windows: needed at the end of time.
    pub(crate) const ALL: Self = Self::on_time(i64::MAX, i64::MAX);

    /// Rows in the windows that end at `first ..= last`, none of which is closed.
    pub(crate) const fn on_time(first: i64, last: i64) -> Self {
        Self { point: first, first, last }
    }
}

impl From<Span> for i64 {
    /// The end of the first window, for messages.
    fn from(span: Span) -> Self {
        span.first
    }
}
