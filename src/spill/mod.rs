//! State beyond a memory budget: written to files that no other process sees, read back in order to be merged.
//!
//! What leaves memory is a pane as a whole, as a [`Run`]: the rows of its image (`state/pane/image.rs`) in the
//! order of their keys' hashes, cut into *blocks*, each a record batch of an Arrow IPC stream. Key groups are
//! ranges of hashes, so a block is sorted by key group too, and is a section of a checkpoint as it stands.
//!
//! Runs come back through a [`Merge`], the last step of external hash aggregation (Graefe, *Query Evaluation
//! Techniques for Large Databases*, ACM Computing Surveys 25(2), 1993): one block of each run is in memory; the
//! rows up to the least last hash of these blocks are complete, go into a small pane, and leave it as results.
//! Each block is read once, and nothing depends on how keys are distributed. Runs that are too many for one block
//! each are merged into fewer first.
//!
//! **Files.** A *segment* is a file without a name: it is gone with the last run in it, and with the process,
//! however that ends. Segments are filled in turn, so that windows, which die in the order in which they were
//! born, give disk space back.
//!
//! No threads here; a block may be read by another thread than the one that wrote it (checkpoints).

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::buffer::{Buffer, MutableBuffer};
use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::ipc::reader::StreamDecoder;
use arrow::ipc::writer::StreamWriter;

use crate::error::RunError;

mod run;
mod merge;

pub(crate) use merge::{Lane, Merge};
pub(crate) use run::{PaneFormat, Run, RunWriter};

/// Bytes after which a segment is full.
const SEGMENT_BYTES: u64 = if cfg!(test) { 1 << 16 } else { 256 << 20 };

/// Bytes that are written to the system at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// The spill files of one shard.
#[derive(Debug)]
pub(crate) struct SpillFiles {
    dir: Arc<Path>,
    schema: SchemaRef,
    current: Option<Growing>,
    /// What was written so far, and how long writing and reading took.
    pub(crate) stats: SpillStats,
}

/// What spilling came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct SpillStats {
    /// Bytes written.
    pub(crate) bytes: u64,
    /// Panes written, runs merged into others included.
    pub(crate) runs: u64,
    /// Time spent with it.
    pub(crate) time: Duration,
}

impl SpillStats {
    /// Adds what another shard spilled.
    pub(crate) fn add(&mut self, other: &Self) {
        self.bytes += other.bytes;
        self.runs += other.runs;
        self.time += other.time;
    }
}

/// A segment that is being written to.
struct Growing {
    segment: Arc<Segment>,
    stream: StreamWriter<Counted>,
}

impl std::fmt::Debug for Growing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Growing").field("segment", &self.segment).finish_non_exhaustive()
    }
}

/// A file without a name.
#[derive(Debug)]
struct Segment {
    file: File,
    dir: Arc<Path>,
    /// The message at its beginning, without which no other can be read.
    schema: Buffer,
}

/// Counts what goes into a file.
struct Counted {
    out: BufWriter<File>,
    bytes: u64,
}

impl Write for Counted {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.out.write(buf)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// Rows in a segment: one record batch.
#[derive(Debug, Clone)]
pub(crate) struct Block {
    segment: Arc<Segment>,
    start: u64,
    bytes: usize,
    /// How many rows.
    pub(crate) rows: usize,
}

impl SpillFiles {
    /// Files in `dir`, for record batches of this schema; none is made yet.
    pub(crate) fn new(dir: &Path, schema: &SchemaRef) -> Self {
        Self {
            dir: dir.into(),
            schema: SchemaRef::clone(schema),
            current: None,
            stats: SpillStats::default(),
        }
    }

    /// Checks that files can be made in `dir`.
    ///
    /// # Errors
    /// If not.
    pub(crate) fn check(dir: &Path) -> Result<(), RunError> {
        nameless_file(dir).map(drop).map_err(|e| failed(dir, "make a file", e))
    }

    /// Writes a record batch down.
    ///
    /// # Errors
    /// If the system refuses, for want of space mostly.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<Block, RunError> {
        let started = Instant::now();
        let dir = Arc::clone(&self.dir);
        let block = self.try_write(batch).map_err(|e| failed(&dir, "write state to a file", e))?;
        self.stats.bytes += block.bytes as u64;
        self.stats.time += started.elapsed();
        Ok(block)
    }

    fn try_write(&mut self, batch: &RecordBatch) -> io::Result<Block> {
        let mut growing = match self.current.take() {
            Some(growing) => growing,
            None => Growing::new(&self.dir, &self.schema)?,
        };
        let start = growing.stream.get_ref().bytes;
        growing.stream.write(batch).map_err(io_error)?;
        growing.stream.flush().map_err(io_error)?;
        let end = growing.stream.get_ref().bytes;
        let bytes = usize::try_from(end - start).map_err(io::Error::other)?;
        let block =
            Block { segment: Arc::clone(&growing.segment), start, bytes, rows: batch.num_rows() };
        self.current = Some(growing).filter(|_| end < SEGMENT_BYTES);
        Ok(block)
    }
}

impl Growing {
    fn new(dir: &Arc<Path>, schema: &SchemaRef) -> io::Result<Self> {
        let file = nameless_file(dir)?;
        let out = BufWriter::with_capacity(BUFFER_BYTES, file.try_clone()?);
        let mut stream =
            StreamWriter::try_new(Counted { out, bytes: 0 }, schema).map_err(io_error)?;
        stream.flush().map_err(io_error)?;
        let bytes = usize::try_from(stream.get_ref().bytes).map_err(io::Error::other)?;
        let schema = read(&file, 0, bytes)?;
        Ok(Self { segment: Arc::new(Segment { file, dir: Arc::clone(dir), schema }), stream })
    }
}

impl Block {
    /// Bytes in the file, and about as many in memory.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Reads the rows.
    ///
    /// # Errors
    /// If the system refuses, or the file is not what was written.
    pub(crate) fn read(&self) -> Result<RecordBatch, RunError> {
        self.try_read().map_err(|e| failed(&self.segment.dir, "read state back from a file", e))
    }

    /// The same, for whoever explains errors.
    pub(crate) fn try_read(&self) -> io::Result<RecordBatch> {
        let mut decoder = StreamDecoder::new();
        decoder.decode(&mut self.segment.schema.clone()).map_err(io_error)?;
        let mut message = read(&self.segment.file, self.start, self.bytes)?;
        let batch = decoder.decode(&mut message).map_err(io_error)?;
        batch
            .filter(|batch| batch.num_rows() == self.rows)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "it holds something else"))
    }
}

/// A new file in `dir` that nobody else can open: it has a name only for a moment.
fn nameless_file(dir: &Path) -> io::Result<File> {
    /// Files of this process.
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = dir.join(format!(".saltmill-spill-{}-{number}", std::process::id()));
        match File::options().read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Ok(file) => {
                fs::remove_file(&path)?;
                return Ok(file);
            }
            // Left behind by another process of that number, killed in that moment.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
            Err(e) => return Err(e),
        }
    }
}

/// Reads a part of a file, aligned for any column.
fn read(file: &File, start: u64, bytes: usize) -> io::Result<Buffer> {
    let mut buffer = MutableBuffer::from_len_zeroed(bytes);
    file.read_exact_at(&mut buffer, start)?;
    Ok(buffer.into())
}

fn io_error(error: ArrowError) -> io::Error {
    match error {
        ArrowError::IoError(_, error) => error,
        other => io::Error::other(other.to_string()),
    }
}

fn failed(dir: &Path, what: &'static str, source: io::Error) -> RunError {
    RunError::Spill { dir: dir.display().to_string(), what, source }
}
