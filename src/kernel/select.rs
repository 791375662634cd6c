//! Selecting rows: bit masks of a column, and lists of row numbers from masks.
//!
//! A mask has one bit a row, 64 rows a word, the lowest bit first; bits beyond the last row are clear.

use super::Kernel;

/// Rows of a word of a mask.
pub(crate) const LANES: usize = 64;

/// The same as a row number.
const BITS: u32 = u64::BITS;

/// How [`CompareMask`] compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Compare {
    Equal,
    /// The value is at least the operand; both unsigned.
    AtLeast,
}

/// Sets in `mask` the bit of every row whose value compares to `operand`, and clears the others.
#[derive(Debug)]
pub(crate) struct CompareMask<'a> {
    pub(crate) values: &'a [u64],
    pub(crate) compare: Compare,
    pub(crate) operand: u64,
    pub(crate) mask: &'a mut [u64],
}

impl<'a> CompareMask<'a> {
    /// Writes the word of the values that do not fill a block; the rest is whole blocks with their words.
    #[inline(always)]
    fn split_rest(self) -> (&'a [[u64; LANES]], &'a mut [u64]) {
        let (blocks, rest) = self.values.as_chunks::<LANES>();
        let (full, last) = self.mask.split_at_mut(blocks.len());
        if let Some(word) = last.first_mut() {
            *word = 0;
            for (bit, value) in rest.iter().enumerate() {
                *word |= u64::from(self.compare.holds(*value, self.operand)) << bit;
            }
        }
        (blocks, full)
    }
}

impl Compare {
    #[inline(always)]
    fn holds(self, value: u64, operand: u64) -> bool {
        match self {
            Self::Equal => value == operand,
            Self::AtLeast => value >= operand,
        }
    }
}

impl Kernel for CompareMask<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (compare, operand) = (self.compare, self.operand);
        let (blocks, mask) = self.split_rest();
        for (word, block) in mask.iter_mut().zip(blocks) {
            *word = 0;
            for (bit, value) in block.iter().enumerate() {
                *word |= u64::from(compare.holds(*value, operand)) << bit;
            }
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx2(self, isa: super::x86_64::Avx2) {
        let (compare, operand) = (self.compare, self.operand);
        let (blocks, mask) = self.split_rest();
        isa.compare_mask(blocks, compare, operand, mask);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx512(self, isa: super::x86_64::Avx512) {
        let (compare, operand) = (self.compare, self.operand);
        let (blocks, mask) = self.split_rest();
        isa.compare_mask(blocks, compare, operand, mask);
    }
}

/// Number of rows of a mask.
pub(crate) fn count_rows(mask: &[u64]) -> usize {
    mask.iter().map(|word| word.count_ones() as usize).sum()
}

/// Calls `visit` with each row whose bit is set, ascending.
#[inline(always)]
pub(crate) fn each_row(mask: &[u64], mut visit: impl FnMut(u32)) {
    for (first, word) in (0..).step_by(LANES).zip(mask) {
        let mut rows = *word;
        while rows != 0 {
            visit(first + rows.trailing_zeros());
            rows &= rows - 1;
        }
    }
}

/// Rows of a batch as bits, with what is known of them. There is at least one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MaskedRows<'a> {
    pub(crate) mask: &'a [u64],
    /// The first row.
    pub(crate) first: u32,
    /// How many there are.
    pub(crate) count: usize,
}

impl<'a> MaskedRows<'a> {
    /// The rows of `mask`; none if there is none.
    pub(crate) fn of(mask: &'a [u64]) -> Option<Self> {
        let word = mask.iter().position(|word| *word != 0)?;
        let first = u32::try_from(word * LANES).expect("a batch has less than 2^32 rows");
        let first = first + mask[word].trailing_zeros();
        Some(Self { mask, first, count: count_rows(mask) })
    }
}

