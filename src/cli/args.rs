//! What can be written on the command line, as written: texts and numbers, not yet understood.
//!
//! [`options`](super::options) makes validated options of it. The comments on the fields are what
//! `saltmill help SUBCOMMAND` prints, so each ends with an example.

#![expect(clippy::doc_markdown, reason = "the comments are help texts, printed as they are")]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

mod checkpoints;

pub(super) use checkpoints::{CheckpointArgs, StateArgs, StateCommand};

/// Aggregates keyed streams on one machine; key skew does no harm.
#[derive(Debug, Parser)]
#[command(
    name = "saltmill",
    version,
    max_term_width = 100,
    propagate_version = false,
    after_help = "`saltmill help SUBCOMMAND` explains every option with an example."
)]
pub(super) struct Cli {
    #[command(subcommand)]
    pub(super) command: Command,
}

#[expect(clippy::doc_markdown, reason = "the text is printed as it stands")]
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Aggregate files or standard input
    ///
    /// Reads files or standard input, aggregates per key and window, and writes the results.
    ///
    ///   saltmill run orders.csv --key user_id --time ts --window tumbling:1m --agg 'count, sum(amount)'
    ///
    /// Output columns: window_start and window_end (with a window), the key columns, then the
    /// aggregates in the order asked for.
    #[command(verbatim_doc_comment)]
    Run(Box<RunArgs>),
    /// Make a stream to try things on
    ///
    /// Makes an event stream with the columns ts (timestamp, ms), key, value (int64),
    /// amount (float64), city and session. The same seed makes the same stream.
    ///
    ///   saltmill gen --rows 50M --keys 1M --dist zipf:1.1 --seed 1 --output z11.parquet
    #[command(verbatim_doc_comment)]
    Gen(GenArgs),
    /// Measure the engine alone
    ///
    /// Loads the needed columns into memory, then runs the whole engine over them several times
    /// (routing, aggregation, windows, results into memory), after one run to warm up.
    ///
    ///   saltmill bench z11.parquet --key key --time ts --window tumbling:5s --agg 'count, sum(value)'
    ///
    /// Every run must give the same results. They are compared by a checksum: the sum, modulo 2^64,
    /// of the 64-bit rapidhash of each result row in Arrow's row format, which does not depend on
    /// the order of rows.
    ///
    /// With --against, other settings or inputs take turns with this one in the same process, and the
    /// ratio of each pair of runs is reported:
    ///
    ///   saltmill bench h80.parquet --key key --agg 'sum(value)' --against '--skew off'
    #[command(verbatim_doc_comment)]
    Bench(Box<BenchArgs>),
    /// Show which subtask owns which key groups and keys
    ///
    /// Prints the key groups of each subtask, how evenly they divide by other numbers of subtasks, and
    /// where given keys go, in Flink or in Saltmill.
    ///
    ///   saltmill keygroups --parallelism 7 --max-parallelism 128 --assign flink-string --key guest
    #[command(verbatim_doc_comment)]
    Keygroups(KeyGroupsArgs),
    /// Explain the skew of a stream's keys, and what would help
    ///
    /// Counts the rows of each key, places the keys as Flink or Saltmill would, and reports how uneven the
    /// subtasks are, why, and what each cure would come to: two-phase aggregation, salting, sidetracking,
    /// other parallelism, other numbers of key groups.
    ///
    ///   saltmill diagnose orders.csv --key user_id --parallelism 8
    #[command(verbatim_doc_comment)]
    Diagnose(Box<DiagnoseArgs>),
    /// Look into checkpoints
    ///
    ///   saltmill state ls DIR        a line of csv for each checkpoint in the directory
    ///   saltmill state show DIR      the newest one's manifest, as JSON
    ///   saltmill state verify DIR    checks every byte of the newest one
    ///
    /// show and verify take the folder of one checkpoint, too. The state itself is in Arrow files, which other
    /// tools read.
    #[command(verbatim_doc_comment)]
    State(StateArgs),
}

