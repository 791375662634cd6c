//! Aggregates that an embedder adds.
//!
//! A [`CustomAggregate`] keeps one state per key and window. The engine updates states where rows are read,
//! merges the partial ones of hot keys, and asks for results when a window closes. That results do not
//! depend on which rows went where is up to the aggregate, by the *merge law*:
//!
//! - the default state has seen nothing, and merging it changes nothing;
//! - the order of updates does not matter;
//! - rows may be split in any way over several states, and these merged in any order and grouping, and the
//!   result is the same to the bit.
//!
//! Counts, integer sums, minima, maxima, sets and maps of these obey it; sums of floats do not, since
//! their rounding depends on the order (sum integers, or keep the values and sort them at the end).
//! [`testkit::check`](super::testkit::check) tries it on random splits and merges.
//!
//! For jobs with checkpoints or savepoints an aggregate says how its states are written and read, too:
//! [`CustomAggregate::save`] and [`CustomAggregate::load`], which the test kit also tries.
//!
//! ```
//! use std::sync::Arc;
//! use saltmill::aggregate::{CustomAggregate, GroupedRows};
//! use saltmill::arrow::array::{Array, ArrayRef, AsArray, Int64Array};
//! use saltmill::arrow::datatypes::{DataType, Field, Int64Type};
//!
//! /// The distance from the smallest to the largest value.
//! #[derive(Debug)]
//! struct Span;
//!
//! impl CustomAggregate for Span {
//!     type State = Option<(i64, i64)>;
//!
//!     fn name(&self) -> &str {
//!         "span"
//!     }
//!
//!     fn result_type(&self, arguments: &[&Field]) -> Result<DataType, String> {
//!         match arguments {
//!             [one] if *one.data_type() == DataType::Int64 => Ok(DataType::Int64),
//!             _ => Err("it takes one column of type Int64".to_owned()),
//!         }
//!     }
//!
//!     fn update(&self, arguments: &[ArrayRef], rows: GroupedRows<'_, '_, Self>) {
//!         let values = arguments[0].as_primitive::<Int64Type>();
//!         rows.for_each(|state, row| {
//!             if values.is_valid(row) {
//!                 let value = values.value(row);
//!                 let (low, high) = state.unwrap_or((value, value));
//!                 *state = Some((low.min(value), high.max(value)));
//!             }
//!         });
//!     }
//!
//!     fn merge(&self, into: &mut Self::State, from: &Self::State) {
//!         *into = match (*into, *from) {
//!             (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
//!             (a, b) => a.or(b),
//!         };
//!     }
//!
//!     fn emit(&self, states: &[&Self::State]) -> ArrayRef {
//!         let spans = states.iter().map(|state| state.map(|(low, high)| high.abs_diff(low) as i64));
//!         Arc::new(spans.collect::<Int64Array>())
//!     }
//! }
//!
//! # use saltmill::{Aggregate, arrow::record_batch::RecordBatch};
//! let values: ArrayRef = Arc::new(Int64Array::from(vec![Some(3), None, Some(8), Some(5)]));
//! let batch = RecordBatch::try_from_iter([("v", values)]).unwrap();
//! let span = Aggregate::custom(Span, ["v"]);
//! saltmill::aggregate::testkit::check(&span, &batch, 100).unwrap();
//! ```

use std::cell::Cell;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use arrow::array::ArrayRef;
use arrow::datatypes::{DataType, Field};

use crate::aggregate::keyed::{Groups, Keyed, PerKey};
use crate::aggregate::{Accumulator, Damaged, Misfit, Part, Unsaved};
use crate::column::{Column, Lane};

