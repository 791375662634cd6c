//! Room for a batch: whether there is any, and waiting for it without holding a thread.

use std::sync::Arc;
use std::task::Waker;

use super::Intake;
use crate::error::RunError;
use crate::runtime::shared::EngineShared;

impl Intake {
    /// Whether a batch may be offered now, once what was left has been handed on.
    pub(crate) fn has_room(&mut self) -> Result<bool, RunError> {
        if !self.try_flush()? {
            return Ok(false);
        }
        let may_go_on = self.engine.aligner.may_go_on(self.shared.input);
        if !may_go_on {
            // Held back, not silent.
            self.shared.touch(self.engine.now_us());
        }
        Ok(may_go_on)
    }

    /// Whether nothing is left to be handed on.
    pub(crate) fn is_empty(&self) -> bool {
        self.backlog.is_none() && self.outbox.iter().all(Option::is_none)
    }

    /// Ends idleness: rows are on their way.
    pub(crate) fn wake_up(&mut self) {
        if !self.ended {
            self.activate();
        }
    }

    /// Has `task` woken when there is room. It must try once more afterwards.
    pub(crate) fn wait_in(&mut self, task: &Waker) {
        self.shared.wake.wait_in(task);
    }

    /// Nobody waits any more.
    pub(crate) fn forget_waiter(&mut self) {
        self.shared.wake.forget_task();
    }

    /// Wakes the task that waits, whether there is room or not; true if there was one.
    pub(crate) fn wake_waiter(&mut self) -> bool {
        self.shared.wake.wake_task()
    }

    /// The engine it feeds.
    pub(crate) fn engine(&self) -> &Arc<EngineShared> {
        &self.engine
    }
}
