//! An idle engine: the processor time it uses, and the time from a push that wakes it to the first result.
//!
//! `cargo bench --manifest-path benches/Cargo.toml --bench idle`. Ends with exit code 1 if a limit is missed
//! with no more workers than cores: 1 % of a core, 200 us at the median.

use std::process::ExitCode;
use std::time::Duration;

use saltmill_benches::waking;

const WAKES: usize = 500;
const IDLE_SHARE_MAX: f64 = 0.01;
const WAKE_MEDIAN_MAX: Duration = Duration::from_micros(200);

fn main() -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut kept = true;
    println!("workers,idle_share_of_a_core,wake_median_us,wake_p90_us,wake_p99_us,wake_max_us");
    for workers in [1, 2, 8] {
        let mut engine = waking::Waking::start(workers);
        let share = engine.idle_share(Duration::from_secs(5));
        let wakes = (0..WAKES).map(|_| engine.wake(Duration::from_millis(5)));
        let mut wakes = wakes.collect::<Vec<_>>();
        engine.finish();
        wakes.sort_unstable();
        let at = |percent: usize| wakes[(WAKES * percent / 100).min(WAKES - 1)];
        let us = |time: Duration| time.as_secs_f64() * 1e6;
        println!(
            "{workers},{share:.5},{:.1},{:.1},{:.1},{:.1}",
            us(at(50)),
            us(at(90)),
            us(at(99)),
            us(at(100)),
        );
        kept &= workers > cores || (share < IDLE_SHARE_MAX && at(50) < WAKE_MEDIAN_MAX);
    }
    if kept {
        return ExitCode::SUCCESS;
    }
    eprintln!("missed: an idle engine must use under 1 % of a core and wake in 200 us (median)");
    ExitCode::FAILURE
}
