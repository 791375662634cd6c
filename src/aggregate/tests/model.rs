//! Slow and obvious: values of any type in one order, and what each aggregate is of a list of rows.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet};

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal256Type, Float64Type, Int64Type, UInt64Type};

use crate::aggregate::spec::{Aggregate, Function};

/// A value, in the order of min and max; null first.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Number(i128),
    Float(f64),
    Text(Vec<u8>),
    List(Vec<Value>),
}

impl Ord for Value {
    fn cmp(&self, other: &Self) -> Ordering {
        let rank = |value: &Self| match value {
            Self::Null => 0,
            Self::Number(_) => 1,
            Self::Float(_) => 2,
            Self::Text(_) => 3,
            Self::List(_) => 4,
        };
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => a.cmp(b),
            (Self::Float(a), Self::Float(b)) => match (a.is_nan(), b.is_nan()) {
                (false, false) => a.total_cmp(b),
                (a, b) => a.cmp(&b),
            },
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::List(a), Self::List(b)) => a.cmp(b),
            (a, b) => rank(a).cmp(&rank(b)),
        }
    }
}

impl PartialOrd for Value {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Value {}

/// The values of an array.
pub(super) fn values(array: &ArrayRef) -> Vec<Value> {
    let nulls = array.logical_nulls();
    let valid = |row: usize| nulls.as_ref().is_none_or(|nulls| nulls.is_valid(row));
    let some = |value: &dyn Fn(usize) -> Value| {
        (0..array.len()).map(|row| if valid(row) { value(row) } else { Value::Null }).collect()
    };
    let to = |data_type: DataType| cast(array, &data_type).unwrap();
    match array.data_type() {
        DataType::Dictionary(_, inner) => values(&to(inner.as_ref().clone())),
        DataType::Null => vec![Value::Null; array.len()],
        t if t.is_floating() => {
            let floats = to(DataType::Float64);
            some(&|row| Value::Float(floats.as_primitive::<Float64Type>().value(row)))
        }
        DataType::UInt64 => {
            some(&|row| Value::Number(array.as_primitive::<UInt64Type>().value(row).into()))
        }
        DataType::Boolean => some(&|row| Value::Number(array.as_boolean().value(row).into())),
        t if t.is_decimal() => {
            let wide = to(DataType::Decimal256(76, super::oracle::scale(t)));
            some(&|row| {
                let unscaled = wide.as_primitive::<Decimal256Type>().value(row);
                Value::Number(unscaled.to_i128().expect("small numbers of a test"))
            })
        }
        DataType::List(_) => {
            let lists = array.as_list::<i32>();
            some(&|row| Value::List(values(&lists.value(row))))
        }
        DataType::Struct(_) => {
            let columns: Vec<_> = array.as_struct().columns().iter().map(values).collect();
            some(&|row| Value::List(columns.iter().map(|column| column[row].clone()).collect()))
        }
        DataType::Utf8 | DataType::Binary | DataType::Utf8View | DataType::LargeUtf8 => {
            let bytes = to(DataType::Binary);
            some(&|row| Value::Text(bytes.as_binary::<i32>().value(row).to_vec()))
        }
        _ => {
            let numbers = to(DataType::Int64);
            some(&|row| Value::Number(numbers.as_primitive::<Int64Type>().value(row).into()))
        }
    }
}

/// The arguments of a row, and its time.
type ModelRow = (Vec<Value>, Value);

/// What `aggregate` is of rows that hold its columns' values, first the arguments as they are written, then
/// the time.
pub(super) fn expected(aggregate: &Aggregate, rows: &[ModelRow]) -> Value {
    let has = |row: &&ModelRow, upto: usize| !row.0[..upto].contains(&Value::Null);
    let first = || rows.iter().filter(|row| has(row, 1)).map(|row| row.0[0].clone());
    let by = |with: &dyn Fn(&ModelRow) -> Value, largest: bool| {
        let all = rows.iter().filter(|row| !row.0.contains(&Value::Null));
        let all = all.map(|row| (with(row), row.0[0].clone())).filter(|row| row.0 != Value::Null);
        let best = if largest { all.max() } else { all.min() };
        best.map_or(Value::Null, |best| best.1)
    };
    let bits = |with: fn(i128, i128) -> i128| {
        let numbers = first().map(|value| match value {
            Value::Number(number) => number,
            other => panic!("{other:?}"),
        });
        numbers.reduce(with).map_or(Value::Null, Value::Number)
    };
    let null = Value::Null;
    match aggregate.function {
        Function::Count if aggregate.column.is_none() => Value::Number(rows.len() as i128),
        Function::Count => Value::Number(first().count() as i128),
        Function::Sum => bits(|a, b| a + b),
        Function::Min | Function::AnyValue | Function::BoolAnd => first().min().unwrap_or(null),
        Function::Max | Function::BoolOr => first().max().unwrap_or(null),
        Function::First => by(&|row| row.1.clone(), false),
        Function::Last => by(&|row| row.1.clone(), true),
        Function::ArgMin => by(&|row| row.0[1].clone(), false),
        Function::ArgMax => by(&|row| row.0[1].clone(), true),
        Function::BitAnd => bits(|a, b| a & b),
        Function::BitOr => bits(|a, b| a | b),
        Function::BitXor => bits(|a, b| a ^ b),
        Function::CountDistinct | Function::ApproxDistinct => {
            let all = rows.iter().map(|row| row.0.clone());
            let all = all.filter(|values| !values.contains(&Value::Null));
            let all = all.map(|values| values.into_iter().map(one_zero).collect::<Vec<_>>());
            Value::Number(all.collect::<BTreeSet<_>>().len() as i128)
        }
        Function::Mode => {
            let mut counts = BTreeMap::new();
            first().for_each(|value| *counts.entry(one_zero(value)).or_insert(0) += 1);
            let best = counts.into_iter().max_by_key(|(value, n)| (*n, Reverse(value.clone())));
            best.map_or(null, |best| best.0)
        }
        Function::TopN(n) | Function::BottomN(n) => {
            let mut all: Vec<Value> = rows
                .iter()
                .filter(|row| row.0[0] != Value::Null)
                .map(|row| match row.0.as_slice() {
                    [value] => value.clone(),
                    values => Value::List(values.to_vec()),
                })
                .collect();
            all.sort();
            if matches!(aggregate.function, Function::TopN(_)) {
                all.reverse();
            }
            let any = !all.is_empty();
            all.truncate(n as usize);
            if any { Value::List(all) } else { null }
        }
        Function::Median => quantile(first().map(one_zero).collect(), 0.5),
        Function::ApproxQuantile(q) => quantile(first().map(one_zero).collect(), q.get()),
        function => moment(function, rows),
    }
}

/// The exact one, as a float.
fn quantile(mut values: Vec<Value>, q: f64) -> Value {
    values.sort();
    let rank = ((q * values.len() as f64).ceil() as usize).max(1);
    match values.get(rank - 1) {
        None => Value::Null,
        Some(Value::Number(number)) => Value::Float(*number as f64),
        Some(value) => value.clone(),
    }
}

fn one_zero(value: Value) -> Value {
    if let Value::Float(float) = value { Value::Float(float + 0.0) } else { value }
}

/// Moments of small halves, whose sums and products are exact floats. Larger ones have tests of their own.
fn moment(function: Function, rows: &[ModelRow]) -> Value {
    let rows = rows.iter().filter(|row| !row.0.contains(&Value::Null));
    let float = |value: &Value| match value {
        Value::Number(number) => *number as f64,
        Value::Float(float) => *float,
        other => panic!("{other:?}"),
    };
    let pairs: Vec<(f64, f64)> =
        rows.map(|row| (float(&row.0[0]), float(row.0.last().unwrap()))).collect();
    let n = pairs.len() as f64;
    if pairs.iter().any(|(x, y)| !x.is_finite() || !y.is_finite()) {
        let samp = !matches!(function, Function::VarPop | Function::StddevPop | Function::CovarPop);
        return if samp && n < 2.0 { Value::Null } else { Value::Float(f64::NAN) };
    }
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    let (x, y) = (sum(&|p| p.0), sum(&|p| p.1));
    let spread = n * sum(&|p| p.0 * p.1) - x * y;
    let result = match function {
        Function::VarPop | Function::CovarPop if n > 0.0 => spread / (n * n),
        Function::StddevPop if n > 0.0 => (spread / (n * n)).sqrt(),
        Function::VarSamp | Function::CovarSamp if n > 1.0 => spread / (n * (n - 1.0)),
        Function::StddevSamp if n > 1.0 => (spread / (n * (n - 1.0))).sqrt(),
        Function::Corr if n > 1.0 => {
            let xx = n * sum(&|p| p.0 * p.0) - x * x;
            let yy = n * sum(&|p| p.1 * p.1) - y * y;
            if xx == 0.0 || yy == 0.0 {
                return Value::Null;
            }
            (spread / (xx * yy).sqrt()).clamp(-1.0, 1.0)
        }
        _ => return Value::Null,
    };
    Value::Float(result + 0.0)
}
