//! Running a case through the engine, and holding its outcome against the oracle's.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::array::RecordBatchOptions;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;
use saltmill::error::{SinkError, SourceError};
use saltmill::runtime::sink::Rejection;
use saltmill::runtime::source::{Source, Take, Unit};
use saltmill::{Engine, Ingest, RunError, RunReport, Sink, TryPushError};

use super::{Case, Config, Feed};
use crate::oracle::rng::Rng;
use crate::oracle::value::{Value, read};
use crate::oracle::{Input, Outcome, Row, Step, build};

/// Results and side outputs of a run, shared with the engine's shards.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kept {
    inner: Arc<Mutex<Inner>>,
    side_outputs: bool,
}

#[derive(Debug, Default)]
struct Inner {
    results: Vec<RecordBatch>,
    late: usize,
    null_time: usize,
    out_of_range: usize,
    between: usize,
    /// The last progress of each shard.
    progress: Vec<i64>,
    /// What the engine did that a sink may not see.
    wrong: Option<String>,
}

impl Kept {
    fn with<R>(&self, f: impl FnOnce(&mut Inner) -> R) -> R {
        f(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Sink for Kept {
    fn results(&self, _: usize, batch: RecordBatch) -> Result<(), SinkError> {
        self.with(|inner| inner.results.push(batch));
        Ok(())
    }

    fn progress(&self, shard: usize, watermark: i64) -> Result<(), SinkError> {
        self.with(|inner| {
            if inner.progress.len() <= shard {
                inner.progress.resize(shard + 1, i64::MIN);
            }
            if watermark < inner.progress[shard] {
                inner.wrong = Some(format!("progress of shard {shard} went back"));
            }
            inner.progress[shard] = watermark;
        });
        Ok(())
    }

    fn rescaled(&self, shards: usize) {
        // Shards of other keys, which begin where the last of those before was.
        self.with(|inner| inner.progress = vec![i64::MIN; shards]);
    }

    fn wants_side_outputs(&self) -> bool {
        self.side_outputs
    }

    fn late(&self, rows: RecordBatch) -> Result<(), SinkError> {
        self.with(|inner| inner.late += rows.num_rows());
        Ok(())
    }

    fn rejected(&self, reason: Rejection, rows: RecordBatch) -> Result<(), SinkError> {
        self.with(|inner| match reason {
            Rejection::NullTime => inner.null_time += rows.num_rows(),
            Rejection::TimeOutOfRange => inner.out_of_range += rows.num_rows(),
            Rejection::BetweenWindows => inner.between += rows.num_rows(),
            other => inner.wrong = Some(format!("rows were rejected as {other:?}")),
        });
        Ok(())
    }
}

/// The batch of all rows of an input.
fn whole(case: &Case, input: &Input, rng: &mut Rng) -> RecordBatch {
    let columns = case.fields.iter().zip(&input.columns);
    let columns =
        columns.map(|(field, values)| build::array(field.data_type(), values, rng)).collect();
    let options = RecordBatchOptions::new().with_row_count(Some(input.columns[0].len()));
    RecordBatch::try_new_with_options(case.schema(), columns, &options).expect("rows of the schema")
}

/// Runs the case.
pub(crate) fn run(case: &Case, config: &Config) -> Result<(RunReport, Kept), RunError> {
    let job = case.job(config).expect("a valid job");
    let kept = Kept { side_outputs: config.side_outputs, ..Kept::default() };
    let mut rng = Rng::new(7);
    let inputs = case.inputs.iter().map(|input| (input, whole(case, input, &mut rng)));
    let inputs = inputs.collect::<Vec<_>>();
    let engine = match config.feed {
        Feed::Sources(seed) => {
            let mut rng = Rng::new(seed);
            let sources = inputs.into_iter().map(|(input, batch)| {
                Arc::new(Parts::cut(case, input, &batch, &mut rng)) as Arc<dyn Source>
            });
            let engine = Engine::start_on(job, sources.collect(), kept.clone())?;
            rescaling(&engine, config, || Ok(()))?;
            engine
        }
        Feed::Turns(seed) => {
            let engine = Engine::start(job, kept.clone())?;
            rescaling(&engine, config, || feed_in_turns(&engine, &inputs, &mut Rng::new(seed)))?;
            engine
        }
        Feed::Threads => {
            let engine = Engine::start(job, kept.clone())?;
            rescaling(&engine, config, || feed_by_threads(&engine, &inputs))?;
            engine
        }
    };
    engine.finish().map(|report| (report, kept))
}

/// Rescales of all runs so far.
pub(crate) static RESCALES: AtomicUsize = AtomicUsize::new(0);

/// Feeds while another thread changes the number of shards.
fn rescaling(
    engine: &Engine,
    config: &Config,
    feed: impl FnOnce() -> Result<(), RunError>,
) -> Result<(), RunError> {
    let Some(seed) = config.rescale else { return feed() };
    let most = config.max_parallelism.min(8) as usize;
    std::thread::scope(|scope| {
        let rescales = scope.spawn(move || -> Result<(), RunError> {
            let mut rng = Rng::new(seed);
            for _ in 0..1 + rng.below(4) {
                std::thread::sleep(Duration::from_micros(rng.below(2000) as u64));
                let workers = 1 + rng.below(most);
                let report = engine.rescale(workers)?;
                assert_eq!(report.to, workers);
                RESCALES.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let fed = feed();
        fed.and(unless_stopped(rescales.join().expect("rescaling does not panic")))
    })
}

/// An error of a producer that only says that the run has failed, which `finish` explains.
fn unless_stopped(result: Result<(), RunError>) -> Result<(), RunError> {
    match result {
        Err(RunError::Stopped) => Ok(()),
        other => other,
    }
}

fn feed_by_threads(engine: &Engine, inputs: &[(&Input, RecordBatch)]) -> Result<(), RunError> {
    let handles = inputs.iter().map(|_| engine.ingest()).collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        let threads = handles.into_iter().zip(inputs).map(|(mut handle, (input, batch))| {
            scope.spawn(move || -> Result<(), RunError> {
                for step in &input.steps {
                    match step {
                        Step::Push(rows) => handle.push(batch.slice(rows.start, rows.len()))?,
                        Step::Watermark(time) => handle.watermark(*time)?,
                    }
                }
                handle.close()
            })
        });
        let threads = threads.collect::<Vec<_>>();
        threads
            .into_iter()
            .try_for_each(|thread| unless_stopped(thread.join().expect("producers do not panic")))
    })
}

/// One thread pushes to all handles; a handle that is full is left for later.
fn feed_in_turns(
    engine: &Engine,
    inputs: &[(&Input, RecordBatch)],
    rng: &mut Rng,
) -> Result<(), RunError> {
    type Turn<'a> = (Ingest, &'a RecordBatch, VecDeque<&'a Step>);
    let mut turns: Vec<Turn<'_>> = Vec::new();
    for (input, batch) in inputs {
        turns.push((engine.ingest()?, batch, input.steps.iter().collect()));
    }
    while !turns.is_empty() {
        let chosen = rng.below(turns.len());
        let (handle, batch, steps) = &mut turns[chosen];
        let done = match steps.front() {
            None => {
                let (handle, ..) = turns.swap_remove(chosen);
                if rng.percent(50) {
                    unless_stopped(handle.close())?;
                }
                continue;
            }
            Some(Step::Watermark(time)) => handle.watermark(*time),
            Some(Step::Push(rows)) => match handle.try_push(batch.slice(rows.start, rows.len())) {
                Ok(()) => Ok(()),
                Err(TryPushError::Full(back)) => {
                    assert_eq!(back.num_rows(), rows.len(), "the batch comes back whole");
                    std::thread::yield_now();
                    continue;
                }
                Err(TryPushError::Run(error)) => Err(error),
            },
        };
        match done {
            Ok(()) => drop(steps.pop_front()),
            Err(RunError::Stopped) => return Ok(()),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A source over batches in memory.
#[derive(Debug)]
struct Parts(Mutex<(VecDeque<Part>, u64, Rng)>);

#[derive(Debug)]
struct Part {
    ticket: u64,
    time_max: Option<i64>,
    batches: VecDeque<RecordBatch>,
}

impl Parts {
    fn cut(case: &Case, input: &Input, batch: &RecordBatch, rng: &mut Rng) -> Self {
        let mut parts = VecDeque::new();
        let longest = rng.within(1..4);
        let mut part = Part { ticket: 0, time_max: None, batches: VecDeque::new() };
        for step in &input.steps {
            let Step::Push(rows) = step else { continue };
            if let Some(time) = case.time {
                for row in rows.clone() {
                    if let Value::Int(time) = input.columns[time][row] {
                        let time = i64::try_from(time).expect("a time");
                        part.time_max = Some(part.time_max.map_or(time, |max| max.max(time)));
                    }
                }
            }
            part.batches.push_back(batch.slice(rows.start, rows.len()));
            if part.batches.len() >= longest {
                let ticket = part.ticket + 1;
                let next = Part { ticket, time_max: None, batches: VecDeque::new() };
                parts.push_back(std::mem::replace(&mut part, next));
            }
        }
        parts.push_back(part);
        Self(Mutex::new((parts, 0, rng.clone())))
    }
}

impl Source for Parts {
    fn take(&self) -> Result<Take, SourceError> {
        let mut inner = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if inner.2.percent(20) {
            return Ok(Take::Pending);
        }
        Ok(inner.0.pop_front().map_or(Take::End, |part| Take::Unit(Box::new(part))))
    }
}

impl Unit for Part {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        Ok(self.time_max)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        Ok(self.batches.pop_front())
    }
}

/// What is different from what must be, in one line; and the rows with the bits they have.
pub(crate) fn compare(
    case: &Case,
    outcome: &Outcome,
    run: Result<(RunReport, Kept), RunError>,
) -> Result<Option<Vec<Row>>, String> {
    let Some(expected) = &outcome.rows else {
        return match run {
            Err(RunError::Overflow { .. }) => Ok(None),
            Err(error) => Err(format!("expected an overflow, got the error {error}")),
            Ok(_) => Err("expected an overflow, got results".to_owned()),
        };
    };
    let (report, kept) = run.map_err(|error| format!("the run failed: {error}"))?;
    let reason = |name: &str| {
        report.rows_rejected.iter().find(|(known, _)| known == name).map_or(0, |(_, rows)| *rows)
    };
    let counted = Outcome {
        rows_in: report.rows_in,
        aggregated: report.rows_aggregated,
        late: report.rows_late,
        null_time: reason("null_time"),
        out_of_range: reason("time_out_of_range"),
        between: reason("between_windows"),
        rows: None,
    };
    if counted != (Outcome { rows: None, ..outcome.clone() }) {
        let expected = Outcome { rows: None, ..outcome.clone() };
        return Err(format!("counted {counted:?}, expected {expected:?}"));
    }
    let rows = kept.with(|inner| -> Result<_, String> {
        if let Some(wrong) = inner.wrong.take() {
            return Err(wrong);
        }
        let side = [inner.late, inner.null_time, inner.out_of_range, inner.between];
        let side = side.map(|rows| rows as u64);
        let Outcome { late, null_time, out_of_range, between, .. } = *outcome;
        if kept.side_outputs && side != [late, null_time, out_of_range, between] {
            return Err(format!("late, null, out-of-range and rows between given: {side:?}"));
        }
        read_rows(case, &inner.results)
    })?;
    let by_reason = report.rows_late_by_reason.iter().map(|(_, rows)| rows).sum::<u64>();
    if by_reason != report.rows_late {
        return Err(format!(
            "{} rows late, but {:?}",
            report.rows_late, report.rows_late_by_reason
        ));
    }
    if report.rows_out != rows.len() as u64 {
        return Err(format!("{} rows out, {} reported", rows.len(), report.rows_out));
    }
    let mut found = rows
        .iter()
        .map(|row| row.iter().map(Value::with_one_nan).collect::<Vec<_>>())
        .collect::<Vec<_>>();
    case.spec.sort(&mut found);
    match first_difference(&found, expected) {
        None => Ok(Some(rows)),
        Some(difference) => Err(difference),
    }
}

/// Where two sorted lists of rows part.
pub(crate) fn first_difference(found: &[Row], expected: &[Row]) -> Option<String> {
    let same = |found: &Row, expected: &Row| {
        found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| a.is(b))
    };
    let i = found.iter().zip(expected).take_while(|(a, b)| same(a, b)).count();
    if (i, i) == (found.len(), expected.len()) {
        return None;
    }
    Some(format!(
        "{} rows, expected {}; first difference: {:?}, expected {:?}",
        found.len(),
        expected.len(),
        found.get(i),
        expected.get(i)
    ))
}

/// All rows, sorted; checks names and types of the columns.
fn read_rows(case: &Case, batches: &[RecordBatch]) -> Result<Vec<Row>, String> {
    let mut types = Vec::new();
    if let Some(windows) = &case.spec.windows {
        types.extend([(); 2].map(|()| case.spec.types[windows.column].clone()));
    }
    let plain = |key: &usize| crate::oracle::value::plain_type(&case.spec.types[*key]).clone();
    types.extend(case.spec.keys.iter().map(plain));
    types.extend(case.spec.aggregates.iter().map(|ask| ask.result_type(&case.fields)));
    if case.spec.windows.as_ref().is_some_and(|windows| windows.lateness > 0) {
        types.push(DataType::Int32);
    }
    let mut rows = Vec::new();
    for batch in batches {
        let found = batch.columns().iter().map(|column| column.data_type().clone());
        if found.clone().collect::<Vec<_>>() != types {
            let found = found.collect::<Vec<_>>();
            return Err(format!("columns of types {found:?}, expected {types:?}"));
        }
        for row in 0..batch.num_rows() {
            rows.push(batch.columns().iter().map(|column| read(column, row)).collect::<Row>());
        }
    }
    case.spec.sort(&mut rows);
    Ok(rows)
}
