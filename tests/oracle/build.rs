//! Arrow arrays of every form from values, with everything in them that Arrow allows: rubbish under
//! nulls, dictionaries that hold a value twice, or a null as a value.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, BinaryBuilder, BinaryViewBuilder, BooleanArray, DictionaryArray,
    FixedSizeBinaryBuilder, LargeBinaryBuilder, LargeStringBuilder, PrimitiveArray, StringBuilder,
    StringViewBuilder,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    ArrowDictionaryKeyType, ArrowNativeType, ArrowPrimitiveType, DataType, Date32Type, Date64Type,
    Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, Time32MillisecondType,
    Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};

use super::rng::Rng;
use super::value::{Value, with_whole_type};

/// An array of `data_type` with these values, which fit it.
#[expect(clippy::cast_possible_truncation, reason = "values were made for the type")]
pub(crate) fn array(data_type: &DataType, values: &[Value], rng: &mut Rng) -> ArrayRef {
    let int = |value: &Value| if let Value::Int(value) = value { *value } else { 0 };
    let float = |value: &Value| {
        if let Value::Float(bits) = value { f64::from_bits(*bits) } else { 0.0 }
    };
    let wide = |value: &Value| {
        if let Value::Decimal(value) = value { *value } else { i256::ZERO }
    };
    let narrow = |value: &Value| wide(value).as_i128();
    let p = Primitives { data_type, values };
    with_whole_type!(data_type, T => p.array::<T>(
        |value| int(value).try_into().expect("a value of the type")), else
        match data_type {
            DataType::Boolean => {
                let bits = values.iter().map(|value| *value == Value::Bool(true)).collect();
                Arc::new(BooleanArray::new(bits, nulls(values)))
            }
            DataType::Float16 => p.array::<Float16Type>(|value| {
                // Conversion is exact for values that were made for the type.
                arrow_half(float(value))
            }),
            DataType::Float32 => p.array::<Float32Type>(|value| float(value) as f32),
            DataType::Float64 => p.array::<Float64Type>(float),
            DataType::Decimal32(..) => p.array::<Decimal32Type>(|value| narrow(value) as i32),
            DataType::Decimal64(..) => p.array::<Decimal64Type>(|value| narrow(value) as i64),
            DataType::Decimal128(..) => p.array::<Decimal128Type>(narrow),
            DataType::Decimal256(..) => p.array::<Decimal256Type>(wide),
            DataType::Dictionary(keys, of) => match **keys {
                DataType::Int64 => dictionary::<Int64Type>(of, values, rng),
                DataType::UInt16 => dictionary::<UInt16Type>(of, values, rng),
                _ => dictionary::<Int32Type>(of, values, rng),
            },
            _ => text(data_type, values),
        }
    )
}

fn arrow_half(value: f64) -> <Float16Type as ArrowPrimitiveType>::Native {
    use arrow::array::AsArray;
    let wide: ArrayRef = Arc::new(PrimitiveArray::<Float64Type>::from_iter_values([value]));
    let half = arrow::compute::cast(&wide, &DataType::Float16).expect("floats become halves");
    half.as_primitive::<Float16Type>().value(0)
}

fn nulls(values: &[Value]) -> Option<NullBuffer> {
    let valid = values.iter().map(|value| *value != Value::Null).collect::<NullBuffer>();
    (valid.null_count() > 0).then_some(valid)
}

struct Primitives<'a> {
    data_type: &'a DataType,
    values: &'a [Value],
}

impl Primitives<'_> {
    /// A null row holds the value of some other row underneath.
    fn array<T: ArrowPrimitiveType>(&self, native: impl Fn(&Value) -> T::Native) -> ArrayRef {
        let of = |i: usize| match &self.values[i] {
            Value::Null => native(&self.values[(i * 7 + 3) % self.values.len()]),
            value => native(value),
        };
        let natives = (0..self.values.len()).map(of).collect::<Vec<_>>();
        let array = PrimitiveArray::<T>::new(natives.into(), nulls(self.values));
        Arc::new(array.with_data_type(self.data_type.clone()))
    }
}

fn dictionary<K: ArrowDictionaryKeyType>(
    of: &DataType,
    values: &[Value],
    rng: &mut Rng,
) -> ArrayRef {
    let mut distinct = values.to_vec();
    distinct.sort();
    distinct.dedup();
    let twice = distinct.iter().filter(|_| rng.percent(30)).cloned().collect::<Vec<_>>();
    distinct.extend(twice);
    distinct.push(Value::Null);
    let rotate = rng.below(distinct.len());
    distinct.rotate_left(rotate);
    let null_keys = rng.percent(50);
    let keys = values.iter().map(|value| {
        if *value == Value::Null && null_keys {
            return None;
        }
        let from = rng.below(distinct.len());
        let found = (from..distinct.len()).chain(0..from).find(|i| distinct[*i] == *value);
        K::Native::from_usize(found.expect("it is there"))
    });
    let keys = keys.collect::<PrimitiveArray<K>>();
    Arc::new(DictionaryArray::new(keys, array(of, &distinct, rng)))
}

fn text(data_type: &DataType, values: &[Value]) -> ArrayRef {
    let bytes = |value: &Value| -> Option<Vec<u8>> {
        if let Value::Bytes(bytes) = value { Some(bytes.clone()) } else { None }
    };
    let string = |value: &Value| {
        bytes(value).map(|bytes| String::from_utf8(bytes).expect("text was made for text"))
    };
    macro_rules! built {
        ($builder:expr, $value:ident) => {{
            let mut builder = $builder;
            values.iter().for_each(|value| builder.append_option($value(value)));
            Arc::new(builder.finish())
        }};
    }
    match data_type {
        DataType::Utf8 => built!(StringBuilder::new(), string),
        DataType::LargeUtf8 => built!(LargeStringBuilder::new(), string),
        DataType::Utf8View => built!(StringViewBuilder::new().with_fixed_block_size(64), string),
        DataType::Binary => built!(BinaryBuilder::new(), bytes),
        DataType::LargeBinary => built!(LargeBinaryBuilder::new(), bytes),
        DataType::BinaryView => built!(BinaryViewBuilder::new().with_fixed_block_size(64), bytes),
        DataType::FixedSizeBinary(width) => {
            let mut builder = FixedSizeBinaryBuilder::new(*width);
            for value in values {
                match bytes(value) {
                    Some(bytes) => builder.append_value(bytes).expect("of this width"),
                    None => builder.append_null(),
                }
            }
            Arc::new(builder.finish())
        }
        other => unreachable!("{other} is not in the lattice"),
    }
}
