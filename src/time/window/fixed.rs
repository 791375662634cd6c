//! Windows of fixed length: tumbling and hopping ([`Grid`]), cumulating ([`Cumulate`]).
//!
//! All arithmetic is floor division in the event time's unit, so that times before 1970 fall into the
//! right windows, and checked, so that nothing wraps near the ends of time.

use std::time::Duration;

use super::span::{Place, Slice};
use crate::error::ConfigError;
use crate::time::event_time::Unit;

/// Windows `[start, start + size)` with a start every `slide`. Tumbling windows have `slide == size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Grid {
    /// Length of a window, above 0.
    size: i64,
    /// From one start to the next, above 0.
    slide: i64,
    /// Start of one window, `0 <= offset < slide`.
    offset: i64,
    /// End of one window, `0 <= end_offset < slide`.
    end_offset: i64,
    /// Least and largest time that the time column's type can hold: window bounds are of its type.
    limits: (i64, i64),
}

/// `duration` in whole units.
pub(super) fn in_units(
    what: &'static str,
    duration: Duration,
    unit: Unit,
) -> Result<i64, ConfigError> {
    unit.exact(duration).ok_or_else(|| ConfigError::OutOfRange {
        what,
        found: format!("{duration:?}"),
        expected: format!("a whole number of {}, the unit of the time column", unit.name()),
    })
}

/// The same, of a length that must not be 0.
pub(super) fn length(
    what: &'static str,
    duration: Duration,
    unit: Unit,
) -> Result<i64, ConfigError> {
    match in_units(what, duration, unit)? {
        0 => Err(ConfigError::OutOfRange {
            what,
            found: "0".into(),
            expected: "longer than 0".into(),
        }),
        length => Ok(length),
    }
}

/// How far `time` lies after the latest `x <= time` with `x = offset` modulo `step`.
#[inline(always)]
fn into(time: i64, step: i64, offset: i64) -> i64 {
    // Both operands are in `0 .. step`, so that nothing overflows near the ends of time.
    (time.rem_euclid(step) - offset).rem_euclid(step)
}

/// The largest `x <= time` with `x = offset` modulo `step`; `None` below the least `i64`.
#[inline(always)]
fn floor(time: i64, step: i64, offset: i64) -> Option<i64> {
    time.checked_sub(into(time, step, offset))
}

impl Grid {
    pub(crate) fn new(
        (size, slide): (Duration, Duration),
        offset: Duration,
        unit: Unit,
        limits: (i64, i64),
    ) -> Result<Self, ConfigError> {
        let size = length("window size", size, unit)?;
        let slide = length("window slide", slide, unit)?;
        let offset = in_units("window offset", offset, unit)?.rem_euclid(slide);
        let end_offset = (i128::from(offset) + i128::from(size)).rem_euclid(i128::from(slide));
        let end_offset = i64::try_from(end_offset).expect("less than the slide");
        Ok(Self { size, slide, offset, end_offset, limits })
    }

    #[inline(always)]
    pub(crate) fn locate(self, time: i64) -> Place {
        self.try_locate(time).unwrap_or(Place::OutOfRange)
    }

    #[inline(always)]
    fn try_locate(self, time: i64) -> Option<Place> {
        let into = into(time, self.slide, self.offset);
        if into >= self.size {
            return Some(Place::Between);
        }
        let start = time.checked_sub(into)?;
        let last = start.checked_add(self.size)?;
        let slice = if self.slide >= self.size {
            Slice { start, end: last, first: last, last }
        } else {
            // The end before `time`, and the one after it.
            let passed = floor(time, self.slide, self.end_offset)?;
            let first = passed.checked_add(self.slide)?;
            let end = first.min(start.saturating_add(self.slide));
            Slice { start: start.max(passed), end, first, last }
        };
        let first_start = slice.first.checked_sub(self.size)?;
        (self.limits.0 <= first_start && last <= self.limits.1).then_some(Place::In(slice))
    }

    /// Start of the window that ends at `end`.
    pub(crate) fn start_of(self, end: i64) -> i64 {
        end - self.size
    }

    /// The first end of a window after `time`.
    pub(crate) fn end_after(self, time: i64) -> i64 {
        time.saturating_add(self.slide - into(time, self.slide, self.end_offset))
    }
}

/// Windows that share a start every `max` and end at `start + step`, `start + 2 step`, .. `start + max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cumulate {
    step: i64,
    /// A multiple of `step`.
    max: i64,
    /// Start of one window, `0 <= offset < max`.
    offset: i64,
    limits: (i64, i64),
}

impl Cumulate {
    pub(crate) fn new(
        (step, max): (Duration, Duration),
        offset: Duration,
        unit: Unit,
        limits: (i64, i64),
    ) -> Result<Self, ConfigError> {
        let step = length("window step", step, unit)?;
        let longest = length("longest window", max, unit)?;
        if longest % step != 0 {
            return Err(ConfigError::OutOfRange {
                what: "longest window",
                found: format!("{max:?}"),
                expected: "a whole number of steps".into(),
            });
        }
        let offset = in_units("window offset", offset, unit)?.rem_euclid(longest);
        Ok(Self { step, max: longest, offset, limits })
    }

    pub(crate) fn locate(self, time: i64) -> Place {
        let found = || {
            let base = floor(time, self.max, self.offset)?;
            let last = base.checked_add(self.max)?;
            let start = base + (time - base) / self.step * self.step;
            let end = start + self.step;
            let within = self.limits.0 <= base && last <= self.limits.1;
            within.then_some(Place::In(Slice { start, end, first: end, last }))
        };
        found().unwrap_or(Place::OutOfRange)
    }

    /// Start of the window that ends at `end`.
    pub(crate) fn start_of(self, end: i64) -> i64 {
        floor(end - 1, self.max, self.offset).expect("a window's end lies in its range")
    }

    /// The first end of a window after `time`.
    pub(crate) fn end_after(self, time: i64) -> i64 {
        time.saturating_add(self.step - into(time, self.step, self.offset % self.step))
    }
}
