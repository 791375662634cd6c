//! Outputs of runs that take checkpoints: files that can be cut where one was taken, and continued from there.
//!
//! Text is appended to; a checkpoint notes how long the file was, and a run that goes on from it first cuts the file
//! there. Compressed text begins a new member at each checkpoint, which every tool reads as one. Formats with a
//! footer cannot be continued: their rows go to a *spool* of Arrow IPC streams, one after the other, and the file is
//! made of it when the run has ended.

use std::fs::File;
use std::io::{self, BufWriter, Seek as _, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::StreamReader;
use arrow::ipc::writer::StreamWriter;

use crate::error::SinkError;
use crate::io::format::OutputFormat;
use crate::io::target::Target;
use crate::io::write::{BatchWriter, text_writer};

/// A target that its writer and whoever cuts it have in common.
#[derive(Clone)]
pub(crate) struct SharedTarget(Arc<Mutex<Target>>);

impl SharedTarget {
    pub(crate) fn new(target: Target) -> Self {
        Self(Arc::new(Mutex::new(target)))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Target> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Write for SharedTarget {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.lock().write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.lock().flush()
    }
}

/// A text file of rows that can be cut.
pub struct CutText {
    writer: Box<dyn BatchWriter>,
    target: SharedTarget,
}

/// A spool of rows, for formats that cannot be continued.
pub struct Spool {
    path: PathBuf,
    schema: SchemaRef,
    file: File,
    /// The stream that is being written, if a row came since the last cut.
    stream: Option<StreamWriter<BufWriter<File>>>,
}

impl std::fmt::Debug for CutText {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CutText").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Spool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Spool").field("path", &self.path).finish_non_exhaustive()
    }
}

fn unwritable(path: &Path) -> impl Fn(String) -> SinkError {
    let path = path.display().to_string();
    move |why| SinkError::Failed(format!("{path}: cannot be written: {why}"))
}

impl CutText {
    /// Opens a file: anew, or, in a run that goes on, cut at `length` bytes.
    ///
    /// # Errors
    /// If it cannot be opened, or is shorter than that.
    pub fn open(
        path: &Path,
        format: OutputFormat,
        schema: &SchemaRef,
        length: Option<u64>,
    ) -> Result<Self, SinkError> {
        let compression = format.compression(path).map_err(|e| SinkError::Failed(e.to_string()))?;
        let target = SharedTarget::new(Target::cut_file(path, compression, length)?);
        let writer = text_writer(target.clone(), format, schema, length.unwrap_or(0) == 0);
        Ok(Self { writer, target })
    }

    /// Writes a batch of the file's schema.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        self.writer.write(batch)
    }

    /// Hands everything to the operating system, and says how long the file is then.
    pub fn cut(&mut self) -> Result<u64, SinkError> {
        self.target.lock().cut()
    }

    /// Makes durable what was handed to the operating system.
    pub fn sync(&self) -> Result<(), SinkError> {
        self.target.lock().sync()
    }

    /// Completes the file.
    pub fn finish(self) -> Result<(), SinkError> {
        self.writer.finish()
    }
}

impl Spool {
    /// Opens a spool: anew, or, in a run that goes on, cut at `length` bytes.
    ///
    /// # Errors
    /// If it cannot be opened, or is shorter than that.
    pub fn open(path: &Path, schema: &SchemaRef, length: Option<u64>) -> Result<Self, SinkError> {
        let file = cut_file(path, length)?;
        Ok(Self { path: path.to_owned(), schema: Arc::clone(schema), file, stream: None })
    }

    /// Writes a batch of the spool's schema.
    pub fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        let failed = unwritable(&self.path);
        if self.stream.is_none() {
            let file = self.file.try_clone().map_err(|e| failed(e.to_string()))?;
            let stream = StreamWriter::try_new(BufWriter::new(file), &self.schema);
            self.stream = Some(stream.map_err(|e| failed(e.to_string()))?);
        }
        let stream = self.stream.as_mut().expect("opened above");
        stream.write(batch).map_err(|e| failed(e.to_string()))
    }

    /// Hands everything to the operating system, and says how long the spool is then.
    pub fn cut(&mut self) -> Result<u64, SinkError> {
        let failed = unwritable(&self.path);
        if let Some(stream) = self.stream.take() {
            // Writes the end of the stream.
            let out = stream.into_inner().map_err(|e| failed(e.to_string()))?;
            out.into_inner().map_err(|e| failed(e.to_string()))?;
        }
        self.file.metadata().map(|file| file.len()).map_err(|e| failed(e.to_string()))
    }

    /// Makes durable what was handed to the operating system.
    pub fn sync(&self) -> Result<(), SinkError> {
        self.file.sync_all().map_err(|e| unwritable(&self.path)(e.to_string()))
    }

    /// Gives all rows again. The spool stays until nobody can need it any more.
    pub fn replay(
        mut self,
        each: &mut dyn FnMut(RecordBatch) -> Result<(), SinkError>,
    ) -> Result<(), SinkError> {
        let length = self.cut()?;
        let path = self.path.display().to_string();
        let failed = |why: String| SinkError::Failed(format!("{path}: cannot be read: {why}"));
        let mut file = File::open(&self.path).map_err(|e| failed(e.to_string()))?;
        loop {
            let at = file.stream_position().map_err(|e| failed(e.to_string()))?;
            if at >= length {
                break;
            }
            // Unbuffered between streams, so that the next begins where this ends.
            let mut stream =
                StreamReader::try_new(&mut file, None).map_err(|e| failed(e.to_string()))?;
            stream.try_for_each(|batch| each(batch.map_err(|e| failed(e.to_string()))?))?;
        }
        Ok(())
    }
}

/// Opens a file to append to: emptied, or cut at `length` bytes.
pub(crate) fn cut_file(path: &Path, length: Option<u64>) -> Result<File, SinkError> {
    let failed = unwritable(path);
    let Some(length) = length else {
        return File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .open(path)
            .map_err(|e| failed(e.to_string()));
    };
    let file = File::options().create(length == 0).truncate(false).write(true).open(path);
    let mut file = file.map_err(|e| failed(e.to_string()))?;
    let metadata = file.metadata().map_err(|e| failed(e.to_string()))?;
    if metadata.is_file() {
        if metadata.len() < length {
            return Err(failed(format!(
                "it has {} bytes, but {length} were written before the checkpoint; it was changed since",
                metadata.len()
            )));
        }
        file.set_len(length).map_err(|e| failed(e.to_string()))?;
        file.seek(SeekFrom::Start(length)).map_err(|e| failed(e.to_string()))?;
    }
    Ok(file)
}
