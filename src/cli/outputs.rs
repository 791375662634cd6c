//! Where things are written: formats, and that no output overwrites an input or another output.

use std::fs::Metadata;
use std::io::{IsTerminal as _, Write as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::error::{ConfigError, SinkError};
use crate::io::{InputSpec, OutputFormat};

/// The format of the main output: as asked for, as its name says, or what fits standard output.
pub(super) fn format(
    output: Option<&Path>,
    asked: Option<&str>,
) -> Result<OutputFormat, ConfigError> {
    if let Some(asked) = asked {
        return OutputFormat::parse(asked);
    }
    Ok(match output {
        Some(path) => side_format(path),
        None if std::io::stdout().is_terminal() => OutputFormat::Table,
        None => OutputFormat::Csv,
    })
}

/// The format of a file by its name; csv if it says nothing.
pub(super) fn side_format(path: &Path) -> OutputFormat {
    OutputFormat::of_path(path).unwrap_or(OutputFormat::Csv)
}

/// Opening an output empties it, so none may be an input or another output.
pub(super) fn check_distinct(
    inputs: &[InputSpec],
    outputs: &[(&str, Option<&PathBuf>)],
) -> Result<(), ConfigError> {
    let outputs = outputs.iter().filter_map(|(option, path)| Some((*option, (*path)?)));
    let outputs = outputs.collect::<Vec<_>>();
    for (i, (option, path)) in outputs.iter().enumerate() {
        if inputs.iter().any(|input| !input.is_stdin() && is_same_file(&input.path, path)) {
            return Err(ConfigError::Inconsistent(format!(
                "{option} {} is an input, which would be overwritten; name another file",
                path.display()
            )));
        }
        if let Some((other, _)) = outputs[..i].iter().find(|(_, known)| is_same_file(known, path)) {
            return Err(ConfigError::Inconsistent(format!(
                "{other} and {option} both name {}; give each its own file",
                path.display()
            )));
        }
    }
    Ok(())
}

/// Whether two names are one file. Devices may be shared.
fn is_same_file(a: &Path, b: &Path) -> bool {
    match (std::fs::metadata(a), std::fs::metadata(b)) {
        (Ok(a), Ok(b)) => a.is_file() && identity(&a) == identity(&b),
        (Err(_), Err(_)) => a == b,
        _ => false,
    }
}

fn identity(metadata: &Metadata) -> (u64, u64) {
    (metadata.dev(), metadata.ino())
}

/// Writes a report to standard output.
pub(super) fn write_stdout(text: &str) -> Result<(), SinkError> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| match e.kind() {
        std::io::ErrorKind::BrokenPipe => SinkError::Closed,
        _ => SinkError::Failed(format!("standard output: cannot be written: {e}")),
    })
}
