//! Rows into an engine one at a time.
//!
//! An appender gathers rows in columns ([`crate::append`]) and hands them on as a batch when there are enough or
//! the oldest has waited long enough. Its owner fills it under a lock that nobody else wants, except for the
//! engine's timer now and then; the timer hands on what a silent owner has left, and so no handle needs
//! a thread of its own.
//!
//! Two locks: that of the rows and that of the intake. Whoever hands on holds the intake's before it takes the
//! rows, so that batches arrive in the order in which they were gathered; nobody waits for the intake's
//! while holding that of the rows.

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arrow::record_batch::RecordBatch;

use super::blame::panicked;
use super::ingest::Ingest;
use super::intake::{Intake, TryPushError};
use super::shared::EngineShared;
use super::sink::lock;
use super::timer::Timed;
use crate::append::columns::Columns;
use crate::append::row::{Row, RowError};
use crate::error::RunError;

/// Rows after which a batch is handed on by default.
pub const APPEND_ROWS_DEFAULT: usize = 1024;

/// How long a row waits for others by default.
pub const APPEND_LATENCY_DEFAULT: Duration = Duration::from_millis(1);

/// Bytes of text in one column from which a batch is handed on.
const BYTES_MAX: usize = 16 << 20;

/// Rows between two looks at them.
const BYTES_ROWS: usize = 16;

/// When the timer comes back to an appender that is in use, or may not go on.
const AGAIN: Duration = Duration::from_micros(200);

