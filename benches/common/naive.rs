//! The same results by the plainest program: one map from (window, key). What benches check against.

use hashbrown::HashMap;
use saltmill::arrow::array::{ArrayRef, AsArray};
use saltmill::arrow::datatypes::{Int64Type, TimestampMillisecondType};
use saltmill::arrow::record_batch::RecordBatch;

/// Count, sum, least, largest.
type State = (i64, i64, i64, i64);

/// A number that depends on every result of count, sum, min and max by key and window, but not on the
/// order of results.
pub fn digest(batches: &[RecordBatch], window_ms: i64) -> u64 {
    let mut states: HashMap<(i64, Vec<u8>), State> = HashMap::new();
    for batch in batches {
        let times = batch.column_by_name("ts").expect("a generated stream");
        let times = times.as_primitive::<TimestampMillisecondType>().values();
        let values = batch.column_by_name("value").expect("a generated stream");
        let values = values.as_primitive::<Int64Type>().values();
        let keys = batch.column_by_name("key").expect("a generated stream");
        for (row, (&time, &value)) in times.iter().zip(values).enumerate() {
            let key = (time.div_euclid(window_ms) * window_ms, key_bytes(keys, row));
            let state = states.entry(key).or_insert((0, 0, i64::MAX, i64::MIN));
            *state = (state.0 + 1, state.1 + value, state.2.min(value), state.3.max(value));
        }
    }
    states.iter().fold(0, |sum, ((window, key), (count, total, min, max))| {
        sum.wrapping_add(mix(*window, key, [*count, *total, *min, *max]))
    })
}

/// The same of the engine's results: window bounds, key, then the four aggregates.
pub fn digest_of_results(results: &[RecordBatch]) -> u64 {
    let mut sum = 0_u64;
    for batch in results {
        let starts = batch.column(0).as_primitive::<TimestampMillisecondType>().values();
        let keys = batch.column(2);
        let column = |i: usize| batch.column(i).as_primitive::<Int64Type>().values();
        let (counts, totals, mins, maxs) = (column(3), column(4), column(5), column(6));
        for row in 0..batch.num_rows() {
            let aggregates = [counts[row], totals[row], mins[row], maxs[row]];
            sum = sum.wrapping_add(mix(starts[row], &key_bytes(keys, row), aggregates));
        }
    }
    sum
}

fn key_bytes(keys: &ArrayRef, row: usize) -> Vec<u8> {
    match keys.as_primitive_opt::<Int64Type>() {
        Some(numbers) => numbers.value(row).to_le_bytes().to_vec(),
        None => keys.as_string::<i32>().value(row).as_bytes().to_vec(),
    }
}

fn mix(window: i64, key: &[u8], aggregates: [i64; 4]) -> u64 {
    let mut hash = 0x9E37_79B9_7F4A_7C15_u64 ^ window.cast_unsigned();
    let words = key.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    for word in words.chain(aggregates.map(i64::cast_unsigned)) {
        hash = (hash ^ word).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        hash ^= hash >> 32;
    }
    hash
}
