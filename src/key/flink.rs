//! Apache Flink's assignment of keys to key groups and subtasks, to predict what a Flink job will do.
//!
//! A `DataStream` job hashes the key object with Java's `hashCode` ([`java`]); a SQL job hashes the bytes
//! of the key as a binary row ([`row`]). Either hash is scrambled by [`murmur_hash`] and taken modulo the
//! number of key groups, and groups belong to subtasks by the arithmetic of [`group`](super::group), which
//! is the same in both systems. [`columns`] does all of it for columns of keys.
//!
//! **Invariant:** equal to what Flink itself computes; the tests hold it against tables that Flink made.
//!
//! **Cost:** integers, and text of 7-bit characters, go through vectorized kernels: a few nanoseconds a key.

pub mod java;
pub mod row;
pub mod columns;
#[cfg(test)]
mod tests;

use crate::kernel::{Isa, Kernel};
use crate::key::group::MAX_PARALLELISM_LIMIT;

/// Flink's `MathUtils.bitMix`: the finalizer of `MurmurHash3`.
#[inline(always)]
#[expect(clippy::cast_sign_loss, clippy::cast_possible_wrap, reason = "bits, as in Java")]
pub fn bit_mix(hash: i32) -> i32 {
    let mut h = hash as u32;
    h = (h ^ (h >> 16)).wrapping_mul(0x85eb_ca6b);
    h = (h ^ (h >> 13)).wrapping_mul(0xc2b2_ae35);
    (h ^ (h >> 16)) as i32
}

/// Flink's `MathUtils.murmurHash` of a key's hash code: never negative.
#[inline(always)]
#[expect(clippy::cast_sign_loss, clippy::cast_possible_wrap, reason = "bits, as in Java")]
pub fn murmur_hash(hash: i32) -> i32 {
    let mut h = (hash as u32).wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    h = h.rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64);
    let mixed = bit_mix((h ^ 4) as i32);
    // The smallest number has no positive counterpart; Flink makes it 0.
    if mixed == i32::MIN { 0 } else { mixed.wrapping_abs() }
}

/// Flink's `MathUtils.jenkinsHash`: never negative.
#[expect(clippy::cast_sign_loss, clippy::cast_possible_wrap, reason = "bits, as in Java")]
pub fn jenkins_hash(hash: i32) -> i32 {
    let mut h = hash as u32;
    h = h.wrapping_add(0x7ed5_5d16).wrapping_add(h << 12);
    h = (h ^ 0xc761_c23c) ^ (h >> 19);
    h = h.wrapping_add(0x1656_67b1).wrapping_add(h << 5);
    h = h.wrapping_add(0xd3a2_646c) ^ (h << 9);
    h = h.wrapping_add(0xfd70_46c5).wrapping_add(h << 3);
    h = (h ^ 0xb55a_4f09) ^ (h >> 16);
    let signed = h as i32;
    if signed >= 0 { signed } else { -(signed.wrapping_add(1)) }
}

/// Key group of a key with this hash code.
///
/// # Panics
/// If `max_parallelism` is 0.
#[inline]
#[expect(clippy::cast_sign_loss, reason = "never negative")]
pub fn key_group(hash: i32, max_parallelism: u32) -> u16 {
    Reduce::new(max_parallelism).apply(murmur_hash(hash) as u32)
}

/// Flink's max parallelism for an operator that was given none: half as much again as its parallelism,
/// rounded up to a power of two, between 128 and 32,768.
pub fn default_max_parallelism(parallelism: u32) -> u32 {
    let wanted = parallelism.saturating_add(parallelism / 2);
    if wanted >= MAX_PARALLELISM_LIMIT {
        return MAX_PARALLELISM_LIMIT;
    }
    wanted.next_power_of_two().max(128)
}

/// Flink's "data skew" of the loads of an operator's subtasks: the mean distance from the mean, in percent of
/// the mean, at most 100.
pub fn data_skew_percent(loads: &[f64]) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "few subtasks")]
    let count = loads.len() as f64;
    let mean = loads.iter().sum::<f64>() / count;
    if loads.is_empty() || mean == 0.0 {
        return 0.0;
    }
    let distance = loads.iter().map(|load| (load - mean).abs()).sum::<f64>() / count;
    (distance / mean * 100.0).min(100.0)
}

/// Remainder of numbers below 2^31 by one divisor, by multiplication and shift (Granlund and Montgomery,
/// "Division by invariant integers using multiplication", 1994), which unlike division is vectorized.
#[derive(Debug, Clone, Copy)]
struct Reduce {
    divisor: u32,
    multiplier: u32,
    shift: u32,
}

impl Reduce {
    fn new(divisor: u32) -> Self {
        assert!(divisor > 0, "no key groups");
        let bits = divisor.next_power_of_two().trailing_zeros();
        let shift = 31 + bits;
        let multiplier = (1_u64 << shift).div_ceil(u64::from(divisor));
        let multiplier = u32::try_from(multiplier).expect("at most 2^32 / (divisor / 2^bits)");
        Self { divisor, multiplier, shift }
    }

    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "below the divisor <= 2^15")]
    fn apply(self, number: u32) -> u16 {
        let quotient = ((u64::from(number) * u64::from(self.multiplier)) >> self.shift) as u32;
        (number - quotient * self.divisor) as u16
    }
}

/// Scrambles hash codes in place; the results are never negative.
#[derive(Debug)]
struct Scramble<'a>(&'a mut [i32]);

impl Kernel for Scramble<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for hash in self.0 {
            *hash = murmur_hash(*hash);
        }
    }
}

/// Scrambled hash codes to key groups.
#[derive(Debug)]
struct Groups<'a> {
    scrambled: &'a [i32],
    by: Reduce,
    out: &'a mut [u16],
}

impl Kernel for Groups<'_> {
    type Output = ();

    #[inline(always)]
    #[expect(clippy::cast_sign_loss, reason = "never negative")]
    fn run(self) {
        for (group, hash) in self.out.iter_mut().zip(self.scrambled) {
            *group = self.by.apply(*hash as u32);
        }
    }
}

/// Scrambles hash codes: what is left of a key when only its key group is asked for.
pub(crate) fn scramble(isa: Isa, hashes: &mut [i32]) {
    isa.run(Scramble(hashes));
}

/// Key groups of scrambled hash codes.
pub(crate) fn groups(isa: Isa, scrambled: &[i32], max_parallelism: u32, out: &mut Vec<u16>) {
    out.clear();
    out.resize(scrambled.len(), 0);
    isa.run(Groups { scrambled, by: Reduce::new(max_parallelism), out });
}
