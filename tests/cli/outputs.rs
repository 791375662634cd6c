use super::support::{Scratch, run_line, saltmill};

/// Every name that stands in the documentation of the command line, and those added since.
const STATS: [&str; 21] = [
    "version",
    "rows_in",
    "rows_aggregated",
    "rows_late",
    "rows_late_by_reason",
    "rows_rejected",
    "windows_emitted",
    "rows_out",
    "rows_early",
    "inputs",
    "elapsed_s",
    "rows_per_s",
    "isa",
    "workers",
    "max_parallelism",
    "huge_pages",
    "interrupted",
    "shards",
    "imbalance",
    "hot_keys",
    "two_phase_given_up_at_row",
];
const SHARD: [&str; 15] = [
    "shard",
    "key_groups",
    "rows_in",
    "rows_hot",
    "rows_out",
    "busy_s",
    "idle_s",
    "backpressured_s",
    "cpu_s",
    "state_keys_max",
    "state_bytes_max",
    "open_windows_max",
    "spilled_bytes",
    "spilled_runs",
    "spill_s",
];
const IMBALANCE: [&str; 4] =
    ["rows_max_over_mean", "rows_cov", "busy_max_over_mean", "unmitigated_rows_max_over_mean"];

fn names(value: &serde_json::Value) -> Vec<&str> {
    let mut names = value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>();
    names.sort_unstable();
    names
}

