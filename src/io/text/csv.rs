//! Finds the fields of csv records.
//!
//! The same rules as in the chunker: a quote opens a quoted field only at the start of a field; `""`
//! in it is a quote; what follows the closing quote up to the delimiter belongs to the field as it
//! stands. A record ends at a line feed; a carriage return before it is dropped. Lines without a
//! character are no records.

use memchr::{memchr, memchr2};

use crate::io::text::field::{Broken, BrokenBy, Field, Rows, place};

const QUOTE: u8 = b'"';
/// Fields are short: look at this many bytes one by one before a vectorized search is worth its call.
const SHORT: usize = 16;

/// No column is made of this field.
pub(crate) const UNWANTED: u16 = u16::MAX;

/// Which fields are wanted, and what null looks like.
#[derive(Debug, Clone)]
pub(crate) struct CsvLayout {
    pub(crate) delimiter: u8,
    /// For each field of the header the column made of it, or [`UNWANTED`].
    pub(crate) slots: Vec<u16>,
    /// Number of columns made.
    pub(crate) width: usize,
    /// Text that is null, besides the empty field.
    pub(crate) null_text: Option<Vec<u8>>,
}

/// How a record ended.
struct RecordEnd {
    /// Number of fields.
    fields: usize,
    /// Behind the last byte of content.
    end: usize,
    /// Where the next record begins.
    next: usize,
}

/// Reads records from `pos` until `limit` rows are complete or the chunk ends; returns where it
/// stopped.
pub(crate) fn split(
    layout: &CsvLayout,
    bytes: &[u8],
    mut pos: usize,
    limit: usize,
    rows: &mut Rows,
) -> usize {
    let expected = layout.slots.len();
    let null_text = layout.null_text.as_deref();
    while rows.len() < limit {
        pos = skip_empty_lines(bytes, pos);
        if pos == bytes.len() {
            break;
        }
        let base = rows.fields.len();
        rows.fields.resize(base + layout.width, Field::NULL);
        let (fields, scratch) = (&mut rows.fields, &mut rows.scratch);
        let record = record(bytes, pos, layout.delimiter, scratch, |index, field, scratch| {
            let Some(&slot) = layout.slots.get(index) else { return };
            if slot == UNWANTED || field.is_empty() {
                return;
            }
            if let Some(null) = null_text
                && is_text(field, bytes, scratch, null)
            {
                return;
            }
            fields[base + slot as usize] = field;
        });
        let span = place(pos, record.end);
        if record.fields == expected {
            rows.places.push(span);
        } else {
            rows.fields.truncate(base);
            let fault = BrokenBy::Ragged { found: record.fields, expected };
            rows.broken.push(Broken { place: span, fault });
        }
        pos = record.next;
    }
    pos
}

/// The fields of the record at `pos` as owned bytes, and where the next one begins.
pub(crate) fn owned_record(bytes: &[u8], pos: usize, delimiter: u8) -> (Vec<Vec<u8>>, usize) {
    let mut fields = Vec::new();
    let mut scratch = Vec::new();
    let pos = skip_empty_lines(bytes, pos);
    let record = record(bytes, pos, delimiter, &mut scratch, |_, field, scratch| {
        fields.push(content(field, bytes, scratch).to_vec());
    });
    (fields, record.next)
}

pub(crate) fn skip_empty_lines(bytes: &[u8], mut pos: usize) -> usize {
    loop {
        match bytes.get(pos) {
            Some(b'\n') => pos += 1,
            Some(b'\r') if matches!(bytes.get(pos + 1), Some(b'\n') | None) => {
                pos = (pos + 2).min(bytes.len());
            }
            _ => return pos,
        }
    }
}

fn content<'a>(field: Field, bytes: &'a [u8], scratch: &'a [u8]) -> &'a [u8] {
    crate::io::text::field::Texts { chunk: bytes, utf8: None, scratch }.bytes(field)
}

#[inline]
fn is_text(field: Field, bytes: &[u8], scratch: &[u8], text: &[u8]) -> bool {
    content(field, bytes, scratch) == text
}

/// Goes through one record. `each` gets the number of the field, the field, and the scratch text.
#[inline]
fn record(
    bytes: &[u8],
    start: usize,
    delimiter: u8,
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(usize, Field, &[u8]),
) -> RecordEnd {
    let mut pos = start;
    let mut index = 0;
    loop {
        let (field, stop) = if bytes.get(pos) == Some(&QUOTE) {
            quoted(bytes, pos, delimiter, scratch)
        } else {
            let stop = plain_end(bytes, pos, delimiter);
            (Field::in_chunk(pos, without_return(bytes, pos, stop)), stop)
        };
        each(index, field, scratch);
        index += 1;
        match bytes.get(stop) {
            Some(&b) if b == delimiter => pos = stop + 1,
            Some(_) => {
                let end = without_return(bytes, start, stop);
                return RecordEnd { fields: index, end, next: stop + 1 };
            }
            None => {
                let end = without_return(bytes, start, stop);
                return RecordEnd { fields: index, end, next: stop };
            }
        }
    }
}

