//! `saltmill keygroups`: which subtask owns which key groups, and which keys.

use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;

use arrow::array::{Array, ArrayRef, StringArray};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field};

use super::Failure;
use super::args::KeyGroupsArgs;
use super::json::Json;
use super::outputs::write_stdout;
use crate::diagnose::placement::{Assignment, Placement};
use crate::error::{ConfigError, SourceError};
use crate::io::{parse_type, split_outside};
use crate::kernel::Isa;
use crate::key::flink::default_max_parallelism;
use crate::key::group::{check_parts, groups_of_shard, shard_of_group};
use crate::skew::imbalance::GroupFit;

/// Key groups that are listed one subtask a line; more are cut in the text, not in JSON.
const LISTED_SUBTASKS: u32 = 64;

pub(super) fn main(args: &KeyGroupsArgs) -> Result<(), Failure> {
    let (parallelism, groups) = (args.parallelism, args.max_parallelism);
    check_parts(groups, "parallelism", parallelism as usize)?;
    if args.up_to == 0 {
        let (what, found, expected) = ("--up-to", "0".into(), "at least 1".into());
        return Err(Failure::Config(ConfigError::OutOfRange { what, found, expected }));
    }
    let keys = keys(args)?;
    let report = Report { args, parallelism, groups, keys };
    write_stdout(&if args.json { report.json() } else { report.text() })?;
    Ok(())
}

/// A key and where it goes.
struct PlacedKey {
    text: String,
    group: u16,
    subtask: u16,
}

fn keys(args: &KeyGroupsArgs) -> Result<Vec<PlacedKey>, Failure> {
    let assignment = Assignment::parse(&args.assign)?;
    let types = types(&args.key_type)?;
    let fields = types.iter().enumerate();
    let fields = fields.map(|(i, t)| Field::new(format!("k{i}"), t.clone(), true)).collect();
    let placement = Placement::new(assignment, fields, Isa::best())?;
    let mut lines = args.key.clone();
    if let Some(path) = &args.keys {
        lines.extend(read_lines(path)?);
    }
    if lines.is_empty() {
        return Ok(Vec::new());
    }
    let rows = lines.iter().map(|line| record(line, types.len())).collect::<Result<Vec<_>, _>>()?;
    let mut columns = Vec::with_capacity(types.len());
    for (i, data_type) in types.iter().enumerate() {
        columns.push(column(rows.iter().map(|row| row[i].as_deref()), data_type)?);
    }
    if !assignment.takes_null() && rows.iter().flatten().any(Option::is_none) {
        return Err(Failure::Config(ConfigError::Inconsistent(format!(
            "keyBy fails on a null key, so --assign {} has no place for one; --assign flink-sql does",
            assignment.name()
        ))));
    }
    let mut groups = Vec::new();
    placement.place(&columns, rows.len())?.groups(args.max_parallelism, &mut groups);
    let placed = lines.into_iter().zip(groups).map(|(text, group)| PlacedKey {
        text,
        group,
        subtask: shard_of_group(group, args.parallelism, args.max_parallelism),
    });
    Ok(placed.collect())
}

fn types(text: &str) -> Result<Vec<DataType>, ConfigError> {
    split_outside(text, ',').into_iter().map(parse_type).collect()
}

fn read_lines(path: &Path) -> Result<Vec<String>, SourceError> {
    let name = path.display().to_string();
    let mut text = String::new();
    let read = if name == "-" {
        std::io::stdin().read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text))
    };
    read.map_err(|error| SourceError {
        input: name,
        place: None,
        message: format!("keys cannot be read, one a line: {error}"),
    })?;
    Ok(text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// The fields of a key, as in a line of csv.
fn record(line: &str, fields: usize) -> Result<Vec<Option<String>>, ConfigError> {
    let syntax = |why: String| ConfigError::Syntax { what: "key", text: line.to_owned(), why };
    let field = |text: &str| (text != "null").then(|| text.to_owned());
    if fields == 1 {
        return Ok(vec![field(line)]);
    }
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(line.as_bytes());
    let record = reader.records().next().transpose().map_err(|error| syntax(error.to_string()))?;
    let record = record.unwrap_or_default();
    if record.len() != fields {
        return Err(syntax(format!(
            "it has {} field(s), --key-type names {fields}; fields are separated by commas",
            record.len()
        )));
    }
    Ok(record.iter().map(field).collect())
}

fn column<'a>(
    texts: impl Iterator<Item = Option<&'a str>>,
    data_type: &DataType,
) -> Result<ArrayRef, ConfigError> {
    let texts: ArrayRef = Arc::new(texts.collect::<StringArray>());
    let syntax =
        |text: &str, why: String| ConfigError::Syntax { what: "key", text: text.to_owned(), why };
    let values = cast(&texts, data_type).map_err(|error| syntax("", error.to_string()))?;
    match (0..texts.len()).find(|row| values.is_null(*row) && texts.is_valid(*row)) {
        Some(row) => {
            let text = arrow::util::display::array_value_to_string(&texts, row).unwrap_or_default();
            let why = format!("it is not a value of type {data_type}; see --key-type");
            Err(syntax(&text, why))
        }
        None => Ok(values),
    }
}

