//! Text to dates, times and timestamps.
//!
//! ISO 8601 as people write it: `2024-02-29`, `2024-02-29 13:45`, `2024-02-29T13:45:01.123456789Z`,
//! offsets `+02:00`, `+0200`, `+02`, `/` for `-` in the date. Anything else goes through a
//! strftime-like format. No rounding: digits that the unit cannot hold are a fault.

use arrow::datatypes::TimeUnit;
use chrono::format::{Item, Parsed, StrftimeItems};

use crate::io::text::value::Fault;

const NANOS: i64 = 1_000_000_000;
const SECONDS_OF_DAY: i64 = 86_400;

/// A point in time as written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Seconds since 1970, in UTC if there is an offset.
    pub(crate) seconds: i64,
    pub(crate) nanos: u32,
    /// Whether an offset from UTC was given.
    pub(crate) has_offset: bool,
    /// Whether it is more than a date.
    pub(crate) has_time: bool,
}

impl Stamp {
    /// In a unit, exactly.
    #[inline]
    pub(crate) fn in_unit(self, unit: TimeUnit) -> Result<i64, Fault> {
        let per_second = per_second(unit);
        let nanos_per_unit = NANOS / per_second;
        let nanos = i64::from(self.nanos);
        if nanos % nanos_per_unit != 0 {
            return Err(Fault::TooFine);
        }
        // In 128 bits, since a negative second may be in range only together with its fraction.
        let wide =
            i128::from(self.seconds) * i128::from(per_second) + i128::from(nanos / nanos_per_unit);
        i64::try_from(wide).map_err(|_| Fault::OutOfRange)
    }

    /// Days since 1970, if it is a date and nothing more.
    pub(crate) fn as_date(self) -> Result<i32, Fault> {
        if self.has_time {
            return Err(Fault::NotOfType);
        }
        i32::try_from(self.seconds.div_euclid(SECONDS_OF_DAY)).map_err(|_| Fault::OutOfRange)
    }
}

pub(crate) fn per_second(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => 1,
        TimeUnit::Millisecond => 1_000,
        TimeUnit::Microsecond => 1_000_000,
        TimeUnit::Nanosecond => NANOS,
    }
}

/// Reads digits and signs from the front of a text.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    #[inline]
    fn number(&mut self, digits: usize) -> Option<i64> {
        let (head, rest) = self.0.split_at_checked(digits)?;
        let mut value = 0;
        for &b in head {
            let digit = b.wrapping_sub(b'0');
            if digit > 9 {
                return None;
            }
            value = value * 10 + i64::from(digit);
        }
        self.0 = rest;
        Some(value)
    }

    #[inline]
    fn one_of(&mut self, bytes: &[u8]) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        if !bytes.contains(&first) {
            return None;
        }
        self.0 = rest;
        Some(first)
    }
}

/// A date, or a date with a time of day.
pub(crate) fn stamp(text: &[u8]) -> Result<Stamp, Fault> {
    iso(text).ok_or(Fault::NotOfType)
}

fn iso(text: &[u8]) -> Option<Stamp> {
    let mut at = Cursor(text);
    let year = at.number(4)?;
    let separator = at.one_of(b"-/")?;
    let month = at.number(2)?;
    at.one_of(&[separator])?;
    let day = at.number(2)?;
    let days = days_of(year, month, day)?;
    let date = days * SECONDS_OF_DAY;
    if at.0.is_empty() {
        return Some(Stamp { seconds: date, nanos: 0, has_offset: false, has_time: false });
    }
    at.one_of(b"Tt ")?;
    let (second_of_day, nanos) = clock(&mut at)?;
    let offset = offset(&mut at)?;
    at.0.is_empty().then_some(())?;
    Some(Stamp {
        seconds: date + second_of_day - offset.unwrap_or(0),
        nanos,
        has_offset: offset.is_some(),
        has_time: true,
    })
}

/// Days since 1970-01-01 of a day in the Gregorian calendar, also before it was used.
fn days_of(year: i64, month: i64, day: i64) -> Option<i64> {
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let days_in_month = match month {
        1 | 3 | 5 | 7 | 8 | 10 | 12 => 31,
        4 | 6 | 9 | 11 => 30,
        2 => 28 + i64::from(leap),
        _ => return None,
    };
    if !(1..=days_in_month).contains(&day) {
        return None;
    }
    // Years that begin in March have the leap day at their end.
    let (y, m) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let day_of_year = (153 * m + 2) / 5 + day - 1;
    let leap_days = y.div_euclid(4) - y.div_euclid(100) + y.div_euclid(400);
    Some(y * 365 + leap_days + day_of_year - 719_468)
}

