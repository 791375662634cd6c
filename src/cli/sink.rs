//! What `run` does with results, late rows and rejected rows.
//!
//! One lock around the writer: shards deliver a window at a time, so they seldom meet. Results are
//! written as windows close, or, ordered, as soon as every shard has passed a window.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::Failure;
use super::order::Ordered;
use super::outputs::format_of_file;
use crate::error::SinkError;
use crate::io::{BatchWriter, Reason, RejectLog, Rejected, open_writer};
use crate::runtime::sink::{Rejection, Sink, lock};

/// Rows held back for a nicer layout are shown when nothing has come for so long.
const QUIET: Duration = Duration::from_millis(200);

/// All outputs of a run.
pub(super) struct Outputs {
    results: Mutex<Results>,
    late: Option<Mutex<Option<Box<dyn BatchWriter>>>>,
    rejects: Option<RejectFile>,
}

struct Results {
    /// `None` once finished.
    writer: Option<Box<dyn BatchWriter>>,
    ordered: Option<Ordered>,
    last_write: Instant,
}

/// Where rows go that the engine rejects; those that an input rejects are already there.
#[derive(Debug)]
pub(super) struct RejectFile {
    pub(super) log: Arc<RejectLog>,
    /// The input's name, if there is only one.
    pub(super) input: String,
    /// The event-time column.
    pub(super) column: Option<String>,
}

impl std::fmt::Debug for Outputs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Outputs").field("rejects", &self.rejects).finish_non_exhaustive()
    }
}

impl Outputs {
    /// Results go to `writer`.
    pub(super) fn new(writer: Box<dyn BatchWriter>, ordered: Option<Ordered>) -> Self {
        let results = Results { writer: Some(writer), ordered, last_write: Instant::now() };
        Self { results: Mutex::new(results), late: None, rejects: None }
    }

    /// Late rows go to a file.
    pub(super) fn keep_late(&mut self, path: &Path, schema: &SchemaRef) -> Result<(), Failure> {
        let writer = open_writer(Some(path), format_of_file(path, None)?, schema)?;
        self.late = Some(Mutex::new(Some(writer)));
        Ok(())
    }

    /// Rows that the engine rejects go to a file.
    pub(super) fn keep_rejected(&mut self, file: RejectFile) {
        self.rejects = Some(file);
    }

    /// Shows what was held back if nothing has come for a while.
    pub(super) fn show_if_quiet(&self) {
        let mut results = lock(&self.results);
        if results.last_write.elapsed() >= QUIET
            && let Some(writer) = &mut results.writer
        {
            // A failure is remembered by the writer and told by its next call.
            let _ = writer.idle();
            results.last_write = Instant::now();
        }
    }

    /// Completes all outputs of a run that ended well.
    pub(super) fn finish(&self) -> Result<(), SinkError> {
        let mut results = lock(&self.results);
        let Some(mut writer) = results.writer.take() else { return Ok(()) };
        if let Some(ordered) = &mut results.ordered {
            ordered.release(i64::MAX, writer.as_mut())?;
        }
        writer.finish()?;
        self.finish_sides()
    }

    /// Completes the outputs of a run that failed, as far as possible: what was written is right.
    pub(super) fn abandon(&self) {
        if let Some(writer) = lock(&self.results).writer.take() {
            // The run's own error is the one to tell.
            let _ = writer.finish();
        }
        let _ = self.finish_sides();
    }

    fn finish_sides(&self) -> Result<(), SinkError> {
        if let Some(writer) = self.late.as_ref().and_then(|late| lock(late).take()) {
            writer.finish()?;
        }
        self.rejects.as_ref().map_or(Ok(()), |rejects| rejects.log.finish())
    }
}

/// The engine's handle on [`Outputs`].
#[derive(Debug, Clone)]
pub(super) struct OutputSink(pub(super) Arc<Outputs>);

impl Sink for OutputSink {
    fn results(&self, _: usize, batch: RecordBatch) -> Result<(), SinkError> {
        let mut results = lock(&self.0.results);
        let Results { writer, ordered, last_write } = &mut *results;
        match (ordered, writer) {
            (Some(ordered), _) => ordered.add(batch),
            (None, Some(writer)) => {
                *last_write = Instant::now();
                writer.write(&batch)
            }
            (None, None) => Err(SinkError::Closed),
        }
    }

    fn progress(&self, shard: usize, watermark: i64) -> Result<(), SinkError> {
        let mut results = lock(&self.0.results);
        let Results { writer, ordered, last_write } = &mut *results;
        match (ordered, writer) {
            (Some(ordered), Some(writer)) => {
                *last_write = Instant::now();
                ordered.progress(shard, watermark, writer.as_mut())
            }
            _ => Ok(()),
        }
    }

    fn wants_side_outputs(&self) -> bool {
        self.0.late.is_some() || self.0.rejects.is_some()
    }

    fn late(&self, rows: RecordBatch) -> Result<(), SinkError> {
        let Some(late) = &self.0.late else { return Ok(()) };
        lock(late).as_mut().map_or(Ok(()), |writer| writer.write(&rows))
    }

    fn rejected(&self, reason: Rejection, rows: RecordBatch) -> Result<(), SinkError> {
        let Some(file) = &self.0.rejects else { return Ok(()) };
        let (reason, detail) = match reason {
            Rejection::NullTime => (Reason::NullTime, "the row has no event time"),
            Rejection::TimeOutOfRange => {
                (Reason::TimeOutOfRange, "the row's window lies outside the range of times")
            }
            Rejection::BetweenWindows => {
                (Reason::BetweenWindows, "the row lies between two windows, in none")
            }
        };
        let rejected = csv_rows(&rows)?.into_iter().map(|row| Rejected {
            input: file.input.clone(),
            line: 0,
            column: file.column.clone(),
            reason,
            detail: detail.to_owned(),
            row,
        });
        file.log.keep(rejected.collect());
        Ok(())
    }
}

/// Each row as a line of csv, without the line break.
fn csv_rows(batch: &RecordBatch) -> Result<Vec<Vec<u8>>, SinkError> {
    let failed = |error: String| SinkError::Failed(format!("rejected rows: {error}"));
    let options = FormatOptions::default();
    let cells = batch.columns().iter().map(|column| ArrayFormatter::try_new(column, &options));
    let cells = cells.collect::<Result<Vec<_>, _>>().map_err(|e| failed(e.to_string()))?;
    let mut lines = Vec::with_capacity(batch.num_rows());
    for row in 0..batch.num_rows() {
        let mut line = csv::Writer::from_writer(Vec::new());
        line.write_record(cells.iter().map(|column| column.value(row).to_string()))
            .map_err(|e| failed(e.to_string()))?;
        let mut line = line.into_inner().map_err(|e| failed(e.to_string()))?;
        line.pop();
        lines.push(line);
    }
    Ok(lines)
}
