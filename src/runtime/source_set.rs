//! The inputs of a run, as all workers see them together: who reads what next, and what may be promised.
//!
//! Units of an input are taken in order and decoded at once by many workers, but lateness is decided in
//! the input's order. So each unit, once decoded, waits for its turn to learn the largest event time
//! before it ([`SourceSet::sequence`]), which costs a few loads: the turn passes on as soon as a unit's
//! own largest time is known, long before its rows are aggregated.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::align::Aligner;
use super::barrier::Barriers;
use super::metrics::InputMetrics;
use super::sink::lock;
use super::skew_control::SkewControl;
use super::source::{Source, Take, Unit};
use crate::checkpoint;
use crate::error::{CheckpointError, SourceError};

/// How far a worker may be ahead of the one that has taken the fewest units: this part of them.
const AHEAD_SHARE: u64 = 32;

/// Whether a worker that has taken `own` units waits for the one that has taken the `least`.
pub(crate) fn is_ahead(own: u64, least: u64) -> bool {
    own > least + least / AHEAD_SHARE
}

/// Longest stretch between two polls that counts as silence of an input: in longer ones the workers were
/// held back, not the input silent.
const SILENCE_STEP_MAX: Duration = Duration::from_millis(50);

/// All inputs of a run.
#[derive(Debug)]
pub(crate) struct SourceSet {
    sources: Vec<Arc<dyn Source>>,
    out_of_orderness: i64,
    has_time: bool,
    idle_timeout: Option<Duration>,
    even: Even,
    /// Keeps the inputs together; its inputs have the same numbers.
    aligner: Arc<Aligner>,
    state: Mutex<State>,
    /// Rows of each input.
    rows: Vec<AtomicU64>,
    /// Which barrier is to be passed.
    barriers: Arc<Barriers>,
}

/// When workers that are ahead in reading wait for the others: where whoever reads a row may have to
/// aggregate it.
#[derive(Debug)]
pub(crate) enum Even {
    /// No row is aggregated where it was read.
    Never,
    /// All are.
    Always,
    /// Those of hot keys are.
    WhileHot(Arc<SkewControl>),
}

impl Even {
    fn is_asked(&self) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::WhileHot(control) => control.is_any_hot(),
        }
    }
}

#[derive(Debug)]
struct State {
    inputs: Vec<InputState>,
    /// Whether reading was even when a unit was last asked for.
    even: bool,
    /// The largest watermark any worker has promised.
    promised: i64,
    /// Units taken by each worker; `None` once it was told that there are no more.
    taken: Vec<Option<u64>>,
    /// The last barrier that all have passed, and which workers have come to the next.
    passed: u64,
    arrived: Vec<bool>,
}

#[derive(Debug)]
struct InputState {
    /// Units handed out.
    taken: u64,
    /// Units whose largest event time is known, with all before them.
    sequenced: u64,
    /// Largest event time of the sequenced units.
    max_time: i64,
    /// The source has said that there is no more.
    ended: bool,
    /// Time it has been silent while it was asked, and when it was last asked.
    silent: Duration,
    asked: Option<Instant>,
    idle: bool,
    /// Rows of this input that lie before this are late: the others went on while it was idle.
    floor: i64,
}

/// A unit, and the input it belongs to.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) unit: Box<dyn Unit>,
    pub(crate) input: usize,
}

/// Answer of [`SourceSet::take`].
#[derive(Debug)]
pub(crate) enum Next {
    Unit(Taken),
    Pending,
    /// The worker, which has no unit in hand, has come to a barrier, which it must pass next. The last one to
    /// come there says so ([`SourceSet::complete`]), and until then nobody gets a unit.
    Barrier {
        is_last: bool,
    },
    End,
}

impl SourceSet {
    pub(crate) fn new(
        sources: Vec<Arc<dyn Source>>,
        out_of_orderness: Option<i64>,
        idle_timeout: Option<Duration>,
        (workers, even): (usize, Even),
        (aligner, barriers): (Arc<Aligner>, Arc<Barriers>),
    ) -> Self {
        for number in 0..sources.len() {
            let joined = aligner.join();
            debug_assert_eq!(joined, number, "inputs join in order");
        }
        let inputs = sources
            .iter()
            .map(|_| InputState {
                taken: 0,
                sequenced: 0,
                max_time: i64::MIN,
                ended: false,
                silent: Duration::ZERO,
                asked: None,
                idle: false,
                floor: i64::MIN,
            })
            .collect();
        let rows = sources.iter().map(|_| AtomicU64::new(0)).collect();
        Self {
            sources,
            rows,
            out_of_orderness: out_of_orderness.unwrap_or(0),
            has_time: out_of_orderness.is_some(),
            idle_timeout,
            even,
            aligner,
            state: Mutex::new(State {
                inputs,
                even: false,
                promised: i64::MIN,
                taken: vec![Some(0); workers],
                passed: barriers.wanted(),
                arrived: vec![false; workers],
            }),
            barriers,
        }
    }

