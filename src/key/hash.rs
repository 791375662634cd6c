//! The frozen 64-bit hash of canonical keys.
//!
//! Results of these functions stand in savepoints (through key groups) and are pinned by golden values
//! in the tests. To change one means a new version of the function, to be written into savepoints.
//!
//! High bits choose the key group, the low 32 bits are the table's tag: the same bits for both would
//! put all keys of a shard into the same part of its table.

/// Hash of the NULL key. Its low 32 bits differ from those of `hash_word(0)`, see `state::table`.
pub(crate) const NULL_HASH: u64 = 0x51af_d7ed_558c_cd25;

/// Low 32 bits are larger than any inline length, so that `w0 ^ SHORT_A` is never zero.
#[cfg(not(feature = "force-hash-collisions"))]
const SHORT_A: u64 = 0xa076_1d64_78bd_642f;
#[cfg(not(feature = "force-hash-collisions"))]
const SHORT_B: u64 = 0xe703_7ed1_a0b4_28db;

/// Hash of a key that is one 64-bit word: the finalizer of `SplitMix64` (Steele, Lea, Flood 2014) after
/// one step of its sequence. A bijection: different words never share a hash.
#[inline(always)]
#[cfg(not(feature = "force-hash-collisions"))]
pub(crate) fn hash_word(word: u64) -> u64 {
    let mut x = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// Hash of a byte key that fits into two words (see `batch::short_words`): a folded 128-bit product,
/// then one multiplicative step so that its high bits depend on all of it.
#[inline(always)]
#[cfg(not(feature = "force-hash-collisions"))]
pub(crate) fn hash_short(w0: u64, w1: u64) -> u64 {
    let product = u128::from(w0 ^ SHORT_A) * u128::from(w1 ^ SHORT_B);
    #[expect(clippy::cast_possible_truncation, reason = "both halves are taken")]
    let folded = (product as u64) ^ ((product >> 64) as u64);
    let mixed = folded.wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

/// Hash of a byte key too long for two words: rapidhash V3, the function, with its default secrets.
#[inline]
#[cfg(not(feature = "force-hash-collisions"))]
pub(crate) fn hash_long(bytes: &[u8]) -> u64 {
    rapidhash::v3::rapidhash_v3(bytes)
}

/// Test build in which all keys but NULL collide, so that every comparison of keys is exercised.
#[cfg(feature = "force-hash-collisions")]
pub(crate) use collisions::{hash_long, hash_short, hash_word};

#[cfg(feature = "force-hash-collisions")]
mod collisions {
    pub(crate) fn hash_word(_: u64) -> u64 {
        0x7777_7777_7777_7777
    }
    pub(crate) fn hash_short(_: u64, _: u64) -> u64 {
        0x7777_7777_7777_7777
    }
    pub(crate) fn hash_long(_: &[u8]) -> u64 {
        0x7777_7777_7777_7777
    }
}

#[cfg(all(test, not(feature = "force-hash-collisions")))]
#[expect(clippy::cast_possible_truncation, reason = "small numbers of a test")]
mod tests {
    use super::*;

    #[test]
    fn golden_values_are_frozen() {
        assert_eq!(hash_word(0), 0xe220_a839_7b1d_cdaf);
        assert_eq!(hash_word(1), 0x910a_2dec_8902_5cc1);
        assert_eq!(hash_word(u64::MAX), 0xe4d9_7177_1b65_2c20);
        assert_eq!(hash_short(0, 0), 0xfaea_20cf_02a1_c2f9);
        assert_eq!(hash_long(b"a key of more than twelve bytes"), 0x8007_7bdc_6ca3_a792);
        assert_ne!(hash_word(0) as u32, NULL_HASH as u32);
    }
}
