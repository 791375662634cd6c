//! Every accumulator against an oracle that shares nothing with it, and against itself: any split into
//! parts and batches, updated row by row or densely, merged in any order, gives the same to the bit.

use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, BinaryViewArray, BooleanArray, Date32Array, Decimal32Array, Decimal64Array,
    Decimal128Array, Decimal256Array, DictionaryArray, DurationSecondArray, FixedSizeBinaryArray,
    Float16Array, Float32Array, Float64Array, Int8Array, Int16Array, Int64Array, LargeStringArray,
    StringArray, StringViewArray, Time32MillisecondArray, Time64NanosecondArray,
    TimestampMicrosecondArray, UInt8Array, UInt32Array, UInt64Array,
};
use arrow::datatypes::{DataType, Field, Int16Type, Schema, i256};
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use crate::aggregate::plan::{Plan, Scope};
use crate::aggregate::spec::Aggregate;
use crate::aggregate::{Misfit, Side};
use crate::column::Column;
use crate::state::rows::{RowPtr, RowStore};

mod custom;
mod exact;
mod float;
mod model;
mod oracle;
mod rig;
mod saved;
mod sketch;
mod wide;

const KEYS: usize = 4;

/// The state of all keys, as a shard would hold it.
struct Pane<'p> {
    plan: &'p Plan,
    store: RowStore,
    ptrs: Vec<RowPtr>,
    sides: Vec<Side>,
}

impl<'p> Pane<'p> {
    fn new(plan: &'p Plan) -> Self {
        // One word before the accumulators stands for the key.
        let mut row = vec![u64::MAX];
        row.extend(plan.template());
        let mut store = RowStore::new(row);
        let ptrs = (0..KEYS).map(|_| store.push([u64::MAX]).1).collect();
        let sides = plan.accumulators.iter().map(|placed| placed.accumulator.new_side()).collect();
        Self { plan, store, ptrs, sides }
    }

    fn update(&mut self, columns: &[Column], keys: &[usize], selection: &[u32]) {
        let ptrs: Vec<RowPtr> =
            selection.iter().map(|row| self.ptrs[keys[*row as usize]]).collect();
        for (placed, side) in self.plan.accumulators.iter().zip(&mut self.sides) {
            let column = placed.column.map(|column| &columns[column]);
            let rows = &mut self.store.rows(&ptrs);
            placed.accumulator.update(rows, placed.offset + 1, side, column, selection);
        }
    }

    fn update_dense(&mut self, columns: &[Column], key: usize, selection: &[u32]) {
        let ptrs = [self.ptrs[key]];
        for (placed, side) in self.plan.accumulators.iter().zip(&mut self.sides) {
            let column = placed.column.map(|column| &columns[column]);
            let mut rows = self.store.rows(&ptrs);
            let state = rows.state_mut(0, placed.offset + 1, placed.accumulator.words());
            placed.accumulator.update_dense(
                crate::kernel::Isa::best(),
                state,
                side,
                column,
                selection,
            );
        }
    }

    fn merge(&mut self, mut from: Self) {
        for (i, placed) in self.plan.accumulators.iter().enumerate() {
            let mut into = self.store.rows(&self.ptrs);
            let from_rows = from.store.rows(&from.ptrs);
            placed.accumulator.merge(
                &mut into,
                &mut self.sides[i],
                &from_rows,
                &from.sides[i],
                placed.offset + 1,
            );
        }
    }

    /// The results of `keys`, one array for each aggregate.
    fn emit(&mut self, keys: &[usize]) -> Vec<Result<ArrayRef, Misfit>> {
        let ptrs: Vec<RowPtr> = keys.iter().map(|key| self.ptrs[*key]).collect();
        let rows = self.store.rows(&ptrs);
        let emit = |output: &crate::aggregate::plan::Output| {
            let placed = &self.plan.accumulators[output.placed];
            let side = &self.sides[output.placed];
            placed.accumulator.emit(output.part, &rows, placed.offset + 1, side)
        };
        self.plan.outputs.iter().map(emit).collect()
    }
}

