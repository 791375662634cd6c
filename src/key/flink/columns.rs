//! Hash codes of whole columns of keys, as a Flink job would have them.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type,
    Int16Type, Int32Type, Int64Type, TimeUnit, TimestampMillisecondType, TimestampSecondType,
    UInt8Type, UInt16Type, UInt32Type,
};

use super::java::{
    AsciiHashes, LongHashes, boolean_hash, decimal_hash, double_hash, float_hash, instant_hash,
    local_date_hash, long_hash, string_hash, tuple_hash,
};
use super::row::{RowWriter, WordRowHashes, hash_bytes, inline_text};
use crate::error::ConfigError;
use crate::kernel::Isa;

/// Digits of a decimal that SQL keeps in one word.
const COMPACT_DIGITS: u8 = 18;

/// What the key of the Flink job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KeyForm {
    /// `DataStream`: the Java object that each column's type suggests (`String`, `Long`, `Integer`, ..);
    /// a `Tuple` of them for several columns.
    Stream,
    /// `DataStream`: the one key column as a `String`, whatever its type here.
    StreamText,
    /// `DataStream`: the one key column as a `Long`, whatever its type here.
    StreamLong,
    /// SQL: a binary row of the key columns.
    Sql,
}

impl KeyForm {
    /// Whether a job with such keys can have a NULL key. `keyBy` fails on one; here, its hash is 0.
    pub fn takes_null(self) -> bool {
        self == Self::Sql
    }

    /// Whether keys of these types can be hashed in this form.
    ///
    /// # Errors
    /// A type for which Flink's key is not known, by name.
    pub fn check(self, types: &[&DataType]) -> Result<(), ConfigError> {
        if let Some(cast_to) = self.one_type() {
            let [only] = types else {
                return Err(ConfigError::Inconsistent(format!(
                    "flink-string and flink-long are for one key column, here are {}; flink-sql and \
                     flink-stream take any number",
                    types.len()
                )));
            };
            return match values(only) {
                found
                    if found.is_floating() || !arrow::compute::can_cast_types(found, &cast_to) =>
                {
                    Err(unsupported(only, &format!("a key of type {cast_to}")))
                }
                _ => Ok(()),
            };
        }
        let known = |data_type: &DataType| match self {
            Self::Sql => is_sql(data_type),
            _ => is_stream(data_type),
        };
        let wrong = types.iter().find(|data_type| !known(values(data_type)));
        let what = if self == Self::Sql { "a key of Flink SQL" } else { "a Java key" };
        wrong.map_or(Ok(()), |wrong| Err(unsupported(wrong, what)))
    }

    fn one_type(self) -> Option<DataType> {
        match self {
            Self::StreamText => Some(DataType::Utf8),
            Self::StreamLong => Some(DataType::Int64),
            Self::Stream | Self::Sql => None,
        }
    }

    /// Hash codes of the keys in `columns`, which have passed [`KeyForm::check`]. No column is the key of a
    /// global aggregation.
    ///
    /// # Errors
    /// A value that has no counterpart: a text that is not a `Long`.
    pub fn hash_codes(
        self,
        columns: &[ArrayRef],
        rows: usize,
        isa: Isa,
    ) -> Result<Vec<i32>, ConfigError> {
        match self {
            Self::Sql => sql_hashes(columns, rows, isa),
            Self::Stream => match columns {
                [only] => stream_hashes(only, isa),
                fields => {
                    let fields = fields.iter().map(|field| stream_hashes(field, isa));
                    let fields = fields.collect::<Result<Vec<_>, _>>()?;
                    Ok((0..rows).map(|row| tuple_hash(fields.iter().map(|f| f[row]))).collect())
                }
            },
            Self::StreamText => stream_hashes(&converted(&columns[0], &DataType::Utf8)?, isa),
            Self::StreamLong => stream_hashes(&converted(&columns[0], &DataType::Int64)?, isa),
        }
    }
}

fn unsupported(found: &DataType, what: &str) -> ConfigError {
    ConfigError::Unsupported {
        what: format!("{found} as {what}"),
        instead: "use --assign native, or give the column another type with --schema".into(),
    }
}

/// The type of a dictionary's values.
fn values(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

fn is_text(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View)
}

fn is_stream(data_type: &DataType) -> bool {
    is_text(data_type)
        || matches!(data_type, DataType::Boolean | DataType::Float32 | DataType::Float64)
        || (data_type.is_integer() && *data_type != DataType::UInt64)
        || matches!(data_type, DataType::Date32 | DataType::Decimal128(_, _))
        || matches!(data_type, DataType::Timestamp(_, _))
}

fn is_sql(data_type: &DataType) -> bool {
    match data_type {
        DataType::Decimal128(digits, _) => *digits <= COMPACT_DIGITS,
        DataType::Timestamp(unit, _) => {
            matches!(unit, TimeUnit::Second | TimeUnit::Millisecond)
        }
        other => is_stream(other),
    }
}

