//! A text input as a [`Source`]: chunks as units, decoded on the worker's thread.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::{ArrayRef, BooleanArray, RecordBatch, RecordBatchOptions};
use arrow::compute::filter;
use arrow::datatypes::{DataType, SchemaRef, TimeUnit};

use crate::error::SourceError;
use crate::io::feed::{self, Feed, Polled};
use crate::io::reject::{Reason, RejectCounts, RejectLog, Rejected};
use crate::io::text::chunker::{Chunk, count_lines};
use crate::io::text::columns::{self, Bad, ColumnPlan};
use crate::io::text::csv::{self, CsvLayout};
use crate::io::text::field::{BrokenBy, Rows, Texts};
use crate::io::text::ndjson::{self, JsonLayout};
use crate::io::text::sample::TextInput;
use crate::io::text::value::{self, Fault};
use crate::io::time;
use crate::runtime::source::{Source, Take, Unit};

/// Longest value shown in a message, in bytes.
const SHOWN_MAX: usize = 60;

/// How records are laid out.
#[derive(Debug)]
pub(crate) enum Layout {
    Csv(CsvLayout),
    Json(JsonLayout),
}

/// How the chunks of one input become batches.
#[derive(Debug)]
pub(crate) struct TextPlan {
    pub(crate) input: String,
    pub(crate) layout: Layout,
    pub(crate) columns: Vec<ColumnPlan>,
    pub(crate) schema: SchemaRef,
    /// The event-time column, and the unit if it is read as integers.
    pub(crate) time: Option<(usize, Option<TimeUnit>)>,
    pub(crate) batch_rows: usize,
    pub(crate) rejects: Arc<RejectLog>,
    pub(crate) counts: RejectCounts,
}

/// A text input.
#[derive(Debug)]
pub(crate) struct TextSource {
    plan: Arc<TextPlan>,
    live: bool,
    is_file: bool,
    /// Number of the first chunk that is a unit, and where the last one handed out ends.
    first: AtomicU64,
    end: AtomicU64,
    front: Mutex<VecDeque<Chunk>>,
    front_is_empty: AtomicBool,
    feed: Feed<Chunk>,
}

impl TextSource {
    pub(crate) fn new(input: TextInput, plan: TextPlan) -> Self {
        Self {
            plan: Arc::new(plan),
            live: input.live,
            is_file: input.is_file,
            first: AtomicU64::new(0),
            end: AtomicU64::new(0),
            front_is_empty: AtomicBool::new(input.front.is_empty()),
            front: Mutex::new(input.front),
            feed: input.feed,
        }
    }

    fn next_of_front(&self) -> Option<Chunk> {
        if self.front_is_empty.load(Ordering::Acquire) {
            return None;
        }
        let chunk = self.front.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
        if chunk.is_none() {
            self.front_is_empty.store(true, Ordering::Release);
        }
        chunk
    }
}

impl Source for TextSource {
    fn take(&self) -> Result<Take, SourceError> {
        let chunk = match self.next_of_front() {
            Some(chunk) => chunk,
            None => match self.feed.poll()? {
                Polled::Item(chunk) => chunk,
                Polled::Pending => return Ok(Take::Pending),
                Polled::End => return Ok(Take::End),
            },
        };
        self.end.store(chunk.end(), Ordering::Relaxed);
        let ticket = chunk.ticket - self.first.load(Ordering::Relaxed);
        Ok(Take::Unit(Box::new(TextUnit::new(Arc::clone(&self.plan), ticket, chunk))))
    }

    fn rejected(&self) -> Vec<(String, u64)> {
        self.plan.counts.totals()
    }

    fn name(&self) -> String {
        self.plan.input.clone()
    }

    /// Bytes of the uncompressed text.
    fn position(&self) -> Option<String> {
        self.is_file.then(|| self.end.load(Ordering::Relaxed).to_string())
    }

    /// Reads up to there again: quotes and line numbers depend on everything before.
    fn resume(&self, position: &str) -> Result<(), SourceError> {
        let wrong = |why: String| Err(feed::error(&self.plan.input, why));
        let Ok(position) = position.parse::<u64>() else {
            return wrong(format!("has no place \"{position}\""));
        };
        let mut end = 0;
        while end < position {
            let chunk = match self.next_of_front() {
                Some(chunk) => chunk,
                None => match self.feed.wait(None)? {
                    Polled::Item(chunk) => chunk,
                    _ => {
                        return wrong(format!(
                            "has {end} bytes, fewer than the {position} that were read before the \
                             checkpoint; is it the same file?"
                        ));
                    }
                },
            };
            end = chunk.end();
            self.first.store(chunk.ticket + 1, Ordering::Relaxed);
            if end > position {
                self.first.store(chunk.ticket, Ordering::Relaxed);
                let start = usize::try_from(position - chunk.offset).expect("inside the chunk");
                let mut front = self.front.lock().unwrap_or_else(PoisonError::into_inner);
                front.push_front(Chunk { start: start.max(chunk.start), ..chunk });
                self.front_is_empty.store(false, Ordering::Release);
            }
        }
        self.end.store(position, Ordering::Relaxed);
        Ok(())
    }

