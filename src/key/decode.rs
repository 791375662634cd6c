//! From canonical keys back to Arrow columns: the inverse of [`encode`](super::encode).

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BinaryBuilder, BooleanArray, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Date64Type, Decimal128Type, Decimal256Type,
    DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType, DurationSecondType,
    Field, Float32Type, Float64Type, Int8Type, Int16Type, Int32Type, Int64Type,
    Time32MillisecondType, Time32SecondType, Time64MicrosecondType, Time64NanosecondType, TimeUnit,
    TimestampMicrosecondType, TimestampMillisecondType, TimestampNanosecondType,
    TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type, i256,
};

use super::types::{is_word, wide_decimal};

fn unzigzag(folded: u64) -> u64 {
    (folded >> 1) ^ (folded & 1).wrapping_neg()
}

fn take_length(text: &[u8]) -> (usize, &[u8]) {
    let mut length = 0;
    for (i, byte) in text.iter().enumerate() {
        length |= usize::from(byte & 0x7f) << (7 * i);
        if byte & 0x80 == 0 {
            return (length, &text[i + 1..]);
        }
    }
    unreachable!("a length ends within its key")
}

/// Rebuilds one field of composite keys.
pub(super) struct FieldDecoder<'a> {
    data_type: &'a DataType,
    words: Vec<Option<u64>>,
    wide: Vec<Option<[u8; 32]>>,
    bytes: BinaryBuilder,
}

impl<'a> FieldDecoder<'a> {
    pub(super) fn new(field: &'a Field) -> Self {
        let data_type = field.data_type();
        Self { data_type, words: Vec::new(), wide: Vec::new(), bytes: BinaryBuilder::new() }
    }

    /// Takes this field's value off the front of `text`; returns the rest.
    pub(super) fn take<'t>(&mut self, text: &'t [u8]) -> &'t [u8] {
        let (tag, rest) = take_length(text);
        let value = tag.checked_sub(1).map(|len| &rest[..len]);
        if is_word(self.data_type) {
            self.words.push(value.map(|value| {
                let mut word = [0; 8];
                word[..value.len()].copy_from_slice(value);
                unzigzag(u64::from_le_bytes(word))
            }));
        } else if let Some(width) = wide_decimal(self.data_type) {
            self.wide.push(value.map(|value| {
                let mut wide = [0; 32];
                debug_assert!(value.len() <= width);
                wide[..value.len()].copy_from_slice(value);
                wide
            }));
        } else {
            self.bytes.append_option(value);
        }
        &rest[tag.saturating_sub(1)..]
    }

    pub(super) fn finish(mut self) -> ArrayRef {
        match self.data_type {
            data_type if is_word(data_type) => {
                let null = self.words.iter().any(Option::is_none);
                let nulls = null.then(|| self.words.iter().map(Option::is_some).collect());
                let words = self.words.iter().map(|word| word.unwrap_or(0)).collect();
                word_array(words, nulls, data_type)
            }
            DataType::Decimal256(_, _) => {
                let values = self.wide.iter().map(|wide| wide.map(i256::from_le_bytes));
                let array: PrimitiveArray<Decimal256Type> = values.collect();
                Arc::new(array.with_data_type(self.data_type.clone()))
            }
            data_type if wide_decimal(data_type).is_some() => {
                let values = self.wide.iter().map(|wide| {
                    wide.map(|w| i128::from_le_bytes(w[..16].try_into().expect("16 bytes")))
                });
                let array: PrimitiveArray<Decimal128Type> = values.collect();
                let (precision, scale) = match data_type {
                    DataType::Decimal32(p, s)
                    | DataType::Decimal64(p, s)
                    | DataType::Decimal128(p, s) => (*p, *s),
                    other => unreachable!("{other} is not a decimal"),
                };
                let array: ArrayRef =
                    Arc::new(array.with_data_type(DataType::Decimal128(precision, scale)));
                cast_back(&array, data_type)
            }
            data_type => bytes_array(&self.bytes.finish(), data_type),
        }
    }
}

