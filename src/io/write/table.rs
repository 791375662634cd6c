//! An aligned table for people.
//!
//! The first rows are held back to find the widths of the columns; longer cells that come later push
//! their line to the right instead of being cut.

use std::fmt::Write as _;
use std::io::Write as _;

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::util::display::{ArrayFormatter, FormatOptions};

use crate::error::SinkError;
use crate::io::target::{Failures, Target};
use crate::io::write::{BatchWriter, cell_text, is_number, printable};

/// Rows held back.
#[cfg(not(test))]
const HELD_ROWS: usize = 1_000;
#[cfg(test)]
const HELD_ROWS: usize = 4;

/// Writes a header, a rule and one line a row.
pub(crate) struct TableWriter {
    out: Target,
    failures: Failures,
    names: Vec<String>,
    right: Vec<bool>,
    widths: Vec<usize>,
    /// Rows held back; `None` once the header is out.
    held: Option<Vec<Vec<String>>>,
}

impl TableWriter {
    pub(crate) fn new(out: Target, schema: &SchemaRef) -> Self {
        let names: Vec<String> = schema.fields().iter().map(|f| one_line(f.name())).collect();
        Self {
            failures: out.failures(),
            out,
            right: schema.fields().iter().map(|f| is_number(f.data_type())).collect(),
            widths: names.iter().map(|n| n.chars().count()).collect(),
            names,
            held: Some(Vec::new()),
        }
    }

    fn release(&mut self) -> Result<(), SinkError> {
        let Some(rows) = self.held.take() else { return Ok(()) };
        for row in &rows {
            for (width, cell) in self.widths.iter_mut().zip(row) {
                *width = (*width).max(cell.chars().count());
            }
        }
        let mut text = String::new();
        self.line(&self.names, &mut text);
        let rules: Vec<String> = self.widths.iter().map(|&w| "-".repeat(w)).collect();
        self.line(&rules, &mut text);
        for row in &rows {
            self.line(row, &mut text);
        }
        self.put(&text)
    }

    fn line(&self, cells: &[String], text: &mut String) {
        let mut line = String::new();
        for ((cell, &width), &right) in cells.iter().zip(&self.widths).zip(&self.right) {
            if !line.is_empty() {
                line.push_str("  ");
            }
            let _ =
                if right { write!(line, "{cell:>width$}") } else { write!(line, "{cell:<width$}") };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }

    fn put(&mut self, text: &str) -> Result<(), SinkError> {
        let written = self.out.write_all(text.as_bytes());
        written.map_err(|e| self.failures.explain(&e.to_string()))?;
        self.out.flush_if_live()
    }

    fn cells(batch: &RecordBatch) -> Result<Vec<Vec<String>>, String> {
        let batch = printable(batch, true)?;
        let options = FormatOptions::default().with_null("null");
        let formatters = batch
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column, &options))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|e| e.to_string())?;
        let cell = |row: usize, index: usize| match cell_text(batch.column(index), row) {
            Some(text) => Ok(one_line(text)),
            None => formatters[index].value(row).try_to_string().map_err(|e| e.to_string()),
        };
        (0..batch.num_rows())
            .map(|row| (0..formatters.len()).map(|index| cell(row, index)).collect())
            .collect()
    }
}

impl BatchWriter for TableWriter {
    fn write(&mut self, batch: &RecordBatch) -> Result<(), SinkError> {
        let rows = Self::cells(batch).map_err(|e| self.failures.explain(&e))?;
        if let Some(held) = &mut self.held {
            held.extend(rows);
            return if held.len() >= HELD_ROWS { self.release() } else { Ok(()) };
        }
        let mut text = String::new();
        for row in &rows {
            self.line(row, &mut text);
        }
        self.put(&text)
    }

    fn idle(&mut self) -> Result<(), SinkError> {
        match &self.held {
            Some(rows) if !rows.is_empty() => self.release(),
            _ => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>) -> Result<(), SinkError> {
        self.release()?;
        self.out.close()
    }
}

/// A text without line breaks and other control characters, so that a row stays a line.
fn one_line(text: &str) -> String {
    if text.chars().any(char::is_control) {
        text.escape_debug().to_string()
    } else {
        text.to_owned()
    }
}
