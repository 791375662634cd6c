//! What parquet and Arrow inputs have in common: projection, event time, units of ready batches.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{SchemaRef, TimeUnit};

use crate::error::SourceError;
use crate::io::progress::Progress;
use crate::io::time;
use crate::runtime::source::Unit;

/// From a file's columns to the job's.
#[derive(Debug, Clone)]
pub(crate) struct Projection {
    /// The file's columns that are read, ascending.
    pub(crate) read: Vec<usize>,
    /// For each column of the job its position in `read`.
    order: Vec<usize>,
    pub(crate) schema: SchemaRef,
    /// The event-time column of the job, and the unit if the file has it as integers.
    pub(crate) time: Option<(usize, Option<TimeUnit>)>,
}

impl Projection {
    /// `columns`: for each column of the job its position in the file.
    pub(crate) fn new(
        columns: &[usize],
        schema: SchemaRef,
        time: Option<(usize, Option<TimeUnit>)>,
    ) -> Self {
        let mut read = columns.to_vec();
        read.sort_unstable();
        read.dedup();
        let order = columns.iter().filter_map(|c| read.binary_search(c).ok()).collect();
        Self { read, order, schema, time }
    }

    /// The file's column that holds the event time.
    pub(crate) fn time_column(&self) -> Option<usize> {
        self.time.map(|(index, _)| self.read[self.order[index]])
    }

    /// A batch of the read columns as a batch of the job.
    pub(crate) fn apply(&self, batch: &RecordBatch) -> Result<RecordBatch, String> {
        let mut arrays: Vec<_> = self.order.iter().map(|&i| Arc::clone(batch.column(i))).collect();
        if let Some((index, Some(unit))) = self.time {
            arrays[index] =
                time::integers_as_timestamps(&arrays[index], unit).map_err(|e| e.to_string())?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
        RecordBatch::try_new_with_options(Arc::clone(&self.schema), arrays, &options)
            .map_err(|e| e.to_string())
    }
}

/// Runs a decoder of another crate on bytes that may be damaged: its panics are errors of the input.
pub(crate) fn guarded<T>(
    input: &str,
    place: impl Fn() -> String,
    decode: impl FnOnce() -> Result<T, String>,
) -> Result<T, SourceError> {
    let outcome = catch_unwind(AssertUnwindSafe(decode)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
        Err(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default())
    });
    outcome.map_err(|why| SourceError {
        input: input.to_owned(),
        place: Some(place()),
        message: format!("is damaged or truncated: {why}; get the file again"),
    })
}

/// A position among so many parts of an input, out of a checkpoint.
pub(crate) fn place(
    input: &str,
    position: &str,
    parts: u64,
    what: &str,
) -> Result<u64, SourceError> {
    let place = position.parse::<u64>().ok().filter(|place| *place <= parts);
    place.ok_or_else(|| SourceError {
        input: input.to_owned(),
        place: None,
        message: format!(
            "has {parts} {what}, but the checkpoint was taken behind {position}; is it the same file?"
        ),
    })
}

/// One decoded batch, handed out in slices.
#[derive(Debug)]
pub(crate) struct BatchUnit {
    ticket: u64,
    batch: RecordBatch,
    time: Option<usize>,
    at: usize,
    batch_rows: usize,
    /// Where to count, and how many bytes, once the unit is done.
    progress: Option<(Arc<Progress>, u64)>,
}

impl BatchUnit {
    pub(crate) fn new(
        ticket: u64,
        batch: RecordBatch,
        time: Option<usize>,
        batch_rows: usize,
        progress: Option<(Arc<Progress>, u64)>,
    ) -> Self {
        Self { ticket, batch, time, at: 0, batch_rows, progress }
    }
}

impl Unit for BatchUnit {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        Ok(self.time.and_then(|index| time::max_of(self.batch.column(index))))
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        let left = self.batch.num_rows() - self.at;
        if left == 0 {
            if let Some((progress, bytes)) = self.progress.take() {
                progress.add(bytes);
            }
            return Ok(None);
        }
        let rows = left.min(self.batch_rows);
        let slice = self.batch.slice(self.at, rows);
        self.at += rows;
        Ok(Some(slice))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Int64Array, StringArray};
    use arrow::datatypes::{DataType, Field, Schema};

    #[test]
    fn columns_are_put_in_the_order_of_the_job() {
        let file: Vec<_> = ["a", "b", "t"].map(|n| Field::new(n, DataType::Int64, true)).into();
        let stamp = DataType::Timestamp(TimeUnit::Second, None);
        let job = vec![Field::new("t", stamp, true), file[0].clone()];
        let projection =
            Projection::new(&[2, 0], Arc::new(Schema::new(job)), Some((0, Some(TimeUnit::Second))));
        assert_eq!((&projection.read[..], projection.time_column()), (&[0, 2][..], Some(2)));
        let read = Arc::new(Schema::new(vec![file[0].clone(), file[2].clone()]));
        let array = |v: i64| Arc::new(Int64Array::from(vec![v])) as _;
        let batch = RecordBatch::try_new(read, vec![array(1), array(3)]).unwrap();
        let batch = projection.apply(&batch).unwrap();
        assert_eq!(time::max_of(batch.column(0)), Some(3));
        assert_eq!(time::max_of(batch.column(1)), Some(1));
    }

    #[test]
    fn no_columns_still_have_rows() {
        let projection = Projection::new(&[], Arc::new(Schema::empty()), None);
        let options = RecordBatchOptions::new().with_row_count(Some(7));
        let empty = Arc::new(Schema::empty());
        let batch = RecordBatch::try_new_with_options(empty, vec![], &options).unwrap();
        assert_eq!(projection.apply(&batch).unwrap().num_rows(), 7);
        let mut unit = BatchUnit::new(0, batch, None, 3, None);
        let mut rows = vec![];
        while let Some(batch) = unit.next_batch().unwrap() {
            rows.push(batch.num_rows());
        }
        assert_eq!(rows, [3, 3, 1]);
    }

    #[test]
    fn a_panic_of_a_decoder_is_an_error_of_the_input() {
        let error = guarded::<()>("f", || "row group 2".into(), || panic!("oops")).unwrap_err();
        let expected = "f, row group 2: is damaged or truncated: oops; get the file again";
        assert_eq!(error.to_string(), expected);
        let batch = StringArray::from(vec!["x"]);
        assert_eq!(guarded("f", String::new, || Ok(batch.value(0).len())).unwrap(), 1);
    }
}
