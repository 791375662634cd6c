//! Rows from a seed: keys from a pool with a given skew, times with disorder, values tame and wild.

use arrow::datatypes::{
    ArrowPrimitiveType, DataType, Field, Float16Type, IntervalUnit, TimeUnit, i256,
};

use crate::oracle::rng::Rng;
use crate::oracle::value::{Value, plain_type};
use crate::oracle::{Input, Spec, Step, Windows, limits};

type Half = <Float16Type as ArrowPrimitiveType>::Native;

fn dictionary(keys: DataType, values: DataType) -> DataType {
    DataType::Dictionary(Box::new(keys), Box::new(values))
}

/// Every type of key, in every form.
pub(crate) const KEY_TYPES: &[fn() -> DataType] = &[
    || DataType::Boolean,
    || DataType::Int8,
    || DataType::Int16,
    || DataType::Int32,
    || DataType::Int64,
    || DataType::Int64,
    || DataType::UInt8,
    || DataType::UInt16,
    || DataType::UInt32,
    || DataType::UInt64,
    || DataType::Float16,
    || DataType::Float32,
    || DataType::Float64,
    || DataType::Decimal32(9, 2),
    || DataType::Decimal64(18, 3),
    || DataType::Decimal128(38, 4),
    || DataType::Decimal128(5, -2),
    || DataType::Decimal256(76, 5),
    || DataType::Date32,
    || DataType::Date64,
    || DataType::Time32(TimeUnit::Second),
    || DataType::Time32(TimeUnit::Millisecond),
    || DataType::Time64(TimeUnit::Microsecond),
    || DataType::Time64(TimeUnit::Nanosecond),
    || DataType::Timestamp(TimeUnit::Second, None),
    || DataType::Timestamp(TimeUnit::Millisecond, Some("+05:30".into())),
    || DataType::Timestamp(TimeUnit::Microsecond, Some("Europe/Berlin".into())),
    || DataType::Timestamp(TimeUnit::Nanosecond, None),
    || DataType::Duration(TimeUnit::Millisecond),
    || DataType::Utf8,
    || DataType::Utf8,
    || DataType::LargeUtf8,
    || DataType::Utf8View,
    || DataType::Binary,
    || DataType::LargeBinary,
    || DataType::BinaryView,
    || DataType::FixedSizeBinary(5),
    || DataType::FixedSizeBinary(20),
    || dictionary(DataType::Int32, DataType::Utf8),
    || dictionary(DataType::UInt16, DataType::LargeUtf8),
    || dictionary(DataType::Int64, DataType::Utf8View),
    || dictionary(DataType::Int32, DataType::Binary),
    || dictionary(DataType::Int32, DataType::Int64),
    || dictionary(DataType::UInt16, DataType::Float64),
    || dictionary(DataType::Int32, DataType::Decimal128(20, 2)),
];

/// Every type of value, with floats and integers more often.
pub(crate) const VALUE_TYPES: &[fn() -> DataType] = &[
    || DataType::Boolean,
    || DataType::Int8,
    || DataType::Int16,
    || DataType::Int32,
    || DataType::Int64,
    || DataType::Int64,
    || DataType::Int64,
    || DataType::UInt8,
    || DataType::UInt16,
    || DataType::UInt32,
    || DataType::UInt64,
    || DataType::UInt64,
    || DataType::Float16,
    || DataType::Float32,
    || DataType::Float64,
    || DataType::Float64,
    || DataType::Float64,
    || DataType::Decimal32(9, 2),
    || DataType::Decimal64(18, 3),
    || DataType::Decimal128(38, 4),
    || DataType::Decimal128(10, 0),
    || DataType::Decimal128(38, 37),
    || DataType::Decimal256(76, 5),
    || DataType::Decimal256(40, -3),
    || DataType::Date32,
    || DataType::Date64,
    || DataType::Time32(TimeUnit::Millisecond),
    || DataType::Time64(TimeUnit::Nanosecond),
    || DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
    || DataType::Duration(TimeUnit::Nanosecond),
    || DataType::Utf8,
    || DataType::LargeUtf8,
    || DataType::Utf8View,
    || DataType::Binary,
    || DataType::FixedSizeBinary(3),
    || dictionary(DataType::Int32, DataType::Utf8),
    || dictionary(DataType::Int32, DataType::Int64),
    || dictionary(DataType::UInt16, DataType::Float64),
];

/// Makes the rows of a case.
#[derive(Debug)]
pub(crate) struct Maker {
    types: Vec<DataType>,
    nullable: Vec<bool>,
    keys: usize,
    time: Option<usize>,
    window_size: i128,
    /// For each key column, the values that occur.
    pools: Vec<Vec<Value>>,
    skew: Skew,
    wild: bool,
    disorder: i128,
    first_time: i128,
}

