//! From text to conditions, by `sqlparser`; what its trees hold beyond conditions is refused by name.

use sqlparser::ast::{BinaryOperator, Expr, InTarget, UnaryOperator, Value};
use sqlparser::dialect::Dialect;
use sqlparser::parser::{Parser, ParserError};
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use crate::aggregate::filter::{Comparison, Condition, Filter, Literal, Operand};
use crate::error::ConfigError;

/// Names are letters, digits, `_`, `$` and `.`, so that `a.b` is one column; others go in double quotes.
#[derive(Debug)]
pub(crate) struct Names;

impl Dialect for Names {
    fn is_identifier_start(&self, c: char) -> bool {
        is_plain(c) && !c.is_ascii_digit() && c != '.'
    }

    fn is_identifier_part(&self, c: char) -> bool {
        is_plain(c)
    }

    fn is_delimited_identifier_start(&self, c: char) -> bool {
        c == '"'
    }
}

/// Whether a name may hold `c` without quotes.
pub(crate) fn is_plain(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$' | '.')
}

/// A name as it is written: in double quotes if it is not plain, or would be read as something else.
pub(crate) fn quoted(name: &str) -> String {
    let digits = name.starts_with(|c: char| c.is_ascii_digit() || c == '.');
    let plain = !name.is_empty() && !digits && name.chars().all(is_plain);
    let lower = name.to_ascii_lowercase();
    let reserved = ["and", "or", "not", "is", "in", "null", "true", "false", "between", "case"];
    let other = ["cast", "interval", "exists", "like", "distinct"];
    if plain && !reserved.contains(&lower.as_str()) && !other.contains(&lower.as_str()) {
        return name.to_owned();
    }
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// The tokens of `text` without white space.
pub(crate) fn tokens(text: &str) -> Result<Vec<TokenWithSpan>, (usize, String)> {
    let tokens = Tokenizer::new(&Names, text).tokenize_with_location();
    let mut tokens = tokens.map_err(|error| {
        let at = char_index(text, error.location.line, error.location.column);
        let why = match text.chars().nth(at) {
            Some('"') => "this double quote is never closed".to_owned(),
            Some('\'') => "this quote is never closed".to_owned(),
            _ => error.message,
        };
        (at, why)
    })?;
    tokens.retain(|token| !matches!(token.token, Token::Whitespace(_)));
    Ok(tokens)
}

/// Characters before a place, whose line and column count from 1.
pub(crate) fn char_index(text: &str, line: u64, column: u64) -> usize {
    let lines = text.split_inclusive('\n').map(|line| line.chars().count());
    let (line, column) = (line.max(1) - 1, column.max(1) - 1);
    let before: usize = lines.take(usize::try_from(line).unwrap_or(usize::MAX)).sum();
    before + usize::try_from(column).unwrap_or(0)
}

/// Reads the whole of `text`.
pub(super) fn filter(text: &str) -> Result<Filter, ConfigError> {
    let syntax = |at: usize, why: &str| syntax_error("filter", text, at, why);
    let tokens = tokens(text).map_err(|(at, why)| syntax(at, &why))?;
    condition(tokens).map_err(|fault| {
        fault.explain(&|at, why| {
            let at = at.map_or(usize::MAX, |(line, column)| char_index(text, line, column));
            syntax(at, why)
        })
    })
}

/// The error of `text` at character `at` (counted from 0; beyond the end: the end).
pub(crate) fn syntax_error(what: &'static str, text: &str, at: usize, why: &str) -> ConfigError {
    let place = if at >= text.trim_end().chars().count() {
        "at the end".to_owned()
    } else {
        format!("at character {}", at + 1)
    };
    ConfigError::Syntax { what, text: text.to_owned(), why: format!("{place}: {why}") }
}

/// Line and column, counted from 1; none: the end of the condition.
pub(crate) type Place = Option<(u64, u64)>;

/// What is wrong with a condition.
#[derive(Debug)]
pub(crate) enum Fault {
    /// It is no condition.
    Syntax(Place, String),
    /// Something that SQL has and conditions here do not.
    Unsupported(String),
}

impl Fault {
    /// The error; `syntax` places it in the whole text.
    pub(crate) fn explain(self, syntax: &dyn Fn(Place, &str) -> ConfigError) -> ConfigError {
        match self {
            Self::Syntax(at, why) => syntax(at, &why),
            Self::Unsupported(what) => ConfigError::Unsupported {
                what: format!("`{what}` in a filter"),
                instead:
                    "a filter compares columns with literals or columns (=, <>, <, <=, >, >=, \
                          between, in, is null) and joins that by and, or, not"
                        .into(),
            },
        }
    }
}

/// The condition that `tokens` are, all of them.
pub(crate) fn condition(tokens: Vec<TokenWithSpan>) -> Result<Filter, Fault> {
    if tokens.is_empty() {
        return Err(Fault::Syntax(None, "expected a condition such as `x > 5`".into()));
    }
    let mut parser = Parser::new(&Names).with_tokens_with_locations(tokens);
    let tree = parser.parse_expr().map_err(|error| match error {
        ParserError::ParserError(message) | ParserError::TokenizerError(message) => place(&message),
        ParserError::RecursionLimitExceeded => {
            Fault::Syntax(None, "the condition is nested too deeply".into())
        }
    })?;
    let rest = parser.peek_token();
    if rest.token != Token::EOF {
        let start = rest.span.start;
        let why = format!("expected `and`, `or` or the end of the condition, not `{}`", rest.token);
        return Err(Fault::Syntax(Some((start.line, start.column)), why));
    }
    Ok(Filter(read(&tree)?))
}

/// Takes the place off the end of a message of the parser.
fn place(message: &str) -> Fault {
    let lower_first = |text: &str| {
        let mut chars = text.chars();
        chars.next().map_or_else(String::new, |c| c.to_lowercase().chain(chars).collect())
    };
    if let Some((text, at)) = message.rsplit_once(" at Line: ") {
        let (line, column) = at.split_once(", Column: ").unwrap_or((at, "1"));
        if let (Ok(line), Ok(column)) = (line.trim().parse(), column.trim().parse()) {
            return Fault::Syntax(Some((line, column)), lower_first(text));
        }
    }
    Fault::Syntax(None, lower_first(message))
}

fn read(tree: &Expr) -> Result<Condition, Fault> {
    Ok(match tree {
        Expr::Nested(inner) => read(inner)?,
        Expr::Identifier(name) => Condition::Column(name.value.clone()),
        Expr::UnaryOp { op: UnaryOperator::Not, expr } => not(read(expr)?),
        Expr::IsNull(inner) => Condition::IsNull(column(inner, tree)?),
        Expr::IsNotNull(inner) => not(Condition::IsNull(column(inner, tree)?)),
        Expr::BinaryOp { op: op @ (BinaryOperator::And | BinaryOperator::Or), .. } => {
            let all = chain(tree, op)?;
            if *op == BinaryOperator::And { Condition::And(all) } else { Condition::Or(all) }
        }
        Expr::BinaryOp { left, op, right } => {
            let by = comparison(op).ok_or_else(|| unsupported(tree))?;
            compare(by, left, right, tree)?
        }
        Expr::Between { expr, negated, low, high } => {
            let both = Condition::And(vec![
                compare(Comparison::GreaterOrEqual, expr, low, tree)?,
                compare(Comparison::LessOrEqual, expr, high, tree)?,
            ]);
            if *negated { not(both) } else { both }
        }
        Expr::In { expr, target: InTarget::List(list), negated, .. } => {
            let list = list.iter().map(|value| literal(value)?.ok_or_else(|| unsupported(tree)));
            let one = Condition::In(column(expr, tree)?, list.collect::<Result<_, _>>()?);
            if *negated { not(one) } else { one }
        }
        _ => return Err(unsupported(tree)),
    })
}

/// The conditions that one operator joins; the left spine of the tree is walked, not recursed into.
fn chain(tree: &Expr, joined_by: &BinaryOperator) -> Result<Vec<Condition>, Fault> {
    let mut reversed = Vec::new();
    let mut rest = tree;
    while let Expr::BinaryOp { left, op, right } = rest
        && op == joined_by
    {
        reversed.push(read(right)?);
        rest = left;
    }
    reversed.push(read(rest)?);
    reversed.reverse();
    Ok(reversed)
}

fn not(condition: Condition) -> Condition {
    Condition::Not(Box::new(condition))
}

fn comparison(op: &BinaryOperator) -> Option<Comparison> {
    Some(match op {
        BinaryOperator::Eq => Comparison::Equal,
        BinaryOperator::NotEq => Comparison::NotEqual,
        BinaryOperator::Lt => Comparison::Less,
        BinaryOperator::LtEq => Comparison::LessOrEqual,
        BinaryOperator::Gt => Comparison::Greater,
        BinaryOperator::GtEq => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

fn compare(by: Comparison, left: &Expr, right: &Expr, whole: &Expr) -> Result<Condition, Fault> {
    match (operand(left, whole)?, operand(right, whole)?) {
        (Operand::Literal(_), Operand::Literal(_)) => {
            Err(Fault::Syntax(None, format!("`{whole}` names no column")))
        }
        // The column first, so that the same condition has one form.
        (left @ Operand::Literal(_), right) => Ok(Condition::Compare(by.mirrored(), right, left)),
        (left, right) => Ok(Condition::Compare(by, left, right)),
    }
}

fn operand(tree: &Expr, whole: &Expr) -> Result<Operand, Fault> {
    match tree {
        Expr::Nested(inner) => operand(inner, whole),
        Expr::Identifier(name) => Ok(Operand::Column(name.value.clone())),
        _ => Ok(Operand::Literal(literal(tree)?.ok_or_else(|| unsupported(whole))?)),
    }
}

fn column(tree: &Expr, whole: &Expr) -> Result<String, Fault> {
    match tree {
        Expr::Nested(inner) => column(inner, whole),
        Expr::Identifier(name) => Ok(name.value.clone()),
        _ => Err(unsupported(whole)),
    }
}

/// The literal that `tree` is, if it is one.
fn literal(tree: &Expr) -> Result<Option<Literal>, Fault> {
    Ok(Some(match tree {
        Expr::Value(value) => match &value.value {
            Value::Number(number, _) => Literal::Number(number.clone()),
            Value::SingleQuotedString(text) => Literal::Text(text.clone()),
            Value::Boolean(value) => Literal::Boolean(*value),
            Value::Null => {
                let why = "nothing equals null; write `is null` or `is not null`";
                return Err(Fault::Syntax(None, why.into()));
            }
            _ => return Ok(None),
        },
        Expr::UnaryOp { op: op @ (UnaryOperator::Minus | UnaryOperator::Plus), expr } => {
            match literal(expr)? {
                Some(Literal::Number(number)) if *op == UnaryOperator::Minus => {
                    Literal::Number(match number.strip_prefix('-') {
                        Some(positive) => positive.to_owned(),
                        None => format!("-{number}"),
                    })
                }
                Some(Literal::Number(number)) => Literal::Number(number),
                _ => return Ok(None),
            }
        }
        // `timestamp '...'`: the column it is compared with says what it is.
        Expr::TypedString(typed) => match &typed.value.value {
            Value::SingleQuotedString(text) => Literal::Text(text.clone()),
            _ => return Ok(None),
        },
        Expr::Nested(inner) => return literal(inner),
        _ => return Ok(None),
    }))
}

fn unsupported(tree: &Expr) -> Fault {
    Fault::Unsupported(tree.to_string())
}

/// Whether `token` is this word, in any case and not in quotes.
pub(crate) fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found)
        if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}
