//! Exact sums of floats.
//!
//! A sum that is exact is the same in every order and split, so it may be salted; rounding happens
//! once, at emission. The words of a row hold a fixed-point window of 192 bits whose last bit is worth
//! 2^-106. Every float from 2^-54 up to 2^74 lies inside it whole, and smaller ones whose last bits are
//! zero, so most data never leave it. A float outside, or a sum beyond 2^84, goes to a *spill* in the
//! pane's side store: 2,176 bits, wide enough for 2^63 floats of any size. The exact sum is window
//! plus spill, so it does not matter when something went to which.
//!
//! Infinities and NaN are flags, since their sum depends only on which were seen: NaN, or infinities of
//! both signs, give NaN. A sum of nothing but zeros is 0.0, also if all were -0.0.
//!
//! Words: three of the window, least significant first; then `flags << 32 | spill index + 1`.
//!
//! Cost: some thirty simple instructions and no branch that data inside the window can mispredict,
//! 4 to 5 ns a row; a third of that for runs of one key ([`add_all`]);
//! 272 bytes for each key that needs a spill.

use crate::aggregate::saved::{no_bytes, put_words, some_bytes};
use crate::aggregate::spill::{self, is_full};
use crate::aggregate::wide::{self, Magnitude};
use crate::aggregate::{Damaged, Side};

/// Words in a row.
pub(super) const WORDS: usize = 4;

/// A fixed-point number of 2,176 bits, two's complement; its last bit is worth 2^-1074.
pub(crate) type Spill = [u64; 34];

/// Exponent of the window's last bit.
const WINDOW_EXPONENT: i32 = -106;
/// Exponent of a spill's last bit: that of the smallest subnormal.
const SPILL_EXPONENT: i32 = -1074;
/// Biased exponent of the smallest floats whose 53 bits all lie inside the window (2^-54).
const WINDOW_FIRST: u64 = 969;
/// By how much more the exponent of floats in the window may be: their bits start in word 0 or 1.
const WINDOW_SHIFTS: u64 = 127;

const FRACTION: u64 = (1 << 52) - 1;
const POSITIVE_INFINITY: u64 = 1 << 32;
const NEGATIVE_INFINITY: u64 = 1 << 33;
const NAN: u64 = 1 << 34;
const FLAGS: u64 = POSITIVE_INFINITY | NEGATIVE_INFINITY | NAN;

/// Adds `value` to the sum in `state`.
#[inline(always)]
pub(super) fn add(state: &mut [u64], side: &mut Side, value: f64) {
    let state: &mut [u64; WORDS] = state.try_into().expect("the words of a float sum");
    let mut window = [state[0], state[1], state[2]];
    let outside = add_to_window(&mut window, value);
    state[..3].copy_from_slice(&window);
    if outside {
        leave_window(state, side, value);
    }
}

/// Adds all of `values` to the sum in `state`.
#[inline(always)]
pub(super) fn add_all(state: &mut [u64], side: &mut Side, values: &[f64]) {
    for block in values.chunks(DIGIT_BLOCK) {
        let Some(sums) = sum_digits(block) else {
            for value in block {
                add(state, side, *value);
            }
            continue;
        };
        let [first, second, third] = sums.map(i128::from);
        // Units of 1, 2^-52 and 2^-104, in a window of units of 2^-106.
        let window = &mut state[..3];
        wide::add_extended(&mut window[1..], wide::split(first << 42));
        wide::add_extended(window, wide::split(second << 54));
        wide::add_extended(window, wide::split(third << 2));
        let state: &mut [u64; WORDS] = state.try_into().expect("the words of a float sum");
        if is_full(state[2]) {
            empty_window(state, side);
        }
    }
}

/// Values summed as digits at a time: sums of digits up to 2^51 then stay below 2^63.
const DIGIT_BLOCK: usize = 2048;

