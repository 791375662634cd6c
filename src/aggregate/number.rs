//! Count, sum, min, max and avg of one column of numbers, in one pass.
//!
//! What is kept is what was asked for ([`Flags`]), and the words of a row lie in this order, each part
//! only if wanted: rows, values that are not null, sum, min, max. A column that may hold nulls
//! always counts its values, since that tells whether a sum, min or max exists; for one that may not,
//! a row exists only because a value did.
//!
//! The kernel is written once, over a [`Lane`] and over flags. For 64-bit numbers it is compiled for
//! every combination of flags, so that the flags cost nothing; for decimals, whose arithmetic costs
//! more than a predicted branch, once.

use std::fmt::Debug;

use arrow::array::{ArrayRef, LargeBinaryArray};
use arrow::buffer::NullBuffer;
use arrow::datatypes::DataType;

use crate::aggregate::emit::States;
use crate::aggregate::saved::{check_count, no_bytes, restore_each, save_each};
use crate::aggregate::{Accumulator, Damaged, Misfit, Part, Scalar, Side, Unsaved, wide};
use crate::column::{self, Column};
use crate::kernel::reduce::{MaskedReduce, Word};
use crate::kernel::select::MaskedRows;
use crate::kernel::select::{LANES, count_rows};
use crate::kernel::{Isa, Kernel};
use crate::state::rows::Rows;

/// Which parts are kept: a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Flags(u8);

impl Flags {
    pub(super) const NONE: Self = Self(0);
    /// The number of rows.
    pub(super) const ROWS: Self = Self(1);
    /// The number of values that are not null; always there for a column that may hold nulls.
    pub(super) const VALUES: Self = Self(2);
    pub(super) const SUM: Self = Self(4);
    pub(super) const MIN: Self = Self(8);
    pub(super) const MAX: Self = Self(16);

    #[inline(always)]
    pub(super) const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    pub(super) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Arithmetic on the values of one lane. `sum` and `key` are the words of a sum and of a min or max.
pub(super) trait Lane: Debug + Send + Sync + Sized + 'static {
    /// A value of the column.
    type Value: Copy + Default;
    /// Words of a sum.
    const SUM_WORDS: usize;
    /// Words of a min or max.
    const KEY_WORDS: usize;

    /// The values of `column`, if it is of this lane.
    fn values(column: &column::Lane) -> Option<&[Self::Value]>;
    /// Above every value: the min of nothing.
    fn init_min(key: &mut [u64]);
    /// Below every value: the max of nothing.
    fn init_max(key: &mut [u64]);
    fn add(sum: &mut [u64], side: &mut Side, value: Self::Value);
    fn lower(min: &mut [u64], value: Self::Value);
    fn raise(max: &mut [u64], value: Self::Value);
    fn merge_sum(into: &mut [u64], into_side: &mut Side, from: &[u64], from_side: &Side);
    fn merge_min(into: &mut [u64], from: &[u64]);
    fn merge_max(into: &mut [u64], from: &[u64]);
    /// Adds all of `values` (none is null) to the sum, min and max of `state`.
    fn reduce(at: &Layout, state: &mut [u64], side: &mut Side, values: &[Self::Value]);

    /// [`Self::reduce`] of the rows of a mask that are not null, for lanes that have it: how many.
    fn reduce_masked(
        _isa: Isa,
        _at: &Layout,
        _state: &mut [u64],
        _input: (&[Self::Value], Option<&NullBuffer>),
        _rows: &MaskedRows<'_>,
    ) -> Option<usize> {
        None
    }

    /// The side store of sums.
    fn new_side() -> Side {
        Side::None
    }

    /// Appends what the side store keeps of a sum; whether it keeps anything.
    fn save_sum(_sum: &[u64], _side: &Side, _out: &mut Vec<u8>) -> bool {
        false
    }

    /// Takes back a sum and what was kept of it.
    fn restore_sum(
        _sum: &mut [u64],
        _side: &mut Side,
        saved: Option<&[u8]>,
    ) -> Result<(), Damaged> {
        no_bytes(saved)
    }

    /// Whether all of a sum is in its words.
    fn sum_is_in_row(_sum: &[u64]) -> bool {
        true
    }

    /// A sum by itself, for lanes that have it.
    fn scalar_sum(_sum: &[u64], _side: &Side) -> Option<Scalar> {
        None
    }

    /// A mean by itself.
    fn scalar_mean(_sum: &[u64], _side: &Side, _count: u64) -> Option<Scalar> {
        None
    }

