//! `saltmill bench`: the engine alone, from memory into memory; settings against each other, in turn.

use std::fmt::Write as _;
use std::sync::Arc;

use super::args::{BenchArgs, JobArgs};
use super::bar::{Bar, Measure, State};
use super::json::Json;
use super::measure::{Measured, Ratio, median};
use super::memory::Loaded;
use super::options::JobOptions;
use super::stats::StatsFile;
use super::variant::variant;
use super::{Failure, outputs, tell, warning};
use crate::column::find_column;
use crate::error::ConfigError;
use crate::io::{Inputs, open};
use crate::runtime::report::SkewTable;

pub(super) fn main(args: &BenchArgs) -> Result<(), Failure> {
    let options = JobOptions::new(&args.job)?;
    if args.runs == 0 {
        return Err(Failure::Config(ConfigError::OutOfRange {
            what: "--runs",
            found: "0".to_owned(),
            expected: "at least 1".to_owned(),
        }));
    }
    // Everything that is wrong with a setting is told before the first input is loaded.
    let variants = args.against.iter().map(|text| variant(&args.job, text));
    let variants = variants.collect::<Result<Vec<_>, _>>()?;
    let others = variants.iter().map(JobOptions::new).collect::<Result<Vec<_>, _>>()?;
    for options in std::iter::once(&options).chain(&others) {
        options.check_repeatable()?;
        outputs::check_distinct(&options.input.inputs, &[("--stats", args.stats.as_ref())])?;
    }
    check_stdin(&options, &others)?;
    let stats = args.stats.as_deref().map(StatsFile::create).transpose()?;
    let first = measured(&args.job, options)?;
    let mut bench = Bench { first, others: Vec::with_capacity(others.len()) };
    for ((text, job), options) in args.against.iter().zip(&variants).zip(others) {
        let same_inputs = options.reads_the_same(bench.first.options());
        let same_results = same_inputs && options.computes_the_same(bench.first.options());
        let measured = if same_inputs {
            warning::uneven_groups(&options.job(bench.first.schema())?);
            bench.first.with_options(options)
        } else {
            measured(job, options)?
        };
        bench.others.push(Other { text: text.trim().to_owned(), measured, same_results });
    }
    for round in 0..=args.runs {
        bench.round(round > 0)?;
    }
    outputs::write_stdout(&if args.json { bench.json() } else { bench.text() })?;
    if let Some(stats) = stats {
        stats.write(bench.first.report(), false)?;
    }
    Ok(())
}

/// Standard input can be loaded once only.
fn check_stdin(first: &JobOptions, others: &[JobOptions]) -> Result<(), ConfigError> {
    let loaded = others.iter().filter(|options| !options.reads_the_same(first));
    let loaded = std::iter::once(first).chain(loaded);
    let from_stdin =
        loaded.flat_map(|options| &options.input.inputs).filter(|input| input.is_stdin());
    if from_stdin.count() > 1 {
        let text = "standard input would have to be read twice; write it to a file first";
        return Err(ConfigError::Inconsistent(text.to_owned()));
    }
    Ok(())
}

/// A setting with its inputs loaded.
fn measured(args: &JobArgs, options: JobOptions) -> Result<Measured, Failure> {
    let inputs = open(&options.input.inputs, &options.read_options(false, Arc::default()))?;
    warning::uneven_groups(&options.job(&inputs.schema)?);
    let loaded = load(args, &options, &inputs)?;
    Ok(Measured::new(options, inputs.schema, loaded))
}

