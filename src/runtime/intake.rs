//! Where the rows of one producer go in.
//!
//! An intake routes a batch slice by slice and puts one message into each shard's ring; what does not fit
//! waits in its outbox, so that it never holds more than one batch. A producing thread has it inside its
//! handle ([`Ingest`](super::ingest::Ingest)), whose calls wait for room or give the batch back; a worker
//! that both reads and owns a shard has one of its own and does its shard's work instead of waiting
//! ([`Intake::offer`] and [`Intake::try_flush`]).

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;

use super::blame::panicked;
use super::hot::HotKeys;
use super::message::{Message, Prepared};
use super::ring::Producer;
use super::router::Router;
use super::shared::EngineShared;
use super::sink::lock;
use super::topology::{IngestShared, Topology};
use super::wake::{Sleeper, Wake};
use crate::config::Job;
use crate::error::RunError;

mod cut;
mod room;
mod transfer;

use transfer::lock_unless_rescaling;

/// Rows after which partials are handed on where memory is limited: no set grows large here.
const LIMITED_ROWS: u64 = 1 << 18;

/// Keys in one pane of partials from which it is handed on early.
const PARTIAL_KEYS_MAX: usize = if cfg!(test) { 64 } else { 16_384 };

/// How long a waiting producer sleeps before it looks whether the engine still lives.
const WAIT: Duration = Duration::from_millis(50);

/// The shortest time between two looks whether an input that is ahead may go on.
const SHORT_WAIT: Duration = Duration::from_micros(100);

/// The producing side of one producer.
#[derive(Debug)]
pub(crate) struct Intake {
    engine: Arc<EngineShared>,
    topology: Arc<Topology>,
    shared: Arc<IngestShared>,
    sleeper: Sleeper,
    router: Router,
    rings: Vec<Producer<Message>>,
    /// Messages that wait for room, one per shard at most.
    outbox: Vec<Option<Message>>,
    /// A batch that is not routed to its end, and where it goes on.
    backlog: Option<(RecordBatch, usize)>,
    /// The watermark that each shard was last told.
    told: Vec<i64>,
    /// For each shard, the least watermark that would let it give something.
    awaited: Vec<i64>,
    /// For a worker that reads several inputs: what it promises, which then replaces the router's.
    promise: Option<i64>,
    mini_batch: MiniBatch,
    /// The latest request for partials that was queued.
    partials_queued: u64,
    /// The last barrier passed.
    barrier: u64,
    /// It has passed the barrier of a rescale, and goes on with other shards.
    transferring: bool,
    /// What checkpoints call it, and where its owner says that its rows come from.
    name: Option<String>,
    position: Option<String>,
    ended: bool,
}

/// Progress towards the next mini-batch of partials.
#[derive(Debug)]
struct MiniBatch {
    rows: u64,
    since: Instant,
}

impl MiniBatch {
    fn new() -> Self {
        Self { rows: 0, since: Instant::now() }
    }
}

/// Why [`Ingest::try_push`](crate::Ingest::try_push) did not take a batch.
#[derive(Debug)]
pub enum TryPushError {
    /// There is no room now; here is the batch.
    Full(RecordBatch),
    /// The run has failed or stopped.
    Run(RunError),
}

impl Intake {
    /// Opens an intake and makes it known to all shards.
    pub(crate) fn open(engine: &Arc<EngineShared>) -> Self {
        let sleeper = Sleeper::new();
        let wake = Arc::clone(sleeper.wake());
        Self::open_with(engine, sleeper, wake, false)
    }

    /// Opens the intake of a worker's feed: its thread never waits here, and is woken by `wake`.
    pub(crate) fn open_for_worker(engine: &Arc<EngineShared>, wake: Arc<Wake>) -> Self {
        Self::open_with(engine, Sleeper::new(), wake, true)
    }

