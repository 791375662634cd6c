//! Every aggregate that the library has, over {no skew, a hot key with 80 % of the rows, a hot NULL key} x
//! {1, 2, 7 workers} x {no window, tumbling, hopping, session}, against the oracle: to the bit, sketches
//! within their error; and each against one worker that treats no key apart, to the bit, sketches too.
//!
//! `SALTMILL_SEEDS=N` sets how many seeds are tried, `SALTMILL_SEED=N` repeats one.

#[expect(dead_code, reason = "the lattice has more than this needs")]
mod lattice;
#[expect(dead_code, reason = "the oracle has more than this needs")]
mod oracle;

use std::sync::Mutex;
use std::thread;

use arrow::datatypes::{DataType, Field, TimeUnit};
use saltmill::Aggregate;
use saltmill::aggregate::Function;
use saltmill::kernel::Isa;

use lattice::{Case, Config, Feed, asks, feed, rows};
use oracle::rng::Rng;
use oracle::value::Value;
use oracle::{Ask, Func, Input, Kind, Spec, Step, Windows};

const SEEDS_DEFAULT: u64 = 300;

/// Which keys the rows have.
#[derive(Debug, Clone, Copy)]
enum Skew {
    None,
    HotKey,
    HotNull,
}

const SKEWS: [Skew; 3] = [Skew::None, Skew::HotKey, Skew::HotNull];
const WORKERS: [usize; 3] = [1, 2, 7];
const KINDS: [Option<Kind>; 4] = [
    None,
    Some(Kind::Tumbling { size: 50 }),
    Some(Kind::Hopping { size: 50, slide: 20 }),
    Some(Kind::Session { gap: 4 }),
];

/// Keys, the time, and values of every family of types.
fn fields(rng: &mut Rng) -> Vec<Field> {
    let keys = [
        DataType::Int64,
        DataType::Utf8,
        DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8)),
        DataType::Decimal128(38, 4),
    ];
    let mut fields = vec![
        Field::new("k", rng.pick(&keys).clone(), true),
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
    ];
    let values = [
        DataType::Int64,
        DataType::UInt32,
        DataType::Float64,
        DataType::Float32,
        DataType::Decimal128(20, 2),
        DataType::Utf8,
        DataType::Boolean,
    ];
    for (i, data_type) in values.into_iter().enumerate() {
        fields.push(Field::new(format!("v{i}"), data_type, rng.percent(70)));
    }
    fields
}

/// Each function once, over a column that it is defined for.
fn every_function(fields: &[Field], rng: &mut Rng) -> (Vec<Aggregate>, Vec<Ask>) {
    let values = (2..fields.len()).collect::<Vec<_>>();
    let columns = asks::Columns { fields, values: &values, time: Some(1) };
    let mut asked = vec![(Aggregate::count(), Ask::new(Func::Rows, []))];
    for function in Function::all() {
        let first = rng.below(values.len());
        let around = (0..values.len()).map(|i| values[(first + i) % values.len()]);
        let mut found = around.filter_map(|column| columns.ask(*function, column, rng));
        asked.push(found.next().unwrap_or_else(|| panic!("no column suits {function}")));
    }
    let named = asked.into_iter().enumerate();
    named.map(|(i, (aggregate, ask))| (aggregate.alias(format!("a{i}")), ask)).unzip()
}

/// The rows of one input, cut into batches.
fn input(skew: Skew, fields: &[Field], pool: &[Value], rows: usize, rng: &mut Rng) -> Input {
    let mut columns = vec![Vec::with_capacity(rows); fields.len()];
    for row in 0..rows {
        // The lattice takes the first row's key to be hot.
        let hot = row == 0 || rng.percent(80);
        let other = pool[rng.below(pool.len())].clone();
        columns[0].push(match skew {
            Skew::HotKey if hot => pool[0].clone(),
            Skew::HotNull if hot => Value::Null,
            _ => other,
        });
        let time = row * 2 + 20 - rng.below(20);
        columns[1].push(Value::Int(i128::try_from(time).expect("small")));
        for (column, field) in fields.iter().enumerate().skip(2) {
            let null = field.is_nullable() && rng.percent(10);
            // The odd ones of floats, but no sums that do not fit.
            let wild = field.data_type().is_floating() && rng.percent(5);
            let value = rows::value(field.data_type(), wild, rng);
            columns[column].push(if null { Value::Null } else { value });
        }
    }
    let mut steps = Vec::new();
    let mut start = 0;
    while start < rows {
        let end = rows.min(start + 1 + rng.below(100));
        steps.push(Step::Push(start..end));
        start = end;
    }
    Input { columns, steps }
}

