//! Savepoints and checkpoints: a run that goes on from one gives what one run would have given, whatever its number
//! of workers.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use saltmill::arrow::array::{
    Array, ArrayRef, Float64Array, Int64Array, StringArray, TimestampMillisecondArray,
};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::checkpoint::OutputState;
use saltmill::config::SkewMode;
use saltmill::error::SinkError;
use saltmill::{
    Aggregate, Checkpoint, CheckpointDir, CheckpointError, Checkpoints, Engine, Job, JobBuilder,
    RunError, Sink, Window,
};

/// A directory that goes away with the test.
struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("saltmill-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Keeps results, and where they were cut.
#[derive(Debug, Clone, Default)]
struct CutSink(Arc<Mutex<(Vec<RecordBatch>, usize)>>);

impl Sink for CutSink {
    fn results(&self, _: usize, batch: RecordBatch) -> Result<(), SinkError> {
        self.0.lock().unwrap().0.push(batch);
        Ok(())
    }

    fn cut(&self) -> Result<Vec<OutputState>, SinkError> {
        let mut state = self.0.lock().unwrap();
        state.1 = state.0.len();
        Ok(vec![OutputState { name: "results".to_owned(), position: state.1.to_string() }])
    }
}

impl CutSink {
    fn before_cut(&self) -> Vec<RecordBatch> {
        let state = self.0.lock().unwrap();
        state.0[..state.1].to_vec()
    }

    fn all(&self) -> Vec<RecordBatch> {
        self.0.lock().unwrap().0.clone()
    }
}

/// A generator of numbers: splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}

/// Rows whose times go on from `start` by a second a batch, a little out of order; half have one key.
fn batch(random: &mut Random, start: i64, rows: usize, text_keys: bool) -> RecordBatch {
    let keys = (0..rows)
        .map(|_| match random.below(20) {
            0..10 => Some(7),
            10 => None,
            _ => Some(random.below(300) as i64),
        })
        .collect::<Vec<_>>();
    let times = (0..rows).map(|i| start + (i * 1000 / rows) as i64 - random.below(900) as i64);
    let times = times.collect::<Vec<_>>();
    let key: ArrayRef = if text_keys {
        let name = |key: i64| format!("key {key} {}", "x".repeat(key as usize % 20));
        Arc::new(keys.iter().map(|key| key.map(name)).collect::<StringArray>())
    } else {
        Arc::new(Int64Array::from(keys))
    };
    let values = (0..rows)
        .map(|_| (random.below(9) > 0).then(|| random.below(5_000) as i64 - 900))
        .collect::<Int64Array>();
    let floats = (0..rows).map(|_| Some(random.below(1_000_000) as f64 / 7.0));
    let columns: [(&str, ArrayRef); 4] = [
        ("key", key),
        ("time", Arc::new(TimestampMillisecondArray::from(times))),
        ("v", Arc::new(values)),
        ("f", Arc::new(floats.collect::<Float64Array>())),
    ];
    RecordBatch::try_from_iter_with_nullable(columns.map(|(name, array)| (name, array, true)))
        .unwrap()
}

const AGGREGATES: &str = "count, sum(v), min(v), max(f), avg(f), sum(f), stddev(f), count(distinct v), \
     approx_distinct(v) as ad, median(f) as med, first(v), last(v), arg_max(v, f) as am, mode(v) as mo, \
     top_n(v, 3) as top, count(distinct v, f) filter (where v > 1000) as few, bit_xor(v), corr(v, f)";

fn job(first: &RecordBatch, window: Window, lateness: Duration, skew: SkewMode) -> JobBuilder {
    Job::builder(first.schema())
        .key(["key"])
        .event_time("time")
        .window(window)
        .allowed_lateness(lateness)
        .out_of_orderness(Duration::from_millis(500))
        .aggregates(Aggregate::parse_list(AGGREGATES).unwrap())
        .skew(skew)
        .batch_rows(200)
}

/// Result rows as text, sorted.
fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let text = |batch: &RecordBatch, row: usize| {
        let columns = batch.columns().iter();
        let cells = columns.map(|column| match column.is_null(row) {
            true => "null".to_owned(),
            false => arrow::util::display::array_value_to_string(column, row).unwrap(),
        });
        cells.collect::<Vec<_>>().join(" ")
    };
    let rows = batches.iter().flat_map(|one| (0..one.num_rows()).map(|row| text(one, row)));
    let mut rows = rows.collect::<Vec<_>>();
    rows.sort();
    rows
}

