//! Against tables that Flink itself made, which lie beside the package; they say so where they do not.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, BooleanArray, Date32Array, Decimal128Array, Float32Array, Float64Array, Int8Array,
    Int16Array, Int32Array, Int64Array, StringArray, TimestampMillisecondArray,
    TimestampNanosecondArray, new_null_array,
};
use arrow::datatypes::DataType;
use proptest::prelude::*;

use super::columns::{KeyForm, sql_hash_codes};
use super::*;
use crate::key::group::{groups_of_shard, shard_of_group};
use crate::time::event_time::{Unit, limits};
use crate::time::window::{Place, Window, Windows};

/// A table: its header, and its rows.
type Vectors = (Vec<String>, Vec<Vec<String>>);

fn vectors(name: &str) -> Option<Vectors> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/flink").join(name);
    let Ok(text) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: {} is not there", path.display());
        return None;
    };
    let mut lines = text.lines().map(|line| line.split(',').map(str::to_owned).collect());
    let header: Vec<String> = lines.next().unwrap();
    let rows: Vec<Vec<String>> = lines.collect();
    assert!(!rows.is_empty() && rows.iter().all(|row| row.len() == header.len()), "{name}");
    Some((header, rows))
}

/// Text of a table, in which some characters stand as `\uXXXX`.
fn unescaped(text: &str) -> String {
    let mut units = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("\\u") {
        units.extend(rest[..at].encode_utf16());
        units.push(u16::from_str_radix(&rest[at + 2..at + 6], 16).unwrap());
        rest = &rest[at + 6..];
    }
    units.extend(rest.encode_utf16());
    String::from_utf16(&units).unwrap()
}

fn number<T: std::str::FromStr>(text: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("not a number: {text:?}"))
}

/// A decimal number as unscaled value and scale.
fn decimal(text: &str) -> (i128, i32) {
    let digits = text.split_once('.').map_or(0, |(_, fraction)| fraction.len());
    (number(&text.replace('.', "")), i32::try_from(digits).unwrap())
}

/// A column of the one key `text` of a Java or SQL type.
fn column(data_type: &str, text: &str) -> ArrayRef {
    match data_type {
        "String" | "STRING" => Arc::new(StringArray::from(vec![unescaped(text)])),
        "Long" | "BIGINT" => Arc::new(Int64Array::from(vec![number::<i64>(text)])),
        "Integer" | "INT" => Arc::new(Int32Array::from(vec![number::<i32>(text)])),
        "Short" | "SMALLINT" => Arc::new(Int16Array::from(vec![number::<i16>(text)])),
        "Byte" | "TINYINT" => Arc::new(Int8Array::from(vec![number::<i8>(text)])),
        "Boolean" | "BOOLEAN" => {
            Arc::new(BooleanArray::from(vec![number::<bool>(&text.to_lowercase())]))
        }
        "DoubleBits" => {
            let bits = u64::from_str_radix(text, 16).unwrap();
            Arc::new(Float64Array::from(vec![f64::from_bits(bits)]))
        }
        "FloatBits" => {
            let bits = u32::from_str_radix(text, 16).unwrap();
            Arc::new(Float32Array::from(vec![f32::from_bits(bits)]))
        }
        "DOUBLE" => Arc::new(Float64Array::from(vec![number::<f64>(text)])),
        "FLOAT" => Arc::new(Float32Array::from(vec![number::<f32>(text)])),
        "LocalDate" => Arc::new(Date32Array::from(vec![days(text)])),
        "DATE" => Arc::new(Date32Array::from(vec![days(text.split('\'').nth(1).unwrap())])),
        "TIMESTAMP(3)" => {
            let (date, time) = text.split('\'').nth(1).unwrap().split_once(' ').unwrap();
            let mut parts = time.split([':', '.']).map(number::<i64>);
            let mut next = || parts.next().unwrap_or(0);
            let seconds = (next() * 60 + next()) * 60 + next();
            let millis = (i64::from(days(date)) * 86_400 + seconds) * 1_000 + next();
            Arc::new(TimestampMillisecondArray::from(vec![millis]))
        }
        "Instant(s;n)" => {
            let (seconds, nanos) = text.split_once(';').unwrap();
            let nanos = number::<i64>(seconds) * 1_000_000_000 + number::<i64>(nanos);
            Arc::new(TimestampNanosecondArray::from(vec![nanos]))
        }
        "BigDecimal" => {
            let (unscaled, scale) = decimal(text);
            decimal_column(unscaled, scale)
        }
        "DECIMAL(10;2)" => {
            let (unscaled, scale) = decimal(text);
            decimal_column(unscaled * 10_i128.pow(2 - u32::try_from(scale).unwrap()), 2)
        }
        "NULL" => new_null_array(&DataType::Int64, 1),
        other => panic!("type {other}"),
    }
}

