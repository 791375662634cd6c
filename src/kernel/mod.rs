//! Loops over columns, compiled once for each instruction set and chosen when the engine starts.
//!
//! A kernel is written once, as safe code that the compiler vectorizes, and is a value of a type that
//! implements [`Kernel`]. [`Isa::run`] runs it compiled for the instruction set at hand; the compiler
//! builds each kernel once per [`Isa`]. Where it fails to vectorize, a kernel has a form of its own in
//! `x86_64`. The tests of each kernel run every form that the processor has against the expected result.

use std::fmt;

use crate::error::ConfigError;

pub(crate) mod select;
pub(crate) mod reduce;
#[cfg(target_arch = "x86_64")]
pub(crate) mod x86_64;

/// A loop with its arguments. Methods must be `#[inline(always)]`, so that they are compiled where they are
/// called.
pub(crate) trait Kernel: Sized {
    /// What it answers.
    type Output;

    /// Runs it.
    fn run(self) -> Self::Output;

    /// Runs it with AVX2: the same text compiled for it, except where the compiler fails to vectorize.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx2(self, _: x86_64::Avx2) -> Self::Output {
        self.run()
    }

    /// The same with AVX-512.
    #[cfg(target_arch = "x86_64")]
    #[inline(always)]
    fn run_avx512(self, _: x86_64::Avx512) -> Self::Output {
        self.run()
    }
}

/// An instruction set that this processor has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2(x86_64::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(x86_64::Avx512),
}

impl Isa {
    /// What every processor of the target has.
    pub const PORTABLE: Self = Self(Kind::Portable);

    /// All instruction sets of this processor that kernels are compiled for, best first.
    pub fn available() -> Vec<Self> {
        let mut all = Vec::new();
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(x86_64::Avx512::detect().map(|proof| Self(Kind::Avx512(proof))));
            all.extend(x86_64::Avx2::detect().map(|proof| Self(Kind::Avx2(proof))));
        }
        all.push(Self::PORTABLE);
        all
    }

    /// The best one of this processor.
    pub fn best() -> Self {
        Self::available()[0]
    }

    /// Reads `auto`, `portable`, `avx2`, `avx512`.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        if text == "auto" {
            return Ok(Self::best());
        }
        let available = Self::available();
        available.iter().find(|isa| isa.name() == text).copied().ok_or_else(|| {
            let names = available.iter().map(|isa| isa.name()).collect::<Vec<_>>().join(", ");
            ConfigError::OutOfRange {
                what: "instruction set",
                found: text.to_owned(),
                expected: format!("auto or one that this processor has: {names}"),
            }
        })
    }

    /// Name as in reports and on the command line.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "avx512",
        }
    }

    /// Runs a kernel compiled for this instruction set.
    #[inline]
    pub(crate) fn run<K: Kernel>(self, kernel: K) -> K::Output {
        match self.0 {
            Kind::Portable => kernel.run(),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(proof) => proof.run(kernel),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(proof) => proof.run(kernel),
        }
    }
}

impl fmt::Display for Isa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
