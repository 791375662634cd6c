//! What is due at a time while nobody uses a handle: one thread per engine, started when it is first needed.
//!
//! Whoever has something due tells when ([`Timer::arm`]); the thread sleeps until the earliest such time and
//! then asks everybody. With nothing due it sleeps.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::sink::lock;
use super::wake::{Sleeper, Wake};
use crate::error::RunError;

/// The shortest sleep, so that many handles that are due one after the other share a round.
const SLEEP_MIN: Duration = Duration::from_micros(20);
/// The longest sleep, in which nothing is due.
const SLEEP_MAX: Duration = Duration::from_secs(10);

/// Something that is due at a time.
pub(crate) trait Timed: Send + Sync {
    /// Does what is due at `now`, without waiting for anybody; says when it is to be asked again, if at all.
    fn tick(&self, now: Instant) -> Option<Instant>;
}

/// The timer of an engine.
pub(crate) struct Timer {
    started: Instant,
    entries: Mutex<Vec<Weak<dyn Timed>>>,
    /// When it wakes up next, in microseconds since it started.
    next_us: AtomicU64,
    stopped: AtomicBool,
    wake: OnceLock<Arc<Wake>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Timer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timer").field("next_us", &self.next_us).finish_non_exhaustive()
    }
}

impl Timer {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            started: Instant::now(),
            entries: Mutex::default(),
            next_us: AtomicU64::new(u64::MAX),
            stopped: AtomicBool::new(false),
            wake: OnceLock::new(),
            thread: Mutex::default(),
        })
    }

    /// Makes `entry` known, for as long as it lives; starts the thread.
    pub(crate) fn enter(self: &Arc<Self>, entry: Weak<dyn Timed>) -> Result<(), RunError> {
        let mut thread = lock(&self.thread);
        if thread.is_none() && !self.stopped.load(Ordering::SeqCst) {
            let sleeper = Sleeper::new();
            let wake = Arc::clone(sleeper.wake());
            let timer = Arc::clone(self);
            let started = std::thread::Builder::new().name("saltmill-timer".to_owned());
            let started = started.spawn(move || timer.run(&sleeper));
            *thread = Some(started.map_err(|source| RunError::System {
                what: "cannot start the thread saltmill-timer; end other threads or raise their limit"
                    .to_owned(),
                source,
            })?);
            self.wake.get_or_init(|| wake);
        }
        lock(&self.entries).push(entry);
        Ok(())
    }

    /// Sees to it that entries are asked at `time`, or before.
    pub(crate) fn arm(&self, time: Instant) {
        let us = self.us(time);
        if us < self.next_us.fetch_min(us, Ordering::SeqCst)
            && let Some(wake) = self.wake.get()
        {
            wake.notify();
        }
    }

    /// Ends the thread and waits for it.
    pub(crate) fn stop(&self) {
        self.stopped.store(true, Ordering::SeqCst);
        if let Some(wake) = self.wake.get() {
            wake.notify();
        }
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread.filter(|it| it.thread().id() != std::thread::current().id()) {
            // What ticks catches its panics; there is nobody left to tell.
            let _ = thread.join();
        }
    }

    fn us(&self, time: Instant) -> u64 {
        let since = time.saturating_duration_since(self.started);
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    }

    fn run(&self, sleeper: &Sleeper) {
        let mut alive = Vec::new();
        while !self.stopped.load(Ordering::SeqCst) {
            // Whoever arms it from here on is heard, also if its entry was asked already.
            self.next_us.store(u64::MAX, Ordering::SeqCst);
            {
                let mut entries = lock(&self.entries);
                entries.retain(|entry| {
                    let entry = entry.upgrade();
                    let lives = entry.is_some();
                    alive.extend(entry);
                    lives
                });
            }
            let now = Instant::now();
            let next = alive.drain(..).filter_map(|entry| entry.tick(now)).min();
            let own_us = next.map_or(u64::MAX, |next| self.us(next));
            let next_us = own_us.min(self.next_us.fetch_min(own_us, Ordering::SeqCst));
            let left_us = next_us.saturating_sub(self.us(Instant::now()));
            let timeout = Duration::from_micros(left_us).clamp(SLEEP_MIN, SLEEP_MAX);
            sleeper.sleep(timeout, || {
                self.stopped.load(Ordering::SeqCst) || self.next_us.load(Ordering::SeqCst) < next_us
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Entry {
        timer: Arc<Timer>,
        due: Mutex<Option<Instant>>,
        late: Mutex<Vec<Duration>>,
    }

    impl Timed for Entry {
        fn tick(&self, now: Instant) -> Option<Instant> {
            let mut due = lock(&self.due);
            if due.is_some_and(|due| due <= now) {
                lock(&self.late).push(now - due.take()?);
            }
            *due
        }
    }

    #[test]
    fn everything_is_done_when_due_and_the_thread_ends() {
        let timer = Timer::new();
        let entries = [0, 1, 2].map(|_| {
            Arc::new(Entry {
                timer: Arc::clone(&timer),
                due: Mutex::default(),
                late: Mutex::default(),
            })
        });
        for entry in &entries {
            let entry = Arc::clone(entry) as Arc<dyn Timed>;
            timer.enter(Arc::downgrade(&entry)).unwrap();
        }
        for round in 0..100_u64 {
            for (entry, delay) in entries.iter().zip([300, 500, 900]) {
                let due = Instant::now() + Duration::from_micros(delay + round % 7);
                *lock(&entry.due) = Some(due);
                entry.timer.arm(due);
            }
            let deadline = Instant::now() + Duration::from_secs(10);
            while entries.iter().any(|entry| lock(&entry.due).is_some()) {
                assert!(Instant::now() < deadline, "round {round}: something due was not done");
                std::thread::sleep(Duration::from_micros(200));
            }
        }
        timer.stop();
        assert!(lock(&timer.thread).is_none());
        assert!(entries.iter().all(|entry| lock(&entry.late).len() == 100));
    }
}