    fn open_with(
        engine: &Arc<EngineShared>,
        sleeper: Sleeper,
        wake: Arc<Wake>,
        of_worker: bool,
    ) -> Self {
        let id = engine.producers.fetch_add(1, Ordering::Relaxed);
        let has_time = engine.job.time.is_some() && engine.job.windows.is_some();
        let input = (!of_worker && has_time).then(|| engine.aligner.join());
        // While this is held, no barrier is asked for: this producer is either among those it is asked of, or
        // begins behind it.
        // Workers are given theirs by whoever rescales.
        let mut open =
            if of_worker { lock(&engine.ingests) } else { lock_unless_rescaling(engine) };
        let topology = engine.topology();
        let barrier = engine.barriers.wanted();
        let board = engine.board.as_ref().map(|board| board.join());
        let shared = Arc::new(IngestShared::new(id, of_worker, input, barrier, wake, board));
        shared.touch(engine.now_us());
        let rings = topology.connect(&shared, engine.job.ring_capacity, i64::MIN);
        open.push(Arc::clone(&shared));
        let handles = open.len();
        // First be seen, then look how far time has come: a shard that did not see this handle has
        // published how far it went before it looked (`Shard::advance`).
        engine.version.fetch_add(1, Ordering::SeqCst);
        drop(open);
        let hot = engine.skew.as_ref().map(|control| {
            let producers = if engine.reads { topology.workers() } else { handles };
            HotKeys::new(Arc::clone(&engine.job), Arc::clone(control), producers)
        });
        let mut router = Router::new(Arc::clone(&engine.job), &topology, hot);
        if !of_worker {
            router.watermark.miss(engine.closed_to.load(Ordering::SeqCst));
        }
        router.partials.show(engine.board.as_ref().zip(shared.board.as_ref()));
        let shards = rings.len();
        Self {
            engine: Arc::clone(engine),
            topology,
            shared,
            sleeper,
            router,
            rings,
            outbox: (0..shards).map(|_| None).collect(),
            backlog: None,
            told: vec![i64::MIN; shards],
            awaited: vec![i64::MIN; shards],
            promise: None,
            mini_batch: MiniBatch::new(),
            partials_queued: 0,
            barrier,
            transferring: false,
            name: None,
            position: None,
            ended: false,
        }
    }

    /// See [`Ingest::push`](super::ingest::Ingest::push).
    pub(crate) fn push(&mut self, batch: RecordBatch) -> Result<(), RunError> {
        self.check(&batch)?;
        self.wait_flush()?;
        self.wait_for_others()?;
        self.offer(batch);
        self.wait_flush()
    }

    /// See [`Ingest::try_push`](super::ingest::Ingest::try_push).
    pub(crate) fn try_push(&mut self, batch: RecordBatch) -> Result<(), TryPushError> {
        self.check(&batch).map_err(TryPushError::Run)?;
        if !self.has_room().map_err(TryPushError::Run)? {
            return Err(TryPushError::Full(batch));
        }
        self.offer(batch);
        self.try_flush().map_err(TryPushError::Run)?;
        Ok(())
    }

    /// See [`Ingest::watermark`](super::ingest::Ingest::watermark).
    pub(crate) fn watermark(&mut self, time: i64) -> Result<(), RunError> {
        while !self.try_watermark(time)? {
            self.wait_for_room();
        }
        Ok(())
    }

    /// [`Intake::watermark`] without waiting: true if it was possible. To be called again if not.
    pub(crate) fn try_watermark(&mut self, time: i64) -> Result<bool, RunError> {
        self.activate();
        if !self.try_flush()? {
            return Ok(false);
        }
        if !self.engine.job.has_watermarks() {
            // There is one window, which ends with the run, whatever is promised.
            return Ok(true);
        }
        self.router.watermark.raise(time);
        self.engine.aligner.advance(self.shared.input, self.router.watermark.get());
        self.try_flush()
    }

    /// See [`Ingest::idle`](super::ingest::Ingest::idle).
    pub(crate) fn idle(&mut self) -> Result<(), RunError> {
        while !self.try_idle()? {
            self.wait_for_room();
        }
        Ok(())
    }

