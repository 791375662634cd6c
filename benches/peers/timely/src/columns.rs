//! Rows as columns on their way through timely: lent from the input, or copied into buffers of one worker.

use std::sync::OnceLock;

use arrow::array::Int64Array;
use timely::communication::Push;
use timely::container::Accountable;
use timely::dataflow::channels::pushers::exchange::Distributor;
use timely::dataflow::channels::{ContainerBytes, Message};
use timely::progress::Stamp;

/// Keys, values and times of each batch of the input.
pub(crate) type Input = Vec<[Int64Array; 3]>;

/// The input of the process; loaded once, lent to all workers.
pub(crate) static INPUT: OnceLock<Input> = OnceLock::new();

/// A part of one batch of the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    pub(crate) batch: usize,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// The columns of a part.
pub(crate) fn lend(part: Part) -> [&'static [i64]; 3] {
    let batch = &INPUT.get().expect("loaded before workers start")[part.batch];
    batch.each_ref().map(|column| &column.values()[part.start..part.start + part.len])
}

/// Keys, values, times.
#[derive(Clone, Default, Debug)]
pub(crate) struct Columns {
    pub(crate) lent: Option<Part>,
    own: [Vec<i64>; 3],
}

impl Columns {
    pub(crate) fn lent(part: Part) -> Self {
        Self { lent: Some(part), own: Default::default() }
    }

    pub(crate) fn view(&self) -> [&[i64]; 3] {
        match self.lent {
            Some(part) => lend(part),
            None => self.own.each_ref().map(Vec::as_slice),
        }
    }

    fn len(&self) -> usize {
        self.lent.map_or(self.own[0].len(), |part| part.len)
    }
}

impl Accountable for Columns {
    fn record_count(&self) -> i64 {
        i64::try_from(self.len()).expect("rows of one message")
    }
}

/// Only threads of one process exchange them, so they are never bytes.
impl ContainerBytes for Columns {
    fn from_bytes(_: timely::bytes::arc::Bytes) -> Self {
        unreachable!("one process")
    }

    fn length_in_bytes(&self) -> usize {
        unreachable!("one process")
    }

    fn into_bytes<W: std::io::Write>(&self, _: &mut W) {
        unreachable!("one process")
    }
}

/// Which worker owns a key: high bits of a multiplication.
#[inline(always)]
fn owner(key: i64, workers: usize) -> usize {
    let mixed = key.cast_unsigned().wrapping_mul(0xD6E8_FEB8_6659_FD93) >> 32;
    #[expect(clippy::cast_possible_truncation, reason = "less than the number of workers")]
    let owner = ((mixed * workers as u64) >> 32) as usize;
    owner
}

/// Copies rows into a buffer for each worker and sends buffers that cannot take another part.
#[derive(Debug)]
pub(crate) struct Split {
    buffers: Vec<Buffer>,
    /// Most rows of a part.
    part_rows: usize,
}

/// Columns of fixed length of which a front part is filled: a row is written whether it belongs here or not,
/// and only then counted, so no branch depends on the key.
#[derive(Debug, Default)]
struct Buffer {
    columns: [Vec<i64>; 3],
    filled: usize,
}

impl Buffer {
    fn take(&mut self) -> Columns {
        let mut own = std::mem::take(&mut self.columns);
        own.iter_mut().for_each(|column| column.truncate(self.filled));
        self.filled = 0;
        Columns { lent: None, own }
    }
}

impl Split {
    pub(crate) fn new(workers: usize, part_rows: usize) -> Self {
        let buffers = (0..workers).map(|_| Buffer::default()).collect();
        Self { buffers, part_rows }
    }

    /// Sends every buffer that might overflow, and makes sure that all have memory.
    fn make_room<T: Clone, P: Push<Message<T, Columns>>>(
        &mut self,
        stamp: &Stamp<T>,
        pushers: &mut [P],
    ) {
        let rows = 2 * self.part_rows;
        for (buffer, pusher) in self.buffers.iter_mut().zip(pushers) {
            if buffer.filled + self.part_rows >= rows {
                Message::push_at(&mut buffer.take(), stamp.clone(), pusher);
            }
            if buffer.columns[0].is_empty() {
                buffer.columns = std::array::from_fn(|_| vec![0; rows]);
            }
        }
    }
}

impl Distributor<Columns> for Split {
    fn partition<T: Clone, P: Push<Message<T, Columns>>>(
        &mut self,
        columns: &mut Columns,
        stamp: &Stamp<T>,
        pushers: &mut [P],
    ) {
        self.make_room(stamp, pushers);
        let [keys, values, times] = columns.view();
        if let [first, second] = self.buffers.as_mut_slice() {
            split_in_two([keys, values, times], first, second);
            return;
        }
        let workers = self.buffers.len();
        for ((&key, &value), &time) in keys.iter().zip(values).zip(times) {
            let buffer = &mut self.buffers[owner(key, workers)];
            for (column, value) in buffer.columns.iter_mut().zip([key, value, time]) {
                column[buffer.filled] = value;
            }
            buffer.filled += 1;
        }
    }

    fn flush<T: Clone, P: Push<Message<T, Columns>>>(
        &mut self,
        stamp: &Stamp<T>,
        pushers: &mut [P],
    ) {
        for (buffer, pusher) in self.buffers.iter_mut().zip(pushers) {
            if buffer.filled > 0 {
                Message::push_at(&mut buffer.take(), stamp.clone(), pusher);
            }
        }
    }
}

/// Every row is written to both, and one of them advances.
fn split_in_two([keys, values, times]: [&[i64]; 3], first: &mut Buffer, second: &mut Buffer) {
    let (mut to_first, mut to_second) = (first.filled, second.filled);
    let [k0, v0, t0] = first.columns.each_mut().map(Vec::as_mut_slice);
    let [k1, v1, t1] = second.columns.each_mut().map(Vec::as_mut_slice);
    for ((&key, &value), &time) in keys.iter().zip(values).zip(times) {
        k0[to_first] = key;
        v0[to_first] = value;
        t0[to_first] = time;
        k1[to_second] = key;
        v1[to_second] = value;
        t1[to_second] = time;
        let is_second = owner(key, 2);
        to_second += is_second;
        to_first += 1 - is_second;
    }
    first.filled = to_first;
    second.filled = to_second;
}
