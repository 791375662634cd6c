//! Limits of memory: what can be seen while state is on disk, and how a run ends that cannot be helped.

use std::sync::Arc;
use std::time::Duration;

use saltmill::aggregate::{CustomAggregate, GroupedRows};
use saltmill::arrow::array::{Array, ArrayRef, Int64Array};
use saltmill::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use saltmill::arrow::record_batch::RecordBatch;
use saltmill::arrow::util::display::array_value_to_string;
use saltmill::{Aggregate, Collected, Engine, Job, JobBuilder, RunError, Window};

fn schema() -> SchemaRef {
    let field = |name: &str| Field::new(name, DataType::Int64, true);
    Arc::new(Schema::new(["key", "time", "v"].map(field).to_vec()))
}

/// Rows whose keys return after a while.
fn batch(number: i64) -> RecordBatch {
    let rows = || number * 500..number * 500 + 500;
    let columns: [ArrayRef; 3] = [
        Arc::new(
            rows().map(|row| (row % 11 > 0).then_some(row * 7 % 3001)).collect::<Int64Array>(),
        ),
        Arc::new(rows().map(|row| Some(row / 50)).collect::<Int64Array>()),
        Arc::new(rows().map(|row| Some(row * row % 97)).collect::<Int64Array>()),
    ];
    RecordBatch::try_new(schema(), columns.to_vec()).unwrap()
}

fn job(window: Window) -> JobBuilder {
    Job::builder(schema())
        .key(["key"])
        .event_time("time")
        // No window closes before the end, so that looks find the same.
        .out_of_orderness(Duration::from_secs(3600))
        .window(window)
        .workers(2)
}

/// Rows as text, sorted.
fn shown(batches: &[RecordBatch]) -> Vec<String> {
    let text = |batch: &RecordBatch, row: usize| {
        let cells = batch.columns().iter().map(|column| match column.is_null(row) {
            true => "null".to_owned(),
            false => array_value_to_string(column, row).unwrap(),
        });
        cells.collect::<Vec<_>>().join(" ")
    };
    let rows = batches.iter().flat_map(|one| (0..one.num_rows()).map(move |row| text(one, row)));
    let mut rows = rows.collect::<Vec<_>>();
    rows.sort();
    rows
}

#[test]
fn open_windows_are_seen_as_they_stand_on_disk() {
    let ms = Duration::from_millis;
    for window in [
        Window::None,
        Window::tumbling(ms(70)),
        Window::hopping(ms(60), ms(25)),
        Window::cumulate(ms(20), ms(80)),
        Window::Session { gap: ms(9) },
    ] {
        let job = job(window).aggregates(
            Aggregate::parse_list("count, sum(v), count(distinct v) as d, median(v) as m").unwrap(),
        );
        let seen = |job: JobBuilder| {
            let results = Collected::new();
            let engine = Engine::start(job.build().unwrap(), results.clone()).unwrap();
            let mut ingest = engine.ingest().unwrap();
            let mut early = Vec::new();
            for number in 0..20 {
                ingest.push(batch(number)).unwrap();
                if number % 7 == 6 {
                    early.push(shown(&engine.snapshot().unwrap()));
                    // It changes nothing.
                    assert_eq!(early.last(), Some(&shown(&engine.snapshot().unwrap())));
                }
            }
            drop(ingest);
            let spilled = engine.finish().unwrap().shards.iter().map(|it| it.spilled_bytes).sum();
            (early, shown(&results.take()), spilled)
        };
        let (early, last, none): (_, _, u64) = seen(job.clone());
        let (early_limited, last_limited, spilled) = seen(job.memory_limit(1));
        assert!(early == early_limited, "{window:?}: early results");
        assert!(last == last_limited && !last.is_empty(), "{window:?}: results");
        assert!(none == 0 && spilled > 0, "{window:?}: {spilled} bytes on disk");
    }
}

#[test]
fn a_spill_directory_that_goes_away_is_named() {
    let dir = std::env::temp_dir().join(format!("saltmill-gone-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let job = job(Window::None).aggregate(Aggregate::count()).memory_limit(1).spill_dir(&dir);
    let engine = Engine::start(job.build().unwrap(), Collected::new()).unwrap();
    std::fs::remove_dir(&dir).unwrap();
    let mut ingest = engine.ingest().unwrap();
    // It fails while rows come, or when the state is needed.
    let _ = (0..50).try_for_each(|number| ingest.push(batch(number)));
    drop(ingest);
    let error = engine.finish().unwrap_err();
    assert!(matches!(error, RunError::Spill { .. }), "{error:?}");
    assert!(error.to_string().starts_with(&dir.display().to_string()), "{error}");
    assert!(error.to_string().contains("--spill-dir"), "{error}");
}

/// Counts rows, and cannot be saved.
#[derive(Debug)]
struct Unsaved;

impl CustomAggregate for Unsaved {
    type State = i64;

    fn name(&self) -> &str {
        "unsaved"
    }

    fn result_type(&self, _: &[&Field]) -> Result<DataType, String> {
        Ok(DataType::Int64)
    }

    fn update(&self, _: &[ArrayRef], rows: GroupedRows<'_, '_, Self>) {
        rows.for_each(|state, _| *state += 1);
    }

    fn merge(&self, into: &mut i64, from: &i64) {
        *into += from;
    }

    fn emit(&self, states: &[&i64]) -> ArrayRef {
        Arc::new(states.iter().map(|state| Some(**state)).collect::<Int64Array>())
    }
}

#[test]
fn what_cannot_be_written_to_disk_ends_the_run_only_if_it_does_not_fit() {
    let run = |batches: i64, keys: i64| {
        let job = job(Window::None).aggregate(Aggregate::custom(Unsaved, ["v"])).memory_limit(1);
        let engine = Engine::start(job.build().unwrap(), Collected::new()).unwrap();
        let mut ingest = engine.ingest().unwrap();
        for number in 0..batches {
            let rows = || (number * 8000..number * 8000 + 8000).map(|row| Some(row % keys));
            let column = || Arc::new(rows().collect::<Int64Array>()) as ArrayRef;
            let columns = vec![column(), column(), column()];
            if ingest.push(RecordBatch::try_new(schema(), columns).unwrap()).is_err() {
                break;
            }
        }
        drop(ingest);
        engine.finish()
    };
    assert_eq!(run(10, 100).unwrap().rows_out, 100);
    let error = run(40, i64::MAX).unwrap_err();
    assert!(matches!(error, RunError::Limit(_)), "{error:?}");
    for words in ["the state of one shard takes", "unsaved", "--memory-limit"] {
        assert!(error.to_string().contains(words), "{words}: {error}");
    }
}