fn decimal_column(unscaled: i128, scale: i32) -> ArrayRef {
    let array = Decimal128Array::from(vec![unscaled]);
    Arc::new(array.with_precision_and_scale(38, i8::try_from(scale).unwrap()).unwrap())
}

fn days(date: &str) -> i32 {
    let array: ArrayRef = Arc::new(StringArray::from(vec![date]));
    let array = arrow::compute::cast(&array, &DataType::Date32).unwrap();
    arrow::array::AsArray::as_primitive::<arrow::datatypes::Date32Type>(&array).value(0)
}

/// Columns of the key `text` of a type such as `Tuple2<String;Long>`.
fn fields(data_type: &str, text: &str) -> Vec<ArrayRef> {
    let Some((_, types)) = data_type.strip_suffix('>').and_then(|t| t.split_once('<')) else {
        return vec![column(data_type, text)];
    };
    let types = types.split(';').filter(|t| !t.is_empty()).collect::<Vec<_>>();
    // Only the last field's text may hold no separator; the first one's is escaped too.
    let texts = text.splitn(types.len().max(1), ';').collect::<Vec<_>>();
    assert!(types.is_empty() || types.len() == texts.len(), "{data_type} {text}");
    types.iter().zip(texts).map(|(data_type, text)| column(data_type, text)).collect()
}

fn stream_hash(data_type: &str, text: &str) -> i32 {
    match data_type {
        "Character" => i32::from(unescaped(text).encode_utf16().next().unwrap()),
        "UUID" => java::uuid_hash(u128::from_str_radix(&text.replace('-', ""), 16).unwrap()),
        _ => {
            let columns = fields(data_type, text);
            let hash = |columns: &[ArrayRef]| {
                KeyForm::Stream.hash_codes(columns, 1, Isa::best()).unwrap()[0]
            };
            if data_type.starts_with("Row<") {
                return java::row_hash(columns.iter().map(|one| hash(std::slice::from_ref(one))));
            }
            hash(&columns)
        }
    }
}

/// Holds groups and subtasks of `hash` against a row, whose columns are named `kg_M` and `op_M_P`.
fn assert_assigned(header: &[String], row: &[String], hash: i32) {
    assert_eq!(row[2], hash.to_string(), "{row:?}");
    assert_eq!(row[3], murmur_hash(hash).to_string(), "{row:?}");
    let mut checked = 0;
    for (name, expected) in header.iter().zip(row).filter(|(_, expected)| !expected.is_empty()) {
        let numbers = name.split('_').skip(1).filter_map(|n| n.parse().ok()).collect::<Vec<u32>>();
        let found = match numbers[..] {
            [groups] => key_group(hash, groups),
            [groups, subtasks] => shard_of_group(key_group(hash, groups), subtasks, groups),
            _ => continue,
        };
        assert_eq!(found.to_string(), *expected, "{name} of {row:?}");
        checked += 1;
    }
    assert!(checked >= 8 + 8 * 7 - 4, "{header:?}");
}

#[test]
fn keys_of_streams() {
    let Some((header, rows)) = vectors("keys.csv") else { return };
    for row in &rows {
        assert_assigned(&header, row, stream_hash(&row[0], &row[1]));
    }
}

#[test]
fn keys_of_sql() {
    let Some((header, rows)) = vectors("sql_keys.csv") else { return };
    for row in &rows {
        let columns = fields(&row[0], &row[1]);
        let hash = KeyForm::Sql.hash_codes(&columns, 1, Isa::best()).unwrap()[0];
        assert_assigned(&header, row, hash);
    }
}