/// Options of `run`.
#[derive(Debug, Args)]
pub(super) struct RunArgs {
    #[command(flatten)]
    pub(super) job: JobArgs,

    /// Write results to a file instead of standard output
    ///
    /// The format follows from the name; text is compressed if it ends in .gz or .zst. Example: --output
    /// daily.parquet
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) output: Option<PathBuf>,

    /// Format of the results: table, csv, tsv, ndjson, parquet or arrow
    ///
    /// The default is what the name of the output file says; on standard output an aligned table on a
    /// terminal, csv otherwise. Example: --output-format ndjson
    #[arg(long, value_name = "F", help_heading = "Output")]
    pub(super) output_format: Option<String>,

    /// Sort output rows by window, then key
    ///
    /// The output is then the same byte for byte, whatever the number of workers. Nulls come first,
    /// NaN last. Without a window all rows are sorted at the end. Example: --ordered
    #[arg(long, help_heading = "Output")]
    pub(super) ordered: bool,

    /// Write late rows to a file, in the input's columns
    ///
    /// All columns are read then, not only the needed ones, and a row with an unusable value in any of
    /// them is rejected. Example: --late late.csv
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) late: Option<PathBuf>,

    /// Write rows that could not be used to a csv file, with the reason
    ///
    /// Its columns are input, line, column, reason, detail and row. Example: --rejected rejected.csv
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) rejected: Option<PathBuf>,

    #[command(flatten)]
    pub(super) checkpoints: CheckpointArgs,

    /// Show how the run goes
    ///
    /// On a terminal a picture that changes: shards, hot keys, throughput, alerts; elsewhere a line a second on
    /// standard error. Example: --watch --output daily.parquet
    #[arg(long, help_heading = "Output")]
    pub(super) watch: bool,

    /// Serve metrics for Prometheus at this address while the run goes on
    ///
    /// Under /metrics; port 0 takes any free one, which is told on standard error.
    /// Example: --metrics 127.0.0.1:9184
    #[arg(long, value_name = "ADDR", help_heading = "Output")]
    pub(super) metrics: Option<String>,

    /// Write what the run did as JSON
    ///
    /// Rows in, aggregated, late and rejected, time per shard, imbalance, hot keys.
    /// Example: --stats stats.json
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) stats: Option<PathBuf>,
}

/// Options of `bench`.
#[derive(Debug, Args)]
pub(super) struct BenchArgs {
    #[command(flatten)]
    pub(super) job: JobArgs,

    /// Measured runs, after one to warm up
    ///
    /// Example: --runs 11
    #[arg(long, value_name = "N", default_value_t = 5, help_heading = "Output")]
    pub(super) runs: usize,

    /// Take turns with the same command changed by these options or inputs
    ///
    /// What is written here replaces what the command says, the rest stays. Runs alternate: this command,
    /// each --against in turn, and again; a ratio is rows/s of this command over rows/s of the other
    /// in the same round, and its median, least and largest are reported. Settings that compute the same must
    /// give the same checksum. May be given several times. Example: --against '--skew off'
    /// --against '--workers 1' --against uniform.parquet
    #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true, help_heading = "Output")]
    pub(super) against: Vec<String>,

    /// Report as JSON on standard output
    ///
    /// Example: --json
    #[arg(long, help_heading = "Output")]
    pub(super) json: bool,

    /// Write what the last run did as JSON, as run --stats does
    ///
    /// Example: --stats stats.json
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) stats: Option<PathBuf>,
}

/// What is read: common to all that read.
#[derive(Debug, Clone, Args)]
pub(super) struct InputArgs {
    /// Files to read, - for standard input
    ///
    /// csv, tsv, ndjson (jsonl), parquet, arrow (feather) by extension; text also as .gz and .zst.
    /// Arrow files are mapped into memory and must not change while they are read.
    /// Several inputs are several watermark inputs: a window closes when all of them have passed its
    /// end. Example: a.csv b.csv.gz
    #[arg(required = true, value_name = "INPUT")]
    pub(super) inputs: Vec<PathBuf>,

