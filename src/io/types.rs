//! Names of types as people write them: `--schema ts:timestamp,amount:decimal(10,2),k:utf8`.

use arrow::datatypes::{DataType, TimeUnit};

use crate::error::ConfigError;
use crate::io::text::columns::is_readable;
use crate::io::text::infer::UTC;

/// Understands a comma list of `column:type`. Columns may be quoted: `"odd:name":int`.
pub fn parse_types(text: &str) -> Result<Vec<(String, DataType)>, ConfigError> {
    let mut types: Vec<(String, DataType)> = Vec::new();
    for item in split_outside(text, ',') {
        if item.trim().is_empty() {
            continue;
        }
        let parts = split_outside(item, ':');
        let [name, type_parts @ ..] = &parts[..] else { continue };
        if type_parts.is_empty() {
            return Err(syntax(item, "expected column:type, as in amount:float64"));
        }
        let name = name.trim();
        let unquoted = name.strip_prefix('"').and_then(|n| n.strip_suffix('"'));
        let name = unquoted.map_or_else(|| name.to_owned(), |n| n.replace("\"\"", "\""));
        if types.iter().any(|(known, _)| *known == name) {
            return Err(syntax(text, &format!("column \"{name}\" is given twice")));
        }
        types.push((name, parse_type(&type_parts.join(":"))?));
    }
    if types.is_empty() {
        return Err(syntax(text, "expected a list like ts:timestamp,amount:float64"));
    }
    Ok(types)
}

/// Understands one type by Arrow's name or a friendlier one.
pub fn parse_type(text: &str) -> Result<DataType, ConfigError> {
    let lower = text.trim().to_lowercase();
    let (name, arguments) = match lower.split_once('(') {
        Some((name, rest)) => {
            let inside = rest.trim_end().strip_suffix(')');
            (name.trim(), inside.ok_or_else(|| syntax(text, "a closing parenthesis is missing"))?)
        }
        None => (lower.as_str(), ""),
    };
    let arguments: Vec<&str> =
        arguments.split(',').map(str::trim).filter(|a| !a.is_empty()).collect();
    let data_type = match (name, &arguments[..]) {
        ("bool" | "boolean", []) => DataType::Boolean,
        ("int8" | "tinyint", []) => DataType::Int8,
        ("int16" | "smallint", []) => DataType::Int16,
        ("int32", []) => DataType::Int32,
        ("int" | "int64" | "integer" | "bigint" | "long", []) => DataType::Int64,
        ("uint8", []) => DataType::UInt8,
        ("uint16", []) => DataType::UInt16,
        ("uint32", []) => DataType::UInt32,
        ("uint" | "uint64", []) => DataType::UInt64,
        ("float32" | "real", []) => DataType::Float32,
        ("float" | "float64" | "double", []) => DataType::Float64,
        ("utf8" | "string" | "str" | "text" | "varchar", []) => DataType::Utf8,
        ("largeutf8" | "large_utf8" | "large_string", []) => DataType::LargeUtf8,
        ("utf8view" | "utf8_view" | "string_view", []) => DataType::Utf8View,
        ("binary" | "bytes", []) => DataType::Binary,
        ("date" | "date32", []) => DataType::Date32,
        ("date64", []) => DataType::Date64,
        ("decimal" | "decimal128", arguments) => decimal(text, arguments)?,
        ("time" | "time32" | "time64", [unit]) => time(parse_unit(unit)?),
        ("time" | "time64", []) => DataType::Time64(TimeUnit::Microsecond),
        ("timestamp" | "datetime", arguments) => timestamp(text, arguments)?,
        _ => return Err(syntax(text, KNOWN)),
    };
    if is_readable(&data_type) { Ok(data_type) } else { Err(syntax(text, KNOWN)) }
}

const KNOWN: &str = "known types are bool, int8 to int64, uint8 to uint64, float32, float64, \
     decimal(P,S), utf8, binary, date, time(UNIT), timestamp, timestamp(UNIT), timestamp(UNIT, UTC)";

