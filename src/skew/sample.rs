//! Which rows the sketch sees: one row, picked at random, of every block of `every` rows.
//!
//! Random within the block, so that a stream with a period (every 64th row from one machine) cannot
//! hide from or fool the sample; one per block, so that the number of sampled rows is known.
//! Whether a block's pick is a given key is then an independent draw with that key's share of the
//! block as its probability, which is what the bounds of [`estimate`](super::estimate) rest on.
//!
//! **Cost:** per batch, and a few instructions per sampled row; nothing for the rows between.
//! Deterministic: the same seed and row count give the same picks, however the rows are batched.

/// Picks one row of every block of `every` rows.
#[derive(Debug, Clone)]
pub struct Sampler {
    every: u32,
    /// Rows to pass before the next pick.
    skip: u32,
    /// Rows of the block behind the pick.
    tail: u32,
    state: u64,
}

impl Sampler {
    /// A sampler that picks 1 of `every` rows (0 is taken as 1). Give each ingest its own seed.
    pub fn new(every: u32, seed: u64) -> Self {
        let mut sampler = Self { every: every.max(1), skip: 0, tail: 0, state: seed };
        sampler.place();
        sampler
    }

    /// Calls `pick(row)` for each picked row of a batch of `rows` rows, in order.
    #[inline]
    pub fn sample(&mut self, rows: usize, mut pick: impl FnMut(usize)) {
        let mut row = 0_usize;
        while (self.skip as usize) < rows - row {
            row += self.skip as usize;
            pick(row);
            row += 1;
            let tail = self.tail;
            self.place();
            self.skip += tail;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most skip, which is a u32")]
        let passed = (rows - row) as u32;
        self.skip -= passed;
    }

    /// Chooses the pick of the next block.
    #[inline]
    fn place(&mut self) {
        let random = splitmix64(&mut self.state) >> 32;
        let at = ((random * u64::from(self.every)) >> 32) as u32;
        self.skip = at;
        self.tail = self.every - 1 - at;
    }
}

/// One step of the splitmix64 generator: small, seedable, good enough to pick rows.
#[inline]
pub(crate) fn splitmix64(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn picks(every: u32, seed: u64, batches: &[usize]) -> Vec<usize> {
        let mut sampler = Sampler::new(every, seed);
        let (mut base, mut picked) = (0, Vec::new());
        for &rows in batches {
            sampler.sample(rows, |row| {
                assert!(row < rows);
                picked.push(base + row);
            });
            base += rows;
        }
        picked
    }

    proptest! {
        #[test]
        fn one_pick_in_every_block_however_batched(
            every in 1_u32..200,
            seed: u64,
            batches in prop::collection::vec(0_usize..300, 0..40),
        ) {
            let rows: usize = batches.iter().sum();
            let picked = picks(every, seed, &batches);
            prop_assert_eq!(&picked, &picks(every, seed, &[rows]));
            let whole = rows / every as usize;
            for (block, &row) in picked.iter().enumerate() {
                prop_assert_eq!(row / every as usize, block);
            }
            prop_assert!(picked.len() == whole || picked.len() == whole + 1);
        }
    }

    #[test]
    fn every_place_in_a_block_is_picked_alike() {
        let mut hits = [0_u32; 64];
        for row in picks(64, 7, &[64 * 64_000]) {
            hits[row % 64] += 1;
        }
        // 1,000 expected each; 5 standard deviations are 158.
        assert!(hits.iter().all(|&n| (842..1158).contains(&n)), "{hits:?}");
    }
}