/// Casts canonical values back to the type they came from, which cannot fail.
fn cast_back(array: &ArrayRef, data_type: &DataType) -> ArrayRef {
    if array.data_type() == data_type {
        return Arc::clone(array);
    }
    cast(array, data_type).expect("canonical values came from this type")
}

pub(super) fn bytes_array(array: &arrow::array::BinaryArray, data_type: &DataType) -> ArrayRef {
    let array: ArrayRef = Arc::new(array.clone());
    if let DataType::FixedSizeBinary(width) = data_type {
        let mut builder = arrow::array::FixedSizeBinaryBuilder::new(*width);
        for value in array.as_binary::<i32>() {
            match value {
                Some(value) => builder.append_value(value).expect("keys have the column's width"),
                None => builder.append_null(),
            }
        }
        return Arc::new(builder.finish());
    }
    cast_back(&array, data_type)
}

/// An array of type `data_type`, for which `is_word` holds, from canonical words.
#[expect(clippy::cast_possible_truncation, reason = "words came from values of the type")]
#[expect(clippy::cast_possible_wrap, reason = "words came from values of the type")]
pub(super) fn word_array(
    words: Vec<u64>,
    nulls: Option<NullBuffer>,
    data_type: &DataType,
) -> ArrayRef {
    fn array<T: ArrowPrimitiveType>(
        words: Vec<u64>,
        nulls: Option<NullBuffer>,
        data_type: &DataType,
        value: impl Fn(u64) -> T::Native,
    ) -> ArrayRef {
        let values = words.into_iter().map(value).collect::<Vec<_>>();
        let array = PrimitiveArray::<T>::new(values.into(), nulls);
        Arc::new(array.with_data_type(data_type.clone()))
    }
    macro_rules! signed {
        ($ty:ty) => {
            array::<$ty>(words, nulls, data_type, |w| w as i64 as _)
        };
    }
    use DataType as D;
    match data_type {
        D::Boolean => {
            let values = words.iter().map(|word| *word != 0).collect();
            Arc::new(BooleanArray::new(values, nulls))
        }
        D::Int8 => signed!(Int8Type),
        D::Int16 => signed!(Int16Type),
        D::Int32 => signed!(Int32Type),
        D::Int64 => signed!(Int64Type),
        D::UInt8 => array::<UInt8Type>(words, nulls, data_type, |w| w as u8),
        D::UInt16 => array::<UInt16Type>(words, nulls, data_type, |w| w as u16),
        D::UInt32 => array::<UInt32Type>(words, nulls, data_type, |w| w as u32),
        D::UInt64 => array::<UInt64Type>(words, nulls, data_type, |w| w),
        D::Float16 => {
            let wide =
                array::<Float32Type>(words, nulls, &D::Float32, |w| f64::from_bits(w) as f32);
            cast_back(&wide, data_type)
        }
        D::Float32 => array::<Float32Type>(words, nulls, data_type, |w| f64::from_bits(w) as f32),
        D::Float64 => array::<Float64Type>(words, nulls, data_type, f64::from_bits),
        D::Date32 => signed!(Date32Type),
        D::Date64 => signed!(Date64Type),
        D::Time32(TimeUnit::Second) => signed!(Time32SecondType),
        D::Time32(_) => signed!(Time32MillisecondType),
        D::Time64(TimeUnit::Microsecond) => signed!(Time64MicrosecondType),
        D::Time64(_) => signed!(Time64NanosecondType),
        D::Timestamp(TimeUnit::Second, _) => signed!(TimestampSecondType),
        D::Timestamp(TimeUnit::Millisecond, _) => signed!(TimestampMillisecondType),
        D::Timestamp(TimeUnit::Microsecond, _) => signed!(TimestampMicrosecondType),
        D::Timestamp(TimeUnit::Nanosecond, _) => signed!(TimestampNanosecondType),
        D::Duration(TimeUnit::Second) => signed!(DurationSecondType),
        D::Duration(TimeUnit::Millisecond) => signed!(DurationMillisecondType),
        D::Duration(TimeUnit::Microsecond) => signed!(DurationMicrosecondType),
        D::Duration(TimeUnit::Nanosecond) => signed!(DurationNanosecondType),
        other => unreachable!("{other} is not a word"),
    }
}
