//! Accumulators whose state has no fixed size: one state per key in the side store, found through one
//! word of the row (its number there + 1; 0: no value seen yet).

use std::any::Any;
use std::fmt::Debug;

use arrow::array::{ArrayRef, LargeBinaryArray};
use arrow::buffer::NullBuffer;

use crate::aggregate::emit::States;
use crate::aggregate::saved::{no_bytes, restore_each, save_each};
use crate::aggregate::{Accumulator, Damaged, Misfit, Part, Side, Unsaved};
use crate::column::Column;
use crate::kernel::Isa;
use crate::state::rows::Rows;
use crate::state::spread::SpreadPart;

/// How many rows ahead memory is asked for.
const AHEAD_ROWS: usize = 16;

/// What is kept of the values of one key, and the laws it obeys: those of [`Accumulator`].
pub(super) trait Keyed: Debug + Send + Sync + 'static {
    /// State of one key; its default has seen nothing.
    type State: Default + Debug + Send + Sync + 'static;

    /// Adds rows to their keys' states.
    fn update(&self, column: &Column, groups: Groups<'_, '_, Self>);

    /// Merges `from` into `into`.
    fn merge(&self, into: &mut Self::State, from: &Self::State);

    /// The same where `from` is not used again.
    fn absorb(&self, into: &mut Self::State, from: &mut Self::State) {
        self.merge(into, from);
    }

    /// Merges `from`, the values that belong to the `bucket`-th of so many shards.
    fn adopt(&self, into: &mut Self::State, from: &mut Self::State, _bucket: (usize, usize)) {
        self.absorb(into, from);
    }

    /// See [`Accumulator::wants_spreading`].
    fn wants_spreading(&self, _state: &Self::State) -> bool {
        false
    }

    /// See [`Accumulator::spread`].
    fn spread(&self, _: &Column, _: &[u32], _: &mut [SpreadPart]) {
        unreachable!("{self:?} is not spread");
    }

    /// The results of these keys; none has seen no value.
    fn emit(&self, part: Part, states: &[Option<&Self::State>]) -> Result<ArrayRef, Misfit>;

    /// Bytes of a state outside of itself.
    fn heap_bytes(&self, state: &Self::State) -> usize;

    /// See [`Accumulator::can_save`].
    fn can_save(&self) -> Result<(), Unsaved> {
        Ok(())
    }

    /// Appends the state, of at least one row, as [`Keyed::load`] takes it back.
    fn save(&self, state: &Self::State, out: &mut Vec<u8>) -> Result<(), Unsaved>;

    /// The state that was saved as `bytes`, or one that behaves the same in all later results and merges.
    fn load(&self, bytes: &[u8]) -> Result<Self::State, Damaged>;
}

/// States of a pane, of whichever type.
pub(crate) trait StateStore: Any + Debug + Send + Sync {
    /// Bytes in use.
    fn bytes(&self) -> usize;
    /// Forgets everything.
    fn clear(&mut self);
}

/// States by number.
#[derive(Debug)]
struct Store<S> {
    states: Vec<S>,
    heap_bytes: usize,
}

impl<S: Debug + Send + Sync + 'static> StateStore for Store<S> {
    fn bytes(&self) -> usize {
        self.heap_bytes + size_of_val(self.states.as_slice())
    }

    fn clear(&mut self) {
        self.states.clear();
        self.heap_bytes = 0;
    }
}

impl<S: Default> Store<S> {
    /// The state that `word` refers to, made if there is none.
    #[inline]
    fn state(&mut self, word: &mut u64) -> &mut S {
        if *word == 0 {
            self.states.push(S::default());
            *word = self.states.len() as u64;
        }
        &mut self.states[index(*word)]
    }
}

#[inline(always)]
fn index(word: u64) -> usize {
    usize::try_from(word - 1).expect("an index that fitted before")
}

fn store<S: 'static>(side: &Side) -> &Store<S> {
    let Side::Keyed(store) = side else { unreachable!("`new_side` makes a store") };
    let store: &dyn Any = &**store;
    store.downcast_ref().expect("of the accumulator's own type")
}