    /// A min or max by itself.
    fn scalar_key(_key: &[u64]) -> Option<Scalar> {
        None
    }

    /// The update for `flags`.
    fn update(flags: Flags) -> Update<Self>;

    /// The sums; `input` is the column's type.
    fn emit_sum(input: &DataType, emit: &Emit<'_>) -> Result<ArrayRef, Misfit>;
    /// The sums as Decimal128(38, 0), of integers.
    fn emit_sum_decimal(emit: &Emit<'_>) -> Result<ArrayRef, Misfit>;
    /// The means.
    fn emit_mean(input: &DataType, emit: &Emit<'_>) -> Result<ArrayRef, Misfit>;
    /// The smallest or largest values, whose words begin at `at`.
    fn emit_key(input: &DataType, emit: &Emit<'_>, at: usize) -> ArrayRef;
}

/// Where in the words of a row each part begins. Parts that are not kept take no words.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) flags: Flags,
    pub(super) values: usize,
    pub(super) sum: usize,
    pub(super) min: usize,
    pub(super) max: usize,
    pub(super) words: usize,
}

impl Layout {
    #[inline(always)]
    pub(super) const fn of<L: Lane>(flags: Flags) -> Self {
        const fn words(flags: Flags, part: Flags, words: usize) -> usize {
            if flags.has(part) { words } else { 0 }
        }
        let values = words(flags, Flags::ROWS, 1);
        let sum = values + words(flags, Flags::VALUES, 1);
        let min = sum + words(flags, Flags::SUM, L::SUM_WORDS);
        let max = min + words(flags, Flags::MIN, L::KEY_WORDS);
        let words = max + words(flags, Flags::MAX, L::KEY_WORDS);
        Self { flags, values, sum, min, max, words }
    }

    /// The word that counts values: that of rows if none is null.
    fn count(&self) -> usize {
        if self.flags.has(Flags::VALUES) { self.values } else { 0 }
    }
}

/// The rows of a batch that a kernel works on.
pub(super) struct Input<'a, V> {
    values: &'a [V],
    nulls: Option<&'a NullBuffer>,
    selection: &'a [u32],
}

/// The function that meets every row, for one set of flags.
pub(super) type Update<L> =
    fn(Flags, &mut Rows<'_>, usize, &mut Side, &Input<'_, <L as Lane>::Value>);

/// Flags that are looked at as the kernel runs, or known when it is compiled.
///
/// A type, so that the closures in a kernel are another type for each set of flags too: only then
/// does the compiler see that each has one caller, and inlines it.
trait FlagSet: Copy {
    fn get(self) -> Flags;
}

impl FlagSet for Flags {
    #[inline(always)]
    fn get(self) -> Flags {
        self
    }
}

#[derive(Clone, Copy)]
struct Fixed<const FLAGS: u8>;

impl<const FLAGS: u8> FlagSet for Fixed<FLAGS> {
    #[inline(always)]
    fn get(self) -> Flags {
        Flags(FLAGS)
    }
}

/// The update that looks at the flags as it runs.
pub(super) fn update_any<L: Lane>() -> Update<L> {
    update::<L, Flags>
}

/// The update compiled for `flags`, one for every set of flags.
pub(super) fn update_compiled<L: Lane>(flags: Flags) -> Update<L> {
    macro_rules! compiled {
        ($($bits:literal)*) => {
            match flags.0 {
                $($bits => |_, rows, offset, side, input| {
                    update::<L, Fixed<$bits>>(Fixed, rows, offset, side, input);
                },)*
                other => unreachable!("flags are five bits, not {other:b}"),
            }
        };
    }
    compiled!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31)
}

/// Adds one value (not null) to everything kept of values.
#[inline(always)]
fn step<L: Lane>(at: &Layout, state: &mut [u64], side: &mut Side, value: L::Value) {
    if at.flags.has(Flags::VALUES) {
        state[at.values] += 1;
    }
    if at.flags.has(Flags::SUM) {
        L::add(&mut state[at.sum..at.sum + L::SUM_WORDS], side, value);
    }
    if at.flags.has(Flags::MIN) {
        L::lower(&mut state[at.min..at.min + L::KEY_WORDS], value);
    }
    if at.flags.has(Flags::MAX) {
        L::raise(&mut state[at.max..at.max + L::KEY_WORDS], value);
    }
}

#[inline(always)]
fn update<L: Lane, F: FlagSet>(
    flags: F,
    rows: &mut Rows<'_>,
    offset: usize,
    side: &mut Side,
    input: &Input<'_, L::Value>,
) {
    let flags = flags.get();
    let at = Layout::of::<L>(flags);
    let Input { values, nulls, selection } = *input;
    assert_eq!(rows.len(), selection.len(), "one row for each selected row of the batch");
    match nulls {
        None => rows.for_each(offset, at.words, |k, state| {
            if flags.has(Flags::ROWS) {
                state[0] += 1;
            }
            step::<L>(&at, state, side, values[selection[k] as usize]);
        }),
        Some(nulls) => rows.for_each(offset, at.words, |k, state| {
            if flags.has(Flags::ROWS) {
                state[0] += 1;
            }
            let row = selection[k] as usize;
            if nulls.is_valid(row) {
                step::<L>(&at, state, side, values[row]);
            }
        }),
    }
}

/// Values that are reduced at a time: few enough that they stay in the nearest cache, since each part
/// kept is a loop of its own over them.
const BLOCK: usize = 512;

/// [`update_dense`] with its arguments.
struct UpdateDense<'a, L: Lane> {
    at: &'a Layout,
    state: &'a mut [u64],
    side: &'a mut Side,
    input: Input<'a, L::Value>,
}

