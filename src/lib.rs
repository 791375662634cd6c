//! Saltmill aggregates keyed streams on one machine and makes key skew harmless: it finds hot keys while
//! the stream runs, aggregates just those where their rows already are and merges the partials, and the
//! results never change by a bit.
//!
//! A [`Job`] says what is to be computed over Arrow batches of a schema; an
//! [`Engine`] runs it on pinned shards; producers feed it through
//! [`Ingest`] handles; results arrive at a [`Sink`].
//!
//! ```
//! use std::sync::Arc;
//! use saltmill::arrow::array::{Int64Array, StringArray};
//! use saltmill::arrow::record_batch::RecordBatch;
//! use saltmill::{Aggregate, Collected, Engine, Job};
//!
//! let batch = RecordBatch::try_from_iter([
//!     ("user", Arc::new(StringArray::from(vec!["ann", "bob", "ann"])) as _),
//!     ("amount", Arc::new(Int64Array::from(vec![5, 7, 1])) as _),
//! ])?;
//! let job = Job::builder(batch.schema())
//!     .key(["user"])
//!     .aggregates([Aggregate::count(), Aggregate::sum("amount")])
//!     .build()?;
//! let results = Collected::new();
//! let engine = Engine::start(job, results.clone())?;
//! engine.ingest()?.push(batch)?;
//! let report = engine.finish()?;
//! assert_eq!((report.rows_in, report.rows_out), (3, 2));
//! # let rows: usize = results.take().iter().map(RecordBatch::num_rows).sum();
//! # assert_eq!(rows, 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Rows come one at a time through an [`Appender`], with any number of threads or tasks, or as batches; the
//! [guide] says what to choose. `examples/` has a program for each of: hot keys, sliding windows, sources and
//! aggregates of one's own, keyed state with timers, async producers, a loop without threads, an HTTP service.
//!
//! The modules stand in the order in which they build on each other.

pub mod error;
pub(crate) mod sys;
pub mod kernel;
pub mod key;
pub(crate) mod column;
pub(crate) mod state;
pub mod aggregate;
pub mod time;
pub mod skew;
pub mod append;
pub mod process;
pub mod config;
pub(crate) mod spill;
pub mod checkpoint;
pub mod runtime;
pub mod guide;
pub mod diagnose;
#[cfg(feature = "metrics")]
pub mod prometheus;
#[cfg(feature = "bench-internals")]
#[doc(hidden)]
pub mod internals;
#[cfg(feature = "io")]
pub mod io;
#[cfg(feature = "cli")]
#[doc(hidden)]
pub mod cli;

/// Ways for the fuzzer to reach what is private.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    /// Steps of a pane's table, chosen by `data`, against a model.
    pub fn table(data: &[u8]) {
        crate::state::table::model::run_bytes(data);
    }
}

/// The README's example is a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct ReadmeDoctests;

pub use arrow;

pub use aggregate::spec::Aggregate;
pub use checkpoint::{Checkpoint, CheckpointDir};
pub use config::{Job, JobBuilder, Pinning};
pub use error::{CheckpointError, ConfigError, RunError};
pub use runtime::appender::{AppendError, Appender, TryAppendError};
pub use runtime::checkpointer::Checkpoints;
pub use runtime::driver::Driver;
pub use runtime::engine::{Engine, EngineBuilder, MetricsReader};
pub use runtime::ingest::{Ingest, TryPushError};
pub use runtime::latest::Latest;
pub use runtime::metrics::Metrics;
pub use runtime::reader::{ReadError, Reader};
pub use runtime::report::RunReport;
pub use runtime::sink::{Callback, Collected, Receiver, Sink, WhenFull, channel, channel_with};
pub use time::window::Window;
