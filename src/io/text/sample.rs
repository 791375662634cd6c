//! Opens a text input: starts its reader, takes a sample, finds names and types.
//!
//! The sample is not read twice: its chunks are kept and become the first units of the input. Of a
//! plain file also a block in the middle and one at the end are looked at, since types may change
//! late (a price list whose first fraction stands in the last third).

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use memchr::{memchr, memrchr};

use crate::error::SourceError;
use crate::io::feed::{Feed, Polled, error};
use crate::io::text::chunker::{self, BOM, Chunk, Cutting, count_lines};
use crate::io::text::csv::{self, CsvLayout, UNWANTED};
use crate::io::text::field::{Rows, Texts};
use crate::io::text::infer::Guess;
use crate::io::text::ndjson::{self, Value};

/// Rows that the sample of a file has at least, and of a pipe at most.
const ROWS_FILE: u64 = 10_000;
const ROWS_LIVE: u64 = 1_000;
/// How long a pipe is listened to after its first row.
const LISTEN: Duration = Duration::from_millis(200);
/// Size of the blocks in the middle and at the end.
const BLOCK: usize = 256 << 10;
/// Values kept to try a time format on.
const TIME_TEXTS: usize = 1_000;
const COLUMNS_MAX: usize = UNWANTED as usize;

/// What kind of text it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    /// Fields with this delimiter.
    Csv(u8),
    Ndjson,
}

/// How to open.
pub(crate) struct Opening<'a> {
    pub(crate) name: &'a str,
    pub(crate) dialect: Dialect,
    pub(crate) live: bool,
    /// Whether it has the same bytes whenever it is opened.
    pub(crate) is_file: bool,
    pub(crate) chunk_bytes: usize,
    /// Chunks read ahead.
    pub(crate) ahead: usize,
    pub(crate) sample_bytes: usize,
    pub(crate) null_text: Option<&'a str>,
    /// The columns whose types matter; none means all.
    pub(crate) wanted: Option<&'a [String]>,
    /// The column of which values are kept to try a time format on.
    pub(crate) formatted: Option<&'a str>,
    /// The same file once more, if it can be read at any place.
    pub(crate) anywhere: Option<(File, u64)>,
}

/// A text input that has begun.
#[derive(Debug)]
pub(crate) struct TextInput {
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    pub(crate) live: bool,
    pub(crate) is_file: bool,
    /// Names of the header, or of the objects in the sample in order of appearance.
    pub(crate) names: Vec<String>,
    pub(crate) guesses: Vec<Guess>,
    pub(crate) time_texts: Vec<Vec<u8>>,
    /// Chunks that were taken for the sample.
    pub(crate) front: VecDeque<Chunk>,
    pub(crate) feed: Feed<Chunk>,
}

/// Opens and samples. Waits for the first row of a pipe.
pub(crate) fn open(
    reader: Box<dyn Read + Send>,
    opening: &Opening<'_>,
) -> Result<TextInput, SourceError> {
    let quoted_by = match opening.dialect {
        Dialect::Csv(delimiter) => Some(delimiter),
        Dialect::Ndjson => None,
    };
    let cutting = Cutting { quoted_by, chunk_bytes: opening.chunk_bytes, live: opening.live };
    let input = opening.name.to_owned();
    let feed = Feed::start(opening.name, opening.ahead, move |out| {
        chunker::run(&input, reader, &cutting, out)
    })?;
    let mut sample = Sample::new(opening);
    let mut front = VecDeque::new();
    sample.collect(&feed, &mut front)?;
    for chunk in &front {
        sample.look(&chunk.bytes[chunk.start..], true);
    }
    let first_bytes: usize = front.iter().map(|c| c.bytes.len()).sum();
    sample.look_elsewhere(first_bytes as u64);
    Ok(TextInput {
        name: opening.name.to_owned(),
        dialect: opening.dialect,
        live: opening.live,
        is_file: opening.is_file,
        names: sample.names,
        guesses: sample.guesses,
        time_texts: sample.time_texts,
        front,
        feed,
    })
}

