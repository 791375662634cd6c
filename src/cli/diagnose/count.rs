//! Counting: the engine aggregates rows per key (and window), and its results are profiled as they come,
//! on the threads of its shards, so that no list of all keys is ever held.
//!
//! With a window there are two engines: the first one's results, a count per key and window, are summed per
//! key by the second. Rows that were late for their window, or have no time, go to the second directly.
//!
//! If the engines' state outgrows the memory allowed, files are read again and counted within bounds; of
//! a stream, which cannot be read again, what was read until then is diagnosed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Int64Type, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use super::options::{Counting, Options};
use crate::aggregate::spec::Aggregate;
use crate::cli::Failure;
use crate::cli::interrupt::Interrupt;
use crate::cli::reading::{Onlooker, Reading, UnitOnlooker, each_unit};
use crate::config::{Job, Pinning};
use crate::diagnose::bounded::BoundedProfiler;
use crate::diagnose::placement::Placement;
use crate::diagnose::profile::{Profile, Profiler};
use crate::diagnose::rehearsal::{StreamSample, UnitSample};
use crate::diagnose::windows::{WindowProfiler, Windows};
use crate::error::{ConfigError, SinkError, SourceError};
use crate::io::{Inputs, RejectLog, open};
use crate::kernel::Isa;
use crate::runtime::engine::Engine;
use crate::runtime::ingest::Ingest;
use crate::runtime::sink::{Rejection, Sink, lock};

/// Bytes of state from which keys are too many to be counted one by one: growing, a table needs as much
/// again for a moment.
const STATE_BYTES_MAX: u64 = 64 << 20;

/// How often the state's size is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// The column of counts between the two engines; no column of a file is likely to be called so.
const ROWS: &str = "rows of the key\u{0}";

/// What was counted.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) profile: Profile,
    pub(super) windows: Option<Windows>,
    /// Keys of sampled rows, unit by unit.
    pub(super) sample: StreamSample,
    pub(super) rows_late: u64,
    pub(super) rows_rejected: Vec<(String, u64)>,
    /// Only a part of the inputs was read.
    pub(super) is_part: bool,
    /// It is a part because the counts outgrew the memory allowed.
    pub(super) outgrown: bool,
    /// Type of the event-time column, if there are windows.
    pub(super) time_type: Option<DataType>,
}

/// Counts the keys of the inputs.
pub(super) fn count(options: &Options, interrupt: &Interrupt) -> Result<Counts, Failure> {
    if options.counting != Counting::Bounded
        && let Some(counts) = exactly(options, interrupt)?
    {
        return Ok(counts);
    }
    bounded(options, interrupt)
}

/// Counts exactly; none if there are too many keys and the inputs can be read again.
fn exactly(options: &Options, interrupt: &Interrupt) -> Result<Option<Counts>, Failure> {
    let read = options.read_options(Arc::new(RejectLog::new()), true);
    let inputs = open(&options.input.inputs, &read)?;
    let job = options.job(&inputs.schema).aggregate(Aggregate::count().alias(ROWS)).build()?;
    let (places, fields) = options.key_fields(&inputs.schema)?;
    let placement = Placement::new(options.assignment, fields, Isa::best())?;
    let time_type = options.time.name().and_then(|name| {
        inputs.schema.field_with_name(name).ok().map(|field| field.data_type().clone())
    });
    let sampling = KeySampling::new(&placement, &places);
    let onlooker = Arc::clone(&sampling) as Arc<dyn Onlooker>;
    let reading = Reading::new(interrupt, options.limit, Some(onlooker));
    let run =
        Run { options, placement: &placement, reading: &reading, sampling: &sampling, time_type };
    interrupt.begin();
    let counted = if options.window.is_some() {
        run.by_window(job, &places, inputs)?
    } else {
        run.by_key(job, inputs)?
    };
    Ok(counted)
}

/// One exact count under way.
struct Run<'a> {
    options: &'a Options,
    placement: &'a Placement,
    reading: &'a Reading,
    sampling: &'a KeySampling,
    time_type: Option<DataType>,
}

/// How an engine ended.
enum Ended {
    /// With all results.
    Done { rows_late: u64, rows_rejected: Vec<(String, u64)>, outgrown: bool },
    /// There are too many keys; nothing can be used.
    Abandoned,
}

