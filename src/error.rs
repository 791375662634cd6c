//! What can go wrong, and what to do about it.
//!
//! Two kinds, told apart because their cures differ: [`ConfigError`] means the job as described can
//! not run (nothing was started; change the job), [`RunError`] means a run was under way and failed.

use std::cell::RefCell;
use std::fmt::Write as _;

/// The job as described cannot run. Found before any thread starts.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A column was named that the input does not have.
    #[error("{role} column \"{name}\" is not in the input{}", suggestion(.nearest.as_ref(), .available))]
    UnknownColumn {
        /// What the column was wanted for: `key`, `time`, or the aggregate's text.
        role: String,
        /// The name as given.
        name: String,
        /// The closest existing name, if any is close.
        nearest: Option<String>,
        /// All names of the input.
        available: Vec<String>,
    },
    /// A column has a type that its use does not allow.
    #[error("{use_} cannot use column \"{column}\" of type {found}; {expected}")]
    WrongType {
        /// The use: `sum(x)`, `key`, `event time`.
        use_: String,
        /// The column.
        column: String,
        /// Its type.
        found: String,
        /// What would do instead.
        expected: String,
    },
    /// Two output columns would carry the same name.
    #[error("two output columns are called \"{name}\"; give one of them another name with `as`")]
    DuplicateOutput {
        /// The name.
        name: String,
    },
    /// The input has two columns of one name and the job refers to it.
    #[error(
        "the input has more than one column called \"{name}\"; rename one so that it can be told apart"
    )]
    AmbiguousColumn {
        /// The name.
        name: String,
    },
    /// A number is outside what is possible.
    #[error("{what} is {found}, but must be {expected}")]
    OutOfRange {
        /// The setting.
        what: &'static str,
        /// The value given.
        found: String,
        /// The range, and what to do.
        expected: String,
    },
    /// A text could not be understood.
    #[error("cannot understand {what} \"{text}\": {why}")]
    Syntax {
        /// What was being read: `aggregate`, `window`, `duration`.
        what: &'static str,
        /// The text.
        text: String,
        /// Where it went wrong and what was expected.
        why: String,
    },
    /// Something that is planned but not there.
    #[error("{what} is not supported yet; {instead}")]
    Unsupported {
        /// The feature, by name.
        what: String,
        /// What can be done today.
        instead: String,
    },
    /// Settings that contradict each other or lack a part.
    #[error("{0}")]
    Inconsistent(String),
}

/// A checkpoint cannot be written, read or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// What should be a directory of checkpoints is something else.
    #[error("{path} is no directory; name one for checkpoints")]
    NoDirectory {
        /// Where.
        path: String,
    },
    /// Another process uses the directory.
    #[error("{path} is in use by another process; wait for its end, or name another directory")]
    InUse {
        /// Where.
        path: String,
    },
    /// There is no checkpoint.
    #[error("{path} holds no complete checkpoint")]
    NoCheckpoint {
        /// Where.
        path: String,
    },
    /// A file is not what was written.
    #[error("{file}: {why}; use an older checkpoint if there is one, or start without")]
    Damaged {
        /// Which file.
        file: String,
        /// What is wrong with it.
        why: String,
    },
    /// The state is of another job.
    #[error(
        "the checkpoint is of another job: {what} was {saved}, and is {now} now; state cannot be used under that"
    )]
    OtherJob {
        /// What differs.
        what: &'static str,
        /// As it was when the checkpoint was taken.
        saved: String,
        /// As it is asked for.
        now: String,
    },
    /// An input is not there any more as it was.
    #[error("{0}")]
    Input(String),
    /// This job's state cannot be saved.
    #[error("{0}")]
    Unsaved(String),
    /// The operating system refused.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
}

/// A run was under way and failed. Rows already emitted are right; later results are missing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// An input could not be read to its end.
    #[error("{0}")]
    Input(#[from] SourceError),
    /// The consumer of results failed.
    #[error("results could not be delivered: {0}")]
    Sink(#[from] SinkError),
    /// A result does not fit its type.
    #[error("{0}")]
    Overflow(Box<Overflow>),
    /// A custom aggregate did not do what it said.
    #[error("{aggregate}: {what}; correct its implementation of CustomAggregate")]
    CustomAggregate {
        /// The aggregate's text.
        aggregate: String,
        /// What it did.
        what: String,
    },
    /// A keyed process gave up.
    #[error("the process failed at key \"{key}\": {message}")]
    Process {
        /// The key, readable.
        key: String,
        /// Why.
        message: String,
    },
    /// A batch pushed by the caller does not have the job's schema.
    #[error("a batch does not fit the job: {0}")]
    Batch(String),
    /// A limit of the state was reached.
    #[error("{0}")]
    Limit(String),
    /// State beyond the memory limit could not be written to disk, or read back.
    #[error(
        "{dir}: cannot {what}: {source}; make room there, name another directory for state that does not fit into \
         memory (--spill-dir), or raise the memory limit (--memory-limit)"
    )]
    Spill {
        /// Where.
        dir: String,
        /// What was attempted.
        what: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A panic, on a thread of the engine or while a handle was used: a defect in Saltmill or in code given to
    /// it (a sink, a source, an aggregate or process of one's own).
    #[error("{thread} stopped by a panic{}: {message}", .key.as_ref().map(|key| format!(" at key \"{key}\"")).unwrap_or_default())]
    Panicked {
        /// Which thread: `shard 0`, `timer`, `handle 3`.
        thread: String,
        /// The key whose row was at work, readable, if that is known.
        key: Option<String>,
        /// The panic's message.
        message: String,
    },
    /// The engine could not get what it needs from the operating system.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: String,
        /// The system's answer.
        source: std::io::Error,
    },
    /// A checkpoint could not be taken or restored.
    #[error("checkpoint: {0}")]
    Checkpoint(#[from] CheckpointError),
    /// The engine has already stopped, because of an error that was reported elsewhere.
    #[error("the engine has stopped; its run report or error says why")]
    Stopped,
    /// A proof that the engine carries along has failed: a defect in Saltmill, reported instead of a wrong
    /// result.
    #[error("defect: {0}")]
    Defect(String),
    /// Conservation of rows is broken: a defect in Saltmill, reported instead of a wrong result.
    #[error("defect: {rows_in} rows came in but {accounted} are accounted for; please report this")]
    RowsLost {
        /// Rows that came in.
        rows_in: u64,
        /// `aggregated + late + rejected`.
        accounted: u64,
    },
}