struct Sample<'a> {
    opening: &'a Opening<'a>,
    header_found: bool,
    names: Vec<String>,
    guesses: Vec<Guess>,
    time_texts: Vec<Vec<u8>>,
    /// Positions of the names, for objects.
    index: HashMap<Vec<u8>, usize>,
}

impl<'a> Sample<'a> {
    fn new(opening: &'a Opening<'a>) -> Self {
        Self {
            opening,
            header_found: opening.dialect == Dialect::Ndjson,
            names: Vec::new(),
            guesses: Vec::new(),
            time_texts: Vec::new(),
            index: HashMap::new(),
        }
    }

    /// Takes chunks until there is enough to judge by.
    fn collect(
        &mut self,
        feed: &Feed<Chunk>,
        front: &mut VecDeque<Chunk>,
    ) -> Result<(), SourceError> {
        let (mut rows, mut bytes) = (0_u64, 0_usize);
        let mut deadline: Option<Instant> = None;
        loop {
            let timeout = deadline.map(|d| d.saturating_duration_since(Instant::now()));
            let Polled::Item(mut chunk) = feed.wait(timeout)? else { break };
            if front.is_empty() && chunk.ticket == 0 && chunk.bytes.starts_with(BOM) {
                chunk.start = BOM.len();
            }
            if !self.header_found {
                self.header(&mut chunk)?;
            }
            rows += count_lines(&chunk.bytes[chunk.start..]);
            bytes += chunk.bytes.len();
            front.push_back(chunk);
            let enough = if self.opening.live {
                if rows > 0 && deadline.is_none() {
                    deadline = Some(Instant::now() + LISTEN);
                }
                rows >= ROWS_LIVE
            } else {
                let target = self.opening.sample_bytes;
                (bytes >= target && rows >= ROWS_FILE) || bytes >= target.saturating_mul(8)
            };
            if enough {
                break;
            }
        }
        if self.header_found {
            return Ok(());
        }
        let message = "is empty: no header; its first line must name the columns".to_owned();
        Err(error(self.opening.name, message))
    }

    /// Reads the header off the front of a chunk, unless the chunk has only empty lines.
    fn header(&mut self, chunk: &mut Chunk) -> Result<(), SourceError> {
        let Dialect::Csv(delimiter) = self.opening.dialect else { return Ok(()) };
        chunk.start = csv::skip_empty_lines(&chunk.bytes, chunk.start);
        if chunk.start == chunk.bytes.len() {
            return Ok(());
        }
        let (names, next) = csv::owned_record(&chunk.bytes, chunk.start, delimiter);
        if names.len() > COLUMNS_MAX {
            let message =
                format!("has {} columns; at most {COLUMNS_MAX} are possible", names.len());
            return Err(error(self.opening.name, message));
        }
        for name in names {
            let name = String::from_utf8(name).map_err(|_| SourceError {
                input: self.opening.name.to_owned(),
                place: Some("line 1".to_owned()),
                message: "the header is not UTF-8; convert the file, for example with iconv".into(),
            })?;
            self.names.push(name);
        }
        self.guesses = vec![Guess::EMPTY; self.names.len()];
        chunk.start = next;
        self.header_found = true;
        Ok(())
    }

    /// Looks at whole records. `certain`: they begin where a record begins.
    fn look(&mut self, bytes: &[u8], certain: bool) {
        match self.opening.dialect {
            Dialect::Csv(delimiter) => self.look_at_csv(bytes, delimiter, certain),
            Dialect::Ndjson => self.look_at_ndjson(bytes),
        }
    }

    fn is_wanted(&self, name: &str) -> bool {
        self.opening.wanted.is_none_or(|wanted| wanted.iter().any(|w| w == name))
    }

