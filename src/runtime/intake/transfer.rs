//! How a producer goes over to other shards when the run is rescaled.
//!
//! Behind the barrier it sends nothing until the engine says to which shards; its handle is full meanwhile, for
//! whoever waits and whoever does not. What it has promised, counted and learnt it keeps.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::{Intake, MiniBatch};
use crate::runtime::shared::EngineShared;
use crate::runtime::sink::lock;
use crate::runtime::topology::{IngestShared, Transfer};

/// How long a producer that comes during a rescale waits before it looks again.
const LOOK: Duration = Duration::from_micros(50);

/// The list of producers, once the run is not being rescaled (or has stopped): till then nobody knows to which shards
/// a new one belongs.
pub(super) fn lock_unless_rescaling(
    engine: &EngineShared,
) -> MutexGuard<'_, Vec<Arc<IngestShared>>> {
    loop {
        let open = lock(&engine.ingests);
        if !engine.is_rescaling() || engine.is_stopped() {
            return open;
        }
        drop(open);
        std::thread::sleep(LOOK);
    }
}

impl Intake {
    /// Whether it belongs to shards that take something: goes over to others if it must and can.
    pub(super) fn has_transferred(&mut self) -> bool {
        if !self.transferring {
            return true;
        }
        let Some(transfer) = lock(&self.shared.transfer).take() else { return false };
        let Transfer { topology, rings, watermark } = transfer;
        let shards = rings.len();
        self.rings = rings;
        self.outbox = (0..shards).map(|_| None).collect();
        self.told = vec![watermark; shards];
        self.awaited = vec![i64::MIN; shards];
        self.mini_batch = MiniBatch::new();
        self.router.go_over(&topology);
        self.topology = topology;
        self.transferring = false;
        true
    }

    /// Whether it waits to be told to which shards it belongs.
    pub(crate) fn is_transferring(&self) -> bool {
        self.transferring
    }

    /// Ends as a producer of shards that are no more: a worker's, which has passed their last barrier. Its inputs
    /// go on with others.
    pub(crate) fn retire(&mut self) {
        debug_assert!(self.transferring && self.is_empty(), "everything was handed on");
        self.transferring = false;
        self.ended = true;
        self.leave();
    }
}
