//! Selecting rows: bit masks of a column, and lists of row numbers from masks.
//!
//! A mask has one bit a row, 64 rows a word, the lowest bit first; bits beyond the last row are clear.

use super::Kernel;

/// Rows of a word of a mask.
pub(crate) const LANES: usize = 64;

/// The same as a row number.
const BITS: u32 = u64::BITS;

/// Sets in `mask` the bit of every row whose value equals `target`, and clears the others.
#[derive(Debug)]
pub(crate) struct EqualMask<'a> {
    pub(crate) values: &'a [u64],
    pub(crate) target: u64,
    pub(crate) mask: &'a mut [u64],
}

impl Kernel for EqualMask<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (blocks, rest) = self.values.as_chunks::<LANES>();
        let (full, last) = self.mask.split_at_mut(blocks.len());
        for (word, block) in full.iter_mut().zip(blocks) {
            *word = equal_bits(block, self.target);
        }
        if let Some(word) = last.first_mut() {
            *word = 0;
            for (bit, value) in rest.iter().enumerate() {
                *word |= u64::from(*value == self.target) << bit;
            }
        }
    }
}

#[inline(always)]
fn equal_bits(block: &[u64; LANES], target: u64) -> u64 {
    let mut bits = 0;
    for (byte, eight) in block.as_chunks::<8>().0.iter().enumerate() {
        let mut part = 0;
        for (bit, value) in eight.iter().enumerate() {
            part |= u64::from(*value == target) << bit;
        }
        bits |= part << (8 * byte);
    }
    bits
}

/// Appends the numbers of the rows whose bit is set, ascending.
#[derive(Debug)]
pub(crate) struct MaskRows<'a> {
    pub(crate) mask: &'a [u64],
    pub(crate) rows: &'a mut Vec<u32>,
}

impl Kernel for MaskRows<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let total: usize = self.mask.iter().map(|word| word.count_ones() as usize).sum();
        let start = self.rows.len();
        // One block more than is needed, so that a block can be written without looking.
        self.rows.resize(start + total + LANES, 0);
        let mut filled = start;
        let mut first = 0_u32;
        for &word in self.mask {
            let place: &mut [u32; LANES] = (&mut self.rows[filled..filled + LANES])
                .try_into()
                .expect("a block of this length");
            filled += rows_of_word(word, first, place);
            first += BITS;
        }
        self.rows.truncate(filled);
    }
}

#[inline(always)]
fn rows_of_word(mut word: u64, first: u32, place: &mut [u32; LANES]) -> usize {
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
    ones
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
            values in proptest::collection::vec(0_u64..3, 0..300), target in 0_u64..3,
        ) {
            let expected = (0_u32..)
                .zip(&values)
                .filter(|(_, value)| **value == target)
                .map(|(row, _)| row)
                .collect::<Vec<_>>();
            for isa in Isa::available() {
                let mut mask = vec![u64::MAX; values.len().div_ceil(LANES)];
                isa.run(EqualMask { values: &values, target, mask: &mut mask });
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