    /// Whether units must be sequenced, and so their largest event time is wanted.
    pub(crate) fn has_time(&self) -> bool {
        self.has_time
    }

    /// The next unit for `worker`, of the input that is furthest behind among those that have one.
    ///
    /// Where whoever reads a row may have to aggregate it ([`Even`]), even reading is what spreads the work
    /// evenly, and a worker that is ahead of the others waits. Live inputs are read by whoever comes first.
    pub(crate) fn take(&self, worker: usize) -> Result<Next, SourceError> {
        let mut state = lock(&self.state);
        if self.barriers.wanted() > state.passed {
            return Ok(arrive(&mut state, worker));
        }
        let even = self.even.is_asked();
        if even && !state.even {
            // What was read before was not to be even, and is no debt; the units at hand count.
            state.taken.iter_mut().flatten().for_each(|taken| *taken = (*taken).min(1));
            if let Some(own) = &mut state.taken[worker] {
                *own = 0;
            }
        }
        state.even = even;
        if even && self.is_ahead(&state, worker) {
            return Ok(Next::Pending);
        }
        let mut order = (0..self.sources.len()).collect::<Vec<_>>();
        order.sort_by_key(|input| state.inputs[*input].max_time);
        let mut pending = false;
        for input in order {
            if state.inputs[input].ended {
                continue;
            }
            if !self.aligner.may_go_on(Some(input)) {
                // Held back, not silent.
                state.inputs[input].asked = None;
                pending = true;
                continue;
            }
            match self.sources[input].take()? {
                Take::Unit(unit) => {
                    let promised = state.promised;
                    let input_state = &mut state.inputs[input];
                    debug_assert_eq!(unit.ticket(), input_state.taken, "units are numbered");
                    input_state.taken += 1;
                    if let Some(taken) = &mut state.taken[worker] {
                        *taken += 1;
                    }
                    let input_state = &mut state.inputs[input];
                    input_state.silent = Duration::ZERO;
                    input_state.asked = None;
                    if std::mem::take(&mut input_state.idle) {
                        input_state.floor = promised;
                    }
                    return Ok(Next::Unit(Taken { unit, input }));
                }
                Take::Pending => {
                    pending = true;
                    self.note_silence(&mut state.inputs[input], input);
                }
                Take::End => {
                    state.inputs[input].ended = true;
                    self.leave_if_over(&state.inputs[input], input);
                }
            }
        }
        if pending {
            return Ok(Next::Pending);
        }
        state.taken[worker] = None;
        Ok(Next::End)
    }

    /// Whether the barrier that workers come to is that of a rescale.
    pub(crate) fn is_rescaling(&self) -> bool {
        self.barriers.is_rescale(self.barriers.wanted())
    }

    /// From now on so many workers read, beginning behind the newest barrier.
    pub(crate) fn rescale(&self, workers: usize) {
        let mut state = lock(&self.state);
        state.taken = vec![Some(0); workers];
        state.arrived = vec![false; workers];
        state.passed = self.barriers.wanted();
    }

    /// All workers have come to the barrier `barrier`, and go on.
    pub(crate) fn complete(&self) {
        let mut state = lock(&self.state);
        state.passed = self.barriers.wanted();
        state.arrived.fill(false);
    }

    /// Where all inputs stand, while no unit is in hand.
    pub(crate) fn positions(&self) -> Vec<checkpoint::InputState> {
        let state = lock(&self.state);
        let known = |time: i64| (time != i64::MIN).then_some(time);
        let inputs = self.sources.iter().zip(&state.inputs);
        inputs
            .map(|(source, input)| checkpoint::InputState {
                name: source.name(),
                position: source.position(),
                ended: input.ended,
                max_time: known(input.max_time),
                floor: known(input.floor),
            })
            .collect()
    }

    /// Goes on where the inputs of the same names stood at a checkpoint. Others begin, where time stands by then:
    /// `closed_to`.
    ///
    /// # Errors
    /// If an input cannot be read from where it stood.
    pub(crate) fn resume(
        &self,
        saved: &[checkpoint::InputState],
        closed_to: Option<i64>,
    ) -> Result<(), CheckpointError> {
        let mut state = lock(&self.state);
        for (number, source) in self.sources.iter().enumerate() {
            let name = source.name();
            // Inputs of one name: in their order.
            let before = self.sources[..number].iter().filter(|one| one.name() == name).count();
            let input = &mut state.inputs[number];
            let Some(saved) = saved.iter().filter(|saved| saved.name == name).nth(before) else {
                input.floor = closed_to.unwrap_or(i64::MIN);
                continue;
            };
            if let Some(position) = &saved.position {
                let resumed = source.resume(position);
                resumed.map_err(|e| CheckpointError::Input(e.to_string()))?;
            }
            input.max_time = saved.max_time.unwrap_or(i64::MIN);
            input.floor = saved.floor.unwrap_or(i64::MIN);
            input.ended = saved.ended && saved.position.is_none();
            if self.has_time && input.max_time != i64::MIN {
                let watermark = input.max_time.saturating_sub(self.out_of_orderness);
                self.aligner.advance(Some(number), watermark.max(input.floor));
            }
            self.leave_if_over(&state.inputs[number], number);
        }
        Ok(())
    }

