//! The lanes of 64 bits: signed and unsigned integers, floats.
//!
//! Min and max are kept as *keys*: signed integers in the order of the values, so that initial state
//! and merging are the same for all three. Floats are in total order with all NaN alike and greatest,
//! and -0.0 before 0.0.
//!
//! Sums of integers are 128 bits, which 2^63 rows cannot overflow; that a result fits its type is
//! judged once, at emission.

use std::marker::PhantomData;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, BooleanArray, Decimal128Array, Float64Array, Int64Array,
    PrimitiveArray, UInt64Array, make_array,
};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{
    DataType, Date32Type, Float16Type, Float32Type, Int8Type, Int16Type, Int32Type,
    Time32MillisecondType, Time32SecondType, TimeUnit, UInt8Type, UInt16Type, UInt32Type,
};

use crate::aggregate::number::{self, Emit, Flags, Lane, Layout, Update, update_compiled};
use crate::aggregate::saved::{check_sum, no_bytes};
use crate::aggregate::wide::{self, Magnitude};
use crate::aggregate::{Damaged, Misfit, Scalar, Side, exact_float, spill};
use crate::column;
use crate::kernel::Isa;
use crate::kernel::select::MaskedRows;

/// A type of 64 bits with an order and a sum.
pub(super) trait Primitive:
    std::fmt::Debug + Copy + Default + Send + Sync + 'static
{
    const SUM_WORDS: usize;

    fn values(column: &column::Lane) -> Option<&[Self]>;
    /// The place of the value in the order of all values.
    fn key(self) -> i64;
    fn add(sum: &mut [u64], side: &mut Side, value: Self);
    fn add_all(sum: &mut [u64], side: &mut Side, values: &[Self]);
    fn merge_sum(into: &mut [u64], into_side: &mut Side, from: &[u64], from_side: &Side);
    /// See [`Lane::reduce_masked`].
    fn reduce_masked(
        _: Isa,
        _: &Layout,
        _: &mut [u64],
        _: (&[Self], Option<&NullBuffer>),
        _: &MaskedRows<'_>,
    ) -> Option<usize> {
        None
    }
    fn new_side() -> Side {
        Side::None
    }
    /// See [`Lane::save_sum`].
    fn save_sum(_: &[u64], _: &Side, _: &mut Vec<u8>) -> bool {
        false
    }
    /// See [`Lane::restore_sum`]; here of integers.
    fn restore_sum(sum: &mut [u64], _: &mut Side, saved: Option<&[u8]>) -> Result<(), Damaged> {
        no_bytes(saved)?;
        check_sum(wide::join(sum[0], sum[1]))
    }
    /// See [`Lane::sum_is_in_row`].
    fn sum_is_in_row(_: &[u64]) -> bool {
        true
    }
    /// The sum by itself; here of integers.
    fn scalar_sum(sum: &[u64], _: &Side) -> Scalar {
        Scalar::Integer(wide::join(sum[0], sum[1]))
    }
    /// The value that has this place in the order of all values.
    fn scalar_key(key: i64) -> Scalar;
    fn emit_sum(emit: &Emit<'_>) -> Result<ArrayRef, Misfit>;
    fn mean(sum: &[u64], side: &Side, count: u64) -> f64;
    fn emit_keys(input: &DataType, keys: Vec<i64>, nulls: Option<NullBuffer>) -> ArrayRef;
}

/// The lane of a [`Primitive`].
#[derive(Debug)]
pub(super) struct Word<P>(PhantomData<P>);

impl<P: Primitive> Lane for Word<P> {
    type Value = P;
    const SUM_WORDS: usize = P::SUM_WORDS;
    const KEY_WORDS: usize = 1;

    fn values(column: &column::Lane) -> Option<&[P]> {
        P::values(column)
    }

    fn init_min(key: &mut [u64]) {
        key[0] = i64::MAX.cast_unsigned();
    }

    fn init_max(key: &mut [u64]) {
        key[0] = i64::MIN.cast_unsigned();
    }

    #[inline(always)]
    fn add(sum: &mut [u64], side: &mut Side, value: P) {
        P::add(sum, side, value);
    }

    #[inline(always)]
    fn lower(min: &mut [u64], value: P) {
        min[0] = min[0].cast_signed().min(value.key()).cast_unsigned();
    }

    #[inline(always)]
    fn raise(max: &mut [u64], value: P) {
        max[0] = max[0].cast_signed().max(value.key()).cast_unsigned();
    }

    #[inline(always)]
    fn merge_sum(into: &mut [u64], into_side: &mut Side, from: &[u64], from_side: &Side) {
        P::merge_sum(into, into_side, from, from_side);
    }

    #[inline(always)]
    fn merge_min(into: &mut [u64], from: &[u64]) {
        into[0] = into[0].cast_signed().min(from[0].cast_signed()).cast_unsigned();
    }

    #[inline(always)]
    fn merge_max(into: &mut [u64], from: &[u64]) {
        into[0] = into[0].cast_signed().max(from[0].cast_signed()).cast_unsigned();
    }

    #[inline(always)]
    fn reduce(at: &Layout, state: &mut [u64], side: &mut Side, values: &[P]) {
        if at.flags.has(Flags::SUM) {
            P::add_all(&mut state[at.sum..at.sum + P::SUM_WORDS], side, values);
        }
        if at.flags.has(Flags::MIN) {
            let min = values.iter().fold(i64::MAX, |min, value| min.min(value.key()));
            Self::merge_min(&mut state[at.min..=at.min], &[min.cast_unsigned()]);
        }
        if at.flags.has(Flags::MAX) {
            let max = values.iter().fold(i64::MIN, |max, value| max.max(value.key()));
            Self::merge_max(&mut state[at.max..=at.max], &[max.cast_unsigned()]);
        }
    }

    fn reduce_masked(
        isa: Isa,
        at: &Layout,
        state: &mut [u64],
        input: (&[P], Option<&NullBuffer>),
        rows: &MaskedRows<'_>,
    ) -> Option<usize> {
        P::reduce_masked(isa, at, state, input, rows)
    }

    fn new_side() -> Side {
        P::new_side()
    }

    fn save_sum(sum: &[u64], side: &Side, out: &mut Vec<u8>) -> bool {
        P::save_sum(sum, side, out)
    }

    fn restore_sum(sum: &mut [u64], side: &mut Side, saved: Option<&[u8]>) -> Result<(), Damaged> {
        P::restore_sum(sum, side, saved)
    }

    fn sum_is_in_row(sum: &[u64]) -> bool {
        P::sum_is_in_row(sum)
    }

    fn scalar_sum(sum: &[u64], side: &Side) -> Option<Scalar> {
        Some(P::scalar_sum(sum, side))
    }

    fn scalar_mean(sum: &[u64], side: &Side, count: u64) -> Option<Scalar> {
        Some(Scalar::Float(P::mean(sum, side, count)))
    }

    fn scalar_key(key: &[u64]) -> Option<Scalar> {
        Some(P::scalar_key(key[0].cast_signed()))
    }

    fn update(flags: Flags) -> Update<Self> {
        update_compiled::<Self>(flags)
    }

    fn emit_sum(_: &DataType, emit: &Emit<'_>) -> Result<ArrayRef, Misfit> {
        P::emit_sum(emit)
    }

    fn emit_sum_decimal(emit: &Emit<'_>) -> Result<ArrayRef, Misfit> {
        assert_eq!(P::SUM_WORDS, 2, "the plan asks it of integers only");
        let sums = emit.sums::<Self, i128>(|sum, _| {
            let exact = wide::join(sum[0], sum[1]);
            if exact.unsigned_abs() < 10_u128.pow(38) {
                return Ok(exact);
            }
            Err(misfit(exact, "Decimal128(38, 0)", "take smaller groups or windows"))
        })?;
        let array = Decimal128Array::new(sums.into(), emit.nulls.clone());
        Ok(Arc::new(array.with_precision_and_scale(38, 0).expect("a decimal of 38 digits")))
    }

    fn emit_mean(_: &DataType, emit: &Emit<'_>) -> Result<ArrayRef, Misfit> {
        let means = emit.sums::<Self, f64>(|sum, count| Ok(P::mean(sum, emit.side, count)))?;
        Ok(Arc::new(Float64Array::new(means.into(), emit.nulls.clone())))
    }

    fn emit_key(input: &DataType, emit: &Emit<'_>, at: usize) -> ArrayRef {
        let keys = emit.keys::<Self, i64>(at, |key| key[0].cast_signed());
        P::emit_keys(input, keys, emit.nulls.clone())
    }
}

/// Sums the upper and lower halves of 64-bit values apart: neither sum can overflow for fewer than
/// 2^32 values, and there is no carry between vector lanes.
#[inline(always)]
fn sum_halves<P: Copy>(values: &[P], bits: impl Fn(P) -> u64) -> u128 {
    debug_assert!(u32::try_from(values.len()).is_ok(), "a batch has fewer than 2^32 rows");
    let (mut low, mut high) = (0_u64, 0_u64);
    for value in values {
        low += bits(*value) & 0xffff_ffff;
        high += bits(*value) >> 32;
    }
    (u128::from(high) << 32) + u128::from(low)
}

const SIGN: u64 = 1 << 63;

#[inline(always)]
fn add_integer(sum: &mut [u64], value: i128) {
    let total = wide::join(sum[0], sum[1]) + value;
    [sum[0], sum[1]] = wide::split(total);
}

fn misfit(value: i128, data_type: &str, advice: &str) -> Misfit {
    Misfit {
        row: 0,
        value: value.to_string(),
        data_type: data_type.to_owned(),
        advice: advice.to_owned(),
    }
}

const ASK_DECIMAL: &str = "ask for sum_decimal instead of sum, which holds 38 digits";

impl Primitive for i64 {
    const SUM_WORDS: usize = 2;

    fn values(column: &column::Lane) -> Option<&[Self]> {
        if let column::Lane::I64(values) = column { Some(values) } else { None }
    }

    #[inline(always)]
    fn key(self) -> i64 {
        self
    }

    #[inline(always)]
    fn add(sum: &mut [u64], _: &mut Side, value: Self) {
        add_integer(sum, value.into());
    }

    #[inline(always)]
    fn add_all(sum: &mut [u64], _: &mut Side, values: &[Self]) {
        // Flipping the sign bit adds 2^63 to every value, which makes them unsigned.
        let lifted = sum_halves(values, |value| value.cast_unsigned() ^ SIGN);
        add_integer(sum, lifted.cast_signed() - ((values.len() as i128) << 63));
    }

    #[inline(always)]
    fn merge_sum(into: &mut [u64], _: &mut Side, from: &[u64], _: &Side) {
        add_integer(into, wide::join(from[0], from[1]));
    }

    fn reduce_masked(
        isa: Isa,
        at: &Layout,
        state: &mut [u64],
        input: (&[Self], Option<&NullBuffer>),
        rows: &MaskedRows<'_>,
    ) -> Option<usize> {
        Some(number::reduce_masked(isa, at, state, input, rows))
    }

    fn scalar_key(key: i64) -> Scalar {
        Scalar::Integer(key.into())
    }

    fn emit_sum(emit: &Emit<'_>) -> Result<ArrayRef, Misfit> {
        let sums = emit.sums::<Word<Self>, i64>(|sum, _| {
            let exact = wide::join(sum[0], sum[1]);
            exact.try_into().map_err(|_| misfit(exact, "Int64", ASK_DECIMAL))
        })?;
        Ok(Arc::new(Int64Array::new(sums.into(), emit.nulls.clone())))
    }

    fn mean(sum: &[u64], _: &Side, count: u64) -> f64 {
        Magnitude::of(sum).mean_to_f64(0, count)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a min or max is one of the narrow values")]
    fn emit_keys(input: &DataType, keys: Vec<i64>, nulls: Option<NullBuffer>) -> ArrayRef {
        match input {
            DataType::Boolean => {
                Arc::new(BooleanArray::new(keys.iter().map(|key| *key != 0).collect(), nulls))
            }
            DataType::Int8 => narrow::<Int8Type>(&keys, nulls, |key| key as i8),
            DataType::Int16 => narrow::<Int16Type>(&keys, nulls, |key| key as i16),
            DataType::Int32 => narrow::<Int32Type>(&keys, nulls, |key| key as i32),
            DataType::Date32 => narrow::<Date32Type>(&keys, nulls, |key| key as i32),
            DataType::Time32(TimeUnit::Second) => {
                narrow::<Time32SecondType>(&keys, nulls, |key| key as i32)
            }
            DataType::Time32(_) => narrow::<Time32MillisecondType>(&keys, nulls, |key| key as i32),
            // All others are 64-bit integers of some meaning: the same bytes under their type.
            _ => {
                let data = Int64Array::new(keys.into(), nulls).into_data();
                let data = data.into_builder().data_type(input.clone()).build();
                make_array(data.expect("every type of this lane but those above has 64 bits"))
            }
        }
    }
}

fn narrow<T: ArrowPrimitiveType>(
    keys: &[i64],
    nulls: Option<NullBuffer>,
    value: impl Fn(i64) -> T::Native,
) -> ArrayRef {
    let values: Vec<T::Native> = keys.iter().map(|key| value(*key)).collect();
    Arc::new(PrimitiveArray::<T>::new(values.into(), nulls))
}

impl Primitive for u64 {
    const SUM_WORDS: usize = 2;

    fn values(column: &column::Lane) -> Option<&[Self]> {
        if let column::Lane::U64(values) = column { Some(values) } else { None }
    }

    #[inline(always)]
    fn key(self) -> i64 {
        (self ^ SIGN).cast_signed()
    }

    #[inline(always)]
    fn add(sum: &mut [u64], _: &mut Side, value: Self) {
        add_integer(sum, value.into());
    }

    #[inline(always)]
    fn add_all(sum: &mut [u64], _: &mut Side, values: &[Self]) {
        add_integer(sum, sum_halves(values, |value| value).cast_signed());
    }

    #[inline(always)]
    fn merge_sum(into: &mut [u64], _: &mut Side, from: &[u64], _: &Side) {
        add_integer(into, wide::join(from[0], from[1]));
    }

    fn reduce_masked(
        isa: Isa,
        at: &Layout,
        state: &mut [u64],
        input: (&[Self], Option<&NullBuffer>),
        rows: &MaskedRows<'_>,
    ) -> Option<usize> {
        Some(number::reduce_masked(isa, at, state, input, rows))
    }

    fn scalar_key(key: i64) -> Scalar {
        Scalar::Integer((key.cast_unsigned() ^ SIGN).into())
    }

    fn emit_sum(emit: &Emit<'_>) -> Result<ArrayRef, Misfit> {
        let sums = emit.sums::<Word<Self>, u64>(|sum, _| {
            let exact = wide::join(sum[0], sum[1]);
            exact.try_into().map_err(|_| misfit(exact, "UInt64", ASK_DECIMAL))
        })?;
        Ok(Arc::new(UInt64Array::new(sums.into(), emit.nulls.clone())))
    }

    fn mean(sum: &[u64], _: &Side, count: u64) -> f64 {
        Magnitude::of(sum).mean_to_f64(0, count)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a min or max is one of the narrow values")]
    fn emit_keys(input: &DataType, keys: Vec<i64>, nulls: Option<NullBuffer>) -> ArrayRef {
        let value = |key: i64| key.cast_unsigned() ^ SIGN;
        match input {
            DataType::UInt8 => narrow::<UInt8Type>(&keys, nulls, |key| value(key) as u8),
            DataType::UInt16 => narrow::<UInt16Type>(&keys, nulls, |key| value(key) as u16),
            DataType::UInt32 => narrow::<UInt32Type>(&keys, nulls, |key| value(key) as u32),
            _ => {
                let values: Vec<u64> = keys.into_iter().map(value).collect();
                Arc::new(UInt64Array::new(values.into(), nulls))
            }
        }
    }
}

impl Primitive for f64 {
    const SUM_WORDS: usize = exact_float::WORDS;

    fn values(column: &column::Lane) -> Option<&[Self]> {
        if let column::Lane::F64(values) = column { Some(values) } else { None }
    }

    #[inline(always)]
    fn key(self) -> i64 {
        let bits = if self.is_nan() { Self::NAN.to_bits() & !SIGN } else { self.to_bits() };
        flip(bits.cast_signed())
    }

    #[inline(always)]
    fn add(sum: &mut [u64], side: &mut Side, value: Self) {
        exact_float::add(sum, side, value);
    }

    #[inline(always)]
    fn add_all(sum: &mut [u64], side: &mut Side, values: &[Self]) {
        exact_float::add_all(sum, side, values);
    }

    #[inline(always)]
    fn merge_sum(into: &mut [u64], into_side: &mut Side, from: &[u64], from_side: &Side) {
        exact_float::merge(into, into_side, from, from_side);
    }

    fn new_side() -> Side {
        Side::Floats(Vec::new())
    }

    fn save_sum(sum: &[u64], side: &Side, out: &mut Vec<u8>) -> bool {
        exact_float::save(sum, side, out)
    }

    fn restore_sum(sum: &mut [u64], side: &mut Side, saved: Option<&[u8]>) -> Result<(), Damaged> {
        exact_float::restore(sum, side, saved)
    }

    fn sum_is_in_row(sum: &[u64]) -> bool {
        spill::index(sum[exact_float::WORDS - 1]).is_none()
    }

    fn scalar_sum(sum: &[u64], side: &Side) -> Scalar {
        Scalar::Float(exact_float::sum(sum, side))
    }

    fn scalar_key(key: i64) -> Scalar {
        Scalar::Float(Self::from_bits(flip(key).cast_unsigned()))
    }

    fn emit_sum(emit: &Emit<'_>) -> Result<ArrayRef, Misfit> {
        let sums = emit.sums::<Word<Self>, f64>(|sum, _| Ok(exact_float::sum(sum, emit.side)))?;
        Ok(Arc::new(Float64Array::new(sums.into(), emit.nulls.clone())))
    }

    fn mean(sum: &[u64], side: &Side, count: u64) -> f64 {
        exact_float::mean(sum, side, count)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a min or max is one of the narrow values")]
    fn emit_keys(input: &DataType, keys: Vec<i64>, nulls: Option<NullBuffer>) -> ArrayRef {
        type F16 = <Float16Type as ArrowPrimitiveType>::Native;
        let value = |key: i64| Self::from_bits(flip(key).cast_unsigned());
        match input {
            DataType::Float16 => {
                narrow::<Float16Type>(&keys, nulls, |key| F16::from_f64(value(key)))
            }
            DataType::Float32 => narrow::<Float32Type>(&keys, nulls, |key| value(key) as f32),
            _ => {
                let values: Vec<Self> = keys.into_iter().map(value).collect();
                Arc::new(Float64Array::new(values.into(), nulls))
            }
        }
    }
}

/// Between the bits of a float and its place in the order of floats; its own inverse.
#[inline(always)]
fn flip(bits: i64) -> i64 {
    bits ^ ((bits >> 63).cast_unsigned() >> 1).cast_signed()
}
