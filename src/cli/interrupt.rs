//! Ctrl-C: the first ends the inputs ([`reading`](super::reading)), so that the run ends as if they had
//! ended there; the second ends the process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

/// Work is under way. Before (0), nothing has been read that could be kept, and Ctrl-C ends the process at
/// once.
const RUNNING: u8 = 1;
/// Ctrl-C was pressed once.
const ASKED: u8 = 2;

/// Exit code of a process ended by Ctrl-C.
const INTERRUPTED: i32 = 130;

/// Whether Ctrl-C was pressed. Clones are one.
#[derive(Debug, Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicU8>);

impl Interrupt {
    /// Listens to Ctrl-C from now on.
    pub(super) fn listen() -> Self {
        let interrupt = Self::default();
        let state = Arc::clone(&interrupt.0);
        let asked = move || {
            if state.compare_exchange(RUNNING, ASKED, Ordering::SeqCst, Ordering::SeqCst).is_err() {
                super::watch::give_back_screen();
                std::process::exit(INTERRUPTED);
            }
        };
        // Without a handler Ctrl-C ends the process the hard way, which is no reason not to work.
        let _ = ctrlc::set_handler(asked);
        interrupt
    }

    /// From now on there is something to keep.
    pub(super) fn begin(&self) {
        self.0.store(RUNNING, Ordering::SeqCst);
    }

    /// Whether Ctrl-C was pressed since [`Interrupt::begin`].
    pub(super) fn is_asked(&self) -> bool {
        self.0.load(Ordering::SeqCst) == ASKED
    }
}
