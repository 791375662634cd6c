//! From Arrow key columns to canonical keys and back.
//!
//! Canonical means: equal keys have equal words (or bytes) whatever Arrow form they came in (plain,
//! large, view, dictionary), and different keys have different ones. Numbers of up to 64 bits become
//! one word (signed ones sign-extended, floats as 64-bit floats with one NaN and one zero). Text and
//! binary are their bytes. Decimals, and any combination of columns, become bytes in which each field
//! carries its length (zero for NULL), so that `("a", "b:c")` and `("a:b", "c")` differ.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BinaryBuilder, GenericByteArray, PrimitiveArray, StringArray,
};
use arrow::buffer::{Buffer, NullBuffer, ScalarBuffer};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, ByteArrayType, DataType, Date32Type, Date64Type, Decimal128Type,
    Decimal256Type, DurationMicrosecondType, DurationMillisecondType, DurationNanosecondType,
    DurationSecondType, Field, Float16Type, Float32Type, Float64Type, Int8Type, Int16Type,
    Int32Type, Int64Type, Schema, Time32MillisecondType, Time32SecondType, Time64MicrosecondType,
    Time64NanosecondType, TimeUnit, TimestampMicrosecondType, TimestampMillisecondType,
    TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type, UInt32Type, UInt64Type,
};
use arrow::record_batch::RecordBatch;

use super::batch::{
    INLINE_BYTES, KeyBatch, KeyWords, LongKeys, NULL_BYTES, long_words, short_words,
};
use super::decode::{FieldDecoder, bytes_array, word_array};
use super::hash::{NULL_HASH, hash_long, hash_short, hash_word};
use super::types::{is_bytes, is_word, value_type, wide_decimal};
use crate::error::{ConfigError, RunError};
use crate::kernel::Isa;

/// Keys known beforehand.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum HotList {
    /// Values of the one key column as text; `None` is the NULL key.
    Text(Vec<Option<String>>),
    /// Keys as rows of a batch with the key columns, in their order.
    Rows(RecordBatch),
}

/// Turns the key columns of a job into canonical keys, and canonical keys into key columns.
#[derive(Debug, Clone)]
pub(crate) struct KeyEncoder {
    columns: Vec<usize>,
    fields: Vec<Field>,
    kind: Kind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// No key columns: every row has the same key, the word 0.
    Global,
    /// One number of up to 64 bits.
    Word,
    /// One text or binary column.
    Bytes,
    /// Everything else, field by field.
    Fields,
}

/// Keys to be decoded, by position.
pub(crate) trait DecodeKeys {
    /// Number of keys.
    fn len(&self) -> usize;
    /// Words of all keys, anything for NULL, and which are not NULL if one is; for keys of one word.
    fn words(&self) -> (Vec<u64>, Option<NullBuffer>);
    /// Bytes of the `k`-th key, `None` for NULL; for byte keys.
    fn bytes(&self, k: usize, visit: &mut dyn FnMut(Option<&[u8]>));
}

impl KeyEncoder {
    /// An encoder for `columns` of `schema`.
    pub(crate) fn new(schema: &Schema, columns: Vec<usize>) -> Result<Self, ConfigError> {
        let mut fields = Vec::with_capacity(columns.len());
        for &column in &columns {
            let field = schema.field(column);
            let values = value_type(field.data_type());
            if !is_word(values) && !is_bytes(values) && wide_decimal(values).is_none() {
                return Err(ConfigError::WrongType {
                    use_: "key".into(),
                    column: field.name().clone(),
                    found: field.data_type().to_string(),
                    expected: "keys are booleans, numbers, decimals, dates, times, timestamps, \
                               strings or binary"
                        .into(),
                });
            }
            fields.push(Field::new(field.name(), values.clone(), field.is_nullable()));
        }
        let kind = match fields.as_slice() {
            [] => Kind::Global,
            [field] if is_word(field.data_type()) => Kind::Word,
            [field] if is_bytes(field.data_type()) => Kind::Bytes,
            _ => Kind::Fields,
        };
        Ok(Self { columns, fields, kind })
    }

