//! Makes event streams with skewed keys, the same for the same seed.
//!
//! Row `i` of a stream is an event at `start + i / rows_per_ms` milliseconds, so 50 million rows are
//! 50 seconds. Key ids count from 0 by popularity and are scrambled before they are shown, so that hot
//! keys are not small numbers. Cost: 30 to 60 ns a row.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Float64Array, Int64Array, RecordBatch, StringBuilder, TimestampMillisecondArray,
};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::error::ConfigError;

mod random;

use self::random::{Random, Zipf, mix};

/// 2024-01-01T00:00:00Z.
const START_MS: i64 = 1_704_067_200_000;
/// Odd, so multiplication by it is a bijection of 64-bit numbers: ids stay different.
const SCRAMBLE: u64 = 0x9E37_79B9_7F4A_7C15;
const SESSION_MS: i64 = 30_000;

const CITIES: [&str; 50] = [
    "Tokyo",
    "Delhi",
    "Shanghai",
    "Sao Paulo",
    "Mexico City",
    "Cairo",
    "Mumbai",
    "Beijing",
    "Dhaka",
    "Osaka",
    "New York",
    "Karachi",
    "Buenos Aires",
    "Istanbul",
    "Kolkata",
    "Manila",
    "Lagos",
    "Rio de Janeiro",
    "Kinshasa",
    "Los Angeles",
    "Moscow",
    "Lahore",
    "Bangalore",
    "Paris",
    "Bogota",
    "Jakarta",
    "Chennai",
    "Lima",
    "Bangkok",
    "Seoul",
    "Nagoya",
    "Hyderabad",
    "London",
    "Tehran",
    "Chicago",
    "Chengdu",
    "Nanjing",
    "Wuhan",
    "Ho Chi Minh City",
    "Luanda",
    "Ahmedabad",
    "Kuala Lumpur",
    "Hong Kong",
    "Riyadh",
    "Baghdad",
    "Santiago",
    "Madrid",
    "Toronto",
    "Berlin",
    "Nairobi",
];

/// How rows are spread over keys.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Distribution {
    /// All keys alike.
    Uniform,
    /// The key of rank r has weight r to the power of -S.
    Zipf(f64),
    /// A few keys have a share of the rows together, the rest is uniform.
    Hot {
        /// Their share, 0 to 1.
        share: f64,
        /// How many they are.
        count: u64,
    },
    /// One key has a share of the rows; which one changes after a number of rows.
    Drift {
        /// Its share, 0 to 1.
        share: f64,
        /// Rows between changes.
        period_rows: u64,
    },
}

impl Distribution {
    /// Understands `uniform`, `zipf:S`, `hot:SHARE[:COUNT]`, `drift:SHARE/PERIOD`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let wrong = |why: &str| ConfigError::Syntax {
            what: "distribution",
            text: text.to_owned(),
            why: why.to_owned(),
        };
        let share = |text: &str| {
            let share = text.parse::<f64>().ok().filter(|s| (0.0..=1.0).contains(s));
            share.ok_or_else(|| wrong("a share is a number from 0 to 1"))
        };
        let (name, rest) = text.split_once(':').unwrap_or((text, ""));
        match (name.trim(), rest.trim()) {
            ("uniform", "") => Ok(Self::Uniform),
            ("zipf", s) => {
                let s = s.parse::<f64>().ok().filter(|s| (0.0..=20.0).contains(s));
                s.map(Self::Zipf).ok_or_else(|| wrong("expected zipf:S with 0 <= S <= 20"))
            }
            ("hot", rest) if !rest.is_empty() => {
                let (first, count) = rest.split_once(':').unwrap_or((rest, "1"));
                let count = parse_count(count)?;
                if count == 0 {
                    return Err(wrong("at least one key must be hot"));
                }
                Ok(Self::Hot { share: share(first)?, count })
            }
            ("drift", rest) if !rest.is_empty() => {
                let (first, period) =
                    rest.split_once('/').ok_or_else(|| wrong("expected drift:SHARE/PERIOD"))?;
                let period_rows = parse_count(period)?;
                if period_rows == 0 {
                    return Err(wrong("the period must be at least one row"));
                }
                Ok(Self::Drift { share: share(first)?, period_rows })
            }
            _ => Err(wrong("expected uniform, zipf:1.1, hot:0.8, hot:0.8:10 or drift:0.6/2M")),
        }
    }
}

