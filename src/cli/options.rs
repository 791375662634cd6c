//! From the texts of the command line to validated options.
//!
//! Everything that can be judged without the inputs is judged here, before one is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, SchemaRef, TimeUnit};

use super::args::{InputArgs, JobArgs, TimeArgs};
use crate::aggregate::spec::Aggregate;
use crate::config::{Job, JobBuilder, Pinning, SkewMode, parse_bytes};
use crate::error::ConfigError;
use crate::io::{
    Format, InputSpec, ReadOptions, RejectLog, TimeColumn, Wanted, parse_types, parse_unit,
};
use crate::kernel::Isa;
use crate::skew::policy::Salts;
use crate::time::alignment::Alignment;
use crate::time::window::{Window, parse_duration};

/// Batches are read with so many rows at least: smaller ones cost more than they are worth.
const READ_ROWS_MIN: usize = 1024;
const READ_ROWS_MAX: usize = 65_536;

/// A validated job description, still without the inputs' schema.
#[derive(Debug)]
pub(super) struct JobOptions {
    pub(super) input: InputOptions,
    keys: Vec<String>,
    aggregates: Vec<Aggregate>,
    time: TimeOptions,
    window: Window,
    allowed_lateness: Duration,
    alignment: Option<Alignment>,
    emit_every: Option<Duration>,
    idle_timeout: Option<Duration>,
    workers: Option<usize>,
    pinning: Pinning,
    max_parallelism: u32,
    batch_rows: usize,
    ring_capacity: usize,
    isa: Isa,
    skew: SkewMode,
    salts: Salts,
    open_windows: usize,
    memory_limit: Option<u64>,
    spill_dir: Option<PathBuf>,
}

impl JobOptions {
    /// Understands the arguments.
    pub(super) fn new(args: &JobArgs) -> Result<Self, ConfigError> {
        let input = InputOptions::new(&args.input)?;
        let time = TimeOptions::new(&args.time)?;
        let window = window(args)?;
        let by_clock = matches!(window, Window::ProcessingTime { .. });
        if by_clock && time.column.is_some() {
            let text = "windows of processing time go by the clock; leave --time out";
            return Err(ConfigError::Inconsistent(text.to_owned()));
        }
        if window != Window::None && time.column.is_none() && !by_clock {
            let text = "a window needs an event-time column; name one with --time COL";
            return Err(ConfigError::Inconsistent(text.to_owned()));
        }
        let allowed_lateness =
            args.allowed_lateness.as_deref().map_or(Ok(Duration::ZERO), parse_duration)?;
        if !allowed_lateness.is_zero() && window == Window::None {
            let text = "--allowed-lateness keeps windows open, but there are none; add --window";
            return Err(ConfigError::Inconsistent(text.to_owned()));
        }
        let cores = args.cores.as_deref().map(cores).transpose()?;
        let (workers, pinning) = match cores {
            Some(cores) => (args.workers.or(Some(cores.len())), Pinning::Cores(cores)),
            None if args.no_pin => (args.workers, Pinning::Off),
            None => (args.workers, Pinning::Auto),
        };
        let options = Self {
            input,
            keys: args.key.as_deref().map(names).transpose()?.unwrap_or_default(),
            aggregates: Aggregate::parse_list(&args.agg)?,
            time,
            window,
            allowed_lateness,
            alignment: alignment(args, window != Window::None && !by_clock)?,
            emit_every: args.emit_every.as_deref().map(parse_duration).transpose()?,
            idle_timeout: args.idle_timeout.as_deref().map(parse_duration).transpose()?,
            workers,
            pinning,
            max_parallelism: args.max_parallelism,
            batch_rows: args.batch_rows,
            ring_capacity: args.ring_capacity,
            isa: Isa::parse(&args.isa)?,
            skew: SkewMode::parse(&args.skew)?,
            salts: Salts::parse(&args.salts)?,
            open_windows: args.open_windows,
            memory_limit: args.memory_limit.as_deref().map(parse_bytes).transpose()?,
            spill_dir: args.spill_dir.clone(),
        };
        // Numbers are checked by the builder; in a job without columns nothing else can be wrong.
        let trial = Job::builder(Arc::new(arrow::datatypes::Schema::empty()));
        options.limits(trial.aggregate(Aggregate::count())).build()?;
        Ok(options)
    }

