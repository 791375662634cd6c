//! A small fast random generator, and Zipf numbers from it.

/// Spreads the bits of a number (the finalizer of `SplitMix64`).
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// xoshiro256++ by Blackman and Vigna.
#[derive(Debug, Clone)]
pub(crate) struct Random([u64; 4]);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        let mut state = seed;
        Self(std::array::from_fn(|_| {
            state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
            mix(state)
        }))
    }

    #[inline]
    pub(crate) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let t = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= t;
        s[3] = s[3].rotate_left(45);
        result
    }

    /// A number below `bound`, with a bias below `bound / 2^64`.
    #[inline]
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in [0, 1) with 53 random bits.
    #[inline]
    pub(crate) fn unit(&mut self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "53 bits are exact")]
        let bits = (self.next() >> 11) as f64;
        bits * (1.0 / 9_007_199_254_740_992.0)
    }
}

/// Ranks 0 .. n with weights proportional to (rank + 1)^-exponent, by the rejection-inversion of
/// Hoermann and Derflinger (1996): invert the integral of the density, round, and reject the little
/// that sticks out. Constant time and memory, whatever n.
#[derive(Debug, Clone)]
pub(crate) struct Zipf {
    exponent: f64,
    count: f64,
    integral_first: f64,
    integral_last: f64,
    /// Within this distance above its integer a point is always accepted.
    shortcut: f64,
}

impl Zipf {
    #[expect(clippy::cast_precision_loss, reason = "counts of keys are below 2^53")]
    pub(crate) fn new(count: u64, exponent: f64) -> Self {
        let count = count as f64;
        let integral_first = integral(1.5, exponent) - 1.0;
        let integral_last = integral(count + 0.5, exponent);
        let edge = integral(2.5, exponent) - density(2.0, exponent);
        let shortcut = 2.0 - inverse(edge, exponent);
        Self { exponent, count, integral_first, integral_last, shortcut }
    }

    #[inline]
    pub(crate) fn sample(&self, random: &mut Random) -> u64 {
        loop {
            let span = self.integral_first - self.integral_last;
            let u = self.integral_last + random.unit() * span;
            let x = inverse(u, self.exponent);
            let rank = (x + 0.5).floor().clamp(1.0, self.count);
            if rank - x <= self.shortcut
                || u >= integral(rank + 0.5, self.exponent) - density(rank, self.exponent)
            {
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a whole number from 1 to the count"
                )]
                return rank as u64 - 1;
            }
        }
    }
}

fn density(x: f64, exponent: f64) -> f64 {
    (-exponent * x.ln()).exp()
}

/// The integral of the density from 1 to x, also near exponent 1.
fn integral(x: f64, exponent: f64) -> f64 {
    let log = x.ln();
    let t = (1.0 - exponent) * log;
    let ratio = if t.abs() > 1e-8 { t.exp_m1() / t } else { 1.0 + t / 2.0 };
    ratio * log
}

fn inverse(area: f64, exponent: f64) -> f64 {
    // Rounding may push it below the pole of the logarithm.
    let t = (area * (1.0 - exponent)).max(-1.0);
    let ratio = if t.abs() > 1e-8 { t.ln_1p() / t } else { 1.0 - t / 2.0 };
    (ratio * area).exp()
}
