//! Windows as texts.

use std::time::Duration;

use super::{CalendarUnit, Window, Zone, parse_duration};
use crate::error::ConfigError;

/// What can be written.
const EXPECTED: &str = "expected none, tumbling:SIZE[@ZONE], hopping:SIZE/SLIDE, cumulate:STEP/MAX, \
                        session:GAP or processing:SIZE, for example tumbling:1m";

impl Window {
    /// Reads `none`, `tumbling:SIZE`, `hopping:SIZE/SLIDE`, `cumulate:STEP/MAX`, `session:GAP`,
    /// `processing:SIZE`.
    ///
    /// Tumbling windows of calendar days, weeks and months are `tumbling:1d@ZONE`, `tumbling:1w[@ZONE]`
    /// and `tumbling:1mo[@ZONE]`, in multiples as well, where `ZONE` is a name of the IANA time zone database
    /// and UTC if it is left out. `tumbling:1d` without a zone is a window of 24 hours.
    ///
    /// # Errors
    /// If the text is something else; says what was expected.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "none" if rest.is_empty() => Ok(Self::None),
            "tumbling" => match calendar(text, rest)? {
                Some(window) => Ok(window),
                None => Ok(Self::tumbling(length(text, rest)?)),
            },
            "hopping" => {
                let example = "expected hopping:SIZE/SLIDE, for example hopping:1h/15m";
                two(text, rest, example).map(|(size, slide)| Self::hopping(size, slide))
            }
            "cumulate" => {
                let example = "expected cumulate:STEP/MAX, for example cumulate:1h/1d";
                let (step, max) = two(text, rest, example)?;
                if !max.as_nanos().is_multiple_of(step.as_nanos()) {
                    return Err(syntax(text, "MAX must be a whole number of STEPs"));
                }
                Ok(Self::cumulate(step, max))
            }
            "processing" => Ok(Self::ProcessingTime { size: length(text, rest)? }),
            "session" => Ok(Self::Session { gap: length(text, rest)? }),
            _ => Err(syntax(text, EXPECTED)),
        }
    }
}

fn syntax(text: &str, why: &str) -> ConfigError {
    ConfigError::Syntax { what: "window", text: text.to_owned(), why: why.to_owned() }
}

fn length(text: &str, length: &str) -> Result<Duration, ConfigError> {
    match parse_duration(length)? {
        Duration::ZERO => Err(syntax(text, "a window must be longer than 0")),
        length => Ok(length),
    }
}

fn two(text: &str, rest: &str, expected: &str) -> Result<(Duration, Duration), ConfigError> {
    let (first, second) = rest.split_once('/').ok_or_else(|| syntax(text, expected))?;
    Ok((length(text, first)?, length(text, second)?))
}

/// Calendar windows; `None` if the size is a length of time.
fn calendar(text: &str, size: &str) -> Result<Option<Window>, ConfigError> {
    let (size, zone) = match size.split_once('@') {
        Some((size, zone)) => (size, Some(zone)),
        None => (size, None),
    };
    let size = size.trim();
    let digits = size.find(|c: char| !c.is_ascii_digit()).unwrap_or(size.len());
    let unit = match &size[digits..] {
        // Without a zone a day is 24 hours.
        "d" if zone.is_some() => CalendarUnit::Day,
        "w" => CalendarUnit::Week,
        "mo" => CalendarUnit::Month,
        _ if zone.is_none() => return Ok(None),
        _ => {
            return Err(syntax(
                text,
                "windows in a time zone are of days, weeks or months, for example \
                 tumbling:1d@Europe/Berlin, 1w or 1mo; shorter ones need no zone",
            ));
        }
    };
    let count = size[..digits].parse::<u32>().ok().filter(|count| *count <= 100_000);
    let count =
        count.ok_or_else(|| syntax(text, "expected a number of up to 100000 before the unit"))?;
    if count == 0 {
        return Err(syntax(text, "a window must be longer than 0"));
    }
    let zone = zone.map_or(Ok(Zone::UTC), Zone::parse)?;
    Ok(Some(Window::Calendar { unit, count, zone }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_read() {
        let (minute, hour) = (Duration::from_secs(60), Duration::from_secs(3600));
        assert_eq!(Window::parse("hopping:1h/1m").unwrap(), Window::hopping(hour, minute));
        assert_eq!(Window::parse("cumulate:1m/1h").unwrap(), Window::cumulate(minute, hour));
        assert_eq!(Window::parse("session:1h").unwrap(), Window::Session { gap: hour });
        assert_eq!(Window::parse("tumbling:1d").unwrap(), Window::tumbling(24 * hour));
        let calendar = |unit, count, zone| Window::Calendar { unit, count, zone };
        let berlin = Zone::parse("Europe/Berlin").unwrap();
        for (text, window) in [
            ("tumbling:1d@Europe/Berlin", calendar(CalendarUnit::Day, 1, berlin)),
            ("tumbling:2w@Europe/Berlin", calendar(CalendarUnit::Week, 2, berlin)),
            ("tumbling:1w", calendar(CalendarUnit::Week, 1, Zone::UTC)),
            ("tumbling:3mo", calendar(CalendarUnit::Month, 3, Zone::UTC)),
        ] {
            assert_eq!(Window::parse(text).unwrap(), window, "{text}");
        }
    }

    #[test]
    fn bad_windows_are_explained() {
        for (text, word) in [
            ("tumbling:0s", "longer than 0"),
            ("tumbling:0mo", "longer than 0"),
            ("tumbling", "it is empty"),
            ("sliding:1m", "hopping:SIZE/SLIDE"),
            ("hopping:1h", "hopping:1h/15m"),
            ("hopping:0s/1m", "longer than 0"),
            ("hopping:1m/0s", "longer than 0"),
            ("cumulate:7m/1h", "whole number of STEPs"),
            ("cumulate:1h", "cumulate:1h/1d"),
            ("tumbling:12h@Europe/Berlin", "days, weeks or months"),
            ("tumbling:1mo1d", "unknown unit"),
            ("tumbling:mo", "a number"),
            ("tumbling:1d@Europe/Berln", "is it Europe/Berlin?"),
            ("tumbling:1d@", "IANA"),
            ("session:0s", "longer than 0"),
            ("processing:0s", "longer than 0"),
        ] {
            let error = Window::parse(text).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
