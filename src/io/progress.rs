//! How much of the inputs has been read, for a progress bar.

use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes read and bytes in all. Written by the readers, read by whoever draws the bar; the numbers
/// are for people, so no ordering between threads is asked for.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    total: AtomicU64,
    unknown: AtomicU64,
}

impl Progress {
    /// Bytes read so far, as they lie on disk (compressed, encoded).
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Bytes of all inputs; `None` if one of them has no known end, as a pipe has none.
    pub fn total(&self) -> Option<u64> {
        let known = self.unknown.load(Ordering::Relaxed) == 0;
        known.then(|| self.total.load(Ordering::Relaxed))
    }

    pub(crate) fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    pub(crate) fn expect(&self, bytes: Option<u64>) {
        match bytes {
            Some(bytes) => self.total.fetch_add(bytes, Ordering::Relaxed),
            None => self.unknown.fetch_add(1, Ordering::Relaxed),
        };
    }
}
