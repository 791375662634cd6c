//! What the results must be: the rules of `design.md` ("Results a person can trust") written down in the
//! most obvious way, row by row, with exact arithmetic. Shares no code with the engine.
//!
//! The rows of a group are collected first and aggregated afterwards, so that no order of updates can
//! matter. Cost: memory for all rows, big integers for every sum.

pub(crate) mod big;
pub(crate) mod build;
pub(crate) mod rng;
pub(crate) mod value;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use arrow::datatypes::{DataType, i256};

use big::Big;
use value::{Value, float_order};

/// What is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Func {
    Rows,
    Count,
    Sum,
    SumDecimal,
    Min,
    Max,
    Avg,
    Distinct,
    Mode,
}

/// A job: keys, windows, aggregates, as column numbers.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) types: Vec<DataType>,
    pub(crate) keys: Vec<usize>,
    pub(crate) windows: Option<Windows>,
    pub(crate) aggregates: Vec<(Func, usize)>,
}

/// Windows, in the unit of the time column.
#[derive(Debug, Clone)]
pub(crate) struct Windows {
    pub(crate) column: usize,
    pub(crate) kind: Kind,
    pub(crate) offset: i128,
    pub(crate) out_of_orderness: i128,
    pub(crate) lateness: i128,
}

/// Which windows.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Tumbling {
        size: i128,
    },
    Hopping {
        size: i128,
        slide: i128,
    },
    Cumulate {
        step: i128,
        max: i128,
    },
    Session {
        gap: i128,
    },
    /// Calendar months of UTC, with so many units of time in a day.
    Months {
        count: i128,
        day: i128,
    },
}

/// Days from 1970 beyond which there is no calendar.
const CALENDAR_DAYS: i128 = 6_000_000_000_000 / 86_400;

/// First day of a month, counted in days since 1970-01-01; months are counted since January 1970.
fn first_of(month: i128) -> i128 {
    let (year, month) = (1970 + month.div_euclid(12), month.rem_euclid(12));
    let leaps = |year: i128| year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    let days_before = |year: i128| 365 * year + leaps(year - 1);
    let is_leap = leaps(year) > leaps(year - 1);
    let lengths = [31, 28 + i128::from(is_leap), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let months = usize::try_from(month).expect("of a year");
    days_before(year) - days_before(1970) + lengths[..months].iter().sum::<i128>()
}

impl Windows {
    /// Length of the longest window.
    pub(crate) fn size(&self) -> i128 {
        match self.kind {
            Kind::Tumbling { size } | Kind::Hopping { size, .. } => size,
            Kind::Cumulate { max, .. } => max,
            Kind::Session { gap } => gap,
            Kind::Months { count, day } => 30 * count * day,
        }
    }

    /// All windows that hold `time`, in order: start and end.
    fn holding(&self, time: i128) -> Vec<(i128, i128)> {
        let floor = |step: i128| time - (time - self.offset).rem_euclid(step);
        match self.kind {
            Kind::Tumbling { size } => vec![(floor(size), floor(size) + size)],
            Kind::Hopping { size, slide } => {
                let last = floor(slide);
                let starts = (0..).map(|k| last - k * slide);
                let mut starts = starts.take_while(|start| time < start + size).collect::<Vec<_>>();
                starts.reverse();
                starts.into_iter().map(|start| (start, start + size)).collect()
            }
            Kind::Cumulate { step, max } => {
                let start = floor(max);
                let ends = (1..=max / step).map(|k| start + k * step);
                ends.filter(|end| time < *end).map(|end| (start, end)).collect()
            }
            Kind::Months { count, day } => {
                let date = time.div_euclid(day);
                if date.abs() > CALENDAR_DAYS {
                    return vec![(i128::MIN, i128::MAX)];
                }
                // A month has at least 28 days and, over some time, more than 30.
                let mut month = date.div_euclid(31);
                while first_of(month + 1) <= date {
                    month += 1 + (date - first_of(month + 1)) / 31;
                }
                while first_of(month) > date {
                    month -= 1 + (first_of(month) - date) / 32;
                }
                let first = month - month.rem_euclid(count);
                vec![(first_of(first) * day, first_of(first + count) * day)]
            }
            // Of this row alone.
            Kind::Session { gap } => vec![(time, time + gap)],
        }
    }

    /// The first end of a window after `time`.
    fn end_after(&self, time: i128) -> i128 {
        (time..)
            .find_map(|time| self.holding(time).first().map(|(_, end)| *end))
            .expect("there is one")
    }

    /// When a row that is late for a window corrects it, if the watermark is `watermark` at the row: at the
    /// next end of any window, or of any window's lateness.
    fn corrected_at(&self, watermark: i128) -> i128 {
        let over = self.end_after(watermark - self.lateness) + self.lateness;
        over.min(self.end_after(watermark)).min(i64::MAX.into())
    }
}

/// The rows of one input, column by column, and the order of what happens in it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Input {
    pub(crate) columns: Vec<Vec<Value>>,
    pub(crate) steps: Vec<Step>,
}

