//! A pane as columns: what a checkpoint keeps of it, and how it comes back.
//!
//! One row for each key, sorted by key group: the key group, the key columns, the words of the key's row, and for
//! each accumulator that keeps something beside its words, that as bytes. So a reader that wants some key
//! groups wants a slice, and any tool that reads Arrow can look inside. Neither index nor hashes are kept:
//! they follow from the keys.

use std::ops::{Range, RangeInclusive};
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, LargeBinaryArray, UInt16Array, UInt64Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, UInt16Type, UInt64Type};
use arrow::record_batch::{RecordBatch, RecordBatchOptions};

use super::{LOOKUP_ROWS, LOOKUP_STEP, Pane, Scratch};
use crate::aggregate::plan::Plan;
use crate::aggregate::{Damaged, Side, Unsaved};
use crate::kernel::Isa;
use crate::key::batch::KeyBatch;
use crate::key::encode::KeyEncoder;
use crate::key::group::key_group;

/// Name of the column of key groups.
pub(crate) const GROUP: &str = "key_group";

/// Rows are asked of memory so many before they are read.
const AHEAD: usize = 16;

/// How panes of one job are laid out as columns.
#[derive(Debug, Clone)]
pub(crate) struct ImageLayout {
    schema: SchemaRef,
    /// Reads the key columns back.
    keys: KeyEncoder,
    /// Words of a row behind the key.
    words: usize,
    /// For each accumulator with something beside its words, which one it is.
    sides: Vec<usize>,
    max_parallelism: u32,
}

impl ImageLayout {
    /// The layout for panes of these keys and this plan.
    pub(crate) fn new(keys: &KeyEncoder, plan: &Plan, max_parallelism: u32) -> Self {
        let mut fields = vec![Field::new(GROUP, DataType::UInt16, false)];
        let columns = 1..=keys.fields().len();
        fields.extend(keys.fields().iter().map(|field| {
            Field::new(format!("key:{}", field.name()), field.data_type().clone(), true)
        }));
        fields.extend(
            (0..plan.words).map(|word| Field::new(format!("word:{word}"), DataType::UInt64, false)),
        );
        let sides = (0..plan.accumulators.len())
            .filter(|i| !matches!(plan.accumulators[*i].accumulator.new_side(), Side::None))
            .collect::<Vec<_>>();
        fields.extend(sides.iter().map(|accumulator| {
            Field::new(format!("beside:{accumulator}"), DataType::LargeBinary, true)
        }));
        let schema = SchemaRef::new(Schema::new(fields));
        let keys = KeyEncoder::new(&schema, columns.collect()).expect("the types of keys");
        Self { schema, keys, words: plan.words, sides, max_parallelism }
    }

    /// The layout for the state of a process: the bytes of all keys of a key group.
    pub(crate) fn of_process(keys: &KeyEncoder, max_parallelism: u32) -> Self {
        let state = Field::new("process", DataType::LargeBinary, false);
        let schema = Schema::new(vec![Field::new(GROUP, DataType::UInt16, false), state]);
        let schema = SchemaRef::new(schema);
        Self { schema, keys: keys.clone(), words: 0, sides: Vec::new(), max_parallelism }
    }

    /// The columns.
    pub(crate) fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn group_of(&self, hash: u64) -> u16 {
        key_group(hash, self.max_parallelism)
    }

    fn words<'a>(&self, image: &'a RecordBatch) -> Vec<&'a [u64]> {
        let first = 1 + self.keys.fields().len();
        let columns = &image.columns()[first..first + self.words];
        columns.iter().map(|column| &column.as_primitive::<UInt64Type>().values()[..]).collect()
    }

    fn beside<'a>(
        &self,
        image: &'a RecordBatch,
        accumulator: usize,
    ) -> Option<&'a LargeBinaryArray> {
        let place = self.sides.iter().position(|side| *side == accumulator)?;
        Some(image.column(1 + self.keys.fields().len() + self.words + place).as_binary())
    }
}

