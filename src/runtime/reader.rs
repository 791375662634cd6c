//! Reads the current aggregates of a key, from any thread, without a lock.
//!
//! A key's state in one window is the owner's row and the partials that producers have of it. They are read twice
//! (`reader/collect.rs`): if all are the same both times, they were so together at an instant between (the double
//! collect of Afek et al., "Atomic snapshots of shared memory", 1993). No stamp and no list ever comes back while a
//! guard is held, so being the same means not having changed.
//!
//! Cost: a search in one table for each open window; a little more for each producer; no lock and, once the result
//! has room, few allocations.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Int64Array};
use arrow::datatypes::{Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::board::Board;
use super::emit::{time_column, time_text};
use super::grace::Entry;
use super::shared::EngineShared;
pub use crate::aggregate::Scalar;
use crate::aggregate::plan::Plan;
use crate::aggregate::{Misfit, Part, Side};
use crate::append::columns::Columns;
use crate::append::row::{Row, RowError};
use crate::config::Job;
use crate::error::{ConfigError, Overflow, RunError};
use crate::key::batch::{KeyBatch, is_long};
use crate::key::encode::{DecodeKeys as _, KeyEncoder};
use crate::key::group::{key_group, shard_of_group};
use crate::key::hash::hash_word;
use crate::state::readable::SoughtKey;

mod collect;
mod keys;
mod merge;

use collect::{Alone, Collected, collect, copy_alone};
use keys::{KeyList, all_keys};
use merge::Merger;

/// Rows of a batch of a scan.
const SCAN_ROWS: usize = 8192;

/// Words of a state, and aggregates, for which a read takes no memory from the heap.
const PLAIN_WORDS: usize = 24;
const PLAIN_OUTPUTS: usize = 16;

/// Why a state of a readable aggregate is not in its row.
const SPILLED: &str = " for this key, whose values have sums of more digits than a row holds";

/// Why nothing could be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The job keeps no state that readers may see.
    #[error("the job was built without readers; add `.readers(true)` to its builder")]
    Off,
    /// What this aggregate keeps does not lie in its key's row, where it could be read without a lock.
    #[error(
        "{aggregate} cannot be read without a lock{why}; read the others (`Reader::select`), and this one through \
         early results (`emit_every`, `Latest`) or `Engine::snapshot`"
    )]
    NotInRow {
        /// The aggregate's text, `count(distinct x)`.
        aggregate: String,
        /// The cause, if it is not the aggregate as such.
        why: &'static str,
    },
    /// This aggregate has no single number.
    #[error(
        "{aggregate} is no number by itself; use `Reader::get`, or leave it out with `Reader::select`"
    )]
    NoScalar {
        /// The aggregate's text.
        aggregate: String,
    },
    /// The key does not fit the key columns.
    #[error("the key does not fit: {0}")]
    Key(#[from] RowError),
    /// The job has other keys than integers.
    #[error("the job's key is no integer; use `Reader::get`")]
    NoIntegerKey,
    /// No aggregate is called that.
    #[error("the job has no aggregate \"{name}\"; it has {}", .available.join(", "))]
    UnknownAggregate {
        /// The name as given.
        name: String,
        /// All names of aggregates.
        available: Vec<String>,
    },
    /// A result does not fit its type, as it would not at the window's end, if nothing changed until then.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The run has failed or was abandoned while it wrote the key's row.
    #[error("the run has stopped; its report or error says why")]
    Stopped,
    /// The result could not be made.
    #[error("the result could not be made: {0}")]
    Arrow(#[from] ArrowError),
}

/// Reads the state of a running engine, from any thread. Made by [`Engine::reader`](crate::Engine::reader).
///
/// What is read of one key is its state at one instant: each row that the owner has taken in, or that a producer has
/// aggregated because the key is hot, is in it once, in all aggregates; of each producer these are all rows up to
/// some row. Rows in a handle or on their way to the owner are not in it yet. Two keys are read at two instants.
/// A window is there from its first row until its result is given; after that, ask the sink
/// ([`Latest`](crate::Latest)).
///
/// Reading takes no lock and keeps nobody waiting. A reader waits only while the row it wants is being written: the
/// moments in which a batch's piece of 512 rows, one of them this key's, is added. A clone has its own place to
/// note that it is reading, so give each thread one; a shared one is right, too, and a little slower.
///
/// ```
/// # use std::sync::Arc;
/// # use saltmill::arrow::datatypes::{DataType, Field, Schema};
/// # use saltmill::{Aggregate, Collected, Engine, Job};
/// # let schema = Schema::new(vec![Field::new("user", DataType::Int64, false), Field::new("amount", DataType::Int64, false)]);
/// let job = Job::builder(Arc::new(schema))
///     .key(["user"])
///     .aggregates([Aggregate::count(), Aggregate::sum("amount")])
///     .readers(true)
///     .build()?;
/// let engine = Engine::start(job, Collected::new())?;
/// let reader = engine.reader()?;
/// let mut appender = engine.ingest()?.appender()?;
/// appender.append((7, 30))?;
/// appender.append((7, 12))?;
/// appender.flush()?;
/// // From any thread, at any time.
/// while reader.get_int(7)?.is_empty() {
///     std::thread::yield_now();
/// }
/// let current = &reader.get_int(7)?[0];
/// assert_eq!(current.values[0].as_i64(), Some(2));
/// assert_eq!(current.values[1].as_i64(), Some(42));
/// assert!(reader.get((8,))?.is_none());
/// # appender.close()?;
/// # engine.finish()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Reader {
    job: Arc<Job>,
    board: Arc<Board>,
    entry: Entry,
    chosen: Arc<Chosen>,
}