/// A result that does not fit its type.
#[derive(Debug, thiserror::Error)]
#[error(
    "{aggregate} of key {key}{} is {value}, which does not fit {data_type}; {advice}",
    window_text(.window.as_deref())
)]
pub struct Overflow {
    /// The aggregate's text, `sum(amount)`.
    pub aggregate: String,
    /// The key, readable.
    pub key: String,
    /// The window `[start, end)`, readable; none in a job without windows.
    pub window: Option<String>,
    /// The exact value.
    pub value: String,
    /// The type it should have fitted.
    pub data_type: String,
    /// What to do.
    pub advice: String,
}

/// An input failed. Says which input, where in it, and what to do.
#[derive(Debug, thiserror::Error)]
#[error("{input}{}: {message}", at(.place.as_ref()))]
pub struct SourceError {
    /// File name or `-`.
    pub input: String,
    /// Line, row group, byte.
    pub place: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

/// The consumer of results failed or went away.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The consumer is gone (a closed pipe, a dropped receiver). Not a fault; the run ends.
    #[error("the consumer of results has gone")]
    Closed,
    /// Writing failed.
    #[error("{0}")]
    Failed(String),
}

fn at(place: Option<&String>) -> String {
    place.map(|p| format!(", {p}")).unwrap_or_default()
}

fn window_text(window: Option<&str>) -> String {
    window.map(|w| format!(" in window {w}")).unwrap_or_default()
}

thread_local! {
    /// The key at which this thread's panic happened, until it is told.
    static BLAMED_KEY: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Notes the key at which a panic on this thread happened, for the error that will tell of it.
pub(crate) fn blame_key(key: String) {
    BLAMED_KEY.replace(Some(key));
}

/// The key noted last on this thread, once.
pub(crate) fn take_blamed_key() -> Option<String> {
    BLAMED_KEY.take()
}

/// What a caught panic said.
pub(crate) fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "without a message".to_owned())
}

fn suggestion(nearest: Option<&String>, available: &[String]) -> String {
    let mut text = String::new();
    if let Some(nearest) = nearest {
        let _ = write!(text, "; did you mean \"{nearest}\"?");
    }
    if available.is_empty() {
        text.push_str("; the input has no columns");
    } else {
        let shown = available.iter().take(20).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = available.len().saturating_sub(20);
        let _ = write!(text, "; it has {shown}");
        if more > 0 {
            let _ = write!(text, " and {more} more");
        }
    }
    text
}

/// The name among `available` closest to `name`, if close enough to be a likely slip.
pub(crate) fn nearest_name(name: &str, available: &[String]) -> Option<String> {
    let limit = (name.chars().count() / 3).max(1);
    available
        .iter()
        .map(|candidate| {
            (edit_distance(&name.to_lowercase(), &candidate.to_lowercase()), candidate)
        })
        .filter(|(distance, _)| *distance <= limit)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, candidate)| candidate.clone())
}

/// Edits that turn one text into the other: characters inserted, removed, replaced, or swapped with
/// their neighbour (optimal string alignment), by the usual matrix, three rows of it.
fn edit_distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut above = Vec::new();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for i in 0..a.len() {
        let mut next = vec![i + 1];
        for j in 0..b.len() {
            let replaced = row[j] + usize::from(a[i] != b[j]);
            let mut least = replaced.min(row[j + 1] + 1).min(next[j] + 1);
            if i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j] {
                let two_above: &Vec<usize> = &above;
                least = least.min(two_above[j - 1] + 1);
            }
            next.push(least);
        }
        above = std::mem::replace(&mut row, next);
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_offered() {
        let names = ["CustomerID".to_owned(), "Country".to_owned()];
        assert_eq!(nearest_name("CustomerId", &names).as_deref(), Some("CustomerID"));
        assert_eq!(nearest_name("Custmer", &names), None);
        assert_eq!(nearest_name("countri", &names).as_deref(), Some("Country"));
        assert_eq!(nearest_name("kye", &["key".to_owned()]).as_deref(), Some("key"));
        assert_eq!(edit_distance("kitten", "sitting"), 3);
        let error = ConfigError::UnknownColumn {
            role: "key".into(),
            name: "countri".into(),
            nearest: Some("Country".into()),
            available: names.to_vec(),
        };
        assert_eq!(
            error.to_string(),
            "key column \"countri\" is not in the input; did you mean \"Country\"?; it has CustomerID, Country"
        );
    }
}
