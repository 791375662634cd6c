//! A shard: the state of one contiguous range of key groups, and the steps that change it.
//!
//! A shard has no thread of its own: [`Shard::step`] does a bounded amount of work and says what came of
//! it, so the same code serves a pinned worker, a simulator and an embedder's loop. Only the shard writes
//! its state; it takes control decisions between messages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use arrow::array::{ArrayRef, Int64Array};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use arrow::record_batch::RecordBatch;

use super::message::Message;
use super::ring::Consumer;
use super::shared::{EngineShared, IngestShared, Request};
use super::sink::lock;
use crate::error::{RunError, SinkError};
use crate::skew::ledger::{Ledger, LedgerError};
use crate::state::pane::{Pane, Scratch};

/// Rows of a result batch.
const EMIT_ROWS: u32 = 8192;

/// Panes kept with their memory for later windows.
const SPARE_PANES_MAX: usize = 2;

/// Messages between two looks at the size of the state.
const STATE_CHECK_MESSAGES: u64 = 64;

/// One shard.
#[derive(Debug)]
pub(crate) struct Shard {
    id: usize,
    engine: Arc<EngineShared>,
    inbound: Vec<Inbound>,
    /// Version of the set of producers that `inbound` reflects.
    version: u64,
    /// Open panes by start of their window.
    panes: BTreeMap<i64, Pane>,
    spare: Vec<Pane>,
    scratch: Scratch,
    /// Proves that each partial is merged exactly once.
    ledger: Ledger,
    /// All windows that end at or before this are closed.
    watermark: i64,
    /// When the newest rows that it has seen were taken in.
    newest_rows: Option<Instant>,
    done: bool,
    pub(crate) stats: ShardStats,
}

/// What a shard counts.
#[derive(Debug, Clone, Default)]
pub(crate) struct ShardStats {
    pub(crate) rows_in: u64,
    pub(crate) rows_out: u64,
    pub(crate) windows_emitted: u64,
    pub(crate) state_keys_max: usize,
    pub(crate) state_bytes_max: usize,
    pub(crate) no_huge_pages: bool,
    messages: u64,
}

/// A producer, as this shard sees it.
#[derive(Debug)]
struct Inbound {
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
    pub(crate) fn new(id: usize, engine: Arc<EngineShared>) -> Self {
        Self {
            id,
            engine,
            inbound: Vec::new(),
            version: 0,
            panes: BTreeMap::new(),
            spare: Vec::new(),
            scratch: Scratch::default(),
            ledger: Ledger::new(0),
            watermark: i64::MIN,
            newest_rows: None,
            done: false,
            stats: ShardStats::default(),
        }
    }

    /// Which one it is.
    pub(crate) fn id(&self) -> usize {
        self.id
    }

