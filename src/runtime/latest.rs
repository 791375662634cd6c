//! The newest result of each key, for whoever asks.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex};

use arrow::array::{Array, ArrayRef, AsArray, Float32Array, Float64Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Float32Type, Float64Type, Int64Type, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use arrow::row::{RowConverter, SortField};
use hashbrown::DefaultHashBuilder;
use hashbrown::HashTable;

use super::sink::{Sink, lock};
use crate::append::columns::Columns;
use crate::append::row::{Row, RowError};
use crate::config::Job;
use crate::error::SinkError;

/// A sink that keeps the newest result of each key, which any thread may ask for while the engine runs.
///
/// Newest is the one of the latest window, and of the same window the one given last: early results
/// ([`JobBuilder::emit_every`](crate::JobBuilder::emit_every)) are replaced by later ones, corrected results replace
/// what they correct. In a job without windows results come at the end, or early. Costs memory for each
/// key that ever had a result. To see the state as it is between results use
/// [`Engine::snapshot`](crate::Engine::snapshot).
///
/// ```
/// # use std::sync::Arc;
/// # use saltmill::arrow::array::AsArray;
/// # use saltmill::arrow::datatypes::{DataType, Field, Int64Type, Schema};
/// # use saltmill::{Aggregate, Engine, Job, Latest};
/// # let schema = Schema::new(vec![Field::new("user", DataType::Utf8, false)]);
/// let job = Job::builder(Arc::new(schema)).key(["user"]).aggregate(Aggregate::count()).build()?;
/// let latest = Latest::new(&job);
/// let engine = Engine::start(job, latest.clone())?;
/// let mut appender = engine.ingest()?.appender()?;
/// appender.append(("ann",))?;
/// appender.append(("ann",))?;
/// appender.close()?;
/// engine.finish()?;
/// let row = latest.get(("ann",))?.expect("ann was seen");
/// assert_eq!(row.column_by_name("count").unwrap().as_primitive::<Int64Type>().value(0), 2);
/// assert!(latest.get(("bob",))?.is_none());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Latest(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    schema: SchemaRef,
    key_schema: SchemaRef,
    /// Where the key columns stand among the results.
    first_key: usize,
    /// The column `window_end`, if there are windows.
    end: Option<usize>,
    keys: RowConverter,
    rows: RowConverter,
    hasher: DefaultHashBuilder,
    /// By hash of the key: shards write side by side, and a key has one place whatever shard it comes of.
    stripes: Vec<Mutex<HashTable<Entry>>>,
}

/// Parts of the table that are locked by themselves: many more than there are shards that write at once.
const STRIPES: usize = 64;

#[derive(Debug)]
struct Entry {
    hash: u64,
    key: Box<[u8]>,
    end: i64,
    row: Vec<u8>,
}

impl Inner {
    fn stripe(&self, hash: u64) -> &Mutex<HashTable<Entry>> {
        // Other bits than the table goes by.
        &self.stripes[(hash >> 32) as usize % STRIPES]
    }
}

fn converter(schema: &Schema) -> RowConverter {
    let fields = schema.fields().iter();
    let fields = fields.map(|field| SortField::new(field.data_type().clone())).collect();
    RowConverter::new(fields).expect("results have types that rows can hold")
}

impl Latest {
    /// A sink for this job's results. Clones share what is kept.
    pub fn new(job: &Job) -> Self {
        let schema = Arc::clone(job.output_schema());
        let windows = if job.has_windows() { 2 } else { 0 };
        let fields = &schema.fields()[windows..job.grouping_columns()];
        let key_schema = Arc::new(Schema::new(fields.to_vec()));
        Self(Arc::new(Inner {
            keys: converter(&key_schema),
            rows: converter(&schema),
            first_key: windows,
            end: (windows > 0).then_some(1),
            hasher: DefaultHashBuilder::default(),
            stripes: (0..STRIPES).map(|_| Mutex::default()).collect(),
            schema,
            key_schema,
        }))
    }