#[derive(Debug, Clone, Copy)]
enum Skew {
    Uniform,
    /// Few keys take most.
    Steep,
    /// This percentage on one key.
    Hot(usize),
}

impl Maker {
    pub(crate) fn new(rng: &mut Rng, fields: &[Field], spec: &Spec, time: Option<usize>) -> Self {
        let cardinality = *rng.pick(&[1, 2, 10, 100, 1000]);
        let null_hot = rng.percent(30);
        let pools = spec.keys.iter().map(|key| {
            let field = &fields[*key];
            let keys = 0..rng.within(1..cardinality + 1);
            let mut pool = keys.map(|_| value(field.data_type(), true, rng)).collect::<Vec<_>>();
            if field.is_nullable() && null_hot {
                pool[0] = Value::Null;
            }
            pool
        });
        let pools = pools.collect();
        let window_size = spec.windows.as_ref().map_or(10, Windows::size);
        let (least, largest) = time.map_or((0, 0), |time| limits(fields[time].data_type()));
        let middle = i128::from(rng.next() >> 24) * 1000;
        let first_time =
            *rng.pick(&[0, 0, -100 * window_size, least, largest - 5 * window_size, middle]);
        Self {
            types: spec.types.clone(),
            nullable: fields.iter().map(Field::is_nullable).collect(),
            keys: spec.keys.len(),
            time,
            window_size,
            pools,
            skew: match rng.below(4) {
                0 => Skew::Uniform,
                1 => Skew::Steep,
                2 => Skew::Hot(80),
                _ => Skew::Hot(99),
            },
            wild: rng.percent(40),
            disorder: *rng.pick(&[0, 1, window_size, 20 * window_size]),
            first_time,
        }
    }

    pub(crate) fn describe(&self) -> String {
        format!(
            "skew={:?} wild={} disorder={} first_time={}",
            self.skew, self.wild, self.disorder, self.first_time
        )
    }

    /// An input of up to `rows_max` rows.
    pub(crate) fn input(&mut self, rng: &mut Rng, rows_max: usize, watermarks: bool) -> Input {
        let rows = match rng.below(8) {
            0 => 0,
            1 => 1,
            _ => rng.below(rows_max),
        };
        let mut columns = vec![Vec::with_capacity(rows); self.types.len()];
        for row in 0..rows {
            let choice = self.choose_key(rng);
            for (column, values) in columns.iter_mut().enumerate() {
                let made = if column < self.keys {
                    let pool = &self.pools[column];
                    pool[choice.wrapping_mul(column + 1) % pool.len()].clone()
                } else if Some(column) == self.time {
                    self.time(column, row, rng)
                } else {
                    value(&self.types[column], self.wild, rng)
                };
                let null = self.nullable[column] && rng.percent(8);
                values.push(if null { Value::Null } else { made });
            }
        }
        let steps = self.steps(rng, rows, watermarks);
        Input { columns, steps }
    }

    fn choose_key(&self, rng: &mut Rng) -> usize {
        match self.skew {
            Skew::Uniform => rng.below(1 << 16),
            Skew::Steep => {
                let reach = rng.below(1000);
                let reach = rng.below(reach + 1);
                rng.below(reach + 1)
            }
            Skew::Hot(percent) if rng.percent(percent) => 0,
            Skew::Hot(_) => rng.below(1 << 16),
        }
    }

    fn time(&self, column: usize, row: usize, rng: &mut Rng) -> Value {
        let (least, largest) = limits(&self.types[column]);
        if rng.below(400) == 0 {
            return Value::Int(*rng.pick(&[least, largest, least + 1, largest - 1]));
        }
        let span = usize::try_from(self.disorder).expect("small") + 1;
        let jitter = i128::try_from(rng.below(span)).expect("small");
        let progress = i128::try_from(row).expect("small") * self.window_size / 20;
        Value::Int((self.first_time + progress - jitter).clamp(least, largest))
    }

    /// Cuts `rows` into batches, some empty.
    fn steps(&self, rng: &mut Rng, rows: usize, watermarks: bool) -> Vec<Step> {
        let longest = *rng.pick(&[1, 7, 64, 300, 5000]);
        let mut steps = Vec::new();
        let mut start = 0;
        while start < rows {
            let end = rows.min(start + rng.below(longest + 1));
            steps.push(Step::Push(start..end));
            start = end;
            if watermarks && rng.percent(15) {
                let reached = i128::try_from(start).expect("small") * self.window_size / 20;
                let ahead = i128::try_from(rng.below(40)).expect("small") - 20;
                let time = self.first_time + reached + ahead;
                steps.push(Step::Watermark(i64::try_from(time).unwrap_or(i64::MIN)));
            }
        }
        steps
    }
}