    /// Format of the inputs, when the extension does not say
    ///
    /// csv, tsv, ndjson, parquet or arrow. Example: - --format ndjson
    #[arg(long, value_name = "F", help_heading = "Input")]
    pub(super) format: Option<String>,

    /// Types of columns, where inference should not decide
    ///
    /// Arrow's names. Example: --schema 'ts:timestamp,key:utf8,v:int64,amount:float64'
    #[arg(long, value_name = "LIST", help_heading = "Input")]
    pub(super) schema: Option<String>,

    /// Text that means null in csv, besides the empty field
    ///
    /// Example: --null NA
    #[arg(long, value_name = "TEXT", help_heading = "Input")]
    pub(super) null: Option<String>,
}

/// Event time: common to all that read.
#[derive(Debug, Clone, Args)]
pub(super) struct TimeArgs {
    /// Event-time column: a timestamp, a date, or an integer
    ///
    /// Example: --time ts
    #[arg(long, value_name = "COL", help_heading = "Job")]
    pub(super) time: Option<String>,

    /// Unit of an event-time column of integers: s, ms, us or ns [default: ms]
    ///
    /// Example: --time ts --time-unit s
    #[arg(long, value_name = "UNIT", requires = "time", help_heading = "Job")]
    pub(super) time_unit: Option<String>,

    /// How event times are written in a text column, if not as ISO 8601
    ///
    /// As for strftime. Example: --time when --time-format '%d.%m.%Y %H:%M'
    #[arg(long, value_name = "FORMAT", requires = "time", help_heading = "Job")]
    pub(super) time_format: Option<String>,

    /// How far behind its maximum an input's event time may run
    ///
    /// Rows that are further behind, and whose window is closed, are late.
    /// Example: --out-of-orderness 5s
    #[arg(long, value_name = "D", default_value = "0s", help_heading = "Job")]
    pub(super) out_of_orderness: String,
}

/// What is read, computed and how: common to `run` and `bench`.
#[derive(Debug, Clone, Args)]
pub(super) struct JobArgs {
    #[command(flatten)]
    pub(super) input: InputArgs,

    /// Key columns; none means one global group
    ///
    /// Names with odd characters go between double quotes. Example: --key 'origin,"dest city"'
    #[arg(long, value_name = "A,B", help_heading = "Job")]
    pub(super) key: Option<String>,

    /// What to compute per key and window
    ///
    /// count, count(x), count(distinct x, y), sum(x), sum_decimal(x), min(x), max(x), avg(x), mode(x), median(x),
    /// approx_quantile(x, 0.99), approx_distinct(x), var_samp(x), var_pop(x), stddev_samp(x),
    /// stddev_pop(x), covar_samp(y, x), covar_pop(y, x), corr(y, x), first(x) and last(x) by event time,
    /// arg_min(x, by), arg_max(x, by), top_n(x, 3), bottom_n(x, 3, payload), any_value(x), bool_and(x),
    /// bool_or(x), bit_and(x), bit_or(x), bit_xor(x). Each with an optional filter (where CONDITION), then an
    /// optional as NAME. A condition compares columns with literals and columns (=, <>, <, <=, >, >=, between,
    /// in, is null) and joins that by and, or, not; text and times stand in single quotes.
    /// Example: --agg 'count, sum(amount) filter (where paid) as total, max("odd name")'
    #[arg(long, value_name = "LIST", default_value = "count", help_heading = "Job")]
    pub(super) agg: String,

    #[command(flatten)]
    pub(super) time: TimeArgs,

