//! The report of a diagnosis, from the summary to the statements to paste.

use indicatif::HumanCount;

use super::Context;
use super::document::{Bars, Block, Series, Table};
use super::options::Options;
use crate::diagnose::Diagnosis;
use crate::diagnose::advice::{Step, key_text};
use crate::diagnose::findings::{Face, looks_like_nobody, of_fair_share};
use crate::diagnose::flink_sql::{Query, interval, salted, settings, sidetracking};
use crate::diagnose::predict::{Cure, whose};
use crate::diagnose::profile::TopKey;
use crate::diagnose::windows::Windows;
use crate::key::flink::data_skew_percent;
use crate::runtime::report::KeyValue;
use crate::skew::decision::percent;
use crate::skew::imbalance::COV_ALERT_DEFAULT;

/// Subtasks that get a bar each.
const BARS_MAX: usize = 64;

/// Where chance makes at least so much of a difference to a prediction, it is told.
const CHANCE_TOLD: f64 = 1.02;

/// Hot windows that are listed.
const HOT_WINDOWS_LISTED: usize = 10;

/// The whole report.
pub(super) fn blocks(context: &Context<'_>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let report = Report { context, diagnosis: context.diagnosis, options: context.options };
    report.summary(&mut blocks);
    report.numbers(&mut blocks);
    report.top(&mut blocks);
    report.subtasks(&mut blocks);
    report.notable(&mut blocks);
    if let Some(windows) = &context.diagnosis.windows {
        report.windows(windows, &mut blocks);
    }
    report.cures(&mut blocks);
    report.steps(&mut blocks);
    if context.options.assignment.is_flink() {
        report.flink(&mut blocks);
    }
    blocks
}

struct Report<'a> {
    context: &'a Context<'a>,
    diagnosis: &'a Diagnosis,
    options: &'a Options,
}

