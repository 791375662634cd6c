//! The clock of processing time.
//!
//! Read once a batch, and once a step of a shard; never for a row.

use std::fmt;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since 1970-01-01 00:00 UTC; never goes back.
#[derive(Clone)]
pub(crate) struct Clock(Arc<dyn Fn() -> i64 + Send + Sync>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}

impl Clock {
    /// The clock of the system as it stands now, and from here on one that is never set back.
    #[expect(clippy::disallowed_methods, reason = "processing time is the system's time")]
    pub(crate) fn system() -> Self {
        let (start, since) = (SystemTime::now(), Instant::now());
        Self::new(move || {
            let now = (start + since.elapsed()).duration_since(UNIX_EPOCH);
            now.map_or(0, |now| i64::try_from(now.as_millis()).unwrap_or(i64::MAX))
        })
    }

    /// A clock of one's own, which must not go back.
    pub(crate) fn new(now: impl Fn() -> i64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// What it says.
    pub(crate) fn now(&self) -> i64 {
        (self.0)()
    }
}
