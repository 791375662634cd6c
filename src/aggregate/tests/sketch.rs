//! How far sketches are from the truth, and moments beyond what the model computes exactly.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Float64Array, Int64Array, StringArray, UInt64Array};
use arrow::datatypes::{Float64Type, Int64Type};
use arrow::record_batch::RecordBatch;
use proptest::prelude::*;

use super::rig::same_however;
use super::wide::{batch, rows};
use crate::aggregate::spec::Aggregate;
use crate::aggregate::testkit::Kit;
use crate::skew::sample::splitmix64;

/// One group of the values of `v`.
fn one_group(v: ArrayRef) -> RecordBatch {
    let k: ArrayRef = Arc::new(Int64Array::from(vec![1; v.len()]));
    RecordBatch::try_from_iter([("k", k), ("v", v)]).unwrap()
}

fn results(text: &str, batch: &RecordBatch) -> Vec<ArrayRef> {
    let rig = Kit::new(&Aggregate::parse_list(text).unwrap(), batch).unwrap();
    let mut pane = rig.split_and_merged(batch, 7);
    rig.emit(&mut pane).unwrap().split_off(1)
}

fn floats(text: &str, v: ArrayRef) -> Vec<f64> {
    let results = results(text, &one_group(v));
    results.iter().map(|array| array.as_primitive::<Float64Type>().value(0)).collect()
}

#[test]
fn different_values_are_counted_nearly() {
    let mut squares = 0.0;
    let mut count = 0.0;
    for n in [100_u64, 256, 300, 1000, 5000, 20_000, 100_000] {
        for seed in 0..6 {
            let mut state = seed * 1_000_003 + n;
            let values: Vec<u64> = (0..n).map(|_| splitmix64(&mut state)).collect();
            let twice = values.iter().chain(&values).copied();
            let batch = one_group(Arc::new(twice.collect::<UInt64Array>()));
            let both = results("approx_distinct(v), count(distinct v)", &batch);
            let found: Vec<i64> =
                both.iter().map(|array| array.as_primitive::<Int64Type>().value(0)).collect();
            assert_eq!(found[1], n as i64);
            let error = found[0] as f64 / n as f64 - 1.0;
            if n <= 256 {
                assert_eq!(found[0], n as i64, "few are counted exactly");
                continue;
            }
            assert!(error.abs() < 4.0 * 0.0163, "{n} seed {seed}: {}", found[0]);
            squares += error * error;
            count += 1.0;
        }
    }
    let standard_error = f64::sqrt(squares / count);
    assert!(standard_error < 0.0163 * 1.3, "{standard_error}");
}

#[test]
fn texts_are_counted_nearly_too() {
    let texts = (0..30_000).map(|i| Some(format!("some text or other, number {}", i % 10_000)));
    let batch = one_group(Arc::new(texts.collect::<StringArray>()));
    let both = results("approx_distinct(v), count(distinct v)", &batch);
    assert_eq!(both[1].as_primitive::<Int64Type>().value(0), 10_000);
    let found = both[0].as_primitive::<Int64Type>().value(0);
    assert!((9_350..=10_650).contains(&found), "{found}");
}

#[test]
fn quantiles_are_within_their_error() {
    let mut state = 5;
    let unit = |state: &mut u64| (splitmix64(state) >> 11) as f64 / (1_u64 << 53) as f64;
    type Draw = fn(f64, f64) -> f64;
    let shapes: [(&str, Draw); 4] = [
        ("uniform", |u, _| u * 1000.0 - 300.0),
        ("wide", |u, sign| (u * 80.0 - 40.0).exp() * (sign - 0.3).signum()),
        ("discrete", |u, _| (u * 7.0).floor()),
        ("tiny", |u, _| u * 1e-310),
    ];
    for (name, draw) in shapes {
        for n in [1, 2, 128, 129, 1000, 20_000] {
            let mut values: Vec<f64> =
                (0..n).map(|_| draw(unit(&mut state), unit(&mut state))).collect();
            let text = "approx_quantile(v, 0), approx_quantile(v, 0.01), approx_quantile(v, 0.25), median(v), \
                        approx_quantile(v, 0.999), approx_quantile(v, 1)";
            let found = floats(text, Arc::new(Float64Array::from(values.clone())));
            values.sort_by(f64::total_cmp);
            for (q, found) in [0.0, 0.01, 0.25, 0.5, 0.999, 1.0].into_iter().zip(found) {
                let rank = ((q * f64::from(n)).ceil() as usize).max(1);
                let exact = values[rank - 1];
                // Below the normal floats a bucket is as wide as all of them.
                let allowed = exact.abs() / 128.0 + f64::MIN_POSITIVE;
                assert!((found - exact).abs() <= allowed, "{name} {n} {q}: {found} {exact}");
                if n <= 128 || q == 0.0 || q == 1.0 {
                    assert_eq!(found, exact, "{name} {n} {q}");
                }
            }
        }
    }
}