/// The rows of an image, sorted by key group, that belong to these groups.
pub(crate) fn rows_of_groups(image: &RecordBatch, groups: &RangeInclusive<u16>) -> Range<usize> {
    let column = image.column(0).as_primitive::<UInt16Type>().values();
    let start = column.partition_point(|group| group < groups.start());
    start..column.partition_point(|group| group <= groups.end()).max(start)
}

impl Pane {
    /// All keys and states as columns of `layout`.
    ///
    /// # Errors
    /// If an accumulator's state cannot be saved.
    pub(crate) fn image(
        &mut self,
        plan: &Plan,
        layout: &ImageLayout,
        scratch: &mut Scratch,
    ) -> Result<RecordBatch, Unsaved> {
        let len = u32::try_from(self.len()).expect("row ids are 32 bits");
        self.table.export_keys(0..len, &mut scratch.keys);
        let groups = scratch.keys.hashes.iter().map(|hash| layout.group_of(*hash));
        let groups = groups.collect::<Vec<_>>();
        let order = by_group(&groups, layout.max_parallelism);
        let sorted = order.iter().map(|id| groups[*id as usize]).collect();
        self.image_of(plan, layout, (sorted, &order), scratch)
    }

    /// The keys and states of the rows `ids`, whose key groups are `groups`.
    fn image_of(
        &mut self,
        plan: &Plan,
        layout: &ImageLayout,
        (groups, ids): (Vec<u16>, &[u32]),
        scratch: &mut Scratch,
    ) -> Result<RecordBatch, Unsaved> {
        let mut columns: Vec<ArrayRef> = vec![Arc::new(UInt16Array::from(groups))];
        columns.extend(layout.keys.decode(&self.table.listed_keys(ids)));
        let width = self.table.width();
        let mut words = vec![Vec::with_capacity(ids.len()); layout.words];
        for (k, id) in ids.iter().enumerate() {
            if let Some(ahead) = ids.get(k + AHEAD) {
                self.table.prefetch_row(*ahead);
            }
            let row = &self.table.row(*id)[width..];
            for (column, word) in words.iter_mut().zip(row) {
                column.push(*word);
            }
        }
        columns.extend(words.into_iter().map(|word| Arc::new(UInt64Array::from(word)) as ArrayRef));
        scratch.ptrs.clear();
        scratch.ptrs.extend(ids.iter().map(|id| self.table.rows_mut().ptr(*id)));
        let rows = self.table.rows_mut().rows(&scratch.ptrs);
        for accumulator in &layout.sides {
            let placed = &plan.accumulators[*accumulator];
            let side = &self.sides[*accumulator];
            let saved = placed.accumulator.save(&rows, width + placed.offset, side)?;
            columns.push(Arc::new(saved.unwrap_or_else(|| LargeBinaryArray::new_null(ids.len()))));
        }
        let options = RecordBatchOptions::new().with_row_count(Some(ids.len()));
        let schema = Arc::clone(&layout.schema);
        Ok(RecordBatch::try_new_with_options(schema, columns, &options)
            .expect("columns of the layout's types, of one length"))
    }

    /// The least and the largest hash of a key, high halves only; none if the pane is empty.
    pub(crate) fn hash_halves(&self, scratch: &mut Scratch) -> Option<RangeInclusive<u32>> {
        let mut range: Option<(u32, u32)> = None;
        self.for_each_half(scratch, |half, _| {
            let (least, largest) = range.unwrap_or((half, half));
            range = Some((least.min(half), largest.max(half)));
        });
        range.map(|(least, largest)| least..=largest)
    }

    /// Lists the rows whose keys' hashes have their high halves in `halves`, in the order of these: each the half and,
    /// below it, the row's id. That is the order of key groups too, which are ranges of hashes.
    pub(crate) fn order_by_hash(
        &self,
        halves: &RangeInclusive<u32>,
        scratch: &mut Scratch,
        order: &mut Vec<u64>,
    ) {
        order.clear();
        self.for_each_half(scratch, |half, id| {
            if halves.contains(&half) {
                order.push((u64::from(half) << 32) | u64::from(id));
            }
        });
        order.sort_unstable();
    }

