//! Windows of calendar days, weeks and months in a time zone.
//!
//! A window begins with the first instant of its first local day and ends with the first instant of the
//! first day of the next window, so that a day may have 23 or 25 hours. Where local midnight does not
//! exist, because clocks go forward over it, the day begins with the first instant after the gap; where it
//! occurs twice, with the first. A local day that a zone left out altogether has no window. Weeks begin on
//! Monday; months and multiples of them are counted from January 1970.
//!
//! **Cost:** some hundred nanoseconds whenever a row lies in another window than the row before.

use chrono::{DateTime, Datelike, Days, LocalResult, NaiveDate, NaiveTime, TimeZone};
use chrono_tz::Tz;

use super::span::{Place, Slice};
use crate::error::{ConfigError, nearest_name};
use crate::time::event_time::Unit;

/// Times further from 1970 than this many seconds (some 190,000 years) are out of range.
const SECONDS_MAX: i64 = 6_000_000_000_000;

/// No zone is further from UTC than this, in seconds.
const OFFSET_MAX: i64 = 26 * 3600;

const DAY_SECONDS: i64 = 86_400;

/// What calendar windows are counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CalendarUnit {
    /// Local days.
    Day,
    /// Local weeks, from Monday.
    Week,
    /// Local months.
    Month,
}

/// A time zone of the IANA database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone(Tz);

impl Zone {
    /// Coordinated universal time.
    pub const UTC: Self = Self(Tz::UTC);

    /// The zone of this name, such as `Europe/Berlin`.
    ///
    /// # Errors
    /// If there is none.
    pub fn parse(name: &str) -> Result<Self, ConfigError> {
        name.parse::<Tz>().map(Self).map_err(|_| {
            let names = chrono_tz::TZ_VARIANTS.iter().map(|zone| zone.name().to_owned());
            let nearest = nearest_name(name, &names.collect::<Vec<_>>());
            let meant = nearest.map_or_else(String::new, |nearest| format!("; is it {nearest}?"));
            ConfigError::Syntax {
                what: "time zone",
                text: name.to_owned(),
                why: format!(
                    "expected a name of the IANA time zone database, such as Europe/Berlin or UTC{meant}"
                ),
            }
        })
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
}

/// Calendar windows over a time column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Calendar {
    unit: CalendarUnit,
    /// Days, weeks or months in a window, above 0.
    count: i64,
    zone: Tz,
    /// The time column's unit, in seconds or in parts of a second.
    seconds: i64,
    per_second: i64,
    limits: (i64, i64),
}

impl Calendar {
    pub(crate) fn new(
        unit: CalendarUnit,
        count: u32,
        zone: Zone,
        time_unit: Unit,
        limits: (i64, i64),
    ) -> Result<Self, ConfigError> {
        if count == 0 {
            return Err(ConfigError::OutOfRange {
                what: "window size",
                found: "0".into(),
                expected: "longer than 0".into(),
            });
        }
        let (seconds, per_second) = match time_unit {
            Unit::Day if zone != Zone::UTC => {
                return Err(ConfigError::Inconsistent(format!(
                    "calendar windows in {} need a time column with a time of day, not dates; leave the zone out",
                    zone.name()
                )));
            }
            Unit::Day => (DAY_SECONDS, 1),
            Unit::Second => (1, 1),
            Unit::Millisecond => (1, 1_000),
            Unit::Microsecond => (1, 1_000_000),
            Unit::Nanosecond => (1, 1_000_000_000),
        };
        Ok(Self { unit, count: i64::from(count), zone: zone.0, seconds, per_second, limits })
    }

    pub(crate) fn locate(&self, time: i64) -> Place {
        let found = || {
            let seconds = time.div_euclid(self.per_second).checked_mul(self.seconds)?;
            let (start, end) = self.bounds(seconds)?;
            let (start, end) = (self.time(start)?, self.time(end)?);
            let within = self.limits.0 <= start && end <= self.limits.1;
            within.then_some(Place::In(Slice { start, end, first: end, last: end }))
        };
        found().unwrap_or(Place::OutOfRange)
    }

