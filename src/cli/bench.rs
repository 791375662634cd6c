//! `saltmill bench`: the engine alone, from memory into memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};

use super::args::BenchArgs;
use super::bar::{Bar, Measure, State};
use super::json::Json;
use super::memory::Loaded;
use super::options::JobOptions;
use super::stats::StatsFile;
use super::{Failure, outputs, tell, warning};
use crate::config::find_column;
use crate::error::{ConfigError, SinkError};
use crate::io::{Inputs, open};
use crate::runtime::engine::Engine;
use crate::runtime::report::{RunReport, SkewTable};
use crate::runtime::sink::Collected;

pub(super) fn main(args: &BenchArgs) -> Result<(), Failure> {
    let options = JobOptions::new(&args.job)?;
    if args.runs == 0 {
        return Err(Failure::Config(ConfigError::OutOfRange {
            what: "--runs",
            found: "0".to_owned(),
            expected: "at least 1".to_owned(),
        }));
    }
    outputs::check_distinct(&options.inputs, &[("--stats", args.stats.as_ref())])?;
    let inputs = open(&options.inputs, &options.read_options(false, Arc::default()))?;
    warning::uneven_groups(&options.job(&inputs.schema)?);
    let stats = args.stats.as_deref().map(StatsFile::create).transpose()?;
    let loaded = load(args, &options, &inputs)?;
    let mut bench = Bench { options, schema: Arc::clone(&inputs.schema), loaded, checksum: None };
    bench.run()?;
    let mut times = Vec::with_capacity(args.runs);
    let mut report = None;
    for _ in 0..args.runs {
        let (time, run) = bench.run()?;
        times.push(time);
        report = Some(run);
    }
    let report = report.expect("at least one run");
    let summary = Summary { bench: &bench, times: &times, report: &report };
    let text = if args.json { summary.json() } else { summary.text() };
    outputs::write_stdout(&text)?;
    if let Some(stats) = stats {
        stats.write(&report, false)?;
    }
    Ok(())
}

fn load(args: &BenchArgs, options: &JobOptions, inputs: &Inputs) -> Result<Vec<Loaded>, Failure> {
    let progress = Arc::clone(&inputs.progress);
    let bar = Bar::start(args.job.progress, Measure::Bytes, move || State {
        done: progress.done(),
        total: progress.total(),
        message: "loading".to_owned(),
    });
    let time = match options.time_name().filter(|_| options.has_windows()) {
        Some(name) => Some(find_column(&inputs.schema, name, "time")?),
        None => None,
    };
    let load = |source| Loaded::load(source, time);
    let loaded = inputs.sources.iter().map(|source| load(source.as_ref()));
    let loaded = loaded.collect::<Result<Vec<_>, _>>()?;
    drop(bar);
    let rejected: u64 =
        inputs.sources.iter().flat_map(|source| source.rejected()).map(|(_, rows)| rows).sum();
    if rejected > 0 {
        tell(&format!(
            "warning: {rejected} rows could not be used and are not part of the measurement; \
             `saltmill run` shows why"
        ));
    }
    Ok(loaded)
}

struct Bench {
    options: JobOptions,
    schema: SchemaRef,
    loaded: Vec<Loaded>,
    /// Of the first run; every other must have the same.
    checksum: Option<u64>,
}

impl Bench {
    /// One run, from starting the threads to the last result.
    fn run(&mut self) -> Result<(Duration, RunReport), Failure> {
        let job = self.options.job(&self.schema)?;
        let schema = Arc::clone(job.output_schema());
        let sources = self.loaded.iter().map(Loaded::source).collect();
        let results = Collected::new();
        let started = Instant::now();
        let report = Engine::start_on(job, sources, results.clone())?.finish()?;
        let time = started.elapsed();
        let checksum = checksum(&schema, &results.take())?;
        if *self.checksum.get_or_insert(checksum) != checksum {
            return Err(Failure::Run(
                "defect: two runs over the same rows gave different results; please report this"
                    .to_owned(),
            ));
        }
        Ok((time, report))
    }

    fn rows(&self) -> u64 {
        self.loaded.iter().map(Loaded::rows).sum()
    }
}

