//! Values are freed after the last look of every reader that may have them.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

use super::grace::{Bag, Cell, Domain, Entry};

/// A place that a value writes to when it is dropped, and readers of the value read: loom tells if one of these
/// reads does not come before the write.
struct Place(UnsafeCell<bool>);

// SAFETY: loom's cell panics where two threads would touch it without an order between them.
unsafe impl Sync for Place {}
// SAFETY: as for `Sync`.
unsafe impl Send for Place {}

struct Value {
    number: usize,
    place: Arc<Place>,
}

impl Value {
    fn new(number: usize) -> Self {
        Self { number, place: Arc::new(Place(UnsafeCell::new(true))) }
    }

    fn check(&self) -> usize {
        // SAFETY: as for `Place`.
        self.place.0.with(|alive| assert!(unsafe { *alive }, "read after it was freed"));
        self.number
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        self.place.0.with_mut(|alive| {
            // SAFETY: as for `Place`.
            unsafe { *alive = false };
        });
    }
}

fn check(preemptions: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.check(model);
}

/// A reader enters and looks, twice; a writer replaces, twice, and frees as soon as it may.
#[test]
fn a_reader_and_a_writer() {
    check(3, || {
        let domain = Domain::new();
        let cell = Arc::new(Cell::new(&domain, Value::new(0)));
        let entry = Entry::new(&domain);
        let reader = {
            let cell = Arc::clone(&cell);
            thread::spawn(move || {
                let mut last = 0;
                for _ in 0..2 {
                    let guard = entry.enter();
                    let number = cell.get(&guard).check();
                    assert!(last <= number);
                    last = number;
                }
            })
        };
        let mut bag = Bag::new(&domain);
        for number in 1..3 {
            cell.replace(Value::new(number), &mut bag);
            bag.poll();
        }
        bag.poll();
        reader.join().expect("the reader does not panic");
        bag.poll();
        bag.poll();
        assert!(bag.is_empty(), "with nobody there, everything is freed");
    });
}

/// Two threads share one way in, so that neither counter of it need be at zero when the other is.
#[test]
fn a_shared_entry() {
    check(2, || {
        let domain = Domain::new();
        let cell = Arc::new(Cell::new(&domain, Value::new(0)));
        let entry = Arc::new(Entry::new(&domain));
        let readers = [0, 1].map(|_| {
            let (cell, entry) = (Arc::clone(&cell), Arc::clone(&entry));
            thread::spawn(move || {
                let guard = entry.enter();
                cell.get(&guard).check();
            })
        });
        let mut bag = Bag::new(&domain);
        cell.replace(Value::new(1), &mut bag);
        bag.poll();
        bag.poll();
        for reader in readers {
            reader.join().expect("a reader does not panic");
        }
    });
}

/// Two writers of two values end epochs for each other.
#[test]
fn two_writers() {
    check(2, || {
        let domain = Domain::new();
        let cells = [0, 1].map(|number| Arc::new(Cell::new(&domain, Value::new(number))));
        let entry = Entry::new(&domain);
        let writer = {
            let (domain, cell) = (Arc::clone(&domain), Arc::clone(&cells[1]));
            thread::spawn(move || {
                let mut bag = Bag::new(&domain);
                cell.replace(Value::new(3), &mut bag);
                bag.poll();
            })
        };
        let reader = {
            let cells = cells.clone();
            thread::spawn(move || {
                let guard = entry.enter();
                cells[0].get(&guard).check();
                cells[1].get(&guard).check();
            })
        };
        let mut bag = Bag::new(&domain);
        cells[0].replace(Value::new(2), &mut bag);
        bag.poll();
        bag.poll();
        reader.join().expect("the reader does not panic");
        writer.join().expect("the writer does not panic");
    });
}

/// A reader that comes while a value is being replaced.
#[test]
fn a_late_reader() {
    check(3, || {
        let domain = Domain::new();
        let cell = Arc::new(Cell::new(&domain, Value::new(0)));
        let reader = {
            let (domain, cell) = (Arc::clone(&domain), Arc::clone(&cell));
            thread::spawn(move || {
                let entry = Entry::new(&domain);
                let guard = entry.enter();
                cell.get(&guard).check();
            })
        };
        let mut bag = Bag::new(&domain);
        cell.replace(Value::new(1), &mut bag);
        bag.poll();
        bag.poll();
        reader.join().expect("the reader does not panic");
    });
}
