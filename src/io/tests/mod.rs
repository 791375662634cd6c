//! Whole inputs: from files of every format to batches.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::compute::concat_batches;
use arrow::util::display::array_value_to_string;

use super::*;
use crate::io::time::max_of;
use crate::runtime::source::{Source, Take};

mod bad_input;
mod columnar;
mod text;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("saltmill-io-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// All rows of a source, and what it rejected. Checks tickets and largest times on the way.
fn drain(source: &dyn Source, time: Option<usize>) -> Result<Vec<RecordBatch>, String> {
    let (mut batches, mut ticket) = (Vec::new(), 0);
    loop {
        match source.take().map_err(|e| e.to_string())? {
            Take::Unit(mut unit) => {
                assert_eq!(unit.ticket(), ticket);
                ticket += 1;
                let mut announced = None;
                if time.is_some() {
                    announced = unit.time_max().map_err(|e| e.to_string())?;
                }
                let mut found = None;
                while let Some(batch) = unit.next_batch().map_err(|e| e.to_string())? {
                    assert!(batch.num_rows() > 0);
                    found = found.max(time.and_then(|t| max_of(batch.column(t))));
                    batches.push(batch);
                }
                assert_eq!(announced, found);
            }
            Take::Pending => std::thread::yield_now(),
            Take::End => return Ok(batches),
        }
    }
}

fn read(paths: &[&Path], options: &ReadOptions) -> Result<(RecordBatch, Inputs), String> {
    let specs: Vec<InputSpec> = paths.iter().map(|p| InputSpec::new(*p)).collect();
    let inputs = open(&specs, options).map_err(|e| e.to_string())?;
    let time = options.time.as_ref().map(|t| inputs.schema.index_of(&t.name).unwrap());
    let mut batches = Vec::new();
    for source in &inputs.sources {
        batches.extend(drain(source.as_ref(), time)?);
    }
    let all = concat_batches(&inputs.schema, &batches).map_err(|e| e.to_string())?;
    Ok((all, inputs))
}

/// Rows as text, null as `-`.
fn shown(batch: &RecordBatch) -> Vec<Vec<String>> {
    let cell = |column: &arrow::array::ArrayRef, row| {
        if column.is_null(row) {
            "-".to_owned()
        } else {
            array_value_to_string(column, row).unwrap()
        }
    };
    (0..batch.num_rows())
        .map(|row| batch.columns().iter().map(|c| cell(c, row)).collect())
        .collect()
}

fn types(batch: &RecordBatch) -> Vec<String> {
    batch.schema().fields().iter().map(|f| f.data_type().to_string()).collect()
}

fn rejected(inputs: &Inputs) -> Vec<(String, u64)> {
    inputs.sources.iter().flat_map(|s| s.rejected()).collect()
}

fn wanted(names: &[&str]) -> Option<Vec<Wanted>> {
    Some(names.iter().map(|n| Wanted { name: (*n).to_owned(), role: "key".to_owned() }).collect())
}

fn time(name: &str) -> Option<TimeColumn> {
    Some(TimeColumn { name: name.to_owned(), unit: None, format: None })
}

fn gzip(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(content).unwrap();
    encoder.finish().unwrap()
}
