//! Cuts a stream of bytes into chunks of whole records.
//!
//! For csv the cut is exact whatever the chunk size: a quote opens a quoted field only at the start
//! of a field, `""` inside it is an escape, and a line break inside it is data. Without quotes in
//! the block this costs one `memchr` for quotes and one `memrchr` for the last line break, so that the
//! one thread that does it keeps many workers busy.

use std::io::{self, Read};

use memchr::{memchr, memchr_iter, memrchr};

use crate::error::SourceError;
use crate::io::feed::{Outlet, Stop, error};

/// Longest record.
const RECORD_BYTES_MAX: usize = 256 << 20;
const QUOTE: u8 = b'"';
pub(crate) const BOM: &[u8] = b"\xef\xbb\xbf";

/// Some whole records of an input.
#[derive(Debug)]
pub(crate) struct Chunk {
    /// Position among the input's chunks.
    pub(crate) ticket: u64,
    /// Bytes of the input (uncompressed) before `bytes[0]`.
    pub(crate) offset: u64,
    pub(crate) bytes: Vec<u8>,
    /// Where the data begins: behind the header in the first chunk, else 0.
    pub(crate) start: usize,
    /// Line number of `bytes[0]`, counted from 1.
    pub(crate) first_line: u64,
}

impl Chunk {
    /// Bytes of the input up to its end.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// How to cut.
#[derive(Debug, Clone)]
pub(crate) struct Cutting {
    /// The delimiter if quotes protect line breaks; none if every line break ends a record.
    pub(crate) quoted_by: Option<u8>,
    /// Size aimed at.
    pub(crate) chunk_bytes: usize,
    /// Hand on whatever is complete as soon as it was read.
    pub(crate) live: bool,
}

/// Reads to the end and sends chunks. Runs on the input's own thread.
pub(crate) fn run(
    input: &str,
    mut reader: impl Read,
    cutting: &Cutting,
    out: &Outlet<Chunk>,
) -> Result<(), Stop> {
    let mut cutter = Cutter::new(cutting.quoted_by);
    let (mut ticket, mut offset) = (0, 0);
    loop {
        let read = cutter
            .fill(&mut reader, cutting.chunk_bytes)
            .map_err(|e| read_error(input, &e, cutter.line))?;
        let at_end = read == 0;
        cutter.scan(at_end);
        if at_end {
            cutter.check_closed(input)?;
        }
        // A live input hands on what it has: the next read may wait for a long time.
        let ready = at_end || cutting.live || cutter.bytes.len() >= cutting.chunk_bytes;
        if ready && let Some((bytes, first_line)) = cutter.cut(at_end) {
            let len = bytes.len() as u64;
            out.send(Chunk { ticket, offset, bytes, start: 0, first_line })?;
            ticket += 1;
            offset += len;
        }
        if at_end {
            return Ok(());
        }
        if cutter.bytes.len() > RECORD_BYTES_MAX && cutter.complete == 0 {
            let message = match cutter.quote_open_line() {
                Some(line) => format!(
                    "a record is longer than 256 MB; the quote opened in line {line} may never be closed"
                ),
                None => {
                    "a record is longer than 256 MB; is this really text with line breaks?".into()
                }
            };
            return Err(Stop::Failed(error(input, message)));
        }
    }
}

fn read_error(input: &str, e: &io::Error, line: u64) -> SourceError {
    let message = match e.kind() {
        io::ErrorKind::UnexpectedEof => {
            "is truncated: the compressed data ends too early; get the file again".to_owned()
        }
        io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
            format!("is damaged: {e}; get the file again")
        }
        _ => format!("cannot be read: {e}"),
    };
    let place = (line > 1).then(|| format!("after line {}", line - 1));
    SourceError { input: input.to_owned(), place, message }
}

/// The state between two reads.
struct Cutter {
    quoted_by: Option<u8>,
    /// Bytes not yet cut off; begins at a record boundary.
    bytes: Vec<u8>,
    /// Everything before this was looked at.
    scanned: usize,
    /// End of the last complete record; 0 if there is none.
    complete: usize,
    /// Where the open quoted field begins.
    quote_at: Option<usize>,
    /// Line number of `bytes[0]`.
    line: u64,
    /// Whether `bytes[0]` is the first byte of the input.
    at_start: bool,
}

impl Cutter {
    fn new(quoted_by: Option<u8>) -> Self {
        Self {
            quoted_by,
            bytes: Vec::new(),
            scanned: 0,
            complete: 0,
            quote_at: None,
            line: 1,
            at_start: true,
        }
    }

