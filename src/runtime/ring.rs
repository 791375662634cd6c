//! A bounded single-producer single-consumer ring (Lamport 1983, with each side caching the other's
//! position so that it reads the shared counter only when it seems to run out).
//!
//! It never blocks and never allocates after construction: a full ring gives the value back. Waiting is
//! the business of `wake.rs`. Positions count up without wrapping around the capacity, so any capacity
//! works, 1 included.
#![allow(unsafe_code, reason = "slots are handed between two threads by their positions")]

use std::fmt;
use std::mem::MaybeUninit;

use crossbeam::utils::CachePadded;

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
};
#[cfg(not(loom))]
use std::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering},
};

struct Shared<T> {
    slots: Box<[UnsafeCell<MaybeUninit<T>>]>,
    /// Values taken so far; written by the consumer.
    head: CachePadded<AtomicUsize>,
    /// Values put so far; written by the producer.
    tail: CachePadded<AtomicUsize>,
}

// SAFETY: a slot is touched by one side at a time: by the producer while `tail - head < capacity`
// leaves it free, by the consumer once `tail` has passed it; the release store and acquire load of the
// positions order the two. Values move from one thread to the other, hence `T: Send`.
unsafe impl<T: Send> Sync for Shared<T> {}
// SAFETY: as for `Sync`; dropping it drops the values that were put and not taken.
unsafe impl<T: Send> Send for Shared<T> {}

/// The side that puts values in.
pub(crate) struct Producer<T> {
    shared: Arc<Shared<T>>,
    tail: usize,
    /// The consumer's position when last looked at.
    head_seen: usize,
}

/// The side that takes values out.
pub(crate) struct Consumer<T> {
    shared: Arc<Shared<T>>,
    head: usize,
    /// The producer's position when last looked at.
    tail_seen: usize,
}

impl<T> fmt::Debug for Producer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Producer").field("put", &self.tail).finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for Consumer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").field("taken", &self.head).finish_non_exhaustive()
    }
}

/// A ring for up to `capacity` values.
pub(crate) fn ring<T: Send>(capacity: usize) -> (Producer<T>, Consumer<T>) {
    assert!(capacity > 0, "a ring holds at least one value");
    let slots = (0..capacity).map(|_| UnsafeCell::new(MaybeUninit::uninit())).collect();
    let shared = Arc::new(Shared {
        slots,
        head: CachePadded::new(AtomicUsize::new(0)),
        tail: CachePadded::new(AtomicUsize::new(0)),
    });
    let producer = Producer { shared: Arc::clone(&shared), tail: 0, head_seen: 0 };
    (producer, Consumer { shared, head: 0, tail_seen: 0 })
}

impl<T: Send> Producer<T> {
    /// Puts `value` in, or gives it back if the ring is full.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> Result<(), T> {
        let capacity = self.shared.slots.len();
        if self.tail - self.head_seen == capacity {
            self.head_seen = self.shared.head.load(Ordering::Acquire);
            if self.tail - self.head_seen == capacity {
                return Err(value);
            }
        }
        let slot = &self.shared.slots[self.tail % capacity];
        write_slot(slot, value);
        self.tail += 1;
        self.shared.tail.store(self.tail, Ordering::Release);
        Ok(())
    }

    /// Values put in so far.
    pub(crate) fn put(&self) -> usize {
        self.tail
    }

    /// Values in the ring, at most; the consumer may have taken more meanwhile.
    pub(crate) fn len(&self) -> usize {
        self.tail - self.shared.head.load(Ordering::Acquire)
    }
}