/// Sum, modulo 2^64, of a hash of each row: the same for any order of rows.
fn checksum(schema: &SchemaRef, batches: &[RecordBatch]) -> Result<u64, SinkError> {
    let failed = |error: arrow::error::ArrowError| SinkError::Failed(format!("checksum: {error}"));
    let fields = schema.fields().iter().map(|field| SortField::new(field.data_type().clone()));
    let converter = RowConverter::new(fields.collect()).map_err(failed)?;
    let mut sum = 0_u64;
    for batch in batches {
        let rows = converter.convert_columns(batch.columns()).map_err(failed)?;
        for row in &rows {
            sum = sum.wrapping_add(rapidhash::v3::rapidhash_v3(row.as_ref()));
        }
    }
    Ok(sum)
}

/// What is told at the end.
struct Summary<'a> {
    bench: &'a Bench,
    times: &'a [Duration],
    report: &'a RunReport,
}

impl Summary<'_> {
    fn rates(&self) -> Vec<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rows = self.bench.rows() as f64;
        self.times.iter().map(|time| rows / time.as_secs_f64().max(1e-9)).collect()
    }

    fn checksum(&self) -> String {
        format!("{:016x}", self.bench.checksum.unwrap_or_default())
    }

    fn json(&self) -> String {
        let rates = self.rates();
        let mut runs = Json::array();
        for (time, rate) in self.times.iter().zip(&rates) {
            let mut run = Json::object();
            runs.element(run.float("elapsed_s", time.as_secs_f64()).float("rows_per_s", *rate));
        }
        let mut json = Json::object();
        json.int("rows", self.bench.rows())
            .int("rows_out", self.report.rows_out)
            .int("rows_late", self.report.rows_late)
            .member("runs", &runs)
            .float("rows_per_s_median", median(&rates))
            .text("isa", self.report.isa.name())
            .int("workers", self.report.shards.len() as u64)
            .raw("huge_pages", if self.report.huge_pages { "true" } else { "false" })
            .text("checksum", &self.checksum());
        format!("{}\n", json.finish())
    }

    fn text(&self) -> String {
        use std::fmt::Write as _;
        let (report, rates) = (self.report, self.rates());
        let workers = report.shards.len();
        let mut text = format!(
            "{} rows in, {} rows out, {} late; {workers} workers, isa {}, huge pages: {}\n",
            self.bench.rows(),
            report.rows_out,
            report.rows_late,
            report.isa,
            if report.huge_pages { "yes" } else { "no" },
        );
        for (i, (time, rate)) in self.times.iter().zip(&rates).enumerate() {
            let _ = writeln!(
                text,
                "run {:<3} {:>9.4} s {}",
                i + 1,
                time.as_secs_f64(),
                millions(*rate)
            );
        }
        let median = median(&rates);
        #[expect(clippy::cast_precision_loss, reason = "few workers")]
        let per_worker = median / workers as f64;
        let _ = writeln!(text, "median            {}", millions(median));
        let _ = writeln!(text, "per worker        {}", millions(per_worker));
        let _ = writeln!(text, "checksum {}", self.checksum());
        let _ = write!(text, "last run:\n{}", SkewTable(report));
        text
    }
}

fn millions(rate: f64) -> String {
    format!("{:>10.2} M rows/s", rate / 1e6)
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use arrow::array::{ArrayRef, Int64Array, StringArray};

    fn batch(keys: Vec<i64>, names: Vec<&str>) -> RecordBatch {
        RecordBatch::try_from_iter([
            ("k", Arc::new(Int64Array::from(keys)) as ArrayRef),
            ("n", Arc::new(StringArray::from(names)) as ArrayRef),
        ])
        .unwrap()
    }

    #[test]
    fn the_checksum_ignores_order_and_batches_but_not_values() {
        let whole = batch(vec![1, 2, 3], vec!["a", "b", "c"]);
        let schema = whole.schema();
        let sum = |batches: &[RecordBatch]| checksum(&schema, batches).unwrap();
        let parts = [batch(vec![3], vec!["c"]), batch(vec![2, 1], vec!["b", "a"])];
        assert_eq!(sum(std::slice::from_ref(&whole)), sum(&parts));
        assert_ne!(sum(&[whole]), sum(&[batch(vec![1, 2, 3], vec!["b", "a", "c"])]));
    }

    #[test]
    fn medians() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-12);
        assert!((median(&[4.0, 1.0, 2.0, 3.0]) - 2.5).abs() < 1e-12);
    }
}
