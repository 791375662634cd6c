//! Tables of open windows.

use std::collections::VecDeque;

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;
use rustc_hash::FxBuildHasher;
use timely::dataflow::operators::Capability;

/// Length of a window in milliseconds.
pub(crate) const WINDOW_MS: i64 = 5_000;
/// Results handed on together.
const RESULTS: usize = 8192;

/// Count, sum, least, largest value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) count: i64,
    pub(crate) sum: i64,
    pub(crate) min: i64,
    pub(crate) max: i64,
}

impl State {
    #[inline(always)]
    fn new(value: i64) -> Self {
        Self { count: 1, sum: value, min: value, max: value }
    }

    #[inline(always)]
    fn add(&mut self, value: i64) {
        self.count += 1;
        self.sum += value;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
    }
}

/// One result: window, key, aggregates.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) window: i64,
    pub(crate) key: i64,
    pub(crate) state: State,
}

type Table = HashMap<i64, State, FxBuildHasher>;

/// A window that may still get rows, with the right to emit at its end.
struct Open {
    table: Table,
    right: Option<Capability<u64>>,
}

/// Open windows of one worker, from `first` on without gaps. Tables are used again.
#[derive(Default)]
pub(crate) struct Windows {
    first: Option<i64>,
    open: VecDeque<Open>,
    spare: Vec<Table>,
}

impl Windows {
    /// Aggregates rows. `right` gives a capability for the message they came with.
    pub(crate) fn update(&mut self, columns: [&[i64]; 3], right: &dyn Fn() -> Capability<u64>) {
        let [keys, values, times] = columns;
        let mut done = 0;
        // One look for the table per run of rows of one window.
        while done < times.len() {
            let window = times[done].div_euclid(WINDOW_MS);
            let (from, to) = (window * WINDOW_MS, (window + 1) * WINDOW_MS);
            let run = times[done..].iter().take_while(|time| (from..to).contains(*time)).count();
            let table = self.table(window, right);
            let rows = keys[done..done + run].iter().zip(&values[done..done + run]);
            for (&key, &value) in rows {
                match table.entry(key) {
                    Entry::Occupied(mut state) => state.get_mut().add(value),
                    Entry::Vacant(place) => {
                        place.insert(State::new(value));
                    }
                }
            }
            done += run;
        }
    }

    fn table(&mut self, window: i64, right: &dyn Fn() -> Capability<u64>) -> &mut Table {
        let first = *self.first.get_or_insert(window);
        for _ in window..first {
            // Out of order at the very beginning.
            self.open.push_front(Open { table: self.spare.pop().unwrap_or_default(), right: None });
        }
        let first = first.min(window);
        self.first = Some(first);
        let at = usize::try_from(window - first).expect("not before the first");
        while self.open.len() <= at {
            self.open.push_back(Open { table: self.spare.pop().unwrap_or_default(), right: None });
        }
        let open = &mut self.open[at];
        if open.right.is_none() {
            let end = ((window + 1) * WINDOW_MS).cast_unsigned();
            open.right = Some(right().delayed(&end));
        }
        &mut open.table
    }

    /// Emits the windows that end at or before `frontier`, or all if there is none any more.
    pub(crate) fn close(
        &mut self,
        frontier: Option<u64>,
        emit: &mut dyn FnMut(&Capability<u64>, &mut Vec<Row>),
    ) {
        while let (Some(first), Some(_)) = (self.first, self.open.front()) {
            let end = ((first + 1) * WINDOW_MS).cast_unsigned();
            if frontier.is_some_and(|frontier| frontier < end) {
                return;
            }
            let Open { mut table, right } = self.open.pop_front().expect("looked at just above");
            self.first = Some(first + 1);
            if let Some(right) = right {
                let mut rows = Vec::with_capacity(RESULTS.min(table.len()));
                for (key, state) in table.drain() {
                    rows.push(Row { window: first, key, state });
                    if rows.len() == RESULTS {
                        emit(&right, &mut rows);
                        rows = Vec::with_capacity(RESULTS);
                    }
                }
                if !rows.is_empty() {
                    emit(&right, &mut rows);
                }
            }
            self.spare.push(table);
        }
    }
}
