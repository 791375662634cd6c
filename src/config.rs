//! The job: what is to be computed and with which limits, validated before anything starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::aggregate::plan::{Plan, Scope};
use crate::aggregate::revision::REVISION;
use crate::aggregate::spec::Aggregate;
use crate::column::find_column;
use crate::error::ConfigError;
use crate::kernel::Isa;
pub use crate::key::encode::HotList;
use crate::key::encode::KeyEncoder;
use crate::key::group::{MAX_PARALLELISM_DEFAULT, check_parts, workers_default};
use crate::process::KeyedProcess;
use crate::process::keyed::{Erased, Setting, Typed, check_output};
use crate::skew::hot_set::HOT_KEYS_LIMIT;
use crate::skew::policy::{Policy, PolicyConfig, Salts};
use crate::state::pane::image::ImageLayout;
use crate::time::alignment::Alignment;
use crate::time::clock::Clock;
use crate::time::event_time::Unit;
use crate::time::window::{Window, Windows};

mod memory;
mod time;
mod validate;

pub(crate) use memory::MemoryLimit;
pub use memory::parse_bytes;
use time::TimeParts;

/// Rows a batch is cut into by default: keys, hashes and a few columns of so many rows stay in a core's
/// second-level cache.
pub const BATCH_ROWS_DEFAULT: usize = 8192;

/// Batches a ring holds by default.
pub const RING_CAPACITY_DEFAULT: usize = 8;

/// Windows that may be open in one shard by default.
pub const OPEN_WINDOWS_DEFAULT: usize = 100_000;

/// The column that tells results from early ones, in a job with early results.
const FINAL: &str = "final";

/// Where the shards' threads run.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Pinning {
    /// Each shard is pinned to one of the cores available to the process, in turn, if there are at
    /// least as many cores as shards.
    #[default]
    Auto,
    /// The operating system decides.
    Off,
    /// Shard `i` is pinned to core `cores[i % cores.len()]`.
    Cores(Vec<usize>),
}

/// How keys that take a large share of the rows are treated. Results are the same in every mode.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub enum SkewMode {
    /// Hot keys are found while the stream runs; just their rows are aggregated in two phases.
    #[default]
    Adaptive,
    /// Every row goes to the one shard that owns its key.
    Off,
    /// Every row is aggregated where it was read first, in a bounded table; given up where it does not
    /// pay, that is, where partials are nearly as many as rows.
    TwoPhase,
    /// These keys are treated as hot from the first row; no others are looked for.
    Hot(HotList),
}

impl SkewMode {
    /// Reads `adaptive`, `off`, `two-phase`, `hot:KEY,KEY`, where `null` is the NULL key.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let syntax = |why: &str| ConfigError::Syntax {
            what: "skew mode",
            text: text.to_owned(),
            why: why.to_owned(),
        };
        match text.split_once(':') {
            None if text == "adaptive" => Ok(Self::Adaptive),
            None if text == "off" => Ok(Self::Off),
            None if text == "two-phase" => Ok(Self::TwoPhase),
            Some(("hot", keys)) => {
                let keys = keys.split(',').map(str::trim).collect::<Vec<_>>();
                if keys.iter().any(|key| key.is_empty()) {
                    return Err(syntax("a key is empty; expected hot:KEY,KEY"));
                }
                let keys = keys.into_iter().map(|key| (key != "null").then(|| key.to_owned()));
                Ok(Self::Hot(HotList::Text(keys.collect())))
            }
            _ => Err(syntax("expected adaptive, off, two-phase or hot:KEY,KEY")),
        }
    }
}

