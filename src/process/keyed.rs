//! State and timers of the keys of one shard, and the calls of user code for them.
//!
//! A key has a slot while it has state or timers; slots are found by the key's hash and used again. Nothing
//! here knows threads: the shard says what rows came and how far time is.

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, LargeBinaryArray, RecordBatchOptions, UInt16Array};
use arrow::buffer::NullBuffer;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use hashbrown::HashTable;

use super::codec::{Codec, CodecError, take};
use super::{KeyRows, KeyedProcess, ProcessError, TimeDomain, Timer};
use crate::append::columns::Columns;
use crate::append::row::{Row, RowError};
use crate::error::{ConfigError, RunError};
use crate::key::batch::KeyBatch;
use crate::key::encode::{DecodeKeys, KeyEncoder};
use crate::key::group::key_group;
use crate::time::clock::Clock;

/// Results of one batch, at most.
const RESULT_ROWS: usize = 8192;

/// Version of the bytes of a key group.
const FORMAT: u8 = 1;

/// A key as it is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StoredKey {
    Word(Option<u64>),
    Bytes(Option<Box<[u8]>>),
}

impl StoredKey {
    fn of(keys: &KeyBatch, row: usize) -> Self {
        if keys.width == 1 {
            let is_null = keys.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
            return Self::Word((!is_null).then(|| keys.words.as_slice()[row]));
        }
        let mut stored = None;
        keys.visit_bytes(row, &mut |bytes| stored = bytes.map(Box::from));
        Self::Bytes(stored)
    }

    fn is(&self, keys: &KeyBatch, row: usize) -> bool {
        match self {
            Self::Word(word) => {
                let is_null = keys.nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
                *word == (!is_null).then(|| keys.words.as_slice()[row])
            }
            Self::Bytes(own) => {
                let mut equal = false;
                keys.visit_bytes(row, &mut |bytes| equal = bytes == own.as_deref());
                equal
            }
        }
    }
}

impl Codec for StoredKey {
    fn save(&self, out: &mut Vec<u8>) {
        match self {
            Self::Word(word) => {
                0_u8.save(out);
                word.save(out);
            }
            Self::Bytes(bytes) => {
                1_u8.save(out);
                bytes.as_ref().map(|bytes| bytes.len()).save(out);
                out.extend_from_slice(bytes.as_deref().unwrap_or_default());
            }
        }
    }

    fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
        match u8::restore(input)? {
            0 => Ok(Self::Word(Codec::restore(input)?)),
            1 => {
                let len = Option::<usize>::restore(input)?;
                let bytes = len.map(|len| take(input, len).map(Box::from)).transpose()?;
                Ok(Self::Bytes(bytes))
            }
            other => Err(CodecError(format!("{other} is no kind of key"))),
        }
    }
}

/// Keys in a list, by reference.
struct Listed<'a>(Vec<&'a StoredKey>);

impl DecodeKeys for Listed<'_> {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn words(&self) -> (Vec<u64>, Option<NullBuffer>) {
        let words = self.0.iter().map(|key| match key {
            StoredKey::Word(word) => *word,
            StoredKey::Bytes(_) => unreachable!("keys of one job are of one kind"),
        });
        let words = words.collect::<Vec<_>>();
        let nulls = words.iter().any(Option::is_none);
        let nulls = nulls.then(|| words.iter().map(Option::is_some).collect());
        (words.into_iter().map(Option::unwrap_or_default).collect(), nulls)
    }

    fn bytes(&self, k: usize, visit: &mut dyn FnMut(Option<&[u8]>)) {
        match self.0[k] {
            StoredKey::Bytes(bytes) => visit(bytes.as_deref()),
            StoredKey::Word(_) => unreachable!("keys of one job are of one kind"),
        }
    }
}

/// The key whose rows or timer a [`KeyedProcess`] is given.
#[derive(Debug)]
pub struct Key<'a> {
    encoder: &'a KeyEncoder,
    key: &'a StoredKey,
}

