//! What `diagnose` is asked, understood and judged before an input is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, SchemaRef, TimeUnit};

use crate::cli::args::DiagnoseArgs;
use crate::cli::keygroups::check;
use crate::cli::options::{input, names};
use crate::cli::outputs::check_distinct;
use crate::column::find_column;
use crate::config::{Job, JobBuilder};
use crate::diagnose::placement::Assignment;
use crate::diagnose::profile::ProfileConfig;
use crate::error::ConfigError;
use crate::io::{
    Format, InputSpec, ReadOptions, RejectLog, TimeColumn, Wanted, parse_count, parse_types,
    parse_unit,
};
use crate::key::flink::default_max_parallelism;
use crate::key::group::MAX_PARALLELISM_LIMIT;
use crate::skew::imbalance::GroupFit;
use crate::time::window::{Window, parse_duration};

/// Numbers of key groups that are compared with the one in question.
const OTHER_GROUPS: [u32; 3] = [120, 720, 5_040];

/// How keys are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Counting {
    /// Exactly, as long as the counts fit into the memory allowed, else within bounds.
    Auto,
    /// Exactly, whatever memory it takes.
    Exact,
    /// Within bounds, in little memory.
    Bounded,
}

/// Validated options.
#[derive(Debug)]
pub(super) struct Options {
    pub(super) inputs: Vec<InputSpec>,
    pub(super) keys: Vec<String>,
    pub(super) time: Option<TimeColumn>,
    pub(super) window: Option<(Window, Duration)>,
    pub(super) assignment: Assignment,
    pub(super) profile: ProfileConfig,
    pub(super) counting: Counting,
    pub(super) limit: Option<u64>,
    pub(super) top: usize,
    pub(super) html: Option<PathBuf>,
    pub(super) workers: usize,
    types: Vec<(String, DataType)>,
    null_text: Option<String>,
    out_of_orderness: Duration,
}

impl Options {
    pub(super) fn new(args: &DiagnoseArgs) -> Result<Self, ConfigError> {
        let format = args.format.as_deref().map(Format::parse).transpose()?;
        let inputs = args.inputs.iter().map(|path| input(path, format)).collect::<Vec<_>>();
        let unit = args.time_unit.as_deref().map(parse_unit).transpose()?;
        let time = args.time.as_ref().map(|name| TimeColumn {
            name: name.clone(),
            unit,
            format: args.time_format.clone(),
        });
        let groups =
            args.max_parallelism.unwrap_or_else(|| default_max_parallelism(args.parallelism));
        check(args.parallelism, groups)?;
        let options = Self {
            keys: names(&args.key)?,
            window: window(args)?,
            time,
            assignment: Assignment::parse(&args.assign)?,
            profile: ProfileConfig {
                parallelism: args.parallelism,
                max_parallelism: groups,
                other_groups: other_groups(args.parallelism, groups),
                mini_batch_rows: count("--mini-batch-rows", &args.mini_batch_rows)?,
            },
            counting: counting(&args.counting)?,
            limit: args.limit.as_deref().map(|text| count("--limit", text)).transpose()?,
            top: args.top,
            html: args.html.clone(),
            workers: workers(args)?,
            types: args.schema.as_deref().map(parse_types).transpose()?.unwrap_or_default(),
            null_text: args.null.clone(),
            out_of_orderness: parse_duration(&args.out_of_orderness)?,
            inputs,
        };
        check_distinct(&options.inputs, &[("--html", options.html.as_ref())])?;
        Ok(options)
    }

    /// How to read: the key columns, and the time where it is asked for by a window.
    pub(super) fn read_options(&self, rejects: Arc<RejectLog>, with_time: bool) -> ReadOptions {
        let time = self.time.clone().filter(|_| with_time && self.window.is_some());
        let keys = self.keys.iter().map(|name| Wanted { name: name.clone(), role: "key".into() });
        let wanted_time = time.iter().map(|t| Wanted { name: t.name.clone(), role: "time".into() });
        ReadOptions {
            types: self.types.clone(),
            null_text: self.null_text.clone(),
            columns: Some(keys.chain(wanted_time).collect()),
            time,
            rejects,
            ..ReadOptions::default()
        }
    }

