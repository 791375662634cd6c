//! A test kit for the merge law: does an aggregate give the same, however its rows are split and merged? And if its
//! states can be saved: does it give the same of one that was saved and loaded?

use arrow::array::{Array, ArrayRef, AsArray, Int64Array};
use arrow::compute::{sort_to_indices, take};
use arrow::datatypes::{Field, Int64Type, Schema};
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use std::sync::Arc;

use crate::aggregate::plan::{Plan, Scope};
use crate::aggregate::spec::Aggregate;
use crate::column::Column;
use crate::error::ConfigError;
use crate::kernel::Isa;
use crate::kernel::select::MaskedRows;
use crate::key::batch::KeyBatch;
use crate::key::encode::KeyEncoder;
use crate::key::group::MAX_PARALLELISM_DEFAULT;
use crate::key::hash::hash_word;
use crate::state::pane::image::ImageLayout;
use crate::state::pane::{OneKeyRows, Pane, Scratch};

/// Groups that rows are dealt to.
const GROUPS: u64 = 4;

/// Feeds the rows of `batch` to `aggregate` one after the other, and then, for each of `seeds` seeds, split
/// in batches over several states, row by row and in runs of one key, merged in a random order; the results
/// must be the same to the bit.
///
/// Of an aggregate whose states can be saved (all but custom ones that do not implement it), the states of
/// some first rows are then saved and loaded, and must give the same results, and also after the other
/// rows were added or merged.
///
/// # Errors
/// What was different, with the seed, or why the aggregate cannot be computed over the batch.
pub fn check(aggregate: &Aggregate, batch: &RecordBatch, seeds: u64) -> Result<(), String> {
    for seed in 0..seeds {
        let keyed = with_keys(batch, seed).map_err(|error| error.to_string())?;
        let aggregates = std::slice::from_ref(aggregate);
        let kit = Kit::new(aggregates, &keyed).map_err(|error| error.to_string())?;
        let expected = kit.emit(&mut kit.one_by_one(&keyed))?;
        let mut merged = kit.split_and_merged(&keyed, seed);
        for (time, why) in [("split and merged", "merge law"), ("asked again", "purity of emit")] {
            let found = kit.emit(&mut merged)?;
            if found != expected {
                return Err(format!(
                    "{aggregate} breaks the {why}, seed {seed}: {time} it gives {:?}, row by row {:?}",
                    found[1], expected[1]
                ));
            }
        }
        kit.check_saved(&aggregate.to_string(), &keyed, &expected, seed)?;
    }
    Ok(())
}

/// `batch` behind a column of keys at random.
pub(super) fn with_keys(batch: &RecordBatch, seed: u64) -> Result<RecordBatch, ArrowError> {
    let mut name = "key".to_owned();
    while batch.column_by_name(&name).is_some() {
        name.push('_');
    }
    let mut dice = Dice(seed);
    let keys = (0..batch.num_rows()).map(|_| Some(dice.roll(GROUPS).cast_signed()));
    let mut columns: Vec<ArrayRef> = vec![Arc::new(keys.collect::<Int64Array>())];
    columns.extend(batch.columns().iter().cloned());
    let schema = batch.schema();
    let mut fields = vec![Arc::new(Field::new(name, arrow::datatypes::DataType::Int64, false))];
    fields.extend(schema.fields().iter().cloned());
    RecordBatch::try_new(Arc::new(Schema::new(fields)), columns)
}

/// `batch` with other keys, greater ones, in its first column.
pub(super) fn with_other_keys(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let keys = batch.column(0).as_primitive::<Int64Type>();
    let others: Int64Array = keys.iter().map(|key| key.map(|key| key | 1 << 40)).collect();
    let mut columns = batch.columns().to_vec();
    columns[0] = Arc::new(others);
    RecordBatch::try_new(batch.schema(), columns)
}

/// As many of the first rows as `like` has.
fn cut(columns: &[ArrayRef], like: &[ArrayRef]) -> Vec<ArrayRef> {
    let rows = like[0].len().min(columns[0].len());
    columns.iter().map(|column| column.slice(0, rows)).collect()
}