/// One act of a producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Step {
    /// These rows are pushed, as one batch.
    Push(Range<usize>),
    /// An explicit watermark.
    Watermark(i64),
}

/// A result row: window start and end (with windows), keys, aggregates.
pub(crate) type Row = Vec<Value>;

/// What a run must come to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) rows_in: u64,
    pub(crate) aggregated: u64,
    pub(crate) late: u64,
    pub(crate) null_time: u64,
    pub(crate) out_of_range: u64,
    pub(crate) between: u64,
    /// In order; `None` if some result does not fit its type.
    pub(crate) rows: Option<Vec<Row>>,
}

/// Least and largest value of an integer or time type, as far as it has limits below 64 bits.
pub(crate) fn limits(data_type: &DataType) -> (i128, i128) {
    match data_type {
        DataType::Int8 => (i8::MIN.into(), i8::MAX.into()),
        DataType::Int16 => (i16::MIN.into(), i16::MAX.into()),
        DataType::Int32 | DataType::Date32 | DataType::Time32(_) => {
            (i32::MIN.into(), i32::MAX.into())
        }
        DataType::UInt8 => (0, u8::MAX.into()),
        DataType::UInt16 => (0, u16::MAX.into()),
        DataType::UInt32 => (0, u32::MAX.into()),
        DataType::UInt64 => (0, u64::MAX.into()),
        _ => (i64::MIN.into(), i64::MAX.into()),
    }
}

/// Number of an input, and of a row in it.
type RowOf = (usize, usize);

/// Rows by what they are aggregated under, each with when it corrects the result: `None` if it is in time.
type Groups = BTreeMap<Row, Vec<(Option<i128>, RowOf)>>;

/// Aggregates all rows of all inputs.
pub(crate) fn expect(spec: &Spec, inputs: &[Input]) -> Outcome {
    let mut outcome = Outcome::default();
    let mut groups = Groups::new();
    for (number, input) in inputs.iter().enumerate() {
        let mut latest = i128::from(i64::MIN);
        let mut promised = i128::from(i64::MIN);
        for step in &input.steps {
            let range = match step {
                Step::Push(range) => range.clone(),
                Step::Watermark(time) => {
                    promised = promised.max(i128::from(*time));
                    continue;
                }
            };
            for row in range {
                outcome.rows_in += 1;
                let mut windows = vec![(Row::new(), None)];
                if let Some(of) = &spec.windows {
                    let Value::Int(time) = input.columns[of.column][row] else {
                        outcome.null_time += 1;
                        continue;
                    };
                    let holding = of.holding(time);
                    let (least, largest) = limits(&spec.types[of.column]);
                    if holding.iter().any(|(start, end)| *start < least || *end > largest) {
                        outcome.out_of_range += 1;
                        continue;
                    }
                    latest = latest.max(time);
                    if holding.is_empty() {
                        outcome.between += 1;
                        continue;
                    }
                    let watermark = (latest - of.out_of_orderness).max(promised);
                    let open = holding.into_iter().filter(|(_, end)| match of.kind {
                        Kind::Session { .. } => time >= watermark,
                        _ => (end + of.lateness).min(i64::MAX.into()) > watermark,
                    });
                    windows = open
                        .map(|(start, end)| {
                            let corrects = (end <= watermark).then(|| of.corrected_at(watermark));
                            (vec![Value::Int(start), Value::Int(end)], corrects)
                        })
                        .collect();
                    if windows.is_empty() {
                        outcome.late += 1;
                        continue;
                    }
                }
                outcome.aggregated += 1;
                for (mut group, corrects) in windows {
                    group.extend(spec.keys.iter().map(|key| input.columns[*key][row].as_key()));
                    groups.entry(group).or_default().push((corrects, (number, row)));
                }
            }
        }
    }
    if let Some(Windows { kind: Kind::Session { gap }, .. }) = spec.windows {
        groups = joined(groups, gap);
    }
    outcome.rows = results(spec, inputs, groups);
    outcome
}

