//! Text inputs: csv, tsv and ndjson.
//!
//! One thread per input reads, decompresses and cuts the text at record boundaries
//! ([`chunker`]); the workers turn the chunks into columns, in three passes over a batch of records:
//! find the fields ([`csv`], [`ndjson`]), convert each column in a loop of its own ([`columns`],
//! [`value`]), and take out the rows that had a bad value (only if there are any). Types come from a
//! sample ([`infer`]) or from the user.

pub(crate) mod chunker;
pub(crate) mod field;
pub(crate) mod csv;
pub(crate) mod ndjson;
pub(crate) mod value;
pub(crate) mod datetime;
pub(crate) mod infer;
pub(crate) mod columns;
pub(crate) mod sample;
pub(crate) mod source;