/// A validated job. Made by [`Job::builder`], run by [`Engine`](crate::runtime::engine::Engine).
#[derive(Debug)]
pub struct Job {
    pub(crate) schema: SchemaRef,
    pub(crate) output_schema: SchemaRef,
    pub(crate) keys: KeyEncoder,
    pub(crate) plan: Plan,
    pub(crate) time: Option<EventTime>,
    pub(crate) windows: Option<Windows>,
    /// The windows as they were asked for, lateness included.
    pub(crate) windows_text: String,
    /// The clock, for windows of processing time.
    pub(crate) clock: Option<Clock>,
    pub(crate) alignment: Option<Alignment>,
    /// How often open windows give early results.
    pub(crate) emit_every: Option<Duration>,
    /// Whether other threads may read the state.
    pub(crate) readers: bool,
    /// Type of window bounds.
    pub(crate) bound_type: Option<DataType>,
    /// For session windows, the gap, and where the times of a key's rows stand among its aggregates.
    pub(crate) sessions: Option<(i64, usize)>,
    /// Where corrections are counted among a key's aggregates, if late rows are allowed.
    pub(crate) revision: Option<usize>,
    pub(crate) workers: usize,
    pub(crate) max_parallelism: u32,
    pub(crate) ring_capacity: usize,
    pub(crate) batch_rows: usize,
    pub(crate) pinning: Pinning,
    pub(crate) idle_timeout: Option<Duration>,
    pub(crate) open_windows_max: usize,
    pub(crate) isa: Isa,
    pub(crate) skew: SkewMode,
    pub(crate) salts: Salts,
    /// Hash and first word of the keys of [`SkewMode::Hot`].
    pub(crate) given_hot: Vec<(u64, u64)>,
    pub(crate) mini_batch_rows: Option<u64>,
    pub(crate) mini_batch_latency: Option<Duration>,
    /// What takes the place of aggregates.
    pub(crate) process: Option<Arc<dyn Erased>>,
    /// Bytes of memory that the engine may take, and where to what does not fit goes.
    pub(crate) memory: Option<MemoryLimit>,
}

/// The event-time column of a job.
#[derive(Debug, Clone)]
pub(crate) struct EventTime {
    pub(crate) column: usize,
    pub(crate) unit: Unit,
    pub(crate) out_of_orderness: i64,
}

impl Job {
    /// Starts the description of a job over batches of `schema`.
    pub fn builder(schema: SchemaRef) -> JobBuilder {
        JobBuilder {
            schema,
            keys: Vec::new(),
            time: None,
            time_unit: TimeUnit::Millisecond,
            out_of_orderness: Duration::ZERO,
            allowed_lateness: Duration::ZERO,
            clock: None,
            alignment: None,
            emit_every: None,
            readers: false,
            window: Window::None,
            aggregates: Vec::new(),
            workers: None,
            max_parallelism: MAX_PARALLELISM_DEFAULT,
            ring_capacity: RING_CAPACITY_DEFAULT,
            batch_rows: BATCH_ROWS_DEFAULT,
            pinning: Pinning::Auto,
            idle_timeout: None,
            open_windows_max: OPEN_WINDOWS_DEFAULT,
            isa: Isa::best(),
            skew: SkewMode::Adaptive,
            salts: Salts::Auto,
            mini_batch_rows: None,
            mini_batch_latency: None,
            process: None,
            memory_limit: None,
            spill_dir: None,
        }
    }

    /// Schema of the batches that go in.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Schema of the results: `window_start` and `window_end` (with a window), the key columns, then the
    /// aggregates in the order asked for.
    pub fn output_schema(&self) -> &SchemaRef {
        &self.output_schema
    }

    /// Number of shards.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// The instruction set it computes with.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// The longest time after which a shard must look at the clock, if it must at all.
    pub(crate) fn clock_interval(&self) -> Option<Duration> {
        let idle = self.idle_timeout.filter(|_| self.clock.is_none());
        let windows = self.clock.as_ref().map(|_| Duration::from_millis(5));
        let often = [idle, self.emit_every].into_iter().flatten().map(|every| every / 4);
        often.chain(windows).min().map(|interval| interval.max(Duration::from_micros(100)))
    }

    /// Number of leading output columns that say window and key: what ordered output sorts by.
    pub fn grouping_columns(&self) -> usize {
        self.keys.fields().len() + if self.windows.is_some() { 2 } else { 0 }
    }

    /// What decides on hot keys in a run of this job; none in a mode without hot keys.
    pub(crate) fn skew_policy(&self) -> Result<Option<Policy>, ConfigError> {
        if !matches!(self.skew, SkewMode::Adaptive | SkewMode::Hot(_)) {
            return Ok(None);
        }
        let workers = u16::try_from(self.workers).expect("validated: at most 2^15");
        let mut config = PolicyConfig::new(workers);
        config.salts = self.salts;
        config.adaptive = self.skew == SkewMode::Adaptive;
        config.given = self.given_hot.iter().map(|(hash, _)| *hash).collect();
        config.hot_keys_max = config.hot_keys_max.max(config.given.len().min(HOT_KEYS_LIMIT));
        Policy::new(config).map(Some)
    }

