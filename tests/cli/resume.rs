//! Checkpoints from outside: runs that are killed at any moment and go on, and what is done with the directory.
//!
//! `SALTMILL_KILLS=N` sets how often all runs together are killed at least; 20 if it is not set.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::support::{Scratch, command, run_line, saltmill};

/// Moments at random, from the clock: kills are not repeatable anyway.
fn random_below(limit: u64) -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    (u64::from(now.subsec_nanos()).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % limit
}

/// Starts the program and kills it after a while; whether it was still running.
fn killed_after(args: &[String], after: Duration) -> bool {
    let mut child = command(args).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(after);
    let was_running = child.try_wait().unwrap().is_none();
    child.kill().unwrap();
    let output = child.wait_with_output().unwrap();
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(!errors.contains("error") && !errors.contains("panic"), "{errors}");
    was_running
}

/// The lines of a result, whatever their order, and however often the file was begun anew inside.
fn lines(path: &str) -> BTreeMap<String, u32> {
    let text = if path.ends_with(".gz") {
        let file = std::fs::File::open(path).unwrap();
        std::io::read_to_string(flate2::bufread::MultiGzDecoder::new(std::io::BufReader::new(file)))
            .unwrap()
    } else if path.ends_with(".parquet") {
        // A count of the whole file, and the file as text by the program itself.
        let shown = run_line(&format!(
            "run {path} --key window_start,key --agg count,sum(count),sum(sum_value),min(sum_value)"
        ));
        return shown.fine().text().lines().fold(BTreeMap::new(), |mut lines, line| {
            *lines.entry(line.to_owned()).or_default() += 1;
            lines
        });
    } else {
        std::fs::read_to_string(path).unwrap()
    };
    text.lines().fold(BTreeMap::new(), |mut lines, line| {
        *lines.entry(line.to_owned()).or_default() += 1;
        lines
    })
}

#[test]
fn runs_that_are_killed_at_any_moment_lose_and_double_nothing() {
    let kills_wanted =
        std::env::var("SALTMILL_KILLS").map_or(20, |kills| kills.parse::<usize>().unwrap());
    let scratch = Scratch::new();
    let csv = scratch.path("in.csv");
    let gen_line = format!(
        "gen --rows 400k --keys 3k --dist hot:0.6 --seed 7 --out-of-orderness 30ms --output {csv}"
    );
    run_line(&gen_line).fine();
    let parquet = scratch.path("in.parquet");
    run_line(&gen_line.replace(&csv, &parquet)).fine();
    let agg = "count,sum(value),avg(amount),count(distinct value) as d,median(amount) as m";
    let cases = [
        ("tumbling:20ms", "out.csv", &csv, "--late late.csv --rejected rejected.csv"),
        ("hopping:40ms/10ms", "out.csv.gz", &csv, ""),
        ("session:2ms", "out.ndjson", &csv, "--skew two-phase"),
        ("cumulate:10ms/40ms", "out.parquet", &parquet, ""),
        ("tumbling:10ms", "out.csv", &csv, "--allowed-lateness 15ms --ordered"),
        ("none", "out.tsv", &csv, "--skew off"),
        ("none", "out.csv", &csv, "--memory-limit 1MB"),
        ("hopping:40ms/10ms", "out.csv", &csv, "--memory-limit 1MB --skew two-phase"),
        ("tumbling:10ms", "out.csv", &csv, "--allowed-lateness 15ms --memory-limit 100KB"),
    ];
    let mut kills = 0;
    for (number, (window, output, input, more)) in cases.iter().enumerate() {
        let job = |name: &str, workers: usize| -> Vec<String> {
            let path = |file: &str| scratch.path(&format!("{number}-{name}-{file}"));
            let more = more.split_whitespace().map(|word| match word {
                file if file.ends_with(".csv") => path(file),
                other => other.to_owned(),
            });
            let line = format!(
                "run {input} --key key --time ts --window {window} --out-of-orderness 10ms --output {} \
                 --workers {workers}",
                path(output)
            );
            let words = line.split_whitespace().map(str::to_owned);
            words.chain(["--agg".to_owned(), agg.to_owned()]).chain(more).collect()
        };
        let started = Instant::now();
        let whole = saltmill(&job("whole", 2));
        assert_eq!(whole.code, Some(0), "{whole:?}");
        let took = started.elapsed();

        let state = scratch.path(&format!("{number}-state"));
        let resumed = |workers: usize| {
            let mut args = job("pieces", workers);
            let more = format!("--checkpoint-dir {state} --checkpoint-every 15ms --resume");
            args.extend(more.split_whitespace().map(str::to_owned));
            args
        };
        let wanted = kills_wanted * (number + 1) / cases.len();
        let mut tries = 0;
        while kills < wanted {
            let most = u64::try_from(took.as_millis()).unwrap() + 50;
            if killed_after(&resumed(1 + tries % 4), Duration::from_millis(random_below(most))) {
                kills += 1;
            } else {
                // It got to its end, and there is nothing to kill: once more from the beginning.
                std::fs::remove_dir_all(&state).unwrap();
            }
            tries += 1;
            if tries % 7 == 6 && std::path::Path::new(&state).exists() {
                // Now and then checkpoints are looked at.
                let listed = saltmill(&["state", "ls", &state]);
                assert_eq!(listed.code, Some(0), "{listed:?}");
            }
        }
        let last = saltmill(&resumed(3));
        assert_eq!(last.code, Some(0), "{last:?}");
        let files = [*output]
            .into_iter()
            .chain(more.split_whitespace().filter(|word| word.ends_with(".csv")));
        for file in files {
            let path = |name: &str| scratch.path(&format!("{number}-{name}-{file}"));
            let (whole, pieces) = (lines(&path("whole")), lines(&path("pieces")));
            assert!(whole.len() > 1 || file.starts_with("rejected"), "{window}: {file} holds rows");
            let wrong = pieces.iter().filter(|(line, n)| whole.get(*line) != Some(n)).take(3);
            let wrong = wrong.collect::<Vec<_>>();
            let missing = whole.keys().filter(|line| !pieces.contains_key(*line)).take(3);
            let missing = missing.collect::<Vec<_>>();
            assert!(whole == pieces, "{window}, {file}: wrong {wrong:?}, missing {missing:?}");
        }
        if more.contains("--ordered") {
            let path = |name: &str| scratch.path(&format!("{number}-{name}-{output}"));
            let read = |name| std::fs::read(path(name)).unwrap();
            assert!(read("whole") == read("pieces"), "byte for byte");
        }
    }
    println!("{kills} kills, {} outputs equal", cases.len());
}

