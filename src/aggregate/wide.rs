//! Integers of many 64-bit words, least significant first.
//!
//! What sums need and no more: signed (two's complement) addition in the hot path, and at emission
//! the magnitude, multiplication and division by one word, decimal text, and rounding to a float.
//! Widths are the caller's: every sum here is given so many bits that it cannot overflow.

use std::fmt::Write as _;

/// Adds the signed `from` to the signed `into` of the same width.
#[inline(always)]
pub(crate) fn add(into: &mut [u64], from: &[u64]) {
    debug_assert_eq!(into.len(), from.len(), "the same width");
    let mut carry = false;
    for (word, more) in into.iter_mut().zip(from) {
        (*word, carry) = word.carrying_add(*more, carry);
    }
}

/// Adds a signed number of `N` words to the signed, wider `into`.
#[inline(always)]
pub(crate) fn add_extended<const N: usize>(into: &mut [u64], from: [u64; N]) {
    let sign = sign_word(&from);
    let mut carry = false;
    for (i, word) in into.iter_mut().enumerate() {
        let more = if i < N { from[i] } else { sign };
        (*word, carry) = word.carrying_add(more, carry);
    }
}

/// All ones if `words` is negative, else zero: the word a signed number goes on with.
#[inline(always)]
pub(crate) fn sign_word(words: &[u64]) -> u64 {
    (words[words.len() - 1].cast_signed() >> 63).cast_unsigned()
}

/// The words of `value`.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "each word is meant")]
pub(crate) const fn split(value: i128) -> [u64; 2] {
    let bits = value.cast_unsigned();
    [bits as u64, (bits >> 64) as u64]
}

/// The number made of two words.
#[inline(always)]
pub(crate) const fn join(low: u64, high: u64) -> i128 {
    ((high as u128) << 64 | low as u128).cast_signed()
}

/// A number as sign and magnitude, at emission.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Magnitude {
    /// Whether the number is below zero.
    pub(crate) negative: bool,
    /// Its distance from zero.
    pub(crate) words: Vec<u64>,
}

impl Magnitude {
    /// Takes a signed number apart.
    pub(crate) fn of(words: &[u64]) -> Self {
        let mut words = words.to_vec();
        let negative = sign_word(&words) != 0;
        if negative {
            negate(&mut words);
        }
        Self { negative, words }
    }

    /// Adds words above, so that a product fits.
    pub(crate) fn widen(&mut self, more: usize) {
        self.words.resize(self.words.len() + more, 0);
    }

    /// Multiplies; the caller has widened enough.
    pub(crate) fn multiply(&mut self, by: u64) {
        let mut carry = 0;
        for word in &mut self.words {
            (*word, carry) = word.carrying_mul(by, carry);
        }
        assert_eq!(carry, 0, "the product fits the width it was given");
    }

    /// Divides and returns the remainder.
    pub(crate) fn divide(&mut self, by: u64) -> u64 {
        let by = u128::from(by);
        let mut remainder = 0;
        for word in self.words.iter_mut().rev() {
            let part = remainder << 64 | u128::from(*word);
            *word = low_word(part / by);
            remainder = part % by;
        }
        low_word(remainder)
    }

    /// Divides, half rounded away from zero.
    pub(crate) fn divide_rounded(&mut self, by: u64) {
        let remainder = self.divide(by);
        if remainder >= by - remainder {
            let mut carry = true;
            for word in &mut self.words {
                (*word, carry) = word.overflowing_add(u64::from(carry));
            }
            assert!(!carry, "a quotient is no wider than its dividend");
        }
    }

    /// Number of bits up to the highest one; 0 for zero.
    pub(crate) fn bits(&self) -> usize {
        let top = self.words.iter().rposition(|word| *word != 0);
        top.map_or(0, |i| 64 * (i + 1) - self.words[i].leading_zeros() as usize)
    }

    /// Whether it has at most `digits` decimal digits.
    pub(crate) fn fits_digits(&self, digits: usize) -> bool {
        // 10^digits has `digits * 3.32..` bits: compare only where the bits do not decide.
        let bits = self.bits();
        bits * 1000 <= digits * 3321 || self.digits().len() <= digits
    }

    /// The signed number in `N` words, sign-extended; it must fit.
    pub(crate) fn to_words<const N: usize>(&self) -> [u64; N] {
        assert!(self.bits() < 64 * N, "{} bits in {N} words", self.bits());
        let mut words = [0; N];
        for (word, from) in words.iter_mut().zip(&self.words) {
            *word = *from;
        }
        if self.negative {
            negate(&mut words);
        }
        words
    }

    /// Decimal digits without sign.
    fn digits(&self) -> String {
        const CHUNK: u64 = 10_u64.pow(19);
        let mut left = self.clone();
        let mut chunks = vec![left.divide(CHUNK)];
        while left.bits() > 0 {
            chunks.push(left.divide(CHUNK));
        }
        let mut text = chunks.pop().expect("at least one chunk").to_string();
        for chunk in chunks.iter().rev() {
            let _ = write!(text, "{chunk:019}");
        }
        text
    }

