//! The lattice that the engine is tested over: jobs and rows made from a seed, and the ways to run them.

pub(crate) mod asks;
pub(crate) mod feed;
pub(crate) mod rows;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::record_batch::RecordBatch;
use saltmill::aggregate::Function;
use saltmill::config::{HotList, SkewMode};
use saltmill::kernel::Isa;
use saltmill::skew::policy::Salts;
use saltmill::time::window::{CalendarUnit, Zone};
use saltmill::{Aggregate, Job, JobBuilder, Window};

use crate::oracle::rng::Rng;
use crate::oracle::{Ask, Func, Input, Kind, Spec, Windows, build};

/// Tells a job its mode.
type SetMode = fn(JobBuilder, &Case) -> JobBuilder;

/// How often a function is asked for of a column, in percent: those that share what they keep, and what
/// comes into play as soon as a set grows, more often than others.
const fn percent(function: Function) -> usize {
    match function {
        Function::Count
        | Function::Sum
        | Function::SumDecimal
        | Function::Min
        | Function::Max
        | Function::Avg => 65,
        Function::CountDistinct => 25,
        _ => 12,
    }
}

/// How keys with a large share are treated: a name, and how the job is told. One line each.
pub(crate) const SKEW_MODES: &[(&str, SetMode)] = &[
    ("off", |job, _| job.skew(SkewMode::Off)),
    ("adaptive", |job, _| job.skew(SkewMode::Adaptive)),
    ("two-phase", |job, _| job.skew(SkewMode::TwoPhase)),
    ("two-phase:50", |job, _| job.skew(SkewMode::TwoPhase).mini_batch_rows(50)),
    ("hot", |job, case| job.skew(case.hot_keys(1))),
    ("hot:1", |job, case| job.skew(case.hot_keys(1)).salts(Salts::Fixed(1)).mini_batch_rows(1)),
    ("hot:3", |job, case| job.skew(case.hot_keys(5)).salts(Salts::Fixed(3)).mini_batch_rows(100)),
    ("hot:64", |job, case| job.skew(case.hot_keys(30)).salts(Salts::Fixed(64))),
];

/// A job and its rows.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) fields: Vec<Field>,
    pub(crate) spec: Spec,
    /// Those of the spec, as a job is asked for them.
    pub(crate) aggregates: Vec<Aggregate>,
    pub(crate) time: Option<usize>,
    pub(crate) inputs: Vec<Input>,
    pub(crate) explicit_watermarks: bool,
    /// How the rows were made, for messages.
    pub(crate) made: String,
}

/// A way to run a case, none of which may change its results.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Config {
    pub(crate) workers: usize,
    pub(crate) max_parallelism: u32,
    pub(crate) batch_rows: usize,
    pub(crate) ring_capacity: usize,
    pub(crate) feed: Feed,
    pub(crate) side_outputs: bool,
    pub(crate) skew: &'static str,
    pub(crate) isa: Isa,
    /// The number of shards changes while rows flow, as this seed says.
    pub(crate) rescale: Option<u64>,
    /// Bytes that the engine may take.
    pub(crate) memory: Option<u64>,
}

/// How rows go in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feed {
    /// One thread for each input.
    Threads,
    /// One thread for all inputs, with `try_push`, in turns chosen by this seed.
    Turns(u64),
    /// The engine reads; units of an input are cut by this seed.
    Sources(u64),
}

impl Config {
    pub(crate) fn random(rng: &mut Rng, case: &Case) -> Self {
        let workers = *rng.pick(&[1, 1, 2, 2, 2, 3, 3, 4, 4, 8]);
        let feed = match rng.below(if case.explicit_watermarks { 2 } else { 3 }) {
            0 => Feed::Threads,
            1 => Feed::Turns(rng.next()),
            _ => Feed::Sources(rng.next()),
        };
        Self {
            workers,
            max_parallelism: *rng.pick(&[8, 9, 128, 128, 1 << 15]),
            batch_rows: *rng.pick(&[1, 2, 1023, 4096]),
            ring_capacity: *rng.pick(&[1, 64]),
            feed,
            side_outputs: rng.percent(50),
            skew: rng.pick(SKEW_MODES).0,
            isa: *rng.pick(&Isa::available()),
            rescale: rng.percent(40).then(|| rng.next()),
            // Nothing at all stays in memory, a little, or about all there is.
            memory: *rng.pick(&[
                None,
                None,
                None,
                None,
                None,
                Some(1),
                Some(100_000),
                Some(1_000_000),
            ]),
        }
    }
}