#[test]
fn bytes_of_sql_rows() {
    let Some((_, rows)) = vectors("sql_row_bytes.csv") else { return };
    for row in rows {
        let digits = row[2].as_bytes().chunks(2).map(|two| std::str::from_utf8(two).unwrap());
        let bytes = digits.map(|two| u8::from_str_radix(two, 16).unwrap()).collect::<Vec<_>>();
        assert_eq!(row::hash_bytes(&bytes).to_string(), row[3], "{row:?}");
        let types = row[0].strip_prefix("BinaryRow<").unwrap().strip_suffix('>').unwrap();
        let types = types.split(';').filter(|t| !t.is_empty()).collect::<Vec<_>>();
        let mut writer = row::RowWriter::new(types.len());
        for (data_type, text) in types.iter().zip(row[1].splitn(types.len().max(1), ';')) {
            match *data_type {
                "NULL" => writer.null(),
                "STRING" => writer.text(unescaped(text).as_bytes()),
                _ => writer.word(number::<i64>(text) as u64),
            }
        }
        assert_eq!(writer.bytes(), bytes, "{row:?}");
    }
}

#[test]
fn mixing_functions() {
    let Some((_, rows)) = vectors("murmur.csv") else { return };
    for row in rows {
        let n = number::<i32>(&row[0]);
        let found = [murmur_hash(n), bit_mix(n), jenkins_hash(n)].map(|hash| hash.to_string());
        assert_eq!(found[..], row[1..], "{n}");
    }
}

#[test]
fn buckets_of_split_distinct() {
    let Some((_, rows)) = vectors("hash_code.csv") else { return };
    for row in rows {
        let text = row[1].strip_prefix('\'').and_then(|t| t.strip_suffix('\'')).unwrap_or(&row[1]);
        let hash = sql_hash_codes(&column(&row[0], text), Isa::best()).unwrap()[0];
        assert_eq!([hash.to_string(), (hash % 1024).to_string()], row[2..], "{row:?}");
    }
}

#[test]
fn ranges_and_owners_of_groups() {
    let Some((_, rows)) = vectors("key_group_ranges.csv") else { return };
    for row in rows {
        let [groups, subtasks, subtask, first, last, count] =
            row.iter().map(|n| number::<u32>(n)).collect::<Vec<_>>()[..]
        else {
            panic!("{row:?}")
        };
        let range = groups_of_shard(u16::try_from(subtask).unwrap(), subtasks, groups);
        assert_eq!((u32::from(*range.start()), u32::from(*range.end())), (first, last), "{row:?}");
        assert_eq!(range.count(), count as usize, "{row:?}");
    }
    let Some((_, rows)) = vectors("key_group_to_operator.csv") else { return };
    for row in rows {
        let n = row.iter().map(|n| number::<u32>(n)).collect::<Vec<_>>();
        let found = shard_of_group(u16::try_from(n[2]).unwrap(), n[1], n[0]);
        assert_eq!(u32::from(found), n[3], "{row:?}");
    }
}

#[test]
fn default_numbers_of_groups() {
    let Some((_, rows)) = vectors("default_max_parallelism.csv") else { return };
    for row in rows {
        assert_eq!(default_max_parallelism(number(&row[0])).to_string(), row[1], "{row:?}");
    }
}

#[test]
fn starts_of_windows() {
    let Some((_, rows)) = vectors("window_start.csv") else { return };
    for row in rows {
        let n = row.iter().map(|n| number::<i64>(n)).collect::<Vec<_>>();
        let (offset, size) = (n[1].rem_euclid(n[2]) as u64, n[2] as u64);
        let data_type = DataType::Timestamp(arrow::datatypes::TimeUnit::Millisecond, None);
        let unit = Unit::of(&data_type, arrow::datatypes::TimeUnit::Millisecond).unwrap();
        let (size, offset) = (Duration::from_millis(size), Duration::from_millis(offset));
        let window = Window::Tumbling { size, offset };
        let windows = Windows::new(window, unit, limits(&data_type)).unwrap().unwrap();
        let Place::In(slice) = windows.locate(n[0]) else { panic!("{row:?} has no window") };
        assert_eq!(windows.start_of(slice.first), n[3], "{row:?}");
    }
}

