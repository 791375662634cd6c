//! Arrow IPC: files mapped into memory, streams read by a thread.
//!
//! A record batch is a unit. From an uncompressed file its columns point into the map, nothing is
//! copied; offsets and UTF-8 are checked, since a file is not to be trusted.

use std::fs::File;
use std::io::{BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::Field;
use arrow::ipc::reader::{FileDecoder, StreamReader};

use crate::checkpoint::mapped::{self, MappedIpc};
use crate::error::SourceError;
use crate::io::columnar::{self, BatchUnit, Projection, guarded};
use crate::io::feed::{Feed, Polled, Stop, error};
use crate::io::progress::Progress;
use crate::runtime::source::{Source, Take, Unit};

/// First bytes of an IPC file. A stream begins otherwise.
pub(crate) const MAGIC: &[u8] = b"ARROW1";
/// Batches of a stream that are read ahead.
const AHEAD: usize = 4;

/// An IPC file whose footer was read.
#[derive(Debug)]
pub(crate) struct IpcInput {
    name: String,
    file: MappedIpc,
}

impl IpcInput {
    pub(crate) fn open(name: &str, file: &File) -> Result<Self, SourceError> {
        let map = mapped::map(file).map_err(|e| error(name, e))?;
        let file = guarded(name, || "footer".to_owned(), || MappedIpc::new(map))?;
        Ok(Self { name: name.to_owned(), file })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        self.file.schema().fields().iter().map(|f| f.as_ref().clone()).collect()
    }

    pub(crate) fn into_source(
        self,
        projection: Projection,
        batch_rows: usize,
        progress: Arc<Progress>,
    ) -> Result<IpcSource, SourceError> {
        let decoder = guarded(
            &self.name,
            || "dictionaries".to_owned(),
            || self.file.decoder(Some(projection.read.clone())),
        )?;
        progress.expect(Some((0..self.file.len()).map(|i| self.file.bytes_of(i)).sum()));
        let shared = Shared { input: self, decoder, projection, batch_rows, progress };
        Ok(IpcSource {
            shared: Arc::new(shared),
            next: AtomicU64::new(0),
            first: AtomicU64::new(0),
        })
    }
}

#[derive(Debug)]
struct Shared {
    input: IpcInput,
    decoder: FileDecoder,
    projection: Projection,
    batch_rows: usize,
    progress: Arc<Progress>,
}

impl Shared {
    fn decode(&self, index: usize) -> Result<RecordBatch, SourceError> {
        guarded(
            &self.input.name,
            || format!("record batch {index}"),
            || {
                let batch = self.input.file.decode(&self.decoder, index)?;
                self.projection.apply(&batch)
            },
        )
    }
}

/// A mapped IPC file.
#[derive(Debug)]
pub(crate) struct IpcSource {
    shared: Arc<Shared>,
    next: AtomicU64,
    /// The first batch that is a unit.
    first: AtomicU64,
}

impl Source for IpcSource {
    fn take(&self) -> Result<Take, SourceError> {
        let count = self.shared.input.file.len() as u64;
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < count).then_some(next + 1)
        });
        let Ok(block) = taken else { return Ok(Take::End) };
        let shared = Arc::clone(&self.shared);
        let ticket = block - self.first.load(Ordering::Relaxed);
        Ok(Take::Unit(Box::new(IpcUnit { shared, ticket, block, decoded: None })))
    }

    fn name(&self) -> String {
        self.shared.input.name.clone()
    }

    /// Record batches.
    fn position(&self) -> Option<String> {
        Some(self.next.load(Ordering::Relaxed).to_string())
    }

    fn resume(&self, position: &str) -> Result<(), SourceError> {
        let input = &self.shared.input;
        let batches = input.file.len() as u64;
        let next = columnar::place(&input.name, position, batches, "record batches")?;
        self.first.store(next, Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
        Ok(())
    }
}

/// A record batch of a file, decoded by the worker that took it.
#[derive(Debug)]
struct IpcUnit {
    shared: Arc<Shared>,
    ticket: u64,
    block: u64,
    decoded: Option<BatchUnit>,
}