    /// The key columns, as indices into the schema.
    pub(crate) fn columns(&self) -> &[usize] {
        &self.columns
    }

    /// Words per key: 1 or 2.
    pub(crate) fn width(&self) -> usize {
        match self.kind {
            Kind::Global | Kind::Word => 1,
            Kind::Bytes | Kind::Fields => 2,
        }
    }

    /// Whether keys are integers, or dates or times, which are kept as such.
    pub(crate) fn is_integer(&self) -> bool {
        let data_type = self.fields.first().map(Field::data_type);
        self.kind == Kind::Word
            && data_type.is_some_and(|it| !it.is_floating() && *it != DataType::Boolean)
    }

    /// The key columns of a result, under their own names; dictionaries as their values' type.
    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    /// Writes the keys of `batch` into `out`, and their hashes, unless keys are numbers: those are hashed
    /// by [`KeyBatch::hash_all`] or, once it is known which are wanted, [`KeyBatch::hash_rows`].
    pub(crate) fn encode(&self, batch: &RecordBatch, out: &mut KeyBatch) -> Result<(), RunError> {
        out.width = self.width();
        out.nulls = None;
        out.hashed = true;
        match self.kind {
            Kind::Global => {
                out.words.start().resize(batch.num_rows(), 0);
                out.hashes.clear();
                out.hashes.resize(batch.num_rows(), hash_word(0));
            }
            Kind::Word => encode_word_column(&plain(batch.column(self.columns[0]))?, out),
            Kind::Bytes => encode_bytes_column(&plain(batch.column(self.columns[0]))?, out),
            Kind::Fields => self.encode_fields(batch, out)?,
        }
        debug_assert!(!out.hashed || out.hashes.len() == batch.num_rows());
        Ok(())
    }

    fn encode_fields(&self, batch: &RecordBatch, out: &mut KeyBatch) -> Result<(), RunError> {
        let mut fields = Vec::with_capacity(self.columns.len());
        for &column in &self.columns {
            fields.push(FieldReader::new(plain(batch.column(column))?));
        }
        let words = out.words.start();
        let text = out.long.start();
        out.hashes.clear();
        for row in 0..batch.num_rows() {
            let start = text.len();
            for field in &fields {
                field.append(row, text);
            }
            push_key(text, start, text.len() - start, words, &mut out.hashes);
            if text.len() - start <= INLINE_BYTES {
                text.truncate(start);
            }
        }
        Ok(())
    }

    /// The key columns of `keys`.
    pub(crate) fn decode(&self, keys: &dyn DecodeKeys) -> Vec<ArrayRef> {
        match self.kind {
            Kind::Global => Vec::new(),
            Kind::Word => {
                let (words, nulls) = keys.words();
                vec![word_array(words, nulls, self.fields[0].data_type())]
            }
            Kind::Bytes => {
                let mut builder = BinaryBuilder::with_capacity(keys.len(), keys.len() * 12);
                for k in 0..keys.len() {
                    keys.bytes(k, &mut |bytes| builder.append_option(bytes));
                }
                vec![bytes_array(&builder.finish(), self.fields[0].data_type())]
            }
            Kind::Fields => {
                let mut decoders = self.fields.iter().map(FieldDecoder::new).collect::<Vec<_>>();
                for k in 0..keys.len() {
                    keys.bytes(k, &mut |bytes| {
                        let mut rest = bytes.expect("a key of several fields is never NULL itself");
                        for decoder in &mut decoders {
                            rest = decoder.take(rest);
                        }
                    });
                }
                decoders.into_iter().map(FieldDecoder::finish).collect()
            }
        }
    }

