//! A shard: the state of one contiguous range of key groups, and the steps that change it.
//!
//! A shard has no thread of its own: [`Shard::step`] does a bounded amount of work and says what came of
//! it, so the same code serves a pinned worker, a simulator and an embedder's loop. Only the shard writes
//! its state; it takes control decisions between messages.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;

use super::blame::Blame;
use super::board::ShardBoard;
use super::emit::Bounds;
use super::exchange::{Bucket, Exchange};
use super::message::{Message, Prepared};
use super::metrics::ShardMeter;
use super::ring::Consumer;
use super::shared::EngineShared;
use super::sink::{Sink as _, lock};
use super::stats::ShardStats;
use super::topology::{IngestShared, Request, Topology};
use super::windows::OpenWindows;
use crate::error::RunError;
use crate::process::keyed::{AtShard, Taken};
use crate::skew::ledger::{Ledger, LedgerError};
use crate::state::pane::Pane;
use crate::time::window::Span;

mod cut;

/// Messages between two looks at the size of the state, at least.
const STATE_CHECK_MESSAGES: u64 = 64;

/// Panes that are looked at whenever windows close; more only every so many messages.
const STATE_CHECK_PANES: usize = 256;

/// One shard.
#[derive(Debug)]
pub(crate) struct Shard {
    id: usize,
    engine: Arc<EngineShared>,
    topology: Arc<Topology>,
    inbound: Vec<Inbound>,
    /// Version of the set of producers that `inbound` reflects.
    version: u64,
    windows: OpenWindows,
    /// Proves that each partial is merged exactly once.
    ledger: Ledger<Span>,
    /// What was handed on for its values' sake, by windows and owner of the keys.
    buckets: BTreeMap<(Span, usize), Pane>,
    /// Requests that wait for other shards' buckets, and how many came before.
    asked: VecDeque<Request>,
    answered: u64,
    /// All producers have passed this.
    passed: i64,
    /// All windows that end at or before this are closed.
    watermark: i64,
    /// When the newest rows that it has seen were taken in.
    newest_rows: Option<Instant>,
    done: bool,
    /// The last barrier passed, and the next one if it has come of some producer.
    barrier: u64,
    aligning: Option<Aligning>,
    /// When the first barrier came that this shard has not passed.
    barrier_since: Option<Instant>,
    /// What takes the place of aggregates.
    process: Option<Box<dyn AtShard>>,
    /// The largest watermark of any producer so far.
    furthest: i64,
    /// Something came since the last early results, and when these were given.
    changed: bool,
    early_at: Instant,
    pub(crate) stats: ShardStats,
}

/// A barrier that some producers have sent, and others not yet.
#[derive(Debug)]
struct Aligning {
    barrier: u64,
    /// Whether this shard has given the others all buckets that lie before it.
    has_given: bool,
}

/// A producer, as this shard sees it.
#[derive(Debug)]
struct Inbound {
    /// The last barrier that came of it.
    barrier: u64,
    ring: Consumer<Message>,
    ingest: Arc<IngestShared>,
    watermark: i64,
    ended: bool,
}

/// What a step came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Something was done; there may be more.
    Worked,
    /// Nothing to do now.
    Idle,
    /// All producers have ended and all results are out.
    Done,
}

impl Shard {
    /// A shard of the topology that there is now.
    pub(crate) fn new(id: usize, engine: Arc<EngineShared>) -> Self {
        let topology = engine.topology();
        Self::of(topology, id, engine)
    }

    /// A shard of a topology.
    pub(crate) fn of(topology: Arc<Topology>, id: usize, engine: Arc<EngineShared>) -> Self {
        Self {
            id,
            windows: OpenWindows::new(
                Arc::clone(&engine.job),
                topology.workers(),
                engine.board.as_ref().map(|board| ShardBoard::new(board, id)),
            ),
            process: engine
                .job
                .process
                .as_ref()
                .map(|it| it.at_shard(engine.job.process_setting())),
            engine,
            inbound: Vec::new(),
            version: 0,
            ledger: Ledger::new(0),
            buckets: BTreeMap::new(),
            asked: VecDeque::new(),
            answered: 0,
            furthest: i64::MIN,
            passed: i64::MIN,
            watermark: i64::MIN,
            newest_rows: None,
            done: false,
            barrier: topology.barrier,
            topology,
            aligning: None,
            barrier_since: None,
            changed: false,
            early_at: Instant::now(),
            stats: ShardStats::default(),
        }
    }

    /// Where it tells how it goes.
    pub(crate) fn meter(&self) -> &ShardMeter {
        &self.topology.meters[self.id]
    }