fn decimal(text: &str, arguments: &[&str]) -> Result<DataType, ConfigError> {
    let wrong = || syntax(text, "expected decimal(P,S) with 1 <= P <= 38 and 0 <= S <= P");
    let (precision, scale) = match arguments {
        [] => (38, 9),
        [precision] => (precision.parse().map_err(|_| wrong())?, 0),
        [precision, scale] => {
            (precision.parse().map_err(|_| wrong())?, scale.parse().map_err(|_| wrong())?)
        }
        _ => return Err(wrong()),
    };
    let is_valid =
        (1..=38_u8).contains(&precision) && scale >= 0 && i16::from(scale) <= i16::from(precision);
    if is_valid { Ok(DataType::Decimal128(precision, scale)) } else { Err(wrong()) }
}

fn time(unit: TimeUnit) -> DataType {
    match unit {
        TimeUnit::Second | TimeUnit::Millisecond => DataType::Time32(unit),
        TimeUnit::Microsecond | TimeUnit::Nanosecond => DataType::Time64(unit),
    }
}

fn timestamp(text: &str, arguments: &[&str]) -> Result<DataType, ConfigError> {
    let (unit, zone) = match arguments {
        [] => (TimeUnit::Microsecond, None),
        [unit] => (parse_unit(unit)?, None),
        [unit, zone] => (parse_unit(unit)?, Some(*zone)),
        _ => return Err(syntax(text, "expected timestamp(UNIT) or timestamp(UNIT, UTC)")),
    };
    match zone {
        None => Ok(DataType::Timestamp(unit, None)),
        Some("utc" | "z" | "+00:00") => Ok(DataType::Timestamp(unit, Some(UTC.into()))),
        Some(_) => Err(syntax(
            text,
            "the only zone for text is UTC; other offsets in the text are converted",
        )),
    }
}

/// Understands a unit of time: `s`, `ms`, `us`, `ns`.
pub fn parse_unit(text: &str) -> Result<TimeUnit, ConfigError> {
    Ok(match text.trim().to_lowercase().as_str() {
        "s" | "sec" | "second" | "seconds" => TimeUnit::Second,
        "ms" | "millisecond" | "milliseconds" => TimeUnit::Millisecond,
        "us" | "\u{b5}s" | "microsecond" | "microseconds" => TimeUnit::Microsecond,
        "ns" | "nanosecond" | "nanoseconds" => TimeUnit::Nanosecond,
        _ => {
            return Err(ConfigError::Syntax {
                what: "time unit",
                text: text.to_owned(),
                why: "expected s, ms, us or ns".to_owned(),
            });
        }
    })
}

fn syntax(text: &str, why: &str) -> ConfigError {
    ConfigError::Syntax { what: "type", text: text.to_owned(), why: why.to_owned() }
}

/// Splits at a character that is neither in quotes nor in parentheses.
pub(crate) fn split_outside(text: &str, separator: char) -> Vec<&str> {
    let (mut parts, mut start, mut depth, mut quoted) = (Vec::new(), 0, 0_i32, false);
    for (at, c) in text.char_indices() {
        match c {
            '"' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            c if c == separator && !quoted && depth <= 0 => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_types() {
        let list = "ts:timestamp(ms, UTC), \"a,b:c\":decimal(10, 2),k:UTF8,v:float,t:time(s)";
        let expected = [
            ("ts", DataType::Timestamp(TimeUnit::Millisecond, Some(UTC.into()))),
            ("a,b:c", DataType::Decimal128(10, 2)),
            ("k", DataType::Utf8),
            ("v", DataType::Float64),
            ("t", DataType::Time32(TimeUnit::Second)),
        ];
        assert_eq!(parse_types(list).unwrap(), expected.map(|(n, t)| (n.to_owned(), t)));
    }

    #[test]
    fn what_cannot_be_understood_is_said() {
        for bad in ["", "a", "a:", "a:int,a:int", "a:quux", "a:decimal(39,0)", "a:decimal(5,6)"]
            .iter()
            .chain(&["a:timestamp(h)", "a:timestamp(s, Europe/Paris)", "a:decimal(1", "a:int(3)"])
        {
            assert!(parse_types(bad).is_err(), "{bad}");
        }
        let error = parse_types("v:floaty").unwrap_err().to_string();
        assert!(error.contains("\"floaty\"") && error.contains("float64"), "{error}");
    }
}