struct Report<'a> {
    args: &'a KeyGroupsArgs,
    parallelism: u32,
    groups: u32,
    keys: Vec<PlacedKey>,
}

impl Report<'_> {
    /// First and last key group of each subtask.
    fn ranges(&self) -> impl Iterator<Item = (u16, u16, u16)> {
        let subtasks = u16::try_from(self.parallelism).expect("at most 2^15");
        (0..subtasks).map(|subtask| {
            let range = groups_of_shard(subtask, self.parallelism, self.groups);
            (subtask, *range.start(), *range.end())
        })
    }

    /// How the groups fit 1, 2, .. subtasks.
    fn fits(&self) -> impl Iterator<Item = GroupFit> {
        (1..=self.args.up_to.min(self.groups)).map(|subtasks| GroupFit::new(self.groups, subtasks))
    }

    fn text(&self) -> String {
        let mut text = format!("{} key groups on {} subtasks\n", self.groups, self.parallelism);
        let _ = writeln!(text, "\n{:>7}  {:>13}  {:>6}", "subtask", "key groups", "number");
        for (subtask, first, last) in self.ranges().take(LISTED_SUBTASKS as usize) {
            let range = format!("{first}..{last}");
            let _ = writeln!(text, "{subtask:>7}  {range:>13}  {:>6}", last - first + 1);
        }
        if self.parallelism > LISTED_SUBTASKS {
            let more = self.parallelism - LISTED_SUBTASKS;
            let _ = writeln!(text, "and {more} more subtasks (all of them with --json)");
        }
        let _ = writeln!(
            text,
            "\nWith keys spread evenly over the groups, by parallelism:\n{:>11}  {:>15}  {:>8}  {:>6}",
            "parallelism", "groups each", "max/mean", "better"
        );
        for fit in self.fits() {
            let each = match (fit.groups_min, fit.groups_max) {
                (min, max) if min == max => min.to_string(),
                (min, max) => format!("{min} or {max}"),
            };
            let better = fit.better.map(|better| better.to_string()).unwrap_or_default();
            let marker = if fit.workers == self.parallelism { "  <-" } else { "" };
            let _ = writeln!(
                text,
                "{:>11}  {each:>15}  {:>8.3}  {better:>6}{marker}",
                fit.workers, fit.max_over_mean
            );
        }
        let _ = writeln!(text, "\n{}", self.verdict());
        if !self.keys.is_empty() {
            let _ = writeln!(
                text,
                "\nBy {}:\n{:>9}  {:>7}  key",
                self.args.assign, "key group", "subtask"
            );
            for key in &self.keys {
                let _ = writeln!(text, "{:>9}  {:>7}  {}", key.group, key.subtask, key.text);
            }
        }
        text
    }

    fn verdict(&self) -> String {
        let fit = GroupFit::new(self.groups, self.parallelism);
        let flink = default_max_parallelism(self.parallelism);
        let default = if flink == self.groups {
            "also what Flink takes".to_owned()
        } else {
            format!("Flink takes {flink}")
        };
        let default = format!("{default} for a parallelism of {} if none is set", self.parallelism);
        match fit.advice() {
            Some(advice) => format!("{advice} ({default})"),
            None => format!(
                "{} key groups divide evenly by {} subtasks: {} each ({default})",
                self.groups, self.parallelism, fit.groups_min
            ),
        }
    }

    fn json(&self) -> String {
        let mut ranges = Json::array();
        for (subtask, first, last) in self.ranges() {
            let mut range = Json::object();
            range.int("subtask", subtask).int("first", first).int("last", last);
            ranges.element(&range);
        }
        let mut fits = Json::array();
        for fit in self.fits() {
            let mut json = Json::object();
            json.int("parallelism", fit.workers)
                .int("groups_min", fit.groups_min)
                .int("groups_max", fit.groups_max)
                .float("max_over_mean", fit.max_over_mean);
            match fit.better {
                Some(better) => json.int("better_max_parallelism", better),
                None => json.raw("better_max_parallelism", "null"),
            };
            fits.element(&json);
        }
        let mut keys = Json::array();
        for key in &self.keys {
            let mut json = Json::object();
            json.text("key", &key.text).int("key_group", key.group).int("subtask", key.subtask);
            keys.element(&json);
        }
        let mut json = Json::object();
        json.int("version", 1_u32)
            .int("parallelism", self.parallelism)
            .int("max_parallelism", self.groups)
            .text("assign", &self.args.assign)
            .int("flink_default_max_parallelism", default_max_parallelism(self.parallelism))
            .member("subtasks", &ranges)
            .member("imbalance", &fits)
            .member("keys", &keys)
            .text("advice", &self.verdict());
        format!("{}\n", json.finish())
    }
}