impl Report<'_> {
    fn summary(&self, blocks: &mut Vec<Block>) {
        let advice = &self.diagnosis.advice;
        blocks.push(Block::Heading("Diagnosis"));
        blocks.push(Block::Text(sentence(&advice.summary)));
        if let Some(first) = advice.steps.first() {
            let title = format!("Recommended: {}", first.title);
            blocks.push(Block::Points(vec![(title, first.text.clone())]));
        }
        if let Some(second) = advice.steps.get(1) {
            blocks.push(Block::Text(format!("Next: {}. All steps stand below.", second.title)));
        }
    }

    fn numbers(&self, blocks: &mut Vec<Block>) {
        let (profile, findings) = (&self.diagnosis.profile, &self.diagnosis.findings);
        let (config, counted) = (&profile.config, &profile.counted);
        let keys = if counted.exact { "" } else { "about " };
        #[expect(clippy::cast_precision_loss, reason = "a percentage for people")]
        let loads = findings.loads.iter().map(|rows| *rows as f64).collect::<Vec<_>>();
        let cov = findings.imbalance.cov;
        let alert =
            if findings.imbalance.alerts(COV_ALERT_DEFAULT) { ", above" } else { ", below" };
        let mut rows = vec![
            ["rows".into(), thousands(counted.rows)],
            ["different keys".into(), format!("{keys}{}", thousands(counted.keys))],
            ["as uneven as so many equal keys".into(), approximate(counted.effective_keys)],
            ["counted".into(), self.context.counting_text()],
            [
                "assignment".into(),
                format!("{} ({})", self.options.assignment.name(), whose(self.options.assignment)),
            ],
            [
                "parallelism / max parallelism".into(),
                format!("{} / {}", config.parallelism, config.max_parallelism),
            ],
            [
                "busiest subtask over mean".into(),
                format!("{:.3}", findings.imbalance.max_over_mean),
            ],
            [
                "coefficient of variation".into(),
                format!("{cov:.3}{alert} the alert limit of {COV_ALERT_DEFAULT}"),
            ],
            ["Flink's data skew".into(), format!("{:.1} %", data_skew_percent(&loads))],
        ];
        rows.extend(self.context.rows_left_out().map(|(what, rows)| [what, thousands(rows)]));
        blocks.push(Block::Heading("The stream"));
        let rows = rows.into_iter().map(Vec::from).collect();
        blocks.push(Block::Table(Table { head: vec!["", ">"], rows }));
        blocks.extend(self.context.notes().map(Block::Text));
    }

    fn key_row(&self, key: &TopKey) -> Vec<String> {
        let profile = &self.diagnosis.profile;
        let share = if profile.counted.exact {
            percent(profile.share(key.rows))
        } else {
            let (low, high) = (profile.share(key.rows_low), profile.share(key.rows_high));
            format!("{} ({} to {})", percent(profile.share(key.rows)), percent(low), percent(high))
        };
        let nobody = key.key.iter().any(looks_like_nobody);
        vec![
            key_text(&key.key),
            thousands(key.rows),
            share,
            format!("{:.2}", of_fair_share(profile, key.rows)),
            key.group.to_string(),
            key.subtask.to_string(),
            if nobody { "looks like \"not known\"" } else { "" }.to_owned(),
        ]
    }

    fn top(&self, blocks: &mut Vec<Block>) {
        let top = &self.diagnosis.profile.top;
        blocks.push(Block::Heading("Heaviest keys"));
        if top.is_empty() {
            blocks.push(Block::Text("None stands out: too many keys have the same rows.".into()));
            return;
        }
        let rows = top.iter().take(self.options.top).map(|key| self.key_row(key));
        let head = vec!["key", ">rows", ">share", ">times fair", ">key group", ">subtask", ""];
        blocks.push(Block::Table(Table { head, rows: rows.collect() }));
    }

    fn subtasks(&self, blocks: &mut Vec<Block>) {
        let findings = &self.diagnosis.findings;
        let owner = whose(self.options.assignment);
        let labels = self.context.subtask_labels();
        let bars = findings.loads.iter().zip(&findings.keys).zip(labels);
        let bars = bars.take(BARS_MAX).map(|((rows, keys), label)| {
            let text = format!("{} rows, {} keys", thousands(*rows), thousands(*keys));
            (label, float(*rows), text)
        });
        blocks.push(Block::Heading("Subtasks"));
        let mean = findings.loads.iter().sum::<u64>() / findings.loads.len().max(1) as u64;
        blocks.push(Block::Bars(Bars {
            title: format!("Rows of each subtask, as {owner} assigns the keys"),
            rows: bars.collect(),
            reference: Some((float(mean), "mean")),
        }));
        if findings.loads.len() > BARS_MAX {
            let text = format!("The first {BARS_MAX} of {}; --json has all.", findings.loads.len());
            blocks.push(Block::Text(text));
        }
    }

    /// What deserves a mention beside the faces: keys that stand for nobody, hot keys that meet.
    fn notable(&self, blocks: &mut Vec<Block>) {
        let (profile, findings) = (&self.diagnosis.profile, &self.diagnosis.findings);
        let mut points = Vec::new();
        for key in &findings.defaults {
            points.push((
                format!("Key {}", key_text(&key.key)),
                format!(
                    "{} of the rows, and it looks like \"not known\" rather than like a key; rows of such a key \
                     can often be filtered out or aggregated apart.",
                    percent(profile.share(key.rows))
                ),
            ));
        }
        for collision in &findings.collisions {
            let keys = collision.keys.iter().map(|key| {
                format!("{} ({})", key_text(&key.key), percent(profile.share(key.rows)))
            });
            points.push((
                format!("Hot keys meet in subtask {}", collision.subtask),
                format!(
                    "{} belong to the same subtask: {:.2} times a fair share together. Another parallelism or \
                     max parallelism may part them; it will bring others together.",
                    keys.collect::<Vec<_>>().join(" and "),
                    collision.of_fair_share
                ),
            ));
        }
        let nulls = profile.top.iter().any(|key| key.key.contains(&KeyValue::Null));
        if nulls && !self.options.assignment.takes_null() {
            points.push((
                "Null keys".into(),
                "keyBy in a DataStream job fails on a null key; here they are placed as hash code 0, which is what \
                 a job does that puts a constant of that hash in their place."
                    .into(),
            ));
        }
        if !points.is_empty() {
            blocks.push(Block::Heading("Worth a look"));
            blocks.push(Block::Points(points));
        }
    }

    fn windows(&self, windows: &Windows, blocks: &mut Vec<Block>) {
        blocks.push(Block::Heading("Skew in time"));
        let Some((median, worst)) = windows.max_over_mean() else {
            blocks.push(Block::Text("No window has enough rows to say something.".into()));
            return;
        };
        blocks.push(Block::Text(format!(
            "{} windows, {} rows in a middling one. Busiest subtask over mean: {median:.2} in a middling window, \
             {:.2} in the worst ({}), {:.2} over the whole stream.",
            thousands(windows.windows.len() as u64),
            thousands(windows.rows_median()),
            worst.imbalance().max_over_mean,
            self.context.time_text(worst.start),
            self.diagnosis.findings.imbalance.max_over_mean,
        )));
        if windows.rows_beyond > 0 {
            blocks.push(Block::Text(format!(
                "There are too many windows to look at each: {} rows lie in others. Larger windows are fewer.",
                thousands(windows.rows_beyond)
            )));
        }
        let points = windows
            .windows
            .iter()
            .map(|window| (self.context.time_text(window.start), window.imbalance().max_over_mean));
        blocks.push(Block::Series(Series {
            title: "Busiest subtask over mean, window by window".into(),
            points: points.collect(),
        }));
        let hot = &self.diagnosis.findings.hot_windows;
        if hot.is_empty() {
            blocks.push(Block::Text("No key is hot in single windows only.".into()));
            return;
        }
        let rows = hot.iter().take(HOT_WINDOWS_LISTED).map(|hot| {
            vec![
                self.context.time_text(hot.start),
                key_text(&hot.key),
                percent(hot.share),
                percent(hot.share_overall),
                format!("{:.2}", hot.imbalance.max_over_mean),
                thousands(hot.rows),
            ]
        });
        let head = vec![
            "window",
            "key",
            ">share there",
            ">share overall",
            ">max/mean there",
            ">rows there",
        ];
        blocks.push(Block::Text(format!(
            "{} of {} windows have a key that is hot there and not over the whole stream:",
            hot.len(),
            windows.windows.len()
        )));
        blocks.push(Block::Table(Table { head, rows: rows.collect() }));
    }

    fn cures(&self, blocks: &mut Vec<Block>) {
        let diagnosis = self.diagnosis;
        blocks.push(Block::Heading("What each cure would come to"));
        let now = &diagnosis.findings.imbalance;
        let busiest = |loads: &[u64]| loads.iter().copied().max().unwrap_or(0);
        let row = |name: String, max_over_mean: f64, cov: f64, busiest: u64, speed: f64| {
            vec![
                name,
                format!("{max_over_mean:.2}"),
                format!("{cov:.2}"),
                thousands(busiest),
                format!("{speed:.2}"),
            ]
        };
        let mut rows = vec![row(
            "as it is".into(),
            now.max_over_mean,
            now.cov,
            busiest(&diagnosis.findings.loads),
            1.0,
        )];
        for prediction in &diagnosis.predictions {
            let found = prediction.imbalance;
            let (name, busiest) = (prediction.cure.name(), busiest(&prediction.loads));
            rows.push(row(name, found.max_over_mean, found.cov, busiest, prediction.speed_up));
        }
        let head = vec!["", ">max/mean", ">CoV", ">rows of the busiest", ">times as fast"];
        blocks.push(Block::Table(Table { head, rows }));
        let bars = diagnosis.predictions.iter().map(|prediction| {
            let speed = prediction.speed_up;
            (prediction.cure.name(), speed, format!("{speed:.2}"))
        });
        blocks.push(Block::Bars(Bars {
            title: "Times as fast as now, if the busiest subtask sets the pace".into(),
            rows: bars.collect(),
            reference: Some((1.0, "now")),
        }));
        blocks.push(Block::Text(
            "Rows behind the exchange, replayed with the hash that each key, or key and salt, has. A cure cannot \
             be faster than an even split of all rows, which have to be read as well. Saltmill is replayed on this \
             input, cut into the same units: until it has learnt a hot key its rows go to the key's owner, and few \
             units cannot be dealt out evenly; of a longer stream both are less, which is what it comes to with \
             hot keys known."
                .into(),
        ));
        let chance = diagnosis.predictions.iter().find_map(|prediction| prediction.spread);
        let chance = chance.filter(|(low, high)| high / low > CHANCE_TOLD);
        blocks.extend(chance.map(|(low, high)| {
            Block::Text(format!(
                "Which worker of Saltmill reads which unit is left to chance: max/mean {low:.2} to {high:.2}."
            ))
        }));
    }

    fn steps(&self, blocks: &mut Vec<Block>) {
        let points = |steps: &[Step]| {
            steps.iter().map(|step| (step.title.clone(), step.text.clone())).collect()
        };
        let advice = &self.diagnosis.advice;
        blocks.push(Block::Heading("What to do, in this order"));
        blocks.push(Block::Steps(points(&advice.steps)));
        if !advice.anti_patterns.is_empty() {
            blocks.push(Block::Heading("What does not help"));
            blocks.push(Block::Points(points(&advice.anti_patterns)));
        }
    }

    fn flink(&self, blocks: &mut Vec<Block>) {
        let (diagnosis, options) = (self.diagnosis, self.options);
        if diagnosis.findings.has(Face::EvenlyBusy) && diagnosis.findings.faces.len() == 1 {
            return;
        }
        blocks.push(Block::Heading("For Flink SQL, to paste"));
        blocks.push(Block::Code(settings(options.profile.mini_batch_rows)));
        let Some(salts) = diagnosis.advice.salts else { return };
        let size = options.window.map(|(_, size)| interval(size));
        let time = options.time.name();
        let window = time.zip(size.as_deref());
        let query = Query { keys: &options.keys, window, salts };
        blocks.push(Block::Text(
            "Every key salted (events and value stand for your table and column; averages become a sum and a count):"
                .into(),
        ));
        blocks.push(Block::Code(salted(&query)));
        let apart = diagnosis.predictions.iter().find_map(|prediction| match prediction.cure {
            Cure::Sidetracking { salts, .. } => Some(Query { salts, ..query }),
            _ => None,
        });
        if let Some(sql) = apart.and_then(|query| sidetracking(&query, &diagnosis.profile)) {
            blocks.push(Block::Text("The hot keys only:".into()));
            blocks.push(Block::Code(sql));
        }
    }
}

/// A whole number with commas between thousands.
fn thousands(number: u64) -> String {
    HumanCount(number).to_string()
}

/// A number that need not be whole.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a large number for people"
)]
fn approximate(number: f64) -> String {
    if number < 1_000.0 { format!("{number:.1}") } else { thousands(number.round() as u64) }
}

fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", chars.as_str())
}

#[expect(clippy::cast_precision_loss, reason = "lengths of bars")]
fn float(number: u64) -> f64 {
    number as f64
}
