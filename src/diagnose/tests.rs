//! Predictions against what really happens when each row is placed by itself.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array};
use arrow::datatypes::{DataType, Field};
use proptest::prelude::*;

use super::bounded::BoundedProfiler;
use super::findings::Face;
use super::placement::{Assignment, Placement};
use super::predict::Cure;
use super::profile::{Profile, ProfileConfig, Profiler};
use super::windows::WindowProfiler;
use super::*;
use crate::kernel::Isa;
use crate::key::flink::columns::KeyForm;
use crate::key::group::shard_of_group;
use crate::skew::sample::splitmix64;

fn placement(assignment: Assignment) -> Placement {
    let fields = vec![Field::new("k", DataType::Int64, true)];
    Placement::new(assignment, fields, Isa::best()).unwrap()
}

fn config(parallelism: u32, max_parallelism: u32) -> ProfileConfig {
    ProfileConfig { parallelism, max_parallelism, other_groups: vec![720], mini_batch_rows: 100 }
}

fn keys(values: impl IntoIterator<Item = i64>) -> [ArrayRef; 1] {
    [Arc::new(Int64Array::from_iter_values(values))]
}

/// A profile of keys with these counts, counted in `parts` parts.
fn profile(
    assignment: Assignment,
    config: &ProfileConfig,
    counts: &[(i64, u64)],
    parts: usize,
) -> Profile {
    let placement = placement(assignment);
    let rows_all = counts.iter().map(|(_, rows)| rows).sum();
    let mut profilers = counts.chunks(counts.len().div_ceil(parts)).map(|part| {
        let mut profiler = Profiler::new(&placement, config).unwrap();
        let rows = part.iter().map(|(_, rows)| i64::try_from(*rows).unwrap());
        let rows = Int64Array::from_iter_values(rows);
        profiler.add(&keys(part.iter().map(|(key, _)| *key)), &rows, rows_all).unwrap();
        profiler
    });
    let mut sum = profilers.next().unwrap();
    profilers.for_each(|other| sum.merge(other).unwrap());
    sum.finish().unwrap()
}

const ASSIGNMENTS: [Assignment; 3] =
    [Assignment::Native, Assignment::Flink(KeyForm::Sql), Assignment::Flink(KeyForm::StreamText)];

fn counts() -> impl Strategy<Value = Vec<(i64, u64)>> {
    let count = prop_oneof![4 => 1_u64..20, 1 => 100_u64..5_000];
    prop::collection::hash_map(any::<i64>(), count, 1..80)
        .prop_map(|counts| counts.into_iter().collect())
}

proptest! {
    #[test]
    fn loads_are_those_of_single_rows(
        counts in counts(), parallelism in 1_u32..9, pick in 0_usize..3, parts in 1_usize..4,
    ) {
        let assignment = ASSIGNMENTS[pick];
        let config = config(parallelism, 128);
        let profile = profile(assignment, &config, &counts, parts);
        let rows: u64 = counts.iter().map(|(_, rows)| rows).sum();
        prop_assert_eq!(profile.counted.rows, rows);
        // One key at a time, one salt at a time.
        let (plain, salted) = (placement(assignment), placement(assignment).salted().unwrap());
        let owner = |placed: placement::PlacedKeys| {
            let mut groups = Vec::new();
            placed.groups(128, &mut groups);
            usize::from(shard_of_group(groups[0], parallelism, 128))
        };
        let mut loads = vec![0; parallelism as usize];
        for (key, rows) in &counts {
            loads[owner(plain.place(&keys([*key]), 1).unwrap())] += rows;
        }
        prop_assert_eq!(profile.loads(), loads);
        for prediction in predict::predictions(&profile, None).unwrap() {
            let sum: u64 = prediction.loads.iter().sum();
            prop_assert!(prediction.cure == Cure::TwoPhase || sum == rows, "{:?}", prediction);
            prop_assert!(prediction.speed_up <= f64::from(parallelism) * 4.0 + 1e-9);
            let Cure::Salting(salts) = prediction.cure else { continue };
            let mut loads = vec![0; parallelism as usize];
            for (key, rows) in &counts {
                for salt in 0..salts {
                    let placed = salted.place_salted(&keys([*key]), 1, i32::from(salt)).unwrap();
                    let (of_key, salt) = (u64::from(salts), u64::from(salt));
                    loads[owner(placed)] += rows / of_key + u64::from(salt < rows % of_key);
                }
            }
            // The lightest keys are spread evenly instead: a thousandth of a fair share each at most.
            let heavy = rows / u64::from(parallelism) / 1_024;
            let light: u64 = counts.iter().map(|(_, rows)| rows).filter(|rows| **rows <= heavy).sum();
            for (found, expected) in prediction.loads.iter().zip(&loads) {
                prop_assert!(found.abs_diff(*expected) <= light, "{found} {expected} {light}");
            }
        }
    }

    #[test]
    fn bounds_hold(counts in counts(), seed: u64) {
        let config = config(4, 128);
        let mut stream = counts.iter().flat_map(|(key, rows)| vec![*key; *rows as usize]).collect::<Vec<_>>();
        let mut state = seed;
        for i in (1..stream.len()).rev() {
            stream.swap(i, (splitmix64(&mut state) % (i as u64 + 1)) as usize);
        }
        let placement = placement(Assignment::Flink(KeyForm::Sql));
        let mut profilers = vec![
            BoundedProfiler::new(&placement, &config, seed),
            BoundedProfiler::new(&placement, &config, seed ^ 1),
        ];
        for (i, chunk) in stream.chunks(777).enumerate() {
            profilers[i % 2].add(&keys(chunk.iter().copied()), chunk.len()).unwrap();
        }
        let bounded = BoundedProfiler::finish(profilers).unwrap();
        let exact = profile(Assignment::Flink(KeyForm::Sql), &config, &counts, 1);
        prop_assert_eq!(bounded.loads(), exact.loads());
        prop_assert_eq!(&bounded.counted.groups.rows, &exact.counted.groups.rows);
        prop_assert_eq!(&bounded.counted.native.rows, &exact.counted.native.rows);
        prop_assert_eq!(bounded.counted.keys, exact.counted.keys, "so few are all sampled");
        for key in &bounded.top {
            let truth = exact.top.iter().find(|other| other.key == key.key).unwrap();
            prop_assert!(key.rows_low <= truth.rows + 1 && truth.rows <= key.rows_high + 1);
            prop_assert_eq!((key.group, key.subtask), (truth.group, truth.subtask));
        }
    }
}

