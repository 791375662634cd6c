//! What each aggregate of a group should be, computed from Arrow values with other means than the
//! accumulators: sorting for min and max, 256-bit integers and [`Exact`] for sums and means.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{SortOptions, cast, sort_to_indices, take};
use arrow::datatypes::{DataType, Decimal256Type, Float64Type, Int64Type, i256};

use crate::aggregate::Misfit;
use crate::aggregate::spec::{Aggregate, Function};
use crate::aggregate::tests::exact::Exact;

/// Compares `result` with what `aggregate` should give for `groups`.
pub(super) fn compare(
    aggregate: &Aggregate,
    groups: &[ArrayRef],
    result: Result<ArrayRef, Misfit>,
) {
    let misfits: Vec<usize> =
        (0..groups.len()).filter(|row| !fits(aggregate.function, &groups[*row])).collect();
    let result = match result {
        Ok(result) => result,
        Err(misfit) => {
            assert_eq!(Some(&misfit.row), misfits.first(), "{aggregate}: {misfit:?}");
            return;
        }
    };
    assert_eq!(misfits, [0_usize; 0], "{aggregate}: {result:?}");
    assert_eq!(result.len(), groups.len());
    for (row, group) in groups.iter().enumerate() {
        let values = group.len() - group.logical_null_count();
        let found = result.slice(row, 1);
        let counted = if aggregate.column.is_none() { group.len() } else { values };
        match aggregate.function {
            Function::Count => {
                assert_eq!(found.as_primitive::<Int64Type>().value(0), counted as i64);
            }
            _ if values == 0 => assert!(found.is_null(0), "{aggregate}: {found:?}"),
            Function::Min => assert_eq!(&found, &extreme(group, false)),
            Function::Max => assert_eq!(&found, &extreme(group, true)),
            Function::Sum | Function::SumDecimal | Function::Avg => {
                assert!(
                    is_sum_or_mean(aggregate, group, &found),
                    "{aggregate} {group:?}: {found:?}"
                );
            }
            function => unreachable!("{function} has another oracle"),
        }
    }
}

fn extreme(group: &ArrayRef, descending: bool) -> ArrayRef {
    let plain = match group.data_type() {
        DataType::Dictionary(_, values) => cast(group, values).unwrap(),
        _ => ArrayRef::clone(group),
    };
    let options = SortOptions { descending, nulls_first: false };
    let first = sort_to_indices(&plain, Some(options), Some(1)).unwrap();
    take(&plain, &first, None).unwrap()
}

pub(super) fn scale(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal32(_, scale)
        | DataType::Decimal64(_, scale)
        | DataType::Decimal128(_, scale)
        | DataType::Decimal256(_, scale) => *scale,
        _ => 0,
    }
}

/// The values that are not null, unscaled.
fn unscaled(array: &ArrayRef) -> Vec<i256> {
    let wide = cast(array, &DataType::Decimal256(76, scale(array.data_type()))).unwrap();
    wide.as_primitive::<Decimal256Type>().iter().flatten().collect()
}

fn unscaled_sum(array: &ArrayRef) -> i256 {
    unscaled(array).into_iter().fold(i256::ZERO, |sum, value| sum + value)
}

/// The exact result and its greatest allowed distance from zero, for what must fit a type.
fn fits(function: Function, group: &ArrayRef) -> bool {
    let data_type = group.data_type();
    if group.logical_null_count() == group.len() || data_type.is_floating() {
        return true;
    }
    let pow = |n: u8| i256::from_i128(10).wrapping_pow(n.into());
    let decimals = if matches!(data_type, DataType::Decimal256(..)) { 76 } else { 38 };
    let is_decimal = !data_type.is_integer();
    match function {
        Function::Sum if data_type.is_signed_integer() => {
            let sum = unscaled_sum(group).to_i128().unwrap();
            i64::try_from(sum).is_ok()
        }
        Function::Sum if data_type.is_integer() => {
            u64::try_from(unscaled_sum(group).to_i128().unwrap()).is_ok()
        }
        Function::Sum if is_decimal => unscaled_sum(group).wrapping_abs() < pow(decimals),
        Function::Avg if is_decimal => mean(group, decimals).0.wrapping_abs() < pow(decimals),
        _ => true,
    }
}

/// The mean of decimals, half away from zero, and its scale.
fn mean(group: &ArrayRef, digits: u8) -> (i256, i8) {
    let scale = scale(group.data_type());
    let more = (i8::try_from(digits).unwrap() - scale).min(4);
    let values = unscaled(group);
    let sum = unscaled_sum(group);
    let factor = i256::from_i128(10_i128.pow(u32::try_from(more).unwrap()));
    let (sum, count) = (sum * factor, i256::from_i128(values.len() as i128));
    let half = count / i256::from_i128(2);
    // |sum| / count, half up. An odd count has no half, so that its being rounded down is right.
    let rounded = (sum.wrapping_abs() + half) / count;
    (if sum < i256::ZERO { -rounded } else { rounded }, scale + more)
}

fn is_sum_or_mean(aggregate: &Aggregate, group: &ArrayRef, found: &ArrayRef) -> bool {
    let is_mean = aggregate.function == Function::Avg;
    let input = group.data_type();
    let count = (group.len() - group.null_count()) as u64;
    if input.is_floating() {
        let found = found.as_primitive::<Float64Type>().value(0);
        let values = cast(group, &DataType::Float64).unwrap();
        let values: Vec<f64> = values.as_primitive::<Float64Type>().iter().flatten().collect();
        return is_float_sum(&values, found, if is_mean { count } else { 1 });
    }
    if is_mean && input.is_integer() {
        let found = found.as_primitive::<Float64Type>().value(0);
        let mut exact = Exact::zero();
        exact.add_integer(unscaled_sum(group).to_i128().unwrap(), 1);
        return exact.is_nearest(found, count);
    }
    let value = unscaled_sum(found);
    if is_mean {
        let digits = if matches!(input, DataType::Decimal256(..)) { 76 } else { 38 };
        return (value, scale(found.data_type())) == mean(group, digits);
    }
    value == unscaled_sum(group) && scale(found.data_type()) == scale(input)
}

/// Whether `found` is the sum of `values` divided by `count`, as IEEE has it for infinities and NaN.
pub(super) fn is_float_sum(values: &[f64], found: f64, count: u64) -> bool {
    let specials: f64 = values.iter().filter(|value| !value.is_finite()).sum();
    if values.iter().any(|value| !value.is_finite()) {
        return if specials.is_nan() { found.is_nan() } else { found == specials };
    }
    let mut exact = Exact::zero();
    for value in values {
        exact.add(*value, 1);
    }
    let zero = exact.signum() == 0;
    exact.is_nearest(found, count) && (!zero || found.to_bits() == 0)
}
