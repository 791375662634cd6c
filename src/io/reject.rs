//! Rows that cannot be used: counted by reason, kept on request, a few remembered as examples.
//!
//! Invariant: every data record of a text input becomes either one row of a batch or one call of
//! [`RejectLog::record`]. Cost: nothing for good rows; a lock per batch that has bad ones.

use std::fmt::{self, Write as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::error::SinkError;
use crate::io::cut::SharedTarget;
use crate::io::format::Compression;
use crate::io::target::Target;

/// Rejected rows remembered for a warning.
const EXAMPLES: usize = 5;

/// Why a row could not be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// More or fewer fields than the header.
    RaggedRow,
    /// A value that contradicts its column's type.
    BadValue,
    /// Bytes that are not UTF-8 in a text column that is used.
    BadUtf8,
    /// A line that is not a JSON object.
    BadJson,
    /// No event time.
    NullTime,
    /// An event time that cannot be understood.
    BadTime,
    /// An event time that the column's unit cannot hold.
    TimeOutOfRange,
    /// An event time between two windows that leave a gap.
    BetweenWindows,
}

impl Reason {
    /// All reasons, in the order of their numbers.
    pub const ALL: [Self; 8] = [
        Self::RaggedRow,
        Self::BadValue,
        Self::BadUtf8,
        Self::BadJson,
        Self::NullTime,
        Self::BadTime,
        Self::TimeOutOfRange,
        Self::BetweenWindows,
    ];

    /// Its name in statistics and reject files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RaggedRow => "ragged_row",
            Self::BadValue => "bad_value",
            Self::BadUtf8 => "bad_utf8",
            Self::BadJson => "bad_json",
            Self::NullTime => "null_time",
            Self::BadTime => "bad_time",
            Self::TimeOutOfRange => "time_out_of_range",
            Self::BetweenWindows => "between_windows",
        }
    }
}

/// Rejected rows of one input, by reason.
#[derive(Debug, Default)]
pub(crate) struct RejectCounts([AtomicU64; Reason::ALL.len()]);

impl RejectCounts {
    fn add(&self, reason: Reason) {
        self.0[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// The reasons that occurred.
    pub(crate) fn totals(&self) -> Vec<(String, u64)> {
        Reason::ALL
            .iter()
            .map(|r| (r.as_str().to_owned(), self.0[*r as usize].load(Ordering::Relaxed)))
            .filter(|(_, count)| *count > 0)
            .collect()
    }
}

/// A row that could not be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejected {
    /// The input's name.
    pub input: String,
    /// The line where the row begins, counted from 1; 0 if the input has no lines.
    pub line: u64,
    /// The column at fault, if it is one.
    pub column: Option<String>,
    /// Why, in a word.
    pub reason: Reason,
    /// Why, in a sentence, and what would help.
    pub detail: String,
    /// The row as it stands in the input.
    pub row: Vec<u8>,
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, line {}", self.input, self.line)?;
        if let Some(column) = &self.column {
            write!(f, ", column \"{column}\"")?;
        }
        write!(f, ": {}", self.detail)
    }
}

/// Where rejected rows of all inputs go.
#[derive(Default)]
pub struct RejectLog {
    kept: Option<Mutex<Kept>>,
    examples: Mutex<Vec<Rejected>>,
}

struct Kept {
    name: String,
    /// None once the file is complete.
    rows: Option<csv::Writer<SharedTarget>>,
    target: SharedTarget,
    failure: Option<SinkError>,
}

impl fmt::Debug for RejectLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RejectLog")
            .field("keeps_rows", &self.kept.is_some())
            .finish_non_exhaustive()
    }
}

impl RejectLog {
    /// Counts and remembers examples, keeps no rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Also keeps every rejected row in a csv file with the columns
    /// `input,line,column,reason,detail,row`.
    pub fn create(path: &Path) -> Result<Self, SinkError> {
        Self::go_on(path, None)
    }

    /// The same in a run that goes on: the file is continued behind its first `length` bytes, if given.
    pub fn go_on(path: &Path, length: Option<u64>) -> Result<Self, SinkError> {
        let name = path.display().to_string();
        let target = Target::cut_file(path, Compression::of_name(path), length)?;
        let target = SharedTarget::new(target);
        let mut rows = csv::Writer::from_writer(target.clone());
        if length.unwrap_or(0) == 0 {
            rows.write_record(["input", "line", "column", "reason", "detail", "row"])
                .map_err(|e| SinkError::Failed(format!("{name}: {e}")))?;
        }
        let kept = Kept { name, rows: Some(rows), target, failure: None };
        Ok(Self { kept: Some(Mutex::new(kept)), examples: Mutex::default() })
    }