/// A value of `data_type`, not null; wild ones include all that is odd about the type.
pub(crate) fn value(data_type: &DataType, wild: bool, rng: &mut Rng) -> Value {
    let data_type = plain_type(data_type);
    match data_type {
        DataType::Boolean => Value::Bool(rng.percent(50)),
        DataType::Float16 | DataType::Float32 | DataType::Float64 => float(data_type, wild, rng),
        DataType::Decimal32(digits, _)
        | DataType::Decimal64(digits, _)
        | DataType::Decimal128(digits, _)
        | DataType::Decimal256(digits, _) => decimal(u32::from(*digits), wild, rng),
        DataType::Time32(_) | DataType::Time64(_) => {
            Value::Int(i128::try_from(rng.below(60_000)).expect("small"))
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            Value::Bytes(text(rng).into_bytes())
        }
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            let mut bytes = text(rng).into_bytes();
            if rng.percent(30) {
                bytes.push(0xff);
            }
            Value::Bytes(bytes)
        }
        DataType::FixedSizeBinary(width) => {
            Value::Bytes((0..*width).map(|_| *rng.pick(&[0, 1, 0x61, 0xff])).collect())
        }
        DataType::Interval(IntervalUnit::YearMonth) => unreachable!("not in the lattice"),
        whole => int(whole, wild, rng),
    }
}

fn int(data_type: &DataType, wild: bool, rng: &mut Rng) -> Value {
    let (least, largest) = limits(data_type);
    let small = i128::try_from(rng.below(200)).expect("small") - 100;
    Value::Int(
        match rng.below(if wild { 8 } else { 1 }) {
            1 => least,
            2 => largest,
            3 => *rng.pick(&[-1, 0, 1]),
            4 => i128::from(rng.next().cast_signed()),
            5 => i128::from(rng.next()) << 1 & 0xffff_ffff,
            _ => small,
        }
        .clamp(least, largest),
    )
}

fn float(data_type: &DataType, wild: bool, rng: &mut Rng) -> Value {
    let odd = [
        f64::NAN,
        -f64::NAN,
        f64::from_bits(0x7ff8_0000_2000_0000),
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        f64::MAX,
        f64::MIN_POSITIVE,
        5e-324,
        f64::MIN,
        1e16,
        1.0,
        -1e16,
        f64::EPSILON,
    ];
    #[expect(clippy::cast_precision_loss, reason = "small")]
    let tame = rng.below(100_000) as f64 / 100.0 - 500.0;
    let value = match rng.below(if wild { 4 } else { 1 }) {
        1 => *rng.pick(&odd),
        2 => f64::from_bits(rng.next()),
        _ => tame,
    };
    #[expect(clippy::cast_possible_truncation, reason = "a value of the narrower type is wanted")]
    let value = match data_type {
        DataType::Float16 => f64::from(Half::from_f64(value)),
        DataType::Float32 => f64::from(value as f32),
        _ => value,
    };
    Value::Float(value.to_bits())
}

fn decimal(digits: u32, wild: bool, rng: &mut Rng) -> Value {
    let ten = i256::from_i128(10);
    let largest = ten.wrapping_pow(digits).wrapping_sub(i256::ONE);
    let small = i256::from_i128(i128::try_from(rng.below(20_000)).expect("small") - 10_000);
    let random = i256::from_parts(
        u128::from(rng.next()) << 64 | u128::from(rng.next()),
        i128::from(rng.next().cast_signed()) << 60,
    );
    Value::Decimal(match rng.below(if wild { 6 } else { 1 }) {
        1 => largest,
        2 => largest.wrapping_neg(),
        3 => random % largest,
        4 => i256::ZERO,
        _ => small,
    })
}

/// Text of lengths around the limits of inline storage, with common prefixes and zeros inside.
fn text(rng: &mut Rng) -> String {
    let len = *rng.pick(&[0, 1, 2, 3, 4, 5, 8, 11, 12, 13, 16, 17, 40, 300]);
    let alphabet = *rng.pick(&[&["a", "\0"][..], &["a", "b", ":", "\u{e4}", "\u{1f9c2}"][..]]);
    let mut text = String::new();
    let prefix = rng.below(len + 1);
    while text.len() < len {
        text.push_str(if text.len() < prefix { "p" } else { rng.pick::<&str>(alphabet) });
    }
    text
}
