//! Formats, and how they are told from file names and first bytes.

use std::path::{Path, PathBuf};

use crate::error::ConfigError;

/// The format of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Format {
    /// Comma-separated text with a header line.
    Csv,
    /// Tab-separated text with a header line; quotes as in csv.
    Tsv,
    /// One JSON object a line.
    Ndjson,
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC, as a file (Feather version 2) or as a stream.
    Arrow,
}

impl Format {
    /// Understands `csv`, `tsv`, `ndjson` (`jsonl`, `json`), `parquet`, `arrow` (`feather`, `ipc`).
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        Self::from_extension(&text.to_ascii_lowercase()).ok_or_else(|| ConfigError::Syntax {
            what: "format",
            text: text.to_owned(),
            why: "expected csv, tsv, ndjson, parquet or arrow".to_owned(),
        })
    }

    fn from_extension(extension: &str) -> Option<Self> {
        Some(match extension {
            "csv" => Self::Csv,
            "tsv" | "tab" => Self::Tsv,
            "ndjson" | "jsonl" | "json" => Self::Ndjson,
            "parquet" | "pq" => Self::Parquet,
            "arrow" | "arrows" | "feather" | "ipc" => Self::Arrow,
            _ => return None,
        })
    }

    /// Whether it is text, which may be compressed as a whole.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Tsv | Self::Ndjson)
    }
}

/// How a text input is compressed as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Compression {
    /// Plain.
    None,
    /// Gzip, one or more members.
    Gzip,
    /// Zstandard, one or more frames.
    Zstd,
}

impl Compression {
    /// Told from a file's name.
    pub(crate) fn of_name(path: &Path) -> Self {
        detect_name(path).1
    }

    /// Told from the first bytes of the content.
    pub(crate) fn of_content(head: &[u8]) -> Self {
        if head.starts_with(&[0x1f, 0x8b]) {
            Self::Gzip
        } else if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
            Self::Zstd
        } else {
            Self::None
        }
    }
}

/// An input as the user named it.
#[derive(Debug, Clone)]
pub struct InputSpec {
    /// The file; `-` is standard input.
    pub path: PathBuf,
    /// The format, when the name does not tell or should not decide.
    pub format: Option<Format>,
}

impl InputSpec {
    /// An input whose format follows from its name.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), format: None }
    }

    /// An input of a known format.
    pub fn with_format(path: impl Into<PathBuf>, format: Format) -> Self {
        Self { path: path.into(), format: Some(format) }
    }

    /// Whether this is standard input.
    pub fn is_stdin(&self) -> bool {
        self.path.as_os_str() == "-"
    }

    /// The name for messages.
    pub fn name(&self) -> String {
        if self.is_stdin() { "standard input".to_owned() } else { self.path.display().to_string() }
    }

    /// The format as given or as the name tells it.
    pub(crate) fn detect(&self) -> Result<(Format, Compression), ConfigError> {
        let (named, compression) = detect_name(&self.path);
        if let Some(format) = self.format.or(named) {
            return Ok((format, compression));
        }
        Err(ConfigError::Inconsistent(format!(
            "{}: its name does not tell the format; add --format csv, tsv, ndjson, parquet or arrow",
            self.name()
        )))
    }
}

/// What a file name tells. A compression suffix counts only after a text suffix or alone.
fn detect_name(path: &Path) -> (Option<Format>, Compression) {
    let Some(name) = path.file_name().map(|n| n.to_string_lossy().to_ascii_lowercase()) else {
        return (None, Compression::None);
    };
    let (stem, compression) = if let Some(stem) = name.strip_suffix(".gz") {
        (stem, Compression::Gzip)
    } else if let Some(stem) = name.strip_suffix(".zst").or_else(|| name.strip_suffix(".zstd")) {
        (stem, Compression::Zstd)
    } else {
        (name.as_str(), Compression::None)
    };
    let format = stem.rsplit_once('.').and_then(|(_, e)| Format::from_extension(e));
    (format, compression)
}

