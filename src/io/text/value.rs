//! Text to numbers and booleans: strict, exact, without allocation.
//!
//! A value either means exactly what its type can hold or is a fault; nothing is rounded to fit but
//! the binary floats, which are the nearest ones.

/// Why a text is no value of a type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Not of this type at all.
    NotOfType,
    /// Of this type, but too large for it.
    OutOfRange,
    /// More fraction digits than the type keeps.
    TooFine,
    /// Digits with a leading zero in a column taken for integers: perhaps a code.
    LeadingZero,
    /// A time with an offset from UTC in a column of times without a zone.
    Offset,
    /// Not UTF-8.
    NotUtf8,
    /// Null, where a value is needed.
    Null,
}

/// Without the blanks around it.
#[inline]
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    match text {
        [first, .., last] if *first > b' ' && *last > b' ' => text,
        _ => text.trim_ascii(),
    }
}

/// `true` or `false`, in any case.
pub(crate) fn boolean(text: &[u8]) -> Result<bool, Fault> {
    if text.eq_ignore_ascii_case(b"true") {
        Ok(true)
    } else if text.eq_ignore_ascii_case(b"false") {
        Ok(false)
    } else {
        Err(Fault::NotOfType)
    }
}

/// Whether a number is written with a leading zero that has no meaning, as codes are.
#[inline]
pub(crate) fn has_leading_zero(text: &[u8]) -> bool {
    let digits = match text {
        [b'-' | b'+', rest @ ..] => rest,
        _ => text,
    };
    matches!(digits, [b'0', b'0'..=b'9', ..])
}

/// A decimal integer with an optional sign.
#[inline]
pub(crate) fn int64(text: &[u8]) -> Result<i64, Fault> {
    let (negative, digits) = sign(text);
    if digits.is_empty() || digits.len() > 18 {
        let wide = int128(text)?;
        return i64::try_from(wide).map_err(|_| Fault::OutOfRange);
    }
    // 18 digits cannot overflow.
    let mut value = 0_i64;
    for &b in digits {
        let digit = b.wrapping_sub(b'0');
        if digit > 9 {
            return Err(Fault::NotOfType);
        }
        value = value * 10 + i64::from(digit);
    }
    Ok(if negative { -value } else { value })
}

/// A decimal integer of up to 38 digits.
pub(crate) fn int128(text: &[u8]) -> Result<i128, Fault> {
    let (negative, digits) = sign(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::NotOfType);
    }
    let significant = digits.iter().position(|&b| b != b'0').map_or(&[][..], |at| &digits[at..]);
    if significant.len() > 38 {
        return Err(Fault::OutOfRange);
    }
    let value = significant.iter().fold(0_i128, |v, b| v * 10 + i128::from(b - b'0'));
    Ok(if negative { -value } else { value })
}

#[inline]
fn sign(text: &[u8]) -> (bool, &[u8]) {
    match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    }
}

const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// The nearest float. `nan`, `inf` and `infinity` are floats, in any case, with a sign.
#[inline]
pub(crate) fn float64(text: &[u8]) -> Result<f64, Fault> {
    short_float(text).map_or_else(|| long_float(text), Ok)
}

/// Up to 15 digits with a point: a quotient of two floats that are exact, so rounded once.
#[inline]
fn short_float(text: &[u8]) -> Option<f64> {
    let (negative, digits) = sign(text);
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    let (mut mantissa, mut count, mut point) = (0_u64, 0_usize, None);
    for (i, &b) in digits.iter().enumerate() {
        let digit = b.wrapping_sub(b'0');
        if digit <= 9 {
            mantissa = mantissa * 10 + u64::from(digit);
            count += 1;
        } else if b == b'.' && point.is_none() {
            point = Some(i);
        } else {
            return None;
        }
    }
    if count == 0 || count > 15 {
        return None;
    }
    let after_point = point.map_or(0, |at| digits.len() - at - 1);
    #[expect(clippy::cast_precision_loss, reason = "15 digits are below 2^53, so exact")]
    let value = mantissa as f64 / POWERS[after_point];
    Some(if negative { -value } else { value })
}

#[cold]
fn long_float(text: &[u8]) -> Result<f64, Fault> {
    // The standard parser takes these words and decimal numbers, nothing else (no hex, no blanks).
    let text = std::str::from_utf8(text).map_err(|_| Fault::NotOfType)?;
    text.parse().map_err(|_| Fault::NotOfType)
}

