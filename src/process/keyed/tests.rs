//! State of keys: moved by key group, cleared, and its slots used again.

use arrow::array::{AsArray, Int64Array, StringArray};
use arrow::datatypes::{DataType, Int64Type};

use super::*;
use crate::kernel::Isa;
use crate::state::pane::image::{ImageLayout, rows_of_groups};

/// Sums, and gives the sum when its timer fires.
#[derive(Debug)]
struct Sums;

impl KeyedProcess for Sums {
    type State = (i64, Vec<i64>);

    fn output(&self) -> Vec<Field> {
        vec![Field::new("sum", DataType::Int64, false)]
    }

    fn on_rows(
        &self,
        _: &Key<'_>,
        rows: &KeyRows<'_>,
        state: &mut Self::State,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        let values = rows.column("v").as_primitive::<Int64Type>();
        for row in rows.rows() {
            state.0 += values.value(row);
            state.1.push(values.value(row));
            ctx.set_timer(100 + values.value(row) % 3);
        }
        Ok(())
    }

    fn on_timer(
        &self,
        _: &Key<'_>,
        timer: Timer,
        state: &mut Self::State,
        ctx: &mut Context<'_>,
    ) -> Result<(), ProcessError> {
        ctx.emit((state.0 * 1000 + timer.time,))?;
        if timer.time == 102 {
            ctx.clear();
        }
        Ok(())
    }
}

fn batch(keys: &[Option<&str>], from: i64) -> RecordBatch {
    let values = (from..).take(keys.len()).collect::<Int64Array>();
    let keys: ArrayRef = Arc::new(StringArray::from(keys.to_vec()));
    let columns = [("k", keys, true), ("v", Arc::new(values) as ArrayRef, true)];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

fn setting(batch: &RecordBatch) -> Setting {
    let encoder = KeyEncoder::new(batch.schema_ref(), vec![0]).unwrap();
    let mut fields = encoder.fields().to_vec();
    fields.extend(Sums.output());
    Setting { encoder, max_parallelism: 16, output_schema: Arc::new(Schema::new(fields)) }
}

fn push(shard: &mut KeyedShard<Sums>, batch: &RecordBatch) {
    let mut keys = KeyBatch::default();
    shard.setting.encoder.encode(batch, &mut keys).unwrap();
    keys.hash_all(Isa::PORTABLE);
    let selection = (0..u32::try_from(batch.num_rows()).unwrap()).collect::<Vec<_>>();
    let taken = Taken { batch, keys: &keys, selection: &selection };
    shard.rows(taken, 0, &mut |_| panic!("nothing is given for rows")).unwrap();
}

fn fired(shards: &mut [KeyedShard<Sums>], watermark: i64) -> Vec<(Option<String>, i64)> {
    let mut rows = Vec::new();
    for shard in shards {
        shard
            .advance(watermark, &mut |batch| {
                let sums = batch.column(1).as_primitive::<Int64Type>();
                let keys = batch.column(0).as_string::<i32>();
                rows.extend(
                    keys.iter().map(|key| key.map(str::to_owned)).zip(sums.values().to_vec()),
                );
                Ok(())
            })
            .unwrap();
    }
    rows.sort();
    rows
}

#[test]
fn state_and_timers_move_by_key_group() {
    let long = "a key that is longer than twelve bytes";
    let keys = [Some("a"), None, Some(long), Some("b"), Some("a"), Some(""), Some("a"), None];
    let batches = [batch(&keys, 0), batch(&keys[..5], 100)];
    let setting = setting(&batches[0]);
    let new = || KeyedShard::new(Arc::new(Sums), setting.clone());
    let mut one = [new()];
    batches.iter().for_each(|batch| push(&mut one[0], batch));
    assert_eq!(one[0].len(), 5);
    // Two shards, then three, from the same bytes.
    let mut three = [new(), new(), new()];
    let layout = ImageLayout::of_process(&setting.encoder, setting.max_parallelism);
    let image = one[0].image(layout.schema());
    for (groups, into) in [(0..=4, 0), (5..=9, 1), (10..=15, 2)] {
        let rows = rows_of_groups(&image, &groups);
        let part = image.slice(rows.start, rows.len());
        three[into].restore(&part).unwrap();
        assert!(part.num_rows() == 0 || three[into].restore(&part).is_err(), "keys come once");
    }
    assert_eq!(three.iter().map(AtShard::len).sum::<usize>(), 5);
    let early = fired(&mut one, 100);
    assert!(!early.is_empty());
    assert_eq!(fired(&mut three, 100), early);
    let rest = fired(&mut one, 1000);
    assert!(!rest.is_empty());
    assert_eq!(fired(&mut three, 1000), rest);
    assert_eq!(three.iter().map(AtShard::len).sum::<usize>(), one[0].len());
    assert!(one[0].len() < 5, "some keys have cleared themselves");
}

#[test]
fn a_cleared_key_begins_anew_in_a_slot_used_again() {
    let rows = batch(&[Some("a"), Some("a")], 1);
    let setting = setting(&rows);
    let mut shard = [KeyedShard::new(Arc::new(Sums), setting)];
    for _ in 0..3 {
        push(&mut shard[0], &rows);
        assert_eq!(
            fired(&mut shard, 200),
            [(Some("a".to_owned()), 3101), (Some("a".to_owned()), 3102)]
        );
        assert_eq!((shard[0].len(), shard[0].slots.len()), (0, 1));
    }
}
