//! Finds the wanted fields of JSON objects, one object a line.
//!
//! Every line is checked to be one whole JSON object, also in the parts that nobody wants; values
//! are not built, only their places noted. A number, `true`, `false` or a nested value is noted as
//! it is written, a string without its quotes. If a name occurs twice in an object, the last counts.

use hashbrown::HashMap;
use memchr::{memchr, memchr2};

use crate::io::text::field::{Broken, BrokenBy, Field, Rows, place};

/// Deepest nesting that is followed.
const DEPTH_MAX: usize = 128;

/// A value in a line, by its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value {
    Null,
    /// `true` or `false`.
    Boolean {
        start: usize,
        end: usize,
    },
    Number {
        start: usize,
        end: usize,
    },
    /// Without the quotes.
    Text {
        start: usize,
        end: usize,
        escaped: bool,
    },
    /// An object or a list.
    Nested {
        start: usize,
        end: usize,
    },
}

/// Which names are wanted.
#[derive(Debug, Clone)]
pub(crate) struct JsonLayout {
    pub(crate) slots: HashMap<Vec<u8>, u16>,
    pub(crate) width: usize,
}

/// The names of the last object in their order: most objects of a file have the same.
#[derive(Debug, Default)]
pub(crate) struct Familiar(Vec<(Vec<u8>, Option<u16>)>);

impl Familiar {
    #[inline]
    fn slot(&mut self, index: usize, name: &[u8], layout: &JsonLayout) -> Option<u16> {
        if let Some((known, slot)) = self.0.get(index)
            && known == name
        {
            return *slot;
        }
        let slot = layout.slots.get(name).copied();
        if index < self.0.len() {
            self.0[index] = (name.to_vec(), slot);
        } else if index == self.0.len() && index < 1024 {
            self.0.push((name.to_vec(), slot));
        }
        slot
    }
}

/// Reads lines from `pos` until `limit` rows are complete or the chunk ends; returns where it
/// stopped.
pub(crate) fn split(
    layout: &JsonLayout,
    bytes: &[u8],
    mut pos: usize,
    limit: usize,
    rows: &mut Rows,
) -> usize {
    let mut familiar = Familiar::default();
    while rows.len() < limit && pos < bytes.len() {
        let end = memchr(b'\n', &bytes[pos..]).map_or(bytes.len(), |at| pos + at);
        let (start, stop) = content_of(bytes, pos, end);
        pos = (end + 1).min(bytes.len());
        if start == stop {
            continue;
        }
        let base = rows.fields.len();
        rows.fields.resize(base + layout.width, Field::NULL);
        let (fields, scratch) = (&mut rows.fields[base..], &mut rows.scratch);
        let mut index = 0;
        let outcome = object(&bytes[..stop], start, |name, value| {
            if let Some(slot) = familiar.slot(index, name, layout) {
                fields[slot as usize] = field(value, bytes, scratch)?;
            }
            index += 1;
            Ok(())
        });
        let span = place(start, stop);
        match outcome {
            Ok(()) => rows.places.push(span),
            Err(why) => {
                rows.fields.truncate(base);
                rows.broken.push(Broken { place: span, fault: BrokenBy::Json(why) });
            }
        }
    }
    pos
}

/// A line without the blanks around it.
pub(crate) fn content_of(bytes: &[u8], start: usize, end: usize) -> (usize, usize) {
    let line = &bytes[start..end];
    let front = line.len() - line.trim_ascii_start().len();
    let content = line.trim_ascii();
    (start + front, start + front + content.len())
}

fn field(value: Value, bytes: &[u8], scratch: &mut Vec<u8>) -> Result<Field, String> {
    Ok(match value {
        Value::Null => Field::NULL,
        Value::Text { start, end, escaped: true } => {
            let text = unescape(bytes, start, end)?;
            let from = scratch.len();
            scratch.extend_from_slice(text.as_bytes());
            Field::in_scratch(from, scratch.len())
        }
        Value::Boolean { start, end }
        | Value::Number { start, end }
        | Value::Nested { start, end }
        | Value::Text { start, end, .. } => Field::in_chunk(start, end),
    })
}

/// A string with escapes as text. `start` and `end` are inside the quotes.
pub(crate) fn unescape(bytes: &[u8], start: usize, end: usize) -> Result<String, String> {
    serde_json::from_slice(&bytes[start - 1..=end]).map_err(|e| format!("a string in it: {e}"))
}

