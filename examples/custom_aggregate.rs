//! An aggregate of one's own: which hours of the day a user was seen in, as a set of bits.
//!
//!     cargo run --release --example custom_aggregate

#![expect(clippy::print_stdout, reason = "an example talks to people")]

use std::error::Error;
use std::sync::Arc;

use saltmill::aggregate::{CustomAggregate, GroupedRows, testkit};
use saltmill::arrow::array::{
    Array, ArrayRef, AsArray, Int64Array, StringArray, TimestampSecondArray, UInt32Array,
};
use saltmill::arrow::datatypes::{DataType, Field, TimeUnit, TimestampSecondType};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::arrow::util::display::array_value_to_string;
use saltmill::{Aggregate, Collected, Engine, Job};

/// Bit `h` is set if there was a row in hour `h` of the day. Sets of bits obey the merge law: or-ing
/// them gives the same in any order.
#[derive(Debug)]
struct HoursSeen;

impl CustomAggregate for HoursSeen {
    type State = u32;

    fn name(&self) -> &'static str {
        "hours_seen"
    }

    fn result_type(&self, arguments: &[&Field]) -> Result<DataType, String> {
        match arguments {
            [time] if *time.data_type() == DataType::Timestamp(TimeUnit::Second, None) => {
                Ok(DataType::UInt32)
            }
            _ => Err("it takes a timestamp in seconds, without a zone".to_owned()),
        }
    }

    fn update(&self, arguments: &[ArrayRef], rows: GroupedRows<'_, '_, Self>) {
        let times = arguments[0].as_primitive::<TimestampSecondType>();
        rows.for_each(|hours, row| {
            if times.is_valid(row) {
                *hours |= 1 << (times.value(row).rem_euclid(86_400) / 3600);
            }
        });
    }

    fn merge(&self, into: &mut u32, from: &u32) {
        *into |= from;
    }

    fn emit(&self, states: &[&u32]) -> ArrayRef {
        Arc::new(states.iter().map(|hours| Some(**hours)).collect::<UInt32Array>())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let rows = 0..100_000_i64;
    // Nine rows of ten are of one user, whose partial results are merged.
    let users = rows.clone().map(|i| Some(if i % 10 > 0 { "robot" } else { "ann" }));
    let times = rows.clone().map(|i| Some(i * 60 + if i % 10 > 0 { 0 } else { i % 1440 }));
    let columns: [(&str, ArrayRef); 3] = [
        ("user", Arc::new(users.collect::<StringArray>())),
        ("at", Arc::new(times.collect::<TimestampSecondArray>())),
        ("n", Arc::new(rows.map(Some).collect::<Int64Array>())),
    ];
    let batch = RecordBatch::try_from_iter(columns)?;
    let hours = Aggregate::custom(HoursSeen, ["at"]);
    testkit::check(&hours, &batch.slice(0, 500), 20)?;

    let job = Job::builder(batch.schema())
        .key(["user"])
        .aggregates([Aggregate::count(), hours.alias("hours")])
        .build()?;
    let results = Collected::new();
    let engine = Engine::start(job, results.clone())?;
    engine.ingest()?.push(batch)?;
    engine.finish()?;
    for rows in results.take() {
        for row in 0..rows.num_rows() {
            let text = |column: usize| array_value_to_string(rows.column(column), row);
            println!("{:>6} {:>6} rows, hours {}", text(0)?, text(1)?, text(2)?);
        }
    }
    Ok(())
}
