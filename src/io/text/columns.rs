//! Columns of an Arrow batch from the fields of text records.
//!
//! Each column is converted in a loop of its own, so that the type is decided once per batch. A bad
//! value becomes null and is noted; if a batch has any, its rows are filtered out at the end. Batches
//! without bad values, nearly all, pay nothing for that.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BinaryBuilder, BooleanBuilder, GenericStringBuilder,
    OffsetSizeTrait, PrimitiveArray, StringViewBuilder,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, Time32MillisecondType, Time32SecondType,
    Time64MicrosecondType, Time64NanosecondType, TimeUnit, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};

use crate::io::text::datetime::{self, Stamp, TimeFormat, stamp};
use crate::io::text::field::{Field, Rows, Texts};
use crate::io::text::value::{self, Fault, trim};

const MILLIS_OF_DAY: i64 = 86_400_000;

/// One column to make.
#[derive(Debug, Clone)]
pub(crate) struct ColumnPlan {
    pub(crate) name: String,
    /// What the texts are read as.
    pub(crate) data_type: DataType,
    /// Whether the type is a guess.
    pub(crate) inferred: bool,
    /// Whether this is the event time, which must not be null.
    pub(crate) is_time: bool,
    /// How times are written, if not as ISO 8601.
    pub(crate) format: Option<Arc<TimeFormat>>,
}

/// A value that its column cannot take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bad {
    pub(crate) row: usize,
    pub(crate) column: usize,
    pub(crate) fault: Fault,
}

/// Whether texts can be read as this type.
pub(crate) fn is_readable(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal128(_, scale) => *scale >= 0,
        DataType::Timestamp(_, zone) => zone.as_deref().is_none_or(is_utc),
        other => {
            other.is_integer()
                || matches!(
                    other,
                    DataType::Boolean | DataType::Float32 | DataType::Float64 | DataType::Utf8
                )
                || matches!(other, DataType::LargeUtf8 | DataType::Utf8View | DataType::Binary)
                || matches!(other, DataType::Date32 | DataType::Date64)
                || matches!(other, DataType::Time32(_) | DataType::Time64(_))
        }
    }
}

fn is_utc(zone: &str) -> bool {
    matches!(zone, "+00:00" | "UTC" | "Etc/UTC" | "Z" | "GMT")
}

/// Converts a column of all rows. Bad values are null in it and are added to `bad`.
pub(crate) fn column(
    plan: &ColumnPlan,
    index: usize,
    rows: &Rows,
    texts: &Texts<'_>,
    bad: &mut Vec<Bad>,
) -> ArrayRef {
    let before = bad.len();
    let mut convert = Convert { index, rows, texts, bad };
    let array = convert.any(plan);
    if plan.is_time && array.null_count() > bad.len() - before {
        let noted: Vec<usize> = bad[before..].iter().map(|b| b.row).collect();
        let mut noted = noted.into_iter().peekable();
        for row in 0..array.len() {
            if noted.next_if_eq(&row).is_none() && array.is_null(row) {
                bad.push(Bad { row, column: index, fault: Fault::Null });
            }
        }
    }
    array
}

struct Convert<'a> {
    index: usize,
    rows: &'a Rows,
    texts: &'a Texts<'a>,
    bad: &'a mut Vec<Bad>,
}

