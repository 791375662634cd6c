//! How aggregates are asked for: `sum(amount) filter (where status = 'ok') as total`.
//!
//! An [`Aggregate`] is a description only. Whether the columns exist and have types that can be
//! aggregated is found out when a job is built, before anything runs.

use std::fmt;

use crate::aggregate::custom::{Custom, CustomAggregate};
use crate::aggregate::filter::Filter;
use crate::aggregate::filter::parse::quoted;
use crate::error::ConfigError;

mod function;
mod parse;

#[cfg(test)]
mod tests;

pub(crate) use function::Shape;
pub use function::{Fraction, Function};

/// One aggregate of a job: a function, the columns it reads, and the name of its result.
///
/// Prints as it is written, without its alias: `sum(amount)`, `max("odd name")`, `count`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Aggregate {
    /// What is computed.
    pub function: Function,
    /// The column; none only for `count`, which then counts rows.
    pub column: Option<String>,
    /// Further columns: what `arg_min` goes by, the second one of `corr`, the payload of `top_n`, more
    /// columns of `count(distinct a, b)`.
    pub more: Vec<String>,
    /// Which rows are taken; none: all.
    pub filter: Option<Filter>,
    /// The name of the result; [`Aggregate::output_name`] if none is given.
    pub alias: Option<String>,
    /// What is computed, if the function is [`Function::Custom`].
    pub custom: Option<Custom>,
}

impl Aggregate {
    /// Number of rows.
    pub const fn count() -> Self {
        Self {
            function: Function::Count,
            column: None,
            more: Vec::new(),
            filter: None,
            alias: None,
            custom: None,
        }
    }

    /// Number of values of `column` that are not null.
    pub fn count_of(column: impl Into<String>) -> Self {
        Self::of(Function::Count, column)
    }

    /// Number of different values of `columns` taken together, in rows where none of them is null.
    pub fn count_distinct<S: Into<String>>(columns: impl IntoIterator<Item = S>) -> Self {
        Self::over(Function::CountDistinct, columns)
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

    /// `function` of one column.
    pub fn of(function: Function, column: impl Into<String>) -> Self {
        Self { function, column: Some(column.into()), ..Self::count() }
    }

    /// `function` of several columns, in the order in which they are written: `corr(y, x)`,
    /// `arg_max(value, by)`.
    pub fn over<S: Into<String>>(function: Function, columns: impl IntoIterator<Item = S>) -> Self {
        let mut columns = columns.into_iter().map(Into::into);
        Self { function, column: columns.next(), more: columns.collect(), ..Self::count() }
    }

    /// An aggregate of your own over `columns`.
    pub fn custom<S: Into<String>>(
        aggregate: impl CustomAggregate,
        columns: impl IntoIterator<Item = S>,
    ) -> Self {
        let custom = Some(Custom::new(aggregate));
        Self { custom, ..Self::over(Function::Custom, columns) }
    }

    /// The same with its result called `name`.
    #[must_use]
    pub fn alias(mut self, name: impl Into<String>) -> Self {
        self.alias = Some(name.into());
        self
    }

    /// The same over the rows that meet `filter`.
    #[must_use]
    pub fn filter(mut self, filter: Filter) -> Self {
        self.filter = Some(filter);
        self
    }

    /// All columns it reads, those of its filter included; a column may come twice.
    pub fn columns(&self) -> Vec<&str> {
        let arguments = self.column.iter().chain(&self.more).map(String::as_str);
        arguments.chain(self.filter.iter().flat_map(Filter::columns)).collect()
    }

    /// Whether it needs the job's event time.
    pub fn needs_time(&self) -> bool {
        matches!(self.function, Function::First | Function::Last)
    }

    /// The name of the result: the alias, or `count`, `count_x`, `sum_x`, `arg_max_x_by`,
    /// `approx_quantile_x_0.99`, ...
    pub fn output_name(&self) -> String {
        if let Some(alias) = &self.alias {
            return alias.clone();
        }
        let mut name = match self.function {
            Function::CountDistinct => "count_distinct".to_owned(),
            _ => self.function_name().to_owned(),
        };
        for column in self.column.iter().chain(&self.more) {
            name.push('_');
            name.push_str(column);
        }
        if let Some(parameter) = self.function.parameter() {
            name.push('_');
            name.push_str(&parameter);
        }
        name
    }

    /// The name of the function, or of the aggregate that is not ours.
    fn function_name(&self) -> &str {
        self.custom.as_ref().map_or_else(|| self.function.name(), Custom::name)
    }

    /// Reads a comma list such as `count, sum(amount) filter (where status = 'ok') as total`.
    ///
    /// Function names, `distinct`, `filter`, `where` and `as` may be written in any case; column names are
    /// taken as they are. A name that is not made of letters, digits, `_`, `$` and `.` goes between double
    /// quotes, in which `""` stands for one quote.
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
        f.write_str(self.function_name())?;
        let mut columns = self.column.iter().chain(&self.more).map(|name| quoted(name));
        if self.column.is_some() {
            let mut arguments = Vec::new();
            arguments.extend(columns.next());
            arguments.extend(self.function.parameter());
            arguments.extend(columns);
            let distinct = if self.function == Function::CountDistinct { "distinct " } else { "" };
            write!(f, "({distinct}{})", arguments.join(", "))?;
        }
        if let Some(filter) = &self.filter {
            write!(f, " filter (where {filter})")?;
        }
        Ok(())
    }
}