/// `HH:MM`, `HH:MM:SS`, `HH:MM:SS.fraction`. A leap second counts as the second after it.
#[inline]
fn clock(at: &mut Cursor<'_>) -> Option<(i64, u32)> {
    let hour = at.number(2)?;
    at.one_of(b":")?;
    let minute = at.number(2)?;
    let (mut second, mut nanos) = (0, 0);
    if at.one_of(b":").is_some() {
        second = at.number(2)?;
        if at.one_of(b".,").is_some() {
            nanos = fraction(at)?;
        }
    }
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    Some((hour * 3600 + minute * 60 + second, nanos))
}

/// Nanoseconds of up to nine digits behind the point; further digits must be zeros.
fn fraction(at: &mut Cursor<'_>) -> Option<u32> {
    let digits = at.0.iter().take_while(|b| b.is_ascii_digit()).count();
    let kept = digits.min(9);
    let value = (digits > 0).then(|| at.number(kept))??;
    if (kept..digits).any(|_| at.number(1) != Some(0)) {
        return None;
    }
    let scaled = (kept..9).fold(value, |v, _| v * 10);
    u32::try_from(scaled).ok()
}

/// The offset from UTC in seconds: `Z`, `+HH`, `+HHMM`, `+HH:MM`; also after a blank.
/// `None`: malformed; `Some(None)`: there is none.
#[expect(
    clippy::option_option,
    reason = "malformed and absent are two things; `?` takes care of one"
)]
fn offset(at: &mut Cursor<'_>) -> Option<Option<i64>> {
    if at.0.is_empty() {
        return Some(None);
    }
    let _ = at.one_of(b" ");
    if at.0.eq_ignore_ascii_case(b"utc") {
        at.0 = &[];
        return Some(Some(0));
    }
    let sign = match at.one_of(b"Zz+-")? {
        b'+' => 1,
        b'-' => -1,
        _ => return Some(Some(0)),
    };
    let hours = at.number(2)?;
    let colon = at.one_of(b":").is_some();
    let minutes = if colon || !at.0.is_empty() { at.number(2)? } else { 0 };
    (hours < 24 && minutes < 60).then(|| Some(sign * (hours * 3600 + minutes * 60)))
}

/// A time of day in a unit.
pub(crate) fn time_of_day(text: &[u8], unit: TimeUnit) -> Result<i64, Fault> {
    let mut at = Cursor(text);
    let (seconds, nanos) = clock(&mut at).ok_or(Fault::NotOfType)?;
    if !at.0.is_empty() || seconds >= SECONDS_OF_DAY {
        return Err(Fault::NotOfType);
    }
    Stamp { seconds, nanos, has_offset: false, has_time: true }.in_unit(unit)
}

