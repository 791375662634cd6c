//! Aggregates of several columns, filters, and those that the tests of one column do not know.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BooleanArray, Decimal128Array, DictionaryArray, Float32Array, Float64Array,
    Int64Array, StringArray, TimestampMillisecondArray, UInt16Array,
};
use arrow::datatypes::{Int8Type, Int64Type};
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use super::model::{self, Value};
use super::rig::same_however;
use crate::aggregate::spec::Aggregate;

/// A row of the stream that is tested with.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) key: i64,
    pub(super) time: Option<i64>,
    pub(super) i: Option<i64>,
    pub(super) f: Option<f64>,
    pub(super) b: Option<bool>,
    pub(super) s: Option<&'static str>,
    pub(super) u: u16,
}

fn maybe<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> impl Strategy<Value = Option<T>> {
    prop_oneof![1 => Just(None), 6 => value.prop_map(Some)]
}

pub(super) fn row() -> impl Strategy<Value = Row> {
    let floats = prop_oneof![
        4 => (-3..4_i32).prop_map(|n| f64::from(n) / 2.0),
        1 => prop_oneof![
            Just(-0.0), Just(0.0), Just(f64::NAN), Just(-f64::NAN), Just(f64::INFINITY),
            Just(f64::NEG_INFINITY), Just(1e300), Just(0.1),
        ],
    ];
    let integers = prop_oneof![
        5 => -4..5_i64,
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(1 << 40)],
    ];
    let texts = prop_oneof![
        Just(""),
        Just("a"),
        Just("b"),
        Just("ok"),
        Just("a text that is too long to stand in a row, one"),
        Just("a text that is too long to stand in a row, two"),
    ];
    let scalars = (0..4_i64, maybe(-3..6_i64), maybe(integers), maybe(floats));
    (scalars, maybe(any::<bool>()), maybe(texts), 0..5_u16)
        .prop_map(|((key, time, i, f), b, s, u)| Row { key, time, i, f, b, s, u })
}

pub(super) fn rows() -> impl Strategy<Value = Vec<Row>> {
    proptest::collection::vec(row(), 0..50)
}

