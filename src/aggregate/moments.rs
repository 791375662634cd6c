//! Variance and standard deviation of a column, covariance and correlation of two.
//!
//! Kept are the count and the exact sums of x and x^2 (of two columns also y, y^2 and xy), so a result is
//! the same whatever the order, the split and the merges, and large values with a small spread lose nothing:
//! n * sum(x^2) - sum(x)^2 is computed exactly and rounded once, in the division. Decimals are taken as
//! their nearest floats. If any value is infinite or NaN, so is the result: NaN.
//!
//! Words: the count, then [`exact_product::WORDS`] for each sum. Cost: some 15 ns a row for a column, 35 for
//! two.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array, LargeBinaryArray};
use arrow::buffer::NullBuffer;

use crate::aggregate::emit::States;
use crate::aggregate::exact_product::{self as exact, Term};
use crate::aggregate::saved::{Reader, check_count, no_bytes, restore_each, save_each, some_bytes};
use crate::aggregate::wide::Magnitude;
use crate::aggregate::{Accumulator, Damaged, Misfit, Part, Side, Unsaved};
use crate::column::{Column, Lane};
use crate::kernel::Isa;
use crate::state::rows::Rows;

/// The accumulator of one column of numbers, or of two.
#[derive(Debug)]
pub(super) struct Moments {
    /// Of two columns.
    pub(super) pair: bool,
    /// Whether squares are kept: always of one column, of two for their correlation.
    pub(super) squares: bool,
}

/// Where the sums begin: x, y, xy, x^2, y^2.
#[derive(Debug, Clone, Copy)]
struct At {
    x: usize,
    y: usize,
    xy: usize,
    xx: usize,
    yy: usize,
    words: usize,
}

/// The numbers of a column.
enum Numbers<'a> {
    I64(&'a [i64]),
    U64(&'a [u64]),
    F64(&'a [f64]),
}

impl<'a> Numbers<'a> {
    fn of(column: &'a Column) -> Self {
        match &column.values {
            Lane::I64(values) => Self::I64(values),
            Lane::U64(values) => Self::U64(values),
            Lane::F64(values) => Self::F64(values),
            other => unreachable!("the plan asks for numbers, not {other:?}"),
        }
    }

    /// The number of `row`; none if it is not finite.
    #[inline(always)]
    fn get(&self, row: usize) -> Option<Term> {
        match self {
            Self::I64(values) => Some(Term::integer(values[row] < 0, values[row].unsigned_abs())),
            Self::U64(values) => Some(Term::integer(false, values[row])),
            Self::F64(values) => Term::float(values[row]),
        }
    }
}

/// The rows of a batch.
struct Input<'a> {
    x: Numbers<'a>,
    y: Option<Numbers<'a>>,
    nulls: Option<&'a NullBuffer>,
}

impl Moments {
    fn at(&self) -> At {
        let (pair, squares) = (usize::from(self.pair), usize::from(self.squares));
        let x = 1;
        let y = x + exact::WORDS;
        let xy = y + pair * exact::WORDS;
        let xx = xy + pair * exact::WORDS;
        let yy = xx + squares * exact::WORDS;
        At { x, y, xy, xx, yy, words: yy + pair * squares * exact::WORDS }
    }

    fn input(column: Option<&Column>) -> Input<'_> {
        let column = column.expect("moments have a column");
        let nulls = column.nulls.as_ref();
        match &column.values {
            Lane::Pair(pair) => {
                Input { x: Numbers::of(&pair[0]), y: Some(Numbers::of(&pair[1])), nulls }
            }
            _ => Input { x: Numbers::of(column), y: None, nulls },
        }
    }

    #[inline(always)]
    fn add(&self, at: At, state: &mut [u64], side: &mut Side, input: &Input<'_>, row: usize) {
        if input.nulls.is_some_and(|nulls| nulls.is_null(row)) {
            return;
        }
        state[0] += 1;
        let Some(x) = input.x.get(row) else {
            return exact::add_not_finite(&mut state[at.x..at.x + exact::WORDS]);
        };
        let mut sum = |at: usize, a: Term, b: Option<Term>| {
            let words = &mut state[at..at + exact::WORDS];
            match b {
                None => exact::add(words, side, a),
                Some(b) => exact::add_product(words, side, a, b),
            }
        };
        if let Some(y) = &input.y {
            let Some(y) = y.get(row) else {
                return exact::add_not_finite(&mut state[at.x..at.x + exact::WORDS]);
            };
            sum(at.y, y, None);
            sum(at.xy, x, Some(y));
            if self.squares {
                sum(at.yy, y, Some(y));
            }
        }
        sum(at.x, x, None);
        if self.squares {
            sum(at.xx, x, Some(x));
        }
    }
}

