//! A small generator of its own, so that a seed means the same rows for ever (SplitMix64).

use std::ops::Range;

/// Random choices from a seed, or from given bytes first (for a fuzzer, which then steers the choices).
#[derive(Debug, Clone)]
pub(crate) struct Rng {
    state: u64,
    given: Vec<u8>,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, given: Vec::new() }
    }

    /// Chooses by `bytes` until they are used up.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        Self { state: 1, given: bytes.iter().rev().copied().collect() }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.state;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        let bound = bound.max(1) as u64;
        let number = match self.given.pop() {
            Some(byte) if bound <= 256 => u64::from(byte),
            Some(byte) => u64::from(byte) << 8 | u64::from(self.given.pop().unwrap_or(0)),
            None => self.next(),
        };
        usize::try_from(number % bound).expect("below a usize")
    }

    pub(crate) fn within(&mut self, range: Range<usize>) -> usize {
        range.start + self.below(range.end - range.start)
    }

    pub(crate) fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}
