//! From aggregates and a schema to accumulators, the layout of a row, and result columns.
//!
//! Everything that can be wrong with an aggregate is found here, before anything runs.

use arrow::datatypes::{DataType, Field, Schema, i256};
use hashbrown::HashSet;

use crate::aggregate::bytes::Bytes;
use crate::aggregate::decimal::{self, Decimal};
use crate::aggregate::number::{Flags, Numbers};
use crate::aggregate::primitive::Word;
use crate::aggregate::rows_count::Counter;
use crate::aggregate::spec::{Aggregate, Function};
use crate::aggregate::{Accumulator, Part};
use crate::column::LaneKind;
use crate::error::{ConfigError, nearest_name};
use crate::kernel::Isa;

#[cfg(test)]
mod tests;

/// How a job's aggregates are kept and emitted. The same for every pane.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The instruction set that kernels run with.
    pub(crate) isa: Isa,
    /// What is kept, in the order of the words of a row.
    pub(crate) accumulators: Vec<Placed>,
    /// Words of all accumulators together.
    pub(crate) words: usize,
    /// The columns that are read, as indices into the schema.
    pub(crate) value_columns: Vec<usize>,
    /// The result columns, in the order asked for.
    pub(crate) outputs: Vec<Output>,
}

/// An accumulator and where it is.
#[derive(Debug)]
pub(crate) struct Placed {
    /// What is kept.
    pub(crate) accumulator: Box<dyn Accumulator>,
    /// Its first word, counted from the first accumulator's.
    pub(crate) offset: usize,
    /// The column it reads, as an index into [`Plan::value_columns`].
    pub(crate) column: Option<usize>,
}

/// A result column.
#[derive(Debug)]
pub(crate) struct Output {
    /// Name, type and whether it may be null.
    pub(crate) field: Field,
    /// The accumulator that has it, as an index into [`Plan::accumulators`].
    pub(crate) placed: usize,
    /// Which of that accumulator's results it is.
    pub(crate) part: Part,
    /// The aggregate as text, `sum(amount)`, for messages.
    pub(crate) text: String,
}

impl Plan {
    /// Plans `aggregates` over batches of `schema`. `reserved` are the names that other result columns
    /// (keys, window bounds) have taken.
    pub(crate) fn new(
        aggregates: &[Aggregate],
        schema: &Schema,
        reserved: &[&str],
        isa: Isa,
    ) -> Result<Self, ConfigError> {
        if aggregates.is_empty() {
            return Err(ConfigError::Inconsistent(
                "the job has no aggregate; ask for at least one, for example count".into(),
            ));
        }
        check_names(aggregates, reserved)?;
        let mut bundles = Vec::new();
        let mut wanted = Vec::new();
        for aggregate in aggregates {
            wanted.push(Wanted::new(aggregate, schema, &mut bundles)?);
        }
        let rows_in = share_rows(&wanted, &mut bundles);
        let mut plan = Self {
            isa,
            accumulators: Vec::new(),
            words: 0,
            value_columns: bundles.iter().map(|bundle| bundle.column).collect(),
            outputs: Vec::new(),
        };
        for (column, bundle) in bundles.iter().enumerate() {
            plan.place(bundle.accumulator(schema), Some(column));
        }
        let rows_in = rows_in.unwrap_or(plan.accumulators.len());
        if rows_in == plan.accumulators.len() && wanted.iter().any(|w| w.bundle.is_none()) {
            plan.place(Box::new(Counter::Rows), None);
        }
        for (aggregate, wanted) in aggregates.iter().zip(wanted) {
            let name = aggregate.output_name();
            plan.outputs.push(Output {
                field: Field::new(&name, wanted.data_type, wanted.nullable),
                placed: wanted.bundle.unwrap_or(rows_in),
                part: wanted.part,
                text: aggregate.to_string(),
            });
        }
        Ok(plan)
    }

    fn place(&mut self, accumulator: Box<dyn Accumulator>, column: Option<usize>) {
        let offset = self.words;
        self.words += accumulator.words();
        self.accumulators.push(Placed { accumulator, offset, column });
    }