/// The type of the key column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyType {
    /// Scrambled 64-bit numbers.
    Int64,
    /// `user-0000042`.
    Text,
}

/// What stream to make.
#[derive(Debug, Clone)]
pub struct GenerateOptions {
    /// How many rows.
    pub rows: u64,
    /// How many keys.
    pub keys: u64,
    /// How rows are spread over keys.
    pub distribution: Distribution,
    /// The same seed gives the same stream.
    pub seed: u64,
    /// The type of the key column.
    pub key_type: KeyType,
    /// How far an event time may lie behind the largest one before it, in milliseconds.
    pub out_of_orderness_ms: u64,
    /// Rows a millisecond of event time.
    pub rows_per_ms: u64,
    /// Rows of a batch.
    pub batch_rows: usize,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            rows: 1_000_000,
            keys: 1_000,
            distribution: Distribution::Uniform,
            seed: 1,
            key_type: KeyType::Int64,
            out_of_orderness_ms: 0,
            rows_per_ms: 1_000,
            batch_rows: 64 << 10,
        }
    }
}

/// An iterator over the batches of a stream.
#[derive(Debug)]
pub struct StreamGenerator {
    options: GenerateOptions,
    schema: SchemaRef,
    random: Random,
    zipf: Option<Zipf>,
    row: u64,
}

impl StreamGenerator {
    /// Checks the options.
    pub fn new(options: GenerateOptions) -> Result<Self, ConfigError> {
        for (what, value) in [
            ("keys", options.keys),
            ("rows_per_ms", options.rows_per_ms),
            ("batch_rows", options.batch_rows as u64),
        ] {
            if value == 0 || value > 1 << 40 {
                return Err(ConfigError::OutOfRange {
                    what,
                    found: value.to_string(),
                    expected: "1 to 1.1e12".to_owned(),
                });
            }
        }
        let key_type = match options.key_type {
            KeyType::Int64 => DataType::Int64,
            KeyType::Text => DataType::Utf8,
        };
        let schema = Schema::new(vec![
            Field::new("ts", DataType::Timestamp(TimeUnit::Millisecond, None), false),
            Field::new("key", key_type, false),
            Field::new("value", DataType::Int64, false),
            Field::new("amount", DataType::Float64, false),
            Field::new("city", DataType::Utf8, false),
            Field::new("session", DataType::Int64, false),
        ]);
        let zipf = match options.distribution {
            Distribution::Zipf(exponent) => Some(Zipf::new(options.keys, exponent)),
            _ => None,
        };
        let random = Random::new(options.seed);
        Ok(Self { options, schema: Arc::new(schema), random, zipf, row: 0 })
    }

    /// The schema of every batch.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    #[inline]
    fn key_id(&mut self, row: u64) -> u64 {
        let keys = self.options.keys;
        match self.options.distribution {
            Distribution::Uniform => self.random.below(keys),
            Distribution::Zipf(_) => {
                self.zipf.as_ref().map_or(0, |zipf| zipf.sample(&mut self.random))
            }
            Distribution::Hot { share, count } => {
                let is_hot = self.random.unit() < share;
                self.random.below(if is_hot { count.min(keys) } else { keys })
            }
            Distribution::Drift { share, period_rows } => {
                if self.random.unit() < share {
                    (row / period_rows) % keys
                } else {
                    self.random.below(keys)
                }
            }
        }
    }

