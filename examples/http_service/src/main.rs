//! An ingest service: events come in over HTTP, anyone may ask for a key's totals.
//!
//!     cargo run --release --manifest-path examples/http_service/Cargo.toml -- 127.0.0.1:8080 /var/lib/totals
//!     curl -d '{"key":"ann","value":5}' http://127.0.0.1:8080/events
//!     curl http://127.0.0.1:8080/keys/ann
//!
//! `POST /events` takes ndjson or, as `application/vnd.apache.arrow.stream`, a stream of Arrow batches, and takes all
//! events of a request or none; `GET /metrics` is for Prometheus. SIGTERM or Ctrl-C ends it when all
//! requests are answered; it leaves a savepoint in the directory, if one was named, and goes on from the newest there.

use std::error::Error;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{DataType, Field, Int64Type, Schema};
use arrow::ipc::reader::StreamReader;
use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::routing::{get, post};
use saltmill::prometheus::Exposition;
use saltmill::{Aggregate, Appender, Checkpoint, Engine, Job, Latest};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

/// The largest body of a request.
const BODY_BYTES_MAX: usize = 8 << 20;
/// How long a client may take to send it.
const BODY_TIME_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize, Deserialize)]
struct Event {
    key: String,
    value: i64,
}

struct Service {
    engine: Engine,
    /// Handles that no request is using.
    spare: Mutex<Vec<Appender>>,
    latest: Latest,
    exposition: Mutex<Exposition>,
}

type Answer = Result<String, (StatusCode, String)>;

fn refused(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::BAD_REQUEST, format!("{error}\n"))
}

fn failed(error: impl std::fmt::Display) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
}

/// The events of a body, all of them or why not.
fn parse(body: &[u8]) -> Result<Vec<Event>, String> {
    let lines = body.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty());
    lines
        .map(|(i, line)| {
            serde_json::from_slice(line).map_err(|error| format!("line {}: {error}", i + 1))
        })
        .collect()
}

async fn take_events(
    State(service): State<Arc<Service>>,
    headers: HeaderMap,
    body: Body,
) -> Answer {
    let body = tokio::time::timeout(BODY_TIME_MAX, to_bytes(body, BODY_BYTES_MAX)).await;
    let body = body.map_err(|_| (StatusCode::REQUEST_TIMEOUT, "too slow\n".to_owned()))?;
    let body = body.map_err(refused)?;
    let is_arrow = headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|it| it.as_bytes().ends_with(b"arrow.stream"));
    let mut events = Vec::new();
    let mut batches: Vec<RecordBatch> = Vec::new();
    if is_arrow {
        let reader = StreamReader::try_new(body.as_ref(), None).map_err(refused)?;
        if reader.schema().fields() != schema().fields() {
            return Err(refused(format!(
                "the schema is {:?}, not {:?}",
                reader.schema(),
                schema()
            )));
        }
        batches = reader.collect::<Result<_, _>>().map_err(refused)?;
    } else {
        events = parse(&body).map_err(refused)?;
    }
    let spare = service.spare.lock().unwrap_or_else(PoisonError::into_inner).pop();
    let mut appender = match spare {
        Some(appender) => appender,
        None => service.engine.ingest().and_then(|ingest| ingest.appender()).map_err(failed)?,
    };
    let mut rows = events.len();
    for event in &events {
        // Waits, without holding the thread, when the engine is behind: clients feel it as slow answers.
        appender.append_async((&event.key, event.value)).await.map_err(failed)?;
    }
    for batch in batches {
        rows += batch.num_rows();
        appender.push_async(batch).await.map_err(failed)?;
    }
    service.spare.lock().unwrap_or_else(PoisonError::into_inner).push(appender);
    Ok(format!("{rows}\n"))
}

async fn key(State(service): State<Arc<Service>>, Path(key): Path<String>) -> Answer {
    let found = service.latest.get((&key,)).map_err(refused)?;
    let row = found.ok_or_else(|| (StatusCode::NOT_FOUND, format!("no event of \"{key}\"\n")))?;
    let number = |name| row.column_by_name(name).map(|it| it.as_primitive::<Int64Type>().value(0));
    let totals = serde_json::json!({"key": key, "count": number("count"), "sum": number("sum")});
    Ok(format!("{totals}\n"))
}

async fn metrics(State(service): State<Arc<Service>>) -> String {
    service.exposition.lock().unwrap_or_else(PoisonError::into_inner).text()
}

fn schema() -> Arc<Schema> {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Utf8, false),
        Field::new("value", DataType::Int64, false),
    ]))
}

/// The newest savepoint of a directory, and the number of the next.
fn newest(dir: &std::path::Path) -> Result<(Option<Checkpoint>, u64), Box<dyn Error>> {
    std::fs::create_dir_all(dir)?;
    let names = std::fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name()));
    let names = names.collect::<std::io::Result<Vec<_>>>()?;
    let numbers = names.iter().filter_map(|name| name.to_str()?.parse::<u64>().ok());
    let Some(last) = numbers.max() else { return Ok((None, 1)) };
    Ok((Some(Checkpoint::find(dir.join(last.to_string()))?), last + 1))
}

fn main() -> Result<(), Box<dyn Error>> {
    let dir = std::env::args_os().nth(2).map(std::path::PathBuf::from);
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let job = Job::builder(schema())
        .key(["key"])
        .aggregates([Aggregate::count().alias("count"), Aggregate::sum("value").alias("sum")])
        // How old an answer may be.
        .emit_every(Duration::from_millis(50))
        .build()?;
    let latest = Latest::new(&job);
    let mut builder = Engine::builder(job);
    let mut next = None;
    if let Some(dir) = &dir {
        let (checkpoint, number) = newest(dir)?;
        if let Some(checkpoint) = checkpoint {
            builder = builder.restore(checkpoint);
        }
        next = Some(dir.join(number.to_string()));
    }
    let engine = builder.start(latest.clone())?;
    let exposition = Mutex::new(Exposition::new(engine.metrics_reader()));
    let service = Arc::new(Service { engine, spare: Mutex::default(), latest, exposition });
    let router = Router::new()
        .route("/events", post(take_events))
        .route("/keys/{key}", get(key))
        .route("/metrics", get(metrics))
        .with_state(Arc::clone(&service));

    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(&address).await?;
        eprintln!("listening on {}", listener.local_addr()?);
        let mut term = signal(SignalKind::terminate())?;
        let ended = async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        };
        axum::serve(listener, router).with_graceful_shutdown(ended).await
    })?;
    drop(runtime);
    let service = Arc::into_inner(service).ok_or("a request is still under way")?;
    // Closing the handles hands their last events on; then the engine may finish.
    drop(service.spare);
    if let Some(path) = next {
        service.engine.savepoint(path)?;
    }
    let report = service.engine.finish()?;
    let totals = serde_json::json!({
        "rows_in": report.rows_in,
        "rows_aggregated": report.rows_aggregated,
        "keys": service.latest.len(),
    });
    println!("{totals}");
    Ok(())
}
