//! What accumulators read of a batch: columns, and what is made of several of them, once a batch.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, UInt32Array};
use arrow::buffer::NullBuffer;
use arrow::compute::{cast, prep_null_mask_filter, take};
use arrow::datatypes::{DataType, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};

use crate::aggregate::Damaged;
use crate::aggregate::filter::mask::Mask;
use crate::column::{BytesColumn, Column, Lane, canonical_floats, value_type};
use crate::error::RunError;
use crate::kernel::Isa;
use crate::key::batch::KeyBatch;
use crate::key::encode::KeyEncoder;

mod encoded;

/// One thing that is read of every batch.
#[derive(Debug)]
pub(crate) enum Input {
    /// A column as it is.
    Column(usize),
    /// A column of numbers as 64-bit floats, decimals rounded to the nearest.
    Floats(usize),
    /// Two of these.
    Pair(Box<[Input; 2]>),
    /// Rows as ordered bytes.
    Ordered(Arc<Ordered>),
    /// Rows as canonical keys.
    Keys(KeyEncoder),
    /// Whole columns, for aggregates that are not ours.
    Arrays(Vec<usize>),
    /// The rows that pass a filter.
    Mask(Mask),
}

impl Input {
    /// Whether it makes the same of every batch.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Column(a), Self::Column(b)) | (Self::Floats(a), Self::Floats(b)) => a == b,
            (Self::Pair(a), Self::Pair(b)) => a[0].is_same(&b[0]) && a[1].is_same(&b[1]),
            (Self::Ordered(a), Self::Ordered(b)) => {
                (&a.columns, a.required, a.one_zero) == (&b.columns, b.required, b.one_zero)
            }
            (Self::Keys(a), Self::Keys(b)) => a.columns() == b.columns(),
            (Self::Arrays(a), Self::Arrays(b)) => a == b,
            _ => false,
        }
    }

    /// Makes the column of `batch`, by the instructions of `isa`.
    pub(crate) fn read(&self, batch: &RecordBatch, isa: Isa) -> Result<Column, RunError> {
        // The most frequent case by far.
        if let Self::Column(column) = self {
            return Column::from_array(batch.column(*column)).map_err(|error| failed(&error));
        }
        self.make(batch, isa)
    }

    fn make(&self, batch: &RecordBatch, isa: Isa) -> Result<Column, RunError> {
        Ok(match self {
            Self::Column(_) => self.read(batch, isa)?,
            Self::Floats(column) => {
                let floats = cast(batch.column(*column), &DataType::Float64);
                floats
                    .and_then(|floats| Column::from_array(&floats))
                    .map_err(|error| failed(&error))?
            }
            Self::Pair(pair) => {
                let pair = [pair[0].read(batch, isa)?, pair[1].read(batch, isa)?];
                let nulls = NullBuffer::union(pair[0].nulls.as_ref(), pair[1].nulls.as_ref());
                Column { values: Lane::Pair(Arc::new(pair)), nulls }
            }
            Self::Ordered(ordered) => ordered.encode(batch).map_err(|error| failed(&error))?,
            Self::Keys(encoder) => {
                let mut keys = KeyBatch::default();
                encoder.encode(batch, &mut keys)?;
                keys.hash_all(isa);
                let nulls = nulls_of(encoder.columns().iter().map(|column| batch.column(*column)));
                Column { values: Lane::Keys(Arc::new(keys)), nulls }
            }
            Self::Arrays(columns) => {
                let arrays = columns.iter().map(|column| Arc::clone(batch.column(*column)));
                Column { values: Lane::Arrays(arrays.collect()), nulls: None }
            }
            Self::Mask(mask) => {
                let met = mask.evaluate(batch).map_err(|error| failed(&error))?;
                let met = if met.null_count() > 0 { prep_null_mask_filter(&met) } else { met };
                Column { values: Lane::Mask(met.values().clone()), nulls: None }
            }
        })
    }
}

fn failed(error: &ArrowError) -> RunError {
    RunError::Batch(error.to_string())
}

