//! The few keys that are in two-phase mode now, as the router looks them up.
//!
//! A [`HotSet`] never changes: the [`policy`](super::policy) makes a new one with the next epoch,
//! and the routers take it at a batch boundary. So all rows of a batch see one set.
//!
//! **Cost:** [`HotSet::find`] on the row path: a multiplication, one load and one compare for
//! nearly every cold row (the table of 2-byte numbers is at most a 16th full and built with the one
//! of 64 multipliers that lets keys collide least); one more load and compare for a hot row. Where
//! no two keys collide at all, the hashes themselves stand in a second table, and one compare with
//! it settles each row. 256 keys take 8 KB of numbers, and 32 KB of hashes.
//!
//! **Not here:** key bytes. Two keys may share a 64-bit hash; who keeps state per hot key must
//! compare the whole key, and treat a row that differs as cold.

use super::sample::splitmix64;

/// Keys a [`HotSet`] holds unless the job says otherwise.
pub const HOT_KEYS_MAX_DEFAULT: usize = 256;

/// Most keys that a [`HotSet`] can hold at all.
pub const HOT_KEYS_LIMIT: usize = 4_096;

const EMPTY: u16 = u16::MAX;

/// Why a key is hot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// It alone would make its shard noticeably busier than the others.
    Balance,
    /// Reducing its rows where they are is cheaper than sending them to the shard that owns them.
    Speed,
    /// The job named it beforehand.
    Given,
}

/// A hot key.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HotKey {
    /// Hash of the key.
    pub hash: u64,
    /// The word that came with one of the key's sampled rows; 0 for a given key that was not seen
    /// yet.
    pub example: u64,
    /// Over how many partial aggregates its rows are spread.
    pub salts: u16,
    /// Why it is hot.
    pub cause: Cause,
    /// Its share of the rows when the set was made, with bounds; 0, 0 and 1 if not known yet.
    pub share: f64,
    /// See [`Estimate::share_low`](super::estimate::Estimate::share_low).
    pub share_low: f64,
    /// See [`Estimate::share_high`](super::estimate::Estimate::share_high).
    pub share_high: f64,
}

/// An immutable set of hot keys with a fast lookup. See the module's documentation.
#[derive(Debug, Clone)]
pub struct HotSet {
    epoch: u32,
    keys: Vec<HotKey>,
    /// Open addressing with linear probing: numbers of keys.
    table: Box<[u16]>,
    /// If no key missed its first place: the hash at each place, and at free ones a hash whose place is
    /// another. Then one comparison settles whether a hash is there.
    direct: Option<Box<[u64]>>,
    multiplier: u64,
    shift: u32,
}

impl Default for HotSet {
    fn default() -> Self {
        Self::new(0, Vec::new())
    }
}

impl HotSet {
    /// A set of these keys, found under their place in `keys`.
    ///
    /// # Panics
    /// If there are more than [`HOT_KEYS_LIMIT`] keys, or two with one hash.
    pub fn new(epoch: u32, keys: Vec<HotKey>) -> Self {
        assert!(keys.len() <= HOT_KEYS_LIMIT, "{} hot keys", keys.len());
        let places = (keys.len() * 16).next_power_of_two().max(2);
        let shift = 64 - places.trailing_zeros();
        let mut table = vec![EMPTY; places].into_boxed_slice();
        let (mut random, mut best) = (0x5a17_0001, (usize::MAX, 0));
        for _ in 0..64 {
            let multiplier = splitmix64(&mut random) | 1;
            let displaced = fill(&mut table, &keys, multiplier, shift);
            if displaced < best.0 {
                best = (displaced, multiplier);
            }
            if displaced == 0 {
                break;
            }
        }
        let (displaced, multiplier) = best;
        fill(&mut table, &keys, multiplier, shift);
        let elsewhere = (0..=u64::MAX).find(|hash| home(*hash, multiplier, shift) != 0);
        let elsewhere = elsewhere.expect("an odd multiplier reaches every place");
        let hash_at = |(place, number): (usize, &u16)| match keys.get(usize::from(*number)) {
            Some(key) => key.hash,
            // 0 is at home in place 0 only, and the least hash that is not is soon found.
            None if place != 0 => 0,
            None => elsewhere,
        };
        let direct = (displaced == 0).then(|| table.iter().enumerate().map(hash_at).collect());
        Self { epoch, keys, table, direct, multiplier, shift }
    }

    /// Calls `visit` with each of `hashes` (its position), and the place of its key if it is hot: without
    /// a branch that depends on which, where the set allows it.
    #[inline(always)]
    pub(crate) fn find_all(&self, hashes: &[u64], mut visit: impl FnMut(u32, Option<u32>)) {
        let Some(direct) = &self.direct else {
            return (0..).zip(hashes).for_each(|(row, hash)| visit(row, self.find(*hash)));
        };
        let (table, direct) = (&self.table[..direct.len()], &direct[..]);
        for (row, hash) in (0..).zip(hashes) {
            let at = home(*hash, self.multiplier, self.shift);
            let number = u32::from(table[at]);
            visit(row, (direct[at] == *hash).then_some(number));
        }
    }