impl<L: Lane> Kernel for UpdateDense<'_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        update_dense::<L>(self.at, self.state, self.side, &self.input);
    }
}

/// Adds all rows of `input` to one row. The flags cost nothing here: they are looked at once a block.
#[inline(always)]
fn update_dense<L: Lane>(
    at: &Layout,
    state: &mut [u64],
    side: &mut Side,
    input: &Input<'_, L::Value>,
) {
    let Input { values, nulls, selection } = *input;
    if at.flags.has(Flags::ROWS) {
        state[0] += selection.len() as u64;
    }
    let mut seen = 0;
    if let (None, Some(range)) = (nulls, contiguous(selection)) {
        seen = range.len();
        for block in values[range].chunks(BLOCK) {
            L::reduce(at, state, side, block);
        }
    } else {
        let mut block = [L::Value::default(); BLOCK];
        for rows in selection.chunks(BLOCK) {
            let filled = gather(&mut block, values, nulls, rows);
            seen += filled;
            L::reduce(at, state, side, &block[..filled]);
        }
    }
    if at.flags.has(Flags::VALUES) {
        state[at.values] += seen as u64;
    }
}

/// Copies the values of `rows` that are not null to the front of `block`, and returns how many.
#[inline(always)]
fn gather<V: Copy>(
    block: &mut [V; BLOCK],
    values: &[V],
    nulls: Option<&NullBuffer>,
    rows: &[u32],
) -> usize {
    let Some(nulls) = nulls else {
        for (value, row) in block.iter_mut().zip(rows) {
            *value = values[*row as usize];
        }
        return rows.len();
    };
    // Without a branch: a null is written too, and then written over.
    let mut filled = 0;
    for row in rows {
        block[filled] = values[*row as usize];
        filled += usize::from(nulls.is_valid(*row as usize));
    }
    filled
}

/// The range of rows that `selection` is, if it is one. Selections are strictly increasing.
fn contiguous(selection: &[u32]) -> Option<std::ops::Range<usize>> {
    let (first, last) = (*selection.first()? as usize, *selection.last()? as usize);
    debug_assert!(selection.is_sorted_by(|a, b| a < b), "a selection is strictly increasing");
    (last - first + 1 == selection.len()).then_some(first..last + 1)
}

/// [`Accumulator::update_masked`] for integers of 64 bits: answers how many values there were.
pub(super) fn reduce_masked<W: Word>(
    isa: Isa,
    at: &Layout,
    state: &mut [u64],
    (values, nulls): (&[W], Option<&NullBuffer>),
    rows: &MaskedRows<'_>,
) -> usize {
    let Some(nulls) = nulls else {
        add_reduced(isa, at, state, values, rows.mask);
        return rows.count;
    };
    let mut seen = 0;
    let chunks = nulls.inner().bit_chunks();
    let mut valid = chunks.iter_padded();
    let mut chosen = [0; MASK_BLOCK];
    let blocks = values.chunks(MASK_BLOCK * LANES);
    for (values, mask) in blocks.zip(rows.mask.chunks(MASK_BLOCK)) {
        let chosen = &mut chosen[..mask.len()];
        for (chosen, (mask, valid)) in chosen.iter_mut().zip(mask.iter().zip(&mut valid)) {
            *chosen = mask & valid;
        }
        seen += count_rows(chosen);
        add_reduced(isa, at, state, values, chosen);
    }
    seen
}