fn windows() -> Vec<(Window, Duration)> {
    let ms = Duration::from_millis;
    vec![
        (Window::None, Duration::ZERO),
        (Window::tumbling(ms(700)), Duration::ZERO),
        (Window::tumbling(ms(700)), ms(2_000)),
        (Window::hopping(ms(1_000), ms(300)), Duration::ZERO),
        (Window::hopping(ms(1_000), ms(300)), ms(900)),
        (Window::cumulate(ms(250), ms(1_000)), Duration::ZERO),
        (Window::Session { gap: ms(40) }, Duration::ZERO),
    ]
}

/// Runs batches through engines with these numbers of workers and limits of memory in turn, a savepoint between
/// each two, with two producers that have names. Within each turn the number of workers changes while the engine
/// runs, as `live` says.
fn run_through(
    batches: &[RecordBatch],
    job: &JobBuilder,
    engines: &[(usize, Option<u64>)],
    live: &[usize],
    dir: &TempDir,
) -> (Vec<String>, (u64, u64, u64, u64)) {
    let mut results = Vec::new();
    let mut checkpoint = None::<Checkpoint>;
    let piece = batches.len().div_ceil(engines.len());
    for (turn, (workers, memory)) in engines.iter().enumerate() {
        let sink = CutSink::default();
        let job = memory.iter().fold(job.clone(), |job, bytes| job.memory_limit(*bytes));
        let mut builder = Engine::builder(job.workers(*workers).build().unwrap());
        if let Some(checkpoint) = checkpoint.take() {
            builder = builder.restore(checkpoint);
        }
        let engine = builder.start(sink.clone()).unwrap();
        let mut ingests = ["a", "b"].map(|name| engine.ingest_named(name).unwrap());
        let mine = batches.iter().enumerate().skip(turn * piece).take(piece);
        let every = piece.div_ceil(live.len() + 1);
        for (i, batch) in mine.clone() {
            let place = i - turn * piece;
            if place > 0 && place.is_multiple_of(every) {
                let workers = live[place / every - 1];
                assert_eq!(engine.rescale(workers).unwrap().to, workers);
            }
            let ingest = &mut ingests[i % 2];
            let expected = i.checked_sub(2).map(|before| (before / 2 + 1).to_string());
            assert_eq!(ingest.position(), expected, "it goes on where it was");
            ingest.push_at(batch.clone(), (i / 2 + 1).to_string()).unwrap();
        }
        if (turn + 1) * piece < batches.len() {
            let path = dir.0.join(turn.to_string());
            let report = engine.savepoint(&path).unwrap();
            let saved = Checkpoint::find(&path).unwrap();
            saved.verify().unwrap();
            assert_eq!(report.path, saved.path());
            assert_eq!(saved.manifest.rows.rows_in, report.rows_in);
            checkpoint = Some(saved);
            // What comes after the savepoint is lost with the engine.
            ingests[0].push(batches[0].clone()).unwrap();
            drop(engine);
            results.extend(sink.before_cut());
        } else {
            drop(ingests);
            let report = engine.finish().unwrap();
            results.extend(sink.all());
            let totals =
                (report.rows_in, report.rows_aggregated, report.rows_late, report.rows_out);
            return (shown(&results), totals);
        }
    }
    unreachable!("the last turn returns")
}

#[test]
fn a_run_in_pieces_gives_what_one_run_gives() {
    let seeds = std::env::var("SALTMILL_SEEDS").map_or(2, |seeds| seeds.parse().unwrap());
    for seed in 0..seeds {
        let mut random = Random(seed);
        let text_keys = seed % 2 == 1;
        let batches =
            (0..24).map(|i| batch(&mut random, i * 250, 400, text_keys)).collect::<Vec<_>>();
        for (turn, (window, lateness)) in windows().into_iter().enumerate() {
            let skews = ["adaptive", "off", "two-phase", "hot:7,null"];
            let mut skew = SkewMode::parse(skews[(turn + seed as usize) % 4]).unwrap();
            if text_keys && matches!(skew, SkewMode::Hot(_)) {
                skew = SkewMode::TwoPhase;
            }
            let job = job(&batches[0], window, lateness, skew);
            let dir = TempDir::new(&format!("pieces-{seed}-{turn}"));
            let whole = run_through(&batches, &job, &[(2, None)], &[], &dir);
            assert!(!whole.0.is_empty());
            // The last one with any limit of memory, and from any to any other.
            let limit = |bytes| Some(bytes).filter(|_| turn % 2 == 0);
            let pieces: [(&[_], &[usize]); 3] = [
                (&[(4, None), (8, None), (3, None), (7, None)], &[]),
                (&[(4, None)], &[8, 3, 7, 1, 2]),
                (&[(2, limit(1)), (1, None), (5, limit(100_000))], &[3]),
            ];
            for (saved, live) in pieces {
                let pieces = run_through(&batches, &job, saved, live, &dir);
                assert_eq!(whole.1, pieces.1, "seed {seed}, {window:?}: rows");
                let beside = |a: &[String], b: &[String]| {
                    let other = a.iter().filter(|row| b.binary_search(row).is_err());
                    other.take(5).cloned().collect::<Vec<_>>()
                };
                let (missing, wrong) = (beside(&whole.0, &pieces.0), beside(&pieces.0, &whole.0));
                assert!(
                    whole.0 == pieces.0,
                    "seed {seed}, {window:?}, {lateness:?}, {saved:?}, live {live:?}: missing \
                     {missing:#?}, wrong {wrong:#?}"
                );
            }
        }
    }
}