/// A strftime-like format, compiled.
#[derive(Debug, Clone)]
pub(crate) struct TimeFormat(Vec<Item<'static>>);

impl TimeFormat {
    /// Says what is wrong with a format that cannot be used.
    pub(crate) fn parse(format: &str) -> Result<Self, String> {
        let items: Vec<_> = StrftimeItems::new(format).map(Item::to_owned).collect();
        if items.iter().any(|item| matches!(item, Item::Error)) {
            return Err("it has an unknown %-sequence; see strftime, e.g. %Y-%m-%d %H:%M:%S".into());
        }
        if !items.iter().any(|item| matches!(item, Item::Numeric(..) | Item::Fixed(_))) {
            return Err("it has no %-sequence, so no time can be read with it".into());
        }
        Ok(Self(items))
    }

    /// Reads a text. A format with `%z` gives UTC; one without a time of day gives midnight.
    pub(crate) fn read(&self, text: &str) -> Result<Stamp, Fault> {
        let mut parsed = Parsed::new();
        chrono::format::parse(&mut parsed, text, self.0.iter()).map_err(|_| Fault::NotOfType)?;
        let has_offset = parsed.offset().is_some();
        let utc = if has_offset {
            parsed.to_datetime().map_err(|_| Fault::NotOfType)?.to_utc()
        } else if let Ok(local) = parsed.to_naive_datetime_with_offset(0) {
            local.and_utc()
        } else {
            let date = parsed.to_naive_date().map_err(|_| Fault::NotOfType)?;
            let midnight = chrono::NaiveTime::MIN;
            let stamp = date.and_time(parsed.to_naive_time().unwrap_or(midnight)).and_utc();
            return Ok(Stamp {
                seconds: stamp.timestamp(),
                nanos: 0,
                has_offset,
                has_time: parsed.hour_div_12().is_some(),
            });
        };
        let (mut seconds, mut nanos) = (utc.timestamp(), utc.timestamp_subsec_nanos());
        if nanos >= 1_000_000_000 {
            // chrono marks a leap second this way.
            (seconds, nanos) = (seconds + 1, nanos - 1_000_000_000);
        }
        Ok(Stamp { seconds, nanos, has_offset, has_time: true })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{DateTime, NaiveDate};
    use proptest::prelude::*;

    fn micros(text: &str) -> Result<i64, Fault> {
        stamp(text.as_bytes())?.in_unit(TimeUnit::Microsecond)
    }

    #[test]
    fn iso_times() {
        for (text, rfc) in [
            ("2010-12-01 08:26:00", "2010-12-01T08:26:00Z"),
            ("2024-02-29", "2024-02-29T00:00:00Z"),
            ("2024/02/29 13:45", "2024-02-29T13:45:00Z"),
            ("1969-12-31T23:59:59.5", "1969-12-31T23:59:59.5Z"),
            ("2024-01-01T00:00:00+02:00", "2023-12-31T22:00:00Z"),
            ("2024-01-01T00:00:00.123456-0130", "2024-01-01T01:30:00.123456Z"),
            ("9999-12-31T23:59:59.999999Z", "9999-12-31T23:59:59.999999Z"),
            ("0001-01-01", "0001-01-01T00:00:00Z"),
            ("2013-01-01 10:00:00 UTC", "2013-01-01T10:00:00Z"),
        ] {
            let expected = DateTime::parse_from_rfc3339(rfc).unwrap().timestamp_micros();
            assert_eq!(micros(text), Ok(expected), "{text}");
        }
        for bad in
            ["2023-02-29", "2024-13-01", "2024-1-1", "24:00", "2024-01-01T", "2024-01-01 24:00"]
                .iter()
                .chain(&["2024-01-01 10", "2024-01-01 10:00:00.", "2024-01-01x", "x", ""])
        {
            assert_eq!(micros(bad), Err(Fault::NotOfType), "{bad}");
        }
    }

    #[test]
    fn units_hold_what_they_can() {
        let fine = stamp(b"2024-01-01 00:00:00.1234567").unwrap();
        assert_eq!(fine.in_unit(TimeUnit::Microsecond), Err(Fault::TooFine));
        assert!(fine.in_unit(TimeUnit::Nanosecond).is_ok());
        for outside in ["9999-12-31", "1677-09-20", "2262-04-12"] {
            let stamp = stamp(outside.as_bytes()).unwrap();
            assert_eq!(stamp.in_unit(TimeUnit::Nanosecond), Err(Fault::OutOfRange));
            assert!(stamp.in_unit(TimeUnit::Microsecond).is_ok());
        }
        let first = stamp(b"1677-09-21 00:12:43.145224192").unwrap();
        assert_eq!(first.in_unit(TimeUnit::Nanosecond), Ok(i64::MIN));
        assert_eq!(time_of_day(b"23:59:59.5", TimeUnit::Millisecond), Ok(86_399_500));
        assert_eq!(time_of_day(b"24:00", TimeUnit::Second), Err(Fault::NotOfType));
    }

    #[test]
    fn formats() {
        let read = |format: &str, text: &str| TimeFormat::parse(format).unwrap().read(text);
        let day = read("%d.%m.%Y", "29.02.2024").unwrap();
        assert_eq!((day.as_date(), day.has_time), (Ok(19_782), false));
        let zoned = read("%d/%b/%Y:%H:%M:%S %z", "10/Oct/2000:13:55:36 -0700").unwrap();
        assert_eq!((zoned.seconds, zoned.has_offset), (971_211_336, true));
        assert_eq!(read("%s", "86400").unwrap().seconds, 86_400);
        assert_eq!(
            read("%m/%d/%Y %I:%M %p", "12/01/2010 08:26 AM").unwrap().seconds,
            1_291_191_960
        );
        assert_eq!(read("%Y", "x"), Err(Fault::NotOfType));
        assert!(TimeFormat::parse("%Q").is_err() && TimeFormat::parse("Y-m").is_err());
    }

    proptest! {
        #[test]
        fn days_equal_chrono(year in 1_i32..=9999, month in 0_u32..14, day in 0_u32..33) {
            let text = format!("{year:04}-{month:02}-{day:02}");
            let expected = NaiveDate::from_ymd_opt(year, month, day)
                .map(|d| d.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_micros());
            prop_assert_eq!(micros(&text).ok(), expected);
        }
    }
}
