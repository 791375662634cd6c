//! Every function over every type it takes: what is saved and taken back goes on as if it had not been, and
//! what is damaged is told, or is another state, and never a panic.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, AsArray, BooleanArray, FixedSizeListArray, Float64Array, Int64Array,
    LargeBinaryArray, ListArray, MapArray, NullArray, StringArray, StructArray, UInt32Array,
    UInt64Array, UnionArray,
};
use arrow::buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow::compute::{cast, take};
use arrow::datatypes::{
    DataType, Field, Fields, Int64Type, Schema, TimeUnit, UInt64Type, UnionFields,
};
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use super::wide::{self, rows};
use crate::aggregate::plan::{Plan, Scope};
use crate::aggregate::spec::{Aggregate, Function, Shape};
use crate::aggregate::testkit::{Dice, Kit, check, with_keys};
use crate::kernel::Isa;
use crate::key::group::MAX_PARALLELISM_DEFAULT;
use crate::state::pane::image::ImageLayout;
use crate::state::pane::{Pane, Scratch};

/// The image of a pane, taken apart so that it can be damaged.
struct SavedRows {
    layout: ImageLayout,
    image: RecordBatch,
    /// The words of all rows, word after word.
    words: Vec<u64>,
    /// What the accumulators that keep something beside their words kept.
    sides: Vec<LargeBinaryArray>,
}

impl SavedRows {
    fn of(kit: &Kit, pane: &mut Pane) -> Self {
        let layout = ImageLayout::new(&kit.keys, &kit.plan, MAX_PARALLELISM_DEFAULT);
        let image = pane.image(&kit.plan, &layout, &mut Scratch::default()).unwrap();
        let mut saved = Self { layout, image, words: Vec::new(), sides: Vec::new() };
        for (field, column) in saved.image.schema().fields().iter().zip(saved.image.columns()) {
            if field.name().starts_with("word:") {
                saved.words.extend_from_slice(column.as_primitive::<UInt64Type>().values());
            } else if field.name().starts_with("beside:") {
                saved.sides.push(column.as_binary::<i64>().clone());
            }
        }
        saved
    }

    /// Takes the rows back as they stand here; whether that works.
    fn restore(&self, kit: &Kit) -> Option<Pane> {
        let rows = self.image.num_rows();
        let words = self.words.chunks_exact(rows.max(1));
        let words = words.map(|words| Arc::new(UInt64Array::from(words.to_vec())) as ArrayRef);
        let sides = self.sides.iter().map(|side| Arc::new(side.clone()) as ArrayRef);
        let kept = self.image.num_columns() - kit.plan.words - self.sides.len();
        let columns = self.image.columns()[..kept].iter().cloned().chain(words).chain(sides);
        let image = RecordBatch::try_new(self.image.schema(), columns.collect()).unwrap();
        let mut pane = Pane::new(&kit.keys, &kit.plan);
        let taken = pane.restore(&kit.plan, &self.layout, &image, &mut Scratch::default());
        taken.is_ok().then_some(pane)
    }
}

