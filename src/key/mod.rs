//! Keys: their canonical form, their frozen hash, and the key groups that follow from it.
//!
//! **Invariant:** a key's group is a pure function of the key's canonical form and the job's
//! `max_parallelism`, the same in every process and release. State is moved and restored by key
//! group, so this function never changes silently: golden values pin it.

pub(crate) mod hash;
pub(crate) mod batch;
mod types;
mod decode;
pub(crate) mod encode;
pub mod group;
pub mod flink;
