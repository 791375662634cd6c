//! Threads.
pub mod source;
