use std::fmt::Write as _;

use super::support::{Scratch, saltmill};

/// Runs over one csv file with the options of a line.
fn over(content: impl AsRef<[u8]>, options: &str) -> (super::support::Ran, Scratch) {
    let scratch = Scratch::new();
    let input = scratch.file("in.csv", content);
    let stats = scratch.path("stats.json");
    let mut args = vec!["run", &input, "--stats", &stats];
    args.extend(options.split_whitespace());
    (saltmill(&args), scratch)
}

/// As [`over`], but some rows are expected to be rejected: gives the result lines and the counts.
#[track_caller]
fn with_rejects(
    content: impl AsRef<[u8]>,
    options: &str,
) -> (Vec<String>, serde_json::Value, String) {
    let (ran, scratch) = over(content, options);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let stats = scratch.stats("stats.json");
    let lines = ran.sorted().iter().map(|line| (*line).to_owned()).collect();
    (lines, stats["rows_rejected"].clone(), ran.err)
}

#[test]
fn empty_files_and_headers() {
    over("", "--key k").0.refused(1, &["in.csv", "is empty", "header"]);
    let (ran, scratch) = over("k,v\n", "--key k --agg count,sum(v) --schema v:int64");
    assert_eq!(ran.fine().text(), "k,count,sum_v\n");
    assert_eq!(scratch.stats("stats.json")["rows_in"], 0);
    let scratch = Scratch::new();
    let empty = scratch.file("in.ndjson", "");
    saltmill(&["run", &empty, "--key", "k"]).refused(2, &["key column \"k\"", "no columns"]);
    for name in ["in.parquet", "in.arrow"] {
        let empty = scratch.file(name, "");
        saltmill(&["run", &empty]).refused(1, &[name]);
    }
}

#[test]
fn columns_that_are_missing_doubled_or_of_the_wrong_type() {
    let csv = "CustomerID,Country,n,t\n1,France,1,x\n2,Spain,2,y\n";
    for (options, words) in [
        ("--key CustomerId", &["key column \"CustomerId\"", "did you mean \"CustomerID\"?"][..]),
        ("--agg sum(m)", &["sum(m) column \"m\"", "did you mean \"n\"?"]),
        ("--time ts --window tumbling:1s", &["time column \"ts\""]),
        ("--agg sum(Country)", &["sum", "\"Country\"", "Utf8", "--schema Country:TYPE"]),
        ("--time Country --window tumbling:1s", &["event time", "\"Country\"", "--time-format"]),
        ("--agg count,count", &["two output columns are called \"count\"", "`as`"]),
        ("--agg sum(n),min(n)asCountry --key Country", &["two output columns", "\"Country\""]),
        ("--key n,n", &["\"n\"", "twice"]),
        ("--schema m:int64", &["\"m\"", "did you mean \"n\"?"]),
    ] {
        let options = options.replace("asCountry", " as Country");
        let scratch = Scratch::new();
        let input = scratch.file("in.csv", csv);
        let mut args = vec!["run".to_owned(), input];
        for option in options.split(" --") {
            let (name, value) = option.split_once(' ').unwrap();
            args.extend([format!("--{}", name.trim_start_matches('-')), value.to_owned()]);
        }
        saltmill(&args).refused(2, words);
    }
    let doubled = "a,b,a\n1,2,3\n";
    over(doubled, "--key a").0.refused(2, &["more than one column called \"a\"", "rename"]);
    assert_eq!(over(doubled, "--key b").0.fine().text(), "b,count\n2,1\n");
}

#[test]
fn rows_that_do_not_fit_are_counted_and_shown() {
    let (lines, rejected, err) = with_rejects("k,v\na,1\nb\nc,3,4\na,5\n", "--key k --agg sum(v)");
    assert_eq!(lines, ["a,6", "k,sum_v"]);
    assert_eq!(rejected, serde_json::json!({"ragged_row": 2}));
    assert!(err.contains("warning: 2 of 4 rows could not be used (ragged_row 2)"), "{err}");
    assert!(err.contains("--schema") && err.contains("--rejected FILE"), "{err}");
    assert!(err.contains("in.csv, line 3: the row has 1 fields, but the header has 2"), "{err}");
    assert!(err.contains("in.csv, line 4: "), "{err}");

    let (lines, rejected, err) =
        with_rejects("k,v\na,1\na,x\n", "--key k --agg sum(v) --schema v:int64");
    assert_eq!(lines, ["a,1", "k,sum_v"]);
    assert_eq!(rejected, serde_json::json!({"bad_value": 1}));
    assert!(err.contains("line 3, column \"v\": \"x\" is no Int64"), "{err}");

    // Beyond 64 bits: no wrapped and no rounded number.
    let big = "k,v\na,9223372036854775807\na,9223372036854775808\n";
    let (lines, rejected, _) = with_rejects(big, "--key k --agg max(v) --schema v:int64");
    assert_eq!(lines, ["a,9223372036854775807", "k,max_v"]);
    assert_eq!(rejected, serde_json::json!({"bad_value": 1}));
}

