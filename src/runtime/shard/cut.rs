//! How a shard passes the barrier of a checkpoint, and begins where one was taken.

use std::convert::Infallible;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::{Aligning, Shard};
use arrow::record_batch::RecordBatch;
use crossbeam::channel::Sender;

use crate::checkpoint::{Section, SectionImage, SectionKind, SectionRows};
use crate::error::RunError;
use crate::runtime::barrier::ShardCut;
use crate::runtime::handover::{KeptState, ShardState};
use crate::runtime::restore::Restored;
use crate::runtime::sink::lock;
use crate::runtime::windows::OpenWindows;
use crate::state::pane::Pane;
use crate::state::pane::image::rows_of_groups;
use crate::time::window::Span;

/// Rows that are restored at a time where memory is limited.
const RESTORE_ROWS: usize = 16_384;

impl Shard {
    /// Takes note of a barrier that was asked for.
    pub(super) fn begin_alignment(&mut self) {
        let barrier = self.engine.barriers.wanted();
        if barrier > self.barrier && self.aligning.is_none() {
            self.aligning = Some(Aligning { barrier, has_given: false });
        }
    }

    /// Whether the barrier has come of all producers.
    fn is_aligned(&self, barrier: u64) -> bool {
        self.inbound.iter().all(|inbound| inbound.ended || inbound.barrier >= barrier)
    }

    /// Whether [`Shard::try_cut`] would get on.
    pub(super) fn can_cut(&self) -> bool {
        let Some(aligning) = &self.aligning else {
            return self.engine.barriers.wanted() > self.barrier;
        };
        let exchange = self.topology.exchange.as_ref();
        self.engine.barriers.is_abandoned(aligning.barrier)
            || (self.is_aligned(aligning.barrier)
                && (!aligning.has_given
                    || exchange.is_none_or(|one| one.all_given_before(aligning.barrier))))
    }

    /// Passes the barrier if it has come of all producers: gives an image of the state, and goes on.
    pub(super) fn try_cut(&mut self) -> Result<(), RunError> {
        let Some(&Aligning { barrier, has_given }) = self.aligning.as_ref() else {
            return Ok(());
        };
        let engine = Arc::clone(&self.engine);
        if self.done || engine.barriers.is_abandoned(barrier) {
            self.pass(barrier);
            return Ok(());
        }
        self.adopt_arrivals();
        if !self.is_aligned(barrier) {
            return Ok(());
        }
        let topology = Arc::clone(&self.topology);
        if let Some(exchange) = &topology.exchange {
            if !has_given {
                self.give_all_buckets(exchange);
                exchange.give_before(self.id, barrier);
                self.aligning = Some(Aligning { barrier, has_given: true });
                topology.notify_all();
            }
            if !exchange.all_given_before(barrier) {
                return Ok(());
            }
            self.take_buckets()?;
        }
        let alignment = self.barrier_since.map(|since| since.elapsed()).unwrap_or_default();
        if engine.barriers.is_rescale(barrier) {
            // Where the run ends, it ends with the shards it has.
            if !(engine.closing.load(Ordering::SeqCst) && self.all_ended()) {
                self.hand_over(alignment)?;
            }
            return Ok(());
        }
        let started = Instant::now();
        let sections = self.sections()?;
        // Results from here on lie behind the barrier.
        engine.sink.pass(self.id, barrier)?;
        engine.barriers.give(ShardCut {
            barrier,
            shard: self.id,
            sections,
            rows_in: self.stats.rows_in,
            rows_out: self.stats.rows_out,
            windows_emitted: self.stats.windows_emitted,
            closed: self.watermark,
            passed: self.passed,
            alignment,
            capture: started.elapsed(),
        });
        self.pass(barrier);
        Ok(())
    }

    fn pass(&mut self, barrier: u64) {
        self.aligning = None;
        self.barrier_since = None;
        self.barrier = barrier;
        for inbound in &self.inbound {
            // Who was held back may have waited for room.
            inbound.ingest.wake.notify();
        }
    }

    /// An image of all it keeps.
    fn sections(&mut self) -> Result<Vec<SectionImage>, RunError> {
        let Some(process) = &self.process else { return self.windows.image(&self.engine.layout) };
        let image = process.image(self.engine.layout.schema());
        let rows = image.num_rows() as u64;
        let Span { point, first, last } = Span::ALL;
        let section = Section { kind: SectionKind::Process, point, first, last, rows };
        Ok(vec![SectionImage { section, image: SectionRows::Memory(image) }])
    }

