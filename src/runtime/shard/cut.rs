//! How a shard passes the barrier of a checkpoint, and begins where one was taken.

use std::sync::Arc;
use std::time::Instant;

use super::{Aligning, Shard};
use crate::checkpoint::{Section, SectionImage, SectionKind};
use crate::error::RunError;
use crate::runtime::barrier::ShardCut;
use crate::runtime::restore::Restored;
use crate::time::window::Span;

impl Shard {
    /// Takes note of a barrier that was asked for.
    pub(super) fn begin_alignment(&mut self) {
        let barrier = self.engine.barriers.wanted();
        if barrier > self.barrier && self.aligning.is_none() {
            self.aligning = Some(Aligning { barrier, since: Instant::now(), has_given: false });
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
        let exchange = self.engine.exchange.as_ref();
        self.engine.barriers.is_abandoned(aligning.barrier)
            || (self.is_aligned(aligning.barrier)
                && (!aligning.has_given
                    || exchange.is_none_or(|one| one.all_given_before(aligning.barrier))))
    }

    /// Passes the barrier if it has come of all producers: gives an image of the state, and goes on.
    pub(super) fn try_cut(&mut self) -> Result<(), RunError> {
        let Some(&Aligning { barrier, since, has_given }) = self.aligning.as_ref() else {
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
        if let Some(exchange) = &engine.exchange {
            if !has_given {
                self.give_all_buckets(exchange);
                exchange.give_before(self.id, barrier);
                self.aligning = Some(Aligning { barrier, since, has_given: true });
                engine.doors.iter().for_each(|door| door.wake.notify());
            }
            if !exchange.all_given_before(barrier) {
                return Ok(());
            }
            self.take_buckets()?;
        }
        let alignment = since.elapsed();
        let started = Instant::now();
        let sections = match &self.process {
            None => self.windows.image(&engine.layout)?,
            Some(process) => {
                let image = process.image(engine.layout.schema());
                let rows = image.num_rows() as u64;
                let Span { point, first, last } = Span::ALL;
                let section = Section { kind: SectionKind::Process, point, first, last, rows };
                vec![SectionImage { section, image }]
            }
        };
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
        self.barrier = barrier;
        for inbound in &self.inbound {
            // Who was held back may have waited for room.
            inbound.ingest.wake.notify();
        }
    }

    /// Takes the state of this shard's key groups out of a checkpoint.
    pub(crate) fn restore(&mut self, restored: &Restored) -> Result<(), RunError> {
        let groups = restored.groups_of(self.id);
        for (section, image) in restored.images(&groups) {
            let image = image?;
            if image.num_rows() > 0 {
                let taken = match &mut self.process {
                    None => self.windows.restore(&self.engine.layout, section, &image),
                    Some(process) => process.restore(&image).map_err(|why| why.to_string()),
                };
                taken.map_err(|why| restored.damaged(section, &why))?;
            }
        }
        let passed = restored.manifest.time.passed.unwrap_or(i64::MIN);
        self.windows.go_on_at(passed);
        self.furthest = passed;
        self.passed = passed;
        self.watermark = passed;
        if let Some(exchange) = &self.engine.exchange {
            exchange.pass(self.id, passed);
        }
        Ok(())
    }
}
