//! The families of metrics, from a snapshot of the engine's numbers.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::runtime::engine::MetricsReader;
use crate::runtime::latency::{LATENCY_BOUNDS_S, Latencies};
use crate::runtime::load_history::{LoadHistory, SPANS};
use crate::runtime::metrics::{InputMetrics, Metrics, ShardMetrics};
use crate::runtime::sink::lock;
use crate::skew::imbalance::Imbalance;

/// The text that Prometheus scrapes.
#[derive(Debug)]
pub struct Exposition {
    reader: MetricsReader,
    history: LoadHistory,
    registry: Registry,
    taken: Arc<Taken>,
}

/// The newest snapshot, which the registry's collector encodes.
#[derive(Debug, Default)]
struct Taken(Mutex<(Metrics, [Imbalance; SPANS.len()])>);

impl Exposition {
    /// Media type of the text.
    pub const CONTENT_TYPE: &'static str = prometheus_text::CONTENT_TYPE;

    /// Of the engine that `reader` reads.
    pub fn new(reader: MetricsReader) -> Self {
        let history = LoadHistory::new(reader.metrics().shards.len());
        let taken = Arc::new(Taken::default());
        let mut registry = Registry::with_prefix("saltmill");
        registry.register_collector(Box::new(Arc::clone(&taken)));
        Self { reader, history, registry, taken }
    }

    /// Takes note of the shards' loads, of which the last seconds and minutes are exposed; to be called about
    /// once a second.
    pub fn tick(&mut self) {
        self.history.record(&self.reader.metrics());
    }

    /// All metrics as they stand, in the text format of Prometheus.
    pub fn text(&mut self) -> String {
        let metrics = self.reader.metrics();
        self.history.record(&metrics);
        *lock(&self.taken.0) = (metrics, self.history.imbalance());
        let mut text = String::new();
        prometheus_text::encode(&mut text, &self.registry).expect("a text takes any text");
        text
    }
}

impl Collector for Taken {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let taken = lock(&self.0);
        let mut families = Families { encoder };
        let (metrics, imbalance) = &*taken;
        families.engine(metrics)?;
        families.shards(metrics)?;
        families.imbalance(imbalance)?;
        families.inputs(metrics)?;
        families.latencies(metrics)
    }
}

