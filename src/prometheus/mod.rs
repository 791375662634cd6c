//! Metrics for Prometheus: a running engine's numbers as text, and a small server to scrape them from.
//!
//! Names follow the conventions of Prometheus: base units, `_total` for counters. There is no series per key, and
//! none per window: their number depends on shards and inputs only.
//!
//! ```
//! # use std::sync::Arc;
//! # use saltmill::arrow::array::Int64Array;
//! # use saltmill::arrow::record_batch::RecordBatch;
//! # use saltmill::{Aggregate, Collected, Engine, Job};
//! use saltmill::prometheus::Exposition;
//!
//! # let key = Arc::new(Int64Array::from(vec![1, 2, 1]));
//! # let batch = RecordBatch::try_from_iter([("user", key as _)])?;
//! # let job = Job::builder(batch.schema()).key(["user"]).aggregate(Aggregate::count()).build()?;
//! let engine = Engine::start(job, Collected::new())?;
//! let mut exposition = Exposition::new(engine.metrics_reader());
//! engine.ingest()?.push(batch)?;
//! assert!(exposition.text().contains("saltmill_rows_total 3\n"));
//! engine.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod families;
mod server;

pub use families::Exposition;
pub use server::MetricsServer;