fn load(args: &JobArgs, options: &JobOptions, inputs: &Inputs) -> Result<Vec<Loaded>, Failure> {
    let progress = Arc::clone(&inputs.progress);
    let bar = Bar::start(args.progress, Measure::Bytes, move || State {
        done: progress.done(),
        total: progress.total(),
        message: "loading".to_owned(),
    });
    let time = match options.time_name().filter(|_| options.has_windows()) {
        Some(name) => Some(find_column(&inputs.schema, name, "time")?),
        None => None,
    };
    let load = |source| Loaded::load(source, time);
    let loaded = inputs.sources.iter().map(|source| load(source.as_ref()));
    let loaded = loaded.collect::<Result<Vec<_>, _>>()?;
    drop(bar);
    let rejected: u64 =
        inputs.sources.iter().flat_map(|source| source.rejected()).map(|(_, rows)| rows).sum();
    if rejected > 0 {
        tell(&format!(
            "warning: {rejected} rows could not be used and are not part of the measurement; \
             `saltmill run` shows why"
        ));
    }
    Ok(loaded)
}

/// A setting that takes turns with the first.
#[derive(Debug)]
struct Other {
    /// As written after `--against`.
    text: String,
    measured: Measured,
    /// Whether its results must be those of the first.
    same_results: bool,
}

#[derive(Debug)]
struct Bench {
    first: Measured,
    others: Vec<Other>,
}

impl Bench {
    /// One run of each setting. The first round warms up.
    fn round(&mut self, measured: bool) -> Result<(), Failure> {
        self.first.run(measured)?;
        for other in &mut self.others {
            other.measured.run(measured)?;
            if other.same_results {
                self.first.check_same(&other.measured, &other.text)?;
            }
        }
        Ok(())
    }

    fn ratio(&self, other: &Other) -> Ratio {
        Ratio::new(&self.first.rates(), &other.measured.rates())
    }

    fn json(&self) -> String {
        let mut json = Json::object();
        self.first.members(&mut json);
        if !self.others.is_empty() {
            let mut others = Json::array();
            for other in &self.others {
                let (mut member, ratio) = (Json::object(), self.ratio(other));
                member.text("options", &other.text);
                other.measured.members(&mut member);
                member
                    .raw("same_results", if other.same_results { "true" } else { "false" })
                    .float("ratio_median", ratio.median)
                    .float("ratio_min", ratio.min)
                    .float("ratio_max", ratio.max);
                others.element(&member);
            }
            json.member("against", &others);
        }
        format!("{}\n", json.finish())
    }

    fn text(&self) -> String {
        let mut text = String::new();
        write_setting(&mut text, &self.first);
        for other in &self.others {
            let _ = writeln!(text, "\nagainst {}", other.text);
            write_setting(&mut text, &other.measured);
        }
        if !self.others.is_empty() {
            text.push('\n');
        }
        for other in &self.others {
            let ratio = self.ratio(other);
            let _ = writeln!(
                text,
                "ratio {:.3} (median of {} rounds, {:.3} to {:.3}) over {}; {}",
                ratio.median,
                self.first.times().len(),
                ratio.min,
                ratio.max,
                other.text,
                if other.same_results { "results are the same" } else { "results not comparable" },
            );
        }
        text
    }
}

/// The runs of one setting and the shards of the last.
fn write_setting(text: &mut String, setting: &Measured) {
    let (report, rates) = (setting.report(), setting.rates());
    let workers = report.shards.len();
    let _ = writeln!(
        text,
        "{} rows in, {} rows out, {} late; {workers} workers, isa {}, huge pages: {}",
        setting.rows(),
        report.rows_out,
        report.rows_late,
        report.isa,
        if report.huge_pages { "yes" } else { "no" },
    );
    for (i, (time, rate)) in setting.times().iter().zip(&rates).enumerate() {
        let seconds = time.as_secs_f64();
        let _ = writeln!(text, "run {:<3} {seconds:>9.4} s {}", i + 1, millions(*rate));
    }
    let median = median(&rates);
    #[expect(clippy::cast_precision_loss, reason = "few workers")]
    let per_worker = median / workers as f64;
    let _ = writeln!(text, "median            {}", millions(median));
    let _ = writeln!(text, "per worker        {}", millions(per_worker));
    let _ = writeln!(text, "checksum {}", setting.checksum());
    let _ = write!(text, "last run:\n{}", SkewTable(report));
}

fn millions(rate: f64) -> String {
    format!("{:>10.2} M rows/s", rate / 1e6)
}
