//! Metrics as Prometheus sees them: what is exposed, what the alert rules and the dashboard ask for, and that the alert
//! on skew fires when it should.
#![cfg(feature = "metrics")]

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use saltmill::arrow::array::{ArrayRef, Int64Array, TimestampMillisecondArray};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::prometheus::{Exposition, MetricsServer};
use saltmill::{Aggregate, Collected, Engine, Job, Window};

/// Rows of consecutive milliseconds; 4 of 5 have key 7.
fn batch(first: i64, rows: i64) -> RecordBatch {
    let times = TimestampMillisecondArray::from_iter_values(first..first + rows);
    let keys = (first..first + rows).map(|row| if row % 5 == 0 { row * 31 % 1_009 } else { 7 });
    RecordBatch::try_from_iter([
        ("ts", Arc::new(times) as ArrayRef),
        ("key", Arc::new(Int64Array::from_iter_values(keys)) as ArrayRef),
    ])
    .unwrap()
}

fn engine(skew: SkewMode, workers: usize) -> Engine {
    let job = Job::builder(batch(0, 1).schema())
        .key(["key"])
        .event_time("ts")
        .window(Window::tumbling(Duration::from_secs(10)))
        .aggregate(Aggregate::count())
        .workers(workers)
        .skew(skew)
        .build()
        .unwrap();
    Engine::start(job, Collected::new()).unwrap()
}

/// The exposition of a run in which everything has happened.
fn exposition() -> String {
    let engine = engine(SkewMode::Adaptive, 2);
    let mut exposition = Exposition::new(engine.metrics_reader());
    let (mut one, mut other) = (engine.ingest().unwrap(), engine.ingest().unwrap());
    for step in 0..40 {
        one.push(batch(step * 10_000, 10_000)).unwrap();
        other.push(batch(step * 10_000, 5_000)).unwrap();
    }
    // Late.
    one.push(batch(0, 100)).unwrap();
    let waited = Instant::now();
    while engine.metrics().window_close.count() == 0 && waited.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let text = exposition.text();
    one.close().unwrap();
    other.close().unwrap();
    let report = engine.finish().unwrap();
    let after = exposition.text();
    assert!(after.contains(&format!("saltmill_rows_total {}\n", report.rows_in)), "{after}");
    assert!(after.contains(&format!("saltmill_late_rows_total {}\n", report.rows_late)), "{after}");
    text
}

/// Names of families, as `# TYPE` lines give them.
fn families(exposition: &str) -> BTreeSet<String> {
    let lines = exposition.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    lines.map(|line| line.split(' ').next().unwrap().to_owned()).collect()
}

/// Names of metrics in a text; those of histograms without their endings.
fn asked_for(text: &str) -> BTreeSet<String> {
    let starts = text.match_indices("saltmill_").map(|(at, _)| &text[at..]);
    let names = starts.map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let name = &rest[..end.unwrap_or(rest.len())];
        name.strip_suffix("_bucket").unwrap_or(name).to_owned()
    });
    names.collect()
}

fn monitoring(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring").join(file);
    std::fs::read_to_string(path).unwrap()
}

#[test]
fn rules_and_dashboard_use_the_names_that_are_exposed() {
    let text = exposition();
    let mut exposed = families(&text);
    assert!(exposed.len() > 25, "{exposed:?}");
    // Shown only once a row was rejected.
    exposed.insert("saltmill_rejected_rows_total".into());
    for file in ["alerts.yml", "dashboard.json"] {
        let asked = asked_for(&monitoring(file));
        assert!(asked.len() > 5, "{file}: {asked:?}");
        let unknown = asked.difference(&exposed).collect::<Vec<_>>();
        assert!(unknown.is_empty(), "{file} asks for {unknown:?}, which is not exposed");
    }
    // Everything exposed can be seen.
    let seen = asked_for(&monitoring("dashboard.json"));
    let unseen = exposed.difference(&seen).collect::<Vec<_>>();
    assert!(unseen.is_empty(), "the dashboard does not show {unseen:?}");
}

