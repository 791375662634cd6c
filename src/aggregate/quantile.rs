//! Quantiles by counting values in buckets, as in `DDSketch` (Masson, Rim, Lee 2019).
//!
//! A bucket is 1/64 of a power of two: the sign, the exponent and six bits of the fraction, cut from the
//! float itself, so that no logarithm differs from machine to machine. A bucket's middle is at most
//! 1/128 = 0.79 % away from each of its values. Chosen over t-digest and KLL because counts of fixed buckets
//! add up to the same whatever the order of merges, and because the error is one of the value itself.
//!
//! Up to 128 values are kept as they are, so the quantiles of small groups are exact; the smallest and
//! largest value always are. Values are in the order of min and max: NaN is greater than every number, and a
//! quantile that falls among infinities or NaN is infinite or NaN.
//!
//! Memory of a key: 8 bytes a value, then 520 bytes for each power of two (and sign) that has values.

use std::sync::Arc;

use arrow::array::{ArrayRef, Float64Array};

use crate::aggregate::keyed::{Groups, Keyed};
use crate::aggregate::saved::{Reader, check_count, put_words};
use crate::aggregate::{Damaged, Misfit, Part, Unsaved};
use crate::column::{Column, Lane};

/// Bits of a float that are not looked at.
const DROPPED_BITS: u32 = 46;
/// Buckets of a power of two: so many values of the bits that are left beside sign and exponent.
const PAGE: usize = 64;
const PAGE_BITS: u32 = 6;
/// Number of the bucket that begins with 0.0; those of negative numbers come before it.
const ZERO_BUCKET: u32 = 1 << 17;
/// Values kept before there are buckets.
const SMALL_MAX: usize = 128;

/// What the saved form begins with.
const AS_VALUES: u8 = 0;
const AS_PAGES: u8 = 1;
/// Pages that there can be: one for each sign and exponent.
const PAGES_MAX: u16 = 1 << 12;

const SIGN: u64 = 1 << 63;

/// The accumulator's description.
#[derive(Debug)]
pub(super) struct Quantiles;

/// What is kept of some values.
#[derive(Debug, Default)]
pub(super) struct Sketch {
    /// The places of the values in their order, while they are few.
    small: Vec<u64>,
    /// Counts by power of two, ascending.
    pages: Vec<Page>,
    /// Of the values in pages.
    count: u64,
    min: u64,
    max: u64,
}

#[derive(Debug, Clone)]
struct Page {
    number: u16,
    counts: Box<[u64; PAGE]>,
}

/// The place of `value` in the order of all values.
#[inline(always)]
fn place(value: f64) -> u64 {
    // All NaN alike, both zeros alike.
    let value = if value.is_nan() { f64::NAN.abs() } else { value + 0.0 };
    let bits = value.to_bits();
    if bits & SIGN == 0 { bits | SIGN } else { !bits }
}

/// The value at `place`.
fn value(place: u64) -> f64 {
    f64::from_bits(if place & SIGN == 0 { !place } else { place & !SIGN })
}

/// The place in the middle of a bucket.
fn middle(bucket: u32) -> u64 {
    let negative = bucket < ZERO_BUCKET;
    let magnitude =
        u64::from(if negative { ZERO_BUCKET - 1 - bucket } else { bucket - ZERO_BUCKET });
    let start = magnitude << DROPPED_BITS;
    // Infinities and NaN have buckets of their own, and zero stands for what is next to it.
    let is_special = magnitude >> PAGE_BITS == 0x7ff || magnitude == 0;
    let bits = if is_special { start } else { start + (1 << (DROPPED_BITS - 1)) };
    place(f64::from_bits(if negative { bits | SIGN } else { bits }))
}

impl Sketch {
    #[inline(always)]
    fn insert(&mut self, place: u64) {
        if self.pages.is_empty() {
            if self.small.len() < SMALL_MAX {
                self.small.push(place);
                return;
            }
            self.make_pages();
        }
        self.count_place(place);
    }

    #[cold]
    fn make_pages(&mut self) {
        (self.min, self.max) = (u64::MAX, 0);
        for place in std::mem::take(&mut self.small) {
            self.count_place(place);
        }
    }

    #[inline(always)]
    fn count_place(&mut self, place: u64) {
        self.min = self.min.min(place);
        self.max = self.max.max(place);
        self.count += 1;
        let bucket = (place >> DROPPED_BITS) as u32;
        let slot = bucket as usize % PAGE;
        self.page((bucket >> PAGE_BITS) as u16).counts[slot] += 1;
    }

    #[inline(always)]
    fn page(&mut self, number: u16) -> &mut Page {
        let found = self.pages.binary_search_by_key(&number, |page| page.number);
        let at = found.unwrap_or_else(|at| {
            self.pages.insert(at, Page { number, counts: Box::new([0; PAGE]) });
            at
        });
        &mut self.pages[at]
    }

    fn merge(&mut self, from: &Self) {
        from.small.iter().for_each(|place| self.insert(*place));
        if from.pages.is_empty() {
            return;
        }
        if self.pages.is_empty() {
            self.make_pages();
        }
        self.min = self.min.min(from.min);
        self.max = self.max.max(from.max);
        self.count += from.count;
        for page in &from.pages {
            let own = self.page(page.number);
            for (own, theirs) in own.counts.iter_mut().zip(&page.counts[..]) {
                *own += theirs;
            }
        }
    }

