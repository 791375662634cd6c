//! Where the exact sums of [`exact_float`](super::exact_float) and [`exact_product`](super::exact_product)
//! keep what the few words of a row, their *window*, cannot hold: a wide fixed-point number, the *spill*,
//! in the pane's side store. A row refers to its spill by the low half of one word, as index + 1.

use crate::aggregate::wide;

/// Whether the sum in a window with this highest word may be beyond a quarter of its range: the next
/// addition still fits, the one after might not. The two highest bits then differ.
#[inline(always)]
pub(super) fn is_full(top: u64) -> bool {
    (top ^ top << 1) >> 63 != 0
}

/// The spill that `word` refers to, if there is one.
#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low 32 bits are meant")]
pub(super) fn index(word: u64) -> Option<usize> {
    (word as u32).checked_sub(1).map(|index| index as usize)
}

/// The spill of the row that refers to it by `word`, made if there is none.
pub(super) fn of_row<'a, const N: usize>(
    word: &mut u64,
    spills: &'a mut Vec<[u64; N]>,
) -> &'a mut [u64; N] {
    let index = index(*word).unwrap_or_else(|| {
        spills.push([0; N]);
        let number = u32::try_from(spills.len()).expect("a pane holds fewer than 2^32 keys");
        *word |= u64::from(number);
        spills.len() - 1
    });
    &mut spills[index]
}

/// Adds the signed `words`, shifted up by `at` bits, to the signed `spill`.
pub(super) fn add<const N: usize>(spill: &mut [u64], words: [u64; N], at: usize) {
    let sign = wide::sign_word(&words);
    let word = |i: usize| words.get(i).copied().unwrap_or(sign);
    let shift = at % 64;
    let mut carry = false;
    for (i, into) in spill[at / 64..].iter_mut().enumerate() {
        let below = if i == 0 { 0 } else { word(i - 1) };
        let more = if shift == 0 { word(i) } else { word(i) << shift | below >> (64 - shift) };
        (*into, carry) = into.carrying_add(more, carry);
        // Nothing changes further up: adding 0 without, or all ones with, a carry.
        if i > N && carry == (sign != 0) {
            return;
        }
    }
}
