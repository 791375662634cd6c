//! Inputs that the workers themselves pull from.
//!
//! A [`Source`] is one input, and therefore one watermark: a file, or standard input. It hands out
//! [`Unit`]s of work (a block of text, a row group, a record batch) to whichever worker asks; the
//! expensive part, decoding, happens in the unit, on the worker's thread. Units are numbered, since
//! whether a row is late depends on the largest event time *before* it in the input, whoever reads it.

use std::fmt::Debug;

use arrow::record_batch::RecordBatch;

use crate::error::SourceError;

/// One input: an ordered sequence of units, handed out to any worker that asks.
pub trait Source: Send + Sync + Debug {
    /// Hands out the next unit. Called by many workers at once. Must not block for long: a source
    /// that waits for data (standard input) answers [`Take::Pending`] and is asked again.
    fn take(&self) -> Result<Take, SourceError>;

    /// Rows that this source could not turn into a row of the schema, by reason. They are in no
    /// batch. May be asked while units are read; complete once all are finished.
    fn rejected(&self) -> Vec<(String, u64)> {
        Vec::new()
    }

    /// Its name, for messages and checkpoints.
    fn name(&self) -> String {
        String::new()
    }

    /// Where reading would have to go on after the units handed out so far, in words of the source's own; none
    /// if it can only be read from where it is. Asked at a checkpoint, when all units that were handed out are
    /// finished and nobody takes one.
    fn position(&self) -> Option<String> {
        None
    }

    /// Goes on at a [`Source::position`] that another source of the same input gave; called before anything is
    /// taken. Units are numbered from 0 again.
    ///
    /// # Errors
    /// If there is no such place.
    fn resume(&self, position: &str) -> Result<(), SourceError> {
        let _ = position;
        let message = "cannot be read from the middle; start the run anew".to_owned();
        Err(SourceError { input: self.name(), place: None, message })
    }

    /// Whether the input may fall silent (a pipe), so that idleness applies to it.
    fn is_live(&self) -> bool {
        false
    }
}

/// Answer of [`Source::take`].
#[derive(Debug)]
pub enum Take {
    /// Work. Its ticket is one more than that of the unit handed out before.
    Unit(Box<dyn Unit>),
    /// Nothing now; ask again.
    Pending,
    /// No more, ever.
    End,
}

/// A contiguous part of an input, decoded by the worker that took it.
pub trait Unit: Send + Debug {
    /// Position among the input's units: 0, 1, 2, ... without gaps.
    fn ticket(&self) -> u64;

    /// The largest event time in the unit, in the unit of the time column; `None` if it has no row
    /// with a time. Called at most once, before the first [`Unit::next_batch`], and only if the job
    /// has event time. May decode, and keep what it decoded.
    fn time_max(&mut self) -> Result<Option<i64>, SourceError>;

    /// The smallest event time in the unit, if [`Unit::time_max`], which was called before, came by it
    /// and no time is null: a unit that lies in one window need not be looked through again.
    fn time_min(&self) -> Option<i64> {
        None
    }

    /// The next rows, in the input's order; `None` at the end of the unit.
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, SourceError>;
}