impl IpcUnit {
    fn decoded(&mut self) -> Result<&mut BatchUnit, SourceError> {
        if self.decoded.is_none() {
            let shared = &self.shared;
            let index = usize::try_from(self.block).unwrap_or(usize::MAX);
            let batch = shared.decode(index)?;
            let bytes = shared.input.file.bytes_of(index);
            let progress = Some((Arc::clone(&shared.progress), bytes));
            let time = shared.projection.time.map(|(index, _)| index);
            let unit = BatchUnit::new(self.ticket, batch, time, shared.batch_rows, progress);
            self.decoded = Some(unit);
        }
        Ok(self.decoded.as_mut().expect("it was decoded above"))
    }
}

impl Unit for IpcUnit {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        self.decoded()?.time_max()
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        self.decoded()?.next_batch()
    }
}

/// An IPC stream whose schema was read.
pub(crate) struct IpcStream {
    name: String,
    live: bool,
    is_file: bool,
    reader: StreamReader<BufReader<Box<dyn Read + Send>>>,
}

impl std::fmt::Debug for IpcStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IpcStream").field("name", &self.name).finish_non_exhaustive()
    }
}

impl IpcStream {
    pub(crate) fn open(
        name: &str,
        reader: Box<dyn Read + Send>,
        (live, is_file): (bool, bool),
    ) -> Result<Self, SourceError> {
        let reader = guarded(
            name,
            || "schema".to_owned(),
            || StreamReader::try_new(BufReader::new(reader), None).map_err(|e| e.to_string()),
        )?;
        Ok(Self { name: name.to_owned(), live, is_file, reader })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        self.reader.schema().fields().iter().map(|f| f.as_ref().clone()).collect()
    }

    pub(crate) fn into_source(
        self,
        projection: Projection,
        batch_rows: usize,
    ) -> Result<IpcStreamSource, SourceError> {
        let time = projection.time.map(|(index, _)| index);
        let (name, live, is_file, mut reader) = (self.name, self.live, self.is_file, self.reader);
        let input = name.clone();
        let feed = Feed::start(&input, AHEAD, move |out| {
            for ticket in 0_u64.. {
                let place = || format!("record batch {ticket}");
                let batch = guarded(&name, place, || match reader.next() {
                    Some(Ok(batch)) => {
                        let batch = batch.project(&projection.read).map_err(|e| e.to_string())?;
                        projection.apply(&batch).map(Some)
                    }
                    Some(Err(e)) => Err(e.to_string()),
                    // A stream may end without its end mark; a cut inside a message is an error.
                    None => Ok(None),
                })?;
                let Some(batch) = batch else { break };
                out.send((ticket, batch))?;
            }
            Ok::<(), Stop>(())
        })?;
        let (first, next) = (AtomicU64::new(0), AtomicU64::new(0));
        Ok(IpcStreamSource { input, feed, live, is_file, time, batch_rows, first, next })
    }
}

/// An IPC stream, read by a thread of its own.
#[derive(Debug)]
pub(crate) struct IpcStreamSource {
    input: String,
    feed: Feed<(u64, RecordBatch)>,
    live: bool,
    is_file: bool,
    time: Option<usize>,
    batch_rows: usize,
    /// The first batch that is a unit, and the next.
    first: AtomicU64,
    next: AtomicU64,
}

impl Source for IpcStreamSource {
    fn take(&self) -> Result<Take, SourceError> {
        Ok(match self.feed.poll()? {
            Polled::Item((ticket, batch)) => {
                self.next.store(ticket + 1, Ordering::Relaxed);
                let ticket = ticket - self.first.load(Ordering::Relaxed);
                let unit = BatchUnit::new(ticket, batch, self.time, self.batch_rows, None);
                Take::Unit(Box::new(unit))
            }
            Polled::Pending => Take::Pending,
            Polled::End => Take::End,
        })
    }

    fn name(&self) -> String {
        self.input.clone()
    }

    /// Record batches.
    fn position(&self) -> Option<String> {
        self.is_file.then(|| self.next.load(Ordering::Relaxed).to_string())
    }

    /// Reads up to there again: a stream has no index.
    fn resume(&self, position: &str) -> Result<(), SourceError> {
        let next = columnar::place(&self.input, position, u64::MAX, "record batches")?;
        for before in 0..next {
            if !matches!(self.feed.wait(None)?, Polled::Item(_)) {
                columnar::place(&self.input, position, before, "record batches")?;
            }
        }
        self.first.store(next, Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
        Ok(())
    }

    fn is_live(&self) -> bool {
        self.live
    }
}
