//! Warnings on standard error. Each says what was seen and what would help.

use super::tell;
use crate::config::Job;
use crate::io::{RejectLog, Rejected};
use crate::key::group::{MAX_PARALLELISM_LIMIT, groups_of_shard};
use crate::runtime::report::RunReport;

/// Shares of key groups that differ by less than this go unmentioned.
const UNEVEN: f64 = 1.02;

/// Numbers of key groups that many numbers of workers divide evenly.
const COMPOSITE: [u32; 6] = [120, 240, 360, 720, 1440, 2880];

fn warn(text: &str) {
    tell(&format!("warning: {text}"));
}

/// Key groups that cannot be shared out evenly make some shards' work larger whatever the keys are.
pub(super) fn uneven_groups(job: &Job) {
    if let Some(text) = uneven_text(job.shards(), job.max_parallelism) {
        warn(&text);
    }
}

fn uneven_text(workers: u32, groups: u32) -> Option<String> {
    let sizes = (0..workers).map(|shard| {
        let shard = u16::try_from(shard).expect("validated: at most 2^15 shards");
        u32::try_from(groups_of_shard(shard, workers, groups).count()).unwrap_or(u32::MAX)
    });
    let (least, most) = sizes.fold((u32::MAX, 0), |(least, most), n| (least.min(n), most.max(n)));
    let over_mean = f64::from(most) * f64::from(workers) / f64::from(groups);
    if over_mean < UNEVEN {
        return None;
    }
    let fits = |groups: &u32| groups.is_multiple_of(workers);
    let listed = COMPOSITE.into_iter().filter(|n| *n >= groups).find(fits);
    let better = listed.or_else(|| {
        let multiple = groups.div_ceil(workers) * workers;
        Some(multiple).filter(|n| *n <= MAX_PARALLELISM_LIMIT)
    });
    let advice = better.map(|n| format!("; use --max-parallelism {n}")).unwrap_or_default();
    Some(format!(
        "{groups} key groups do not divide evenly among {workers} workers: shards own {least} to {most} \
         of them, so the largest has {over_mean:.2} times the mean{advice}"
    ))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_numbers_of_groups_are_pointed_out() {
        assert_eq!(uneven_text(3, 128), None);
        assert_eq!(uneven_text(8, 128), None);
        let text = uneven_text(7, 12).unwrap();
        assert!(text.contains("shards own 1 to 2"), "{text}");
        assert!(text.contains("1.17 times the mean; use --max-parallelism 14"), "{text}");
        assert!(uneven_text(24, 128).unwrap().ends_with("use --max-parallelism 240"));
        assert!(uneven_text(25_000, 32_768).unwrap().ends_with("times the mean"));
    }
}
