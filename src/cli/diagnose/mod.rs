//! `saltmill diagnose`: what a stream's keys do to the subtasks of a job, and what would help.
//!
//! [`count`] counts, with the engine; `diagnose` (the library's) judges, predicts and advises; the rest writes
//! that down.

mod document;
mod options;
mod count;
mod report;
mod text;
mod html;
mod json;

use arrow::datatypes::DataType;

use super::Failure;
use super::args::DiagnoseArgs;
use super::interrupt::Interrupt;
use super::outputs::write_stdout;
use crate::diagnose::Diagnosis;
use crate::error::SinkError;
use crate::key::group::groups_of_shard;
use count::Counts;
use options::Options;

/// What a report is about.
struct Context<'a> {
    options: &'a Options,
    diagnosis: &'a Diagnosis,
    rows_late: u64,
    rows_rejected: &'a [(String, u64)],
    counts_are_part: bool,
    outgrown: bool,
    time_type: Option<DataType>,
}

pub(super) fn main(args: &DiagnoseArgs) -> Result<(), Failure> {
    let options = Options::new(args)?;
    let interrupt = Interrupt::listen();
    let Counts { profile, windows, sample, rows_late, rows_rejected, is_part, outgrown, time_type } =
        count::count(&options, &interrupt)?;
    if profile.counted.rows == 0 {
        return Err(Failure::Run(
            "the inputs have no rows, so there is nothing to diagnose".into(),
        ));
    }
    let diagnosis = Diagnosis::new(profile, windows, Some(&sample))?;
    let context = Context {
        options: &options,
        diagnosis: &diagnosis,
        rows_late,
        rows_rejected: &rows_rejected,
        counts_are_part: is_part,
        outgrown,
        time_type,
    };
    let blocks = report::blocks(&context);
    let title = context.title();
    if let Some(path) = &options.html {
        std::fs::write(path, html::page(&title, &blocks)).map_err(|error| {
            SinkError::Failed(format!("{}: cannot be written: {error}", path.display()))
        })?;
    }
    let text = match (args.json, args.markdown) {
        (true, _) => json::report(&context),
        (_, true) => text::markdown(&title, &blocks),
        _ => text::plain(&title, &blocks),
    };
    write_stdout(&text)?;
    Ok(())
}

impl Context<'_> {
    fn title(&self) -> String {
        let inputs = self.options.input.inputs.iter().map(crate::io::InputSpec::name);
        let inputs = inputs.collect::<Vec<_>>().join(", ");
        format!("Skew of {inputs} by {}", self.options.keys.join(", "))
    }

    /// Exact or not.
    fn counting_text(&self) -> String {
        let exact = self.diagnosis.profile.counted.exact;
        let how = if exact { "exactly" } else { "within bounds, by a sketch" };
        let part = if self.counts_are_part { ", of the part that was read" } else { "" };
        format!("{how}{part}")
    }

    /// Rows that are in no number, by reason.
    fn rows_left_out(&self) -> impl Iterator<Item = (String, u64)> {
        let late =
            (self.rows_late > 0).then(|| ("late for their window".to_owned(), self.rows_late));
        let rejected = self.rows_rejected.iter();
        late.into_iter().chain(rejected.map(|(why, rows)| (format!("rejected: {why}"), *rows)))
    }

    /// What the reader must know to read the numbers right.
    fn notes(&self) -> impl Iterator<Item = String> {
        let late = (self.rows_late > 0).then(|| {
            "Late rows count for their keys, but not for their windows; --out-of-orderness says how far event \
             times may run behind."
                .to_owned()
        });
        let bounded = (!self.diagnosis.profile.counted.exact).then(|| {
            "Rows of key groups and subtasks are exact; rows of heavy keys lie within the bounds given, and the \
             number of different keys is an estimate (to 1 % or so)."
                .to_owned()
        });
        let outgrown = self.outgrown.then(|| {
            if self.counts_are_part {
                "Reading ended when the keys were too many to count each in 200 MB."
            } else {
                "There are too many keys to count each in 200 MB; --counting exact does it all the same."
            }
            .to_owned()
        });
        let no_windows = self.options.window.is_some() && self.diagnosis.windows.is_none();
        let windows = no_windows.then(|| {
            "Windows were not looked at: that needs exact counts (--counting exact, if memory allows)."
                .to_owned()
        });
        [late, bounded, outgrown, windows].into_iter().flatten()
    }

    /// Number and key groups of each subtask.
    fn subtask_labels(&self) -> impl Iterator<Item = String> {
        let config = &self.diagnosis.profile.config;
        let subtasks = u16::try_from(config.parallelism).expect("at most 2^15 subtasks");
        (0..subtasks).map(|subtask| {
            let range = groups_of_shard(subtask, config.parallelism, config.max_parallelism);
            format!("{subtask} (groups {}..{})", range.start(), range.end())
        })
    }

    /// A window's start.
    fn time_text(&self, start: i64) -> String {
        match &self.time_type {
            Some(data_type) => crate::runtime::emit::time_text(start, data_type),
            None => start.to_string(),
        }
    }
}
