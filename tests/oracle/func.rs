//! What each aggregate is of the rows of a group, by sorting, sets and big integers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use arrow::datatypes::{DataType, Field, i256};

use super::big::Big;
use super::limits;
use super::value::{self, Value, float_order};

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Func {
    Rows,
    Count,
    Sum,
    SumDecimal,
    Min,
    Max,
    Avg,
    Distinct,
    ApproxDistinct,
    Mode,
    /// The first column of the row with the least second one.
    ArgMin,
    ArgMax,
    BitAnd,
    BitOr,
    BitXor,
    /// Of a sample (else of the population), of one column or of two.
    Variance {
        sample: bool,
    },
    Deviation {
        sample: bool,
    },
    Correlation,
    /// Within the error of the sketch.
    Quantile(f64),
    Top(usize),
    Bottom(usize),
}

/// One aggregate: what is computed, of which columns, and of which rows.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ask {
    pub(crate) func: Func,
    pub(crate) columns: Vec<usize>,
    /// Only rows in which this column, of integers, is greater than 0.
    pub(crate) positive: Option<usize>,
}

impl Ask {
    pub(crate) fn new(func: Func, columns: impl Into<Vec<usize>>) -> Self {
        Self { func, columns: columns.into(), positive: None }
    }

    /// The type of the result.
    pub(crate) fn result_type(&self, fields: &[Field]) -> DataType {
        let plain = |column: &usize| value::plain_type(fields[*column].data_type()).clone();
        let item = |column: &usize| Field::new(fields[*column].name(), plain(column), true);
        match (self.func, self.columns.as_slice()) {
            (Func::Top(_) | Func::Bottom(_), [value]) => {
                DataType::List(item(value).with_name("item").into())
            }
            (Func::Top(_) | Func::Bottom(_), columns) => {
                let fields = columns.iter().map(item).collect::<Vec<_>>();
                DataType::new_list(DataType::Struct(fields.into()), true)
            }
            (func, columns) => result_type(func, &columns.first().map_or(DataType::Null, plain)),
        }
    }

    /// The result over the rows of a group, each given by the values of all columns; `None` if it does not
    /// fit its type.
    pub(super) fn result(&self, types: &[DataType], rows: &[Vec<&Value>]) -> Option<Value> {
        let required = match self.func {
            Func::Top(_) | Func::Bottom(_) => 1,
            _ => self.columns.len(),
        };
        let passes = |row: &&Vec<&Value>| {
            self.positive.is_none_or(|column| matches!(row[column], Value::Int(1..)))
        };
        let rows = rows
            .iter()
            .filter(passes)
            .map(|row| self.columns.iter().map(|column| row[*column].clone()).collect::<Vec<_>>());
        let rows = rows.filter(|row| !row[..required].contains(&Value::Null)).collect::<Vec<_>>();
        let count = |count: usize| Value::Int(i128::try_from(count).expect("small"));
        match self.func {
            Func::Rows | Func::Count => Some(count(rows.len())),
            Func::Distinct | Func::ApproxDistinct => {
                let key = |row: &Vec<Value>| row.iter().map(Value::as_key).collect::<Vec<_>>();
                let n = rows.iter().map(key).collect::<BTreeSet<_>>().len();
                let sketched = self.func == Func::ApproxDistinct;
                Some(if sketched { about_count(n) } else { count(n) })
            }
            _ if rows.is_empty() => Some(Value::Null),
            Func::ArgMin => Some(rows.iter().min_by_key(|row| ordered(row))?[0].with_one_nan()),
            Func::ArgMax => Some(rows.iter().max_by_key(|row| ordered(row))?[0].with_one_nan()),
            Func::Top(n) => Some(best(rows, n, true)),
            Func::Bottom(n) => Some(best(rows, n, false)),
            Func::Variance { .. } | Func::Deviation { .. } | Func::Correlation => {
                let types = self.columns.iter().map(|column| &types[*column]).collect::<Vec<_>>();
                Some(moment(self.func, &types, &rows))
            }
            func => {
                let values = rows.iter().map(|row| &row[0]).collect::<Vec<_>>();
                of_values(func, &types[self.columns[0]], &values)
            }
        }
    }
}

