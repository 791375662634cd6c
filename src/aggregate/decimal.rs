//! The lanes of decimals: unscaled integers of 128 and of 256 bits.
//!
//! Sums have 64 bits more than the values, which 2^63 rows cannot overflow, so a sum that leaves the
//! type's range and comes back is right, in any order; whether it fits is judged once, at emission.
//!
//! Result types. Of a Decimal32, 64 or 128 with scale `s`: sum Decimal128(38, s), avg
//! Decimal128(38, min(s + 4, 38)); of a Decimal256: sum Decimal256(76, s), avg
//! Decimal256(76, min(s + 4, 76)). The mean is the exact one, half rounded away from zero. Min and max
//! keep the input's type.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{ArrayRef, PrimitiveArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Decimal32Type, Decimal64Type, Decimal128Type, Decimal256Type, DecimalNativeType,
    DecimalType, i256,
};

use crate::aggregate::number::{Emit, Flags, Lane, Layout, Update, update_any};
use crate::aggregate::wide::{self, Magnitude};
use crate::aggregate::{Misfit, Side};
use crate::column;

/// The type of the sum of a decimal of type `input`.
pub(super) fn sum_type(input: &DataType) -> DataType {
    match input {
        DataType::Decimal256(_, scale) => DataType::Decimal256(76, *scale),
        other => DataType::Decimal128(38, scale_of(other)),
    }
}

/// The type of the mean of a decimal of type `input`.
pub(super) fn mean_type(input: &DataType) -> DataType {
    match input {
        DataType::Decimal256(_, scale) => DataType::Decimal256(76, mean_scale(*scale, 76)),
        other => DataType::Decimal128(38, mean_scale(scale_of(other), 38)),
    }
}

fn mean_scale(scale: i8, digits: i8) -> i8 {
    scale.saturating_add(4).min(digits).max(scale)
}

fn scale_of(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale,
        other => unreachable!("{other} is no decimal"),
    }
}

/// An unscaled integer of `VALUE` words.
pub(super) trait Unscaled:
    DecimalNativeType + Debug + Copy + Default + Ord + Send + Sync + 'static
{
    const WORDS: usize;
    /// The Arrow type of sums and means.
    type Result: DecimalType<Native = Self>;

    fn values(column: &column::Lane) -> Option<&[Self]>;
    const MIN: Self;
    const MAX: Self;
    fn load(words: &[u64]) -> Self;
    fn store(self, words: &mut [u64]);
    /// Adds `self` to a sum of one word more.
    fn add_to(self, sum: &mut [u64]);
    fn checked_sum(self, other: Self) -> Option<Self>;
    fn of(magnitude: &Magnitude) -> Self;
    fn emit_keys(input: &DataType, keys: Vec<Self>, nulls: Option<NullBuffer>) -> ArrayRef;
}

/// The lane of an [`Unscaled`].
#[derive(Debug)]
pub(super) struct Decimal<D>(PhantomData<D>);

impl<D: Unscaled> Lane for Decimal<D> {
    type Value = D;
    const SUM_WORDS: usize = D::WORDS + 1;
    const KEY_WORDS: usize = D::WORDS;

    fn values(column: &column::Lane) -> Option<&[D]> {
        D::values(column)
    }

    fn init_min(key: &mut [u64]) {
        D::MAX.store(key);
    }

    fn init_max(key: &mut [u64]) {
        D::MIN.store(key);
    }

    #[inline(always)]
    fn add(sum: &mut [u64], _: &mut Side, value: D) {
        value.add_to(sum);
    }

    #[inline(always)]
    fn lower(min: &mut [u64], value: D) {
        if value < D::load(min) {
            value.store(min);
        }
    }

    #[inline(always)]
    fn raise(max: &mut [u64], value: D) {
        if value > D::load(max) {
            value.store(max);
        }
    }

    fn merge_sum(into: &mut [u64], _: &mut Side, from: &[u64], _: &Side) {
        wide::add(into, from);
    }

    fn merge_min(into: &mut [u64], from: &[u64]) {
        D::load(into).min(D::load(from)).store(into);
    }

    fn merge_max(into: &mut [u64], from: &[u64]) {
        D::load(into).max(D::load(from)).store(into);
    }

    fn reduce(at: &Layout, state: &mut [u64], _: &mut Side, values: &[D]) {
        if at.flags.has(Flags::SUM) {
            let words = &mut state[at.sum..at.sum + Self::SUM_WORDS];
            let mut sum = D::default();
            for value in values {
                sum = sum.checked_sum(*value).unwrap_or_else(|| {
                    sum.add_to(words);
                    *value
                });
            }
            sum.add_to(words);
        }
        if let (true, Some(min)) = (at.flags.has(Flags::MIN), values.iter().min()) {
            Self::lower(&mut state[at.min..at.min + Self::KEY_WORDS], *min);
        }
        if let (true, Some(max)) = (at.flags.has(Flags::MAX), values.iter().max()) {
            Self::raise(&mut state[at.max..at.max + Self::KEY_WORDS], *max);
        }
    }

    fn update(_: Flags) -> Update<Self> {
        update_any::<Self>()
    }

