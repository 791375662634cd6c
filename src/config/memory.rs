//! How much memory the engine may take.

use std::path::PathBuf;

use crate::error::ConfigError;

/// A limit on memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct MemoryLimit {
    pub(crate) bytes: u64,
    /// Where state goes that does not fit.
    pub(crate) spill_dir: PathBuf,
}

/// Understands sizes of memory like `512MB`, `2GB`, `1.5GiB`, `64 KiB`, `1000000` (bytes): units of a thousand with B,
/// of 1,024 with iB, in any case.
///
/// # Errors
/// If the text is something else, or more than there can be.
pub fn parse_bytes(text: &str) -> Result<u64, ConfigError> {
    let wrong = |why: &str| ConfigError::Syntax {
        what: "size of memory",
        text: text.to_owned(),
        why: why.to_owned(),
    };
    let plain = text.trim().replace('_', "");
    let end = plain.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(plain.len());
    let (number, unit) = (&plain[..end], plain[end..].trim().to_lowercase());
    let unit: u64 = match unit.as_str() {
        "" | "b" => 1,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        "tb" => 1_000_000_000_000,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "tib" => 1 << 40,
        _ => {
            return Err(wrong(
                "expected a number with KB, MB, GB, TB, KiB, MiB, GiB or TiB, as in 2GB",
            ));
        }
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let is_number = !whole.is_empty() && fraction.bytes().all(|b| b.is_ascii_digit());
    if !is_number || fraction.len() > 9 {
        return Err(wrong("expected a number before the unit, as in 512MB or 1.5GiB"));
    }
    let too_much = || wrong("that is more than there can be");
    let whole =
        whole.parse::<u64>().map_err(|_| too_much())?.checked_mul(unit).ok_or_else(too_much)?;
    let scale = 10_u128.pow(u32::try_from(fraction.len()).unwrap_or(0));
    let part = u128::from(fraction.parse::<u64>().unwrap_or(0)) * u128::from(unit) / scale;
    whole.checked_add(u64::try_from(part).map_err(|_| too_much())?).ok_or_else(too_much)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_memory() {
        for (text, bytes) in [
            ("1", 1),
            ("1_000", 1_000),
            ("12 B", 12),
            ("512MB", 512_000_000),
            ("2gb", 2_000_000_000),
            ("1GiB", 1 << 30),
            ("1.5GiB", 3 << 29),
            ("0.25 KiB", 256),
            ("64KiB", 65_536),
            ("1TB", 1_000_000_000_000),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(parse_bytes(text).unwrap(), bytes, "{text}");
        }
        for text in [
            "",
            "GB",
            "2G",
            "-1GB",
            "1e9",
            "1.2.3GB",
            ".5GB",
            "2 G B",
            "20000000TB",
            "18446744073709551616",
            "1.0000000001GB",
        ] {
            let error = parse_bytes(text).unwrap_err().to_string();
            assert!(error.starts_with("cannot understand size of memory"), "{error}");
        }
    }
}
