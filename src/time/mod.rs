//! Event time: reading it, assigning rows to windows, watermarks.

pub(crate) mod event_time;
pub mod window;
pub mod watermark;
pub mod alignment;
pub(crate) mod clock;
