//! Values that readers reach without a lock, replaced and freed while they read.
//!
//! Epoch-based reclamation (Fraser, "Practical lock-freedom", 2004), with the two counters of a reader that
//! sleepable RCU has (`McKenney`, "Sleepable read-copy update", 2006), so that one reader may be used by many threads
//! at once. A reader counts itself in under the parity of the epoch, reads, and counts itself out. An epoch ends
//! when nobody is counted under the other parity. What was replaced in epoch `e` is freed in epoch `e + 3`: by then
//! each counter of each reader has been seen at zero after the replacement, and whoever comes in after that finds
//! the new value.
//!
//! Own code, and not `crossbeam::epoch`, because the thread that replaced a value has to get it back, soon and by
//! itself: it holds panes, whose memory is used again for the next window. There it would be freed by whichever
//! thread comes along, a reader's among them.
//!
//! **Invariant:** a reader waits for nobody and nobody waits for a reader; one that sleeps between entering and
//! leaving keeps memory from being freed, and nothing else.
//!
//! Cost: two atomic additions and a fence for each entry, on a cache line that is the reader's own.
#![allow(unsafe_code, reason = "a value is reached through a pointer that another thread replaces")]

use std::fmt;

use crossbeam::utils::CachePadded;

#[cfg(loom)]
use loom::sync::{
    Arc, Mutex,
    atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};
#[cfg(not(loom))]
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicPtr, AtomicUsize, Ordering, fence},
};

/// Epochs after which what was replaced in one is free.
const EPOCHS_KEPT: usize = 3;

/// Readers and values that belong together.
pub(crate) struct Domain {
    epoch: AtomicUsize,
    /// Of all readers. Taken when a reader comes or goes, and by writers that find it free.
    slots: Mutex<Vec<Arc<Slot>>>,
    /// What writers that have gone had not freed.
    orphans: Mutex<Vec<Retired>>,
}

/// How often a reader is in, for each parity of the epoch in which it came.
struct Slot(CachePadded<[AtomicUsize; 2]>);

/// Something replaced, and the epoch when it had been.
struct Retired {
    epoch: usize,
    #[expect(dead_code, reason = "kept to be dropped")]
    value: Box<dyn Send>,
}

/// A way in.
pub(crate) struct Entry {
    domain: Arc<Domain>,
    slot: Arc<Slot>,
}

/// While it is there, nothing is freed that can be reached through it.
pub(crate) struct Guard<'a> {
    entry: &'a Entry,
    parity: usize,
}

/// A value that is there at any time and may be replaced.
pub(crate) struct Cell<T: Send + Sync + 'static> {
    domain: Arc<Domain>,
    value: AtomicPtr<T>,
}

/// What a writer has replaced and not freed yet.
pub(crate) struct Bag {
    domain: Arc<Domain>,
    retired: Vec<Retired>,
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").finish_non_exhaustive()
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").finish_non_exhaustive()
    }
}

impl<T: Send + Sync> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cell").finish_non_exhaustive()
    }
}

impl fmt::Debug for Bag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bag").field("retired", &self.retired.len()).finish_non_exhaustive()
    }
}

impl Domain {
    /// Without readers or values.
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            epoch: AtomicUsize::new(0),
            slots: Mutex::new(Vec::new()),
            orphans: Mutex::new(Vec::new()),
        })
    }

    /// Ends the epoch if nobody is left who came in under the other parity; answers which epoch it is.
    fn advance(&self) -> usize {
        let epoch = self.epoch.load(Ordering::Acquire);
        // A reader comes or goes just now: next time.
        let Ok(slots) = self.slots.try_lock() else { return epoch };
        // Before the counters are read: see `Cell::get`.
        fence(Ordering::SeqCst);
        let other = (epoch + 1) % 2;
        if slots.iter().all(|slot| slot.0[other].load(Ordering::Acquire) == 0) {
            // If that fails, another writer has ended it.
            let ended = (Ordering::AcqRel, Ordering::Acquire);
            let _ = self.epoch.compare_exchange(epoch, epoch + 1, ended.0, ended.1);
        }
        self.epoch.load(Ordering::Acquire)
    }
}

