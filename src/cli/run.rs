//! `saltmill run`: files or standard input in, results out.

use std::sync::Arc;

use super::args::{ProgressMode, RunArgs};
use super::bar::{Bar, Measure, State};
use super::checkpoints::{Ended, RunCheckpoints};
use super::interrupt::Interrupt;
use super::options::JobOptions;
use super::order::Ordered;
use super::reading::Reading;
use super::rows_out::RowsFile;
use super::sink::{Outputs, RejectFile};
use super::stats::StatsFile;
use super::watch::{self, Watch};
use super::{Failure, metrics, outputs, tell, warning};
use crate::config::Job;
use crate::error::ConfigError;
use crate::io::{Inputs, OutputFormat, RejectLog, open};
use crate::runtime::engine::Engine;

pub(super) fn main(args: &RunArgs) -> Result<(), Failure> {
    let options = JobOptions::new(&args.job)?;
    check(args, &options)?;
    let format = outputs::format(args.output.as_deref(), args.output_format.as_deref())?;
    let mut server = args.metrics.as_deref().map(metrics::bind).transpose()?;
    let interrupt = Interrupt::listen();
    let mut checkpoints = RunCheckpoints::open(&args.checkpoints)?;
    if checkpoints.as_ref().is_some_and(RunCheckpoints::is_finished) {
        tell("the run had ended, and its outputs are complete; nothing is left to do");
        return Ok(());
    }
    let rejects = rejects(args, checkpoints.as_ref())?;
    let read = options.read_options(args.late.is_some(), Arc::clone(&rejects));
    let inputs = open(&options.input.inputs, &read)?;
    let job = options.job(&inputs.schema)?;
    warning::uneven_groups(&job);
    let checkpoint = checkpoints.as_ref();
    let target = Target { args, options: &options, format, rejects: &rejects, checkpoint };
    let outputs = Arc::new(target.open(&inputs, &job)?);
    let stats = args.stats.as_deref().map(StatsFile::create).transpose()?;

    let ends_inputs = match &checkpoints {
        // Ctrl-C takes one, and ends no input.
        Some(_) => Interrupt::default(),
        None => interrupt.clone(),
    };
    let going_on = checkpoints.as_ref().and_then(|one| one.manifest().cloned());
    let reading = Reading::new(&ends_inputs, None, None);
    let bar = bar(args, &inputs, &outputs, &reading);
    let sources = reading.wrap(inputs.sources.clone());
    interrupt.begin();
    let engine = Engine::builder(job).sources(sources);
    let engine = match &mut checkpoints {
        Some(checkpoints) => checkpoints.of(engine),
        None => engine,
    };
    let run = engine.start(Arc::clone(&outputs));
    if let (Some(manifest), Ok(_)) = (&going_on, &run) {
        RunCheckpoints::tell(manifest, &inputs.sources);
    }
    if let (Ok(engine), Some(server)) = (&run, &mut server) {
        metrics::serve(server, engine);
    }
    let watch = match &run {
        Ok(engine) if args.watch => Some(Watch::start(engine)?),
        _ => None,
    };
    let finished = match &checkpoints {
        Some(_) => run.and_then(|engine| RunCheckpoints::wait(engine, &interrupt)),
        None => run.and_then(Engine::finish).map(|report| Ended::Finished(Box::new(report))),
    };
    drop((bar, watch, server));
    let report = match finished {
        Ok(Ended::Finished(report)) => report,
        Ok(Ended::Stopped) => return Ok(()),
        Err(error) => {
            outputs.abandon();
            return Err(error.into());
        }
    };
    outputs.finish()?;
    checkpoints.as_ref().map_or(Ok(()), |checkpoints| checkpoints.finish(&report))?;
    let interrupted = reading.is_cut();
    if interrupted {
        warning::interrupted(&report);
    }
    warning::rejected(&report, &rejects, args.rejected.is_some());
    warning::late(&report, &args.job.time.out_of_orderness, args.late.is_some());
    if let Some(stats) = stats {
        stats.write(&report, interrupted)?;
    }
    Ok(())
}

/// Finds options that contradict each other.
fn check(args: &RunArgs, options: &JobOptions) -> Result<(), Failure> {
    if args.ordered && args.job.emit_every.is_some() {
        let text = "--ordered keeps results until their windows are complete, --emit-every gives them \
                    before; use one of them";
        return Err(ConfigError::Inconsistent(text.to_owned()).into());
    }
    let files = [
        ("--output", args.output.as_ref()),
        ("--late", args.late.as_ref()),
        ("--rejected", args.rejected.as_ref()),
        ("--stats", args.stats.as_ref()),
    ];
    outputs::check_distinct(&options.input.inputs, &files)?;
    Ok(watch::check(args)?)
}

fn rejects(
    args: &RunArgs,
    checkpoints: Option<&RunCheckpoints>,
) -> Result<Arc<RejectLog>, Failure> {
    let Some(path) = &args.rejected else { return Ok(Arc::default()) };
    Ok(Arc::new(RejectLog::go_on(path, Outputs::rejected_length(checkpoints)?)?))
}

/// What is needed to open the outputs.
struct Target<'a> {
    args: &'a RunArgs,
    options: &'a JobOptions,
    format: OutputFormat,
    rejects: &'a Arc<RejectLog>,
    checkpoint: Option<&'a RunCheckpoints>,
}

impl Target<'_> {
    /// Opens all outputs; called once nothing but the run itself can go wrong.
    fn open(&self, inputs: &Inputs, job: &Job) -> Result<Outputs, Failure> {
        let (path, schema) = (self.args.output.clone(), Arc::clone(job.output_schema()));
        let file = RowsFile { path, format: self.format, schema };
        let ordered = self.args.ordered.then(|| Ordered::new(job)).transpose()?;
        let mut outputs = Outputs::new(file, ordered, self.checkpoint)?;
        if let Some(path) = &self.args.late {
            outputs.keep_late(path, &inputs.schema, self.checkpoint)?;
        }
        if self.args.rejected.is_some() {
            let input = match &self.options.input.inputs[..] {
                [only] => only.name(),
                _ => String::new(),
            };
            let column = self.options.time_name().map(str::to_owned);
            outputs.keep_rejected(RejectFile { log: Arc::clone(self.rejects), input, column });
        }
        Ok(outputs)
    }
}

/// The progress bar, which also shows held-back rows of a pipe's results.
fn bar(args: &RunArgs, inputs: &Inputs, outputs: &Arc<Outputs>, reading: &Reading) -> Bar {
    let (progress, outputs) = (Arc::clone(&inputs.progress), Arc::clone(outputs));
    let reading = reading.clone();
    let is_live = inputs.sources.iter().any(|source| source.is_live());
    let mode = if args.watch { ProgressMode::Never } else { args.job.progress };
    Bar::start(mode, Measure::Bytes, move || {
        if is_live {
            outputs.show_if_quiet();
        }
        let rows = indicatif::HumanCount(reading.rows());
        let (done, total) = (progress.done(), progress.total());
        State { done, total, message: format!("{rows} rows") }
    })
}
