//! From an Arrow array to a [`Column`].
//!
//! Nothing here changes what a value means: integers, dates and times become their own physical
//! number, wider; floats become the same float in 64 bits; decimals the same unscaled integer.
//! Dictionaries become their values.
//!
//! Cost: 64-bit numbers, 128- and 256-bit decimals, text and binary are lent (no copy); the others
//! are written out once per batch.

use arrow::array::{Array, ArrayRef, ArrowPrimitiveType, AsArray};
use arrow::buffer::ScalarBuffer;
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, Float16Type,
    Float32Type, Float64Type, Int8Type, Int16Type, TimeUnit, UInt8Type, UInt16Type, UInt32Type,
    UInt64Type,
};
use arrow::error::ArrowError;

use crate::column::{BytesColumn, Column, Lane};

/// Which [`Lane`] the columns of a type come in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LaneKind {
    /// [`Lane::I64`].
    I64,
    /// [`Lane::U64`].
    U64,
    /// [`Lane::F64`].
    F64,
    /// [`Lane::I128`].
    I128,
    /// [`Lane::I256`].
    I256,
    /// [`Lane::Bytes`].
    Bytes,
    /// [`Lane::Opaque`].
    Opaque,
}

impl LaneKind {
    /// The lane of columns of type `data_type`.
    pub(crate) fn of(data_type: &DataType) -> Self {
        use DataType as T;
        match data_type {
            T::Boolean
            | T::Int8
            | T::Int16
            | T::Int32
            | T::Int64
            | T::Date32
            | T::Date64
            | T::Time32(TimeUnit::Second | TimeUnit::Millisecond)
            | T::Time64(TimeUnit::Microsecond | TimeUnit::Nanosecond)
            | T::Timestamp(..)
            | T::Duration(_) => Self::I64,
            T::UInt8 | T::UInt16 | T::UInt32 | T::UInt64 => Self::U64,
            T::Float16 | T::Float32 | T::Float64 => Self::F64,
            T::Decimal32(..) | T::Decimal64(..) | T::Decimal128(..) => Self::I128,
            T::Decimal256(..) => Self::I256,
            T::Dictionary(_, values) if !matches!(**values, T::Dictionary(..)) => Self::of(values),
            other if BytesColumn::is_for(other) => Self::Bytes,
            _ => Self::Opaque,
        }
    }
}

/// The type of the values: a dictionary's value type, else the type itself.
pub(crate) fn value_type(data_type: &DataType) -> &DataType {
    if let DataType::Dictionary(_, values) = data_type { values } else { data_type }
}

impl Column {
    /// The column over `array`.
    ///
    /// # Errors
    /// If Arrow cannot write out a dictionary (a key out of range, more text than 32-bit offsets hold).
    pub(crate) fn from_array(array: &ArrayRef) -> Result<Self, ArrowError> {
        let kind = LaneKind::of(array.data_type());
        if let (DataType::Dictionary(_, values), true) =
            (array.data_type(), kind != LaneKind::Opaque)
        {
            return Self::from_array(&arrow::compute::cast(array, values)?);
        }
        let values = match kind {
            LaneKind::I64 => Lane::I64(signed(array)),
            LaneKind::U64 => Lane::U64(unsigned(array)),
            LaneKind::F64 => Lane::F64(floats(array)),
            LaneKind::I128 => Lane::I128(decimals(array)),
            LaneKind::I256 => Lane::I256(array.as_primitive::<Decimal256Type>().values().clone()),
            LaneKind::Bytes => {
                Lane::Bytes(BytesColumn::new(ArrayRef::clone(array)).expect("`LaneKind::of` asked"))
            }
            LaneKind::Opaque => Lane::Opaque,
        };
        Ok(Self { values, nulls: array.logical_nulls().filter(|nulls| nulls.null_count() > 0) })
    }
}

fn widen<T: ArrowPrimitiveType, W>(array: &ArrayRef, with: impl Fn(T::Native) -> W) -> Vec<W> {
    array.as_primitive::<T>().values().iter().map(|value| with(*value)).collect()
}

/// The physical values of an array of 32- or 64-bit integers of whatever meaning.
fn physical<N: arrow::datatypes::ArrowNativeType>(array: &ArrayRef) -> ScalarBuffer<N> {
    let data = array.to_data();
    ScalarBuffer::new(data.buffers()[0].clone(), data.offset(), data.len())
}

fn signed(array: &ArrayRef) -> ScalarBuffer<i64> {
    match array.data_type() {
        // By far the most frequent, and without the small allocation that `physical` costs.
        DataType::Int64 => array.as_primitive::<arrow::datatypes::Int64Type>().values().clone(),
        DataType::Boolean => array.as_boolean().values().iter().map(i64::from).collect(),
        DataType::Int8 => widen::<Int8Type, _>(array, i64::from).into(),
        DataType::Int16 => widen::<Int16Type, _>(array, i64::from).into(),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => {
            physical::<i32>(array).iter().map(|value| i64::from(*value)).collect()
        }
        _ => physical(array),
    }
}

