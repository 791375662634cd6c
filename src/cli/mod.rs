//! The `saltmill` program.
//!
//! One file a subcommand. Each goes the same way: the texts of [`args`] become validated options,
//! inputs are opened, the job is built, and only then anything is written or started. Exit codes: 0
//! done (also after Ctrl-C and when the reader of standard output goes away), 1 the run failed, 2 the
//! command or the job is wrong. Every failure is one line on standard error.
//!
//! Not here: reading, writing (`io`), computing (`runtime`).

use std::io::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::Parser as _;

use crate::error::{CheckpointError, ConfigError, RunError, SinkError, SourceError};
use crate::io::IoError;

mod args;
mod json;
mod variant;
mod options;
mod outputs;
mod watch;
mod interrupt;
mod reading;
mod bar;
mod order;
mod rows_out;
mod checkpoints;
mod sink;
mod stats;
mod warning;
mod memory;
mod metrics;
mod run;
mod r#gen;
mod measure;
mod bench;
mod state;
mod keygroups;
mod diagnose;

/// Why a subcommand did not do what was asked.
#[derive(Debug)]
enum Failure {
    /// The command or the job is wrong: exit code 2.
    Config(ConfigError),
    /// The run failed, with the line that says why: exit code 1.
    Run(String),
    /// Nobody reads standard output any more: a quiet end.
    Closed,
}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Self {
        Self::Config(error)
    }
}

impl From<SourceError> for Failure {
    fn from(error: SourceError) -> Self {
        Self::Run(error.to_string())
    }
}

impl From<SinkError> for Failure {
    fn from(error: SinkError) -> Self {
        match error {
            SinkError::Closed => Self::Closed,
            SinkError::Failed(text) => Self::Run(text),
        }
    }
}

impl From<IoError> for Failure {
    fn from(error: IoError) -> Self {
        match error {
            IoError::Config(error) => error.into(),
            IoError::Source(error) => error.into(),
        }
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Sink(error) => error.into(),
            RunError::Checkpoint(error @ CheckpointError::OtherJob { .. }) => {
                ConfigError::Inconsistent(error.to_string()).into()
            }
            error @ RunError::Panicked { .. } => {
                Self::Run(format!("{error}{}; this is a defect, please report it", panic_place()))
            }
            error => Self::Run(error.to_string()),
        }
    }
}

/// Runs the program with the arguments of the process.
pub fn main() -> ExitCode {
    std::panic::set_hook(Box::new(note_panic));
    let cli = match args::Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let dispatched = catch_unwind(AssertUnwindSafe(|| match cli.command {
        args::Command::Run(args) => run::main(&args),
        args::Command::Gen(args) => r#gen::main(&args),
        args::Command::Bench(args) => bench::main(&args),
        args::Command::Keygroups(args) => keygroups::main(&args),
        args::Command::Diagnose(args) => diagnose::main(&args),
        args::Command::State(args) => state::main(&args),
    }));
    match dispatched {
        Ok(Ok(()) | Err(Failure::Closed)) => ExitCode::SUCCESS,
        Ok(Err(Failure::Config(error))) => {
            complain(&error.to_string());
            ExitCode::from(2)
        }
        Ok(Err(Failure::Run(text))) => {
            complain(&text);
            ExitCode::from(1)
        }
        Err(_) => {
            complain(&format!("stopped by a panic{}; please report it", panic_place()));
            ExitCode::from(1)
        }
    }
}

/// Help and version go to standard output; a wrong command gets one line and its usage.
fn usage(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // Whoever asked for help and closed the pipe has read enough.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return ExitCode::from(2);
    }
    let text = error.render().to_string();
    complain(&what_is_wrong(&text));
    if let Some(usage) = text.split_once("Usage:").and_then(|(_, usage)| usage.lines().next()) {
        tell(&format!("Usage:{usage}   (see `saltmill help`)"));
    }
    ExitCode::from(2)
}

/// The rendered text of a wrong command as one line, without its usage.
fn what_is_wrong(text: &str) -> String {
    let what = text.split_once("Usage:").map_or(text, |(what, _)| what).trim();
    let what = what.strip_prefix("error:").unwrap_or(what).replace("\n\n", "; ");
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    what.split("; For more information").next().unwrap_or(&what).to_owned()
}

/// One line for people.
fn tell(text: &str) {
    // If standard error is closed as well, there is nobody left to tell.
    let _ = writeln!(std::io::stderr(), "{}", one_line(text));
}

fn complain(text: &str) {
    tell(&format!("error: {text}"));
}

/// Names of files and columns may hold line breaks; a message is one line all the same.
fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() { line.extend(c.escape_default()) } else { line.push(c) }
    }
    line
}

/// Where the first panic happened; its message travels with the panic itself.
static PANICKED_AT: Mutex<Option<String>> = Mutex::new(None);

fn note_panic(info: &std::panic::PanicHookInfo<'_>) {
    let mut place = PANICKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    if place.is_none() {
        *place = info.location().map(ToString::to_string);
    }
}

fn panic_place() -> String {
    let place = PANICKED_AT.lock().unwrap_or_else(PoisonError::into_inner);
    place.as_ref().map(|place| format!(" (at {place})")).unwrap_or_default()
}