    /// Windows: none, tumbling:SIZE[@ZONE], hopping:SIZE/SLIDE, cumulate:STEP/MAX, session:GAP or
    /// processing:SIZE
    ///
    /// Sizes like 500ms, 10s, 1m, 1h, 1d. Calendar days, weeks (from Monday) and months in a time zone:
    /// tumbling:1d@Europe/Berlin, tumbling:1w@ZONE, tumbling:1mo@ZONE, and multiples; weeks and months
    /// without a zone are of UTC. Timestamps without a zone are taken as UTC.
    /// hopping: a window of SIZE starts every SLIDE, and a row is in all that hold its time (if SLIDE is
    /// longer than SIZE there are gaps, whose rows are rejected as between_windows).
    /// cumulate: windows that start together every MAX and end STEP apart, so that each gives the result
    /// so far. session: per key, from a row to GAP after the last row that follows less than GAP after the
    /// one before it; a row is late if it lies further back than --out-of-orderness.
    /// processing: by the clock when a row is read, without --time, for live inputs.
    /// Example: --time ts --window hopping:1h/15m
    #[arg(long, value_name = "W", default_value = "none", help_heading = "Job")]
    pub(super) window: String,

    /// Shift of all windows
    ///
    /// Not for calendar windows, which begin at local midnight.
    /// Example, for days that begin at 22:00 UTC: --window tumbling:1d --window-offset -2h
    #[arg(long, value_name = "D", allow_hyphen_values = true, help_heading = "Job")]
    pub(super) window_offset: Option<String>,

    /// Keep a window for this long after its end, and correct its result if rows come late
    ///
    /// Adds a last column, revision: 0 in the result at the window's end, one more in each corrected
    /// result of the same key and window, which is given for the keys of the late rows. They are gathered:
    /// corrections come when the watermark reaches the end of a window, or the end of one's lateness.
    /// Not for session windows. Example: --allowed-lateness 1m
    #[arg(long, value_name = "D", help_heading = "Job")]
    pub(super) allowed_lateness: Option<String>,

    /// Give the results of open windows as they stand, every so often
    ///
    /// Adds a last column, final: false in early results, true in those of windows that have ended. Early results
    /// change nothing, and come only if rows did. Not with --ordered. Example: --emit-every 1s
    #[arg(long, value_name = "D", help_heading = "Job")]
    pub(super) emit_every: Option<String>,

    /// Keep inputs at most this far apart in event time, by holding back the one that is ahead
    ///
    /// Bounds the windows that a fast input fills while a slow one keeps them open. An input that has ended, or
    /// is idle (--idle-timeout), is not waited for. Parts that are read already may lie further ahead.
    /// Example: saltmill run fast.csv slow.csv --align 1m
    #[arg(long, value_name = "D", help_heading = "Job")]
    pub(super) align: Option<String>,

    /// How often the input that is furthest behind is looked for [default: 1ms]
    ///
    /// Example: --align 1m --align-interval 100ms
    #[arg(long, value_name = "D", requires = "align", help_heading = "Job")]
    pub(super) align_interval: Option<String>,

    /// An input that is silent for so long no longer holds back the windows
    ///
    /// For pipes; a file is never silent. Example: --idle-timeout 30s
    #[arg(long, value_name = "D", help_heading = "Job")]
    pub(super) idle_timeout: Option<String>,

    /// Windows that may be open in one shard at once
    ///
    /// More is an error: a window takes some kilobytes even if it is empty, and many open ones
    /// mostly mean a wrong size or time unit. Slices of overlapping windows count as windows.
    /// Example: --open-windows 1000000
    #[arg(long, value_name = "N", help_heading = "Engine")]
    #[arg(default_value_t = crate::config::OPEN_WINDOWS_DEFAULT)]
    pub(super) open_windows: usize,

