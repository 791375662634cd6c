//! A file of rows: written through, or, in a run that takes checkpoints, so that it can be cut at one.

use std::path::{Path, PathBuf};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;

use crate::error::SinkError;
use crate::io::{BatchWriter, CutText, OutputFormat, Spool, open_writer};

/// Where rows go.
pub(super) enum RowsOut {
    /// Written through; cannot be cut.
    Plain(Box<dyn BatchWriter>),
    /// Text that is appended to.
    Text(Box<CutText>),
    /// Kept aside until the end.
    Spooled(Box<Spool>),
}

/// What is to be written, and where.
#[derive(Debug, Clone)]
pub(super) struct RowsFile {
    /// None: standard output.
    pub(super) path: Option<PathBuf>,
    pub(super) format: OutputFormat,
    pub(super) schema: SchemaRef,
}

impl RowsFile {
    /// Opens it to be written through.
    pub(super) fn open(&self) -> Result<Box<dyn BatchWriter>, SinkError> {
        open_writer(self.path.as_deref(), self.format, &self.schema)
    }

    /// Opens it to be cut at checkpoints, from `length` bytes on in a run that goes on. Rows that are not to be written
    /// as they come, or not as text, go to `spool`.
    pub(super) fn open_cut(
        &self,
        is_ordered: bool,
        spool: &Path,
        length: Option<u64>,
    ) -> Result<RowsOut, SinkError> {
        Ok(match &self.path {
            Some(path) if self.format.is_text() && !is_ordered => {
                RowsOut::Text(CutText::open(path, self.format, &self.schema, length)?.into())
            }
            None if !is_ordered => RowsOut::Plain(self.open()?),
            _ => RowsOut::Spooled(Spool::open(spool, &self.schema, length)?.into()),
        })
    }
}

impl RowsOut {
    pub(super) fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        match self {
            Self::Plain(writer) => writer.write(batch),
            Self::Text(text) => text.write(batch),
            Self::Spooled(spool) => spool.write(batch),
        }
    }

    /// Shows what was held back.
    pub(super) fn idle(&mut self) -> Result<(), SinkError> {
        match self {
            Self::Plain(writer) => writer.idle(),
            Self::Text(_) | Self::Spooled(_) => Ok(()),
        }
    }

    /// How long the file is, complete up to here; none if it cannot be cut.
    pub(super) fn cut(&mut self) -> Result<Option<u64>, SinkError> {
        match self {
            Self::Plain(_) => Ok(None),
            Self::Text(text) => text.cut().map(Some),
            Self::Spooled(spool) => spool.cut().map(Some),
        }
    }

    /// Makes durable what was cut.
    pub(super) fn sync(&self) -> Result<(), SinkError> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Text(text) => text.sync(),
            Self::Spooled(spool) => spool.sync(),
        }
    }

    /// Completes a file that holds the rows as they came.
    pub(super) fn finish(self, file: &RowsFile) -> Result<(), SinkError> {
        match self {
            Self::Plain(writer) => writer.finish(),
            Self::Text(text) => text.finish(),
            Self::Spooled(spool) => {
                let mut writer = file.open()?;
                spool.replay(&mut |batch| writer.write(&batch))?;
                writer.finish()
            }
        }
    }
}