#[test]
fn ctrl_c_takes_a_checkpoint_and_the_run_goes_on_from_it() {
    let scratch = Scratch::new();
    let csv = scratch.path("in.csv");
    run_line(&format!("gen --rows 1M --keys 3k --seed 7 --output {csv}")).fine();
    let job =
        format!("run {csv} --key key --time ts --window tumbling:10ms --agg count,sum(value)");
    let (whole, pieces) = (scratch.path("whole.csv"), scratch.path("pieces.csv"));
    run_line(&format!("{job} --output {whole}")).fine();
    let state = scratch.path("state");
    let line = format!("{job} --output {pieces} --checkpoint-dir {state} --checkpoint-every 1h");
    let child = command(&line.split_whitespace().collect::<Vec<_>>())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Once it has read something, so that Ctrl-C is heard.
    while std::fs::metadata(&pieces).map_or(0, |file| file.len()) == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let pid = child.id().to_string();
    std::process::Command::new("kill").args(["-INT", &pid]).status().unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let said = String::from_utf8(output.stderr).unwrap();
    let resumed = run_line(&format!("{line} --resume"));
    assert_eq!(resumed.code, Some(0), "{resumed:?}");
    if said.contains("stopped behind") {
        assert!(resumed.err.contains("going on from checkpoint 1, behind"), "{resumed:?}");
    }
    assert_eq!(lines(&whole), lines(&pieces));
    let again = run_line(&format!("{line} --resume"));
    assert!(again.err.contains("the run had ended"), "{again:?}");
    run_line(&line).refused(2, &["holds checkpoints of an earlier run", "--resume"]);
}

#[test]
fn a_checkpoint_of_another_job_or_a_damaged_one_is_refused() {
    let scratch = Scratch::new();
    let csv = scratch.path("in.csv");
    run_line(&format!("gen --rows 300k --keys 300 --seed 7 --output {csv}")).fine();
    let state = scratch.path("state");
    let with = |more: &str| {
        format!(
            "run {csv} --key key --time ts --agg count,sum(value) --checkpoint-dir {state} --output {} {more}",
            scratch.path("out.csv")
        )
    };
    let args = with("--window tumbling:1s --checkpoint-every 2ms");
    let args = args.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    // Killed once there is a checkpoint with state.
    let mut child = command(&args).stderr(Stdio::null()).spawn().unwrap();
    while child.try_wait().unwrap().is_none() {
        let listed = saltmill(&["state", "ls", &state]);
        if listed.text().lines().count() > 1 {
            child.kill().unwrap();
        }
    }
    let verified = run_line(&format!("state verify {state}"));
    assert_eq!(verified.code, Some(0), "{verified:?}");
    if run_line(&format!("state show {state}")).text().contains("\"finished\": true") {
        // The machine was quicker than the kill: nothing to go on with.
        return;
    }
    run_line(&with("--window tumbling:2s --resume")).refused(2, &["windows was", "2s"]);
    let other = with("--window tumbling:1s --resume --max-parallelism 64");
    run_line(&other).refused(2, &["max parallelism was 128, and is 64 now"]);
    let newest = std::fs::read_dir(&state).unwrap().map(|entry| entry.unwrap().path());
    let newest = newest.filter(|path| path.is_dir()).max().unwrap();
    let file = newest.join("shard-0.arrow");
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&file, bytes).unwrap();
    let damaged = run_line(&with("--window tumbling:1s --resume"));
    damaged.refused(1, &["shard-0.arrow", "damaged", "older checkpoint"]);
    run_line(&format!("state verify {state}")).refused(1, &["shard-0.arrow", "damaged"]);
    run_line(&format!("state verify {csv}")).refused(1, &["no complete checkpoint"]);
    let file = scratch.file("file", "x");
    let into_file = format!("run {csv} --agg count --checkpoint-dir {file}");
    run_line(&into_file).refused(1, &["is no directory"]);
}