    /// How to read the inputs: all columns, or those that the job needs.
    pub(super) fn read_options(&self, all: bool, rejects: Arc<RejectLog>) -> ReadOptions {
        // Without windows nothing is asked of the time column, so no row is rejected for it.
        let time = self.time.column.clone();
        let time = time.filter(|column| self.has_windows() || column.format.is_some());
        ReadOptions {
            time,
            columns: (!all).then(|| self.wanted()),
            batch_rows: self.batch_rows.clamp(READ_ROWS_MIN, READ_ROWS_MAX),
            rejects,
            ..self.input.read_options()
        }
    }

    fn wanted(&self) -> Vec<Wanted> {
        let keys = wanted_keys(&self.keys);
        let time = self.time.wanted();
        let values = self.aggregates.iter().flat_map(|aggregate| {
            let role = aggregate.to_string();
            let names = aggregate.columns().into_iter();
            names.map(move |name| Wanted { name: name.to_owned(), role: role.clone() })
        });
        keys.chain(time).chain(values).collect()
    }

    /// The job over inputs of `schema`.
    pub(super) fn job(&self, schema: &SchemaRef) -> Result<Job, ConfigError> {
        let mut builder = self
            .limits(Job::builder(Arc::clone(schema)))
            .skew(self.skew.clone())
            .key(self.keys.iter().cloned())
            .aggregates(self.aggregates.iter().cloned());
        let needs_time = self.has_windows() || self.aggregates.iter().any(Aggregate::needs_time);
        if let Some(alignment) = &self.alignment {
            builder = builder.alignment(alignment.clone());
        }
        if self.time.column.is_none() {
            builder = builder.window(self.window);
        } else if needs_time {
            builder = self.time.job(builder);
            builder = builder.allowed_lateness(self.allowed_lateness).window(self.window);
        }
        builder.build().map_err(|error| self.with_hint(error))
    }

    /// A text column has the type that its values suggest, which may be the wrong one.
    fn with_hint(&self, error: ConfigError) -> ConfigError {
        match error {
            ConfigError::WrongType { use_, column, found, expected }
                if !self.input.types.iter().any(|(name, _)| *name == column) =>
            {
                let expected = format!(
                    "{expected} (the type of a text input's column can be given: --schema {column}:TYPE)"
                );
                ConfigError::WrongType { use_, column, found, expected }
            }
            error => error,
        }
    }

    fn limits(&self, mut builder: JobBuilder) -> JobBuilder {
        if let Some(workers) = self.workers {
            builder = builder.workers(workers);
        }
        if let Some(every) = self.emit_every {
            builder = builder.emit_every(every);
        }
        if let Some(timeout) = self.idle_timeout {
            builder = builder.idle_timeout(timeout);
        }
        if let Some(bytes) = self.memory_limit {
            builder = builder.memory_limit(bytes);
        }
        if let Some(dir) = &self.spill_dir {
            builder = builder.spill_dir(dir);
        }
        builder
            .pinning(self.pinning.clone())
            .max_parallelism(self.max_parallelism)
            .batch_rows(self.batch_rows)
            .ring_capacity(self.ring_capacity)
            .isa(self.isa)
            .salts(self.salts)
            .open_windows_max(self.open_windows)
    }

    /// Whether both read the same columns of the same inputs in the same way.
    pub(super) fn reads_the_same(&self, other: &Self) -> bool {
        let inputs = |options: &Self| {
            let inputs =
                options.input.inputs.iter().map(|input| (input.path.clone(), input.format));
            inputs.collect::<Vec<_>>()
        };
        let names = |options: &Self| {
            let mut names = options.wanted().into_iter().map(|w| w.name).collect::<Vec<_>>();
            names.sort_unstable();
            names.dedup();
            names
        };
        inputs(self) == inputs(other)
            && names(self) == names(other)
            && (&self.input.types, &self.input.null_text)
                == (&other.input.types, &other.input.null_text)
            && (&self.time.column, self.has_windows()) == (&other.time.column, other.has_windows())
    }

    /// Whether both compute the same from the same rows.
    pub(super) fn computes_the_same(&self, other: &Self) -> bool {
        (&self.keys, &self.aggregates, &self.time) == (&other.keys, &other.aggregates, &other.time)
            && (self.window, self.allowed_lateness) == (other.window, other.allowed_lateness)
            && (self.idle_timeout, self.emit_every) == (other.idle_timeout, other.emit_every)
    }

    /// Refuses what gives other results each time, where runs are to be compared.
    pub(super) fn check_repeatable(&self) -> Result<(), ConfigError> {
        let why = if matches!(self.window, Window::ProcessingTime { .. }) {
            "bench compares the results of its runs, but windows of processing time go by the clock \
             and differ from run to run; use event time (--time COL --window tumbling:SIZE), or run"
        } else if self.emit_every.is_some() {
            "bench compares the results of its runs, but early results come by the clock and differ \
             from run to run; leave --emit-every out, or use run"
        } else {
            return Ok(());
        };
        Err(ConfigError::Inconsistent(why.to_owned()))
    }

