//! Reductions of whole columns, and of the rows of a mask.
//!
//! Plain loops without lanes of their own: given an array of partial results, the compiler may vectorize
//! across blocks instead of within them, and then gathers every value one by one.

use super::Kernel;
use super::select::LANES;

/// Least and largest of the values; `None` if there are none.
#[derive(Debug)]
pub(crate) struct MinMax<'a>(pub(crate) &'a [i64]);

impl Kernel for MinMax<'_> {
    type Output = Option<(i64, i64)>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let first = *self.0.first()?;
        let (mut min, mut max) = (first, first);
        for &value in self.0 {
            min = min.min(value);
            max = max.max(value);
        }
        Some((min, max))
    }
}

/// What [`MaskedReduce`] finds. Without any row `min` is above `max`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reduced {
    pub(crate) sum: i128,
    pub(crate) min: i64,
    pub(crate) max: i64,
}

impl Reduced {
    /// Of no rows.
    pub(crate) const NONE: Self = Self { sum: 0, min: i64::MAX, max: i64::MIN };

    #[inline(always)]
    fn add(&mut self, value: i64) {
        self.sum += i128::from(value);
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }
}

/// A 64-bit integer, and how it becomes a signed one in the same order.
pub(crate) trait Word: Copy {
    /// The bits to flip: for unsigned numbers the sign bit, which makes them 2^63 less.
    const FLIP: i64;
    /// The bits, flipped.
    fn signed(self) -> i64;
}

impl Word for i64 {
    const FLIP: i64 = 0;

    #[inline(always)]
    fn signed(self) -> i64 {
        self
    }
}

impl Word for u64 {
    const FLIP: i64 = i64::MIN;

    #[inline(always)]
    fn signed(self) -> i64 {
        self.cast_signed() ^ Self::FLIP
    }
}

/// Sum, least and largest of the values whose bit is set in `mask` (see [`select`](super::select)), each
/// made signed first.
#[derive(Debug)]
pub(crate) struct MaskedReduce<'a, W> {
    pub(crate) values: &'a [W],
    pub(crate) mask: &'a [u64],
}

impl<'a, W: Word> MaskedReduce<'a, W> {
    /// Whole blocks, one word of the mask each; after them come values that do not fill one.
    #[inline(always)]
    fn blocks(&self) -> &'a [[W; LANES]] {
        assert_eq!(self.mask.len(), self.values.len().div_ceil(LANES), "one bit for each value");
        self.values.as_chunks::<LANES>().0
    }

    /// Adds the values that do not fill a block.
    #[inline(always)]
    fn add_rest(&self, mut reduced: Reduced) -> Reduced {
        let (blocks, rest) = self.values.as_chunks::<LANES>();
        for (bit, value) in rest.iter().enumerate() {
            if self.mask[blocks.len()] >> bit & 1 == 1 {
                reduced.add(value.signed());
            }
        }
        reduced
    }
}

impl<W: Word> Kernel for MaskedReduce<'_, W> {
    type Output = Reduced;

    #[inline(always)]
    fn run(self) -> Reduced {
        let (mut low, mut high) = (0_u64, 0_i64);
        let mut reduced = Reduced::NONE;
        for (block, word) in self.blocks().iter().zip(self.mask) {
            for (lane, value) in block.iter().enumerate() {
                let value = value.signed();
                let chosen = word >> lane & 1 == 1;
                let summand = if chosen { value } else { 0 };
                // Halves apart: neither sum can overflow for fewer than 2^31 values.
                low += summand.cast_unsigned() & 0xffff_ffff;
                high += summand >> 32;
                reduced.min = reduced.min.min(if chosen { value } else { i64::MAX });
                reduced.max = reduced.max.max(if chosen { value } else { i64::MIN });
            }
        }
        reduced.sum = (i128::from(high) << 32) + i128::from(low);
        self.add_rest(reduced)
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx2(self, isa: super::x86_64::Avx2) -> Reduced {
        self.add_rest(isa.masked_reduce(self.blocks(), self.mask))
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx512(self, isa: super::x86_64::Avx512) -> Reduced {
        self.add_rest(isa.masked_reduce(self.blocks(), self.mask))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::Isa;

    fn extreme() -> impl Strategy<Value = i64> {
        prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX), -3_i64..3]
    }

    proptest! {
        #[test]
        fn every_isa_finds_the_extremes(values in proptest::collection::vec(any::<i64>(), 0..100)) {
            let expected = values.iter().min().copied().zip(values.iter().max().copied());
            for isa in Isa::available() {
                prop_assert_eq!(isa.run(MinMax(&values)), expected, "{}", isa);
            }
        }

        #[test]
        fn every_isa_reduces_the_rows_of_a_mask(
            values in proptest::collection::vec(extreme(), 0..300),
            words in proptest::collection::vec(
                prop_oneof![Just(0), Just(u64::MAX), any::<u64>()], 5,
            ),
        ) {
            let mask = &words[..values.len().div_ceil(LANES)];
            let unsigned = values.iter().map(|value| value.cast_unsigned()).collect::<Vec<_>>();
            let (mut expected, mut expected_unsigned) = (Reduced::NONE, Reduced::NONE);
            for (row, value) in values.iter().enumerate() {
                if mask[row / LANES] >> (row % LANES) & 1 == 1 {
                    expected.add(*value);
                    expected_unsigned.add(unsigned[row].signed());
                }
            }
            for isa in Isa::available() {
                let found = isa.run(MaskedReduce { values: &values, mask });
                prop_assert_eq!(found, expected, "{}", isa);
                let found = isa.run(MaskedReduce { values: &unsigned, mask });
                prop_assert_eq!(found, expected_unsigned, "unsigned, {}", isa);
            }
        }
    }
}