/// The rows where any of `columns` is null, if there are such rows.
fn nulls_of<'a>(columns: impl Iterator<Item = &'a ArrayRef>) -> Option<NullBuffer> {
    let nulls = columns.fold(None, |all: Option<NullBuffer>, column| {
        NullBuffer::union(all.as_ref(), column.logical_nulls().as_ref())
    });
    nulls.filter(|nulls| nulls.null_count() > 0)
}

/// Rows of several columns as bytes whose order is that of the rows, by Arrow's row format: ascending, by
/// the first column, then the second; nulls first, NaN last.
#[derive(Debug)]
pub(crate) struct Ordered {
    columns: Vec<usize>,
    /// The columns' types, a dictionary's that of its values.
    types: Vec<DataType>,
    /// Rows where any of the first so many columns is null are left out.
    required: usize,
    /// Whether -0.0 is read as 0.0.
    one_zero: bool,
    converter: RowConverter,
}

impl Ordered {
    /// Whether a column of this type can be part of it.
    pub(crate) fn supports(data_type: &DataType) -> bool {
        RowConverter::supports_fields(&[SortField::new(value_type(data_type).clone())])
    }

    /// Over `columns` of `schema`, whose types are all supported.
    pub(crate) fn new(
        schema: &Schema,
        columns: Vec<usize>,
        required: usize,
        one_zero: bool,
    ) -> Self {
        let types = columns.iter().map(|column| value_type(schema.field(*column).data_type()));
        let types: Vec<DataType> = types.cloned().collect();
        let fields = types.iter().cloned().map(SortField::new);
        let converter = RowConverter::new(fields.collect()).expect("the plan asked `supports`");
        Self { columns, types, required, one_zero, converter }
    }

    /// Checks that bytes of a file, which may be damaged, can be decoded; decoding others panics.
    pub(crate) fn check(&self, bytes: &[u8]) -> Result<(), Damaged> {
        if encoded::is_row(bytes, &self.types, self.required) {
            return Ok(());
        }
        let found = format!("{} other bytes", bytes.len());
        Err(Damaged::new("a row of the aggregate's columns", found))
    }

    fn encode(&self, batch: &RecordBatch) -> Result<Column, ArrowError> {
        let mut plain = Vec::with_capacity(self.columns.len());
        for column in &self.columns {
            let array = batch.column(*column);
            let values = match array.data_type() {
                DataType::Dictionary(_, values) => cast(array, values)?,
                _ => Arc::clone(array),
            };
            plain.push(canonical_floats(&values, self.one_zero));
        }
        let rows = self.converter.convert_columns(&plain)?;
        let nulls = nulls_of(plain[..self.required].iter());
        Ok(Column { values: Lane::Bytes(BytesColumn::Rows(Arc::new(rows))), nulls })
    }

    /// All columns of `rows`, which were encoded by this.
    pub(crate) fn decode_all<'a>(&self, rows: impl Iterator<Item = &'a [u8]>) -> Vec<ArrayRef> {
        let parser = self.converter.parser();
        let rows: Vec<&[u8]> = rows.collect();
        let parsed = rows.iter().map(|row| parser.parse(row));
        self.converter.convert_rows(parsed).expect("what was encoded can be decoded")
    }

    /// The column `field` of `rows`, null where there is no row.
    pub(crate) fn decode<'a>(
        &self,
        rows: impl Iterator<Item = Option<&'a [u8]>>,
        field: usize,
    ) -> ArrayRef {
        let rows: Vec<Option<&[u8]>> = rows.collect();
        let mut found = self.decode_all(rows.iter().copied().flatten());
        let column = found.swap_remove(field);
        if column.len() == rows.len() {
            return column;
        }
        let mut next = 0;
        let places = rows.iter().map(|row| {
            row.map(|_| {
                next += 1;
                next - 1
            })
        });
        let places: UInt32Array = places.collect();
        take(&column, &places, None).expect("places are those of the column")
    }
}