    fn for_each_half(&self, scratch: &mut Scratch, mut visit: impl FnMut(u32, u32)) {
        let len = u32::try_from(self.len()).expect("row ids are 32 bits");
        for start in (0..len).step_by(LOOKUP_ROWS) {
            let ids = start..(start + LOOKUP_STEP).min(len);
            self.table.export_keys(ids.clone(), &mut scratch.keys);
            for (id, hash) in ids.zip(&scratch.keys.hashes) {
                visit(half_of(*hash), id);
            }
        }
    }

    /// The image of rows that were listed by [`Pane::order_by_hash`].
    ///
    /// # Errors
    /// If an accumulator's state cannot be saved.
    pub(crate) fn image_of_listed(
        &mut self,
        plan: &Plan,
        layout: &ImageLayout,
        listed: &[u64],
        scratch: &mut Scratch,
    ) -> Result<RecordBatch, Unsaved> {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the id")]
        let ids = listed.iter().map(|entry| *entry as u32).collect::<Vec<_>>();
        let groups = listed.iter().map(|entry| layout.group_of(*entry)).collect();
        self.image_of(plan, layout, (groups, &ids), scratch)
    }

    /// Takes the keys and states of an image, or of a slice of one, into this pane, which has none of these keys: each
    /// key is in one shard, so the images of many shards go into one pane without being merged (which would not
    /// do for everything: a count of corrections belongs to a key, not to its rows).
    ///
    /// # Errors
    /// If that is not what [`Pane::image`] gives. What the pane holds then is of no use.
    pub(crate) fn restore(
        &mut self,
        plan: &Plan,
        layout: &ImageLayout,
        image: &RecordBatch,
        scratch: &mut Scratch,
    ) -> Result<(), Damaged> {
        let before = self.len();
        if image.schema_ref().fields() != layout.schema.fields() {
            return Err(damaged("other columns"));
        }
        for start in (0..image.num_rows()).step_by(LOOKUP_ROWS) {
            let rows = LOOKUP_ROWS.min(image.num_rows() - start);
            self.restore_piece(plan, layout, &image.slice(start, rows), scratch)?;
        }
        if self.len() != before + image.num_rows() {
            return Err(damaged("a key twice"));
        }
        Ok(())
    }

    /// The same, merged with what the pane holds of the same keys. `between` is an empty pane.
    ///
    /// # Errors
    /// As [`Pane::restore`].
    pub(crate) fn restore_merging(
        &mut self,
        plan: &Plan,
        layout: &ImageLayout,
        image: &RecordBatch,
        (between, scratch): (&mut Self, &mut Scratch),
    ) -> Result<(), Damaged> {
        for start in (0..image.num_rows()).step_by(LOOKUP_ROWS) {
            let rows = LOOKUP_ROWS.min(image.num_rows() - start);
            between.restore(plan, layout, &image.slice(start, rows), scratch)?;
            self.absorb(plan, between, scratch);
            between.clear();
        }
        Ok(())
    }

    fn restore_piece(
        &mut self,
        plan: &Plan,
        layout: &ImageLayout,
        image: &RecordBatch,
        scratch: &mut Scratch,
    ) -> Result<(), Damaged> {
        let mut keys = std::mem::take(&mut scratch.keys);
        let restored = keys_of(layout, image, plan.isa, &mut keys).and_then(|()| {
            self.restore_rows(plan, layout, (image, &keys, 0..image.num_rows()), scratch)
        });
        scratch.keys = keys;
        restored
    }

