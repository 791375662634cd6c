//! Floats in the forms in which they are compared by their bits.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{ArrowPrimitiveType, DataType, Float16Type, Float32Type, Float64Type};

/// The column with all NaN alike, in the form that is greatest in the total order of floats, and, if
/// `one_zero`, with -0.0 as 0.0. Columns that are not floats as they are.
pub(crate) fn canonical_floats(array: &ArrayRef, one_zero: bool) -> ArrayRef {
    type F16 = <Float16Type as ArrowPrimitiveType>::Native;
    match array.data_type() {
        DataType::Float64 => map::<Float64Type>(array, |value| canonical(value, one_zero)),
        DataType::Float32 => map::<Float32Type>(array, |value| {
            if value.is_nan() {
                f32::NAN.abs()
            } else if one_zero {
                // Turns the negative zero into the other and changes nothing else.
                value + 0.0
            } else {
                value
            }
        }),
        DataType::Float16 => {
            map::<Float16Type>(array, |value| F16::from_f64(canonical(f64::from(value), one_zero)))
        }
        _ => Arc::clone(array),
    }
}

fn map<T: ArrowPrimitiveType>(array: &ArrayRef, with: impl Fn(T::Native) -> T::Native) -> ArrayRef {
    let mapped: PrimitiveArray<T> = array.as_primitive::<T>().unary(with);
    Arc::new(mapped)
}

fn canonical(value: f64, one_zero: bool) -> f64 {
    if value.is_nan() {
        f64::NAN.abs()
    } else if one_zero {
        value + 0.0
    } else {
        value
    }
}