    /// Whether rows of hot keys may be spread by their values over so many shards.
    pub(crate) fn spreads(&self, workers: usize) -> bool {
        workers > 1
            && self.plan.spreads()
            && matches!(self.skew, SkewMode::Adaptive | SkewMode::Hot(_))
            // What a shard keeps for others cannot be written to disk, partials can.
            && self.memory.is_none()
            // Early results and clocks do not wait for other shards, corrections take windows apart.
            && self.emit_every.is_none()
            && self.clock.is_none()
            && self.windows.as_ref().is_none_or(|windows| {
                windows.lateness() == 0 && windows.session().is_none()
            })
    }

    /// How its state lies in checkpoints.
    pub(crate) fn image_layout(&self) -> ImageLayout {
        if self.process.is_some() {
            return ImageLayout::of_process(&self.keys, self.max_parallelism);
        }
        ImageLayout::new(&self.keys, &self.plan, self.max_parallelism)
    }

    /// What its process has to know.
    pub(crate) fn process_setting(&self) -> Setting {
        Setting {
            encoder: self.keys.clone(),
            max_parallelism: self.max_parallelism,
            output_schema: SchemaRef::clone(&self.output_schema),
        }
    }

    /// Whether producers keep track of event time and tell shards of it.
    pub(crate) fn has_watermarks(&self) -> bool {
        self.windows.is_some() || (self.process.is_some() && self.time.is_some())
    }

    /// Whether results belong to windows.
    pub(crate) fn has_windows(&self) -> bool {
        self.windows.is_some()
    }

    /// Number of shards, for arithmetic on key groups.
    pub(crate) fn shards(&self) -> u32 {
        u32::try_from(self.workers).expect("validated: at most max_parallelism")
    }
}

/// Describes a job step by step; [`build`](Self::build) validates it.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build`"]
pub struct JobBuilder {
    schema: SchemaRef,
    keys: Vec<String>,
    time: Option<String>,
    time_unit: TimeUnit,
    out_of_orderness: Duration,
    allowed_lateness: Duration,
    clock: Option<Clock>,
    alignment: Option<Alignment>,
    emit_every: Option<Duration>,
    readers: bool,
    window: Window,
    aggregates: Vec<Aggregate>,
    workers: Option<usize>,
    max_parallelism: u32,
    ring_capacity: usize,
    batch_rows: usize,
    pinning: Pinning,
    idle_timeout: Option<Duration>,
    open_windows_max: usize,
    isa: Isa,
    skew: SkewMode,
    salts: Salts,
    mini_batch_rows: Option<u64>,
    mini_batch_latency: Option<Duration>,
    process: Option<Arc<dyn Erased>>,
    memory_limit: Option<u64>,
    spill_dir: Option<PathBuf>,
}

impl JobBuilder {
    /// Columns that make up the key; none means one global group.
    pub fn key<S: Into<String>>(mut self, columns: impl IntoIterator<Item = S>) -> Self {
        self.keys = columns.into_iter().map(Into::into).collect();
        self
    }

    /// The event-time column: a timestamp, a date, or an integer.
    pub fn event_time(mut self, column: impl Into<String>) -> Self {
        self.time = Some(column.into());
        self
    }

    /// Unit of an event-time column of plain integers. Default: milliseconds.
    pub fn event_time_unit(mut self, unit: TimeUnit) -> Self {
        self.time_unit = unit;
        self
    }

    /// How far behind its largest value so far an input's event time may run. Default: 0.
    pub fn out_of_orderness(mut self, bound: Duration) -> Self {
        self.out_of_orderness = bound;
        self
    }