    fn emit_sum(input: &DataType, emit: &Emit<'_>) -> Result<ArrayRef, Misfit> {
        let to = sum_type(input);
        let sums = emit.sums::<Self, D>(|sum, _| fit(&Magnitude::of(sum), &to))?;
        Ok(decimals::<D::Result>(sums, emit.nulls.clone(), &to))
    }

    fn emit_sum_decimal(_: &Emit<'_>) -> Result<ArrayRef, Misfit> {
        unreachable!("the plan asks it of integers only")
    }

    fn emit_mean(input: &DataType, emit: &Emit<'_>) -> Result<ArrayRef, Misfit> {
        let to = mean_type(input);
        let more = u32::from((scale_of(&to) - scale_of(input)).unsigned_abs());
        let means = emit.sums::<Self, D>(|sum, count| {
            let mut mean = Magnitude::of(sum);
            mean.widen(1);
            mean.multiply(10_u64.pow(more));
            mean.divide_rounded(count);
            fit(&mean, &to)
        })?;
        Ok(decimals::<D::Result>(means, emit.nulls.clone(), &to))
    }

    fn emit_key(input: &DataType, emit: &Emit<'_>, at: usize) -> ArrayRef {
        D::emit_keys(input, emit.keys::<Self, D>(at, D::load), emit.nulls.clone())
    }
}

/// `exact` as a number of the decimal type `to`.
fn fit<D: Unscaled>(exact: &Magnitude, to: &DataType) -> Result<D, Misfit> {
    if exact.fits_digits(usize::from(D::Result::MAX_PRECISION)) {
        return Ok(D::of(exact));
    }
    let advice = if matches!(to, DataType::Decimal256(..)) {
        "cast the column to a smaller scale, or to Float64, before it reaches the job"
    } else {
        "cast the column to Decimal256, which holds 76 digits, before it reaches the job"
    };
    Err(Misfit {
        row: 0,
        value: exact.to_text(scale_of(to)),
        data_type: to.to_string(),
        advice: advice.to_owned(),
    })
}

fn decimals<T: DecimalType>(
    values: Vec<T::Native>,
    nulls: Option<NullBuffer>,
    to: &DataType,
) -> ArrayRef {
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls).with_data_type(to.clone()))
}

impl Unscaled for i128 {
    const WORDS: usize = 2;
    type Result = Decimal128Type;
    const MIN: Self = Self::MIN;
    const MAX: Self = Self::MAX;

    fn values(column: &column::Lane) -> Option<&[Self]> {
        if let column::Lane::I128(values) = column { Some(values) } else { None }
    }

    #[inline(always)]
    fn load(words: &[u64]) -> Self {
        wide::join(words[0], words[1])
    }

    #[inline(always)]
    fn store(self, words: &mut [u64]) {
        words.copy_from_slice(&wide::split(self));
    }

    #[inline(always)]
    fn add_to(self, sum: &mut [u64]) {
        wide::add_extended(&mut sum[..3], wide::split(self));
    }

    #[inline(always)]
    fn checked_sum(self, other: Self) -> Option<Self> {
        self.checked_add(other)
    }

    fn of(magnitude: &Magnitude) -> Self {
        Self::load(&magnitude.to_words::<2>())
    }

    #[expect(clippy::cast_possible_truncation, reason = "a min or max is one of the narrow values")]
    fn emit_keys(input: &DataType, keys: Vec<Self>, nulls: Option<NullBuffer>) -> ArrayRef {
        match input {
            DataType::Decimal32(..) => decimals::<Decimal32Type>(
                keys.iter().map(|key| *key as i32).collect(),
                nulls,
                input,
            ),
            DataType::Decimal64(..) => decimals::<Decimal64Type>(
                keys.iter().map(|key| *key as i64).collect(),
                nulls,
                input,
            ),
            _ => decimals::<Decimal128Type>(keys, nulls, input),
        }
    }
}

impl Unscaled for i256 {
    const WORDS: usize = 4;
    type Result = Decimal256Type;
    const MIN: Self = Self::MIN;
    const MAX: Self = Self::MAX;

    fn values(column: &column::Lane) -> Option<&[Self]> {
        if let column::Lane::I256(values) = column { Some(values) } else { None }
    }

    #[inline(always)]
    fn load(words: &[u64]) -> Self {
        let low = wide::join(words[0], words[1]).cast_unsigned();
        Self::from_parts(low, wide::join(words[2], words[3]))
    }

    #[inline(always)]
    fn store(self, words: &mut [u64]) {
        words.copy_from_slice(&words_of(self));
    }

    #[inline(always)]
    fn add_to(self, sum: &mut [u64]) {
        wide::add_extended(&mut sum[..5], words_of(self));
    }

    #[inline(always)]
    fn checked_sum(self, other: Self) -> Option<Self> {
        self.checked_add(other)
    }

    fn of(magnitude: &Magnitude) -> Self {
        Self::load(&magnitude.to_words::<4>())
    }

    fn emit_keys(input: &DataType, keys: Vec<Self>, nulls: Option<NullBuffer>) -> ArrayRef {
        decimals::<Decimal256Type>(keys, nulls, input)
    }
}

#[inline(always)]
fn words_of(value: i256) -> [u64; 4] {
    let (low, high) = value.to_parts();
    let [a, b] = wide::split(low.cast_signed());
    let [c, d] = wide::split(high);
    [a, b, c, d]
}
