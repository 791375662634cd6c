//! The event-time column: its unit, and its values as 64-bit integers of that unit.

use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    DataType, Date64Type, Int64Type, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType,
};

use crate::error::ConfigError;

/// Unit of event time: that of the input's column, kept from input to result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// Days since 1970-01-01 (`Date32`).
    Day,
    /// Seconds.
    Second,
    /// Milliseconds.
    Millisecond,
    /// Microseconds.
    Microsecond,
    /// Nanoseconds.
    Nanosecond,
}

impl Unit {
    /// The unit of an event-time column of type `data_type`; plain integers count in `integer_unit`.
    pub(crate) fn of(data_type: &DataType, integer_unit: TimeUnit) -> Option<Self> {
        match data_type {
            DataType::Date32 => Some(Self::Day),
            DataType::Date64 => Some(Self::Millisecond),
            DataType::Timestamp(unit, _) => Some((*unit).into()),
            other if other.is_integer() && *other != DataType::UInt64 => Some(integer_unit.into()),
            _ => None,
        }
    }

    /// Nanoseconds in one unit.
    pub(crate) fn nanos(self) -> u128 {
        match self {
            Self::Day => 86_400_000_000_000,
            Self::Second => 1_000_000_000,
            Self::Millisecond => 1_000_000,
            Self::Microsecond => 1_000,
            Self::Nanosecond => 1,
        }
    }

    /// `duration` in this unit, if it is a whole number of units that fits.
    pub(crate) fn exact(self, duration: Duration) -> Option<i64> {
        let nanos = duration.as_nanos();
        nanos.is_multiple_of(self.nanos()).then(|| i64::try_from(nanos / self.nanos()).ok())?
    }

    /// `duration` in this unit, rounded up.
    pub(crate) fn at_least(self, duration: Duration) -> i64 {
        i64::try_from(duration.as_nanos().div_ceil(self.nanos())).unwrap_or(i64::MAX)
    }

    /// Name for messages.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Day => "days",
            Self::Second => "seconds",
            Self::Millisecond => "milliseconds",
            Self::Microsecond => "microseconds",
            Self::Nanosecond => "nanoseconds",
        }
    }
}

impl From<TimeUnit> for Unit {
    fn from(unit: TimeUnit) -> Self {
        match unit {
            TimeUnit::Second => Self::Second,
            TimeUnit::Millisecond => Self::Millisecond,
            TimeUnit::Microsecond => Self::Microsecond,
            TimeUnit::Nanosecond => Self::Nanosecond,
        }
    }
}

/// Least and largest time that a column of `data_type` can hold.
pub(crate) fn limits(data_type: &DataType) -> (i64, i64) {
    match data_type {
        DataType::Date32 | DataType::Int32 => (i64::from(i32::MIN), i64::from(i32::MAX)),
        DataType::Int8 => (i64::from(i8::MIN), i64::from(i8::MAX)),
        DataType::Int16 => (i64::from(i16::MIN), i64::from(i16::MAX)),
        DataType::UInt8 => (0, i64::from(u8::MAX)),
        DataType::UInt16 => (0, i64::from(u16::MAX)),
        DataType::UInt32 => (0, i64::from(u32::MAX)),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Event times of a batch.
#[derive(Debug)]
pub(crate) struct Times {
    /// In the column's unit; at null rows, anything.
    pub(crate) values: ScalarBuffer<i64>,
    /// `None` if all rows have a time.
    pub(crate) nulls: Option<NullBuffer>,
}

/// The event times of a column for which [`Unit::of`] gave a unit. 64-bit columns are lent.
pub(crate) fn times(column: &ArrayRef) -> Result<Times, ConfigError> {
    let values = match column.data_type() {
        DataType::Int64 => column.as_primitive::<Int64Type>().values().clone(),
        DataType::Date64 => column.as_primitive::<Date64Type>().values().clone(),
        DataType::Timestamp(TimeUnit::Second, _) => {
            column.as_primitive::<TimestampSecondType>().values().clone()
        }
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            column.as_primitive::<TimestampMillisecondType>().values().clone()
        }
        DataType::Timestamp(TimeUnit::Microsecond, _) => {
            column.as_primitive::<TimestampMicrosecondType>().values().clone()
        }
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            column.as_primitive::<TimestampNanosecondType>().values().clone()
        }
        _ => {
            let wide = match column.data_type() {
                DataType::Date32 => cast(column, &DataType::Int32),
                _ => Ok(ArrayRef::clone(column)),
            }
            .and_then(|column| cast(&column, &DataType::Int64))
            .map_err(|error| ConfigError::Inconsistent(format!("event time: {error}")))?;
            wide.as_primitive::<Int64Type>().values().clone()
        }
    };
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
    Ok(Times { values, nulls })
}