    /// The words of a row that has seen nothing.
    pub(crate) fn template(&self) -> Vec<u64> {
        let mut template = vec![0; self.words];
        for placed in &self.accumulators {
            let words = placed.accumulator.words();
            placed.accumulator.init(&mut template[placed.offset..placed.offset + words]);
        }
        template
    }
}

fn check_names(aggregates: &[Aggregate], reserved: &[&str]) -> Result<(), ConfigError> {
    let mut taken: HashSet<String> = reserved.iter().map(|name| (*name).to_owned()).collect();
    for aggregate in aggregates {
        if !taken.insert(aggregate.output_name()) {
            return Err(ConfigError::DuplicateOutput { name: aggregate.output_name() });
        }
    }
    Ok(())
}

/// What one accumulator of a column has to keep.
struct Bundle {
    /// Index into the schema.
    column: usize,
    parts: Vec<Part>,
    nullable: bool,
}

impl Bundle {
    fn want(&mut self, part: Part) {
        if !self.parts.contains(&part) {
            self.parts.push(part);
        }
    }

    fn flags(&self) -> Flags {
        let counts = if self.nullable { Flags::VALUES } else { Flags::NONE };
        self.parts.iter().fold(counts, |flags, part| {
            flags.with(match part {
                Part::Rows => Flags::ROWS,
                Part::Values => Flags::VALUES,
                Part::Sum | Part::SumDecimal => Flags::SUM,
                Part::Min => Flags::MIN,
                Part::Max => Flags::MAX,
                // The count it is divided by is that of rows where every row has a value.
                Part::Avg if self.nullable => Flags::SUM,
                Part::Avg => Flags::SUM.with(Flags::ROWS),
            })
        })
    }

    /// Whether there is more to it than a count of values.
    fn keeps_values(&self) -> bool {
        self.parts.iter().any(|part| *part != Part::Values)
    }

    fn accumulator(&self, schema: &Schema) -> Box<dyn Accumulator> {
        let data_type = value_type(schema.field(self.column).data_type()).clone();
        if !self.keeps_values() {
            return Box::new(Counter::Values);
        }
        let flags = self.flags();
        match LaneKind::of(&data_type) {
            LaneKind::I64 => Box::new(Numbers::<Word<i64>>::new(flags, data_type)),
            LaneKind::U64 => Box::new(Numbers::<Word<u64>>::new(flags, data_type)),
            LaneKind::F64 => Box::new(Numbers::<Word<f64>>::new(flags, data_type)),
            LaneKind::I128 => Box::new(Numbers::<Decimal<i128>>::new(flags, data_type)),
            LaneKind::I256 => Box::new(Numbers::<Decimal<i256>>::new(flags, data_type)),
            LaneKind::Bytes => Box::new(Bytes::new(&self.parts, data_type)),
            LaneKind::Opaque => unreachable!("{data_type} can only be counted"),
        }
    }
}

/// Finds the accumulator that counts rows if any aggregate asks for it: one that does so anyway, else
/// one that keeps values of a column, since its words are touched for every row.
fn share_rows(wanted: &[Wanted], bundles: &mut [Bundle]) -> Option<usize> {
    if wanted.iter().all(|wanted| wanted.bundle.is_some()) {
        return None;
    }
    let counts = |bundle: &Bundle| !bundle.nullable && bundle.parts.contains(&Part::Avg);
    let found = bundles
        .iter()
        .position(counts)
        .or_else(|| bundles.iter().position(Bundle::keeps_values))?;
    bundles[found].want(Part::Rows);
    Some(found)
}

/// One aggregate, resolved.
struct Wanted {
    /// The bundle that has it; none: whichever counts rows.
    bundle: Option<usize>,
    part: Part,
    data_type: DataType,
    nullable: bool,
}