impl Key<'_> {
    /// Its values, one array of one value for each key column. Decoded at each call.
    pub fn columns(&self) -> Vec<ArrayRef> {
        self.encoder.decode(&Listed(vec![self.key]))
    }

    /// It in words: values separated by `, `, NULL as `null`.
    pub fn text(&self) -> String {
        self.encoder.text(&Listed(vec![self.key]), 0)
    }
}

/// What a [`KeyedProcess`] may do besides changing its state.
#[derive(Debug)]
pub struct Context<'a> {
    watermark: i64,
    now: i64,
    timers: &'a mut Timers,
    /// Slot, and how often it was used before.
    slot: (u32, u32),
    out: &'a mut Columns,
    /// Whether timers are taken; not while the run ends.
    takes_timers: bool,
    clears: bool,
}

impl Context<'_> {
    /// No row before this time, in the unit of the event-time column, will come that its input has not promised
    /// otherwise; `i64::MIN` before the first, `i64::MAX` at the end of the run.
    pub fn watermark(&self) -> i64 {
        self.watermark
    }

    /// The clock, in milliseconds since 1970-01-01 00:00 UTC.
    pub fn processing_time(&self) -> i64 {
        self.now
    }

    /// Has [`KeyedProcess::on_timer`] called for this key once the watermark has reached `time`. Setting it twice is
    /// setting it once. While the run ends no timer is taken.
    pub fn set_timer(&mut self, time: i64) {
        self.set(TimeDomain::Event, time);
    }

    /// Has [`KeyedProcess::on_timer`] called for this key once the clock shows `time`, in milliseconds since
    /// 1970-01-01 00:00 UTC.
    pub fn set_processing_timer(&mut self, time: i64) {
        self.set(TimeDomain::Processing, time);
    }

    fn set(&mut self, domain: TimeDomain, time: i64) {
        if self.takes_timers {
            self.timers.of(domain).insert((time, self.slot.0, self.slot.1));
        }
    }

    /// Takes a timer back; true if it was set.
    pub fn delete_timer(&mut self, timer: Timer) -> bool {
        self.timers.of(timer.domain).remove(&(timer.time, self.slot.0, self.slot.1))
    }

    /// Gives a row: one value for each column of [`KeyedProcess::output`]. The key is put before it.
    ///
    /// # Errors
    /// If the row does not fit these columns.
    pub fn emit<R: Row>(&mut self, row: R) -> Result<(), RowError> {
        self.out.append(row)
    }

    /// Forgets the key when this call is over: its state is the default again and its timers are gone. Without,
    /// a key is kept for ever.
    pub fn clear(&mut self) {
        self.clears = true;
    }
}

/// Timers in the order in which they are due: time, slot, and how often the slot had been used before. Those of
/// keys that were forgotten stay until they are due, and then are nobody's.
type TimerSet = BTreeSet<(i64, u32, u32)>;

/// All timers.
#[derive(Debug, Default)]
struct Timers {
    event: TimerSet,
    processing: TimerSet,
}

impl Timers {
    fn of(&mut self, domain: TimeDomain) -> &mut TimerSet {
        match domain {
            TimeDomain::Event => &mut self.event,
            TimeDomain::Processing => &mut self.processing,
        }
    }
}

/// One key's state.
#[derive(Debug)]
struct Slot<S> {
    hash: u64,
    key: StoredKey,
    state: S,
}

/// How results leave.
pub(crate) type Deliver<'a> = &'a mut dyn FnMut(RecordBatch) -> Result<(), RunError>;

/// Rows of one batch for one shard.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Taken<'a> {
    pub(crate) batch: &'a RecordBatch,
    pub(crate) keys: &'a KeyBatch,
    pub(crate) selection: &'a [u32],
}

