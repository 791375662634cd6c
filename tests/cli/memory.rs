//! `--memory-limit`: the same results, whatever goes to disk, and no more memory than was allowed.

use std::process::Stdio;

use super::support::{Scratch, command, run_line, saltmill};

const AGG: &str = "--agg count,sum(value),min(value),max(value)";

/// A number out of a statistics file, summed over shards.
fn sum_of(stats: &str, name: &str) -> f64 {
    let marked = format!("\"{name}\": ");
    let numbers = stats.split(&marked).skip(1).map(|rest| {
        let end = rest.find([',', '}', '\n']).unwrap();
        rest[..end].trim().parse::<f64>().unwrap()
    });
    numbers.sum()
}

#[test]
fn limits_that_make_no_sense_are_refused() {
    let scratch = Scratch::new();
    let csv = scratch.file("in.csv", "key,value\n1,2\n");
    let with = |more: &str| run_line(&format!("run {csv} --key key --agg count {more}"));
    for (wrong, why) in [
        ("2G", "as in 2GB"),
        ("much", "as in 2GB"),
        ("GB", "before the unit"),
        ("0", "must be at least 1"),
        ("99999999TB", "more than there can be"),
    ] {
        with(&format!("--memory-limit {wrong}")).refused(2, &["memory", wrong, why]);
    }
    with("--spill-dir /tmp").refused(2, &["--memory-limit"]);
    let nowhere = scratch.path("nowhere");
    let refused = with(&format!("--memory-limit 1MB --spill-dir {nowhere}"));
    refused.refused(1, &[&nowhere, "cannot make a file", "--spill-dir"]);
    with("--memory-limit 1MiB").fine();
}

#[test]
fn results_are_the_same_and_nothing_stays_on_disk() {
    let scratch = Scratch::new();
    let csv = scratch.path("in.csv");
    let line =
        format!("gen --rows 200k --keys 100k --seed 3 --out-of-orderness 20ms --output {csv}");
    run_line(&line).fine();
    let spill_dir = scratch.path("spill");
    std::fs::create_dir(&spill_dir).unwrap();
    for window in [
        "none",
        "tumbling:50ms --out-of-orderness 20ms",
        "tumbling:50ms --allowed-lateness 100ms",
        "hopping:80ms/20ms --out-of-orderness 20ms",
        "session:30ms --out-of-orderness 20ms",
    ] {
        let stats = scratch.path("stats.json");
        let job = format!(
            "run {csv} --key key --time ts --window {window} {AGG} --ordered --stats {stats}"
        );
        let whole = run_line(&job);
        assert_eq!(whole.code, Some(0), "{whole:?}");
        assert!(sum_of(&std::fs::read_to_string(&stats).unwrap(), "spilled_bytes") < 0.5);
        for limit in ["1MB", "100KB"] {
            let ran = run_line(&format!("{job} --memory-limit {limit} --spill-dir {spill_dir}"));
            assert_eq!((ran.code, &ran.err), (Some(0), &whole.err), "{window}");
            assert!(ran.out == whole.out, "{window} under {limit}");
            let stats = std::fs::read_to_string(&stats).unwrap();
            let of = |name| sum_of(&stats, name);
            assert!(of("spilled_bytes") > 1e6 && of("spilled_runs") > 1.0, "{window}: {stats}");
            assert!(of("spill_s") > 0.0, "{window}: {stats}");
        }
    }
    assert_eq!(std::fs::read_dir(&spill_dir).unwrap().count(), 0, "files have no names");
}

#[test]
fn what_cannot_be_helped_is_said() {
    let scratch = Scratch::new();
    let csv = scratch.path("in.csv");
    run_line(&format!("gen --rows 300k --keys 1 --seed 3 --output {csv}")).fine();
    // One set of all rows: no disk makes it smaller.
    let args = |more: &str| {
        let mut args = vec!["run".to_owned(), csv.clone(), "--agg".to_owned()];
        args.push("count(distinct ts, value, amount, session) as d".to_owned());
        args.extend(more.split_whitespace().map(str::to_owned));
        args
    };
    let run = |more: &str| saltmill(&args(more));
    assert_eq!(run("").code, Some(0));
    run("--memory-limit 1MB").refused(1, &["the state of 1 key alone", "--memory-limit"]);
    assert_eq!(run("--memory-limit 1GB").code, Some(0));
}

#[test]
#[cfg(target_os = "linux")]
fn resident_memory_is_bounded_by_the_limit_and_what_io_takes() {
    let scratch = Scratch::new();
    let csv = scratch.path("in.csv");
    run_line(&format!("gen --rows 2M --keys 100M --seed 3 --output {csv}")).fine();
    let peak = |more: &str| {
        let line = format!(
            "run {csv} --key key {AGG} --workers 2 --output {} {more}",
            scratch.path("out.csv")
        );
        let args = line.split_whitespace().collect::<Vec<_>>();
        let mut child = command(&args).stdout(Stdio::null()).spawn().unwrap();
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0_u64;
        while child.try_wait().unwrap().is_none() {
            // Anonymous memory: the pages of the mapped input are the system's to take back.
            let text = std::fs::read_to_string(&status).unwrap_or_default();
            let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
            let kb = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
            peak = peak.max(kb.unwrap_or(0) * 1024);
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert!(child.wait().unwrap().success());
        peak
    };
    let (free, limited) = (peak(""), peak("--memory-limit 100MB"));
    assert!(free > 150_000_000, "the state is larger than the limit: {free}");
    // Half of so small a limit is state; reading csv and writing results takes more than the other half.
    assert!(
        limited < 180_000_000 && limited + 40_000_000 < free,
        "{limited} bytes under a limit of 100 MB, {free} without"
    );
}