    /// The newest result of a key, as a batch of one row of the job's output schema; `None` if it has had none.
    /// `key` has one value for each key column: `("ann",)`, `("ann", 5)`.
    ///
    /// # Errors
    /// If `key` does not fit the key columns.
    pub fn get<R: Row>(&self, key: R) -> Result<Option<RecordBatch>, RowError> {
        let inner = &self.0;
        let failed = |error: arrow::error::ArrowError| RowError::Serialize(error.to_string());
        let mut columns = Columns::new(Arc::clone(&inner.key_schema))
            .map_err(|error| RowError::Serialize(error.to_string()))?;
        columns.append(key)?;
        let columns = columns.take().map_err(failed)?;
        let keys = inner.keys.convert_columns(&canonical(columns.columns())).map_err(failed)?;
        let key = keys.row(0);
        let hash = inner.hasher.hash_one(key.data());
        let stripe = lock(inner.stripe(hash));
        let Some(entry) = stripe.find(hash, |entry| *entry.key == *key.data()) else {
            return Ok(None);
        };
        let parser = inner.rows.parser();
        let row = parser.parse(&entry.row);
        let arrays = inner.rows.convert_rows([row]).map_err(failed)?;
        RecordBatch::try_new(Arc::clone(&inner.schema), arrays).map(Some).map_err(failed)
    }

    /// Number of keys that have had a result.
    pub fn len(&self) -> usize {
        self.0.stripes.iter().map(|stripe| lock(stripe).len()).sum()
    }

    /// Whether there has been no result.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Keys as results have them: one NaN, one zero.
fn canonical(columns: &[ArrayRef]) -> Vec<ArrayRef> {
    let one = |column: &ArrayRef| -> ArrayRef {
        match column.data_type() {
            DataType::Float64 => {
                let values = column.as_primitive::<Float64Type>();
                let one = |value: f64| if value.is_nan() { f64::NAN } else { value + 0.0 };
                Arc::new(values.unary::<_, Float64Type>(one)) as Arc<Float64Array> as ArrayRef
            }
            DataType::Float32 => {
                let values = column.as_primitive::<Float32Type>();
                let one = |value: f32| if value.is_nan() { f32::NAN } else { value + 0.0 };
                Arc::new(values.unary::<_, Float32Type>(one)) as Arc<Float32Array> as ArrayRef
            }
            _ => Arc::clone(column),
        }
    };
    columns.iter().map(one).collect()
}

impl Sink for Latest {
    fn results(&self, _shard: usize, batch: RecordBatch) -> Result<(), SinkError> {
        let inner = &self.0;
        let failed = |error: arrow::error::ArrowError| SinkError::Failed(error.to_string());
        let keys = &batch.columns()[inner.first_key..][..inner.key_schema.fields().len()];
        let keys = inner.keys.convert_columns(&canonical(keys)).map_err(failed)?;
        let rows = inner.rows.convert_columns(batch.columns()).map_err(failed)?;
        let ends = inner.end.map(|end| {
            // Dates count in days.
            let days = |_| cast(batch.column(end), &DataType::Int32);
            let ends = cast(batch.column(end), &DataType::Int64);
            ends.or_else(days).and_then(|ends| cast(&ends, &DataType::Int64)).map_err(failed)
        });
        let ends = ends.transpose()?;
        let ends = ends.as_ref().map(AsArray::as_primitive::<Int64Type>);
        for i in 0..batch.num_rows() {
            let (key, row) = (keys.row(i), rows.row(i));
            let end = ends.map_or(0, |ends| ends.value(i));
            let hash = inner.hasher.hash_one(key.data());
            let mut entries = lock(inner.stripe(hash));
            if let Some(entry) = entries.find_mut(hash, |entry| *entry.key == *key.data()) {
                if end >= entry.end {
                    entry.end = end;
                    entry.row.clear();
                    entry.row.extend_from_slice(row.data());
                }
                continue;
            }
            let entry = Entry { hash, key: key.data().into(), end, row: row.data().to_vec() };
            entries.insert_unique(hash, entry, |entry| entry.hash);
        }
        Ok(())
    }
}
