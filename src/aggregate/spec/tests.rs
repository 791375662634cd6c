use hashbrown::HashSet;

use super::*;

fn parse(text: &str) -> Vec<Aggregate> {
    Aggregate::parse_list(text).unwrap()
}

fn error(text: &str) -> String {
    Aggregate::parse_list(text).unwrap_err().to_string()
}

#[test]
fn a_list_is_read() {
    assert_eq!(
        parse(" COUNT,count( * ) as n,Count(x), sum(amount) AS total , max(\"odd \"\"name\"\"\")"),
        [
            Aggregate::count(),
            Aggregate::count().alias("n"),
            Aggregate::count_of("x"),
            Aggregate::sum("amount").alias("total"),
            Aggregate::max("odd \"name\""),
        ]
    );
    assert_eq!(
        parse("sum_decimal(a.b),avg(Gr\u{f6}\u{df}e)"),
        [Aggregate::sum_decimal("a.b"), Aggregate::avg("Gr\u{f6}\u{df}e")]
    );
    assert_eq!(parse("count() as \"as\", min(\"distinct\"), min(distinct), max(as)").len(), 4);
}

#[test]
fn names_and_texts() {
    let texts =
        ["count", "count(x)", "sum(x)", "sum_decimal(x)", "min(x)", "max(\"a b\")", "avg(x)"];
    let names = ["count", "count_x", "sum_x", "sum_decimal_x", "min_x", "max_a b", "avg_x"];
    for (aggregate, (text, name)) in parse(&texts.join(",")).iter().zip(texts.iter().zip(names)) {
        assert_eq!(aggregate.to_string(), *text);
        assert_eq!(aggregate.output_name(), name);
        assert_eq!(parse(&aggregate.to_string()), std::slice::from_ref(aggregate));
    }
    assert_eq!(Aggregate::min("x").alias("low").output_name(), "low");
    let odd = Aggregate::min("a\"\",b)\"");
    assert_eq!(parse(&odd.to_string()), [odd]);
}

#[test]
fn errors_say_where_and_what() {
    let cases = [
        ("", "at the end: expected an aggregate such as"),
        ("count,", "at the end: expected an aggregate such as"),
        ("count,,sum(x)", "at character 7: expected an aggregate such as"),
        ("sum", "at the end: `sum` needs a column, as in `sum(x)`"),
        ("sum(*)", "at character 5: `sum` needs a column"),
        ("sum()", "at character 5: `sum` needs a column"),
        ("sum(x", "at the end: expected `)`"),
        ("sum(x y)", "at character 7: expected `)`; a name with spaces goes in double quotes"),
        ("sum(a-b)", "at character 6: expected `)`; a column, not an expression"),
        ("sum(a, b)", "at character 6: `sum` takes one column"),
        ("sum('x')", "at character 5: expected a column name; names are quoted with double quotes"),
        ("sum(\"x)", "at character 5: this double quote is never closed"),
        ("sum(\"\")", "at character 5: a name cannot be empty"),
        ("count n", "at character 7: expected `,`, `as NAME` or the end"),
        ("count as", "at the end: expected a name after `as`"),
        (
            "gr\u{f6}\u{df}e(x)",
            "at character 1: there is no aggregate `gr\u{f6}\u{df}e`; there are count, sum,",
        ),
        ("count, summ(x)", "at character 8: there is no aggregate `summ`, did you mean `sum`?"),
        ("Mean(x)", "there is no aggregate `Mean`, did you mean `avg`?"),
    ];
    for (text, expected) in cases {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
        assert!(error.starts_with("cannot understand aggregate"), "{error}");
    }
}