fn case(skew: Skew, kind: Option<Kind>, rng: &mut Rng, rows: usize) -> Case {
    let fields = fields(rng);
    let (aggregates, asks) = every_function(&fields, rng);
    let windows = kind.map(|kind| Windows {
        column: 1,
        kind,
        offset: 0,
        // Some rows are late, or none.
        out_of_orderness: *rng.pick(&[5, 20]),
        lateness: 0,
    });
    let types = fields.iter().map(|field| field.data_type().clone()).collect();
    let spec = Spec { types, keys: vec![0], windows, aggregates: asks };
    let pool = (0..15).map(|_| rows::value(fields[0].data_type(), false, rng)).collect::<Vec<_>>();
    let inputs = (0..rng.within(1..3)).map(|_| input(skew, &fields, &pool, rows, rng)).collect();
    Case {
        fields,
        spec,
        aggregates,
        time: Some(1),
        inputs,
        explicit_watermarks: false,
        made: format!("{skew:?}"),
    }
}

/// A way to run `case`, with the hot key treated in one of the ways there are.
fn config(skew: Skew, workers: usize, case: &Case, rng: &mut Rng) -> Config {
    let modes: &[&'static str] = match skew {
        Skew::None => &["off", "adaptive", "two-phase"],
        Skew::HotKey | Skew::HotNull => &["hot", "hot:1", "hot:3", "hot:64", "two-phase:50"],
    };
    let all = Config::random(rng, case);
    Config {
        workers,
        batch_rows: *rng.pick(&[7, 100, 4096]),
        skew: rng.pick::<&'static str>(modes),
        // What the differential test is for, now and then here, too: files and threads take most of the time.
        memory: all.memory.filter(|_| rng.percent(15)),
        rescale: all.rescale.filter(|_| rng.percent(15)),
        ..all
    }
}

/// Runs one seed through all of it. Adds up the rows of runs with keys that are said to be hot, and those
/// of them that were aggregated as hot ones.
fn try_seed(seed: u64, hot: &mut (u64, u64)) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    // Now and then enough for sketches that are no longer exact.
    let rows = if seed.is_multiple_of(32) { 600 } else { 60 };
    for skew in SKEWS {
        for kind in KINDS {
            let case = case(skew, kind, &mut rng, rows);
            let expected = oracle::expect(&case.spec, &case.inputs);
            assert!(expected.rows.is_some(), "nothing is too large: {}", case.describe());
            let alone = Config {
                workers: 1,
                max_parallelism: 128,
                batch_rows: 4096,
                ring_capacity: 64,
                feed: Feed::Threads,
                side_outputs: false,
                skew: "off",
                isa: Isa::PORTABLE,
                memory: None,
                rescale: None,
            };
            let mut run = |config: &Config| {
                let ran = feed::run(&case, config);
                if let (Ok((report, _)), true) = (&ran, config.skew.starts_with("hot")) {
                    hot.0 += report.rows_aggregated;
                    hot.1 += report.rows_hot_at_producers;
                }
                feed::compare(&case, &expected, ran).map_err(|why| {
                    format!("SALTMILL_SEED={seed}: {why} | {config:?} | {}", case.describe())
                })
            };
            let alone = run(&alone)?.expect("rows");
            for workers in WORKERS {
                let config = config(skew, workers, &case, &mut rng);
                let rows = run(&config)?.expect("rows");
                if let Some(difference) = feed::first_difference(&rows, &alone) {
                    let case = case.describe();
                    return Err(format!(
                        "SALTMILL_SEED={seed}: {difference} | {config:?} | {case}"
                    ));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn every_aggregate_equals_the_oracle_under_any_skew_workers_and_windows() {
    let number = |name| std::env::var(name).ok().and_then(|text: String| text.parse().ok());
    let seeds = match number("SALTMILL_SEED") {
        Some(seed) => seed..seed + 1,
        None => 0..number("SALTMILL_SEEDS").unwrap_or(SEEDS_DEFAULT),
    };
    let count = seeds.clone().count();
    // Engines wait for their threads much of the time, so two go on side by side.
    let seeds = Mutex::new(seeds);
    let some = || {
        let (mut hot, mut failures) = ((0, 0), Vec::new());
        loop {
            let Some(seed) = seeds.lock().unwrap().next() else { return (hot, failures) };
            failures.extend(try_seed(seed, &mut hot).err());
        }
    };
    let [first, second] = thread::scope(|scope| {
        [scope.spawn(some), scope.spawn(some)].map(|half| half.join().expect("no panic"))
    });
    let failures = [first.1, second.1].concat();
    assert!(failures.is_empty(), "{} of {count} seeds:\n{}", failures.len(), failures.join("\n"));
    let (rows, rows_hot) = (first.0.0 + second.0.0, first.0.1 + second.0.1);
    assert!(rows_hot > rows / 2, "of {rows} rows only {rows_hot} were aggregated as hot ones");
}