#[test]
fn what_does_not_match_is_refused_with_the_reason() {
    let mut random = Random(1);
    let first = batch(&mut random, 0, 100, false);
    let window = Window::tumbling(Duration::from_millis(700));
    let base = job(&first, window, Duration::ZERO, SkewMode::Adaptive).workers(2);
    let dir = TempDir::new("mismatch");
    let engine = Engine::start(base.clone().build().unwrap(), CutSink::default()).unwrap();
    let mut ingest = engine.ingest().unwrap();
    ingest.push(first.clone()).unwrap();
    engine.savepoint(&dir.0).unwrap();
    drop((ingest, engine));
    let refused = |job: JobBuilder| {
        let checkpoint = Checkpoint::find(&dir.0).unwrap();
        let started = Engine::builder(job.build().unwrap()).restore(checkpoint);
        match started.start(CutSink::default()) {
            Err(RunError::Checkpoint(error @ CheckpointError::OtherJob { .. })) => {
                error.to_string()
            }
            other => panic!("{other:?}"),
        }
    };
    let other_key = base.clone().key(["v"]);
    assert!(refused(other_key).contains("key columns was key: Int64, and is v: Int64 now"));
    assert!(
        refused(base.clone().max_parallelism(64)).contains("max parallelism was 128, and is 64")
    );
    assert!(refused(base.clone().aggregate(Aggregate::max("v"))).contains("aggregates"));
    assert!(refused(base.clone().window(Window::None)).contains("windows"));
    // As often as wanted, with any number of workers.
    for workers in [1, 5, 128] {
        let checkpoint = Checkpoint::find(&dir.0).unwrap();
        let job = base.clone().workers(workers).build().unwrap();
        let engine = Engine::builder(job).restore(checkpoint).start(CutSink::default()).unwrap();
        assert_eq!(engine.finish().unwrap().rows_in, 100);
    }
}

#[test]
fn no_shards_or_more_than_key_groups_are_refused_and_the_run_goes_on() {
    let mut random = Random(3);
    let batch = batch(&mut random, 0, 300, false);
    let job = job(&batch, Window::None, Duration::ZERO, SkewMode::Adaptive).max_parallelism(8);
    let sink = CutSink::default();
    let engine = Engine::start(job.workers(2).build().unwrap(), sink.clone()).unwrap();
    let mut ingest = engine.ingest().unwrap();
    ingest.push(batch.clone()).unwrap();
    for workers in [0, 9, usize::MAX] {
        let error = engine.rescale(workers).unwrap_err();
        assert!(matches!(error, RunError::Limit(_)), "{error:?}");
        let text = error.to_string();
        assert!(text.contains(&workers.to_string()) && text.contains("1 to 8"), "{text}");
    }
    assert_eq!(engine.rescale(8).unwrap().from, 2, "nothing was changed");
    ingest.push(batch).unwrap();
    drop(ingest);
    let report = engine.finish().unwrap();
    assert_eq!((report.rows_aggregated, report.rescales.len(), report.shards.len()), (600, 1, 8));
}

#[test]
fn a_directory_has_one_user() {
    let dir = TempDir::new("lock");
    let held = CheckpointDir::open(&dir.0).unwrap();
    let error = CheckpointDir::open(&dir.0).unwrap_err();
    assert!(matches!(error, CheckpointError::InUse { .. }), "{error}");
    drop(held);
    CheckpointDir::open(&dir.0).unwrap();
    let file = dir.0.join("file");
    std::fs::write(&file, "x").unwrap();
    assert!(matches!(CheckpointDir::open(&file), Err(CheckpointError::NoDirectory { .. })));
}

/// A checkpoint of some keys with all kinds of state.
fn small_savepoint(dir: &TempDir) -> JobBuilder {
    let mut random = Random(5);
    let first = batch(&mut random, 0, 8, true);
    let window = Window::hopping(Duration::from_secs(1), Duration::from_millis(500));
    let job = job(&first, window, Duration::ZERO, SkewMode::Adaptive).workers(2);
    let engine = Engine::start(job.clone().build().unwrap(), CutSink::default()).unwrap();
    let mut ingest = engine.ingest_named("a").unwrap();
    ingest.push(first).unwrap();
    engine.savepoint(&dir.0).unwrap();
    job
}

