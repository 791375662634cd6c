//! Stages of the data plane by name, for the benches: what an engine does with a batch, one stage at a
//! time or all of them on one thread. Exists with the feature `bench-internals` only, promises nothing to
//! other programs, and adds nothing to what it calls.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;

use crate::column::Column;
use crate::config::Job;
use crate::error::RunError;
use crate::kernel::Isa;
use crate::kernel::reduce::{MaskedReduce, MinMax};
use crate::kernel::select::{Compare, CompareMask, MaskRows, MaskedRows};
use crate::key::batch::KeyBatch;
use crate::runtime::intake::Intake;
use crate::runtime::ring;
use crate::runtime::router::Router;
use crate::runtime::shard::{Progress, Shard};
use crate::runtime::shared::EngineShared;
use crate::runtime::sink::{Collected, Sink};
use crate::runtime::topology::Topology;
use crate::runtime::wake::Sleeper;
use crate::state::pane::{OneKeyRows, Pane, Scratch};

/// Messages a shard takes between two batches.
const STEP_MESSAGES: usize = 4;

/// Least and largest value.
pub fn min_max(isa: Isa, values: &[i64]) -> Option<(i64, i64)> {
    isa.run(MinMax(values))
}

/// One bit a row: whether its value is `target`. `mask` has a word for each 64 rows.
pub fn equal_mask(isa: Isa, values: &[u64], target: u64, mask: &mut [u64]) {
    isa.run(CompareMask { values, compare: Compare::Equal, operand: target, mask });
}

/// The numbers of the rows whose bit is set.
pub fn mask_rows(isa: Isa, mask: &[u64], rows: &mut Vec<u32>) {
    rows.clear();
    isa.run(MaskRows { mask, rows });
}

/// Sum, least and largest of the values whose bit is set; without any, the least is above the largest.
pub fn masked_reduce(isa: Isa, values: &[i64], mask: &[u64]) -> (i128, i64, i64) {
    let reduced = isa.run(MaskedReduce { values, mask });
    (reduced.sum, reduced.min, reduced.max)
}

/// One batch on its way into the pane of one shard.
#[derive(Debug)]
pub struct Stages {
    job: Arc<Job>,
    keys: KeyBatch,
    columns: Vec<Column>,
    rows: Vec<u32>,
    /// The same as bits.
    mask: Vec<u64>,
    pane: Pane,
    scratch: Scratch,
}

impl Stages {
    /// With an empty pane.
    pub fn new(job: &Arc<Job>) -> Self {
        Self {
            keys: KeyBatch::default(),
            columns: Vec::new(),
            rows: Vec::new(),
            mask: Vec::new(),
            pane: Pane::new(&job.keys, &job.plan),
            scratch: Scratch::default(),
            job: Arc::clone(job),
        }
    }

    /// Takes a batch over: canonical keys and value columns, not yet hashed.
    pub fn encode(&mut self, batch: &RecordBatch) -> Result<(), RunError> {
        self.job.keys.encode(batch, &mut self.keys)?;
        self.columns.clear();
        for input in &self.job.plan.inputs {
            self.columns.push(input.read(batch, self.job.isa)?);
        }
        let rows = u32::try_from(batch.num_rows()).expect("row numbers are 32 bits");
        self.rows.clear();
        self.rows.extend(0..rows);
        self.mask.clear();
        self.mask.resize(batch.num_rows() / 64, u64::MAX);
        let rest = batch.num_rows() % 64;
        self.mask.extend((rest > 0).then(|| (1 << rest) - 1));
        Ok(())
    }

    /// Hashes the keys; answers the sum of the hashes.
    pub fn hash(&mut self) -> u64 {
        self.keys.hash_all(self.job.isa);
        self.keys.hashes.iter().fold(0, |sum, hash| sum.wrapping_add(*hash))
    }

    /// Looks the keys up and updates every aggregate; answers how many keys the pane has.
    pub fn update(&mut self) -> usize {
        let Self { job, keys, columns, rows, pane, scratch, .. } = self;
        pane.update(&job.plan, keys, columns, rows, scratch);
        pane.len()
    }