impl Run<'_> {
    fn by_key(&self, job: Job, inputs: Inputs) -> Result<Option<Counts>, Failure> {
        let live = is_live(&inputs);
        let sink = Arc::new(KeySink::new(self, job.workers())?);
        let sources = self.reading.wrap(inputs.sources);
        let engine = Engine::start_on(job, sources, Arc::clone(&sink))?;
        match self.wait(engine, None, live)? {
            Ended::Abandoned => Ok(None),
            Ended::Done { rows_late, rows_rejected, outgrown } => Ok(Some(Counts {
                profile: sink.profile()?,
                windows: None,
                sample: self.sampling.finish(),
                rows_late,
                rows_rejected,
                is_part: self.reading.is_cut(),
                outgrown,
                time_type: None,
            })),
        }
    }

    fn by_window(
        &self,
        job: Job,
        places: &[usize],
        inputs: Inputs,
    ) -> Result<Option<Counts>, Failure> {
        let live = is_live(&inputs);
        let (totals_job, totals_schema) = self.totals_job()?;
        let workers = job.workers();
        let keys = Arc::new(KeySink::new(self, totals_job.workers())?);
        let totals = Engine::start(totals_job, Arc::clone(&keys))?;
        // One handle for each shard of the other engine, and one for late rows.
        let ingests = (0..=workers).map(|_| Ok(Mutex::new(Some(totals.ingest()?))));
        let ingests = ingests.collect::<Result<Vec<_>, Failure>>()?;
        let config = &self.options.profile;
        let window = || {
            let (p, m) = (config.parallelism, config.max_parallelism);
            Mutex::new(WindowProfiler::new(self.placement, p, m))
        };
        let sink = Arc::new(WindowSink {
            totals: ingests,
            totals_schema,
            places: places.to_vec(),
            windows: (0..workers).map(|_| window()).collect(),
        });
        let sources = self.reading.wrap(inputs.sources);
        let engine = Engine::start_on(job, sources, Arc::clone(&sink))?;
        let Ended::Done { rows_late, rows_rejected, outgrown } =
            self.wait(engine, Some(&totals), live)?
        else {
            return Ok(None);
        };
        for ingest in &sink.totals {
            if let Some(ingest) = lock(ingest).take() {
                ingest.close()?;
            }
        }
        totals.finish()?;
        Ok(Some(Counts {
            profile: keys.profile()?,
            windows: Some(sink.finish()),
            sample: self.sampling.finish(),
            rows_late,
            rows_rejected,
            is_part: self.reading.is_cut(),
            outgrown,
            time_type: self.time_type.clone(),
        }))
    }

    /// Sums of the counts by window, per key.
    fn totals_job(&self) -> Result<(Job, SchemaRef), ConfigError> {
        let mut fields = self.placement.key_fields();
        fields.push(Field::new(ROWS, DataType::Int64, false));
        let schema = Arc::new(Schema::new(fields));
        let job = Job::builder(Arc::clone(&schema))
            .key(self.options.keys.iter().cloned())
            .aggregate(Aggregate::sum(ROWS).alias(ROWS))
            .workers(self.options.workers)
            // The other engine has the cores.
            .pinning(Pinning::Off)
            .build()?;
        Ok((job, schema))
    }

    /// Waits for the end of `engine`; ends it before if the state grows too large.
    fn wait(&self, engine: Engine, totals: Option<&Engine>, live: bool) -> Result<Ended, Failure> {
        let mut outgrown = false;
        while !engine.is_finished() {
            let bytes = || {
                let totals = totals.map_or(0, |totals| totals.metrics().state_bytes());
                engine.metrics().state_bytes() + totals
            };
            if self.options.counting == Counting::Auto && !outgrown && bytes() > STATE_BYTES_MAX {
                if !live {
                    return Ok(Ended::Abandoned);
                }
                outgrown = true;
                self.reading.stop();
            }
            std::thread::sleep(LOOK_EVERY);
        }
        let report = engine.finish()?;
        let mut rows_rejected = report.rows_rejected;
        rows_rejected.retain(|(_, rows)| *rows > 0);
        Ok(Ended::Done { rows_late: report.rows_late, rows_rejected, outgrown })
    }
}

fn is_live(inputs: &Inputs) -> bool {
    inputs.sources.iter().any(|source| source.is_live())
}

fn failed(error: impl std::fmt::Display) -> SinkError {
    SinkError::Failed(error.to_string())
}

fn counts(column: &ArrayRef) -> &Int64Array {
    column.as_primitive::<Int64Type>()
}