/// A decimal number of `precision` digits, `scale` of them behind the point, as a scaled integer.
pub(crate) fn decimal(text: &[u8], precision: u8, scale: i8) -> Result<i128, Fault> {
    let (negative, digits) = sign(text);
    let at = digits.iter().position(|&b| b == b'.').unwrap_or(digits.len());
    let (whole, fraction) = (&digits[..at], digits.get(at + 1..).unwrap_or_default());
    let all_digits = whole.iter().chain(fraction).all(u8::is_ascii_digit);
    if whole.len() + fraction.len() == 0 || !all_digits {
        return Err(Fault::NotOfType);
    }
    let scale = usize::try_from(scale).unwrap_or(0);
    let (kept, dropped) = fraction.split_at(fraction.len().min(scale));
    if dropped.iter().any(|&b| b != b'0') {
        return Err(Fault::TooFine);
    }
    let zeros = std::iter::repeat_n(&b'0', scale - kept.len());
    let mut value = 0_i128;
    for b in whole.iter().chain(kept).chain(zeros) {
        let shifted = value.checked_mul(10).ok_or(Fault::OutOfRange)?;
        value = shifted.checked_add(i128::from(b - b'0')).ok_or(Fault::OutOfRange)?;
    }
    if value >= 10_i128.pow(u32::from(precision.min(38))) {
        return Err(Fault::OutOfRange);
    }
    Ok(if negative { -value } else { value })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn integers() {
        assert_eq!(int64(b"-42"), Ok(-42));
        assert_eq!(int64(b"+7"), Ok(7));
        assert_eq!(int64(b"9223372036854775807"), Ok(i64::MAX));
        assert_eq!(int64(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(int64(b"9223372036854775808"), Err(Fault::OutOfRange));
        assert_eq!(int64(b"0000000000000000000000042"), Ok(42));
        for bad in ["", "-", "1.0", "1e3", "0x1", "1 2", "--1", "1_000", "\u{664}"] {
            assert_eq!(int64(bad.as_bytes()), Err(Fault::NotOfType), "{bad:?}");
        }
        let max = "9".repeat(38);
        assert_eq!(int128(max.as_bytes()).unwrap().to_string(), max);
        assert_eq!(int128("9".repeat(39).as_bytes()), Err(Fault::OutOfRange));
    }

    #[test]
    #[expect(clippy::float_cmp, reason = "exact values are meant")]
    fn floats() {
        for text in ["0", "-0.0", "1.", ".5", "-12.25", "1e22", "1E-3", "0.1", "123456789012345.6"]
        {
            let expected: f64 = text.parse().unwrap();
            assert_eq!(float64(text.as_bytes()).unwrap(), expected);
            assert_eq!(float64(text.as_bytes()).unwrap().to_bits(), expected.to_bits());
        }
        assert!(float64(b"NaN").unwrap().is_nan());
        assert_eq!(float64(b"-Infinity"), Ok(f64::NEG_INFINITY));
        for bad in ["", ".", "-", "1.2.3", "0x10", "1,5", "e5"] {
            assert_eq!(float64(bad.as_bytes()), Err(Fault::NotOfType), "{bad:?}");
        }
    }

    #[test]
    fn decimals_are_exact_or_refused() {
        assert_eq!(decimal(b"12.3", 38, 2), Ok(1230));
        assert_eq!(decimal(b"-.5", 5, 1), Ok(-5));
        assert_eq!(decimal(b"1.230", 5, 2), Ok(123));
        assert_eq!(decimal(b"1.231", 5, 2), Err(Fault::TooFine));
        assert_eq!(decimal(b"1000", 5, 2), Err(Fault::OutOfRange));
        assert_eq!(decimal("9".repeat(40).as_bytes(), 38, 0), Err(Fault::OutOfRange));
        assert_eq!(decimal(b"", 5, 2), Err(Fault::NotOfType));
        assert_eq!(decimal(b"1e3", 5, 2), Err(Fault::NotOfType));
    }

    #[test]
    fn codes_are_noticed() {
        assert!(has_leading_zero(b"007") && has_leading_zero(b"-01") && has_leading_zero(b"00.5"));
        assert!(!has_leading_zero(b"0") && !has_leading_zero(b"0.5") && !has_leading_zero(b"10"));
    }

    proptest! {
        #[test]
        fn floats_equal_the_standard_parser(text in "[-+]?[0-9]{0,17}(\\.[0-9]{0,9})?(e-?[0-9]{1,3})?") {
            let ours = float64(text.as_bytes()).map(f64::to_bits).ok();
            prop_assert_eq!(ours, text.parse::<f64>().map(f64::to_bits).ok());
        }

        #[test]
        fn integers_equal_the_standard_parser(text in "[-+]?[0-9]{0,20}x?") {
            prop_assert_eq!(int64(text.as_bytes()).ok(), text.parse::<i64>().ok());
        }
    }
}