#[test]
fn aggregates_of_more_than_a_column() {
    let quantile = |q| Function::ApproxQuantile(Fraction::new(q));
    assert_eq!(
        parse(
            "count(distinct a, b), COUNT(Distinct \"x\") as d, approx_distinct(x), approx_quantile(x, 0.99), \
             arg_min(x, by), top_n(x, 3), bottom_n(x,3,\"pay load\"), median(2020_sales), stddev(x)"
        ),
        [
            Aggregate::count_distinct(["a", "b"]),
            Aggregate::count_distinct(["x"]).alias("d"),
            Aggregate::of(Function::ApproxDistinct, "x"),
            Aggregate::of(quantile(0.99), "x"),
            Aggregate::over(Function::ArgMin, ["x", "by"]),
            Aggregate::of(Function::TopN(3), "x"),
            Aggregate::over(Function::BottomN(3), ["x", "pay load"]),
            Aggregate::of(Function::Median, "2020_sales"),
            Aggregate::of(Function::StddevSamp, "x"),
        ]
    );
    for (text, name) in [
        ("count(distinct a, b)", "count_distinct_a_b"),
        ("approx_quantile(x, 0.99)", "approx_quantile_x_0.99"),
        ("top_n(x, 3, \"pay load\")", "top_n_x_pay load_3"),
        ("corr(y, x)", "corr_y_x"),
        ("count filter (where x > 5)", "count"),
        ("sum(x) filter (where s = 'a, (b' and y in (1, 2))", "sum_x"),
    ] {
        let aggregate = &parse(text)[0];
        assert_eq!(
            (aggregate.to_string().as_str(), aggregate.output_name().as_str()),
            (text, name)
        );
        assert_eq!(parse(&aggregate.to_string()), std::slice::from_ref(aggregate));
    }
    let filtered = &parse("sum(x) FILTER(WHERE y<5) AS z, count")[0];
    assert_eq!(filtered.columns(), ["x", "y"]);
    assert_eq!(filtered.alias.as_deref(), Some("z"));
    assert_eq!(parse("count(distinct)"), [Aggregate::count_of("distinct")]);
}

#[test]
fn errors_in_arguments_and_filters_say_where() {
    for (text, expected) in [
        (
            "approx_quantile(x)",
            "at character 18: expected `,`; `approx_quantile` is written `approx_quantile(x, 0.99)`",
        ),
        ("approx_quantile(x, y)", "at character 20: expected a quantile between 0 and 1"),
        ("approx_quantile(x, 0.5, 1)", "expected `)`; `approx_quantile` is written"),
        ("top_n(x, 1.5)", "at character 10: expected a whole number"),
        ("top_n(x, -1)", "at character 10: expected a whole number"),
        ("arg_max(x)", "at character 10: expected `,`; `arg_max` is written `arg_max(x, by)`"),
        ("arg_max(x, y, z)", "at character 13: expected `)`; `arg_max` is written"),
        ("sum(x) filter where x > 1", "at character 15: expected `(`"),
        (
            "sum(x) filter (x > 1)",
            "at character 16: expected `where`, as in `filter (where x > 5)`",
        ),
        ("sum(x) filter (where x > 1", "at the end: expected `)` at the end of the filter"),
        ("sum(x) filter (where )", "at character 22: expected a condition"),
        ("sum(x) filter (where x >) as y", "at character 25"),
        ("sum(x), sum(y) filter (where x y)", "at character 32: expected `and`, `or` or the end"),
        ("sum(x) as y filter (where x > 1)", "at character 13: expected `,`, `as NAME` or the end"),
        ("max_by(x, y)", "did you mean `arg_max`?"),
    ] {
        let error = error(text);
        assert!(error.contains(expected), "{text}: {error}");
    }
}

#[test]
fn what_is_not_built_is_refused_by_name() {
    for (text, what) in [
        ("array_agg(x)", "the aggregate `array_agg`"),
        ("QUANTILE(x, 0.5)", "the aggregate `quantile`"),
        ("sum(distinct x)", "`sum(distinct x)`"),
        ("max(DISTINCT \"x\")", "`max(distinct \"x\")`"),
        ("sum(x) filter (where lower(y) = 'a')", "`lower(y) = 'a'` in a filter"),
    ] {
        assert!(
            matches!(Aggregate::parse_list(text), Err(ConfigError::Unsupported { .. })),
            "{text}"
        );
        let error = error(text);
        assert!(error.starts_with(what), "{error}");
    }
}

/// The tests that go through every function go through this list, so none may be left out of it.
#[test]
fn every_function_is_listed() {
    use std::mem::discriminant;
    let listed = Function::all().iter().map(discriminant).collect::<HashSet<_>>();
    assert_eq!(listed.len(), Function::all().len(), "each once");
    assert!(!listed.contains(&discriminant(&Function::Custom)), "it has no name of its own");
    assert_eq!(listed.len() + 1, <Function as strum::EnumCount>::COUNT);
}