    fn batch(&mut self, rows: usize) -> RecordBatch {
        let (mut ids, mut times) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let (mut values, mut amounts) = (Vec::with_capacity(rows), Vec::with_capacity(rows));
        let mut sessions = Vec::with_capacity(rows);
        let mut cities = StringBuilder::with_capacity(rows, rows * 8);
        let disorder = self.options.out_of_orderness_ms;
        for row in self.row..self.row + rows as u64 {
            let elapsed = row / self.options.rows_per_ms;
            let behind = if disorder == 0 { 0 } else { self.random.below(disorder + 1) };
            let elapsed = elapsed.saturating_sub(behind).cast_signed();
            let id = self.key_id(row);
            ids.push(id);
            times.push(START_MS + elapsed);
            // One draw serves three columns: 20 bits each for value, amount and city.
            let bits = self.random.next();
            values.push((((bits & 0xf_ffff) * 1000) >> 20).cast_signed());
            amounts.push(amount(bits >> 20 & 0xf_ffff));
            cities.append_value(city(bits >> 40 & 0xf_ffff));
            let session =
                mix(id).wrapping_add(elapsed.cast_unsigned() / SESSION_MS.cast_unsigned());
            sessions.push((session >> 1).cast_signed());
        }
        self.row += rows as u64;
        let columns: Vec<ArrayRef> = vec![
            Arc::new(TimestampMillisecondArray::from(times)),
            key_column(&ids, self.options.key_type),
            Arc::new(Int64Array::from(values)),
            Arc::new(Float64Array::from(amounts)),
            Arc::new(cities.finish()),
            Arc::new(Int64Array::from(sessions)),
        ];
        RecordBatch::try_new(Arc::clone(&self.schema), columns)
            .expect("the columns were made for this schema")
    }
}

impl Iterator for StreamGenerator {
    type Item = RecordBatch;

    fn next(&mut self) -> Option<RecordBatch> {
        let left = self.options.rows - self.row;
        let rows = usize::try_from(left).unwrap_or(usize::MAX).min(self.options.batch_rows);
        (rows > 0).then(|| self.batch(rows))
    }
}

fn key_column(ids: &[u64], key_type: KeyType) -> ArrayRef {
    match key_type {
        KeyType::Int64 => {
            let scrambled = ids.iter().map(|id| id.wrapping_add(1).wrapping_mul(SCRAMBLE));
            Arc::new(scrambled.map(u64::cast_signed).collect::<Int64Array>())
        }
        KeyType::Text => {
            let mut builder = StringBuilder::with_capacity(ids.len(), ids.len() * 12);
            let mut text = String::new();
            for id in ids {
                use std::fmt::Write as _;
                text.clear();
                let _ = write!(text, "user-{id:07}");
                builder.append_value(&text);
            }
            Arc::new(builder.finish())
        }
    }
}

/// Cents from 0.00 to 1000.00, mostly small: the cube of 20 random bits.
fn amount(bits: u64) -> f64 {
    let cents = u32::try_from((((bits * bits) >> 20) * bits / 11) >> 20).unwrap_or(0);
    f64::from(cents) / 100.0
}

/// The first cities are the most frequent: the square of 20 random bits.
fn city(bits: u64) -> &'static str {
    let index = (((bits * bits) >> 20) * CITIES.len() as u64) >> 20;
    CITIES[usize::try_from(index).unwrap_or(0)]
}

/// Understands counts like `5000`, `1K`, `2.5M`, `1G`, `10_000`.
pub fn parse_count(text: &str) -> Result<u64, ConfigError> {
    let wrong = || ConfigError::Syntax {
        what: "count",
        text: text.to_owned(),
        why: "expected a whole number, perhaps with K, M or G, as in 50M".to_owned(),
    };
    let plain = text.trim().replace('_', "").to_uppercase();
    let (digits, factor) = match plain.char_indices().last() {
        Some((at, 'K')) => (&plain[..at], 1_000),
        Some((at, 'M')) => (&plain[..at], 1_000_000),
        Some((at, 'G' | 'B')) => (&plain[..at], 1_000_000_000),
        _ => (&plain[..], 1_u64),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number =
        !whole.is_empty() && whole.bytes().chain(fraction.bytes()).all(|b| b.is_ascii_digit());
    if !is_number || fraction.len() > 9 {
        return Err(wrong());
    }
    let whole = whole.parse::<u64>().ok().and_then(|w| w.checked_mul(factor)).ok_or_else(wrong)?;
    let mut part = 0;
    let mut unit = factor;
    for digit in fraction.bytes() {
        if unit % 10 != 0 && digit != b'0' {
            return Err(wrong());
        }
        unit /= 10;
        part += u64::from(digit - b'0') * unit;
    }
    whole.checked_add(part).ok_or_else(wrong)
}

#[cfg(test)]
mod tests;
