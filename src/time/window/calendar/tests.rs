use chrono::{NaiveDateTime, Utc};
use proptest::prelude::*;

use super::*;

const ALL: (i64, i64) = (i64::MIN, i64::MAX);

fn calendar(unit: CalendarUnit, count: u32, zone: &str) -> Calendar {
    Calendar::new(unit, count, Zone::parse(zone).unwrap(), Unit::Second, ALL).unwrap()
}

fn utc(text: &str) -> i64 {
    NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M").unwrap().and_utc().timestamp()
}

/// The window of an instant, as texts in UTC.
fn window(calendar: &Calendar, at: &str) -> (String, String) {
    let Place::In(slice) = calendar.locate(utc(at)) else { panic!("{at} is in no window") };
    let text = |seconds: i64| {
        let instant = DateTime::<Utc>::from_timestamp(seconds, 0).unwrap();
        instant.format("%Y-%m-%d %H:%M").to_string()
    };
    (text(slice.start), text(slice.end))
}

fn assert_window(calendar: &Calendar, at: &str, start: &str, end: &str) {
    assert_eq!(window(calendar, at), (start.to_owned(), end.to_owned()), "window of {at}");
}

#[test]
fn days_have_23_to_25_hours() {
    let days = calendar(CalendarUnit::Day, 1, "Europe/Berlin");
    assert_window(&days, "2024-02-10 12:00", "2024-02-09 23:00", "2024-02-10 23:00");
    // Clocks go forward on March 31st, and back on October 27th.
    assert_window(&days, "2024-03-31 12:00", "2024-03-30 23:00", "2024-03-31 22:00");
    assert_window(&days, "2024-10-27 12:00", "2024-10-26 22:00", "2024-10-27 23:00");
    // Both hours called 2 o'clock are in the day.
    assert_window(&days, "2024-10-27 00:30", "2024-10-26 22:00", "2024-10-27 23:00");
    assert_window(&days, "2024-10-27 01:30", "2024-10-26 22:00", "2024-10-27 23:00");
    // A change by half an hour.
    let days = calendar(CalendarUnit::Day, 1, "Australia/Lord_Howe");
    assert_window(&days, "2024-04-06 20:00", "2024-04-06 13:00", "2024-04-07 13:30");
}

#[test]
fn a_day_without_midnight_begins_after_the_gap() {
    // At 00:00 clocks went to 01:00.
    let days = calendar(CalendarUnit::Day, 1, "America/Sao_Paulo");
    assert_window(&days, "2018-11-04 12:00", "2018-11-04 03:00", "2018-11-05 02:00");
    assert_window(&days, "2018-11-04 02:59", "2018-11-03 03:00", "2018-11-04 03:00");
    // At 00:00 clocks went back to 23:00, which belongs to the day before.
    assert_window(&days, "2018-02-18 02:30", "2018-02-17 02:00", "2018-02-18 03:00");
}

#[test]
fn a_day_with_two_midnights_begins_with_the_first() {
    // At 01:00 clocks went back to 00:00.
    let days = calendar(CalendarUnit::Day, 1, "America/Havana");
    assert_window(&days, "2023-11-05 12:00", "2023-11-05 04:00", "2023-11-06 05:00");
    assert_window(&days, "2023-11-05 05:10", "2023-11-05 04:00", "2023-11-06 05:00");
}

#[test]
fn a_day_that_was_left_out_has_no_window() {
    // Samoa went from the 29th to the 31st of December 2011.
    let days = calendar(CalendarUnit::Day, 1, "Pacific/Apia");
    assert_window(&days, "2011-12-30 09:59", "2011-12-29 10:00", "2011-12-30 10:00");
    assert_window(&days, "2011-12-30 10:00", "2011-12-30 10:00", "2011-12-31 10:00");
}

#[test]
fn weeks_begin_on_monday_and_months_are_counted_from_january() {
    let weeks = calendar(CalendarUnit::Week, 1, "UTC");
    assert_window(&weeks, "2024-05-15 10:00", "2024-05-13 00:00", "2024-05-20 00:00");
    assert_window(&weeks, "1970-01-01 00:00", "1969-12-29 00:00", "1970-01-05 00:00");
    let months = calendar(CalendarUnit::Month, 1, "America/New_York");
    assert_window(&months, "2024-03-15 10:00", "2024-03-01 05:00", "2024-04-01 04:00");
    assert_window(&months, "2024-03-01 04:59", "2024-02-01 05:00", "2024-03-01 05:00");
    assert_window(&months, "1969-12-31 12:00", "1969-12-01 05:00", "1970-01-01 05:00");
    let quarters = calendar(CalendarUnit::Month, 3, "UTC");
    assert_window(&quarters, "2024-06-30 23:59", "2024-04-01 00:00", "2024-07-01 00:00");
    assert_window(&quarters, "1969-11-05 00:00", "1969-10-01 00:00", "1970-01-01 00:00");
}