    /// [`Intake::idle`] without waiting: true if it was possible. To be called again if not.
    pub(crate) fn try_idle(&mut self) -> Result<bool, RunError> {
        self.activate();
        if !self.try_flush()? {
            return Ok(false);
        }
        // Windows will close without this handle, so it may not keep anything of them.
        self.queue_partials(0);
        if !self.try_flush()? {
            return Ok(false);
        }
        self.shared.set_idle();
        self.engine.aligner.leave(self.shared.input);
        self.topology.notify_all();
        Ok(true)
    }

    /// See [`Ingest::close`](super::ingest::Ingest::close).
    pub(crate) fn end(&mut self) -> Result<(), RunError> {
        loop {
            match self.try_end() {
                Ok(true) => return Ok(()),
                Ok(false) => self.wait_for_room(),
                Err(error) => {
                    self.queue_end();
                    return Err(error);
                }
            }
        }
    }

    /// Ends it if that was not done; for a handle that is dropped. A worker drops its intake before the end
    /// only when it fails, and then the run does.
    pub(crate) fn end_quietly(&mut self) {
        if !self.ended && !self.shared.of_worker && !self.engine.is_stopped() {
            // An error here is the run's error, and told by `finish`.
            if let Err(error) = self.end() {
                self.engine.fail(error);
            }
        }
    }

    /// [`Intake::end`] without waiting: true if it was possible. To be called again if not.
    pub(crate) fn try_end(&mut self) -> Result<bool, RunError> {
        if !self.ended {
            self.activate();
            if !self.try_flush()? {
                return Ok(false);
            }
            self.queue_end();
        }
        self.try_flush()
    }

    /// Puts the end into the outbox, behind everything else; the outbox must be empty.
    pub(crate) fn queue_end(&mut self) {
        if self.ended {
            return;
        }
        self.ended = true;
        let watermark = self.current_watermark();
        for (shard, slot) in self.outbox.iter_mut().enumerate() {
            let (partials, closings) = self.router.partials.take_closed(shard, i64::MAX);
            *slot = Some(Message { end: true, ..Message::new(partials, closings, watermark) });
        }
        self.engine.aligner.end(self.shared.input);
        self.leave();
    }

    /// Leaves what it has counted to the engine, and is no producer any more.
    fn leave(&mut self) {
        self.router.leave(self.engine.rows_in.load(Ordering::Relaxed));
        let mut open = lock(&self.engine.ingests);
        open.retain(|ingest| !Arc::ptr_eq(ingest, &self.shared));
        lock(&self.engine.finished_counts).add(&self.router.counts);
        self.engine.barriers.ended(self.barrier, &self.totals(), self.input_state(true));
        drop(open);
        if !self.engine.reads {
            self.engine.rows_hot_at_producers.fetch_add(self.rows_hot(), Ordering::Relaxed);
        }
        let mut owner_rows = lock(&self.engine.owner_rows);
        for (total, rows) in owner_rows.iter_mut().zip(&self.router.owner_rows) {
            *total += rows;
        }
    }

    fn check(&self, batch: &RecordBatch) -> Result<(), RunError> {
        let schema = &self.engine.job.schema;
        if Arc::ptr_eq(schema, batch.schema_ref()) {
            return Ok(());
        }
        let found = batch.schema_ref();
        if found.fields().len() != schema.fields().len() {
            return Err(RunError::Batch(format!(
                "it has {} columns, the job was built for {}",
                found.fields().len(),
                schema.fields().len()
            )));
        }
        for (want, have) in schema.fields().iter().zip(found.fields()) {
            if want.name() != have.name() || want.data_type() != have.data_type() {
                return Err(RunError::Batch(format!(
                    "it has column \"{}\" of type {} where the job was built for \"{}\" of type {}",
                    have.name(),
                    have.data_type(),
                    want.name(),
                    want.data_type()
                )));
            }
        }
        for (field, column) in schema.fields().iter().zip(batch.columns()) {
            // Nulls of dictionaries that hold one as a value included.
            if !field.is_nullable() && column.logical_null_count() > 0 {
                return Err(RunError::Batch(format!(
                    "column \"{}\" was declared without nulls but has some",
                    field.name()
                )));
            }
        }
        Ok(())
    }

