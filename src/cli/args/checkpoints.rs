//! Options of checkpoints, and of those who look into them.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Checkpoints of `run`.
#[derive(Debug, Args)]
pub(in crate::cli) struct CheckpointArgs {
    /// Keep checkpoints in a directory, so that the run can go on after a crash
    ///
    /// The directory is made if needed, and belongs to one run at a time. A checkpoint holds the state, where each
    /// input stands, and how far each output file was written; --resume cuts the files there and goes on, so that
    /// each result is in them once. Results on standard output since the last checkpoint come again. Parquet and
    /// Arrow files, and ordered ones, are written when the run has ended. Ctrl-C takes a checkpoint and stops.
    /// Example: --checkpoint-dir state --checkpoint-every 10s
    #[arg(long, value_name = "DIR", help_heading = "Checkpoints")]
    pub(in crate::cli) checkpoint_dir: Option<PathBuf>,

    /// How often a checkpoint is taken
    ///
    /// Example: --checkpoint-every 30s
    #[arg(
        long,
        value_name = "D",
        default_value = "10s",
        requires = "checkpoint_dir",
        help_heading = "Checkpoints"
    )]
    pub(in crate::cli) checkpoint_every: String,

    /// How many checkpoints are kept
    ///
    /// Example: --checkpoint-keep 5
    #[arg(
        long,
        value_name = "N",
        default_value_t = 2,
        requires = "checkpoint_dir",
        help_heading = "Checkpoints"
    )]
    pub(in crate::cli) checkpoint_keep: usize,

    /// Go on from the newest checkpoint in the directory, if there is one
    ///
    /// With the same keys, windows and aggregates, and any number of workers. Files are read on from where they were;
    /// standard input too, if it is a file. Example: --checkpoint-dir state --resume
    #[arg(long, requires = "checkpoint_dir", help_heading = "Checkpoints")]
    pub(in crate::cli) resume: bool,
}

/// Options of `state`.
#[derive(Debug, Args)]
pub(in crate::cli) struct StateArgs {
    #[command(subcommand)]
    pub(in crate::cli) command: StateCommand,
}

/// What is to be done with checkpoints.
#[derive(Debug, Subcommand)]
pub(in crate::cli) enum StateCommand {
    /// List the checkpoints in a directory
    ///
    /// Example: saltmill state ls state
    Ls(StateDir),
    /// Show what a checkpoint is of
    ///
    /// Example: saltmill state show state
    Show(StateDir),
    /// Check every byte of a checkpoint
    ///
    /// Example: saltmill state verify state/checkpoint-000000000012
    Verify(StateDir),
}

/// Where checkpoints are.
#[derive(Debug, Args)]
pub(in crate::cli) struct StateDir {
    /// A directory of checkpoints, or the folder of one
    #[arg(value_name = "DIR")]
    pub(in crate::cli) dir: PathBuf,
}
