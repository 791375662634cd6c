//! Integers of 4,608 bits, two's complement, by the methods of the schoolroom: wide enough for an exact
//! sum of products of any two floats (2^2048 down to 2^-2148) with 400 bits to spare.

use std::cmp::Ordering;

use arrow::datatypes::i256;

const LIMBS: usize = 72;

/// An integer, least significant limb first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Big([u64; LIMBS]);

impl Default for Big {
    fn default() -> Self {
        Self([0; LIMBS])
    }
}

impl Big {
    fn extended(low: &[u64], negative: bool) -> Self {
        let mut limbs = [if negative { u64::MAX } else { 0 }; LIMBS];
        limbs[..low.len()].copy_from_slice(low);
        Self(limbs)
    }

    pub(crate) fn from_i128(value: i128) -> Self {
        let bits = value.cast_unsigned();
        Self::extended(&[low_half(bits), low_half(bits >> 64)], value < 0)
    }

    pub(crate) fn from_i256(value: i256) -> Self {
        let bytes = value.to_le_bytes();
        let low = bytes
            .chunks_exact(8)
            .map(|limb| u64::from_le_bytes(limb.try_into().expect("8 bytes")))
            .collect::<Vec<_>>();
        Self::extended(&low, value < i256::ZERO)
    }

    /// The value, which must fit.
    pub(crate) fn to_i256(self) -> i256 {
        let mut bytes = [0; 32];
        for (place, limb) in bytes.chunks_exact_mut(8).zip(self.0) {
            place.copy_from_slice(&limb.to_le_bytes());
        }
        let value = i256::from_le_bytes(bytes);
        assert_eq!(Self::from_i256(value), self, "it fits 256 bits");
        value
    }

    pub(crate) fn add(self, other: Self) -> Self {
        let mut sum = Self::default();
        let mut carry = 0_u128;
        for (i, (a, b)) in self.0.into_iter().zip(other.0).enumerate() {
            let limb = u128::from(a) + u128::from(b) + carry;
            sum.0[i] = low_half(limb);
            carry = limb >> 64;
        }
        sum
    }

    pub(crate) fn neg(self) -> Self {
        Self(self.0.map(|limb| !limb)).add(Self::from_i128(1))
    }

    pub(crate) fn is_negative(self) -> bool {
        self.0[LIMBS - 1] >> 63 == 1
    }

    pub(crate) fn abs(self) -> Self {
        if self.is_negative() { self.neg() } else { self }
    }

    pub(crate) fn bit(self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    /// Bits up to the highest one that is set; for values that are not negative.
    pub(crate) fn bit_len(self) -> usize {
        let limb = self.0.iter().rposition(|limb| *limb != 0);
        limb.map_or(0, |i| i * 64 + self.0[i].ilog2() as usize + 1)
    }

    pub(crate) fn shl(self, bits: usize) -> Self {
        let mut shifted = self;
        for i in (0..LIMBS).rev() {
            let limb = |i: Option<usize>| i.map_or(0, |i| self.0[i]);
            let high = limb(i.checked_sub(bits / 64));
            let low = limb(i.checked_sub(bits / 64 + 1));
            let wide = (u128::from(high) << 64) | u128::from(low);
            shifted.0[i] = low_half((wide << (bits % 64)) >> 64);
        }
        shifted
    }

    /// For values that are not negative.
    pub(crate) fn times(self, factor: u64) -> Self {
        let mut product = Self::default();
        let mut carry = 0_u128;
        for (i, limb) in self.0.into_iter().enumerate() {
            let wide = u128::from(limb) * u128::from(factor) + carry;
            product.0[i] = low_half(wide);
            carry = wide >> 64;
        }
        product
    }

    /// The product, which must fit.
    pub(crate) fn product(self, other: Self) -> Self {
        let (a, b) = (self.abs(), other.abs());
        assert!(a.bit_len() + b.bit_len() < LIMBS * 64, "the product fits");
        let mut product = Self::default();
        for (i, limb) in b.0.into_iter().enumerate().filter(|(_, limb)| *limb != 0) {
            product = product.add(a.times(limb).shl(i * 64));
        }
        if self.is_negative() == other.is_negative() { product } else { product.neg() }
    }

    /// Quotient and remainder; for values that are not negative.
    pub(crate) fn div_rem(self, divisor: u64) -> (Self, u64) {
        let mut quotient = Self::default();
        let mut rest = 0_u128;
        for i in (0..LIMBS).rev() {
            let wide = (rest << 64) | u128::from(self.0[i]);
            quotient.0[i] = low_half(wide / u128::from(divisor));
            rest = wide % u128::from(divisor);
        }
        (quotient, low_half(rest))
    }

    pub(crate) fn power_of_ten(exponent: u32) -> Self {
        (0..exponent).fold(Self::from_i128(1), |power, _| power.times(10))
    }

    /// The finite float nearest to `self / (divisor * 2^scale)`, ties to even; infinity beyond.
    pub(crate) fn ratio_to_f64(self, divisor: u64, scale: usize) -> f64 {
        if self == Self::default() {
            return 0.0;
        }
        let (quotient, rest) = self.abs().shl(64).div_rem(divisor);
        let scale = i64::try_from(scale + 64).expect("small");
        let len = i64::try_from(quotient.bit_len()).expect("small");
        // Exponent of the last bit of the float, and where it stands in the quotient.
        let last = (len - 1 - scale - 52).max(-1074);
        let drop = last + scale;
        let mut fraction = 0_u64;
        for i in (0..64).rev().filter(|i| *i + drop >= 0) {
            fraction = fraction << 1 | u64::from(quotient.bit(usize::try_from(i + drop).unwrap()));
        }
        if drop < 0 {
            fraction <<= -drop;
        }
        let at = |i: i64| i >= 0 && quotient.bit(usize::try_from(i).unwrap());
        let half = at(drop - 1);
        let below = rest > 0 || (0..drop - 1).any(at);
        if half && (below || fraction & 1 == 1) {
            fraction += 1;
        }
        // The fraction's bit 52, if set, adds one to the exponent, which is what the format wants.
        let bits = (u64::try_from(last + 1074).unwrap() << 52) + fraction;
        let magnitude = f64::from_bits(bits.min(f64::INFINITY.to_bits()));
        if self.is_negative() { -magnitude } else { magnitude }
    }
}

impl PartialOrd for Big {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Big {
    fn cmp(&self, other: &Self) -> Ordering {
        let key = |big: &Self| (!big.is_negative(), big.0.into_iter().rev().collect::<Vec<_>>());
        key(self).cmp(&key(other))
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is wanted")]
fn low_half(wide: u128) -> u64 {
    wide as u64
}