/// Labels of one series.
type Labels = [(&'static str, String); 1];

/// A family that has one series an entry.
type Of<'a, T> = &'a dyn Fn(&T) -> f64;

struct Families<'a> {
    encoder: DescriptorEncoder<'a>,
}

impl Families<'_> {
    fn engine(&mut self, metrics: &Metrics) -> fmt::Result {
        self.counter("rows", "Rows taken in", metrics.rows_in)?;
        self.counter("late_rows", "Rows whose windows were all closed", metrics.rows_late)?;
        let rejected = metrics.rows_rejected.iter();
        let rejected = rejected.map(|(reason, rows)| ([("reason", reason.clone())], to_f64(*rows)));
        let help = "Rows that could not be used, by reason";
        self.family("rejected_rows", help, MetricType::Counter, rejected)?;
        let uptime = "Time since the engine was started";
        self.gauge("uptime_seconds", uptime, metrics.uptime.as_secs_f64())?;
        self.gauge("hot_keys", "Keys that are hot now", to_f64(metrics.hot_keys))?;
        let promotions = "Times a key became hot";
        self.counter("hot_key_promotions", promotions, metrics.promotions)?;
        let demotions = "Times a hot key cooled down";
        self.counter("hot_key_demotions", demotions, metrics.demotions)
    }

    fn shards(&mut self, metrics: &Metrics) -> fmt::Result {
        let shards = &metrics.shards;
        let mut counter = |name: &str, help: &str, of: Of<'_, ShardMetrics>| {
            self.family(name, help, MetricType::Counter, series("shard", shards, of))
        };
        counter("shard_rows", "Rows whose aggregation work the shard's thread did", &|s| {
            to_f64(s.rows_in)
        })?;
        counter("shard_hot_rows", "Of these, rows of hot keys", &|s| to_f64(s.rows_hot))?;
        counter("shard_result_rows", "Result rows", &|s| to_f64(s.rows_out))?;
        counter("shard_windows_closed", "Windows closed", &|s| to_f64(s.windows_emitted))?;
        counter("shard_busy_seconds", "Time the shard's thread worked", &|s| seconds(s.busy))?;
        counter("shard_idle_seconds", "Time it had nothing to do", &|s| seconds(s.idle))?;
        counter("shard_backpressured_seconds", "Time it waited for others to make room", &|s| {
            seconds(s.backpressured)
        })?;
        counter("shard_cpu_seconds", "Processor time of the shard's thread", &|s| seconds(s.cpu))?;
        counter("shard_spilled_bytes", "Bytes of state written to disk", &|s| {
            to_f64(s.spilled_bytes)
        })?;
        counter("shard_spilled_runs", "Times state was written to disk", &|s| {
            to_f64(s.spilled_runs)
        })?;
        counter("shard_spill_seconds", "Time spent with state on disk", &|s| {
            seconds(s.spill_time)
        })?;
        let mut gauge = |name: &str, help: &str, of: Of<'_, ShardMetrics>| {
            self.family(name, help, MetricType::Gauge, series("shard", shards, of))
        };
        gauge("shard_queue_messages", "Batches and control messages that wait for it", &|s| {
            to_f64(s.queue_messages)
        })?;
        gauge("shard_open_windows", "Windows that have rows and are not closed", &|s| {
            to_f64(s.open_windows)
        })?;
        gauge("shard_state_keys", "Keys in its state, summed over open windows", &|s| {
            to_f64(s.state_keys)
        })?;
        gauge("shard_state_bytes", "Size of its state", &|s| to_f64(s.state_bytes))?;
        let watermarks = shards.iter().enumerate().filter_map(|(id, shard)| {
            let time = metrics.seconds(shard.watermark?)?;
            Some(([("shard", id.to_string())], time))
        });
        let help = "Event time up to which windows are closed, in seconds since 1970";
        self.family("shard_watermark_seconds", help, MetricType::Gauge, watermarks)
    }

    fn imbalance(&mut self, spans: &[Imbalance; SPANS.len()]) -> fmt::Result {
        let of = |value: fn(&Imbalance) -> f64| {
            let spans = spans.iter().zip(SPANS);
            spans.map(move |(imbalance, (_, name))| ([("span", name.to_owned())], value(imbalance)))
        };
        let help = "Coefficient of variation of the shards' rows over a sliding span of time";
        self.family("shard_rows_cov", help, MetricType::Gauge, of(|one| one.cov))?;
        let help = "Rows of the busiest shard over the mean, over a sliding span of time";
        let ratios = of(|one| one.max_over_mean);
        self.family("shard_rows_max_over_mean", help, MetricType::Gauge, ratios)
    }

    fn inputs(&mut self, metrics: &Metrics) -> fmt::Result {
        let inputs = &metrics.inputs;
        let named = |value: &dyn Fn(&InputMetrics) -> Option<f64>| {
            let inputs = inputs.iter();
            let found = inputs.filter_map(|one| Some(([("input", one.name.clone())], value(one)?)));
            found.collect::<Vec<_>>()
        };
        let rows = named(&|one| Some(to_f64(one.rows_in)));
        self.family("input_rows", "Rows taken in, by input", MetricType::Counter, rows)?;
        let pauses = named(&|one| Some(seconds(one.held_back)));
        let help = "Time in which the engine had no room for an input's rows";
        self.family("input_held_back_seconds", help, MetricType::Counter, pauses)?;
        let watermarks = named(&|one| metrics.seconds(one.watermark?));
        let help = "Event time before which an input's rows are late, in seconds since 1970";
        self.family("input_watermark_seconds", help, MetricType::Gauge, watermarks)?;
        let drift = named(&|one| metrics.span_seconds(one.drift));
        let help = "How far an input's event time is ahead of the one furthest behind";
        self.family("input_drift_seconds", help, MetricType::Gauge, drift)?;
        let idle = named(&|one| Some(f64::from(u8::from(one.idle))));
        let help = "Whether an input is silent and holds nobody back";
        self.family("input_idle", help, MetricType::Gauge, idle)
    }

    fn latencies(&mut self, metrics: &Metrics) -> fmt::Result {
        let help = "From when a shard knows that windows have ended to when their results are out";
        self.histogram("window_close_seconds", help, &metrics.window_close)?;
        let help =
            "From when a shard's newest rows were taken in to when the windows that ended are out";
        self.histogram("end_to_end_latency_seconds", help, &metrics.end_to_end)
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
        metric.encode_gauge(&value)
    }

    fn family(
        &mut self,
        name: &str,
        help: &str,
        kind: MetricType,
        series: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut series = series.into_iter().peekable();
        if series.peek().is_none() {
            return Ok(());
        }
        let is_counter = matches!(kind, MetricType::Counter);
        let mut metric = self.encoder.encode_descriptor(name, help, None, kind)?;
        for (labels, value) in series {
            encode_value(metric.encode_family(&labels)?, is_counter, value)?;
        }
        Ok(())
    }

    fn histogram(&mut self, name: &str, help: &str, latencies: &Latencies) -> fmt::Result {
        let mut metric = self.encoder.encode_descriptor(name, help, None, MetricType::Histogram)?;
        let bounds = LATENCY_BOUNDS_S.into_iter().chain([f64::INFINITY]);
        let buckets = bounds.zip(latencies.counts).collect::<Vec<_>>();
        let sum = latencies.sum.as_secs_f64();
        metric.encode_histogram::<NoLabelSet>(sum, latencies.count(), &buckets, None)
    }
}

fn encode_value(mut metric: MetricEncoder<'_>, is_counter: bool, value: f64) -> fmt::Result {
    if is_counter {
        metric.encode_counter::<NoLabelSet, _, u64>(&value, None)
    } else {
        metric.encode_gauge(&value)
    }
}

/// One series an entry, numbered.
fn series<'a, T>(
    label: &'static str,
    entries: &'a [T],
    of: Of<'a, T>,
) -> impl Iterator<Item = (Labels, f64)> {
    entries.iter().enumerate().map(move |(id, entry)| ([(label, id.to_string())], of(entry)))
}

fn seconds(time: Duration) -> f64 {
    time.as_secs_f64()
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus keeps 64-bit floats")]
fn to_f64(count: u64) -> f64 {
    count as f64
}
