//! Saltmill.
#![allow(missing_docs, reason = "skeleton")]
pub mod error;
#[cfg(feature = "io")]
mod sys;
pub mod runtime;
#[cfg(feature = "io")]
pub mod io;