/// A column of every type that aggregates know something to do with, made of numbers, texts and floats.
fn columns(dice: &mut Dice, rows: usize, nulls: bool) -> Vec<(String, ArrayRef)> {
    let some = |dice: &mut Dice| !nulls || dice.roll(4) > 0;
    let small: Int64Array =
        (0..rows).map(|_| some(dice).then(|| dice.roll(9).cast_signed() - 2)).collect();
    let large: Int64Array = (0..rows)
        .map(|_| some(dice).then(|| [-(1 << 57), 1 << 58, 1 << 40, -7][dice.roll(4) as usize]))
        .collect();
    let counts: Int64Array = small.iter().map(|v| v.map(i64::abs)).collect();
    let texts = [
        "",
        "a",
        "ab",
        "of twelve!!!",
        "thirteen chars",
        "one that takes more than a block of 32 bytes: \u{e9}",
    ];
    let texts: StringArray =
        (0..rows).map(|_| some(dice).then(|| texts[dice.roll(6) as usize])).collect();
    let floats = [0.0, -0.0, 0.1, -2.5, 1e300, -1e300, 5e-324, 1e-20, f64::NAN, f64::INFINITY];
    let floats: Float64Array =
        (0..rows).map(|_| some(dice).then(|| floats[dice.roll(10) as usize])).collect();
    let finite: Float64Array = (0..rows)
        .map(|_| some(dice).then(|| [0.25, 3e200, -3e200, 1e-200][dice.roll(4) as usize]))
        .collect();
    let booleans: BooleanArray = small.iter().map(|v| v.map(|v| v > 1)).collect();
    let sized: Vec<Option<[u8; 3]>> = small.iter().map(|v| v.map(|v| [v as u8, 0, 255])).collect();
    let sized = arrow::array::FixedSizeBinaryArray::try_from_sparse_iter_with_size(
        sized.iter().copied(),
        3,
    );
    let (small, large, counts): (ArrayRef, ArrayRef, ArrayRef) =
        (Arc::new(small), Arc::new(large), Arc::new(counts));
    let (texts, floats): (ArrayRef, ArrayRef) = (Arc::new(texts), Arc::new(floats));
    let mut columns: Vec<ArrayRef> = vec![
        Arc::new(booleans),
        Arc::new(sized.unwrap()),
        Arc::new(finite),
        Arc::clone(&small),
        Arc::clone(&large),
        Arc::clone(&texts),
        Arc::clone(&floats),
        Arc::new(NullArray::new(rows)),
        cast(&floats, &DataType::Float32).unwrap(),
        cast(&floats, &DataType::Float16).unwrap(),
        cast(&cast(&large, &DataType::Float64).unwrap(), &DataType::Float32).unwrap(),
    ];
    use DataType::{
        BinaryView, Date32, Date64, Dictionary, Duration, Int8, Int16, Int32, Interval, Time32,
        Time64, Timestamp, UInt8, UInt16, UInt32, UInt64,
    };
    let (seconds, millis, micros, nanos) =
        (TimeUnit::Second, TimeUnit::Millisecond, TimeUnit::Microsecond, TimeUnit::Nanosecond);
    for to in [
        Int8,
        Int16,
        Int32,
        DataType::Decimal32(9, 2),
        DataType::Decimal64(18, 3),
        DataType::Decimal128(38, 5),
        DataType::Decimal256(76, 7),
        Duration(seconds),
        Duration(nanos),
        Timestamp(seconds, None),
        Timestamp(millis, Some("Asia/Tokyo".into())),
        Timestamp(micros, None),
        Timestamp(nanos, Some("+01:00".into())),
        Dictionary(Box::new(Int8), Box::new(DataType::Int64)),
    ] {
        columns.push(cast(&small, &to).unwrap());
    }
    for to in [DataType::Decimal128(38, 0), DataType::Decimal256(76, 20), Timestamp(micros, None)] {
        columns.push(cast(&large, &to).unwrap());
    }
    for to in [UInt8, UInt16, UInt32, UInt64, Time64(micros), Time64(nanos), Date64] {
        columns.push(cast(&counts, &to).unwrap());
    }
    let narrow = cast(&counts, &Int32).unwrap();
    for to in [
        Date32,
        Time32(seconds),
        Time32(millis),
        Interval(arrow::datatypes::IntervalUnit::YearMonth),
    ] {
        columns.push(cast(&narrow, &to).unwrap());
    }
    for to in [
        DataType::LargeUtf8,
        DataType::Utf8View,
        DataType::Binary,
        DataType::LargeBinary,
        BinaryView,
        Dictionary(Box::new(Int16), Box::new(DataType::Utf8)),
    ] {
        columns.push(cast(&texts, &to).unwrap());
    }
    columns.extend(nested(dice, (&small, &texts), nulls));
    columns.into_iter().map(|column| (column.data_type().to_string(), column)).collect()
}