/// The rows as a batch: k, t, i, f, b, s, w (s as a dictionary), d (i as a decimal), u, h (f where it is
/// finite), g (f as 32 bits).
pub(super) fn batch(rows: &[Row]) -> RecordBatch {
    let s = || rows.iter().map(|row| row.s);
    let decimals: Decimal128Array =
        rows.iter().map(|row| row.i.map(|i| i128::from(i % 1000))).collect();
    let columns: Vec<(&str, ArrayRef, bool)> = vec![
        ("k", Arc::new(rows.iter().map(|row| Some(row.key)).collect::<Int64Array>()), false),
        ("t", Arc::new(rows.iter().map(|r| r.time).collect::<TimestampMillisecondArray>()), true),
        ("i", Arc::new(rows.iter().map(|row| row.i).collect::<Int64Array>()), true),
        ("f", Arc::new(rows.iter().map(|row| row.f).collect::<Float64Array>()), true),
        ("b", Arc::new(rows.iter().map(|row| row.b).collect::<BooleanArray>()), true),
        ("s", Arc::new(s().collect::<StringArray>()), true),
        ("w", Arc::new(s().collect::<DictionaryArray<Int8Type>>()), true),
        ("d", Arc::new(decimals.with_precision_and_scale(10, 1).unwrap()), true),
        (
            "h",
            Arc::new(rows.iter().map(|r| r.f.filter(|f| f.is_finite())).collect::<Float64Array>()),
            true,
        ),
        (
            "g",
            Arc::new(rows.iter().map(|row| row.f.map(|f| f as f32)).collect::<Float32Array>()),
            true,
        ),
        ("u", Arc::new(rows.iter().map(|row| Some(row.u)).collect::<UInt16Array>()), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// A filter and what it says, in Rust.
type Says = fn(&Row) -> bool;

fn filters() -> Vec<(&'static str, Says)> {
    let nan_is_above: Says = |row| row.f.is_some_and(|f| f > 0.5 || f.is_nan());
    vec![
        ("i > 0", |row| row.i.is_some_and(|i| i > 0)),
        ("i <= -1.5", |row| row.i.is_some_and(|i| i <= -2)),
        ("not (i > 0.5 or i = 0)", |row| row.i.is_some_and(|i| i < 0)),
        ("f > 0.5", nan_is_above),
        ("f = 0", |row| row.f == Some(0.0)),
        ("f is null or s = 'ok'", |row| row.f.is_none() || row.s == Some("ok")),
        ("b", |row| row.b == Some(true)),
        ("not b and w in ('a', 'it''s', 'b')", |row| {
            row.b == Some(false) && matches!(row.s, Some("a" | "b"))
        }),
        ("w not in ('a', 'b')", |row| row.s.is_some_and(|s| s != "a" && s != "b")),
        ("u between 1 and 3", |row| (1..=3).contains(&row.u)),
        ("u < 70000 and u >= -1", |_| true),
        ("u = 2.5", |_| false),
        ("d >= 0.25", |row| row.i.is_some_and(|i| i % 1000 >= 3)),
        ("t >= '1970-01-01T00:00:00.002'", |row| row.time.is_some_and(|time| time >= 2)),
        ("u < i", |row| row.i.is_some_and(|i| i64::from(row.u) < i)),
        ("s is not null and s <> ''", |row| row.s.is_some_and(|s| !s.is_empty())),
    ]
}

/// Groups of rows by key, ascending, of each the wanted columns and the time.
fn groups(
    aggregate: &Aggregate,
    batch: &RecordBatch,
    passes: &dyn Fn(usize) -> bool,
) -> Vec<Vec<(Vec<Value>, Value)>> {
    let names = aggregate.column.iter().chain(&aggregate.more);
    let columns: Vec<Vec<Value>> =
        names.map(|name| model::values(batch.column_by_name(name).unwrap())).collect();
    let times = model::values(batch.column_by_name("t").unwrap());
    let keys = batch.column(0).as_primitive::<Int64Type>().values();
    let mut present = keys.to_vec();
    present.sort_unstable();
    present.dedup();
    let of = |key: i64| {
        (0..batch.num_rows())
            .filter(|row| keys[*row] == key && passes(*row))
            .map(|row| {
                (columns.iter().map(|column| column[row].clone()).collect(), times[row].clone())
            })
            .collect()
    };
    present.into_iter().map(of).collect()
}

/// Checks the aggregates in `list`, each with its filter as `says` has it.
pub(super) fn check(rows: &[Row], list: &[(String, Says)], seed: u64) {
    let batch = batch(rows);
    let texts: Vec<String> =
        list.iter().enumerate().map(|(i, (text, _))| format!("{text} as a{i}")).collect();
    let aggregates = Aggregate::parse_list(&texts.join(",")).unwrap_or_else(|e| panic!("{e}"));
    let results = same_however(&aggregates, &batch, seed).unwrap_or_else(|e| panic!("{e}"));
    for ((aggregate, (text, says)), result) in aggregates.iter().zip(list).zip(&results[1..]) {
        let found = model::values(result);
        let groups = groups(aggregate, &batch, &|row| says(&rows[row]));
        for (group, found) in groups.iter().zip(found) {
            assert_eq!(found, model::expected(aggregate, group), "{text} of {group:?}");
        }
    }
}

const PLAIN: [&str; 40] = [
    "count",
    "count(i)",
    "min(s)",
    "max(f)",
    "any_value(s)",
    "any_value(f)",
    "bool_and(b)",
    "bool_or(b)",
    "bit_and(i)",
    "bit_or(i)",
    "bit_xor(i)",
    "bit_and(u)",
    "bit_xor(u)",
    "first(i)",
    "last(i)",
    "first(w)",
    "last(s)",
    "first(f)",
    "arg_min(s, f)",
    "arg_max(s, f)",
    "arg_max(d, w)",
    "arg_min(i, u)",
    "arg_max(u, i)",
    "arg_min(b, s)",
    "count(distinct i)",
    "count(distinct f)",
    "count(distinct w)",
    "count(distinct d, b)",
    "count(distinct s, f)",
    "approx_distinct(s)",
    "approx_distinct(i, u)",
    "mode(i)",
    "mode(f)",
    "mode(w)",
    "top_n(i, 3)",
    "top_n(f, 2, s)",
    "bottom_n(s, 2, f)",
    "bottom_n(u, 100)",
    "median(f)",
    "approx_quantile(i, 0.9)",
];

/// Of numbers that are small, so that the model computes exactly.
const MOMENTS: [&str; 11] = [
    "var_samp(h)",
    "var_pop(h)",
    "stddev(h)",
    "stddev_pop(h)",
    "var_samp(u)",
    "var_pop(f)",
    "covar_samp(h, u)",
    "covar_pop(u, h)",
    "corr(h, u)",
    "corr(u, u)",
    "covar_pop(h, g)",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_aggregate_is_what_the_model_says(
        rows in rows(), which in proptest::collection::vec(0..PLAIN.len(), 1..6), seed: u64,
    ) {
        let list: Vec<(String, Says)> =
            which.iter().map(|at| (PLAIN[*at].to_owned(), (|_| true) as Says)).collect();
        check(&rows, &list, seed);
    }

    #[test]
    fn moments_are_what_the_model_says(
        rows in rows(), which in proptest::collection::vec(0..MOMENTS.len(), 1..5), seed: u64,
    ) {
        let small = |f: f64| if f.abs() == 1e300 || f == 0.1 { 2.0 } else { f };
        let rows: Vec<Row> =
            rows.into_iter().map(|row| Row { f: row.f.map(small), ..row }).collect();
        let list: Vec<(String, Says)> =
            which.iter().map(|at| (MOMENTS[*at].to_owned(), (|_| true) as Says)).collect();
        check(&rows, &list, seed);
    }

    #[test]
    fn a_filter_leaves_out_what_it_says(
        rows in rows(), which in proptest::collection::vec((0..PLAIN.len(), 0..20_usize), 1..6), seed: u64,
    ) {
        let filters = filters();
        let list: Vec<(String, Says)> = which
            .iter()
            .map(|(at, filter)| match filters.get(*filter) {
                Some((text, says)) => (format!("{} filter (where {text})", PLAIN[*at]), *says),
                None => (PLAIN[*at].to_owned(), (|_| true) as Says),
            })
            .collect();
        check(&rows, &list, seed);
    }
}