    pub(super) fn has_windows(&self) -> bool {
        self.window != Window::None
    }

    /// The event-time column's name.
    pub(super) fn time_name(&self) -> Option<&str> {
        self.time.name()
    }
}

/// What is read.
#[derive(Debug)]
pub(super) struct InputOptions {
    pub(super) inputs: Vec<InputSpec>,
    types: Vec<(String, DataType)>,
    null_text: Option<String>,
}

impl InputOptions {
    /// Understands the arguments.
    pub(super) fn new(args: &InputArgs) -> Result<Self, ConfigError> {
        let format = args.format.as_deref().map(Format::parse).transpose()?;
        let input = |path: &PathBuf| match format {
            Some(format) => InputSpec::with_format(path, format),
            None => InputSpec::new(path),
        };
        Ok(Self {
            inputs: args.inputs.iter().map(input).collect(),
            types: args.schema.as_deref().map(parse_types).transpose()?.unwrap_or_default(),
            null_text: args.null.clone(),
        })
    }

    /// How to read it, as far as that is known here.
    pub(super) fn read_options(&self) -> ReadOptions {
        let (types, null_text) = (self.types.clone(), self.null_text.clone());
        ReadOptions { types, null_text, ..ReadOptions::default() }
    }
}

/// Event time.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TimeOptions {
    pub(super) column: Option<TimeColumn>,
    out_of_orderness: Duration,
}

impl TimeOptions {
    /// Understands the arguments.
    pub(super) fn new(args: &TimeArgs) -> Result<Self, ConfigError> {
        let unit = args.time_unit.as_deref().map(parse_unit).transpose()?;
        let format = args.time_format.clone();
        let column = args.time.clone().map(|name| TimeColumn { name, unit, format });
        Ok(Self { column, out_of_orderness: parse_duration(&args.out_of_orderness)? })
    }

    /// The column's name.
    pub(super) fn name(&self) -> Option<&str> {
        self.column.as_ref().map(|column| column.name.as_str())
    }

    /// The column, to be read.
    pub(super) fn wanted(&self) -> impl Iterator<Item = Wanted> {
        self.name().into_iter().map(|name| Wanted { name: name.to_owned(), role: "time".into() })
    }

    /// Gives a job its event time, if there is a column.
    pub(super) fn job(&self, builder: JobBuilder) -> JobBuilder {
        let Some(column) = &self.column else { return builder };
        builder
            .event_time(&column.name)
            .event_time_unit(column.unit.unwrap_or(TimeUnit::Millisecond))
            .out_of_orderness(self.out_of_orderness)
    }
}

/// Key columns, to be read.
pub(super) fn wanted_keys(keys: &[String]) -> impl Iterator<Item = Wanted> {
    keys.iter().map(|name| Wanted { name: name.clone(), role: "key".into() })
}

fn alignment(args: &JobArgs, has_event_time: bool) -> Result<Option<Alignment>, ConfigError> {
    let Some(drift) = &args.align else { return Ok(None) };
    if !has_event_time {
        let text = "--align keeps inputs together in event time; add --time and --window";
        return Err(ConfigError::Inconsistent(text.to_owned()));
    }
    let alignment = Alignment::new(parse_duration(drift)?);
    Ok(Some(match &args.align_interval {
        Some(interval) => alignment.update_interval(parse_duration(interval)?),
        None => alignment,
    }))
}

fn window(args: &JobArgs) -> Result<Window, ConfigError> {
    let window = Window::parse(&args.window)?;
    let Some(text) = &args.window_offset else { return Ok(window) };
    Ok(match window {
        Window::None => {
            return Err(ConfigError::Inconsistent(
                "--window-offset shifts windows, but there are none; add --window tumbling:SIZE"
                    .into(),
            ));
        }
        Window::Tumbling { size, .. } => {
            Window::Tumbling { size, offset: window_offset(text, size)? }
        }
        Window::Hopping { size, slide, .. } => {
            Window::Hopping { size, slide, offset: window_offset(text, slide)? }
        }
        Window::Cumulate { step, max, .. } => {
            Window::Cumulate { step, max, offset: window_offset(text, max)? }
        }
        Window::ProcessingTime { .. } => {
            return Err(ConfigError::Inconsistent(
                "windows of processing time cannot be shifted; leave --window-offset out".into(),
            ));
        }
        Window::Session { .. } => {
            return Err(ConfigError::Inconsistent(
                "session windows begin with their first row and cannot be shifted; leave \
                 --window-offset out"
                    .into(),
            ));
        }
        Window::Calendar { .. } => {
            return Err(ConfigError::Inconsistent(
                "windows of calendar days, weeks and months begin at local midnight and cannot be shifted; \
                 leave --window-offset out"
                    .into(),
            ));
        }
    })
}

