//! Latency under open-loop load: rows come on a fixed schedule, whatever the engine does, and every latency counts
//! from the time at which the row *should* have come, so that a stall is seen by all rows it delays.
//!
//! `cargo bench --manifest-path benches/Cargo.toml --bench latency -- --seconds 5`; `just bench-latency` makes a report
//! of it. Prints CSV. One thread generates; results are told by the sink.
//!
//! - `result`: from the intended time of the end of a window (10 windows a second) to each of its result rows.
//! - `push`: the time of one `append`, of one in 61.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use saltmill::arrow::array::AsArray;
use saltmill::arrow::datatypes::{
    DataType, Field, Int64Type, Schema, TimeUnit, TimestampMicrosecondType,
};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::runtime::sink::Callback;
use saltmill::{Aggregate, Engine, Job, Window};

const WINDOW_US: u64 = 100_000;
/// Windows that are not counted while everything warms up.
const WARM_UP_US: i64 = 1_000_000;
const HOT: i64 = -1;
const SAMPLED: u64 = 61;

#[derive(Debug, Clone)]
struct Load {
    name: String,
    keys: u64,
    hot_share: f64,
    skew: SkewMode,
    /// Rows a second; none: as many as go in.
    rate: Option<f64>,
}

#[derive(Debug)]
struct Setting {
    seconds: f64,
    workers: usize,
    latency: Duration,
}

struct Measured {
    rows: u64,
    elapsed: f64,
    /// Of the schedule, at the end.
    behind_us: u64,
    cold: Histogram<u64>,
    hot: Histogram<u64>,
    push: Histogram<u64>,
}

fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("valid bounds")
}