    /// Takes a batch over; the backlog must be empty.
    pub(crate) fn offer(&mut self, batch: RecordBatch) {
        debug_assert!(self.backlog.is_none(), "one batch at a time");
        self.activate();
        self.backlog = Some((batch, 0));
    }

    /// Takes over a batch of a source, which must have the job's schema.
    pub(crate) fn offer_checked(&mut self, batch: RecordBatch) -> Result<(), RunError> {
        self.check(&batch)?;
        self.offer(batch);
        Ok(())
    }

    /// Sets the state from which rows of an input continue, for a worker that reads parts of inputs.
    pub(crate) fn continue_at(&mut self, max_time: i64, floor: i64) {
        self.router.watermark.continue_at(max_time, floor);
    }

    /// Says between which event times all rows lie that are offered until the next call, if that is known.
    pub(crate) fn expect_times(&mut self, range: Option<(i64, i64)>) {
        self.router.expect_times(range);
    }

    /// The watermark of the rows routed so far, of the input they came from.
    pub(crate) fn input_watermark(&self) -> i64 {
        self.router.watermark.get()
    }

    /// The job it feeds.
    pub(crate) fn job(&self) -> &Job {
        &self.engine.job
    }

    /// What this producer promises to the shards, instead of its input's watermark.
    pub(crate) fn promise(&mut self, watermark: i64) {
        self.promise = Some(self.promise.unwrap_or(i64::MIN).max(watermark));
    }

    /// Rows aggregated by this producer's own thread.
    pub(crate) fn rows_hot(&self) -> u64 {
        self.router.partials.rows
    }

    fn current_watermark(&self) -> i64 {
        self.promise.unwrap_or_else(|| self.router.watermark.get())
    }

    /// Ends idleness. Rows that follow are late where the engine went on without this handle.
    fn activate(&mut self) {
        if self.shared.begin() {
            let closed_to = self.engine.closed_to.load(Ordering::SeqCst);
            self.router.watermark.miss(closed_to);
        }
    }

    /// Hands on as much as there is room for, without waiting; true if nothing is left.
    pub(crate) fn try_flush(&mut self) -> Result<bool, RunError> {
        loop {
            if self.engine.is_stopped() {
                return Err(RunError::Stopped);
            }
            if !self.send_outbox() || !self.has_transferred() {
                return Ok(false);
            }
            if self.may_split_batches() && self.queue_barrier() {
                continue;
            }
            let routed = match self.route_next() {
                Ok(routed) => routed,
                Err(error) => {
                    // Rows are lost with it, so it is the run's error, and told by `finish`.
                    self.engine.fail(error);
                    return Err(RunError::Stopped);
                }
            };
            // A worker passes barriers between two units only, see `worker::Feed`.
            let is_done = !routed && !self.queue_watermark() && !self.queue_wanted();
            if is_done && (self.shared.of_worker || !self.queue_barrier()) {
                // A worker speaks for its sources, whose silence is judged where they are read.
                if !self.shared.of_worker {
                    self.shared.rest(self.engine.now_us());
                }
                return Ok(true);
            }
        }
    }

