//! A filter over the columns of a job: literals in the types of their columns, evaluated with Arrow's kernels.
//!
//! A literal is taken exactly: `x > 1.5` on integers is `x > 1`, a number that the column's type cannot
//! hold is greater or smaller than all of its values. Only a literal beside a float column is rounded, to
//! the column's own precision, so that `f = 0.1` finds what was written as 0.1. Floats are compared as in
//! min and max: NaN equals NaN and is greater than every number; both zeros are equal.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, Scalar, StringArray};
use arrow::compute::kernels::cmp;
use arrow::compute::{CastOptions, and_kleene, cast, cast_with_options, is_null, not, or_kleene};
use arrow::datatypes::{DataType, Schema, i256};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;

use crate::aggregate::filter::{Comparison, Condition, Filter, Literal, Operand};
use crate::column::{LaneKind, canonical_floats, value_type};
use crate::error::ConfigError;

/// A condition whose columns are indices and whose literals have types.
#[derive(Debug, Clone)]
pub(crate) enum Mask {
    /// A column and a value.
    Value(usize, Comparison, Scalar<ArrayRef>),
    /// Two columns, compared as values of this type.
    Columns(usize, Comparison, usize, DataType),
    /// The same for every value of the column; null where it is null.
    Constant(usize, bool),
    /// One of these values.
    In(usize, Vec<Scalar<ArrayRef>>),
    IsNull(usize),
    Column(usize),
    Not(Box<Mask>),
    And(Vec<Mask>),
    Or(Vec<Mask>),
}

/// What a filter's columns are looked up in, and what it is part of.
pub(crate) struct Scope<'a> {
    pub(crate) schema: &'a Schema,
    /// The index of the one column of a name.
    pub(crate) resolve: &'a dyn Fn(&str) -> Result<usize, ConfigError>,
    /// The aggregate, for messages.
    pub(crate) aggregate: &'a str,
}

impl Mask {
    /// The mask of `filter`.
    pub(crate) fn new(filter: &Filter, scope: &Scope<'_>) -> Result<Self, ConfigError> {
        scope.mask(&filter.0)
    }

    /// Which rows of `batch` meet the condition: true, false, or null for neither.
    pub(crate) fn evaluate(&self, batch: &RecordBatch) -> Result<BooleanArray, ArrowError> {
        let join = |all: &[Self], with: fn(&BooleanArray, &BooleanArray) -> Result<_, _>| {
            let (first, rest) = all.split_first().expect("two conditions at least are joined");
            rest.iter()
                .try_fold(first.evaluate(batch)?, |met, one| with(&met, &one.evaluate(batch)?))
        };
        Ok(match self {
            Self::Value(column, by, value) => {
                compare(*by, &comparable(batch.column(*column))?, value)?
            }
            Self::Columns(left, by, right, data_type) => {
                let side = |column: usize| comparable(&cast(batch.column(column), data_type)?);
                compare(*by, &side(*left)?, &side(*right)?)?
            }
            Self::Constant(column, value) => {
                let column = batch.column(*column);
                let values = std::iter::repeat_n(*value, column.len()).collect();
                BooleanArray::new(values, column.logical_nulls())
            }
            Self::In(column, list) => {
                let column = comparable(batch.column(*column))?;
                let mut met = BooleanArray::new(
                    std::iter::repeat_n(false, column.len()).collect(),
                    column.logical_nulls(),
                );
                for value in list {
                    met = or_kleene(&met, &cmp::eq(&column, value)?)?;
                }
                met
            }
            Self::IsNull(column) => is_null(batch.column(*column))?,
            Self::Column(column) => {
                cast(batch.column(*column), &DataType::Boolean)?.as_boolean().clone()
            }
            Self::Not(inner) => not(&inner.evaluate(batch)?)?,
            Self::And(all) => join(all, and_kleene)?,
            Self::Or(all) => join(all, or_kleene)?,
        })
    }
}

fn compare(
    by: Comparison,
    left: &dyn arrow::array::Datum,
    right: &dyn arrow::array::Datum,
) -> Result<BooleanArray, ArrowError> {
    match by {
        Comparison::Equal => cmp::eq(left, right),
        Comparison::NotEqual => cmp::neq(left, right),
        Comparison::Less => cmp::lt(left, right),
        Comparison::LessOrEqual => cmp::lt_eq(left, right),
        Comparison::Greater => cmp::gt(left, right),
        Comparison::GreaterOrEqual => cmp::gt_eq(left, right),
    }
}

/// The values in the order that Arrow compares by: dictionaries taken apart, floats with one zero and one
/// NaN, the greatest.
fn comparable(array: &ArrayRef) -> Result<ArrayRef, ArrowError> {
    match array.data_type() {
        DataType::Dictionary(_, values) => comparable(&cast(array, values)?),
        _ => Ok(canonical_floats(array, true)),
    }
}

