//! Windows of a batch's rows, and which rows are late: decided once, before a row is split by key.
//!
//! Rows of one slice of time, by far the most frequent case, cost one pass for the least and the largest
//! time. Otherwise each row is filed under its [`Span`], in the input's order.

use arrow::array::{ArrayRef, UInt32Array};
use arrow::compute::take_record_batch;
use arrow::record_batch::RecordBatch;
use hashbrown::HashMap;

use super::sink::{Rejection, Sink};
use crate::config::Job;
use crate::error::{ConfigError, RunError};
use crate::kernel::reduce::MinMax;
use crate::time::event_time::{Times, times};
use crate::time::watermark::{Lateness, Watermark};
use crate::time::window::{Place, Slice, Span, Windows};

/// Marks a row that goes to no window.
pub(super) const EXCLUDED: u32 = u32::MAX;

/// Where the rows of one batch belong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Assignment {
    /// All under this span.
    One(Span),
    /// None is left.
    Nothing,
    /// By row, see [`WindowScratch`].
    Mixed,
}

/// What became of the rows of one producer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RowCounts {
    pub(crate) rows_in: u64,
    pub(crate) late: u64,
    /// Late rows by the number of their reason.
    pub(crate) late_by: [u64; Lateness::ALL.len()],
    pub(crate) null_time: u64,
    pub(crate) time_out_of_range: u64,
    pub(crate) between_windows: u64,
}

impl RowCounts {
    /// Adds those of another producer.
    pub(crate) fn add(&mut self, other: &Self) {
        self.rows_in += other.rows_in;
        self.late += other.late;
        self.late_by.iter_mut().zip(other.late_by).for_each(|(sum, rows)| *sum += rows);
        self.null_time += other.null_time;
        self.time_out_of_range += other.time_out_of_range;
        self.between_windows += other.between_windows;
    }

    /// Rows that could not be used, by reason.
    pub(crate) fn rejected(&self) -> [(Rejection, u64); 3] {
        [
            (Rejection::NullTime, self.null_time),
            (Rejection::TimeOutOfRange, self.time_out_of_range),
            (Rejection::BetweenWindows, self.between_windows),
        ]
    }

    /// Rows that are aggregated.
    #[cfg(test)]
    pub(crate) fn aggregated(&self) -> u64 {
        self.rows_in - self.late - self.rejected().iter().map(|(_, rows)| rows).sum::<u64>()
    }
}

/// Spans of a batch whose rows do not all belong to one.
#[derive(Debug, Default)]
pub(super) struct WindowScratch {
    /// The batch's spans, in order of appearance.
    pub(super) spans: Vec<Span>,
    /// For each row, an index into `spans`, or [`EXCLUDED`].
    pub(super) ordinals: Vec<u32>,
    /// The same for hot rows, while both are at hand.
    pub(super) hot_ordinals: Vec<u32>,
    by_span: HashMap<Span, u32>,
    late: Vec<u32>,
    late_by: [u64; Lateness::ALL.len()],
    null_time: Vec<u32>,
    out_of_range: Vec<u32>,
    between: Vec<u32>,
    /// Rows per (span in order, shard), then where the next such row goes.
    pub(super) counts: Vec<usize>,
    /// For each index into `spans`, its rank.
    pub(super) ranks: Vec<u32>,
}

impl WindowScratch {
    /// Finds the spans of a batch's rows, and moves its input's watermark on. `expected` are the least and
    /// largest event time of the rows to come, if known.
    pub(super) fn assign(
        &mut self,
        job: &Job,
        batch: &RecordBatch,
        expected: Option<(i64, i64)>,
        watermark: &mut Watermark,
    ) -> Result<Assignment, RunError> {
        let Some(windows) = &job.windows else {
            if let Some(time) = job.time.as_ref().filter(|_| job.has_watermarks()) {
                observe_largest(job, batch.column(time.column), watermark)?;
            }
            return Ok(Assignment::One(Span::ALL));
        };
        if let Some(clock) = &job.clock {
            return now_at(clock.now(), windows, watermark);
        }
        let Some(time) = &job.time else { return Ok(Assignment::One(Span::ALL)) };
        let times = times(batch.column(time.column))
            .map_err(|error: ConfigError| RunError::Batch(error.to_string()))?;
        self.start();
        let one_slice = |(min, max)| match windows.locate(min) {
            Place::In(slice) if max < slice.end => {
                let in_time = windows.session().is_none() || watermark.get_with(max) <= min;
                in_time.then_some((slice, max))
            }
            _ => None,
        };
        // What is known beforehand may be too wide. Where it is not, its largest time may be observed with
        // the first rows: it closes no window that the others lie in, as all lie in the same.
        let found = expected.filter(|_| times.nulls.is_none()).and_then(one_slice);
        let found = found.or_else(|| {
            let range = || job.isa.run(MinMax(&times.values));
            times.nulls.is_none().then(range).flatten().and_then(one_slice)
        });
        if let Some((slice, max)) = found {
            // Times of the slice cannot move the watermark to the end of a window that holds them, so
            // what is open to the first row is open to the last.
            let span = windows.span(&slice, watermark.get());
            watermark.observe(max);
            if let Some(span) = span {
                return Ok(Assignment::One(span));
            }
            let why = watermark.why_late(windows.closed_at(&slice));
            self.late_by[why as usize] += batch.num_rows() as u64;
            self.late.extend(0..row_number(batch.num_rows()));
            return Ok(Assignment::Nothing);
        }
        self.assign_rows(&times, windows, watermark);
        Ok(if self.spans.is_empty() { Assignment::Nothing } else { Assignment::Mixed })
    }