impl Accumulator for Moments {
    fn words(&self) -> usize {
        self.at().words
    }

    fn init(&self, state: &mut [u64]) {
        state.fill(0);
    }

    fn new_side(&self) -> Side {
        Side::Products(Vec::new())
    }

    fn is_in_row(&self, state: Option<&[u64]>) -> bool {
        state.is_none_or(|state| !state[1..].chunks_exact(exact::WORDS).any(exact::has_spill))
    }

    fn update(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        side: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        assert_eq!(rows.len(), selection.len(), "one row for each selected row of the batch");
        let (at, input) = (self.at(), Self::input(column));
        rows.for_each(offset, at.words, |k, state| {
            self.add(at, state, side, &input, selection[k] as usize);
        });
    }

    fn update_dense(
        &self,
        _: Isa,
        state: &mut [u64],
        side: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        let (at, input) = (self.at(), Self::input(column));
        for row in selection {
            self.add(at, state, side, &input, *row as usize);
        }
    }

    fn merge(
        &self,
        into: &mut Rows<'_>,
        into_side: &mut Side,
        from: &Rows<'_>,
        from_side: &Side,
        offset: usize,
    ) {
        assert_eq!(into.len(), from.len(), "merged row by row");
        let words = self.words();
        into.for_each(offset, words, |k, into| {
            let from = from.state(k, offset, words);
            into[0] += from[0];
            let sums = into[1..].chunks_exact_mut(exact::WORDS);
            for (into, from) in sums.zip(from[1..].chunks_exact(exact::WORDS)) {
                exact::merge(into, into_side, from, from_side);
            }
        });
    }

    fn emit(
        &self,
        part: Part,
        rows: &Rows<'_>,
        offset: usize,
        side: &Side,
    ) -> Result<ArrayRef, Misfit> {
        let states = States { rows, offset, words: self.words() };
        let results = states.iter().map(|state| self.result(part, state, side));
        Ok(Arc::new(results.collect::<Float64Array>()))
    }

    fn save(
        &self,
        rows: &Rows<'_>,
        offset: usize,
        side: &Side,
    ) -> Result<Option<LargeBinaryArray>, Unsaved> {
        save_each(rows.len(), |k, out| {
            let mut any = false;
            for sum in rows.state(k, offset, self.words())[1..].chunks_exact(exact::WORDS) {
                any |= exact::save(sum, side, out);
            }
            Ok(any)
        })
    }

    fn restore(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        side: &mut Side,
        saved: Option<&LargeBinaryArray>,
    ) -> Result<(), Damaged> {
        restore_each(rows, (offset, self.words()), saved, |state, bytes| {
            check_count(state[0])?;
            let any = state[1..].chunks_exact(exact::WORDS).any(exact::has_spill);
            let mut reader = if any { some_bytes(bytes)? } else { Reader::new(&[]) };
            if !any {
                no_bytes(bytes)?;
            }
            for (i, sum) in state[1..].chunks_exact_mut(exact::WORDS).enumerate() {
                // That of x comes first.
                exact::restore(sum, side, &mut reader, i == 0)?;
            }
            reader.finish()
        })
    }
}

/// A number and the power of two it is to be multiplied with.
type Scaled = (Magnitude, i32);