    /// Takes rows of an image in, at most [`LOOKUP_ROWS`], whose keys are given and none of which is in this pane.
    fn restore_rows(
        &mut self,
        plan: &Plan,
        layout: &ImageLayout,
        (image, keys, range): (&RecordBatch, &KeyBatch, Range<usize>),
        scratch: &mut Scratch,
    ) -> Result<(), Damaged> {
        scratch.selection.clear();
        scratch
            .selection
            .extend(range.clone().map(|row| u32::try_from(row).expect("a short image")));
        self.table.lookup(plan.isa, keys, &scratch.selection, &mut scratch.ptrs);
        self.table.rows_mut().begin(&scratch.ptrs);
        let width = self.table.width();
        let columns = layout.words(image);
        let mut rows = self.table.rows_mut().rows(&scratch.ptrs);
        rows.for_each(width, layout.words, |k, words| {
            for (word, column) in words.iter_mut().zip(&columns) {
                *word = column[range.start + k];
            }
        });
        for (i, (placed, side)) in plan.accumulators.iter().zip(&mut self.sides).enumerate() {
            let beside = layout.beside(image, i);
            let beside = beside.map(|beside| beside.slice(range.start, range.len()));
            let (one, offset) = (&placed.accumulator, width + placed.offset);
            one.restore(&mut rows, offset, side, beside.as_ref())?;
        }
        self.table.rows_mut().end();
        Ok(())
    }

    /// Takes rows of an image in and merges them with those here; `keys` are those of the image
    /// ([`keys_of`]). `between` is an empty pane, and is one again afterwards. If `are_new`, none of the keys is in
    /// this pane, which takes less time.
    ///
    /// # Errors
    /// As [`Pane::restore`].
    pub(crate) fn take_in(
        &mut self,
        plan: &Plan,
        layout: &ImageLayout,
        (image, keys, rows): (&RecordBatch, &KeyBatch, Range<usize>),
        (between, are_new): (&mut Self, bool),
        scratch: &mut Scratch,
    ) -> Result<(), Damaged> {
        for start in rows.clone().step_by(LOOKUP_ROWS) {
            let piece = start..(start + LOOKUP_ROWS).min(rows.end);
            if are_new {
                self.restore_rows(plan, layout, (image, keys, piece), scratch)?;
            } else {
                between.restore_rows(plan, layout, (image, keys, piece), scratch)?;
                self.absorb(plan, between, scratch);
                between.clear();
            }
        }
        Ok(())
    }
}

/// The half of a hash that decides on the key group.
pub(crate) fn half_of(hash: u64) -> u32 {
    u32::try_from(hash >> 32).expect("the high half")
}

fn damaged(found: impl Into<String>) -> Damaged {
    Damaged {
        row: None,
        expected: "keys of a pane, each once, in their groups".to_owned(),
        found: found.into(),
    }
}

/// The keys of an image, hashed.
///
/// # Errors
/// If they are not those that its key groups are of.
pub(crate) fn keys_of(
    layout: &ImageLayout,
    image: &RecordBatch,
    isa: Isa,
    out: &mut KeyBatch,
) -> Result<(), Damaged> {
    layout.keys.encode(image, out).map_err(|e| damaged(e.to_string()))?;
    out.hash_all(isa);
    let groups = image.column(0).as_primitive::<UInt16Type>().values();
    if !out.hashes.iter().map(|hash| layout.group_of(*hash)).eq(groups.iter().copied()) {
        return Err(damaged("a key in another group"));
    }
    Ok(())
}

/// The ids `0 .. groups.len()`, sorted by their key group: a counting sort.
fn by_group(groups: &[u16], max_parallelism: u32) -> Vec<u32> {
    let mut next = vec![0_u32; max_parallelism as usize + 1];
    for group in groups {
        next[usize::from(*group) + 1] += 1;
    }
    for group in 1..next.len() {
        next[group] += next[group - 1];
    }
    let mut order = vec![0; groups.len()];
    for (id, group) in (0..).zip(groups) {
        let place = &mut next[usize::from(*group)];
        order[*place as usize] = id;
        *place += 1;
    }
    order
}
