//! Aggregates: what is kept per key and window, and how it is updated, merged and turned into results.
//!
//! Aggregates over one column share what they keep: `sum(x), min(x), max(x), avg(x), count(x)` are one
//! [`Accumulator`] whose words lie side by side in the key's row, so that a row of the input touches
//! them in one pass. [`plan::Plan`] finds the sharing and lays out the row.
//!
//! The contract, and with it the salting contract: state is a fixed number of words plus, for what has
//! no fixed size, a [`Side`] store of the pane. `merge` is associative and commutative, and
//! `update` in any order and any split followed by `merge` in any order gives the same result, to the
//! bit. Every accumulator here obeys it, so every one may be salted. `emit` is pure.
//!
//! An accumulator reads one [`Column`], which may be made of several columns of the batch; [`input`]
//! makes it once a batch. Those with state of no fixed size keep one state per key in the side store,
//! found through one word of the row ([`keyed`]). Which rows pass an aggregate's [`filter`] is found
//! once a batch too, and the accumulators see only those.

use std::fmt::Debug;

use arrow::array::{ArrayRef, LargeBinaryArray};

pub(crate) mod wide;
pub(crate) mod filter;
pub(crate) mod spec;
mod emit;
mod saved;
mod spill;
mod exact_float;
mod number;
mod primitive;
mod decimal;
mod rows_count;
mod bits;
pub(crate) mod input;
mod bytes;
mod exact_product;
mod moments;
mod keyed;
mod value_set;
mod distinct;
mod approx_distinct;
mod quantile;
mod top;
mod mode;
pub(crate) mod extent;
pub(crate) mod revision;
pub mod custom;
pub(crate) mod plan;
pub mod testkit;

pub(crate) use saved::{Damaged, Unsaved};

pub use custom::{Custom, CustomAggregate, GroupedRows};
pub use filter::Filter;
pub use spec::{Aggregate, Fraction, Function};

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    clippy::float_cmp,
    reason = "narrow values are made of wide ones, and results are right to the last bit"
)]
mod tests;

use crate::column::Column;
use crate::kernel::Isa;
use crate::kernel::select::MaskedRows;
use crate::state::rows::Rows;
use crate::state::spread::SpreadPart;

/// What is kept for one column (or for none: `count`), for every key of a pane.
///
/// The accumulator itself is a description; state lives in the pane's rows (`words()` words at the
/// offset the plan gave it) and in the pane's [`Side`].
pub(crate) trait Accumulator: Debug + Send + Sync {
    /// Words in each row.
    fn words(&self) -> usize;

    /// Writes the state of "no rows yet".
    fn init(&self, state: &mut [u64]);

    /// An empty side store.
    fn new_side(&self) -> Side {
        Side::None
    }

    /// Adds row `selection[k]` of `column` to the `k`-th row of `rows`, at `offset`, for every `k`.
    /// A selection is strictly increasing, here and below.
    /// `column` is `None` for an accumulator without an input column.
    fn update(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        side: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    );

    /// Adds the rows `selection` of `column` to `state`, the `words()` words of one row: for a hot key,
    /// reduced in registers before the row is touched.
    fn update_dense(
        &self,
        isa: Isa,
        state: &mut [u64],
        side: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    );

    /// [`Accumulator::update_dense`] straight from the columns, for rows given as bits. False, with nothing
    /// done, if this accumulator has no such form: then the rows are listed.
    fn update_masked(
        &self,
        _isa: Isa,
        _state: &mut [u64],
        _column: Option<&Column>,
        _rows: &MaskedRows<'_>,
    ) -> bool {
        false
    }

    /// Merges the `k`-th row of `from` (with its side store), which stays as it is, into the `k`-th row of
    /// `into`.
    fn merge(
        &self,
        into: &mut Rows<'_>,
        into_side: &mut Side,
        from: &Rows<'_>,
        from_side: &Side,
        offset: usize,
    );

    /// The same where `from` is not used again, so that what it keeps in its side store may be taken.
    fn absorb(
        &self,
        into: &mut Rows<'_>,
        into_side: &mut Side,
        from: &Rows<'_>,
        from_side: &mut Side,
        offset: usize,
    ) {
        self.merge(into, into_side, from, from_side, offset);
    }

    /// Whether the state of a hot key has grown so large that a copy at every producer is too much, and its
    /// further rows should be spread over shards by their values ([`spread`]).
    fn wants_spreading(&self, _state: &[u64], _side: &Side) -> bool {
        false
    }

    /// Hands each row of `selection` that has a value to the shard, of as many as there are parts, that its
    /// value belongs to; for an accumulator that wants spreading.
    fn spread(&self, _column: Option<&Column>, _selection: &[u32], _parts: &mut [SpreadPart]) {
        unreachable!("{self:?} is not spread");
    }