/// Why a row was not appended.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The row does not fit the job's schema; the appender goes on without it.
    #[error(transparent)]
    Row(#[from] RowError),
    /// The run has failed or stopped.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Why [`Appender::try_append`] did not take a row.
#[derive(Debug, thiserror::Error)]
pub enum TryAppendError<R> {
    /// There is no room now; here is the row.
    #[error("the engine has no room now; append the row again later")]
    Full(R),
    /// The row does not fit the job's schema; the appender goes on without it.
    #[error(transparent)]
    Row(RowError),
    /// The run has failed or stopped.
    #[error(transparent)]
    Run(RunError),
}

/// A handle through which rows are fed into an [`Engine`](super::engine::Engine) one at a time, by one thread or
/// task at a time. Made by [`Ingest::appender`].
///
/// Rows are handed on, in order, once there are [`batch_rows`](Self::batch_rows) of them or the oldest has waited for
/// [`latency`](Self::latency), whether the appender is used meanwhile or not. Rows that have not been handed on are in
/// no result and no snapshot yet; [`flush`](Self::flush) hands them on at once. Larger batches and longer waits cost
/// less per row; see [the guide](crate::guide#batches-and-latency).
///
/// Nothing is allocated for a row once buffers have reached their size. What a row may be says [`crate::append`].
///
/// From async code use [`append_async`](Self::append_async), or [`ready`](Self::ready) and then
/// [`try_append`](Self::try_append): they wait without holding the runtime's thread, on any runtime.
#[derive(Debug)]
pub struct Appender {
    filling: Arc<Filling>,
    /// Ends the producer when it goes; after `filling` has been emptied.
    ingest: Option<Ingest>,
}

/// What an appender and the timer share.
#[derive(Debug)]
struct Filling {
    engine: Arc<EngineShared>,
    intake: Arc<Mutex<Intake>>,
    gathered: Mutex<Gathered>,
}

/// Rows that have not been handed on.
#[derive(Debug)]
struct Gathered {
    columns: Columns,
    /// When the first of them came.
    since: Instant,
    rows_max: usize,
    latency: Duration,
    /// There are enough of them.
    full: bool,
    /// Rows wake an idle input up at once, so that time does not go on without them.
    wakes: bool,
}

impl Appender {
    pub(crate) fn new(ingest: Ingest) -> Result<Self, RunError> {
        let intake = ingest.shared();
        let engine = Arc::clone(lock(&intake).engine());
        let job = &engine.job;
        let columns = Columns::new(Arc::clone(&job.schema));
        let columns = columns.map_err(|error| RunError::Batch(error.to_string()))?;
        let gathered = Gathered {
            columns,
            since: Instant::now(),
            rows_max: APPEND_ROWS_DEFAULT.min(job.batch_rows),
            latency: APPEND_LATENCY_DEFAULT,
            full: false,
            wakes: job.idle_timeout.is_some() && job.clock.is_none(),
        };
        let gathered = Mutex::new(gathered);
        let filling = Arc::new(Filling { engine, intake, gathered });
        let timed = Arc::clone(&filling) as Arc<dyn Timed>;
        filling.engine.timer.enter(Arc::downgrade(&timed))?;
        Ok(Self { filling, ingest: Some(ingest) })
    }

    /// Sets how many rows make a batch. Default: 1024, or the job's batch size if that is less. At least 1.
    #[must_use]
    pub fn batch_rows(self, rows: usize) -> Self {
        let mut gathered = self.filling.gathered();
        gathered.rows_max = rows.max(1);
        gathered.full = gathered.columns.rows >= gathered.rows_max;
        drop(gathered);
        self
    }

    /// Sets how long a row may wait for others. Zero hands each row on at once. Default: 1 ms.
    #[must_use]
    pub fn latency(self, latency: Duration) -> Self {
        lock(&self.filling.gathered).latency = latency;
        self
    }

    /// Appends a row, waiting for room as long as needed.
    ///
    /// # Errors
    /// [`AppendError::Row`] if it does not fit the job's schema: then nothing of it is taken, and the appender
    /// can be used on. [`AppendError::Run`] if the run has failed.
    #[inline]
    pub fn append<R: Row>(&mut self, row: R) -> Result<(), AppendError> {
        let mut gathered = self.filling.gathered();
        if gathered.full {
            // Left by a call that did not wait.
            drop(gathered);
            self.filling.hand_on()?;
            gathered = self.filling.gathered();
        }
        if self.filling.add(&mut gathered, row)? {
            drop(gathered);
            self.filling.hand_on()?;
        }
        Ok(())
    }

    /// Appends a struct, a map, a tuple or a sequence that implements `serde::Serialize`: fields go to the
    /// columns of their names, others are null. Waits for room as long as needed.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use saltmill::arrow::datatypes::{DataType, Field, Schema};
    /// # use saltmill::{Aggregate, Collected, Engine, Job};
    /// #[derive(serde::Serialize)]
    /// struct Purchase<'a> {
    ///     user: &'a str,
    ///     amount: Option<i64>,
    /// }
    /// # let schema = Schema::new(vec![
    /// #     Field::new("amount", DataType::Int64, true),
    /// #     Field::new("user", DataType::Utf8, false),
    /// # ]);
    /// # let job = Job::builder(Arc::new(schema)).key(["user"]).aggregate(Aggregate::sum("amount")).build()?;
    /// # let engine = Engine::start(job, Collected::new())?;
    /// let mut appender = engine.ingest()?.appender()?;
    /// appender.append_record(&Purchase { user: "ann", amount: Some(5) })?;
    /// # drop(appender);
    /// # assert_eq!(engine.finish()?.rows_in, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`Appender::append`]; also if a field is not a column.
    #[inline]
    pub fn append_record<T: serde::Serialize + ?Sized>(
        &mut self,
        record: &T,
    ) -> Result<(), AppendError> {
        self.append(crate::append::record::Record(record))
    }

    /// Appends a row if there is room, else gives it back.
    ///
    /// # Errors
    /// [`TryAppendError::Full`] with the row if a whole batch waits for room, or the input is too far ahead
    /// of the others ([`JobBuilder::alignment`](crate::JobBuilder::alignment)).
    pub fn try_append<R: Row>(&mut self, row: R) -> Result<(), TryAppendError<R>> {
        let mut gathered = self.filling.gathered();
        if gathered.full {
            drop(gathered);
            if !self.filling.try_hand_on().map_err(TryAppendError::Run)? {
                return Err(TryAppendError::Full(row));
            }
            gathered = self.filling.gathered();
        }
        let due = match self.filling.add(&mut gathered, row) {
            Ok(due) => due,
            Err(AppendError::Row(error)) => return Err(TryAppendError::Row(error)),
            Err(AppendError::Run(error)) => return Err(TryAppendError::Run(error)),
        };
        if due {
            drop(gathered);
            // What finds no room stays here, for the next call and the timer.
            if !self.filling.try_hand_on().map_err(TryAppendError::Run)? {
                self.filling.engine.timer.arm(Instant::now() + AGAIN);
            }
        }
        Ok(())
    }

    /// [`Appender::append_record`] without waiting: true if the row was taken.
    ///
    /// # Errors
    /// As [`Appender::append_record`].
    pub fn try_append_record<T: serde::Serialize + ?Sized>(
        &mut self,
        record: &T,
    ) -> Result<bool, AppendError> {
        match self.try_append(crate::append::record::Record(record)) {
            Ok(()) => Ok(true),
            Err(TryAppendError::Full(_)) => Ok(false),
            Err(TryAppendError::Row(error)) => Err(error.into()),
            Err(TryAppendError::Run(error)) => Err(error.into()),
        }
    }

    /// Hands on the rows so far and then `batch`, waiting for room.
    ///
    /// # Errors
    /// As [`Ingest::push`].
    pub fn push(&mut self, batch: RecordBatch) -> Result<(), RunError> {
        self.filling.hand_on()?;
        lock(&self.filling.intake).push(batch)
    }

    /// Hands on all rows so far, waiting for room.
    ///
    /// # Errors
    /// If the run has failed.
    pub fn flush(&mut self) -> Result<(), RunError> {
        self.filling.hand_on()?;
        lock(&self.filling.intake).wait_flush()
    }

    /// Hands on all rows so far, and promises that no row before `time` (in the unit of the event-time column) will
    /// follow; rows that break the promise are late. Waits for room.
    ///
    /// # Errors
    /// If the run has failed.
    pub fn watermark(&mut self, time: i64) -> Result<(), RunError> {
        self.filling.hand_on()?;
        lock(&self.filling.intake).watermark(time)
    }

    /// Hands on all rows so far, and excuses this handle from holding back the watermark until its next row.
    ///
    /// # Errors
    /// If the run has failed.
    pub fn idle(&mut self) -> Result<(), RunError> {
        self.filling.hand_on()?;
        lock(&self.filling.intake).idle()
    }

    /// Ends this producer: hands on what is left and releases its hold on the watermark. Dropping the
    /// appender does the same, without telling of an error.
    ///
    /// # Errors
    /// If the run has failed.
    pub fn close(self) -> Result<(), RunError> {
        self.into_ingest()?.close()
    }

    /// Hands on all rows so far and gives the handle for batches back.
    ///
    /// # Errors
    /// If the run has failed.
    pub fn into_ingest(mut self) -> Result<Ingest, RunError> {
        self.filling.hand_on()?;
        Ok(self.ingest.take().expect("it is taken once, here, by value"))
    }

    /// Waits until there is room for a row, which [`Appender::try_append`] then takes.
    ///
    /// # Errors
    /// If the run has failed.
    pub async fn ready(&mut self) -> Result<(), RunError> {
        poll_fn(|cx| self.poll_ready(cx)).await
    }

    /// [`Appender::ready`] for futures written by hand.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), RunError>> {
        if self.filling.engine.is_stopped() {
            return Poll::Ready(Err(RunError::Stopped));
        }
        if !self.filling.gathered().full {
            return Poll::Ready(Ok(()));
        }
        self.filling.poll(cx, Filling::try_hand_on)
    }

    /// [`Appender::append`] from async code.
    ///
    /// # Errors
    /// As [`Appender::append`].
    pub async fn append_async<R: Row>(&mut self, row: R) -> Result<(), AppendError> {
        self.ready().await?;
        match self.try_append(row) {
            Ok(()) => Ok(()),
            Err(TryAppendError::Row(error)) => Err(error.into()),
            Err(TryAppendError::Run(error)) => Err(error.into()),
            Err(TryAppendError::Full(_)) => {
                unreachable!("there was room, which nobody but this call takes")
            }
        }
    }

    /// [`Appender::push`] from async code: for tasks that have whole batches.
    ///
    /// # Errors
    /// As [`Appender::push`].
    pub async fn push_async(&mut self, batch: RecordBatch) -> Result<(), RunError> {
        let mut batch = Some(batch);
        let mut push = |filling: &Filling| {
            if !filling.try_hand_on()? {
                return Ok(false);
            }
            let Some(whole) = batch.take() else { return Ok(true) };
            match lock(&filling.intake).try_push(whole) {
                Ok(()) => Ok(true),
                Err(TryPushError::Full(back)) => {
                    batch = Some(back);
                    Ok(false)
                }
                Err(TryPushError::Run(error)) => Err(error),
            }
        };
        poll_fn(|cx| self.filling.poll(cx, &mut push)).await
    }

    /// [`Appender::flush`] from async code.
    ///
    /// # Errors
    /// If the run has failed.
    pub async fn flush_async(&mut self) -> Result<(), RunError> {
        poll_fn(|cx| self.filling.poll(cx, Filling::try_flush)).await
    }

    /// [`Appender::watermark`] from async code.
    ///
    /// # Errors
    /// If the run has failed.
    pub async fn watermark_async(&mut self, time: i64) -> Result<(), RunError> {
        self.flush_async().await?;
        let promise = |filling: &Filling| lock(&filling.intake).try_watermark(time);
        poll_fn(|cx| self.filling.poll(cx, promise)).await
    }

    /// [`Appender::close`] from async code.
    ///
    /// # Errors
    /// If the run has failed.
    pub async fn close_async(mut self) -> Result<(), RunError> {
        self.flush_async().await?;
        poll_fn(|cx| self.filling.poll(cx, |filling| lock(&filling.intake).try_end())).await
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        if self.ingest.is_some() && !self.filling.engine.is_stopped() {
            // An error here is the run's error, and told by `finish`.
            if let Err(error) = self.filling.hand_on() {
                self.filling.engine.fail(error);
            }
        }
    }
}