    /// Memory that the run may take [default: no limit]
    ///
    /// State that does not fit is written to disk and merged again when it is needed; results are the same.
    /// Units: KB, MB, GB, TB of a thousand, KiB, MiB, GiB, TiB of 1,024. What --ordered holds back and the
    /// pages of mapped inputs are not counted. Example: --memory-limit 2GB
    #[arg(long, value_name = "SIZE", help_heading = "Engine")]
    pub(super) memory_limit: Option<String>,

    /// Directory for state that does not fit into memory [default: the system's temporary directory]
    ///
    /// On a disk: some systems keep their temporary directory in memory. Its files vanish with the run.
    /// Example: --memory-limit 2GB --spill-dir /var/tmp
    #[arg(long, value_name = "DIR", requires = "memory_limit", help_heading = "Engine")]
    pub(super) spill_dir: Option<PathBuf>,

    /// Shards [default: one per core available to the process]
    ///
    /// Example: --workers 4
    #[arg(long, value_name = "N", help_heading = "Engine")]
    pub(super) workers: Option<usize>,

    /// Cores to pin the shards to
    ///
    /// One shard per core unless --workers says otherwise. Example: --cores 0,2,4-7
    #[arg(long, value_name = "LIST", conflicts_with = "no_pin", help_heading = "Engine")]
    pub(super) cores: Option<String>,

    /// Do not pin shards to cores
    ///
    /// Example, on a machine that others use too: --no-pin
    #[arg(long, help_heading = "Engine")]
    pub(super) no_pin: bool,

    /// Key groups: the atoms in which keys are spread over shards
    ///
    /// Should be a multiple of the number of workers, now and later. Example: --max-parallelism 720
    #[arg(long, value_name = "N", help_heading = "Engine")]
    #[arg(default_value_t = crate::key::group::MAX_PARALLELISM_DEFAULT)]
    pub(super) max_parallelism: u32,

    /// How keys with a large share of the rows are treated
    ///
    /// adaptive: found while the stream runs, and spread over shards. off: every row goes to the one
    /// owner of its key. two-phase: every key is aggregated where it was read first, unless that does not
    /// pay. hot:KEY,KEY: known beforehand (hot:null for the null key). Results are the same. Example: --skew off
    #[arg(long, value_name = "MODE", default_value = "adaptive", help_heading = "Engine")]
    pub(super) skew: String,

    /// Partial aggregates of a hot key: auto or a number
    ///
    /// Every worker holds at least one, so fewer salts than workers are rounded up to one each.
    /// Example: --salts 16
    #[arg(long, value_name = "N", default_value = "auto", help_heading = "Engine")]
    pub(super) salts: String,

    /// Rows a batch is cut into
    ///
    /// Example: --batch-rows 4096
    #[arg(long, value_name = "N", help_heading = "Engine")]
    #[arg(default_value_t = crate::config::BATCH_ROWS_DEFAULT)]
    pub(super) batch_rows: usize,

    /// Batches each ring between two shards holds
    ///
    /// Example: --ring-capacity 16
    #[arg(long, value_name = "N", help_heading = "Engine")]
    #[arg(default_value_t = crate::config::RING_CAPACITY_DEFAULT)]
    pub(super) ring_capacity: usize,

    /// Instruction set of the kernels: auto, portable, avx2 or avx512
    ///
    /// Example: --isa portable
    #[arg(long, value_name = "ISA", default_value = "auto", help_heading = "Engine")]
    pub(super) isa: String,

    /// A progress bar on standard error: auto or never
    ///
    /// auto shows it if standard error is a terminal and the run takes longer than a second.
    /// Example: --progress never
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ProgressMode::Auto)]
    #[arg(help_heading = "Output", hide_possible_values = true)]
    pub(super) progress: ProgressMode,
}

/// Options of `gen`.
#[derive(Debug, Args)]
pub(super) struct GenArgs {
    /// Rows to make
    ///
    /// K, M and G stand for thousands, millions and billions. Example: --rows 50M
    #[arg(long, value_name = "N", default_value = "1M")]
    pub(super) rows: String,

