//! Proof that every partial aggregate is merged exactly once.
//!
//! Each ingest sends a shard the partial sets of a window numbered 0, 1, 2, .. and then closes the
//! window, saying how many it sent. Hot sets may change, partials may be flushed early, at any
//! moment: a partial set carries its number, not the hot set that made it. The owner's [`Ledger`]
//! accepts a set only if it is the next one of its ingest and window, and a closing only if the
//! numbers agree.
//!
//! **Invariant:** if all calls of a run, [`Ledger::finish`] included, return `Ok`, then every
//! partial set that was sent was accepted exactly once and before its window was complete. Any
//! loss, repetition, reordering or late arrival makes some call fail, with the ingest, the window
//! and both numbers; a failed call changes nothing.
//!
//! **Cost:** an entry per open (ingest, window), a search among the ingest's open windows
//! per partial set (not per row). Closed windows cost nothing: an ingest closes its windows in
//! ascending order, so one word says which are closed. Windows for which nothing was sent need no
//! call.
//!
//! **Not here:** the partials, and the threads. Every shard has a ledger of its own.

use std::collections::BTreeMap;

/// What went wrong between an ingest and a shard. Always a fault of the engine, never of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A partial set came twice.
    #[error(
        "partial set {number} of ingest {ingest} for the window that ends at {window} came twice (next was \
         {expected}); the run's results cannot be trusted, please report this as a bug"
    )]
    Duplicate {
        /// Sender.
        ingest: u32,
        /// End of the window, or of the first of the windows that the rows lie in.
        window: i64,
        /// Number that came.
        number: u32,
        /// Number that was next.
        expected: u32,
    },
    /// A partial set was lost or overtaken.
    #[error(
        "partial set {number} of ingest {ingest} for the window that ends at {window} came before set {expected}; \
         the run's results cannot be trusted, please report this as a bug"
    )]
    Gap {
        /// Sender.
        ingest: u32,
        /// End of the window, or of the first of the windows that the rows lie in.
        window: i64,
        /// Number that came.
        number: u32,
        /// Number that was next.
        expected: u32,
    },
    /// A partial set or closing came for a window that its ingest had closed.
    #[error(
        "ingest {ingest} sent something for the window that ends at {window} after closing the one that ends at {closed}; \
         the run's results cannot be trusted, please report this as a bug"
    )]
    Late {
        /// Sender.
        ingest: u32,
        /// End of the window, or of the first of the windows that the rows lie in.
        window: i64,
        /// End of the last window that the ingest closed.
        closed: i64,
    },
    /// The number of sets at closing is not the number that came.
    #[error(
        "ingest {ingest} closed the window that ends at {window} with {sent} partial sets but {received} came; \
         the run's results cannot be trusted, please report this as a bug"
    )]
    Count {
        /// Sender.
        ingest: u32,
        /// End of the window, or of the first of the windows that the rows lie in.
        window: i64,
        /// Sets sent, as the ingest says.
        sent: u32,
        /// Sets received.
        received: u32,
    },
    /// A window was passed over, or the run ended, with partial sets but no closing.
    #[error(
        "ingest {ingest} sent {received} partial sets for the window that ends at {window} and never closed it; \
         the run's results cannot be trusted, please report this as a bug"
    )]
    NeverClosed {
        /// Sender.
        ingest: u32,
        /// End of the window, or of the first of the windows that the rows lie in.
        window: i64,
        /// Sets received.
        received: u32,
    },
}

/// What one ingest sent for its open windows.
#[derive(Debug, Clone)]
struct Account<W> {
    /// Number of the next partial set, by window.
    open: BTreeMap<W, u32>,
    /// Last window closed; all before it are closed too.
    closed: Option<W>,
}

impl<W> Default for Account<W> {
    fn default() -> Self {
        Self { open: BTreeMap::new(), closed: None }
    }
}

/// A shard's record of partial sets. See the module's documentation. `W` names a window, or the windows
/// that some rows lie in; as a number, for messages, it is the end of the first one.
#[derive(Debug, Clone)]
pub struct Ledger<W = i64> {
    accounts: Vec<Account<W>>,
    accepted: u64,
}

impl<W: Copy + Ord + Into<i64>> Ledger<W> {
    /// A ledger for this many ingests, and for more as they come.
    pub fn new(ingests: u32) -> Self {
        Self { accounts: (0..ingests).map(|_| Account::default()).collect(), accepted: 0 }
    }

    /// Accepts partial set `number` of an ingest for a window, to be merged right now.
    pub fn receive(&mut self, ingest: u32, window: W, number: u32) -> Result<(), LedgerError> {
        let account = self.account(ingest);
        account.check_open(ingest, window)?;
        let expected = account.open.get(&window).copied().unwrap_or(0);
        let name = window.into();
        if number < expected {
            return Err(LedgerError::Duplicate { ingest, window: name, number, expected });
        }
        if number > expected {
            return Err(LedgerError::Gap { ingest, window: name, number, expected });
        }
        account.open.insert(window, expected + 1);
        self.accepted += 1;
        Ok(())
    }

    /// The ingest will send nothing more for this window, nor for any before it, and has sent
    /// `sent` partial sets for it. Call it in ascending order of windows; windows without partial
    /// sets may be left out.
    pub fn close(&mut self, window: W, ingest: u32, sent: u32) -> Result<(), LedgerError> {
        let account = self.account(ingest);
        account.check_open(ingest, window)?;
        match account.open.first_key_value() {
            Some((&earlier, &received)) if earlier < window => {
                return Err(LedgerError::NeverClosed { ingest, window: earlier.into(), received });
            }
            Some((&first, &received)) if first == window => {
                if received != sent {
                    return Err(LedgerError::Count {
                        ingest,
                        window: window.into(),
                        sent,
                        received,
                    });
                }
                account.open.pop_first();
            }
            _ if sent != 0 => {
                let window = window.into();
                return Err(LedgerError::Count { ingest, window, sent, received: 0 });
            }
            _ => {}
        }
        account.closed = Some(window);
        Ok(())
    }

    /// Whether all ingests have closed the window, or a later one: it may be emitted.
    pub fn is_complete(&self, window: W) -> bool {
        self.accounts.iter().all(|account| account.closed.is_some_and(|closed| closed >= window))
    }

    /// The end of the run: nothing may be open. Returns the number of partial sets accepted.
    pub fn finish(&self) -> Result<u64, LedgerError> {
        for (ingest, account) in (0..).zip(&self.accounts) {
            if let Some((&window, &received)) = account.open.first_key_value() {
                return Err(LedgerError::NeverClosed { ingest, window: window.into(), received });
            }
        }
        Ok(self.accepted)
    }

    /// Number of (ingest, window) pairs that are open: what the ledger's memory depends on.
    pub fn open(&self) -> usize {
        self.accounts.iter().map(|account| account.open.len()).sum()
    }

    fn account(&mut self, ingest: u32) -> &mut Account<W> {
        let place = ingest as usize;
        if place >= self.accounts.len() {
            self.accounts.resize_with(place + 1, Account::default);
        }
        &mut self.accounts[place]
    }
}

impl<W: Copy + Ord + Into<i64>> Account<W> {
    fn check_open(&self, ingest: u32, window: W) -> Result<(), LedgerError> {
        match self.closed {
            Some(closed) if window <= closed => {
                Err(LedgerError::Late { ingest, window: window.into(), closed: closed.into() })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
