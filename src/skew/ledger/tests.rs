//! The ledger on good runs in any interleaving, and on runs with exactly one fault.

#![expect(clippy::cast_possible_truncation, reason = "few ingests")]

use proptest::prelude::*;

use super::*;

/// What travels in a ring from an ingest to the shard.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Message {
    Partial { window: i64, number: u32, rows: u32 },
    Close { window: i64, sent: u32 },
}

/// What an ingest does, one character of the plan at a time: rows into open windows (kept in a
/// local partial), a change of the hot set in mid-window (which sends the partial), a watermark.
fn messages(plan: &[u8]) -> (Vec<Message>, u32) {
    let (mut queue, mut total) = (Vec::new(), 0);
    let mut first = 0_i64;
    // Rows held locally and sets sent of three open windows.
    let mut open = [(0_u32, 0_u32); 3];
    let flush = |queue: &mut Vec<Message>, open: &mut [(u32, u32); 3], first: i64| {
        for (window, (rows, sent)) in (first..).zip(open) {
            if *rows > 0 {
                queue.push(Message::Partial { window, number: *sent, rows: *rows });
                (*rows, *sent) = (0, *sent + 1);
            }
        }
    };
    for &act in plan.iter().chain(&[4, 4, 4]) {
        match act {
            0..=2 => {
                open[usize::from(act)].0 += 1;
                total += 1;
            }
            3 => flush(&mut queue, &mut open, first),
            _ => {
                flush(&mut queue, &mut open, first);
                // A window without partial sets is sometimes closed, sometimes left out.
                if open[0].1 > 0 || first % 2 == 0 {
                    queue.push(Message::Close { window: first, sent: open[0].1 });
                }
                open.rotate_left(1);
                open[2] = (0, 0);
                first += 1;
            }
        }
    }
    (queue, total)
}

/// Feeds the queues to a ledger in the order that `picks` says. Returns the partial sets accepted,
/// their rows, and the most pairs that were open at a time.
fn deliver(queues: &[Vec<Message>], picks: &[usize]) -> Result<(u64, u32, usize), LedgerError> {
    let mut ledger = Ledger::new(queues.len() as u32);
    let mut heads = vec![0; queues.len()];
    let (mut rows, mut open_most) = (0, 0);
    let mut take = |ingest: usize| -> Result<(), LedgerError> {
        let Some(&message) = queues[ingest].get(heads[ingest]) else { return Ok(()) };
        heads[ingest] += 1;
        match message {
            Message::Partial { window, number, rows: more } => {
                let complete = ledger.is_complete(window);
                ledger.receive(ingest as u32, window, number)?;
                assert!(!complete, "accepted after the window could be emitted");
                rows += more;
            }
            Message::Close { window, sent } => ledger.close(window, ingest as u32, sent)?,
        }
        open_most = open_most.max(ledger.open());
        Ok(())
    };
    picks.iter().try_for_each(|&pick| take(pick % queues.len()))?;
    for (ingest, queue) in queues.iter().enumerate() {
        queue.iter().try_for_each(|_| take(ingest))?;
    }
    Ok((ledger.finish()?, rows, open_most))
}

fn plans() -> impl Strategy<Value = Vec<Vec<u8>>> {
    prop::collection::vec(prop::collection::vec(0_u8..5, 0..60), 1..5)
}