/// What is read, and how it is given.
#[derive(Debug)]
struct Chosen {
    /// Indices into the plan's outputs.
    outputs: Vec<usize>,
    /// The accumulators they need.
    accumulators: Vec<usize>,
    schema: SchemaRef,
    /// Reads keys as given.
    keys: KeyEncoder,
    key_schema: SchemaRef,
}

/// Current aggregates of a key in one open window.
#[derive(Debug, Clone, PartialEq)]
pub struct Current {
    /// Its start and end, in the unit of the event-time column; none in a job without windows.
    pub window: Option<(i64, i64)>,
    /// The aggregates, in the order asked for.
    pub values: Vec<Scalar>,
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("schema", &self.chosen.schema).finish_non_exhaustive()
    }
}

impl Clone for Reader {
    fn clone(&self) -> Self {
        Self {
            job: Arc::clone(&self.job),
            board: Arc::clone(&self.board),
            entry: Entry::new(&self.board.domain),
            chosen: Arc::clone(&self.chosen),
        }
    }
}

impl Chosen {
    fn new(job: &Job, outputs: Vec<usize>) -> Result<Self, ConfigError> {
        let all = &job.output_schema.fields()[..];
        let first = job.grouping_columns();
        let mut fields = all[..first].to_vec();
        fields.extend(outputs.iter().map(|output| Arc::clone(&all[first + output])));
        fields.extend_from_slice(&all[first + job.plan.outputs.len()..]);
        let mut accumulators =
            outputs.iter().map(|output| job.plan.outputs[*output].placed).collect::<Vec<_>>();
        accumulators.sort_unstable();
        accumulators.dedup();
        let key_schema = Arc::new(Schema::new(job.keys.fields().to_vec()));
        let keys = KeyEncoder::new(&key_schema, (0..key_schema.fields().len()).collect())?;
        let schema = Arc::new(Schema::new(fields));
        Ok(Self { outputs, accumulators, schema, keys, key_schema })
    }
}

impl Reader {
    pub(crate) fn new(shared: &EngineShared) -> Result<Self, ReadError> {
        let board = Arc::clone(shared.board.as_ref().ok_or(ReadError::Off)?);
        let job = Arc::clone(&shared.job);
        let outputs = (0..job.plan.outputs.len()).collect();
        let chosen = Arc::new(Chosen::new(&job, outputs).expect("the job's own keys"));
        Ok(Self { entry: Entry::new(&board.domain), job, board, chosen })
    }