    /// How long after its end a window takes late rows. Default: 0.
    ///
    /// The result of a window is given when the watermark reaches its end, and given again, for the keys
    /// concerned, after late rows. The last output column `revision` is 0 in the first result; it is one
    /// more than before in each later one of the same key and window, and 1 in the first one of a key that
    /// had only late rows. Late rows are gathered: corrections are given whenever the watermark reaches
    /// the end of a window, or of a window's lateness, so that which revisions there are depends on the rows
    /// alone. Whether a row is late, and with which correction it goes, is decided against the watermark
    /// at that row in its own input. Not for session windows.
    pub fn allowed_lateness(mut self, lateness: Duration) -> Self {
        self.allowed_lateness = lateness;
        self
    }

    /// Keeps the inputs together in event time: the one ahead is held back. A handle that is held back waits
    /// in [`Ingest::push`](crate::Ingest::push), and gets [`TryPushError::Full`](crate::TryPushError::Full)
    /// from `try_push`; so one thread that feeds several handles must use `try_push`, as it would wait for
    /// itself in `push`. An input that has not given a row yet holds the others back as well, until
    /// it is closed or idle ([`JobBuilder::idle_timeout`]). Needs windows of event time. Default: none.
    pub fn alignment(mut self, alignment: Alignment) -> Self {
        self.alignment = Some(alignment);
        self
    }

    /// Gives the results of all open windows as they stand, again and again, if rows came since the last time.
    /// That changes nothing: the results at the end of a window are the same. The last output column
    /// `final` is false in early results. Partials of hot keys are in them once their producers have been
    /// asked, which happens each time; handles hand them on when they are used. Default: never.
    pub fn emit_every(mut self, every: Duration) -> Self {
        self.emit_every = Some(every);
        self
    }

    /// Lets other threads read the current aggregates of any key while the engine runs, without locks, through
    /// [`Engine::reader`](crate::Engine::reader). Costs a word for each key and window, a few percent of the time, and
    /// with hopping windows a copy where spans of windows are united. Default: no.
    pub fn readers(mut self, readers: bool) -> Self {
        self.readers = readers;
        self
    }

    /// The clock of [`Window::ProcessingTime`], in milliseconds since 1970-01-01 00:00 UTC, for tests; it must
    /// not go back. Default: the system's.
    pub fn processing_clock(mut self, now: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        self.clock = Some(Clock::new(now));
        self
    }

    /// The windows. Default: none.
    pub fn window(mut self, window: Window) -> Self {
        self.window = window;
        self
    }

    /// Adds an aggregate.
    pub fn aggregate(mut self, aggregate: Aggregate) -> Self {
        self.aggregates.push(aggregate);
        self
    }

    /// Adds aggregates.
    pub fn aggregates(mut self, aggregates: impl IntoIterator<Item = Aggregate>) -> Self {
        self.aggregates.extend(aggregates);
        self
    }

    /// Gives the rows of each key to `process` instead of aggregating them; see [`crate::process`]. Such a job has
    /// neither aggregates nor windows, and no hot keys: its skew mode is [`SkewMode::Off`]. With an event-time
    /// column there are watermarks and timers of event time.
    pub fn process(mut self, process: impl KeyedProcess) -> Self {
        self.process = Some(Arc::new(Typed::new(process)));
        self
    }

    /// Number of shards. Default: one per core available to the process.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Number of key groups, fixed for the life of the state. Default: 128.
    pub fn max_parallelism(mut self, groups: u32) -> Self {
        self.max_parallelism = groups;
        self
    }

    /// Batches that each ring between a producer and a shard holds. Default: 8.
    pub fn ring_capacity(mut self, batches: usize) -> Self {
        self.ring_capacity = batches;
        self
    }

    /// Rows into which pushed batches are cut. Default: 8192.
    pub fn batch_rows(mut self, rows: usize) -> Self {
        self.batch_rows = rows;
        self
    }

    /// Where the shards' threads run. Default: pinned, if there are enough cores.
    pub fn pinning(mut self, pinning: Pinning) -> Self {
        self.pinning = pinning;
        self
    }

    /// A producer that is silent for so long no longer holds back the watermark, until it speaks again.
    /// Time during which it is held back by the engine does not count. Default: never.
    pub fn idle_timeout(mut self, timeout: Duration) -> Self {
        self.idle_timeout = Some(timeout);
        self
    }