    /// Takes at most `budget` messages.
    pub(crate) fn step(&mut self, budget: usize) -> Result<Progress, RunError> {
        if self.done {
            return Ok(Progress::Done);
        }
        self.begin_alignment();
        self.adopt_arrivals();
        // A request is answered behind everything that was sent before it.
        let requested = self.topology.doors[self.id].requested.swap(false, Ordering::SeqCst);
        let requests = if requested { self.requests() } else { Vec::new() };
        let in_rings = self.engine.job.ring_capacity * self.inbound.len();
        let budget = if requested { budget.max(in_rings) } else { budget };
        let settled = self.windows.settle_step();
        let mut taken = 0;
        loop {
            let before = taken;
            for i in 0..self.inbound.len() {
                if taken == budget {
                    break;
                }
                // Behind the barrier: kept for after the cut.
                if self.inbound[i].barrier > self.barrier {
                    continue;
                }
                if let Some(message) = self.inbound[i].ring.pop() {
                    self.inbound[i].ingest.wake.notify();
                    taken += 1;
                    self.receive(i, message)?;
                }
            }
            if taken == before || taken == budget {
                break;
            }
        }
        if !requests.is_empty() {
            self.take_requests(requests);
        }
        self.answer_requests()?;
        if taken == 0 || self.engine.job.clock.is_some() {
            self.check_idle();
        }
        self.give_early()?;
        self.tick()?;
        self.advance()?;
        self.try_cut()?;
        Ok(match (self.done, taken) {
            (true, _) => Progress::Done,
            (false, 0) if !settled => Progress::Idle,
            (false, _) => Progress::Worked,
        })
    }

    /// Whether a step would find something to do; for the last look before sleeping.
    pub(crate) fn has_work(&mut self) -> bool {
        self.engine.is_stopped()
            || self.engine.version.load(Ordering::SeqCst) != self.version
            || self.topology.doors[self.id].requested.load(Ordering::SeqCst)
            || self.closable() > self.watermark
            || self.can_answer()
            || self.can_cut()
            || self.has_messages()
            || self.windows.is_settling()
            || (self.engine.closing.load(Ordering::SeqCst) && self.all_ended())
    }

    fn has_messages(&mut self) -> bool {
        let passed = self.barrier;
        self.inbound.iter_mut().any(|one| one.barrier <= passed && !one.ring.is_empty())
    }

    /// Excuses producers that have been silent for too long.
    fn check_idle(&self) {
        let Some(timeout) = self.engine.job.idle_timeout else { return };
        let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        for inbound in &self.inbound {
            if inbound.ingest.check_idle(self.engine.now_us(), timeout_us) {
                self.engine.aligner.leave(inbound.ingest.input);
                self.topology.notify_all();
            }
        }
    }

    /// How long it may sleep because of the clock, if that matters.
    pub(crate) fn clock_interval(&self) -> Option<Duration> {
        let timer = self.process.as_ref().and_then(|process| process.next_tick());
        let timer =
            timer.map(|left| left.clamp(Duration::from_micros(100), Duration::from_secs(1)));
        [timer, self.engine.job.clock_interval()].into_iter().flatten().min()
    }

    /// Fires timers of a process that are due by the clock.
    fn tick(&mut self) -> Result<(), RunError> {
        let Some(process) = &mut self.process else { return Ok(()) };
        process.tick(self.watermark, &mut give(&self.engine, self.id, &mut self.stats))
    }

    /// Gives early results if it is time and there is something new.
    fn give_early(&mut self) -> Result<(), RunError> {
        let Some(every) = self.engine.job.emit_every else { return Ok(()) };
        if !self.changed || self.early_at.elapsed() < every {
            return Ok(());
        }
        self.changed = false;
        self.early_at = Instant::now();
        // For the next time: what producers hold of hot keys.
        self.engine.want_partials();
        let batches = self.snapshot()?;
        for batch in batches {
            self.stats.rows_early += batch.num_rows() as u64;
            self.engine.sink.results(self.id, batch)?;
        }
        Ok(())
    }

    /// Tells how it goes, for whoever reads metrics.
    pub(crate) fn publish(&self, rows_hot: u64) {
        let meter = self.meter();
        let ShardStats { rows_in, rows_out, windows_emitted, .. } = self.stats;
        meter.store_rows(rows_in + rows_hot, rows_hot, rows_out, windows_emitted);
        meter.store_windows(self.windows.len());
        meter.store_watermark(self.watermark);
    }