#[test]
fn sums_that_do_not_fit_are_an_error_that_names_the_key() {
    let big = "k,v\na,9223372036854775807\na,1\n";
    let (ran, _scratch) = over(big, "--key k --agg sum(v)");
    ran.refused(1, &["sum(v)", "a", "9223372036854775808", "Int64", "sum_decimal"]);
}

#[test]
fn quotes_line_breaks_marks_and_bytes() {
    let csv = "\u{feff}k,v\r\n\"a,\"\"b\nc\",1\r\n\"a,\"\"b\nc\",2\r\n";
    let (ran, _scratch) = over(csv, "--key k --agg sum(v)");
    assert_eq!(ran.fine().text(), "k,sum_v\n\"a,\"\"b\nc\",3\n");
    over("k,v\na,\"1\nb,2\n", "--key k").0.refused(1, &["line 2", "quote"]);
    let (lines, rejected, err) = with_rejects(b"k,v\na,1\n\xff\xfe,2\n", "--key k --agg sum(v)");
    assert_eq!(lines, ["a,1", "k,sum_v"]);
    assert_eq!(rejected, serde_json::json!({"bad_utf8": 1}));
    assert!(err.contains("line 3"), "{err}");
    // A header with a line break does not break the line of a message.
    over("\"a\nb\",c\n1,2\n", "--key d").0.refused(2, &["a\\nb"]);
}

#[test]
fn numbers_that_are_none() {
    let csv = "k,v\na,NaN\na,1.5\nb,inf\nb,-inf\nc,-0.0\nc,0.0\n";
    let options = "--key k --agg count(v),sum(v),min(v),max(v) --schema v:float64 --ordered";
    let (ran, _scratch) = over(csv, options);
    let text = ran.fine().text().to_lowercase();
    let lines = text.lines().collect::<Vec<_>>();
    assert_eq!(lines[1], "a,2,nan,1.5,nan");
    assert!(lines[2].starts_with("b,2,nan,-inf,inf"), "{lines:?}");
    assert!(lines[3].starts_with("c,2,"), "{lines:?}");
    // As keys: all NaN are one, and so are both zeros; NaN comes last.
    let (ran, _scratch) = over(csv, "--key v --schema v:float64 --ordered");
    let text = ran.fine().text().to_lowercase();
    let lines = text.lines().collect::<Vec<_>>();
    assert_eq!(lines.len(), 6, "{lines:?}");
    assert!(lines[1].starts_with("-inf,1") && lines[5].starts_with("nan,1"), "{lines:?}");
    assert!(lines[2].ends_with(",2"), "both zeros are one key: {lines:?}");
}

#[test]
fn times_that_are_none() {
    let csv = "ts,v\n2024-01-01T00:00:00,1\n,2\nyesterday,3\n9999-01-01T00:00:00,4\n1677-01-01T00:00:00,5\n";
    let options = "--time ts --window tumbling:1d --agg sum(v) --schema ts:timestamp(ns)";
    let (lines, rejected, err) = with_rejects(csv, options);
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].ends_with(",1"), "{lines:?}");
    let expected = serde_json::json!({"null_time": 1, "bad_time": 1, "time_out_of_range": 2});
    assert_eq!(rejected, expected);
    assert!(err.contains("warning: 4 of 5 rows"), "{err}");
    // The same years fit microseconds.
    let csv = csv.replace(",2\nyesterday,3\n", "");
    let csv = csv.replace("1677-01-01T00:00:00,5", "");
    let (ran, scratch) =
        over(csv.trim_end(), "--time ts --window tumbling:1d --schema ts:timestamp(us)");
    assert_eq!(ran.fine().text().lines().count(), 3);
    assert_eq!(scratch.stats("stats.json")["rows_aggregated"], 2);
}

