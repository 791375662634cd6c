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
    let asked = asked.map(OutputFormat::parse).transpose()?;
    match (asked, output) {
        (asked, Some(path)) => format_of_file(path, asked),
        (Some(asked), None) => Ok(asked),
        (None, None) if std::io::stdout().is_terminal() => Ok(OutputFormat::Table),
        (None, None) => Ok(OutputFormat::Csv),
    }
}

/// The format of a file as asked for, or by its name; csv if it says nothing.
pub(super) fn format_of_file(
    path: &Path,
    asked: Option<OutputFormat>,
) -> Result<OutputFormat, ConfigError> {
    let format = asked.or_else(|| OutputFormat::of_path(path)).unwrap_or(OutputFormat::Csv);
    // What the name asks for must be possible, before anything is read.
    format.compression(path)?;
    Ok(format)
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