/// Types that hold others: they can be kept beside what is compared.
fn nested(dice: &mut Dice, (small, texts): (&ArrayRef, &ArrayRef), nulls: bool) -> Vec<ArrayRef> {
    let rows = small.len();
    let holes = || nulls.then(|| NullBuffer::from_iter((0..rows).map(|row| row % 5 > 0)));
    let item = |array: &ArrayRef| Arc::new(Field::new("item", array.data_type().clone(), true));
    let lengths: Vec<usize> = (0..rows).map(|_| dice.roll(4) as usize).collect();
    let total: usize = lengths.iter().sum();
    let mut picked = |from: &ArrayRef, n: usize| {
        let places: UInt32Array = (0..n).map(|_| dice.roll(rows as u64) as u32).collect();
        take(from, &places, None).unwrap()
    };
    let list = |values: ArrayRef| -> ArrayRef {
        let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
        Arc::new(ListArray::new(item(&values), offsets, values, holes()))
    };
    let fields = Fields::from(vec![
        Field::new("a", small.data_type().clone(), true),
        Field::new("b", DataType::Utf8, true),
    ]);
    let pair = |a: ArrayRef, b: ArrayRef, nulls| -> ArrayRef {
        Arc::new(StructArray::new(fields.clone(), vec![a, b], nulls))
    };
    let lists = list(picked(texts, total));
    let structs = list(pair(picked(small, total), picked(texts, total), None));
    let pairs = picked(small, 2 * rows);
    let fixed = FixedSizeListArray::new(item(&pairs), 2, pairs, holes());
    let names = Field::new("name", DataType::Int64, false);
    let entries = Fields::from(vec![names, Field::new("value", DataType::Utf8, true)]);
    let keys: ArrayRef = Arc::new((0..total as i64).map(Some).collect::<Int64Array>());
    let values = StructArray::new(entries.clone(), vec![keys, picked(texts, total)], None);
    let entries = Arc::new(Field::new("entries", DataType::Struct(entries), false));
    let offsets = OffsetBuffer::from_lengths(lengths.iter().copied());
    let map = MapArray::new(entries, offsets, values, holes(), false);
    let kinds = UnionFields::try_new(
        [0, 4],
        [Field::new("n", DataType::Int64, true), Field::new("t", DataType::Utf8, true)],
    )
    .unwrap();
    let ids: ScalarBuffer<i8> = (0..rows).map(|row| [0, 4][row % 2]).collect();
    let children = vec![Arc::clone(small), Arc::clone(texts)];
    let sparse = UnionArray::try_new(kinds.clone(), ids.clone(), None, children.clone());
    let places: ScalarBuffer<i32> = (0..rows as i32).collect();
    let dense = UnionArray::try_new(kinds, ids, Some(places), children);
    let large = cast(&lists, &DataType::LargeList(item(texts))).unwrap();
    let views = cast(&lists, &DataType::ListView(item(texts))).unwrap();
    let ends = Arc::new(Field::new("run_ends", DataType::Int32, false));
    let runs = DataType::RunEndEncoded(ends, Arc::new(Field::new("values", DataType::Utf8, true)));
    vec![
        list(Arc::clone(&picked(small, total))),
        pair(Arc::clone(small), Arc::clone(texts), holes()),
        list(take(&lists, &UInt32Array::from(vec![0; total]), None).unwrap()),
        lists,
        structs,
        Arc::new(fixed),
        Arc::new(map),
        Arc::new(sparse.unwrap()),
        Arc::new(dense.unwrap()),
        large,
        views,
        cast(texts, &runs).unwrap(),
    ]
}

/// A batch of columns of every type, `v0`, `v1`, ... , with `t` as the event time, `u` to filter by, `w` for pairs.
fn every_type(dice: &mut Dice, rows: usize, nulls: bool) -> RecordBatch {
    let columns = columns(dice, rows, nulls);
    let number = |dice: &mut Dice| Some(dice.roll(5).cast_signed());
    let mut fields = Vec::new();
    let mut arrays: Vec<ArrayRef> = Vec::new();
    for name in ["t", "u", "w"] {
        fields.push(Field::new(name, DataType::Int64, false));
        arrays.push(Arc::new((0..rows).map(|_| number(dice)).collect::<Int64Array>()));
    }
    for (i, (_, array)) in columns.into_iter().enumerate() {
        let always = array.data_type().is_null();
        fields.push(Field::new(format!("v{i}"), array.data_type().clone(), nulls || always));
        arrays.push(array);
    }
    RecordBatch::try_new(Arc::new(Schema::new(fields)), arrays).unwrap()
}

/// `function` over `column`, in every way it is written.
fn ways(function: Function, column: &str) -> Vec<String> {
    let name = function.name();
    let distinct = if function == Function::CountDistinct { "distinct " } else { "" };
    match function.shape() {
        Shape::OptionalColumn => vec![name.to_owned(), format!("{name}({column})")],
        Shape::Column => vec![format!("{name}({column})")],
        Shape::TwoColumns(_) => {
            vec![format!("{name}({column}, w)"), format!("{name}(w, {column})")]
        }
        Shape::Columns => {
            vec![format!("{name}({distinct}{column})"), format!("{name}({distinct}w, {column})")]
        }
        Shape::Quantile => vec![format!("{name}({column}, 0.3)")],
        Shape::Count => vec![format!("{name}({column}, 2)"), format!("{name}(w, 2, {column})")],
    }
}

