//! Exact sums of numbers and of products of two numbers, for variance, covariance and correlation.
//!
//! As in [`exact_float`](super::exact_float) a sum is exact, so it is the same in every order and split, and is
//! rounded only at emission. A product of two floats, or of two 64-bit integers, is an integer of at
//! most 128 bits times a power of two. The words of a row hold a fixed-point window of 320 bits whose last bit
//! is worth 2^-160: products of floats from 2^-27 up, and 2^31 products of the largest integers, lie
//! inside. Others, and what a full window held, go to a *spill* in the pane's side store: 4,288
//! bits, wide enough for 2^63 products of any floats.
//!
//! Words: five of the window, least significant first; then `flag << 32 | spill index + 1`. The flag says
//! that a value was not finite.

use crate::aggregate::saved::{Reader, put_words};
use crate::aggregate::spill::{self, is_full};
use crate::aggregate::wide::{self, Magnitude};
use crate::aggregate::{Damaged, Side};

/// Words in a row.
pub(super) const WORDS: usize = WINDOW + 1;

const WINDOW: usize = 5;

/// A fixed-point number, two's complement; its last bit is worth 2^-2148.
pub(crate) type Spill = [u64; 67];

/// Exponent of the window's last bit.
const WINDOW_EXPONENT: i32 = -160;
/// Exponent of a spill's last bit: that of the square of the smallest subnormal.
const SPILL_EXPONENT: i32 = -2148;
/// Most bits that an addition may reach: one less than the window has beside its sign.
const WINDOW_BITS: i32 = 64 * 5 - 2;

const NOT_FINITE: u64 = 1 << 32;

/// A finite number: `units * 2^exponent`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) negative: bool,
    pub(super) units: u64,
    pub(super) exponent: i32,
}

impl Term {
    /// An integer.
    #[inline(always)]
    pub(super) const fn integer(negative: bool, units: u64) -> Self {
        Self { negative, units, exponent: 0 }
    }

    /// A float; none if it is not finite.
    #[inline(always)]
    pub(super) fn float(value: f64) -> Option<Self> {
        let bits = value.to_bits();
        let exponent = i32::try_from(bits >> 52 & 0x7ff).expect("eleven bits");
        let units = bits & ((1 << 52) - 1) | u64::from(exponent != 0) << 52;
        // The last bit of a float of exponent 1 is that of a subnormal (0).
        let term = Self { negative: bits >> 63 == 1, units, exponent: exponent.max(1) - 1075 };
        (exponent != 0x7ff).then_some(term)
    }
}

/// Notes that a value is not finite.
pub(super) fn add_not_finite(state: &mut [u64]) {
    state[WINDOW] |= NOT_FINITE;
}

/// Adds `a` to the sum in `state`.
#[inline(always)]
pub(super) fn add(state: &mut [u64], side: &mut Side, a: Term) {
    add_units(state, side, a.negative, a.units.into(), a.exponent);
}

/// Adds the product of `a` and `b` to the sum in `state`.
#[inline(always)]
pub(super) fn add_product(state: &mut [u64], side: &mut Side, a: Term, b: Term) {
    let units = u128::from(a.units) * u128::from(b.units);
    add_units(state, side, a.negative != b.negative, units, a.exponent + b.exponent);
}

#[inline(always)]
fn add_units(state: &mut [u64], side: &mut Side, negative: bool, units: u128, exponent: i32) {
    let state: &mut [u64; WORDS] = state.try_into().expect("the words of an exact sum");
    let at = exponent - WINDOW_EXPONENT;
    if !(0..=WINDOW_BITS - 128).contains(&at) {
        return add_far(state, side, negative, units, exponent);
    }
    add_to_window(state, negative, units, at.unsigned_abs());
    if is_full(state[WINDOW - 1]) {
        empty_window(state, side);
    }
}

/// Adds `units << at`, which reaches no further than [`WINDOW_BITS`].
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "words are taken out of wider numbers")]
fn add_to_window(state: &mut [u64; WORDS], negative: bool, units: u128, at: u32) {
    let (word, bit) = (at as usize / 64, at % 64);
    let low = units << bit;
    // Two steps, since a shift by 128 is none.
    let high = (units >> (127 - bit) >> 1) as u64;
    let parts = [low as u64, (low >> 64) as u64, high];
    let mut carry = negative;
    let sign = if negative { u64::MAX } else { 0 };
    for (i, into) in state[..WINDOW].iter_mut().enumerate() {
        let part = if i.wrapping_sub(word) < 3 { parts[i - word] } else { 0 };
        (*into, carry) = into.carrying_add(part ^ sign, carry);
    }
}

