//! Reading aggregates as text.
//!
//! ```text
//! list  = item { "," item }
//! item  = function [ "(" [ "*" | name ] ")" ] [ "as" name ]
//! name  = plain characters, or anything between double quotes
//! ```
//!
//! Every error says at which character it is and what would have been right there.

use crate::aggregate::spec::{Aggregate, Function};
use crate::error::{ConfigError, nearest_name};

/// Aggregates that are known by name and not built yet.
const LATER: [&str; 33] = [
    "any_value",
    "approx_distinct",
    "approx_quantile",
    "arg_max",
    "arg_min",
    "array_agg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "bottom_n",
    "corr",
    "count_distinct",
    "covar_pop",
    "covar_samp",
    "first",
    "first_value",
    "last",
    "last_value",
    "median",
    "mode",
    "percentile",
    "quantile",
    "stddev",
    "stddev_pop",
    "stddev_samp",
    "string_agg",
    "top_n",
    "var_pop",
    "var_samp",
    "variance",
    "approx_percentile",
];

/// Whether a name may hold `c` without quotes.
pub(super) fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '.')
}

/// Reads the whole of `text`.
pub(super) fn list(text: &str) -> Result<Vec<Aggregate>, ConfigError> {
    let mut cursor = Cursor { text, rest: text };
    let mut aggregates = Vec::new();
    loop {
        aggregates.push(cursor.item()?);
        match cursor.peek() {
            None => return Ok(aggregates),
            Some(',') => cursor.take(','),
            Some(_) => return Err(cursor.error("expected `,`, `as NAME` or the end")),
        };
    }
}

/// What is left to read.
struct Cursor<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    /// The next character that is not white space.
    fn peek(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    /// Steps over `c` if it is next.
    fn take(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        if found {
            self.rest = &self.rest[c.len_utf8()..];
        }
        found
    }

    /// The longest run of plain characters, perhaps empty; not stepped over.
    fn word(&mut self) -> &'a str {
        self.peek();
        let end = self.rest.find(|c| !is_plain(c)).unwrap_or(self.rest.len());
        &self.rest[..end]
    }

    /// Steps over `word` (any case) if it is the next word.
    fn take_word(&mut self, word: &str) -> bool {
        let found = self.word();
        let same = found.eq_ignore_ascii_case(word);
        if same {
            self.rest = &self.rest[found.len()..];
        }
        same
    }

    fn item(&mut self) -> Result<Aggregate, ConfigError> {
        let (function, word) = self.function()?;
        let column = self.argument(function, word)?;
        if self.word().eq_ignore_ascii_case("filter") {
            return Err(ConfigError::Unsupported {
                what: "`filter` on an aggregate".into(),
                instead: "filter the rows before they reach the job".into(),
            });
        }
        let alias = if self.take_word("as") { Some(self.name("a name after `as`")?) } else { None };
        Ok(Aggregate { function, column, alias })
    }

    fn function(&mut self) -> Result<(Function, &'a str), ConfigError> {
        let word = self.word();
        if word.is_empty() {
            return Err(self.error("expected an aggregate such as `count` or `sum(x)`"));
        }
        let lower = word.to_lowercase();
        if let Some(function) = Function::ALL.into_iter().find(|f| f.name() == lower) {
            self.rest = &self.rest[word.len()..];
            return Ok((function, word));
        }
        let known = Function::ALL.map(Function::name).join(", ");
        if LATER.contains(&lower.as_str()) {
            return Err(ConfigError::Unsupported {
                what: format!("the aggregate `{lower}`"),
                instead: format!("use one of {known}"),
            });
        }
        let nearest = match lower.as_str() {
            "mean" | "average" => Some("avg".to_owned()),
            "minimum" => Some("min".to_owned()),
            "maximum" => Some("max".to_owned()),
            _ => nearest_name(&lower, &Function::ALL.map(|f| f.name().to_owned())),
        };
        let hint = nearest.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default();
        Err(self.error(&format!("there is no aggregate `{word}`{hint}; there are {known}")))
    }

    /// What stands in parentheses, if they are there.
    fn argument(&mut self, function: Function, word: &str) -> Result<Option<String>, ConfigError> {
        let counts_rows = function == Function::Count;
        let wanted = format!("`{word}` needs a column, as in `{function}(x)`");
        if !self.take('(') {
            return if counts_rows { Ok(None) } else { Err(self.error(&wanted)) };
        }
        if matches!(self.peek(), Some(')' | '*')) {
            if !counts_rows {
                return Err(self.error(&wanted));
            }
            self.take('*');
            return if self.take(')') { Ok(None) } else { Err(self.error("expected `)`")) };
        }
        let before = self.rest;
        let column = self.name("a column name")?;
        let plain = !before.starts_with('"');
        if plain && column.eq_ignore_ascii_case("distinct") && self.peek() != Some(')') {
            let distinct = self.rest.split(')').next().unwrap_or_default().trim();
            return Err(ConfigError::Unsupported {
                what: format!("`{function}(distinct {distinct})`"),
                instead: format!("`{function}({distinct})` takes every value, repeated ones too"),
            });
        }
        match self.peek() {
            Some(')') => {}
            Some(',') => {
                let why = format!("`{function}` takes one column; expected `)`");
                return Err(self.error(&why));
            }
            Some(c) if c.is_alphanumeric() => {
                return Err(self.error("expected `)`; a name with spaces goes in double quotes"));
            }
            Some('+' | '-' | '*' | '/' | '%') => {
                return Err(self.error(
                    "expected `)`; a column, not an expression, is aggregated, and a name with such \
                     characters goes in double quotes",
                ));
            }
            _ => return Err(self.error("expected `)`")),
        }
        self.take(')');
        Ok(Some(column))
    }

    /// A plain or quoted name.
    fn name(&mut self, what: &str) -> Result<String, ConfigError> {
        if self.peek() == Some('"') {
            return self.quoted();
        }
        let word = self.word();
        if word.is_empty() {
            let quotes = match self.peek() {
                Some('\'' | '`') => "; names are quoted with double quotes",
                Some(_) | None => "",
            };
            return Err(self.error(&format!("expected {what}{quotes}")));
        }
        self.rest = &self.rest[word.len()..];
        Ok(word.to_owned())
    }

    fn quoted(&mut self) -> Result<String, ConfigError> {
        let mut name = String::new();
        let mut pieces = self.rest[1..].split('"').peekable();
        let mut used = 1;
        while let Some(piece) = pieces.next() {
            name.push_str(piece);
            used += piece.len() + 1;
            match pieces.peek() {
                None => return Err(self.error("this double quote is never closed")),
                // Two quotes side by side: the piece between them is empty and another follows.
                Some(next) if next.is_empty() && self.rest[used..].starts_with('"') => {
                    name.push('"');
                    used += 1;
                    pieces.next();
                }
                Some(_) => break,
            }
        }
        if name.is_empty() {
            return Err(self.error("a name cannot be empty"));
        }
        self.rest = &self.rest[used..];
        Ok(name)
    }

    fn error(&mut self, why: &str) -> ConfigError {
        self.peek();
        let before = &self.text[..self.text.len() - self.rest.len()];
        let place = if self.rest.is_empty() {
            "at the end".to_owned()
        } else {
            format!("at character {}", before.chars().count() + 1)
        };
        ConfigError::Syntax {
            what: "aggregate",
            text: self.text.to_owned(),
            why: format!("{place}: {why}"),
        }
    }
}
