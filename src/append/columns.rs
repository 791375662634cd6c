//! The columns of a schema, filled row by row and handed on as batches.

use arrow::array::{Array, ArrayData, ArrayRef, make_array};
use arrow::compute::cast;
use arrow::datatypes::SchemaRef;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::cells::{Cells, gathered};
use crate::error::ConfigError;

/// Rows of a schema that are being gathered.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) schema: SchemaRef,
    pub(crate) cells: Vec<Cells>,
    /// Complete rows.
    pub(crate) rows: usize,
    /// For the fields of a struct, in order: name and column, as found for the row before.
    pub(crate) fields: Vec<(&'static str, usize)>,
}

impl Columns {
    /// Room for rows of `schema`.
    pub(crate) fn new(schema: SchemaRef) -> Result<Self, ConfigError> {
        let cells = schema.fields().iter().map(|field| {
            Cells::new(field.data_type(), field.is_nullable()).ok_or_else(|| {
                ConfigError::WrongType {
                    use_: "appender".to_owned(),
                    column: field.name().clone(),
                    found: field.data_type().to_string(),
                    expected:
                        "rows take numbers, times, booleans, text, bytes and decimals of 128 bits; \
                           leave the column out of the job's schema, or push batches"
                            .to_owned(),
                }
            })
        });
        let cells = cells.collect::<Result<_, _>>()?;
        Ok(Self { schema, cells, rows: 0, fields: Vec::new() })
    }

    /// Whether a column holds as many bytes of text.
    #[inline]
    pub(crate) fn has_bytes(&self, bytes: usize) -> bool {
        self.cells.iter().any(|cells| cells.bytes() >= bytes)
    }

    /// All rows so far as a batch; it goes on empty.
    pub(crate) fn take(&mut self) -> Result<RecordBatch, arrow::error::ArrowError> {
        let rows = std::mem::take(&mut self.rows);
        let mut arrays = Vec::with_capacity(self.cells.len());
        for (field, cells) in self.schema.fields().iter().zip(&mut self.cells) {
            let plain = gathered(field.data_type());
            let (buffers, nulls) = cells.lend();
            let data = ArrayData::builder(plain.clone()).len(rows).buffers(buffers).nulls(nulls);
            let array: ArrayRef = make_array(data.build()?);
            arrays.push(if plain == field.data_type() {
                array
            } else {
                cast(&array, field.data_type())?
            });
        }
        debug_assert!(arrays.iter().all(|array| array.len() == rows), "columns of one length");
        let options = RecordBatchOptions::new().with_row_count(Some(rows));
        RecordBatch::try_new_with_options(SchemaRef::clone(&self.schema), arrays, &options)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::AsArray;
    use arrow::datatypes::{DataType, Field, Int32Type, Schema, TimeUnit};
    use proptest::prelude::*;

    use super::*;

    fn columns(fields: Vec<Field>) -> Columns {
        Columns::new(Arc::new(Schema::new(fields))).unwrap()
    }

    #[test]
    fn memory_comes_back_when_batches_are_gone() {
        let mut columns = columns(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("s", DataType::Utf8, true),
        ]);
        let mut seen = std::collections::BTreeSet::new();
        let mut alive = std::collections::VecDeque::new();
        for round in 0..20_i64 {
            for row in 0..100 {
                columns.append((row, (row % 3 > 0).then_some("text"))).unwrap();
            }
            let batch = columns.take().unwrap();
            assert_eq!(batch.num_rows(), 100);
            assert_eq!(batch.column(1).null_count(), 34);
            seen.insert(batch.column(0).to_data().buffers()[0].as_ptr() as usize);
            alive.push_back(batch);
            if round >= 2 {
                alive.pop_front();
            }
        }
        assert!(seen.len() <= 5, "{} memories for 3 batches at a time", seen.len());
    }

