use std::sync::Arc;

use arrow::datatypes::{IntervalUnit, TimeUnit};

use super::*;
use crate::aggregate::decimal;
use crate::aggregate::spec::{Fraction, Function};
use arrow::datatypes::DataType;

fn schema() -> Schema {
    let dictionary = |values| DataType::Dictionary(Box::new(DataType::Int32), Box::new(values));
    Schema::new(vec![
        Field::new("n", DataType::Int64, true),
        Field::new("v", DataType::Int64, false),
        Field::new("f", DataType::Float32, true),
        Field::new("t", DataType::Timestamp(TimeUnit::Second, Some("UTC".into())), false),
        Field::new("d", dictionary(DataType::Utf8), false),
        Field::new("twice", DataType::Int64, true),
        Field::new("twice", DataType::Int64, true),
        Field::new("money", DataType::Decimal64(18, 2), true),
        Field::new("i", DataType::Interval(IntervalUnit::DayTime), true),
        Field::new("b", DataType::Boolean, true),
        Field::new("u", DataType::UInt16, false),
        Field::new(
            "nested",
            DataType::Struct(vec![Field::new("a", DataType::Int8, true)].into()),
            true,
        ),
    ])
}

fn plan(text: &str) -> Result<Plan, ConfigError> {
    let reserved = ["key", "window_start"];
    let scope = Scope { schema: &schema(), time: Some(3), reserved: &reserved };
    Plan::new(&Aggregate::parse_list(text).unwrap(), &scope, Isa::best())
}

fn plan_of(text: &str) -> Plan {
    plan(text).unwrap()
}

fn error(text: &str) -> String {
    plan(text).unwrap_err().to_string()
}

#[test]
fn one_column_is_one_accumulator_of_few_words() {
    let plan = plan("count, sum(v), min(v), max(v)").unwrap();
    assert_eq!((plan.accumulators.len(), plan.words), (1, 5));
    assert!(matches!(plan.inputs[..], [Input::Column(1)]));
    assert_eq!(plan.template(), [0, 0, 0, i64::MAX.cast_unsigned(), i64::MIN.cast_unsigned()]);
    let layouts = [
        ("count", 1, 1, 0),
        ("count, count(v), count(u)", 1, 1, 0),
        ("count(n)", 1, 1, 1),
        ("sum(v)", 1, 2, 1),
        ("avg(v), count", 1, 3, 1),
        ("max(n)", 1, 2, 1),
        ("count, count(n), sum(n), avg(n), sum_decimal(n)", 1, 4, 1),
        ("count, count(i)", 2, 2, 1),
        ("min(d), sum(f), avg(f), count, count(f)", 2, 2 + 1 + 5, 2),
        ("sum(money), min(money)", 1, 1 + 3 + 2, 1),
        ("bool_and(b), bool_or(b), any_value(b), min(b)", 1, 3, 1),
        ("approx_quantile(n, 0.1), median(n), approx_quantile(n, 0.99)", 1, 1, 1),
        ("first(v), last(v), arg_min(v, t)", 1, 4, 1),
        ("var_pop(v), stddev(v)", 1, 13, 1),
        ("sum(v) filter (where n > 0), count filter (where n > 0)", 1, 4, 2),
        ("sum(v), sum(v) filter (where n > 0) as s, max(v) filter (where n > 0)", 2, 2 + 4, 2),
        ("count(distinct d), approx_distinct(d)", 2, 2, 1),
        ("top_n(v, 2), top_n(v, 3), bottom_n(v, 2)", 3, 3, 1),
    ];
    for (text, accumulators, words, columns) in layouts {
        let plan = plan_of(text);
        assert_eq!(plan.accumulators.len(), accumulators, "{text}");
        assert_eq!((plan.words, plan.inputs.len()), (words, columns), "{text}");
        assert_eq!(plan.template().len(), words, "{text}");
        let mut next = 0;
        for placed in &plan.accumulators {
            assert_eq!(placed.offset, next, "{text}");
            next += placed.accumulator.words();
        }
    }
}

