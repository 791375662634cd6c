//! Event time: reading it, assigning rows to windows, watermarks.

pub mod window;
pub(crate) mod event_time;
pub(crate) mod watermark;