    /// The same for rows that all have one key, as those of a hot key.
    pub fn update_one_key(&mut self) -> usize {
        let Self { job, keys, columns, rows, mask, pane, scratch } = self;
        let masked = MaskedRows { mask, first: 0, count: rows.len() };
        let masked = OneKeyRows::Masked(masked);
        pane.update_one_key(&job.plan, keys, columns, masked, scratch);
        pane.len()
    }

    /// Merges the pane of another, as the owner merges partials; answers how many keys there are.
    pub fn merge(&mut self, from: &mut Self) -> usize {
        self.pane.merge(&self.job.plan, &mut from.pane, &mut self.scratch);
        self.pane.len()
    }

    /// The results of the pane: keys, then aggregates.
    pub fn emit(&mut self) -> Result<Vec<ArrayRef>, RunError> {
        let keys = u32::try_from(self.pane.len()).expect("row ids are 32 bits");
        let Self { job, pane, scratch, .. } = self;
        pane.emit(&job.plan, &job.keys, 0..keys, None, scratch)
    }

    /// Empties the pane and keeps its memory.
    pub fn clear(&mut self) {
        self.pane.clear();
    }
}

/// The router of a producer without hot keys.
#[derive(Debug)]
pub struct Routing {
    router: Router,
    sink: Collected,
}

impl Routing {
    /// A router for `job`.
    pub fn new(job: &Arc<Job>) -> Self {
        let wakes = (0..job.workers).map(|_| Arc::clone(Sleeper::new().wake())).collect();
        let router = Router::new(Arc::clone(job), &Topology::even(job, wakes), None);
        Self { router, sink: Collected::new() }
    }

    /// Prepares a batch: keys, hashes, windows, owners. Answers how many rows were selected.
    pub fn route(&mut self, batch: &RecordBatch) -> Result<usize, RunError> {
        let prepared = self.router.route(batch, 0, &self.sink)?;
        Ok(prepared.parts.iter().map(|part| part.selection.len()).sum())
    }
}

/// The two ends of a ring of numbers.
pub fn number_ring(capacity: usize) -> (NumberProducer, NumberConsumer) {
    let (producer, consumer) = ring::ring(capacity);
    (NumberProducer(producer), NumberConsumer(consumer))
}

/// Puts numbers in.
#[derive(Debug)]
pub struct NumberProducer(ring::Producer<u64>);

impl NumberProducer {
    /// Whether there was room.
    #[inline]
    pub fn push(&mut self, value: u64) -> bool {
        self.0.push(value).is_ok()
    }
}

/// Takes numbers out.
#[derive(Debug)]
pub struct NumberConsumer(ring::Consumer<u64>);

impl NumberConsumer {
    /// The oldest, if there is one.
    #[inline]
    pub fn pop(&mut self) -> Option<u64> {
        self.0.pop()
    }
}

/// A whole engine on the calling thread: one producer and all shards take turns. The same rows give the
/// same steps every time, so instructions can be counted.
pub fn run_inline(job: Job, batches: &[RecordBatch]) -> Result<Vec<RecordBatch>, RunError> {
    let job = Arc::new(job);
    let results = Collected::new();
    let sleepers = (0..job.workers).map(|_| Sleeper::new()).collect::<Vec<_>>();
    let wakes = sleepers.iter().map(|sleeper| Arc::clone(sleeper.wake())).collect();
    let sink: Arc<dyn Sink> = Arc::new(results.clone());
    let engine = Arc::new(EngineShared::new(Arc::clone(&job), sink, wakes, false, None));
    let mut shards =
        (0..job.workers).map(|id| Shard::new(id, Arc::clone(&engine))).collect::<Vec<_>>();
    let mut ingest = Intake::open(&engine);
    for batch in batches {
        ingest.offer_checked(batch.clone())?;
        while !ingest.try_flush()? {
            step(&mut shards)?;
        }
        step(&mut shards)?;
    }
    while !ingest.try_end()? {
        step(&mut shards)?;
    }
    engine.closing.store(true, Ordering::SeqCst);
    while !step(&mut shards)? {}
    Ok(results.take())
}

/// Steps every shard; whether all are done.
fn step(shards: &mut [Shard]) -> Result<bool, RunError> {
    let mut done = true;
    for shard in shards {
        done &= shard.step(STEP_MESSAGES)? == Progress::Done;
    }
    Ok(done)
}
