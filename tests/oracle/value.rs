//! One value of any column, and reading it out of an Arrow array.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::datatypes::{
    DataType, Date32Type, Date64Type, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Float16Type, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};

/// A value, whatever Arrow form it has.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    /// Integers, dates, times, durations.
    Int(i128),
    /// Floats of every width, as the bits of a 64-bit float.
    Float(u64),
    /// The unscaled value.
    Decimal(i256),
    /// Text and binary.
    Bytes(Vec<u8>),
    /// Lists, and the fields of a struct.
    List(Vec<Value>),
    /// Only expected: a number that is at most so far from this one, both as the bits of floats.
    About(u64, u64),
}

impl Value {
    /// A float, all NaN alike.
    pub(crate) fn of_f64(value: f64) -> Self {
        Self::Float(if value.is_nan() { f64::NAN } else { value }.to_bits())
    }

    /// The same, all NaN alike.
    pub(crate) fn with_one_nan(&self) -> Self {
        match self {
            Self::Float(bits) => Self::of_f64(f64::from_bits(*bits)),
            Self::List(values) => Self::List(values.iter().map(Self::with_one_nan).collect()),
            other => other.clone(),
        }
    }

    /// Whether this is what is `expected`.
    pub(crate) fn is(&self, expected: &Self) -> bool {
        let Self::About(exact, error) = expected else { return self == expected };
        let (exact, error) = (f64::from_bits(*exact), f64::from_bits(*error));
        let found = match self {
            Self::Float(bits) => f64::from_bits(*bits),
            #[expect(clippy::cast_precision_loss, reason = "a small count")]
            Self::Int(count) => *count as f64,
            _ => return false,
        };
        found.to_bits() == exact.to_bits() || (found - exact).abs() <= error
    }

    /// As a key: all NaN are one key, -0.0 and 0.0 are one key.
    pub(crate) fn as_key(&self) -> Self {
        match self.with_one_nan() {
            Self::Float(bits) if bits << 1 == 0 => Self::Float(0),
            other => other,
        }
    }
}

/// A number that is greater for what min and max hold to be greater: NaN above everything.
pub(crate) fn float_order(value: f64) -> i64 {
    if value.is_nan() {
        return i64::MAX;
    }
    let bits = value.to_bits().cast_signed();
    if bits < 0 { i64::MIN - bits - 1 } else { bits }
}

/// A dictionary's value type, else the type itself.
pub(crate) fn plain_type(data_type: &DataType) -> &DataType {
    if let DataType::Dictionary(_, values) = data_type { values } else { data_type }
}

/// Calls `$body` with `$ty` as the primitive type of `$data_type`, for types that are whole numbers.
macro_rules! with_whole_type {
    ($data_type:expr, $ty:ident => $body:expr, else $other:expr) => {
        with_whole_type!(@match $data_type, $ty, $body, $other,
            (DataType::Int8, Int8Type), (DataType::Int16, Int16Type),
            (DataType::Int32, Int32Type), (DataType::Int64, Int64Type),
            (DataType::UInt8, UInt8Type), (DataType::UInt16, UInt16Type),
            (DataType::UInt32, UInt32Type), (DataType::UInt64, UInt64Type),
            (DataType::Date32, Date32Type), (DataType::Date64, Date64Type),
            (DataType::Time32(TimeUnit::Second), Time32SecondType),
            (DataType::Time32(_), Time32MillisecondType),
            (DataType::Time64(TimeUnit::Microsecond), Time64MicrosecondType),
            (DataType::Time64(_), Time64NanosecondType),
            (DataType::Timestamp(TimeUnit::Second, _), TimestampSecondType),
            (DataType::Timestamp(TimeUnit::Millisecond, _), TimestampMillisecondType),
            (DataType::Timestamp(TimeUnit::Microsecond, _), TimestampMicrosecondType),
            (DataType::Timestamp(TimeUnit::Nanosecond, _), TimestampNanosecondType),
            (DataType::Duration(TimeUnit::Second), DurationSecondType),
            (DataType::Duration(TimeUnit::Millisecond), DurationMillisecondType),
            (DataType::Duration(TimeUnit::Microsecond), DurationMicrosecondType),
            (DataType::Duration(TimeUnit::Nanosecond), DurationNanosecondType))
    };
    (@match $data_type:expr, $ty:ident, $body:expr, $other:expr, $(($pattern:pat, $of:ty)),*) => {
        match $data_type {
            $($pattern => { type $ty = $of; $body })*
            _ => $other,
        }
    };
}
pub(crate) use with_whole_type;

/// The value at `row`, with the bits it has.
pub(crate) fn read(array: &ArrayRef, row: usize) -> Value {
    if array.is_null(row) {
        return Value::Null;
    }
    let data_type = array.data_type();
    with_whole_type!(data_type, T => Value::Int(array.as_primitive::<T>().value(row).into()), else
        match data_type {
            DataType::Boolean => Value::Bool(array.as_boolean().value(row)),
            DataType::Float16 => float(array.as_primitive::<Float16Type>().value(row).into()),
            DataType::Float32 => float(array.as_primitive::<Float32Type>().value(row).into()),
            DataType::Float64 => float(array.as_primitive::<Float64Type>().value(row)),
            DataType::Decimal32(..) => decimal(array.as_primitive::<Decimal32Type>().value(row)),
            DataType::Decimal64(..) => decimal(array.as_primitive::<Decimal64Type>().value(row)),
            DataType::Decimal128(..) => decimal(array.as_primitive::<Decimal128Type>().value(row)),
            DataType::Decimal256(..) => {
                Value::Decimal(array.as_primitive::<Decimal256Type>().value(row))
            }
            DataType::Utf8 => bytes(array.as_string::<i32>().value(row)),
            DataType::LargeUtf8 => bytes(array.as_string::<i64>().value(row)),
            DataType::Utf8View => bytes(array.as_string_view().value(row)),
            DataType::Binary => bytes(array.as_binary::<i32>().value(row)),
            DataType::LargeBinary => bytes(array.as_binary::<i64>().value(row)),
            DataType::BinaryView => bytes(array.as_binary_view().value(row)),
            DataType::FixedSizeBinary(_) => bytes(array.as_fixed_size_binary().value(row)),
            DataType::List(_) => {
                let items = array.as_list::<i32>().value(row);
                Value::List((0..items.len()).map(|item| read(&items, item)).collect())
            }
            DataType::Struct(_) => {
                let fields = array.as_struct().columns().iter();
                Value::List(fields.map(|field| read(field, row)).collect())
            }
            other => unreachable!("{other} is not a result"),
        }
    )
}

fn float(value: f64) -> Value {
    Value::Float(value.to_bits())
}

fn decimal(value: impl Into<i128>) -> Value {
    Value::Decimal(i256::from_i128(value.into()))
}

fn bytes(value: impl AsRef<[u8]>) -> Value {
    Value::Bytes(value.as_ref().to_vec())
}