fn result_type(func: Func, plain: &DataType) -> DataType {
    use DataType::{Decimal32, Decimal64, Decimal128, Decimal256};
    match (func, plain) {
        (Func::Rows | Func::Count | Func::Distinct | Func::ApproxDistinct, _) => DataType::Int64,
        (Func::SumDecimal, _) => Decimal128(38, 0),
        (Func::Min | Func::Max | Func::Mode | Func::ArgMin | Func::ArgMax, _)
        | (Func::BitAnd | Func::BitOr | Func::BitXor, _) => plain.clone(),
        (Func::Sum, Decimal256(_, s)) => Decimal256(76, *s),
        (Func::Avg, Decimal256(_, s)) => Decimal256(76, (s + 4).min(76).max(*s)),
        (Func::Sum, Decimal32(_, s) | Decimal64(_, s) | Decimal128(_, s)) => Decimal128(38, *s),
        (Func::Avg, Decimal32(_, s) | Decimal64(_, s) | Decimal128(_, s)) => {
            Decimal128(38, (s + 4).min(38).max(*s))
        }
        (Func::Sum, plain) if plain.is_unsigned_integer() => DataType::UInt64,
        (Func::Sum, plain) if plain.is_integer() => DataType::Int64,
        (Func::Top(_) | Func::Bottom(_), _) => unreachable!("a list of its columns"),
        _ => DataType::Float64,
    }
}

/// Whether the function is defined for a column of the type.
pub(crate) fn applies(func: Func, data_type: &DataType) -> bool {
    let plain = value::plain_type(data_type);
    match func {
        Func::SumDecimal | Func::BitAnd | Func::BitOr | Func::BitXor => plain.is_integer(),
        Func::Sum | Func::Avg | Func::Variance { .. } | Func::Deviation { .. } => {
            plain.is_numeric()
        }
        Func::Correlation | Func::Quantile(_) => plain.is_numeric(),
        _ => true,
    }
}

/// One result over at least one value; `None` if it does not fit its type.
fn of_values(func: Func, data_type: &DataType, values: &[&Value]) -> Option<Value> {
    let n = values.len() as u64;
    Some(match (func, values[0]) {
        (Func::Min, _) => values.iter().min_by_key(|value| order(value))?.with_one_nan(),
        (Func::Max, _) => values.iter().max_by_key(|value| order(value))?.with_one_nan(),
        (Func::Mode, _) => most_frequent(values),
        (Func::Quantile(q), _) => quantile(data_type, values, q),
        (Func::BitAnd, _) => bits(values, |a, b| a & b),
        (Func::BitOr, _) => bits(values, |a, b| a | b),
        (Func::BitXor, _) => bits(values, |a, b| a ^ b),
        (Func::Sum, Value::Float(_)) => Value::of_f64(float_sum(values, 1)),
        (Func::Avg, Value::Float(_)) => Value::of_f64(float_sum(values, n)),
        (Func::Avg, Value::Int(_)) => Value::of_f64(whole_sum(values).ratio_to_f64(n, 0)),
        (_, Value::Int(_)) => {
            let result = result_type(func, value::plain_type(data_type));
            let sum = whole_sum(values);
            let fits = match result {
                DataType::Decimal128(..) => sum.abs() < Big::power_of_ten(38),
                _ => {
                    let (least, largest) = limits(&result);
                    (Big::from_i128(least)..=Big::from_i128(largest)).contains(&sum)
                }
            };
            match (fits, result) {
                (false, _) => return None,
                (true, DataType::Decimal128(..)) => Value::Decimal(sum.to_i256()),
                (true, _) => Value::Int(sum.to_i256().to_i128()?),
            }
        }
        (_, Value::Decimal(_)) => Value::Decimal(decimal(func, data_type, values)?),
        other => unreachable!("{other:?} is not asked for"),
    })
}

/// The value that comes most often; of several, the smallest.
fn most_frequent(values: &[&Value]) -> Value {
    let mut counts = BTreeMap::new();
    for value in values {
        *counts.entry(value.as_key()).or_insert(0) += 1;
    }
    let best = counts.into_iter().max_by_key(|(value, count)| (*count, Reverse(order(value))));
    best.expect("there are values").0
}

/// What min and max compare.
fn order(value: &Value) -> Value {
    match value {
        Value::Float(bits) => Value::Int(float_order(f64::from_bits(*bits)).into()),
        other => other.clone(),
    }
}

/// A row of `arg_min(x, by)` as it is compared: by its `by`, then its x.
fn ordered(row: &[Value]) -> [Value; 2] {
    [order(&row[1]), order(&row[0])]
}

/// The first `n` rows, the largest or the smallest first, as a list; a row of one column is its value.
fn best(mut rows: Vec<Vec<Value>>, n: usize, largest: bool) -> Value {
    rows.sort_by_cached_key(|row| row.iter().map(order).collect::<Vec<_>>());
    if largest {
        rows.reverse();
    }
    rows.truncate(n);
    let item = |row: Vec<Value>| {
        let mut values = row.iter().map(Value::with_one_nan).collect::<Vec<_>>();
        if values.len() == 1 { values.remove(0) } else { Value::List(values) }
    };
    Value::List(rows.into_iter().map(item).collect())
}

