//! User code with keyed state and timers: what an aggregate cannot say.
//!
//! A [`KeyedProcess`] takes the place of aggregates in a job
//! ([`JobBuilder::process`](crate::JobBuilder::process)). All rows of a key come to the one shard that owns it, in the
//! order of their input, with the key's state; it may set timers and give rows of its own. Where
//! an aggregate can say it, prefer an aggregate: **a process is never salted**, since its state has one writer
//! by its nature, and so a hot key is as fast as one shard. The job's skew mode is `Off`.
//!
//! State is a plain value of Rust that implements [`Codec`]: a field is value state, a `Vec` is list state, a
//! `BTreeMap` is map state. [`keyed_state!`](crate::keyed_state) implements it for a struct. State and timers are in
//! checkpoints, by key group, and a run may go on from one with any number of shards.
//!
//! Event-time timers fire, in order, when the watermark reaches them: when all inputs have passed that time. Rows
//! are given as they come, so rows beyond a timer's time, those of the same batch among them, may be given before
//! it fires: compare times in `on_rows` where that matters. At the end of the run timers up to the largest
//! watermark of any input fire as before; those that are left then fire once. Processing-time timers fire by the
//! clock, in milliseconds since 1970-01-01, and are dropped at the end of the run. Rows are never dropped as
//! late: compare their time with [`Context::watermark`].
//!
//! ```
//! use std::sync::Arc;
//! use saltmill::arrow::array::AsArray;
//! use saltmill::arrow::datatypes::{DataType, Field, Int64Type, Schema};
//! use saltmill::process::{Context, Key, KeyRows, KeyedProcess, ProcessError};
//! use saltmill::{Collected, Engine, Job};
//!
//! /// Gives a row for every value that is larger than all before it of its key.
//! #[derive(Debug)]
//! struct Records;
//!
//! impl KeyedProcess for Records {
//!     type State = Option<i64>;
//!
//!     fn output(&self) -> Vec<Field> {
//!         vec![Field::new("record", DataType::Int64, false)]
//!     }
//!
//!     fn on_rows(
//!         &self,
//!         _: &Key<'_>,
//!         rows: &KeyRows<'_>,
//!         state: &mut Option<i64>,
//!         ctx: &mut Context<'_>,
//!     ) -> Result<(), ProcessError> {
//!         let values = rows.column("value").as_primitive::<Int64Type>();
//!         for row in rows.rows() {
//!             let value = values.value(row);
//!             if state.is_none_or(|record| value > record) {
//!                 *state = Some(value);
//!                 ctx.emit((value,))?;
//!             }
//!         }
//!         Ok(())
//!     }
//! }
//!
//! # let schema = Schema::new(vec![
//! #     Field::new("user", DataType::Utf8, false),
//! #     Field::new("value", DataType::Int64, false),
//! # ]);
//! let job = Job::builder(Arc::new(schema)).key(["user"]).process(Records).build()?;
//! let results = Collected::new();
//! let engine = Engine::start(job, results.clone())?;
//! let mut appender = engine.ingest()?.appender()?;
//! for row in [("ann", 3), ("bob", 2), ("ann", 1), ("ann", 5)] {
//!     appender.append(row)?;
//! }
//! appender.close()?;
//! assert_eq!(engine.finish()?.rows_out, 3);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod codec;
pub(crate) mod keyed;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Debug;

use arrow::array::ArrayRef;
use arrow::datatypes::Field;
use arrow::record_batch::RecordBatch;

pub use codec::{Codec, CodecError};
pub use keyed::{Context, Key};

/// State of one value of a key.
pub type ValueState<T> = Option<T>;
/// State of a list of values of a key.
pub type ListState<T> = Vec<T>;
/// State of values by a key of their own within the key, in its order.
pub type MapState<K, V> = BTreeMap<K, V>;

/// Why a process gives up; ends the run, with the key named.
pub type ProcessError = Box<dyn Error + Send + Sync>;

/// User code with state per key. See the [module](self).
///
/// One value serves all shards, so it is shared; what belongs to a key goes into its state.
pub trait KeyedProcess: Debug + Send + Sync + 'static {
    /// What is kept per key. The default is that of a key never seen.
    type State: Default + Codec + Debug + Send + 'static;

    /// The columns that [`Context::emit`] takes. Results have the key columns before them.
    fn output(&self) -> Vec<Field>;

    /// Rows of one key, in the order of their input.
    fn on_rows(
        &self,
        key: &Key<'_>,
        rows: &KeyRows<'_>,
        state: &mut Self::State,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError>;

    /// A timer of the key is due.
    fn on_timer(
        &self,
        key: &Key<'_>,
        timer: Timer,
        state: &mut Self::State,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        let _ = (key, timer, state, ctx);
        Ok(())
    }
}

/// Which clock a timer goes by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum TimeDomain {
    /// The watermark, in the unit of the event-time column.
    Event,
    /// The system's clock, in milliseconds since 1970-01-01 00:00 UTC.
    Processing,
}

/// A timer that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timer {
    /// The time it was set to.
    pub time: i64,
    /// The clock it goes by.
    pub domain: TimeDomain,
}

/// The rows of one key in a batch.
#[derive(Debug)]
pub struct KeyRows<'a> {
    batch: &'a RecordBatch,
    rows: &'a [(u32, u32)],
}

impl<'a> KeyRows<'a> {
    /// The batch they are in, with rows of other keys too.
    pub fn batch(&self) -> &'a RecordBatch {
        self.batch
    }

    /// A column of the batch.
    ///
    /// # Panics
    /// If the job's schema has no column of this name.
    pub fn column(&self, name: &str) -> &'a ArrayRef {
        let column = self.batch.column_by_name(name);
        column.unwrap_or_else(|| panic!("the job's schema has no column \"{name}\""))
    }

    /// Their numbers in the batch, ascending.
    pub fn rows(&self) -> impl ExactSizeIterator<Item = usize> + use<'a> {
        self.rows.iter().map(|(_, row)| *row as usize)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Never: a key is only told of rows that it has.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }
}