proptest! {
    #[test]
    fn good_runs_pass_in_any_interleaving(
        plans in plans(),
        picks in prop::collection::vec(0_usize..60, 0..300),
    ) {
        let made: Vec<(Vec<Message>, u32)> = plans.iter().map(|plan| messages(plan)).collect();
        let queues: Vec<Vec<Message>> = made.iter().map(|(queue, _)| queue.clone()).collect();
        let sent = queues.iter().flatten().filter(|m| matches!(m, Message::Partial { .. })).count();
        let total: u32 = made.iter().map(|(_, rows)| rows).sum();
        let (accepted, rows, open_most) = deliver(&queues, &picks).unwrap();
        prop_assert_eq!((accepted, rows), (sent as u64, total));
        prop_assert!(open_most <= 3 * queues.len(), "closed windows cost nothing");
    }

    #[test]
    fn one_fault_is_always_found(
        plans in plans(),
        picks in prop::collection::vec(0_usize..60, 0..300),
        fault in 0_u8..4,
        ingest: prop::sample::Index,
        at: prop::sample::Index,
        to: prop::sample::Index,
    ) {
        let mut queues: Vec<Vec<Message>> = plans.iter().map(|plan| messages(plan).0).collect();
        let queue = ingest.get(&queues).clone();
        let partials: Vec<usize> =
            (0..queue.len()).filter(|&i| matches!(queue[i], Message::Partial { .. })).collect();
        prop_assume!(!partials.is_empty());
        let place = *at.get(&partials);
        let mut broken = queue.clone();
        let window_of = |message| match message {
            Message::Partial { window, .. } | Message::Close { window, .. } => window,
        };
        let window = window_of(queue[place]);
        match fault {
            // Lost.
            0 => drop(broken.remove(place)),
            // Repeated, at once or any time later.
            1 => broken.insert(place + 1 + to.index(queue.len() - place), queue[place]),
            // Overtaken by a message of its window.
            2 => {
                let next = (place + 1..queue.len()).find(|&i| window_of(queue[i]) == window);
                broken.swap(place, next.expect("every window with partial sets is closed"));
            }
            // The closing was lost.
            _ => {
                let close = (place..queue.len())
                    .find(|&i| matches!(queue[i], Message::Close { window: w, .. } if w == window));
                broken.remove(close.expect("every window with partial sets is closed"));
            }
        }
        let ingest = ingest.index(queues.len());
        queues[ingest] = broken;
        prop_assert!(deliver(&queues, &picks).is_err());
    }
}

#[test]
fn each_fault_has_its_error() {
    let mut ledger = Ledger::new(2);
    assert_eq!(ledger.receive(0, 10, 0), Ok(()));
    assert_eq!(
        ledger.receive(0, 10, 0),
        Err(LedgerError::Duplicate { ingest: 0, window: 10, number: 0, expected: 1 })
    );
    assert_eq!(
        ledger.receive(0, 10, 2),
        Err(LedgerError::Gap { ingest: 0, window: 10, number: 2, expected: 1 })
    );
    assert_eq!(
        ledger.close(10, 0, 2),
        Err(LedgerError::Count { ingest: 0, window: 10, sent: 2, received: 1 })
    );
    assert_eq!(
        ledger.close(11, 0, 0),
        Err(LedgerError::NeverClosed { ingest: 0, window: 10, received: 1 })
    );
    assert_eq!(
        ledger.finish(),
        Err(LedgerError::NeverClosed { ingest: 0, window: 10, received: 1 })
    );
    // None of these changed anything.
    assert_eq!(ledger.close(10, 0, 1), Ok(()));
    let late = Err(LedgerError::Late { ingest: 0, window: 10, closed: 10 });
    assert_eq!((ledger.receive(0, 10, 1), ledger.close(10, 0, 1)), (late, late));
    assert!(!ledger.is_complete(10));
    assert_eq!(
        ledger.close(10, 1, 1),
        Err(LedgerError::Count { ingest: 1, window: 10, sent: 1, received: 0 })
    );
    assert_eq!(ledger.close(12, 1, 0), Ok(()));
    assert!(ledger.is_complete(10) && !ledger.is_complete(11));
    assert_eq!((ledger.finish(), ledger.open()), (Ok(1), 0));
    let late = LedgerError::Late { ingest: 0, window: 10, closed: 10 };
    assert!(
        late.to_string()
            .starts_with("ingest 0 sent something for the window that ends at 10 after closing the one that ends at 10")
    );
}