    /// Takes rejected rows in, and counts them for their input.
    pub(crate) fn record(&self, counts: &RejectCounts, rows: Vec<Rejected>) {
        for row in &rows {
            counts.add(row.reason);
        }
        self.keep(rows);
    }

    /// Keeps rows that were rejected and counted elsewhere (a null time in a parquet file).
    pub fn keep(&self, rows: Vec<Rejected>) {
        if let Some(kept) = &self.kept {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            for row in &rows {
                kept.write(row);
            }
        }
        let mut examples = self.examples.lock().unwrap_or_else(PoisonError::into_inner);
        let room = EXAMPLES.saturating_sub(examples.len());
        examples.extend(rows.into_iter().take(room));
    }

    /// A few rejected rows, for a warning. Each says input, line, column and what would help.
    pub fn examples(&self) -> Vec<Rejected> {
        self.examples.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Hands what is kept to the operating system, and says how long the file is then; none if nothing is kept.
    pub fn cut(&self) -> Result<Option<u64>, SinkError> {
        let Some(kept) = &self.kept else { return Ok(None) };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = kept.failure.take() {
            return Err(failure);
        }
        let Kept { name, rows: Some(rows), target, .. } = &mut *kept else { return Ok(None) };
        rows.flush().map_err(|e| SinkError::Failed(format!("{name}: {e}")))?;
        target.lock().cut().map(Some)
    }

    /// Makes durable what was handed to the operating system.
    pub fn sync(&self) -> Result<(), SinkError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        kept.target.lock().sync()
    }

    /// Writes out what is kept. An error here or earlier means that the file lacks rows.
    pub fn finish(&self) -> Result<(), SinkError> {
        let Some(kept) = &self.kept else { return Ok(()) };
        let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = kept.failure.take() {
            return Err(failure);
        }
        let Some(rows) = kept.rows.take() else { return Ok(()) };
        let out = rows.into_inner();
        let out = out.map_err(|e| SinkError::Failed(format!("{}: {}", kept.name, e.error())))?;
        out.lock().close()
    }
}

impl Kept {
    /// The first failure is kept for [`RejectLog::finish`]; after it, or the end, nothing more is tried.
    fn write(&mut self, rejected: &Rejected) {
        let (Some(rows), None) = (&mut self.rows, &self.failure) else { return };
        let mut line = String::new();
        if rejected.line > 0 {
            let _ = write!(line, "{}", rejected.line);
        }
        let written = rows.write_record([
            rejected.input.as_bytes(),
            line.as_bytes(),
            rejected.column.as_deref().unwrap_or_default().as_bytes(),
            rejected.reason.as_str().as_bytes(),
            rejected.detail.as_bytes(),
            &rejected.row,
        ]);
        if let Err(e) = written {
            self.failure = Some(SinkError::Failed(format!("{}: {e}", self.name)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(line: u64) -> Rejected {
        Rejected {
            input: "a.csv".into(),
            line,
            column: Some("k".into()),
            reason: Reason::BadValue,
            detail: "\"x\" is no int64".into(),
            row: b"1,\"x\"".to_vec(),
        }
    }

    #[test]
    fn rows_are_counted_and_few_are_remembered() {
        let (log, counts) = (RejectLog::new(), RejectCounts::default());
        log.record(&counts, (0..20).map(row).collect());
        assert_eq!(counts.totals(), [("bad_value".to_owned(), 20)]);
        assert_eq!(log.examples().len(), EXAMPLES);
        assert_eq!(log.examples()[2].to_string(), "a.csv, line 2, column \"k\": \"x\" is no int64");
        log.finish().unwrap();
    }

    #[test]
    fn a_full_disk_is_reported_at_the_end() {
        let log = RejectLog::create(Path::new("/dev/full")).unwrap();
        log.record(&RejectCounts::default(), (0..2).map(row).collect());
        let error = log.finish().unwrap_err().to_string();
        assert!(error.starts_with("/dev/full: "), "{error}");
        assert!(RejectLog::create(Path::new("/nowhere/x.csv")).is_err());
    }

    #[test]
    fn the_file_holds_the_raw_row() {
        let path = std::env::temp_dir().join(format!("saltmill-reject-{}", std::process::id()));
        let log = RejectLog::create(&path).unwrap();
        log.record(&RejectCounts::default(), vec![row(7)]);
        log.finish().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(
            text,
            "input,line,column,reason,detail,row\n\
             a.csv,7,k,bad_value,\"\"\"x\"\" is no int64\",\"1,\"\"x\"\"\"\n"
        );
    }
}
