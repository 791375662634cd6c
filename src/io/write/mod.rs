//! Writers of results.
//!
//! All formats sit on one [`Target`], which remembers the first failure of the operating system, so that
//! a closed pipe and a full disk are told apart whatever the format's writer makes of them. On standard
//! output every batch is flushed. An output without rows still has its header or schema.

use std::path::Path;
use std::sync::Arc;

use arrow::array::timezone::Tz;
use arrow::array::{Array, ArrayRef, AsArray, RecordBatch, RecordBatchOptions, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::ipc::writer::{FileWriter, StreamWriter};
use arrow::json::writer::{LineDelimited, Writer as JsonWriter, WriterBuilder as JsonBuilder};
use arrow::util::display::array_value_to_string;
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;

use crate::error::{ConfigError, SinkError};
use crate::io::cut::SharedTarget;
use crate::io::format::OutputFormat;
use crate::io::target::{Failures, Target};

mod table;

use self::table::TableWriter;

/// Rows of a parquet row group: enough for its columns to compress, little enough to be a unit of work.
const ROW_GROUP_ROWS: usize = 256 << 10;

/// Takes the batches of a result and writes them down.
pub trait BatchWriter: Send {
    /// Writes a batch of the writer's schema.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError>;

    /// Shows what was held back; to be called when no results have come for a while.
    fn idle(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    /// Writes what is left and closes the output. Without this call an output is not complete.
    fn finish(self: Box<Self>) -> Result<(), SinkError>;
}

/// Opens an output; `None` is standard output. A file is written in place, not moved there at the
/// end, so that a partial result of a failed run can be looked at.
pub fn open_writer(
    target: Option<&Path>,
    format: OutputFormat,
    schema: &SchemaRef,
) -> Result<Box<dyn BatchWriter>, SinkError> {
    let out = match target {
        Some(path) => {
            let compression = format.compression(path);
            let wrong = |e: ConfigError| SinkError::Failed(e.to_string());
            Target::file(path, compression.map_err(wrong)?)?
        }
        None => Target::stdout()?,
    };
    writer_to(out, format, schema)
}

fn writer_to(
    out: Target,
    format: OutputFormat,
    schema: &SchemaRef,
) -> Result<Box<dyn BatchWriter>, SinkError> {
    let failures = out.failures();
    let explain = |e: String| failures.explain(&e);
    Ok(match format {
        OutputFormat::Table => Box::new(TableWriter::new(out, schema)),
        text if text.is_text() => text_writer(SharedTarget::new(out), text, schema, true),
        OutputFormat::Parquet => {
            let properties = WriterProperties::builder()
                .set_compression(Compression::SNAPPY)
                .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
                .build();
            let rows = ArrowWriter::try_new(out, Arc::clone(schema), Some(properties))
                .map_err(|e| explain(e.to_string()))?;
            Box::new(ParquetWriter { rows, failures })
        }
        OutputFormat::Arrow if out.is_stdout() => {
            let rows = StreamWriter::try_new(out, schema).map_err(|e| explain(e.to_string()))?;
            Box::new(StreamOut { rows, failures })
        }
        _ => {
            let rows =
                FileWriter::try_new_buffered(out, schema).map_err(|e| explain(e.to_string()))?;
            Box::new(FileOut { rows, failures })
        }
    })
}

/// A writer of rows as text. `is_new`: it begins the file.
pub(crate) fn text_writer(
    out: SharedTarget,
    format: OutputFormat,
    schema: &SchemaRef,
    is_new: bool,
) -> Box<dyn BatchWriter> {
    match format {
        OutputFormat::Ndjson => {
            let failures = out.lock().failures();
            // A column that is always there is easier to use than one that comes and goes.
            let rows = JsonBuilder::new().with_explicit_nulls(true).build(out);
            Box::new(NdjsonWriter { rows, failures })
        }
        OutputFormat::Tsv => Box::new(CsvWriter::new(out, b'\t', schema, is_new)),
        _ => Box::new(CsvWriter::new(out, b',', schema, is_new)),
    }
}

struct CsvWriter {
    rows: arrow::csv::Writer<SharedTarget>,
    empty: Option<RecordBatch>,
    failures: Failures,
}

impl CsvWriter {
    fn new(out: SharedTarget, delimiter: u8, schema: &SchemaRef, is_new: bool) -> Self {
        let failures = out.lock().failures();
        let builder = arrow::csv::WriterBuilder::new().with_header(is_new);
        let rows = builder.with_delimiter(delimiter).build(out);
        let empty = is_new.then(|| RecordBatch::new_empty(Arc::clone(schema)));
        Self { rows, empty, failures }
    }
}

impl BatchWriter for CsvWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        self.empty = None;
        let batch = printable(batch, true).map_err(|e| self.failures.explain(&e))?;
        self.rows.write(&batch).map_err(|e| self.failures.explain(&e.to_string()))
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        match self.empty.take() {
            Some(empty) => self.write(&empty)?,
            None => self.failures.check()?,
        }
        self.rows.into_inner().lock().close()
    }
}