/// Calls `check` with each aggregate that the parser knows, over each column of `batch` that it takes, with and
/// without a filter.
fn for_every_aggregate(batch: &RecordBatch, mut check: impl FnMut(&Aggregate)) {
    for function in Function::ALL {
        let mut taken = 0;
        for field in batch.schema().fields() {
            for way in ways(function, field.name()) {
                for filter in ["", " filter (where u < 2)"] {
                    let aggregate =
                        Aggregate::parse_list(&format!("{way}{filter}")).unwrap().remove(0);
                    let keyed = with_keys(batch, 1).unwrap();
                    if Kit::new(std::slice::from_ref(&aggregate), &keyed).is_ok() {
                        check(&aggregate);
                        taken += 1;
                    }
                }
            }
        }
        assert!(taken > 1, "{function} takes no column");
    }
}

#[test]
fn every_function_goes_on_as_if_it_had_not_been_saved() {
    let mut dice = Dice(1);
    for (rows, nulls) in [(30, true), (30, false), (3, true), (0, true)] {
        let batch = every_type(&mut dice, rows, nulls);
        let mut seen = std::collections::BTreeSet::new();
        for_every_aggregate(&batch, |aggregate| {
            if seen.insert(aggregate.to_string()) {
                check(aggregate, &batch, 2).unwrap_or_else(|error| panic!("{error}"));
            }
        });
    }
}