#[test]
fn two_phases_send_what_mini_batches_hold() {
    let config = config(4, 128);
    let counts =
        (0..50_i64).map(|key| (key, if key == 0 { 30_000 } else { 400 })).collect::<Vec<_>>();
    let profile = profile(Assignment::Native, &config, &counts, 1);
    let predictions = predict::predictions(&profile, None).unwrap();
    let predicted = predictions.iter().find(|p| p.cure == Cure::TwoPhase).unwrap();
    let predicted: u64 = predicted.loads.iter().sum();
    // The same rows in random order, aggregated in batches of 100.
    let mut stream =
        counts.iter().flat_map(|(key, rows)| vec![*key; *rows as usize]).collect::<Vec<_>>();
    let mut state = 7;
    for i in (1..stream.len()).rev() {
        stream.swap(i, (splitmix64(&mut state) % (i as u64 + 1)) as usize);
    }
    let sent: usize = stream
        .chunks(100)
        .map(|batch| batch.iter().collect::<std::collections::BTreeSet<_>>().len())
        .sum();
    let off = predicted as f64 / sent as f64 - 1.0;
    assert!(off.abs() < 0.01, "{predicted} predicted, {sent} sent");
}

#[test]
fn faces_are_told_apart() {
    let face = |counts: &[(i64, u64)], parallelism: u32, groups: u32| {
        let config = config(parallelism, groups);
        let profile = profile(Assignment::Native, &config, counts, 2);
        Diagnosis::new(profile, None, None).unwrap().findings.faces
    };
    let even = (0..40_000).map(|key| (key, 5)).collect::<Vec<_>>();
    assert_eq!(face(&even, 4, 128), [Face::EvenlyBusy]);
    assert_eq!(face(&even, 7, 12), [Face::UnevenGroups]);
    let hot = even.iter().copied().chain([(-5, 200_000)]).collect::<Vec<_>>();
    assert_eq!(face(&hot, 4, 128), [Face::KeySkew]);
    assert_eq!(face(&hot, 7, 12), [Face::KeySkew, Face::UnevenGroups]);
    let few = (0..24).map(|key| (key, 1_000)).collect::<Vec<_>>();
    assert_eq!(face(&few, 16, 128), [Face::FewKeys]);
    // One subtask cannot be uneven.
    assert_eq!(face(&hot, 1, 128), [Face::EvenlyBusy]);
}

#[test]
fn of_too_many_windows_the_earliest_are_whole() {
    let placement = placement(Assignment::Native);
    let mut profilers = [(); 2].map(|()| WindowProfiler::new(&placement, 4, 128));
    // One profiler sees every window, in some order; the other few, one of them late.
    for start in (0..30).map(|i| i * 7 % 30) {
        let rows = Int64Array::from(vec![3, 4]);
        profilers[0].add(start, &keys([1, 2]), &rows).unwrap();
    }
    for start in [2, 28] {
        profilers[1].add(start, &keys([9]), &Int64Array::from(vec![100])).unwrap();
    }
    let [mut sum, other] = profilers;
    sum.merge(other);
    let windows = sum.finish();
    let starts = windows.windows.iter().map(|window| window.start).collect::<Vec<_>>();
    assert_eq!(starts, (0..20).collect::<Vec<_>>());
    assert_eq!((windows.windows[2].rows, windows.windows[2].keys), (107, 3));
    assert_eq!(windows.windows[3].rows, 7);
    assert_eq!(windows.rows_beyond, 10 * 7 + 100);
}