fn unsigned(array: &ArrayRef) -> ScalarBuffer<u64> {
    match array.data_type() {
        DataType::UInt8 => widen::<UInt8Type, _>(array, u64::from).into(),
        DataType::UInt16 => widen::<UInt16Type, _>(array, u64::from).into(),
        DataType::UInt32 => widen::<UInt32Type, _>(array, u64::from).into(),
        _ => array.as_primitive::<UInt64Type>().values().clone(),
    }
}

fn floats(array: &ArrayRef) -> ScalarBuffer<f64> {
    match array.data_type() {
        DataType::Float16 => widen::<Float16Type, _>(array, f64::from).into(),
        DataType::Float32 => widen::<Float32Type, _>(array, f64::from).into(),
        _ => array.as_primitive::<Float64Type>().values().clone(),
    }
}

fn decimals(array: &ArrayRef) -> ScalarBuffer<i128> {
    match array.data_type() {
        DataType::Decimal32(..) => widen::<Decimal32Type, _>(array, i128::from).into(),
        DataType::Decimal64(..) => widen::<Decimal64Type, _>(array, i128::from).into(),
        _ => array.as_primitive::<Decimal128Type>().values().clone(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{
        BooleanArray, Date32Array, Decimal32Array, DictionaryArray, Float32Array, Int8Array,
        Int64Array, StructArray, TimestampMicrosecondArray, UInt16Array,
    };

    use super::*;

    fn column(array: impl Array + 'static) -> Column {
        Column::from_array(&(Arc::new(array) as ArrayRef)).unwrap()
    }

    fn i64s(column: &Column) -> Vec<Option<i64>> {
        let Lane::I64(values) = &column.values else { panic!("{column:?}") };
        let valid = |i| column.nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i));
        values.iter().enumerate().map(|(i, value)| valid(i).then_some(*value)).collect()
    }

    #[test]
    fn wide_numbers_are_lent_also_from_a_slice() {
        let array = Int64Array::from(vec![Some(1), None, Some(3), Some(i64::MIN)]);
        let slice = array.slice(2, 2);
        let lent = column(slice);
        assert!(lent.nulls.is_none(), "a bitmap without a null is no bitmap");
        let Lane::I64(values) = &lent.values else { panic!() };
        assert_eq!(values.as_ptr(), array.values()[2..].as_ptr());
        assert_eq!(i64s(&column(array.slice(1, 2))), [None, Some(3)]);
        let times = TimestampMicrosecondArray::from(vec![-1, 5]).with_timezone("+01:00");
        assert_eq!(i64s(&column(times.slice(1, 1))), [Some(5)]);
    }

    #[test]
    fn narrow_types_are_widened_as_they_are() {
        assert_eq!(i64s(&column(Int8Array::from(vec![-128, 127]))), [Some(-128), Some(127)]);
        let days = Date32Array::from(vec![Some(-1), None, Some(19000)]);
        assert_eq!(i64s(&column(days.slice(1, 2))), [None, Some(19000)]);
        let flags = BooleanArray::from(vec![Some(true), None, Some(false)]);
        assert_eq!(i64s(&column(flags.slice(1, 2))), [None, Some(0)]);
        let Lane::U64(values) = column(UInt16Array::from(vec![65535])).values else { panic!() };
        assert_eq!(&values[..], [65535]);
        let Lane::F64(values) = column(Float32Array::from(vec![0.1])).values else { panic!() };
        assert_eq!(values[0].to_bits(), f64::from(0.1_f32).to_bits());
        let cents = Decimal32Array::from(vec![-105]).with_precision_and_scale(5, 2).unwrap();
        let Lane::I128(values) = column(cents).values else { panic!() };
        assert_eq!(&values[..], [-105]);
    }

    #[test]
    fn dictionaries_become_their_values() {
        let words: DictionaryArray<Int8Type> =
            vec![Some("b"), None, Some("a"), Some("b")].into_iter().collect();
        let words = column(words);
        assert!(matches!(&words.values, Lane::Bytes(_)));
        assert_eq!(words.nulls.map(|nulls| nulls.null_count()), Some(1));
        // A null among the dictionary's values is a null of every row that refers to it.
        let keys = Int8Array::from(vec![0, 1, 1]);
        let values = Int64Array::from(vec![None, Some(7)]);
        let numbers = DictionaryArray::new(keys, Arc::new(values));
        assert_eq!(i64s(&column(numbers)), [None, Some(7), Some(7)]);
    }

    #[test]
    fn other_types_keep_their_nulls_only() {
        let empty = column(arrow::array::NullArray::new(3));
        assert!(matches!(empty.values, Lane::Opaque));
        assert_eq!(empty.nulls.map(|nulls| nulls.null_count()), Some(3));
        let nested = StructArray::new_empty_fields(2, None);
        assert!(matches!(column(nested).values, Lane::Opaque));
        assert_eq!(LaneKind::of(&DataType::Utf8View), LaneKind::Bytes);
    }
}