    /// Routes the next slice of the backlog into the outbox; false if there is none.
    fn route_next(&mut self) -> Result<bool, RunError> {
        let Some((batch, start)) = self.backlog.take() else { return Ok(false) };
        let rows = self.engine.job.batch_rows.min(batch.num_rows() - start);
        let slice = if rows == batch.num_rows() {
            batch
        } else {
            let slice = batch.slice(start, rows);
            if start + rows < batch.num_rows() {
                self.backlog = Some((batch, start + rows));
            }
            slice
        };
        if rows > 0 {
            let seen = self.engine.rows_in.fetch_add(rows as u64, Ordering::Relaxed);
            self.router.partials.set_sent(self.rings.iter().map(|ring| ring.put() as u64));
            // Aggregates of one's own, and sinks of late rows, may panic; that is not to go up into whoever uses
            // the handle, who could do nothing about it and whose rows would be lost unseen.
            let route = || self.router.route(&slice, seen, &self.engine.sink);
            let routed = catch_unwind(AssertUnwindSafe(route));
            let prepared = routed.unwrap_or_else(|panic| {
                let who = if self.shared.of_worker { "shard" } else { "handle" };
                Err(panicked(format!("{who} {}", self.shared.id), panic.as_ref()))
            })?;
            self.publish();
            self.engine.aligner.advance(self.shared.input, self.router.watermark.get());
            if self.router.give_up_two_phase() {
                self.engine.two_phase_given_up.fetch_min(seen, Ordering::Relaxed);
            }
            self.queue_rows(&prepared);
            self.queue_mini_batch(rows as u64);
        }
        Ok(true)
    }

    /// Tells how it goes, for whoever reads metrics.
    fn publish(&self) {
        let meter = &self.shared.meter;
        meter.store_rows(&self.router.counts);
        meter.store_watermark(self.current_watermark());
    }

    /// Queues each shard's rows, with the partials that its new watermark closes.
    fn queue_rows(&mut self, prepared: &Arc<Prepared>) {
        let watermark = self.current_watermark();
        for (shard, part) in prepared.parts.iter().enumerate() {
            if !part.is_empty() {
                let (partials, closings) = self.router.partials.take_closed(shard, watermark);
                let rows = Some(Arc::clone(prepared));
                let message = Message { rows, ..Message::new(partials, closings, watermark) };
                self.outbox[shard] = Some(message);
                self.tell(shard, watermark);
            }
        }
    }

    /// Takes note of the watermark that a shard will be told.
    fn tell(&mut self, shard: usize, watermark: i64) {
        self.told[shard] = watermark;
        if let Some(windows) = &self.engine.job.windows
            && watermark >= self.awaited[shard]
        {
            self.awaited[shard] = windows.point_after(watermark);
        }
    }

    /// Adds partials to the outbox that are to be handed on before their window closes: because they are
    /// many, or it is time.
    fn queue_mini_batch(&mut self, rows: u64) {
        let job = &self.engine.job;
        self.mini_batch.rows += rows;
        let due = job.mini_batch_rows.is_some_and(|most| self.mini_batch.rows >= most)
            || (job.memory.is_some() && self.mini_batch.rows >= LIMITED_ROWS)
            || job.mini_batch_latency.is_some_and(|most| self.mini_batch.since.elapsed() >= most)
            // Whoever may be found idle at any time keeps nothing of windows that may close then.
            || (job.idle_timeout.is_some() && !self.shared.of_worker && self.backlog.is_none());
        if due {
            self.mini_batch = MiniBatch::new();
        }
        self.queue_partials(if due { 0 } else { PARTIAL_KEYS_MAX });
    }

    /// Adds the panes of partials to the outbox that hold more than `keys_max` keys.
    fn queue_partials(&mut self, keys_max: usize) {
        let watermark = self.current_watermark();
        for (shard, slot) in self.outbox.iter_mut().enumerate() {
            let partials = self.router.partials.take_early(shard, keys_max);
            if partials.is_empty() {
                continue;
            }
            if let Some(message) = slot {
                message.partials.extend(partials);
            } else {
                // The watermark of an earlier message: windows that a newer one closes may hold more.
                let watermark = self.told[shard].min(watermark);
                *slot = Some(Message::new(partials, Vec::new(), watermark));
            }
        }
    }

