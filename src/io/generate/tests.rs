use arrow::array::AsArray;
use arrow::datatypes::{Int64Type, TimestampMillisecondType};
use hashbrown::HashMap;

use super::*;

fn generate(options: &GenerateOptions) -> Vec<RecordBatch> {
    StreamGenerator::new(options.clone()).unwrap().collect()
}

/// Shares of the keys by id.
fn shares(distribution: Distribution, keys: u64, rows: u64) -> Vec<f64> {
    let options = GenerateOptions { rows, keys, distribution, ..GenerateOptions::default() };
    let mut counts: HashMap<i64, u32> = HashMap::new();
    for batch in generate(&options) {
        for key in batch.column(1).as_primitive::<Int64Type>().values() {
            *counts.entry(*key).or_default() += 1;
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let total = rows as f64;
    (1..=keys)
        .map(|id| id.wrapping_mul(SCRAMBLE).cast_signed())
        .map(|key| f64::from(counts.get(&key).copied().unwrap_or(0)) / total)
        .collect()
}

#[test]
fn the_same_seed_gives_the_same_stream_whatever_the_batches() {
    let options = GenerateOptions { rows: 10_000, batch_rows: 777, ..GenerateOptions::default() };
    let join = |o: &GenerateOptions| {
        let batches = generate(o);
        arrow::compute::concat_batches(&batches[0].schema(), &batches).unwrap()
    };
    let whole = join(&GenerateOptions { batch_rows: 10_000, ..options.clone() });
    assert_eq!(join(&options), whole);
    assert_eq!(whole.num_rows(), 10_000);
    assert_ne!(join(&GenerateOptions { seed: 2, ..options }), whole);
    let times = whole.column(0).as_primitive::<TimestampMillisecondType>().values();
    assert_eq!(
        (times[0], times[999], times[1000], times[9_999]),
        (START_MS, START_MS, START_MS + 1, START_MS + 9)
    );
}

#[test]
fn zipf_shares_are_those_of_the_law() {
    for exponent in [0.5, 1.0, 1.1, 2.0] {
        let found = shares(Distribution::Zipf(exponent), 1_000, 400_000);
        let weight = |rank: i32| f64::from(rank).powf(-exponent);
        let total: f64 = (1..=1_000).map(weight).sum();
        for rank in [1, 2, 3, 10, 100] {
            let expected = weight(rank) / total;
            let found = found[usize::try_from(rank - 1).unwrap()];
            let tolerance = 5.0 * (expected / 400_000.0).sqrt();
            assert!((found - expected).abs() < tolerance, "{exponent} {rank}: {found} {expected}");
        }
    }
}

#[test]
fn hot_uniform_and_drift() {
    let hot = shares(Distribution::Hot { share: 0.8, count: 2 }, 1_000, 100_000);
    assert!((hot[0] - 0.4).abs() < 0.01 && (hot[1] - 0.4).abs() < 0.01 && hot[2] < 0.01);
    let uniform = shares(Distribution::Uniform, 10, 100_000);
    assert!(uniform.iter().all(|s| (s - 0.1).abs() < 0.01));
    let drift = shares(Distribution::Drift { share: 0.6, period_rows: 25_000 }, 1_000, 100_000);
    assert!(drift[..4].iter().all(|s| (s - 0.15).abs() < 0.01) && drift[4] < 0.01);
}

#[test]
fn disorder_stays_within_its_bound() {
    let options = GenerateOptions {
        rows: 100_000,
        out_of_orderness_ms: 20,
        key_type: KeyType::Text,
        ..GenerateOptions::default()
    };
    let (mut latest, mut behind) = (i64::MIN, 0);
    for batch in generate(&options) {
        for time in batch.column(0).as_primitive::<TimestampMillisecondType>().values() {
            latest = latest.max(*time);
            behind = behind.max(latest - time);
        }
        assert!(batch.column(1).as_string::<i32>().value(0).starts_with("user-0000"));
        let values = batch.column(2).as_primitive::<Int64Type>().values();
        assert!(values.iter().all(|v| (0..1000).contains(v)));
    }
    assert!((15..=20).contains(&behind), "{behind}");
    assert!(amount(0xf_ffff) < 1_000.0 && amount(0xf_ffff) > 900.0);
}

#[test]
fn counts_and_distributions_are_understood() {
    for (text, count) in [("50M", 50_000_000), ("1k", 1_000), ("2.5M", 2_500_000), ("1_000", 1_000)]
    {
        assert_eq!(parse_count(text).unwrap(), count);
    }
    for bad in ["", "M", "1.5", "-1", "1e6", "99999999999G", "1.0001K"] {
        assert!(parse_count(bad).is_err(), "{bad}");
    }
    let drift = Distribution::Drift { share: 0.6, period_rows: 2_000_000 };
    assert_eq!(Distribution::parse("drift:0.6/2M").unwrap(), drift);
    assert_eq!(Distribution::parse("hot:0.8").unwrap(), Distribution::Hot { share: 0.8, count: 1 });
    assert_eq!(Distribution::parse("zipf:1.1").unwrap(), Distribution::Zipf(1.1));
    for bad in
        ["zipf", "hot", "hot:2", "hot:0.5:0", "drift:0.5", "drift:0.5/0", "pareto", "uniform:1"]
    {
        assert!(Distribution::parse(bad).is_err(), "{bad}");
    }
    assert!(StreamGenerator::new(GenerateOptions { keys: 0, ..Default::default() }).is_err());
}