/// The column in another type, in which it has the same values.
fn converted(column: &ArrayRef, to: &DataType) -> Result<ArrayRef, ConfigError> {
    if column.data_type() == to {
        return Ok(ArrayRef::clone(column));
    }
    let refuse = |why: String| ConfigError::Syntax {
        what: "key",
        text: format!("a value of type {}", column.data_type()),
        why,
    };
    let cast = cast(column, to).map_err(|error| refuse(error.to_string()))?;
    let nulls = column.logical_nulls();
    let given = |row: &usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(*row));
    match (0..cast.len()).find(|row| cast.is_null(*row) && given(row)) {
        Some(row) => {
            let text = arrow::util::display::array_value_to_string(column, row);
            Err(refuse(format!("\"{}\" is not a value of type {to}", text.unwrap_or_default())))
        }
        None => Ok(cast),
    }
}

/// Hash codes of the Java objects of one column; 0 for null, as in `Objects.hashCode`.
fn stream_hashes(column: &ArrayRef, isa: Isa) -> Result<Vec<i32>, ConfigError> {
    let column = &plain(column)?;
    let mut hashes = vec![0; column.len()];
    match column.data_type() {
        DataType::Utf8 => text_hashes(column, isa, &mut hashes),
        DataType::Int64 => {
            let values = column.as_primitive::<Int64Type>().values();
            isa.run(LongHashes { values, hashes: &mut hashes });
        }
        // Types without a counterpart in Java become the next wider one.
        DataType::UInt32 => {
            each::<UInt32Type>(column, &mut hashes, |v| long_hash(i64::from(v)));
        }
        DataType::Int32 => each::<Int32Type>(column, &mut hashes, |v| v),
        DataType::Int16 => each::<Int16Type>(column, &mut hashes, i32::from),
        DataType::Int8 => each::<Int8Type>(column, &mut hashes, i32::from),
        DataType::UInt16 => each::<UInt16Type>(column, &mut hashes, i32::from),
        DataType::UInt8 => each::<UInt8Type>(column, &mut hashes, i32::from),
        DataType::Float64 => each::<Float64Type>(column, &mut hashes, double_hash),
        DataType::Float32 => each::<Float32Type>(column, &mut hashes, float_hash),
        DataType::Date32 => each::<Date32Type>(column, &mut hashes, local_date_hash),
        DataType::Decimal128(_, scale) => {
            let scale = i32::from(*scale);
            each::<Decimal128Type>(column, &mut hashes, |v| decimal_hash(v, scale));
        }
        DataType::Timestamp(unit, _) => {
            let per_second = per_second(*unit);
            let times = cast(column, &DataType::Int64).map_err(|error| not_plain(&error))?;
            each::<Int64Type>(&times, &mut hashes, |v| {
                let rest = v.rem_euclid(per_second) * (1_000_000_000 / per_second);
                let nanos = u32::try_from(rest).expect("below a second");
                instant_hash(v.div_euclid(per_second), nanos)
            });
        }
        DataType::Boolean => {
            for (hash, value) in hashes.iter_mut().zip(column.as_boolean().values()) {
                *hash = boolean_hash(value);
            }
        }
        other => return Err(unsupported(other, "a Java key")),
    }
    if let Some(nulls) = column.nulls().filter(|nulls| nulls.null_count() > 0) {
        (0..nulls.len()).filter(|row| nulls.is_null(*row)).for_each(|row| hashes[row] = 0);
    }
    Ok(hashes)
}

fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => 1_000_000_000,
    }
}

fn each<T: ArrowPrimitiveType>(
    column: &ArrayRef,
    hashes: &mut [i32],
    hash: impl Fn(T::Native) -> i32,
) {
    for (out, value) in hashes.iter_mut().zip(column.as_primitive::<T>().values()) {
        *out = hash(*value);
    }
}

fn text_hashes(column: &ArrayRef, isa: Isa, hashes: &mut [i32]) {
    let texts = column.as_string::<i32>();
    let (text, offsets) = (texts.values().as_slice(), texts.value_offsets());
    if text.is_ascii() {
        return isa.run(AsciiHashes { text, offsets, hashes });
    }
    for (hash, value) in hashes.iter_mut().zip(texts) {
        *hash = value.map_or(0, string_hash);
    }
}

/// The column without dictionary encoding, and text in its most usual form.
fn plain(column: &ArrayRef) -> Result<ArrayRef, ConfigError> {
    match values(column.data_type()) {
        text if is_text(text) => converted(column, &DataType::Utf8),
        other => converted(column, other),
    }
}

fn not_plain(error: &arrow::error::ArrowError) -> ConfigError {
    ConfigError::Inconsistent(format!("a key column: {error}"))
}

fn sql_hashes(columns: &[ArrayRef], rows: usize, isa: Isa) -> Result<Vec<i32>, ConfigError> {
    let columns = columns.iter().map(plain).collect::<Result<Vec<_>, _>>()?;
    let mut hashes = vec![0; rows];
    if let [only] = &columns[..]
        && only.null_count() == 0
        && one_word_hashes(only, isa, &mut hashes)
    {
        return Ok(hashes);
    }
    let mut writer = RowWriter::new(columns.len());
    let fields = columns.iter().map(SqlField::new).collect::<Result<Vec<_>, _>>()?;
    for (row, hash) in hashes.iter_mut().enumerate() {
        writer.start();
        for field in &fields {
            field.write(row, &mut writer);
        }
        *hash = hash_bytes(writer.bytes());
    }
    Ok(hashes)
}