const TIME_TYPES: &[fn() -> DataType] = &[
    || DataType::Timestamp(TimeUnit::Second, None),
    || DataType::Timestamp(TimeUnit::Millisecond, Some("+02:00".into())),
    || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
    || DataType::Timestamp(TimeUnit::Nanosecond, None),
    || DataType::Date32,
    || DataType::Date64,
    || DataType::Int64,
    || DataType::Int32,
    || DataType::Int16,
    || DataType::UInt32,
    || DataType::Int8,
];

/// Units of time in a day.
fn day_units(data_type: &DataType) -> i128 {
    match data_type {
        DataType::Date32 => 1,
        DataType::Timestamp(TimeUnit::Nanosecond, _) => 86_400_000_000_000,
        DataType::Timestamp(TimeUnit::Microsecond, _) => 86_400_000_000,
        DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64 => 86_400_000,
        // Plain integers are said to be seconds.
        _ => 86_400,
    }
}

fn window_kind(rng: &mut Rng, data_type: &DataType) -> Kind {
    let sizes = [1, 2, 7, 10, 60, 100];
    match rng.below(8) {
        7 => Kind::Months { count: *rng.pick(&[1, 1, 3, 12]), day: day_units(data_type) },
        5 | 6 => Kind::Session { gap: *rng.pick(&[1, 2, 3, 5, 7, 30]) },
        0 | 1 => Kind::Tumbling { size: *rng.pick(&sizes) },
        2 | 3 => {
            let size = *rng.pick(&sizes);
            // Dividing the size, not dividing it, the size itself, and longer: with gaps.
            let slides = [(size + 3) / 4, size / 3 + 1, size, size + 1, 2 * size];
            Kind::Hopping { size, slide: *rng.pick(&slides) }
        }
        _ => {
            let step = *rng.pick(&[1, 2, 7, 10, 25]);
            Kind::Cumulate { step, max: step * *rng.pick(&[1, 2, 5]) }
        }
    }
}

impl Case {
    /// Job and rows chosen by `rng`; at most `rows_max` rows in each input.
    pub(crate) fn random(rng: &mut Rng, rows_max: usize) -> Self {
        let mut fields = Vec::new();
        let key_count = *rng.pick(&[0, 1, 1, 1, 1, 1, 2, 2, 3]);
        let keys = (0..key_count).collect::<Vec<_>>();
        for i in &keys {
            let data_type = rng.pick(rows::KEY_TYPES)();
            fields.push(Field::new(format!("k{i}"), data_type, rng.percent(70)));
        }
        let windowed = rng.percent(75);
        let time = (windowed || rng.percent(20)).then_some(fields.len());
        if time.is_some() {
            let data_type = rng.pick(TIME_TYPES)();
            fields.push(Field::new("t", data_type, windowed && rng.percent(70)));
        }
        let first_value = fields.len();
        for i in 0..rng.within(1..4) {
            let data_type = rng.pick(rows::VALUE_TYPES)();
            fields.push(Field::new(format!("v{i}"), data_type, rng.percent(70)));
        }
        let types = fields.iter().map(|field| field.data_type().clone()).collect::<Vec<_>>();
        let small = |rng: &mut Rng, choices: &[i128]| *rng.pick(choices);
        let kind = window_kind(rng, time.map_or(&DataType::Null, |time| &types[time]));
        let lateness = match kind {
            Kind::Session { .. } => 0,
            _ => small(rng, &[0, 0, 1, 3, 20, 100]),
        };
        let windows = windowed.then(|| Windows {
            column: time.expect("windows have a time"),
            kind,
            lateness,
            offset: small(rng, &[0, 0, 1, 3, 59, 250]),
            out_of_orderness: small(rng, &[0, 0, 1, 5, 30, 1000]),
        });
        let (aggregates, asks) = Self::draw_aggregates(rng, &fields, first_value, time);
        let spec = Spec { types, keys, windows, aggregates: asks };
        let explicit_watermarks = windowed && rng.percent(25);
        let mut maker = rows::Maker::new(rng, &fields, &spec, time);
        let mut inputs = Vec::new();
        for _ in 0..rng.within(1..4) {
            inputs.push(maker.input(rng, rows_max, explicit_watermarks));
        }
        let made = maker.describe();
        Self { fields, spec, aggregates, time, inputs, explicit_watermarks, made }
    }

