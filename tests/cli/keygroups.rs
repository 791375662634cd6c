use std::path::Path;

use super::support::{Scratch, run_line, saltmill};

fn json(line: &str) -> serde_json::Value {
    serde_json::from_str(run_line(&format!("{line} --json")).fine().text()).unwrap()
}

#[test]
fn ranges_and_fits_are_shown() {
    let ran = run_line("keygroups --parallelism 7 --max-parallelism 12").fine();
    let text = ran.text();
    assert!(text.contains("      0           0..1       2\n"), "{text}");
    assert!(text.contains("      6         11..11       1\n"), "{text}");
    assert!(text.contains("          7           1 or 2     1.167    5040  <-\n"), "{text}");
    assert!(text.contains("12 key groups do not divide by 7 workers"), "{text}");
    assert!(text.contains("Flink takes 128 for a parallelism of 7 if none is set"), "{text}");
    let even = run_line("keygroups --parallelism 8 --max-parallelism 128 --up-to 3").fine();
    assert!(even.text().contains("divide evenly by 8 subtasks: 16 each (also what"), "{even:?}");
}

/// Ranges that Flink itself printed, where they lie beside the package.
#[test]
fn ranges_are_those_of_flink() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/flink/key_group_ranges.csv");
    let Ok(table) = std::fs::read_to_string(&path) else {
        eprintln!("skipped: {} is not there", path.display());
        return;
    };
    for (groups, subtasks) in [(7, 3), (128, 7), (120, 7), (12, 7)] {
        let start = format!("{groups},{subtasks},");
        let mine = json(&format!("keygroups --parallelism {subtasks} --max-parallelism {groups}"));
        let mine = mine["subtasks"].as_array().unwrap().iter().map(|range| {
            format!("{start}{},{},{}", range["subtask"], range["first"], range["last"])
        });
        let theirs = table.lines().filter(|line| line.starts_with(&start));
        let theirs = theirs.map(|line| line.rsplit_once(',').unwrap().0.to_owned());
        assert_eq!(mine.collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
    }
}

#[test]
fn keys_are_placed_as_flink_places_them() {
    let placed = |line: &str| {
        let report = json(line);
        let keys = report["keys"].as_array().unwrap().iter();
        keys.map(|key| (key["key_group"].as_u64().unwrap(), key["subtask"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    // From tables printed by Flink: "hot" and "user-42" as String, 1 as BIGINT in SQL.
    let strings = "keygroups --parallelism 8 --assign flink-string --key hot --key user-42";
    assert_eq!(placed(strings), [(104, 6), (20, 1)]);
    let scratch = Scratch::new();
    let file = scratch.file("keys.txt", "1\nnull\n");
    let sql = format!("keygroups --parallelism 8 --key-type int64 --keys {file}");
    assert_eq!(placed(&sql)[0], (94, 5));
    // The same table has 1 as Long, and ("Hello, World", 2147483648) as Tuple2<String, Long>.
    let long = "keygroups --parallelism 8 --key-type int64 --key 1 --assign flink-long";
    assert_eq!(placed(long), [(86, 5)]);
    let line = "keygroups --parallelism 16 --key-type utf8,int64 --assign flink-stream --key";
    let two = line.split(' ').chain(["\"Hello, World\",2147483648"]).collect::<Vec<_>>();
    let text = saltmill(&two).fine().text().to_owned();
    let line = text.lines().find(|line| line.ends_with("  \"Hello, World\",2147483648")).unwrap();
    assert_eq!(line.split_whitespace().take(2).collect::<Vec<_>>(), ["42", "5"]);
}

#[test]
fn what_cannot_be_is_refused() {
    for (options, words) in [
        ("--parallelism 0", &["parallelism is 0", "1 to 128"][..]),
        ("--parallelism 129", &["parallelism is 129", "key groups"]),
        ("--max-parallelism 40000", &["max parallelism is 40000", "32768"]),
        ("--max-parallelism 0", &["max parallelism is 0"]),
        ("--up-to 0", &["--up-to is 0"]),
        ("--assign flonk", &["assignment of keys \"flonk\"", "flink-sql"]),
        ("--key-type quux", &["type \"quux\""]),
        ("--key x --key-type int64", &["key \"x\"", "Int64", "--key-type"]),
        ("--key a --key-type utf8,utf8", &["key \"a\"", "1 field(s)", "names 2"]),
        ("--key a --key-type utf8,utf8 --assign flink-string", &["one key column"]),
        ("--key 1 --key-type uint64", &["UInt64", "not supported"]),
        ("--key null --assign flink-string", &["null key", "flink-sql"]),
    ] {
        run_line(&format!("keygroups {options}")).refused(2, words);
    }
    run_line("keygroups --keys no-such-file.txt").refused(1, &["no-such-file.txt"]);
}
