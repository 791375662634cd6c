//! Input columns in the few shapes the accumulators know.
//!
//! Arrow has some forty types; kernels for each would be code without end. A column is lent as it is
//! where its values already are 64-bit integers, 64-bit floats, or decimals, and widened once per
//! batch otherwise. Strings and binary stay in their own buffers and are reached by [`BytesColumn`].
//! Of types that no kernel knows (nested ones, intervals) only which rows are null is kept.
//!
//! What an accumulator or a filter needs of several columns is one column too: a pair of numbers, whole
//! rows as ordered bytes or as canonical keys, the rows that pass a filter.

use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::buffer::{BooleanBuffer, NullBuffer, ScalarBuffer};
use arrow::datatypes::i256;

use crate::key::batch::KeyBatch;

mod bytes;
mod find;
mod floats;
mod lane;

pub(crate) use bytes::{BytesArray, BytesColumn, BytesVisitor};
pub(crate) use find::find_column;
pub(crate) use floats::canonical_floats;
pub(crate) use lane::{LaneKind, value_type};

/// A column of one batch, ready for an accumulator.
#[derive(Debug, Clone)]
pub(crate) struct Column {
    /// The values; at null rows, anything.
    pub(crate) values: Lane,
    /// Which rows are valid; `None` if all are (also when the input carried a bitmap without a null).
    pub(crate) nulls: Option<NullBuffer>,
}

/// Values of a column in one of the shapes that kernels exist for.
#[derive(Debug, Clone)]
pub(crate) enum Lane {
    /// Signed integers of up to 64 bits, dates, times, timestamps, durations; booleans as 0 and 1.
    I64(ScalarBuffer<i64>),
    /// Unsigned integers of up to 64 bits.
    U64(ScalarBuffer<u64>),
    /// Floats of up to 64 bits.
    F64(ScalarBuffer<f64>),
    /// Decimals of up to 128 bits (smaller ones are widened).
    I128(ScalarBuffer<i128>),
    /// Decimals of 256 bits.
    I256(ScalarBuffer<i256>),
    /// Text and binary of every form.
    Bytes(BytesColumn),
    /// A type without kernels: only its nulls are known, so it can only be counted.
    Opaque,
    /// Two columns of numbers, side by side.
    Pair(Arc<[Column; 2]>),
    /// Canonical keys, hashed.
    Keys(Arc<KeyBatch>),
    /// Whole columns, for aggregates that are not ours.
    Arrays(Arc<[ArrayRef]>),
    /// Rows that pass a filter.
    Mask(BooleanBuffer),
}