    /// Hash and first word of keys known beforehand.
    pub(crate) fn hashes_of(&self, list: &HotList) -> Result<Vec<(u64, u64)>, ConfigError> {
        let bad =
            |why: String| ConfigError::Syntax { what: "hot keys", text: format!("{list:?}"), why };
        let columns = match list {
            HotList::Rows(batch) => batch.columns().to_vec(),
            HotList::Text(texts) => vec![Arc::new(StringArray::from(texts.clone())) as ArrayRef],
        };
        if columns.len() != self.fields.len() {
            return Err(bad(format!(
                "{} value(s) a key were given, the key has {} column(s)",
                columns.len(),
                self.fields.len()
            )));
        }
        let mut own = self.clone();
        own.columns = (0..columns.len()).collect();
        let mut typed = Vec::with_capacity(columns.len());
        for (column, field) in columns.iter().zip(&self.fields) {
            let values = cast(column, field.data_type()).map_err(|error| bad(error.to_string()))?;
            // A dictionary may also hold a null as a value.
            let nulls = column.logical_nulls();
            let given = |i: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(i));
            if let Some(row) = (0..values.len()).find(|i| values.is_null(*i) && given(*i)) {
                let value = arrow::util::display::array_value_to_string(column, row);
                return Err(bad(format!(
                    "\"{}\" is not a value of \"{}\", which is {}",
                    value.unwrap_or_default(),
                    field.name(),
                    field.data_type()
                )));
            }
            typed.push((field.name(), values, true));
        }
        let batch = RecordBatch::try_from_iter_with_nullable(typed)
            .map_err(|error| bad(error.to_string()))?;
        let mut keys = KeyBatch::default();
        own.encode(&batch, &mut keys).map_err(|error| bad(error.to_string()))?;
        keys.hash_all(Isa::PORTABLE);
        let words = keys.words.as_slice();
        Ok(keys.hashes.iter().enumerate().map(|(i, hash)| (*hash, words[i * keys.width])).collect())
    }

    /// The key as text, for messages and reports: fields separated by ", ", NULL as `null`.
    pub(crate) fn text(&self, keys: &dyn DecodeKeys, k: usize) -> String {
        let columns = self.decode(&Single { keys, k });
        let shown = columns.iter().map(|column| {
            if column.is_null(0) {
                return "null".to_owned();
            }
            arrow::util::display::array_value_to_string(column, 0)
                .unwrap_or_else(|_| "(not printable)".to_owned())
        });
        shown.collect::<Vec<_>>().join(", ")
    }
}

/// One key of many.
struct Single<'a> {
    keys: &'a dyn DecodeKeys,
    k: usize,
}

impl DecodeKeys for Single<'_> {
    fn len(&self) -> usize {
        1
    }
    fn words(&self) -> (Vec<u64>, Option<NullBuffer>) {
        let (words, nulls) = self.keys.words();
        (vec![words[self.k]], nulls.map(|nulls| nulls.slice(self.k, 1)))
    }
    fn bytes(&self, _: usize, visit: &mut dyn FnMut(Option<&[u8]>)) {
        self.keys.bytes(self.k, visit);
    }
}

/// The column without dictionary encoding, and small decimals widened.
fn plain(column: &ArrayRef) -> Result<ArrayRef, RunError> {
    let target = match column.data_type() {
        DataType::Dictionary(_, values) => values.as_ref().clone(),
        DataType::Decimal32(p, s) | DataType::Decimal64(p, s) => DataType::Decimal128(*p, *s),
        _ => return Ok(Arc::clone(column)),
    };
    cast(column, &target).map_err(|error| RunError::Batch(format!("a key column: {error}")))
}

