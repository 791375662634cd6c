use super::support::{Scratch, run_line, saltmill};

const HELP: &str = "\
Aggregates keyed streams on one machine; key skew does no harm

Usage: saltmill <COMMAND>

Commands:
  run        Aggregate files or standard input
  gen        Make a stream to try things on
  bench      Measure the engine alone
  keygroups  Show which subtask owns which key groups and keys
  diagnose   Explain the skew of a stream's keys, and what would help
  state      Look into checkpoints
  help       Print this message or the help of the given subcommand(s)

Options:
  -h, --help     Print help
  -V, --version  Print version

`saltmill help SUBCOMMAND` explains every option with an example.
";

#[test]
fn help_and_version() {
    assert_eq!(run_line("help").fine().text(), HELP);
    assert_eq!(run_line("--help").fine().text(), HELP);
    let version = format!("saltmill {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(run_line("--version").fine().text(), version);
}

#[test]
fn every_option_is_explained_with_an_example() {
    for subcommand in ["run", "gen", "bench", "keygroups", "diagnose"] {
        let help = run_line(&format!("help {subcommand}")).fine();
        let mut options = 0;
        for section in help.text().split("\n\n      --").skip(1) {
            let (name, _) = section.split_once('\n').unwrap();
            // The paragraphs of one option are indented deeper than its name.
            let own =
                section.lines().skip(1).take_while(|l| l.is_empty() || l.starts_with("       "));
            let own = own.collect::<Vec<_>>().join(" ");
            assert!(own.contains("Example"), "help {subcommand}: --{name} has no example");
            assert!(!own.contains('`'), "help {subcommand}: --{name} has a mark of source text");
            options += 1;
        }
        assert!(options >= 7, "help {subcommand}: only {options} options found");
        assert!(help.text().contains(&format!("saltmill {subcommand} ")));
    }
}

#[test]
fn a_wrong_command_is_one_line_and_its_usage() {
    let none = run_line("");
    assert_eq!(none.code, Some(2));
    assert!(none.err.contains("Usage: saltmill <COMMAND>"), "{none:?}");
    for (line, words) in [
        ("rnu", &["unrecognized subcommand 'rnu'"][..]),
        ("run", &["required", "<INPUT>"]),
        ("run a.csv --worker 2", &["'--worker'", "'--workers'"]),
        ("run a.csv --workers two", &["'two'", "--workers"]),
        ("run a.csv --progress loud", &["'loud'", "auto, never"]),
        ("run a.csv --time-unit s", &["--time <COL>"]),
        ("run a.csv --cores 0 --no-pin", &["cannot be used with"]),
        ("gen --seed x", &["'x'", "--seed"]),
        ("bench", &["<INPUT>"]),
    ] {
        let ran = run_line(line);
        ran.refused(2, words);
        // A bad value is told with its option; anything else with the usage, too.
        let usage = ran.err.lines().nth(1);
        assert!(usage.is_none_or(|line| line.starts_with("Usage: saltmill ")), "{ran:?}");
        assert!(usage.is_some() || ran.err.contains("for '--"), "{ran:?}");
    }
}

#[test]
fn values_that_cannot_be_are_refused_before_an_input_is_opened() {
    // The input does not exist, so an error about the option shows that it was judged first.
    for (options, words) in [
        ("--workers 0", &["number of workers is 0", "1 to 128"][..]),
        ("--workers 129", &["number of workers is 129", "key groups"]),
        ("--max-parallelism 0", &["max parallelism is 0", "32768"]),
        ("--max-parallelism 40000", &["max parallelism is 40000"]),
        ("--batch-rows 0", &["batch size is 0"]),
        ("--ring-capacity 0", &["ring capacity is 0"]),
        ("--cores 99999", &["core 99999 is not available"]),
        ("--cores 1-", &["list of cores", "0,2,4-7"]),
        ("--window tumbling:1m", &["--time COL"]),
        ("--window tumbling:0s --time t", &["longer than 0"]),
        ("--window tumbling:5 --time t", &["5 of what?"]),
        ("--window hopping:1m --time t", &["hopping:SIZE/SLIDE"]),
        ("--window hopping:1m/0s --time t", &["longer than 0"]),
        ("--window cumulate:7m/1h --time t", &["whole number of STEPs"]),
        ("--window tumbling:1d@Europe/Berln --time t", &["is it Europe/Berlin?"]),
        ("--window tumbling:12h@UTC --time t", &["days, weeks or months"]),
        ("--window tumbling:1mo --time t --window-offset 1d", &["cannot be shifted"]),
        ("--window processing:1s --time t", &["by the clock", "leave --time out"]),
        ("--emit-every 0s", &["interval of early results is 0"]),
        ("--emit-every 1s --ordered", &["--ordered", "--emit-every", "use one"]),
        ("--align x --window tumbling:1m --time t", &["duration \"x\""]),
        ("--align 1m", &["--align", "add --time and --window"]),
        ("--open-windows 0", &["limit of open windows is 0"]),
        ("--window session:0s --time t", &["longer than 0"]),
        ("--window session:1m --time t --window-offset 1s", &["cannot be shifted"]),
        ("--window hopping:0s/1s --time t", &["longer than 0"]),
        ("--window-offset 1h", &["--window-offset", "--window tumbling:SIZE"]),
        ("--window tumbling:1d --window-offset x --time t", &["duration \"x\""]),
        ("--allowed-lateness 1m", &["--allowed-lateness", "add --window"]),
        ("--out-of-orderness fast", &["duration \"fast\""]),
        ("--idle-timeout 5", &["duration \"5\""]),
        ("--skew twice", &["skew mode \"twice\"", "adaptive"]),
        ("--skew hot:a,,b", &["skew mode", "empty"]),
        ("--salts 0", &["salts"]),
        ("--isa avx9", &["avx9", "portable"]),
        ("--agg sum", &["aggregate", "sum"]),
        ("--agg array_agg(x)", &["array_agg"]),
        (
            "--agg approx_quantile(x,1.5)",
            &["quantile of approx_quantile is 1.5", "between 0 and 1"],
        ),
        ("--agg approx_quantile(x,-0.1)", &["is -0.1", "between 0 and 1"]),
        ("--agg approx_quantile(x,nan)", &["expected a quantile between 0 and 1"]),
        ("--agg top_n(x,0)", &["number of values of top_n or bottom_n is 0", "1 to 10000"]),
        ("--agg bottom_n(x,0)", &["is 0", "1 to 10000"]),
        ("--agg top_n(x,10001)", &["is 10001", "1 to 10000"]),
        ("--agg sum(x)filter(where(x+1>2))", &["a filter compares columns"]),
        ("--key a,,b", &["list of columns", "empty"]),
        ("--schema a:quux", &["type \"quux\"", "float64"]),
        ("--format xlsx", &["format \"xlsx\"", "parquet"]),
        ("--output-format pdf", &["output format \"pdf\"", "table"]),
        ("--time t --time-unit h", &["time unit \"h\"", "ms"]),
    ] {
        run_line(&format!("run no-such-file.csv {options}")).refused(2, words);
    }
    run_line("bench no-such-file.csv --runs 0").refused(2, &["--runs is 0"]);
    run_line("bench no-such-file.csv --against --runs=3").refused(2, &["--against", "'--runs'"]);
    run_line("bench no-such-file.csv --against --skew=twice").refused(2, &["skew mode"]);
    run_line("bench no-such-file.csv --window processing:1s")
        .refused(2, &["processing time go by the clock", "--window tumbling:SIZE"]);
    run_line("bench no-such-file.csv --emit-every 1s").refused(2, &["leave --emit-every out"]);
    run_line("bench no-such-file.csv --against --emit-every=1s")
        .refused(2, &["leave --emit-every out"]);
    run_line("bench - --format csv --against --agg=count(x)").refused(2, &["read twice"]);
    run_line("gen --rows many").refused(2, &["count \"many\"", "50M"]);
    run_line("gen --keys 0").refused(2, &["keys is 0"]);
    run_line("gen --dist pareto:2").refused(2, &["distribution \"pareto:2\"", "zipf"]);
    run_line("gen --columns key,vlaue")
        .refused(2, &["--columns", "vlaue is none of ts, key, value"]);
    run_line("gen --columns key,key").refused(2, &["--columns", "twice"]);
    run_line("gen --key-type uuid").refused(2, &["key type \"uuid\"", "text"]);
    run_line("gen --out-of-orderness 1us").refused(2, &["--out-of-orderness", "milliseconds"]);
}

#[test]
fn no_output_overwrites_an_input_or_another_output() {
    let scratch = Scratch::new();
    let input = scratch.file("a.csv", "k\n1\n");
    let ran = saltmill(&["run", &input, "--output", &input]);
    ran.refused(2, &["--output", "is an input", "another file"]);
    assert_eq!(scratch.read("a.csv"), "k\n1\n");
    let same = scratch.path("b.csv");
    let ran = saltmill(&["run", &input, "--late", &same, "--rejected", &same]);
    ran.refused(2, &["--late and --rejected both name"]);
    let ran = saltmill(&["bench", &input, "--stats", &input]);
    ran.refused(2, &["--stats", "is an input"]);
}

#[test]
fn uneven_key_groups_are_pointed_out() {
    let scratch = Scratch::new();
    let input = scratch.file("a.csv", "k\n1\n2\n1\n");
    let ran = saltmill(&["run", &input, "--key", "k", "--workers", "7", "--max-parallelism", "12"]);
    assert_eq!(ran.code, Some(0));
    assert!(ran.err.contains("warning: 12 key groups do not divide by 7 workers"), "{ran:?}");
    assert!(
        ran.err.contains("1.17 times the mean load (serious); --max-parallelism 5040"),
        "{ran:?}"
    );
    assert_eq!(ran.sorted(), ["1,2", "2,1", "k,count"]);
}
