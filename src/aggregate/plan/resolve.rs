//! From one aggregate and the columns' types to what has to be kept for it, or what is wrong with it.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Fields, Schema};

use crate::aggregate::Part;
use crate::aggregate::decimal;
use crate::aggregate::input::Ordered;
use crate::aggregate::plan::{Family, Scope};
use crate::aggregate::spec::{Aggregate, Fraction, Function, Shape};
use crate::column::{LaneKind, find_column, value_type};
use crate::error::ConfigError;
use crate::key::encode::KeyEncoder;

/// One aggregate, resolved.
pub(super) struct Resolved {
    pub(super) family: Family,
    /// What it reads; none: rows are counted.
    pub(super) columns: Vec<usize>,
    pub(super) part: Part,
    pub(super) data_type: DataType,
    /// Whether the result may be null when every column has a value and every row passes.
    pub(super) may_lack_value: bool,
}

impl Scope<'_> {
    /// The index of the one column called `name`.
    pub(super) fn resolve(&self, name: &str, aggregate: &Aggregate) -> Result<usize, ConfigError> {
        find_column(self.schema, name, &aggregate.to_string())
    }

    /// Resolves the columns of `aggregate` and judges their types.
    pub(super) fn aggregate(&self, aggregate: &Aggregate) -> Result<Resolved, ConfigError> {
        let Some(name) = &aggregate.column else {
            return match aggregate.function {
                Function::Count => Ok(Resolved {
                    family: Family::Values,
                    columns: Vec::new(),
                    part: Part::Rows,
                    data_type: DataType::Int64,
                    may_lack_value: false,
                }),
                function => Err(ConfigError::Inconsistent(format!(
                    "{function} needs a column, as in {}",
                    function.example()
                ))),
            };
        };
        let mut columns = vec![self.resolve(name, aggregate)?];
        for name in &aggregate.more {
            columns.push(self.resolve(name, aggregate)?);
        }
        check_count(aggregate, columns.len())?;
        aggregate.function.check()?;
        match aggregate.function {
            Function::First | Function::Last | Function::ArgMin | Function::ArgMax => {
                self.extreme_row(aggregate, &columns)
            }
            Function::CountDistinct | Function::ApproxDistinct => self.distinct(aggregate, columns),
            Function::TopN(_) | Function::BottomN(_) | Function::Mode => {
                self.kept_rows(aggregate, columns)
            }
            Function::Custom => self.custom(aggregate, columns),
            function if moment(function).is_some() => self.moments(aggregate, columns),
            _ => self.one_column(aggregate, columns[0]),
        }
    }

    /// Asks an aggregate that is not ours.
    fn custom(&self, aggregate: &Aggregate, columns: Vec<usize>) -> Result<Resolved, ConfigError> {
        let Some(custom) = &aggregate.custom else {
            return Err(ConfigError::Inconsistent(
                "a custom aggregate is made by Aggregate::custom".into(),
            ));
        };
        let fields: Vec<&Field> = columns.iter().map(|column| self.field(*column)).collect();
        let data_type = custom.result_type(&fields);
        let data_type = data_type.map_err(|why| self.wrong(aggregate, columns[0], &why))?;
        let family = Family::Custom(custom.clone());
        Ok(Resolved { family, columns, part: Part::Custom, data_type, may_lack_value: true })
    }

    fn distinct(
        &self,
        aggregate: &Aggregate,
        columns: Vec<usize>,
    ) -> Result<Resolved, ConfigError> {
        for column in &columns {
            if KeyEncoder::new(self.schema, vec![*column]).is_err() {
                return Err(self.wrong(
                    aggregate,
                    *column,
                    "different values are counted of booleans, numbers, decimals, dates, times, \
                     timestamps, text and binary",
                ));
            }
        }
        let exact = aggregate.function == Function::CountDistinct;
        Ok(Resolved {
            family: if exact { Family::Distinct } else { Family::ApproxDistinct },
            columns,
            part: Part::Distinct,
            data_type: DataType::Int64,
            may_lack_value: false,
        })
    }

    fn kept_rows(
        &self,
        aggregate: &Aggregate,
        columns: Vec<usize>,
    ) -> Result<Resolved, ConfigError> {
        if LaneKind::of(self.field(columns[0]).data_type()) == LaneKind::Opaque {
            return Err(self.wrong(aggregate, columns[0], "its values have no order"));
        }
        let unkept = columns.iter().find(|c| !Ordered::supports(self.field(**c).data_type()));
        if let Some(column) = unkept {
            return Err(self.wrong(aggregate, *column, "values of this type cannot be kept"));
        }
        let (family, part) = match aggregate.function {
            Function::TopN(n) => (Family::Top(n, true), Part::List),
            Function::BottomN(n) => (Family::Top(n, false), Part::List),
            _ => (Family::Mode, Part::Mode),
        };
        let data_type = match part {
            Part::List => DataType::List(list_item(self.schema, &columns)),
            _ => value_type(self.field(columns[0]).data_type()).clone(),
        };
        Ok(Resolved { family, columns, part, data_type, may_lack_value: false })
    }

    fn moments(&self, aggregate: &Aggregate, columns: Vec<usize>) -> Result<Resolved, ConfigError> {
        for column in &columns {
            self.check_number(aggregate, *column)?;
        }
        let part = moment(aggregate.function).expect("asked by the caller");
        Ok(Resolved {
            family: if columns.len() == 1 { Family::Moments } else { Family::PairMoments },
            columns,
            part,
            data_type: DataType::Float64,
            may_lack_value: matches!(part, Part::Samp | Part::StddevSamp | Part::Corr),
        })
    }

    fn check_number(&self, aggregate: &Aggregate, column: usize) -> Result<(), ConfigError> {
        let data_type = value_type(self.field(column).data_type());
        if data_type.is_integer() || data_type.is_floating() || data_type.is_decimal() {
            return Ok(());
        }
        Err(self.wrong(aggregate, column, "it needs a column of integers, floats or decimals"))
    }

    fn field(&self, column: usize) -> &Field {
        self.schema.field(column)
    }

    fn wrong(&self, aggregate: &Aggregate, column: usize, expected: &str) -> ConfigError {
        let field = self.field(column);
        ConfigError::WrongType {
            use_: aggregate.to_string(),
            column: field.name().clone(),
            found: field.data_type().to_string(),
            expected: expected.to_owned(),
        }
    }

    /// The value of the row that is first in some order: by time, or by another column.
    fn extreme_row(
        &self,
        aggregate: &Aggregate,
        columns: &[usize],
    ) -> Result<Resolved, ConfigError> {
        let by = match (aggregate.function, columns.get(1)) {
            (_, Some(by)) => *by,
            (function, None) => self.time.ok_or_else(|| {
                ConfigError::Inconsistent(format!(
                    "{aggregate}: {function} goes by event time, but the job has no event-time \
                     column; name one (--time COL), or ask for arg_min or arg_max with a column to \
                     go by"
                ))
            })?,
        };
        if LaneKind::of(self.field(by).data_type()) == LaneKind::Opaque {
            return Err(self.wrong(aggregate, by, "its values have no order to go by"));
        }
        if !Ordered::supports(self.field(columns[0]).data_type()) {
            return Err(self.wrong(aggregate, columns[0], "values of this type cannot be kept"));
        }
        let part = match aggregate.function {
            Function::First | Function::ArgMin => Part::Min,
            _ => Part::Max,
        };
        Ok(Resolved {
            family: Family::ExtremeRow,
            columns: vec![by, columns[0]],
            part,
            data_type: value_type(self.field(columns[0]).data_type()).clone(),
            may_lack_value: false,
        })
    }

    fn one_column(&self, aggregate: &Aggregate, column: usize) -> Result<Resolved, ConfigError> {
        let (family, part, data_type) = self.result(aggregate, column)?;
        Ok(Resolved { family, columns: vec![column], part, data_type, may_lack_value: false })
    }

    /// Which result of which family the aggregate is, and its type.
    fn result(
        &self,
        aggregate: &Aggregate,
        column: usize,
    ) -> Result<(Family, Part, DataType), ConfigError> {
        let data_type = self.field(column).data_type();
        let (input, lane) = (value_type(data_type), LaneKind::of(data_type));
        let integer = input.is_integer();
        let decimal = matches!(lane, LaneKind::I128 | LaneKind::I256);
        let wrong = |expected: &str| Err(self.wrong(aggregate, column, expected));
        let (part, result) = match aggregate.function {
            Function::Count => (Part::Values, DataType::Int64),
            Function::Sum if integer && lane == LaneKind::I64 => (Part::Sum, DataType::Int64),
            Function::Sum if integer => (Part::Sum, DataType::UInt64),
            Function::Sum if lane == LaneKind::F64 => (Part::Sum, DataType::Float64),
            Function::Sum if decimal => (Part::Sum, decimal::sum_type(input)),
            Function::Avg if decimal => (Part::Avg, decimal::mean_type(input)),
            Function::Avg if integer || lane == LaneKind::F64 => (Part::Avg, DataType::Float64),
            Function::Sum | Function::Avg => {
                return wrong("it needs a column of integers, floats or decimals");
            }
            Function::SumDecimal if integer => (Part::SumDecimal, DataType::Decimal128(38, 0)),
            Function::SumDecimal if decimal => {
                return wrong("the sum of decimals is a decimal already: ask for sum");
            }
            Function::SumDecimal => return wrong("it needs a column of integers"),
            Function::BoolAnd | Function::BoolOr if *input != DataType::Boolean => {
                return wrong("it needs a column of booleans");
            }
            Function::Min | Function::Max | Function::AnyValue if lane == LaneKind::Opaque => {
                return wrong(
                    "it needs a column of numbers, decimals, booleans, dates, times, durations, \
                     text or binary; any column can be counted",
                );
            }
            Function::Min | Function::AnyValue | Function::BoolAnd => (Part::Min, input.clone()),
            Function::Max | Function::BoolOr => (Part::Max, input.clone()),
            Function::BitAnd | Function::BitOr | Function::BitXor if !integer => {
                return wrong("it needs a column of integers");
            }
            Function::BitAnd => return Ok((Family::Bits, Part::BitAnd, input.clone())),
            Function::BitOr => return Ok((Family::Bits, Part::BitOr, input.clone())),
            Function::BitXor => return Ok((Family::Bits, Part::BitXor, input.clone())),
            Function::ApproxQuantile(_) | Function::Median => {
                self.check_number(aggregate, column)?;
                let part = match aggregate.function {
                    Function::ApproxQuantile(q) => Part::Quantile(q),
                    _ => Part::Quantile(Fraction::new(0.5)),
                };
                return Ok((Family::Quantiles, part, DataType::Float64));
            }
            function => unreachable!("{function} is resolved elsewhere"),
        };
        Ok((Family::Values, part, result))
    }
}