impl Scope<'_> {
    fn mask(&self, condition: &Condition) -> Result<Mask, ConfigError> {
        let all = |list: &[Condition]| {
            list.iter().map(|one| self.mask(one)).collect::<Result<Vec<_>, _>>()
        };
        Ok(match condition {
            Condition::Compare(by, Operand::Column(left), Operand::Column(right)) => {
                self.columns(*by, left, right)?
            }
            Condition::Compare(by, Operand::Column(name), Operand::Literal(literal)) => {
                let column = (self.resolve)(name)?;
                match self.value(column, literal)? {
                    Value::Exact(value) => Mask::Value(column, *by, value),
                    Value::Above(below) => above(column, *by, below),
                    Value::BeyondAll(negative) => Mask::Constant(column, beyond(*by, negative)),
                }
            }
            Condition::Compare(..) => unreachable!("the parser puts the column first"),
            Condition::IsNull(name) => Mask::IsNull((self.resolve)(name)?),
            Condition::In(name, list) => {
                let column = (self.resolve)(name)?;
                let mut values = Vec::new();
                for literal in list {
                    // A value that the type cannot hold is no value of the column.
                    if let Value::Exact(value) = self.value(column, literal)? {
                        values.push(value);
                    }
                }
                Mask::In(column, values)
            }
            Condition::Column(name) => {
                let column = (self.resolve)(name)?;
                if *value_type(self.data_type(column)) != DataType::Boolean {
                    return Err(self.wrong(
                        column,
                        "a condition by itself must be a boolean column; \
                                                   compare it, as in x = 1",
                    ));
                }
                Mask::Column(column)
            }
            Condition::Not(inner) => Mask::Not(Box::new(self.mask(inner)?)),
            Condition::And(list) => Mask::And(all(list)?),
            Condition::Or(list) => Mask::Or(all(list)?),
        })
    }

    fn data_type(&self, column: usize) -> &DataType {
        self.schema.field(column).data_type()
    }

    fn wrong(&self, column: usize, expected: &str) -> ConfigError {
        ConfigError::WrongType {
            use_: format!("the filter of {}", self.aggregate),
            column: self.schema.field(column).name().clone(),
            found: self.data_type(column).to_string(),
            expected: expected.to_owned(),
        }
    }

    fn columns(&self, by: Comparison, left: &str, right: &str) -> Result<Mask, ConfigError> {
        let (left, right) = ((self.resolve)(left)?, (self.resolve)(right)?);
        let (a, b) = (value_type(self.data_type(left)), value_type(self.data_type(right)));
        let common = if LaneKind::of(a) == LaneKind::Opaque {
            return Err(self.wrong(left, "its values cannot be compared"));
        } else if a == b {
            a.clone()
        } else if a.is_signed_integer() && b.is_signed_integer() {
            DataType::Int64
        } else if a.is_integer() && b.is_integer() {
            DataType::Decimal128(20, 0)
        } else if a.is_floating() && b.is_floating() {
            DataType::Float64
        } else {
            let other = self.schema.field(right).name();
            let why = format!("it is compared with \"{other}\", which is {b}; give both one type");
            return Err(self.wrong(left, &why));
        };
        Ok(Mask::Columns(left, by, right, common))
    }

    /// `literal` as a value of the column's type.
    fn value(&self, column: usize, literal: &Literal) -> Result<Value, ConfigError> {
        use DataType as T;
        let data_type = value_type(self.data_type(column));
        let not_this = |expected: &str| {
            Err(self.wrong(column, &format!("it is compared with {literal}; {expected}")))
        };
        let number = match data_type {
            T::Boolean => match literal {
                Literal::Boolean(value) => value.to_string(),
                _ => return not_this("write true or false"),
            },
            _ if data_type.is_floating() => match literal {
                Literal::Number(text) | Literal::Text(text)
                    if text.trim().parse::<f64>().is_ok() =>
                {
                    text.trim().to_owned()
                }
                _ => return not_this("write a number, or 'nan', 'inf', '-inf'"),
            },
            _ if data_type.is_integer() || data_type.is_decimal() => match literal {
                Literal::Number(text) => return self.exact_number(column, text),
                _ => return not_this("write a number, without quotes"),
            },
            T::Date32 | T::Date64 | T::Time32(_) | T::Time64(_) | T::Timestamp(..) => match literal
            {
                Literal::Text(text) => text.clone(),
                _ => return not_this("write a date or time in single quotes"),
            },
            T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView => {
                match literal {
                    Literal::Text(text) => text.clone(),
                    _ => return not_this("write text in single quotes"),
                }
            }
            _ => return not_this("values of this type cannot be compared with literals"),
        };
        match typed(&number, data_type) {
            Some(value) => Ok(Value::Exact(value)),
            None => not_this("that is not a value of this type"),
        }
    }

    /// A number for a column of integers or decimals.
    fn exact_number(&self, column: usize, text: &str) -> Result<Value, ConfigError> {
        let data_type = value_type(self.data_type(column));
        let scale = match data_type {
            DataType::Decimal32(_, scale)
            | DataType::Decimal64(_, scale)
            | DataType::Decimal128(_, scale)
            | DataType::Decimal256(_, scale) => *scale,
            _ => 0,
        };
        let Some(number) = Number::parse(text) else {
            return Err(
                self.wrong(column, &format!("it is compared with {text}, which is no number"))
            );
        };
        let Some((floor, exact)) = number.floor(scale) else {
            return Ok(Value::BeyondAll(number.negative));
        };
        let Some(value) = typed(&scaled(floor, scale), data_type) else {
            return Ok(Value::BeyondAll(floor < i256::ZERO));
        };
        Ok(if exact { Value::Exact(value) } else { Value::Above(value) })
    }
}