/// Adds the values of `mask` to the sum, min and max of `state`.
fn add_reduced<W: Word>(isa: Isa, at: &Layout, state: &mut [u64], values: &[W], mask: &[u64]) {
    let reduced = isa.run(MaskedReduce { values, mask });
    if at.flags.has(Flags::SUM) {
        let mut sum = wide::join(state[at.sum], state[at.sum + 1]) + reduced.sum;
        if W::FLIP != 0 {
            sum += (count_rows(mask) as i128) << 63;
        }
        [state[at.sum], state[at.sum + 1]] = wide::split(sum);
    }
    // Kept by their place in the order of values, which is what making them signed gives.
    if at.flags.has(Flags::MIN) {
        state[at.min] = state[at.min].cast_signed().min(reduced.min).cast_unsigned();
    }
    if at.flags.has(Flags::MAX) {
        state[at.max] = state[at.max].cast_signed().max(reduced.max).cast_unsigned();
    }
}

/// Words of a mask that are combined with nulls at a time.
const MASK_BLOCK: usize = 16;

/// The accumulator of one column of lane `L`.
#[derive(Debug)]
pub(super) struct Numbers<L: Lane> {
    at: Layout,
    input: DataType,
    update: Update<L>,
}

impl<L: Lane> Numbers<L> {
    /// Keeps `flags` of a column of type `input` (a dictionary's value type).
    pub(super) fn new(flags: Flags, input: DataType) -> Self {
        Self { at: Layout::of::<L>(flags), input, update: L::update(flags) }
    }

    fn input<'a>(&self, column: Option<&'a Column>, selection: &'a [u32]) -> Input<'a, L::Value> {
        let column = column.expect("numbers have a column");
        let values = L::values(&column.values).expect("a column has the lane of its type");
        let nulls = column.nulls.as_ref();
        assert!(
            nulls.is_none() || self.at.flags.has(Flags::VALUES),
            "a column that the schema calls free of nulls has none"
        );
        Input { values, nulls, selection }
    }
}

impl<L: Lane> Accumulator for Numbers<L> {
    fn words(&self) -> usize {
        self.at.words
    }

    fn init(&self, state: &mut [u64]) {
        let at = self.at;
        state.fill(0);
        if at.flags.has(Flags::MIN) {
            L::init_min(&mut state[at.min..at.min + L::KEY_WORDS]);
        }
        if at.flags.has(Flags::MAX) {
            L::init_max(&mut state[at.max..at.max + L::KEY_WORDS]);
        }
    }

    fn new_side(&self) -> Side {
        if self.at.flags.has(Flags::SUM) { L::new_side() } else { Side::None }
    }

    fn is_in_row(&self, state: Option<&[u64]>) -> bool {
        let sum = self.at.sum..self.at.min;
        state.is_none_or(|state| sum.is_empty() || L::sum_is_in_row(&state[sum]))
    }

    fn scalar(&self, part: Part, state: &[u64], side: &Side) -> Option<Scalar> {
        let at = self.at;
        let count = state[at.count()];
        match part {
            Part::Rows => return Some(Scalar::Integer(state[0].into())),
            Part::Values => return Some(Scalar::Integer(count.into())),
            _ if at.flags.has(Flags::VALUES) && count == 0 => return Some(Scalar::Null),
            _ => {}
        }
        let sum = at.sum..at.min;
        match part {
            Part::Sum | Part::SumDecimal => L::scalar_sum(&state[sum], side),
            Part::Avg => L::scalar_mean(&state[sum], side, count.max(1)),
            Part::Min => L::scalar_key(&state[at.min..at.min + L::KEY_WORDS]),
            Part::Max => L::scalar_key(&state[at.max..at.max + L::KEY_WORDS]),
            _ => None,
        }
    }

    fn update(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        side: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        let input = self.input(column, selection);
        (self.update)(self.at.flags, rows, offset, side, &input);
    }

    fn update_dense(
        &self,
        isa: Isa,
        state: &mut [u64],
        side: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        let input = self.input(column, selection);
        isa.run(UpdateDense::<L> { at: &self.at, state, side, input });
    }

    fn update_masked(
        &self,
        isa: Isa,
        state: &mut [u64],
        column: Option<&Column>,
        rows: &MaskedRows<'_>,
    ) -> bool {
        let (at, input) = (&self.at, self.input(column, &[]));
        let values = (input.values, input.nulls);
        let Some(seen) = L::reduce_masked(isa, at, state, values, rows) else { return false };
        if at.flags.has(Flags::ROWS) {
            state[0] += rows.count as u64;
        }
        if at.flags.has(Flags::VALUES) {
            state[at.values] += seen as u64;
        }
        true
    }