    /// One successful read behind what is there. Returns the bytes read, 0 at the end.
    fn fill(&mut self, reader: &mut impl Read, chunk_bytes: usize) -> io::Result<usize> {
        let have = self.bytes.len();
        // A long record doubles the buffer, so that its bytes are moved a bounded number of times.
        let room = chunk_bytes.saturating_sub(have).max(have / 2).max(chunk_bytes.min(64 << 10));
        self.bytes.resize(have + room, 0);
        let read = loop {
            match reader.read(&mut self.bytes[have..]) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        self.bytes.truncate(have + *read.as_ref().unwrap_or(&0));
        read
    }

    /// Looks at what is new and finds the end of the last complete record.
    fn scan(&mut self, at_end: bool) {
        let Some(delimiter) = self.quoted_by else {
            if let Some(at) = memrchr(b'\n', &self.bytes[self.scanned..]) {
                self.complete = self.scanned + at + 1;
            }
            self.scanned = self.bytes.len();
            return;
        };
        let len = self.bytes.len();
        while self.scanned < len {
            let next = memchr(QUOTE, &self.bytes[self.scanned..]).map(|at| self.scanned + at);
            if self.quote_at.is_some() {
                match next {
                    None => self.scanned = len,
                    // Whether it closes or escapes shows with the next byte.
                    Some(at) if at + 1 == len && !at_end => {
                        self.scanned = at;
                        return;
                    }
                    Some(at) if self.bytes.get(at + 1) == Some(&QUOTE) => self.scanned = at + 2,
                    Some(at) => {
                        self.quote_at = None;
                        self.scanned = at + 1;
                    }
                }
                continue;
            }
            let until = next.unwrap_or(len);
            if let Some(at) = memrchr(b'\n', &self.bytes[self.scanned..until]) {
                self.complete = self.scanned + at + 1;
            }
            if next.is_some() && self.starts_field(until, delimiter) {
                self.quote_at = next;
            }
            self.scanned = (until + 1).min(len);
        }
    }

    fn starts_field(&self, at: usize, delimiter: u8) -> bool {
        match at.checked_sub(1).map(|before| self.bytes[before]) {
            None => true,
            Some(before) if before == delimiter || before == b'\n' => true,
            Some(_) => self.at_start && at == BOM.len() && self.bytes.starts_with(BOM),
        }
    }

    /// Takes the complete records off, at the end of input all that is left.
    fn cut(&mut self, at_end: bool) -> Option<(Vec<u8>, u64)> {
        let end = if at_end { self.bytes.len() } else { self.complete };
        if end == 0 {
            return None;
        }
        let rest = self.bytes.split_off(end);
        let bytes = std::mem::replace(&mut self.bytes, rest);
        let first_line = self.line;
        self.line += count_lines(&bytes);
        self.scanned = self.scanned.saturating_sub(end);
        self.quote_at = self.quote_at.map(|at| at - end);
        self.complete = 0;
        self.at_start = false;
        Some((bytes, first_line))
    }

    fn quote_open_line(&self) -> Option<u64> {
        self.quote_at.map(|at| self.line + count_lines(&self.bytes[..at]))
    }

    fn check_closed(&self, input: &str) -> Result<(), SourceError> {
        let Some(line) = self.quote_open_line() else { return Ok(()) };
        Err(SourceError {
            input: input.to_owned(),
            place: Some(format!("line {line}")),
            message:
                "a quote is opened here and never closed; close it, or double it if it is text"
                    .to_owned(),
        })
    }
}

pub(crate) fn count_lines(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::feed::{Feed, Polled};

    /// A reader that gives at most `step` bytes at a time.
    struct Dribble(io::Cursor<Vec<u8>>, usize);

    impl Read for Dribble {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            let n = buf.len().min(self.1);
            self.0.read(&mut buf[..n])
        }
    }

    fn chunks(text: &str, chunk_bytes: usize, step: usize) -> Result<Vec<Chunk>, String> {
        let reader = Dribble(io::Cursor::new(text.as_bytes().to_vec()), step);
        let cutting = Cutting { quoted_by: Some(b','), chunk_bytes, live: step % 2 == 1 };
        let feed = Feed::start("t", 2, move |out| run("t", reader, &cutting, out)).unwrap();
        let mut all = Vec::new();
        loop {
            match feed.wait(None) {
                Ok(Polled::Item(chunk)) => all.push(chunk),
                Ok(_) => return Ok(all),
                Err(e) => return Err(e.to_string()),
            }
        }
    }

    #[test]
    fn chunks_end_at_record_ends_and_lose_nothing() {
        let text = "a,b\n\"x\ny\",\"p\"\"\n\"\"q\"\nu\"v,\"w\"\n\"\",\"\n\n\"\r\nlast,\"1\"";
        // Where records end, by hand.
        let ends: Vec<usize> = ["a,b\n", "\"x\ny\",\"p\"\"\n\"\"q\"\n", "u\"v,\"w\"\n"]
            .iter()
            .chain(&["\"\",\"\n\n\"\r\n", "last,\"1\""])
            .scan(0, |at, s| {
                *at += s.len();
                Some(*at)
            })
            .collect();
        assert_eq!(*ends.last().unwrap(), text.len());
        for chunk_bytes in 1..text.len() + 2 {
            for step in [1, 2, 3, 7, 100] {
                let all = chunks(text, chunk_bytes, step).unwrap();
                let mut at = 0;
                for (i, chunk) in all.iter().enumerate() {
                    assert_eq!(chunk.ticket, i as u64);
                    assert_eq!(chunk.first_line, 1 + count_lines(&text.as_bytes()[..at]));
                    at += chunk.bytes.len();
                    assert!(ends.contains(&at), "{chunk_bytes} {step}: cut at {at}");
                }
                let joined: Vec<u8> = all.into_iter().flat_map(|c| c.bytes).collect();
                assert_eq!(joined, text.as_bytes());
            }
        }
    }

    #[test]
    fn an_open_quote_names_its_line() {
        let error = chunks("a,b\n1,2\n3,\"x\n4,5\n", 5, 3).unwrap_err();
        assert!(error.starts_with("t, line 3: a quote is opened here"), "{error}");
        assert_eq!(chunks("a\n\"x\"", 4, 100).unwrap().len(), 2);
    }

    #[test]
    fn a_quote_behind_the_byte_order_mark_opens_a_field() {
        let all = chunks("\u{feff}\"a\nb\",c\n1,2\n", 6, 100).unwrap();
        assert!(all[0].bytes.ends_with(b",c\n"));
    }
}
