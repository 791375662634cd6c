//! Aggregates over batches of several columns, through the panes that shards use: one row after the
//! other, or in any split, batches, filters and merge order.

use arrow::array::{Array, ArrayRef, AsArray};
use arrow::compute::{SortOptions, sort_to_indices, take};
use arrow::datatypes::{DataType, Int64Type};
use arrow::record_batch::RecordBatch;

use super::Dice;
use crate::aggregate::plan::{Plan, Scope};
use crate::aggregate::spec::Aggregate;
use crate::column::Column;
use crate::kernel::Isa;
use crate::key::batch::KeyBatch;
use crate::key::encode::KeyEncoder;
use crate::state::pane::{MaskedRows, OneKeyRows, Pane, Scratch};

/// A job's plan over batches whose first column is the key `k`, with the event time in `t`, if there is one.
pub(super) struct Rig {
    pub(super) plan: Plan,
    keys: KeyEncoder,
}

/// A batch as a producer prepares it.
struct Ready {
    keys: KeyBatch,
    columns: Vec<Column>,
    rows: u32,
    key_of: Vec<i64>,
}

impl Rig {
    pub(super) fn new(aggregates: &[Aggregate], batch: &RecordBatch) -> Self {
        let schema = batch.schema();
        let scope = Scope { schema: &schema, time: schema.index_of("t").ok(), reserved: &["k"] };
        let plan = Plan::new(aggregates, &scope, Isa::best()).unwrap_or_else(|e| panic!("{e}"));
        Self { plan, keys: KeyEncoder::new(&schema, vec![0]).unwrap() }
    }

    fn ready(&self, batch: &RecordBatch) -> Ready {
        let mut keys = KeyBatch::default();
        self.keys.encode(batch, &mut keys).unwrap();
        keys.hash_all(Isa::best());
        let columns = self.plan.inputs.iter().map(|input| input.read(batch).unwrap()).collect();
        let key_of = batch.column(0).as_primitive::<Int64Type>().values().to_vec();
        Ready { keys, columns, rows: u32::try_from(batch.num_rows()).unwrap(), key_of }
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
            let len = 1 + dice.roll(batch.num_rows() - start);
            let ready = self.ready(&batch.slice(start, len));
            start += len;
            let places: Vec<usize> = (0..len).map(|_| dice.roll(panes.len())).collect();
            let dense = dice.roll(3) as i64 - 1;
            for (p, pane) in panes.iter_mut().enumerate() {
                let rows = |key: Option<i64>| -> Vec<u32> {
                    let wanted = |row: usize| {
                        let own = ready.key_of[row];
                        places[row] == p && key.map_or(own != dense, |key| key == own)
                    };
                    (0..ready.rows).filter(|row| wanted(*row as usize)).collect()
                };
                pane.update(&self.plan, &ready.keys, &ready.columns, &rows(None), scratch);
                let run = rows(Some(dense));
                if let Some(first) = run.first() {
                    let mut mask = vec![0; len.div_ceil(64)];
                    run.iter().for_each(|row| mask[*row as usize / 64] |= 1 << (row % 64));
                    let masked = MaskedRows { mask: &mask, first: *first, count: run.len() };
                    let run = match dice.roll(2) {
                        0 => OneKeyRows::Listed(&run),
                        _ => OneKeyRows::Masked(masked),
                    };
                    pane.update_one_key(&self.plan, &ready.keys, &ready.columns, run, scratch);
                }
            }
        }
        while panes.len() > 1 {
            let mut from = panes.swap_remove(dice.roll(panes.len()));
            let into = dice.roll(panes.len());
            panes[into].merge(&self.plan, &mut from, scratch);
        }
        panes.pop().unwrap()
    }

    /// Keys, ascending, and results.
    pub(super) fn emit(&self, pane: &mut Pane) -> Result<Vec<ArrayRef>, String> {
        let ids = 0..u32::try_from(pane.len()).unwrap();
        let columns = pane.emit(&self.plan, &self.keys, ids, None, &mut Scratch::default());
        let columns = columns.map_err(|error| error.to_string())?;
        let order = sort_to_indices(&columns[0], Some(SortOptions::default()), None).unwrap();
        for (column, output) in columns[1..].iter().zip(&self.plan.outputs) {
            assert_eq!(column.data_type(), output.field.data_type(), "{}", output.text);
            assert!(output.field.is_nullable() || column.null_count() == 0, "{}", output.text);
        }
        Ok(columns.iter().map(|column| take(column, &order, None).unwrap()).collect())
    }
}

/// Checks that any split and merge gives the same, and returns it.
pub(super) fn same_however(
    aggregates: &[Aggregate],
    batch: &RecordBatch,
    seed: u64,
) -> Result<Vec<ArrayRef>, String> {
    let rig = Rig::new(aggregates, batch);
    let expected = rig.emit(&mut rig.one_by_one(batch));
    for seed in [seed, seed.wrapping_add(1)] {
        let mut merged = rig.split_and_merged(batch, seed);
        let found = rig.emit(&mut merged);
        assert_eq!(found, expected, "{aggregates:?}");
        assert_eq!(rig.emit(&mut merged), expected, "to emit changes nothing");
        merged.clear();
        assert_eq!(merged.len(), 0);
    }
    assert_eq!(batch.column(0).data_type(), &DataType::Int64);
    expected
}
