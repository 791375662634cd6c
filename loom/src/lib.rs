//! Every interleaving of a few threads on the ring of `src/runtime/ring.rs` and the values of `src/runtime/grace.rs`,
//! as far as loom's bound reaches.

#[path = "../../src/runtime/ring.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of another package")]
mod ring;

#[path = "../../src/runtime/grace.rs"]
#[allow(dead_code, unreachable_pub, reason = "a part of another package")]
mod grace;

#[cfg(test)]
mod grace_tests;

#[cfg(test)]
mod tests {
    use loom::sync::Arc;
    use loom::thread;

    use super::ring::ring;

    fn check(model: impl Fn() + Sync + Send + 'static) {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(model);
    }

    /// Values arrive in order, none twice, none lost; the ring wraps around.
    fn values_arrive_in_order(capacity: usize, count: usize) {
        check(move || {
            let (mut producer, mut consumer) = ring(capacity);
            let sender = thread::spawn(move || {
                for value in 0..count {
                    let mut value = Box::new(value);
                    while let Err(back) = producer.push(value) {
                        value = back;
                        thread::yield_now();
                    }
                }
            });
            for expected in 0..count {
                let value = loop {
                    match consumer.pop() {
                        Some(value) => break value,
                        None => thread::yield_now(),
                    }
                };
                assert_eq!(*value, expected);
            }
            assert!(consumer.is_empty());
            sender.join().expect("the sender does not panic");
        });
    }

    #[test]
    fn a_ring_of_one() {
        values_arrive_in_order(1, 3);
    }

    #[test]
    fn a_ring_of_two_wraps_around() {
        values_arrive_in_order(2, 3);
    }

    /// A side that goes away at any moment leaves nothing behind and takes nothing twice.
    #[test]
    fn what_is_left_is_dropped_once() {
        check(|| {
            let counted = Arc::new(());
            let (mut producer, mut consumer) = ring(2);
            let mine = Arc::clone(&counted);
            let sender = thread::spawn(move || {
                for _ in 0..3 {
                    // What does not fit is dropped here.
                    drop(producer.push(Arc::clone(&mine)));
                }
            });
            drop(consumer.pop());
            drop(consumer);
            sender.join().expect("the sender does not panic");
            assert_eq!(Arc::strong_count(&counted), 1);
        });
    }
}
