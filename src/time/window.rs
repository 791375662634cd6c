//! Windows: which rows are aggregated together.

use std::time::Duration;

use super::event_time::Unit;
use crate::error::ConfigError;

/// Windows of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Window {
    /// One result per key, at the end.
    #[default]
    None,
    /// Windows `[start, start + size)` side by side, one of them starting at `offset` after
    /// 1970-01-01 00:00.
    Tumbling {
        /// Length of each window; must be a whole number of the event time's units.
        size: Duration,
        /// Shift of all windows.
        offset: Duration,
    },
}

impl Window {
    /// Tumbling windows that start at multiples of `size` since 1970-01-01 00:00.
    pub fn tumbling(size: Duration) -> Self {
        Self::Tumbling { size, offset: Duration::ZERO }
    }

    /// Reads `none`, `tumbling:SIZE`; refuses by name what is not built yet.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let syntax = |why: &str| ConfigError::Syntax {
            what: "window",
            text: text.to_owned(),
            why: why.to_owned(),
        };
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "none" if rest.is_empty() => Ok(Self::None),
            "tumbling" => {
                let size = parse_duration(rest)?;
                if size.is_zero() {
                    return Err(syntax("a window must be longer than 0"));
                }
                Ok(Self::tumbling(size))
            }
            "hopping" | "session" | "cumulate" => Err(ConfigError::Unsupported {
                what: format!("window {kind}"),
                instead: "use tumbling:SIZE or none".into(),
            }),
            _ => Err(syntax("expected none or tumbling:SIZE, for example tumbling:1m")),
        }
    }
}

/// Reads a length of time such as `500ms`, `10s`, `1m`, `1h`, `1d`, `1h30m`, `250us`, `10ns`; `0` needs
/// no unit.
pub fn parse_duration(text: &str) -> Result<Duration, ConfigError> {
    let syntax = |why: String| ConfigError::Syntax { what: "duration", text: text.to_owned(), why };
    let mut rest = text.trim();
    if rest == "0" {
        return Ok(Duration::ZERO);
    }
    if rest.is_empty() {
        return Err(syntax("it is empty; write for example 10s or 1h30m".into()));
    }
    let mut total: u128 = 0;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        let letters = tail.find(|c: char| c.is_ascii_digit()).unwrap_or(tail.len());
        let (unit, tail) = tail.split_at(letters);
        let number: u64 = number
            .parse()
            .map_err(|_| syntax("expected a whole number, then ns, us, ms, s, m, h or d".into()))?;
        let nanos: u128 = match unit.trim() {
            "ns" => 1,
            "us" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" | "min" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "d" => 86_400_000_000_000,
            "" => return Err(syntax(format!("{number} of what? add ns, us, ms, s, m, h or d"))),
            other => {
                return Err(syntax(format!(
                    "unknown unit \"{other}\"; use ns, us, ms, s, m, h, d"
                )));
            }
        };
        total += u128::from(number) * nanos;
        rest = tail;
    }
    let nanos = u64::try_from(total).map_err(|_| syntax("longer than 584 years".into()))?;
    Ok(Duration::from_nanos(nanos))
}

/// Tumbling windows in the event time's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tumbling {
    /// Length of a window, above 0.
    size: i64,
    /// Start of one window, `0 <= offset < size`.
    offset: i64,
    /// Least and largest time that the time column's type can hold: window bounds are of its type.
    limits: (i64, i64),
}

impl Tumbling {
    pub(crate) fn new(
        size: Duration,
        offset: Duration,
        unit: Unit,
        limits: (i64, i64),
    ) -> Result<Self, ConfigError> {
        let in_units = |what: &'static str, duration: Duration| {
            unit.exact(duration).ok_or_else(|| ConfigError::OutOfRange {
                what,
                found: format!("{duration:?}"),
                expected: format!("a whole number of {}, the unit of the time column", unit.name()),
            })
        };
        let size = in_units("window size", size)?;
        if size == 0 {
            return Err(ConfigError::OutOfRange {
                what: "window size",
                found: "0".into(),
                expected: "longer than 0".into(),
            });
        }
        let offset = in_units("window offset", offset)?.rem_euclid(size);
        Ok(Self { size, offset, limits })
    }

    /// Start of the window of time `time`: floor division, so that times before 1970 fall into the right
    /// window; `None` if the window does not lie within the range of times.
    #[inline(always)]
    pub(crate) fn start(self, time: i64) -> Option<i64> {
        // Both operands are in `0 .. size`, so that nothing overflows near the ends of time.
        let into = (time.rem_euclid(self.size) - self.offset).rem_euclid(self.size);
        let start = time.checked_sub(into)?;
        let end = start.checked_add(self.size)?;
        (self.limits.0 <= start && end <= self.limits.1).then_some(start)
    }

    /// End of the window that starts at `start`.
    #[inline(always)]
    pub(crate) fn end(self, start: i64) -> i64 {
        start + self.size
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn windows_partition_time(
            time in any::<i64>(), size in 1_i64..=i64::MAX / 4, offset in any::<u32>(),
        ) {
            let windows = Tumbling {
                size, offset: i64::from(offset).rem_euclid(size), limits: (i64::MIN, i64::MAX),
            };
            if let Some(start) = windows.start(time) {
                prop_assert!(start <= time && time < windows.end(start));
                prop_assert_eq!(windows.start(start), Some(start));
                prop_assert_eq!(windows.start(windows.end(start) - 1), Some(start));
                prop_assert_eq!((i128::from(start) - i128::from(windows.offset)).rem_euclid(i128::from(size)), 0);
            } else {
                prop_assert!(!(i64::MIN / 4..=i64::MAX / 4).contains(&time));
            }
        }
    }

    const ALL: (i64, i64) = (i64::MIN, i64::MAX);

    #[test]
    fn negative_times_fall_into_the_window_before() {
        let windows =
            Tumbling::new(Duration::from_secs(10), Duration::from_secs(3), Unit::Second, ALL)
                .unwrap();
        assert_eq!(windows.start(-1), Some(-7));
        assert_eq!(windows.start(2), Some(-7));
        assert_eq!(windows.start(3), Some(3));
        assert_eq!(windows.start(-8), Some(-17));
        assert_eq!(windows.start(i64::MIN), None);
        assert_eq!(windows.start(i64::MAX), None);
    }

    #[test]
    fn durations_are_read_and_bad_ones_explained() {
        assert_eq!(parse_duration("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
        for bad in ["", "5", "5x", "m", "-5s", "1e3s", "99999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn windows_not_built_yet_are_refused_by_name() {
        let error = Window::parse("session:10m").unwrap_err().to_string();
        assert!(error.contains("window session is not supported yet"), "{error}");
        assert!(Window::parse("tumbling:0s").is_err());
        assert!(Window::parse("tumbling").is_err());
        assert!(Window::parse("sliding:1m").is_err());
    }

    #[test]
    fn a_window_must_be_whole_units() {
        let error = Tumbling::new(Duration::from_millis(1500), Duration::ZERO, Unit::Second, ALL)
            .unwrap_err();
        assert!(error.to_string().contains("whole number of seconds"), "{error}");
        assert!(Tumbling::new(Duration::from_secs(3600), Duration::ZERO, Unit::Day, ALL).is_err());
    }
}
