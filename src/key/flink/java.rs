//! Java's `hashCode` of the types that serve as keys of `DataStream` jobs, from the Java documentation of
//! each class.

use crate::kernel::Kernel;

/// Bytes of text that are hashed side by side.
const LANES: usize = 16;

/// Powers of 31: what the last, the last but one, .. of [`LANES`] characters count for, last first.
const POWERS: [u32; LANES + 1] = {
    let mut powers = [1_u32; LANES + 1];
    let mut i = 1;
    while i <= LANES {
        powers[i] = powers[i - 1].wrapping_mul(31);
        i += 1;
    }
    powers
};

/// `Long.hashCode`.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "as in Java")]
pub fn long_hash(value: i64) -> i32 {
    (value ^ (value >> 32)) as i32
}

/// `Double.hashCode`: all NaN are alike, the two zeros are not.
#[expect(clippy::cast_possible_wrap, reason = "bits, as in Java")]
pub fn double_hash(value: f64) -> i32 {
    let bits = if value.is_nan() { 0x7ff8_0000_0000_0000 } else { value.to_bits() };
    long_hash(bits as i64)
}

/// `Float.hashCode`: all NaN are alike, the two zeros are not.
#[expect(clippy::cast_possible_wrap, reason = "bits, as in Java")]
pub fn float_hash(value: f32) -> i32 {
    let bits = if value.is_nan() { 0x7fc0_0000 } else { value.to_bits() };
    bits as i32
}

/// `Boolean.hashCode`.
pub fn boolean_hash(value: bool) -> i32 {
    if value { 1231 } else { 1237 }
}

/// `String.hashCode`: over UTF-16 units.
pub fn string_hash(text: &str) -> i32 {
    if text.is_ascii() {
        return ascii_hash(text.as_bytes());
    }
    utf16_hash(text.encode_utf16())
}

#[expect(clippy::cast_possible_wrap, reason = "bits, as in Java")]
fn utf16_hash(units: impl Iterator<Item = u16>) -> i32 {
    units.fold(0_u32, |hash, unit| hash.wrapping_mul(31).wrapping_add(u32::from(unit))) as i32
}

/// The same for text of 7-bit characters, whose bytes are its UTF-16 units. Blocks of characters are
/// weighted with their powers of 31 side by side, which the compiler vectorizes.
#[inline(always)]
#[expect(clippy::cast_possible_wrap, reason = "bits, as in Java")]
pub(super) fn ascii_hash(text: &[u8]) -> i32 {
    let (head, blocks) = text.as_rchunks::<LANES>();
    let mut hash =
        head.iter().fold(0_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(*byte)));
    for block in blocks {
        let mut sum = 0_u32;
        for lane in 0..LANES {
            let weight = POWERS[LANES - 1 - lane];
            sum = sum.wrapping_add(u32::from(block[lane]).wrapping_mul(weight));
        }
        hash = hash.wrapping_mul(POWERS[LANES]).wrapping_add(sum);
    }
    hash as i32
}

/// `LocalDate.hashCode` of a day since 1970-01-01.
#[expect(clippy::cast_possible_truncation, reason = "years, months, days")]
pub fn local_date_hash(day: i32) -> i32 {
    let (year, month, day) = civil_date(i64::from(day));
    let year = year as i32;
    (year & !0x7ff) ^ ((year << 11).wrapping_add((month << 6) as i32).wrapping_add(day as i32))
}

/// Year, month and day of a day since 1970-01-01 in the Gregorian calendar, counted in eras of 400 years
/// that begin in March (Hinnant, "chrono-compatible low-level date algorithms").
fn civil_date(day: i64) -> (i64, i64, i64) {
    let day = day + 719_468;
    let era = day.div_euclid(146_097);
    let of_era = day.rem_euclid(146_097);
    let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

/// `Instant.hashCode`.
#[expect(clippy::cast_possible_wrap, reason = "below 10^9")]
pub fn instant_hash(seconds: i64, nanos: u32) -> i32 {
    long_hash(seconds).wrapping_add(51_i32.wrapping_mul(nanos as i32))
}

/// `UUID.hashCode`.
#[expect(clippy::cast_possible_truncation, reason = "halves")]
#[expect(clippy::cast_possible_wrap, reason = "bits, as in Java")]
pub fn uuid_hash(uuid: u128) -> i32 {
    let both = (uuid >> 64) as u64 ^ uuid as u64;
    ((both >> 32) as u32 ^ both as u32) as i32
}

/// `BigDecimal.hashCode`.
#[expect(clippy::cast_possible_truncation, reason = "words of the magnitude")]
#[expect(clippy::cast_possible_wrap, reason = "bits, as in Java")]
pub fn decimal_hash(unscaled: i128, scale: i32) -> i32 {
    let magnitude = unscaled.unsigned_abs();
    let words = (0..4).rev().map(|i| (magnitude >> (32 * i)) as u32);
    let hash = words
        .skip_while(|word| *word == 0)
        .fold(0_u32, |hash, word| hash.wrapping_mul(31).wrapping_add(word));
    let hash = if unscaled < 0 { (hash as i32).wrapping_neg() } else { hash as i32 };
    hash.wrapping_mul(31).wrapping_add(scale)
}

/// `hashCode` of Flink's `Tuple1` to `Tuple25` from those of their fields.
pub fn tuple_hash(fields: impl IntoIterator<Item = i32>) -> i32 {
    fields.into_iter().fold(0, |hash: i32, field| hash.wrapping_mul(31).wrapping_add(field))
}

/// `hashCode` of Flink's `Row` (of kind insert, fields by position) from those of its fields.
pub fn row_hash(fields: impl IntoIterator<Item = i32>) -> i32 {
    fields
        .into_iter()
        .fold(1, |hash: i32, field| hash.wrapping_mul(31).wrapping_add(31_i32.wrapping_add(field)))
}

/// Hash codes of a column of longs.
#[derive(Debug)]
pub(super) struct LongHashes<'a> {
    pub(super) values: &'a [i64],
    pub(super) hashes: &'a mut [i32],
}

impl Kernel for LongHashes<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (hash, value) in self.hashes.iter_mut().zip(self.values) {
            *hash = long_hash(*value);
        }
    }
}

/// Hash codes of a column of text of 7-bit characters.
#[derive(Debug)]
pub(super) struct AsciiHashes<'a> {
    pub(super) text: &'a [u8],
    pub(super) offsets: &'a [i32],
    pub(super) hashes: &'a mut [i32],
}

impl Kernel for AsciiHashes<'_> {
    type Output = ();

    #[inline(always)]
    #[expect(clippy::cast_sign_loss, reason = "offsets of Arrow are not negative")]
    fn run(self) {
        for (hash, ends) in self.hashes.iter_mut().zip(self.offsets.windows(2)) {
            *hash = ascii_hash(&self.text[ends[0] as usize..ends[1] as usize]);
        }
    }
}