/// A little generator for splits and orders; proptest chooses the seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % sides as u64).unwrap()
    }
}

fn columns_of(plan: &Plan, array: &ArrayRef) -> Vec<Column> {
    let batch = RecordBatch::try_from_iter([("v", ArrayRef::clone(array))]).unwrap();
    plan.inputs.iter().map(|input| input.read(&batch, plan.isa).unwrap()).collect()
}

/// Rows one after the other into one pane.
fn one_by_one<'p>(plan: &'p Plan, array: &ArrayRef, keys: &[usize]) -> Pane<'p> {
    let mut pane = Pane::new(plan);
    for row in 0..array.len() {
        let columns = columns_of(plan, &array.slice(row, 1));
        pane.update(&columns, &keys[row..=row], &[0]);
    }
    pane
}

/// Rows in batches of any size into any of several panes, densely or not, merged in any order.
fn split_and_merged<'p>(plan: &'p Plan, array: &ArrayRef, keys: &[usize], seed: u64) -> Pane<'p> {
    let mut dice = Dice(seed);
    let mut panes: Vec<Pane<'_>> = (0..=dice.roll(4)).map(|_| Pane::new(plan)).collect();
    let mut start = 0;
    while start < array.len() {
        let len = 1 + dice.roll(array.len() - start);
        let columns = columns_of(plan, &array.slice(start, len));
        let key_of = &keys[start..start + len];
        start += len;
        // Each row of the batch goes to one pane; a pane takes its rows of some keys densely.
        let places: Vec<usize> = (0..len).map(|_| dice.roll(panes.len())).collect();
        for (p, pane) in panes.iter_mut().enumerate() {
            let dense: Vec<bool> = (0..KEYS).map(|_| dice.roll(2) == 0).collect();
            let rows = |wanted: &dyn Fn(usize) -> bool| -> Vec<u32> {
                (0..len).filter(|row| places[*row] == p && wanted(*row)).map(to_u32).collect()
            };
            pane.update(&columns, key_of, &rows(&|row| !dense[key_of[row]]));
            for key in (0..KEYS).filter(|key| dense[*key]) {
                pane.update_dense(&columns, key, &rows(&|row| key_of[row] == key));
            }
        }
    }
    while panes.len() > 1 {
        let from = panes.swap_remove(dice.roll(panes.len()));
        let into = dice.roll(panes.len());
        panes[into].merge(from);
    }
    panes.pop().unwrap()
}

fn to_u32(row: usize) -> u32 {
    u32::try_from(row).unwrap()
}

/// Checks all of `functions` over `array`, also with its nulls left out and called free of nulls.
fn check(array: &ArrayRef, keys: &[usize], functions: &str, seed: u64) {
    check_one(array, true, keys, functions, seed);
    let valid = arrow::compute::is_not_null(array).unwrap();
    let array = arrow::compute::filter(array, &valid).unwrap();
    let keys: Vec<usize> =
        keys.iter().enumerate().filter(|(row, _)| valid.value(*row)).map(|(_, key)| *key).collect();
    check_one(&array, false, &keys, functions, seed);
}

fn check_one(array: &ArrayRef, nullable: bool, keys: &[usize], functions: &str, seed: u64) {
    let schema = Schema::new(vec![Field::new("v", array.data_type().clone(), nullable)]);
    let all = Aggregate::parse_list(functions).unwrap();
    // A random part of the aggregates, at least one.
    let mut dice = Dice(seed);
    let mut aggregates: Vec<Aggregate> =
        all.iter().filter(|_| dice.roll(2) == 0).cloned().collect();
    if aggregates.is_empty() {
        aggregates.push(all[dice.roll(all.len())].clone());
    }
    let scope = Scope { schema: &schema, time: None, reserved: &[] };
    let plan = Plan::new(&aggregates, &scope, crate::kernel::Isa::best()).unwrap();
    let present: Vec<usize> = (0..KEYS).filter(|key| keys.contains(key)).collect();
    let expected = one_by_one(&plan, array, keys).emit(&present);
    let mut merged = split_and_merged(&plan, array, keys, seed);
    assert_eq!(merged.emit(&present), expected, "{aggregates:?}");
    assert_eq!(merged.emit(&present), expected, "to emit changes nothing");
    for ((aggregate, output), result) in aggregates.iter().zip(&plan.outputs).zip(expected) {
        if let Ok(result) = &result {
            assert_eq!(result.data_type(), output.field.data_type(), "{aggregate}");
            assert!(output.field.is_nullable() || result.null_count() == 0, "{aggregate}");
        }
        let groups: Vec<ArrayRef> = present.iter().map(|key| group(array, keys, *key)).collect();
        oracle::compare(aggregate, &groups, result);
    }
}

