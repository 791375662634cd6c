//! Guesses a column's type from the texts of a sample.
//!
//! A [`Guess`] starts with every type possible and rules types out; guesses of parts, and of several
//! inputs, merge. So the type does not depend on the order in which the sample was looked at.

use arrow::datatypes::{DataType, TimeUnit};

use crate::io::text::datetime::{Stamp, TimeFormat, stamp};
use crate::io::text::value::{self, Fault};

/// The time zone of timestamps whose texts have an offset; instants are kept, in UTC.
pub(crate) const UTC: &str = "+00:00";

/// Precision of decimals for integers beyond 64 bits.
const WIDE_DIGITS: u8 = 38;

/// What is still possible after the values seen so far.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Guess {
    /// Values that are not null.
    values: u64,
    /// Values that are whole numbers of 64 bits; of at most 38 digits; numbers; booleans.
    integers: u64,
    wide: u64,
    floats: u64,
    booleans: u64,
    /// Values that are dates; dates or timestamps.
    dates: u64,
    stamps: u64,
    /// Some timestamp has an offset; more than six digits of fraction.
    offsets: bool,
    nanos: bool,
    /// Some timestamp does not fit 64 bits of nanoseconds.
    beyond_nanos: bool,
}

impl Guess {
    pub(crate) const EMPTY: Self = Self {
        values: 0,
        integers: 0,
        wide: 0,
        floats: 0,
        booleans: 0,
        dates: 0,
        stamps: 0,
        offsets: false,
        nanos: false,
        beyond_nanos: false,
    };

    /// Takes a csv field in. The empty field and the null text are not to be shown to it.
    pub(crate) fn see(&mut self, text: &[u8]) {
        let text = value::trim(text);
        if text.is_empty() {
            return;
        }
        if value::boolean(text).is_ok() {
            self.values += 1;
            self.booleans += 1;
        } else if text[0] == b'+' || value::has_leading_zero(text) {
            // Codes and telephone numbers; but a date may begin with a zero.
            self.see_text(text);
        } else if value::float64(text).is_ok() {
            self.see_number(text);
        } else {
            self.see_text(text);
        }
    }

    /// Takes a number in.
    pub(crate) fn see_number(&mut self, text: &[u8]) {
        self.values += 1;
        let wide = value::int128(text);
        self.integers += u64::from(value::int64(text).is_ok());
        self.wide += u64::from(wide.is_ok());
        // More than 38 digits are no measurement; as floats they would lose their identity.
        self.floats += u64::from(wide != Err(Fault::OutOfRange));
    }

    /// Takes a text in that is no number and no boolean.
    pub(crate) fn see_text(&mut self, text: &[u8]) {
        self.values += 1;
        if let Ok(stamp) = stamp(value::trim(text)) {
            self.see_stamp(stamp);
        }
    }

    /// Takes a boolean in.
    pub(crate) fn see_boolean(&mut self) {
        self.values += 1;
        self.booleans += 1;
    }

    /// Takes an object or a list in: it can only be text.
    pub(crate) fn see_nested(&mut self) {
        self.values += 1;
    }

    fn see_stamp(&mut self, stamp: Stamp) {
        self.stamps += 1;
        self.dates += u64::from(!stamp.has_time);
        self.offsets |= stamp.has_offset;
        self.nanos |= stamp.in_unit(TimeUnit::Microsecond) == Err(Fault::TooFine);
        self.beyond_nanos |= stamp.in_unit(TimeUnit::Nanosecond).is_err();
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.values += other.values;
        self.integers += other.integers;
        self.wide += other.wide;
        self.floats += other.floats;
        self.booleans += other.booleans;
        self.dates += other.dates;
        self.stamps += other.stamps;
        self.offsets |= other.offsets;
        self.nanos |= other.nanos;
        self.beyond_nanos |= other.beyond_nanos;
    }

    /// The narrowest type that holds every value seen; text if none was.
    pub(crate) fn data_type(&self) -> DataType {
        let all = |count: u64| count == self.values;
        if self.values == 0 {
            DataType::Utf8
        } else if all(self.booleans) {
            DataType::Boolean
        } else if all(self.integers) {
            DataType::Int64
        } else if all(self.wide) {
            DataType::Decimal128(WIDE_DIGITS, 0)
        } else if all(self.floats) {
            DataType::Float64
        } else if all(self.dates) {
            DataType::Date32
        } else if all(self.stamps) {
            self.timestamp()
        } else {
            DataType::Utf8
        }
    }

