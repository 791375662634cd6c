//! The manifest: what a checkpoint is of, and which files belong to it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::error::CheckpointError;

/// Version of the layout of checkpoints that this program writes, and the only one that it reads.
pub const FORMAT: u32 = 1;

/// The function that gives keys their key groups. It stands in every checkpoint: state of another one would be
/// looked for in the wrong shards.
const KEY_GROUP_FUNCTION: &str = "saltmill-1";

/// What precedes the manifest's own checksum, on its last line.
const SUM_MARK: &str = "crc32 ";

/// What a checkpoint is of. Times are in the unit of the job's event-time column.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of the layout.
    pub format: u32,
    /// Number of the checkpoint; they count up in their directory.
    pub id: u64,
    /// Version of the program that wrote it.
    pub saltmill: String,
    /// When it was begun, in milliseconds since 1970-01-01 00:00 UTC, by that machine's clock.
    pub begun_ms: u64,
    /// The run had ended: there is nothing to go on with.
    pub finished: bool,
    /// What must be the same in a job that goes on from it.
    pub job: JobState,
    /// Shards that wrote it.
    pub workers: usize,
    /// Rows so far.
    pub rows: RowTotals,
    /// How far time has come.
    pub time: TimeState,
    /// Where each input stands, in their order. Empty in a run that is fed through handles.
    pub inputs: Vec<InputState>,
    /// Where each output stands.
    pub outputs: Vec<OutputState>,
    /// Keys that are hot.
    pub hot_keys: Vec<HotKeyState>,
    /// Files of state.
    pub files: Vec<StateFile>,
}

/// What decides on the layout and meaning of state.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobState {
    /// The function from keys to key groups.
    pub key_groups: String,
    /// Number of key groups.
    pub max_parallelism: u32,
    /// Names and types of the key columns.
    pub keys: Vec<(String, String)>,
    /// Event-time column and its unit.
    pub time: Option<(String, String)>,
    /// The windows.
    pub windows: String,
    /// Texts of the aggregates, in the order asked for, and the types of what they read.
    pub aggregates: Vec<String>,
    /// Words of a row, keys not counted.
    pub words: usize,
}

/// Rows of the run up to a checkpoint.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowTotals {
    /// Rows that came in; those that inputs rejected included.
    pub rows_in: u64,
    /// Rows in the state or in results.
    pub aggregated: u64,
    /// Late rows, by reason.
    pub late: BTreeMap<String, u64>,
    /// Rows that could not be used, by reason.
    pub rejected: BTreeMap<String, u64>,
    /// Windows closed, summed over shards.
    pub windows_emitted: u64,
    /// Result rows.
    pub rows_out: u64,
}

/// How far time has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeState {
    /// Windows that end at or before this are closed in all shards; none: the beginning of time.
    pub passed: Option<i64>,
    /// Windows that end at or before this may be closed in some.
    pub closed_to: Option<i64>,
}

/// Where an input stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputState {
    /// Its name.
    pub name: String,
    /// Where to go on reading, in the source's own words; none: it cannot be read from any place but where it
    /// is (a pipe).
    pub position: Option<String>,
    /// It has ended.
    pub ended: bool,
    /// The largest event time of the rows before the position; none: no row had one.
    pub max_time: Option<i64>,
    /// Rows that lie before this are late, since the others went on without this input.
    pub floor: Option<i64>,
}

/// Where an output stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputState {
    /// Which one: a name that the sink chose.
    pub name: String,
    /// Where to go on writing, in the sink's own words.
    pub position: String,
}

/// A key that is hot.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HotKeyState {
    /// Hash of the key.
    pub hash: u64,
    /// A word of one of its sampled rows.
    pub example: u64,
    /// Its share of the rows when it was last looked at, and bounds.
    pub share: f64,
    /// See [`HotKeyState::share`].
    pub share_low: f64,
    /// See [`HotKeyState::share`].
    pub share_high: f64,
}

/// A file of state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateFile {
    /// Its name in the checkpoint's folder.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// CRC-32 (ISO 3309) of its bytes.
    pub crc32: u32,
    /// What its record batches are, in their order.
    pub sections: Vec<Section>,
}