/// Which result of moments a function is, if it is one.
const fn moment(function: Function) -> Option<Part> {
    Some(match function {
        Function::VarSamp | Function::CovarSamp => Part::Samp,
        Function::VarPop | Function::CovarPop => Part::Pop,
        Function::StddevSamp => Part::StddevSamp,
        Function::StddevPop => Part::StddevPop,
        Function::Corr => Part::Corr,
        _ => return None,
    })
}

/// What a list of the best rows holds: values, or values with their payload.
pub(super) fn list_item(schema: &Schema, columns: &[usize]) -> FieldRef {
    let field = |column: &usize| {
        let field = schema.field(*column);
        Field::new(field.name(), value_type(field.data_type()).clone(), true)
    };
    if let [value] = columns {
        return Arc::new(field(value).with_name("item"));
    }
    let fields: Fields = columns.iter().map(field).collect();
    Arc::new(Field::new("item", DataType::Struct(fields), true))
}

/// A hand-made aggregate may name more or fewer columns than its function takes.
fn check_count(aggregate: &Aggregate, columns: usize) -> Result<(), ConfigError> {
    let function = aggregate.function;
    let right = match function.shape() {
        Shape::OptionalColumn | Shape::Column | Shape::Quantile => columns == 1,
        Shape::TwoColumns(_) => columns == 2,
        Shape::Columns => columns >= 1,
        Shape::Count => columns <= 2,
    };
    if right {
        return Ok(());
    }
    let example = function.example();
    Err(ConfigError::Inconsistent(format!("{function} is written {example}, not {aggregate}")))
}