impl Entry {
    /// A way into a domain. Waits for others that do the same.
    pub(crate) fn new(domain: &Arc<Domain>) -> Self {
        let slot = Arc::new(Slot(CachePadded::new([AtomicUsize::new(0), AtomicUsize::new(0)])));
        domain.slots.lock().expect("nothing panics under it").push(Arc::clone(&slot));
        Self { domain: Arc::clone(domain), slot }
    }

    /// Goes in. Any number of threads may, at the same time too.
    #[inline]
    pub(crate) fn enter(&self) -> Guard<'_> {
        // Whichever epoch it is will do; the newest lets the others end soonest.
        let parity = self.domain.epoch.load(Ordering::Relaxed) % 2;
        self.slot.0[parity].fetch_add(1, Ordering::Relaxed);
        // Before any value is read: see `Cell::get`.
        fence(Ordering::SeqCst);
        Guard { entry: self, parity }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        // All guards have gone, as they borrow it.
        if let Ok(mut slots) = self.domain.slots.lock() {
            slots.retain(|slot| !Arc::ptr_eq(slot, &self.slot));
        }
    }
}

impl Drop for Guard<'_> {
    #[inline]
    fn drop(&mut self) {
        // What was read before is read before anybody sees this.
        self.entry.slot.0[self.parity].fetch_sub(1, Ordering::Release);
    }
}

impl<T: Send + Sync> Cell<T> {
    /// With a first value.
    pub(crate) fn new(domain: &Arc<Domain>, value: T) -> Self {
        let value = AtomicPtr::new(Box::into_raw(Box::new(value)));
        Self { domain: Arc::clone(domain), value }
    }

    /// The value as it is now.
    #[inline]
    pub(crate) fn get<'g>(&'g self, guard: &'g Guard<'_>) -> &'g T {
        assert!(Arc::ptr_eq(&self.domain, &guard.entry.domain), "a guard of this domain");
        let value = self.value.load(Ordering::Acquire);
        // SAFETY:
        // - The pointer came from `Box::into_raw` (`new`, `replace`), and the acquire load sees what was written
        //   before it was stored.
        // - It is not freed while `guard` lives. Say it is replaced by a writer, which then makes a sequentially
        //   consistent fence W and reads epoch `e` (`replace`), and frees once it sees epoch `e + 3` (`Bag::poll`).
        //   Each of the epochs `e + 1` and `e + 2` was ended by a thread that had read that epoch, made a fence K,
        //   and then found the counters of one parity at zero (`advance`). As W's epoch is older than K's, W comes
        //   before K in the order of all such fences. This guard's count was raised before its fence R (`enter`):
        //   if the thread did not see it, K comes before R, so W does, and then the load above would have
        //   given the new value. So the thread saw it raised and lowered again, which `drop` of the guard does
        //   (release, and acquire there), and the reads made under the guard come before the freeing. A
        //   reader whose slot was not in the list yet came into it behind the lock that the thread held
        //   from K on, so there too K comes before R.
        // - `Cell` cannot be dropped while it is borrowed.
        unsafe { &*value }
    }

    /// Puts another value in its place. Readers may still see the old one, which goes into `bag`.
    pub(crate) fn replace(&self, value: T, bag: &mut Bag) {
        assert!(Arc::ptr_eq(&self.domain, &bag.domain), "a bag of this domain");
        let old = self.value.swap(Box::into_raw(Box::new(value)), Ordering::AcqRel);
        fence(Ordering::SeqCst);
        let epoch = self.domain.epoch.load(Ordering::Relaxed);
        // SAFETY: it came from `Box::into_raw`, and the swap took it out, so that it is given back once. Nobody
        // makes a `&mut` of it: the bag only keeps it, and drops it when no reader can have it (`get`).
        let value: Box<T> = unsafe { Box::from_raw(old) };
        bag.retired.push(Retired { epoch, value });
    }
}

impl<T: Send + Sync> Drop for Cell<T> {
    fn drop(&mut self) {
        let value = self.value.load(Ordering::Acquire);
        // SAFETY: as in `replace`; no reader has it, since `get` borrows the cell.
        drop(unsafe { Box::from_raw(value) });
    }
}

impl Bag {
    /// An empty one.
    pub(crate) fn new(domain: &Arc<Domain>) -> Self {
        Self { domain: Arc::clone(domain), retired: Vec::new() }
    }

