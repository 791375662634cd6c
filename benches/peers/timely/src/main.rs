//! Count, sum, min and max by key and window as an expert would write them by hand on timely dataflow, tuned
//! for this one query: columns are lent and split without a branch, each worker keeps one hash table a
//! window and uses its memory again, watermarks are timely's own timestamps.
//!
//! Reads lines of JSON as `peer.py` does and answers in kind.

use std::cell::RefCell;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::datatypes::{DataType, Int64Type, TimestampMillisecondType};
use arrow::ipc::reader::FileReader;
use timely::container::NoopBuilder;
use timely::dataflow::InputHandle;
use timely::dataflow::channels::pact::{DistributorPact, Pipeline};
use timely::dataflow::operators::Probe;
use timely::dataflow::operators::generic::operator::Operator;
use timely::dataflow::operators::probe::Handle as ProbeHandle;

mod columns;
mod windows;

use columns::{Columns, INPUT, Input, Part, Split, lend};
use windows::{Row, WINDOW_MS, Windows};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Rows of a message.
const PART_ROWS: usize = 8192;
/// How far times may be out of order, in milliseconds.
const DISORDER_MS: i64 = 3;
/// How far, in milliseconds of event time, a worker reads ahead of the slowest one.
const AHEAD_MS: u64 = 256;

type Results = Vec<Vec<Row>>;

/// The dataflow on `workers` threads, to its end.
fn run(workers: usize) -> Results {
    let results = Arc::new(Mutex::new(Results::new()));
    let collected = Arc::clone(&results);
    let guards = timely::execute(timely::Config::process(workers), move |worker| {
        let sink = Rc::new(RefCell::new(Results::new()));
        let probe: ProbeHandle<u64> = ProbeHandle::new();
        let mut input: InputHandle<u64, NoopBuilder<Columns>> = InputHandle::new_with_builder();
        worker.dataflow::<u64, _, _>(|scope| {
            let split = DistributorPact(move |workers: usize| Split::new(workers, PART_ROWS));
            let into = Rc::clone(&sink);
            input
                .to_stream(scope)
                .unary_frontier::<NoopBuilder<Vec<Row>>, _, _, _>(split, "aggregate", |right, _| {
                    drop(right);
                    let mut windows = Windows::default();
                    move |(input, frontier), output| {
                        input.for_each(|right, columns| {
                            windows.update(columns.view(), &|| {
                                right.retain_least(0).expect("a message has a time")
                            });
                        });
                        let frontier = frontier.frontier().first().copied();
                        windows.close(frontier, &mut |right, rows| {
                            output.session_with_builder(right).give_container(rows);
                        });
                    }
                })
                .unary::<NoopBuilder<Vec<()>>, _, _, _>(Pipeline, "collect", move |_, _| {
                    move |input, _| {
                        input.for_each(|_, rows: &mut Vec<Row>| {
                            into.borrow_mut().push(std::mem::take(rows));
                        });
                    }
                })
                .probe_with(&probe);
        });
        let mut watermark = 0;
        for part in parts(worker.index(), worker.peers()) {
            let latest = lend(part)[2].iter().copied().max().expect("a part has rows");
            input.send_batch(&mut Columns::lent(part));
            watermark = watermark.max((latest - DISORDER_MS).cast_unsigned());
            input.advance_to(watermark);
            worker.step();
            while probe.less_than(&watermark.saturating_sub(AHEAD_MS)) {
                worker.step();
            }
        }
        drop(input);
        while worker.step_or_park(None) {}
        collected.lock().expect("no worker panics").append(&mut sink.borrow_mut());
    });
    drop(guards.expect("threads can be started"));
    let results = std::mem::take(&mut *results.lock().expect("no worker panics"));
    results
}

/// The parts of the input that worker `index` reads: every `workers`-th.
fn parts(index: usize, workers: usize) -> impl Iterator<Item = Part> {
    let batches = INPUT.get().expect("loaded").iter().enumerate();
    let parts = batches.flat_map(|(batch, columns)| {
        let rows = columns[0].len();
        (0..rows).step_by(PART_ROWS).map(move |start| Part {
            batch,
            start,
            len: PART_ROWS.min(rows - start),
        })
    });
    parts.skip(index).step_by(workers)
}

/// Every value of every result, in any order; see `digest.py`.
fn digest(results: &Results) -> (usize, u64) {
    let (mut rows, mut total) = (0, 0_u64);
    for row in results.iter().flatten() {
        let state = row.state;
        let mut hash = 0x9E37_79B9_7F4A_7C15_u64;
        let start = row.window * WINDOW_MS;
        for value in [start, row.key, state.count, state.sum, state.min, state.max] {
            hash = (hash ^ value.cast_unsigned()).wrapping_mul(0xD6E8_FEB8_6659_FD93);
            hash ^= hash >> 32;
        }
        total = total.wrapping_add(hash);
        rows += 1;
    }
    (rows, total)
}

fn load(path: &str) -> Result<Input, Box<dyn std::error::Error>> {
    let reader = FileReader::try_new(BufReader::new(File::open(path)?), None)?;
    let mut input = Input::new();
    for batch in reader {
        let batch = batch?;
        let column = |name: &str| -> Result<ArrayRef, String> {
            let column = batch.column_by_name(name).ok_or(format!("no column {name}"))?;
            Ok(Arc::clone(column))
        };
        let times = column("ts")?;
        let times = match times.data_type() {
            DataType::Int64 => times.as_primitive::<Int64Type>().clone(),
            _ => {
                let times = times.as_primitive_opt::<TimestampMillisecondType>();
                let times = times.ok_or("times are not in milliseconds")?;
                Int64Array::new(times.values().clone(), None)
            }
        };
        let number = |name: &str| -> Result<Int64Array, String> {
            let column = column(name)?;
            let column = column.as_primitive_opt::<Int64Type>();
            column.cloned().ok_or(format!("{name} is not int64"))
        };
        input.push([number("key")?, number("value")?, times]);
    }
    Ok(input)
}

/// The value of a text or number in a line of JSON of our own making.
fn member<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let rest = line.split_once(&format!("\"{name}\": "))?.1;
    match rest.strip_prefix('"') {
        Some(text) => Some(text.split_once('"')?.0),
        None => rest.split(|c: char| !c.is_ascii_digit()).next(),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (mut workers, mut results) = (1, Results::new());
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let answer = if let Some(path) = member(&line, "load") {
            workers = member(&line, "threads").ok_or("no threads")?.parse()?;
            INPUT.set(load(path)?).map_err(|_| "loaded twice")?;
            format!("{{\"version\": \"0.32\"}}")
        } else if line == "\"run\"" {
            results = Results::new();
            let started = Instant::now();
            results.append(&mut run(workers));
            format!("{{\"elapsed_s\": {}}}", started.elapsed().as_secs_f64())
        } else if line == "\"digest\"" {
            let (rows, digest) = digest(&results);
            format!("{{\"rows\": {rows}, \"digest\": \"{digest:016x}\"}}")
        } else {
            return Err(format!("not a command: {line}").into());
        };
        println!("{answer}");
        std::io::stdout().flush()?;
    }
    Ok(())
}