/// Appends the numbers of the rows whose bit is set, ascending.
#[derive(Debug)]
pub(crate) struct MaskRows<'a> {
    pub(crate) mask: &'a [u64],
    pub(crate) rows: &'a mut Vec<u32>,
}

impl MaskRows<'_> {
    /// Makes room, has `list` write the rows of every word (its number of the first row, and room for
    /// [`LANES`] rows, given) and gives back what was not needed.
    #[inline(always)]
    fn list(self, mut list: impl FnMut(u64, u32, &mut [u32; LANES])) {
        let start = self.rows.len();
        // One block more than is needed, so that a block can be written without looking.
        self.rows.resize(start + count_rows(self.mask) + LANES, 0);
        let (mut filled, mut first) = (start, 0_u32);
        for &word in self.mask {
            if word != 0 {
                let place: &mut [u32; LANES] = (&mut self.rows[filled..filled + LANES])
                    .try_into()
                    .expect("a block of this length");
                list(word, first, place);
                filled += word.count_ones() as usize;
            }
            first += BITS;
        }
        self.rows.truncate(filled);
    }
}

impl Kernel for MaskRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        self.list(rows_of_word);
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx2(self, isa: super::x86_64::Avx2) {
        self.list(|word, first, place| isa.rows_of_word(word, first, place));
    }

    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx512(self, isa: super::x86_64::Avx512) {
        self.list(|word, first, place| isa.rows_of_word(word, first, place));
    }
}

#[inline(always)]
fn rows_of_word(mut word: u64, first: u32, place: &mut [u32; LANES]) {
    let ones = word.count_ones() as usize;
    if ones == LANES {
        for (row, place) in (first..).zip(place.iter_mut()) {
            *place = row;
        }
    } else if ones > LANES / 4 {
        // Every row is written, those that are wanted advance: no branch depends on the data.
        let mut filled = 0;
        for bit in 0..BITS {
            place[filled & (LANES - 1)] = first + bit;
            filled += usize::from((word >> bit) & 1 == 1);
        }
    } else {
        let mut filled = 0;
        while word != 0 {
            place[filled & (LANES - 1)] = first + word.trailing_zeros();
            filled += 1;
            word &= word - 1;
        }
    }
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "small numbers of a test")]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::Isa;

    proptest! {
        #[test]
        fn every_isa_selects_the_same_rows(
            values in proptest::collection::vec(
                prop_oneof![0_u64..3, (0_u64..3).prop_map(|value| value << 62)], 0..300,
            ),
            operand in prop_oneof![0_u64..3, (0_u64..3).prop_map(|value| value << 62)],
            compare in prop_oneof![Just(Compare::Equal), Just(Compare::AtLeast)],
        ) {
            let expected = (0_u32..)
                .zip(&values)
                .filter(|(_, value)| compare.holds(**value, operand))
                .map(|(row, _)| row)
                .collect::<Vec<_>>();
            for isa in Isa::available() {
                let mut mask = vec![u64::MAX; values.len().div_ceil(LANES)];
                isa.run(CompareMask { values: &values, compare, operand, mask: &mut mask });
                let mut rows = vec![77];
                isa.run(MaskRows { mask: &mask, rows: &mut rows });
                prop_assert_eq!(&rows[1..], &expected[..], "{}", isa);
            }
        }

        #[test]
        fn dense_and_sparse_words_are_listed(words in proptest::collection::vec(
            prop_oneof![Just(0), Just(u64::MAX), any::<u64>(), (0_u32..64).prop_map(|bit| 1 << bit)], 0..5,
        )) {
            let expected = (0..words.len() * LANES)
                .filter(|row| words[row / LANES] >> (row % LANES) & 1 == 1)
                .map(|row| row as u32)
                .collect::<Vec<_>>();
            for isa in Isa::available() {
                let mut rows = Vec::new();
                isa.run(MaskRows { mask: &words, rows: &mut rows });
                prop_assert_eq!(&rows, &expected, "{}", isa);
            }
        }
    }
}
