//! What the results must be: the rules of `design.md` ("Results a person can trust") written down in the
//! most obvious way, row by row, with exact arithmetic. Shares no code with the engine.
//!
//! The rows of a group are collected first and aggregated afterwards, so that no order of updates can
//! matter. Cost: memory for all rows, big integers for every sum.

pub(crate) mod big;
pub(crate) mod build;
pub(crate) mod func;
pub(crate) mod rng;
pub(crate) mod value;

use std::collections::BTreeMap;
use std::ops::Range;

use arrow::datatypes::DataType;

pub(crate) use func::{Ask, Func};
use value::Value;

/// A job: keys, windows, aggregates, as column numbers.
#[derive(Debug, Clone)]
pub(crate) struct Spec {
    pub(crate) types: Vec<DataType>,
    pub(crate) keys: Vec<usize>,
    pub(crate) windows: Option<Windows>,
    pub(crate) aggregates: Vec<Ask>,
}

impl Spec {
    /// Sorts result rows by window, key and revision, which no two have in common: what a sketch gives may
    /// differ from what is expected.
    pub(crate) fn sort(&self, rows: &mut [Row]) {
        let group = self.keys.len() + if self.windows.is_some() { 2 } else { 0 };
        let revised = self.windows.as_ref().is_some_and(|windows| windows.lateness > 0);
        let of = |row: &Row| (row[..group].to_vec(), row.last().filter(|_| revised).cloned());
        rows.sort_by_cached_key(of);
    }
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
            let columns = |(_, (number, row)): &(_, RowOf)| {
                inputs[*number].columns.iter().map(|values| &values[*row]).collect::<Vec<_>>()
            };
            let of_group = rows[..end].iter().map(columns).collect::<Vec<_>>();
            for ask in &spec.aggregates {
                result.push(ask.result(&spec.types, &of_group)?);
            }
            if lateness > 0 {
                revision += i128::from(corrects.is_some());
                result.push(Value::Int(revision));
            }
            results.push(result);
        }
    }
    spec.sort(&mut results);
    Some(results)
}
