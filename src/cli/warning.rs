//! Warnings on standard error. Each says what was seen and what would help.

use super::tell;
use crate::config::Job;
use crate::io::{RejectLog, Rejected};
use crate::runtime::report::RunReport;
use crate::skew::imbalance::GroupFit;

/// A busiest worker with less than this over the mean load goes unmentioned.
const UNEVEN: f64 = 1.03;

fn warn(text: &str) {
    tell(&format!("warning: {text}"));
}

/// Key groups that cannot be shared out evenly make some shards' work larger whatever the keys are.
pub(super) fn uneven_groups(job: &Job) {
    let fit = GroupFit::new(job.max_parallelism, job.shards());
    if let Some(advice) = fit.advice().filter(|_| fit.max_over_mean >= UNEVEN) {
        warn(&advice);
    }
}

/// Rows that could not be used.
pub(super) fn rejected(report: &RunReport, log: &RejectLog, is_kept: bool) {
    let total = report.rows_rejected_total();
    if total == 0 {
        return;
    }
    let reasons = report.rows_rejected.iter().map(|(reason, rows)| format!("{reason} {rows}"));
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    let keep = if is_kept { "" } else { "; --rejected FILE keeps them" };
    warn(&format!(
        "{} of {} rows could not be used ({reasons}); --schema sets the types of columns{keep}",
        total, report.rows_in
    ));
    for example in log.examples() {
        tell(&format!("  {}", example_text(&example)));
    }
}

fn example_text(example: &Rejected) -> String {
    if example.line > 0 {
        return example.to_string();
    }
    match &example.column {
        Some(column) => format!("{}, column \"{column}\": {}", example.input, example.detail),
        None => format!("{}: {}", example.input, example.detail),
    }
}

/// Rows whose windows were closed.
pub(super) fn late(report: &RunReport, out_of_orderness: &str, is_kept: bool) {
    if report.rows_late == 0 {
        return;
    }
    let keep = if is_kept { "" } else { "; --late FILE keeps them" };
    warn(&format!(
        "{} of {} rows came too late, after their window had closed; --out-of-orderness, now \
         {out_of_orderness}, says how far event times may run behind{keep}",
        report.rows_late, report.rows_in
    ));
}

/// The run was ended by Ctrl-C.
pub(super) fn interrupted(report: &RunReport) {
    tell(&format!(
        "interrupted: results cover the {} rows read so far; windows still open at that moment are \
         partial",
        report.rows_in
    ));
}