/// A literal among the values of a column.
enum Value {
    Exact(Scalar<ArrayRef>),
    /// Greater than this value, smaller than the next.
    Above(Scalar<ArrayRef>),
    /// Smaller (true) or greater than all values.
    BeyondAll(bool),
}

/// `column by x`, where x lies just above `below`.
fn above(column: usize, by: Comparison, below: Scalar<ArrayRef>) -> Mask {
    match by {
        Comparison::Equal => Mask::Constant(column, false),
        Comparison::NotEqual => Mask::Constant(column, true),
        Comparison::Less | Comparison::LessOrEqual => {
            Mask::Value(column, Comparison::LessOrEqual, below)
        }
        Comparison::Greater | Comparison::GreaterOrEqual => {
            Mask::Value(column, Comparison::Greater, below)
        }
    }
}

/// Whether a value compares so with something smaller (`negative`) or greater than all values.
const fn beyond(by: Comparison, negative: bool) -> bool {
    match by {
        Comparison::Equal => false,
        Comparison::NotEqual => true,
        Comparison::Less | Comparison::LessOrEqual => !negative,
        Comparison::Greater | Comparison::GreaterOrEqual => negative,
    }
}

/// The value that `text` is in `data_type`, in comparable form.
fn typed(text: &str, data_type: &DataType) -> Option<Scalar<ArrayRef>> {
    let texts: ArrayRef = Arc::new(StringArray::from(vec![text]));
    let options = CastOptions { safe: true, ..CastOptions::default() };
    let value = cast_with_options(&texts, data_type, &options).ok()?;
    (!value.is_null(0)).then(|| comparable(&value).ok().map(Scalar::new)).flatten()
}

/// An unscaled number as text with `scale` digits after the point.
fn scaled(unscaled: i256, scale: i8) -> String {
    let digits = unscaled.to_string();
    let (sign, digits) = digits.strip_prefix('-').map_or(("", digits.as_str()), |d| ("-", d));
    let places = usize::from(scale.unsigned_abs());
    if scale <= 0 {
        return format!("{sign}{digits}{}", "0".repeat(if digits == "0" { 0 } else { places }));
    }
    let padded = format!("{digits:0>width$}", width = places + 1);
    let (whole, fraction) = padded.split_at(padded.len() - places);
    format!("{sign}{whole}.{fraction}")
}

/// A decimal number as written: digits times ten to the power of the exponent.
struct Number {
    negative: bool,
    digits: String,
    exponent: i64,
}

impl Number {
    fn parse(text: &str) -> Option<Self> {
        let (negative, text) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
        let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|c| c.is_ascii_digit()) {
            return None;
        }
        let exponent =
            exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        Some(Self { negative, digits: digits.trim_start_matches('0').to_owned(), exponent })
    }

    /// The greatest whole number of units of ten to the power of `-scale` that is not greater, and whether
    /// it is the number itself; none if it has more than 76 digits.
    fn floor(&self, scale: i8) -> Option<(i256, bool)> {
        let shift = self.exponent.checked_add(scale.into())?;
        let len = i64::try_from(self.digits.len()).ok()?;
        if self.digits.is_empty() {
            return Some((i256::ZERO, true));
        }
        if len.checked_add(shift)? > 76 {
            return None;
        }
        let kept = usize::try_from((len + shift.min(0)).max(0)).ok()?;
        let exact = self.digits[kept..].bytes().all(|digit| digit == b'0');
        let zeros = "0".repeat(usize::try_from(shift.max(0)).ok()?);
        let magnitude = i256::from_string(&format!("0{}{zeros}", &self.digits[..kept]))?;
        let below = if exact { i256::ZERO } else { i256::ONE };
        Some((if self.negative { -magnitude - below } else { magnitude }, exact))
    }
}
