//! `saltmill gen`: event streams with skewed keys, to try things on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arrow::array::RecordBatch;
use arrow::datatypes::Schema;
use crossbeam::channel::{Receiver, bounded};

use super::args::GenArgs;
use super::bar::{Bar, Measure, State};
use super::interrupt::Interrupt;
use super::options::names;
use super::{Failure, outputs};
use crate::error::ConfigError;
use crate::io::{
    Distribution, GenerateOptions, KeyType, StreamGenerator, open_writer, parse_count,
};
use crate::time::window::parse_duration;

/// Batches made ahead of the writer.
const AHEAD: usize = 4;

pub(super) fn main(args: &GenArgs) -> Result<(), Failure> {
    let options = options(args)?;
    let rows = options.rows;
    let format = outputs::format(args.output.as_deref(), args.output_format.as_deref())?;
    let generator = StreamGenerator::new(options)?;
    let columns = columns(args, &generator.schema())?;
    let schema = generator.schema().project(&columns).map_err(|e| Failure::Run(e.to_string()))?;
    let interrupt = Interrupt::listen();
    let mut writer = open_writer(args.output.as_deref(), format, &Arc::new(schema))?;
    let written = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&written);
    let bar = Bar::start(args.progress, Measure::Rows, move || {
        let done = shown.load(Ordering::Relaxed);
        State { done, total: Some(rows), message: String::new() }
    });
    interrupt.begin();
    for batch in ahead(generator)? {
        if interrupt.is_asked() {
            break;
        }
        let batch = batch.project(&columns).map_err(|e| Failure::Run(e.to_string()))?;
        writer.write(&batch)?;
        written.fetch_add(batch.num_rows() as u64, Ordering::Relaxed);
    }
    writer.finish()?;
    drop(bar);
    let written = written.load(Ordering::Relaxed);
    if written < rows {
        let text = format!("interrupted: only {written} of {rows} rows were written");
        return Err(Failure::Run(text));
    }
    Ok(())
}

fn options(args: &GenArgs) -> Result<GenerateOptions, ConfigError> {
    let disorder = parse_duration(&args.out_of_orderness)?;
    let out_of_orderness_ms = u64::try_from(disorder.as_millis()).unwrap_or(u64::MAX);
    if u128::from(out_of_orderness_ms) * 1_000_000 != disorder.as_nanos() {
        return Err(ConfigError::OutOfRange {
            what: "--out-of-orderness",
            found: args.out_of_orderness.clone(),
            expected: "a whole number of milliseconds, the unit of the time column".to_owned(),
        });
    }
    let key_type = match args.key_type.as_str() {
        "int64" => KeyType::Int64,
        "text" => KeyType::Text,
        _ => {
            return Err(ConfigError::Syntax {
                what: "key type",
                text: args.key_type.clone(),
                why: "expected int64 or text".to_owned(),
            });
        }
    };
    Ok(GenerateOptions {
        rows: parse_count(&args.rows)?,
        keys: parse_count(&args.keys)?,
        distribution: Distribution::parse(&args.dist)?,
        seed: args.seed,
        key_type,
        out_of_orderness_ms,
        rows_per_ms: parse_count(&args.rows_per_ms)?,
        ..GenerateOptions::default()
    })
}

/// The columns to write, as indices into `schema`.
fn columns(args: &GenArgs, schema: &Schema) -> Result<Vec<usize>, ConfigError> {
    let Some(text) = &args.columns else { return Ok((0..schema.fields().len()).collect()) };
    let wrong = |why: String| ConfigError::Syntax { what: "--columns", text: text.clone(), why };
    let mut columns = Vec::new();
    for name in names(text)? {
        let column = schema.index_of(&name).map_err(|_| {
            let known = schema.fields().iter().map(|field| field.name().as_str());
            wrong(format!("{name} is none of {}", known.collect::<Vec<_>>().join(", ")))
        })?;
        if columns.contains(&column) {
            return Err(wrong(format!("{name} stands there twice")));
        }
        columns.push(column);
    }
    Ok(columns)
}

/// The stream, made on a thread of its own so that making and writing overlap.
fn ahead(generator: StreamGenerator) -> Result<Receiver<RecordBatch>, Failure> {
    let (sender, receiver) = bounded(AHEAD);
    let body = move || {
        for batch in generator {
            if sender.send(batch).is_err() {
                // The writer has failed or was interrupted.
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("saltmill-generator".into()).spawn(body);
    thread.map_err(|e| Failure::Run(format!("cannot start a thread to make rows: {e}")))?;
    Ok(receiver)
}
