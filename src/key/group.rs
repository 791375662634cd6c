//! Key groups and the shards that own them.
//!
//! A key group is the atom of state and of rescaling: `0 .. max_parallelism`. Each shard owns one
//! contiguous range, by the same arithmetic as Apache Flink's `KeyGroupRangeAssignment`, so that plans
//! and savepoints of both can be held against each other.

use std::ops::RangeInclusive;

use crate::error::ConfigError;

/// Largest allowed number of key groups.
pub const MAX_PARALLELISM_LIMIT: u32 = 1 << 15;

/// Number of key groups unless the job says otherwise.
pub const MAX_PARALLELISM_DEFAULT: u32 = 128;

/// Key group of a key with this hash: multiply-shift on the hash's high 32 bits.
#[inline(always)]
pub fn key_group(hash: u64, max_parallelism: u32) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "below max_parallelism <= 2^15")]
    let group = (((hash >> 32) * u64::from(max_parallelism)) >> 32) as u16;
    group
}

/// The least hash whose key group is `group`: groups are contiguous ranges of hashes.
pub(crate) fn first_hash(group: u16, max_parallelism: u32) -> u64 {
    (u64::from(group) << 32).div_ceil(u64::from(max_parallelism)) << 32
}

/// Shard that owns a key group: `group * shards / max_parallelism`.
#[inline(always)]
pub fn shard_of_group(group: u16, shards: u32, max_parallelism: u32) -> u16 {
    #[expect(clippy::cast_possible_truncation, reason = "below shards <= 2^15")]
    let shard = (u32::from(group) * shards / max_parallelism) as u16;
    shard
}

/// The contiguous range of key groups that `shard` owns. Never empty while
/// `shards <= max_parallelism`.
pub fn groups_of_shard(shard: u16, shards: u32, max_parallelism: u32) -> RangeInclusive<u16> {
    let shard = u32::from(shard);
    #[expect(clippy::cast_possible_truncation, reason = "below max_parallelism <= 2^15")]
    let bounds = (
        (shard * max_parallelism).div_ceil(shards) as u16,
        (((shard + 1) * max_parallelism - 1) / shards) as u16,
    );
    bounds.0..=bounds.1
}

/// Whether there can be so many key groups, and so many parts of them (`what`, in messages).
///
/// # Errors
/// If there cannot.
pub fn check_parts(groups: u32, what: &'static str, parts: usize) -> Result<(), ConfigError> {
    let refuse =
        |what, found: String, expected| Err(ConfigError::OutOfRange { what, found, expected });
    if !(1..=MAX_PARALLELISM_LIMIT).contains(&groups) {
        return refuse(
            "max parallelism",
            groups.to_string(),
            format!("1 to {MAX_PARALLELISM_LIMIT}"),
        );
    }
    if !(1..=groups as usize).contains(&parts) {
        let expected = format!("1 to {groups}, the number of key groups (max parallelism)");
        return refuse(what, parts.to_string(), expected);
    }
    Ok(())
}

/// As many workers as there are cores available to the process, if there are key groups for them.
pub fn workers_default(groups: u32) -> usize {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    cores.min(groups as usize)
}

#[cfg(test)]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small numbers of a test"
)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn ranges_partition_the_groups(max in 1_u32..=MAX_PARALLELISM_LIMIT, pick in 0.0_f64..1.0) {
            let shards = 1 + (f64::from(max - 1).min(300.0) * pick) as u32;
            let mut next = 0_u32;
            for shard in 0..shards {
                let range = groups_of_shard(shard as u16, shards, max);
                prop_assert_eq!(u32::from(*range.start()), next);
                for group in range.clone() {
                    prop_assert_eq!(u32::from(shard_of_group(group, shards, max)), shard);
                }
                next = u32::from(*range.end()) + 1;
            }
            prop_assert_eq!(next, max);
        }

        #[test]
        fn groups_stay_below_max_parallelism(hash: u64, max in 1_u32..=MAX_PARALLELISM_LIMIT) {
            prop_assert!(u32::from(key_group(hash, max)) < max);
        }
    }

    proptest! {
        #[test]
        fn a_group_begins_with_its_first_hash(
            max in 1_u32..=MAX_PARALLELISM_LIMIT, pick in 0.0_f64..1.0,
        ) {
            let group = (f64::from(max - 1) * pick) as u16;
            let first = first_hash(group, max);
            prop_assert_eq!(key_group(first, max), group);
            if group > 0 {
                prop_assert_eq!(key_group(first - 1, max), group - 1);
            }
        }
    }

    #[test]
    fn ten_thousand_keys_spread_evenly_and_keep_their_group_when_shards_double() {
        let count = |shards: u32| {
            let mut keys_per_shard = vec![0_u32; shards as usize];
            for key in 0..10_000_u64 {
                let group = key_group(crate::key::hash::hash_word(key), 128);
                keys_per_shard[usize::from(shard_of_group(group, shards, 128))] += 1;
            }
            keys_per_shard
        };
        let four = count(4);
        let eight = count(8);
        println!("10,000 keys, 128 groups, 4 shards: {four:?}; 8 shards: {eight:?}");
        assert!(four.iter().all(|keys| (2300..=2700).contains(keys)), "{four:?}");
        for (shard, keys) in four.iter().enumerate() {
            assert_eq!(*keys, eight[2 * shard] + eight[2 * shard + 1], "groups moved together");
        }
    }
}
