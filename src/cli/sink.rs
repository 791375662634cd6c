//! What `run` does with results, late rows and rejected rows.
//!
//! One lock around the writer: shards deliver a window at a time, so they seldom meet. Results are
//! written as windows close, or, ordered, as soon as every shard has passed a window.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use super::checkpoints::{RunCheckpoints, SPOOLS};
use super::order::Ordered;
use super::outputs::format_of_file;
use super::rows_out::{RowsFile, RowsOut};
use super::{Failure, tell};
use crate::checkpoint::OutputState;
use crate::error::{CheckpointError, SinkError};
use crate::io::{Reason, RejectLog, Rejected};
use crate::runtime::report::CheckpointReport;
use crate::runtime::sink::{Rejection, Sink, lock};

/// Rows held back for a nicer layout are shown when nothing has come for so long.
const QUIET: Duration = Duration::from_millis(200);

/// All outputs of a run.
pub(super) struct Outputs {
    results: Mutex<Results>,
    file: RowsFile,
    late: Option<Late>,
    rejects: Option<RejectFile>,
    /// Where late and rejected rows stood at the last barrier that all inputs had come to.
    sides_cut: Mutex<Vec<OutputState>>,
}

struct Results {
    /// `None` once finished.
    out: Option<RowsOut>,
    ordered: Option<Ordered>,
    last_write: Instant,
}

struct Late {
    out: Mutex<Option<RowsOut>>,
    file: RowsFile,
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

/// Names of outputs in checkpoints.
const RESULTS: &str = "results";
const LATE: &str = "late";
const REJECTED: &str = "rejected";

impl Outputs {
    /// Results go to `file`; in a run with checkpoints so that it can be cut.
    pub(super) fn new(
        file: RowsFile,
        ordered: Option<Ordered>,
        checkpoints: Option<&RunCheckpoints>,
    ) -> Result<Self, Failure> {
        let out = open_rows(&file, RESULTS, ordered.is_some(), checkpoints)?;
        let results = Results { out: Some(out), ordered, last_write: Instant::now() };
        let (results, sides_cut) = (Mutex::new(results), Mutex::default());
        Ok(Self { results, file, late: None, rejects: None, sides_cut })
    }

    /// Late rows go to a file.
    pub(super) fn keep_late(
        &mut self,
        path: &Path,
        schema: &SchemaRef,
        checkpoints: Option<&RunCheckpoints>,
    ) -> Result<(), Failure> {
        let (format, schema) = (format_of_file(path, None)?, Arc::clone(schema));
        let file = RowsFile { path: Some(path.to_owned()), format, schema };
        let out = open_rows(&file, LATE, false, checkpoints)?;
        self.late = Some(Late { out: Mutex::new(Some(out)), file });
        Ok(())
    }

    /// How far the file of rejected rows was written in the run that is continued.
    pub(super) fn rejected_length(
        checkpoints: Option<&RunCheckpoints>,
    ) -> Result<Option<u64>, Failure> {
        checkpoints.map_or(Ok(None), |one| one.length_of(REJECTED))
    }

    /// Rows that the engine rejects go to a file.
    pub(super) fn keep_rejected(&mut self, file: RejectFile) {
        self.rejects = Some(file);
    }

    /// Shows what was held back if nothing has come for a while.
    pub(super) fn show_if_quiet(&self) {
        let mut results = lock(&self.results);
        if results.last_write.elapsed() >= QUIET
            && let Some(out) = &mut results.out
        {
            // A failure is remembered by the writer and told by its next call.
            let _ = out.idle();
            results.last_write = Instant::now();
        }
    }

    /// Completes all outputs of a run that ended well.
    pub(super) fn finish(&self) -> Result<(), SinkError> {
        let mut results = lock(&self.results);
        match (results.out.take(), &mut results.ordered) {
            (None, _) => return Ok(()),
            (Some(RowsOut::Spooled(spool)), Some(ordered)) => {
                let mut writer = self.file.open()?;
                spool.replay(&mut |batch| ordered.add(batch))?;
                ordered.release(i64::MAX, writer.as_mut())?;
                writer.finish()?;
            }
            (Some(RowsOut::Plain(mut writer)), Some(ordered)) => {
                ordered.release(i64::MAX, writer.as_mut())?;
                writer.finish()?;
            }
            (Some(out), _) => out.finish(&self.file)?,
        }
        self.finish_sides()
    }