    /// [`Accumulator::absorb`] of what a shard kept of the values that belong to it, the `bucket`-th of so many:
    /// they are kept side by side, since no value is in two buckets.
    fn adopt(
        &self,
        into: (&mut Rows<'_>, &mut Side),
        from: (&Rows<'_>, &mut Side),
        offset: usize,
        _bucket: (usize, usize),
    ) {
        self.absorb(into.0, into.1, from.0, from.1, offset);
    }

    /// The result column `part` for `rows`. Pure: may be called early, twice, for a reader.
    fn emit(
        &self,
        part: Part,
        rows: &Rows<'_>,
        offset: usize,
        side: &Side,
    ) -> Result<ArrayRef, Misfit>;

    /// Whether the words of a row are all there is of a state, so that a copy of them is the state: of any, or of the
    /// state in these words.
    fn is_in_row(&self, _state: Option<&[u64]>) -> bool {
        matches!(self.new_side(), Side::None)
    }

    /// The result `part` of one state without an array being made of it; none if it has no such form.
    fn scalar(&self, _part: Part, _state: &[u64], _side: &Side) -> Option<Scalar> {
        None
    }

    /// Whether [`Accumulator::save`] works at all; if not, why. Asked before a job starts that is to be saved.
    fn can_save(&self) -> Result<(), Unsaved> {
        Ok(())
    }

    /// What the side store keeps for each of `rows`, one value per row: together with the words of the rows
    /// a state that [`Accumulator::restore`] takes back. `None` where the words are all there is. [`saved`] says
    /// what the bytes are.
    ///
    /// # Errors
    /// If this state cannot be saved (a custom aggregate without a way to).
    fn save(
        &self,
        rows: &Rows<'_>,
        offset: usize,
        side: &Side,
    ) -> Result<Option<LargeBinaryArray>, Unsaved>;

    /// Takes back what [`Accumulator::save`] gave: the words of `rows` are as they were saved, references
    /// into the side store of that time included, which are replaced here. `side` is the side store of the pane
    /// that `rows` are in; it may already hold other keys' states.
    ///
    /// # Errors
    /// If words and bytes are not such as `save` gives; then `rows` and `side` are to be given up. Never panics, and
    /// what it took back makes nothing else panic, whatever the bytes and words are.
    fn restore(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        side: &mut Side,
        saved: Option<&LargeBinaryArray>,
    ) -> Result<(), Damaged>;
}

/// Which result of an accumulator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Number of rows (`count`).
    Rows,
    /// Number of values that are not null (`count(x)`).
    Values,
    /// Sum: of integers `Int64` (`UInt64` if unsigned), of floats `Float64`, of decimals a decimal of
    /// precision 38 or 76.
    Sum,
    /// Sum of integers as Decimal128(38, 0).
    SumDecimal,
    /// Smallest value, in the input's type.
    Min,
    /// Largest value, in the input's type.
    Max,
    /// Mean: Float64, or a decimal for decimals.
    Avg,
    /// Bits that all values have.
    BitAnd,
    /// Bits that any value has.
    BitOr,
    /// Bits that an odd number of values have.
    BitXor,
    /// Sample variance (of a column), covariance (of two).
    Samp,
    /// Population variance or covariance.
    Pop,
    /// Square root of the sample variance.
    StddevSamp,
    /// Square root of the population variance.
    StddevPop,
    /// Correlation of two columns.
    Corr,
    /// Number of different values.
    Distinct,
    /// A value at this rank.
    Quantile(Fraction),
    /// The values kept, in order.
    List,
    /// The most frequent value.
    Mode,
    /// Of an aggregate that is not ours.
    Custom,
}

impl Part {
    /// Whether it is a count, which is there for every group.
    pub(crate) const fn is_count(self) -> bool {
        matches!(self, Self::Rows | Self::Values | Self::Distinct)
    }
}

/// One result by itself, exact, whatever type the result column has.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub enum Scalar {
    /// A group without a value has no sum, min, max or mean.
    Null,
    /// A count, a sum of integers, or the smallest or largest of integers, dates and times (in their unit) and
    /// booleans (0 or 1).
    Integer(i128),
    /// A sum, mean, min or max of floats, or a mean of integers.
    Float(f64),
}

impl Scalar {
    /// The integer, if it is one that fits.
    pub fn as_i64(self) -> Option<i64> {
        match self {
            Self::Integer(value) => value.try_into().ok(),
            Self::Null | Self::Float(_) => None,
        }
    }

    /// The number as a float, rounded if it is a large integer.
    pub fn as_f64(self) -> Option<f64> {
        match self {
            #[expect(clippy::cast_precision_loss, reason = "as documented")]
            Self::Integer(value) => Some(value as f64),
            Self::Float(value) => Some(value),
            Self::Null => None,
        }
    }
}

/// A result that does not fit its type; the caller knows the key, the window and the aggregate's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Misfit {
    /// Which of `rows`.
    pub(crate) row: usize,
    /// The exact value, as text.
    pub(crate) value: String,
    /// The type it should have fitted.
    pub(crate) data_type: String,
    /// What to do.
    pub(crate) advice: String,
}

/// State of no fixed size, of all keys of a pane, for one accumulator. A row refers to it by index.
#[derive(Debug, Default)]
#[non_exhaustive]
pub(crate) enum Side {
    /// Nothing beside the rows.
    #[default]
    None,
    /// Float sums that left the range their row can hold.
    Floats(Vec<exact_float::Spill>),
    /// Sums and sums of products that left the range their row can hold.
    Products(Vec<exact_product::Spill>),
    /// Smallest and largest texts.
    Bytes(bytes::ByteStore),
    /// One state per key, of a type that its accumulator knows.
    Keyed(Box<dyn keyed::StateStore>),
}

impl Side {
    /// Bytes in use.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Floats(spills) => size_of_val(spills.as_slice()),
            Self::Products(spills) => size_of_val(spills.as_slice()),
            Self::Bytes(store) => store.bytes(),
            Self::Keyed(store) => store.bytes(),
        }
    }

    /// Forgets everything, and keeps memory where it can; for a pane that is used again.
    pub(crate) fn clear(&mut self) {
        match self {
            Self::None => {}
            Self::Floats(spills) => spills.clear(),
            Self::Products(spills) => spills.clear(),
            Self::Bytes(store) => store.clear(),
            Self::Keyed(store) => store.clear(),
        }
    }
}
