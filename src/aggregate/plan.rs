//! From aggregates and a schema to accumulators, the layout of a row, and result columns.
//!
//! Everything that can be wrong with an aggregate is found here, before anything runs.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, i256};
use hashbrown::HashSet;

use crate::aggregate::approx_distinct::ApproxDistinct;
use crate::aggregate::bits::Bits;
use crate::aggregate::bytes::{Bytes, Form};
use crate::aggregate::custom::Custom;
use crate::aggregate::decimal::Decimal;
use crate::aggregate::distinct::Distinct;
use crate::aggregate::filter::{Filter, mask};
use crate::aggregate::input::{Input, Ordered};
use crate::aggregate::keyed::PerKey;
use crate::aggregate::mode::Mode;
use crate::aggregate::moments::Moments;
use crate::aggregate::number::{Flags, Numbers};
use crate::aggregate::plan::resolve::Resolved;
use crate::aggregate::primitive::Word;
use crate::aggregate::quantile::Quantiles;
use crate::aggregate::rows_count::Counter;
use crate::aggregate::spec::Aggregate;
use crate::aggregate::top::Top;
use crate::aggregate::value_set::{ByteSet, WordSet};
use crate::aggregate::{Accumulator, Part};
use crate::column::{LaneKind, value_type};
use crate::error::ConfigError;
use crate::kernel::Isa;
use crate::key::encode::KeyEncoder;

mod resolve;

#[cfg(test)]
mod tests;

/// How a job's aggregates are kept and emitted. The same for every pane.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The instruction set that kernels run with.
    pub(crate) isa: Isa,
    /// What is kept, in the order of the words of a row; those with one filter side by side.
    pub(crate) accumulators: Vec<Placed>,
    /// Words of all accumulators together.
    pub(crate) words: usize,
    /// What is read of every batch.
    pub(crate) inputs: Vec<Input>,
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
    /// The column it reads, as an index into [`Plan::inputs`].
    pub(crate) column: Option<usize>,
    /// The rows it takes, as an index into [`Plan::inputs`]; none: all.
    pub(crate) filter: Option<usize>,
    /// Whether the rows of hot keys may be spread over shards by their values.
    pub(crate) spreads: bool,
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

/// What aggregates are planned over.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scope<'a> {
    /// The batches' schema.
    pub(crate) schema: &'a Schema,
    /// The event-time column.
    pub(crate) time: Option<usize>,
    /// Names that other result columns (keys, window bounds) have taken.
    pub(crate) reserved: &'a [&'a str],
}

/// Which accumulator keeps it: one for all aggregates of a family over the same columns and filter.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Family {
    /// Counts, sums, min, max and mean of a column.
    Values,
    /// Bitwise and, or, xor.
    Bits,
    /// The smallest and largest row by two columns.
    ExtremeRow,
    /// Variance and deviation of a column.
    Moments,
    /// Covariance and correlation of two columns.
    PairMoments,
    /// The set of values.
    Distinct,
    /// A sketch of the set of values.
    ApproxDistinct,
    /// A sketch of how values are distributed.
    Quantiles,
    /// So many of the largest (or smallest) values.
    Top(u32, bool),
    /// How often each value occurs.
    Mode,
    /// An aggregate that is not ours.
    Custom(Custom),
}

impl Plan {
    /// Whether the state of all aggregates can be saved; if not, why.
    pub(crate) fn check_can_save(&self) -> Result<(), String> {
        let mut all = self.accumulators.iter();
        all.try_for_each(|one| one.accumulator.can_save().map_err(|why| why.to_string()))
    }

