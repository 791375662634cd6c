//! How aggregates are asked for: `sum(amount) as total`.
//!
//! An [`Aggregate`] is a description only. Whether the column exists and has a type that can be
//! aggregated is found out when a job is built, before anything runs.

use std::fmt;

use crate::error::ConfigError;

mod parse;

#[cfg(test)]
mod tests;

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Function {
    /// Number of rows; of a column: number of values that are not null.
    Count,
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
}

impl Function {
    /// All functions, by the names they are asked for.
    const ALL: [Self; 6] =
        [Self::Count, Self::Sum, Self::SumDecimal, Self::Min, Self::Max, Self::Avg];

    /// The name it is asked for by.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::Sum => "sum",
            Self::SumDecimal => "sum_decimal",
            Self::Min => "min",
            Self::Max => "max",
            Self::Avg => "avg",
        }
    }
}

impl fmt::Display for Function {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One aggregate of a job: a function, the column it reads, and the name of its result.
///
/// Prints as it is written, without its alias: `sum(amount)`, `max("odd name")`, `count`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aggregate {
    /// What is computed.
    pub function: Function,
    /// The column; none only for `count`, which then counts rows.
    pub column: Option<String>,
    /// The name of the result; [`Aggregate::output_name`] if none is given.
    pub alias: Option<String>,
}

impl Aggregate {
    /// Number of rows.
    pub const fn count() -> Self {
        Self { function: Function::Count, column: None, alias: None }
    }

    /// Number of values of `column` that are not null.
    pub fn count_of(column: impl Into<String>) -> Self {
        Self::of(Function::Count, column)
    }

    /// Sum of `column`.
    pub fn sum(column: impl Into<String>) -> Self {
        Self::of(Function::Sum, column)
    }

    /// Sum of the integers of `column` as Decimal128(38, 0).
    pub fn sum_decimal(column: impl Into<String>) -> Self {
        Self::of(Function::SumDecimal, column)
    }

    /// Smallest value of `column`.
    pub fn min(column: impl Into<String>) -> Self {
        Self::of(Function::Min, column)
    }

    /// Largest value of `column`.
    pub fn max(column: impl Into<String>) -> Self {
        Self::of(Function::Max, column)
    }

    /// Mean of `column`.
    pub fn avg(column: impl Into<String>) -> Self {
        Self::of(Function::Avg, column)
    }

    fn of(function: Function, column: impl Into<String>) -> Self {
        Self { function, column: Some(column.into()), alias: None }
    }

    /// The same with its result called `name`.
    #[must_use]
    pub fn alias(mut self, name: impl Into<String>) -> Self {
        self.alias = Some(name.into());
        self
    }

    /// The name of the result: the alias, or `count`, `count_x`, `sum_x`, ...
    pub fn output_name(&self) -> String {
        match (&self.alias, &self.column) {
            (Some(alias), _) => alias.clone(),
            (None, Some(column)) => format!("{}_{column}", self.function),
            (None, None) => self.function.to_string(),
        }
    }

    /// Reads a comma list such as `count, sum(amount) as total, max("odd name")`.
    ///
    /// Function names and `as` may be written in any case; column names are taken as they are. A name
    /// that is not made of letters, digits, `_`, `$` and `.` goes between double quotes, in which `""`
    /// stands for one quote.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`] with the place and what was expected there, and
    /// [`ConfigError::Unsupported`] for aggregates that are not built yet.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, ConfigError> {
        parse::list(text)
    }
}

impl fmt::Display for Aggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.column {
            None => write!(f, "{}", self.function),
            Some(column) if !column.is_empty() && column.chars().all(parse::is_plain) => {
                write!(f, "{}({column})", self.function)
            }
            Some(column) => write!(f, "{}(\"{}\")", self.function, column.replace('"', "\"\"")),
        }
    }
}
