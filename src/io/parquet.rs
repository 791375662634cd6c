//! Parquet files: a row group is a unit.
//!
//! Pages are read where they are needed with positioned reads, so memory is bounded by the pages in
//! work (a map of the file would count every page touched). The largest time of a row group comes
//! from its statistics if they are exact, else from a pass over the time column alone.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::Field;
use bytes::Bytes;
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder,
};
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{ChunkReader, Length};

use crate::error::SourceError;
use crate::io::columnar::{self, Projection, guarded};
use crate::io::feed::error;
use crate::io::progress::Progress;
use crate::io::time;
use crate::runtime::source::{Source, Take, Unit};

/// A file read at any place by any thread; unlike a cloned handle it has no position to share.
#[derive(Debug, Clone)]
pub(crate) struct SharedFile {
    file: Arc<File>,
    len: u64,
}

/// Reads a [`SharedFile`] from a place on.
#[derive(Debug)]
pub(crate) struct ReadFrom {
    file: Arc<File>,
    at: u64,
}

impl Read for ReadFrom {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read_at(buf, self.at)?;
        self.at += read as u64;
        Ok(read)
    }
}

impl Length for SharedFile {
    fn len(&self) -> u64 {
        self.len
    }
}

impl ChunkReader for SharedFile {
    type T = BufReader<ReadFrom>;

    fn get_read(&self, start: u64) -> ParquetResult<Self::T> {
        // Only page headers are read this way.
        Ok(BufReader::with_capacity(512, ReadFrom { file: Arc::clone(&self.file), at: start }))
    }

    fn get_bytes(&self, start: u64, length: usize) -> ParquetResult<Bytes> {
        if start.checked_add(length as u64).is_none_or(|end| end > self.len) {
            return Err(ParquetError::EOF(format!("bytes {start}+{length} are behind its end")));
        }
        let mut bytes = vec![0; length];
        self.file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    }
}

/// A parquet file whose footer was read.
#[derive(Debug)]
pub(crate) struct ParquetInput {
    name: String,
    file: SharedFile,
    metadata: ArrowReaderMetadata,
}

impl ParquetInput {
    pub(crate) fn open(name: &str, file: File) -> Result<Self, SourceError> {
        let len = file.metadata().map_err(|e| error(name, e.to_string()))?.len();
        if len == 0 {
            return Err(error(name, "is empty; a parquet file has at least a footer".to_owned()));
        }
        let file = SharedFile { file: Arc::new(file), len };
        let metadata = guarded(
            name,
            || "footer".to_owned(),
            || {
                let options = ArrowReaderOptions::new();
                ArrowReaderMetadata::load(&file, options).map_err(|e| e.to_string())
            },
        )?;
        Ok(Self { name: name.to_owned(), file, metadata })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn fields(&self) -> Vec<Field> {
        self.metadata.schema().fields().iter().map(|f| f.as_ref().clone()).collect()
    }

    pub(crate) fn into_source(
        self,
        projection: Projection,
        batch_rows: usize,
        progress: &Arc<Progress>,
    ) -> ParquetSource {
        let groups = self.metadata.metadata().num_row_groups();
        let shared = Shared { input: self, projection, batch_rows, progress: Arc::clone(progress) };
        progress.expect(Some((0..groups).map(|g| shared.bytes_of(g)).sum()));
        ParquetSource {
            shared: Arc::new(shared),
            next: AtomicU64::new(0),
            first: AtomicU64::new(0),
            groups: groups as u64,
        }
    }
}

#[derive(Debug)]
struct Shared {
    input: ParquetInput,
    projection: Projection,
    batch_rows: usize,
    progress: Arc<Progress>,
}

/// A parquet file.
#[derive(Debug)]
pub(crate) struct ParquetSource {
    shared: Arc<Shared>,
    next: AtomicU64,
    /// The first row group that is a unit.
    first: AtomicU64,
    groups: u64,
}

impl Source for ParquetSource {
    fn take(&self) -> Result<Take, SourceError> {
        // Never beyond the end, so that asking again and again cannot wrap around.
        let taken = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            (next < self.groups).then_some(next + 1)
        });
        let Ok(group) = taken else { return Ok(Take::End) };
        let shared = Arc::clone(&self.shared);
        let ticket = group - self.first.load(Ordering::Relaxed);
        Ok(Take::Unit(Box::new(RowGroupUnit {
            shared,
            ticket,
            group,
            reader: None,
            is_done: false,
        })))
    }

    fn name(&self) -> String {
        self.shared.input.name.clone()
    }

    /// Row groups.
    fn position(&self) -> Option<String> {
        Some(self.next.load(Ordering::Relaxed).to_string())
    }

    fn resume(&self, position: &str) -> Result<(), SourceError> {
        let next = columnar::place(&self.shared.input.name, position, self.groups, "row groups")?;
        self.first.store(next, Ordering::Relaxed);
        self.next.store(next, Ordering::Relaxed);
        Ok(())
    }
}