    /// Aggregates of the columns from `first_value` on.
    fn draw_aggregates(
        rng: &mut Rng,
        fields: &[Field],
        first_value: usize,
        time: Option<usize>,
    ) -> (Vec<Aggregate>, Vec<Ask>) {
        let mut drawn = Vec::new();
        if rng.percent(60) {
            drawn.push((Aggregate::count(), Ask::new(Func::Rows, [])));
        }
        let values = (first_value..fields.len()).collect::<Vec<_>>();
        let columns = asks::Columns { fields, values: &values, time };
        for column in &values {
            for function in Function::all() {
                if rng.percent(percent(*function)) {
                    drawn.extend(columns.ask(*function, *column, rng));
                }
            }
        }
        if drawn.is_empty() {
            drawn.push((Aggregate::count(), Ask::new(Func::Rows, [])));
        }
        // Some differ in their filter alone.
        let named = drawn.into_iter().enumerate();
        named.map(|(i, (aggregate, ask))| (aggregate.alias(format!("a{i}")), ask)).unzip()
    }

    pub(crate) fn schema(&self) -> SchemaRef {
        Schema::new(self.fields.clone()).into()
    }

    /// Nanoseconds in a unit of the time column.
    fn unit_nanos(&self) -> u64 {
        match self.time.map(|column| self.fields[column].data_type()) {
            Some(DataType::Date32) => 86_400_000_000_000,
            Some(DataType::Timestamp(TimeUnit::Nanosecond, _)) => 1,
            Some(DataType::Timestamp(TimeUnit::Microsecond, _)) => 1000,
            Some(DataType::Timestamp(TimeUnit::Millisecond, _) | DataType::Date64) => 1_000_000,
            // Plain integers are said to be seconds.
            _ => 1_000_000_000,
        }
    }

    /// The job, to be run as `config` says.
    pub(crate) fn job(&self, config: &Config) -> Result<Job, saltmill::ConfigError> {
        let mut job = Job::builder(self.schema())
            .key(self.spec.keys.iter().map(|key| self.fields[*key].name().clone()))
            .workers(config.workers)
            .max_parallelism(config.max_parallelism)
            .batch_rows(config.batch_rows)
            .ring_capacity(config.ring_capacity);
        if let Some(time) = self.time {
            job = job.event_time(self.fields[time].name()).event_time_unit(TimeUnit::Second);
        }
        if let Some(windows) = &self.spec.windows {
            let duration = |units: i128| {
                Duration::from_nanos(u64::try_from(units).expect("small") * self.unit_nanos())
            };
            let offset = duration(windows.offset);
            job = job
                .window(match windows.kind {
                    Kind::Tumbling { size } => Window::Tumbling { size: duration(size), offset },
                    Kind::Hopping { size, slide } => {
                        Window::Hopping { size: duration(size), slide: duration(slide), offset }
                    }
                    Kind::Cumulate { step, max } => {
                        Window::Cumulate { step: duration(step), max: duration(max), offset }
                    }
                    Kind::Months { count, .. } => Window::Calendar {
                        unit: CalendarUnit::Month,
                        count: u32::try_from(count).expect("small"),
                        zone: Zone::UTC,
                    },
                    Kind::Session { gap } => Window::Session { gap: duration(gap) },
                })
                .out_of_orderness(duration(windows.out_of_orderness))
                .allowed_lateness(duration(windows.lateness));
        }
        job = job.aggregates(self.aggregates.iter().cloned());
        let skew = SKEW_MODES.iter().find(|(name, _)| *name == config.skew).expect("it is listed");
        if let Some(bytes) = config.memory {
            job = job.memory_limit(bytes);
        }
        skew.1(job.isa(config.isa), self).build()
    }

    /// The keys of the first `rows` rows, as known to be hot.
    fn hot_keys(&self, rows: usize) -> SkewMode {
        if self.spec.keys.is_empty() {
            return SkewMode::Off;
        }
        let mut columns = Vec::new();
        for key in &self.spec.keys {
            let values = self.inputs.iter().flat_map(|input| input.columns[*key].iter());
            let values = values.take(rows).cloned().collect::<Vec<_>>();
            let data_type = self.fields[*key].data_type();
            columns.push(build::array(data_type, &values, &mut Rng::new(3)));
        }
        let fields = self.spec.keys.iter().map(|key| self.fields[*key].clone());
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new(schema, columns).expect("keys of the schema");
        SkewMode::Hot(HotList::Rows(batch))
    }

    /// Everything about the case in one line.
    pub(crate) fn describe(&self) -> String {
        let mut text = String::from("columns=[");
        for field in &self.fields {
            let null = if field.is_nullable() { "?" } else { "" };
            let _ = write!(text, "{}:{}{null} ", field.name(), field.data_type());
        }
        let _ = write!(
            text,
            "] windows={:?} aggregates={:?} rows={:?} {}",
            self.spec.windows,
            self.aggregates.iter().map(ToString::to_string).collect::<Vec<_>>(),
            self.inputs.iter().map(|input| input.columns[0].len()).collect::<Vec<_>>(),
            self.made
        );
        text
    }
}
