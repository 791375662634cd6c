//! The engine: producers, routers, rings, shards and their threads.

pub mod report;
pub mod sink;
pub(crate) mod wake;
pub(crate) mod timer;
pub(crate) mod ring;
pub(crate) mod grace;
pub(crate) mod board;
pub(crate) mod topology;
pub(crate) mod message;
pub(crate) mod outlet;
pub(crate) mod assign;
pub(crate) mod barrier;
pub(crate) mod restore;
pub mod latency;
pub mod metrics;
pub mod load_history;
pub(crate) mod blame;
pub(crate) mod partials;
pub(crate) mod exchange;
pub(crate) mod align;
pub(crate) mod skew_control;
pub(crate) mod split;
pub(crate) mod hot;
pub(crate) mod router;
pub(crate) mod shared;
pub(crate) mod intake;
pub mod ingest;
pub mod appender;
pub mod latest;
pub(crate) mod emit;
pub(crate) mod sessions;
pub(crate) mod windows;
pub(crate) mod shard;
pub mod source;
pub mod memory;
pub(crate) mod source_set;
pub(crate) mod affinity;
pub(crate) mod worker;
pub mod checkpointer;
pub mod reader;
pub mod engine;
pub(crate) mod rescale;
pub mod driver;
#[cfg(test)]
mod equality;
#[cfg(test)]
mod simulation;
