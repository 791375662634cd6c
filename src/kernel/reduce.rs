//! Reductions of whole columns.

use super::Kernel;

/// Independent partial results: enough for the widest vectors, and to hide latency.
const LANES: usize = 16;

/// Least and largest of the values; `None` if there are none.
#[derive(Debug)]
pub(crate) struct MinMax<'a>(pub(crate) &'a [i64]);

impl Kernel for MinMax<'_> {
    type Output = Option<(i64, i64)>;

    #[inline(always)]
    fn run(self) -> Self::Output {
        let first = *self.0.first()?;
        let (mut mins, mut maxs) = ([first; LANES], [first; LANES]);
        let (blocks, rest) = self.0.as_chunks::<LANES>();
        for block in blocks {
            for lane in 0..LANES {
                mins[lane] = mins[lane].min(block[lane]);
                maxs[lane] = maxs[lane].max(block[lane]);
            }
        }
        let lanes = mins.iter().zip(&maxs).map(|(min, max)| (*min, *max));
        let rest = rest.iter().map(|value| (*value, *value));
        lanes.chain(rest).reduce(|(min, max), (low, high)| (min.min(low), max.max(high)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::Isa;

    proptest! {
        #[test]
        fn every_isa_finds_the_extremes(values in proptest::collection::vec(any::<i64>(), 0..100)) {
            let expected = values.iter().min().copied().zip(values.iter().max().copied());
            for isa in Isa::available() {
                prop_assert_eq!(isa.run(MinMax(&values)), expected, "{}", isa);
            }
        }
    }
}