/// The format of standard input by its first bytes, when none was given.
pub(crate) fn sniff(head: &[u8]) -> Format {
    if head.starts_with(b"PAR1") {
        Format::Parquet
    } else if head.starts_with(b"ARROW1") || head.starts_with(&[0xff, 0xff, 0xff, 0xff]) {
        Format::Arrow
    } else if head.trim_ascii_start().first() == Some(&b'{') {
        Format::Ndjson
    } else {
        Format::Csv
    }
}

/// The format of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OutputFormat {
    /// An aligned table for people.
    Table,
    /// Comma-separated text.
    Csv,
    /// Tab-separated text.
    Tsv,
    /// One JSON object a line.
    Ndjson,
    /// Apache Parquet.
    Parquet,
    /// Arrow IPC: a file, or a stream on standard output.
    Arrow,
}

impl OutputFormat {
    /// Whether it is text that can be appended to row by row.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Csv | Self::Tsv | Self::Ndjson)
    }

    /// Understands the names of [`Format::parse`] and `table`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if text.eq_ignore_ascii_case("table") {
            return Ok(Self::Table);
        }
        Format::from_extension(&text.to_ascii_lowercase()).map(Self::from).ok_or_else(|| {
            ConfigError::Syntax {
                what: "output format",
                text: text.to_owned(),
                why: "expected table, csv, tsv, ndjson, parquet or arrow".to_owned(),
            }
        })
    }

    /// The format that the name of an output file asks for; `.txt` is a table. A suffix of compression
    /// behind it does not count.
    pub fn of_path(path: &Path) -> Option<Self> {
        if path.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("txt")) {
            return Some(Self::Table);
        }
        detect_name(path).0.map(Self::from)
    }

    /// The compression that the name of an output file of this format asks for.
    ///
    /// # Errors
    /// If the format is not one that is compressed as a whole.
    pub(crate) fn compression(self, path: &Path) -> Result<Compression, ConfigError> {
        let compression = Compression::of_name(path);
        let is_text = matches!(self, Self::Csv | Self::Tsv | Self::Ndjson);
        if is_text || compression == Compression::None {
            return Ok(compression);
        }
        Err(ConfigError::Inconsistent(format!(
            "{}: only csv, tsv and ndjson are compressed as a whole; leave the last suffix out",
            path.display()
        )))
    }
}

impl From<Format> for OutputFormat {
    fn from(format: Format) -> Self {
        match format {
            Format::Csv => Self::Csv,
            Format::Tsv => Self::Tsv,
            Format::Ndjson => Self::Ndjson,
            Format::Parquet => Self::Parquet,
            Format::Arrow => Self::Arrow,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_the_format() {
        let cases = [
            ("a.csv", Some(Format::Csv), Compression::None),
            ("dir.x/A.CSV.GZ", Some(Format::Csv), Compression::Gzip),
            ("a.tsv.zst", Some(Format::Tsv), Compression::Zstd),
            ("a.jsonl", Some(Format::Ndjson), Compression::None),
            ("a.json", Some(Format::Ndjson), Compression::None),
            ("a.Parquet", Some(Format::Parquet), Compression::None),
            ("a.feather", Some(Format::Arrow), Compression::None),
            ("csv", None, Compression::None),
            ("a.xlsx", None, Compression::None),
        ];
        for (name, format, compression) in cases {
            assert_eq!(detect_name(Path::new(name)), (format, compression), "{name}");
        }
        assert!(InputSpec::new("a.xlsx").detect().is_err());
        assert_eq!(
            InputSpec::with_format("a.log.gz", Format::Csv).detect().unwrap(),
            (Format::Csv, Compression::Gzip)
        );
    }

    #[test]
    fn first_bytes_tell_the_format_of_standard_input() {
        assert_eq!(sniff(b"PAR1abc"), Format::Parquet);
        assert_eq!(sniff(b"ARROW1\0\0"), Format::Arrow);
        assert_eq!(sniff(b"  {\"a\": 1}"), Format::Ndjson);
        assert_eq!(sniff(b"a,b\n"), Format::Csv);
        assert_eq!(Compression::of_content(&[0x1f, 0x8b, 8]), Compression::Gzip);
    }
}