/// Profiles counts per key.
#[derive(Debug)]
struct KeySink {
    profilers: Vec<Mutex<Option<Profiler>>>,
    rows_read: Reading,
}

impl KeySink {
    fn new(run: &Run<'_>, shards: usize) -> Result<Self, ConfigError> {
        let profiler = || Profiler::new(run.placement, &run.options.profile);
        let profilers = (0..shards).map(|_| Ok(Mutex::new(Some(profiler()?))));
        Ok(Self {
            profilers: profilers.collect::<Result<_, ConfigError>>()?,
            rows_read: run.reading.clone(),
        })
    }

    /// What all shards have counted.
    fn profile(&self) -> Result<Profile, ConfigError> {
        let mut profilers = self.profilers.iter().filter_map(|profiler| lock(profiler).take());
        let mut sum = profilers.next().expect("an engine has a shard, and is asked once");
        for profiler in profilers {
            sum.merge(profiler)?;
        }
        sum.finish()
    }
}

impl Sink for KeySink {
    fn results(&self, shard: usize, batch: RecordBatch) -> Result<(), SinkError> {
        let mut profiler = lock(&self.profilers[shard]);
        let Some(profiler) = profiler.as_mut() else { return Err(SinkError::Closed) };
        let (rows, keys) = batch.columns().split_last().expect("the counts");
        profiler.add(keys, counts(rows), self.rows_read.rows()).map_err(failed)
    }
}

/// Profiles counts per key and window, and hands them on to be summed per key.
#[derive(Debug)]
struct WindowSink {
    totals: Vec<Mutex<Option<Ingest>>>,
    totals_schema: SchemaRef,
    /// Where the key columns are in the input.
    places: Vec<usize>,
    windows: Vec<Mutex<WindowProfiler>>,
}

impl WindowSink {
    fn finish(&self) -> Windows {
        let mut windows = self.windows.iter();
        let take = |window: &Mutex<WindowProfiler>| {
            let mut window = lock(window);
            let empty = window.emptied();
            std::mem::replace(&mut *window, empty)
        };
        let mut sum = take(windows.next().expect("an engine has a shard"));
        windows.for_each(|window| sum.merge(take(window)));
        sum.finish()
    }

    fn hand_on(&self, by: usize, keys: &[ArrayRef], rows: &ArrayRef) -> Result<(), SinkError> {
        let mut columns = Vec::with_capacity(keys.len() + 1);
        for (column, field) in keys.iter().zip(self.totals_schema.fields()) {
            columns.push(cast(column, field.data_type()).map_err(failed)?);
        }
        columns.push(Arc::clone(rows));
        let batch = RecordBatch::try_new(Arc::clone(&self.totals_schema), columns);
        let mut ingest = lock(&self.totals[by]);
        let ingest = ingest.as_mut().ok_or(SinkError::Closed)?;
        ingest.push(batch.map_err(failed)?).map_err(failed)
    }

    /// Rows that are in no window count for their keys all the same.
    fn single_rows(&self, rows: &RecordBatch) -> Result<(), SinkError> {
        let keys = self.places.iter().map(|place| Arc::clone(rows.column(*place)));
        let ones: ArrayRef = Arc::new(Int64Array::from(vec![1; rows.num_rows()]));
        self.hand_on(self.totals.len() - 1, &keys.collect::<Vec<_>>(), &ones)
    }
}

impl Sink for WindowSink {
    fn results(&self, shard: usize, batch: RecordBatch) -> Result<(), SinkError> {
        let (rows, keys) = batch.columns().split_last().expect("the counts");
        let [start, _, keys @ ..] = keys else { return Err(failed("no window in the results")) };
        if let Some(start) = first_time(start) {
            lock(&self.windows[shard]).add(start, keys, counts(rows)).map_err(failed)?;
        }
        self.hand_on(shard, keys, rows)
    }

    fn wants_side_outputs(&self) -> bool {
        true
    }

    fn late(&self, rows: RecordBatch) -> Result<(), SinkError> {
        self.single_rows(&rows)
    }

    fn rejected(&self, _: Rejection, rows: RecordBatch) -> Result<(), SinkError> {
        self.single_rows(&rows)
    }
}