impl Shared {
    /// Bytes of the wanted columns of a row group.
    fn bytes_of(&self, group: usize) -> u64 {
        let metadata = self.input.metadata.metadata();
        let mask = self.mask(&self.projection.read);
        let chunks = metadata.row_group(group).columns().iter().enumerate();
        chunks
            .filter(|(leaf, _)| mask.leaf_included(*leaf))
            .map(|(_, chunk)| u64::try_from(chunk.compressed_size()).unwrap_or(0))
            .sum()
    }

    fn mask(&self, roots: &[usize]) -> ProjectionMask {
        ProjectionMask::roots(self.input.metadata.parquet_schema(), roots.iter().copied())
    }

    fn reader(&self, group: usize, roots: &[usize]) -> Result<ParquetRecordBatchReader, String> {
        let (file, metadata) = (self.input.file.clone(), self.input.metadata.clone());
        ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_row_groups(vec![group])
            .with_projection(self.mask(roots))
            .with_batch_size(self.batch_rows)
            .build()
            .map_err(|e| e.to_string())
    }

    /// The largest time by the statistics; `None` if they do not tell it exactly.
    fn time_max_of_statistics(&self, group: usize, column: usize) -> Option<i64> {
        let metadata = &self.input.metadata;
        let name = metadata.schema().field(column).name();
        let converter =
            StatisticsConverter::try_new(name, metadata.schema(), metadata.parquet_schema())
                .ok()?;
        // A name that occurs twice would give the statistics of the first.
        let twins = metadata.schema().fields().iter().filter(|f| f.name() == name).count();
        let group = || std::iter::once(metadata.metadata().row_group(group));
        let exact = converter.row_group_is_max_value_exact(group()).ok()?;
        if twins > 1 || !exact.is_valid(0) || !exact.value(0) {
            return None;
        }
        time::max_of(&converter.row_group_maxes(group()).ok()?)
    }

    fn time_max_of_column(&self, group: usize, column: usize) -> Result<Option<i64>, String> {
        let mut latest = None;
        for batch in self.reader(group, &[column])? {
            let batch = batch.map_err(|e| e.to_string())?;
            latest = latest.max(time::max_of(batch.column(0)));
        }
        Ok(latest)
    }
}

/// A row group.
struct RowGroupUnit {
    shared: Arc<Shared>,
    ticket: u64,
    group: u64,
    reader: Option<ParquetRecordBatchReader>,
    is_done: bool,
}

impl std::fmt::Debug for RowGroupUnit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RowGroupUnit").field("ticket", &self.ticket).finish_non_exhaustive()
    }
}

impl RowGroupUnit {
    fn group(&self) -> usize {
        usize::try_from(self.group).unwrap_or(usize::MAX)
    }
}

impl Unit for RowGroupUnit {
    fn ticket(&self) -> u64 {
        self.ticket
    }

    fn time_max(&mut self) -> Result<Option<i64>, SourceError> {
        let (shared, group) = (&self.shared, self.group());
        let Some(column) = shared.projection.time_column() else { return Ok(None) };
        guarded(
            &shared.input.name,
            || place(group),
            || match shared.time_max_of_statistics(group, column) {
                Some(latest) => Ok(Some(latest)),
                None => shared.time_max_of_column(group, column),
            },
        )
    }

    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError> {
        if self.is_done {
            return Ok(None);
        }
        let group = self.group();
        let (shared, reader) = (&self.shared, &mut self.reader);
        let batch = guarded(
            &shared.input.name,
            || place(group),
            || {
                if reader.is_none() {
                    *reader = Some(shared.reader(group, &shared.projection.read)?);
                }
                match reader.as_mut().and_then(Iterator::next) {
                    Some(batch) => {
                        let batch = batch.map_err(|e| e.to_string())?;
                        shared.projection.apply(&batch).map(Some)
                    }
                    None => Ok(None),
                }
            },
        )?;
        if batch.is_none() {
            self.is_done = true;
            self.reader = None;
            shared.progress.add(shared.bytes_of(group));
        }
        Ok(batch)
    }
}

fn place(group: usize) -> String {
    format!("row group {group}")
}
