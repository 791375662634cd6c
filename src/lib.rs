//! Saltmill.
#![allow(missing_docs, reason = "skeleton")]
pub mod error;
pub mod runtime;