/// An aggregate of an embedder's own. See the [module](self) for the law it has to obey.
pub trait CustomAggregate: Debug + Send + Sync + Sized + 'static {
    /// What is kept per key and window. The default has seen nothing.
    type State: Default + Debug + Send + Sync + 'static;

    /// The name, for messages and for the result if it is given none.
    fn name(&self) -> &str;

    /// The type of the result over columns like these, or what is wrong with them.
    fn result_type(&self, arguments: &[&Field]) -> Result<DataType, String>;

    /// Adds rows of a batch. `arguments` are its columns, in the order asked for; rows where one is null
    /// come too. Called once for many rows: look at types here, not in [`GroupedRows::for_each`].
    fn update(&self, arguments: &[ArrayRef], rows: GroupedRows<'_, '_, Self>);

    /// Adds what `from` has seen to `into`.
    fn merge(&self, into: &mut Self::State, from: &Self::State);

    /// The results of these states, one each, in the type that [`CustomAggregate::result_type`] named. Pure: it
    /// may be called early and twice.
    fn emit(&self, states: &[&Self::State]) -> ArrayRef;

    /// Bytes of a state that lie outside of it, for the report.
    fn heap_bytes(&self, _state: &Self::State) -> usize {
        0
    }

    /// Appends `state` to `out`, for checkpoints, savepoints and limits of memory, in a form that
    /// [`CustomAggregate::load`] takes back. Write numbers in one byte order, and sets and maps in one order, so that
    /// equal states have equal bytes. A job that is to be saved asks this of the default state before it starts.
    ///
    /// ```
    /// # use saltmill::aggregate::{CustomAggregate, GroupedRows};
    /// # use saltmill::arrow::{array::ArrayRef, datatypes::{DataType, Field}};
    /// # #[derive(Debug)]
    /// # struct Span;
    /// impl CustomAggregate for Span {
    ///     type State = Option<(i64, i64)>;
    ///
    ///     fn save(&self, state: &Self::State, out: &mut Vec<u8>) -> Result<(), String> {
    ///         if let Some((low, high)) = state {
    ///             out.extend_from_slice(&low.to_le_bytes());
    ///             out.extend_from_slice(&high.to_le_bytes());
    ///         }
    ///         Ok(())
    ///     }
    ///
    ///     fn load(&self, bytes: &[u8]) -> Result<Self::State, String> {
    ///         match bytes.as_chunks() {
    ///             ([], []) => Ok(None),
    ///             ([low, high], []) => Ok(Some((i64::from_le_bytes(*low), i64::from_le_bytes(*high)))),
    ///             _ => Err(format!("a span takes 0 or 16 bytes, not {}", bytes.len())),
    ///         }
    ///     }
    ///     // ... and the others as above.
    /// #   fn name(&self) -> &str { "span" }
    /// #   fn result_type(&self, _: &[&Field]) -> Result<DataType, String> { Ok(DataType::Int64) }
    /// #   fn update(&self, _: &[ArrayRef], _: GroupedRows<'_, '_, Self>) {}
    /// #   fn merge(&self, _: &mut Self::State, _: &Self::State) {}
    /// #   fn emit(&self, _: &[&Self::State]) -> ArrayRef { unreachable!() }
    /// }
    /// # let mut bytes = Vec::new();
    /// # Span.save(&Some((-3, 8)), &mut bytes).unwrap();
    /// # assert_eq!(Span.load(&bytes), Ok(Some((-3, 8))));
    /// # assert!(Span.load(&bytes[1..]).is_err());
    /// ```
    ///
    /// # Errors
    /// Why the state cannot be saved. By default none can be.
    fn save(&self, _state: &Self::State, _out: &mut Vec<u8>) -> Result<(), String> {
        Err(not_saved(self.name()))
    }

    /// The state that was saved as `bytes`: the same in all later results and merges.
    ///
    /// # Errors
    /// What is wrong with bytes that [`CustomAggregate::save`] did not write, as a damaged file may hold; no bytes
    /// may make it panic.
    fn load(&self, _bytes: &[u8]) -> Result<Self::State, String> {
        Err(not_saved(self.name()))
    }
}

fn not_saved(name: &str) -> String {
    format!(
        "aggregate {name} does not implement save and load, so checkpoints and savepoints of jobs with it are \
         not possible; implement both"
    )
}

/// The rows that a [`CustomAggregate`] is to add, each with the state it belongs to.
pub struct GroupedRows<'a, 'r, A: CustomAggregate>(Groups<'a, 'r, Typed<A>>);

impl<A: CustomAggregate> Debug for GroupedRows<'_, '_, A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GroupedRows")
    }
}