    /// Completes the outputs of a run that failed, as far as possible: what was written is right. Those that can be
    /// continued are left for that.
    pub(super) fn abandon(&self) {
        if let Some(RowsOut::Plain(writer)) = lock(&self.results).out.take() {
            // The run's own error is the one to tell.
            let _ = writer.finish();
        }
        let _ = self.finish_sides();
    }

    fn finish_sides(&self) -> Result<(), SinkError> {
        if let Some(late) = &self.late
            && let Some(out) = lock(&late.out).take()
        {
            out.finish(&late.file)?;
        }
        self.rejects.as_ref().map_or(Ok(()), |rejects| rejects.log.finish())
    }

    fn late_out(&self) -> Option<MutexGuard<'_, Option<RowsOut>>> {
        self.late.as_ref().map(|late| lock(&late.out))
    }
}

/// Opens a file of rows: to be cut at checkpoints, if the run takes any.
fn open_rows(
    file: &RowsFile,
    name: &str,
    is_ordered: bool,
    checkpoints: Option<&RunCheckpoints>,
) -> Result<RowsOut, Failure> {
    let Some(checkpoints) = checkpoints else { return Ok(RowsOut::Plain(file.open()?)) };
    let spool = checkpoints.beside(if name == RESULTS { SPOOLS[0] } else { SPOOLS[1] });
    Ok(file.open_cut(is_ordered, &spool, checkpoints.length_of(name)?)?)
}

fn stands_at(name: &str, length: Option<u64>) -> Option<OutputState> {
    Some(OutputState { name: name.to_owned(), position: length?.to_string() })
}

impl Sink for Outputs {
    fn results(&self, _: usize, batch: RecordBatch) -> Result<(), SinkError> {
        let mut results = lock(&self.results);
        let Results { out, ordered, last_write } = &mut *results;
        match (ordered, out) {
            (_, None) => Err(SinkError::Closed),
            (Some(ordered), Some(RowsOut::Plain(_))) => ordered.add(batch),
            (_, Some(out)) => {
                *last_write = Instant::now();
                out.write(&batch)
            }
        }
    }

    fn progress(&self, shard: usize, watermark: i64) -> Result<(), SinkError> {
        let mut results = lock(&self.results);
        let Results { out, ordered, last_write } = &mut *results;
        match (ordered, out) {
            (Some(ordered), Some(RowsOut::Plain(writer))) => {
                *last_write = Instant::now();
                ordered.progress(shard, watermark, writer.as_mut())
            }
            _ => Ok(()),
        }
    }

    fn cut_inputs(&self) -> Result<(), SinkError> {
        let mut sides = Vec::new();
        if let Some(mut late) = self.late_out()
            && let Some(out) = late.as_mut()
        {
            sides.extend(stands_at(LATE, out.cut()?));
        }
        if let Some(rejects) = &self.rejects {
            sides.extend(stands_at(REJECTED, rejects.log.cut()?));
        }
        *lock(&self.sides_cut) = sides;
        Ok(())
    }

    fn cut(&self) -> Result<Vec<OutputState>, SinkError> {
        let mut results = lock(&self.results);
        let length = results.out.as_mut().map_or(Ok(None), RowsOut::cut)?;
        let sides = lock(&self.sides_cut).clone();
        Ok(stands_at(RESULTS, length).into_iter().chain(sides).collect())
    }

    fn sync(&self) -> Result<(), SinkError> {
        lock(&self.results).out.as_ref().map_or(Ok(()), RowsOut::sync)?;
        if let Some(late) = self.late_out()
            && let Some(out) = late.as_ref()
        {
            out.sync()?;
        }
        self.rejects.as_ref().map_or(Ok(()), |rejects| rejects.log.sync())
    }

    fn checkpointed(&self, outcome: Result<&CheckpointReport, &CheckpointError>) {
        if let Err(error) = outcome {
            tell(&format!("warning: a checkpoint could not be taken, the run goes on: {error}"));
        }
    }

    fn wants_side_outputs(&self) -> bool {
        self.late.is_some() || self.rejects.is_some()
    }

    fn late(&self, rows: RecordBatch) -> Result<(), SinkError> {
        let Some(mut late) = self.late_out() else { return Ok(()) };
        late.as_mut().map_or(Ok(()), |out| out.write(&rows))
    }

    fn rejected(&self, reason: Rejection, rows: RecordBatch) -> Result<(), SinkError> {
        let Some(file) = &self.rejects else { return Ok(()) };
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
