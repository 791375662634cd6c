//! Skew: which keys are hot, what to do about them, and how uneven the load is.
//!
//! Pure logic: no threads, no clock, no Arrow types. The path of a decision is
//! [`sample`] (which rows are looked at) -> [`sketch`] (counts per ingest, bounded memory) ->
//! [`estimate`] (shares with bounds, all ingests together) -> [`policy`] (promote, demote, salts) ->
//! [`hot_set`] (what the router looks up); [`learner`] walks it. [`ledger`] proves that every partial aggregate is
//! merged exactly once, and [`imbalance`] puts the load of shards into numbers and words.
//!
//! **Invariant:** nothing here changes a result. Hot sets decide where a row is reduced, never
//! whether or how it counts; a wrong estimate costs time only.
//!
//! **Not here:** key bytes. A key is its 64-bit hash plus a word of the caller's choice; the caller
//! compares whole keys where that matters.

pub mod sample;
pub mod sketch;
pub mod estimate;
pub mod hot_set;
pub mod decision;
pub mod policy;
pub mod learner;
pub mod ledger;
pub mod imbalance;