    fn is_live(&self) -> bool {
        self.live
    }
}

/// A chunk's bytes, as text if all of them are.
#[derive(Debug)]
enum Content {
    Text(String),
    Bytes(Vec<u8>),
}

impl Content {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Bytes(bytes) => bytes,
        }
    }

    fn texts<'a>(&'a self, scratch: &'a [u8]) -> Texts<'a> {
        let utf8 = match self {
            Self::Text(text) => Some(text.as_str()),
            Self::Bytes(_) => None,
        };
        Texts { chunk: self.bytes(), utf8, scratch }
    }
}

/// A chunk on its way to batches.
#[derive(Debug)]
struct TextUnit {
    plan: Arc<TextPlan>,
    ticket: u64,
    first_line: u64,
    content: Content,
    pos: usize,
    rows: Rows,
    /// Batches decoded ahead, to know the largest time.
    ready: VecDeque<RecordBatch>,
}

impl TextUnit {
    fn new(plan: Arc<TextPlan>, ticket: u64, chunk: Chunk) -> Self {
        let content = match String::from_utf8(chunk.bytes) {
            Ok(text) => Content::Text(text),
            Err(e) => Content::Bytes(e.into_bytes()),
        };
        let rows = Rows::new(plan.columns.len());
        let (first_line, pos) = (chunk.first_line, chunk.start);
        Self { plan, ticket, first_line, content, pos, rows, ready: VecDeque::new() }
    }

    /// Decodes the next rows; `None` at the end of the chunk.
    fn decode(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        loop {
            self.rows.clear();
            let (bytes, limit) = (self.content.bytes(), self.plan.batch_rows);
            self.pos = match &self.plan.layout {
                Layout::Csv(l) => csv::split(l, bytes, self.pos, limit, &mut self.rows),
                Layout::Json(l) => ndjson::split(l, bytes, self.pos, limit, &mut self.rows),
            };
            if self.rows.len() == 0 && self.rows.broken.is_empty() {
                return Ok(None);
            }
            let batch = self.batch()?;
            if batch.num_rows() > 0 {
                return Ok(Some(batch));
            }
        }
    }

    fn batch(&self) -> Result<RecordBatch, SourceError> {
        let texts = self.content.texts(&self.rows.scratch);
        let mut bad = Vec::new();
        let convert = |(index, plan)| columns::column(plan, index, &self.rows, &texts, &mut bad);
        let mut arrays: Vec<ArrayRef> = self.plan.columns.iter().enumerate().map(convert).collect();
        let mut row_count = self.rows.len();
        if !bad.is_empty() {
            bad.sort_by_key(|b| (b.row, b.column));
            bad.dedup_by_key(|b| b.row);
            row_count -= bad.len();
            arrays = self.without(&arrays, &bad)?;
        }
        if !(bad.is_empty() && self.rows.broken.is_empty()) {
            self.reject(&bad, &texts);
        }
        if let Some((index, Some(unit))) = self.plan.time {
            arrays[index] = time::integers_as_timestamps(&arrays[index], unit)
                .map_err(|e| self.defect(&e.to_string()))?;
        }
        let options = RecordBatchOptions::new().with_row_count(Some(row_count));
        RecordBatch::try_new_with_options(Arc::clone(&self.plan.schema), arrays, &options)
            .map_err(|e| self.defect(&e.to_string()))
    }

    fn without(&self, arrays: &[ArrayRef], bad: &[Bad]) -> Result<Vec<ArrayRef>, SourceError> {
        let mut keep = vec![true; self.rows.len()];
        for b in bad {
            keep[b.row] = false;
        }
        let keep = BooleanArray::from(keep);
        let filtered: Result<Vec<_>, _> = arrays.iter().map(|a| filter(a, &keep)).collect();
        filtered.map_err(|e| self.defect(&e.to_string()))
    }

    #[cold]
    fn defect(&self, what: &str) -> SourceError {
        SourceError {
            input: self.plan.input.clone(),
            place: Some(format!("chunk that begins in line {}", self.first_line)),
            message: format!("defect in Saltmill, please report it: {what}"),
        }
    }