    /// Different keys
    ///
    /// Example: --keys 10K
    #[arg(long, value_name = "N", default_value = "1K")]
    pub(super) keys: String,

    /// How rows are spread over keys
    ///
    /// uniform; zipf:S; hot:SHARE or hot:SHARE:COUNT, one or a few keys with a share of the rows;
    /// drift:SHARE/PERIOD, a hot key that changes every PERIOD rows. Example: --dist hot:0.8
    #[arg(long, value_name = "D", default_value = "uniform")]
    pub(super) dist: String,

    /// The same seed makes the same stream
    ///
    /// Example: --seed 42
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,

    /// Type of the key column: int64 or text
    ///
    /// Text keys look like user-0000042. Example: --key-type text
    #[arg(long, value_name = "T", default_value = "int64")]
    pub(super) key_type: String,

    /// Columns to write, in this order [default: all]
    ///
    /// Leaving out columns changes nothing in the others. Example: --columns ts,key,value
    #[arg(long, value_name = "LIST")]
    pub(super) columns: Option<String>,

    /// How far an event time may lie behind the largest before it
    ///
    /// Example: --out-of-orderness 2s
    #[arg(long, value_name = "D", default_value = "0s")]
    pub(super) out_of_orderness: String,

    /// Rows per millisecond of event time
    ///
    /// Example, for a thousand rows a second: --rows-per-ms 1
    #[arg(long, value_name = "N", default_value = "1K")]
    pub(super) rows_per_ms: String,

    /// File to write [default: standard output]
    ///
    /// The format follows from the name; text is compressed if it ends in .gz or .zst. Example: --output
    /// stream.parquet
    #[arg(long, value_name = "FILE")]
    pub(super) output: Option<PathBuf>,

    /// Format: table, csv, tsv, ndjson, parquet or arrow
    ///
    /// Example: saltmill gen --output-format ndjson | head
    #[arg(long, value_name = "F")]
    pub(super) output_format: Option<String>,

    /// A progress bar on standard error: auto or never
    ///
    /// Example: --progress never
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = ProgressMode::Auto)]
    #[arg(hide_possible_values = true)]
    pub(super) progress: ProgressMode,
}

/// When a progress bar is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum ProgressMode {
    /// On a terminal, on long runs.
    Auto,
    /// Never.
    Never,
}

/// Options of `keygroups`.
#[expect(clippy::doc_markdown, reason = "the text is printed as it stands")]
#[derive(Debug, Args)]
pub(super) struct KeyGroupsArgs {
    /// Subtasks (Flink) or workers (Saltmill)
    ///
    /// Example: --parallelism 8
    #[arg(long, value_name = "P", default_value_t = 4)]
    pub(super) parallelism: u32,

    /// Key groups
    ///
    /// Example: --max-parallelism 720
    #[arg(long, value_name = "M")]
    #[arg(default_value_t = crate::key::group::MAX_PARALLELISM_DEFAULT)]
    pub(super) max_parallelism: u32,

    /// Whose assignment of keys to key groups
    ///
    /// flink-sql: Flink SQL and Table API. flink-stream: keyBy in a DataStream job, by the Java type that
    /// --key-type suggests. flink-string, flink-long: keyBy with a String or a Long. native: Saltmill's
    /// own. Example: --assign flink-string
    #[arg(long, value_name = "A", default_value = "flink-sql")]
    pub(super) assign: String,

    /// A key to be placed; may be given several times
    ///
    /// Fields of a key of several columns are separated by commas, as in csv; null means NULL.
    /// Example: --key 17850 --key null
    #[arg(long, value_name = "KEY", allow_hyphen_values = true)]
    pub(super) key: Vec<String>,

    /// A file of keys to be placed, one a line, as for --key
    ///
    /// - reads standard input. Example: --keys hot-users.txt
    #[arg(long, value_name = "FILE")]
    pub(super) keys: Option<PathBuf>,