fn run(load: &Load, setting: &Setting) -> Measured {
    let fields = vec![
        Field::new("key", DataType::Int64, false),
        Field::new("ts", DataType::Timestamp(TimeUnit::Microsecond, None), false),
        Field::new("value", DataType::Int64, false),
    ];
    let job = Job::builder(Arc::new(Schema::new(fields)))
        .key(["key"])
        .event_time("ts")
        .window(Window::tumbling(Duration::from_micros(WINDOW_US)))
        .aggregates([Aggregate::count(), Aggregate::sum("value")])
        .skew(load.skew.clone())
        .workers(setting.workers)
        .build()
        .expect("valid");
    let started = Arc::new(Mutex::new(Instant::now()));
    let histograms = Arc::new(Mutex::new((histogram(), histogram())));
    let sink = Callback({
        let (started, histograms) = (Arc::clone(&started), Arc::clone(&histograms));
        move |batch: RecordBatch| {
            let now = started.lock().expect("not poisoned").elapsed();
            let ends = batch.column(1).as_primitive::<TimestampMicrosecondType>();
            let keys = batch.column(2).as_primitive::<Int64Type>();
            let end = ends.value(0);
            if end > WARM_UP_US {
                let lag = now.saturating_sub(Duration::from_micros(end.unsigned_abs()));
                let lag = u64::try_from(lag.as_nanos()).expect("short");
                let hot = keys.values().iter().filter(|key| **key == HOT).count() as u64;
                let mut histograms = histograms.lock().expect("not poisoned");
                histograms.0.saturating_record_n(lag, batch.num_rows() as u64 - hot);
                histograms.1.saturating_record_n(lag, hot);
            }
            Ok(())
        }
    });
    let engine = Engine::start(job, sink).expect("it starts");
    let appender = engine.ingest().expect("it runs").appender().expect("columns of numbers");
    let mut appender = appender.latency(setting.latency);
    let mut push = histogram();
    let mut random = 7_u64;
    let mut next = move || {
        random = random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (random ^ (random >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb)
    };
    let hot_below = (load.hot_share * u32::MAX as f64) as u64;
    let start = Instant::now();
    *started.lock().expect("not poisoned") = start;
    let mut rows = 0_u64;
    let mut elapsed = 0.0;
    while elapsed < setting.seconds {
        elapsed = start.elapsed().as_secs_f64();
        let due = load.rate.map_or(rows + 256, |rate| (elapsed * rate) as u64);
        if rows >= due {
            std::thread::yield_now();
            continue;
        }
        // The clock is looked at again soon, so that rows are not appended in large lumps.
        for _ in 0..(due - rows).min(256) {
            let intended_us = load.rate.map_or(elapsed, |rate| rows as f64 / rate) * 1e6;
            let random = next();
            let key = if random >> 32 < hot_below {
                HOT
            } else {
                ((random & 0xffff_ffff) * load.keys >> 32) as i64
            };
            let timed = rows.is_multiple_of(SAMPLED).then(Instant::now);
            appender.append((key, intended_us as i64, 1)).expect("it fits");
            if let Some(timed) = timed {
                push.saturating_record(u64::try_from(timed.elapsed().as_nanos()).expect("short"));
            }
            rows += 1;
        }
    }
    let behind = load.rate.map_or(0.0, |rate| elapsed - rows as f64 / rate);
    appender.close().expect("it runs");
    let report = engine.finish().expect("it succeeds");
    assert_eq!((report.rows_aggregated, report.rows_late), (rows, 0));
    let mut histograms = histograms.lock().expect("not poisoned");
    let (cold, hot) = std::mem::replace(&mut *histograms, (histogram(), histogram()));
    Measured { rows, elapsed, behind_us: (behind.max(0.0) * 1e6) as u64, cold, hot, push }
}

fn print(load: &Load, share: f64, what: &str, measured: &Measured, histogram: &Histogram<u64>) {
    if histogram.is_empty() {
        return;
    }
    let us = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1000.0;
    println!(
        "{},{share},{:.0},{what},{},{:.2},{:.2},{:.2},{:.2},{:.2},{}",
        load.name,
        measured.rows as f64 / measured.elapsed,
        histogram.len(),
        us(0.5),
        us(0.9),
        us(0.99),
        us(0.999),
        histogram.max() as f64 / 1000.0,
        measured.behind_us,
    );
}

fn main() {
    let words = std::env::args().skip(1).filter(|word| word != "--bench").collect::<Vec<_>>();
    let mut given = HashMap::new();
    for pair in words.chunks(2) {
        given.insert(
            pair[0].trim_start_matches('-').to_owned(),
            pair.get(1).cloned().unwrap_or_default(),
        );
    }
    let number = |name: &str, default: f64| {
        given.get(name).map_or(default, |text| text.parse().expect("options are numbers"))
    };
    let setting = Setting {
        seconds: number("seconds", 5.0),
        workers: number("workers", 2.0) as usize,
        latency: Duration::from_micros(number("latency-us", 200.0) as u64),
    };
    let keys = number("keys", 1e6) as u64;
    println!(
        "load,share_of_max,rows_per_second,what,count,p50_us,p90_us,p99_us,p999_us,max_us,behind_us"
    );
    let load = |name: &str, keys, hot_share, skew| Load {
        name: name.to_owned(),
        keys,
        hot_share,
        skew,
        rate: None,
    };
    let uniform = load("uniform", keys, 0.0, SkewMode::Adaptive);
    let hundred = load("uniform 100K", 100_000, 0.0, SkewMode::Adaptive);
    let max = |load: &Load| {
        let measured = run(load, &setting);
        print(load, 1.0, "push", &measured, &measured.push);
        measured.rows as f64 / measured.elapsed
    };
    let at = |load: &Load, share: f64, rate: f64| {
        let load = Load { rate: Some(rate), ..load.clone() };
        let measured = run(&load, &setting);
        print(&load, share, "result", &measured, &measured.cold);
        print(&load, share, "result of the hot key", &measured, &measured.hot);
        print(&load, share, "push", &measured, &measured.push);
    };
    for load in [uniform, hundred] {
        let max = max(&load);
        for share in [0.1, 0.5, 0.8, 0.95] {
            at(&load, share, share * max);
        }
    }
    // The same cold rows alone, and beside four times as many of one hot key.
    let hot_off = load("hot 80 %, off", keys, 0.8, SkewMode::Off);
    let hot_on = load("hot 80 %, adaptive", keys, 0.8, SkewMode::Adaptive);
    let alone = load("its cold rows alone", keys, 0.0, SkewMode::Adaptive);
    let max_off = max(&hot_off);
    max(&hot_on);
    for share in [0.5, 0.8] {
        for _ in 0..3 {
            at(&alone, share, share * max_off * 0.2);
            at(&hot_on, share, share * max_off);
            at(&hot_off, share, share * max_off);
        }
    }
}