fn store_mut<S: 'static>(side: &mut Side) -> &mut Store<S> {
    let Side::Keyed(store) = side else { unreachable!("`new_side` makes a store") };
    let store: &mut dyn Any = &mut **store;
    store.downcast_mut().expect("of the accumulator's own type")
}

/// The rows to be added and the states they belong to.
pub(super) struct Groups<'a, 'r, K: Keyed + ?Sized> {
    keyed: &'a K,
    store: &'a mut Store<K::State>,
    into: Into<'a, 'r>,
    selection: &'a [u32],
}

enum Into<'a, 'r> {
    /// The `k`-th selected row belongs to the `k`-th of these.
    Rows { rows: &'a mut Rows<'r>, offset: usize },
    /// All belong to one.
    One(&'a mut u64),
}

impl<K: Keyed + ?Sized> Groups<'_, '_, K> {
    /// Calls `add(state, row)` for every selected row that is valid.
    #[inline(always)]
    pub(super) fn for_each(
        self,
        nulls: Option<&NullBuffer>,
        add: impl FnMut(&mut K::State, usize),
    ) {
        self.for_each_ahead(nulls, |_, _| {}, add);
    }

    /// The same; in runs of one key `ahead(state, row)` is called some rows before `add(state, row)`.
    #[inline(always)]
    pub(super) fn for_each_ahead(
        self,
        nulls: Option<&NullBuffer>,
        ahead: impl Fn(&K::State, usize),
        mut add: impl FnMut(&mut K::State, usize),
    ) {
        let Self { keyed, store, into, selection } = self;
        let valid = |row: usize| nulls.is_none_or(|nulls| nulls.is_valid(row));
        match into {
            Into::Rows { rows, offset } => rows.for_each(offset, 1, |k, word| {
                let row = selection[k] as usize;
                if valid(row) {
                    let state = store.state(&mut word[0]);
                    let before = keyed.heap_bytes(state);
                    add(state, row);
                    let after = keyed.heap_bytes(state);
                    store.heap_bytes = (store.heap_bytes + after).wrapping_sub(before);
                }
            }),
            Into::One(word) => {
                if *word == 0 && !selection.iter().any(|row| valid(*row as usize)) {
                    return;
                }
                let state = store.state(word);
                let before = keyed.heap_bytes(state);
                for (k, row) in selection.iter().enumerate() {
                    if let Some(next) = selection.get(k + AHEAD_ROWS) {
                        ahead(state, *next as usize);
                    }
                    let row = *row as usize;
                    if valid(row) {
                        add(state, row);
                    }
                }
                let after = keyed.heap_bytes(state);
                store.heap_bytes = (store.heap_bytes + after).wrapping_sub(before);
            }
        }
    }
}

/// The accumulator of a [`Keyed`].
#[derive(Debug)]
pub(super) struct PerKey<K>(pub(super) K);

impl<K: Keyed> PerKey<K> {
    /// Calls `join` with the state of each row of `into` and the number of that of `from`, where there is
    /// one.
    fn each_pair(
        &self,
        into: &mut Rows<'_>,
        into_side: &mut Side,
        from: &Rows<'_>,
        offset: usize,
        mut join: impl FnMut(&mut K::State, usize),
    ) {
        assert_eq!(into.len(), from.len(), "merged row by row");
        let into_store = store_mut::<K::State>(into_side);
        into.for_each(offset, 1, |k, word| {
            let from_word = from.state(k, offset, 1)[0];
            if from_word == 0 {
                return;
            }
            let state = into_store.state(&mut word[0]);
            let before = self.0.heap_bytes(state);
            join(state, index(from_word));
            let after = self.0.heap_bytes(state);
            into_store.heap_bytes = (into_store.heap_bytes + after).wrapping_sub(before);
        });
    }
}

impl<K: Keyed> Accumulator for PerKey<K> {
    fn words(&self) -> usize {
        1
    }

    fn init(&self, state: &mut [u64]) {
        state[0] = 0;
    }