/// Sums the values digit by digit, in units of 1, 2^-52 and 2^-104; `None` if a value has other
/// digits too (or is not finite).
///
/// Adding 1.5 * 2^52 to a float of at most 2^51 rounds it to an integer, which then stands in the low
/// bits of the sum; subtracting it again gives that integer as a float, and what is left of the value
/// is exact. So a value is taken apart, and its digits are summed, by additions that run side by side
/// in vector registers.
#[inline(always)]
fn sum_digits(values: &[f64]) -> Option<[i64; 3]> {
    const LANES: usize = 4;
    const ROUND: f64 = 6_755_399_441_055_744.0;
    const LIMIT: f64 = 2_251_799_813_685_248.0;
    const NEXT_DIGIT: f64 = 4_503_599_627_370_496.0;
    debug_assert!(values.len() <= DIGIT_BLOCK, "sums of digits stay below 2^63");
    let mut sums = [[0_u64; LANES]; 3];
    let mut other = [0_u64; LANES];
    let mut step = |lane: usize, value: f64| {
        let mut rest = value;
        for (digit, sums) in sums.iter_mut().enumerate() {
            let rounded = if digit == 0 { rest } else { rest * NEXT_DIGIT };
            let shifted = rounded + ROUND;
            sums[lane] = sums[lane].wrapping_add(shifted.to_bits());
            rest = rounded - (shifted - ROUND);
        }
        // NaN is not within the limit either.
        let within = value.abs() <= LIMIT;
        other[lane] |= rest.to_bits() << 1 | u64::from(!within);
    };
    let (blocks, rest) = values.as_chunks::<LANES>();
    for block in blocks {
        for (lane, value) in block.iter().enumerate() {
            step(lane, *value);
        }
    }
    for value in rest {
        step(0, *value);
    }
    if other.iter().any(|other| *other != 0) {
        return None;
    }
    let rounds = ROUND.to_bits().wrapping_mul(values.len() as u64);
    Some(sums.map(|lanes| {
        let sum = lanes.into_iter().fold(0, u64::wrapping_add);
        sum.wrapping_sub(rounds).cast_signed()
    }))
}

/// Adds `value` to the window if it lies inside. Returns whether something is left to do: the value
/// lies outside and was not added, or the window has become so full that it must be emptied.
#[inline(always)]
fn add_to_window(window: &mut [u64; 3], value: f64) -> bool {
    let bits = value.to_bits();
    let shift = (bits >> 52 & 0x7ff).wrapping_sub(WINDOW_FIRST);
    // Zeros are common and come at random, so they are added like others and not branched around.
    let some = bits << 1 != 0;
    if (shift > WINDOW_SHIFTS) & some {
        return true;
    }
    let sign = bits.cast_signed() >> 63;
    let significand = bits & FRACTION | u64::from(some) << 52;
    let signed = (significand.cast_signed() ^ sign) - sign;
    let [low, high] = wide::split(i128::from(signed) << (shift & 63));
    let above = (signed >> 63).cast_unsigned();
    // All ones if the bits begin in word 0, zero if in word 1: cheaper than choosing by branch.
    let first = ((shift >> 6) & 1).wrapping_sub(1);
    let second = !first;
    let lower = wide::join(low & first, high & first | low & second).cast_unsigned();
    let (sum, carry) = wide::join(window[0], window[1]).cast_unsigned().overflowing_add(lower);
    [window[0], window[1]] = wide::split(sum.cast_signed());
    let upper = above & first | high & second;
    window[2] = window[2].wrapping_add(upper).wrapping_add(u64::from(carry));
    is_full(window[2])
}

/// What [`add_to_window`] left to do.
#[cold]
#[inline(never)]
fn leave_window(state: &mut [u64; WORDS], side: &mut Side, value: f64) {
    let exponent = value.to_bits() >> 52 & 0x7ff;
    let inside = exponent.wrapping_sub(WINDOW_FIRST) <= WINDOW_SHIFTS || value.to_bits() << 1 == 0;
    if !inside {
        add_outside(state, side, value);
    }
    // Between calls no window is full: the next addition, and the sum of two windows, must fit.
    if is_full(state[2]) {
        empty_window(state, side);
    }
}

/// Adds a value that [`add_to_window`] does not.
fn add_outside(state: &mut [u64; WORDS], side: &mut Side, value: f64) {
    let bits = value.to_bits();
    let exponent = bits >> 52 & 0x7ff;
    if exponent == 0x7ff {
        state[3] |= match (value.is_nan(), value > 0.0) {
            (true, _) => NAN,
            (false, true) => POSITIVE_INFINITY,
            (false, false) => NEGATIVE_INFINITY,
        };
        return;
    }
    let significand = bits & FRACTION | u64::from(exponent != 0) << 52;
    let sign = |units: u64| if value < 0.0 { -i128::from(units) } else { i128::from(units) };
    let below = WINDOW_FIRST.saturating_sub(exponent);
    if (1..=52).contains(&below) && u64::from(significand.trailing_zeros()) >= below {
        wide::add_extended(&mut state[..3], wide::split(sign(significand >> below)));
        return;
    }
    // The last bit of a float of exponent 1, and of a subnormal (0), is that of the spill.
    let at = usize::try_from(exponent.max(1) - 1).expect("an exponent");
    spill::add(spill_of(state, side), wide::split(sign(significand)), at);
}