/// Goes through the object that is all of `line[start..]`. `each` gets names and values in order.
pub(crate) fn object(
    line: &[u8],
    start: usize,
    mut each: impl FnMut(&[u8], Value) -> Result<(), String>,
) -> Result<(), String> {
    let mut scan = Scan { line, pos: start, start };
    if !scan.eat(b'{') {
        return Err("the line is no JSON object; each line must be one, {...}".to_owned());
    }
    if !scan.eat(b'}') {
        loop {
            let (from, to, escaped) = scan.name()?;
            scan.expect(b':')?;
            let value = scan.value(0)?;
            if escaped {
                each(unescape(line, from, to)?.as_bytes(), value)?;
            } else {
                each(&line[from..to], value)?;
            }
            if !scan.eat(b',') {
                scan.expect(b'}')?;
                break;
            }
        }
    }
    scan.blanks();
    if scan.pos < line.len() {
        return Err(scan.unexpected("the end of the line"));
    }
    Ok(())
}

struct Scan<'a> {
    line: &'a [u8],
    pos: usize,
    start: usize,
}

impl Scan<'_> {
    #[inline]
    fn blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\r') = self.line.get(self.pos) {
            self.pos += 1;
        }
    }

    #[inline]
    fn eat(&mut self, byte: u8) -> bool {
        self.blanks();
        let found = self.line.get(self.pos) == Some(&byte);
        self.pos += usize::from(found);
        found
    }

    #[inline]
    fn expect(&mut self, byte: u8) -> Result<(), String> {
        if self.eat(byte) { Ok(()) } else { Err(self.unexpected(&char::from(byte).to_string())) }
    }

    #[cold]
    fn unexpected(&self, expected: &str) -> String {
        let at = self.pos - self.start + 1;
        match self.line.get(self.pos) {
            Some(b) => {
                format!(
                    "expected {expected}, found {} at byte {at}",
                    char::from(*b).escape_default()
                )
            }
            None => format!("expected {expected}, but the line ends; is it cut off?"),
        }
    }

    fn name(&mut self) -> Result<(usize, usize, bool), String> {
        if !self.eat(b'"') {
            return Err(self.unexpected("a quoted name"));
        }
        self.string()
    }

    /// The rest of a string, behind its opening quote.
    #[inline]
    fn string(&mut self) -> Result<(usize, usize, bool), String> {
        let from = self.pos;
        let mut escaped = false;
        loop {
            let Some(at) = memchr2(b'"', b'\\', &self.line[self.pos..]) else {
                return Err("a string in it is never closed; is the line cut off?".to_owned());
            };
            let text = &self.line[self.pos..self.pos + at];
            if text.iter().any(|&b| b < b' ') {
                return Err("a string in it has a control character; write it as \\u00..".into());
            }
            self.pos += at + 1;
            if self.line[self.pos - 1] == b'"' {
                return Ok((from, self.pos - 1, escaped));
            }
            escaped = true;
            self.escape()?;
        }
    }

    /// What follows a backslash. (Pairs of surrogates are checked when the string is used.)
    fn escape(&mut self) -> Result<(), String> {
        let rest = &self.line[self.pos..];
        self.pos += match rest.first() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 1,
            Some(b'u') if rest.len() > 4 && rest[1..5].iter().all(u8::is_ascii_hexdigit) => 5,
            _ => return Err(self.unexpected("an escape sequence")),
        };
        Ok(())
    }

    #[inline]
    fn value(&mut self, depth: usize) -> Result<Value, String> {
        self.blanks();
        let start = self.pos;
        match self.line.get(start) {
            Some(b'"') => {
                self.pos += 1;
                let (start, end, escaped) = self.string()?;
                Ok(Value::Text { start, end, escaped })
            }
            Some(b'-' | b'0'..=b'9') => {
                self.number()?;
                Ok(Value::Number { start, end: self.pos })
            }
            Some(b'{' | b'[') => {
                self.nested(depth + 1)?;
                Ok(Value::Nested { start, end: self.pos })
            }
            _ => self.word(start),
        }
    }

    fn word(&mut self, start: usize) -> Result<Value, String> {
        for (word, is_null) in [(&b"true"[..], false), (b"false", false), (b"null", true)] {
            if self.line[start.min(self.line.len())..].starts_with(word) {
                self.pos += word.len();
                let end = self.pos;
                return Ok(if is_null { Value::Null } else { Value::Boolean { start, end } });
            }
        }
        Err(self.unexpected("a value"))
    }

    #[inline]
    fn digits(&mut self) -> usize {
        let from = self.pos;
        while self.line.get(self.pos).is_some_and(u8::is_ascii_digit) {
            self.pos += 1;
        }
        self.pos - from
    }

    #[inline]
    fn number(&mut self) -> Result<(), String> {
        self.pos += usize::from(self.line[self.pos] == b'-');
        let leading_zero = self.line.get(self.pos) == Some(&b'0');
        let whole = self.digits();
        if whole == 0 || (leading_zero && whole > 1) {
            return Err(self.unexpected("a number as JSON writes it"));
        }
        if self.line.get(self.pos) == Some(&b'.') {
            self.pos += 1;
            if self.digits() == 0 {
                return Err(self.unexpected("a digit"));
            }
        }
        if let Some(b'e' | b'E') = self.line.get(self.pos) {
            self.pos += 1;
            self.pos += usize::from(matches!(self.line.get(self.pos), Some(b'+' | b'-')));
            if self.digits() == 0 {
                return Err(self.unexpected("a digit"));
            }
        }
        Ok(())
    }

    fn nested(&mut self, depth: usize) -> Result<(), String> {
        if depth > DEPTH_MAX {
            return Err(format!("it is nested more than {DEPTH_MAX} deep"));
        }
        let is_object = self.line[self.pos] == b'{';
        let close = if is_object { b'}' } else { b']' };
        self.pos += 1;
        if self.eat(close) {
            return Ok(());
        }
        loop {
            if is_object {
                self.name()?;
                self.expect(b':')?;
            }
            self.value(depth)?;
            if !self.eat(b',') {
                return self.expect(close);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::text::field::Texts;
    use proptest::prelude::*;

    type Read = Vec<Vec<Option<String>>>;

    fn rows(text: &str, names: &[&str]) -> (Read, Vec<String>) {
        let slots = (0..).zip(names).map(|(i, n)| (n.as_bytes().to_vec(), i)).collect();
        let layout = JsonLayout { slots, width: names.len() };
        let mut rows = Rows::new(names.len());
        split(&layout, text.as_bytes(), 0, usize::MAX, &mut rows);
        let texts = Texts { chunk: text.as_bytes(), utf8: Some(text), scratch: &rows.scratch };
        let read = |f: &Field| (!f.is_null()).then(|| texts.text(*f).unwrap().to_owned());
        let all = rows.fields.chunks(names.len()).map(|r| r.iter().map(read).collect()).collect();
        let why = |b: &Broken| match &b.fault {
            BrokenBy::Json(why) => why.clone(),
            BrokenBy::Ragged { .. } => unreachable!("json is never ragged"),
        };
        (all, rows.broken.iter().map(why).collect())
    }

    #[test]
    fn wanted_values_are_found() {
        let text = "{\"a\":1,\"b\":\"x\"}\r\n\n { \"b\" : \"q\\\"\\u00e9\\n\", \"c\":[1,{\"a\":9}], \"a\":-1.5e3 }\n{}\n\
                    {\"a\":null,\"a\":true,\"b\":{\"x\":[]}}\n{\"\\u0061\":7,\"b\":\"\"}";
        let some =
            |a: Option<&str>, b: Option<&str>| vec![a.map(String::from), b.map(String::from)];
        let expected = vec![
            some(Some("1"), Some("x")),
            some(Some("-1.5e3"), Some("q\"\u{e9}\n")),
            some(None, None),
            some(Some("true"), Some("{\"x\":[]}")),
            some(Some("7"), Some("")),
        ];
        assert_eq!(rows(text, &["a", "b"]), (expected, vec![]));
    }

    #[test]
    fn lines_that_are_no_objects_are_set_aside() {
        for bad in
            ["[1]", "{\"a\":01}", "{\"a\":1", "{\"a\":1}}", "{a:1}", "{\"a\":tru}", "{\"a\"1}"]
                .iter()
                .chain(&[
                    "{\"a\":1,}",
                    "{\"a\":\"x}",
                    "{\"a\":\"\\x\"}",
                    "{\"a\":nan}",
                    "1",
                    "\"a\"",
                ])
                .chain(&[
                    "{\"a\":\"\\ud800\"}",
                    "{\"b\":[1,]}",
                    "{\"b\":{\"x\"}}",
                    "{\"a\":-}",
                    "{\"a\":1.}",
                ])
        {
            let (good, broken) = rows(bad, &["a"]);
            assert_eq!((good.len(), broken.len()), (0, 1), "{bad}");
        }
        let deep = format!("{{\"b\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
        assert_eq!(rows(&deep, &["a"]).1, ["it is nested more than 128 deep"]);
    }

    proptest! {
        /// What is taken for an object is one, and the other way round.
        #[test]
        fn agrees_with_serde_json(line in "[\\{\\}\\[\\],:\"a1e. \\-\\\\ntrue]{0,24}") {
            let line = format!("{{\"k\":{line}}}");
            let expected = serde_json::from_str::<serde_json::Value>(&line).ok();
            let (good, broken) = rows(&line, &["k"]);
            // Numbers too large for a float are an error there and a text here.
            if expected.is_some() {
                prop_assert_eq!((good.len(), broken.len()), (1, 0), "{}", line);
            } else if good.len() == 1 {
                let error = serde_json::from_str::<serde_json::Value>(&line).unwrap_err();
                prop_assert!(error.to_string().contains("out of range"), "{}: {}", line, error);
            }
        }
    }
}