fn sorted(names: &[&'static str]) -> Vec<&'static str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

#[test]
fn statistics_have_all_names_and_lose_no_row() {
    let scratch = Scratch::new();
    let input = scratch.path("in.parquet");
    saltmill(&["gen", "--rows", "100K", "--keys", "500", "--output", &input]).fine();
    let stats = scratch.path("stats.json");
    let job = format!(
        "run {input} --key key --time ts --window tumbling:10ms --workers 3 --stats {stats}"
    );
    let ran = run_line(&job).fine();
    let text = scratch.read("stats.json");
    let stats = scratch.stats("stats.json");
    assert_eq!(names(&stats), sorted(&STATS));
    assert_eq!((&stats["version"], &stats["rows_in"]), (&1.into(), &100_000.into()));
    assert_eq!((&stats["workers"], &stats["max_parallelism"]), (&3.into(), &128.into()));
    assert_eq!(stats["rows_out"].as_u64().unwrap() + 1, ran.text().lines().count() as u64);
    let shards = stats["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 3);
    for shard in shards {
        assert_eq!(names(shard), sorted(&SHARD));
    }
    assert_eq!(shards[0]["key_groups"][0], 0);
    assert_eq!(shards[2]["key_groups"][1], 127);
    assert_eq!(names(&stats["imbalance"]), sorted(&IMBALANCE));
    let ratio = stats["imbalance"]["rows_max_over_mean"].as_f64().unwrap();
    assert!((1.0..1.5).contains(&ratio), "{ratio}");
    // Names stand in the order of the documentation, for people.
    assert!(
        text.find("rows_in") < text.find("rows_late") && text.find("isa") < text.find("shards")
    );
}

#[test]
fn late_rows_are_kept_in_the_columns_of_the_input() {
    let scratch = Scratch::new();
    let csv = "ts,k,note\n2024-01-01T00:00:05,a,x\n2024-01-01T00:00:01,a,\"y,z\"\n2024-01-01T00:00:05,b,\n";
    let input = scratch.file("in.csv", csv);
    let (late, stats) = (scratch.path("late.csv"), scratch.path("stats.json"));
    let job = format!("run {input} --key k --time ts --window tumbling:1s --stats {stats}");
    let ran = run_line(&format!("{job} --late {late}"));
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("warning: 1 of 3 rows came too late"), "{ran:?}");
    assert!(
        ran.err.contains("--out-of-orderness, now 0s") && !ran.err.contains("--late"),
        "{ran:?}"
    );
    let kept = scratch.read("late.csv");
    let kept = kept.lines().collect::<Vec<_>>();
    assert_eq!(kept.len(), 2, "{kept:?}");
    assert_eq!(kept[0], "ts,k,note");
    assert!(
        kept[1].starts_with("2024-01-01T00:00:01") && kept[1].ends_with(",a,\"y,z\""),
        "{kept:?}"
    );
    assert_eq!(scratch.stats("stats.json")["rows_late"], 1);
    let patient = run_line(&format!("{job} --out-of-orderness 4s")).fine();
    assert_eq!(patient.text().lines().count(), 4);
    assert_eq!(scratch.stats("stats.json")["rows_late"], 0);
}

#[test]
fn rejected_rows_are_kept_with_their_reason() {
    let scratch = Scratch::new();
    let input = scratch.file("in.csv", "k,v\na,1\nb,\"x\ny\"\nc\n");
    let rejected = scratch.path("rejected.csv");
    let ran = saltmill(&[
        "run",
        &input,
        "--key",
        "k",
        "--agg",
        "sum(v)",
        "--schema",
        "v:int64",
        "--rejected",
        &rejected,
    ]);
    assert_eq!(ran.code, Some(0));
    assert!(!ran.err.contains("--rejected"), "they are kept already: {ran:?}");
    let kept = scratch.read("rejected.csv");
    assert!(kept.starts_with("input,line,column,reason,detail,row\n"), "{kept}");
    assert!(kept.contains(",3,v,bad_value,"), "{kept}");
    assert!(kept.contains(",5,,ragged_row,"), "{kept}");
    assert!(kept.ends_with(",c\n"), "{kept}");

    // Rows that only the engine can reject: null times of a typed input.
    let json = scratch.file("t.ndjson", "{\"t\":null,\"k\":\"a,b\"}\n{\"t\":5,\"k\":\"c\"}\n");
    let typed = scratch.path("t.parquet");
    saltmill(&["run", &json, "--key", "t,k", "--output", &typed]).fine();
    let ran = saltmill(&[
        "run",
        &typed,
        "--key",
        "k",
        "--time",
        "t",
        "--window",
        "tumbling:1s",
        "--rejected",
        &rejected,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.err.contains("1 of 2 rows could not be used (null_time 1)"), "{ran:?}");
    assert!(ran.err.contains("t.parquet, column \"t\": the row has no event time"), "{ran:?}");
    let kept = scratch.read("rejected.csv");
    assert!(
        kept.contains("t.parquet,,t,null_time,the row has no event time,\",\"\"a,b\"\"\""),
        "{kept}"
    );
}

#[test]
fn formats_follow_the_name_and_can_be_read_again() {
    let scratch = Scratch::new();
    let input = scratch.path("in.parquet");
    saltmill(&["gen", "--rows", "20K", "--keys", "50", "--key-type", "text", "--output", &input])
        .fine();
    let job = ["run", &input, "--key", "key,city", "--agg", "count,sum(amount)", "--ordered"];
    let expected = saltmill(&job).fine();
    let expected = expected.text();
    let names = [
        "r.csv",
        "r.tsv",
        "r.ndjson",
        "r.parquet",
        "r.arrow",
        "r.feather",
        "r.csv.gz",
        "r.tsv.zst",
        "r.ndjson.gz",
    ];
    for name in names {
        let path = scratch.path(name);
        saltmill(&[&job[..], &["--output", &path]].concat()).fine();
        let again = saltmill(&[
            "run",
            &path,
            "--key",
            "key,city",
            "--ordered",
            "--agg",
            "sum(count) as count, sum(sum_amount) as sum_amount",
        ]);
        assert_eq!(again.fine().text(), expected, "{name}");
    }
    let squeezed = std::fs::metadata(scratch.path("r.csv.gz")).unwrap().len();
    assert!(squeezed < std::fs::metadata(scratch.path("r.csv")).unwrap().len());
    saltmill(&[&job[..], &["--output", &scratch.path("r.parquet.gz")]].concat())
        .refused(2, &["r.parquet.gz", "only csv, tsv and ndjson", "leave the last suffix out"]);
    let table = saltmill(&[&job[..], &["--output-format", "table"]].concat()).fine();
    let mut lines = table.text().lines();
    assert!(lines.next().unwrap().starts_with("key ") && lines.next().unwrap().starts_with("---"));
    assert_eq!(lines.count(), expected.lines().count() - 1);
}

#[test]
fn windows_can_be_shifted_either_way() {
    let scratch = Scratch::new();
    let input = scratch.file("in.csv", "t\n0\n7199999\n7200000\n-1\n");
    let shifted = |offset: &str| {
        let ran = saltmill(&[
            "run",
            &input,
            "--time",
            "t",
            "--window",
            "tumbling:1d",
            "--window-offset",
            offset,
            "--out-of-orderness",
            "1d",
            "--ordered",
        ]);
        ran.fine().text().to_owned()
    };
    let later = shifted("2h");
    assert_eq!(later.lines().count(), 3);
    assert!(
        later.contains("1969-12-31T02:00:00") && later.contains("1970-01-01T02:00:00"),
        "{later}"
    );
    assert_eq!(later, shifted("-22h"));
    assert_eq!(later, shifted("26h"));
}

#[test]
fn several_inputs_are_several_watermarks() {
    let scratch = Scratch::new();
    // The second input is a day behind the first: nothing of it is late.
    let a = scratch.file("a.csv", "ts,k\n2024-01-02,a\n2024-01-02,a\n");
    let b = scratch.file("b.csv", "ts,k\n2024-01-01,a\n2024-01-02,b\n");
    let job = ["run", &a, &b, "--key", "k", "--time", "ts", "--window", "tumbling:1d", "--ordered"];
    let ran = saltmill(&job).fine();
    let lines = ran.text().lines().skip(1).map(|line| line.split_once("T").unwrap_or((line, "")).0);
    assert_eq!(lines.count(), 3);
    assert!(ran.text().lines().nth(1).unwrap().ends_with(",a,1"));
    assert!(ran.text().lines().nth(2).unwrap().ends_with(",a,2"));
}

#[test]
fn generated_streams_depend_on_their_seed_only() {
    let args = [
        "gen",
        "--rows",
        "3K",
        "--keys",
        "100",
        "--dist",
        "hot:0.5:2",
        "--out-of-orderness",
        "2ms",
    ];
    let stream = |seed: &str| saltmill(&[&args[..], &["--seed", seed]].concat()).fine();
    let first = stream("7");
    assert_eq!(first.text(), stream("7").text());
    assert_ne!(first.text(), stream("8").text());
    assert_eq!(first.text().lines().next().unwrap(), "ts,key,value,amount,city,session");
    assert_eq!(first.text().lines().count(), 3001);
    assert_eq!(run_line("gen --rows 0").fine().text().lines().count(), 1);
    let two = run_line("gen --rows 5 --columns value,ts").fine();
    let all = run_line("gen --rows 5").fine();
    for (two, all) in two.text().lines().zip(all.text().lines()) {
        let fields = all.split(',').collect::<Vec<_>>();
        assert_eq!(two, format!("{},{}", fields[2], fields[0]));
    }
    assert_eq!(two.text().lines().count(), 6);
    let json = run_line("gen --rows 2 --key-type text --output-format ndjson").fine();
    assert!(json.text().starts_with("{\"ts\":") && json.text().contains("\"key\":\"user-"));
}

#[test]
fn bench_counts_all_rows_and_its_checksum_is_of_the_results() {
    let scratch = Scratch::new();
    let input = scratch.path("in.parquet");
    run_line(&format!("gen --rows 120K --keys 2K --out-of-orderness 3ms --output {input}")).fine();
    let bench = |options: &str| {
        let line = format!(
            "bench {input} --key key --time ts --window tumbling:10ms --out-of-orderness 3ms --json {options}"
        );
        let ran = run_line(&line).fine();
        serde_json::from_str::<serde_json::Value>(ran.text()).unwrap()
    };
    let first = bench("--runs 3 --agg count,sum(value),avg(amount)");
    let expected = sorted(&[
        "rows",
        "rows_out",
        "rows_late",
        "runs",
        "rows_per_s_median",
        "isa",
        "workers",
        "huge_pages",
        "checksum",
    ]);
    assert_eq!(names(&first), expected);
    assert_eq!((&first["rows"], &first["rows_late"]), (&120_000.into(), &0.into()));
    assert_eq!(first["runs"].as_array().unwrap().len(), 3);
    assert_eq!(names(&first["runs"][0]), ["elapsed_s", "rows_per_s"]);
    assert_eq!(first["checksum"].as_str().unwrap().len(), 16);
    let other = bench("--runs 1 --agg count,sum(value),avg(amount) --workers 5 --batch-rows 100");
    assert_eq!((&first["checksum"], &first["rows_out"]), (&other["checksum"], &other["rows_out"]));
    let different = bench("--runs 1 --agg count,sum(value),max(amount)");
    assert_ne!(first["checksum"], different["checksum"]);

    let text =
        run_line(&format!("bench {input} --key city --runs 2 --stats {}", scratch.path("s.json")));
    let text = text.fine();
    assert!(text.text().starts_with("120000 rows in, 50 rows out, 0 late"), "{text:?}");
    assert!(text.text().contains("\nmedian ") && text.text().contains("\nchecksum "), "{text:?}");
    assert_eq!(scratch.stats("s.json")["rows_in"], 120_000);
}

#[test]
fn bench_takes_turns_with_other_settings_and_inputs() {
    let scratch = Scratch::new();
    let (skewed, uniform) = (scratch.path("h.parquet"), scratch.path("u.arrow"));
    run_line(&format!("gen --rows 60K --keys 500 --dist hot:0.9 --output {skewed}")).fine();
    run_line(&format!("gen --rows 30K --keys 500 --output {uniform}")).fine();
    let args = ["bench", &skewed, "--key", "key", "--agg", "count, sum(value)", "--runs", "3"];
    let mut args = args.map(str::to_owned).to_vec();
    for other in ["--skew off --workers 3", &uniform, "--agg 'sum(value), count'"] {
        args.extend(["--against".to_owned(), other.to_owned()]);
    }
    let text = saltmill(&args).fine();
    for words in ["against --skew off --workers 3\n60000 rows in, 500 rows out", "\nratio "] {
        assert!(text.text().contains(words), "{text:?}");
    }
    assert_eq!(text.text().matches("results are the same").count(), 1, "{text:?}");
    args.push("--json".to_owned());
    let json = saltmill(&args).fine();
    let json = serde_json::from_str::<serde_json::Value>(json.text()).unwrap();
    let others = json["against"].as_array().unwrap();
    assert_eq!(others.len(), 3);
    assert_eq!((&others[0]["workers"], &others[0]["checksum"]), (&3.into(), &json["checksum"]));
    assert_eq!((&others[1]["rows"], &others[1]["options"]), (&30_000.into(), &uniform.into()));
    assert_ne!(others[2]["checksum"], json["checksum"]);
    for (other, same) in others.iter().zip([true, false, false]) {
        assert_eq!(other["same_results"], same, "{other}");
        assert_eq!(other["runs"].as_array().unwrap().len(), 3);
        let number = |name: &str| other[name].as_f64().unwrap();
        assert!(number("ratio_min") <= number("ratio_median"), "{other}");
        assert!(number("ratio_median") <= number("ratio_max"), "{other}");
        let rate = |of: &serde_json::Value, i: usize| of["runs"][i]["rows_per_s"].as_f64().unwrap();
        let ratios = (0..3).map(|i| rate(&json, i) / rate(other, i));
        let largest = ratios.fold(0.0, f64::max);
        assert!((number("ratio_max") - largest).abs() < 1e-9, "{other}");
    }
}
