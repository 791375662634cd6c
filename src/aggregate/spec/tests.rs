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
fn what_comes_later_is_refused_by_name() {
    for (text, what) in [
        ("STDDEV(x)", "the aggregate `stddev`"),
        ("approx_quantile(x, 0.5)", "the aggregate `approx_quantile`"),
        ("count(distinct x)", "`count(distinct x)`"),
        ("count(DISTINCT \"x\")", "`count(distinct \"x\")`"),
        ("sum(x) filter (where y > 0)", "`filter` on an aggregate"),
    ] {
        assert!(matches!(Aggregate::parse_list(text), Err(ConfigError::Unsupported { .. })));
        let error = error(text);
        assert!(error.starts_with(what), "{error}");
    }
}
