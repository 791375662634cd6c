//! What `diagnose` is asked, understood and judged before an input is opened.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, SchemaRef};

use crate::cli::args::DiagnoseArgs;
use crate::cli::options::{InputOptions, TimeOptions, names, wanted_keys};
use crate::cli::outputs::check_distinct;
use crate::column::find_column;
use crate::config::{Job, JobBuilder};
use crate::diagnose::placement::Assignment;
use crate::diagnose::profile::ProfileConfig;
use crate::error::ConfigError;
use crate::io::{ReadOptions, RejectLog, parse_count};
use crate::key::flink::default_max_parallelism;
use crate::key::group::{
    MAX_PARALLELISM_DEFAULT, MAX_PARALLELISM_LIMIT, check_parts, workers_default,
};
use crate::skew::imbalance::GroupFit;
use crate::time::window::Window;

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
    pub(super) input: InputOptions,
    pub(super) keys: Vec<String>,
    pub(super) time: TimeOptions,
    pub(super) window: Option<(Window, Duration)>,
    pub(super) assignment: Assignment,
    pub(super) profile: ProfileConfig,
    pub(super) counting: Counting,
    pub(super) limit: Option<u64>,
    pub(super) top: usize,
    pub(super) html: Option<PathBuf>,
    pub(super) workers: usize,
}

impl Options {
    pub(super) fn new(args: &DiagnoseArgs) -> Result<Self, ConfigError> {
        let groups =
            args.max_parallelism.unwrap_or_else(|| default_max_parallelism(args.parallelism));
        check_parts(groups, "parallelism", args.parallelism as usize)?;
        let workers = args.workers.unwrap_or_else(|| workers_default(MAX_PARALLELISM_DEFAULT));
        check_parts(MAX_PARALLELISM_DEFAULT, "number of workers", workers)?;
        let options = Self {
            keys: names(&args.key)?,
            input: InputOptions::new(&args.input)?,
            time: TimeOptions::new(&args.time)?,
            window: window(args)?,
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
            workers,
        };
        check_distinct(&options.input.inputs, &[("--html", options.html.as_ref())])?;
        Ok(options)
    }

    /// How to read: the key columns, and the time where it is asked for by a window.
    pub(super) fn read_options(&self, rejects: Arc<RejectLog>, with_time: bool) -> ReadOptions {
        let with_time = with_time && self.window.is_some();
        let columns = wanted_keys(&self.keys);
        let columns = columns.chain(self.time.wanted().filter(|_| with_time)).collect();
        let time = self.time.column.clone().filter(|_| with_time);
        ReadOptions { columns: Some(columns), time, rejects, ..self.input.read_options() }
    }

    /// Adds keys and windows to a job.
    pub(super) fn job(&self, schema: &SchemaRef) -> JobBuilder {
        let mut builder =
            Job::builder(Arc::clone(schema)).key(self.keys.iter().cloned()).workers(self.workers);
        if let Some((window, _)) = self.window {
            builder = self.time.job(builder).window(window);
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

fn window(args: &DiagnoseArgs) -> Result<Option<(Window, Duration)>, ConfigError> {
    match (&args.window, &args.time.time) {
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