    /// Takes at most `budget` messages.
    pub(crate) fn step(&mut self, budget: usize) -> Result<Progress, RunError> {
        if self.done {
            return Ok(Progress::Done);
        }
        self.adopt_arrivals();
        // A request is answered behind everything that was sent before it.
        let requested = self.engine.doors[self.id].requested.swap(false, Ordering::SeqCst);
        let in_rings = self.engine.job.ring_capacity * self.inbound.len();
        let budget = if requested { budget.max(in_rings) } else { budget };
        let mut taken = 0;
        loop {
            let before = taken;
            for i in 0..self.inbound.len() {
                if taken == budget {
                    break;
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
        if requested {
            self.answer_requests();
        }
        if taken == 0 {
            self.check_idle();
        }
        self.advance()?;
        Ok(match (self.done, taken) {
            (true, _) => Progress::Done,
            (false, 0) => Progress::Idle,
            (false, _) => Progress::Worked,
        })
    }

    /// Whether a step would find something to do; for the last look before sleeping.
    pub(crate) fn has_work(&mut self) -> bool {
        self.engine.is_stopped()
            || self.engine.version.load(Ordering::SeqCst) != self.version
            || self.engine.doors[self.id].requested.load(Ordering::SeqCst)
            || self.inbound.iter_mut().any(|inbound| !inbound.ring.is_empty())
            || (self.engine.closing.load(Ordering::SeqCst) && self.all_ended())
    }

    /// Excuses producers that have been silent for too long.
    fn check_idle(&self) {
        let Some(timeout) = self.engine.job.idle_timeout else { return };
        let timeout_us = u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX);
        for inbound in &self.inbound {
            if inbound.ingest.check_idle(&self.engine, timeout_us) {
                self.engine.doors.iter().for_each(|door| door.wake.notify());
            }
        }
    }

    /// How often silence of producers must be looked for, if at all.
    pub(crate) fn idle_check_interval(&self) -> Option<std::time::Duration> {
        self.engine.job.idle_timeout.map(|timeout| timeout / 4)
    }

    /// Tells how it goes, for whoever reads metrics.
    pub(crate) fn publish(&self, rows_hot: u64) {
        let meter = &self.engine.meters[self.id];
        let ShardStats { rows_in, rows_out, windows_emitted, .. } = self.stats;
        meter.store_rows(rows_in + rows_hot, rows_hot, rows_out, windows_emitted);
        meter.store_watermark(self.watermark);
    }

    /// Tells what takes a look at other threads' memory, and so is told less often.
    pub(crate) fn publish_queue(&self) {
        let waiting = self.inbound.iter().map(|inbound| inbound.ring.len()).sum();
        self.engine.meters[self.id].store_queue(waiting);
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
        for arrival in lock(&self.engine.doors[self.id].arrivals).drain(..) {
            self.inbound.push(Inbound {
                ring: arrival.ring,
                ingest: arrival.ingest,
                watermark: i64::MIN,
                ended: false,
            });
        }
    }

    fn receive(&mut self, from: usize, message: Message) -> Result<(), RunError> {
        if let Some(prepared) = &message.rows {
            self.newest_rows = prepared.taken_in;
            let part = &prepared.parts[self.id];
            let mut start = 0;
            for segment in &part.segments {
                let rows = &part.selection[start..segment.end];
                start = segment.end;
                let job = Arc::clone(&self.engine.job);
                let scratch = &mut self.scratch;
                let pane =
                    open_pane(&mut self.panes, &mut self.spare, &self.engine, segment.window)?;
                pane.update(&job.plan, &prepared.keys, &prepared.columns, rows, scratch);
            }
            self.stats.rows_in += part.selection.len() as u64;
        }
        let ingest = self.inbound[from].ingest.id;
        let defect = |error: LedgerError| RunError::Defect(error.to_string());
        for mut partial in message.partials {
            self.ledger.receive(ingest, partial.window, partial.number).map_err(defect)?;
            let job = Arc::clone(&self.engine.job);
            let scratch = &mut self.scratch;
            let pane = open_pane(&mut self.panes, &mut self.spare, &self.engine, partial.window)?;
            pane.merge(&job.plan, &mut partial.pane, scratch);
        }
        for closing in message.closings {
            self.ledger.close(closing.window, ingest, closing.sent).map_err(defect)?;
        }
        let inbound = &mut self.inbound[from];
        inbound.watermark = inbound.watermark.max(message.watermark);
        inbound.ended |= message.end;
        self.stats.messages += 1;
        if self.stats.messages.is_multiple_of(STATE_CHECK_MESSAGES) {
            self.measure_state();
        }
        Ok(())
    }

    /// Takes note of the size of the state.
    fn measure_state(&mut self) {
        let keys = self.panes.values().map(Pane::len).sum::<usize>();
        let bytes = self.panes.values().map(Pane::bytes).sum::<usize>();
        self.engine.meters[self.id].store_state(keys, bytes);
        if bytes > self.stats.state_bytes_max {
            self.stats.state_keys_max = self.stats.state_keys_max.max(keys);
            self.stats.state_bytes_max = bytes;
            self.stats.no_huge_pages |= self.panes.values().any(|pane| !pane.huge_pages());
        }
    }

    /// Closes what all producers have passed.
    fn advance(&mut self) -> Result<(), RunError> {
        loop {
            self.adopt_arrivals();
            let Some(watermark) = self.combined_watermark() else { return Ok(()) };
            if watermark > self.watermark {
                // Publish before the last look at who is there: a producer that arrives or wakes up
                // now either is seen below or sees how far this shard goes (`Ingest::activate`).
                self.engine.closed_to.fetch_max(watermark, Ordering::SeqCst);
                if self.engine.version.load(Ordering::SeqCst) != self.version
                    || self.combined_watermark() != Some(watermark)
                {
                    continue;
                }
                let (started, before) = (Instant::now(), self.stats.windows_emitted);
                self.close_windows(watermark)?;
                if self.stats.windows_emitted > before {
                    let age = self.newest_rows.map(|taken_in| taken_in.elapsed());
                    self.engine.meters[self.id].window_closed(started.elapsed(), age);
                }
            }
            if watermark == i64::MAX
                && self.engine.closing.load(Ordering::SeqCst)
                && self.all_ended()
            {
                self.ledger.finish().map_err(|error| RunError::Defect(error.to_string()))?;
                self.done = true;
            }
            self.inbound.retain(|inbound| !inbound.ended);
            return Ok(());
        }
    }

    /// The least watermark of the producers that count; none if none counts. When the engine is closing
    /// and all have ended, the end of time.
    fn combined_watermark(&mut self) -> Option<i64> {
        let mut least = None;
        let mut waiting = false;
        for inbound in &mut self.inbound {
            if inbound.ended {
                continue;
            }
            // Idle counts only once everything it sent has been taken.
            if inbound.ingest.is_idle() && inbound.ring.is_empty() {
                waiting = true;
                continue;
            }
            least = Some(least.unwrap_or(i64::MAX).min(inbound.watermark));
        }
        let finished = least.is_none() && !waiting && self.engine.closing.load(Ordering::SeqCst);
        if finished { Some(i64::MAX) } else { least }
    }

    fn close_windows(&mut self, watermark: i64) -> Result<(), RunError> {
        if self.panes.is_empty() && watermark != i64::MAX && self.engine.job.windows.is_none() {
            self.watermark = watermark;
            return Ok(());
        }
        self.measure_state();
        while let Some((&window, _)) = self.panes.first_key_value() {
            let end = self.engine.job.windows.map_or(i64::MAX, |windows| windows.end(window));
            if end > watermark {
                break;
            }
            let mut pane = self.panes.remove(&window).expect("it was there just now");
            let mut emitted = Ok(());
            let mut rows_out = 0;
            let engine = Arc::clone(&self.engine);
            emit_pane(&engine, &mut pane, window, &mut self.scratch, &mut |batch| {
                rows_out += batch.num_rows() as u64;
                emitted = engine.sink.results(self.id, batch);
                emitted.is_ok()
            })?;
            self.stats.rows_out += rows_out;
            self.stats.windows_emitted += 1;
            emitted?;
            if self.spare.len() < SPARE_PANES_MAX {
                pane.clear();
                self.spare.push(pane);
            }
        }
        self.watermark = watermark;
        self.engine.sink.progress(self.id, watermark)?;
        Ok(())
    }

    fn answer_requests(&mut self) {
        let requests = std::mem::take(&mut *lock(&self.engine.doors[self.id].requests));
        for request in requests {
            match request {
                Request::Snapshot(reply) => {
                    // Whoever asked may have gone away.
                    let _ = reply.send(self.snapshot());
                }
            }
        }
    }

    /// The results as they stand, of all open windows.
    pub(crate) fn snapshot(&mut self) -> Result<Vec<RecordBatch>, RunError> {
        let mut batches = Vec::new();
        for (window, pane) in &mut self.panes {
            emit_pane(&self.engine, pane, *window, &mut self.scratch, &mut |batch| {
                batches.push(batch);
                true
            })?;
        }
        Ok(batches)
    }
}

/// The open pane of `window`, opened if needed.
fn open_pane<'a>(
    panes: &'a mut BTreeMap<i64, Pane>,
    spare: &mut Vec<Pane>,
    engine: &EngineShared,
    window: i64,
) -> Result<&'a mut Pane, RunError> {
    use std::collections::btree_map::Entry;
    let open = panes.len();
    match panes.entry(window) {
        Entry::Occupied(entry) => Ok(entry.into_mut()),
        Entry::Vacant(entry) => {
            let job = &engine.job;
            if open >= job.open_windows_max {
                return Err(RunError::Limit(format!(
                    "more than {} windows are open in one shard; raise the limit of open windows, or \
                     lower the out-of-orderness, or make the windows longer",
                    job.open_windows_max
                )));
            }
            Ok(entry.insert(spare.pop().unwrap_or_else(|| Pane::new(&job.keys, &job.plan))))
        }
    }
}