    /// Windows that may be open in one shard at once; one more is an error of the run. Slices of windows
    /// that overlap count as windows. Default: 100,000.
    pub fn open_windows_max(mut self, windows: usize) -> Self {
        self.open_windows_max = windows;
        self
    }

    /// The instruction set to compute with. Default: the best one of this processor.
    pub fn isa(mut self, isa: Isa) -> Self {
        self.isa = isa;
        self
    }

    /// How hot keys are treated. Default: adaptive.
    pub fn skew(mut self, mode: SkewMode) -> Self {
        self.skew = mode;
        self
    }

    /// Over how many partial aggregates each hot key is spread. Default: chosen from its share. Every
    /// producer holds at least one, so fewer salts than producers are rounded up to one each.
    pub fn salts(mut self, salts: Salts) -> Self {
        self.salts = salts;
        self
    }

    /// Hands partials of hot keys to their owners at least every so many rows of a producer, not only
    /// when a window closes. Default: when a window closes.
    pub fn mini_batch_rows(mut self, rows: u64) -> Self {
        self.mini_batch_rows = Some(rows);
        self
    }

    /// Hands partials of hot keys to their owners with the first batch after so long. Default: when a
    /// window closes.
    pub fn mini_batch_latency(mut self, latency: Duration) -> Self {
        self.mini_batch_latency = Some(latency);
        self
    }

    /// Bytes of memory that the engine may take for its work, at least 1. State that does not fit is written to
    /// files in the [spill directory](Self::spill_dir), the largest panes first, and merged again when it is
    /// needed; results are the same. What cannot be written to disk is an error of the run when it does not fit:
    /// custom aggregates that cannot be saved, and keys whose state is too large alone. A part of the limit, 24
    /// MiB and 24 MiB for each worker but at most half of it, is set aside for what is not state: the program,
    /// batches under way, partial aggregates of producers. So a limit of less than some 80 MB for each worker
    /// cannot be kept to. What a sink, a source or a caller of [`snapshot`](crate::Engine::snapshot) holds is
    /// not counted. Not for jobs with a process. Default: none.
    pub fn memory_limit(mut self, bytes: u64) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// The directory for state that does not fit into memory. It should be on a disk: in one that the system
    /// keeps in memory (`tmpfs`), as the temporary directory of some systems is, nothing is gained. The files
    /// have no names and vanish with the process. Default: the system's temporary directory.
    pub fn spill_dir(mut self, dir: impl Into<PathBuf>) -> Self {
        self.spill_dir = Some(dir.into());
        self
    }

    /// Validates the description.
    pub fn build(mut self) -> Result<Job, ConfigError> {
        self.validate_process()?;
        self.validate_readers()?;
        self.validate_limits()?;
        let workers = self.validated_workers()?;
        let keys = KeyEncoder::new(&self.schema, self.key_columns()?)?;
        let given_hot = match &self.skew {
            SkewMode::Hot(list) => keys.hashes_of(list)?,
            _ => Vec::new(),
        };
        positive("mini-batch size", usize::from(self.mini_batch_rows != Some(0)), usize::MAX)?;
        let TimeParts { time, windows, clock, bound_type } = self.validated_time()?;
        self.validated_pace(time.as_ref().zip(windows.as_ref()).is_some())?;
        let mut fields = grouping_fields(&keys, bound_type.as_ref())?;
        let corrects = windows.as_ref().is_some_and(|windows| windows.lateness() > 0);
        let reserved = self.reserved_names(&fields, corrects)?;
        let mut plan = {
            let time = time.as_ref().map(|time| time.column);
            let scope = Scope { schema: &self.schema, time, reserved: &reserved };
            Plan::new(&self.aggregates, &scope, self.isa)?
        };
        let session = windows.as_ref().and_then(Windows::session);
        let sessions = session
            .zip(time.as_ref())
            .map(|(session, time)| (session.gap, plan.keep_extent(time.column)));
        let revision = corrects.then(|| plan.keep_revision());
        fields.extend(plan.outputs.iter().map(|output| output.field.clone()));
        self.add_process_fields(&mut fields)?;
        fields.extend(self.emit_every.map(|_| Field::new(FINAL, DataType::Boolean, false)));
        let job = Job {
            schema: self.schema,
            output_schema: Schema::new(fields).into(),
            keys,
            plan,
            time,
            // Whoever is silent holds back no window of processing time.
            idle_timeout: clock.as_ref().map(|_| Duration::ZERO).or(self.idle_timeout),
            windows_text: windows_text(self.window, self.allowed_lateness),
            windows,
            clock,
            alignment: self.alignment,
            emit_every: self.emit_every,
            readers: self.readers,
            bound_type,
            sessions,
            revision,
            workers,
            max_parallelism: self.max_parallelism,
            ring_capacity: self.ring_capacity,
            batch_rows: self.batch_rows,
            pinning: self.pinning,
            open_windows_max: self.open_windows_max,
            isa: self.isa,
            skew: self.skew,
            salts: self.salts,
            given_hot,
            mini_batch_rows: self.mini_batch_rows,
            mini_batch_latency: self.mini_batch_latency,
            process: self.process,
            memory: self.memory_limit.map(|bytes| MemoryLimit {
                bytes,
                spill_dir: self.spill_dir.unwrap_or_else(std::env::temp_dir),
            }),
        };
        job.skew_policy()?;
        Ok(job)
    }