#[test]
fn dates_have_calendar_windows_without_a_zone() {
    let limits = (i64::from(i32::MIN), i64::from(i32::MAX));
    let months = Calendar::new(CalendarUnit::Month, 1, Zone::UTC, Unit::Day, limits).unwrap();
    assert_eq!(
        months.locate(31),
        Place::In(Slice { start: 31, end: 59, first: 59, last: 59 }),
        "February 1970"
    );
    assert_eq!(months.locate(i64::from(i32::MAX)), Place::OutOfRange);
    let zone = Zone::parse("Asia/Tokyo").unwrap();
    let error = Calendar::new(CalendarUnit::Day, 1, zone, Unit::Day, limits).unwrap_err();
    assert!(error.to_string().contains("not dates"), "{error}");
}

#[test]
fn unknown_zones_are_named_with_the_nearest() {
    let error = Zone::parse("Europe/Berln").unwrap_err().to_string();
    assert!(error.contains("is it Europe/Berlin?"), "{error}");
    assert!(Zone::parse("").is_err());
}

const ZONES: &[&str] = &[
    "UTC",
    "Europe/Berlin",
    "Europe/Dublin",
    "America/New_York",
    "America/Sao_Paulo",
    "America/Havana",
    "America/Asuncion",
    "Asia/Beirut",
    "Asia/Gaza",
    "Asia/Tehran",
    "Asia/Kathmandu",
    "Africa/Cairo",
    "Africa/Casablanca",
    "Pacific/Apia",
    "Pacific/Kwajalein",
    "Pacific/Chatham",
    "Australia/Lord_Howe",
    "Antarctica/Troll",
    "Asia/Manila",
    "America/Juneau",
    "Africa/Monrovia",
];

proptest! {
    /// The windows lie side by side, and whatever has one local date lies in one window, but for the
    /// hours that occur twice around midnight.
    #[test]
    fn windows_partition_time(
        zone in proptest::sample::select(ZONES), seconds in -4_500_000_000_i64..4_100_000_000,
        unit in 0_usize..3, count in 1_u32..4,
    ) {
        let unit = [CalendarUnit::Day, CalendarUnit::Week, CalendarUnit::Month][unit];
        let calendar = calendar(unit, count, zone);
        let Place::In(slice) = calendar.locate(seconds) else { panic!("in range") };
        prop_assert!(slice.start <= seconds && seconds < slice.end);
        for inside in [slice.start, slice.end - 1, seconds / 2 + slice.end / 2] {
            if (slice.start..slice.end).contains(&inside) {
                prop_assert_eq!(calendar.locate(inside), Place::In(slice));
            }
        }
        let Place::In(next) = calendar.locate(slice.end) else { panic!("in range") };
        prop_assert_eq!(next.start, slice.end);
        prop_assert_eq!(calendar.start_of(slice.end), slice.start);
        prop_assert_eq!(calendar.end_after(seconds), slice.end);
        let zone: Tz = zone.parse().unwrap();
        let local = |seconds: i64| {
            DateTime::from_timestamp(seconds, 0).unwrap().with_timezone(&zone).naive_local()
        };
        // A window begins at midnight, or right after a gap that holds it.
        let before = local(slice.start - 1);
        let start = local(slice.start);
        prop_assert!(
            start.time() == NaiveTime::MIN || before.date() < start.date(),
            "{} begins after {before}", start
        );
    }

    #[test]
    fn any_time_is_located_or_out_of_range(time in any::<i64>(), unit in 0_usize..5) {
        let time_unit = [
            Unit::Day, Unit::Second, Unit::Millisecond, Unit::Microsecond, Unit::Nanosecond,
        ][unit];
        let months = Calendar::new(CalendarUnit::Month, 1, Zone::UTC, time_unit, ALL).unwrap();
        for time in [time, time >> 20, i64::MIN, i64::MAX] {
            if let Place::In(slice) = months.locate(time) {
                prop_assert!(slice.start <= time && time < slice.end);
            }
            prop_assert!(months.end_after(time) > time || time == i64::MAX);
        }
    }
}
