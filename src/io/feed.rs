//! A named thread that reads ahead, and the bounded channel it fills.
//!
//! Invariants: items arrive in the order they were sent; an error is delivered once, after all items
//! before it; a thread that dies without saying that it reached the end is an error, never an end.
//! The thread ends when the [`Feed`] is dropped (at its next send: a thread that waits in a read of a
//! silent pipe is left behind until the pipe says something or the process ends).

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, TryRecvError, bounded};

use crate::error::SourceError;

/// The receiving end.
pub(crate) struct Feed<T> {
    receiver: Receiver<Result<T, SourceError>>,
    /// Set by the thread as its last act, or by the receiver once it reported the thread's death.
    complete: Arc<AtomicBool>,
    input: String,
}

/// The sending end, held by the thread.
pub(crate) struct Outlet<T>(Sender<Result<T, SourceError>>);

/// The [`Feed`] is gone; there is nobody to read for.
pub(crate) struct Abandoned;

/// Why a reading thread stops before the end.
pub(crate) enum Stop {
    Abandoned,
    Failed(SourceError),
}

impl From<Abandoned> for Stop {
    fn from(_: Abandoned) -> Self {
        Self::Abandoned
    }
}

impl From<SourceError> for Stop {
    fn from(error: SourceError) -> Self {
        Self::Failed(error)
    }
}

/// What [`Feed::poll`] found.
pub(crate) enum Polled<T> {
    Item(T),
    Pending,
    End,
}

impl<T> fmt::Debug for Feed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Feed").field("input", &self.input).finish_non_exhaustive()
    }
}

impl<T> Outlet<T> {
    /// Hands an item on; waits while the channel is full.
    pub(crate) fn send(&self, item: T) -> Result<(), Abandoned> {
        self.0.send(Ok(item)).map_err(|_| Abandoned)
    }
}

impl<T: Send + 'static> Feed<T> {
    /// Starts `read` on a thread of its own, with room for `capacity` items in between.
    pub(crate) fn start<F>(input: &str, capacity: usize, read: F) -> Result<Self, SourceError>
    where
        F: FnOnce(&Outlet<T>) -> Result<(), Stop> + Send + 'static,
    {
        let (sender, receiver) = bounded(capacity);
        let complete = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&complete);
        std::thread::Builder::new()
            .name("saltmill-reader".to_owned())
            .spawn(move || {
                let outlet = Outlet(sender);
                let outcome = read(&outlet);
                // Before the channel closes, so that whoever sees it closed sees this as well.
                done.store(true, Ordering::Release);
                if let Err(Stop::Failed(error)) = outcome {
                    // If nobody listens any more, nobody needs the error.
                    let _ = outlet.0.send(Err(error));
                }
            })
            .map_err(|e| error(input, format!("cannot start a thread to read it: {e}")))?;
        Ok(Self { receiver, complete, input: input.to_owned() })
    }

    /// The next item, without waiting.
    pub(crate) fn poll(&self) -> Result<Polled<T>, SourceError> {
        match self.receiver.try_recv() {
            Ok(item) => item.map(Polled::Item),
            Err(TryRecvError::Empty) => Ok(Polled::Pending),
            Err(TryRecvError::Disconnected) => self.ended().map(|()| Polled::End),
        }
    }

    /// The next item; waits at most `timeout`, or without limit.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> Result<Polled<T>, SourceError> {
        let received = match timeout {
            Some(timeout) => self.receiver.recv_timeout(timeout),
            None => self.receiver.recv().map_err(|_| RecvTimeoutError::Disconnected),
        };
        match received {
            Ok(item) => item.map(Polled::Item),
            Err(RecvTimeoutError::Timeout) => Ok(Polled::Pending),
            Err(RecvTimeoutError::Disconnected) => self.ended().map(|()| Polled::End),
        }
    }

    fn ended(&self) -> Result<(), SourceError> {
        if self.complete.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        Err(error(&self.input, "the thread that reads it stopped by a panic".to_owned()))
    }
}

/// An error of an input as a whole.
pub(crate) fn error(input: &str, message: String) -> SourceError {
    SourceError { input: input.to_owned(), place: None, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(feed: &Feed<u32>) -> (Vec<u32>, Option<String>) {
        let mut items = Vec::new();
        loop {
            match feed.wait(None) {
                Ok(Polled::Item(item)) => items.push(item),
                Ok(_) => return (items, None),
                Err(e) => return (items, Some(e.to_string())),
            }
        }
    }

    #[test]
    fn items_then_error_then_end() {
        let feed = Feed::start("x", 1, |out| {
            for i in 0..10 {
                out.send(i)?;
            }
            Err(Stop::Failed(error("x", "broken".into())))
        })
        .unwrap();
        assert_eq!(drain(&feed), ((0..10).collect(), Some("x: broken".into())));
        assert_eq!(drain(&feed), (vec![], None));
    }

    #[test]
    fn a_panic_is_an_error_once() {
        let feed = Feed::start("x", 1, |out: &Outlet<u32>| {
            out.send(1)?;
            panic!("on purpose");
        })
        .unwrap();
        let (items, failure) = drain(&feed);
        assert_eq!(items, [1]);
        assert!(failure.unwrap().contains("panic"));
        assert_eq!(drain(&feed), (vec![], None));
    }

    #[test]
    fn dropping_the_feed_ends_the_thread() {
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let feed = Feed::start("x", 1, move |out| {
            let outcome = (0..).try_for_each(|i: u32| out.send(i));
            seen.store(true, Ordering::SeqCst);
            Ok(outcome?)
        })
        .unwrap();
        drop(feed);
        while !ended.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }
}