    #[test]
    fn a_row_goes_in_as_a_whole_or_not_at_all() {
        let mut columns = columns(vec![
            Field::new("k", DataType::Utf8, false),
            Field::new("b", DataType::Boolean, true),
            Field::new("n", DataType::Int8, false),
        ]);
        columns.append(("a", true, 1)).unwrap();
        for wrong in [
            columns.append(("bad", None::<bool>, 300)).unwrap_err(),
            columns.append(("bad", true, None::<i8>)).unwrap_err(),
            columns.append(("bad", 1, 1)).unwrap_err(),
            columns.append(("bad", true)).unwrap_err(),
            columns.append(("bad", true, 1, 1)).unwrap_err(),
        ] {
            println!("{wrong}");
        }
        columns.append(("b", None::<bool>, -128_i64)).unwrap();
        let batch = columns.take().unwrap();
        assert_eq!(batch.num_rows(), 2);
        assert_eq!(
            batch.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(batch.column(1).null_count(), 1);
    }

    #[test]
    fn views_dictionaries_and_times_are_made() {
        let dictionary = DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let mut columns = columns(vec![
            Field::new("d", dictionary, true),
            Field::new("v", DataType::Utf8View, true),
            Field::new("b", DataType::BinaryView, true),
            Field::new(
                "t",
                DataType::Timestamp(TimeUnit::Second, Some("Europe/Berlin".into())),
                true,
            ),
            Field::new("x", DataType::Decimal128(4, 2), true),
        ]);
        columns.append(("one", "two", &b"three"[..], 4, 1234_i128)).unwrap();
        columns.append(("one", "long text outside of its view", &b""[..], 5, -9999_i128)).unwrap();
        assert!(columns.append(("one", "two", &b"three"[..], 4, 12_345_i128)).is_err());
        let batch = columns.take().unwrap();
        let dictionary = batch.column(0).as_dictionary::<Int32Type>();
        assert_eq!((dictionary.len(), dictionary.values().len()), (2, 1));
        assert_eq!(batch.column(1).as_string_view().value(1), "long text outside of its view");
        assert_eq!(batch.column(2).as_binary_view().value(0), b"three");
    }

    #[test]
    fn a_type_without_values_of_rust_is_refused() {
        let list = DataType::new_list(DataType::Int64, true);
        let schema = Schema::new(vec![Field::new("l", list, true)]);
        let error = Columns::new(Arc::new(schema)).unwrap_err().to_string();
        assert!(error.contains("\"l\"") && error.contains("push batches"), "{error}");
    }

    proptest! {
        /// Nulls, rows taken back and memory used again give what plain vectors give.
        #[test]
        fn batches_hold_what_was_appended(
            rows in proptest::collection::vec(
                (any::<Option<i64>>(), any::<Option<bool>>(), ".{0,20}", any::<u8>()), 0..300),
        ) {
            let mut columns = columns(vec![
                Field::new("n", DataType::Int64, true),
                Field::new("b", DataType::Boolean, true),
                Field::new("s", DataType::LargeUtf8, false),
            ]);
            let mut expected = Vec::new();
            for (n, b, s, what) in rows {
                match what {
                    0..=30 => prop_assert!(columns.append((n, b, 1)).is_err()),
                    31..=40 => {
                        let batch = columns.take().unwrap();
                        prop_assert_eq!(&read(&batch), &expected);
                        expected.clear();
                    }
                    _ => {
                        columns.append((n, b, s.as_str())).unwrap();
                        expected.push((n, b, s));
                    }
                }
            }
            prop_assert_eq!(read(&columns.take().unwrap()), expected);
        }
    }

    fn read(batch: &RecordBatch) -> Vec<(Option<i64>, Option<bool>, String)> {
        let numbers = batch.column(0).as_primitive::<arrow::datatypes::Int64Type>();
        let bools = batch.column(1).as_boolean();
        let texts = batch.column(2).as_string::<i64>();
        let rows = numbers.iter().zip(bools).zip(texts);
        rows.map(|((n, b), s)| (n, b, s.unwrap().to_owned())).collect()
    }
}