/// Where the field ends: at a delimiter, a line feed, or the end of the chunk.
#[inline]
fn plain_end(bytes: &[u8], pos: usize, delimiter: u8) -> usize {
    let near = &bytes[pos..bytes.len().min(pos + SHORT)];
    if let Some(at) = near.iter().position(|&b| b == delimiter || b == b'\n') {
        return pos + at;
    }
    let from = pos + near.len();
    memchr2(delimiter, b'\n', &bytes[from..]).map_or(bytes.len(), |at| from + at)
}

/// `stop` without the carriage return before a line feed or before the end of the input.
#[inline]
fn without_return(bytes: &[u8], start: usize, stop: usize) -> usize {
    let line_ends = bytes.get(stop).is_none_or(|&b| b == b'\n');
    if line_ends && stop > start && bytes[stop - 1] == b'\r' { stop - 1 } else { stop }
}

/// A field that begins with a quote at `open`. Returns it and where it stops.
fn quoted(bytes: &[u8], open: usize, delimiter: u8, scratch: &mut Vec<u8>) -> (Field, usize) {
    let mut from = open + 1;
    let scratch_start = scratch.len();
    let mut rewritten = false;
    let close = loop {
        let Some(at) = memchr(QUOTE, &bytes[from..]).map(|at| from + at) else {
            // The chunker has made sure that quotes close; a sample from the middle has not.
            break bytes.len();
        };
        if bytes.get(at + 1) != Some(&QUOTE) {
            break at;
        }
        scratch.extend_from_slice(&bytes[from..=at]);
        rewritten = true;
        from = at + 2;
    };
    let rest = (close + 1).min(bytes.len());
    let stop = plain_end(bytes, rest, delimiter);
    let tail = rest..without_return(bytes, rest, stop);
    if !rewritten && tail.is_empty() {
        return (Field::in_chunk(open + 1, close), stop);
    }
    scratch.extend_from_slice(&bytes[from..close]);
    scratch.extend_from_slice(&bytes[tail]);
    (Field::in_scratch(scratch_start, scratch.len()), stop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::text::field::Texts;

    fn rows(text: &str, fields: usize) -> (Vec<Vec<Option<String>>>, Vec<BrokenBy>) {
        let layout = CsvLayout {
            delimiter: b',',
            slots: (0..u16::try_from(fields).unwrap()).collect(),
            width: fields,
            null_text: Some(b"NA".to_vec()),
        };
        let mut rows = Rows::new(fields);
        let end = split(&layout, text.as_bytes(), 0, usize::MAX, &mut rows);
        assert_eq!(end, text.len());
        let texts = Texts { chunk: text.as_bytes(), utf8: Some(text), scratch: &rows.scratch };
        let read = |f: &Field| (!f.is_null()).then(|| texts.text(*f).unwrap().to_owned());
        let all = rows.fields.chunks(fields).map(|r| r.iter().map(read).collect()).collect();
        (all, rows.broken.into_iter().map(|b| b.fault).collect())
    }

    fn some(texts: &[&str]) -> Vec<Option<String>> {
        texts.iter().map(|t| (!t.is_empty()).then(|| (*t).to_owned())).collect()
    }

    #[test]
    fn fields_quotes_and_line_ends() {
        let cases: [(&str, &[&[&str]]); 8] = [
            ("1,2\n3,4\n", &[&["1", "2"], &["3", "4"]]),
            ("1,2\r\n3,4", &[&["1", "2"], &["3", "4"]]),
            ("\"a,\nb\",\"c\"\"d\"\r\n\n,\n", &[&["a,\nb", "c\"d"], &["", ""]]),
            ("\"\",NA\n", &[&["", ""]]),
            ("a\"b,\"c\"d\n", &[&["a\"b", "cd"]]),
            ("\"x\"\"\",\"\"\"\"\n", &[&["x\"", "\""]]),
            ("\r\n1,2\r\n\r\n", &[&["1", "2"]]),
            ("a\rb,2\n", &[&["a\rb", "2"]]),
        ];
        for (text, expected) in cases {
            let expected: Vec<_> = expected.iter().map(|r| some(r)).collect();
            assert_eq!(rows(text, 2), (expected, vec![]), "{text:?}");
        }
    }

    #[test]
    fn ragged_rows_are_set_aside() {
        let (good, broken) = rows("1,2\n3\n4,5,6\n7,8\n", 2);
        assert_eq!(good, [some(&["1", "2"]), some(&["7", "8"])]);
        assert_eq!(
            broken,
            [
                BrokenBy::Ragged { found: 1, expected: 2 },
                BrokenBy::Ragged { found: 3, expected: 2 }
            ]
        );
    }

    #[test]
    fn a_very_long_field() {
        let long = "x".repeat(1_000_000);
        let (good, broken) = rows(&format!("{long},\"{long}\"\n"), 2);
        assert_eq!(good, [some(&[&long, &long])]);
        assert!(broken.is_empty());
    }
}