/// Checks `text`, its aggregates sharing what they keep.
fn check_list(text: &str, batch: &RecordBatch, seed: u64) {
    let kit = Kit::new(&Aggregate::parse_list(text).unwrap(), batch).unwrap();
    let expected = kit.emit(&mut kit.one_by_one(batch)).unwrap();
    kit.check_saved(text, batch, &expected, seed).unwrap_or_else(|error| panic!("{error}"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn aggregates_that_share_go_on_too(rows in rows(), seed: u64) {
        let batch = wide::batch(&rows);
        let text = "count, count(i), sum(u), sum_decimal(i), min(i), max(i), avg(i), avg(f), sum(f), max(f), \
            count(s), min(s), max(s), arg_min(s, f), arg_max(s, f), first(i), last(w), sum(d), avg(d), min(d), \
            bit_and(i), bit_xor(i), count(u), avg(u), bit_or(u), var_pop(f), stddev(f), corr(i, h), covar_pop(i, h), \
            count(distinct s, f), count(distinct i), mode(w), top_n(f, 3, s), bottom_n(s, 2), \
            sum(f) filter (where i > 0) as x, min(w) filter (where b), count(distinct s) filter (where b) as y";
        check_list(text, &batch, seed);
    }

    /// Sketches beyond the sizes up to which they are exact.
    #[test]
    fn large_states_go_on_too(n in 0..1200_usize, keys in 1..3_u64, seed: u64) {
        let mut dice = Dice(seed);
        let k: ArrayRef = Arc::new((0..n).map(|_| Some(dice.roll(keys) as i64)).collect::<Int64Array>());
        let v: ArrayRef = Arc::new((0..n).map(|_| Some(dice.roll(800) as i64 - 90)).collect::<Int64Array>());
        let s = v.as_primitive::<Int64Type>().iter().map(|v| v.map(|v| "x".repeat(v.unsigned_abs() as usize % 40)));
        let s: ArrayRef = Arc::new(s.collect::<StringArray>());
        let batch = RecordBatch::try_from_iter([("k", k), ("v", v), ("s", s)]).unwrap();
        let text = "approx_distinct(v), count(distinct v), count(distinct s, v), median(v), approx_quantile(v, 0.9), \
                    mode(v), mode(s), top_n(v, 70, s), bottom_n(s, 500)";
        check_list(text, &batch, seed);
    }

    /// But for sums of floats, which leave their windows earlier or later.
    #[test]
    fn what_is_saved_does_not_depend_on_the_order(rows in rows(), seed: u64) {
        let batch = wide::batch(&rows);
        let text = "min(s), max(s), arg_min(s, f), arg_max(s, f), count(distinct s, f), count(distinct i), mode(w), \
                    top_n(f, 3, s), bottom_n(s, 2), approx_distinct(s), median(f)";
        let kit = Kit::new(&Aggregate::parse_list(text).unwrap(), &batch).unwrap();
        let states = |mut pane: Pane| {
            let saved = SavedRows::of(&kit, &mut pane);
            let keys = saved.image.column(1).as_primitive::<Int64Type>().values().to_vec();
            let bytes = |k: usize| -> Vec<Option<Vec<u8>>> {
                let values = saved.sides.iter().map(|side| side.is_valid(k).then(|| side.value(k)));
                values.map(|bytes| bytes.map(<[u8]>::to_vec)).collect()
            };
            keys.iter().enumerate().map(|(k, key)| (*key, bytes(k))).collect::<BTreeMap<_, _>>()
        };
        let expected = states(kit.one_by_one(&batch));
        assert_eq!(states(kit.split_and_merged(&batch, seed)), expected);
    }
}

#[test]
fn an_integer_value_takes_eight_bytes() {
    let v: ArrayRef = Arc::new((0..1000).map(|v| Some(v * 77)).collect::<Int64Array>());
    let k: ArrayRef = Arc::new(Int64Array::from(vec![1; 1000]));
    let batch = RecordBatch::try_from_iter([("k", k), ("v", v)]).unwrap();
    let kit = Kit::new(&Aggregate::parse_list("count(distinct v)").unwrap(), &batch).unwrap();
    let mut pane = kit.one_by_one(&batch);
    let saved = SavedRows::of(&kit, &mut pane);
    assert_eq!(saved.sides[0].value(0).len(), 8 * 1000);
}

#[test]
fn states_of_other_rows_are_refused() {
    let schema = Schema::new(vec![Field::new("v", DataType::Float64, true)]);
    let scope = Scope { schema: &schema, time: None, reserved: &[] };
    let text = "sum(v), var_pop(v), count(distinct v), min(v), arg_min(v, v)";
    let plan = Plan::new(&Aggregate::parse_list(text).unwrap(), &scope, Isa::best()).unwrap();
    let mut pane = super::Pane::new(&plan);
    for (placed, side) in plan.accumulators.iter().zip(&mut pane.sides) {
        let rows = &mut pane.store.rows(&pane.ptrs);
        let mut restore = |saved: Option<LargeBinaryArray>| {
            placed.accumulator.restore(rows, placed.offset + 1, side, saved.as_ref())
        };
        assert_eq!(restore(None), Ok(()));
        assert_eq!(restore(Some(LargeBinaryArray::new_null(super::KEYS))), Ok(()));
        assert!(restore(Some(LargeBinaryArray::new_null(super::KEYS - 1))).is_err());
        let too_much = LargeBinaryArray::from_iter_values([b"x"; super::KEYS]);
        assert!(restore(Some(too_much)).is_err(), "the words refer to nothing");
    }
}

/// States of a small batch, and what is done with those that were taken back.
struct Damage<'a> {
    kit: Kit,
    batch: &'a RecordBatch,
    saved: SavedRows,
    refused: usize,
    taken: usize,
}

impl Damage<'_> {
    /// Takes back what stands in `saved`, and if that works, does everything with it that can be done.
    fn try_it(&mut self) {
        let Self { kit, batch, saved, refused, taken } = self;
        let (plan, scratch) = (&kit.plan, &mut Scratch::default());
        let Some(mut pane) = saved.restore(kit) else {
            *refused += 1;
            return;
        };
        *taken += 1;
        // A result may not fit its type, or be null where the job says that none is: an error, no panic.
        let _ = kit.emit(&mut pane);
        let mut other = SavedRows::of(kit, &mut pane).restore(kit).unwrap();
        kit.add(&mut other, batch);
        other.merge(plan, &mut pane, scratch);
        other.absorb(plan, &mut pane, scratch);
        let _ = kit.emit(&mut other);
    }

    /// The bytes of `side` with those of row `k` replaced.
    fn with(side: &LargeBinaryArray, k: usize, bytes: Option<&[u8]>) -> LargeBinaryArray {
        let one = |row| if row == k { bytes } else { side.is_valid(row).then(|| side.value(row)) };
        (0..side.len()).map(one).collect()
    }

    /// Every byte of short states, and some of long ones.
    fn every_byte(&mut self) {
        for i in 0..self.saved.sides.len() {
            let side = self.saved.sides[i].clone();
            for k in (0..side.len()).filter(|k| side.is_valid(*k)) {
                let bytes = side.value(k);
                let places = || (0..bytes.len()).step_by(1 + bytes.len() / 60);
                for (at, flip) in places().flat_map(|at| [0x01, 0x80, 0xff].map(|f| (at, f))) {
                    let mut flipped = bytes.to_vec();
                    flipped[at] ^= flip;
                    self.saved.sides[i] = Self::with(&side, k, Some(&flipped));
                    self.try_it();
                }
                for end in places() {
                    self.saved.sides[i] = Self::with(&side, k, Some(&bytes[..end]));
                    self.try_it();
                }
                let longer = [bytes, &[1]].concat();
                self.saved.sides[i] = Self::with(&side, k, Some(&longer));
                self.try_it();
                self.saved.sides[i] = Self::with(&side, k, None);
                self.try_it();
            }
            if side.null_count() < side.len() {
                self.saved.sides[i] = LargeBinaryArray::new_null(side.len());
                let refused = self.refused;
                self.try_it();
                assert_eq!(self.refused, refused + 1, "states that are not there");
            }
            self.saved.sides[i] = side;
        }
    }

    fn every_word(&mut self) {
        for at in 0..self.saved.words.len() {
            let word = self.saved.words[at];
            let edges = [0, 1, 2, u64::MAX, 1 << 63, (1 << 63) - 1, 1 << 56];
            let bits = [0, 7, 8, 31, 32, 33, 34, 35, 62, 63].map(|bit| word ^ 1 << bit);
            for damaged in edges.into_iter().chain(bits).filter(|damaged| *damaged != word) {
                self.saved.words[at] = damaged;
                self.try_it();
            }
            self.saved.words[at] = word;
        }
    }
}

