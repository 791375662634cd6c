//! Event-time columns: integers made timestamps, and the largest time of an array.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::compute::{cast, max};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type,
};
use arrow::error::ArrowError;

/// The type that an event-time column of a type gets: integers become timestamps of `unit`.
/// `None` if the type is no time.
pub(crate) fn event_time_type(data_type: &DataType, unit: Option<TimeUnit>) -> Option<DataType> {
    match data_type {
        DataType::Timestamp(..) | DataType::Date32 | DataType::Date64 => Some(data_type.clone()),
        integer if integer.is_integer() => {
            Some(DataType::Timestamp(unit.unwrap_or(TimeUnit::Millisecond), None))
        }
        _ => None,
    }
}

/// Integers as timestamps of the same numbers; for 64 bits without a copy. An unsigned number
/// beyond the range becomes null, and thereby a row without a time.
pub(crate) fn integers_as_timestamps(
    array: &ArrayRef,
    unit: TimeUnit,
) -> Result<ArrayRef, ArrowError> {
    let wide = if array.data_type() == &DataType::Int64 {
        Arc::clone(array)
    } else {
        cast(array, &DataType::Int64)?
    };
    let wide = wide.as_primitive::<Int64Type>();
    Ok(match unit {
        TimeUnit::Second => Arc::new(wide.reinterpret_cast::<TimestampSecondType>()),
        TimeUnit::Millisecond => Arc::new(wide.reinterpret_cast::<TimestampMillisecondType>()),
        TimeUnit::Microsecond => Arc::new(wide.reinterpret_cast::<TimestampMicrosecondType>()),
        TimeUnit::Nanosecond => Arc::new(wide.reinterpret_cast::<TimestampNanosecondType>()),
    })
}

/// The largest time in an array, in the array's own unit; `None` if all are null or it holds no times.
pub(crate) fn max_of(array: &dyn Array) -> Option<i64> {
    fn of<T: ArrowPrimitiveType<Native: Into<i64>>>(array: &dyn Array) -> Option<i64> {
        max(array.as_primitive::<T>()).map(Into::into)
    }
    match array.data_type() {
        DataType::Timestamp(TimeUnit::Second, _) => of::<TimestampSecondType>(array),
        DataType::Timestamp(TimeUnit::Millisecond, _) => of::<TimestampMillisecondType>(array),
        DataType::Timestamp(TimeUnit::Microsecond, _) => of::<TimestampMicrosecondType>(array),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => of::<TimestampNanosecondType>(array),
        DataType::Date32 => of::<Date32Type>(array),
        DataType::Date64 => of::<Date64Type>(array),
        DataType::Int8 => of::<Int8Type>(array),
        DataType::Int16 => of::<Int16Type>(array),
        DataType::Int32 => of::<Int32Type>(array),
        DataType::Int64 => of::<Int64Type>(array),
        DataType::UInt8 => of::<UInt8Type>(array),
        DataType::UInt16 => of::<UInt16Type>(array),
        DataType::UInt32 => of::<UInt32Type>(array),
        DataType::UInt64 => {
            let array = cast(array, &DataType::Int64).ok()?;
            of::<Int64Type>(&array)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{Date32Array, Int32Array, StringArray, TimestampSecondArray, UInt64Array};

    #[test]
    fn the_largest_time_of_any_type() {
        assert_eq!(max_of(&Date32Array::from(vec![Some(3), None, Some(-9)])), Some(3));
        assert_eq!(max_of(&TimestampSecondArray::from(vec![-5, -7])), Some(-5));
        assert_eq!(max_of(&Int32Array::from(vec![None::<i32>])), None);
        assert_eq!(max_of(&UInt64Array::from(vec![7, u64::MAX])), Some(7));
        assert_eq!(max_of(&StringArray::from(vec!["x"])), None);
    }

    #[test]
    fn integers_become_timestamps_of_the_same_numbers() {
        let unit = TimeUnit::Second;
        let array: ArrayRef = Arc::new(UInt64Array::from(vec![7, u64::MAX]));
        let times = integers_as_timestamps(&array, unit).unwrap();
        assert_eq!(times.data_type(), &DataType::Timestamp(unit, None));
        assert_eq!((max_of(&times), times.is_null(1)), (Some(7), true));
        let expected = DataType::Timestamp(TimeUnit::Millisecond, None);
        assert_eq!(event_time_type(&DataType::Int32, None), Some(expected));
        assert_eq!(event_time_type(&DataType::Utf8, None), None);
    }
}