fn bits(values: &[&Value], with: fn(i128, i128) -> i128) -> Value {
    let whole = |value: &&Value| match value {
        Value::Int(value) => *value,
        other => unreachable!("{other:?} is not whole"),
    };
    Value::Int(values.iter().map(whole).reduce(with).expect("there are values"))
}

/// So many different values, exact up to 256 and then within five standard errors of 1.7 %.
fn about_count(n: usize) -> Value {
    // The sketch counts hashes, and there is one only where all collide.
    let n = if cfg!(feature = "force-hash-collisions") { n.min(1) } else { n };
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let exact = n as f64;
    let error = if n <= 256 { 0.0 } else { exact * 0.017 * 5.0 };
    Value::About(exact.to_bits(), error.to_bits())
}

/// The value at the rank: exact up to 128 values, then within 0.8 %, or what is below all normal floats.
fn quantile(data_type: &DataType, values: &[&Value], q: f64) -> Value {
    let mut floats = values.iter().map(|value| to_f64(data_type, value) + 0.0).collect::<Vec<_>>();
    floats.sort_by_key(|value| float_order(*value));
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small numbers of a test"
    )]
    let rank = ((q * floats.len() as f64).ceil() as usize).max(1);
    let exact = floats[rank - 1];
    let few = floats.len() <= 128;
    let error =
        if few || !exact.is_finite() { 0.0 } else { exact.abs() / 128.0 + f64::MIN_POSITIVE };
    let Value::Float(exact) = Value::of_f64(exact) else { unreachable!("a float") };
    Value::About(exact, error.to_bits())
}

/// A number as the nearest float.
fn to_f64(data_type: &DataType, value: &Value) -> f64 {
    match value {
        Value::Float(bits) => f64::from_bits(*bits),
        Value::Int(value) => Big::from_i128(*value).ratio_to_f64(1, 0),
        // Rust reads the nearest float.
        Value::Decimal(unscaled) => {
            let text = format!("{unscaled}e{}", -i32::from(scale(value::plain_type(data_type))));
            text.parse().expect("a number")
        }
        other => unreachable!("{other:?} is no number"),
    }
}

/// A finite number times 2^1074, as a whole number; none if it is not finite.
fn fixed(value: f64) -> Option<Big> {
    let bits = value.to_bits();
    let (exponent, fraction) = (bits >> 52 & 0x7ff, bits & ((1 << 52) - 1));
    // In units of 2^-1074.
    let (significand, shift) =
        if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
    let magnitude =
        Big::from_i128(significand.into()).shl(usize::try_from(shift).expect("at most 2046"));
    let signed = if value.is_sign_negative() { magnitude.neg() } else { magnitude };
    value.is_finite().then_some(signed)
}

/// Exact sums of products, from which all moments follow.
#[derive(Default)]
struct Sums {
    n: u64,
    x: Big,
    y: Big,
    xx: Big,
    xy: Big,
    yy: Big,
}

impl Sums {
    /// `n * sum(ab) - sum(a) * sum(b)`, in units of 2^-2148.
    fn spread(&self, products: Big, a: Big, b: Big) -> Big {
        let all = products.abs().times(self.n);
        let all = if products.is_negative() { all.neg() } else { all };
        all.add(a.product(b).neg())
    }
}

fn moment(func: Func, types: &[&DataType], rows: &[Vec<Value>]) -> Value {
    let mut sums = Sums { n: rows.len() as u64, ..Sums::default() };
    let sample =
        !matches!(func, Func::Variance { sample: false } | Func::Deviation { sample: false });
    if sample && sums.n < 2 {
        return Value::Null;
    }
    for row in rows {
        // Exactly: a whole number may have more digits than a float.
        let number = |column: usize| match &row[column] {
            Value::Int(value) => Some(Big::from_i128(*value).shl(1074)),
            value => fixed(to_f64(types[column], value)),
        };
        let (x, y) = (number(0), number(row.len() - 1));
        let (Some(x), Some(y)) = (x, y) else { return Value::of_f64(f64::NAN) };
        sums.x = sums.x.add(x);
        sums.y = sums.y.add(y);
        sums.xy = sums.xy.add(x.product(y));
        if func == Func::Correlation {
            sums.xx = sums.xx.add(x.product(x));
            sums.yy = sums.yy.add(y.product(y));
        }
    }
    let both = sums.spread(sums.xy, sums.x, sums.y);
    let by = sums.n * if sample { sums.n - 1 } else { sums.n };
    match func {
        Func::Variance { .. } => Value::of_f64(both.ratio_to_f64(by, 2148)),
        Func::Deviation { .. } => Value::of_f64(root(both, by)),
        _ => {
            let xx = sums.spread(sums.xx, sums.x, sums.x);
            let yy = sums.spread(sums.yy, sums.y, sums.y);
            correlation(both, xx, yy).map_or(Value::Null, Value::of_f64)
        }
    }
}

