//! One setting of `bench`: its inputs in memory, its runs, and what they came to.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};

use super::Failure;
use super::json::Json;
use super::memory::Loaded;
use super::options::JobOptions;
use crate::error::SinkError;
use crate::runtime::engine::Engine;
use crate::runtime::report::RunReport;
use crate::runtime::sink::Collected;

/// A job, its inputs and its runs so far.
#[derive(Debug)]
pub(super) struct Measured {
    options: JobOptions,
    schema: SchemaRef,
    loaded: Vec<Loaded>,
    /// Of the first run; every other must have the same.
    checksum: Option<u64>,
    times: Vec<Duration>,
    report: Option<RunReport>,
}

impl Measured {
    pub(super) fn new(options: JobOptions, schema: SchemaRef, loaded: Vec<Loaded>) -> Self {
        Self { options, schema, loaded, checksum: None, times: Vec::new(), report: None }
    }

    /// Another setting over the same inputs.
    pub(super) fn with_options(&self, options: JobOptions) -> Self {
        Self::new(options, Arc::clone(&self.schema), self.loaded.clone())
    }

    pub(super) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    pub(super) fn options(&self) -> &JobOptions {
        &self.options
    }

    /// One run, from starting the threads to the last result. Only the times of measured runs are kept.
    pub(super) fn run(&mut self, measured: bool) -> Result<(), Failure> {
        let job = self.options.job(&self.schema)?;
        let schema = Arc::clone(job.output_schema());
        let sources = self.loaded.iter().map(Loaded::source).collect();
        let results = Collected::new();
        let started = Instant::now();
        let report = Engine::start_on(job, sources, results.clone())?.finish()?;
        let time = started.elapsed();
        let checksum = checksum(&schema, &results.take())?;
        if *self.checksum.get_or_insert(checksum) != checksum {
            return Err(differ("two runs over the same rows gave different results"));
        }
        if measured {
            self.times.push(time);
        }
        self.report = Some(report);
        Ok(())
    }

    /// Compares results with those of a setting that must have the same.
    pub(super) fn check_same(&self, other: &Self, text: &str) -> Result<(), Failure> {
        if self.checksum == other.checksum {
            return Ok(());
        }
        Err(differ(&format!("results are different with {text}")))
    }

    /// Report of the last run.
    pub(super) fn report(&self) -> &RunReport {
        self.report.as_ref().expect("a run has ended")
    }

    pub(super) fn times(&self) -> &[Duration] {
        &self.times
    }

    pub(super) fn rows(&self) -> u64 {
        self.loaded.iter().map(Loaded::rows).sum()
    }

    /// Rows per second of each measured run.
    pub(super) fn rates(&self) -> Vec<f64> {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let rows = self.rows() as f64;
        self.times.iter().map(|time| rows / time.as_secs_f64().max(1e-9)).collect()
    }

    pub(super) fn checksum(&self) -> String {
        format!("{:016x}", self.checksum.unwrap_or_default())
    }

    /// Its figures as members of `json`.
    pub(super) fn members(&self, json: &mut Json) {
        let (report, rates) = (self.report(), self.rates());
        let mut runs = Json::array();
        for (time, rate) in self.times.iter().zip(&rates) {
            let mut run = Json::object();
            runs.element(run.float("elapsed_s", time.as_secs_f64()).float("rows_per_s", *rate));
        }
        json.int("rows", self.rows())
            .int("rows_out", report.rows_out)
            .int("rows_late", report.rows_late)
            .member("runs", &runs)
            .float("rows_per_s_median", median(&rates))
            .text("isa", report.isa.name())
            .int("workers", report.shards.len() as u64)
            .raw("huge_pages", if report.huge_pages { "true" } else { "false" })
            .text("checksum", &self.checksum());
    }
}

fn differ(what: &str) -> Failure {
    Failure::Run(format!("defect: {what}; please report this"))
}

/// Median, least and largest of the pairwise ratios of two settings' runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Ratio {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Ratio {
    /// Of `rates` over `others`, round by round.
    pub(super) fn new(rates: &[f64], others: &[f64]) -> Self {
        let ratios = rates.iter().zip(others).map(|(a, b)| a / b).collect::<Vec<_>>();
        Self {
            median: median(&ratios),
            min: ratios.iter().copied().fold(f64::INFINITY, f64::min),
            max: ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        }
    }
}

/// The middle value, or the mean of the two in the middle.
pub(super) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 {
        sorted[middle]
    } else {
        f64::midpoint(sorted[middle - 1], sorted[middle])
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

    #[test]
    fn ratios_are_of_pairs_not_of_medians() {
        // The second round was slow for both, so it says the same as the first.
        let ratio = Ratio::new(&[10.0, 1.0, 30.0], &[5.0, 0.5, 10.0]);
        assert_eq!(ratio, Ratio { median: 2.0, min: 2.0, max: 3.0 });
    }
}