/// Adds what begins below the window, or may reach beyond it.
#[cold]
#[inline(never)]
fn add_far(state: &mut [u64; WORDS], side: &mut Side, negative: bool, units: u128, exponent: i32) {
    if units == 0 {
        return;
    }
    // Without zeros at the end it may lie inside after all.
    let zeros = units.trailing_zeros();
    let (units, exponent) = (units >> zeros, exponent + zeros.cast_signed());
    let at = exponent - WINDOW_EXPONENT;
    let bits = (128 - units.leading_zeros()).cast_signed();
    if at >= 0 && at + bits <= WINDOW_BITS {
        // Moved up as far as the shift allows, the rest stays in the units.
        let lift = (at - (WINDOW_BITS - 128)).max(0).unsigned_abs();
        add_to_window(state, negative, units << lift, at.unsigned_abs() - lift);
        if is_full(state[WINDOW - 1]) {
            empty_window(state, side);
        }
        return;
    }
    let [low, high] = wide::split(units.cast_signed());
    let words = if negative { negated([low, high, 0]) } else { [low, high, 0] };
    spill::add(spill_of(state, side), words, (exponent - SPILL_EXPONENT).unsigned_abs() as usize);
}

fn negated<const N: usize>(words: [u64; N]) -> [u64; N] {
    let mut carry = true;
    words.map(|word| {
        let sum;
        (sum, carry) = (!word).overflowing_add(u64::from(carry));
        sum
    })
}

/// The spill of this row, made if there is none.
fn spill_of<'a>(state: &mut [u64; WORDS], side: &'a mut Side) -> &'a mut Spill {
    let Side::Products(spills) = side else { unreachable!("`new_side` of moments makes spills") };
    spill::of_row(&mut state[WINDOW], spills)
}

/// The spill of this row, if it has one.
fn spilled<'a>(state: &[u64], side: &'a Side) -> Option<&'a Spill> {
    let index = spill::index(state[WINDOW])?;
    let Side::Products(spills) = side else { unreachable!("`new_side` of moments makes spills") };
    Some(&spills[index])
}

/// Moves the window's sum to the spill.
fn empty_window(state: &mut [u64; WORDS], side: &mut Side) {
    let window: [u64; WINDOW] = state[..WINDOW].try_into().expect("the window's words");
    let at = (WINDOW_EXPONENT - SPILL_EXPONENT).unsigned_abs() as usize;
    spill::add(spill_of(state, side), window, at);
    state[..WINDOW].fill(0);
}

/// Adds the sum in `from` to the sum in `into`.
pub(super) fn merge(into: &mut [u64], into_side: &mut Side, from: &[u64], from_side: &Side) {
    let into: &mut [u64; WORDS] = into.try_into().expect("the words of an exact sum");
    // Neither is full, so their sum fits.
    wide::add(&mut into[..WINDOW], &from[..WINDOW]);
    into[WINDOW] |= from[WINDOW] & NOT_FINITE;
    if is_full(into[WINDOW - 1]) {
        empty_window(into, into_side);
    }
    if let Some(spilled) = spilled(from, from_side) {
        wide::add(spill_of(into, into_side), spilled);
    }
}

/// Appends the spill of a sum, if there is one.
pub(super) fn save(state: &[u64], side: &Side, out: &mut Vec<u8>) -> bool {
    let spill = spilled(state, side);
    put_words(out, spill.into_iter().flatten().copied());
    spill.is_some()
}

/// Whether the words of a sum refer to a spill.
pub(super) fn has_spill(state: &[u64]) -> bool {
    spill::index(state[WINDOW]).is_some()
}

/// Takes back the words of a sum, and its spill if it has one. Whether a value was not finite is noted in
/// one of several sums only, the one that `may_note` it.
pub(super) fn restore(
    state: &mut [u64],
    side: &mut Side,
    saved: &mut Reader<'_>,
    may_note: bool,
) -> Result<(), Damaged> {
    let state: &mut [u64; WORDS] = state.try_into().expect("the words of an exact sum");
    let flags = if may_note { NOT_FINITE } else { 0 };
    if state[WINDOW] & !(flags | u64::from(u32::MAX)) != 0 || is_full(state[WINDOW - 1]) {
        return Err(Damaged::new("the words of an exact sum", format!("{state:x?}")));
    }
    if has_spill(state) {
        let spill = saved.take_words()?;
        state[WINDOW] &= flags;
        *spill_of(state, side) = spill;
    }
    Ok(())
}

/// The exact sum: a number and the power of two it is to be multiplied with; none if a value was not finite.
pub(super) fn total(state: &[u64], side: &Side) -> Option<(Magnitude, i32)> {
    if state[WINDOW] & NOT_FINITE != 0 {
        return None;
    }
    let Some(spilled) = spilled(state, side) else {
        return Some((Magnitude::of(&state[..WINDOW]), WINDOW_EXPONENT));
    };
    let mut total = *spilled;
    let window: [u64; WINDOW] = state[..WINDOW].try_into().expect("the window's words");
    let at = (WINDOW_EXPONENT - SPILL_EXPONENT).unsigned_abs() as usize;
    spill::add(&mut total, window, at);
    Some((Magnitude::of(&total), SPILL_EXPONENT))
}