fn group(array: &ArrayRef, keys: &[usize], key: usize) -> ArrayRef {
    let mask: BooleanArray = keys.iter().map(|k| Some(*k == key)).collect();
    arrow::compute::filter(array, &mask).unwrap()
}

const ORDER: &str = "count, count(v), min(v), max(v)";
const INTEGERS: &str = "count, count(v), sum(v), sum_decimal(v), min(v), max(v), avg(v)";
const NUMBERS: &str = "count, count(v), sum(v), min(v), max(v), avg(v)";

/// Rows with a key, a value or null, and a seed for everything else.
fn rows<T: std::fmt::Debug>(
    value: impl Strategy<Value = T>,
) -> impl Strategy<Value = (Vec<(usize, Option<T>)>, u64)> {
    let null = prop_oneof![Just(0), Just(1), Just(9)];
    (proptest::collection::vec((0..KEYS, null, value), 0..40), 0..3_u8, any::<u64>()).prop_map(
        |(rows, nulls, seed)| {
            // Batches without nulls, with some, and with keys that have nothing else.
            let null = |key: usize, n: i32| nulls > 0 && (n == 9 || (nulls == 2 && key == 0));
            let rows = rows.into_iter().map(|(key, n, v)| (key, (!null(key, n)).then_some(v)));
            (rows.collect(), seed)
        },
    )
}

fn unzip<T: Copy, U>(
    rows: &[(usize, Option<T>)],
    to: impl Fn(T) -> U,
) -> (Vec<usize>, Vec<Option<U>>) {
    rows.iter().map(|(key, value)| (*key, value.map(&to))).unzip()
}

/// Checks the rows as arrays of several types, each made by `$make` from `Vec<Option<$value>>`.
macro_rules! check_as {
    ($rows:expr, $seed:expr, $functions:expr, $($array:ty, $to:expr $(, $with:expr)?;)*) => {$({
        let (keys, values) = unzip(&$rows, $to);
        let array = <$array>::from(values);
        $(let array = $with(array);)?
        check(&(Arc::new(array) as ArrayRef), &keys, $functions, $seed);
    })*};
}