/// A process of whichever type, at one shard.
pub(crate) trait AtShard: Debug + Send {
    /// Gives rows to their keys. `watermark` is the shard's.
    fn rows(&mut self, taken: Taken<'_>, watermark: i64, give: Deliver<'_>)
    -> Result<(), RunError>;
    /// Fires event-time timers that are due.
    fn advance(&mut self, watermark: i64, give: Deliver<'_>) -> Result<(), RunError>;
    /// Fires processing-time timers that are due.
    fn tick(&mut self, watermark: i64, give: Deliver<'_>) -> Result<(), RunError>;
    /// In how long the next processing-time timer is due.
    fn next_tick(&self) -> Option<Duration>;
    /// Keys that are kept.
    fn len(&self) -> usize;
    /// State and timers of all keys, one row of bytes for each key group, ascending.
    fn image(&self, schema: &SchemaRef) -> RecordBatch;
    /// Adds rows of an image.
    fn restore(&mut self, image: &RecordBatch) -> Result<(), CodecError>;
}

/// A process of whichever type.
pub(crate) trait Erased: Debug + Send + Sync {
    /// The columns of its rows.
    fn output(&self) -> Vec<Field>;
    /// The name of its type, without its path.
    fn name(&self) -> &'static str;
    /// A fresh one for a shard.
    fn at_shard(&self, setting: Setting) -> Box<dyn AtShard>;
}

/// What a process at a shard has to know of its job.
#[derive(Debug, Clone)]
pub(crate) struct Setting {
    pub(crate) encoder: KeyEncoder,
    pub(crate) max_parallelism: u32,
    /// Key columns and the process's own.
    pub(crate) output_schema: SchemaRef,
}

/// The wrapper that knows the type.
#[derive(Debug)]
pub(crate) struct Typed<P>(Arc<P>);

impl<P: KeyedProcess> Typed<P> {
    pub(crate) fn new(process: P) -> Self {
        Self(Arc::new(process))
    }
}

impl<P: KeyedProcess> Erased for Typed<P> {
    fn output(&self) -> Vec<Field> {
        self.0.output()
    }

    fn name(&self) -> &'static str {
        let path = std::any::type_name::<P>();
        path.rsplit("::").next().unwrap_or(path)
    }

    fn at_shard(&self, setting: Setting) -> Box<dyn AtShard> {
        Box::new(KeyedShard::new(Arc::clone(&self.0), setting))
    }
}

/// Whether rows of these columns can be given.
pub(crate) fn check_output(fields: &[Field]) -> Result<(), ConfigError> {
    Columns::new(Arc::new(Schema::new(fields.to_vec()))).map(|_| ())
}

/// A process with the state of a shard's keys.
#[derive(Debug)]
pub(crate) struct KeyedShard<P: KeyedProcess> {
    process: Arc<P>,
    setting: Setting,
    slots: Vec<Option<Slot<P::State>>>,
    /// For each slot, how many keys it was given up by.
    used: Vec<u32>,
    free: Vec<u32>,
    by_key: HashTable<u32>,
    timers: Timers,
    clock: Clock,
    out: Columns,
    /// The key of each row in `out`.
    out_keys: Vec<StoredKey>,
    /// Slot and row of each row of a batch.
    order: Vec<(u32, u32)>,
    ending: bool,
}

/// Says which key was at work if it panics or fails.
enum Fault {
    Failed(ProcessError),
    Panicked(Box<dyn Any + Send>),
}

impl<P: KeyedProcess> KeyedShard<P> {
    fn new(process: Arc<P>, setting: Setting) -> Self {
        let out = Columns::new(Arc::new(Schema::new(process.output())));
        Self {
            process,
            setting,
            slots: Vec::new(),
            used: Vec::new(),
            free: Vec::new(),
            by_key: HashTable::new(),
            timers: Timers::default(),
            clock: Clock::system(),
            out: out.expect("checked when the job was built"),
            out_keys: Vec::new(),
            order: Vec::new(),
            ending: false,
        }
    }

    /// The slot of a row's key, made if there is none.
    fn slot(&mut self, keys: &KeyBatch, row: usize) -> u32 {
        let hash = keys.hashes[row];
        let slots = &self.slots;
        let is = |id: &u32| {
            slots[*id as usize].as_ref().is_some_and(|it| it.hash == hash && it.key.is(keys, row))
        };
        match self.by_key.find(hash, is) {
            Some(id) => *id,
            None => self.insert(hash, StoredKey::of(keys, row), P::State::default()),
        }
    }