    /// The value at rank `q`, or next to it.
    fn quantile(&self, q: f64) -> f64 {
        if self.pages.is_empty() {
            let mut places = self.small.clone();
            places.sort_unstable();
            let rank = rank(q, places.len() as u64);
            return value(places[usize::try_from(rank - 1).expect("few")]);
        }
        let rank = rank(q, self.count);
        if rank == 1 || rank == self.count {
            return value(if rank == 1 { self.min } else { self.max });
        }
        let mut seen = 0;
        for page in &self.pages {
            for (slot, count) in (0..).zip(&page.counts[..]) {
                seen += count;
                if seen >= rank {
                    let bucket = (u32::from(page.number) << PAGE_BITS) + slot;
                    return value(middle(bucket).clamp(self.min, self.max));
                }
            }
        }
        unreachable!("a rank is at most the number of values")
    }
}

impl Page {
    fn save(&self, out: &mut Vec<u8>) {
        let bit = |(slot, count): (usize, &u64)| u64::from(*count != 0) << slot;
        let filled = self.counts.iter().enumerate().map(bit).sum::<u64>();
        out.extend_from_slice(&self.number.to_le_bytes());
        put_words(out, std::iter::once(filled));
        put_words(out, self.counts.iter().copied().filter(|count| *count != 0));
    }

    fn load(reader: &mut Reader<'_>) -> Result<Self, Damaged> {
        let (number, filled) = (reader.take_u16()?, reader.take_u64()?);
        if number >= PAGES_MAX || filled == 0 {
            return Err(Damaged::new("the page of an exponent", format!("{number}, {filled:x}")));
        }
        let mut counts = Box::new([0; PAGE]);
        for (slot, count) in counts.iter_mut().enumerate() {
            if filled >> slot & 1 == 1 {
                *count = reader.take_u64()?;
                check_count(*count)?;
            }
        }
        Ok(Self { number, counts })
    }
}

/// The rank of quantile `q` among `count` values, counted from 1.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a rank next to it does for so many values"
)]
fn rank(q: f64, count: u64) -> u64 {
    ((q * count as f64).ceil() as u64).clamp(1, count)
}

fn load_pages(mut reader: Reader<'_>) -> Result<Sketch, Damaged> {
    let [count, min, max] = reader.take_words()?;
    check_count(count)?;
    let mut pages: Vec<Page> = Vec::new();
    let mut seen = 0;
    while !reader.is_empty() {
        let page = Page::load(&mut reader)?;
        if pages.last().is_some_and(|last| last.number >= page.number) {
            return Err(Damaged::new("pages in ascending order", format!("{} later", page.number)));
        }
        // At most 2^12 pages of 2^6 counts of 2^56: wider than a word.
        seen += page.counts.iter().map(|count| u128::from(*count)).sum::<u128>();
        pages.push(page);
    }
    if count == 0 || seen != u128::from(count) || min > max {
        let found = format!("{seen} of {count}, from place {min} to {max}");
        return Err(Damaged::new("the counts of all values, and their range", found));
    }
    Ok(Sketch { small: Vec::new(), pages, count, min, max })
}

impl Keyed for Quantiles {
    type State = Sketch;

    fn update(&self, column: &Column, groups: Groups<'_, '_, Self>) {
        let Lane::F64(values) = &column.values else { unreachable!("the plan asks for floats") };
        groups.for_each(column.nulls.as_ref(), |sketch, row| sketch.insert(place(values[row])));
    }

    fn merge(&self, into: &mut Sketch, from: &Sketch) {
        into.merge(from);
    }

    fn absorb(&self, into: &mut Sketch, from: &mut Sketch) {
        if into.pages.len() < from.pages.len() {
            std::mem::swap(into, from);
        }
        into.merge(from);
    }

    fn emit(&self, part: Part, states: &[Option<&Sketch>]) -> Result<ArrayRef, Misfit> {
        let Part::Quantile(q) = part else { unreachable!("{part:?} of a sketch") };
        let values = states.iter().map(|sketch| sketch.map(|sketch| sketch.quantile(q.get())));
        Ok(Arc::new(values.collect::<Float64Array>()))
    }

    fn heap_bytes(&self, state: &Sketch) -> usize {
        state.small.capacity() * size_of::<u64>()
            + state.pages.capacity() * size_of::<Page>()
            + state.pages.len() * size_of::<[u64; PAGE]>()
    }

    fn save(&self, state: &Sketch, out: &mut Vec<u8>) -> Result<(), Unsaved> {
        if state.pages.is_empty() {
            let mut places = state.small.clone();
            places.sort_unstable();
            out.push(AS_VALUES);
            put_words(out, places);
        } else {
            out.push(AS_PAGES);
            put_words(out, [state.count, state.min, state.max]);
            state.pages.iter().for_each(|page| page.save(out));
        }
        Ok(())
    }

    fn load(&self, bytes: &[u8]) -> Result<Sketch, Damaged> {
        let mut reader = Reader::new(bytes);
        match reader.take_u8()? {
            AS_VALUES => {
                let small = reader.rest_ascending(false)?;
                if !(1..=SMALL_MAX).contains(&small.len()) {
                    let expected = format!("1 to {SMALL_MAX} values");
                    return Err(Damaged::new(expected, small.len().to_string()));
                }
                Ok(Sketch { small, ..Sketch::default() })
            }
            AS_PAGES => load_pages(reader),
            other => Err(Damaged::new("0 or 1 before a sketch", other.to_string())),
        }
    }
}