    fn timestamp(&self) -> DataType {
        let fine = self.nanos && !self.beyond_nanos;
        let unit = if fine { TimeUnit::Nanosecond } else { TimeUnit::Microsecond };
        DataType::Timestamp(unit, self.offsets.then(|| UTC.into()))
    }

    /// The type of an event-time column: what most values are, so that a few bad ones are rejected
    /// rows and not the end of the job. `None`: no value looks like a time.
    pub(crate) fn time_type(&self) -> Option<DataType> {
        if self.values == 0 {
            return Some(DataType::Timestamp(TimeUnit::Microsecond, None));
        }
        if self.integers == 0 && self.stamps == 0 {
            return None;
        }
        Some(if self.integers > self.stamps {
            // More numbers with a fraction than without: seconds as floats, which are not exact.
            if self.floats > 2 * self.integers {
                return None;
            }
            DataType::Int64
        } else if self.dates == self.stamps {
            DataType::Date32
        } else {
            self.timestamp()
        })
    }
}

/// The type of a time column that is read with a format.
pub(crate) fn formatted_type<'a>(
    format: &TimeFormat,
    unit: Option<TimeUnit>,
    sample: impl Iterator<Item = &'a [u8]>,
) -> DataType {
    let mut guess = Guess::EMPTY;
    for text in sample {
        let text = std::str::from_utf8(value::trim(text));
        if let Some(stamp) = text.ok().and_then(|t| format.read(t).ok()) {
            guess.see_stamp(stamp);
        }
    }
    match (unit, guess.timestamp()) {
        (None, _) if guess.stamps > 0 && guess.dates == guess.stamps => DataType::Date32,
        (Some(unit), DataType::Timestamp(_, zone)) => DataType::Timestamp(unit, zone),
        (_, guessed) => guessed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guess(texts: &[&str]) -> DataType {
        let mut all = Guess::EMPTY;
        for text in texts {
            let mut one = Guess::EMPTY;
            one.see(text.as_bytes());
            all.merge(&one);
        }
        all.data_type()
    }

    #[test]
    fn types_of_columns() {
        let micros = DataType::Timestamp(TimeUnit::Microsecond, None);
        let nanos = DataType::Timestamp(TimeUnit::Nanosecond, None);
        let utc = DataType::Timestamp(TimeUnit::Microsecond, Some(UTC.into()));
        for (texts, expected) in [
            (&["1", "-2", " 3 "][..], DataType::Int64),
            (&["1", "2.5"], DataType::Float64),
            (&["1", "NaN", "-inf", "1e300"], DataType::Float64),
            (&["1", "9223372036854775808"], DataType::Decimal128(38, 0)),
            (&["1.5", "9223372036854775808"], DataType::Float64),
            (&["true", "FALSE"], DataType::Boolean),
            (&["true", "1"], DataType::Utf8),
            (&["007", "12"], DataType::Utf8),
            (&["+491234"], DataType::Utf8),
            (&["0", "10"], DataType::Int64),
            (&["2024-01-01"], DataType::Date32),
            (&["2024-01-01", "2024-01-01 10:00:00"], micros.clone()),
            (&["2024-01-01 10:00:00.123456789"], nanos),
            (&["2024-01-01 10:00:00.123456789", "9999-12-31 00:00:00"], micros),
            (&["2024-01-01T10:00:00Z", "2024-01-01 10:00"], utc),
            (&["", "  "], DataType::Utf8),
            (&["C123", "123"], DataType::Utf8),
        ] {
            assert_eq!(guess(texts), expected, "{texts:?}");
        }
        assert_eq!(guess(&[&"9".repeat(39)]), DataType::Utf8);
    }

    #[test]
    fn a_few_bad_values_do_not_spoil_a_time_column() {
        let mut all = Guess::EMPTY;
        for text in ["2024-01-01 10:00", "soon", "2024-01-02"] {
            all.see(text.as_bytes());
        }
        assert_eq!(all.data_type(), DataType::Utf8);
        let expected = DataType::Timestamp(TimeUnit::Microsecond, None);
        assert_eq!(all.time_type(), Some(expected));
        let mut text = Guess::EMPTY;
        text.see(b"soon");
        assert_eq!(text.time_type(), None);
    }

    #[test]
    fn formats_tell_the_type() {
        let day = TimeFormat::parse("%d.%m.%Y").unwrap();
        let sample = || [&b"01.02.2024"[..], b"x"].into_iter();
        assert_eq!(formatted_type(&day, None, sample()), DataType::Date32);
        let expected = DataType::Timestamp(TimeUnit::Second, None);
        assert_eq!(formatted_type(&day, Some(TimeUnit::Second), sample()), expected);
    }
}