    /// Tells what takes a look at other threads' memory, and so is told less often.
    pub(crate) fn publish_queue(&self) {
        let waiting = self.inbound.iter().map(|inbound| inbound.ring.len()).sum();
        self.meter().store_queue(waiting);
    }

    fn all_ended(&self) -> bool {
        self.inbound.iter().all(|inbound| inbound.ended)
    }

    fn adopt_arrivals(&mut self) {
        let version = self.engine.version.load(Ordering::SeqCst);
        if version == self.version {
            return;
        }
        self.version = version;
        for arrival in lock(&self.topology.doors[self.id].arrivals).drain(..) {
            self.inbound.push(Inbound {
                // One that has come over from another topology has passed its barrier.
                barrier: arrival.ingest.born.max(self.topology.barrier),
                ring: arrival.ring,
                ingest: arrival.ingest,
                watermark: arrival.watermark,
                ended: false,
            });
        }
    }

    fn receive(&mut self, from: usize, message: Message) -> Result<(), RunError> {
        let job = Arc::clone(&self.engine.job);
        self.changed |= message.rows.is_some() || !message.partials.is_empty();
        if let Some(prepared) = &message.rows {
            self.newest_rows = prepared.taken_in;
            let part = &prepared.parts[self.id];
            if let (Some(process), Some(batch)) = (&mut self.process, &prepared.batch) {
                let (keys, selection) = (&prepared.keys, part.selection.as_slice());
                let (engine, stats) = (&self.engine, &mut self.stats);
                let taken = Taken { batch, keys, selection };
                process.rows(taken, self.watermark, &mut give(engine, self.id, stats))?;
            }
            let mut start = 0;
            let segments = if self.process.is_some() { &[] } else { part.segments.as_slice() };
            for segment in segments {
                let rows = &part.selection[start..segment.end];
                start = segment.end;
                let (pane, scratch) = self.windows.pane(segment.window, rows.len())?;
                let _blame = Blame { encoder: &job.keys, keys: &prepared.keys };
                pane.update(&job.plan, &prepared.keys, &prepared.columns, rows, scratch);
            }
            self.stats.rows_in += part.selection.len() as u64;
            self.receive_spread(prepared);
        }
        let ingest = self.inbound[from].ingest.id;
        let defect = |error: LedgerError| RunError::Defect(error.to_string());
        for mut partial in message.partials {
            self.ledger.receive(ingest, partial.window, partial.number).map_err(defect)?;
            let (pane, scratch) = self.windows.pane(partial.window, partial.pane.len())?;
            pane.absorb(&job.plan, &mut partial.pane, scratch);
        }
        for closing in message.closings {
            self.ledger.close(closing.window, ingest, closing.sent).map_err(defect)?;
        }
        if message.watermark < i64::MAX {
            self.furthest = self.furthest.max(message.watermark);
        }
        let inbound = &mut self.inbound[from];
        inbound.watermark = inbound.watermark.max(message.watermark);
        inbound.ended |= message.end;
        if let Some(barrier) = message.barrier {
            inbound.barrier = barrier;
            self.barrier_since.get_or_insert_with(Instant::now);
        }
        if let (Some(board), Some(producer)) = (&self.engine.board, &inbound.ingest.board) {
            // Only this shard counts here. Behind everything that the message brought.
            producer.taken[self.id].fetch_add(1, Ordering::Release);
            if message.end {
                board.leave(producer);
            }
        }
        self.stats.messages += 1;
        if self.stats.messages >= self.stats.check_at {
            self.measure_state();
        }
        Ok(())
    }

    /// Takes note of the size of the state.
    fn measure_state(&mut self) {
        let panes = self.windows.len() as u64;
        self.stats.open_windows_max = self.windows.len_max();
        self.stats.spilled = self.windows.spilled();
        self.meter().store_spilled(self.stats.spilled);
        self.stats.check_at = self.stats.messages + STATE_CHECK_MESSAGES.max(panes / 4);
        let mut size = self.windows.size();
        size.keys += self.process.as_ref().map_or(0, |process| process.len());
        size.bytes += self.buckets.values().map(Pane::bytes).sum::<usize>();
        self.meter().store_state(size.keys, size.bytes);
        if size.bytes > self.stats.state_bytes_max {
            self.stats.state_keys_max = self.stats.state_keys_max.max(size.keys);
            self.stats.state_bytes_max = size.bytes;
            self.stats.no_huge_pages |= !size.huge_pages;
        }
    }

