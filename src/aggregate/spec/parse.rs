//! Reading aggregates as text.
//!
//! ```text
//! list  = item { "," item }
//! item  = function [ "(" arguments ")" ] [ "filter" "(" "where" condition ")" ] [ "as" name ]
//! name  = plain characters, or anything between double quotes
//! ```
//!
//! Tokens and conditions are read by `sqlparser`; the few words around them here, so that every error
//! says at which character it is and what would have been right there.

use sqlparser::tokenizer::{Token, TokenWithSpan};

use crate::aggregate::filter::Filter;
use crate::aggregate::filter::parse::{
    char_index, condition, is_plain, is_word, syntax_error, tokens,
};
use crate::aggregate::spec::{Aggregate, Fraction, Function, Shape};
use crate::error::{ConfigError, nearest_name};

/// Aggregates that are known by name and not built.
const LATER: [(&str, &str); 6] = [
    ("array_agg", "`top_n(x, n)` and `bottom_n(x, n)` give lists of bounded length"),
    ("string_agg", "`top_n(x, n)` and `bottom_n(x, n)` give lists of bounded length"),
    ("percentile", "use `approx_quantile(x, 0.99)`"),
    ("quantile", "use `approx_quantile(x, 0.99)`"),
    ("percentile_cont", "use `approx_quantile(x, 0.99)`"),
    ("percentile_disc", "use `approx_quantile(x, 0.99)`"),
];

/// Reads the whole of `text`.
pub(super) fn list(text: &str) -> Result<Vec<Aggregate>, ConfigError> {
    let tokens = tokens(text).map_err(|(at, why)| syntax_error("aggregate", text, at, &why))?;
    let mut cursor = Cursor { text, chars: text.chars().collect(), tokens, next: 0 };
    let mut aggregates = Vec::new();
    loop {
        aggregates.push(cursor.item()?);
        match cursor.peek() {
            None => return Ok(aggregates),
            Some(Token::Comma) => cursor.next += 1,
            Some(_) => return Err(cursor.error("expected `,`, `as NAME` or the end")),
        }
    }
}

/// What is left to read.
struct Cursor<'a> {
    text: &'a str,
    chars: Vec<char>,
    tokens: Vec<TokenWithSpan>,
    next: usize,
}

