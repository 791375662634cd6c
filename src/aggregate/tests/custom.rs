//! Aggregates that are not ours, and whether the test kit finds those that break the law.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, Float64Array, Int64Array};
use arrow::datatypes::{DataType, Field, Float64Type};
use arrow::record_batch::RecordBatch;

use super::rig::same_however;
use crate::aggregate::plan::{Plan, Scope};
use crate::aggregate::spec::Aggregate;
use crate::aggregate::testkit::check;
use crate::aggregate::{CustomAggregate, Filter, GroupedRows};
use crate::kernel::Isa;

/// Sums floats: by the bits of their whole part, as the law asks, or as floats, which breaks it.
#[derive(Debug)]
struct Sum {
    lawful: bool,
    result: DataType,
}

impl CustomAggregate for Sum {
    type State = (i64, f64);

    fn name(&self) -> &'static str {
        "own_sum"
    }

    fn result_type(&self, arguments: &[&Field]) -> Result<DataType, String> {
        match arguments {
            [one] if *one.data_type() == DataType::Float64 => Ok(self.result.clone()),
            _ => Err("it takes one column of type Float64".to_owned()),
        }
    }

    fn update(&self, arguments: &[ArrayRef], rows: GroupedRows<'_, '_, Self>) {
        let values = arguments[0].as_primitive::<Float64Type>();
        rows.for_each(|state, row| {
            if values.is_valid(row) {
                state.0 += values.value(row) as i64;
                state.1 += values.value(row);
            }
        });
    }

    fn merge(&self, into: &mut Self::State, from: &Self::State) {
        into.0 += from.0;
        into.1 += from.1;
    }

    fn emit(&self, states: &[&Self::State]) -> ArrayRef {
        if self.lawful {
            return Arc::new(states.iter().map(|state| Some(state.0)).collect::<Int64Array>());
        }
        Arc::new(states.iter().map(|state| Some(state.1)).collect::<Float64Array>())
    }
}

fn lawful() -> Aggregate {
    Aggregate::custom(Sum { lawful: true, result: DataType::Int64 }, ["v"])
}

fn batch() -> RecordBatch {
    let v = (0..200).map(|i| (i % 7 > 0).then(|| f64::from(i) * 1.1)).collect::<Float64Array>();
    let k = (0..200).map(|i| Some(i % 4)).collect::<Int64Array>();
    RecordBatch::try_from_iter([("k", Arc::new(k) as ArrayRef), ("v", Arc::new(v))]).unwrap()
}

#[test]
fn the_kit_tells_the_lawful_from_the_others() {
    check(&lawful(), &batch(), 50).unwrap();
    let floats = Aggregate::custom(Sum { lawful: false, result: DataType::Float64 }, ["v"]);
    let error = check(&floats, &batch(), 50).unwrap_err();
    assert!(error.contains("own_sum(v) breaks the merge law, seed"), "{error}");
    let built_in = Aggregate::parse_list("sum(v), count(distinct v), mode(v), median(v)").unwrap();
    for aggregate in built_in {
        check(&aggregate, &batch(), 20).unwrap();
    }
}

#[test]
fn what_it_says_and_does_is_checked() {
    let wrong = Aggregate::custom(Sum { lawful: true, result: DataType::Utf8 }, ["v"]);
    let error = check(&wrong, &batch(), 1).unwrap_err();
    assert!(
        error.contains("own_sum(v): it gave 4 results of type Int64 for 4 states and type Utf8"),
        "{error}"
    );
    let other = Aggregate::custom(Sum { lawful: true, result: DataType::Int64 }, ["k"]);
    let error = check(&other, &batch(), 1).unwrap_err();
    assert!(
        error.contains("own_sum(k) cannot use column \"k\" of type Int64; it takes one"),
        "{error}"
    );
}

/// Counts values, and saves how many it has seen: all, or half of them.
#[derive(Debug)]
struct Count {
    divided_by: u64,
}

impl CustomAggregate for Count {
    type State = u64;

    fn name(&self) -> &'static str {
        "own_count"
    }

    fn result_type(&self, _: &[&Field]) -> Result<DataType, String> {
        Ok(DataType::Int64)
    }

    fn update(&self, arguments: &[ArrayRef], rows: GroupedRows<'_, '_, Self>) {
        rows.for_each(|state, row| *state += u64::from(arguments[0].is_valid(row)));
    }

    fn merge(&self, into: &mut u64, from: &u64) {
        *into += from;
    }

    fn emit(&self, states: &[&u64]) -> ArrayRef {
        Arc::new(states.iter().map(|state| Some(**state as i64)).collect::<Int64Array>())
    }

    fn save(&self, state: &u64, out: &mut Vec<u8>) -> Result<(), String> {
        out.extend_from_slice(&(state / self.divided_by).to_le_bytes());
        Ok(())
    }

    fn load(&self, bytes: &[u8]) -> Result<u64, String> {
        bytes.try_into().map(u64::from_le_bytes).map_err(|_| "not 8 bytes".to_owned())
    }
}

#[test]
fn the_kit_tells_those_that_are_saved_well_from_the_others() {
    check(&Aggregate::custom(Count { divided_by: 1 }, ["v"]), &batch(), 20).unwrap();
    let error =
        check(&Aggregate::custom(Count { divided_by: 2 }, ["v"]), &batch(), 20).unwrap_err();
    assert!(error.contains("own_count(v) is not what was saved, seed"), "{error}");
}

#[test]
fn whether_it_can_be_saved_is_known_beforehand() {
    let batch = batch();
    let can_save = |aggregate: Aggregate| {
        let scope = Scope { schema: &batch.schema(), time: None, reserved: &[] };
        let plan = Plan::new(&[aggregate], &scope, Isa::best()).unwrap();
        plan.accumulators[0].accumulator.can_save()
    };
    assert_eq!(can_save(Aggregate::custom(Count { divided_by: 1 }, ["v"])), Ok(()));
    assert_eq!(can_save(Aggregate::sum("v")), Ok(()));
    let why = can_save(lawful()).unwrap_err().to_string();
    assert_eq!(
        why,
        "aggregate own_sum does not implement save and load, so checkpoints and savepoints of jobs with it \
         are not possible; implement both"
    );
    let own = Count { divided_by: 1 };
    assert!(own.load(b"seven b").is_err());
}

#[test]
fn it_is_an_aggregate_like_others() {
    let own = lawful();
    assert_eq!((own.to_string().as_str(), own.output_name().as_str()), ("own_sum(v)", "own_sum_v"));
    assert_eq!(own, own.clone());
    assert_ne!(own, lawful(), "another one, as far as can be known");
    let some = own.clone().filter(Filter::parse("v > 100 and k <> 2").unwrap()).alias("some");
    let results = same_however(&[own, Aggregate::count(), some], &batch(), 3).unwrap();
    let sums = |column: usize| {
        results[column].as_primitive::<arrow::datatypes::Int64Type>().values().to_vec()
    };
    let (whole, some) = (sums(1), sums(3));
    assert!(whole.iter().zip(&some).all(|(whole, some)| whole > some));
    assert_eq!(some[2], 0, "no row of this group passes, so the default state is shown");
}
