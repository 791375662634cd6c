//! Files of state: record batches, a checksum over all bytes.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::ipc::reader::FileDecoder;
use arrow::ipc::writer::FileWriter;

use super::manifest::{Section, StateFile};
use super::mapped::{MappedIpc, map};
use crate::spill::Block;

const BUFFER: usize = 1 << 20;

/// A section and its rows.
#[derive(Debug)]
pub(crate) struct SectionImage {
    pub(crate) section: Section,
    pub(crate) image: SectionRows,
}

/// Where the rows of a section are until they are written.
#[derive(Debug)]
pub(crate) enum SectionRows {
    /// In memory.
    Memory(RecordBatch),
    /// In a spill file: one section after the other comes into memory.
    Spilled(Block),
}

impl SectionRows {
    /// The rows.
    pub(crate) fn read(&self) -> io::Result<RecordBatch> {
        match self {
            Self::Memory(image) => Ok(image.clone()),
            Self::Spilled(block) => block.try_read(),
        }
    }
}

/// Counts and sums what goes into a file.
struct Summed {
    file: File,
    sum: crc32fast::Hasher,
    bytes: u64,
}

impl Write for Summed {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let written = self.file.write(buf)?;
        self.sum.update(&buf[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Writes a file of state and flushes it to the disk.
pub(super) fn write(
    folder: &Path,
    name: String,
    schema: &SchemaRef,
    sections: Vec<SectionImage>,
) -> io::Result<StateFile> {
    let file = File::create_new(folder.join(&name))?;
    let summed = Summed { file, sum: crc32fast::Hasher::new(), bytes: 0 };
    let out = BufWriter::with_capacity(BUFFER, summed);
    let failed = |e: arrow::error::ArrowError| match e {
        arrow::error::ArrowError::IoError(_, e) => e,
        other => io::Error::other(other.to_string()),
    };
    let mut writer = FileWriter::try_new(out, schema).map_err(failed)?;
    let mut written = Vec::with_capacity(sections.len());
    for SectionImage { section, image } in sections {
        let image = image.read()?;
        writer.write(&image).map_err(failed)?;
        written.push(section);
    }
    writer.finish().map_err(failed)?;
    let out = writer.into_inner().map_err(failed)?;
    let out = out.into_inner().map_err(io::IntoInnerError::into_error)?;
    out.file.sync_all()?;
    Ok(StateFile { name, bytes: out.bytes, crc32: out.sum.finalize(), sections: written })
}

/// A file of state, proven to be what was written.
#[derive(Debug)]
pub(super) struct OpenState {
    file: MappedIpc,
    decoder: FileDecoder,
}

impl OpenState {
    /// Maps a file and checks it; says what is wrong.
    pub(super) fn open(folder: &Path, state: &StateFile) -> Result<Self, String> {
        let file = File::open(folder.join(&state.name)).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => "it is missing".to_owned(),
            _ => format!("it cannot be opened: {e}"),
        })?;
        let len = file.metadata().map_err(|e| e.to_string())?.len();
        if len != state.bytes {
            return Err(format!("it has {len} bytes, but {} were written", state.bytes));
        }
        let buffer = map(&file)?;
        if crc32fast::hash(&buffer) != state.crc32 {
            return Err(
                "its checksum is another than when it was written: it is damaged".to_owned()
            );
        }
        let opened = guarded(|| {
            let file = MappedIpc::new(buffer)?;
            let decoder = file.decoder(None)?;
            Ok((file, decoder))
        });
        let (file, decoder) = opened?;
        if file.len() != state.sections.len() {
            let (found, expected) = (file.len(), state.sections.len());
            return Err(format!("it has {found} sections, but the manifest names {expected}"));
        }
        Ok(Self { file, decoder })
    }

    /// The columns.
    pub(super) fn schema(&self) -> &SchemaRef {
        self.file.schema()
    }

    /// The rows of the `index`-th section, in the map.
    pub(super) fn section(&self, index: usize) -> Result<RecordBatch, String> {
        guarded(|| self.file.decode(&self.decoder, index))
    }
}

/// A panic of the decoder is an error like any other.
fn guarded<T>(decode: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(decode))
        .unwrap_or_else(|_| Err("its contents cannot be decoded".to_owned()))
}