    /// As decimal text with `scale` digits after the point (negative: zeros before it).
    pub(crate) fn to_text(&self, scale: i8) -> String {
        let mut text = self.digits();
        let places = usize::from(scale.unsigned_abs());
        if scale > 0 {
            while text.len() <= places {
                text.insert(0, '0');
            }
            text.insert(text.len() - places, '.');
        } else if text != "0" {
            text.extend(std::iter::repeat_n('0', places));
        }
        if self.negative {
            text.insert(0, '-');
        }
        text
    }

    /// `self * 2^exponent`, rounded to the nearest float, ties to even.
    pub(crate) fn to_f64(&self, exponent: i32) -> f64 {
        self.round(exponent, false)
    }

    /// `self * 2^exponent / count`, rounded once to the nearest float, ties to even.
    pub(crate) fn mean_to_f64(&self, exponent: i32, count: u64) -> f64 {
        self.divided_to_f64(exponent, &[count])
    }

    /// `self * 2^exponent` divided by all of `by`, rounded once to the nearest float, ties to even.
    pub(crate) fn divided_to_f64(&self, exponent: i32, by: &[u64]) -> f64 {
        // A word more below than there are divisors: the quotient of a number that is not zero has at least
        // 64 bits then, and what a division leaves only says which side of a tie the quotient is on.
        let more = by.len() + 1;
        let mut words = vec![0; more];
        words.extend_from_slice(&self.words);
        let mut quotient = Self { negative: self.negative, words };
        let mut beyond = false;
        for by in by {
            beyond |= quotient.divide(*by) != 0;
        }
        let bits = i32::try_from(64 * more).expect("few divisors");
        quotient.round(exponent - bits, beyond)
    }

    /// The product.
    pub(crate) fn product(&self, other: &Self) -> Self {
        let mut words = vec![0_u64; self.words.len() + other.words.len()];
        for (i, a) in self.words.iter().enumerate() {
            let mut carry = 0;
            for (j, b) in other.words.iter().enumerate() {
                let sum =
                    u128::from(*a) * u128::from(*b) + u128::from(words[i + j]) + u128::from(carry);
                words[i + j] = low_word(sum);
                carry = low_word(sum >> 64);
            }
            words[i + other.words.len()] = carry;
        }
        Self { negative: self.negative != other.negative, words }
    }

    /// Multiplies with `2^bits`.
    pub(crate) fn shift_up(&mut self, bits: usize) {
        let (more, shift) = (bits / 64, bits % 64);
        let mut words = vec![0; more];
        let mut below = 0;
        for word in &self.words {
            words.push(if shift == 0 { *word } else { word << shift | below >> (64 - shift) });
            below = *word;
        }
        words.push(if shift == 0 { 0 } else { below >> (64 - shift) });
        self.words = words;
    }

    /// The difference.
    pub(crate) fn minus(mut self, mut other: Self) -> Self {
        // With a word more than either, the signed difference fits.
        let len = self.words.len().max(other.words.len()) + 1;
        other.negative = !other.negative;
        for number in [&mut self, &mut other] {
            number.words.resize(len, 0);
            if number.negative {
                negate(&mut number.words);
            }
        }
        add(&mut self.words, &other.words);
        Self::of(&self.words)
    }

    /// `beyond`: the true number is a little further from zero than `self`.
    fn round(&self, exponent: i32, beyond: bool) -> f64 {
        let bits = i32::try_from(self.bits()).expect("a few thousand bits");
        if bits == 0 {
            return 0.0;
        }
        // Exponent of the result's last bit: 53 bits below the highest, but no finer than a subnormal.
        let last = (exponent + bits - 53).max(-1074);
        if last > 971 {
            return if self.negative { f64::NEG_INFINITY } else { f64::INFINITY };
        }
        let drop = last - exponent;
        debug_assert!(drop > 0 || !beyond, "a quotient has more bits than a float");
        let significand = if drop <= 0 {
            self.words[0] << -drop
        } else {
            let drop = drop.unsigned_abs() as usize;
            let kept = self.bits_from(drop);
            let half = self.bits_from(drop - 1) & 1 == 1;
            let below = beyond || self.any_below(drop - 1);
            kept + u64::from(half && (below || kept & 1 == 1))
        };
        // Floats of one sign are numbered without gaps, so adding the significand to the exponent's
        // bits also carries right when rounding went up to the next power of two, or to infinity.
        let magnitude = (u64::from((last + 1074).unsigned_abs()) << 52) + significand;
        f64::from_bits(u64::from(self.negative) << 63 | magnitude)
    }