    /// Gives all it has to the shards that come after it, and ends.
    fn hand_over(&mut self, alignment: Duration) -> Result<(), RunError> {
        let inbound = self.inbound.iter().filter(|inbound| !inbound.ended);
        let promised = inbound.map(|inbound| (inbound.ingest.id, inbound.watermark)).collect();
        self.measure_state();
        let kept = if self.process.is_some() || self.engine.job.memory.is_some() {
            // Of what is on disk there is no pane.
            KeptState::Sections(self.sections()?)
        } else {
            let windows =
                OpenWindows::new(Arc::clone(&self.engine.job), self.topology.workers(), None);
            let mut windows = std::mem::replace(&mut self.windows, windows);
            let open = windows.leave_open();
            KeptState::Panes(Box::new(windows), open)
        };
        self.done = true;
        self.aligning = None;
        self.engine.barriers.hand_over(ShardState {
            shard: self.id,
            groups: self.topology.ranges()[self.id].clone(),
            kept,
            promised,
            closed: self.watermark,
            furthest: self.furthest,
            alignment,
        });
        Ok(())
    }

    /// Takes what belongs to this shard's key groups from the shards that were there before.
    /// Panes in `warm` are empty, and taken for what is copied. Most of that is done later, between messages; `settled`
    /// is dropped when all is.
    pub(crate) fn take_over(
        &mut self,
        before: &[Mutex<ShardState>],
        warm: Vec<Pane>,
        settled: Sender<Infallible>,
    ) -> Result<(), RunError> {
        let groups = self.topology.ranges()[self.id].clone();
        self.windows.lend(warm);
        let (mut closed, mut furthest) = (i64::MAX, i64::MIN);
        let mut mine = Vec::new();
        for state in before {
            let one = lock(state);
            closed = closed.min(one.closed);
            furthest = furthest.max(one.furthest);
            if groups.start() <= one.groups.end() && one.groups.start() <= groups.end() {
                mine.push(state);
            }
        }
        for state in &mine {
            let ShardState { groups: from, kept, .. } = &mut *lock(state);
            match kept {
                KeptState::Panes(windows, open) => {
                    self.windows.take_over((windows, open), from, &groups, mine.len() == 1);
                }
                KeptState::Sections(sections) => {
                    for SectionImage { section, image } in sections {
                        let image = image.read().map_err(|source| RunError::System {
                            what: "cannot read state back from the spill directory".to_owned(),
                            source,
                        })?;
                        let rows = rows_of_groups(&image, &groups);
                        let image = image.slice(rows.start, rows.len());
                        self.take_section(section, &image)?.map_err(|why| {
                            RunError::Defect(format!("in a rescale, a state was damaged: {why}"))
                        })?;
                    }
                }
            }
        }
        self.windows.tell_when_settled(settled);
        // What one had closed already is not there any more.
        self.windows.go_on_at(closed);
        self.furthest = furthest;
        self.passed = closed;
        self.watermark = closed;
        self.changed = true;
        if let Some(exchange) = &self.topology.exchange {
            exchange.pass(self.id, closed);
        }
        self.measure_state();
        Ok(())
    }

    /// Takes the state of this shard's key groups out of a checkpoint.
    pub(crate) fn restore(&mut self, restored: &Restored) -> Result<(), RunError> {
        let groups = self.topology.ranges()[self.id].clone();
        for (section, image) in restored.images(&groups) {
            let image = image?;
            self.take_section(section, &image)?.map_err(|why| restored.damaged(section, &why))?;
        }
        let passed = restored.manifest.time.passed.unwrap_or(i64::MIN);
        self.windows.go_on_at(passed);
        self.furthest = passed;
        self.passed = passed;
        self.watermark = passed;
        if let Some(exchange) = &self.topology.exchange {
            exchange.pass(self.id, passed);
        }
        Ok(())
    }

    /// Takes rows of a section in; says why if they are not what they should be.
    fn take_section(
        &mut self,
        section: &Section,
        image: &RecordBatch,
    ) -> Result<Result<(), String>, RunError> {
        let rows = match &self.engine.job.memory {
            Some(_) => RESTORE_ROWS,
            None => image.num_rows().max(1),
        };
        for start in (0..image.num_rows()).step_by(rows) {
            let image = image.slice(start, rows.min(image.num_rows() - start));
            self.windows.make_room_for_section(section, image.num_rows())?;
            let taken = match &mut self.process {
                None => self.windows.restore(&self.engine.layout, section, &image),
                Some(process) => process.restore(&image).map_err(|why| why.to_string()),
            };
            if taken.is_err() {
                return Ok(taken);
            }
        }
        Ok(Ok(()))
    }
}