/// `value * 2^exponent`.
fn scaled(mut value: f64, mut exponent: i64) -> f64 {
    while exponent != 0 {
        let step = exponent.clamp(-1000, 1000);
        value *= 2_f64.powi(i32::try_from(step).expect("clamped"));
        exponent -= step;
    }
    value
}

/// The root of `square / by`, in units of 2^-2148, of which the quotient is rounded, then the root.
fn root(square: Big, by: u64) -> f64 {
    let bits = square.bit_len() / 2 * 2;
    let half = (i64::try_from(bits).expect("small") - 2148) / 2;
    scaled(square.ratio_to_f64(by, bits).sqrt(), half)
}

/// `xy / sqrt(xx * yy)`, each rounded to a float of its own size; none if one of them is 0.
fn correlation(xy: Big, xx: Big, yy: Big) -> Option<f64> {
    let zero = Big::default();
    if xx == zero || yy == zero {
        return None;
    }
    let part = |big: Big| {
        let bits = big.abs().bit_len().max(1) - 1;
        (big.ratio_to_f64(1, bits), i64::try_from(bits).expect("small"))
    };
    let ((xy, xy_bits), (xx, xx_bits), (yy, yy_bits)) = (part(xy), part(xx), part(yy));
    let odd = (xx_bits + yy_bits) % 2;
    let root = (xx * yy * if odd == 1 { 2.0 } else { 1.0 }).sqrt();
    Some(scaled(xy / root, xy_bits - (xx_bits + yy_bits - odd) / 2).clamp(-1.0, 1.0))
}

fn whole_sum(values: &[&Value]) -> Big {
    values.iter().fold(Big::default(), |sum, value| {
        sum.add(match value {
            Value::Int(value) => Big::from_i128(*value),
            Value::Decimal(value) => Big::from_i256(*value),
            other => unreachable!("{other:?} is not whole"),
        })
    })
}

fn scale(data_type: &DataType) -> i8 {
    match data_type {
        DataType::Decimal32(_, s)
        | DataType::Decimal64(_, s)
        | DataType::Decimal128(_, s)
        | DataType::Decimal256(_, s) => *s,
        other => unreachable!("{other} is no decimal"),
    }
}

/// Sum or mean of decimals: exact, the mean with four more digits, half away from zero.
fn decimal(func: Func, data_type: &DataType, values: &[&Value]) -> Option<i256> {
    let plain = value::plain_type(data_type);
    let result = result_type(func, plain);
    let digits = if matches!(result, DataType::Decimal256(..)) { 76 } else { 38 };
    let sum = whole_sum(values);
    let magnitude = if func == Func::Sum {
        sum.abs()
    } else {
        let more = scale(&result) - scale(plain);
        let n = values.len() as u64;
        let scaled = (0..more).fold(sum.abs(), |scaled, _| scaled.times(10));
        let (quotient, rest) = scaled.div_rem(n);
        if rest * 2 >= n { quotient.add(Big::from_i128(1)) } else { quotient }
    };
    let signed = if sum.is_negative() { magnitude.neg() } else { magnitude };
    (magnitude < Big::power_of_ten(digits)).then(|| signed.to_i256())
}

/// The exact sum of floats divided by `n`, rounded once; infinities and NaN as IEEE sums have them.
fn float_sum(values: &[&Value], n: u64) -> f64 {
    let mut sum = Big::default();
    let (mut plus, mut minus) = (false, false);
    for value in values {
        let Value::Float(bits) = value else { unreachable!("a column of floats") };
        let value = f64::from_bits(*bits);
        if value.is_nan() {
            return f64::NAN;
        }
        match fixed(value) {
            Some(value) => sum = sum.add(value),
            None if value > 0.0 => plus = true,
            None => minus = true,
        }
    }
    match (plus, minus) {
        (true, true) => f64::NAN,
        (true, false) => f64::INFINITY,
        (false, true) => f64::NEG_INFINITY,
        (false, false) => sum.ratio_to_f64(n, 1074),
    }
}
