//! Running kernels on x86-64 with AVX2 or AVX-512.
//!
//! A value of [`Avx2`] or [`Avx512`] exists only if `detect` found the instructions, so running a kernel
//! through it is safe. The twin of every kernel here is the same kernel run without.
#![allow(unsafe_code, reason = "calls into code compiled for instructions that were detected")]

use super::Kernel;

/// Proof that the processor has AVX2, BMI1, BMI2, LZCNT and POPCNT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx2(());

/// Proof that the processor has AVX-512 F, BW, CD, DQ and VL, and what [`Avx2`] proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx512(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        let found = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt");
        found.then_some(Self(()))
    }

    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        let Self(()) = self;
        // SAFETY: `self` exists, so `detect` found every feature that the function is compiled for.
        unsafe { run_avx2(kernel) }
    }
}

impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let found = Avx2::detect().is_some()
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512cd")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        found.then_some(Self(()))
    }

    #[inline]
    pub(super) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        let Self(()) = self;
        // SAFETY: `self` exists, so `detect` found every feature that the function is compiled for.
        unsafe { run_avx512(kernel) }
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt"
)]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run()
}