/// Calls `$body` with `$array` as the primitive array of whichever 64-bit type `$data_type` is.
macro_rules! with_64_bit {
    ($column:expr, $array:ident => $body:expr, else $other:expr) => {
        with_64_bit!(@types $column, $array => $body, $other,
            (DataType::Int64, Int64Type), (DataType::UInt64, UInt64Type),
            (DataType::Date64, Date64Type),
            (DataType::Timestamp(TimeUnit::Second, _), TimestampSecondType),
            (DataType::Timestamp(TimeUnit::Millisecond, _), TimestampMillisecondType),
            (DataType::Timestamp(TimeUnit::Microsecond, _), TimestampMicrosecondType),
            (DataType::Timestamp(TimeUnit::Nanosecond, _), TimestampNanosecondType),
            (DataType::Time64(TimeUnit::Microsecond), Time64MicrosecondType),
            (DataType::Time64(TimeUnit::Nanosecond), Time64NanosecondType),
            (DataType::Duration(TimeUnit::Second), DurationSecondType),
            (DataType::Duration(TimeUnit::Millisecond), DurationMillisecondType),
            (DataType::Duration(TimeUnit::Microsecond), DurationMicrosecondType),
            (DataType::Duration(TimeUnit::Nanosecond), DurationNanosecondType))
    };
    (@types $column:expr, $array:ident => $body:expr, $other:expr, $(($pattern:pat, $ty:ty)),*) => {
        match $column.data_type() {
            $($pattern => { let $array = $column.as_primitive::<$ty>(); $body })*
            _ => $other,
        }
    };
}

/// Canonical words of a column for which `is_word` holds; lent where they already are 64-bit words and no row
/// is null.
fn word_values(column: &ArrayRef, own: &mut KeyWords) {
    let lent = with_64_bit!(column, array => Some(array.values().inner().clone()), else None);
    let nulls = column.nulls().filter(|nulls| nulls.null_count() > 0);
    match (lent, nulls) {
        (Some(buffer), None) => {
            *own = KeyWords::Lent(ScalarBuffer::new(buffer, 0, column.len()));
        }
        (Some(buffer), Some(nulls)) => {
            let values = ScalarBuffer::<u64>::new(buffer, 0, column.len());
            let out = own.start();
            out.extend(values.iter().enumerate().map(
                |(i, word)| {
                    if nulls.is_valid(i) { *word } else { 0 }
                },
            ));
        }
        (None, nulls) => {
            let out = own.start();
            small_words(column, out);
            for (i, word) in out.iter_mut().enumerate() {
                if nulls.is_some_and(|nulls| nulls.is_null(i)) {
                    *word = 0;
                }
            }
        }
    }
}

/// Words of types narrower than 64 bits, and of floats.
#[expect(clippy::cast_sign_loss, reason = "sign extension into the word is the canonical form")]
fn small_words(column: &ArrayRef, out: &mut Vec<u64>) {
    fn fill<T: ArrowPrimitiveType>(
        column: &ArrayRef,
        out: &mut Vec<u64>,
        word: impl Fn(T::Native) -> u64,
    ) {
        out.extend(column.as_primitive::<T>().values().iter().map(|value| word(*value)));
    }
    match column.data_type() {
        DataType::Boolean => {
            out.extend(column.as_boolean().values().iter().map(u64::from));
        }
        DataType::Int8 => fill::<Int8Type>(column, out, |v| i64::from(v) as u64),
        DataType::Int16 => fill::<Int16Type>(column, out, |v| i64::from(v) as u64),
        DataType::Int32 => fill::<Int32Type>(column, out, |v| i64::from(v) as u64),
        DataType::Date32 => fill::<Date32Type>(column, out, |v| i64::from(v) as u64),
        DataType::Time32(TimeUnit::Second) => {
            fill::<Time32SecondType>(column, out, |v| i64::from(v) as u64);
        }
        DataType::Time32(_) => {
            fill::<Time32MillisecondType>(column, out, |v| i64::from(v) as u64);
        }
        DataType::UInt8 => fill::<UInt8Type>(column, out, u64::from),
        DataType::UInt16 => fill::<UInt16Type>(column, out, u64::from),
        DataType::UInt32 => fill::<UInt32Type>(column, out, u64::from),
        DataType::Float16 => fill::<Float16Type>(column, out, |v| float_word(f64::from(v))),
        DataType::Float32 => fill::<Float32Type>(column, out, |v| float_word(f64::from(v))),
        DataType::Float64 => fill::<Float64Type>(column, out, float_word),
        other => unreachable!("{other} is not a word"),
    }
}