#[test]
fn metrics_follow_the_conventions_and_have_no_series_per_key() {
    let text = exposition();
    for family in families(&text) {
        assert!(text.contains(&format!("# HELP {family} ")), "{family} is explained");
        let kind = text.lines().find(|line| line.starts_with(&format!("# TYPE {family} ")));
        let is_counter = kind.unwrap().ends_with(" counter");
        assert_eq!(is_counter, family.ends_with("_total"), "{family}");
    }
    let series = text.lines().filter(|line| !line.starts_with('#')).count();
    assert!(series < 150, "{series} series for 2 shards, 2 inputs and 1,010 keys");
    assert!(text.contains("saltmill_shard_rows_total{shard=\"1\"} "), "{text}");
    assert!(text.contains("saltmill_window_close_seconds_bucket{le=\"+Inf\"} "), "{text}");
    assert!(text.contains("saltmill_input_drift_seconds{input=\"1\"} "), "{text}");
}

#[test]
fn promtool_has_nothing_to_say() {
    let promtool = |args: &[&str]| {
        let mut command = Command::new("promtool");
        command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn()
    };
    let Ok(mut checker) = promtool(&["check", "metrics"]) else {
        eprintln!("skipped: promtool is not installed (Debian: prometheus)");
        return;
    };
    checker.stdin.take().unwrap().write_all(exposition().as_bytes()).unwrap();
    let checked = checker.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert!(checked.status.success() && said.is_empty(), "{said}");
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring/alerts.yml");
    let checked = promtool(&["check", "rules", rules.to_str().unwrap()]).unwrap();
    let checked = checked.wait_with_output().unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}

/// The metric and the limit of the alert on uneven shards, as the rule states them.
fn uneven_alert() -> (String, f64) {
    let rules = monitoring("alerts.yml");
    let rule = rules.split("alert: SaltmillShardsUneven").nth(1).unwrap();
    let expression = rule.lines().find_map(|line| line.trim().strip_prefix("expr: ")).unwrap();
    let (metric, limit) = expression.split_once(" > ").unwrap();
    (metric.to_owned(), limit.parse().unwrap())
}

#[test]
fn the_alert_fires_on_a_hot_key_with_skew_handling_off_only() {
    let (metric, limit) = uneven_alert();
    let measured = |skew: SkewMode| {
        let engine = engine(skew, 4);
        let mut exposition = Exposition::new(engine.metrics_reader());
        let mut ingest = engine.ingest().unwrap();
        let started = Instant::now();
        let mut row = 0;
        while started.elapsed() < Duration::from_millis(1_400) {
            ingest.push(batch(row, 20_000)).unwrap();
            row += 20_000;
            exposition.tick();
        }
        let text = exposition.text();
        ingest.close().unwrap();
        engine.finish().unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("{metric} ")));
        line.unwrap().parse::<f64>().unwrap()
    };
    let (off, on) = (measured(SkewMode::Off), measured(SkewMode::Adaptive));
    println!("{metric}: {off} off, {on} on");
    assert!(off > limit, "{metric} is {off} with skew handling off, the alert fires above {limit}");
    assert!(on <= limit, "{metric} is {on} with skew handling on, the alert fires above {limit}");
    // Prometheus itself judges the rule, over minutes of what was measured.
    if let (Some(off), Some(on)) = (fires(&metric, off), fires(&metric, on)) {
        assert_eq!((off, on), (true, false));
    }
}