/// The spill of this row, made if there is none.
fn spill_of<'a>(state: &mut [u64; WORDS], side: &'a mut Side) -> &'a mut Spill {
    let Side::Floats(spills) = side else { unreachable!("`new_side` of a float sum makes spills") };
    spill::of_row(&mut state[3], spills)
}

/// Moves the window's sum to the spill.
fn empty_window(state: &mut [u64; WORDS], side: &mut Side) {
    let window = [state[0], state[1], state[2]];
    let at = usize::try_from(WINDOW_EXPONENT - SPILL_EXPONENT).expect("the window is coarser");
    spill::add(spill_of(state, side), window, at);
    state[..3].fill(0);
}

/// Adds the sum in `from` to the sum in `into`.
#[inline]
pub(super) fn merge(into: &mut [u64], into_side: &mut Side, from: &[u64], from_side: &Side) {
    let into: &mut [u64; WORDS] = into.try_into().expect("the words of a float sum");
    let from: &[u64; WORDS] = from.try_into().expect("the words of a float sum");
    // Neither is full, so their sum fits.
    wide::add(&mut into[..3], &from[..3]);
    into[3] |= from[3] & FLAGS;
    if is_full(into[2]) {
        empty_window(into, into_side);
    }
    if let Some(spilled) = spilled(from, from_side) {
        wide::add(spill_of(into, into_side), spilled);
    }
}

/// The spill of this row, if it has one.
fn spilled<'a>(state: &[u64], side: &'a Side) -> Option<&'a Spill> {
    let index = spill::index(state[3])?;
    let Side::Floats(spills) = side else { unreachable!("`new_side` of a float sum makes spills") };
    Some(&spills[index])
}

/// Appends the spill, if there is one.
pub(super) fn save(state: &[u64], side: &Side, out: &mut Vec<u8>) -> bool {
    let spill = spilled(state, side);
    put_words(out, spill.into_iter().flatten().copied());
    spill.is_some()
}

/// Takes back the words of a sum, and its spill if it has one.
pub(super) fn restore(
    state: &mut [u64],
    side: &mut Side,
    saved: Option<&[u8]>,
) -> Result<(), Damaged> {
    let state: &mut [u64; WORDS] = state.try_into().expect("the words of a float sum");
    let unknown = state[3] & !(FLAGS | u64::from(u32::MAX));
    if unknown != 0 || is_full(state[2]) {
        return Err(Damaged::new("the words of a sum of floats", format!("{state:x?}")));
    }
    if spill::index(state[3]).is_none() {
        return no_bytes(saved);
    }
    let mut reader = some_bytes(saved)?;
    let spill = reader.take_words()?;
    state[3] &= FLAGS;
    *spill_of(state, side) = spill;
    reader.finish()
}

/// The sum, rounded once (half to even).
pub(super) fn sum(state: &[u64], side: &Side) -> f64 {
    special(state).unwrap_or_else(|| {
        let (total, exponent) = total(state, side);
        total.to_f64(exponent)
    })
}

/// The sum divided by `count`, rounded once (half to even).
pub(super) fn mean(state: &[u64], side: &Side, count: u64) -> f64 {
    special(state).unwrap_or_else(|| {
        let (total, exponent) = total(state, side);
        total.mean_to_f64(exponent, count)
    })
}

/// The sum if it is not finite.
fn special(state: &[u64]) -> Option<f64> {
    match state[3] & FLAGS {
        0 => None,
        POSITIVE_INFINITY => Some(f64::INFINITY),
        NEGATIVE_INFINITY => Some(f64::NEG_INFINITY),
        _ => Some(f64::NAN),
    }
}

/// The exact sum: a number and the power of two it is to be multiplied with.
fn total(state: &[u64], side: &Side) -> (Magnitude, i32) {
    match spilled(state, side) {
        None => (Magnitude::of(&state[..3]), WINDOW_EXPONENT),
        Some(spilled) => {
            let mut total = *spilled;
            let at = usize::try_from(WINDOW_EXPONENT - SPILL_EXPONENT).expect("positive");
            spill::add(&mut total, [state[0], state[1], state[2]], at);
            (Magnitude::of(&total), SPILL_EXPONENT)
        }
    }
}
