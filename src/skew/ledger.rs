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
//! **Cost:** 16 bytes per open (ingest, window), a binary search among the ingest's open windows
//! per partial set (not per row). Closed windows cost nothing: an ingest closes its windows in
//! ascending order, so one word says which are closed. Windows for which nothing was sent need no
//! call.
//!
//! **Not here:** the partials, and the threads. Every shard has a ledger of its own.

/// What went wrong between an ingest and a shard. Always a fault of the engine, never of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// A partial set came twice.
    #[error(
        "partial set {number} of ingest {ingest} for window {window} came twice (next was \
         {expected}); the run's results cannot be trusted, please report this as a bug"
    )]
    Duplicate {
        /// Sender.
        ingest: u32,
        /// Start of the window.
        window: i64,
        /// Number that came.
        number: u32,
        /// Number that was next.
        expected: u32,
    },
    /// A partial set was lost or overtaken.
    #[error(
        "partial set {number} of ingest {ingest} for window {window} came before set {expected}; \
         the run's results cannot be trusted, please report this as a bug"
    )]
    Gap {
        /// Sender.
        ingest: u32,
        /// Start of the window.
        window: i64,
        /// Number that came.
        number: u32,
        /// Number that was next.
        expected: u32,
    },
    /// A partial set or closing came for a window that its ingest had closed.
    #[error(
        "ingest {ingest} sent something for window {window} after closing window {closed}; \
         the run's results cannot be trusted, please report this as a bug"
    )]
    Late {
        /// Sender.
        ingest: u32,
        /// Start of the window.
        window: i64,
        /// Last window that the ingest closed.
        closed: i64,
    },
    /// The number of sets at closing is not the number that came.
    #[error(
        "ingest {ingest} closed window {window} with {sent} partial sets but {received} came; \
         the run's results cannot be trusted, please report this as a bug"
    )]
    Count {
        /// Sender.
        ingest: u32,
        /// Start of the window.
        window: i64,
        /// Sets sent, as the ingest says.
        sent: u32,
        /// Sets received.
        received: u32,
    },
    /// A window was passed over, or the run ended, with partial sets but no closing.
    #[error(
        "ingest {ingest} sent {received} partial sets for window {window} and never closed it; \
         the run's results cannot be trusted, please report this as a bug"
    )]
    NeverClosed {
        /// Sender.
        ingest: u32,
        /// Start of the window.
        window: i64,
        /// Sets received.
        received: u32,
    },
}

/// What one ingest sent for its open windows.
#[derive(Debug, Clone, Default)]
struct Account {
    /// Window and number of the next partial set, ascending by window.
    open: Vec<(i64, u32)>,
    /// Last window closed; all before it are closed too.
    closed: Option<i64>,
}

/// A shard's record of partial sets. See the module's documentation.
#[derive(Debug, Clone)]
pub struct Ledger {
    accounts: Vec<Account>,
    accepted: u64,
}

impl Ledger {
    /// A ledger for this many ingests, and for more as they come.
    pub fn new(ingests: u32) -> Self {
        Self { accounts: vec![Account::default(); ingests as usize], accepted: 0 }
    }

    /// Accepts partial set `number` of an ingest for a window (by its start), to be merged right
    /// now.
    pub fn receive(&mut self, ingest: u32, window: i64, number: u32) -> Result<(), LedgerError> {
        let account = self.account(ingest);
        account.check_open(ingest, window)?;
        let place = account.open.binary_search_by_key(&window, |&(window, _)| window);
        let expected = place.map_or(0, |place| account.open[place].1);
        if number < expected {
            return Err(LedgerError::Duplicate { ingest, window, number, expected });
        }
        if number > expected {
            return Err(LedgerError::Gap { ingest, window, number, expected });
        }
        match place {
            Ok(place) => account.open[place].1 += 1,
            Err(place) => account.open.insert(place, (window, 1)),
        }
        self.accepted += 1;
        Ok(())
    }

    /// The ingest will send nothing more for this window, nor for any before it, and has sent
    /// `sent` partial sets for it. Call it in ascending order of windows; windows without partial
    /// sets may be left out.
    pub fn close(&mut self, window: i64, ingest: u32, sent: u32) -> Result<(), LedgerError> {
        let account = self.account(ingest);
        account.check_open(ingest, window)?;
        match account.open.first() {
            Some(&(earlier, received)) if earlier < window => {
                return Err(LedgerError::NeverClosed { ingest, window: earlier, received });
            }
            Some(&(first, received)) if first == window => {
                if received != sent {
                    return Err(LedgerError::Count { ingest, window, sent, received });
                }
                account.open.remove(0);
            }
            _ if sent != 0 => {
                return Err(LedgerError::Count { ingest, window, sent, received: 0 });
            }
            _ => {}
        }
        account.closed = Some(window);
        Ok(())
    }

    /// Whether all ingests have closed the window, or a later one: it may be emitted.
    pub fn is_complete(&self, window: i64) -> bool {
        self.accounts.iter().all(|account| account.closed.is_some_and(|closed| closed >= window))
    }

    /// The end of the run: nothing may be open. Returns the number of partial sets accepted.
    pub fn finish(&self) -> Result<u64, LedgerError> {
        for (ingest, account) in (0..).zip(&self.accounts) {
            if let Some(&(window, received)) = account.open.first() {
                return Err(LedgerError::NeverClosed { ingest, window, received });
            }
        }
        Ok(self.accepted)
    }

    /// Number of (ingest, window) pairs that are open: what the ledger's memory depends on.
    pub fn open(&self) -> usize {
        self.accounts.iter().map(|account| account.open.len()).sum()
    }

    fn account(&mut self, ingest: u32) -> &mut Account {
        let place = ingest as usize;
        if place >= self.accounts.len() {
            self.accounts.resize_with(place + 1, Account::default);
        }
        &mut self.accounts[place]
    }
}

impl Account {
    fn check_open(&self, ingest: u32, window: i64) -> Result<(), LedgerError> {
        match self.closed {
            Some(closed) if window <= closed => Err(LedgerError::Late { ingest, window, closed }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;
