//! The engine against the oracle, over a lattice of jobs, rows and ways to run them.
//!
//! Each seed makes a job and its rows; the job is run in several ways, each compared with the oracle
//! and with each other, bit for bit. `SALTMILL_SEEDS=N` sets how many seeds are tried,
//! `SALTMILL_SEED=N` repeats one.

mod lattice;
#[expect(dead_code, reason = "the bodies of the fuzz targets use the rest")]
mod oracle;

use std::io::Write as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use lattice::{Case, Config, feed};
use oracle::rng::Rng;

/// Seeds by default: under a minute in the development profile on two cores.
const SEEDS_DEFAULT: u64 = 600;

/// Ways in which each case is run.
const WAYS: usize = 3;

/// A single run that takes longer hangs, also on a machine with a lot else to do.
const PATIENCE: Duration = Duration::from_secs(180);

/// What is being run, for whoever watches over it.
type Current = Arc<Mutex<String>>;

/// Ends the process with the line that reproduces it if one run takes too long.
fn watch(current: &Current) {
    let current = Arc::downgrade(current);
    let look = move || {
        let mut last = String::new();
        while let Some(current) = current.upgrade() {
            let now = current.lock().unwrap_or_else(PoisonError::into_inner).clone();
            drop(current);
            if now == last && !now.is_empty() {
                // Past the capture of test output, which would be lost.
                let _ = writeln!(std::io::stderr(), "{now}");
                std::process::exit(1);
            }
            last = now;
            std::thread::sleep(PATIENCE);
        }
    };
    std::thread::Builder::new().spawn(look).expect("a thread can be started");
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs a seed; one line on failure.
fn try_seed(seed: u64, current: &Current) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let case = Case::random(&mut rng, *Rng::new(seed).pick(&[20, 200, 200, 800, 5000]));
    let outcome = oracle::expect(&case.spec, &case.inputs);
    let mut first = None;
    for way in 0..WAYS {
        let config = Config::random(&mut rng, &case);
        let line = |why: String| {
            format!(
                "SALTMILL_SEED={seed} cargo test --test differential: {why} | {config:?} | {}",
                case.describe()
            )
        };
        *current.lock().unwrap_or_else(PoisonError::into_inner) = line(format!("hangs ({way})"));
        let rows = feed::compare(&case, &outcome, feed::run(&case, &config)).map_err(line)?;
        let first = first.get_or_insert_with(|| rows.clone());
        if let (Some(rows), Some(first)) = (&rows, first)
            && let Some(difference) = feed::first_difference(rows, first)
        {
            return Err(line(format!("two ways to run differ: {difference}")));
        }
    }
    Ok(())
}

#[test]
fn engine_equals_oracle() {
    let current = Current::default();
    watch(&current);
    if let Some(seed) = number("SALTMILL_SEED") {
        if let Err(line) = try_seed(seed, &current) {
            panic!("{line}");
        }
        return;
    }
    let seeds = number("SALTMILL_SEEDS").unwrap_or(SEEDS_DEFAULT);
    let failures = (0..seeds).filter_map(|seed| try_seed(seed, &current).err()).collect::<Vec<_>>();
    assert!(failures.is_empty(), "{} of {seeds} seeds:\n{}", failures.len(), failures.join("\n"));
    let rescales = feed::RESCALES.load(Ordering::Relaxed) as u64;
    println!("{rescales} times the number of shards changed while rows flowed");
    assert!(rescales > seeds / 2, "{rescales} rescales of {seeds} seeds");
}