impl Convert<'_> {
    fn any(&mut self, plan: &ColumnPlan) -> ArrayRef {
        let strict = plan.inferred;
        match &plan.data_type {
            DataType::Boolean => self.boolean(),
            DataType::Int64 => Arc::new(self.primitive::<Int64Type>(|t| {
                if strict && value::has_leading_zero(t) {
                    return Err(Fault::LeadingZero);
                }
                value::int64(t)
            })),
            DataType::Float64 => Arc::new(self.primitive::<Float64Type>(value::float64)),
            #[expect(clippy::cast_possible_truncation, reason = "the nearest float32 is asked for")]
            DataType::Float32 => {
                Arc::new(self.primitive::<Float32Type>(|t| value::float64(t).map(|v| v as f32)))
            }
            DataType::Decimal128(precision, scale) => self.decimal(*precision, *scale),
            DataType::LargeUtf8 => self.text::<i64>(),
            DataType::Utf8View => self.text_view(),
            DataType::Binary => self.binary(),
            DataType::Date32 | DataType::Date64 => self.date(plan),
            DataType::Timestamp(unit, zone) => self.timestamp(plan, *unit, zone.as_ref()),
            DataType::Time32(unit) | DataType::Time64(unit) => self.time(*unit),
            other if other.is_integer() => self.narrow(other),
            _ => self.text::<i32>(),
        }
    }

    /// Numbers and their kin: blanks around them do not count, and only blanks are null.
    #[inline]
    fn primitive<T: ArrowPrimitiveType>(
        &mut self,
        parse: impl Fn(&[u8]) -> Result<T::Native, Fault>,
    ) -> PrimitiveArray<T> {
        let mut values = Vec::with_capacity(self.rows.len());
        let mut nulls: Option<Vec<bool>> = None;
        for (row, field) in self.rows.column(self.index).enumerate() {
            let mut value = None;
            if !field.is_null() {
                let text = trim(self.texts.bytes(field));
                if !text.is_empty() {
                    match parse(text) {
                        Ok(parsed) => value = Some(parsed),
                        Err(fault) => self.bad.push(Bad { row, column: self.index, fault }),
                    }
                }
            }
            if let Some(nulls) = &mut nulls {
                nulls.push(value.is_some());
            } else if value.is_none() {
                let mut valid = Vec::with_capacity(self.rows.len());
                valid.resize(row, true);
                valid.push(false);
                nulls = Some(valid);
            }
            values.push(value.unwrap_or_default());
        }
        PrimitiveArray::new(ScalarBuffer::from(values), nulls.map(NullBuffer::from))
    }

    fn boolean(&mut self) -> ArrayRef {
        let mut builder = BooleanBuilder::with_capacity(self.rows.len());
        for (row, field) in self.rows.column(self.index).enumerate() {
            let text = if field.is_null() { &[] } else { trim(self.texts.bytes(field)) };
            let value = match value::boolean(text) {
                _ if text.is_empty() => None,
                Ok(value) => Some(value),
                Err(fault) => {
                    self.bad.push(Bad { row, column: self.index, fault });
                    None
                }
            };
            builder.append_option(value);
        }
        Arc::new(builder.finish())
    }

    fn narrow(&mut self, data_type: &DataType) -> ArrayRef {
        fn within<T: TryFrom<i64>>(text: &[u8]) -> Result<T, Fault> {
            value::int64(text).and_then(|v| T::try_from(v).map_err(|_| Fault::OutOfRange))
        }
        match data_type {
            DataType::Int8 => Arc::new(self.primitive::<Int8Type>(within)),
            DataType::Int16 => Arc::new(self.primitive::<Int16Type>(within)),
            DataType::Int32 => Arc::new(self.primitive::<Int32Type>(within)),
            DataType::UInt8 => Arc::new(self.primitive::<UInt8Type>(within)),
            DataType::UInt16 => Arc::new(self.primitive::<UInt16Type>(within)),
            DataType::UInt32 => Arc::new(self.primitive::<UInt32Type>(within)),
            _ => Arc::new(self.primitive::<UInt64Type>(|t| {
                value::int128(t).and_then(|v| u64::try_from(v).map_err(|_| Fault::OutOfRange))
            })),
        }
    }

    fn decimal(&mut self, precision: u8, scale: i8) -> ArrayRef {
        let array = self.primitive::<Decimal128Type>(|t| value::decimal(t, precision, scale));
        Arc::new(array.with_data_type(DataType::Decimal128(precision, scale)))
    }

    fn date(&mut self, plan: &ColumnPlan) -> ArrayRef {
        let read = reader(plan);
        if plan.data_type == DataType::Date32 {
            return Arc::new(self.primitive::<Date32Type>(|t| read(t)?.as_date()));
        }
        Arc::new(
            self.primitive::<Date64Type>(|t| Ok(i64::from(read(t)?.as_date()?) * MILLIS_OF_DAY)),
        )
    }

    fn timestamp(
        &mut self,
        plan: &ColumnPlan,
        unit: TimeUnit,
        zone: Option<&Arc<str>>,
    ) -> ArrayRef {
        let read = reader(plan);
        let zoned = zone.is_some();
        let parse = |text: &[u8]| {
            let stamp = read(text)?;
            if stamp.has_offset && !zoned {
                return Err(Fault::Offset);
            }
            stamp.in_unit(unit)
        };
        let zone = zone.cloned();
        match unit {
            TimeUnit::Second => {
                Arc::new(self.primitive::<TimestampSecondType>(parse).with_timezone_opt(zone))
            }
            TimeUnit::Millisecond => {
                Arc::new(self.primitive::<TimestampMillisecondType>(parse).with_timezone_opt(zone))
            }
            TimeUnit::Microsecond => {
                Arc::new(self.primitive::<TimestampMicrosecondType>(parse).with_timezone_opt(zone))
            }
            TimeUnit::Nanosecond => {
                Arc::new(self.primitive::<TimestampNanosecondType>(parse).with_timezone_opt(zone))
            }
        }
    }

    fn time(&mut self, unit: TimeUnit) -> ArrayRef {
        let wide = move |t: &[u8]| datetime::time_of_day(t, unit);
        let narrow =
            move |t: &[u8]| wide(t).and_then(|v| i32::try_from(v).map_err(|_| Fault::OutOfRange));
        match unit {
            TimeUnit::Second => Arc::new(self.primitive::<Time32SecondType>(narrow)),
            TimeUnit::Millisecond => Arc::new(self.primitive::<Time32MillisecondType>(narrow)),
            TimeUnit::Microsecond => Arc::new(self.primitive::<Time64MicrosecondType>(wide)),
            TimeUnit::Nanosecond => Arc::new(self.primitive::<Time64NanosecondType>(wide)),
        }
    }

    /// Calls `each` with every row's text, `None` for null and for what is not UTF-8.
    #[inline]
    fn each_text(&mut self, mut each: impl FnMut(Option<&str>)) {
        for (row, field) in self.rows.column(self.index).enumerate() {
            if field.is_null() {
                each(None);
                continue;
            }
            match self.texts.text(field) {
                Ok(text) => each(Some(text)),
                Err(fault) => {
                    self.bad.push(Bad { row, column: self.index, fault });
                    each(None);
                }
            }
        }
    }

    fn bytes_total(&self) -> usize {
        let not_null = self.rows.column(self.index).filter(|f| !f.is_null());
        not_null.map(Field::byte_len).sum()
    }

    fn text<O: OffsetSizeTrait>(&mut self) -> ArrayRef {
        let bytes = self.bytes_total();
        let mut builder = GenericStringBuilder::<O>::with_capacity(self.rows.len(), bytes);
        self.each_text(|text| builder.append_option(text));
        Arc::new(builder.finish())
    }

    fn text_view(&mut self) -> ArrayRef {
        let mut builder = StringViewBuilder::with_capacity(self.rows.len());
        self.each_text(|text| builder.append_option(text));
        Arc::new(builder.finish())
    }

    fn binary(&mut self) -> ArrayRef {
        let mut builder = BinaryBuilder::with_capacity(self.rows.len(), self.bytes_total());
        for field in self.rows.column(self.index) {
            builder.append_option((!field.is_null()).then(|| self.texts.bytes(field)));
        }
        Arc::new(builder.finish())
    }
}

