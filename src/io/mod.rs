//! Files and standard input in, files and standard output out, and streams made up to try things on.
//!
//! [`open`] turns named inputs into [`Source`]s of one schema; [`open_writer`] makes a [`BatchWriter`]
//! for results; [`StreamGenerator`] makes event streams with skewed keys. Only wanted columns are
//! read. Nothing is lost silently: a text record that cannot be used is counted by reason in its
//! source and handed to the [`RejectLog`].
//!
//! Not here: windows, keys, lateness (the engine), and the command line.
//!
//! [`Source`]: crate::runtime::source::Source

mod format;
mod progress;
mod target;
mod cut;
mod reject;
mod feed;
pub(crate) mod time;
mod text;
mod types;
mod columnar;
mod parquet;
mod ipc;
mod unify;
mod open;
mod write;
mod generate;

pub use self::cut::{CutText, Spool};
pub use self::format::{Compression, Format, InputSpec, OutputFormat};
pub use self::generate::{Distribution, GenerateOptions, KeyType, StreamGenerator, parse_count};
pub use self::open::{Inputs, IoError, ReadOptions, TimeColumn, Wanted, open};
pub use self::progress::Progress;
pub use self::reject::{Reason, RejectLog, Rejected};
pub(crate) use self::types::split_outside;
pub use self::types::{parse_type, parse_types, parse_unit};
pub use self::write::{BatchWriter, open_writer};

#[cfg(test)]
mod tests;