    fn merge(
        &self,
        into: &mut Rows<'_>,
        into_side: &mut Side,
        from: &Rows<'_>,
        from_side: &Side,
        offset: usize,
    ) {
        let at = self.at;
        assert_eq!(into.len(), from.len(), "merged row by row");
        into.for_each(offset, at.words, |k, into| {
            let from = from.state(k, offset, at.words);
            for count in 0..at.sum {
                into[count] += from[count];
            }
            if at.flags.has(Flags::SUM) {
                let sum = at.sum..at.sum + L::SUM_WORDS;
                L::merge_sum(&mut into[sum.clone()], into_side, &from[sum], from_side);
            }
            if at.flags.has(Flags::MIN) {
                let min = at.min..at.min + L::KEY_WORDS;
                L::merge_min(&mut into[min.clone()], &from[min]);
            }
            if at.flags.has(Flags::MAX) {
                let max = at.max..at.max + L::KEY_WORDS;
                L::merge_max(&mut into[max.clone()], &from[max]);
            }
        });
    }

    fn emit(
        &self,
        part: Part,
        rows: &Rows<'_>,
        offset: usize,
        side: &Side,
    ) -> Result<ArrayRef, Misfit> {
        let at = self.at;
        let states = States { rows, offset, words: at.words };
        let nulls = if at.flags.has(Flags::VALUES) {
            states.nulls(|state| state[at.values] > 0)
        } else {
            None
        };
        let emit = Emit { states, nulls, sum: at.sum, count: at.count(), side };
        match part {
            Part::Rows => Ok(states.counts(0)),
            Part::Values => Ok(states.counts(at.count())),
            Part::Sum => L::emit_sum(&self.input, &emit),
            Part::SumDecimal => L::emit_sum_decimal(&emit),
            Part::Min => Ok(L::emit_key(&self.input, &emit, at.min)),
            Part::Max => Ok(L::emit_key(&self.input, &emit, at.max)),
            Part::Avg => L::emit_mean(&self.input, &emit),
            part => unreachable!("{part:?} of numbers"),
        }
    }

    fn save(
        &self,
        rows: &Rows<'_>,
        offset: usize,
        side: &Side,
    ) -> Result<Option<LargeBinaryArray>, Unsaved> {
        if matches!(side, Side::None) {
            return Ok(None);
        }
        save_each(rows.len(), |k, out| {
            let sum = rows.state(k, offset + self.at.sum, L::SUM_WORDS);
            Ok(L::save_sum(sum, side, out))
        })
    }

    fn restore(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        side: &mut Side,
        saved: Option<&LargeBinaryArray>,
    ) -> Result<(), Damaged> {
        let at = self.at;
        restore_each(rows, (offset, at.words), saved, |state, bytes| {
            state[..at.sum].iter().try_for_each(|count| check_count(*count))?;
            if at.flags.has(Flags::SUM) {
                return L::restore_sum(&mut state[at.sum..at.sum + L::SUM_WORDS], side, bytes);
            }
            no_bytes(bytes)
        })
    }
}

/// What a lane needs to emit.
#[derive(Debug)]
pub(super) struct Emit<'a> {
    /// The words of each row.
    pub(super) states: States<'a>,
    /// Rows without a value.
    pub(super) nulls: Option<NullBuffer>,
    /// First word of the sum.
    pub(super) sum: usize,
    /// The word that counts values.
    pub(super) count: usize,
    pub(super) side: &'a Side,
}

impl<'a> Emit<'a> {
    /// One value for each row that has any, made of its sum and count.
    pub(super) fn sums<L: Lane, T: Default>(
        &self,
        value: impl Fn(&'a [u64], u64) -> Result<T, Misfit>,
    ) -> Result<Vec<T>, Misfit> {
        let (sum, count) = (self.sum, self.count);
        self.states.try_collect(self.nulls.as_ref(), |state| {
            // Without nulls every row has seen a value, but a file can say anything.
            value(&state[sum..sum + L::SUM_WORDS], state[count].max(1))
        })
    }

    /// One value for each row, made of the words of its min or max at `at`.
    pub(super) fn keys<L: Lane, T>(&self, at: usize, value: impl Fn(&'a [u64]) -> T) -> Vec<T> {
        self.states.iter().map(|state| value(&state[at..at + L::KEY_WORDS])).collect()
    }
}
