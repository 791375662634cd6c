//! Session windows: where a row is kept until the sessions are put together.
//!
//! Rows of one key whose times differ by less than the gap are in one session, `[first, last + gap)`. Time is cut
//! into slices of a quarter of the gap; rows of one key in one slice are in one session whatever lies between.

use std::time::Duration;

use super::fixed::length;
use super::span::{Place, Slice};
use crate::error::ConfigError;
use crate::time::event_time::Unit;

/// Slices in a gap: a session is given this part of the gap after its end, at most.
const SLICES: i64 = 4;

/// Session windows over a time column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    pub(crate) gap: i64,
    /// Length of a slice, at most the gap.
    slice: i64,
    /// Largest time that the time column's type can hold.
    limit: i64,
}

impl Session {
    pub(crate) fn new(gap: Duration, unit: Unit, limits: (i64, i64)) -> Result<Self, ConfigError> {
        let gap = length("session gap", gap, unit)?;
        let slice = gap / SLICES + i64::from(gap % SLICES != 0);
        Ok(Self { gap, slice, limit: limits.1 })
    }

    /// The slice of `time`, as a window of its own.
    pub(crate) fn locate(self, time: i64) -> Place {
        // The end of a session must be a time, too.
        match time.checked_add(self.gap) {
            Some(end) if end <= self.limit => {
                let close = self.end_after(time);
                let start = close.saturating_sub(self.slice);
                // Later times of the slice may be out of range.
                let end = close.min(self.limit - self.gap + 1);
                Place::In(Slice { start, end, first: close, last: close })
            }
            _ => Place::OutOfRange,
        }
    }

    /// Start of the slice that ends at `end`.
    pub(crate) fn start_of(self, end: i64) -> i64 {
        end.saturating_sub(self.slice)
    }

    /// The first end of a slice after `time`.
    pub(crate) fn end_after(self, time: i64) -> i64 {
        time.saturating_add(self.slice - time.rem_euclid(self.slice))
    }

    /// The last end of a slice at or before `time`.
    pub(crate) fn end_by(self, time: i64) -> i64 {
        if time == i64::MAX { time } else { time.saturating_sub(time.rem_euclid(self.slice)) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn rows_of_a_slice_are_in_one_session(
            gap in 1_u64..100, time in any::<i64>(), limit in any::<i64>(),
        ) {
            let session =
                Session::new(Duration::from_secs(gap), Unit::Second, (i64::MIN, limit)).unwrap();
            prop_assert!(session.slice > 0 && session.slice <= session.gap);
            match session.locate(time) {
                Place::In(slice) => {
                    prop_assert!(slice.start <= time && time < slice.end);
                    prop_assert_eq!(session.end_by(slice.last), slice.last);
                    prop_assert_eq!(session.start_of(slice.last), slice.start);
                    prop_assert_eq!(session.locate(slice.end - 1), Place::In(slice));
                    prop_assert!(time + session.gap <= limit);
                }
                _ => prop_assert!(time.checked_add(session.gap).is_none_or(|end| end > limit)),
            }
        }
    }

    #[test]
    fn a_gap_must_be_whole_units_and_longer_than_0() {
        let new = |gap| Session::new(gap, Unit::Second, (i64::MIN, i64::MAX)).unwrap_err();
        assert!(new(Duration::ZERO).to_string().contains("session gap is 0"));
        assert!(new(Duration::from_millis(1)).to_string().contains("whole number of seconds"));
    }
}