    /// A reader of these aggregates only, by the names of their columns, in this order.
    ///
    /// # Errors
    /// If there is no aggregate of such a name.
    pub fn select<N: AsRef<str>>(
        &self,
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, ReadError> {
        let plan = &self.job.plan.outputs;
        let mut outputs = Vec::new();
        for name in names {
            let name = name.as_ref();
            let found = plan.iter().position(|output| output.field.name() == name);
            outputs.push(found.ok_or_else(|| ReadError::UnknownAggregate {
                name: name.to_owned(),
                available: plan.iter().map(|output| output.field.name().clone()).collect(),
            })?);
        }
        let chosen = Arc::new(Chosen::new(&self.job, outputs).expect("the job's own keys"));
        Ok(Self { chosen, ..self.clone() })
    }

    /// Schema of what [`Reader::get`] gives: that of the job's results, or the part of it that was selected.
    pub fn schema(&self) -> &SchemaRef {
        &self.chosen.schema
    }

    /// The current aggregates of a key, one row for each open window in which it has rows, in order; none if it has
    /// none. `key` has one value for each key column: `("ann",)`, `("ann", 5)`.
    ///
    /// # Errors
    /// If `key` does not fit the key columns, or an aggregate cannot be read.
    pub fn get<R: Row>(&self, key: R) -> Result<Option<RecordBatch>, ReadError> {
        self.check_in_row()?;
        let keys = self.key(key)?;
        let words = keys.words.as_slice();
        let second = if keys.width == 2 { words[1] } else { 0 };
        let is_long = keys.width == 2 && is_long(words[0]);
        let long = if is_long { keys.long.bytes(words[0], words[1]) } else { &[] };
        let sought = SoughtKey { hash: keys.hashes[0], words: [words[0], second], long };
        let is_null = keys.nulls.is_some();
        let mut given = Given::new(&self.job.plan, &self.chosen);
        self.read(&sought, |collected| given.add(&self.job, collected, &sought, is_null))?;
        given.take(self)
    }

    /// The same for a key of one integer column (or date or time, in its unit), as numbers.
    ///
    /// # Errors
    /// If the job's key is another, or an aggregate cannot be read, or is no number.
    pub fn get_int(&self, key: i64) -> Result<Vec<Current>, ReadError> {
        let mut all = Vec::new();
        self.each_int(key, |window, values| {
            all.push(Current { window, values: values.to_vec() });
        })?;
        Ok(all)
    }

    /// The same without a vector being made: calls `each` with every open window in which the key has rows, in order,
    /// and
    /// the aggregates; answers how many there were.
    ///
    /// # Errors
    /// As [`Reader::get_int`].
    #[inline]
    pub fn each_int(
        &self,
        key: i64,
        mut each: impl FnMut(Option<(i64, i64)>, &[Scalar]),
    ) -> Result<usize, ReadError> {
        if !self.job.keys.is_integer() {
            return Err(ReadError::NoIntegerKey);
        }
        self.check_in_row()?;
        let word = key.cast_unsigned();
        let sought = SoughtKey { hash: hash_word(word), words: [word, 0], long: &[] };
        if let Some(count) = self.each_alone(&sought, &mut each)? {
            return Ok(count);
        }
        let (mut values, mut count) = (Vec::new(), 0);
        self.read(&sought, |collected| {
            let mut merger = Merger::new(&self.job.plan, &self.chosen.accumulators);
            collected.each_window(&self.job, &mut merger, |window, state, sides| {
                values.resize(self.chosen.outputs.len(), Scalar::Null);
                self.scalars(state, sides, &mut values)?;
                count += 1;
                each(window, &values);
                Ok(())
            })
        })?;
        Ok(count)
    }

    /// The current aggregates of all keys in some key groups, as far as they are there while the scan comes by: each
    /// key at an instant of its own. In batches, in no order; a key's windows are in order.
    ///
    /// A scan of many keys takes long, about as long as that many [`Reader::get_int`], but disturbs nobody.
    ///
    /// # Errors
    /// If an aggregate cannot be read.
    pub fn scan(&self, groups: RangeInclusive<u16>) -> Result<Vec<RecordBatch>, ReadError> {
        self.check_in_row()?;
        let mut batches = Vec::new();
        for shard in 0..self.board.shards.len() {
            let keys =
                all_keys(&self.board, &self.entry, shard, self.chosen.keys.width(), |hash| {
                    groups.contains(&key_group(hash, self.job.max_parallelism))
                });
            let mut given = Given::new(&self.job.plan, &self.chosen);
            for k in 0..keys.len() {
                let (sought, is_null) = keys.sought(k);
                self.read(&sought, |collected| given.add(&self.job, collected, &sought, is_null))?;
                if given.merger.len() >= SCAN_ROWS {
                    batches.extend(given.take(self)?);
                    given = Given::new(&self.job.plan, &self.chosen);
                }
            }
            batches.extend(given.take(self)?);
        }
        Ok(batches)
    }

    /// Collects a key's state, again and again until it is whole.
    #[inline]
    fn read(
        &self,
        key: &SoughtKey<'_>,
        done: impl FnOnce(&Collected<'_>) -> Result<(), ReadError>,
    ) -> Result<(), ReadError> {
        let (job, shard) = (&self.job, self.shard_of(key));
        let mut tries = 0;
        loop {
            let guard = self.entry.enter();
            if let Some(collected) = collect(&self.board, &guard, shard, key, job.plan.words, tries)
            {
                return done(&collected);
            }
            // Nothing is held back meanwhile.
            drop(guard);
            tries += 1;
            if tries % 64 == 0 {
                if self.board.is_stopped() {
                    return Err(ReadError::Stopped);
                }
                // The writer's thread may be waiting for this processor.
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// The plain case of [`Reader::each_int`], without memory from the heap: one pane, one window, a short row. None if
    /// it
    /// is not that case.
    #[inline]
    fn each_alone(
        &self,
        key: &SoughtKey<'_>,
        each: &mut impl FnMut(Option<(i64, i64)>, &[Scalar]),
    ) -> Result<Option<usize>, ReadError> {
        let (job, outputs) = (&self.job, self.chosen.outputs.len());
        if job.plan.words > PLAIN_WORDS || outputs > PLAIN_OUTPUTS {
            return Ok(None);
        }
        let mut words = [0; PLAIN_WORDS];
        let words = &mut words[..job.plan.words];
        let guard = self.entry.enter();
        let found = copy_alone(&self.board, &guard, self.shard_of(key), key, words);
        drop(guard);
        let (span, closed_to) = match found {
            Alone::Unknown => return Ok(None),
            Alone::Nothing => return Ok(Some(0)),
            Alone::State(span, closed_to) => (span, closed_to),
        };
        let window = match &job.windows {
            None => None,
            Some(_) if span.first < span.last => return Ok(None),
            Some(_) if span.last <= closed_to => return Ok(Some(0)),
            Some(windows) => Some((windows.start_of(span.last), span.last)),
        };
        if let Some(accumulator) = merge::beside(&job.plan, &self.chosen.accumulators, words) {
            return Err(not_in_row(&job.plan, accumulator, SPILLED));
        }
        let mut values = [Scalar::Null; PLAIN_OUTPUTS];
        self.scalars(words, None, &mut values[..outputs])?;
        each(window, &values[..outputs]);
        Ok(Some(1))
    }

    fn shard_of(&self, key: &SoughtKey<'_>) -> usize {
        let job = &self.job;
        let group = key_group(key.hash, job.max_parallelism);
        usize::from(shard_of_group(group, job.shards(), job.max_parallelism))
    }

    /// Refuses aggregates that are never in the row.
    #[inline]
    fn check_in_row(&self) -> Result<(), ReadError> {
        let plan = &self.job.plan;
        let beside = |one: &&usize| !plan.accumulators[**one].accumulator.is_in_row(None);
        match self.chosen.accumulators.iter().find(beside) {
            None => Ok(()),
            Some(accumulator) => Err(self.not_in_row(*accumulator, "")),
        }
    }

    #[cold]
    fn not_in_row(&self, accumulator: usize, why: &'static str) -> ReadError {
        not_in_row(&self.job.plan, accumulator, why)
    }

    fn scalars(
        &self,
        state: &[u64],
        sides: Option<&[Side]>,
        values: &mut [Scalar],
    ) -> Result<(), ReadError> {
        for (to, output) in values.iter_mut().zip(&self.chosen.outputs) {
            let output = &self.job.plan.outputs[*output];
            let placed = &self.job.plan.accumulators[output.placed];
            let words = &state[placed.offset..placed.offset + placed.accumulator.words()];
            let side = sides.map_or(&Side::None, |sides| &sides[output.placed]);
            let value = placed.accumulator.scalar(output.part, words, side);
            *to = value.ok_or_else(|| ReadError::NoScalar { aggregate: output.text.clone() })?;
        }
        Ok(())
    }

    /// A key as given, in canonical form.
    fn key<R: Row>(&self, key: R) -> Result<KeyBatch, ReadError> {
        let Chosen { keys: encoder, key_schema, .. } = &*self.chosen;
        let mut keys = KeyBatch::default();
        let failed = |error: ConfigError| RowError::Serialize(error.to_string());
        let mut columns = Columns::new(Arc::clone(key_schema)).map_err(failed)?;
        columns.append(key)?;
        let batch = if key_schema.fields().is_empty() {
            let options = RecordBatchOptions::new().with_row_count(Some(1));
            RecordBatch::try_new_with_options(Arc::clone(key_schema), Vec::new(), &options)?
        } else {
            columns.take()?
        };
        encoder.encode(&batch, &mut keys)?;
        keys.hash_all(self.job.isa);
        Ok(keys)
    }
}

#[cold]
fn not_in_row(plan: &Plan, accumulator: usize, why: &'static str) -> ReadError {
    // A sum if there is one: that is what may leave its row.
    let is_sum = |part| matches!(part, Part::Sum | Part::SumDecimal | Part::Avg);
    let of_it = || plan.outputs.iter().filter(|output| output.placed == accumulator);
    let output = of_it().find(|output| is_sum(output.part)).or_else(|| of_it().next());
    let aggregate = output.map_or_else(String::new, |output| output.text.clone());
    ReadError::NotInRow { aggregate, why }
}

/// Results to be given as a batch.
struct Given<'a> {
    plan: &'a Plan,
    chosen: &'a Chosen,
    keys: KeyList,
    windows: Vec<(i64, i64)>,
    merger: Merger<'a>,
}

impl<'a> Given<'a> {
    fn new(plan: &'a Plan, chosen: &'a Chosen) -> Self {
        let keys = KeyList::new(chosen.keys.width());
        let merger = Merger::new(plan, &chosen.accumulators);
        Self { plan, chosen, keys, windows: Vec::new(), merger }
    }

    /// Adds the windows of one key.
    fn add(
        &mut self,
        job: &Job,
        collected: &Collected<'_>,
        key: &SoughtKey<'_>,
        is_null: bool,
    ) -> Result<(), ReadError> {
        let Self { keys, windows, merger, .. } = self;
        collected.keep_windows(job, merger, |window| {
            keys.push(key, is_null);
            windows.extend(window);
        })
    }

    /// The batch, if there is any row.
    fn take(mut self, reader: &Reader) -> Result<Option<RecordBatch>, ReadError> {
        if self.keys.len() == 0 {
            return Ok(None);
        }
        let job = &reader.job;
        let mut columns = Vec::<ArrayRef>::new();
        if let Some(data_type) = &job.bound_type {
            let starts = self.windows.iter().map(|(start, _)| *start).collect::<Vec<_>>();
            let ends = self.windows.iter().map(|(_, end)| *end).collect::<Vec<_>>();
            columns.extend([starts, ends].map(|all| time_column(Int64Array::from(all), data_type)));
        }
        columns.extend(job.keys.decode(&self.keys));
        let (rows, sides) = self.merger.kept();
        for output in &self.chosen.outputs {
            let output = &self.plan.outputs[*output];
            let placed = &self.plan.accumulators[output.placed];
            let side = &sides[output.placed];
            let column = placed.accumulator.emit(output.part, &rows, placed.offset, side);
            columns.push(column.map_err(|misfit| {
                let window = self.windows.get(misfit.row);
                overflow(
                    job,
                    output.text.clone(),
                    job.keys.text(&self.keys, misfit.row),
                    window,
                    misfit,
                )
            })?);
        }
        if job.emit_every.is_some() {
            columns.push(Arc::new(BooleanArray::from(vec![false; self.keys.len()])));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(self.keys.len()));
        let schema = Arc::clone(&self.chosen.schema);
        Ok(Some(RecordBatch::try_new_with_options(schema, columns, &options)?))
    }
}

fn overflow(
    job: &Job,
    aggregate: String,
    key: String,
    window: Option<&(i64, i64)>,
    misfit: Misfit,
) -> RunError {
    let window = window.zip(job.bound_type.as_ref()).map(|((start, end), data_type)| {
        format!("[{}, {})", time_text(*start, data_type), time_text(*end, data_type))
    });
    let Misfit { value, data_type, advice, .. } = misfit;
    RunError::Overflow(Box::new(Overflow { aggregate, key, window, value, data_type, advice }))
}