/// The first time of a column, in its own unit.
fn first_time(column: &ArrayRef) -> Option<i64> {
    if column.is_empty() {
        return None;
    }
    let one = column.slice(0, 1);
    let one = match one.data_type() {
        DataType::Date32 => cast(&one, &DataType::Int32).ok()?,
        _ => one,
    };
    let one = cast(&one, &DataType::Int64).ok()?;
    Some(counts(&one).value(0))
}

/// Samples keys while they are read.
#[derive(Debug)]
struct KeySampling {
    placement: Placement,
    /// Where the key columns are in the input.
    places: Vec<usize>,
    /// Units taken.
    taken: AtomicU64,
    units: Arc<Mutex<Vec<UnitSample>>>,
}

impl KeySampling {
    fn new(placement: &Placement, places: &[usize]) -> Arc<Self> {
        let (taken, units) = (AtomicU64::new(0), Arc::default());
        Arc::new(Self { placement: placement.clone(), places: places.to_vec(), taken, units })
    }

    /// The units read to their ends.
    fn finish(&self) -> StreamSample {
        StreamSample::new(std::mem::take(&mut *lock(&self.units)))
    }
}

impl Onlooker for KeySampling {
    fn unit(&self, rows_before: u64) -> Box<dyn UnitOnlooker> {
        let order = self.taken.fetch_add(1, Ordering::Relaxed);
        Box::new(UnitSampling {
            sample: Some(UnitSample::new(order, rows_before)),
            placement: self.placement.clone(),
            places: self.places.clone(),
            units: Arc::clone(&self.units),
        })
    }
}

#[derive(Debug)]
struct UnitSampling {
    sample: Option<UnitSample>,
    placement: Placement,
    places: Vec<usize>,
    units: Arc<Mutex<Vec<UnitSample>>>,
}

impl UnitOnlooker for UnitSampling {
    fn batch(&mut self, batch: &RecordBatch) -> Result<(), SourceError> {
        let Some(sample) = &mut self.sample else { return Ok(()) };
        let keys = self.places.iter().map(|place| Arc::clone(batch.column(*place)));
        let keys = keys.collect::<Vec<_>>();
        sample.add(&self.placement, &keys, batch.num_rows()).map_err(|error| SourceError {
            input: "the keys".into(),
            place: None,
            message: error.to_string(),
        })
    }
}

impl Drop for UnitSampling {
    fn drop(&mut self) {
        if let Some(sample) = self.sample.take() {
            lock(&self.units).push(sample);
        }
    }
}

/// Counts within bounds, in little memory.
fn bounded(options: &Options, interrupt: &Interrupt) -> Result<Counts, Failure> {
    let read = options.read_options(Arc::new(RejectLog::new()), false);
    let inputs = open(&options.input.inputs, &read)?;
    let (places, fields) = options.key_fields(&inputs.schema)?;
    let placement = Placement::new(options.assignment, fields, Isa::best())?;
    let sampling = KeySampling::new(&placement, &places);
    let onlooker = Arc::clone(&sampling) as Arc<dyn Onlooker>;
    let reading = Reading::new(interrupt, options.limit, Some(onlooker));
    let sources = reading.wrap(inputs.sources);
    interrupt.begin();
    let seeds = AtomicU64::new(1);
    let profilers = std::thread::scope(|scope| {
        let reader = || {
            let seed = seeds.fetch_add(1, Ordering::Relaxed);
            let mut profiler = BoundedProfiler::new(&placement, &options.profile, seed);
            for source in &sources {
                each_unit(source.as_ref(), |unit| {
                    while let Some(batch) = unit.next_batch()? {
                        let keys = places.iter().map(|place| Arc::clone(batch.column(*place)));
                        profiler.add(&keys.collect::<Vec<_>>(), batch.num_rows())?;
                    }
                    Ok::<_, Failure>(())
                })?;
            }
            Ok(profiler)
        };
        let readers = (0..options.workers).map(|_| scope.spawn(reader)).collect::<Vec<_>>();
        let results = readers
            .into_iter()
            .map(|reader| reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        results.collect::<Result<Vec<_>, Failure>>()
    })?;
    let mut rows_rejected = sources.iter().flat_map(|source| source.rejected()).collect::<Vec<_>>();
    rows_rejected.retain(|(_, rows)| *rows > 0);
    Ok(Counts {
        profile: BoundedProfiler::finish(profilers)?,
        windows: None,
        sample: sampling.finish(),
        rows_late: 0,
        rows_rejected,
        is_part: reading.is_cut(),
        outgrown: options.counting == Counting::Auto,
        time_type: None,
    })
}
