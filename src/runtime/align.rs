//! How far inputs are apart in event time, and holding back the one that is ahead.
//!
//! Inputs of one group may not run further apart than a drift: whichever is further ahead of the last of its
//! group than that gets no room until the last has caught up. What is ahead would only fill open
//! windows. An input that has finished, or is idle, is no longer waited for; the time during which one is held
//! back does not count as silence.
//!
//! **Cost:** a lock per batch. Where nothing is aligned nobody waits for it: whoever finds it taken goes on,
//! and only the report of drifts knows a little less.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use hashbrown::HashMap;

use super::sink::lock;
use crate::time::alignment::Alignment;

/// Where the inputs of a run stand.
#[derive(Debug)]
pub(crate) struct Aligner {
    /// In the event time's unit; none: nobody is held back.
    max_drift: Option<i64>,
    update_interval: Duration,
    groups: Vec<u32>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    inputs: Vec<Input>,
    /// For each group, how far its last input was when that was looked for.
    last: HashMap<u32, Last>,
    /// Numbers of inputs that have ended, to be used again where nothing is aligned: handles may come and go
    /// without number.
    vacant: Vec<usize>,
}

/// The last input of a group.
#[derive(Debug, Clone, Copy)]
struct Last {
    watermark: i64,
    /// Which it was; none if no input counted.
    input: Option<usize>,
    at: Instant,
}

#[derive(Debug, Clone)]
struct Input {
    group: u32,
    /// Its watermark, `i64::MIN` before its first row.
    watermark: i64,
    /// Neither finished nor idle.
    counts: bool,
    held_since: Option<Instant>,
    held: Duration,
    drift_max: i64,
}

/// What an input did, in the event time's unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InputDrift {
    /// How far it was ahead of the last input of its group, at most.
    pub(crate) drift_max: i64,
    /// How long it was held back.
    pub(crate) held: Duration,
}

impl Aligner {
    pub(crate) fn new(alignment: Option<&Alignment>, max_drift: Option<i64>) -> Self {
        Self {
            max_drift: alignment.and(max_drift),
            update_interval: alignment
                .map_or(Duration::ZERO, |alignment| alignment.update_interval),
            groups: alignment.map_or_else(Vec::new, |alignment| alignment.groups.clone()),
            state: Mutex::default(),
        }
    }

    /// How often a producer that is held back looks again.
    pub(crate) fn update_interval(&self) -> Duration {
        self.update_interval
    }

    /// Takes in the next input; answers its number. Where nothing is aligned it may be that of one that has
    /// ended, whose drift it goes on with.
    pub(crate) fn join(&self) -> usize {
        let mut state = lock(&self.state);
        if let Some(number) = state.vacant.pop() {
            let input = &mut state.inputs[number];
            (input.watermark, input.counts) = (i64::MIN, true);
            return number;
        }
        let number = state.inputs.len();
        let group = self.groups.get(number).copied().unwrap_or(0);
        state.inputs.push(Input {
            group,
            watermark: i64::MIN,
            counts: true,
            held_since: None,
            held: Duration::ZERO,
            drift_max: 0,
        });
        // It may be behind all others.
        state.last.remove(&group);
        number
    }

    /// An input has come to this watermark, and so counts again if it was idle.
    pub(crate) fn advance(&self, number: Option<usize>, watermark: i64) {
        let Some(number) = number else { return };
        let mut state = match self.max_drift {
            Some(_) => lock(&self.state),
            None => match self.state.try_lock() {
                Ok(state) => state,
                Err(_) => return,
            },
        };
        let input = &mut state.inputs[number];
        if !input.counts {
            input.counts = true;
            let group = input.group;
            state.last.remove(&group);
        }
        let input = &mut state.inputs[number];
        input.watermark = input.watermark.max(watermark);
        let group = input.group;
        // Inputs without a row have no place in time to be apart from.
        let in_group =
            |input: &Input| input.group == group && input.counts && input.watermark > i64::MIN;
        let watermarks = state.inputs.iter().filter(|input| in_group(input));
        let Some(last) = watermarks.map(|input| input.watermark).min() else { return };
        for input in state.inputs.iter_mut().filter(|input| in_group(input)) {
            input.drift_max = input.drift_max.max(input.watermark.saturating_sub(last));
        }
    }

    /// An input has finished.
    pub(crate) fn end(&self, number: Option<usize>) {
        self.leave(number);
        if let (Some(number), None) = (number, self.max_drift) {
            lock(&self.state).vacant.push(number);
        }
    }

    /// An input has finished, or is idle, and is not waited for.
    pub(crate) fn leave(&self, number: Option<usize>) {
        let Some(number) = number else { return };
        let mut state = lock(&self.state);
        let input = &mut state.inputs[number];
        if std::mem::take(&mut input.counts) {
            if let Some(since) = input.held_since.take() {
                input.held += since.elapsed();
            }
            let group = input.group;
            state.last.remove(&group);
        }
    }