impl Cursor<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.next).map(|token| &token.token)
    }

    fn is(&self, token: &Token) -> bool {
        self.peek() == Some(token)
    }

    /// Steps over `token` if it is next.
    fn take(&mut self, token: &Token) -> bool {
        let found = self.is(token);
        self.next += usize::from(found);
        found
    }

    /// Steps over `word` (any case) if it is the next word.
    fn take_word(&mut self, word: &str) -> bool {
        let found = self.peek().is_some_and(|token| is_word(token, word));
        self.next += usize::from(found);
        found
    }

    fn expect(&mut self, token: &Token) -> Result<(), ConfigError> {
        if self.take(token) { Ok(()) } else { Err(self.error(&format!("expected `{token}`"))) }
    }

    /// Character at which token `index` starts, counted from 0.
    fn start(&self, index: usize) -> usize {
        self.tokens.get(index).map_or(usize::MAX, |token| {
            char_index(self.text, token.span.start.line, token.span.start.column)
        })
    }

    /// The run of plain characters that starts here, perhaps empty, and the tokens it is made of. A name
    /// such as `2020_sales` is a number and a word to SQL.
    fn plain(&self) -> (String, usize) {
        let start = self.start(self.next);
        let rest = self.chars.get(start..).unwrap_or_default();
        let word: String = rest.iter().take_while(|c| is_plain(**c)).collect();
        let end = start.saturating_add(word.chars().count());
        let tokens = (self.next..self.tokens.len()).take_while(|index| self.start(*index) < end);
        (word, tokens.count())
    }

    fn item(&mut self) -> Result<Aggregate, ConfigError> {
        let (function, word) = self.function()?;
        let mut aggregate = self.arguments(function, &word)?;
        if self.take_word("filter") {
            aggregate.filter = Some(self.filter()?);
        }
        if self.take_word("as") {
            aggregate.alias = Some(self.name("a name after `as`")?);
        }
        Ok(aggregate)
    }

    fn function(&mut self) -> Result<(Function, String), ConfigError> {
        let (word, tokens) = self.plain();
        if word.is_empty() {
            return Err(self.error("expected an aggregate such as `count` or `sum(x)`"));
        }
        let lower = word.to_lowercase();
        let own = Function::ALL.into_iter().find(|function| function.name() == lower);
        let alias = Function::ALIASES.into_iter().find(|(name, _)| *name == lower);
        if let Some(function) = own.or(alias.map(|(_, function)| function)) {
            self.next += tokens;
            return Ok((function, word));
        }
        if let Some((_, instead)) = LATER.iter().find(|(name, _)| *name == lower) {
            return Err(ConfigError::Unsupported {
                what: format!("the aggregate `{lower}`"),
                instead: (*instead).to_owned(),
            });
        }
        let mut names = Function::ALL.map(|function| function.name().to_owned()).to_vec();
        names.pop();
        let nearest = match lower.as_str() {
            "mean" | "average" => Some("avg".to_owned()),
            "minimum" => Some("min".to_owned()),
            "maximum" => Some("max".to_owned()),
            "argmax" | "max_by" => Some("arg_max".to_owned()),
            "argmin" | "min_by" => Some("arg_min".to_owned()),
            "every" => Some("bool_and".to_owned()),
            _ => nearest_name(&lower, &names),
        };
        let hint = nearest.map(|name| format!(", did you mean `{name}`?")).unwrap_or_default();
        let known = names.join(", ");
        Err(self.error(&format!("there is no aggregate `{word}`{hint}; there are {known}")))
    }

    /// What stands in parentheses, if they are there.
    fn arguments(&mut self, function: Function, word: &str) -> Result<Aggregate, ConfigError> {
        let counts_rows = function == Function::Count;
        let wanted = format!("`{word}` needs a column, as in `{}`", function.example());
        if !self.take(&Token::LParen) {
            return if counts_rows { Ok(Aggregate::count()) } else { Err(self.error(&wanted)) };
        }
        if matches!(self.peek(), Some(Token::RParen | Token::Mul)) {
            if !counts_rows {
                return Err(self.error(&wanted));
            }
            self.take(&Token::Mul);
            self.expect(&Token::RParen)?;
            return Ok(Aggregate::count());
        }
        let function = self.distinct(function)?;
        let mut aggregate = Aggregate::of(function, self.name("a column name")?);
        match function.shape() {
            Shape::OptionalColumn | Shape::Column => {
                if self.is(&Token::Comma) {
                    let why = format!("`{function}` takes one column; expected `)`");
                    return Err(self.error(&why));
                }
            }
            Shape::TwoColumns(_) => {
                self.comma(function)?;
                aggregate.more.push(self.name("a column name")?);
            }
            Shape::Columns => {
                while self.take(&Token::Comma) {
                    aggregate.more.push(self.name("a column name")?);
                }
            }
            Shape::Quantile => {
                self.comma(function)?;
                let q = self.number("a quantile between 0 and 1")?;
                aggregate.function = Function::ApproxQuantile(Fraction::new(q));
            }
            Shape::Count => {
                self.comma(function)?;
                let n = self.count()?;
                let top = matches!(function, Function::TopN(_));
                aggregate.function = if top { Function::TopN(n) } else { Function::BottomN(n) };
                if self.take(&Token::Comma) {
                    aggregate.more.push(self.name("the name of a payload column")?);
                }
            }
        }
        self.close(function)?;
        aggregate.function.check()?;
        Ok(aggregate)
    }

    /// `distinct` before the columns. A column may be called so too: `min(distinct)`.
    fn distinct(&mut self, function: Function) -> Result<Function, ConfigError> {
        let follows = self.tokens.get(self.next + 1).map(|token| &token.token);
        if !self.peek().is_some_and(|token| is_word(token, "distinct"))
            || matches!(follows, Some(Token::RParen | Token::Comma) | None)
        {
            return Ok(function);
        }
        if matches!(function, Function::Count | Function::CountDistinct) {
            self.next += 1;
            return Ok(Function::CountDistinct);
        }
        let start = self.start(self.next + 1);
        let rest = self.chars.iter().skip(start).take_while(|c| **c != ')').collect::<String>();
        let distinct = rest.trim();
        Err(ConfigError::Unsupported {
            what: format!("`{function}(distinct {distinct})`"),
            instead: format!("`{function}({distinct})` takes every value, repeated ones too"),
        })
    }

    fn comma(&mut self, function: Function) -> Result<(), ConfigError> {
        if self.take(&Token::Comma) {
            return Ok(());
        }
        let example = function.example();
        Err(self.error(&format!("expected `,`; `{function}` is written `{example}`")))
    }

    fn close(&mut self, function: Function) -> Result<(), ConfigError> {
        let why = match self.peek() {
            Some(Token::RParen) => {
                self.next += 1;
                return Ok(());
            }
            Some(Token::Comma) => {
                format!("expected `)`; `{function}` is written `{}`", function.example())
            }
            Some(Token::Plus | Token::Minus | Token::Mul | Token::Div | Token::Mod) => {
                "expected `)`; a column, not an expression, is aggregated, and a name with such \
                 characters goes in double quotes"
                    .to_owned()
            }
            _ if !self.plain().0.is_empty() => {
                "expected `)`; a name with spaces goes in double quotes".to_owned()
            }
            _ => "expected `)`".to_owned(),
        };
        Err(self.error(&why))
    }

    fn filter(&mut self) -> Result<Filter, ConfigError> {
        self.expect(&Token::LParen)?;
        if !self.take_word("where") {
            return Err(self.error("expected `where`, as in `filter (where x > 5)`"));
        }
        let start = self.next;
        let mut open = 1_usize;
        while open > 0 {
            match self.peek() {
                None => return Err(self.error("expected `)` at the end of the filter")),
                Some(Token::LParen) => open += 1,
                Some(Token::RParen) => open -= 1,
                Some(_) => {}
            }
            self.next += 1;
        }
        let end = self.next - 1;
        let condition = condition(self.tokens[start..end].to_vec());
        condition.map_err(|fault| {
            fault.explain(&|at, why| {
                let place = at.map(|(line, column)| char_index(self.text, line, column));
                let place = place.unwrap_or_else(|| self.start(end));
                syntax_error("aggregate", self.text, place, why)
            })
        })
    }

    /// A plain or quoted name.
    fn name(&mut self, what: &str) -> Result<String, ConfigError> {
        if let Some(Token::Word(word)) = self.peek()
            && word.quote_style.is_some()
        {
            let name = word.value.clone();
            if name.is_empty() {
                return Err(self.error("a name cannot be empty"));
            }
            self.next += 1;
            return Ok(name);
        }
        let (word, tokens) = self.plain();
        if word.is_empty() {
            let start = self.start(self.next);
            let quotes = match self.chars.get(start) {
                Some('\'' | '`') => "; names are quoted with double quotes",
                Some(_) | None => "",
            };
            return Err(self.error(&format!("expected {what}{quotes}")));
        }
        self.next += tokens;
        Ok(word)
    }

    fn number(&mut self, what: &str) -> Result<f64, ConfigError> {
        let negative = self.take(&Token::Minus);
        if let Some(Token::Number(text, _)) = self.peek()
            && let Ok(number) = text.parse::<f64>()
        {
            self.next += 1;
            return Ok(if negative { -number } else { number });
        }
        Err(self.error(&format!("expected {what}")))
    }

    fn count(&mut self) -> Result<u32, ConfigError> {
        if let Some(Token::Number(text, _)) = self.peek()
            && let Ok(number) = text.parse::<u32>()
        {
            self.next += 1;
            return Ok(number);
        }
        Err(self.error("expected a whole number, how many values are wanted"))
    }

    /// An error at the next token.
    fn error(&self, why: &str) -> ConfigError {
        syntax_error("aggregate", self.text, self.start(self.next), why)
    }
}
