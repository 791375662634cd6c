//! Sleeping until another thread has made progress possible, without missing it and without locks on
//! the way of those who do not sleep.
//!
//! The sleeper raises a flag, looks once more, and parks; the other side makes its change visible and
//! then looks at the flag. Both fences are sequentially consistent, so at least one sees the other.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::time::Duration;

use crossbeam::sync::{Parker, Unparker};

use super::sink::lock;

/// How to wake a thread that may be asleep, or a task that waits.
#[derive(Debug)]
pub(crate) struct Wake {
    asleep: AtomicBool,
    unparker: Unparker,
    task: Mutex<Option<Waker>>,
}

impl Wake {
    /// Wakes the sleeper, if it sleeps, after a change that was made before this call.
    #[inline]
    pub(crate) fn notify(&self) {
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel) {
            self.unparker.unpark();
            self.wake_task();
        }
    }

    /// Notes a task that is to be woken instead of a thread. It must look once more afterwards: what changed
    /// before this call wakes nobody.
    pub(crate) fn wait_in(&self, task: &Waker) {
        let mut waiting = lock(&self.task);
        if !waiting.as_ref().is_some_and(|waiting| waiting.will_wake(task)) {
            *waiting = Some(task.clone());
        }
        drop(waiting);
        self.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The task does not wait any more.
    pub(crate) fn forget_task(&self) {
        self.asleep.store(false, Ordering::Relaxed);
        *lock(&self.task) = None;
    }

    /// Wakes the task that waits; true if there was one.
    pub(crate) fn wake_task(&self) -> bool {
        let task = lock(&self.task).take();
        task.map(Waker::wake).is_some()
    }
}

/// The sleeping side.
#[derive(Debug)]
pub(crate) struct Sleeper {
    parker: Parker,
    wake: Arc<Wake>,
}

impl Sleeper {
    pub(crate) fn new() -> Self {
        let parker = Parker::new();
        let wake = Wake {
            asleep: AtomicBool::new(false),
            unparker: parker.unparker().clone(),
            task: Mutex::default(),
        };
        Self { parker, wake: Arc::new(wake) }
    }

    /// What others wake it with.
    pub(crate) fn wake(&self) -> &Arc<Wake> {
        &self.wake
    }

    /// Sleeps until notified or `timeout`, unless `ready` already holds.
    pub(crate) fn sleep(&self, timeout: Duration, mut ready: impl FnMut() -> bool) {
        self.wake.asleep.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !ready() {
            self.parker.park_timeout(timeout);
        }
        self.wake.asleep.store(false, Ordering::Relaxed);
    }
}