impl<T: Send> Consumer<T> {
    /// Takes the oldest value out.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        if self.is_empty() {
            return None;
        }
        let slot = &self.shared.slots[self.head % self.shared.slots.len()];
        let value = take_slot(slot);
        self.head += 1;
        self.shared.head.store(self.head, Ordering::Release);
        Some(value)
    }

    /// Values in the ring, at least; the producer may have put more meanwhile.
    pub(crate) fn len(&self) -> usize {
        self.shared.tail.load(Ordering::Acquire) - self.head
    }

    /// Whether nothing is there to take.
    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        if self.head == self.tail_seen {
            self.tail_seen = self.shared.tail.load(Ordering::Acquire);
        }
        self.head == self.tail_seen
    }
}

#[cfg(not(loom))]
fn write_slot<T>(slot: &UnsafeCell<MaybeUninit<T>>, value: T) {
    // SAFETY: called by the one producer (`&mut Producer`) for the slot at `tail`, which `push` found
    // free: the consumer has passed it (acquire load of `head`) and will not touch it before `tail` moves.
    let place = unsafe { &mut *slot.get() };
    place.write(value);
}

#[cfg(not(loom))]
fn take_slot<T>(slot: &UnsafeCell<MaybeUninit<T>>) -> T {
    // SAFETY: called by the one consumer (`&mut Consumer`, or the last owner on drop) for the slot at
    // `head`, below `tail` (acquire load), so the producer will not touch it before `head` moves.
    let place = unsafe { &*slot.get() };
    // SAFETY: the producer wrote it in full before it moved `tail` past it; `head` moves past it right
    // after, so it is read once.
    unsafe { place.assume_init_read() }
}

/// The same through loom's cell, which checks that the two sides never overlap.
#[cfg(loom)]
fn write_slot<T>(slot: &UnsafeCell<MaybeUninit<T>>, value: T) {
    slot.with_mut(|place| {
        // SAFETY: as above.
        let place = unsafe { &mut *place };
        place.write(value);
    });
}

#[cfg(loom)]
fn take_slot<T>(slot: &UnsafeCell<MaybeUninit<T>>) -> T {
    slot.with_mut(|place| {
        // SAFETY: as above.
        let place = unsafe { &mut *place };
        // SAFETY: as above.
        unsafe { place.assume_init_read() }
    })
}

impl<T> Drop for Shared<T> {
    fn drop(&mut self) {
        // The last owner: both sides are gone, so the positions are final.
        let (mut head, tail) =
            (self.head.load(Ordering::Acquire), self.tail.load(Ordering::Acquire));
        while head != tail {
            drop(take_slot(&self.slots[head % self.slots.len()]));
            head += 1;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn behaves_like_a_bounded_queue(
            capacity in 1_usize..5, steps in proptest::collection::vec(any::<bool>(), 0..200),
        ) {
            let (mut producer, mut consumer) = ring(capacity);
            let mut model = VecDeque::new();
            for (i, put) in steps.into_iter().enumerate() {
                if put {
                    let full = model.len() == capacity;
                    prop_assert_eq!(producer.push(Box::new(i)).is_err(), full);
                    if !full {
                        model.push_back(Box::new(i));
                    }
                } else {
                    prop_assert_eq!(consumer.pop(), model.pop_front());
                }
                prop_assert_eq!(producer.len(), model.len());
            }
        }
    }

    #[test]
    fn values_left_inside_are_dropped() {
        let value = Arc::new(());
        let (mut producer, consumer) = ring(3);
        for _ in 0..3 {
            producer.push(Arc::clone(&value)).unwrap();
        }
        assert_eq!(Arc::strong_count(&value), 4);
        drop((producer, consumer));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn two_threads_see_every_value_in_order() {
        let (mut producer, mut consumer) = ring(1);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for i in 0..10_000_u64 {
                    let mut value = i;
                    while let Err(back) = producer.push(value) {
                        value = back;
                        std::thread::yield_now();
                    }
                }
            });
            for expected in 0..10_000_u64 {
                let value = loop {
                    match consumer.pop() {
                        Some(value) => break value,
                        None => std::thread::yield_now(),
                    }
                };
                assert_eq!(value, expected);
            }
        });
    }
}
