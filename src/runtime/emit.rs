//! From a pane to result batches: window bounds, keys, aggregates.

use std::ops::Range;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

use crate::config::Job;
use crate::error::{RunError, SinkError};
use crate::state::pane::{Pane, Scratch};

/// Rows of a result batch.
const EMIT_ROWS: u32 = 8192;

/// Bounds of the windows that a pane's results are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bounds {
    /// A job without windows.
    None,
    /// All of the window `[start, end)`.
    Window { start: i64, end: i64 },
    /// Of each key its own session; where its times stand, and the gap.
    Sessions { gap: i64, extent: usize },
}

/// Results to be given.
#[derive(Debug)]
pub(crate) struct Results<'a> {
    /// What holds them.
    pub(crate) pane: &'a mut Pane,
    /// Only the keys of this pane have changed since the last time; none: all are new.
    pub(crate) changed: Option<&'a mut Pane>,
    pub(crate) bounds: Bounds,
    /// The window is still open.
    pub(crate) is_early: bool,
    /// Further keys of a window some of whose results were given before.
    pub(crate) continues: bool,
}

/// What is done with results.
pub(crate) type Give<'a> = &'a mut dyn FnMut(Results<'_>, &mut Scratch) -> Result<(), RunError>;

impl Results<'_> {
    /// Gives the results to `deliver`, batch by batch. Changes nothing.
    pub(crate) fn emit(
        &mut self,
        job: &Job,
        scratch: &mut Scratch,
        deliver: &mut dyn FnMut(RecordBatch) -> Result<(), RunError>,
    ) -> Result<(), RunError> {
        let keys = self.changed.as_ref().map_or_else(|| self.pane.len(), |changed| changed.len());
        let len = u32::try_from(keys).expect("row ids are 32 bits");
        let text = self.text(job);
        let window = text.as_ref().map(|text| text as &dyn Fn() -> String);
        // The same in every batch, which takes as much as it needs.
        let bounds = self.window_columns(job, len.min(EMIT_ROWS) as usize);
        for start in (0..len).step_by(EMIT_ROWS as usize) {
            let ids = start..(start + EMIT_ROWS).min(len);
            let ids_len = ids.len();
            let mut columns = Vec::with_capacity(job.output_schema.fields().len());
            columns.extend(bounds.iter().map(|column| column.slice(0, ids.len())));
            columns.extend(self.session_columns(job, ids.clone()));
            let (plan, keys) = (&job.plan, &job.keys);
            columns.extend(match &mut self.changed {
                None => self.pane.emit(plan, keys, ids, window, scratch)?,
                Some(changed) => {
                    self.pane.emit_keys_of(plan, keys, (changed, ids), window, scratch)?
                }
            });
            if job.emit_every.is_some() {
                let is_final = vec![!self.is_early; ids_len];
                columns.push(Arc::new(BooleanArray::from(is_final)));
            }
            if columns.is_empty() {
                // No key, no aggregate, no window: nothing to say.
                return Ok(());
            }
            let batch = RecordBatch::try_new(Arc::clone(&job.output_schema), columns)
                .map_err(|error| RunError::Sink(SinkError::Failed(error.to_string())))?;
            deliver(batch)?;
        }
        Ok(())
    }

    /// The window in words, for errors.
    fn text(&self, job: &Job) -> Option<impl Fn() -> String + use<>> {
        let data_type = job.bound_type.clone()?;
        let bounds = self.bounds;
        let text = move || match bounds {
            Bounds::Window { start, end } => {
                format!("[{}, {})", time_text(start, &data_type), time_text(end, &data_type))
            }
            _ => "of one of its sessions".to_owned(),
        };
        (bounds != Bounds::None).then_some(text)
    }

    /// The columns `window_start` and `window_end` of one window.
    fn window_columns(&self, job: &Job, rows: usize) -> Vec<ArrayRef> {
        match (self.bounds, job.bound_type.as_ref()) {
            (Bounds::Window { start, end }, Some(data_type)) => [start, end]
                .map(|time| time_column(Int64Array::from_value(time, rows), data_type))
                .to_vec(),
            _ => Vec::new(),
        }
    }

    /// The columns `window_start` and `window_end` of sessions.
    fn session_columns(&self, job: &Job, ids: Range<u32>) -> Vec<ArrayRef> {
        let (Bounds::Sessions { gap, extent }, Some(data_type)) =
            (self.bounds, job.bound_type.as_ref())
        else {
            return Vec::new();
        };
        let times = ids.map(|id| self.pane.extent(id, extent)).collect::<Vec<_>>();
        let starts = times.iter().map(|(first, _)| *first).collect::<Vec<_>>();
        let ends = times.iter().map(|(_, last)| *last + gap).collect::<Vec<_>>();
        [starts, ends].map(|times| time_column(times.into(), data_type)).to_vec()
    }
}

/// Times as a column of the type of the event-time column.
pub(crate) fn time_column(times: Int64Array, data_type: &DataType) -> ArrayRef {
    let times: ArrayRef = Arc::new(times);
    let times = match data_type {
        DataType::Date32 => cast(&times, &DataType::Int32).expect("days fit"),
        _ => times,
    };
    cast(&times, data_type).expect("window bounds are times")
}

pub(crate) fn time_text(time: i64, data_type: &DataType) -> String {
    let column = time_column(Int64Array::from_value(time, 1), data_type);
    arrow::util::display::array_value_to_string(&column, 0).unwrap_or_else(|_| time.to_string())
}
