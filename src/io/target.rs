//! Where bytes go, and what went wrong there.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use flate2::write::GzEncoder;

use crate::error::SinkError;
use crate::io::cut::cut_file;
use crate::io::format::Compression;

const BUFFER: usize = 64 << 10;

/// An output.
pub(crate) struct Target {
    out: BufWriter<Watched>,
    is_stdout: bool,
    failures: Failures,
}

/// The first failure of an output, shared with whoever has to explain it.
#[derive(Debug, Clone)]
pub(crate) struct Failures {
    name: String,
    first: Arc<Mutex<Option<(io::ErrorKind, String)>>>,
}

/// Notes failures on their way up, before a format's writer turns them into its own.
struct Watched {
    out: Box<dyn Output>,
    failures: Failures,
}

/// Takes bytes, and at the end writes what has to stand there.
pub(crate) trait Output: Write + Send {
    /// Completes the output. Nothing may be written after.
    fn finish(&mut self) -> io::Result<()> {
        self.flush()
    }

    /// Completes what was written, so that it could end here, and says how long the file is; more may be written.
    fn cut(&mut self) -> io::Result<u64> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Makes what was handed to the operating system durable.
    fn sync(&mut self) -> io::Result<()> {
        self.flush()
    }
}

impl Output for File {
    fn cut(&mut self) -> io::Result<u64> {
        self.metadata().map(|file| file.len())
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.sync_all() {
            // What is no file on a disk.
            Err(e) if e.kind() == io::ErrorKind::InvalidInput => Ok(()),
            done => done,
        }
    }
}

/// Compresses a file. Flushing does nothing: it would cost compression, and nobody reads a file while it
/// is written.
enum Compressed {
    Gzip(GzEncoder<File>),
    Zstd(zstd::Encoder<'static, File>),
}

impl Write for Compressed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(out) => out.write(buf),
            Self::Zstd(out) => out.write(buf),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for Compressed {
    fn finish(&mut self) -> io::Result<()> {
        match self {
            Self::Gzip(out) => out.try_finish(),
            Self::Zstd(out) => out.do_finish(),
        }
    }

    fn cut(&mut self) -> io::Result<u64> {
        self.finish()?;
        let file = self.file().try_clone()?;
        let len = file.metadata()?.len();
        *self = match self {
            Self::Gzip(_) => Self::gzip(file),
            Self::Zstd(_) => Self::zstd(file)?,
        };
        Ok(len)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.file().sync_all()
    }
}

impl Compressed {
    fn gzip(file: File) -> Self {
        Self::Gzip(GzEncoder::new(file, flate2::Compression::default()))
    }

    fn zstd(file: File) -> io::Result<Self> {
        // 0 is the default of the format's makers.
        zstd::Encoder::new(file, 0).map(Self::Zstd)
    }

    fn file(&self) -> &File {
        match self {
            Self::Gzip(out) => out.get_ref(),
            Self::Zstd(out) => out.get_ref(),
        }
    }
}

impl Target {
    pub(crate) fn file(path: &Path, compression: Compression) -> Result<Self, SinkError> {
        Self::cut_file(path, compression, None)
    }

    /// The same, of a file that is continued behind its first so many bytes, if given.
    pub(crate) fn cut_file(
        path: &Path,
        compression: Compression,
        length: Option<u64>,
    ) -> Result<Self, SinkError> {
        let name = path.display().to_string();
        let file = cut_file(path, length)?;
        let out: Box<dyn Output> = match compression {
            Compression::None => Box::new(file),
            Compression::Gzip => Box::new(Compressed::gzip(file)),
            Compression::Zstd => Box::new(
                Compressed::zstd(file)
                    .map_err(|e| SinkError::Failed(format!("{name}: cannot be written: {e}")))?,
            ),
        };
        Ok(Self::new(name, out, false))
    }

    /// Standard output without the line buffer of the standard library.
    pub(crate) fn stdout() -> Result<Self, SinkError> {
        let name = "standard output".to_owned();
        let fd = io::stdout().as_fd().try_clone_to_owned();
        let fd = fd.map_err(|e| SinkError::Failed(format!("{name}: cannot be written: {e}")))?;
        Ok(Self::new(name, Box::new(File::from(fd)), true))
    }

    pub(crate) fn new(name: String, out: Box<dyn Output>, is_stdout: bool) -> Self {
        let failures = Failures { name, first: Arc::default() };
        let watched = Watched { out, failures: failures.clone() };
        Self { out: BufWriter::with_capacity(BUFFER, watched), is_stdout, failures }
    }

    pub(crate) fn is_stdout(&self) -> bool {
        self.is_stdout
    }

    pub(crate) fn failures(&self) -> Failures {
        self.failures.clone()
    }

    /// Shows the batch to whoever reads the other end.
    pub(crate) fn flush_if_live(&mut self) -> Result<(), SinkError> {
        if !self.is_stdout {
            return Ok(());
        }
        self.out.flush().map_err(|e| self.failures.explain(&e.to_string()))
    }

    /// Hands everything to the operating system, so that the output could end here, and says how long it is.
    pub(crate) fn cut(&mut self) -> Result<u64, SinkError> {
        let cut = self.out.flush().and_then(|()| self.out.get_mut().out.cut());
        cut.map_err(|e| self.failures.explain(&e.to_string()))
    }

    /// Makes durable what was handed to the operating system.
    pub(crate) fn sync(&mut self) -> Result<(), SinkError> {
        self.out.get_mut().out.sync().map_err(|e| self.failures.explain(&e.to_string()))
    }

    /// Writes out what is buffered, and completes the output.
    pub(crate) fn close(&mut self) -> Result<(), SinkError> {
        let flushed = self.out.flush().and_then(|()| self.out.get_mut().finish());
        flushed.map_err(|e| self.failures.explain(&e.to_string()))
    }
}

impl Write for Target {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.out.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

impl Write for Watched {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.out.write(buf).inspect_err(|e| self.failures.note(e))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush().inspect_err(|e| self.failures.note(e))
    }
}

impl Watched {
    fn finish(&mut self) -> io::Result<()> {
        self.out.finish().inspect_err(|e| self.failures.note(e))
    }
}

impl Failures {
    fn note(&self, e: &io::Error) {
        if e.kind() != io::ErrorKind::Interrupted {
            let mut first = self.first.lock().unwrap_or_else(PoisonError::into_inner);
            first.get_or_insert_with(|| (e.kind(), e.to_string()));
        }
    }

    /// What a writer's complaint really means.
    pub(crate) fn explain(&self, complaint: &str) -> SinkError {
        self.check()
            .err()
            .unwrap_or_else(|| SinkError::Failed(format!("{}: {complaint}", self.name)))
    }

    /// An error if anything failed so far.
    pub(crate) fn check(&self) -> Result<(), SinkError> {
        match &*self.first.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(()),
            Some((io::ErrorKind::BrokenPipe, _)) => Err(SinkError::Closed),
            Some((_, text)) => {
                Err(SinkError::Failed(format!("{}: cannot be written: {text}", self.name)))
            }
        }
    }
}
