//! The functions: their names, and what stands in their parentheses.

use std::fmt;

use crate::error::ConfigError;

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(test, derive(strum::EnumCount))]
#[non_exhaustive]
pub enum Function {
    /// Number of rows; of a column: number of values that are not null.
    Count,
    /// Number of different values; of several columns: of different rows, those with a null left out. All
    /// NaN are one value, both zeros are one value.
    CountDistinct,
    /// About how many different values there are, by `HyperLogLog`: exact up to 256, then with a standard
    /// error of 1.7 %.
    ApproxDistinct,
    /// Sum. Of integers `Int64` or `UInt64`, exact or an error; of floats `Float64`, the exact sum rounded
    /// once; of decimals a decimal of precision 38 or 76, exact or an error.
    Sum,
    /// Sum of integers as Decimal128(38, 0), for sums that do not fit 64 bits.
    SumDecimal,
    /// Smallest value, in the column's type. NaN is greater than every other number.
    Min,
    /// Largest value, in the column's type. NaN is greater than every other number.
    Max,
    /// Mean: `Float64`, the exact mean rounded once; of decimals a decimal with up to four more digits
    /// after the point, half rounded away from zero.
    Avg,
    /// Any of the values that are not null: the smallest, so that it is always the same one.
    AnyValue,
    /// The value of the row with the earliest event time; of several, the smallest value. Rows without a
    /// value or a time are left out.
    First,
    /// The value of the row with the latest event time; of several, the largest value. Rows without a value
    /// or a time are left out.
    Last,
    /// `arg_min(x, by)`: the x of the row with the smallest `by`; of several, the smallest x. Rows where
    /// either is null are left out.
    ArgMin,
    /// `arg_max(x, by)`: the x of the row with the largest `by`; of several, the largest x. Rows where
    /// either is null are left out.
    ArgMax,
    /// Whether all booleans are true.
    BoolAnd,
    /// Whether any boolean is true.
    BoolOr,
    /// The bits that all integers have in common.
    BitAnd,
    /// The bits that any integer has.
    BitOr,
    /// The bits that an odd number of the integers have.
    BitXor,
    /// Sample variance: `Float64`, the exact variance rounded once; null for fewer than two values.
    VarSamp,
    /// Population variance: `Float64`, the exact variance rounded once.
    VarPop,
    /// Sample standard deviation, the square root of `var_samp`.
    StddevSamp,
    /// Population standard deviation, the square root of `var_pop`.
    StddevPop,
    /// `covar_samp(y, x)`: sample covariance of the rows where neither is null, the exact one rounded once;
    /// null for fewer than two rows.
    CovarSamp,
    /// `covar_pop(y, x)`: population covariance of the rows where neither is null, the exact one rounded once.
    CovarPop,
    /// `corr(y, x)`: correlation of the rows where neither is null; null if either does not vary.
    Corr,
    /// `approx_quantile(x, q)`: a value at most 0.8 % away from the value at rank `q` (the smallest value
    /// that at least the fraction q of the values do not exceed); exact up to 128 values.
    ApproxQuantile(Fraction),
    /// `approx_quantile(x, 0.5)`.
    Median,
    /// `top_n(x, n)`: the n largest values, the largest first, as a list; `top_n(x, n, payload)`: those
    /// values with the payload of their rows; of equal values, those with the larger payload.
    TopN(u32),
    /// `bottom_n(x, n)`: the n smallest values, the smallest first, as a list; with a payload as `top_n`, of
    /// equal values those with the smaller payload.
    BottomN(u32),
    /// The most frequent value; of several, the smallest.
    Mode,
    /// An aggregate of the embedder's own, see [`CustomAggregate`](crate::aggregate::CustomAggregate).
    Custom,
}

/// Most values that `top_n` and `bottom_n` keep, so that a key's state stays small.
const TOP_N_MAX: u32 = 10_000;

/// A number that may stand in a [`Function`], such as the q of a quantile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fraction(u64);

impl Fraction {
    /// The number; that it lies between 0 and 1 is checked when a job is built.
    pub const fn new(value: f64) -> Self {
        Self(value.to_bits())
    }

    /// The number.
    pub const fn get(self) -> f64 {
        f64::from_bits(self.0)
    }
}

/// What stands in a function's parentheses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// `(x)`, `(*)` or nothing.
    OptionalColumn,
    /// `(x)`.
    Column,
    /// `(x, y)`; the text is how it is written.
    TwoColumns(&'static str),
    /// `(x, y, ...)`.
    Columns,
    /// `(x, q)`.
    Quantile,
    /// `(x, n)` or `(x, n, payload)`.
    Count,
}