/// Joins the sessions of single rows that follow each other closely enough.
fn joined(single: Groups, gap: i128) -> Groups {
    let mut by_key = BTreeMap::<Row, Vec<(i128, RowOf)>>::new();
    for (group, rows) in single {
        let Value::Int(time) = group[0] else { unreachable!("a time") };
        let of_key = by_key.entry(group[2..].to_vec()).or_default();
        of_key.extend(rows.into_iter().map(|(_, row)| (time, row)));
    }
    let mut groups = Groups::new();
    for (key, mut rows) in by_key {
        rows.sort_unstable();
        for session in rows.chunk_by(|(a, _), (b, _)| b - a < gap) {
            let (first, last) = (session[0].0, session[session.len() - 1].0);
            let mut group = vec![Value::Int(first), Value::Int(last + gap)];
            group.extend(key.clone());
            groups.insert(group, session.iter().map(|(_, row)| (None, *row)).collect());
        }
    }
    groups
}

/// The result rows, sorted; with a revision at the end if late rows are allowed. `None` if one does not
/// fit its type.
fn results(spec: &Spec, inputs: &[Input], groups: Groups) -> Option<Vec<Row>> {
    let lateness = spec.windows.as_ref().map_or(0, |windows| windows.lateness);
    let mut results = Vec::new();
    for (group, mut rows) in groups {
        rows.sort_by_key(|(corrects, _)| *corrects);
        let mut revision = 0;
        for end in 1..=rows.len() {
            let corrects = rows[end - 1].0;
            if rows.get(end).is_some_and(|(next, _)| *next == corrects) {
                continue;
            }
            let mut result = group.clone();
            for (func, column) in &spec.aggregates {
                let values = rows[..end]
                    .iter()
                    .map(|(_, (number, row))| &inputs[*number].columns[*column][*row])
                    .filter(|value| **value != Value::Null)
                    .collect::<Vec<_>>();
                result.push(aggregate(*func, &spec.types[*column], &values, end)?);
            }
            if lateness > 0 {
                revision += i128::from(corrects.is_some());
                result.push(Value::Int(revision));
            }
            results.push(result);
        }
    }
    results.sort();
    Some(results)
}

/// The type of a result.
pub(crate) fn result_type(func: Func, data_type: &DataType) -> DataType {
    let plain = value::plain_type(data_type);
    match (func, plain) {
        (Func::Rows | Func::Count | Func::Distinct, _) => DataType::Int64,
        (Func::SumDecimal, _) => DataType::Decimal128(38, 0),
        (Func::Min | Func::Max | Func::Mode, _) => plain.clone(),
        (Func::Sum, DataType::Decimal256(_, s)) => DataType::Decimal256(76, *s),
        (Func::Avg, DataType::Decimal256(_, s)) => {
            DataType::Decimal256(76, (s + 4).min(76).max(*s))
        }
        (
            Func::Sum,
            DataType::Decimal32(_, s) | DataType::Decimal64(_, s) | DataType::Decimal128(_, s),
        ) => DataType::Decimal128(38, *s),
        (
            Func::Avg,
            DataType::Decimal32(_, s) | DataType::Decimal64(_, s) | DataType::Decimal128(_, s),
        ) => DataType::Decimal128(38, (s + 4).min(38).max(*s)),
        (Func::Sum, plain) if plain.is_unsigned_integer() => DataType::UInt64,
        (Func::Sum, plain) if plain.is_integer() => DataType::Int64,
        (Func::Sum | Func::Avg, _) => DataType::Float64,
    }
}

