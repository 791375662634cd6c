//! The watermark of one input, exact to the row.
//!
//! Whether a row is late must not depend on batch sizes or on which worker read it, so it is decided
//! against the watermark as it stands *at that row*: the largest event time before it in its own input,
//! less the out-of-orderness. A window's shard closes it when every input's watermark has passed its
//! end, hence never before a row that is not late arrives.

/// Watermark of one input.
#[derive(Debug, Clone)]
pub(crate) struct Watermark {
    out_of_orderness: i64,
    /// Largest event time so far; `i64::MIN` before the first.
    max_time: i64,
    /// What was promised explicitly.
    promised: i64,
    /// The time the engine had reached when this input began or woke up.
    missed: i64,
}

/// Why a row is late.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lateness {
    /// It lies further behind the largest event time of its input than the out-of-orderness allows.
    OutOfOrder,
    /// An explicit watermark had promised that no such row would follow.
    AfterWatermark,
    /// Its input began, or spoke again after a silence, when the others had gone on without it.
    WhileAbsent,
}

impl Lateness {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::OutOfOrder, Self::AfterWatermark, Self::WhileAbsent];

    /// Name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::OutOfOrder => "out_of_order",
            Self::AfterWatermark => "after_watermark",
            Self::WhileAbsent => "while_absent",
        }
    }
}

impl Watermark {
    pub(crate) fn new(out_of_orderness: i64) -> Self {
        Self { out_of_orderness, max_time: i64::MIN, promised: i64::MIN, missed: i64::MIN }
    }

    fn of_rows(&self) -> i64 {
        self.max_time.saturating_sub(self.out_of_orderness)
    }

    /// No row to come that is not late lies in a window that ends at or before this.
    #[inline(always)]
    pub(crate) fn get(&self) -> i64 {
        self.of_rows().max(self.promised).max(self.missed)
    }

    /// What it would be after a row of this event time.
    pub(crate) fn get_with(&self, time: i64) -> i64 {
        self.get().max(time.saturating_sub(self.out_of_orderness))
    }

    /// Takes note of a row's event time.
    #[inline(always)]
    pub(crate) fn observe(&mut self, time: i64) {
        self.max_time = self.max_time.max(time);
    }

    /// Promises that rows before `time` are late from now on.
    pub(crate) fn raise(&mut self, time: i64) {
        self.promised = self.promised.max(time);
    }

    /// The engine went on to `time` without this input, for which rows before it are late from now on.
    pub(crate) fn miss(&mut self, time: i64) {
        self.missed = self.missed.max(time);
    }

    /// Continues where the input stood: `max_time` over all its rows before the next one.
    pub(crate) fn continue_at(&mut self, max_time: i64, missed: i64) {
        self.max_time = max_time;
        self.missed = missed;
    }

    /// The largest event time so far, and what else was promised: what [`Watermark::continue_at`] takes.
    pub(crate) fn state(&self) -> (i64, i64) {
        (self.max_time, self.promised.max(self.missed))
    }

    /// Why a row is late that is so from the watermark `closed_at` on, which has been reached.
    pub(crate) fn why_late(&self, closed_at: i64) -> Lateness {
        if self.of_rows() >= closed_at {
            Lateness::OutOfOrder
        } else if self.promised >= closed_at {
            Lateness::AfterWatermark
        } else {
            Lateness::WhileAbsent
        }
    }
}
