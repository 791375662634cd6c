//! Which rows an aggregate takes: `sum(x) filter (where status = 'ok' and x > 5)`.
//!
//! A [`Filter`] is a condition over columns in the three-valued logic of SQL: a comparison with a null is
//! neither true nor false, and a row is taken only where the condition is true. Its text is read by
//! `sqlparser` ([`parse`]); for the columns of a job it becomes a [`mask::Mask`], evaluated once a batch
//! with Arrow's kernels, however many aggregates have the same filter.

use std::fmt;

use crate::error::ConfigError;

pub(crate) mod mask;
pub(crate) mod parse;

#[cfg(test)]
mod tests;

/// A condition that rows must meet to be aggregated.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Filter(pub(crate) Condition);

impl Filter {
    /// Reads a condition such as `status = 'ok' and (amount > 5 or note is null)`.
    ///
    /// Comparisons (`=`, `<>`, `<`, `<=`, `>`, `>=`, `between`, `in`) of a column with a literal or another
    /// column of its type, `is null`, boolean columns, `and`, `or` and `not`. Text and dates stand in single
    /// quotes, names that are not plain in double quotes.
    ///
    /// # Errors
    /// [`ConfigError::Syntax`] and [`ConfigError::Unsupported`], with the place and what was expected there.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        parse::filter(text)
    }

    /// The columns it reads, in order of their first use.
    pub fn columns(&self) -> Vec<&str> {
        let mut names = Vec::new();
        self.0.visit_columns(&mut |name| {
            if !names.contains(&name) {
                names.push(name);
            }
        });
        names
    }
}

impl fmt::Display for Filter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A condition, taken apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Condition {
    /// A comparison.
    Compare(Comparison, Operand, Operand),
    /// The column has no value.
    IsNull(String),
    /// The column has one of these values.
    In(String, Vec<Literal>),
    /// A boolean column is true.
    Column(String),
    /// The condition is not met.
    Not(Box<Condition>),
    /// All are met.
    And(Vec<Condition>),
    /// At least one is met.
    Or(Vec<Condition>),
}

/// What two values are compared by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    /// The comparison with its sides exchanged.
    pub(crate) const fn mirrored(self) -> Self {
        match self {
            Self::Equal => Self::Equal,
            Self::NotEqual => Self::NotEqual,
            Self::Less => Self::Greater,
            Self::LessOrEqual => Self::GreaterOrEqual,
            Self::Greater => Self::Less,
            Self::GreaterOrEqual => Self::LessOrEqual,
        }
    }
}

/// One side of a comparison.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Operand {
    Column(String),
    Literal(Literal),
}

/// A value as written; it takes the type of the column that it is compared with.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Literal {
    /// A number, perhaps with a sign.
    Number(String),
    /// Text in single quotes; also dates and times.
    Text(String),
    Boolean(bool),
}

impl Condition {
    fn visit_columns<'a>(&'a self, visit: &mut impl FnMut(&'a str)) {
        match self {
            Self::Compare(_, left, right) => {
                for side in [left, right] {
                    if let Operand::Column(name) = side {
                        visit(name);
                    }
                }
            }
            Self::IsNull(name) | Self::In(name, _) | Self::Column(name) => visit(name),
            Self::Not(inner) => inner.visit_columns(visit),
            Self::And(all) | Self::Or(all) => {
                for condition in all {
                    condition.visit_columns(visit);
                }
            }
        }
    }

    /// Whether it must stand in parentheses where other conditions are beside it.
    const fn is_compound(&self) -> bool {
        matches!(self, Self::And(_) | Self::Or(_) | Self::Not(_))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let grouped = |f: &mut fmt::Formatter<'_>, condition: &Self| {
            if condition.is_compound() { write!(f, "({condition})") } else { condition.fmt(f) }
        };
        match self {
            Self::Compare(by, left, right) => write!(f, "{left} {by} {right}"),
            Self::IsNull(name) => write!(f, "{} is null", parse::quoted(name)),
            Self::In(name, list) => {
                let list = list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                write!(f, "{} in ({list})", parse::quoted(name))
            }
            Self::Column(name) => f.write_str(&parse::quoted(name)),
            Self::Not(inner) => {
                f.write_str("not ")?;
                grouped(f, inner)
            }
            Self::And(all) | Self::Or(all) => {
                let word = if matches!(self, Self::And(_)) { " and " } else { " or " };
                for (i, condition) in all.iter().enumerate() {
                    if i > 0 {
                        f.write_str(word)?;
                    }
                    grouped(f, condition)?;
                }
                Ok(())
            }
        }
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Equal => "=",
            Self::NotEqual => "<>",
            Self::Less => "<",
            Self::LessOrEqual => "<=",
            Self::Greater => ">",
            Self::GreaterOrEqual => ">=",
        })
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Column(name) => f.write_str(&parse::quoted(name)),
            Self::Literal(literal) => literal.fmt(f),
        }
    }
}

impl fmt::Display for Literal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => f.write_str(number),
            Self::Text(text) => write!(f, "'{}'", text.replace('\'', "''")),
            Self::Boolean(value) => value.fmt(f),
        }
    }
}
