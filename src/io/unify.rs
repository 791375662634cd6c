//! One schema for all inputs.
//!
//! Columns are matched by name to those of the first input. A column's type is, in this order: the
//! one the user gave; the one that parquet and Arrow inputs have (they must agree); what the samples
//! of all text inputs allow together.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};

use crate::error::{ConfigError, nearest_name};
use crate::io::open::{IoError, Opened, ReadOptions, TimeColumn};
use crate::io::text::columns::{ColumnPlan, is_readable};
use crate::io::text::datetime::TimeFormat;
use crate::io::text::infer::{Guess, formatted_type};
use crate::io::text::sample::{Dialect, TextInput};
use crate::io::time::event_time_type;

/// What the inputs agree on.
pub(crate) struct Agreement {
    pub(crate) schema: SchemaRef,
    /// How texts are read, column by column of the schema.
    pub(crate) columns: Vec<ColumnPlan>,
    /// For each input, where it has each column; nowhere only in ndjson, which may lack some.
    pub(crate) positions: Vec<Vec<Option<usize>>>,
    /// The event-time column, and its unit if inputs have it as integers.
    pub(crate) time: Option<(usize, Option<TimeUnit>)>,
}

pub(crate) fn agree(opened: &[Opened], options: &ReadOptions) -> Result<Agreement, IoError> {
    let names = base_names(opened, options);
    let selected = select(&names, options)?;
    let positions = opened
        .iter()
        .map(|input| locate(input, &opened[0], &names, &selected))
        .collect::<Result<Vec<_>, _>>()?;
    let format = time_format(options)?;
    let (mut fields, mut columns, mut time_of_job) = (Vec::new(), Vec::new(), None);
    for (index, &base) in selected.iter().enumerate() {
        let column = Column { opened, options, positions: &positions, index, name: &names[base] };
        let time = options.time.as_ref().filter(|t| t.name == names[base]);
        let format = format.as_ref().filter(|_| time.is_some());
        let (data_type, inferred) = column.data_type(time, format)?;
        let mut shown = data_type.clone();
        if let Some(time) = time {
            shown = column.time_type(&data_type, time)?;
            let unit = match &shown {
                DataType::Timestamp(unit, _) if data_type.is_integer() => Some(*unit),
                _ => None,
            };
            time_of_job = Some((index, unit));
        }
        fields.push(Field::new(&names[base], shown, column.is_nullable()));
        columns.push(ColumnPlan {
            name: names[base].clone(),
            data_type,
            inferred,
            is_time: time.is_some(),
            format: format.cloned(),
        });
    }
    Ok(Agreement { schema: Arc::new(Schema::new(fields)), columns, positions, time: time_of_job })
}

impl Opened {
    fn names(&self) -> Vec<String> {
        match self {
            Self::Text(input) => input.names.clone(),
            other => other.fields().iter().map(|f| f.name().clone()).collect(),
        }
    }

    /// The typed columns; none of text.
    fn fields(&self) -> Vec<Field> {
        match self {
            Self::Text(_) => Vec::new(),
            Self::Parquet(input) => input.fields(),
            Self::Ipc(input) => input.fields(),
            Self::Stream(input) => input.fields(),
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Text(input) => &input.name,
            Self::Parquet(input) => input.name(),
            Self::Ipc(input) => input.name(),
            Self::Stream(input) => input.name(),
        }
    }

    fn is_ndjson(&self) -> bool {
        matches!(self, Self::Text(input) if input.dialect == Dialect::Ndjson)
    }
}

/// The names of the first input that has a fixed set of them. Objects have no fixed set: if all
/// inputs are ndjson, the names are those of all samples and those that the user gave types for.
fn base_names(opened: &[Opened], options: &ReadOptions) -> Vec<String> {
    if let Some(fixed) = opened.iter().find(|input| !input.is_ndjson()) {
        return fixed.names();
    }
    let mut names: Vec<String> = Vec::new();
    let given = options.types.iter().map(|(name, _)| name.clone());
    for name in opened.iter().flat_map(Opened::names).chain(given) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The positions of the columns that the job needs, in the order of the input.
fn select(names: &[String], options: &ReadOptions) -> Result<Vec<usize>, ConfigError> {
    let find = |name: &str, role: &str| {
        let mut found = names.iter().enumerate().filter(|(_, n)| *n == name);
        match (found.next(), found.next()) {
            (Some((index, _)), None) => Ok(index),
            (Some(_), Some(_)) => Err(ConfigError::AmbiguousColumn { name: name.to_owned() }),
            (None, _) => Err(ConfigError::UnknownColumn {
                role: role.to_owned(),
                name: name.to_owned(),
                nearest: nearest_name(name, names),
                available: names.to_vec(),
            }),
        }
    };
    for (name, _) in &options.types {
        find(name, "--schema")?;
    }
    let time = options.time.as_ref().map(|t| find(&t.name, "time")).transpose()?;
    let Some(columns) = &options.columns else { return Ok((0..names.len()).collect()) };
    let mut selected: Vec<usize> = time.into_iter().collect();
    for wanted in columns {
        selected.push(find(&wanted.name, &wanted.role)?);
    }
    selected.sort_unstable();
    selected.dedup();
    Ok(selected)
}

/// Where an input has the selected columns.
fn locate(
    input: &Opened,
    first: &Opened,
    names: &[String],
    selected: &[usize],
) -> Result<Vec<Option<usize>>, ConfigError> {
    let own = input.names();
    if own == names {
        return Ok(selected.iter().map(|&index| Some(index)).collect());
    }
    let mut positions = Vec::with_capacity(selected.len());
    for &index in selected {
        let name = &names[index];
        let mut found = own.iter().enumerate().filter(|(_, n)| *n == name).map(|(at, _)| at);
        let position = found.next();
        if found.next().is_some() {
            return Err(ConfigError::AmbiguousColumn { name: name.clone() });
        }
        if position.is_none() && !input.is_ndjson() {
            return Err(ConfigError::Inconsistent(format!(
                "{} has no column \"{name}\", but {} has; all inputs need the columns of the job",
                input.name(),
                first.name()
            )));
        }
        positions.push(position);
    }
    Ok(positions)
}

fn time_format(options: &ReadOptions) -> Result<Option<Arc<TimeFormat>>, ConfigError> {
    let Some(text) = options.time.as_ref().and_then(|t| t.format.as_ref()) else {
        return Ok(None);
    };
    let parsed = TimeFormat::parse(text);
    let wrong = |why| ConfigError::Syntax { what: "time format", text: text.clone(), why };
    parsed.map(|format| Some(Arc::new(format))).map_err(wrong)
}

/// One column of all inputs.
struct Column<'a> {
    opened: &'a [Opened],
    options: &'a ReadOptions,
    positions: &'a [Vec<Option<usize>>],
    index: usize,
    name: &'a str,
}