/// Gives the results of a pane to `deliver`, batch by batch, until it answers false. Changes nothing.
fn emit_pane(
    engine: &EngineShared,
    pane: &mut Pane,
    window: i64,
    scratch: &mut Scratch,
    deliver: &mut dyn FnMut(RecordBatch) -> bool,
) -> Result<(), RunError> {
    let job = &engine.job;
    let bounds = job.windows.map(|windows| (window, windows.end(window)));
    let time_type = job.time.as_ref().map(|time| job.schema.field(time.column).data_type());
    let text = || match (bounds, time_type) {
        (Some((start, end)), Some(data_type)) => {
            format!("[{}, {})", time_text(start, data_type), time_text(end, data_type))
        }
        _ => String::new(),
    };
    let len = u32::try_from(pane.len()).expect("row ids are 32 bits");
    let rows_max = len.min(EMIT_ROWS) as usize;
    // The same in every batch, which takes as much as it needs.
    let bound_columns = match (bounds, time_type) {
        (Some((start, end)), Some(data_type)) => {
            [start, end].map(|time| time_column(time, rows_max, data_type)).to_vec()
        }
        _ => Vec::new(),
    };
    for start in (0..len).step_by(EMIT_ROWS as usize) {
        let ids = start..(start + EMIT_ROWS).min(len);
        let mut columns = Vec::with_capacity(job.output_schema.fields().len());
        columns.extend(bound_columns.iter().map(|column| column.slice(0, ids.len())));
        let window = bounds.is_some().then_some(&text as &dyn Fn() -> String);
        columns.extend(pane.emit(&job.plan, &job.keys, ids.clone(), window, scratch)?);
        let batch = if columns.is_empty() {
            // No key, no aggregate, no window: nothing to say.
            return Ok(());
        } else {
            RecordBatch::try_new(Arc::clone(&job.output_schema), columns)
                .map_err(|error| RunError::Sink(SinkError::Failed(error.to_string())))?
        };
        if !deliver(batch) {
            break;
        }
    }
    Ok(())
}

/// A column of one time, in the type of the event-time column.
fn time_column(time: i64, rows: usize, data_type: &DataType) -> ArrayRef {
    let times: ArrayRef = Arc::new(Int64Array::from_value(time, rows));
    let times = match data_type {
        DataType::Date32 => cast(&times, &DataType::Int32).expect("days fit"),
        _ => times,
    };
    cast(&times, data_type).expect("window bounds are times")
}

/// A window's bound in the notation of the event-time column.
pub(crate) fn time_text(time: i64, data_type: &DataType) -> String {
    arrow::util::display::array_value_to_string(&time_column(time, 1, data_type), 0)
        .unwrap_or_else(|_| time.to_string())
}
