//! State: rows, tables, panes.
pub(crate) mod rows;
