//! Whose panic it was: code given to the engine may panic, and then the error names the thread and, where one row
//! was at work, its key.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow::buffer::NullBuffer;

use crate::aggregate::custom::take_panicked_row;
use crate::error::{RunError, blame_key, panic_message, take_blamed_key};
use crate::key::batch::KeyBatch;
use crate::key::encode::{DecodeKeys, KeyEncoder};

/// One key of a batch, to be decoded.
pub(crate) struct BatchKey<'a> {
    pub(crate) keys: &'a KeyBatch,
    pub(crate) row: usize,
}

impl DecodeKeys for BatchKey<'_> {
    fn len(&self) -> usize {
        1
    }

    fn words(&self) -> (Vec<u64>, Option<NullBuffer>) {
        let nulls = self.keys.nulls.as_ref().map(|nulls| nulls.slice(self.row, 1));
        (vec![self.keys.words.as_slice()[self.row]], nulls)
    }

    fn bytes(&self, _: usize, visit: &mut dyn FnMut(Option<&[u8]>)) {
        self.keys.visit_bytes(self.row, visit);
    }
}

/// Held while rows of a batch are given to code that may panic.
pub(crate) struct Blame<'a> {
    pub(crate) encoder: &'a KeyEncoder,
    pub(crate) keys: &'a KeyBatch,
}

impl Drop for Blame<'_> {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(row) = take_panicked_row()
        {
            let key = BatchKey { keys: self.keys, row };
            // A second panic while the first is under way would end the process.
            let text = catch_unwind(AssertUnwindSafe(|| self.encoder.text(&key, 0)));
            if let Ok(text) = text {
                blame_key(text);
            }
        }
    }
}

/// The error of a panic that was caught on the thread that calls this.
pub(crate) fn panicked(thread: impl Into<String>, panic: &(dyn Any + Send)) -> RunError {
    let message = panic_message(panic);
    RunError::Panicked { thread: thread.into(), key: take_blamed_key(), message }
}
