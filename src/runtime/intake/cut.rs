//! What a producer does for checkpoints: barriers, where its input stands, and going on from there.

use std::sync::atomic::Ordering;

use arrow::record_batch::RecordBatch;

use super::Intake;
use crate::checkpoint::InputState;
use crate::error::RunError;
use crate::runtime::barrier::ProducerTotals;
use crate::runtime::message::Message;
use crate::runtime::sink::Sink as _;

impl Intake {
    /// Queues the newest barrier for all shards, behind everything this producer has taken in and still holds;
    /// false if it has passed it, or rows wait that must come before. The outbox must be empty.
    pub(crate) fn queue_barrier(&mut self) -> bool {
        let barrier = self.engine.barriers.wanted();
        let must_wait = self.backlog.is_some() && !self.may_split_batches();
        if barrier <= self.barrier || self.ended || must_wait {
            return false;
        }
        self.barrier = barrier;
        self.transferring = self.engine.barriers.is_rescale(barrier);
        let watermark = self.current_watermark();
        for shard in 0..self.outbox.len() {
            let (mut partials, closings) = self.router.partials.take_closed(shard, watermark);
            partials.extend(self.router.partials.take_early(shard, 0));
            let message = Message::new(partials, closings, watermark);
            self.outbox[shard] = Some(Message { barrier: Some(barrier), ..message });
            self.tell(shard, watermark);
        }
        self.engine.barriers.passed(&self.totals(), self.input_state(false));
        true
    }

    /// Whether a barrier may come between the rows of one batch, so that shards do not wait for its end. Not where a
    /// position is of whole batches.
    pub(super) fn may_split_batches(&self) -> bool {
        self.name.is_none() && !self.shared.of_worker
    }

    /// Takes note of where all inputs stand at the barrier that their workers have come to.
    pub(crate) fn cut_inputs(
        &self,
        inputs: Vec<InputState>,
        rejected: Vec<(String, u64)>,
    ) -> Result<(), RunError> {
        self.engine.sink.cut_inputs()?;
        self.engine.barriers.set_inputs(inputs, rejected);
        Ok(())
    }

    /// Where this producer stands, if it has a name.
    pub(super) fn input_state(&self, ended: bool) -> Option<InputState> {
        let name = self.name.clone().filter(|_| !self.shared.of_worker)?;
        let position = self.position.clone();
        let known = |time: i64| (time != i64::MIN).then_some(time);
        let (max_time, floor) = self.router.watermark.state();
        let (max_time, floor) = (known(max_time), known(floor));
        Some(InputState { name, position, ended, max_time, floor })
    }

    /// Gives it a name, under which it stands in checkpoints, and goes on where the input of that name stood.
    pub(crate) fn set_name(&mut self, name: String) {
        let restored = self.engine.restored.as_ref();
        let inputs = restored.map_or(&[][..], |restored| &restored.manifest.inputs);
        if let Some(input) = inputs.iter().find(|input| input.name == name) {
            self.position.clone_from(&input.position);
            let floor = input.floor.unwrap_or(i64::MIN);
            self.router.watermark.continue_at(input.max_time.unwrap_or(i64::MIN), floor);
            // What has been closed without this input counts, too.
            self.router.watermark.miss(self.engine.closed_to.load(Ordering::SeqCst));
        }
        self.name = Some(name);
    }

    /// See [`Ingest::position`](super::ingest::Ingest::position).
    pub(crate) fn position(&self) -> Option<&str> {
        self.position.as_deref()
    }

    /// See [`Ingest::push_at`](super::ingest::Ingest::push_at).
    pub(crate) fn push_at(&mut self, batch: RecordBatch, position: String) -> Result<(), RunError> {
        self.check(&batch)?;
        self.wait_flush()?;
        self.wait_for_others()?;
        // Together: no barrier comes between them.
        self.position = Some(position);
        self.offer(batch);
        self.wait_flush()
    }

    pub(super) fn totals(&self) -> ProducerTotals {
        ProducerTotals { counts: self.router.counts, rows_hot: self.rows_hot() }
    }
}
