//! Rows one at a time: from values of Rust to columns of Arrow, type-checked, without an allocation per row.
//!
//! An [`Appender`](crate::Appender) fills the columns of a job's schema row by row. A row is any of
//!
//! - a tuple with one [`Value`] per column, in the schema's order: `appender.append(("ann", 5, 3.5))`;
//! - a closure that sets columns by number or name on a [`RowWriter`];
//! - a struct or map that implements `serde::Serialize`, by the names of its fields.
//!
//! A row goes in as a whole or not at all: after an error nothing of it is left behind.
//!
//! | value | goes into columns of type |
//! |---|---|
//! | `i8` .. `i64`, `u8` .. `u64`, `isize`, `usize` | every integer, date, time, timestamp, duration that holds it |
//! | `f32` | Float32, Float64 |
//! | `f64` | Float64 |
//! | `i128` | Decimal128, as the unscaled number |
//! | `bool` | Boolean |
//! | `&str`, `&String`, `String` | Utf8, `LargeUtf8`, `Utf8View`, and dictionaries of these |
//! | `&[u8]` | Binary, `LargeBinary`, `BinaryView` |
//! | `Option` of these | the same; `None` is null, in columns that may be null |

pub(crate) mod cells;
pub(crate) mod columns;
pub mod row;
pub(crate) mod record;

pub use row::{Row, RowError, RowWriter, Value};