#[test]
fn infinities_and_nan_are_values_of_a_quantile() {
    for copies in [1, 100] {
        let odd = [f64::NEG_INFINITY, -0.0, 1.0, f64::INFINITY, -f64::NAN];
        let values: Vec<f64> = odd.iter().flat_map(|v| vec![*v; copies]).collect();
        let text = "approx_quantile(v, 0.1), approx_quantile(v, 0.3), approx_quantile(v, 0.5), \
                    approx_quantile(v, 0.7), approx_quantile(v, 0.9)";
        let found = floats(text, Arc::new(Float64Array::from(values)));
        assert_eq!(found[0], f64::NEG_INFINITY);
        assert_eq!(found[1].to_bits(), 0);
        assert!((found[2] - 1.0).abs() <= 1.0 / 128.0, "{}", found[2]);
        assert_eq!(found[3], f64::INFINITY);
        assert!(found[4].is_nan());
    }
}

#[test]
fn moments_lose_nothing_to_size() {
    let of =
        |text: &str, values: &[f64]| floats(text, Arc::new(Float64Array::from(values.to_vec())));
    let both = "var_samp(v), stddev(v)";
    assert_eq!(of(both, &[1e15, 1e15 + 1.0, 1e15 + 2.0]), [1.0, 1.0], "a small spread far out");
    let (huge, tiny) = (2_f64.powi(600), 2_f64.powi(-600));
    assert_eq!(of(both, &[huge, 2.0 * huge, 3.0 * huge]), [f64::INFINITY, huge]);
    assert_eq!(of(both, &[tiny, 2.0 * tiny, 3.0 * tiny]), [0.0, tiny]);
    assert_eq!(of(both, &[huge, huge, huge]), [0.0, 0.0]);
    assert_eq!(of("stddev_pop(v)", &[5e-324, 1.5e-323]), [5e-324], "the smallest floats");
    assert_eq!(of("var_pop(v)", &[1.0, huge, -huge, 3.0]), [f64::INFINITY]);
    let third = of("var_pop(v)", &[0.0, 0.0, 1.0])[0];
    assert_eq!(third, 2.0 / 9.0, "rounded once");
    assert!(of("var_pop(v)", &[1.0, f64::INFINITY])[0].is_nan());

    let signed =
        floats("stddev_pop(v), var_pop(v)", Arc::new(Int64Array::from(vec![i64::MIN, i64::MAX])));
    assert_eq!(signed, [2_f64.powi(63), 2_f64.powi(126)]);
    let many = vec![u64::MAX; 5000];
    assert_eq!(floats("var_pop(v)", Arc::new(UInt64Array::from(many))), [0.0]);
    let far = (1_u64 << 63..).take(3).collect::<UInt64Array>();
    assert_eq!(floats("var_samp(v)", Arc::new(far)), [1.0]);
}

#[test]
fn correlation_does_not_depend_on_size() {
    let pairs = [(1.0, 2.0), (2.0, 1.0), (3.0, 5.0), (4.0, 4.0), (7.0, 3.0)];
    let corr = |x_scale: f64, y_scale: f64| {
        let k: ArrayRef = Arc::new(Int64Array::from(vec![1; 5]));
        let x: ArrayRef =
            Arc::new(pairs.iter().map(|p| Some(p.0 * x_scale)).collect::<Float64Array>());
        let y: ArrayRef =
            Arc::new(pairs.iter().map(|p| Some(p.1 * y_scale)).collect::<Float64Array>());
        let batch = RecordBatch::try_from_iter([("k", k), ("x", x), ("y", y)]).unwrap();
        results("corr(y, x)", &batch)[0].as_primitive::<Float64Type>().value(0)
    };
    let plain = corr(1.0, 1.0);
    assert!((plain - 0.343_401_409_871_722_5).abs() < 1e-15, "{plain}");
    assert_eq!(corr(2_f64.powi(900), 2_f64.powi(-900)), plain);
    assert_eq!(corr(-2_f64.powi(-300), 1.0), -plain);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// With values of every size, where the model would not be exact.
    #[test]
    fn moments_and_sketches_are_the_same_however(rows in rows(), seed: u64) {
        let batch = batch(&rows);
        let text = "var_samp(f), stddev_pop(f), var_pop(i), corr(f, i), covar_samp(i, u), covar_pop(d, f), \
                    median(i), approx_quantile(f, 0.3), approx_distinct(f), mode(d), top_n(d, 2, w)";
        same_however(&Aggregate::parse_list(text).unwrap(), &batch, seed).unwrap();
    }

    #[test]
    fn large_sets_and_sketches_are_the_same_however(n in 0..1500_usize, keys in 1..4_i64, seed: u64) {
        let mut state = seed;
        let mut below = |sides: u64| Some((splitmix64(&mut state) % sides) as i64);
        let k: ArrayRef = Arc::new((0..n).map(|_| below(keys as u64)).collect::<Int64Array>());
        let v: ArrayRef = Arc::new((0..n).map(|_| below(700)).collect::<Int64Array>());
        let batch = RecordBatch::try_from_iter([("k", k), ("v", v)]).unwrap();
        let text = "approx_distinct(v), count(distinct v), median(v), approx_quantile(v, 0.9), mode(v)";
        same_however(&Aggregate::parse_list(text).unwrap(), &batch, seed).unwrap();
    }
}
