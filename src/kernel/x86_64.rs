//! Running kernels on x86-64 with AVX2 or AVX-512.
//!
//! A value of [`Avx2`] or [`Avx512`] exists only if `detect` found the instructions, so running a kernel
//! through it is safe. The twin of every kernel here is the same kernel run without.
//!
//! Intrinsics stand in for loops that the compiler does not vectorize: bit masks from comparisons, row
//! numbers from bit masks, and reductions under a mask. Row numbers are packed in a register and stored
//! whole, since storing under a mask is slow on some processors.
#![allow(unsafe_code, reason = "calls into code compiled for instructions that were detected")]

use std::arch::x86_64::{
    __m256i, __m512i, _mm_loadl_epi64, _mm256_add_epi32, _mm256_add_epi64, _mm256_and_si256,
    _mm256_blendv_epi8, _mm256_castsi256_pd, _mm256_cmpeq_epi64, _mm256_cmpgt_epi64,
    _mm256_cvtepu8_epi32, _mm256_loadu_si256, _mm256_movemask_pd, _mm256_set1_epi32,
    _mm256_set1_epi64x, _mm256_setr_epi64x, _mm256_setzero_si256, _mm256_srli_epi64,
    _mm256_storeu_si256, _mm256_xor_si256, _mm512_add_epi32, _mm512_add_epi64, _mm512_and_si512,
    _mm512_cmpeq_epi64_mask, _mm512_cmpge_epu64_mask, _mm512_loadu_si512, _mm512_mask_max_epi64,
    _mm512_mask_min_epi64, _mm512_maskz_compress_epi32, _mm512_maskz_mov_epi64,
    _mm512_reduce_add_epi64, _mm512_reduce_max_epi64, _mm512_reduce_min_epi64, _mm512_set1_epi32,
    _mm512_set1_epi64, _mm512_setr_epi32, _mm512_setzero_si512, _mm512_srai_epi64,
    _mm512_storeu_si512, _mm512_xor_si512,
};

use super::Kernel;
use super::reduce::{Reduced, Word};
use super::select::{Compare, LANES};

/// Proof that the processor has AVX2, BMI1, BMI2, LZCNT and POPCNT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx2(());