    /// Start of the window that ends at `end`.
    pub(crate) fn start_of(&self, end: i64) -> i64 {
        match self.locate(end - 1) {
            Place::In(slice) => slice.start,
            _ => unreachable!("a window's end lies in its range"),
        }
    }

    /// The first end of a window after `time`. Out of range there is no window: before it the next moment,
    /// beyond it the end of time.
    pub(crate) fn end_after(&self, time: i64) -> i64 {
        match self.locate(time) {
            Place::In(slice) => slice.end,
            _ if time < 0 => time.saturating_add(1),
            _ => i64::MAX,
        }
    }

    /// A point in seconds in the time column's unit.
    fn time(&self, seconds: i64) -> Option<i64> {
        (seconds / self.seconds).checked_mul(self.per_second)
    }

    /// Start and end of the window of a point in time, all in seconds since 1970.
    fn bounds(&self, seconds: i64) -> Option<(i64, i64)> {
        if !(-SECONDS_MAX..=SECONDS_MAX).contains(&seconds) {
            return None;
        }
        let local = DateTime::from_timestamp(seconds, 0)?.with_timezone(&self.zone).date_naive();
        let mut period = self.period(local);
        // Where clocks go back over midnight, the local date is not the one whose window holds the time.
        while self.begin(period)? > seconds {
            period -= 1;
        }
        while self.begin(period + 1)? <= seconds {
            period += 1;
        }
        Some((self.begin(period)?, self.begin(period + 1)?))
    }

    /// Number of the window that holds a local date.
    fn period(&self, date: NaiveDate) -> i64 {
        let days = i64::from(date.num_days_from_ce()) - i64::from(epoch().num_days_from_ce());
        let passed = match self.unit {
            CalendarUnit::Day => days,
            // 1970 began on a Thursday, three days after a Monday.
            CalendarUnit::Week => (days + 3).div_euclid(7),
            CalendarUnit::Month => (i64::from(date.year()) - 1970) * 12 + i64::from(date.month0()),
        };
        passed.div_euclid(self.count)
    }

    /// First instant of a window.
    fn begin(&self, period: i64) -> Option<i64> {
        let passed = period.checked_mul(self.count)?;
        let days = |days: i64| {
            let distance = Days::new(days.unsigned_abs());
            if days < 0 {
                epoch().checked_sub_days(distance)
            } else {
                epoch().checked_add_days(distance)
            }
        };
        let date = match self.unit {
            CalendarUnit::Day => days(passed)?,
            CalendarUnit::Week => days(passed.checked_mul(7)? - 3)?,
            CalendarUnit::Month => {
                let year = i32::try_from(1970 + passed.div_euclid(12)).ok()?;
                let month = u32::try_from(passed.rem_euclid(12)).ok()? + 1;
                NaiveDate::from_ymd_opt(year, month, 1)?
            }
        };
        Some(first_instant(self.zone, date))
    }
}

fn epoch() -> NaiveDate {
    DateTime::UNIX_EPOCH.date_naive()
}

/// The first instant of a local day, or, if the zone left the day out, of the next one.
fn first_instant(zone: Tz, date: NaiveDate) -> i64 {
    let midnight = date.and_time(NaiveTime::MIN);
    match zone.from_local_datetime(&midnight) {
        LocalResult::Single(instant) | LocalResult::Ambiguous(instant, _) => instant.timestamp(),
        LocalResult::None => {
            // In a gap: the first instant whose local time is past midnight.
            let near = midnight.and_utc().timestamp();
            let (mut before, mut after) = (near - OFFSET_MAX, near + OFFSET_MAX);
            while after - before > 1 {
                let middle = before + (after - before) / 2;
                let instant = DateTime::from_timestamp(middle, 0).expect("near a date");
                let is_past = instant.with_timezone(&zone).naive_local() >= midnight;
                *(if is_past { &mut after } else { &mut before }) = middle;
            }
            after
        }
    }
}

#[cfg(test)]
mod tests;
