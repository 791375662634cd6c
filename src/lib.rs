//! Saltmill.
#![allow(missing_docs, dead_code, reason = "skeleton")]
pub mod error;
pub(crate) mod sys;
pub mod key;
pub(crate) mod column;
pub(crate) mod state;
pub mod aggregate;
pub mod time;
pub mod config;
pub mod runtime;
