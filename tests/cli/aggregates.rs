//! Aggregates and windows that cannot be asked for, each with its message, and odd values and times that
//! can, each with its result.

use super::support::{Ran, Scratch, saltmill};

/// Runs over a csv file of these lines.
fn over(lines: &[&str], options: &[&str]) -> Ran {
    let scratch = Scratch::new();
    let input = scratch.file("in.csv", lines.join("\n") + "\n");
    saltmill(&[&["run", &input, "--ordered", "--progress", "never"], options].concat())
}

/// The result lines without the header.
#[track_caller]
fn results(ran: &Ran) -> Vec<&str> {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.text().lines().skip(1).collect()
}

#[test]
fn a_filter_on_an_unknown_column_names_the_aggregate_and_the_nearest_column() {
    let lines = ["k,amount", "a,1"];
    for (agg, words) in [
        ("count filter (where nope > 1)", &["count filter (where nope > 1)", "\"nope\""][..]),
        ("sum(amount) filter (where amuont > 1)", &["did you mean \"amount\"?"]),
        ("count(distinct k) filter (where not k = 'a' or missing is null)", &["\"missing\""]),
        ("sum(amount) filter (where k > 5)", &["k > 5", "Utf8"]),
    ] {
        over(&lines, &["--key", "k", "--agg", agg]).refused(2, words);
    }
}

/// Nested values have no canonical form yet, so they are not told apart, nor ordered.
#[test]
fn nested_values_are_only_counted() {
    let scratch = Scratch::new();
    let input = scratch.file("in.csv", "k,v\na,1\na,2\nb,3\n");
    let lists = scratch.path("lists.parquet");
    let make = ["run", &input, "--key", "k", "--agg", "top_n(v, 2) as l", "--output", &lists];
    assert_eq!(saltmill(&make).code, Some(0));
    for agg in [
        "count(distinct l)",
        "count(distinct k, l)",
        "approx_distinct(l)",
        "mode(l)",
        "top_n(l, 2)",
        "max(l)",
        "arg_max(k, l)",
        "median(l)",
    ] {
        let ran = saltmill(&["run", &lists, "--agg", agg]);
        ran.refused(2, &["column \"l\"", "List", agg.split('(').next().unwrap()]);
    }
    let ran = saltmill(&["run", &lists, "--agg", "count(l), count"]);
    assert_eq!(results(&ran), ["2,2"]);
    saltmill(&["run", &lists, "--key", "l"]).refused(2, &["key", "\"l\"", "List"]);
}

/// Infinities and NaN are values, the least, the largest and above that; means and spreads of them are NaN.
#[test]
fn infinities_in_quantiles_are_values() {
    let lines =
        ["k,v", "a,1.5", "a,inf", "a,-inf", "b,nan", "b,2", "c,inf", "c,inf", "d,-0.0", "d,0.0"];
    let agg = "approx_quantile(v, 0), median(v), approx_quantile(v, 1), stddev_pop(v), mode(v)";
    let ran = over(&lines, &["--key", "k", "--agg", agg, "--schema", "v:float64"]);
    let expected = [
        "a,-inf,1.5,inf,NaN,-inf",
        "b,2.0,2.0,NaN,NaN,2.0",
        "c,inf,inf,inf,NaN,inf",
        "d,0.0,0.0,0.0,0.0,0.0",
    ];
    assert_eq!(results(&ran), expected);
    // As many as are not exact any more.
    let many = [lines.as_slice(), &["a,inf"; 200], &["a,-inf"; 200]].concat();
    let ran = over(&many, &["--key", "k", "--agg", agg, "--schema", "v:float64"]);
    assert_eq!(results(&ran)[0].split(',').nth(1), Some("-inf"));
    assert_eq!(results(&ran)[0].split(',').nth(3), Some("inf"));
}

const SECONDS: &[&str] = &["--schema", "t:int64", "--time", "t", "--time-unit", "s"];

/// The windows of rows at seconds 0, 4, 5 and 11: start and end in seconds, and the count.
fn windows(window: &str) -> Vec<String> {
    let lines = ["t", "0", "4", "5", "11"];
    let ran = over(&lines, &[SECONDS, &["--window", window, "--agg", "count"]].concat());
    let seconds = |text: &str| {
        let (minute, second) = text.strip_suffix('Z').unwrap_or(text).rsplit_once(':').unwrap();
        let before = minute.starts_with("1969");
        second.parse::<i64>().unwrap() - if before { 60 } else { 0 }
    };
    let short = |line: &&str| {
        let fields = line.split(',').collect::<Vec<_>>();
        format!("{}..{} {}", seconds(fields[0]), seconds(fields[1]), fields[2])
    };
    results(&ran).iter().map(short).collect()
}

#[test]
fn hops_need_not_divide_the_size_and_may_be_longer() {
    let expected = ["-6..1 1", "-3..4 1", "0..7 3", "3..10 2", "6..13 1", "9..16 1"];
    assert_eq!(windows("hopping:7s/3s"), expected);
    assert_eq!(windows("hopping:3s/10s"), ["0..3 1", "10..13 1"], "4 and 5 lie in a gap");
    let gaps = over(
        &["t", "0", "4"],
        &[SECONDS, &["--window", "hopping:3s/10s", "--rejected", "/dev/null"]].concat(),
    );
    assert!(gaps.err.contains("between_windows 1"), "{gaps:?}");
}

/// Where a day has no midnight it begins after the gap, where it has two with the first; an hour that occurs
/// twice is in its day both times.
#[test]
fn local_times_that_do_not_exist_or_occur_twice() {
    let day = |zone: &str, times: &[&str]| {
        let window = format!("tumbling:1d@{zone}");
        let lines = [&["t"], times].concat();
        let options = ["--time", "t", "--window", &window, "--agg", "count"];
        let ran = over(&lines, &options);
        results(&ran).iter().map(|line| line.replace(":00Z", "Z")).collect::<Vec<_>>()
    };
    // At 00:00 local time clocks went to 01:00.
    assert_eq!(
        day("America/Sao_Paulo", &["2018-11-04T02:59:00Z", "2018-11-04T03:00:00Z"]),
        ["2018-11-03T03:00Z,2018-11-04T03:00Z,1", "2018-11-04T03:00Z,2018-11-05T02:00Z,1"]
    );
    // At 01:00 local time clocks went back to 00:00: midnight comes at 04:00 and at 05:00 UTC.
    assert_eq!(
        day(
            "America/Havana",
            &["2023-11-05T03:59:00Z", "2023-11-05T04:00:00Z", "2023-11-05T05:00:00Z"]
        ),
        ["2023-11-04T04:00Z,2023-11-05T04:00Z,1", "2023-11-05T04:00Z,2023-11-06T05:00Z,2"]
    );
    // Both hours called 2 o'clock are in the day of 25 hours.
    assert_eq!(
        day("Europe/Berlin", &["2024-10-27T00:30:00Z", "2024-10-27T01:30:00Z"]),
        ["2024-10-26T22:00Z,2024-10-27T23:00Z,2"]
    );
}
