//! Different values under skew: a hot key's set is spread over shards by value, so that each keeps a part of
//! it, and nothing changes.

use std::collections::BTreeSet;
use std::sync::Arc;

use saltmill::arrow::array::{Array, ArrayRef, AsArray, Int64Array, StringArray};
use saltmill::arrow::datatypes::Int64Type;
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::config::SkewMode;
use saltmill::{Aggregate, Collected, Engine, Job};

const AGGREGATES: &str = "count, count(distinct v) as v, count(distinct text) as t, count(distinct v, text) as vt, \
                          count(distinct v) filter (where v > 1000) as some, approx_distinct(v) as a";

/// Nine of ten rows have one key; half of the values come twice, some are null.
fn rows(start: i64, rows: i64) -> RecordBatch {
    let all = || start..start + rows;
    let v = |i: i64| (i % 11 != 3).then_some((i * 7919) % 60_000);
    let keys = all()
        .map(|i| if i % 10 > 0 { Some("hot") } else { [None, Some("cold")][i as usize % 20 / 10] });
    let texts = all().map(|i| (i % 7 > 0).then(|| format!("a value that is long, {}", i % 9_000)));
    let columns: [(&str, ArrayRef); 3] = [
        ("key", Arc::new(keys.collect::<StringArray>())),
        ("v", Arc::new(all().map(v).collect::<Int64Array>())),
        ("text", Arc::new(texts.collect::<StringArray>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .unwrap()
}

fn job(batch: &RecordBatch, skew: SkewMode, workers: usize) -> Job {
    let aggregates = Aggregate::parse_list(AGGREGATES).unwrap();
    let job = Job::builder(batch.schema()).key(["key"]).aggregates(aggregates);
    job.skew(skew).workers(workers).batch_rows(1000).build().unwrap()
}

/// Result rows as text, sorted.
fn shown(batches: &[RecordBatch]) -> BTreeSet<String> {
    let text = |batch: &RecordBatch, row: usize| {
        let columns = batch.columns().iter();
        let cells = columns.map(|column| match column.is_null(row) {
            true => "null".to_owned(),
            false => arrow::util::display::array_value_to_string(column, row).unwrap(),
        });
        cells.collect::<Vec<_>>().join(" ")
    };
    batches.iter().flat_map(|batch| (0..batch.num_rows()).map(|row| text(batch, row))).collect()
}

#[test]
fn a_hot_keys_values_are_counted_once_each() {
    let batches: Vec<RecordBatch> = (0..15).map(|i| rows(i * 20_000, 20_000)).collect();
    let mut truth = BTreeSet::new();
    for batch in &batches {
        let (keys, v) =
            (batch.column(0).as_string::<i32>(), batch.column(1).as_primitive::<Int64Type>());
        let hot =
            (0..batch.num_rows()).filter(|row| keys.is_valid(*row) && keys.value(*row) == "hot");
        truth.extend(hot.filter(|row| v.is_valid(*row)).map(|row| v.value(row)));
    }
    assert!(truth.len() > 30_000, "enough for a set to be spread");
    let hot = SkewMode::parse("hot:hot,null").unwrap();
    let (mut expected, mut unspread) = (None, 0);
    for (skew, workers) in [
        (SkewMode::Off, 1),
        (SkewMode::Off, 7),
        (SkewMode::Adaptive, 2),
        (hot.clone(), 2),
        (hot, 7),
        (SkewMode::Adaptive, 3),
        (SkewMode::TwoPhase, 3),
    ] {
        let results = Collected::new();
        let engine =
            Engine::start(job(&batches[0], skew.clone(), workers), results.clone()).unwrap();
        let mut ingests = [engine.ingest().unwrap(), engine.ingest().unwrap()];
        for (i, batch) in batches.iter().enumerate() {
            ingests[i % 2].push(batch.clone()).unwrap();
        }
        for ingest in &mut ingests {
            ingest.flush().unwrap();
        }
        if matches!(skew, SkewMode::Hot(_)) {
            // An early look takes buckets from all shards, twice, and changes nothing.
            for _ in 0..2 {
                let seen = shown(&engine.snapshot().unwrap());
                assert!(seen.iter().any(|row| row.starts_with("hot ")), "{seen:?}");
            }
            ingests[0].push(batches[0].slice(0, 0)).unwrap();
        }
        drop(ingests);
        let report = engine.finish().unwrap();
        let least = report.shards.iter().map(|shard| shard.state_bytes_max).min().unwrap();
        match (&skew, workers) {
            // Most shards own no key at all.
            (SkewMode::Off, 7) => unspread = least,
            (SkewMode::Hot(_), 7) => {
                assert!(least > 10 * unspread.max(50_000), "every shard keeps a part: {least}");
            }
            _ => {}
        }
        let found = shown(&results.take());
        let hot = found.iter().find(|row| row.starts_with("hot ")).unwrap();
        assert_eq!(hot.split(' ').nth(2).unwrap(), truth.len().to_string(), "{skew:?} {workers}");
        assert_eq!(found, *expected.get_or_insert(found.clone()), "{skew:?}, {workers} workers");
    }
}