    fn insert(&mut self, hash: u64, key: StoredKey, state: P::State) -> u32 {
        let slot = Some(Slot { hash, key, state });
        let id = if let Some(id) = self.free.pop() {
            self.slots[id as usize] = slot;
            id
        } else {
            self.slots.push(slot);
            self.used.push(0);
            u32::try_from(self.slots.len() - 1).expect("memory ends before 2^32 keys with state")
        };
        let slots = &self.slots;
        self.by_key
            .insert_unique(hash, id, |id| slots[*id as usize].as_ref().map_or(0, |slot| slot.hash));
        id
    }

    /// Forgets a key.
    fn remove(&mut self, id: u32) {
        let Some(slot) = self.slots[id as usize].take() else { return };
        if let Ok(entry) = self.by_key.find_entry(slot.hash, |other| *other == id) {
            entry.remove();
        }
        self.used[id as usize] = self.used[id as usize].wrapping_add(1);
        self.free.push(id);
    }

    /// Calls user code for one key.
    fn call(
        &mut self,
        id: u32,
        (watermark, now): (i64, i64),
        give: Deliver<'_>,
        call: impl FnOnce(&P, &Key<'_>, &mut P::State, &mut Context<'_>) -> Result<(), ProcessError>,
    ) -> Result<(), RunError> {
        let Some(slot) = &mut self.slots[id as usize] else { return Ok(()) };
        let key = Key { encoder: &self.setting.encoder, key: &slot.key };
        let mut ctx = Context {
            watermark,
            now,
            timers: &mut self.timers,
            slot: (id, self.used[id as usize]),
            out: &mut self.out,
            takes_timers: !self.ending,
            clears: false,
        };
        let process = &*self.process;
        let called =
            catch_unwind(AssertUnwindSafe(|| call(process, &key, &mut slot.state, &mut ctx)));
        let clears = ctx.clears;
        let fault = match called {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(Fault::Failed(error)),
            Err(panic) => Some(Fault::Panicked(panic)),
        };
        match fault {
            None => {}
            Some(Fault::Failed(error)) => {
                return Err(RunError::Process { key: key.text(), message: error.to_string() });
            }
            Some(Fault::Panicked(panic)) => {
                crate::error::blame_key(key.text());
                resume_unwind(panic);
            }
        }
        while self.out_keys.len() < self.out.rows {
            self.out_keys.push(slot.key.clone());
        }
        if clears {
            self.remove(id);
        }
        if self.out.rows >= RESULT_ROWS {
            self.give(give)?;
        }
        Ok(())
    }

    /// Hands on the rows given so far.
    fn give(&mut self, give: Deliver<'_>) -> Result<(), RunError> {
        if self.out.rows == 0 {
            return Ok(());
        }
        let defect = |error: arrow::error::ArrowError| RunError::Defect(error.to_string());
        let mut columns =
            self.setting.encoder.decode(&Listed(self.out_keys.iter().collect::<Vec<_>>()));
        let rows = self.out.take().map_err(defect)?;
        self.out_keys.clear();
        columns.extend(rows.columns().iter().cloned());
        let options = RecordBatchOptions::new().with_row_count(Some(rows.num_rows()));
        let schema = Arc::clone(&self.setting.output_schema);
        give(RecordBatch::try_new_with_options(schema, columns, &options).map_err(defect)?)
    }

    /// Takes one key, its timers and its state off the front of `input`.
    fn restore_key(&mut self, input: &mut &[u8]) -> Result<(), CodecError> {
        let (hash, key) = (u64::restore(input)?, StoredKey::restore(input)?);
        let event = Vec::<i64>::restore(input)?;
        let processing = Vec::<i64>::restore(input)?;
        let state = P::State::restore(input)?;
        let slots = &self.slots;
        let is = |id: &u32| slots[*id as usize].as_ref().is_some_and(|slot| slot.key == key);
        if self.by_key.find(hash, is).is_some() {
            return Err(CodecError("a key is there twice".to_owned()));
        }
        let id = self.insert(hash, key, state);
        let used = self.used[id as usize];
        self.timers.event.extend(event.into_iter().map(|time| (time, id, used)));
        self.timers.processing.extend(processing.into_iter().map(|time| (time, id, used)));
        Ok(())
    }
}

impl<P: KeyedProcess> AtShard for KeyedShard<P> {
    fn rows(
        &mut self,
        taken: Taken<'_>,
        watermark: i64,
        give: Deliver<'_>,
    ) -> Result<(), RunError> {
        let Taken { batch, keys, selection } = taken;
        let mut order = std::mem::take(&mut self.order);
        order.clear();
        for row in selection {
            order.push((self.slot(keys, *row as usize), *row));
        }
        order.sort_unstable();
        let now = self.clock.now();
        for rows in order.chunk_by(|a, b| a.0 == b.0) {
            let rows = KeyRows { batch, rows };
            self.call(rows.rows[0].0, (watermark, now), give, |process, key, state, ctx| {
                process.on_rows(key, &rows, state, ctx)
            })?;
        }
        self.order = order;
        self.give(give)
    }