    fn new_side(&self) -> Side {
        Side::Keyed(Box::new(Store::<K::State> { states: Vec::new(), heap_bytes: 0 }))
    }

    fn update(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        side: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        assert_eq!(rows.len(), selection.len(), "one row for each selected row of the batch");
        let (store, into) = (store_mut(side), Into::Rows { rows, offset });
        let column = column.expect("there is a column");
        self.0.update(column, Groups { keyed: &self.0, store, into, selection });
    }

    fn update_dense(
        &self,
        _: Isa,
        state: &mut [u64],
        side: &mut Side,
        column: Option<&Column>,
        selection: &[u32],
    ) {
        let (store, into) = (store_mut(side), Into::One(&mut state[0]));
        let column = column.expect("there is a column");
        self.0.update(column, Groups { keyed: &self.0, store, into, selection });
    }

    fn merge(
        &self,
        into: &mut Rows<'_>,
        into_side: &mut Side,
        from: &Rows<'_>,
        from_side: &Side,
        offset: usize,
    ) {
        let from_states = &store::<K::State>(from_side).states;
        self.each_pair(into, into_side, from, offset, |state, from| {
            self.0.merge(state, &from_states[from]);
        });
    }

    fn absorb(
        &self,
        into: &mut Rows<'_>,
        into_side: &mut Side,
        from: &Rows<'_>,
        from_side: &mut Side,
        offset: usize,
    ) {
        let from_states = &mut store_mut::<K::State>(from_side).states;
        self.each_pair(into, into_side, from, offset, |state, from| {
            self.0.absorb(state, &mut from_states[from]);
        });
    }

    fn wants_spreading(&self, state: &[u64], side: &Side) -> bool {
        state[0] != 0 && self.0.wants_spreading(&store(side).states[index(state[0])])
    }

    fn spread(&self, column: Option<&Column>, selection: &[u32], parts: &mut [SpreadPart]) {
        self.0.spread(column.expect("there is a column"), selection, parts);
    }

    fn adopt(
        &self,
        (into, into_side): (&mut Rows<'_>, &mut Side),
        (from, from_side): (&Rows<'_>, &mut Side),
        offset: usize,
        bucket: (usize, usize),
    ) {
        let from_states = &mut store_mut::<K::State>(from_side).states;
        self.each_pair(into, into_side, from, offset, |state, from| {
            self.0.adopt(state, &mut from_states[from], bucket);
        });
    }

    fn emit(
        &self,
        part: Part,
        rows: &Rows<'_>,
        offset: usize,
        side: &Side,
    ) -> Result<ArrayRef, Misfit> {
        let store = store::<K::State>(side);
        let states = States { rows, offset, words: 1 };
        let states: Vec<Option<&K::State>> = states
            .iter()
            .map(|word| (word[0] != 0).then(|| &store.states[index(word[0])]))
            .collect();
        self.0.emit(part, &states)
    }

    fn can_save(&self) -> Result<(), Unsaved> {
        self.0.can_save()
    }

    fn save(
        &self,
        rows: &Rows<'_>,
        offset: usize,
        side: &Side,
    ) -> Result<Option<LargeBinaryArray>, Unsaved> {
        let store = store::<K::State>(side);
        save_each(rows.len(), |k, out| {
            let word = rows.state(k, offset, 1)[0];
            if word != 0 {
                self.0.save(&store.states[index(word)], out)?;
            }
            Ok(word != 0)
        })
    }

    fn restore(
        &self,
        rows: &mut Rows<'_>,
        offset: usize,
        side: &mut Side,
        saved: Option<&LargeBinaryArray>,
    ) -> Result<(), Damaged> {
        let store = store_mut::<K::State>(side);
        restore_each(rows, (offset, 1), saved, |word, bytes| {
            if word[0] == 0 {
                return no_bytes(bytes);
            }
            let bytes = bytes.ok_or_else(|| Damaged::new("the state of a row", "none"))?;
            let state = self.0.load(bytes)?;
            store.heap_bytes += self.0.heap_bytes(&state);
            store.states.push(state);
            word[0] = store.states.len() as u64;
            Ok(())
        })
    }
}