impl<A: CustomAggregate> GroupedRows<'_, '_, A> {
    /// Calls `add(state, row)` for every row to be added.
    #[inline]
    pub fn for_each(self, mut add: impl FnMut(&mut A::State, usize)) {
        let mut at = At(usize::MAX);
        self.0.for_each(None, |state, row| {
            at.0 = row;
            add(state, row);
        });
    }
}

thread_local! {
    /// The row whose update panicked on this thread.
    static PANICKED_ROW: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The row that is being added, so that a panic's error can name its key.
struct At(usize);

impl Drop for At {
    fn drop(&mut self) {
        if std::thread::panicking() && self.0 != usize::MAX {
            PANICKED_ROW.set(Some(self.0));
        }
    }
}

/// The row of the batch at which an update on this thread panicked, once.
pub(crate) fn take_panicked_row() -> Option<usize> {
    PANICKED_ROW.take()
}

/// An aggregate whose state's type is known.
#[derive(Debug)]
struct Typed<A>(Arc<A>);

impl<A: CustomAggregate> Keyed for Typed<A> {
    type State = A::State;

    fn update(&self, column: &Column, groups: Groups<'_, '_, Self>) {
        let Lane::Arrays(arrays) = &column.values else { unreachable!("the plan asks for arrays") };
        self.0.update(arrays, GroupedRows(groups));
    }

    fn merge(&self, into: &mut A::State, from: &A::State) {
        self.0.merge(into, from);
    }

    fn emit(&self, part: Part, states: &[Option<&A::State>]) -> Result<ArrayRef, Misfit> {
        assert_eq!(part, Part::Custom, "of an aggregate that is not ours");
        let nothing = A::State::default();
        let states: Vec<&A::State> = states.iter().map(|state| state.unwrap_or(&nothing)).collect();
        Ok(self.0.emit(&states))
    }

    fn heap_bytes(&self, state: &A::State) -> usize {
        self.0.heap_bytes(state)
    }

    fn can_save(&self) -> Result<(), Unsaved> {
        self.save(&A::State::default(), &mut Vec::new())
    }

    fn save(&self, state: &A::State, out: &mut Vec<u8>) -> Result<(), Unsaved> {
        self.0.save(state, out).map_err(Unsaved)
    }

    fn load(&self, bytes: &[u8]) -> Result<A::State, Damaged> {
        self.0.load(bytes).map_err(|why| {
            Damaged::new(format!("a state of {}", self.0.name()), format!("other bytes: {why}"))
        })
    }
}

/// A [`CustomAggregate`] of whichever type.
trait Erased: Debug + Send + Sync {
    fn name(&self) -> &str;
    fn result_type(&self, arguments: &[&Field]) -> Result<DataType, String>;
    fn accumulator(&self) -> Box<dyn Accumulator>;
}

impl<A: CustomAggregate> Erased for Typed<A> {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn result_type(&self, arguments: &[&Field]) -> Result<DataType, String> {
        self.0.result_type(arguments)
    }

    fn accumulator(&self) -> Box<dyn Accumulator> {
        Box::new(PerKey(Self(Arc::clone(&self.0))))
    }
}

/// A [`CustomAggregate`] as part of an [`Aggregate`](super::Aggregate). Equal to its clones only.
#[derive(Debug, Clone)]
pub struct Custom(Arc<dyn Erased>);

impl Custom {
    pub(crate) fn new(aggregate: impl CustomAggregate) -> Self {
        Self(Arc::new(Typed(Arc::new(aggregate))))
    }

    /// The aggregate's name.
    pub fn name(&self) -> &str {
        self.0.name()
    }

    pub(crate) fn result_type(&self, arguments: &[&Field]) -> Result<DataType, String> {
        self.0.result_type(arguments)
    }

    pub(crate) fn accumulator(&self) -> Box<dyn Accumulator> {
        self.0.accumulator()
    }

    fn address(&self) -> *const () {
        Arc::as_ptr(&self.0).cast()
    }
}

impl PartialEq for Custom {
    fn eq(&self, other: &Self) -> bool {
        self.address() == other.address()
    }
}

impl Eq for Custom {}

impl Hash for Custom {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.address().hash(state);
    }
}