#[test]
fn share_of_skew() {
    let Some((_, rows)) = vectors("data_skew.csv") else { return };
    for row in rows {
        let loads = row[0].split(';').map(number::<f64>).collect::<Vec<_>>();
        let (found, expected) = (data_skew_percent(&loads), number::<f64>(&row[1]));
        assert!((found - expected).abs() < 1e-9, "{row:?}: {found}");
    }
}

proptest! {
    #[test]
    fn remainders_are_exact(number in 0_u32..1 << 31, divisor in 1_u32..=1 << 15) {
        for number in [number, number / divisor * divisor, (1 << 31) - 1, divisor - 1] {
            let found = Reduce::new(divisor).apply(number);
            prop_assert_eq!(u32::from(found), number % divisor);
        }
    }

    #[test]
    fn columns_are_hashed_as_single_keys_are(
        keys in prop::collection::vec((".{0,40}", "[ -~]{0,40}", any::<i64>()), 1..40),
        groups in 1_u32..=1 << 15,
    ) {
        let texts = keys.iter().map(|(text, _, _)| text.as_str()).collect::<Vec<_>>();
        let plain = keys.iter().map(|(_, text, _)| text.as_str()).collect::<Vec<_>>();
        let numbers = keys.iter().map(|(_, _, number)| *number).collect::<Vec<_>>();
        let columns: Vec<ArrayRef> = vec![
            Arc::new(StringArray::from(texts.clone())),
            Arc::new(StringArray::from(plain.clone())),
            Arc::new(Int64Array::from(numbers.clone())),
        ];
        // One by one, and by the definition: h = 31 h + c.
        let by_definition = |text: &str| {
            text.encode_utf16().fold(0_i32, |h, c| h.wrapping_mul(31).wrapping_add(i32::from(c)))
        };
        for isa in Isa::available() {
            for (column, name) in columns.iter().zip(["text", "ascii", "long"]) {
                let one = std::slice::from_ref(column);
                for form in [KeyForm::Stream, KeyForm::Sql, KeyForm::StreamText] {
                    let mut hashes = form.hash_codes(one, column.len(), isa).unwrap();
                    for (row, hash) in hashes.iter().enumerate() {
                        let single = [column.slice(row, 1)];
                        let alone = form.hash_codes(&single, 1, Isa::PORTABLE).unwrap()[0];
                        prop_assert_eq!(*hash, alone, "{} {:?} {}", name, form, isa);
                    }
                    let single = hashes.iter().map(|hash| key_group(*hash, groups));
                    let single = single.collect::<Vec<_>>();
                    scramble(isa, &mut hashes);
                    let mut found = Vec::new();
                    super::groups(isa, &hashes, groups, &mut found);
                    prop_assert_eq!(&found, &single);
                }
            }
        }
        let found = KeyForm::Stream.hash_codes(&columns[..1], texts.len(), Isa::best()).unwrap();
        prop_assert_eq!(found, texts.iter().map(|t| by_definition(t)).collect::<Vec<_>>());
        let found = KeyForm::Stream.hash_codes(&columns[1..2], texts.len(), Isa::best()).unwrap();
        prop_assert_eq!(found, plain.iter().map(|t| by_definition(t)).collect::<Vec<_>>());
    }
}

#[test]
fn what_has_no_counterpart_is_refused_by_name() {
    let refused = |form: KeyForm, data_type: DataType, word: &str| {
        let error = form.check(&[&data_type]).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    };
    refused(KeyForm::Sql, DataType::UInt64, "UInt64");
    refused(KeyForm::Stream, DataType::Binary, "Binary");
    refused(KeyForm::StreamText, DataType::Float64, "Float64");
    let micro = DataType::Timestamp(arrow::datatypes::TimeUnit::Microsecond, None);
    refused(KeyForm::Sql, micro.clone(), "Timestamp");
    KeyForm::Stream.check(&[&micro, &DataType::Utf8]).unwrap();
    let two = KeyForm::StreamText.check(&[&DataType::Utf8, &DataType::Utf8]).unwrap_err();
    assert!(two.to_string().contains("one key column"), "{two}");
    let text: ArrayRef = Arc::new(StringArray::from(vec!["7", "x7"]));
    let error = KeyForm::StreamLong.hash_codes(&[text], 2, Isa::best()).unwrap_err();
    assert!(error.to_string().contains("\"x7\" is not a value of type Int64"), "{error}");
}