    /// Where the key columns are.
    fn key_columns(&self) -> Result<Vec<usize>, ConfigError> {
        let mut columns = Vec::with_capacity(self.keys.len());
        for name in &self.keys {
            let column = find_column(&self.schema, name, "key")?;
            if columns.contains(&column) {
                return Err(ConfigError::Inconsistent(format!(
                    "key column \"{name}\" is named twice"
                )));
            }
            columns.push(column);
        }
        Ok(columns)
    }

    /// Adds the output columns of its process.
    fn add_process_fields(&self, fields: &mut Vec<Field>) -> Result<(), ConfigError> {
        let Some(process) = &self.process else { return Ok(()) };
        let output = process.output();
        check_output(&output)?;
        for field in output {
            if fields.iter().any(|other| other.name() == field.name()) {
                return Err(ConfigError::DuplicateOutput { name: field.name().clone() });
            }
            fields.push(field);
        }
        Ok(())
    }

    /// Names of output columns that aggregates may not have.
    fn reserved_names<'a>(
        &self,
        fields: &'a [Field],
        corrects: bool,
    ) -> Result<Vec<&'a str>, ConfigError> {
        let mut reserved = fields.iter().map(|field| field.name().as_str()).collect::<Vec<_>>();
        let marks = [corrects.then_some(REVISION), self.emit_every.map(|_| FINAL)];
        for name in marks.into_iter().flatten() {
            if reserved.contains(&name) {
                return Err(ConfigError::DuplicateOutput { name: name.to_owned() });
            }
            reserved.push(name);
        }
        Ok(reserved)
    }

    fn validated_workers(&self) -> Result<usize, ConfigError> {
        let groups = self.max_parallelism;
        let workers = self.workers.unwrap_or_else(|| workers_default(groups));
        check_parts(groups, "number of workers", workers)?;
        Ok(workers)
    }
}

/// The windows as they stand in checkpoints.
fn windows_text(window: Window, lateness: Duration) -> String {
    if lateness.is_zero() {
        format!("{window:?}")
    } else {
        format!("{window:?}, lateness {lateness:?}")
    }
}

/// The output columns that say window and key.
fn grouping_fields(
    keys: &KeyEncoder,
    bound_type: Option<&DataType>,
) -> Result<Vec<Field>, ConfigError> {
    let mut fields = Vec::new();
    if let Some(data_type) = bound_type {
        fields.push(Field::new("window_start", data_type.clone(), false));
        fields.push(Field::new("window_end", data_type.clone(), false));
    }
    fields.extend(keys.fields().iter().cloned());
    for (i, field) in fields.iter().enumerate() {
        if fields[..i].iter().any(|other| other.name() == field.name()) {
            return Err(ConfigError::DuplicateOutput { name: field.name().clone() });
        }
    }
    Ok(fields)
}

fn positive(what: &'static str, value: usize, max: usize) -> Result<(), ConfigError> {
    if (1..=max).contains(&value) {
        return Ok(());
    }
    let expected = if max == usize::MAX { "at least 1".into() } else { format!("1 to {max}") };
    Err(ConfigError::OutOfRange { what, found: value.to_string(), expected })
}