struct NdjsonWriter {
    rows: JsonWriter<SharedTarget, LineDelimited>,
    failures: Failures,
}

impl BatchWriter for NdjsonWriter {
    /// Floats that JSON cannot write (NaN and the infinities) become null.
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        let batch = printable(batch, false).map_err(|e| self.failures.explain(&e))?;
        self.rows.write(&batch).map_err(|e| self.failures.explain(&e.to_string()))?;
        self.rows.get_mut().lock().flush_if_live()
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        self.rows.finish().map_err(|e| self.failures.explain(&e.to_string()))?;
        self.rows.get_mut().lock().close()
    }
}

struct ParquetWriter {
    rows: ArrowWriter<Target>,
    failures: Failures,
}

impl BatchWriter for ParquetWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        self.rows.write(batch).map_err(|e| self.failures.explain(&e.to_string()))
    }

    fn finish(self: Box<Self>) -> Result<(), SinkError> {
        let failures = self.failures;
        let mut out = self.rows.into_inner().map_err(|e| failures.explain(&e.to_string()))?;
        out.close()
    }
}

struct FileOut {
    rows: FileWriter<std::io::BufWriter<Target>>,
    failures: Failures,
}

impl BatchWriter for FileOut {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        self.rows.write(batch).map_err(|e| self.failures.explain(&e.to_string()))
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        self.rows.finish().map_err(|e| self.failures.explain(&e.to_string()))?;
        self.rows.get_mut().get_mut().close()
    }
}

struct StreamOut {
    rows: StreamWriter<Target>,
    failures: Failures,
}

impl BatchWriter for StreamOut {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        self.rows.write(batch).map_err(|e| self.failures.explain(&e.to_string()))?;
        self.rows.get_mut().flush_if_live()
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        self.rows.finish().map_err(|e| self.failures.explain(&e.to_string()))?;
        self.rows.get_mut().close()
    }
}

/// A batch whose columns can be written as text: timestamps of a zone whose rules are not known here as
/// UTC (the same instants), and, if `flat`, nested values as their display.
fn printable(batch: &RecordBatch, flat: bool) -> Result<RecordBatch, String> {
    let needs =
        |t: &DataType| is_unknown_zone(t) || (flat && t.is_nested()) || is_dictionary_of_zone(t);
    let schema = batch.schema();
    if !schema.fields().iter().any(|f| needs(f.data_type())) {
        return Ok(batch.clone());
    }
    let mut fields = Vec::new();
    let mut columns: Vec<ArrayRef> = Vec::new();
    for (field, column) in schema.fields().iter().zip(batch.columns()) {
        let column = if needs(field.data_type()) { as_text(column)? } else { Arc::clone(column) };
        fields.push(Field::new(field.name(), column.data_type().clone(), true));
        columns.push(column);
    }
    let options = RecordBatchOptions::new().with_row_count(Some(batch.num_rows()));
    RecordBatch::try_new_with_options(Arc::new(Schema::new(fields)), columns, &options)
        .map_err(|e| e.to_string())
}

fn is_unknown_zone(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, Some(zone)) if zone.parse::<Tz>().is_err())
}

fn is_dictionary_of_zone(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Dictionary(_, values) if is_unknown_zone(values))
}

fn as_text(column: &ArrayRef) -> Result<ArrayRef, String> {
    let mut column = Arc::clone(column);
    if let DataType::Dictionary(_, values) = column.data_type() {
        column = cast(&column, values).map_err(|e| e.to_string())?;
    }
    if let DataType::Timestamp(unit, _) = column.data_type() {
        let utc = DataType::Timestamp(*unit, Some("+00:00".into()));
        return cast(&column, &utc).map_err(|e| e.to_string());
    }
    let texts: Result<Vec<Option<String>>, _> = (0..column.len())
        .map(|row| column.is_valid(row).then(|| array_value_to_string(&column, row)).transpose())
        .collect();
    Ok(Arc::new(StringArray::from(texts.map_err(|e| e.to_string())?)))
}

/// Whether a column's values line up at their right edge.
fn is_number(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_number(values),
        other => other.is_numeric(),
    }
}

/// The text of a cell, for columns of text without a copy.
fn cell_text(column: &ArrayRef, row: usize) -> Option<&str> {
    match column.data_type() {
        _ if column.is_null(row) => None,
        DataType::Utf8 => Some(column.as_string::<i32>().value(row)),
        DataType::LargeUtf8 => Some(column.as_string::<i64>().value(row)),
        DataType::Utf8View => Some(column.as_string_view().value(row)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