/// Draws numbers for splits and orders.
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number below `sides`.
    pub(super) fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        (hash_word(self.0) >> 33) % sides
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.roll(len as u64)).expect("less than a length")
    }
}

/// A plan over batches whose first column is an integer key, without nulls; a column `t` is the event time.
#[derive(Debug)]
pub(super) struct Kit {
    pub(super) plan: Plan,
    pub(super) keys: KeyEncoder,
}

/// A batch as a producer prepares it.
struct Ready {
    keys: KeyBatch,
    columns: Vec<Column>,
    rows: u32,
    key_of: Vec<i64>,
}

impl Kit {
    pub(super) fn new(aggregates: &[Aggregate], batch: &RecordBatch) -> Result<Self, ConfigError> {
        let schema = batch.schema();
        let time = schema.index_of("t").ok();
        let scope = Scope { schema: &schema, time, reserved: &[] };
        let plan = Plan::new(aggregates, &scope, Isa::best())?;
        Ok(Self { plan, keys: KeyEncoder::new(&schema, vec![0])? })
    }

    fn ready(&self, batch: &RecordBatch) -> Ready {
        let mut keys = KeyBatch::default();
        self.keys.encode(batch, &mut keys).expect("integers are keys");
        keys.hash_all(Isa::best());
        let read = self.plan.inputs.iter().map(|input| input.read(batch, self.plan.isa));
        let columns = read.collect::<Result<_, _>>().expect("the batch has the plan's schema");
        let key_of = batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        let rows = u32::try_from(batch.num_rows()).expect("a batch has less than 2^32 rows");
        Ready { keys, columns, rows, key_of }
    }

    /// Rows one after the other into one pane.
    pub(super) fn one_by_one(&self, batch: &RecordBatch) -> Pane {
        let (mut pane, mut scratch) = (Pane::new(&self.keys, &self.plan), Scratch::default());
        for row in 0..batch.num_rows() {
            let ready = self.ready(&batch.slice(row, 1));
            pane.update(&self.plan, &ready.keys, &ready.columns, &[0], &mut scratch);
        }
        pane
    }

    /// Rows in batches of any size into any of several panes, some of a key's rows at once, merged in any
    /// order.
    pub(super) fn split_and_merged(&self, batch: &RecordBatch, seed: u64) -> Pane {
        let mut dice = Dice(seed);
        let scratch = &mut Scratch::default();
        let mut panes: Vec<Pane> =
            (0..=dice.roll(4)).map(|_| Pane::new(&self.keys, &self.plan)).collect();
        let mut start = 0;
        while start < batch.num_rows() {
            let len = 1 + dice.index(batch.num_rows() - start);
            let ready = self.ready(&batch.slice(start, len));
            start += len;
            let places: Vec<usize> = (0..len).map(|_| dice.index(panes.len())).collect();
            let dense = dice.roll(3).cast_signed() - 1;
            for (p, pane) in panes.iter_mut().enumerate() {
                let rows = |is_dense: bool| -> Vec<u32> {
                    let wanted =
                        |row: usize| places[row] == p && (ready.key_of[row] == dense) == is_dense;
                    (0..ready.rows).filter(|row| wanted(*row as usize)).collect()
                };
                pane.update(&self.plan, &ready.keys, &ready.columns, &rows(false), scratch);
                self.update_run(pane, &ready, &rows(true), &mut dice, scratch);
            }
        }
        while panes.len() > 1 {
            let mut from = panes.swap_remove(dice.index(panes.len()));
            let into = dice.index(panes.len());
            panes[into].merge(&self.plan, &mut from, scratch);
        }
        panes.pop().expect("at least one")
    }

    /// Rows of one key, in either form.
    fn update_run(
        &self,
        pane: &mut Pane,
        ready: &Ready,
        run: &[u32],
        dice: &mut Dice,
        scratch: &mut Scratch,
    ) {
        let Some(first) = run.first() else { return };
        let mut mask = vec![0; ready.key_of.len().div_ceil(64)];
        for row in run {
            mask[*row as usize / 64] |= 1 << (row % 64);
        }
        let rows = match dice.roll(2) {
            0 => OneKeyRows::Listed(run),
            _ => OneKeyRows::Masked(MaskedRows { mask: &mask, first: *first, count: run.len() }),
        };
        pane.update_one_key(&self.plan, &ready.keys, &ready.columns, rows, scratch);
    }