#[test]
fn every_flipped_byte_is_detected() {
    let dir = TempDir::new("flipped");
    let job = small_savepoint(&dir);
    let path = Checkpoint::find(&dir.0).unwrap().path().to_owned();
    let every = std::env::var("SALTMILL_SEEDS").is_ok();
    let mut flips = 0_usize;
    for entry in std::fs::read_dir(&path).unwrap() {
        let file = entry.unwrap().path();
        let bytes = std::fs::read(&file).unwrap();
        // One bit of every byte; of every seventh, unless more seeds are asked for.
        for at in (0..bytes.len()).step_by(if every { 1 } else { 7 }) {
            let mut damaged = bytes.clone();
            damaged[at] ^= 1 << (at % 8);
            std::fs::write(&file, &damaged).unwrap();
            let found = Checkpoint::find(&dir.0).and_then(|checkpoint| checkpoint.verify());
            assert!(
                matches!(found, Err(CheckpointError::Damaged { .. })),
                "{}: byte {at}: {found:?}",
                file.display()
            );
            flips += 1;
        }
        for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            std::fs::write(&file, &bytes[..cut]).unwrap();
            let found = Checkpoint::find(&dir.0).and_then(|checkpoint| checkpoint.verify());
            assert!(found.is_err(), "{}: cut at {cut}", file.display());
        }
        // Missing.
        std::fs::remove_file(&file).unwrap();
        let checkpoint = Checkpoint::find(&dir.0);
        if let Ok(checkpoint) = checkpoint {
            let started = Engine::builder(job.clone().build().unwrap()).restore(checkpoint);
            let error = started.start(CutSink::default()).unwrap_err().to_string();
            assert!(error.contains("is missing"), "{error}");
        }
        std::fs::write(&file, &bytes).unwrap();
    }
    Checkpoint::find(&dir.0).unwrap().verify().unwrap();
    println!("{flips} bytes flipped, one at a time: each was detected");
}

#[test]
fn another_version_is_named() {
    let dir = TempDir::new("version");
    let _ = small_savepoint(&dir);
    let manifest = Checkpoint::find(&dir.0).unwrap().path().join("manifest.json");
    let text = std::fs::read_to_string(&manifest).unwrap();
    let (body, _) = text.rsplit_once("crc32 ").unwrap();
    let body = body.replacen("\"format\": 1", "\"format\": 2", 1);
    let sum = crc32fast::hash(body.as_bytes());
    std::fs::write(&manifest, format!("{body}crc32 {sum:08x}\n")).unwrap();
    let error = Checkpoint::find(&dir.0).unwrap_err().to_string();
    assert!(error.contains("it has format 2, this program reads format 1"), "{error}");
}

#[test]
fn checkpoints_are_taken_while_rows_flow_and_old_ones_go() {
    let dir = TempDir::new("flow");
    let mut random = Random(3);
    let batches = (0..40).map(|i| batch(&mut random, i * 100, 500, false)).collect::<Vec<_>>();
    let window = Window::tumbling(Duration::from_millis(300));
    let job = job(&batches[0], window, Duration::ZERO, SkewMode::Adaptive).workers(3);
    let held = Arc::new(CheckpointDir::open(&dir.0).unwrap());
    let every = Duration::from_millis(3);
    let checkpoints = Checkpoints::new(Arc::clone(&held)).every(every).keep(3);
    let sink = CutSink::default();
    let builder = Engine::builder(job.clone().ring_capacity(1).build().unwrap());
    let engine = builder.checkpoints(checkpoints).start(sink.clone()).unwrap();
    let taken = std::thread::scope(|scope| {
        for _ in 0..4 {
            let mut ingest = engine.ingest().unwrap();
            let batches = &batches;
            scope.spawn(move || {
                for batch in batches {
                    ingest.push(batch.clone()).unwrap();
                }
            });
        }
        let mut taken = 0;
        while taken < 5 {
            let Ok(report) = engine.checkpoint() else { break };
            assert!(report.id > taken);
            taken = report.id;
        }
        taken
    });
    assert!(taken > 3);
    let report = engine.finish().unwrap();
    // Not before: there is one more between the writing of a new one and the removal of the oldest.
    assert!(Checkpoint::list(&dir.0).unwrap().len() <= 3, "older ones are gone");
    assert_eq!(report.rows_in, 80_000);
    Checkpoint::find(&dir.0).unwrap().verify().unwrap();
}
