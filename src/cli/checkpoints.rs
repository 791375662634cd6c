//! Checkpoints of `run`: the directory, where to go on, and Ctrl-C.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::args::CheckpointArgs;
use super::interrupt::Interrupt;
use super::{Failure, tell};
use crate::checkpoint::{Checkpoint, CheckpointDir, Manifest};
use crate::error::{ConfigError, RunError};
use crate::runtime::checkpointer::Checkpoints;
use crate::runtime::engine::{Engine, EngineBuilder};
use crate::runtime::report::RunReport;
use crate::runtime::source::Source;
use crate::time::window::parse_duration;

/// Names of spools beside the checkpoints: of results, and of late rows.
pub(super) const SPOOLS: [&str; 2] = ["results.spool", "late.spool"];

/// How often Ctrl-C and the end of the run are looked for.
const LOOK: Duration = Duration::from_millis(10);

/// The checkpoints of a run.
#[derive(Debug)]
pub(super) struct RunCheckpoints {
    dir: Arc<CheckpointDir>,
    every: Duration,
    keep: usize,
    /// Where to go on.
    from: Option<Checkpoint>,
}

/// How a run with checkpoints ended.
#[derive(Debug)]
pub(super) enum Ended {
    /// At the end of its inputs.
    Finished(Box<RunReport>),
    /// By Ctrl-C; the checkpoint holds everything.
    Stopped,
}

impl RunCheckpoints {
    /// Takes the directory that was asked for, and finds the checkpoint to go on from.
    pub(super) fn open(args: &CheckpointArgs) -> Result<Option<Self>, Failure> {
        let Some(path) = &args.checkpoint_dir else { return Ok(None) };
        let every = parse_duration(&args.checkpoint_every)?;
        if every.is_zero() {
            let text = "--checkpoint-every must be longer than 0; for example 10s";
            return Err(ConfigError::Inconsistent(text.to_owned()).into());
        }
        let dir = Arc::new(CheckpointDir::open(path).map_err(RunError::from)?);
        let newest = dir.newest().map_err(RunError::from)?;
        if newest.is_some() && !args.resume {
            let text = format!(
                "{} holds checkpoints of an earlier run; --resume goes on from the newest, or name another \
                 directory",
                path.display()
            );
            return Err(ConfigError::Inconsistent(text).into());
        }
        Ok(Some(Self { dir, every, keep: args.checkpoint_keep, from: newest }))
    }

    /// What the checkpoint says that the run goes on from.
    pub(super) fn manifest(&self) -> Option<&Manifest> {
        self.from.as_ref().map(|checkpoint| &checkpoint.manifest)
    }

    /// The place of a spool beside the checkpoints, one of [`SPOOLS`].
    pub(super) fn beside(&self, spool: &str) -> PathBuf {
        self.dir.path().join(spool)
    }

    /// How far an output was written when the checkpoint was taken; 0 if it is a new one.
    pub(super) fn length_of(&self, output: &str) -> Result<Option<u64>, Failure> {
        let Some(manifest) = self.manifest() else { return Ok(None) };
        let saved = manifest.outputs.iter().find(|saved| saved.name == output);
        let length = saved.map_or(Ok(0), |saved| saved.position.parse());
        let wrong = |_| Failure::Run(format!("the checkpoint does not say where {output} ends"));
        length.map(Some).map_err(wrong)
    }

    /// Says which inputs go on, begin, or are not read any more.
    pub(super) fn tell(manifest: &Manifest, sources: &[Arc<dyn Source>]) {
        let rows = indicatif::HumanCount(manifest.rows.rows_in);
        tell(&format!("going on from checkpoint {}, behind {rows} rows", manifest.id));
        let names = sources.iter().map(|source| source.name()).collect::<Vec<_>>();
        for input in manifest.inputs.iter().filter(|input| !names.contains(&input.name)) {
            tell(&format!(
                "warning: {} was an input of the run that is continued, and is none now",
                input.name
            ));
        }
        for name in &names {
            match manifest.inputs.iter().find(|input| input.name == *name) {
                None => tell(&format!("warning: {name} was no input of the run that is continued")),
                Some(input) if input.position.is_none() && !input.ended => tell(&format!(
                    "warning: {name} is no file, so rows that were read and not in the checkpoint are lost"
                )),
                Some(_) => {}
            }
        }
    }

    /// Whether the run had ended.
    pub(super) fn is_finished(&self) -> bool {
        self.manifest().is_some_and(|manifest| manifest.finished)
    }

    /// An engine with these checkpoints, which goes on from the one that was found.
    pub(super) fn of(&mut self, engine: EngineBuilder) -> EngineBuilder {
        let checkpoints = Checkpoints::new(Arc::clone(&self.dir)).every(self.every).keep(self.keep);
        let engine = engine.checkpoints(checkpoints);
        match self.from.take() {
            Some(from) => engine.restore(from),
            None => engine,
        }
    }

    /// Waits for the end of the run; if Ctrl-C is pressed first, takes a checkpoint and stops.
    pub(super) fn wait(engine: Engine, interrupt: &Interrupt) -> Result<Ended, RunError> {
        while !engine.is_finished() {
            if interrupt.is_asked() {
                match engine.checkpoint() {
                    // It has ended just now.
                    Err(RunError::Stopped) => break,
                    taken => {
                        let report = taken?;
                        let rows = indicatif::HumanCount(report.rows_in);
                        tell(&format!(
                            "stopped behind {rows} rows; the same command with --resume goes on from there"
                        ));
                        return Ok(Ended::Stopped);
                    }
                }
            }
            std::thread::sleep(LOOK);
        }
        engine.finish().map(|report| Ended::Finished(Box::new(report)))
    }

    /// Notes that the run has ended and its outputs are complete.
    pub(super) fn finish(&self, report: &RunReport) -> Result<(), Failure> {
        self.dir.finish(report.totals()).map_err(RunError::from)?;
        for spool in SPOOLS {
            // It has served; in the way of nobody if it stays.
            let _ = std::fs::remove_file(self.beside(spool));
        }
        Ok(())
    }
}