    fn is_ahead(&self, state: &State, worker: usize) -> bool {
        let Some(own) = state.taken[worker] else { return false };
        let least = state.taken.iter().flatten().min().copied().unwrap_or(own);
        let live = || {
            self.sources
                .iter()
                .zip(&state.inputs)
                .any(|(source, input)| !input.ended && source.is_live())
        };
        is_ahead(own, least) && !live()
    }

    fn note_silence(&self, state: &mut InputState, input: usize) {
        let now = Instant::now();
        if let Some(asked) = state.asked.replace(now) {
            state.silent += (now - asked).min(SILENCE_STEP_MAX);
        }
        if let Some(timeout) = self.idle_timeout {
            state.idle |= self.sources[input].is_live() && state.silent >= timeout;
            self.leave_if_over(state, input);
        }
    }

    /// Nobody waits for an input that has no more, or is idle, once all it gave is known.
    fn leave_if_over(&self, state: &InputState, input: usize) {
        if (state.ended || state.idle) && state.taken == state.sequenced {
            self.aligner.leave(Some(input));
        }
    }

    /// If it is the unit's turn, takes note of its largest event time and answers the largest before it
    /// and the input's floor.
    pub(crate) fn sequence(
        &self,
        input: usize,
        ticket: u64,
        max_time: Option<i64>,
    ) -> Option<(i64, i64)> {
        let mut state = lock(&self.state);
        let number = input;
        let input = &mut state.inputs[input];
        if input.sequenced != ticket {
            return None;
        }
        let before = input.max_time;
        input.sequenced += 1;
        input.max_time = before.max(max_time.unwrap_or(i64::MIN));
        if self.has_time {
            let watermark = input.max_time.saturating_sub(self.out_of_orderness).max(input.floor);
            self.aligner.advance(Some(number), watermark);
        }
        self.leave_if_over(input, number);
        Some((before, input.floor))
    }

    /// What a worker may promise that has no unit in hand (`own: None`), or one whose input stands at the
    /// given watermark: the least of what may still come.
    pub(crate) fn promise(&self, own: Option<(usize, i64)>) -> i64 {
        let mut state = lock(&self.state);
        let mut least: Option<i64> = None;
        for (i, input) in state.inputs.iter().enumerate() {
            let watermark = match own {
                Some((own, watermark)) if own == i => watermark,
                _ if input.ended && input.taken == input.sequenced => i64::MAX,
                _ if input.idle && input.taken == input.sequenced => continue,
                _ => input.max_time.saturating_sub(self.out_of_orderness).max(input.floor),
            };
            least = Some(least.map_or(watermark, |least| least.min(watermark)));
        }
        // All idle: time stands still.
        let promise = least.unwrap_or(state.promised);
        state.promised = state.promised.max(promise);
        promise
    }

    /// Counts rows of an input.
    pub(crate) fn add_rows(&self, input: usize, rows: usize) {
        self.rows[input].fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// How it goes with each input.
    pub(crate) fn metrics(&self) -> Vec<InputMetrics> {
        let state = lock(&self.state);
        let inputs = state.inputs.iter().zip(&self.rows).enumerate();
        let metrics = inputs.map(|(number, (input, rows))| InputMetrics {
            name: number.to_string(),
            rows_in: rows.load(Ordering::Relaxed),
            watermark: (self.has_time && input.max_time != i64::MIN)
                .then(|| input.max_time.saturating_sub(self.out_of_orderness).max(input.floor)),
            idle: input.idle,
            ended: input.ended,
            ..InputMetrics::default()
        });
        metrics.collect()
    }

    /// Rows that the sources themselves rejected, by reason.
    pub(crate) fn rejected(&self) -> Vec<(String, u64)> {
        let mut total: Vec<(String, u64)> = Vec::new();
        for (reason, rows) in self.sources.iter().flat_map(|source| source.rejected()) {
            match total.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, sum)) => *sum += rows,
                None => total.push((reason, rows)),
            }
        }
        total
    }
}

/// A worker has come to the barrier.
fn arrive(state: &mut State, worker: usize) -> Next {
    if state.arrived[worker] {
        return Next::Pending;
    }
    state.arrived[worker] = true;
    let workers = state.arrived.iter().zip(&state.taken);
    let is_last = workers.into_iter().all(|(arrived, taken)| *arrived || taken.is_none());
    Next::Barrier { is_last }
}