#[test]
fn results_have_their_types() {
    let plan = plan(
        "count, count(n), sum(n), sum_decimal(v) as s, avg(v), max(t), min(f), sum(f), max(d), \
         sum(money), avg(money), min(money), max(b), sum(u)",
    )
    .unwrap();
    let zone: Option<Arc<str>> = Some("UTC".into());
    let expected = [
        ("count", DataType::Int64, false),
        ("count_n", DataType::Int64, false),
        ("sum_n", DataType::Int64, true),
        ("s", DataType::Decimal128(38, 0), false),
        ("avg_v", DataType::Float64, false),
        ("max_t", DataType::Timestamp(TimeUnit::Second, zone), false),
        ("min_f", DataType::Float32, true),
        ("sum_f", DataType::Float64, true),
        ("max_d", DataType::Utf8, true),
        ("sum_money", DataType::Decimal128(38, 2), true),
        ("avg_money", DataType::Decimal128(38, 6), true),
        ("min_money", DataType::Decimal64(18, 2), true),
        ("max_b", DataType::Boolean, true),
        ("sum_u", DataType::UInt64, false),
    ];
    for (output, (name, data_type, nullable)) in plan.outputs.iter().zip(expected) {
        assert_eq!(output.field, Field::new(name, data_type, nullable));
        assert_eq!(output.field.name(), name);
    }
    assert_eq!(plan.outputs[2].text, "sum(n)");
    let decimal = DataType::Decimal256(40, 74);
    assert_eq!(decimal::mean_type(&decimal), DataType::Decimal256(76, 76));
    assert_eq!(decimal::sum_type(&DataType::Decimal32(5, -3)), DataType::Decimal128(38, -3));
}

#[test]
fn what_is_wrong_is_said_before_anything_runs() {
    let cases = [
        ("sum(V)", "sum(V) column \"V\" is not in the input; did you mean \"v\"?"),
        ("count(zzzz)", "count(zzzz) column \"zzzz\" is not in the input; it has n, v, f"),
        ("min(twice)", "the input has more than one column called \"twice\""),
        (
            "sum(d)",
            "sum(d) cannot use column \"d\" of type Dictionary(Int32, Utf8); it needs a column of integers, floats",
        ),
        ("avg(t)", "it needs a column of integers, floats or decimals"),
        ("sum(b)", "it needs a column of integers"),
        ("sum_decimal(money)", "the sum of decimals is a decimal already"),
        ("sum_decimal(f)", "it needs a column of integers"),
        ("min(i)", "min(i) cannot use column \"i\" of type Interval(DayTime); it needs"),
        ("sum(v), min(v) as sum_v", "two output columns are called \"sum_v\""),
        ("count, count", "two output columns are called \"count\""),
        ("count as key", "two output columns are called \"key\""),
        ("approx_quantile(i, 0.5)", "it needs a column of integers, floats or decimals"),
        ("stddev(d)", "it needs a column of integers, floats or decimals"),
        ("corr(v, b)", "corr(v, b) cannot use column \"b\" of type Boolean"),
        ("count(distinct i)", "different values are counted of booleans, numbers"),
        ("approx_distinct(v, nested)", "column \"nested\" of type Struct"),
        ("bool_and(v)", "it needs a column of booleans"),
        ("bit_or(f)", "it needs a column of integers"),
        ("top_n(nested, 2)", "its values have no order"),
        ("arg_max(v, i)", "its values have no order to go by"),
        ("mode(zzz)", "mode(zzz) column \"zzz\" is not in the input"),
        ("top_n(v, 2, zzz)", "top_n(v, 2, zzz) column \"zzz\" is not in the input"),
        (
            "sum(v) filter (where zzz > 1)",
            "filter (where zzz > 1) column \"zzz\" is not in the input",
        ),
        (
            "sum(v) filter (where t > 5)",
            "it is compared with 5; write a date or time in single quotes",
        ),
    ];
    for (text, expected) in cases {
        assert!(error(text).contains(expected), "{text}: {}", error(text));
    }
    let scope = Scope { schema: &schema(), time: None, reserved: &[] };
    let bare = Aggregate { function: Function::Sum, ..Aggregate::count() };
    let bare = Plan::new(&[bare], &scope, Isa::best()).unwrap_err();
    assert_eq!(bare.to_string(), "sum needs a column, as in sum(x)");
    let first = Plan::new(&[Aggregate::of(Function::First, "v")], &scope, Isa::best()).unwrap_err();
    assert!(first.to_string().contains("first(v): first goes by event time, but the job has no"));
    for (function, expected) in [
        (Function::ApproxQuantile(Fraction::new(-0.1)), "is -0.1, but must be between 0 and 1"),
        (Function::ApproxQuantile(Fraction::new(f64::NAN)), "is NaN, but must be between 0 and 1"),
        (Function::TopN(0), "is 0, but must be 1 to 10000"),
        (Function::BottomN(10_001), "is 10001, but must be 1 to 10000"),
        (Function::Corr, "corr is written corr(y, x), not corr(v)"),
    ] {
        let error = Plan::new(&[Aggregate::of(function, "v")], &scope, Isa::best()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
    }
}