/// A shift in either direction, as one of at least 0 and less than `size`, after which windows repeat.
fn window_offset(text: &str, size: Duration) -> Result<Duration, ConfigError> {
    let (negative, length) = match text.trim().strip_prefix('-') {
        Some(length) => (true, parse_duration(length)?),
        None => (false, parse_duration(text.trim().trim_start_matches('+'))?),
    };
    let rest = length.as_nanos() % size.as_nanos();
    let offset = if negative && rest > 0 { size.as_nanos() - rest } else { rest };
    let offset = u64::try_from(offset).expect("less than a window's size, which fits");
    Ok(Duration::from_nanos(offset))
}

/// A comma list of column names; `"` quotes, `""` inside quotes is one quote.
pub(super) fn names(text: &str) -> Result<Vec<String>, ConfigError> {
    let syntax = |why: &str| ConfigError::Syntax {
        what: "list of columns",
        text: text.to_owned(),
        why: why.to_owned(),
    };
    let mut names = Vec::new();
    let mut rest = text.trim();
    loop {
        let (name, tail) = if let Some(quoted) = rest.strip_prefix('"') {
            let (name, tail) = unquote(quoted).ok_or_else(|| syntax("a quote is not closed"))?;
            (name, tail.trim_start())
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            (rest[..end].trim().to_owned(), &rest[end..])
        };
        if name.is_empty() {
            return Err(syntax("a name is empty; expected names with commas between, as in a,b"));
        }
        names.push(name);
        if tail.is_empty() {
            return Ok(names);
        }
        rest = tail.strip_prefix(',').ok_or_else(|| syntax("expected a comma after a name"))?;
        rest = rest.trim_start();
    }
}

/// The text up to the closing quote, and what follows it.
fn unquote(text: &str) -> Option<(String, &str)> {
    let mut name = String::new();
    let mut rest = text;
    loop {
        let at = rest.find('"')?;
        name.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        match rest.strip_prefix('"') {
            Some(tail) => {
                name.push('"');
                rest = tail;
            }
            None => return Some((name, rest)),
        }
    }
}

/// A list of cores such as `0,2,4-7`, all of them available to the process.
fn cores(text: &str) -> Result<Vec<usize>, ConfigError> {
    let syntax =
        |why: String| ConfigError::Syntax { what: "list of cores", text: text.into(), why };
    let number = |part: &str| {
        let wrong = || syntax("expected core numbers and ranges, as in 0,2,4-7".to_owned());
        part.trim().parse::<usize>().map_err(|_| wrong())
    };
    let available: Vec<usize> =
        core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect();
    let mut cores = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(syntax(format!("{first}-{last} runs backwards")));
        }
        for core in first..=last {
            if !available.is_empty() && !available.contains(&core) {
                let known = available.iter().map(ToString::to_string).collect::<Vec<_>>();
                let known = known.join(", ");
                return Err(syntax(format!(
                    "core {core} is not available to this process; it has {known}"
                )));
            }
            cores.push(core);
        }
    }
    Ok(cores)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_be_quoted() {
        assert_eq!(names("a, b c ,d").unwrap(), ["a", "b c", "d"]);
        assert_eq!(names(r#""a,b" , "c""d",e"#).unwrap(), ["a,b", "c\"d", "e"]);
        for bad in ["", "a,,b", "a,", "\"a", "\"a\"b"] {
            assert!(names(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn offsets_of_either_sign_land_in_the_window() {
        let day = Duration::from_secs(86_400);
        let hours = |n: u64| Duration::from_secs(n * 3600);
        for (text, expected) in [
            ("-2h", hours(22)),
            ("2h", hours(2)),
            ("+26h", hours(2)),
            ("-24h", hours(0)),
            ("0", hours(0)),
        ] {
            assert_eq!(window_offset(text, day).unwrap(), expected, "{text}");
        }
        assert!(window_offset("--2h", day).is_err());
    }

    #[test]
    fn unknown_cores_are_named() {
        assert!(cores("0-").is_err());
        assert!(cores("3-1").unwrap_err().to_string().contains("backwards"));
        let error = cores("99999").unwrap_err().to_string();
        assert!(error.contains("core 99999 is not available"), "{error}");
    }
}
