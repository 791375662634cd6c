//! Aggregates over batches of several columns, through the panes that shards use, by the test kit.

use arrow::array::ArrayRef;
use arrow::record_batch::RecordBatch;

use crate::aggregate::spec::Aggregate;
use crate::aggregate::testkit::Kit;

/// Checks that any split and merge gives the same, and returns it: keys, ascending, and results.
pub(super) fn same_however(
    aggregates: &[Aggregate],
    batch: &RecordBatch,
    seed: u64,
) -> Result<Vec<ArrayRef>, String> {
    let rig = Kit::new(aggregates, batch).unwrap_or_else(|error| panic!("{error}"));
    let expected = rig.emit(&mut rig.one_by_one(batch));
    for seed in [seed, seed.wrapping_add(1)] {
        let mut merged = rig.split_and_merged(batch, seed);
        let found = rig.emit(&mut merged);
        assert_eq!(found, expected, "{aggregates:?}");
        assert_eq!(rig.emit(&mut merged), expected, "to emit changes nothing");
        merged.clear();
        assert_eq!(merged.len(), 0);
    }
    expected
}
