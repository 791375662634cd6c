//! Ordered output: results held back until their window is complete, then sorted by key.
//!
//! A window is complete once every shard has progressed past its end, and past its lateness if results may be
//! corrected; complete windows leave in order of their end. Within a window rows are sorted by key: nulls first,
//! numbers by value with NaN last, text by bytes; then by revision. Sessions leave in steps of time,
//! sorted by end, start and key. A key is in one shard, so no two rows are equal, and the output
//! does not depend on who sent what when. Cost: the open windows' results in memory, and a sort.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{RecordBatch, UInt32Array};
use arrow::compute::{interleave_record_batch, take_record_batch};
use arrow::error::ArrowError;
use arrow::row::{RowConverter, Rows, SortField};

use crate::config::Job;
use crate::error::SinkError;
use crate::io::BatchWriter;
use crate::time::event_time::times;
use crate::time::window::Windows;

/// Rows of a batch written.
const WRITE_ROWS: usize = 8192;

/// Results waiting for their turn.
#[derive(Debug)]
pub(super) struct Ordered {
    windows: Option<Windows>,
    /// Columns by which rows that leave together are sorted.
    sorted_by: Vec<usize>,
    /// How far each shard has come.
    progress: Vec<i64>,
    /// Results by the progress that lets them go; without windows, the end of time.
    waiting: BTreeMap<i64, Vec<RecordBatch>>,
    converter: RowConverter,
}

impl Ordered {
    /// For the results of a job.
    pub(super) fn new(job: &Job) -> Result<Self, SinkError> {
        let windows = job.windows.clone();
        let bounds = if windows.is_some() { 2 } else { 0 };
        let mut sorted_by = (bounds..job.grouping_columns()).collect::<Vec<_>>();
        if windows.as_ref().is_some_and(|windows| windows.session().is_some()) {
            sorted_by.splice(..0, [1, 0]);
        }
        if job.revision.is_some() {
            sorted_by.push(job.output_schema().fields().len() - 1);
        }
        let field = |column: &usize| job.output_schema().field(*column).data_type().clone();
        let fields = sorted_by.iter().map(|column| SortField::new(field(column))).collect();
        Ok(Self {
            windows,
            sorted_by,
            progress: vec![i64::MIN; job.workers()],
            waiting: BTreeMap::new(),
            converter: RowConverter::new(fields).map_err(|e| failed(&e))?,
        })
    }

    /// Takes results in.
    pub(super) fn add(&mut self, batch: RecordBatch) -> Result<(), SinkError> {
        let Some(windows) = self.windows.as_ref().filter(|_| batch.num_rows() > 0) else {
            self.waiting.entry(i64::MAX).or_default().push(batch);
            return Ok(());
        };
        let ends = times(batch.column(1)).map_err(|e| SinkError::Failed(e.to_string()))?;
        if windows.session().is_none() {
            let complete = ends.values[0].saturating_add(windows.lateness());
            self.waiting.entry(complete).or_default().push(batch);
            return Ok(());
        }
        let mut steps = BTreeMap::<i64, Vec<u32>>::new();
        for (row, end) in (0..).zip(ends.values.iter()) {
            steps.entry(windows.end_after(end - 1)).or_default().push(row);
        }
        for (complete, rows) in steps {
            let rows =
                take_record_batch(&batch, &UInt32Array::from(rows)).map_err(|e| failed(&e))?;
            self.waiting.entry(complete).or_default().push(rows);
        }
        Ok(())
    }

    /// `shard` has given all results of windows up to `watermark`; writes what is complete now.
    pub(super) fn progress(
        &mut self,
        shard: usize,
        watermark: i64,
        out: &mut dyn BatchWriter,
    ) -> Result<(), SinkError> {
        self.progress[shard] = self.progress[shard].max(watermark);
        let complete = self.progress.iter().copied().min().unwrap_or(i64::MIN);
        self.release(complete, out)
    }

    /// Writes all windows that end at or before `complete`.
    pub(super) fn release(
        &mut self,
        complete: i64,
        out: &mut dyn BatchWriter,
    ) -> Result<(), SinkError> {
        while let Some(entry) = self.waiting.first_entry() {
            if *entry.key() > complete {
                break;
            }
            let batches = entry.remove();
            self.write_sorted(&batches, out)?;
        }
        Ok(())
    }

    fn write_sorted(
        &self,
        batches: &[RecordBatch],
        out: &mut dyn BatchWriter,
    ) -> Result<(), SinkError> {
        if self.sorted_by.is_empty() {
            // One global group: a window has one row.
            return batches.iter().try_for_each(|batch| out.write(batch));
        }
        let order = self.order(batches)?;
        let borrowed = batches.iter().collect::<Vec<_>>();
        for part in order.chunks(WRITE_ROWS) {
            let rows = part.iter().map(|row| (row.batch as usize, row.row as usize));
            let rows = rows.collect::<Vec<_>>();
            let sorted = interleave_record_batch(&borrowed, &rows).map_err(|e| failed(&e))?;
            out.write(&sorted)?;
        }
        Ok(())
    }

    fn order(&self, batches: &[RecordBatch]) -> Result<Vec<Place>, SinkError> {
        let keys = |batch: &RecordBatch| {
            let columns = self.sorted_by.iter().map(|column| Arc::clone(batch.column(*column)));
            self.converter.convert_columns(&columns.collect::<Vec<_>>())
        };
        let keys: Vec<Rows> =
            batches.iter().map(keys).collect::<Result<_, _>>().map_err(|e| failed(&e))?;
        let mut order = Vec::with_capacity(batches.iter().map(RecordBatch::num_rows).sum());
        for (batch, rows) in (0_u32..).zip(&keys) {
            for (row, key) in (0_u32..).zip(rows) {
                order.push(Place { prefix: prefix(key.as_ref()), batch, row });
            }
        }
        let full = |place: &Place| keys[place.batch as usize].row(place.row as usize);
        order.sort_unstable_by(|a, b| a.prefix.cmp(&b.prefix).then_with(|| full(a).cmp(&full(b))));
        Ok(order)
    }
}

/// A row, with the first bytes of its key, which decide most comparisons without a cache miss.
#[derive(Debug, Clone, Copy)]
struct Place {
    prefix: u64,
    batch: u32,
    row: u32,
}

fn prefix(key: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let len = key.len().min(8);
    bytes[..len].copy_from_slice(&key[..len]);
    u64::from_be_bytes(bytes)
}

fn failed(error: &ArrowError) -> SinkError {
    SinkError::Failed(format!("results cannot be sorted: {error}"))
}