/// Proof that the processor has AVX-512 F, BW, CD, DQ and VL, and what [`Avx2`] proves.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Avx512(());

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

    /// One word of `mask` for each block: the bits of the values that compare to `operand`.
    #[inline]
    pub(super) fn compare_mask(
        self,
        blocks: &[[u64; LANES]],
        compare: Compare,
        operand: u64,
        mask: &mut [u64],
    ) {
        let Self(()) = self;
        // SAFETY: as in `run`.
        unsafe { compare_mask_avx2(blocks, compare, operand, mask) }
    }

    /// Writes the numbers of the rows of `word`, whose first row is `first`; what follows them in `place`
    /// is anything.
    #[inline(always)]
    pub(super) fn rows_of_word(self, word: u64, first: u32, place: &mut [u32; LANES]) {
        let Self(()) = self;
        // SAFETY: as in `run`.
        unsafe { rows_of_word_avx2(word, first, place) }
    }

    /// Reduces the values chosen by `mask`, one word for each block, made signed.
    #[inline]
    pub(super) fn masked_reduce<W: Word>(self, blocks: &[[W; LANES]], mask: &[u64]) -> Reduced {
        let Self(()) = self;
        // SAFETY: as in `run`.
        unsafe { masked_reduce_avx2(blocks, mask) }
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

    /// One word of `mask` for each block: the bits of the values that compare to `operand`.
    #[inline]
    pub(super) fn compare_mask(
        self,
        blocks: &[[u64; LANES]],
        compare: Compare,
        operand: u64,
        mask: &mut [u64],
    ) {
        let Self(()) = self;
        // SAFETY: as in `run`.
        unsafe { compare_mask_avx512(blocks, compare, operand, mask) }
    }

    /// Writes the numbers of the rows of `word`, whose first row is `first`; what follows them in `place`
    /// is anything.
    #[inline(always)]
    pub(super) fn rows_of_word(self, word: u64, first: u32, place: &mut [u32; LANES]) {
        let Self(()) = self;
        // SAFETY: as in `run`.
        unsafe { rows_of_word_avx512(word, first, place) }
    }

    /// Reduces the values chosen by `mask`, one word for each block, made signed.
    #[inline]
    pub(super) fn masked_reduce<W: Word>(self, blocks: &[[W; LANES]], mask: &[u64]) -> Reduced {
        let Self(()) = self;
        // SAFETY: as in `run`.
        unsafe { masked_reduce_avx512(blocks, mask) }
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
    kernel.run_avx2(Avx2(()))
}

#[target_feature(
    enable = "avx512f,avx512bw,avx512cd,avx512dq,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt"
)]
fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
    kernel.run_avx512(Avx512(()))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_512<W: Word>(eight: &[W; 8]) -> __m512i {
    const { assert!(size_of::<W>() == 8) }
    // SAFETY: these are 64 readable bytes, whatever they mean; the load needs no alignment.
    unsafe { _mm512_loadu_si512(eight.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2")]
fn load_256<W: Word>(four: &[W; 4]) -> __m256i {
    const { assert!(size_of::<W>() == 8) }
    // SAFETY: these are 32 readable bytes, whatever they mean; the load needs no alignment.
    unsafe { _mm256_loadu_si256(four.as_ptr().cast()) }
}

#[target_feature(enable = "avx512f")]
fn compare_mask_avx512(blocks: &[[u64; LANES]], compare: Compare, operand: u64, mask: &mut [u64]) {
    let operand = _mm512_set1_epi64(operand.cast_signed());
    for (word, block) in mask.iter_mut().zip(blocks) {
        *word = 0;
        for (i, eight) in block.as_chunks::<8>().0.iter().enumerate() {
            let values = load_512(eight);
            let bits = match compare {
                Compare::Equal => _mm512_cmpeq_epi64_mask(values, operand),
                Compare::AtLeast => _mm512_cmpge_epu64_mask(values, operand),
            };
            *word |= u64::from(bits) << (8 * i);
        }
    }
}

#[target_feature(enable = "avx2")]
fn compare_mask_avx2(blocks: &[[u64; LANES]], compare: Compare, operand: u64, mask: &mut [u64]) {
    // Flipping the sign bit turns the order of unsigned numbers into that of signed ones.
    let sign = _mm256_set1_epi64x(i64::MIN);
    let operand = _mm256_set1_epi64x(operand.cast_signed());
    let flipped = _mm256_xor_si256(operand, sign);
    for (word, block) in mask.iter_mut().zip(blocks) {
        *word = 0;
        for (i, four) in block.as_chunks::<4>().0.iter().enumerate() {
            let values = load_256(four);
            let (found, not) = match compare {
                Compare::Equal => (_mm256_cmpeq_epi64(values, operand), 0),
                Compare::AtLeast => {
                    (_mm256_cmpgt_epi64(flipped, _mm256_xor_si256(values, sign)), 0xf)
                }
            };
            let bits = _mm256_movemask_pd(_mm256_castsi256_pd(found)).cast_unsigned() ^ not;
            *word |= u64::from(bits) << (4 * i);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,popcnt")]
fn rows_of_word_avx512(word: u64, first: u32, place: &mut [u32; LANES]) {
    let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    let step = _mm512_set1_epi32(16);
    let mut rows = _mm512_add_epi32(lanes, _mm512_set1_epi32(first.cast_signed()));
    let mut filled = 0;
    for quarter in 0..4 {
        #[expect(clippy::cast_possible_truncation, reason = "these 16 bits are wanted")]
        let bits = (word >> (16 * quarter)) as u16;
        let packed = _mm512_maskz_compress_epi32(bits, rows);
        // At most 16 rows come of each quarter before this one, so that 16 places are left.
        let sixteen = &mut place[filled..filled + 16];
        // SAFETY: 16 numbers of 32 bits are 64 writable bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(sixteen.as_mut_ptr().cast(), packed) };
        filled += bits.count_ones() as usize;
        rows = _mm512_add_epi32(rows, step);
    }
}

/// For each byte, the places of its bits that are set, then zeros.
const PLACES: [[u8; 8]; 256] = places();

const fn places() -> [[u8; 8]; 256] {
    let mut places = [[0; 8]; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut bit, mut filled) = (0_u8, 0);
        while bit < 8 {
            if byte >> bit & 1 == 1 {
                places[byte][filled] = bit;
                filled += 1;
            }
            bit += 1;
        }
        byte += 1;
    }
    places
}

#[inline]
#[target_feature(enable = "avx2,popcnt")]
fn rows_of_word_avx2(word: u64, first: u32, place: &mut [u32; LANES]) {
    let step = _mm256_set1_epi32(8);
    let mut base = _mm256_set1_epi32(first.cast_signed());
    let mut filled = 0;
    for byte in word.to_le_bytes() {
        let places = &PLACES[usize::from(byte)];
        // SAFETY: 8 readable bytes; the load needs no alignment.
        let places = unsafe { _mm_loadl_epi64(places.as_ptr().cast()) };
        let rows = _mm256_add_epi32(_mm256_cvtepu8_epi32(places), base);
        // At most 8 rows come of each byte before this one, so that 8 places are left.
        let eight = &mut place[filled..filled + 8];
        // SAFETY: 8 numbers of 32 bits are 32 writable bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(eight.as_mut_ptr().cast(), rows) };
        filled += byte.count_ones() as usize;
        base = _mm256_add_epi32(base, step);
    }
}

#[target_feature(enable = "avx512f")]
fn masked_reduce_avx512<W: Word>(blocks: &[[W; LANES]], mask: &[u64]) -> Reduced {
    let flip = _mm512_set1_epi64(W::FLIP);
    let half = _mm512_set1_epi64(0xffff_ffff);
    let (mut low, mut high) = (_mm512_setzero_si512(), _mm512_setzero_si512());
    let (mut min, mut max) = (_mm512_set1_epi64(i64::MAX), _mm512_set1_epi64(i64::MIN));
    for (block, &word) in blocks.iter().zip(mask) {
        for (eight, bits) in block.as_chunks::<8>().0.iter().zip(word.to_le_bytes()) {
            let values = _mm512_xor_si512(load_512(eight), flip);
            let summands = _mm512_maskz_mov_epi64(bits, values);
            // Halves apart: neither sum can overflow for fewer than 2^31 values.
            low = _mm512_add_epi64(low, _mm512_and_si512(summands, half));
            high = _mm512_add_epi64(high, _mm512_srai_epi64::<32>(summands));
            min = _mm512_mask_min_epi64(min, bits, min, values);
            max = _mm512_mask_max_epi64(max, bits, max, values);
        }
    }
    let (low, high) = (_mm512_reduce_add_epi64(low), _mm512_reduce_add_epi64(high));
    Reduced {
        sum: (i128::from(high) << 32) + i128::from(low),
        min: _mm512_reduce_min_epi64(min),
        max: _mm512_reduce_max_epi64(max),
    }
}

#[target_feature(enable = "avx2")]
fn masked_reduce_avx2<W: Word>(blocks: &[[W; LANES]], mask: &[u64]) -> Reduced {
    let bits_of_lanes = _mm256_setr_epi64x(1, 2, 4, 8);
    let (flip, half) = (_mm256_set1_epi64x(W::FLIP), _mm256_set1_epi64x(0xffff_ffff));
    let (least, largest) = (_mm256_set1_epi64x(i64::MIN), _mm256_set1_epi64x(i64::MAX));
    let (mut low, mut high) = (_mm256_setzero_si256(), _mm256_setzero_si256());
    let (mut min, mut max) = (largest, least);
    let mut ones = 0_i128;
    for (block, &word) in blocks.iter().zip(mask) {
        ones += i128::from(word.count_ones());
        for (i, four) in block.as_chunks::<4>().0.iter().enumerate() {
            let values = _mm256_xor_si256(load_256(four), flip);
            let bits = _mm256_set1_epi64x((word >> (4 * i)).cast_signed());
            let chosen = _mm256_cmpeq_epi64(_mm256_and_si256(bits, bits_of_lanes), bits_of_lanes);
            // There is no arithmetic shift here: the sign bit is flipped, which adds 2^63 to each.
            let summands = _mm256_and_si256(_mm256_xor_si256(values, least), chosen);
            low = _mm256_add_epi64(low, _mm256_and_si256(summands, half));
            high = _mm256_add_epi64(high, _mm256_srli_epi64::<32>(summands));
            let lower = _mm256_blendv_epi8(largest, values, chosen);
            let upper = _mm256_blendv_epi8(least, values, chosen);
            min = _mm256_blendv_epi8(min, lower, _mm256_cmpgt_epi64(min, lower));
            max = _mm256_blendv_epi8(max, upper, _mm256_cmpgt_epi64(upper, max));
        }
    }
    let sum = |lanes| lanes_of(lanes).into_iter().map(i128::from).sum::<i128>();
    Reduced {
        sum: (sum(high) << 32) + sum(low) - (ones << 63),
        min: lanes_of(min).into_iter().fold(i64::MAX, i64::min),
        max: lanes_of(max).into_iter().fold(i64::MIN, i64::max),
    }
}

#[inline]
#[target_feature(enable = "avx2")]
fn lanes_of(vector: __m256i) -> [i64; 4] {
    let mut lanes = [0; 4];
    // SAFETY: 4 numbers of 64 bits are 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), vector) };
    lanes
}