    fn advance(&mut self, watermark: i64, give: Deliver<'_>) -> Result<(), RunError> {
        self.ending = watermark == i64::MAX;
        let now = if self.timers.event.is_empty() { 0 } else { self.clock.now() };
        while let Some((time, id, used)) = self.timers.event.first().copied() {
            if time > watermark {
                break;
            }
            self.timers.event.pop_first();
            if used != self.used[id as usize] {
                continue;
            }
            let timer = Timer { time, domain: TimeDomain::Event };
            self.call(id, (watermark, now), give, |process, key, state, ctx| {
                process.on_timer(key, timer, state, ctx)
            })?;
        }
        self.give(give)
    }

    fn tick(&mut self, watermark: i64, give: Deliver<'_>) -> Result<(), RunError> {
        if self.timers.processing.is_empty() {
            return Ok(());
        }
        let now = self.clock.now();
        while let Some((time, id, used)) = self.timers.processing.first().copied() {
            if time > now {
                break;
            }
            self.timers.processing.pop_first();
            if used != self.used[id as usize] {
                continue;
            }
            let timer = Timer { time, domain: TimeDomain::Processing };
            self.call(id, (watermark, now), give, |process, key, state, ctx| {
                process.on_timer(key, timer, state, ctx)
            })?;
        }
        self.give(give)
    }

    fn next_tick(&self) -> Option<Duration> {
        let (time, ..) = self.timers.processing.first()?;
        let left = time.saturating_sub(self.clock.now()).max(0);
        Some(Duration::from_millis(left.unsigned_abs()))
    }

    fn len(&self) -> usize {
        self.by_key.len()
    }

    fn image(&self, schema: &SchemaRef) -> RecordBatch {
        let mut timers = BTreeMap::<u32, [Vec<i64>; 2]>::new();
        for (domain, set) in [&self.timers.event, &self.timers.processing].iter().enumerate() {
            for (time, id, used) in *set {
                if *used == self.used[*id as usize] {
                    timers.entry(*id).or_default()[domain].push(*time);
                }
            }
        }
        let mut groups = BTreeMap::<u16, Vec<u8>>::new();
        for (id, slot) in (0_u32..).zip(&self.slots) {
            let Some(slot) = slot else { continue };
            let group = key_group(slot.hash, self.setting.max_parallelism);
            let out = groups.entry(group).or_insert_with(|| vec![FORMAT]);
            slot.hash.save(out);
            slot.key.save(out);
            let [event, processing] = timers.remove(&id).unwrap_or_default();
            event.save(out);
            processing.save(out);
            slot.state.save(out);
        }
        let bytes = LargeBinaryArray::from_iter_values(groups.values());
        let groups = UInt16Array::from_iter_values(groups.into_keys());
        let columns: Vec<ArrayRef> = vec![Arc::new(groups), Arc::new(bytes)];
        RecordBatch::try_new(SchemaRef::clone(schema), columns).expect("the layout of a process")
    }

    fn restore(&mut self, image: &RecordBatch) -> Result<(), CodecError> {
        for bytes in image.column(1).as_binary::<i64>().iter().flatten() {
            let mut input = bytes;
            let format = u8::restore(&mut input)?;
            if format != FORMAT {
                return Err(CodecError(format!("it is of version {format}, this reads {FORMAT}")));
            }
            while !input.is_empty() {
                self.restore_key(&mut input)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