/// How the column's times are read.
fn reader(plan: &ColumnPlan) -> impl Fn(&[u8]) -> Result<Stamp, Fault> {
    let format = plan.format.clone();
    move |text| match &format {
        None => stamp(text),
        Some(format) => {
            let text = std::str::from_utf8(text).map_err(|_| Fault::NotUtf8)?;
            format.read(text)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::text::csv::{CsvLayout, split};
    use arrow::array::AsArray;

    fn read(data_type: DataType, lines: &str, is_time: bool) -> (ArrayRef, Vec<(usize, Fault)>) {
        let layout =
            CsvLayout { delimiter: b',', slots: vec![0, u16::MAX], width: 1, null_text: None };
        let mut rows = Rows::new(1);
        split(&layout, lines.as_bytes(), 0, usize::MAX, &mut rows);
        let texts = Texts { chunk: lines.as_bytes(), utf8: Some(lines), scratch: &rows.scratch };
        let plan = ColumnPlan {
            name: "x".into(),
            data_type: data_type.clone(),
            inferred: true,
            is_time,
            format: None,
        };
        let mut bad = Vec::new();
        let array = column(&plan, 0, &rows, &texts, &mut bad);
        assert_eq!(array.data_type(), &data_type);
        assert_eq!(array.len(), rows.len());
        (array, bad.into_iter().map(|b| (b.row, b.fault)).collect())
    }

    #[test]
    fn every_readable_type_reads() {
        let zone = || Some(Arc::from("+00:00"));
        for (data_type, text, shown) in [
            (DataType::Boolean, "TRUE", "true"),
            (DataType::Int8, "-128", "-128"),
            (DataType::Int16, "300", "300"),
            (DataType::Int32, "70000", "70000"),
            (DataType::Int64, " 5 ", "5"),
            (DataType::UInt8, "255", "255"),
            (DataType::UInt16, "65535", "65535"),
            (DataType::UInt32, "4294967295", "4294967295"),
            (DataType::UInt64, "18446744073709551615", "18446744073709551615"),
            (DataType::Float32, "1.5", "1.5"),
            (DataType::Float64, "-2.5", "-2.5"),
            (DataType::Decimal128(20, 2), "12.3", "12.30"),
            (DataType::Utf8, " a ", " a "),
            (DataType::LargeUtf8, "b", "b"),
            (DataType::Utf8View, "a text that is not short", "a text that is not short"),
            (DataType::Binary, "hi", "6869"),
            (DataType::Date32, "2024-02-29", "2024-02-29"),
            (DataType::Date64, "2024-02-29", "2024-02-29T00:00:00"),
            (DataType::Time32(TimeUnit::Second), "10:11:12", "10:11:12"),
            (DataType::Time64(TimeUnit::Nanosecond), "10:11:12.5", "10:11:12.500"),
            (DataType::Timestamp(TimeUnit::Second, None), "2024-01-01", "2024-01-01T00:00:00"),
            (
                DataType::Timestamp(TimeUnit::Millisecond, zone()),
                "2024-01-01T01:00:00+01:00",
                "2024-01-01T00:00:00Z",
            ),
        ] {
            assert!(is_readable(&data_type), "{data_type}");
            let (array, bad) = read(data_type, &format!("{text},\n,\n"), false);
            assert!(bad.is_empty() && array.is_null(1) && array.is_valid(0));
            let text = arrow::util::display::array_value_to_string(&array, 0).unwrap();
            assert_eq!(text, shown);
        }
        assert!(!is_readable(&DataType::Duration(TimeUnit::Second)));
    }

    #[test]
    fn bad_values_are_noted_not_guessed() {
        let (array, bad) = read(DataType::Int64, "1,\n2x,\n,\n007,\n4,\n", false);
        assert_eq!(bad, [(1, Fault::NotOfType), (3, Fault::LeadingZero)]);
        let array = array.as_primitive::<Int64Type>();
        assert_eq!(array.iter().collect::<Vec<_>>(), [Some(1), None, None, None, Some(4)]);
        let (_, bad) = read(DataType::Int8, "128,\n", false);
        assert_eq!(bad, [(0, Fault::OutOfRange)]);
    }

    #[test]
    fn times_must_not_be_null() {
        let data_type = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let lines = "2024-01-01,\n,\nsoon,\n9999-01-01,\n2024-01-01T00:00Z,\n,\n";
        let (_, mut bad) = read(data_type, lines, true);
        bad.sort_by_key(|b| b.0);
        assert_eq!(
            bad,
            [
                (1, Fault::Null),
                (2, Fault::NotOfType),
                (3, Fault::OutOfRange),
                (4, Fault::Offset),
                (5, Fault::Null)
            ]
        );
    }
}