    /// 64 bits from bit `at` up.
    fn bits_from(&self, at: usize) -> u64 {
        let word = |i: usize| self.words.get(i).copied().unwrap_or(0);
        let pair = u128::from(word(at / 64 + 1)) << 64 | u128::from(word(at / 64));
        low_word(pair >> (at % 64))
    }

    /// Whether any bit below bit `at` is set.
    fn any_below(&self, at: usize) -> bool {
        let whole = (at / 64).min(self.words.len());
        let rest = self.words.get(whole).copied().unwrap_or(0);
        self.words[..whole].iter().any(|word| *word != 0) || rest & ((1 << (at % 64)) - 1) != 0
    }
}

fn negate(words: &mut [u64]) {
    let mut carry = true;
    for word in words {
        (*word, carry) = (!*word).overflowing_add(u64::from(carry));
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low word is meant")]
fn low_word(value: u128) -> u64 {
    value as u64
}

#[cfg(test)]
#[expect(clippy::float_cmp, reason = "results are right to the last bit")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn magnitude(value: i128) -> Magnitude {
        Magnitude::of(&split(value))
    }

    #[test]
    fn text_has_its_point() {
        assert_eq!(magnitude(0).to_text(0), "0");
        assert_eq!(magnitude(0).to_text(2), "0.00");
        assert_eq!(magnitude(-5).to_text(2), "-0.05");
        assert_eq!(magnitude(1234).to_text(2), "12.34");
        assert_eq!(magnitude(12).to_text(-3), "12000");
        assert_eq!(magnitude(i128::MIN).to_text(0), i128::MIN.to_string());
        let mut wide = magnitude(10_i128.pow(37));
        wide.widen(2);
        for _ in 0..3 {
            wide.multiply(10_u64.pow(13));
        }
        assert_eq!(wide.to_text(0), format!("1{}", "0".repeat(76)));
        assert!(!wide.fits_digits(76));
        assert!(wide.fits_digits(77));
        assert!(magnitude(10_i128.pow(38) - 1).fits_digits(38));
        assert!(!magnitude(10_i128.pow(38)).fits_digits(38));
    }

    #[test]
    fn rounding_at_the_edges() {
        let round = |value: i128, exponent| magnitude(value).to_f64(exponent);
        assert_eq!(round(1, -1074).to_bits(), 1);
        assert_eq!(round(1, -1075).to_bits(), 0, "a tie to even");
        assert_eq!(round(3, -1075).to_bits(), 2, "a tie to even");
        assert_eq!(round(3, -1076).to_bits(), 1);
        assert_eq!(
            round((1 << 53) - 1, -1075),
            f64::MIN_POSITIVE,
            "carries into the normal floats"
        );
        assert_eq!(round((1 << 53) - 1, 971), f64::MAX);
        assert_eq!(round((1 << 54) - 1, 970), f64::INFINITY);
        assert_eq!(round(-(1 << 55) + 3, 969), f64::MIN, "{}", f64::MIN);
        assert_eq!(round(-1, 1024), f64::NEG_INFINITY);
        assert_eq!(magnitude(1).mean_to_f64(0, 3), 1.0 / 3.0);
        assert_eq!(magnitude(-1).mean_to_f64(-1074, 2).to_bits(), 1 << 63, "-0, a tie to even");
        assert_eq!(magnitude(3).mean_to_f64(-1074, 2).to_bits(), 2);
    }

    proptest! {
        #[test]
        fn rounds_as_the_compiler_does(value: i128, shift in 0..127_u32) {
            let value = value >> shift;
            #[expect(clippy::cast_precision_loss, reason = "the rounding is the point")]
            let expected = value as f64;
            prop_assert_eq!(magnitude(value).to_f64(0), expected);
        }

        #[test]
        fn a_mean_of_small_numbers_is_a_division(value: i32, count in 1..u32::MAX) {
            // Both are exact floats, so the processor's quotient is the correctly rounded one.
            let mean = magnitude(value.into()).mean_to_f64(0, count.into());
            prop_assert_eq!(mean, f64::from(value) / f64::from(count));
        }

        #[test]
        fn arithmetic_agrees_with_i128(a: i64, b: i64, by in 1..u64::MAX) {
            let mut sum = [0; 3];
            add_extended(&mut sum, split(a.into()));
            add_extended(&mut sum, split(i128::from(b) << 32));
            let expected = i128::from(a) + (i128::from(b) << 32);
            prop_assert_eq!(Magnitude::of(&sum).to_text(0), expected.to_string());
            prop_assert_eq!(Magnitude::of(&sum).to_words::<2>(), split(expected));
            let mut product = magnitude(a.into());
            product.widen(1);
            product.multiply(by);
            prop_assert_eq!(product.to_text(0), (i128::from(a) * i128::from(by)).to_string());
            prop_assert_eq!(product.divide(by), 0);
            let remainder = product.divide(7);
            prop_assert_eq!(u128::from(remainder), i128::from(a).unsigned_abs() % 7);
        }
    }
}