/// A record batch of a file of state: the keys of one pane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Section {
    /// Which part of the state.
    pub kind: SectionKind,
    /// The watermark at which it is used next.
    pub point: i64,
    /// End of the first window it counts in.
    pub first: i64,
    /// End of the last window it counts in.
    pub last: i64,
    /// Keys.
    pub rows: u64,
}

/// Which part of a shard's state a section is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SectionKind {
    /// Rows of windows that are open.
    Open,
    /// A result that was given and may still be corrected; `last` is the end of its window.
    Given,
    /// Open sessions.
    Sessions,
    /// State and timers of a keyed process.
    Process,
}

impl RowTotals {
    /// These rows and those.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        self.rows_in += other.rows_in;
        self.aggregated += other.aggregated;
        self.windows_emitted += other.windows_emitted;
        self.rows_out += other.rows_out;
        for (mine, others) in [(&mut self.late, &other.late), (&mut self.rejected, &other.rejected)]
        {
            for (reason, rows) in others {
                *mine.entry(reason.clone()).or_default() += rows;
            }
        }
        self
    }
}

impl JobState {
    /// Says which function gives keys their groups.
    pub(crate) fn key_group_function() -> String {
        KEY_GROUP_FUNCTION.to_owned()
    }

    /// Whether state of `self` can be used by a job `now`; if not, why.
    ///
    /// # Errors
    /// Names the first thing that differs.
    pub fn check(&self, now: &Self) -> Result<(), CheckpointError> {
        let text = |pairs: &[(String, String)]| {
            pairs
                .iter()
                .map(|(name, kind)| format!("{name}: {kind}"))
                .collect::<Vec<_>>()
                .join(", ")
        };
        let time = |time: &Option<(String, String)>| {
            time.as_ref()
                .map_or_else(|| "none".to_owned(), |(name, unit)| format!("{name} in {unit}"))
        };
        let parts = [
            ("key-group function", self.key_groups.clone(), now.key_groups.clone()),
            ("max parallelism", self.max_parallelism.to_string(), now.max_parallelism.to_string()),
            ("key columns", text(&self.keys), text(&now.keys)),
            ("event time", time(&self.time), time(&now.time)),
            ("windows", self.windows.clone(), now.windows.clone()),
            ("aggregates", self.aggregates.join(", "), now.aggregates.join(", ")),
            ("words of state", self.words.to_string(), now.words.to_string()),
        ];
        for (what, saved, now) in parts {
            if saved != now {
                return Err(CheckpointError::OtherJob { what, saved, now });
            }
        }
        Ok(())
    }
}

/// What every version of a manifest has.
#[derive(Deserialize)]
struct Version {
    format: u32,
}

impl Manifest {
    /// The manifest as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and texts")
    }

    /// The manifest as text, with its checksum.
    pub(crate) fn to_text(&self) -> String {
        let text = self.to_json() + "\n";
        let sum = crc32fast::hash(text.as_bytes());
        text + &format!("{SUM_MARK}{sum:08x}\n")
    }

    /// Reads what [`Manifest::to_text`] wrote; says what is wrong if it is anything else.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, String> {
        const DAMAGED: &str = "it is damaged or was changed by hand";
        let text = std::str::from_utf8(bytes).map_err(|_| DAMAGED)?;
        let (body, sum) = text
            .strip_suffix('\n')
            .and_then(|text| text.rsplit_once(SUM_MARK))
            .ok_or("it is cut off, or no manifest")?;
        if format!("{:08x}", crc32fast::hash(body.as_bytes())) != sum {
            return Err(DAMAGED.to_owned());
        }
        // The version first: what a later one adds is not to be understood here.
        let version: Version = serde_json::from_str(body).map_err(|e| e.to_string())?;
        if version.format != FORMAT {
            return Err(format!(
                "it has format {}, this program reads format {FORMAT}; use the program that wrote it, \
                 or a newer one",
                version.format
            ));
        }
        serde_json::from_str(body).map_err(|e| e.to_string())
    }

    /// Keys in the state, each counted once for each pane it is in.
    pub fn keys(&self) -> u64 {
        self.files.iter().flat_map(|file| &file.sections).map(|section| section.rows).sum()
    }

    /// Bytes of the files of state.
    pub fn state_bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }
}
