//! Float sums: the edges of the window, spills, and sums that stay exact where others lose everything.

use super::*;
use crate::aggregate::exact_float;
use crate::aggregate::tests::oracle::is_float_sum;

type Half = <arrow::datatypes::Float16Type as arrow::array::ArrowPrimitiveType>::Native;

pub(super) fn half(value: f64) -> Half {
    Half::from_f64(value)
}

/// Floats of every kind; NaN in its usual form only, as Arrow's sort tells forms apart.
pub(super) fn any_float() -> impl Strategy<Value = f64> {
    prop_oneof![
        3 => (-10_000..10_000_i32).prop_map(|cents| f64::from(cents) / 100.0),
        2 => finite(),
        1 => prop_oneof![
            Just(0.0), Just(-0.0), Just(f64::NAN), Just(f64::INFINITY), Just(f64::NEG_INFINITY)
        ],
    ]
}

/// Finite floats of every size, and many at the edges of the window.
fn finite() -> impl Strategy<Value = f64> {
    let sign = |(value, negative): (f64, bool)| if negative { -value } else { value };
    let near = |exponent: i32| {
        (exponent - 2..exponent + 2, 1.0..2.0_f64).prop_map(|(e, x)| x * 2_f64.powi(e))
    };
    let size = prop_oneof![
        2 => any::<u64>().prop_map(|bits| f64::from_bits(bits % (0x7ff << 52))),
        1 => near(-54),
        1 => near(74),
        1 => near(-106),
        1 => (-110..-40).prop_map(|e| 2_f64.powi(e)),
        1 => prop_oneof![Just(f64::MAX), Just(5e-324), Just(f64::MIN_POSITIVE), Just(1e300), Just(0.0)],
        1 => (0..1_u64 << 52).prop_map(f64::from_bits),
    ];
    (size, any::<bool>()).prop_map(sign)
}

struct Sum(Vec<u64>, Side);

impl Sum {
    fn new() -> Self {
        Self(vec![0; exact_float::WORDS], Side::Floats(Vec::new()))
    }

    fn of(values: &[f64]) -> Self {
        let mut sum = Self::new();
        for value in values {
            exact_float::add(&mut sum.0, &mut sum.1, *value);
        }
        sum
    }

    fn merge(mut self, from: &Self) -> Self {
        exact_float::merge(&mut self.0, &mut self.1, &from.0, &from.1);
        self
    }

    fn value(&self) -> f64 {
        exact_float::sum(&self.0, &self.1)
    }

    fn spilled(&self) -> bool {
        self.1.bytes() > 0
    }
}

fn repeat(value: f64, times: usize) -> Sum {
    let mut sum = Sum::new();
    exact_float::add_all(&mut sum.0, &mut sum.1, &vec![value; times]);
    sum
}

proptest! {
    #[test]
    fn finite_sums_are_the_nearest(
        values in proptest::collection::vec(finite(), 0..30), cut in 0..30_usize, cancel: bool,
    ) {
        let mut values = values;
        if cancel {
            let negated: Vec<f64> = values.iter().rev().skip(1).map(|value| -value).collect();
            values.extend(negated);
        }
        let (left, right) = values.split_at(cut.min(values.len()));
        let (whole, left) = (Sum::of(&values), Sum::of(left));
        let merged = Sum::of(right).merge(&left);
        prop_assert_eq!(merged.value().to_bits(), whole.value().to_bits());
        prop_assert!(is_float_sum(&values, whole.value(), 1), "{:?}", whole.value());
        let mut all = Sum::new();
        exact_float::add_all(&mut all.0, &mut all.1, &values);
        prop_assert_eq!(all.value().to_bits(), whole.value().to_bits());
        let mean = exact_float::mean(&whole.0, &whole.1, 7);
        prop_assert!(is_float_sum(&values, mean, 7), "{mean:?}");
    }
}

