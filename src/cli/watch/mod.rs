//! `run --watch`: how the run goes, in a terminal as a picture that changes, elsewhere as lines.
//!
//! It looks at the engine's metrics from a thread of its own; the run does not notice. It draws on standard error,
//! so that results may go to standard output.

mod state;
mod picture;

use std::io::{IsTerminal as _, Stderr, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam::channel::{Receiver, RecvTimeoutError, Sender, bounded};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::{Hide, Show};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen};

use super::args::RunArgs;
use super::{Failure, tell};
use crate::error::ConfigError;
use crate::runtime::engine::{Engine, MetricsReader};
use state::WatchState;

/// Between two pictures.
const PICTURE_EVERY: Duration = Duration::from_millis(500);

/// Between two lines.
const LINE_EVERY: Duration = Duration::from_secs(1);

/// Whether the terminal shows the picture, and must be given back.
static SCREEN_TAKEN: AtomicBool = AtomicBool::new(false);

/// Shows how a run goes until it is dropped.
#[derive(Debug)]
pub(super) struct Watch {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Whether the picture and the results would be drawn over each other.
pub(super) fn check(args: &RunArgs) -> Result<(), ConfigError> {
    let results_on_terminal = args.output.is_none() && std::io::stdout().is_terminal();
    if args.watch && results_on_terminal && std::io::stderr().is_terminal() {
        return Err(ConfigError::Inconsistent(
            "--watch draws on the terminal, and so would the results; add --output FILE, or a pipe"
                .into(),
        ));
    }
    Ok(())
}

impl Watch {
    /// Begins to show the engine.
    pub(super) fn start(engine: &Engine) -> Result<Self, Failure> {
        let reader = engine.metrics_reader();
        let (stop, stopped) = bounded::<()>(0);
        let body = move || {
            let mut state = WatchState::new(&reader);
            if std::io::stderr().is_terminal() && pictures(&reader, &mut state, &stopped).is_ok() {
                return;
            }
            lines(&reader, &mut state, &stopped);
        };
        let thread = std::thread::Builder::new().name("saltmill-watch".into()).spawn(body);
        let thread = thread.map_err(|error| Failure::Run(format!("--watch: {error}")))?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        give_back_screen();
    }
}

/// Leaves the terminal as it was, also where the process ends at once.
pub(super) fn give_back_screen() {
    if SCREEN_TAKEN.swap(false, Ordering::SeqCst) {
        // A terminal that has gone away needs nothing.
        let _ = execute!(std::io::stderr(), LeaveAlternateScreen, Show);
    }
}

/// Draws until the run has ended. An error means that this terminal cannot show pictures.
fn pictures(
    reader: &MetricsReader,
    state: &mut WatchState,
    stopped: &Receiver<()>,
) -> std::io::Result<()> {
    let mut screen = std::io::stderr();
    SCREEN_TAKEN.store(true, Ordering::SeqCst);
    let mut terminal = execute!(screen, EnterAlternateScreen, Hide)
        .and_then(|()| Terminal::new(CrosstermBackend::new(screen)))
        .inspect_err(|_| give_back_screen())?;
    loop {
        draw(&mut terminal, state).inspect_err(|_| give_back_screen())?;
        if stopped.recv_timeout(PICTURE_EVERY) != Err(RecvTimeoutError::Timeout) {
            give_back_screen();
            tell(&state.line());
            return Ok(());
        }
        state.look(reader);
    }
}

fn draw(
    terminal: &mut Terminal<CrosstermBackend<Stderr>>,
    state: &WatchState,
) -> std::io::Result<()> {
    terminal.draw(|frame| picture::draw(frame, state)).map(|_| ())
}

/// Writes a line now and then until the run has ended, and one at the end.
fn lines(reader: &MetricsReader, state: &mut WatchState, stopped: &Receiver<()>) {
    while stopped.recv_timeout(LINE_EVERY) == Err(RecvTimeoutError::Timeout) {
        state.look(reader);
        tell(&state.line());
        let _ = std::io::stderr().flush();
    }
    state.look(reader);
    tell(&state.line());
}
