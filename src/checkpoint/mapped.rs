//! Arrow IPC files mapped into memory.
//!
//! Columns of an uncompressed file point into the map, nothing is copied; offsets and UTF-8 are checked, since a
//! file is not to be trusted.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::buffer::Buffer;
use arrow::datatypes::SchemaRef;
use arrow::ipc::convert::try_fb_to_schema;
use arrow::ipc::reader::{FileDecoder, read_footer_length};
use arrow::ipc::{Block, root_as_footer};
use bytes::Bytes;

use crate::sys;

/// Last bytes: the footer's length and the magic.
const TRAILER: usize = 10;

/// A mapped IPC file whose footer was read.
#[derive(Debug)]
pub(crate) struct MappedIpc {
    buffer: Buffer,
    schema: SchemaRef,
    footer: Range<usize>,
    blocks: Vec<Block>,
}

/// Maps a file.
pub(crate) fn map(file: &File) -> Result<Buffer, String> {
    let map = sys::map_file(file).map_err(|e| format!("cannot be mapped: {e}"))?;
    Ok(Buffer::from(Bytes::from_owner(map)))
}

impl MappedIpc {
    /// Reads the footer. A decoder may panic on damaged bytes: callers catch that.
    pub(crate) fn new(buffer: Buffer) -> Result<Self, String> {
        let end = buffer.len().checked_sub(TRAILER).ok_or("it is too short")?;
        let trailer: [u8; TRAILER] = buffer[end..].try_into().map_err(|_| "it is too short")?;
        let length = read_footer_length(trailer).map_err(|_| "its end is missing")?;
        let start = end.checked_sub(length).ok_or("its footer is longer than the file")?;
        let footer = root_as_footer(&buffer[start..end])
            .map_err(|e| format!("its footer is damaged: {e}"))?;
        let schema = footer.schema().ok_or("it has no schema")?;
        let schema = Arc::new(try_fb_to_schema(schema).map_err(|e| e.to_string())?);
        let blocks =
            footer.recordBatches().map(|b| b.iter().copied().collect()).unwrap_or_default();
        Ok(Self { buffer, schema, footer: start..end, blocks })
    }

    /// The columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Number of record batches.
    pub(crate) fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Bytes of the `index`-th record batch.
    #[cfg(feature = "io")]
    pub(crate) fn bytes_of(&self, index: usize) -> u64 {
        block_bytes(&self.blocks[index])
    }

    /// A decoder of its batches, which knows its dictionaries; of these columns only, if given.
    pub(crate) fn decoder(&self, columns: Option<Vec<usize>>) -> Result<FileDecoder, String> {
        let footer = root_as_footer(&self.buffer[self.footer.clone()])
            .map_err(|e| format!("its footer cannot be read: {e}"))?;
        let mut decoder = FileDecoder::new(Arc::clone(&self.schema), footer.version());
        if let Some(columns) = columns {
            decoder = decoder.with_projection(columns);
        }
        for block in footer.dictionaries().iter().flatten() {
            let data = slice(&self.buffer, block)?;
            decoder.read_dictionary(block, &data).map_err(|e| e.to_string())?;
        }
        Ok(decoder)
    }

    /// The `index`-th record batch.
    pub(crate) fn decode(
        &self,
        decoder: &FileDecoder,
        index: usize,
    ) -> Result<RecordBatch, String> {
        let block = &self.blocks[index];
        let data = slice(&self.buffer, block)?;
        let batch = decoder.read_record_batch(block, &data).map_err(|e| e.to_string())?;
        Ok(batch.ok_or("a block holds no record batch")?)
    }
}

fn block_bytes(block: &Block) -> u64 {
    let body = u64::try_from(block.bodyLength()).unwrap_or(0);
    body.saturating_add(u64::try_from(block.metaDataLength()).unwrap_or(0))
}

fn slice(buffer: &Buffer, block: &Block) -> Result<Buffer, String> {
    let start = usize::try_from(block.offset()).map_err(|_| "a block is before its start")?;
    let len = usize::try_from(block_bytes(block)).map_err(|_| "a block is too long")?;
    if start.checked_add(len).is_none_or(|end| end > buffer.len()) {
        return Err("a block is behind its end".to_owned());
    }
    Ok(buffer.slice_with_length(start, len))
}
