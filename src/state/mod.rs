//! State: rows that never move, tables from keys to rows, and panes, which hold one window's keys.

pub(crate) mod readable;
pub(crate) mod rows;
pub(crate) mod arena;
pub(crate) mod table;
pub(crate) mod spread;
pub(crate) mod pane;