#[test]
fn sums_that_lose_nothing() {
    assert_eq!(Sum::of(&[1e300, 1.0, -1e300]).value(), 1.0);
    assert_eq!(Sum::of(&[1e16, 1.0, -1e16]).value(), 1.0);
    assert_eq!(Sum::of(&[f64::MAX, f64::MAX, f64::MIN]).value(), f64::MAX);
    assert_eq!(Sum::of(&[f64::MAX, f64::MAX]).value(), f64::INFINITY);
    assert_eq!(Sum::of(&[1.0, 5e-324, -1.0]).value(), 5e-324);
    assert_eq!(Sum::of(&[0.1; 10]).value(), 1.0, "ten times the float 0.1 rounds to 1");
    assert_eq!(Sum::of(&[-0.0, -0.0]).value().to_bits(), 0, "an exact zero is positive");
}

#[test]
fn what_stays_in_the_row() {
    for inside in
        [0.0, -0.0, 2_f64.powi(-54), 0.1, 1e-16, 1.8e18, 2_f64.powi(74).next_down(), -7.25]
    {
        assert!(!Sum::of(&[inside, -inside, inside]).spilled(), "{inside:e}");
    }
    assert!(!Sum::of(&[2_f64.powi(-106), 3.0 * 2_f64.powi(-106)]).spilled());
    for outside in [2_f64.powi(-54).next_down(), 2_f64.powi(-107), 1e-20, 2_f64.powi(74), 5e-324] {
        assert!(Sum::of(&[outside]).spilled(), "{outside:e}");
    }
    assert!(!Sum::of(&[f64::NAN, f64::INFINITY]).spilled(), "flags need no spill");
}

#[test]
fn a_full_window_is_emptied() {
    let large = 2_f64.powi(74).next_down();
    for value in [large, -large] {
        let sum = repeat(value, 5000);
        assert!(sum.spilled());
        assert!(is_float_sum(&vec![value; 5000], sum.value(), 1));
        // Nearly full windows, merged again and again.
        let part = repeat(value, 1000);
        assert!(!part.spilled());
        let merged = (0..4).fold(repeat(value, 1000), |all, _| all.merge(&part));
        assert_eq!(merged.value(), sum.value());
    }
}

#[test]
fn what_is_not_finite() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    assert_eq!(Sum::of(&[1.0, inf, 2.0]).value(), inf);
    assert_eq!(Sum::of(&[-inf, f64::MAX, f64::MAX]).value(), -inf);
    assert!(Sum::of(&[inf, 1.0]).merge(&Sum::of(&[-inf])).value().is_nan());
    assert!(Sum::of(&[nan]).merge(&Sum::of(&[1.0])).value().is_nan());
    assert!(Sum::of(&[1.0]).merge(&Sum::of(&[-nan])).value().is_nan());
}

#[test]
fn nan_in_every_form_is_the_greatest() {
    let odd_nan = f64::from_bits(0xfff0_0000_0000_0001);
    let array: ArrayRef = Arc::new(Float64Array::from(vec![odd_nan, -0.0, 0.0, f64::INFINITY]));
    let schema = Schema::new(vec![Field::new("v", DataType::Float64, false)]);
    let aggregates = Aggregate::parse_list("min(v), max(v)").unwrap();
    let scope = Scope { schema: &schema, time: None, reserved: &[] };
    let plan = Plan::new(&aggregates, &scope, crate::kernel::Isa::best()).unwrap();
    let mut pane = one_by_one(&plan, &array, &[0, 1, 1, 0]);
    let bits = |array: &Result<ArrayRef, Misfit>| -> Vec<u64> {
        let array = array.as_ref().unwrap();
        let floats = array.as_any().downcast_ref::<Float64Array>().unwrap();
        floats.values().iter().map(|value| value.to_bits()).collect()
    };
    let results = pane.emit(&[0, 1]);
    assert_eq!(bits(&results[0]), [f64::INFINITY.to_bits(), 1 << 63]);
    assert_eq!(bits(&results[1]), [0x7ff8 << 48, 0]);
}