impl Filling {
    fn gathered(&self) -> MutexGuard<'_, Gathered> {
        lock(&self.gathered)
    }

    /// Adds a row; true if the batch is to be handed on now.
    #[inline]
    fn add<R: Row>(&self, gathered: &mut Gathered, row: R) -> Result<bool, AppendError> {
        gathered.columns.append(row)?;
        if gathered.columns.rows == 1 {
            self.first_row(gathered)?;
        }
        let rows = gathered.columns.rows;
        // Bytes are looked at now and then: rows are seldom so long.
        gathered.full = rows >= gathered.rows_max
            || (rows.is_multiple_of(BYTES_ROWS) && gathered.columns.has_bytes(BYTES_MAX));
        Ok(gathered.full || gathered.latency.is_zero())
    }

    /// Takes note of the first row of a batch.
    #[cold]
    #[inline(never)]
    fn first_row(&self, gathered: &mut Gathered) -> Result<(), RunError> {
        if self.engine.is_stopped() {
            return Err(RunError::Stopped);
        }
        if !gathered.latency.is_zero() {
            gathered.since = Instant::now();
            self.engine.timer.arm(gathered.since + gathered.latency);
        }
        if gathered.wakes
            && let Some(mut intake) = try_lock(&self.intake)
        {
            intake.wake_up();
        }
        Ok(())
    }

    /// Hands on all rows so far, waiting for room.
    fn hand_on(&self) -> Result<(), RunError> {
        let mut intake = lock(&self.intake);
        let mut gathered = self.gathered();
        if gathered.columns.rows == 0 {
            return Ok(());
        }
        let batch = take(&mut gathered)?;
        drop(gathered);
        intake.push(batch)
    }

    /// Hands on all rows so far if there is room; true if none is left here.
    fn try_hand_on(&self) -> Result<bool, RunError> {
        hand_on_from(&mut lock(&self.intake), lock(&self.gathered))
    }

    /// Hands everything on if there is room; true if nothing is left.
    fn try_flush(&self) -> Result<bool, RunError> {
        Ok(self.try_hand_on()? && lock(&self.intake).try_flush()?)
    }

    /// Tries until it succeeds, woken when there may be room.
    fn poll(
        &self,
        cx: &mut Context<'_>,
        mut tries: impl FnMut(&Self) -> Result<bool, RunError>,
    ) -> Poll<Result<(), RunError>> {
        match tries(self) {
            Ok(true) => return Poll::Ready(Ok(())),
            Ok(false) => {}
            Err(error) => return Poll::Ready(Err(error)),
        }
        // Be seen first, then look once more.
        lock(&self.intake).wait_in(cx.waker());
        let again = tries(self);
        if matches!(again, Ok(false)) {
            // Nobody wakes inputs that are ahead of others.
            self.engine.timer.arm(Instant::now() + APPEND_LATENCY_DEFAULT);
            return Poll::Pending;
        }
        lock(&self.intake).forget_waiter();
        Poll::Ready(again.map(|_| ()))
    }

    /// What the timer does; says when to come again.
    fn serve(&self, now: Instant) -> Result<Option<Instant>, RunError> {
        let again = Some(now + AGAIN);
        let Some(mut intake) = try_lock(&self.intake) else { return Ok(again) };
        if intake.wake_waiter() {
            return Ok(again);
        }
        let Some(gathered) = try_lock(&self.gathered) else { return Ok(again) };
        if gathered.columns.rows > 0 {
            let due = gathered.since + gathered.latency;
            if due > now {
                return Ok(Some(due));
            }
            if !hand_on_from(&mut intake, gathered)? {
                return Ok(again);
            }
        }
        if intake.is_empty() || intake.try_flush()? {
            return Ok(None);
        }
        Ok(again)
    }
}

