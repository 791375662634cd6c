//! `saltmill state`: what a directory of checkpoints holds, and whether it is whole.

use std::fmt::Write as _;

use super::args::{StateArgs, StateCommand};
use super::outputs::write_stdout;
use super::{Failure, json};
use crate::checkpoint::{Checkpoint, Manifest};
use crate::error::RunError;

pub(super) fn main(args: &StateArgs) -> Result<(), Failure> {
    let text = match &args.command {
        StateCommand::Ls(dir) => list(&dir.dir)?,
        StateCommand::Show(dir) => {
            let manifest = Checkpoint::find(&dir.dir).map_err(RunError::from)?.manifest;
            manifest.to_json() + "\n"
        }
        StateCommand::Verify(dir) => {
            let checkpoint = Checkpoint::find(&dir.dir).map_err(RunError::from)?;
            checkpoint.verify().map_err(RunError::from)?;
            let Manifest { id, files, .. } = &checkpoint.manifest;
            let bytes = checkpoint.manifest.state_bytes();
            format!("checkpoint {id} is whole: {} files, {bytes} bytes of state\n", files.len())
        }
    };
    Ok(write_stdout(&text)?)
}

/// A line for each checkpoint, the oldest first.
fn list(dir: &std::path::Path) -> Result<String, Failure> {
    let mut text = "checkpoint,begun_ms,rows_in,keys,bytes,shards,state\n".to_owned();
    for (path, checkpoint) in Checkpoint::list(dir).map_err(RunError::from)? {
        let line = match checkpoint {
            Ok(Checkpoint { manifest, .. }) => format!(
                "{},{},{},{},{},{},{}",
                manifest.id,
                manifest.begun_ms,
                manifest.rows.rows_in,
                manifest.keys(),
                manifest.state_bytes(),
                manifest.workers,
                if manifest.finished { "finished" } else { "complete" }
            ),
            Err(error) => {
                format!("{},,,,,,{}", path.display(), json::quoted(&error.to_string()))
            }
        };
        let _ = writeln!(text, "{line}");
    }
    Ok(text)
}
