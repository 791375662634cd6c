//! One row through an appender, amortized: routing and handing on included. Told are the processor time of the
//! appending thread, which other work on the machine hardly touches, and wall time, which includes waiting for
//! room, and for cores that shards or others have.
//!
//! `cargo bench --manifest-path benches/Cargo.toml --bench append`. Ends with exit code 1 if a tuple of three numbers
//! and a text takes 30 ns of processor time or more at the median of the rounds.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use saltmill::arrow::datatypes::{DataType, Field, Schema};
use saltmill::config::SkewMode;
use saltmill::{Aggregate, Appender, Collected, Engine, Job, Window};
use serde::Serialize;

const ROWS: i64 = 2_000_000;
const ROUNDS: usize = 11;
const TUPLE_NS_MAX: f64 = 30.0;

#[derive(Serialize)]
struct Event<'a> {
    key: i64,
    ts: i64,
    value: i64,
    name: &'a str,
}

fn engine(workers: usize) -> Engine {
    let fields = vec![
        Field::new("key", DataType::Int64, false),
        Field::new("ts", DataType::Int64, false),
        Field::new("value", DataType::Int64, true),
        Field::new("name", DataType::Utf8, true),
    ];
    let job = Job::builder(Arc::new(Schema::new(fields)))
        .key(["key"])
        .event_time("ts")
        .window(Window::tumbling(Duration::from_secs(1)))
        .aggregates([Aggregate::count(), Aggregate::sum("value")])
        .skew(SkewMode::Off)
        .workers(workers);
    Engine::start(job.build().expect("valid"), Collected::new()).expect("it starts")
}

fn processor_time() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// Nanoseconds a row by processor and by wall, each sorted by round.
fn rounds(workers: usize, mut append: impl FnMut(&mut Appender, i64)) -> [Vec<f64>; 2] {
    let engine = engine(workers);
    let mut appender = engine.ingest().expect("it runs").appender().expect("columns of numbers");
    let mut rounds = [Vec::new(), Vec::new()];
    for round in 0..=ROUNDS as i64 {
        let (started, before) = (Instant::now(), processor_time());
        for i in 0..ROWS {
            append(&mut appender, round * ROWS + i);
        }
        rounds[0].push((processor_time() - before) * 1e9 / ROWS as f64);
        rounds[1].push(started.elapsed().as_secs_f64() * 1e9 / ROWS as f64);
    }
    appender.close().expect("it runs");
    let report = engine.finish().expect("it succeeds");
    assert_eq!(report.rows_aggregated, (ROUNDS as u64 + 1) * ROWS as u64);
    // The first warms up.
    for rounds in &mut rounds {
        rounds.remove(0);
        rounds.sort_by(f64::total_cmp);
    }
    rounds
}

fn main() -> ExitCode {
    println!("what,workers,cpu_ns_median,least,most,wall_ns_median,least,most");
    let mut kept = true;
    for workers in [1, 2] {
        let mut tell = |what: &str, rounds: [Vec<f64>; 2], limit: f64| {
            let [cpu, wall] = rounds.map(|it| [it[ROUNDS / 2], it[0], it[ROUNDS - 1]]);
            kept &= cpu[0] < limit;
            let times = cpu.into_iter().chain(wall).map(|ns| format!("{ns:.1}"));
            println!("{what},{workers},{}", times.collect::<Vec<_>>().join(","));
        };
        let tuple = rounds(workers, |appender, i| {
            appender.append((i % 1000, i / 1000, i, None::<&str>)).expect("it fits");
        });
        tell("tuple of three numbers and a null", tuple, f64::INFINITY);
        let tuple = rounds(workers, |appender, i| {
            appender
                .append(|row: &mut saltmill::append::RowWriter<'_>| {
                    row.next(i % 1000)?;
                    row.next(i / 1000)?;
                    row.next(i)?;
                    row.next("text")
                })
                .expect("it fits");
        });
        tell("closure with three numbers and a text", tuple, f64::INFINITY);
        let tuple = rounds(workers, |appender, i| {
            appender.append((i % 1000, i / 1000, i, "text")).expect("it fits");
        });
        tell("tuple of three numbers and a text", tuple, TUPLE_NS_MAX);
        let record = rounds(workers, |appender, i| {
            let event = Event { key: i % 1000, ts: i / 1000, value: i, name: "text" };
            appender.append_record(&event).expect("it fits");
        });
        tell("struct through serde", record, f64::INFINITY);
    }
    if kept {
        return ExitCode::SUCCESS;
    }
    eprintln!("missed: a row of a tuple must take less than {TUPLE_NS_MAX} ns");
    ExitCode::FAILURE
}