/// Does everything to the states of `aggregates` over `batch` that can happen to a file.
fn damage(aggregates: &[Aggregate], batch: &RecordBatch) -> (usize, usize) {
    let kit = Kit::new(aggregates, batch).unwrap();
    let mut pane = kit.one_by_one(batch);
    let saved = SavedRows::of(&kit, &mut pane);
    let mut damage = Damage { kit, batch, saved, refused: 0, taken: 0 };
    damage.every_byte();
    damage.every_word();
    (damage.refused, damage.taken)
}

#[test]
fn damaged_states_are_refused_or_others() {
    let mut dice = Dice(5);
    let (mut refused, mut taken) = (0, 0);
    for nulls in [true, false] {
        let batch = every_type(&mut dice, 5, nulls);
        let keyed = with_keys(&batch, 3).unwrap();
        for_every_aggregate(&batch, |aggregate| {
            if aggregate.filter.is_none() {
                let (no, yes) = damage(std::slice::from_ref(aggregate), &keyed);
                refused += no;
                taken += yes;
            }
        });
    }
    assert!(refused > 10_000 && taken > 10_000, "{refused} refused, {taken} taken");
}

#[test]
fn damaged_sketches_are_refused_or_others() {
    let n = 300;
    let k: ArrayRef = Arc::new(Int64Array::from(vec![1; n]));
    let v: ArrayRef =
        Arc::new((0..n as i64).map(|v| Some(v * v % 307 - 9)).collect::<Int64Array>());
    let batch = RecordBatch::try_from_iter([("k", k), ("v", v)]).unwrap();
    for text in ["median(v)", "approx_distinct(v)", "mode(v)", "count(distinct v)"] {
        let aggregates = Aggregate::parse_list(text).unwrap();
        let kit = Kit::new(&aggregates, &batch).unwrap();
        let mut pane = Pane::new(&kit.keys, &kit.plan);
        kit.add(&mut pane, &batch);
        let saved = SavedRows::of(&kit, &mut pane);
        let side = saved.sides[0].clone();
        let few = batch.slice(0, 3);
        let mut damage = Damage { kit, batch: &few, saved, refused: 0, taken: 0 };
        let bytes = side.value(0);
        for at in (0..bytes.len()).step_by(1 + bytes.len() / 150) {
            for flip in [0x01, 0x08, 0x80, 0xff] {
                let mut flipped = bytes.to_vec();
                flipped[at] ^= flip;
                damage.saved.sides[0] = Damage::with(&side, 0, Some(&flipped));
                damage.try_it();
            }
            damage.saved.sides[0] = Damage::with(&side, 0, Some(&bytes[..at]));
            damage.try_it();
        }
        assert!(damage.refused > 100, "{text}: {} refused", damage.refused);
        // Every register as far up as it goes: the estimate is beyond all counts.
        if text.starts_with("approx") {
            let full = [&[1][..], &[53; 4096]].concat();
            damage.saved.sides[0] = Damage::with(&side, 0, Some(&full));
            let taken = damage.taken;
            damage.try_it();
            assert_eq!(damage.taken, taken + 1);
        }
    }
}