    /// Plans `aggregates` over batches.
    pub(crate) fn new(
        aggregates: &[Aggregate],
        scope: &Scope<'_>,
        isa: Isa,
    ) -> Result<Self, ConfigError> {
        check_names(aggregates, scope.reserved)?;
        let mut draft = Draft::default();
        for aggregate in aggregates {
            draft.add(aggregate, scope)?;
        }
        draft.share_rows();
        let mut plan = Self {
            isa,
            accumulators: Vec::new(),
            words: 0,
            inputs: Vec::new(),
            outputs: Vec::new(),
        };
        let places = plan.place_all(&draft, scope);
        for (aggregate, wanted) in aggregates.iter().zip(draft.wanted) {
            plan.outputs.push(Output {
                field: wanted.field,
                placed: places[wanted.bundle],
                part: wanted.part,
                text: aggregate.to_string(),
            });
        }
        Ok(plan)
    }

    /// Places the accumulators of all bundles; answers where each bundle's is.
    fn place_all(&mut self, draft: &Draft, scope: &Scope<'_>) -> Vec<usize> {
        let mut order: Vec<usize> = (0..draft.bundles.len()).collect();
        // Those without a filter first, then by filter; otherwise as they were asked for.
        order.sort_by_key(|bundle| draft.bundles[*bundle].filter.map_or(0, |filter| filter + 1));
        let mut masks = vec![None; draft.filters.len()];
        let mut places = vec![0; draft.bundles.len()];
        for index in order {
            let bundle = &draft.bundles[index];
            let filter = bundle.filter.map(|filter| {
                *masks[filter]
                    .get_or_insert_with(|| self.input(Input::Mask(draft.filters[filter].1.clone())))
            });
            let (accumulator, input) = bundle.accumulator(scope);
            let column = input.map(|input| self.input(input));
            places[index] = self.accumulators.len();
            let offset = self.words;
            self.words += accumulator.words();
            let spreads = bundle.family == Family::Distinct;
            self.accumulators.push(Placed { accumulator, offset, column, filter, spreads });
        }
        places
    }

    /// The number of `input`, which is read once however many ask for it.
    pub(super) fn input(&mut self, input: Input) -> usize {
        let known = self.inputs.iter().position(|known| known.is_same(&input));
        known.unwrap_or_else(|| {
            self.inputs.push(input);
            self.inputs.len() - 1
        })
    }

