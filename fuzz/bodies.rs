//! What the fuzz targets do with their bytes, each against an oracle. Also replayed on stable, over the
//! seeds, by `tests/fuzz_seeds.rs`.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, TimestampMillisecondArray};
use arrow::compute::concat_batches;
use arrow::datatypes::TimestampMillisecondType;
use arrow::record_batch::RecordBatch;
use saltmill::io::{Format, InputSpec, ReadOptions, open};
use saltmill::runtime::source::Take;
use saltmill::time::window::parse_duration;
use saltmill::{Aggregate, Collected, Engine, Job, Window};

use crate::lattice::{Case, Config, feed};
use crate::oracle::expect;
use crate::oracle::rng::Rng;

/// The engine equals the oracle on the job, rows and way to run that `data` chooses.
pub(crate) fn engine(data: &[u8]) {
    let mut rng = Rng::from_bytes(data);
    let config_of = rng.below(1 << 16);
    let case = Case::random(&mut rng, 80);
    let outcome = expect(&case.spec, &case.inputs);
    let mut rng = Rng::new(config_of as u64);
    for _ in 0..2 {
        let config = Config::random(&mut rng, &case);
        if let Err(why) = feed::compare(&case, &outcome, feed::run(&case, &config)) {
            panic!("{why} | {config:?} | {}", case.describe());
        }
    }
}

/// A row lies in the window of its time, by arithmetic in 128 bits.
pub(crate) fn window(data: &[u8]) {
    let mut bytes = data.iter().copied().chain(std::iter::repeat(0));
    let mut number = || {
        let eight = std::array::from_fn::<u8, 8, _>(|_| bytes.next().unwrap_or(0));
        u64::from_le_bytes(eight)
    };
    let time = number().cast_signed();
    // Both in milliseconds, of up to 292 million years, but also small ones.
    let size = (number() >> 1 >> (number() % 63)).max(1);
    let offset = number() >> 1 >> (number() % 63);
    let times: ArrayRef = Arc::new(TimestampMillisecondArray::from(vec![time]));
    let batch = RecordBatch::try_from_iter([("time", times)]).expect("one row");
    let job = Job::builder(batch.schema())
        .event_time("time")
        .window(Window::Tumbling {
            size: Duration::from_millis(size),
            offset: Duration::from_millis(offset),
        })
        .aggregate(Aggregate::count())
        .workers(1);
    let results = Collected::new();
    let engine = Engine::start(job.build().expect("a valid job"), results.clone());
    let engine = engine.expect("a thread can be started");
    engine.ingest().expect("it runs").push(batch).expect("a batch of the schema");
    let report = engine.finish().expect("the run succeeds");
    let (wide, size) = (i128::from(time), i128::from(size));
    let start = wide - (wide - i128::from(offset)).rem_euclid(size);
    let (start, end) = (i64::try_from(start), i64::try_from(start + size));
    let results = results.take();
    if let (Ok(start), Ok(end)) = (start, end) {
        let bound = |column: usize| {
            results[0].column(column).as_primitive::<TimestampMillisecondType>().value(0)
        };
        assert_eq!((bound(0), bound(1)), (start, end), "window of {time}, {size}, {offset}");
    } else {
        assert_eq!(report.rows_rejected_total(), 1, "no window of {time}, {size}, {offset}");
        assert!(results.is_empty());
    }
}

/// Texts of aggregates, windows and durations: what is understood prints as what it is.
pub(crate) fn text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(list) = Aggregate::parse_list(text) {
        let printed = list.iter().map(|aggregate| match &aggregate.alias {
            None => aggregate.to_string(),
            Some(alias) => format!("{aggregate} as \"{}\"", alias.replace('"', "\"\"")),
        });
        let printed = printed.collect::<Vec<_>>().join(", ");
        assert_eq!(Aggregate::parse_list(&printed).as_ref(), Ok(&list), "{printed:?}");
    }
    if let Ok(duration) = parse_duration(text) {
        let nanos = format!("{}ns", duration.as_nanos());
        assert_eq!(parse_duration(&nanos), Ok(duration), "{text:?}");
        let parsed = Window::parse(&format!("tumbling:{text}"));
        if duration.is_zero() {
            assert!(parsed.is_err(), "{text:?}");
        } else {
            assert_eq!(parsed, Ok(Window::tumbling(duration)));
        }
    }
    // Understood or refused, but never a panic.
    let _ = Window::parse(text);
}

/// What a csv input gives: all rows as one batch, and how many were rejected; or the error.
fn read_csv(path: &Path, chunk_bytes: usize) -> Result<(RecordBatch, u64), String> {
    let options = ReadOptions { chunk_bytes, batch_rows: 7, ..ReadOptions::default() };
    let inputs = open(&[InputSpec::with_format(path, Format::Csv)], &options)
        .map_err(|error| error.to_string())?;
    let mut batches = Vec::new();
    let source = &inputs.sources[0];
    loop {
        match source.take().map_err(|error| error.message.clone())? {
            Take::End => break,
            Take::Pending => {}
            Take::Unit(mut unit) => {
                while let Some(batch) = unit.next_batch().map_err(|error| error.message)? {
                    assert!(batch.num_rows() <= 7, "batches are as small as asked for");
                    batches.push(batch);
                }
            }
        }
    }
    let rejected = source.rejected().iter().map(|(_, rows)| rows).sum();
    let all = concat_batches(&inputs.schema, &batches).expect("batches of one schema");
    Ok((all, rejected))
}

/// A csv text reads the same in pieces of any size.
pub(crate) fn csv(data: &[u8]) {
    static FILES: AtomicU64 = AtomicU64::new(0);
    let number = FILES.fetch_add(1, Ordering::Relaxed);
    let name = format!("saltmill-fuzz-{}-{number}.csv", std::process::id());
    let path = std::env::temp_dir().join(name);
    fs::write(&path, data).expect("a temporary file can be written");
    let whole = read_csv(&path, 1 << 20);
    for chunk_bytes in [1, 16, 61] {
        let pieces = read_csv(&path, chunk_bytes);
        match (&whole, &pieces) {
            (Ok(whole), Ok(pieces)) => {
                assert_eq!(whole.1, pieces.1, "rejected with pieces of {chunk_bytes} bytes");
                assert_eq!(whole.0, pieces.0, "rows with pieces of {chunk_bytes} bytes");
            }
            (Err(_), Err(_)) => {}
            _ => panic!("{whole:?} as a whole, {pieces:?} in pieces of {chunk_bytes} bytes"),
        }
    }
    fs::remove_file(&path).expect("the temporary file is there");
}