    /// Whether an input may go on; takes note of the time for which it may not.
    pub(crate) fn may_go_on(&self, number: Option<usize>) -> bool {
        let (Some(max_drift), Some(number)) = (self.max_drift, number) else { return true };
        let mut guard = lock(&self.state);
        let state = &mut *guard;
        let (group, own) = (state.inputs[number].group, state.inputs[number].watermark);
        let now = Instant::now();
        let known = state.last.get(&group).filter(|last| {
            // What was seen is never too high, so that it is enough if it lets the input go on. Nobody is held
            // back by what he was himself.
            own <= last.watermark.saturating_add(max_drift)
                || (last.input != Some(number) && now - last.at < self.update_interval)
        });
        let last = known.copied().unwrap_or_else(|| {
            let inputs = state.inputs.iter().enumerate();
            let members = inputs.filter(|(_, input)| input.group == group && input.counts);
            let last = members.map(|(number, input)| (input.watermark, number)).min();
            // Nobody counts: nobody is ahead.
            let watermark = last.map_or(own, |(watermark, _)| watermark);
            let last = Last { watermark, input: last.map(|(_, number)| number), at: now };
            state.last.insert(group, last);
            last
        });
        let last = last.watermark;
        let input = &mut state.inputs[number];
        let may = own <= last.saturating_add(max_drift);
        if may {
            if let Some(since) = input.held_since.take() {
                input.held += now - since;
            }
        } else if input.held_since.is_none() {
            input.held_since = Some(now);
        }
        may
    }

    /// What each input did.
    pub(crate) fn drifts(&self) -> Vec<InputDrift> {
        let state = lock(&self.state);
        let drift = |input: &Input| InputDrift { drift_max: input.drift_max, held: input.held };
        state.inputs.iter().map(drift).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn aligner(groups: &[u32]) -> Aligner {
        let alignment = Alignment::new(Duration::from_secs(10))
            .groups(groups.iter().copied())
            .update_interval(Duration::ZERO);
        let aligner = Aligner::new(Some(&alignment), Some(10));
        for _ in groups {
            aligner.join();
        }
        aligner
    }

    #[test]
    fn the_input_ahead_is_held_back_until_the_last_has_caught_up() {
        let aligner = aligner(&[0, 0, 1]);
        assert!((0..3).all(|input| aligner.may_go_on(Some(input))), "nobody has begun");
        aligner.advance(Some(0), 100);
        assert!(!aligner.may_go_on(Some(0)), "the second has not begun");
        aligner.advance(Some(1), 50);
        assert!(!aligner.may_go_on(Some(0)) && aligner.may_go_on(Some(1)));
        aligner.advance(Some(2), 1_000_000);
        assert!(aligner.may_go_on(Some(2)), "it is alone in its group");
        aligner.advance(Some(1), 90);
        assert!(aligner.may_go_on(Some(0)) && aligner.may_go_on(Some(1)));
        aligner.advance(Some(0), 101);
        assert!(!aligner.may_go_on(Some(0)));
        let drifts = aligner.drifts();
        assert_eq!(drifts.iter().map(|input| input.drift_max).collect::<Vec<_>>(), [50, 0, 0]);
        assert!(drifts[0].held > Duration::ZERO && drifts[1].held == Duration::ZERO);
    }

    #[test]
    fn who_has_left_is_not_waited_for_and_counts_again_when_it_speaks() {
        let aligner = aligner(&[0, 0, 0]);
        aligner.advance(Some(0), 100);
        aligner.advance(Some(1), 5);
        aligner.leave(Some(2));
        assert!(!aligner.may_go_on(Some(0)));
        aligner.leave(Some(1));
        assert!(aligner.may_go_on(Some(0)));
        aligner.advance(Some(1), 6);
        assert!(!aligner.may_go_on(Some(0)) && aligner.may_go_on(Some(1)));
        aligner.leave(Some(1));
        aligner.leave(Some(0));
        assert!((0..3).all(|input| aligner.may_go_on(Some(input))), "nobody is waited for");
    }

    #[test]
    fn an_input_alone_in_its_group_is_never_held_back() {
        let alignment = Alignment::new(Duration::from_secs(10)).groups([0, 1]);
        let aligner = Aligner::new(Some(&alignment), Some(10));
        let (alone, other) = (aligner.join(), aligner.join());
        for watermark in (0..1000).step_by(50) {
            aligner.advance(Some(alone), watermark);
            assert!(aligner.may_go_on(Some(alone)), "{watermark}");
        }
        assert!(aligner.may_go_on(Some(other)));
        assert_eq!(aligner.drifts()[alone].held, Duration::ZERO);
    }

    #[test]
    fn numbers_of_ended_inputs_are_used_again_where_nothing_is_aligned() {
        let aligner = Aligner::new(None, None);
        for _ in 0..100 {
            let number = aligner.join();
            aligner.advance(Some(number), 5);
            aligner.end(Some(number));
        }
        assert_eq!(aligner.drifts().len(), 1);
    }

    #[test]
    fn without_a_drift_nobody_is_held_back_but_drifts_are_known() {
        let aligner = Aligner::new(None, None);
        let (first, second) = (aligner.join(), aligner.join());
        aligner.advance(Some(first), 7);
        aligner.advance(Some(second), 1007);
        assert!(aligner.may_go_on(Some(second)));
        assert_eq!(aligner.drifts()[second].drift_max, 1000);
    }
}