impl Column<'_> {
    fn texts(&self) -> impl Iterator<Item = (&TextInput, Option<usize>)> {
        self.opened.iter().zip(self.positions).filter_map(|(input, positions)| match input {
            Opened::Text(input) => Some((input.as_ref(), positions[self.index])),
            _ => None,
        })
    }

    /// The typed inputs' fields of this column, with the inputs' names.
    fn typed(&self) -> Vec<(String, Field)> {
        let inputs = self.opened.iter().zip(self.positions);
        inputs
            .filter_map(|(input, positions)| {
                let field = input.fields().get(positions[self.index]?)?.clone();
                Some((input.name().to_owned(), field))
            })
            .collect()
    }

    fn is_nullable(&self) -> bool {
        self.texts().next().is_some() || self.typed().iter().any(|(_, f)| f.is_nullable())
    }

    /// The type that the column is read as, and whether it is a guess.
    fn data_type(
        &self,
        time: Option<&TimeColumn>,
        format: Option<&Arc<TimeFormat>>,
    ) -> Result<(DataType, bool), IoError> {
        let given = self.options.types.iter().find(|(name, _)| name == self.name).map(|(_, t)| t);
        let typed = self.typed();
        if let Some((first, field)) = typed.first() {
            let found = field.data_type();
            self.check_typed(first, found, given, &typed)?;
            if self.texts().next().is_some() && !is_readable(found) {
                return Err(ConfigError::Inconsistent(format!(
                    "{first} has column \"{}\" as {found}, which cannot be read from the text inputs",
                    self.name
                ))
                .into());
            }
            return Ok((found.clone(), false));
        }
        if let Some(given) = given {
            return Ok((given.clone(), false));
        }
        if let (Some(time), Some(format)) = (time, format) {
            let sample = self.texts().flat_map(|(t, _)| t.time_texts.iter().map(Vec::as_slice));
            return Ok((formatted_type(format, time.unit, sample), true));
        }
        let mut guess = Guess::EMPTY;
        for (input, position) in self.texts() {
            if let Some(position) = position {
                guess.merge(&input.guesses[position]);
            }
        }
        let guessed = guess.data_type();
        let data_type = if time.is_some() { guess.time_type().unwrap_or(guessed) } else { guessed };
        Ok((data_type, true))
    }

    fn check_typed(
        &self,
        first: &str,
        found: &DataType,
        given: Option<&DataType>,
        typed: &[(String, Field)],
    ) -> Result<(), ConfigError> {
        let name = self.name;
        if let Some((other, field)) = typed.iter().find(|(_, f)| f.data_type() != found) {
            return Err(ConfigError::Inconsistent(format!(
                "{first} has column \"{name}\" as {found}, but {other} has it as {}; \
                 convert one of them, all inputs need the same types",
                field.data_type()
            )));
        }
        if let Some(given) = given.filter(|given| *given != found) {
            return Err(ConfigError::Inconsistent(format!(
                "--schema gives column \"{name}\" the type {given}, but {first} has it as {found}; \
                 types can be given for text inputs only"
            )));
        }
        Ok(())
    }

    fn time_type(&self, data_type: &DataType, time: &TimeColumn) -> Result<DataType, ConfigError> {
        event_time_type(data_type, time.unit).ok_or_else(|| ConfigError::WrongType {
            use_: "event time".to_owned(),
            column: self.name.to_owned(),
            found: data_type.to_string(),
            expected: "use a column of timestamps, dates or integers, or say with --time-format \
                       how times are written in a text column"
                .to_owned(),
        })
    }
}