    /// Closes what all producers have passed.
    fn advance(&mut self) -> Result<(), RunError> {
        loop {
            self.adopt_arrivals();
            let Some(watermark) = self.combined_watermark() else { break };
            if watermark > self.passed {
                // Publish before the last look at who is there: a producer that arrives or wakes up
                // now either is seen below or sees how far this shard goes (`Intake::activate`).
                self.engine.closed_to.fetch_max(watermark, Ordering::SeqCst);
                if self.engine.version.load(Ordering::SeqCst) != self.version
                    || self.combined_watermark() < Some(watermark)
                {
                    continue;
                }
                self.passed = watermark;
                self.give_buckets(watermark);
            }
            break;
        }
        let closable = self.closable();
        if closable > self.watermark {
            self.take_buckets()?;
            let (started, before) = (Instant::now(), self.stats.windows_emitted);
            self.close_windows(closable)?;
            if self.stats.windows_emitted > before {
                let age = self.newest_rows.map(|taken_in| taken_in.elapsed());
                self.meter().window_closed(started.elapsed(), age);
            }
        }
        if self.watermark == i64::MAX
            && self.engine.closing.load(Ordering::SeqCst)
            && self.all_ended()
        {
            self.ledger.finish().map_err(|error| RunError::Defect(error.to_string()))?;
            // What closing the last windows took, too.
            self.measure_state();
            self.done = true;
            self.engine.shards_done.fetch_add(1, Ordering::SeqCst);
        }
        self.inbound.retain(|inbound| !inbound.ended);
        Ok(())
    }

    /// Up to where this shard may close windows: what all producers have passed and, in jobs in which shards
    /// count for each other, all shards.
    fn closable(&self) -> i64 {
        let exchange = self.topology.exchange.as_ref();
        exchange.map_or(self.passed, |exchange| self.passed.min(exchange.passed_by_all()))
    }

    /// Aggregates rows that were handed on for their values' sake.
    fn receive_spread(&mut self, prepared: &Prepared) {
        let part = &prepared.parts[self.id].spread;
        let job = &self.engine.job;
        let mut start = 0;
        for run in &part.runs {
            let rows = &part.rows[start..run.end];
            start = run.end;
            let [point, first, last] = run.window;
            let bucket = self.buckets.entry((Span { point, first, last }, run.owner));
            let pane = bucket.or_insert_with(|| Pane::new(&job.keys, &job.plan));
            let (plan, scratch) = ((&job.plan, run.accumulator), self.windows.scratch());
            pane.update_spread(plan, &prepared.keys, &prepared.columns, rows, scratch);
        }
    }

    /// Gives the buckets of all windows that end at or before `watermark` to the owners of their keys, and
    /// says so.
    fn give_buckets(&mut self, watermark: i64) {
        let topology = Arc::clone(&self.topology);
        let Some(exchange) = &topology.exchange else { return };
        let is_due = |(window, _): &(Span, usize)| window.point <= watermark;
        if self.buckets.first_key_value().is_some_and(|(key, _)| is_due(key)) {
            // At their largest, before they go.
            self.measure_state();
        }
        while let Some(first) = self.buckets.first_entry() {
            let (window, owner) = *first.key();
            if window.point > watermark {
                break;
            }
            let (from, barrier) = (self.id, self.barrier);
            exchange.give(owner, Bucket { window, from, barrier, pane: first.remove() });
        }
        exchange.pass(self.id, watermark);
        topology.notify_all();
    }

    /// Takes the buckets that other shards have given.
    fn take_buckets(&mut self) -> Result<(), RunError> {
        let (engine, topology) = (Arc::clone(&self.engine), Arc::clone(&self.topology));
        let Some(exchange) = &topology.exchange else { return Ok(()) };
        for mut bucket in exchange.take(self.id, self.barrier) {
            let (pane, scratch) = self.windows.pane(bucket.window, bucket.pane.len())?;
            let number = (bucket.from, topology.workers());
            pane.adopt(&engine.job.plan, &mut bucket.pane, number, scratch);
        }
        Ok(())
    }