    /// Whether any accumulator spreads rows of hot keys.
    pub(crate) fn spreads(&self) -> bool {
        self.accumulators.iter().any(|placed| placed.spreads)
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

/// What is to be kept, as it is found out.
#[derive(Default)]
struct Draft {
    bundles: Vec<Bundle>,
    filters: Vec<(Filter, mask::Mask)>,
    wanted: Vec<Wanted>,
}

/// One result.
struct Wanted {
    /// The bundle that has it.
    bundle: usize,
    part: Part,
    field: Field,
}

impl Draft {
    fn add(&mut self, aggregate: &Aggregate, scope: &Scope<'_>) -> Result<(), ConfigError> {
        let filter = aggregate.filter.as_ref();
        let filter = filter.map(|filter| self.filter(filter, aggregate, scope)).transpose()?;
        let resolved = scope.aggregate(aggregate)?;
        let Resolved { mut family, mut columns, mut part, .. } = resolved;
        let fields = columns.iter().map(|column| scope.schema.field(*column));
        let with_nulls = fields.into_iter().any(may_be_null);
        if part == Part::Values && !with_nulls {
            (family, columns, part) = (Family::Values, Vec::new(), Part::Rows);
        }
        // Rows that do not pass may leave a group without any value.
        let nullable = with_nulls || filter.is_some();
        let bundle = self.bundle(family, columns, filter, nullable);
        self.bundles[bundle].want(part);
        let nullable = (nullable || resolved.may_lack_value) && !part.is_count();
        let field = Field::new(aggregate.output_name(), resolved.data_type, nullable);
        self.wanted.push(Wanted { bundle, part, field });
        Ok(())
    }

    /// The number of `filter`.
    fn filter(
        &mut self,
        filter: &Filter,
        aggregate: &Aggregate,
        scope: &Scope<'_>,
    ) -> Result<usize, ConfigError> {
        if let Some(known) = self.filters.iter().position(|(known, _)| known == filter) {
            return Ok(known);
        }
        let text = aggregate.to_string();
        let mask = mask::Mask::new(
            filter,
            &mask::Scope {
                schema: scope.schema,
                resolve: &|name| scope.resolve(name, aggregate),
                aggregate: &text,
            },
        )?;
        self.filters.push((filter.clone(), mask));
        Ok(self.filters.len() - 1)
    }

    /// The bundle of this family over these columns and filter.
    fn bundle(
        &mut self,
        family: Family,
        columns: Vec<usize>,
        filter: Option<usize>,
        nullable: bool,
    ) -> usize {
        let same = |bundle: &Bundle| {
            (&bundle.family, &bundle.columns, bundle.filter) == (&family, &columns, filter)
        };
        self.bundles.iter().position(same).unwrap_or_else(|| {
            self.bundles.push(Bundle { family, columns, filter, parts: Vec::new(), nullable });
            self.bundles.len() - 1
        })
    }

    /// Finds for each counter of rows an accumulator that counts them anyway, else one that keeps values
    /// of a column under the same filter, since its words are touched for every row.
    fn share_rows(&mut self) {
        for counter in 0..self.bundles.len() {
            if !self.bundles[counter].is_rows() {
                continue;
            }
            let filter = self.bundles[counter].filter;
            let fits = |bundle: &Bundle| bundle.filter == filter && bundle.keeps_values();
            let counts = |bundle: &Bundle| !bundle.nullable && bundle.parts.contains(&Part::Avg);
            let mut bundles = self.bundles.iter();
            let found = bundles
                .position(|bundle| fits(bundle) && counts(bundle))
                .or_else(|| self.bundles.iter().position(fits));
            let Some(found) = found else { continue };
            self.bundles[found].want(Part::Rows);
            self.bundles[counter].parts.clear();
            for wanted in self.wanted.iter_mut().filter(|wanted| wanted.bundle == counter) {
                wanted.bundle = found;
            }
        }
        // Counters that were found a place have nothing left to do.
        let mut kept = Vec::new();
        let mut next = 0;
        self.bundles.retain(|bundle| {
            let keep = !bundle.parts.is_empty();
            kept.push(next);
            next += usize::from(keep);
            keep
        });
        for wanted in &mut self.wanted {
            wanted.bundle = kept[wanted.bundle];
        }
    }
}

/// What one accumulator has to keep.
struct Bundle {
    family: Family,
    /// None: rows are counted.
    columns: Vec<usize>,
    /// Index into the draft's filters.
    filter: Option<usize>,
    parts: Vec<Part>,
    /// Whether a group may have no value.
    nullable: bool,
}

impl Bundle {
    fn want(&mut self, part: Part) {
        if !self.parts.contains(&part) {
            self.parts.push(part);
        }
    }

    /// Whether it only counts rows.
    fn is_rows(&self) -> bool {
        self.columns.is_empty()
    }

    /// Whether it keeps more of a column than a count of values, and could count rows as well.
    fn keeps_values(&self) -> bool {
        self.family == Family::Values
            && self.parts.iter().any(|part| !matches!(part, Part::Values | Part::Rows))
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
                part => unreachable!("{part:?} of numbers"),
            })
        })
    }

    /// The accumulator and what it reads.
    fn accumulator(&self, scope: &Scope<'_>) -> (Box<dyn Accumulator>, Option<Input>) {
        let columns = self.columns.as_slice();
        let Some(first) = columns.first() else { return (Box::new(Counter::Rows), None) };
        let data_type = value_type(scope.schema.field(*first).data_type()).clone();
        match &self.family {
            Family::Values => (self.values(data_type), Some(Input::Column(*first))),
            Family::Bits => (Box::new(Bits { input: data_type }), Some(Input::Column(*first))),
            Family::ExtremeRow => {
                let rows = self.ordered(scope, columns.len(), false);
                let form = Form::Row(Arc::clone(&rows), 1);
                (Box::new(Bytes::new(&self.parts, form)), Some(Input::Ordered(rows)))
            }
            Family::Moments => {
                let moments = Moments { pair: false, squares: true };
                (Box::new(moments), Some(numbers(scope, *first)))
            }
            Family::PairMoments => {
                let squares = self.parts.contains(&Part::Corr);
                let pair = [numbers(scope, columns[0]), numbers(scope, columns[1])];
                (Box::new(Moments { pair: true, squares }), Some(Input::Pair(Box::new(pair))))
            }
            Family::Quantiles => {
                let floats = LaneKind::of(&data_type) == LaneKind::F64;
                let input = if floats { Input::Column(*first) } else { Input::Floats(*first) };
                (Box::new(PerKey(Quantiles)), Some(input))
            }
            Family::Distinct | Family::ApproxDistinct => self.keys(scope),
            Family::Top(n, largest) => {
                let rows = self.ordered(scope, 1, false);
                let item = resolve::list_item(scope.schema, columns);
                let n = usize::try_from(*n).expect("validated to be small");
                let top = Top { n, largest: *largest, rows: Arc::clone(&rows), item };
                (Box::new(PerKey(top)), Some(Input::Ordered(rows)))
            }
            Family::Custom(custom) => (custom.accumulator(), Some(Input::Arrays(columns.to_vec()))),
            Family::Mode => {
                let rows = self.ordered(scope, 1, true);
                (Box::new(PerKey(Mode { rows: Arc::clone(&rows) })), Some(Input::Ordered(rows)))
            }
        }
    }

    fn values(&self, data_type: arrow::datatypes::DataType) -> Box<dyn Accumulator> {
        if !self.keeps_values() {
            return Box::new(Counter::Values);
        }
        let flags = || self.flags();
        match LaneKind::of(&data_type) {
            LaneKind::I64 => Box::new(Numbers::<Word<i64>>::new(flags(), data_type)),
            LaneKind::U64 => Box::new(Numbers::<Word<u64>>::new(flags(), data_type)),
            LaneKind::F64 => Box::new(Numbers::<Word<f64>>::new(flags(), data_type)),
            LaneKind::I128 => Box::new(Numbers::<Decimal<i128>>::new(flags(), data_type)),
            LaneKind::I256 => Box::new(Numbers::<Decimal<i256>>::new(flags(), data_type)),
            LaneKind::Bytes => Box::new(Bytes::new(&self.parts, Form::Plain(data_type))),
            LaneKind::Opaque => unreachable!("{data_type} can only be counted"),
        }
    }

    /// What keeps or counts the different values.
    fn keys(&self, scope: &Scope<'_>) -> (Box<dyn Accumulator>, Option<Input>) {
        let keys = KeyEncoder::new(scope.schema, self.columns.clone()).expect("resolved before");
        let accumulator: Box<dyn Accumulator> = match (&self.family, keys.width()) {
            (Family::ApproxDistinct, _) => Box::new(PerKey(ApproxDistinct)),
            (_, 1) => Box::new(PerKey(Distinct::<WordSet>::default())),
            _ => Box::new(PerKey(Distinct::<ByteSet>::default())),
        };
        (accumulator, Some(Input::Keys(keys)))
    }

    /// The rows of this bundle's columns as ordered bytes.
    fn ordered(&self, scope: &Scope<'_>, required: usize, one_zero: bool) -> Arc<Ordered> {
        let columns = self.columns.clone();
        Arc::new(Ordered::new(scope.schema, columns, required, one_zero))
    }
}

/// A column of numbers as moments take it: as it is, decimals as floats.
fn numbers(scope: &Scope<'_>, column: usize) -> Input {
    match LaneKind::of(scope.schema.field(column).data_type()) {
        LaneKind::I128 | LaneKind::I256 => Input::Floats(column),
        _ => Input::Column(column),
    }
}

/// Whether a value may be null: the field says so, or its type can hold nulls that are not its own.
fn may_be_null(field: &Field) -> bool {
    let own_nulls_only = LaneKind::of(field.data_type()) != LaneKind::Opaque
        && !matches!(field.data_type(), arrow::datatypes::DataType::Dictionary(..));
    field.is_nullable() || !own_nulls_only
}