impl Timed for Filling {
    fn tick(&self, now: Instant) -> Option<Instant> {
        if self.engine.is_stopped() {
            return None;
        }
        // Routing runs code of custom aggregates.
        match catch_unwind(AssertUnwindSafe(|| self.serve(now))) {
            Ok(Ok(next)) => next,
            Ok(Err(error)) => {
                self.engine.fail(error);
                None
            }
            Err(panic) => {
                self.engine.fail(panicked("timer", panic.as_ref()));
                None
            }
        }
    }
}

/// Hands on all rows so far if there is room; true if none is left.
fn hand_on_from(
    intake: &mut Intake,
    mut gathered: MutexGuard<'_, Gathered>,
) -> Result<bool, RunError> {
    if gathered.columns.rows == 0 {
        return Ok(true);
    }
    if !intake.has_room()? {
        return Ok(false);
    }
    let batch = take(&mut gathered)?;
    drop(gathered);
    intake.offer(batch);
    intake.try_flush()?;
    Ok(true)
}

/// All rows so far as a batch.
fn take(gathered: &mut Gathered) -> Result<RecordBatch, RunError> {
    gathered.full = false;
    gathered.columns.take().map_err(|error| RunError::Defect(error.to_string()))
}

/// The lock, unless somebody holds it.
fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(guard)) => Some(PoisonError::into_inner(guard)),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Ingest {
    /// Makes this handle one for single rows.
    ///
    /// # Errors
    /// If a column of the job's schema has a type that values of Rust do not go into (a list, a struct):
    /// leave it out of the schema, or push batches.
    pub fn appender(self) -> Result<Appender, RunError> {
        Appender::new(self)
    }
}