impl Moments {
    fn result(&self, part: Part, state: &[u64], side: &Side) -> Option<f64> {
        let (at, count) = (self.at(), state[0]);
        let least = if matches!(part, Part::Samp | Part::StddevSamp | Part::Corr) { 2 } else { 1 };
        if count < least {
            return None;
        }
        let sum = |at: usize| exact::total(&state[at..at + exact::WORDS], side);
        // Noted with x, whichever of the two it was.
        let Some(x) = sum(at.x) else { return Some(f64::NAN) };
        let finite = |at: usize| sum(at).expect("noted with x");
        let by =
            [count, if matches!(part, Part::Samp | Part::StddevSamp) { count - 1 } else { count }];
        let spread =
            |products: usize, a: &Scaled, b: &Scaled| spread(count, finite(products), a, b);
        match part {
            Part::Samp | Part::Pop if self.pair => {
                let (exact, exponent) = spread(at.xy, &x, &finite(at.y));
                Some(exact.divided_to_f64(exponent, &by))
            }
            Part::Samp | Part::Pop => {
                let (exact, exponent) = spread(at.xx, &x, &x);
                Some(exact.divided_to_f64(exponent, &by))
            }
            Part::StddevSamp | Part::StddevPop => Some(root(&spread(at.xx, &x, &x), &by)),
            Part::Corr => {
                let y = finite(at.y);
                let both = spread(at.xy, &x, &y);
                correlation(&both, &spread(at.xx, &x, &x), &spread(at.yy, &y, &y))
            }
            part => unreachable!("{part:?} of moments"),
        }
    }
}

/// `count * products - a * b`, exactly.
fn spread(count: u64, products: Scaled, a: &Scaled, b: &Scaled) -> Scaled {
    let (mut products, mut exponent) = products;
    products.widen(1);
    products.multiply(count);
    let mut square = a.0.product(&b.0);
    let square_exponent = a.1 + b.1;
    // Both in units of the finer one.
    if exponent > square_exponent {
        products.shift_up((exponent - square_exponent).unsigned_abs() as usize);
        exponent = square_exponent;
    } else {
        square.shift_up((square_exponent - exponent).unsigned_abs() as usize);
    }
    (products.minus(square), exponent)
}

/// The square root of a number divided by `by`. The quotient is rounded, so is its root.
fn root(number: &Scaled, by: &[u64]) -> f64 {
    // The power of two is halved apart, so that a variance beyond the floats has its deviation.
    let bits = i32::try_from(number.0.bits()).expect("a few thousand bits");
    let half = i32::midpoint(number.1, bits);
    let quotient = number.0.divided_to_f64(number.1 - 2 * half, by);
    times_power_of_two(quotient.sqrt(), half)
}

/// The covariance divided by the roots of the variances, all times the same; none if one does not vary.
fn correlation(both: &Scaled, x: &Scaled, y: &Scaled) -> Option<f64> {
    // Each as a float from 1 up to 2 and a power of two, so that nothing overflows.
    let parts = |(number, exponent): &Scaled| {
        let bits = i32::try_from(number.bits()).expect("a few thousand bits");
        (number.to_f64(1 - bits), exponent + bits - 1)
    };
    if x.0.bits() == 0 || y.0.bits() == 0 {
        return None;
    }
    let ((both, both_exponent), (x, x_exponent), (y, y_exponent)) =
        (parts(both), parts(x), parts(y));
    let exponent = x_exponent + y_exponent;
    let odd = exponent.rem_euclid(2);
    let root = (x * y * f64::from(1 + odd)).sqrt();
    let result = times_power_of_two(both / root, both_exponent - (exponent - odd) / 2);
    Some(result.clamp(-1.0, 1.0))
}

/// `value * 2^exponent`, in steps that are floats.
fn times_power_of_two(mut value: f64, mut exponent: i32) -> f64 {
    while exponent != 0 && value != 0.0 && value.is_finite() {
        let step = exponent.clamp(-1000, 1000);
        let biased = u64::from((step + 1023).unsigned_abs());
        value *= f64::from_bits(biased << 52);
        exponent -= step;
    }
    value
}
