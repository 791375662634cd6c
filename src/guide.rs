//! The guide: how to embed Saltmill, what to choose, and what happens when something fails.
//!
//! # Concepts
//!
//! A [`Job`](crate::Job) says what is computed: the schema of the rows, the columns of the key, windows, aggregates. An
//! [`Engine`](crate::Engine) runs it on *shards*, one pinned thread each, that own the keys. Rows come in through
//! *handles*, each used by one thread or task: an [`Ingest`](crate::Ingest) takes Arrow batches, an
//! [`Appender`](crate::Appender) takes single rows. Each handle is one *input* with a watermark of its own: the largest
//! event time so far less the job's out-of-orderness. A window closes when all open handles have passed
//! its end. Results go to a [`Sink`](crate::Sink):
//!
//! | you want | use |
//! |---|---|
//! | results one after the other, on a thread or task of yours | [`channel`](crate::channel) |
//! | the same, but losing some rather than holding the engine back | [`channel_with`](crate::channel_with) |
//! | a function called with each batch | [`Callback`](crate::Callback) |
//! | the newest result of a key, at any time | [`Latest`](crate::Latest) |
//! | all of them, in a test | [`Collected`](crate::Collected) |
//! | a key's state as it is now, in less than a microsecond | [`Engine::reader`](crate::Engine::reader) |
//! | the state as it is now, between results | [`Engine::snapshot`](crate::Engine::snapshot) |
//!
//! Sinks are called on the shards' threads: one that waits holds its shard back, and through it the producers.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//! use saltmill::arrow::datatypes::{DataType, Field, Schema, TimeUnit};
//! use saltmill::{Aggregate, Engine, Job, Window, channel};
//!
//! let schema = Schema::new(vec![
//!     Field::new("user", DataType::Utf8, true),
//!     Field::new("at", DataType::Timestamp(TimeUnit::Millisecond, None), false),
//!     Field::new("amount", DataType::Int64, true),
//! ]);
//! let job = Job::builder(Arc::new(schema))
//!     .key(["user"])
//!     .event_time("at")
//!     .window(Window::tumbling(Duration::from_secs(1)))
//!     .aggregates([Aggregate::count(), Aggregate::sum("amount")])
//!     .build()?;
//! let (sink, mut results) = channel(16);
//! let engine = Engine::start(job, sink)?;
//! let mut appender = engine.ingest()?.appender()?;
//! appender.append(("ann", 10, 5))?;
//! appender.append(("bob", 990, None::<i64>))?;
//! appender.append(("ann", 1200, 7))?; // closes the first second
//! let first = results.next().expect("a closed window has a result");
//! assert!(first.num_rows() > 0);
//! appender.close()?;
//! engine.finish()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **Open all handles that belong together before the first row.** A handle that begins when the others have gone on
//! is late for the windows that have closed. A handle that falls silent holds back all windows; say
//! [`idle`](crate::Appender::idle), close it, or let the job excuse it
//! ([`idle_timeout`](crate::JobBuilder::idle_timeout)). Handles may come and go while the engine runs;
//! [`Engine::finish`](crate::Engine::finish) waits until all are closed.
//!
//! # Batches and latency
//!
//! What a row costs depends on how many share a batch: routing and handing on cost about a microsecond per batch and
//! shard, besides a few nanoseconds per row. So an appender waits for up to
//! [`batch_rows`](crate::Appender::batch_rows) rows (1,024), but no longer than
//! [`latency`](crate::Appender::latency) (1 ms). At a low rate the latency decides when rows are seen, at a high rate
//! the batch is full before. Lower it to 100 us if that matters and cores are free; zero hands on each
//! row by itself, and costs a microsecond or two for each. Raise both for throughput, up to the job's
//! [`batch_rows`](crate::JobBuilder::batch_rows) (8,192), which fit the second-level cache.
//!
//! A full engine makes producers wait: rings between a producer and each shard hold
//! [`ring_capacity`](crate::JobBuilder::ring_capacity) batches (8), and memory is bounded by that. Who would rather not
//! wait uses [`try_append`](crate::Appender::try_append) or [`try_push`](crate::Ingest::try_push), which give the
//! rows back.
//!
//! # Async code
//!
//! No method that may wait belongs on a runtime's thread, and none has to be: the `_async` methods of an
//! [`Appender`](crate::Appender) and [`Receiver::recv`](crate::Receiver::recv) are futures that are woken by the shard
//! that made room, or gave the result. They need no particular runtime.
//!
//! ```
//! # use std::sync::Arc;
//! # use saltmill::arrow::datatypes::{DataType, Field, Schema};
//! # use saltmill::{Aggregate, Appender, Engine, Job, channel};
//! async fn produce(mut appender: Appender) -> Result<(), Box<dyn std::error::Error>> {
//!     for i in 0..10_000 {
//!         appender.append_async((i % 7, i)).await?;
//!     }
//!     Ok(appender.close_async().await?)
//! }
//! # let schema = Schema::new(vec![
//! #     Field::new("key", DataType::Int64, false),
//! #     Field::new("value", DataType::Int64, false),
//! # ]);
//! # let job = Job::builder(Arc::new(schema)).key(["key"]).aggregate(Aggregate::sum("value")).build()?;
//! # let (sink, mut results) = channel(1);
//! # let engine = Engine::start(job, sink)?;
//! # let appender = engine.ingest()?.appender()?;
//! # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
//! # runtime.block_on(produce(appender))?;
//! # engine.finish()?;
//! # assert!(runtime.block_on(results.recv()).is_some());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`Engine::finish`](crate::Engine::finish) and dropping an engine wait for threads: call them through
//! `spawn_blocking`, or after the runtime. Dropping an appender waits for room as well; close it with
//! [`close_async`](crate::Appender::close_async).
//!
//! # Skew
//!
//! A key that takes a large share of the rows would keep its one shard busy while the others idle. The engine
//! finds such keys while it runs and aggregates their rows where they came in; partial results are merged by the owner
//! before a window closes. Results do not change by a bit, so there is nothing to choose:
//! [`SkewMode::Adaptive`](crate::config::SkewMode) is the default. Keys known beforehand can be named
//! ([`SkewMode::Hot`](crate::config::SkewMode)). What is hot now, and why, says
//! [`MetricsReader::hot_keys`](crate::MetricsReader::hot_keys). Partials are handed on when windows close, or every
//! [`mini_batch_latency`](crate::JobBuilder::mini_batch_latency) if the job says so. A
//! [keyed process](crate::process) is not salted.
//!
//! # State
//!
//! State is in memory, or on disk beyond a [limit](crate::JobBuilder::memory_limit): for each open window and key
//! 8 bytes of index, the key, and what the aggregates keep (sum, min, max and count of a number: 48 bytes in all
//! with an integer key). Large tables ask for huge pages. A window's memory is used again by later ones. State of
//! your own, with timers, is a [keyed process](crate::process): it stays for ever unless it
//! [clears](crate::process::Context::clear) itself.
//!
//! # Another number of shards
//!
//! [`Engine::rescale`](crate::Engine::rescale) adds or removes shards while producers go on pushing: state moves,
//! results are the same. Producers wait for a few milliseconds, since most state is copied when rows flow again; how
//! long it was, says [`RescaleReport`](crate::runtime::report::RescaleReport). A sink that keeps something for each
//! shard overrides [`Sink::rescaled`](crate::Sink::rescaled). Jobs with readers keep their number of shards.
//!
//! # Readers
//!
//! A job built with [`readers`](crate::JobBuilder::readers) lets any thread ask for a key's current aggregates, in
//! every open window, without a lock and without the shards taking notice ([`Reader`](crate::Reader)):
//! [`each_int`](crate::Reader::each_int) gives plain numbers for integer keys, [`get`](crate::Reader::get) takes any
//! key and gives a batch like the results, [`scan`](crate::Reader::scan) goes through key groups. What is read is a
//! state that the key had at one instant: of each producer all its rows up to some row, in all aggregates, hot keys
//! like others. Rows count when the shard (or, of a hot key, the producer) has aggregated them, so they lag
//! behind `push` by what lies in the rings.
//!
//! That costs each key and window a word or two of memory, and the writer about a twentieth of its speed. It cannot
//! show what does not lie in the key's row: sets, sketches, medians, texts and lists, and sums of floats of very
//! different sizes; `get` names the aggregate then, and [`select`](crate::Reader::select) makes a reader of the
//! others. Session windows and processes have no readers. For these there are
//! [`Engine::snapshot`](crate::Engine::snapshot) and early results ([`emit_every`](crate::JobBuilder::emit_every)) into
//! [`Latest`](crate::Latest).
//!
//! # Failure
//!
//! | what | becomes |
//! |---|---|
//! | a job that cannot run | [`ConfigError`](crate::ConfigError), before anything starts |
//! | a row that does not fit the schema | [`AppendError::Row`](crate::AppendError); only that row is refused |
//! | a row without a time, or too late | counted in the [`RunReport`](crate::RunReport), given to the sink if wanted |
//! | a sink, source, aggregate, process fails or panics | [`RunError`](crate::RunError) with thread, and key if known |
//! | no room | waiting, or the row back |
//!
//! The first error ends the run: all shards stop, handles answer [`RunError::Stopped`](crate::RunError), and
//! [`Engine::finish`](crate::Engine::finish) tells the error. Results that were given before are right; later ones are
//! missing. A panic in code of yours is caught where it happens, on the shard or inside of `push`, and never
//! goes up into the caller. Rows are never lost unseen: `finish` checks that every row is accounted for.
//! Dropping an engine stops it without results, in at most five seconds whatever a sink does.
//!
//! # Versions
//!
//! Versions follow semantic versioning, below 1.0 with the minor number in the place of the major. What counts is what
//! these pages document, with the default features or any subset of them; the module `cli` and the features
//! `bench-internals` are no part of it. Enums that may grow are `#[non_exhaustive]`. The traits
//! [`Sink`](crate::Sink), [`Source`](crate::runtime::source::Source),
//! [`CustomAggregate`](crate::aggregate::CustomAggregate) and
//! [`KeyedProcess`](crate::process::KeyedProcess) may gain methods that have defaults. `saltmill::arrow` is
//! part of the interface, so a new major version of it is a new one of Saltmill. The least supported Rust is
//! raised in minor versions only.