    fn start(&mut self) {
        self.spans.clear();
        self.by_span.clear();
        self.ordinals.clear();
        self.late.clear();
        self.late_by = [0; Lateness::ALL.len()];
        self.null_time.clear();
        self.out_of_range.clear();
        self.between.clear();
    }

    /// Finds each row's span and decides whether it is late, in the input's order.
    fn assign_rows(&mut self, times: &Times, windows: &Windows, watermark: &mut Watermark) {
        // The slice and span of the row before: most rows stay in it, which saves divisions and the map.
        let mut slice = Slice { start: 0, end: 0, first: 0, last: 0 };
        let (mut point, mut ordinal) = (0, EXCLUDED);
        let sessions = windows.session().is_some();
        self.ordinals.reserve(times.values.len());
        for (row, &time) in times.values.iter().enumerate() {
            if times.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row)) {
                self.null_time.push(row_number(row));
                self.ordinals.push(EXCLUDED);
                continue;
            }
            if !(slice.start..slice.end).contains(&time) {
                match windows.locate(time) {
                    Place::In(found) => (slice, ordinal) = (found, EXCLUDED),
                    Place::Between => {
                        watermark.observe(time);
                        self.between.push(row_number(row));
                        self.ordinals.push(EXCLUDED);
                        continue;
                    }
                    Place::OutOfRange => {
                        self.out_of_range.push(row_number(row));
                        self.ordinals.push(EXCLUDED);
                        continue;
                    }
                }
            }
            watermark.observe(time);
            let now = watermark.get();
            if now > time && sessions {
                self.late(row, watermark.why_late(time.saturating_add(1)));
                continue;
            }
            if ordinal == EXCLUDED || now >= point {
                let Some(span) = windows.span(&slice, now) else {
                    ordinal = EXCLUDED;
                    self.late(row, watermark.why_late(windows.closed_at(&slice)));
                    continue;
                };
                point = span.point;
                ordinal = *self.by_span.entry(span).or_insert_with(|| {
                    self.spans.push(span);
                    row_number(self.spans.len() - 1)
                });
            }
            self.ordinals.push(ordinal);
        }
    }

    fn late(&mut self, row: usize, why: Lateness) {
        self.late_by[why as usize] += 1;
        self.late.push(row_number(row));
        self.ordinals.push(EXCLUDED);
    }

    /// Counts the rows that are not aggregated and, if wanted, gives them to `sink`.
    pub(super) fn side_outputs(
        &mut self,
        counts: &mut RowCounts,
        batch: &RecordBatch,
        sink: &dyn Sink,
    ) -> Result<(), RunError> {
        let Self { late, late_by, null_time, out_of_range, between, .. } = self;
        counts.late += late.len() as u64;
        counts.late_by.iter_mut().zip(*late_by).for_each(|(sum, rows)| *sum += rows);
        counts.null_time += null_time.len() as u64;
        counts.time_out_of_range += out_of_range.len() as u64;
        counts.between_windows += between.len() as u64;
        if !sink.wants_side_outputs() {
            return Ok(());
        }
        let rows = |selection: &[u32]| {
            let selection = UInt32Array::from(selection.to_vec());
            take_record_batch(batch, &selection).map_err(|error| RunError::Batch(error.to_string()))
        };
        if !late.is_empty() {
            sink.late(rows(late)?)?;
        }
        for (reason, selection) in [
            (Rejection::NullTime, null_time),
            (Rejection::TimeOutOfRange, out_of_range),
            (Rejection::BetweenWindows, between),
        ] {
            if !selection.is_empty() {
                sink.rejected(reason, rows(selection)?)?;
            }
        }
        Ok(())
    }
}

/// The span of rows that come now, all of which are in time.
fn now_at(
    clock: i64,
    windows: &Windows,
    watermark: &mut Watermark,
) -> Result<Assignment, RunError> {
    let now = clock.max(watermark.get());
    let span = match windows.locate(now) {
        Place::In(slice) => windows.span(&slice, now),
        _ => None,
    };
    watermark.observe(now);
    span.map(Assignment::One)
        .ok_or_else(|| RunError::Batch(format!("the clock says {now}, which is in no window")))
}

#[inline(always)]
pub(super) fn row_number(row: usize) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a batch has less than 2^32 rows")]
    let row = row as u32;
    row
}

/// Moves the watermark on where nothing else depends on rows' times.
fn observe_largest(
    job: &Job,
    column: &ArrayRef,
    watermark: &mut Watermark,
) -> Result<(), RunError> {
    let times = times(column).map_err(|error: ConfigError| RunError::Batch(error.to_string()))?;
    let largest = match &times.nulls {
        None => job.isa.run(MinMax(&times.values)).map(|(_, max)| max),
        Some(nulls) => nulls.valid_indices().map(|row| times.values[row]).max(),
    };
    if let Some(largest) = largest {
        watermark.observe(largest);
    }
    Ok(())
}