    /// Which version of the set this is; grows by one with every change.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// The keys; [`find`](Self::find) answers with a place in this slice.
    pub fn keys(&self) -> &[HotKey] {
        &self.keys
    }

    /// How many keys are hot.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether no key is hot, so that routers need not look at all.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The place of a key in [`keys`](Self::keys), if it is hot.
    #[inline(always)]
    pub fn find(&self, hash: u64) -> Option<u32> {
        let mask = self.table.len() - 1;
        let mut at = home(hash, self.multiplier, self.shift);
        loop {
            let number = self.table[at & mask];
            if number == EMPTY {
                return None;
            }
            if self.keys[usize::from(number)].hash == hash {
                return Some(u32::from(number));
            }
            at += 1;
        }
    }

    /// Bytes of memory held.
    pub fn memory_bytes(&self) -> usize {
        let direct = self.direct.as_ref().map_or(0, |direct| size_of_val(&**direct));
        self.table.len() * 2 + direct + self.keys.capacity() * size_of::<HotKey>()
    }
}

#[inline(always)]
fn home(hash: u64, multiplier: u64, shift: u32) -> usize {
    #[expect(clippy::cast_possible_truncation, reason = "below the table's length")]
    let home = (hash.wrapping_mul(multiplier) >> shift) as usize;
    home
}

/// Fills the table and counts the steps by which keys missed their first place.
fn fill(table: &mut [u16], keys: &[HotKey], multiplier: u64, shift: u32) -> usize {
    table.fill(EMPTY);
    let mask = table.len() - 1;
    let mut displaced = 0;
    for (number, key) in keys.iter().enumerate() {
        let mut at = home(key.hash, multiplier, shift);
        while table[at] != EMPTY {
            assert_ne!(
                keys[usize::from(table[at])].hash,
                key.hash,
                "a key is in the hot set twice"
            );
            at = (at + 1) & mask;
            displaced += 1;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most HOT_KEYS_LIMIT keys")]
        let number = number as u16;
        table[at] = number;
    }
    displaced
}

#[cfg(test)]
#[expect(clippy::cast_possible_truncation, reason = "few keys")]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn set(hashes: &[u64]) -> HotSet {
        let key = |&hash: &u64| HotKey {
            hash,
            example: 0,
            salts: 2,
            cause: Cause::Speed,
            share: 0.1,
            share_low: 0.1,
            share_high: 0.1,
        };
        HotSet::new(3, hashes.iter().map(key).collect())
    }

    /// Good hashes, and some that differ in a few low or high bits only.
    fn hashes() -> impl Strategy<Value = u64> {
        prop_oneof![any::<u64>(), 0_u64..50, (0_u64..50).prop_map(|key| key << 58)]
    }

    proptest! {
        #[test]
        fn finds_exactly_its_keys(
            hashes in prop::collection::hash_set(hashes(), 0..300),
            others in prop::collection::vec(prop_oneof![any::<u64>(), 0_u64..50], 0..300),
        ) {
            let hashes: Vec<u64> = hashes.into_iter().collect();
            let set = set(&hashes);
            for (place, &hash) in hashes.iter().enumerate() {
                prop_assert_eq!(set.find(hash), Some(place as u32));
            }
            let all = hashes.iter().chain(&others).copied().collect::<Vec<_>>();
            let mut found = Vec::new();
            set.find_all(&all, |row, place| found.push((row, place)));
            let each = all.iter().map(|hash| set.find(*hash));
            prop_assert_eq!(found, (0..).zip(each).collect::<Vec<_>>());
            for other in others {
                prop_assert_eq!(set.find(other).is_some(), hashes.contains(&other));
            }
        }
    }

    #[test]
    fn a_miss_is_mostly_one_load() {
        let mut state = 1;
        let hashes: Vec<u64> = (0..HOT_KEYS_MAX_DEFAULT).map(|_| splitmix64(&mut state)).collect();
        let set = set(&hashes);
        let taken = set.table.iter().filter(|&&n| n != EMPTY).count();
        assert_eq!(taken, 256);
        assert!(set.table.len() >= 16 * taken);
        // Best of 64 multipliers: expected without choice are 8 displaced keys.
        let displaced = fill(&mut set.table.clone(), set.keys(), set.multiplier, set.shift);
        assert!(displaced <= 5, "{displaced}");
        assert!(set.memory_bytes() < 32 * 1024, "{}", set.memory_bytes());
    }

    #[test]
    fn empty_set_and_zero_hash() {
        assert!(HotSet::default().is_empty());
        assert_eq!(HotSet::default().find(0), None);
        assert_eq!(set(&[0]).find(0), Some(0));
        assert_eq!(set(&[5]).find(0), None);
        assert_eq!((set(&[5]).epoch(), set(&[5, 6]).len()), (3, 2));
    }

    #[test]
    #[should_panic(expected = "twice")]
    fn one_hash_twice_is_refused() {
        set(&[1, 2, 1]);
    }
}