    /// Queues all partials if a reader wants them; false if none does.
    fn queue_wanted(&mut self) -> bool {
        let wanted = self.engine.partials_wanted.load(Ordering::SeqCst);
        let given = &self.shared.partials_given;
        if wanted == given.load(Ordering::Relaxed) {
            return false;
        }
        if self.partials_queued == wanted {
            // They have left the outbox.
            given.store(wanted, Ordering::SeqCst);
            return false;
        }
        self.partials_queued = wanted;
        if !self.ended {
            self.queue_partials(0);
        }
        true
    }

    /// Hands on partials that a reader wants, and the barrier of a checkpoint, where nothing else is going on.
    /// Partials count as given once they have left for the shards.
    pub(crate) fn give_wanted(&mut self) {
        let barrier = self.engine.barriers.wanted();
        if barrier > self.barrier && self.engine.barriers.is_rescale(barrier) {
            // Rows that were left here for want of room go first: their owner may be waiting, with another handle, for
            // the end of the rescale. An error is the run's, and told by `finish`.
            let _ = self.try_flush();
            return;
        }
        while self.send_outbox()
            && self.has_transferred()
            && (self.queue_wanted() || self.queue_barrier())
        {}
    }

    /// Queues the watermark for shards that would close a window if they knew it, with the partials of
    /// such windows; false if there are none.
    fn queue_watermark(&mut self) -> bool {
        if self.ended || !self.engine.job.has_watermarks() {
            return false;
        }
        let watermark = self.current_watermark();
        let mut queued = false;
        for shard in 0..self.told.len() {
            if watermark > self.told[shard] && watermark >= self.awaited[shard] {
                let (partials, closings) = self.router.partials.take_closed(shard, watermark);
                let message = Message::new(partials, closings, watermark);
                self.outbox[shard] = Some(message);
                self.tell(shard, watermark);
                queued = true;
            }
        }
        queued
    }

    /// Moves the outbox into the rings; true if it is empty then.
    fn send_outbox(&mut self) -> bool {
        let mut empty = true;
        for (shard, slot) in self.outbox.iter_mut().enumerate() {
            if let Some(message) = slot.take() {
                match self.rings[shard].push(message) {
                    Ok(()) => self.topology.doors[shard].wake.notify(),
                    Err(message) => {
                        *slot = Some(message);
                        empty = false;
                    }
                }
            }
        }
        empty
    }

    /// Hands everything on, waiting for room.
    pub(crate) fn wait_flush(&mut self) -> Result<(), RunError> {
        while !self.try_flush()? {
            self.wait_for_room();
        }
        Ok(())
    }

    /// Waits until this input is not too far ahead of the others of its group.
    fn wait_for_others(&mut self) -> Result<(), RunError> {
        if self.engine.aligner.may_go_on(self.shared.input) {
            return Ok(());
        }
        // Busy, so that its idle clock stands still.
        self.activate();
        let interval = self.engine.aligner.update_interval().clamp(SHORT_WAIT, WAIT);
        loop {
            if self.engine.is_stopped() {
                return Err(RunError::Stopped);
            }
            if self.engine.aligner.may_go_on(self.shared.input) {
                return Ok(());
            }
            self.give_wanted();
            self.sleeper.sleep(interval, || self.engine.is_stopped());
        }
    }

    /// Sleeps until a ring that is waited for has room, the engine has stopped, or a little while has passed.
    fn wait_for_room(&self) {
        let started = Instant::now();
        let capacity = self.engine.job.ring_capacity;
        self.sleeper.sleep(WAIT, || {
            let mut waited_for =
                self.rings.iter().zip(&self.outbox).filter(|(_, slot)| slot.is_some());
            self.engine.is_stopped()
                || waited_for.any(|(ring, _)| ring.len() < capacity)
                || (self.transferring && lock(&self.shared.transfer).is_some())
        });
        self.shared.meter.add_held_back(started.elapsed());
    }
}

impl Drop for Intake {
    fn drop(&mut self) {
        self.end_quietly();
    }
}