    /// The least watermark of the producers that count; none if none counts. When the engine is closing
    /// and all have ended, the end of time.
    fn combined_watermark(&mut self) -> Option<i64> {
        let mut least = None;
        // What those have promised that ended just now holds, if nobody else is there.
        let mut ended = None;
        let mut waiting = false;
        for inbound in &mut self.inbound {
            if inbound.ended {
                ended = Some(ended.unwrap_or(i64::MAX).min(inbound.watermark));
                continue;
            }
            // Idle counts only once everything it sent has been taken.
            if inbound.ingest.is_idle() && inbound.ring.is_empty() {
                waiting = true;
                continue;
            }
            least = Some(least.unwrap_or(i64::MAX).min(inbound.watermark));
        }
        if least.is_none() && !waiting && self.engine.closing.load(Ordering::SeqCst) {
            return Some(i64::MAX);
        }
        if !waiting {
            least = least.or(ended);
        }
        let job = &self.engine.job;
        match (&job.clock, &job.windows) {
            // Silence does not stop the clock.
            (Some(clock), Some(windows)) => {
                Some(least.unwrap_or(i64::MAX).min(windows.passed(clock.now())))
            }
            _ => least,
        }
    }

    fn close_windows(&mut self, watermark: i64) -> Result<(), RunError> {
        if let Some(process) = &mut self.process {
            if watermark == i64::MAX {
                // So that what fires, and may set further timers, does not depend on how the end was found.
                let furthest = self.furthest;
                process.advance(furthest, &mut give(&self.engine, self.id, &mut self.stats))?;
            }
            process.advance(watermark, &mut give(&self.engine, self.id, &mut self.stats))?;
            self.watermark = watermark;
            self.measure_state();
            self.engine.sink.progress(self.id, watermark)?;
            return Ok(());
        }
        if self.engine.job.windows.is_none() && watermark != i64::MAX {
            self.watermark = watermark;
            return Ok(());
        }
        if self.windows.len() <= STATE_CHECK_PANES || watermark == i64::MAX {
            self.measure_state();
        }
        let (engine, id) = (Arc::clone(&self.engine), self.id);
        let stats = &mut self.stats;
        let complete = self.windows.close(watermark, &mut |mut results, scratch| {
            stats.windows_emitted += match results.bounds {
                Bounds::Sessions { .. } => results.pane.len() as u64,
                _ => u64::from(results.changed.is_none() && !results.continues),
            };
            results.emit(&engine.job, scratch, &mut |batch| {
                stats.rows_out += batch.num_rows() as u64;
                Ok(engine.sink.results(id, batch)?)
            })
        })?;
        self.watermark = watermark;
        self.engine.sink.progress(self.id, complete)?;
        Ok(())
    }

    fn give_all_buckets(&mut self, exchange: &Exchange) {
        let (from, barrier) = (self.id, self.barrier);
        while let Some(((window, owner), pane)) = self.buckets.pop_first() {
            exchange.give(owner, Bucket { window, from, barrier, pane });
        }
    }

    /// What has been asked of this shard.
    fn requests(&self) -> Vec<Request> {
        std::mem::take(&mut *lock(&self.topology.doors[self.id].requests))
    }

    /// Takes in requests, and gives all buckets, since the answers of others need them.
    fn take_requests(&mut self, requests: Vec<Request>) {
        let topology = Arc::clone(&self.topology);
        if let Some(exchange) = &topology.exchange {
            self.give_all_buckets(exchange);
            for _ in &requests {
                exchange.count_gift(self.id);
            }
            topology.notify_all();
        }
        self.asked.extend(requests);
    }

    /// Whether the oldest request can be answered: all shards have given their buckets.
    fn can_answer(&self) -> bool {
        let given = self.topology.exchange.as_ref().map_or(u64::MAX, Exchange::gifts_of_all);
        !self.asked.is_empty() && given > self.answered
    }

    fn answer_requests(&mut self) -> Result<(), RunError> {
        while self.can_answer() {
            self.take_buckets()?;
            let Some(request) = self.asked.pop_front() else { break };
            self.answered += 1;
            match request {
                Request::Snapshot(reply) => {
                    // Whoever asked may have gone away.
                    let _ = reply.send(self.snapshot());
                }
            }
        }
        Ok(())
    }

    /// The results as they stand, of all open windows.
    pub(crate) fn snapshot(&mut self) -> Result<Vec<RecordBatch>, RunError> {
        let mut batches = Vec::new();
        let job = Arc::clone(&self.engine.job);
        self.windows.snapshot(&mut |mut results, scratch| {
            results.emit(&job, scratch, &mut |batch| {
                batches.push(batch);
                Ok(())
            })
        })?;
        Ok(batches)
    }
}

/// Gives rows of a process to the sink.
fn give<'a>(
    engine: &'a EngineShared,
    id: usize,
    stats: &'a mut ShardStats,
) -> impl FnMut(RecordBatch) -> Result<(), RunError> + 'a {
    move |batch| {
        stats.rows_out += batch.num_rows() as u64;
        Ok(engine.sink.results(id, batch)?)
    }
}