fn edges() -> impl Strategy<Value = i64> {
    prop_oneof![
        3 => -9..9_i64,
        1 => any::<i64>(),
        1 => prop_oneof![Just(i64::MIN), Just(i64::MAX), Just(0), Just(-1)],
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn integers((rows, seed) in rows(edges())) {
        check_as!(rows, seed, INTEGERS,
            Int64Array, |v| v;
            UInt64Array, |v: i64| v.cast_unsigned();
            Int16Array, |v| v as i16;
            Int8Array, |v| v as i8;
            UInt8Array, |v| v as u8;
            UInt32Array, |v| v as u32;
        );
    }

    #[test]
    fn times((rows, seed) in rows(edges())) {
        check_as!(rows, seed, ORDER,
            TimestampMicrosecondArray, |v| v, |a: TimestampMicrosecondArray| a.with_timezone("Asia/Tokyo");
            Date32Array, |v| v as i32;
            Time32MillisecondArray, |v| (v & 0xff_ffff) as i32;
            Time64NanosecondArray, |v| v & 0xff_ffff_ffff;
            DurationSecondArray, |v| v;
            BooleanArray, |v: i64| v > 0;
        );
    }

    #[test]
    fn decimals((rows, seed) in rows(edges())) {
        let wide = |v: i64| i128::from(v) * 3_000_000_000_000_000_007;
        let widest = |v: i64| i256::from_i128(wide(v)) * i256::from_i128(10_i128.pow(37));
        check_as!(rows, seed, NUMBERS,
            Decimal32Array, |v| (v % 100_000) as i32,
                |a: Decimal32Array| a.with_precision_and_scale(5, 2).unwrap();
            Decimal64Array, |v| v / 10,
                |a: Decimal64Array| a.with_precision_and_scale(18, -2).unwrap();
            Decimal128Array, i128::from,
                |a: Decimal128Array| a.with_precision_and_scale(38, 36).unwrap();
            Decimal128Array, wide, |a: Decimal128Array| a.with_precision_and_scale(38, 10).unwrap();
            Decimal256Array, widest, |a: Decimal256Array| a.with_precision_and_scale(76, 75).unwrap();
        );
    }

    #[test]
    fn floats((rows, seed) in rows(float::any_float())) {
        check_as!(rows, seed, NUMBERS,
            Float64Array, |v| v;
            Float32Array, |v| v as f32;
            Float16Array, float::half;
        );
    }

    #[test]
    fn bytes((rows, seed) in rows(proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0)], 0..12))) {
        let keys: Vec<usize> = rows.iter().map(|(key, _)| *key).collect();
        let bytes = || rows.iter().map(|(_, value)| value.as_deref());
        let texts = || bytes().map(|value| value.map(|bytes| str::from_utf8(bytes).unwrap()));
        let sized: Vec<_> = bytes().map(|b| b.map(|b| [b.first().copied().unwrap_or(7), 1])).collect();
        let sized = FixedSizeBinaryArray::try_from_sparse_iter_with_size(sized.iter().copied(), 2);
        let arrays: Vec<ArrayRef> = vec![
            Arc::new(texts().collect::<StringArray>()),
            Arc::new(texts().collect::<LargeStringArray>()),
            Arc::new(texts().collect::<StringViewArray>()),
            Arc::new(texts().collect::<DictionaryArray<Int16Type>>()),
            Arc::new(bytes().collect::<BinaryViewArray>()),
            Arc::new(sized.unwrap()),
        ];
        for array in arrays {
            check(&array, &keys, ORDER, seed);
        }
    }
}

/// Runs of rows that are longer than the blocks in which they are reduced.
#[test]
fn long_runs_of_one_key() {
    let mut dice = Dice(7);
    let mut ints: Vec<i64> = (0..5000).map(|_| dice.roll(1 << 30) as i64 - (1 << 29)).collect();
    ints[777] = i64::MIN;
    ints[778] = i64::MIN;
    ints[4000] = i64::MAX;
    let floats: Vec<f64> = ints.iter().map(|v| f64::from((v % 100_000) as i32) / 100.0).collect();
    let mut odd = floats.clone();
    odd[3000] = 1e-30;
    let keys: Vec<usize> = (0..ints.len()).map(|_| usize::from(dice.roll(9) == 0)).collect();
    let some = |dice: &mut Dice, v: i64| (dice.roll(5) > 0).then_some(v);
    let holes: Vec<Option<i64>> = ints.iter().map(|v| some(&mut dice, *v)).collect();
    let decimals: Vec<i128> = ints.iter().map(|v| i128::from(*v) << 63).collect();
    let arrays: [ArrayRef; 5] = [
        Arc::new(Int64Array::from(ints)),
        Arc::new(Int64Array::from(holes)),
        Arc::new(Float64Array::from(floats)),
        Arc::new(Float64Array::from(odd)),
        Arc::new(Decimal128Array::from(decimals).with_precision_and_scale(38, 3).unwrap()),
    ];
    for array in arrays {
        for seed in 0..6 {
            check(&array, &keys, NUMBERS, seed);
            check(&array, &vec![2; keys.len()], NUMBERS, seed);
        }
    }
}

#[test]
fn a_type_without_kernels_can_be_counted() {
    let array: ArrayRef = Arc::new(arrow::array::NullArray::new(3));
    check_one(&array, true, &[0, 1, 1], "count(v)", 1);
    assert_eq!(array.data_type(), &DataType::Null);
}