    /// Hands the rows that have no place in the batch to the log, in the order of the input.
    #[cold]
    fn reject(&self, bad: &[Bad], texts: &Texts<'_>) {
        let broken = self.rows.broken.iter().map(|b| (b.place, Err(&b.fault)));
        let bad = bad.iter().map(|b| (self.rows.places[b.row], Ok(b)));
        let mut all: Vec<_> = broken.chain(bad).collect();
        all.sort_by_key(|(place, _)| place.0);
        let (mut at, mut line) = (0, self.first_line);
        let mut rejected = Vec::with_capacity(all.len());
        for ((start, end), fault) in all {
            let (start, end) = (start as usize, end as usize);
            line += count_lines(&texts.chunk[at..start]);
            at = start;
            let (column, reason, detail) = match fault {
                Err(broken) => describe_broken(broken),
                Ok(bad) => {
                    let plan = &self.plan.columns[bad.column];
                    let field = self.rows.fields[bad.row * self.rows.width + bad.column];
                    let text = if field.is_null() { &[] } else { texts.bytes(field) };
                    let (reason, detail) = describe(plan, bad.fault, text);
                    (Some(plan.name.clone()), reason, detail)
                }
            };
            let row = texts.chunk[start..end].to_vec();
            let input = self.plan.input.clone();
            rejected.push(Rejected { input, line, column, reason, detail, row });
        }
        self.plan.rejects.record(&self.plan.counts, rejected);
    }
}

impl Unit for TextUnit {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        let Some((index, _)) = self.plan.time else { return Ok(None) };
        let mut latest = None;
        while let Some(batch) = self.decode()? {
            latest = latest.max(time::max_of(batch.column(index)));
            self.ready.push_back(batch);
        }
        Ok(latest)
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        match self.ready.pop_front() {
            Some(batch) => Ok(Some(batch)),
            None => self.decode(),
        }
    }
}

fn describe_broken(broken: &BrokenBy) -> (Option<String>, Reason, String) {
    match broken {
        BrokenBy::Ragged { found, expected } => {
            let detail = format!("the row has {found} fields, but the header has {expected}");
            (None, Reason::RaggedRow, detail)
        }
        BrokenBy::Json(why) => (None, Reason::BadJson, why.clone()),
    }
}

/// Says what is wrong with a value and what would take it.
fn describe(plan: &ColumnPlan, fault: Fault, text: &[u8]) -> (Reason, String) {
    let shown = shown(text);
    let data_type = &plan.data_type;
    let reason = match (fault, plan.is_time) {
        (Fault::NotUtf8, _) => Reason::BadUtf8,
        (Fault::Null, _) => Reason::NullTime,
        (Fault::OutOfRange, true) => Reason::TimeOutOfRange,
        (_, true) => Reason::BadTime,
        (_, false) => Reason::BadValue,
    };
    let mut detail = match fault {
        Fault::Null => "the row has no event time".to_owned(),
        Fault::NotUtf8 => format!("\"{shown}\" is not UTF-8"),
        Fault::NotOfType => format!("\"{shown}\" is no {data_type}"),
        Fault::OutOfRange => format!("\"{shown}\" is outside the range of {data_type}"),
        Fault::TooFine => format!("\"{shown}\" has more digits than {data_type} keeps"),
        Fault::LeadingZero => format!("\"{shown}\" has a leading zero, as codes have"),
        Fault::Offset => format!("\"{shown}\" has an offset from UTC, the column's type has none"),
    };
    if let Some(better) = better_type(plan, fault, text) {
        let name = &plan.name;
        let origin = if plan.inferred { " (the type was inferred from a sample)" } else { "" };
        let _ = write!(detail, "{origin}; --schema \"{name}:{better}\" would take it");
    }
    (reason, detail)
}

/// A type that can take the value.
fn better_type(plan: &ColumnPlan, fault: Fault, text: &[u8]) -> Option<&'static str> {
    let is_stamp = matches!(plan.data_type, DataType::Timestamp(..));
    match fault {
        Fault::Null => None,
        Fault::NotUtf8 => Some("binary"),
        Fault::TooFine if is_stamp => Some("timestamp(ns)"),
        Fault::OutOfRange if is_stamp => Some("timestamp(us)"),
        Fault::Offset => Some("timestamp(us, UTC)"),
        _ if plan.is_time => None,
        Fault::OutOfRange if value::int128(value::trim(text)).is_ok() => Some("decimal(38,0)"),
        Fault::NotOfType if value::float64(value::trim(text)).is_ok() => Some("float64"),
        _ => Some("utf8"),
    }
}

fn shown(text: &[u8]) -> String {
    let cut = &text[..text.len().min(SHOWN_MAX)];
    let dots = if cut.len() < text.len() { "..." } else { "" };
    format!("{}{dots}", String::from_utf8_lossy(cut).escape_debug())
}
