//! Slow and obviously right: sums of floats as plain big numbers, and what it means to be the nearest.

/// A number in units of 2^-1074: digits of 32 bits, each with room for many additions.
#[derive(Clone)]
pub(super) struct Exact([i128; 72]);

impl Exact {
    pub(super) fn zero() -> Self {
        Self([0; 72])
    }

    /// Adds `value * weight`.
    pub(super) fn add(&mut self, value: f64, weight: i64) {
        assert!(value.is_finite());
        let bits = value.abs().to_bits();
        let (exponent, fraction) = (bits >> 52, bits & ((1 << 52) - 1));
        let (at, digits) =
            if exponent == 0 { (0, fraction) } else { (exponent - 1, fraction | 1 << 52) };
        let at = usize::try_from(at).unwrap();
        let mut digits = u128::from(digits) << (at % 32);
        let weight = i128::from(if value < 0.0 { -weight } else { weight });
        for digit in &mut self.0[at / 32..] {
            *digit += i128::try_from(digits & 0xffff_ffff).unwrap() * weight;
            digits >>= 32;
            if digits == 0 {
                return;
            }
        }
    }

    /// Adds `value * weight`, exactly also for integers that are no floats.
    pub(super) fn add_integer(&mut self, value: i128, weight: i64) {
        let mut rest = value.unsigned_abs();
        let mut unit = if value < 0 { -1.0 } else { 1.0 };
        while rest > 0 {
            self.add(f64::from((rest & 0xffff_ffff) as u32) * unit, weight);
            rest >>= 32;
            unit *= 4_294_967_296.0;
        }
    }

    /// -1, 0 or 1.
    pub(super) fn signum(&self) -> i32 {
        let mut carry = 0;
        let mut any = false;
        for digit in self.0 {
            let digit = digit + carry;
            any |= digit & 0xffff_ffff != 0;
            carry = digit >> 32;
        }
        if carry < 0 { -1 } else { i32::from(any || carry > 0) }
    }

    /// Whether `result` is the float nearest to `self / count`; of two equally near, the even one.
    pub(super) fn is_nearest(&self, result: f64, count: u64) -> bool {
        let count = i64::try_from(count).unwrap();
        let mut twice = self.clone();
        twice.0.iter_mut().for_each(|digit| *digit *= 2);
        // Twice the distance to the middle between `result` and each neighbour.
        let (low, high) = (result.next_down(), result.next_up());
        let mut above = twice.clone();
        let mut below = twice;
        if result == f64::INFINITY {
            beyond(&mut below, f64::MAX, -count);
            return below.signum() >= 0;
        }
        if result == f64::NEG_INFINITY {
            beyond(&mut above, f64::MIN, -count);
            return above.signum() <= 0;
        }
        let add_both = |to: &mut Self, neighbour: f64| {
            if neighbour.is_finite() {
                to.add(result, -count);
                to.add(neighbour, -count);
            } else {
                beyond(to, result, -count);
            }
        };
        add_both(&mut above, high);
        add_both(&mut below, low);
        let even = result.to_bits() & 1 == 0;
        let zero = |sign: i32| sign == 0 && even;
        (above.signum() < 0 || zero(above.signum())) && (below.signum() > 0 || zero(below.signum()))
    }
}

/// Adds the largest float, and what would be the next one if there were more exponents.
fn beyond(to: &mut Exact, largest: f64, weight: i64) {
    to.add(largest, weight);
    to.add(largest, weight);
    to.add(2_f64.powi(971).copysign(largest), weight);
}

#[test]
fn the_oracle_knows_the_nearest() {
    let mut third = Exact::zero();
    third.add(1.0, 1);
    assert!(third.is_nearest(1.0 / 3.0, 3));
    assert!(!third.is_nearest((1.0_f64 / 3.0).next_up(), 3));
    assert!(!third.is_nearest((1.0_f64 / 3.0).next_down(), 3));
    let mut tie = Exact::zero();
    tie.add(1.0, 1);
    tie.add(2_f64.powi(-53), 1);
    assert!(tie.is_nearest(1.0, 1));
    assert!(!tie.is_nearest(1.0_f64.next_up(), 1));
    tie.add(-2_f64.powi(-1000), 1);
    assert!(tie.is_nearest(1.0, 1));
    let mut large = Exact::zero();
    large.add(f64::MAX, 2);
    assert!(large.is_nearest(f64::INFINITY, 1));
    assert!(large.is_nearest(f64::MAX, 2));
    assert!(!large.is_nearest(f64::INFINITY, 2));
    large.add_integer(-1, 1);
    large.add(f64::MAX, -1);
    assert!(large.is_nearest(f64::MAX, 1));
    large.add(f64::MAX, -2);
    assert!(large.is_nearest(f64::MIN, 1));
    assert_eq!(large.signum(), -1);
}