#[test]
fn files_that_cannot_be_read() {
    let scratch = Scratch::new();
    saltmill(&["run", &scratch.path("none.csv")]).refused(1, &["none.csv", "no such file"]);
    std::fs::create_dir(scratch.path("dir.csv")).unwrap();
    saltmill(&["run", &scratch.path("dir.csv")]).refused(1, &["dir.csv", "directory"]);
    let odd = scratch.file("data.xlsx", "x");
    saltmill(&["run", &odd]).refused(2, &["data.xlsx", "--format"]);
    saltmill(&["run", "-", "-"]).refused(2, &["standard input", "more than once"]);

    use std::os::unix::fs::PermissionsExt as _;
    let secret = scratch.file("secret.csv", "k\n1\n");
    std::fs::set_permissions(&secret, std::fs::Permissions::from_mode(0o000)).unwrap();
    if std::fs::File::open(&secret).is_err() {
        saltmill(&["run", &secret]).refused(1, &["secret.csv", "permission"]);
    } else {
        eprintln!("skipped: this user may read everything");
    }
}

#[test]
fn files_that_end_too_early() {
    let scratch = Scratch::new();
    for (name, keep) in [("a.parquet", 0.7), ("a.arrow", 0.7), ("a.csv", 1.0)] {
        let whole = scratch.path(name);
        saltmill(&["gen", "--rows", "50K", "--output", &whole]).fine();
        let bytes = std::fs::read(&whole).unwrap();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a part of a file"
        )]
        #[expect(clippy::cast_precision_loss, reason = "a part of a file")]
        let kept = (bytes.len() as f64 * keep) as usize;
        let cut = scratch.file(&format!("cut-{name}"), &bytes[..kept]);
        if keep < 1.0 {
            saltmill(&["run", &cut, "--key", "city"]).refused(1, &[&format!("cut-{name}")]);
        }
    }
    let packed = std::process::Command::new("gzip").arg("-kf").arg(scratch.path("a.csv")).status();
    if packed.is_ok_and(|status| status.success()) {
        let bytes = std::fs::read(scratch.path("a.csv.gz")).unwrap();
        saltmill(&["run", &scratch.path("a.csv.gz"), "--key", "city"]).fine();
        let cut = scratch.file("cut.csv.gz", &bytes[..bytes.len() * 2 / 3]);
        saltmill(&["run", &cut, "--key", "city"]).refused(1, &["cut.csv.gz"]);
    } else {
        eprintln!("skipped: gzip is not there");
    }
}

#[test]
fn outputs_that_cannot_be_written() {
    let scratch = Scratch::new();
    let input = scratch.file("in.csv", "k,ts\n1,2024-01-01\n1,2024-01-01\n2,2024-01-02\n");
    let job = ["run", &input, "--key", "k", "--time", "ts", "--window", "tumbling:1d"];
    let with = |option: &str, path: &str| saltmill(&[&job[..], &[option, path]].concat());
    for option in ["--output", "--stats", "--rejected"] {
        with(option, "/nowhere/x").refused(1, &["/nowhere/x"]);
    }
    if std::path::Path::new("/dev/full").exists() {
        with("--output", "/dev/full").refused(1, &["/dev/full", "No space left"]);
        let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
        let output = super::support::command(&job).stdout(full).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{err}");
        assert!(
            err.starts_with("error: standard output: ") && err.contains("No space left"),
            "{err}"
        );
        with("--late", "/dev/full").refused(1, &["/dev/full", "No space left"]);
        with("--stats", "/dev/full").refused(1, &["/dev/full", "No space left"]);
    } else {
        eprintln!("skipped: there is no /dev/full");
    }
}

#[test]
fn a_key_of_a_million_characters() {
    let long = "x".repeat(1_000_000);
    let mut csv = String::from("k,v\n");
    for i in 0..6 {
        let _ = writeln!(csv, "{long}{},{i}", i % 2);
    }
    let (ran, _scratch) = over(csv, "--key k --agg sum(v) --ordered --workers 2");
    let ran = ran.fine();
    let lines = ran.text().lines().collect::<Vec<_>>();
    assert_eq!(lines.len(), 3);
    assert!(lines[1] == format!("{long}0,6") && lines[2] == format!("{long}1,9"));
}