impl Wanted {
    fn new(
        aggregate: &Aggregate,
        schema: &Schema,
        bundles: &mut Vec<Bundle>,
    ) -> Result<Self, ConfigError> {
        let rows =
            Self { bundle: None, part: Part::Rows, data_type: DataType::Int64, nullable: false };
        let Some(name) = &aggregate.column else {
            return match aggregate.function {
                Function::Count => Ok(rows),
                function => Err(ConfigError::Inconsistent(format!(
                    "{function} needs a column, as in {function}(x)"
                ))),
            };
        };
        let column = resolve(name, aggregate, schema)?;
        let field = schema.field(column);
        let nullable = may_be_null(field);
        if aggregate.function == Function::Count && !nullable {
            return Ok(rows);
        }
        let (part, data_type) = result(aggregate, field)?;
        let found = bundles.iter().position(|bundle| bundle.column == column);
        let bundle = found.unwrap_or_else(|| {
            bundles.push(Bundle { column, parts: Vec::new(), nullable });
            bundles.len() - 1
        });
        bundles[bundle].want(part);
        Ok(Self {
            bundle: Some(bundle),
            part,
            data_type,
            nullable: nullable && part != Part::Values,
        })
    }
}

/// The index of the one column called `name`.
fn resolve(name: &str, aggregate: &Aggregate, schema: &Schema) -> Result<usize, ConfigError> {
    let mut found = schema.fields().iter().enumerate().filter(|(_, field)| field.name() == name);
    match (found.next(), found.next()) {
        (Some((column, _)), None) => Ok(column),
        (Some(_), Some(_)) => Err(ConfigError::AmbiguousColumn { name: name.to_owned() }),
        (None, _) => {
            let available: Vec<String> =
                schema.fields().iter().map(|field| field.name().clone()).collect();
            Err(ConfigError::UnknownColumn {
                role: aggregate.to_string(),
                name: name.to_owned(),
                nearest: nearest_name(name, &available),
                available,
            })
        }
    }
}

/// The type of the values: a dictionary's value type, else the type itself.
fn value_type(data_type: &DataType) -> &DataType {
    if let DataType::Dictionary(_, values) = data_type { values } else { data_type }
}

/// Whether a value may be null: the field says so, or its type can hold nulls that are not its own.
fn may_be_null(field: &Field) -> bool {
    let own_nulls_only = LaneKind::of(field.data_type()) != LaneKind::Opaque
        && !matches!(field.data_type(), DataType::Dictionary(..));
    field.is_nullable() || !own_nulls_only
}

/// Which result the aggregate is, and its type.
fn result(aggregate: &Aggregate, field: &Field) -> Result<(Part, DataType), ConfigError> {
    let input = value_type(field.data_type());
    let lane = LaneKind::of(field.data_type());
    let integer = input.is_integer();
    let decimal = matches!(lane, LaneKind::I128 | LaneKind::I256);
    let wrong = |expected: &str| {
        Err(ConfigError::WrongType {
            use_: aggregate.to_string(),
            column: field.name().clone(),
            found: field.data_type().to_string(),
            expected: expected.to_owned(),
        })
    };
    Ok(match aggregate.function {
        Function::Count => (Part::Values, DataType::Int64),
        Function::Sum if integer && lane == LaneKind::I64 => (Part::Sum, DataType::Int64),
        Function::Sum if integer => (Part::Sum, DataType::UInt64),
        Function::Sum if lane == LaneKind::F64 => (Part::Sum, DataType::Float64),
        Function::Sum if decimal => (Part::Sum, decimal::sum_type(input)),
        Function::Avg if decimal => (Part::Avg, decimal::mean_type(input)),
        Function::Avg if integer || lane == LaneKind::F64 => (Part::Avg, DataType::Float64),
        Function::Sum | Function::Avg => {
            return wrong("it needs a column of integers, floats or decimals");
        }
        Function::SumDecimal if integer => (Part::SumDecimal, DataType::Decimal128(38, 0)),
        Function::SumDecimal if decimal => {
            return wrong("the sum of decimals is a decimal already: ask for sum");
        }
        Function::SumDecimal => return wrong("it needs a column of integers"),
        Function::Min | Function::Max if lane == LaneKind::Opaque => {
            return wrong(
                "it needs a column of numbers, decimals, booleans, dates, times, durations, text or \
                 binary; any column can be counted",
            );
        }
        Function::Min => (Part::Min, input.clone()),
        Function::Max => (Part::Max, input.clone()),
    })
}