impl Function {
    /// All functions that are the library's own; a parameter, such as the n of `top_n`, is a placeholder here.
    pub const fn all() -> &'static [Self] {
        &Self::ALL
    }

    /// See [`Function::all`].
    pub(crate) const ALL: [Self; 30] = [
        Self::Count,
        Self::Sum,
        Self::SumDecimal,
        Self::Min,
        Self::Max,
        Self::Avg,
        Self::ApproxDistinct,
        Self::ApproxQuantile(Fraction(0)),
        Self::Median,
        Self::VarSamp,
        Self::VarPop,
        Self::StddevSamp,
        Self::StddevPop,
        Self::CovarSamp,
        Self::CovarPop,
        Self::Corr,
        Self::First,
        Self::Last,
        Self::ArgMin,
        Self::ArgMax,
        Self::AnyValue,
        Self::Mode,
        Self::TopN(0),
        Self::BottomN(0),
        Self::BoolAnd,
        Self::BoolOr,
        Self::BitAnd,
        Self::BitOr,
        Self::BitXor,
        // After `Count`, whose name it shares.
        Self::CountDistinct,
    ];

    /// Other names that are understood.
    pub(super) const ALIASES: [(&str, Self); 7] = [
        ("variance", Self::VarSamp),
        ("stddev", Self::StddevSamp),
        ("first_value", Self::First),
        ("last_value", Self::Last),
        ("approx_percentile", Self::ApproxQuantile(Fraction(0))),
        ("approx_count_distinct", Self::ApproxDistinct),
        ("count_distinct", Self::CountDistinct),
    ];

    /// The name it is asked for by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count | Self::CountDistinct => "count",
            Self::ApproxDistinct => "approx_distinct",
            Self::Sum => "sum",
            Self::SumDecimal => "sum_decimal",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
            Self::AnyValue => "any_value",
            Self::First => "first",
            Self::Last => "last",
            Self::ArgMin => "arg_min",
            Self::ArgMax => "arg_max",
            Self::BoolAnd => "bool_and",
            Self::BoolOr => "bool_or",
            Self::BitAnd => "bit_and",
            Self::BitOr => "bit_or",
            Self::BitXor => "bit_xor",
            Self::VarSamp => "var_samp",
            Self::VarPop => "var_pop",
            Self::StddevSamp => "stddev_samp",
            Self::StddevPop => "stddev_pop",
            Self::CovarSamp => "covar_samp",
            Self::CovarPop => "covar_pop",
            Self::Corr => "corr",
            Self::ApproxQuantile(_) => "approx_quantile",
            Self::Median => "median",
            Self::TopN(_) => "top_n",
            Self::BottomN(_) => "bottom_n",
            Self::Mode => "mode",
            Self::Custom => "custom",
        }
    }

    /// What stands in its parentheses.
    pub(crate) const fn shape(self) -> Shape {
        match self {
            Self::Count => Shape::OptionalColumn,
            Self::CountDistinct | Self::ApproxDistinct | Self::Custom => Shape::Columns,
            Self::ArgMin | Self::ArgMax => Shape::TwoColumns("(x, by)"),
            Self::CovarSamp | Self::CovarPop | Self::Corr => Shape::TwoColumns("(y, x)"),
            Self::ApproxQuantile(_) => Shape::Quantile,
            Self::TopN(_) | Self::BottomN(_) => Shape::Count,
            _ => Shape::Column,
        }
    }

    /// How it is written, `arg_min(x, by)`.
    pub(crate) fn example(self) -> String {
        let arguments = match self.shape() {
            Shape::Columns if self == Self::CountDistinct => "(distinct x)",
            Shape::OptionalColumn | Shape::Column | Shape::Columns => "(x)",
            Shape::TwoColumns(arguments) => arguments,
            Shape::Quantile => "(x, 0.99)",
            Shape::Count => "(x, 3)",
        };
        format!("{}{arguments}", self.name())
    }

    /// Whether the number in its parentheses can be.
    pub(crate) fn check(self) -> Result<(), ConfigError> {
        match self {
            Self::ApproxQuantile(q) if !(0.0..=1.0).contains(&q.get()) => {
                Err(ConfigError::OutOfRange {
                    what: "the quantile of approx_quantile",
                    found: q.get().to_string(),
                    expected: "between 0 and 1, as in approx_quantile(x, 0.99)".into(),
                })
            }
            Self::TopN(n) | Self::BottomN(n) if !(1..=TOP_N_MAX).contains(&n) => {
                Err(ConfigError::OutOfRange {
                    what: "the number of values of top_n or bottom_n",
                    found: n.to_string(),
                    expected: format!("1 to {TOP_N_MAX}"),
                })
            }
            _ => Ok(()),
        }
    }

    /// The number in its parentheses, as text.
    pub(super) fn parameter(self) -> Option<String> {
        match self {
            Self::ApproxQuantile(q) => Some(q.get().to_string()),
            Self::TopN(n) | Self::BottomN(n) => Some(n.to_string()),
            _ => None,
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