    /// Type of the key, or types of its columns
    ///
    /// Arrow's names, as for --schema of run. Example: --key-type utf8,int64
    #[arg(long, value_name = "T,..", default_value = "utf8")]
    pub(super) key_type: String,

    /// Show the imbalance of the key groups for 1 to N subtasks
    ///
    /// Example: --up-to 32
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub(super) up_to: u32,

    /// Report as JSON
    ///
    /// Example: --json
    #[arg(long)]
    pub(super) json: bool,
}

/// Options of `diagnose`.
#[expect(clippy::doc_markdown, reason = "the text is printed as it stands")]
#[derive(Debug, Args)]
pub(super) struct DiagnoseArgs {
    #[command(flatten)]
    pub(super) input: InputArgs,

    /// Rows to read at most
    ///
    /// For a sample of an endless stream. Example: --limit 10M
    #[arg(long, value_name = "N", help_heading = "Input")]
    pub(super) limit: Option<String>,

    /// Key columns
    ///
    /// Names with odd characters go between double quotes. Example: --key 'origin,"dest city"'
    #[arg(long, value_name = "A,B", help_heading = "Job")]
    pub(super) key: String,

    #[command(flatten)]
    pub(super) time: TimeArgs,

    /// Windows in which to look for skew: tumbling:SIZE
    ///
    /// Needs --time. Late rows count for their keys, but not for their windows.
    /// Example: --time ts --window tumbling:1h
    #[arg(long, value_name = "W", help_heading = "Job")]
    pub(super) window: Option<String>,

    /// Subtasks (Flink) or workers (Saltmill) of the job
    ///
    /// Example: --parallelism 8
    #[arg(long, value_name = "P", default_value_t = 4, help_heading = "Job")]
    pub(super) parallelism: u32,

    /// Key groups of the job [default: what Flink takes for that parallelism]
    ///
    /// Example: --max-parallelism 720
    #[arg(long, value_name = "M", help_heading = "Job")]
    pub(super) max_parallelism: Option<u32>,

    /// Whose assignment of keys to subtasks
    ///
    /// flink-sql: Flink SQL and Table API. flink-stream: keyBy in a DataStream job, by the Java type that
    /// the column's type suggests. flink-string, flink-long: keyBy with a String or a Long. native:
    /// Saltmill's own. Example: --assign flink-string
    #[arg(long, value_name = "A", default_value = "flink-sql", help_heading = "Job")]
    pub(super) assign: String,

    /// Rows of a mini-batch, for the prediction of two-phase aggregation
    ///
    /// Example: --mini-batch-rows 20K
    #[arg(long, value_name = "N", default_value = "5000", help_heading = "Job")]
    pub(super) mini_batch_rows: String,

    /// How keys are counted: auto, exact or bounded
    ///
    /// auto: exactly while the counts fit into some 200 MB, else within bounds by a sketch; the report
    /// says which. Example: --counting exact
    #[arg(long, value_name = "HOW", default_value = "auto", help_heading = "Counting")]
    pub(super) counting: String,

    /// Threads that count [default: one per core available to the process]
    ///
    /// Example: --workers 4
    #[arg(long, value_name = "N", help_heading = "Counting")]
    pub(super) workers: Option<usize>,

    /// Heaviest keys to list
    ///
    /// Example: --top 25
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Output")]
    pub(super) top: usize,

    /// Report as JSON on standard output
    ///
    /// Example: --json
    #[arg(long, conflicts_with = "markdown", help_heading = "Output")]
    pub(super) json: bool,

    /// Report as Markdown on standard output
    ///
    /// Example: --markdown
    #[arg(long, help_heading = "Output")]
    pub(super) markdown: bool,

    /// Write the report as a page with plots, too
    ///
    /// One file that needs nothing else and asks nobody for anything. Example: --html skew.html
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) html: Option<PathBuf>,
}