/// Whether the alert on uneven shards fires in the end if the metric stays at `value`; none without promtool.
fn fires(metric: &str, value: f64) -> Option<bool> {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR")).join("monitoring/alerts.yml");
    let folder = std::env::temp_dir().join(format!("saltmill-alert-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let file = folder.join("test.yml");
    let check = |expected: &str| {
        let test = format!(
            "rule_files: ['{}']\nevaluation_interval: 15s\ntests:\n  - interval: 15s\n    input_series:\n      \
             - series: '{metric}'\n        values: '{value}x20'\n    promql_expr_test:\n      - expr: \
             'count(ALERTS{{alertname=\"SaltmillShardsUneven\", alertstate=\"firing\"}})'\n        \
             eval_time: 4m\n        exp_samples: {expected}\n",
            rules.display()
        );
        std::fs::write(&file, test).unwrap();
        Command::new("promtool").args(["test", "rules"]).arg(&file).output()
    };
    let fired = check("[{labels: '{}', value: 1}]");
    let silent = check("[]");
    let _ = std::fs::remove_dir_all(&folder);
    let (Ok(fired), Ok(silent)) = (fired, silent) else {
        eprintln!("skipped: promtool is not installed (Debian: prometheus)");
        return None;
    };
    assert_ne!(fired.status.success(), silent.status.success(), "{fired:?} {silent:?}");
    Some(fired.status.success())
}

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    write!(stream, "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Processor time of the thread that serves, for 1,000 scrapes through one connection: what they take from the engine.
fn scraped_a_thousand_times(address: SocketAddr) -> Duration {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let before = serving_time();
    for _ in 0..1_000 {
        stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
        let mut length = 0;
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim_end().to_ascii_lowercase();
            if let Some(bytes) = line.strip_prefix("content-length: ") {
                length = bytes.parse().unwrap();
            }
            if line.is_empty() {
                break;
            }
        }
        let mut text = vec![0; length];
        reader.read_exact(&mut text).unwrap();
        assert!(text.starts_with(b"# HELP saltmill_"));
    }
    let spent = serving_time() - before;
    // 1 % of ten seconds of one core, with room for a machine that does much else.
    assert!(spent < Duration::from_millis(100), "{spent:?} for 1,000 scrapes");
    spent
}

/// Processor time of threads that serve metrics in this process, as far as the system tells it.
fn serving_time() -> Duration {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let times = threads.filter_map(|thread| {
        let read = |file| std::fs::read_to_string(thread.path().join(file)).ok();
        let serves = read("comm")?.starts_with("saltmill-metric");
        let nanos = read("schedstat")?.split(' ').next()?.parse().ok()?;
        serves.then_some(Duration::from_nanos(nanos))
    });
    times.sum()
}

#[test]
fn the_server_answers_while_the_engine_runs_and_after() {
    let engine = engine(SkewMode::Adaptive, 2);
    let mut server = MetricsServer::bind("127.0.0.1:0").unwrap();
    let address = server.address();
    assert!(MetricsServer::bind(address).is_err(), "one at a time");
    server.serve(engine.metrics_reader()).unwrap();
    let mut ingest = engine.ingest().unwrap();
    ingest.push(batch(0, 1_000)).unwrap();
    let answer = ask(address, "GET /metrics");
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(answer.contains("text/plain; version=0.0.4"), "{answer}");
    assert!(answer.contains("saltmill_rows_total 1000\n"), "{answer}");
    assert!(ask(address, "HEAD /metrics").starts_with("HTTP/1.1 200 "));
    assert!(ask(address, "GET /").contains("/metrics"));
    assert!(ask(address, "GET /nothing").starts_with("HTTP/1.1 404 "));
    assert!(ask(address, "POST /metrics").starts_with("HTTP/1.1 405 "));
    ingest.close().unwrap();
    engine.finish().unwrap();
    assert!(ask(address, "GET /metrics?x=1").contains("saltmill_rows_total 1000\n"));
    println!("{:?} for 1,000 scrapes", scraped_a_thousand_times(address));
    drop(server);
    let waited = Instant::now();
    while TcpStream::connect(address).is_ok() {
        assert!(waited.elapsed() < Duration::from_secs(20), "the address is never free again");
        std::thread::sleep(Duration::from_millis(10));
    }
}