/// One word for all NaN, one for both zeros.
fn float_word(value: f64) -> u64 {
    if value.is_nan() {
        return f64::NAN.to_bits();
    }
    (value + 0.0).to_bits()
}

fn encode_word_column(column: &ArrayRef, out: &mut KeyBatch) {
    word_values(column, &mut out.words);
    out.nulls = column.nulls().filter(|nulls| nulls.null_count() > 0).cloned();
    out.hashed = false;
}

/// Appends the words and hash of the key `text[start..start + len]`.
#[inline(always)]
fn push_key(text: &[u8], start: usize, len: usize, words: &mut Vec<u64>, hashes: &mut Vec<u64>) {
    let pair = if len <= INLINE_BYTES {
        let pair = short_words(text, start, len);
        hashes.push(hash_short(pair[0], pair[1]));
        pair
    } else {
        let key = &text[start..start + len];
        hashes.push(hash_long(key));
        long_words(key, start)
    };
    words.extend_from_slice(&pair);
}

fn encode_bytes_column(column: &ArrayRef, out: &mut KeyBatch) {
    let words = out.words.start();
    words.reserve(column.len() * 2);
    out.hashes.clear();
    out.hashes.reserve(column.len());
    match column.data_type() {
        DataType::Utf8 => out.long = offset_keys(column.as_string::<i32>(), words, &mut out.hashes),
        DataType::LargeUtf8 => {
            out.long = offset_keys(column.as_string::<i64>(), words, &mut out.hashes);
        }
        DataType::Binary => {
            out.long = offset_keys(column.as_binary::<i32>(), words, &mut out.hashes);
        }
        DataType::LargeBinary => {
            out.long = offset_keys(column.as_binary::<i64>(), words, &mut out.hashes);
        }
        DataType::Utf8View => {
            let views = column.as_string_view().views();
            view_keys(
                views,
                |i| column.as_string_view().value(i).as_bytes(),
                words,
                &mut out.hashes,
            );
            out.long = LongKeys::Views(Arc::clone(column));
        }
        DataType::BinaryView => {
            let views = column.as_binary_view().views();
            view_keys(views, |i| column.as_binary_view().value(i), words, &mut out.hashes);
            out.long = LongKeys::Views(Arc::clone(column));
        }
        DataType::FixedSizeBinary(_) => {
            let array = column.as_fixed_size_binary();
            let text = out.long.start();
            for i in 0..array.len() {
                let start = text.len();
                text.extend_from_slice(array.value(i));
                push_key(text, start, text.len() - start, words, &mut out.hashes);
            }
        }
        other => unreachable!("{other} is not bytes"),
    }
    if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
        mark_nulls(nulls, words, &mut out.hashes);
    }
}

fn mark_nulls(nulls: &NullBuffer, words: &mut [u64], hashes: &mut [u64]) {
    for i in (0..nulls.len()).filter(|i| nulls.is_null(*i)) {
        words[2 * i] = NULL_BYTES;
        words[2 * i + 1] = 0;
        hashes[i] = NULL_HASH;
    }
}

fn offset_keys<T: ByteArrayType>(
    array: &GenericByteArray<T>,
    words: &mut Vec<u64>,
    hashes: &mut Vec<u64>,
) -> LongKeys {
    use arrow::datatypes::ArrowNativeType as _;
    let text = array.values().as_slice();
    for pair in array.value_offsets().windows(2) {
        let start = pair[0].as_usize();
        push_key(text, start, pair[1].as_usize() - start, words, hashes);
    }
    LongKeys::Lent(Buffer::clone(array.values()))
}

fn view_keys<'a>(
    views: &[u128],
    value: impl Fn(usize) -> &'a [u8],
    words: &mut Vec<u64>,
    hashes: &mut Vec<u64>,
) {
    for (i, view) in views.iter().enumerate() {
        #[expect(clippy::cast_possible_truncation, reason = "a view is taken apart")]
        let (low, high, len) = (*view as u64, (*view >> 64) as u64, *view as u32 as usize);
        if len <= INLINE_BYTES {
            words.extend_from_slice(&[low, high]);
            hashes.push(hash_short(low, high));
        } else {
            let key = value(i);
            words.extend_from_slice(&long_words(key, i));
            hashes.push(hash_long(key));
        }
    }
}

