//! Where bytes go, and what went wrong there.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use flate2::write::GzEncoder;

use crate::error::SinkError;
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
}

impl Output for File {}

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
}

impl Target {
    pub(crate) fn file(path: &Path, compression: Compression) -> Result<Self, SinkError> {
        let name = path.display().to_string();
        let unwritable =
            |e: io::Error| SinkError::Failed(format!("{name}: cannot be written: {e}"));
        let file = File::create(path).map_err(unwritable)?;
        let out: Box<dyn Output> = match compression {
            Compression::None => Box::new(file),
            Compression::Gzip => {
                Box::new(Compressed::Gzip(GzEncoder::new(file, flate2::Compression::default())))
            }
            Compression::Zstd => {
                // 0 is the default of the format's makers.
                let encoder = zstd::Encoder::new(file, 0).map_err(unwritable)?;
                Box::new(Compressed::Zstd(encoder))
            }
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
