//! Where shards and producers show their panes to readers.
//!
//! A shard shows the panes of its open spans, a producer those of the partials it holds or has handed on. Either is an
//! immutable list that is replaced when a pane comes or goes. Panes are shared by reference count: one that
//! no list shows any more, the old lists being gone ([`grace`](super::grace)), belongs to its writer alone again.
//!
//! What makes sums over both right, at one instant:
//! - A partial stays in its producer's list until its owner has taken it over, and says in itself how far that has
//!   come ([`Readable::merged`]), which changes together with the owner's rows.
//! - Rows of a key that was not hot may still lie in a ring when it becomes hot. The partials of a changed hot set
//!   are therefore panes of their own, each with the number of messages that went to the owner before; it counts
//!   once the owner has taken in as many. So of each producer's rows a reader sees those up to some row.
//! - A list is replaced before what it shows changes in any other way: spans are united in new panes.
//!
//! Cost: opening and closing a window copies the list of the shard's open windows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use crossbeam::utils::CachePadded;

use super::grace::{Bag, Cell, Domain};
use super::sink::lock;
use crate::state::pane::Pane;
use crate::state::readable::Readable;
use crate::time::window::Span;

/// What one engine shows.
#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) domain: Arc<Domain>,
    /// By shard.
    pub(crate) shards: Vec<Cell<OpenSpans>>,
    /// All that may have partials.
    pub(crate) producers: Cell<Vec<Arc<ProducerBoard>>>,
    /// The same list, for those who come and go.
    register: Mutex<Register>,
    /// The run has failed or was abandoned: what was being written may never be done.
    stopped: AtomicBool,
}

#[derive(Debug)]
struct Register {
    producers: Vec<Arc<ProducerBoard>>,
    bag: Bag,
}

/// The open spans of a shard.
#[derive(Debug, Default)]
pub(crate) struct OpenSpans {
    /// In order.
    pub(crate) panes: Vec<(Span, Arc<Readable>)>,
    /// Windows that end at or before this are closed.
    pub(crate) closed_to: i64,
}

/// What a producer shows.
#[derive(Debug)]
pub(crate) struct ProducerBoard {
    pub(crate) partials: Cell<Vec<ShownPartial>>,
    /// For each shard, how many messages of this producer it has taken in.
    pub(crate) taken: Vec<CachePadded<AtomicU64>>,
    /// Shards that have taken in its last message.
    left: AtomicUsize,
}

/// A pane of partials.
#[derive(Debug, Clone)]
pub(crate) struct ShownPartial {
    pub(crate) owner: usize,
    pub(crate) span: Span,
    /// It counts once its owner has taken in so many messages of its producer.
    pub(crate) after: u64,
    pub(crate) pane: Arc<Readable>,
}

impl Board {
    pub(crate) fn new(shards: usize) -> Self {
        let domain = Domain::new();
        let open = || OpenSpans { panes: Vec::new(), closed_to: i64::MIN };
        Self {
            shards: (0..shards).map(|_| Cell::new(&domain, open())).collect(),
            producers: Cell::new(&domain, Vec::new()),
            register: Mutex::new(Register { producers: Vec::new(), bag: Bag::new(&domain) }),
            stopped: AtomicBool::new(false),
            domain,
        }
    }

    /// Nothing more will come.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether the run has failed or was abandoned.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Makes a new producer known.
    pub(crate) fn join(&self) -> Arc<ProducerBoard> {
        let producer = Arc::new(ProducerBoard {
            partials: Cell::new(&self.domain, Vec::new()),
            taken: self.shards.iter().map(|_| CachePadded::default()).collect(),
            left: AtomicUsize::new(0),
        });
        self.register(|producers| producers.push(Arc::clone(&producer)));
        producer
    }

    /// A shard has taken in the last message of a producer; once all have, it holds nothing any more.
    pub(crate) fn leave(&self, producer: &Arc<ProducerBoard>) {
        if producer.left.fetch_add(1, Ordering::AcqRel) + 1 == self.shards.len() {
            self.register(|producers| producers.retain(|one| !Arc::ptr_eq(one, producer)));
        }
    }

    fn register(&self, change: impl FnOnce(&mut Vec<Arc<ProducerBoard>>)) {
        let mut register = lock(&self.register);
        let Register { producers, bag } = &mut *register;
        change(producers);
        self.producers.replace(producers.clone(), bag);
        bag.poll();
    }
}

/// A shard's side of the board.
#[derive(Debug)]
pub(crate) struct ShardBoard {
    board: Arc<Board>,
    shard: usize,
    bag: Bag,
}

impl ShardBoard {
    pub(crate) fn new(board: &Arc<Board>, shard: usize) -> Self {
        Self { board: Arc::clone(board), shard, bag: Bag::new(&board.domain) }
    }

    /// Shows these panes, and no others.
    pub(crate) fn show(&mut self, open: &BTreeMap<Span, Pane>, closed_to: i64) {
        let panes = open.iter().filter_map(|(span, pane)| {
            let pane = pane.readable();
            pane.map(|pane| (*span, Arc::clone(pane)))
        });
        let open = OpenSpans { panes: panes.collect(), closed_to };
        self.board.shards[self.shard].replace(open, &mut self.bag);
        self.bag.poll();
    }

    /// Lets go of panes that no reader has any more.
    #[inline]
    pub(crate) fn poll(&mut self) {
        if !self.bag.is_empty() {
            self.bag.poll();
        }
    }
}

/// A producer's side of the board.
#[derive(Debug)]
pub(crate) struct PartialsBoard {
    producer: Arc<ProducerBoard>,
    bag: Bag,
    shown: Vec<ShownPartial>,
    /// For each shard, the messages that have gone to it.
    sent: Vec<u64>,
    /// The same when the hot set last changed. Of all panes since then, for whichever span and salt: a key's rows
    /// may lie in several, of which all count or none.
    after: Vec<u64>,
}

impl PartialsBoard {
    pub(crate) fn new(board: &Board, producer: &Arc<ProducerBoard>) -> Self {
        Self {
            producer: Arc::clone(producer),
            bag: Bag::new(&board.domain),
            shown: Vec::new(),
            sent: vec![0; board.shards.len()],
            after: vec![0; board.shards.len()],
        }
    }

    /// Panes that are shown from now on are of another hot set.
    pub(crate) fn begin_hot_set(&mut self) {
        self.after.clone_from(&self.sent);
    }

    /// Takes note of how many messages have gone to each shard, all of them.
    pub(crate) fn set_sent(&mut self, sent: impl Iterator<Item = u64>) {
        self.sent.clear();
        self.sent.extend(sent);
        if !self.bag.is_empty() {
            self.bag.poll();
        }
    }

    /// Shows a new pane too, and no more those that their owners have taken over.
    pub(crate) fn show(&mut self, owner: usize, span: Span, pane: &Pane) {
        let Some(pane) = pane.readable() else { return };
        self.shown.retain(|shown| shown.pane.merged() < u32::MAX);
        let (after, pane) = (self.after[owner], Arc::clone(pane));
        self.shown.push(ShownPartial { owner, span, after, pane });
        self.producer.partials.replace(self.shown.clone(), &mut self.bag);
        self.bag.poll();
    }
}