/// One field of a composite key.
enum FieldReader {
    Word { words: KeyWords, nulls: Option<NullBuffer> },
    Bytes { array: ArrayRef },
    Decimal128(PrimitiveArray<Decimal128Type>),
    Decimal256(PrimitiveArray<Decimal256Type>),
}

impl FieldReader {
    fn new(column: ArrayRef) -> Self {
        match column.data_type() {
            DataType::Decimal128(_, _) => {
                Self::Decimal128(column.as_primitive::<Decimal128Type>().clone())
            }
            DataType::Decimal256(_, _) => {
                Self::Decimal256(column.as_primitive::<Decimal256Type>().clone())
            }
            other if is_word(other) => {
                let mut words = KeyWords::default();
                word_values(&column, &mut words);
                Self::Word { words, nulls: column.nulls().cloned() }
            }
            _ => Self::Bytes { array: column },
        }
    }

    /// Appends the field: 0 for NULL, else one more than the value's length, then the value.
    #[inline]
    fn append(&self, row: usize, text: &mut Vec<u8>) {
        match self {
            Self::Word { nulls: Some(nulls), .. } if nulls.is_null(row) => text.push(0),
            Self::Word { words, .. } => {
                append_number(&zigzag(words.as_slice()[row]).to_le_bytes(), text);
            }
            Self::Decimal128(array) if array.is_null(row) => text.push(0),
            Self::Decimal128(array) => append_number(&array.value(row).to_le_bytes(), text),
            Self::Decimal256(array) if array.is_null(row) => text.push(0),
            Self::Decimal256(array) => append_number(&array.value(row).to_le_bytes(), text),
            Self::Bytes { array } if array.is_null(row) => text.push(0),
            Self::Bytes { array } => {
                let value = bytes_value(array, row);
                append_length(value.len() + 1, text);
                text.extend_from_slice(value);
            }
        }
    }
}

/// Small magnitudes of either sign become small numbers, which lose their leading zero bytes.
fn zigzag(word: u64) -> u64 {
    #[expect(clippy::cast_possible_wrap, clippy::cast_sign_loss, reason = "bits are rearranged")]
    let folded = (word << 1) ^ (((word as i64) >> 63) as u64);
    folded
}

/// Little-endian bytes without leading zeros, after one more than their number.
fn append_number(bytes: &[u8], text: &mut Vec<u8>) {
    let used = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    #[expect(clippy::cast_possible_truncation, reason = "at most 33")]
    text.push(used as u8 + 1);
    text.extend_from_slice(&bytes[..used]);
}

/// Seven bits a byte, the last one with its high bit clear (LEB128).
fn append_length(mut length: usize, text: &mut Vec<u8>) {
    while length >= 0x80 {
        #[expect(clippy::cast_possible_truncation, reason = "seven bits and a flag")]
        text.push((length & 0x7f) as u8 | 0x80);
        length >>= 7;
    }
    #[expect(clippy::cast_possible_truncation, reason = "below 128")]
    text.push(length as u8);
}

fn bytes_value(array: &ArrayRef, row: usize) -> &[u8] {
    match array.data_type() {
        DataType::Utf8 => array.as_string::<i32>().value(row).as_bytes(),
        DataType::LargeUtf8 => array.as_string::<i64>().value(row).as_bytes(),
        DataType::Utf8View => array.as_string_view().value(row).as_bytes(),
        DataType::Binary => array.as_binary::<i32>().value(row),
        DataType::LargeBinary => array.as_binary::<i64>().value(row),
        DataType::BinaryView => array.as_binary_view().value(row),
        DataType::FixedSizeBinary(_) => array.as_fixed_size_binary().value(row),
        other => unreachable!("{other} is not bytes"),
    }
}