/// Hashes of rows of one field that always lies in its word, if its type is one of the usual ones.
#[expect(clippy::cast_sign_loss, reason = "bits of the row")]
fn one_word_hashes(column: &ArrayRef, isa: Isa, hashes: &mut [i32]) -> bool {
    match column.data_type() {
        DataType::Int64 => {
            let values = column.as_primitive::<Int64Type>().values();
            isa.run(WordRowHashes { words: values.iter().map(|v| *v as u64), hashes });
            true
        }
        DataType::Int32 => {
            let values = column.as_primitive::<Int32Type>().values();
            isa.run(WordRowHashes { words: values.iter().map(|v| u64::from(*v as u32)), hashes });
            true
        }
        DataType::Utf8 => {
            let texts = column.as_string::<i32>();
            let words = (0..texts.len()).map(|row| inline_text(texts.value(row).as_bytes()));
            let Some(words) = words.collect::<Option<Vec<_>>>() else { return false };
            isa.run(WordRowHashes { words, hashes });
            true
        }
        _ => false,
    }
}

/// One field of a binary row.
enum SqlField {
    Words(Vec<u64>, ArrayRef),
    Text(ArrayRef),
}

impl SqlField {
    #[expect(clippy::cast_sign_loss, clippy::cast_possible_truncation, reason = "bits of the row")]
    fn new(column: &ArrayRef) -> Result<Self, ConfigError> {
        fn words<T: ArrowPrimitiveType>(
            column: &ArrayRef,
            word: impl Fn(T::Native) -> u64,
        ) -> Vec<u64> {
            column.as_primitive::<T>().values().iter().map(|value| word(*value)).collect()
        }
        let words = match column.data_type() {
            DataType::Utf8 => return Ok(Self::Text(ArrayRef::clone(column))),
            DataType::Boolean => column.as_boolean().values().iter().map(u64::from).collect(),
            DataType::Int8 => words::<Int8Type>(column, |v| u64::from(v as u8)),
            DataType::Int16 => words::<Int16Type>(column, |v| u64::from(v as u16)),
            DataType::Int32 => words::<Int32Type>(column, |v| u64::from(v as u32)),
            DataType::Int64 => words::<Int64Type>(column, |v| v as u64),
            // SQL has no unsigned numbers: the next wider signed one, whose bits are the same.
            DataType::UInt8 => words::<UInt8Type>(column, u64::from),
            DataType::UInt16 => words::<UInt16Type>(column, u64::from),
            DataType::UInt32 => words::<UInt32Type>(column, u64::from),
            DataType::Float32 => words::<Float32Type>(column, |v| u64::from(v.to_bits())),
            DataType::Float64 => words::<Float64Type>(column, f64::to_bits),
            DataType::Date32 => words::<Date32Type>(column, |v| u64::from(v as u32)),
            DataType::Timestamp(TimeUnit::Second, _) => {
                words::<TimestampSecondType>(column, |v| v.wrapping_mul(1_000) as u64)
            }
            DataType::Timestamp(TimeUnit::Millisecond, _) => {
                words::<TimestampMillisecondType>(column, |v| v as u64)
            }
            DataType::Decimal128(digits, _) if *digits <= COMPACT_DIGITS => {
                words::<Decimal128Type>(column, |v| v as u64)
            }
            other => return Err(unsupported(other, "a key of Flink SQL")),
        };
        Ok(Self::Words(words, ArrayRef::clone(column)))
    }

    fn write(&self, row: usize, writer: &mut RowWriter) {
        match self {
            Self::Words(_, column) | Self::Text(column) if column.is_null(row) => writer.null(),
            Self::Words(words, _) => writer.word(words[row]),
            Self::Text(column) => writer.text(column.as_string::<i32>().value(row).as_bytes()),
        }
    }
}

/// `HASH_CODE` of SQL for each value of a column; its remainder by the number of buckets is the bucket of
/// a split distinct aggregate.
///
/// # Errors
/// A type for which it is not known, by name.
pub fn sql_hash_codes(column: &ArrayRef, isa: Isa) -> Result<Vec<i32>, ConfigError> {
    match column.data_type() {
        // SQL's are numbers of days and milliseconds, not Java objects.
        DataType::Date32 => stream_hashes(&converted(column, &DataType::Int32)?, isa),
        DataType::Timestamp(TimeUnit::Millisecond, _) => {
            let hashes = stream_hashes(&converted(column, &DataType::Int64)?, isa)?;
            Ok(hashes.into_iter().map(|hash| hash.wrapping_mul(31)).collect())
        }
        other if is_text(other) => {
            Ok(stream_hashes(column, isa)?.into_iter().map(i32::wrapping_abs).collect())
        }
        DataType::Timestamp(_, _) => Err(unsupported(column.data_type(), "a value of HASH_CODE")),
        _ => stream_hashes(column, isa),
    }
}
