//! Lengths of time as texts.

use std::time::Duration;

use crate::error::ConfigError;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_and_bad_ones_explained() {
        assert_eq!(parse_duration("1h30m").unwrap(), Duration::from_secs(5400));
        assert_eq!(parse_duration("500ms").unwrap(), Duration::from_millis(500));
        assert_eq!(parse_duration("0").unwrap(), Duration::ZERO);
        for bad in ["", "5", "5x", "m", "-5s", "1e3s", "99999999999999d"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }
}