    /// Checks that states which were saved and restored, beside those of other keys or not, go on as if they had not.
    pub(super) fn check_saved(
        &self,
        aggregate: &str,
        batch: &RecordBatch,
        expected: &[ArrayRef],
        seed: u64,
    ) -> Result<(), String> {
        if self.plan.accumulators.iter().any(|placed| placed.accumulator.can_save().is_err()) {
            return Ok(());
        }
        let wrong = |what: &str, found: &[ArrayRef], expected: &[ArrayRef]| {
            Err(format!(
                "{aggregate} is not what was saved, seed {seed}: {what} it gives {:?}, without {:?}",
                &found[1..],
                &expected[1..]
            ))
        };
        let first = Dice(seed ^ 1).index(batch.num_rows() + 1);
        let (first, rest) = (batch.slice(0, first), batch.slice(first, batch.num_rows() - first));
        let mut pane = self.split_and_merged(&first, seed);
        let at_first = self.emit(&mut pane)?;
        let layout = ImageLayout::new(&self.keys, &self.plan, MAX_PARALLELISM_DEFAULT);
        let saved = pane.image(&self.plan, &layout, &mut Scratch::default());
        let saved = saved.map_err(|why| format!("{aggregate} cannot be saved: {why}"))?;
        for beside in [false, true] {
            let mut restored = Pane::new(&self.keys, &self.plan);
            if beside {
                self.add(&mut restored, &with_other_keys(batch).map_err(|e| e.to_string())?);
            }
            let taken = restored.restore(&self.plan, &layout, &saved, &mut Scratch::default());
            taken.map_err(|why| format!("{aggregate} cannot be taken back, seed {seed}: {why}"))?;
            let found = cut(&self.emit(&mut restored)?, &at_first);
            if found != at_first {
                return wrong("after saving and loading", &found, &at_first);
            }
            if Dice(seed).roll(2) == 0 {
                self.add(&mut restored, &rest);
            } else {
                let mut more = self.split_and_merged(&rest, seed);
                restored.merge(&self.plan, &mut more, &mut Scratch::default());
            }
            let found = cut(&self.emit(&mut restored)?, expected);
            if found != expected {
                return wrong("with rows added after saving and loading", &found, expected);
            }
            // As a partial.
            let mut into = self.one_by_one(&rest);
            let mut partial = Pane::new(&self.keys, &self.plan);
            let taken = partial.restore(&self.plan, &layout, &saved, &mut Scratch::default());
            taken.map_err(|why| format!("{aggregate} cannot be taken back, seed {seed}: {why}"))?;
            into.absorb(&self.plan, &mut partial, &mut Scratch::default());
            let found = self.emit(&mut into)?;
            if found != expected {
                return wrong("merged into others after saving and loading", &found, expected);
            }
        }
        Ok(())
    }

    /// Adds all rows at once.
    pub(super) fn add(&self, pane: &mut Pane, batch: &RecordBatch) {
        let ready = self.ready(batch);
        let rows: Vec<u32> = (0..ready.rows).collect();
        pane.update(&self.plan, &ready.keys, &ready.columns, &rows, &mut Scratch::default());
    }

    /// Keys, ascending, and results.
    pub(super) fn emit(&self, pane: &mut Pane) -> Result<Vec<ArrayRef>, String> {
        let ids = 0..u32::try_from(pane.len()).expect("row ids are 32 bits");
        let columns = pane.emit(&self.plan, &self.keys, ids, None, &mut Scratch::default());
        let columns = columns.map_err(|error| error.to_string())?;
        let order = sort_to_indices(&columns[0], None, None).map_err(|error| error.to_string())?;
        for (column, output) in columns[1..].iter().zip(&self.plan.outputs) {
            if !output.field.is_nullable() && column.null_count() > 0 {
                return Err(format!("{} gives a null and says that it does not", output.text));
            }
        }
        let sorted = columns.iter().map(|column| take(column, &order, None));
        sorted.collect::<Result<_, _>>().map_err(|error| error.to_string())
    }
}