/// Whether the function is defined for the type.
pub(crate) fn applies(func: Func, data_type: &DataType) -> bool {
    let plain = value::plain_type(data_type);
    match func {
        Func::Rows | Func::Count | Func::Min | Func::Max | Func::Distinct | Func::Mode => true,
        Func::SumDecimal => plain.is_integer(),
        Func::Sum | Func::Avg => plain.is_numeric(),
    }
}

/// One result over values that are not null; `None` if it does not fit its type.
fn aggregate(func: Func, data_type: &DataType, values: &[&Value], rows: usize) -> Option<Value> {
    let count = |count: usize| Value::Int(i128::try_from(count).expect("small"));
    match func {
        Func::Rows => return Some(count(rows)),
        Func::Count => return Some(count(values.len())),
        Func::Distinct => {
            let different: BTreeSet<Value> = values.iter().map(|value| value.as_key()).collect();
            return Some(count(different.len()));
        }
        _ if values.is_empty() => return Some(Value::Null),
        _ => {}
    }
    let n = values.len() as u64;
    let first = values[0];
    Some(match (func, first) {
        (Func::Min, _) => values.iter().min_by_key(|value| order(value))?.with_one_nan(),
        (Func::Mode, _) => most_frequent(values),
        (Func::Max, _) => values.iter().max_by_key(|value| order(value))?.with_one_nan(),
        (Func::Sum, Value::Float(_)) => Value::of_f64(float_sum(values, 1)),
        (Func::Avg, Value::Float(_)) => Value::of_f64(float_sum(values, n)),
        (Func::Avg, Value::Int(_)) => Value::of_f64(whole_sum(values).ratio_to_f64(n, 0)),
        (_, Value::Int(_)) => {
            let result = result_type(func, data_type);
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

fn whole_sum(values: &[&Value]) -> Big {
    values.iter().fold(Big::ZERO, |sum, value| {
        sum.add(match value {
            Value::Int(value) => Big::from_i128(*value),
            Value::Decimal(value) => Big::from_i256(*value),
            other => unreachable!("{other:?} is not whole"),
        })
    })
}

/// Sum or mean of decimals: exact, the mean with four more digits, half away from zero.
fn decimal(func: Func, data_type: &DataType, values: &[&Value]) -> Option<i256> {
    use DataType::{Decimal32, Decimal64, Decimal128, Decimal256};
    let scale = |data_type: &DataType| match data_type {
        Decimal32(_, s) | Decimal64(_, s) | Decimal128(_, s) | Decimal256(_, s) => *s,
        other => unreachable!("{other} is no decimal"),
    };
    let result = result_type(func, data_type);
    let digits = if matches!(result, Decimal256(..)) { 76 } else { 38 };
    let sum = whole_sum(values);
    let magnitude = if func == Func::Sum {
        sum.abs()
    } else {
        let more = scale(&result) - scale(value::plain_type(data_type));
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
    let mut sum = Big::ZERO;
    let (mut plus, mut minus) = (false, false);
    for value in values {
        let Value::Float(bits) = value else { unreachable!("a column of floats") };
        let value = f64::from_bits(*bits);
        if value.is_nan() {
            return f64::NAN;
        }
        if value.is_infinite() {
            plus |= value > 0.0;
            minus |= value < 0.0;
            continue;
        }
        let exponent = bits >> 52 & 0x7ff;
        let fraction = bits & ((1 << 52) - 1);
        // In units of 2^-1074.
        let (significand, shift) =
            if exponent == 0 { (fraction, 0) } else { (fraction | 1 << 52, exponent - 1) };
        let magnitude =
            Big::from_i128(significand.into()).shl(usize::try_from(shift).expect("at most 2046"));
        sum = sum.add(if value.is_sign_negative() { magnitude.neg() } else { magnitude });
    }
    match (plus, minus) {
        (true, true) => f64::NAN,
        (true, false) => f64::INFINITY,
        (false, true) => f64::NEG_INFINITY,
        (false, false) => sum.ratio_to_f64(n, 1074),
    }
}