    /// Whether everything has been freed.
    pub(crate) fn is_empty(&self) -> bool {
        self.retired.is_empty()
    }

    /// Frees what no reader can have any more. Waits for nobody.
    pub(crate) fn poll(&mut self) {
        if self.retired.is_empty() {
            return;
        }
        let mut epoch = self.domain.advance();
        for _ in 1..EPOCHS_KEPT {
            epoch = self.domain.advance();
        }
        let is_free = |retired: &Retired| retired.epoch + EPOCHS_KEPT <= epoch;
        self.retired.retain(|retired| !is_free(retired));
        if let Ok(mut orphans) = self.domain.orphans.try_lock() {
            orphans.retain(|retired| !is_free(retired));
        }
    }
}

impl Drop for Bag {
    fn drop(&mut self) {
        self.poll();
        // The rest goes with the last of the domain, or whoever polls.
        if let Ok(mut orphans) = self.domain.orphans.lock() {
            orphans.append(&mut self.retired);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// A value that says when it is gone.
    struct Counted(u64, Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            // Whoever reads it after this reads nonsense.
            self.0 = u64::MAX;
            self.1.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn counted(value: u64, alive: &Arc<AtomicUsize>) -> Counted {
        alive.fetch_add(1, Ordering::Relaxed);
        Counted(value, Arc::clone(alive))
    }

    #[test]
    fn a_value_stays_as_long_as_a_guard_that_may_have_it() {
        let (domain, alive) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let cell = Cell::new(&domain, counted(1, &alive));
        let (entry, mut bag) = (Entry::new(&domain), Bag::new(&domain));
        let guard = entry.enter();
        let old = cell.get(&guard);
        cell.replace(counted(2, &alive), &mut bag);
        for _ in 0..10 {
            bag.poll();
        }
        assert_eq!((old.0, cell.get(&guard).0, alive.load(Ordering::Relaxed)), (1, 2, 2));
        drop(guard);
        bag.poll();
        assert!(bag.is_empty());
        assert_eq!(alive.load(Ordering::Relaxed), 1);
        drop(cell);
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn readers_that_relieve_each_other_hold_nothing_back_for_good() {
        let (domain, alive) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let cell = Cell::new(&domain, counted(0, &alive));
        let (entry, mut bag) = (Entry::new(&domain), Bag::new(&domain));
        let mut guard = entry.enter();
        for value in 1..100 {
            cell.replace(counted(value, &alive), &mut bag);
            bag.poll();
            // The next one is in before this one leaves.
            guard = entry.enter();
            assert_eq!(cell.get(&guard).0, value);
            bag.poll();
            assert!(alive.load(Ordering::Relaxed) < 8, "{} values", alive.load(Ordering::Relaxed));
        }
        drop(guard);
    }

    #[test]
    fn what_a_writer_leaves_behind_goes_with_the_domain() {
        let (domain, alive) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let cell = Cell::new(&domain, counted(1, &alive));
        let entry = Entry::new(&domain);
        let guard = entry.enter();
        let mut bag = Bag::new(&domain);
        cell.replace(counted(2, &alive), &mut bag);
        drop(bag);
        assert_eq!(alive.load(Ordering::Relaxed), 2);
        drop(guard);
        drop((cell, entry, domain));
        assert_eq!(alive.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn threads_read_what_is_there() {
        let (domain, alive) = (Domain::new(), Arc::new(AtomicUsize::new(0)));
        let cell = Cell::new(&domain, counted(0, &alive));
        let (shared, stop) = (Entry::new(&domain), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for own in [false, true, false] {
                let (cell, shared, domain, stop) = (&cell, &shared, &domain, &stop);
                scope.spawn(move || {
                    let own = own.then(|| Entry::new(domain));
                    let mut last = 0;
                    while !stop.load(Ordering::Relaxed) {
                        let guard = own.as_ref().unwrap_or(shared).enter();
                        let value = cell.get(&guard).0;
                        assert!(last <= value && value < u64::MAX, "{value} after {last}");
                        last = value;
                    }
                });
            }
            let mut bag = Bag::new(&domain);
            for value in 1..20_000 {
                cell.replace(counted(value, &alive), &mut bag);
                bag.poll();
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(alive.load(Ordering::Relaxed) < 20_000);
    }
}