    fn look_at_csv(&mut self, bytes: &[u8], delimiter: u8, certain: bool) {
        let mut columns = Vec::new();
        let mut slots = vec![UNWANTED; self.names.len()];
        for (index, name) in self.names.iter().enumerate() {
            if self.is_wanted(name)
                && let Ok(slot) = u16::try_from(columns.len())
            {
                slots[index] = slot;
                columns.push(index);
            }
        }
        let null_text = self.opening.null_text.map(|t| t.as_bytes().to_vec());
        let layout = CsvLayout { delimiter, slots, width: columns.len(), null_text };
        let mut rows = Rows::new(columns.len());
        csv::split(&layout, bytes, 0, usize::MAX, &mut rows);
        if !certain && !rows.broken.is_empty() && memchr(b'"', bytes).is_some() {
            // It may have begun inside a quoted field, so all of it may be misread.
            return;
        }
        let texts = Texts { chunk: bytes, utf8: None, scratch: &rows.scratch };
        for (slot, &index) in columns.iter().enumerate() {
            let keep = self.opening.formatted == Some(self.names[index].as_str());
            for field in rows.column(slot).filter(|f| !f.is_null()) {
                let text = texts.bytes(field);
                self.guesses[index].see(text);
                if keep && self.time_texts.len() < TIME_TEXTS {
                    self.time_texts.push(text.to_vec());
                }
            }
        }
    }

    fn look_at_ndjson(&mut self, bytes: &[u8]) {
        let mut pos = 0;
        while pos < bytes.len() {
            let end = memchr(b'\n', &bytes[pos..]).map_or(bytes.len(), |at| pos + at);
            let (start, stop) = ndjson::content_of(bytes, pos, end);
            pos = end + 1;
            if start == stop {
                continue;
            }
            let mut seen = Vec::new();
            let outcome = ndjson::object(&bytes[..stop], start, |name, value| {
                seen.push((name.to_vec(), value));
                Ok(())
            });
            if outcome.is_ok() {
                for (name, value) in seen {
                    self.see_member(name, value, bytes);
                }
            }
        }
    }

    fn see_member(&mut self, name: Vec<u8>, value: Value, bytes: &[u8]) {
        let index = if let Some(&index) = self.index.get(&name) {
            index
        } else {
            let Ok(text) = String::from_utf8(name.clone()) else { return };
            if self.names.len() >= COLUMNS_MAX {
                return;
            }
            self.names.push(text);
            self.guesses.push(Guess::EMPTY);
            self.index.insert(name, self.names.len() - 1);
            self.names.len() - 1
        };
        let guess = &mut self.guesses[index];
        let text = match value {
            Value::Null => return,
            Value::Boolean { .. } => return guess.see_boolean(),
            Value::Nested { .. } => return guess.see_nested(),
            Value::Number { start, end } => {
                guess.see_number(&bytes[start..end]);
                &bytes[start..end]
            }
            Value::Text { start, end, .. } => {
                guess.see_text(&bytes[start..end]);
                &bytes[start..end]
            }
        };
        let keep = self.opening.formatted == Some(self.names[index].as_str());
        if keep && self.time_texts.len() < TIME_TEXTS {
            self.time_texts.push(text.to_vec());
        }
    }

    /// Looks at a block in the middle and one at the end, if they are behind what was looked at.
    fn look_elsewhere(&mut self, already: u64) {
        let Some((file, len)) = &self.opening.anywhere else { return };
        let mut block = vec![0; BLOCK];
        for at in [len / 2, len.saturating_sub(BLOCK as u64)] {
            if at <= already {
                continue;
            }
            // An unreadable block is found by the reader, with its place.
            let Ok(read) = file.read_at(&mut block, at) else { continue };
            let block = &block[..read];
            if let (Some(first), Some(last)) = (memchr(b'\n', block), memrchr(b'\n', block)) {
                self.look(&block[first + 1..=last.max(first)], false);
            }
        }
    }
}
