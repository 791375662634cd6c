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
    /// What was promised by other means: an explicit watermark, or the time the engine had reached when
    /// this input began or woke up.
    floor: i64,
}

impl Watermark {
    pub(crate) fn new(out_of_orderness: i64) -> Self {
        Self { out_of_orderness, max_time: i64::MIN, floor: i64::MIN }
    }

    /// No row to come that is not late lies in a window that ends at or before this.
    #[inline(always)]
    pub(crate) fn get(&self) -> i64 {
        self.max_time.saturating_sub(self.out_of_orderness).max(self.floor)
    }

    /// Takes note of a row's event time.
    #[inline(always)]
    pub(crate) fn observe(&mut self, time: i64) {
        self.max_time = self.max_time.max(time);
    }

    /// Promises that rows before `time` are late from now on.
    pub(crate) fn raise(&mut self, time: i64) {
        self.floor = self.floor.max(time);
    }

    /// Continues where the input stood: `max_time` over all its rows before the next one.
    pub(crate) fn continue_at(&mut self, max_time: i64, floor: i64) {
        self.max_time = max_time;
        self.floor = floor;
    }
}