    /// Adds keys and windows to a job.
    pub(super) fn job(&self, schema: &SchemaRef) -> JobBuilder {
        let mut builder =
            Job::builder(Arc::clone(schema)).key(self.keys.iter().cloned()).workers(self.workers);
        if let (Some((window, _)), Some(time)) = (self.window, &self.time) {
            builder = builder
                .event_time(&time.name)
                .event_time_unit(time.unit.unwrap_or(TimeUnit::Millisecond))
                .out_of_orderness(self.out_of_orderness)
                .window(window);
        }
        builder
    }

    /// The key columns: their places in `schema`, and as they are counted.
    pub(super) fn key_fields(
        &self,
        schema: &SchemaRef,
    ) -> Result<(Vec<usize>, Vec<Field>), ConfigError> {
        let mut places = Vec::with_capacity(self.keys.len());
        let mut fields = Vec::with_capacity(self.keys.len());
        for name in &self.keys {
            let place = find_column(schema, name, "key")?;
            let field = schema.field(place);
            let values = match field.data_type() {
                DataType::Dictionary(_, values) => values.as_ref(),
                other => other,
            };
            places.push(place);
            fields.push(Field::new(name, values.clone(), true));
        }
        Ok((places, fields))
    }
}

fn count(what: &'static str, text: &str) -> Result<u64, ConfigError> {
    match parse_count(text)? {
        0 => Err(ConfigError::OutOfRange {
            what,
            found: text.to_owned(),
            expected: "at least 1".into(),
        }),
        count => Ok(count),
    }
}

fn counting(text: &str) -> Result<Counting, ConfigError> {
    match text {
        "auto" => Ok(Counting::Auto),
        "exact" => Ok(Counting::Exact),
        "bounded" => Ok(Counting::Bounded),
        _ => Err(ConfigError::Syntax {
            what: "way of counting",
            text: text.to_owned(),
            why: "expected auto, exact or bounded".into(),
        }),
    }
}

fn workers(args: &DiagnoseArgs) -> Result<usize, ConfigError> {
    let most = crate::key::group::MAX_PARALLELISM_DEFAULT as usize;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let workers = args.workers.unwrap_or(cores.min(most));
    if (1..=most).contains(&workers) {
        return Ok(workers);
    }
    Err(ConfigError::OutOfRange {
        what: "number of workers",
        found: workers.to_string(),
        expected: format!("1 to {most}"),
    })
}

fn window(args: &DiagnoseArgs) -> Result<Option<(Window, Duration)>, ConfigError> {
    match (&args.window, &args.time) {
        (None, None) => Ok(None),
        (Some(text), Some(_)) => match Window::parse(text)? {
            window @ Window::Tumbling { size, .. } => Ok(Some((window, size))),
            _ => Err(ConfigError::Inconsistent(format!(
                "--window {text}: skew in time is looked for in tumbling windows; use --window \
                 tumbling:SIZE"
            ))),
        },
        (Some(_), None) => Err(ConfigError::Inconsistent(
            "a window needs an event-time column; name one with --time COL".into(),
        )),
        (None, Some(_)) => Err(ConfigError::Inconsistent(
            "--time is for skew in single windows; say which with --window tumbling:SIZE".into(),
        )),
    }
}

/// Numbers of key groups that might be better.
fn other_groups(parallelism: u32, groups: u32) -> Vec<u32> {
    let better = GroupFit::new(groups, parallelism).better;
    let mut others = OTHER_GROUPS.into_iter().chain(better).collect::<Vec<_>>();
    others
        .retain(|other| *other != groups && (parallelism..=MAX_PARALLELISM_LIMIT).contains(other));
    others.sort_unstable();
    others.dedup();
    others
}
