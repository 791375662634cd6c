//! The progress bar: on standard error, only on a terminal, only on runs longer than a second.
//!
//! It has a thread of its own, which also does small chores of the same rhythm.

use std::io::IsTerminal as _;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam::channel::{RecvTimeoutError, Sender, bounded};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::args::ProgressMode;

/// Runs shorter than this show nothing.
const SHOWN_AFTER: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// What a bar shows.
#[derive(Debug, Clone, Default)]
pub(super) struct State {
    pub(super) done: u64,
    pub(super) total: Option<u64>,
    pub(super) message: String,
}

/// Whether the numbers are bytes or rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Measure {
    Bytes,
    Rows,
}

/// A bar that is drawn until this is dropped.
#[derive(Debug)]
pub(super) struct Bar {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Bar {
    /// Asks `state` for what to show, ten times a second; if nothing is to be shown, still calls it, so
    /// that it may do chores.
    pub(super) fn start(
        mode: ProgressMode,
        measure: Measure,
        mut state: impl FnMut() -> State + Send + 'static,
    ) -> Self {
        let visible = mode == ProgressMode::Auto && std::io::stderr().is_terminal();
        let (stop, stopped) = bounded::<()>(0);
        let body = move || {
            let started = Instant::now();
            let mut bar: Option<ProgressBar> = None;
            while stopped.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                let state = state();
                if visible && started.elapsed() >= SHOWN_AFTER {
                    let bar = bar.get_or_insert_with(|| new_bar(measure, &state, started));
                    if let Some(total) = state.total {
                        bar.set_length(total.max(state.done));
                    }
                    bar.set_message(state.message);
                    bar.set_position(state.done);
                }
            }
            if let Some(bar) = bar {
                bar.finish_and_clear();
            }
        };
        // Without a thread there is no bar, and nothing else is lost.
        let thread = std::thread::Builder::new().name("saltmill-progress".into()).spawn(body).ok();
        Self { stop: Some(stop), thread }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn new_bar(measure: Measure, state: &State, started: Instant) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(state.total, ProgressDrawTarget::stderr_with_hz(10))
        .with_elapsed(started.elapsed());
    let template = match (measure, state.total) {
        (Measure::Bytes, Some(_)) => {
            "{elapsed_precise} {wide_bar} {bytes}/{total_bytes} {bytes_per_sec} eta {eta} {msg}"
        }
        (Measure::Bytes, None) => "{elapsed_precise} {spinner} {bytes} {bytes_per_sec} {msg}",
        (Measure::Rows, _) => {
            "{elapsed_precise} {wide_bar} {human_pos}/{human_len} rows {per_sec} eta {eta} {msg}"
        }
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the templates above are valid"));
    bar
}
