//! Where keys go: the key group of each key of a batch, in Saltmill or in Flink.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int32Array};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;

use crate::error::{ConfigError, RunError};
use crate::kernel::Isa;
use crate::key::batch::KeyBatch;
use crate::key::encode::KeyEncoder;
use crate::key::flink::columns::KeyForm;
use crate::key::flink::{groups, scramble};
use crate::key::group::key_group;

/// Whose assignment of keys to key groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assignment {
    /// Saltmill's own.
    Native,
    /// Flink's, for keys of this form.
    Flink(KeyForm),
}

/// Names on the command line.
const NAMES: [(&str, Assignment); 5] = [
    ("flink-sql", Assignment::Flink(KeyForm::Sql)),
    ("flink-stream", Assignment::Flink(KeyForm::Stream)),
    ("flink-string", Assignment::Flink(KeyForm::StreamText)),
    ("flink-long", Assignment::Flink(KeyForm::StreamLong)),
    ("native", Assignment::Native),
];

impl Assignment {
    /// Reads `flink-sql`, `flink-stream`, `flink-string`, `flink-long` or `native`.
    ///
    /// # Errors
    /// Any other text.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let known = NAMES.iter().find(|(name, _)| *name == text);
        known.map(|(_, assignment)| *assignment).ok_or_else(|| ConfigError::Syntax {
            what: "assignment of keys",
            text: text.to_owned(),
            why: "expected flink-sql, flink-stream, flink-string, flink-long or native".into(),
        })
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(_, known)| *known == self).map_or("native", |(name, _)| *name)
    }

    /// Whether it is that of a Flink job.
    pub fn is_flink(self) -> bool {
        self != Self::Native
    }

    /// Whether such a job can have a NULL key.
    pub fn takes_null(self) -> bool {
        match self {
            Self::Native => true,
            Self::Flink(form) => form.takes_null(),
        }
    }
}

/// Finds the key groups of keys with given columns.
#[derive(Debug, Clone)]
pub struct Placement {
    assignment: Assignment,
    schema: SchemaRef,
    encoder: KeyEncoder,
    isa: Isa,
}

/// Hashes of some keys, from which their key groups follow for any number of groups.
#[derive(Debug)]
pub struct PlacedKeys {
    hashes: Hashes,
    isa: Isa,
}

#[derive(Debug)]
enum Hashes {
    Native(Vec<u64>),
    Scrambled(Vec<i32>),
}

impl Placement {
    /// Placement of keys with these columns.
    ///
    /// # Errors
    /// If a column's type cannot be a key of the job in question.
    pub fn new(
        assignment: Assignment,
        key_fields: Vec<Field>,
        isa: Isa,
    ) -> Result<Self, ConfigError> {
        if let Assignment::Flink(form) = assignment {
            form.check(&key_fields.iter().map(Field::data_type).collect::<Vec<_>>())?;
        }
        let schema: SchemaRef = Arc::new(Schema::new(key_fields));
        let encoder = KeyEncoder::new(&schema, (0..schema.fields().len()).collect())?;
        Ok(Self { assignment, schema, encoder, isa })
    }

    /// Whose assignment it is.
    pub fn assignment(&self) -> Assignment {
        self.assignment
    }

    /// Placement of the same keys by another assignment.
    ///
    /// # Errors
    /// As [`Placement::new`].
    pub fn with(&self, assignment: Assignment) -> Result<Self, ConfigError> {
        Self::new(assignment, self.key_fields(), self.isa)
    }

    /// The key columns.
    pub fn key_fields(&self) -> Vec<Field> {
        self.schema.fields().iter().map(|field| field.as_ref().clone()).collect()
    }

    /// Places keys, one per row of `columns`.
    ///
    /// # Errors
    /// A key that has no counterpart in the job in question.
    pub fn place(&self, columns: &[ArrayRef], rows: usize) -> Result<PlacedKeys, ConfigError> {
        let hashes = match self.assignment {
            Assignment::Native => Hashes::Native(self.native(columns, rows)?),
            Assignment::Flink(form) => {
                let mut hashes = form.hash_codes(columns, rows, self.isa)?;
                scramble(self.isa, &mut hashes);
                Hashes::Scrambled(hashes)
            }
        };
        Ok(PlacedKeys { hashes, isa: self.isa })
    }

    /// Saltmill's own hashes of the keys, whatever the assignment.
    ///
    /// # Errors
    /// If the columns are not the key's.
    pub fn native(&self, columns: &[ArrayRef], rows: usize) -> Result<Vec<u64>, ConfigError> {
        let wrong = |error: String| ConfigError::Inconsistent(format!("keys: {error}"));
        let options = arrow::record_batch::RecordBatchOptions::new().with_row_count(Some(rows));
        // Whether nulls were declared is of no interest here.
        let fields = self.schema.fields().iter().zip(columns);
        let fields = fields
            .map(|(field, column)| Field::new(field.name(), column.data_type().clone(), true));
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let batch = RecordBatch::try_new_with_options(schema, columns.to_vec(), &options)
            .map_err(|error| wrong(error.to_string()))?;
        let mut keys = KeyBatch::default();
        self.encoder
            .encode(&batch, &mut keys)
            .map_err(|error: RunError| wrong(error.to_string()))?;
        keys.hash_all(self.isa);
        Ok(keys.hashes)
    }

    /// Placement of keys to which a salt was added, as their last column.
    ///
    /// # Errors
    /// As [`Placement::new`].
    pub fn salted(&self) -> Result<Self, ConfigError> {
        let assignment = match self.assignment {
            // A key with a salt has two fields, so it is a tuple.
            Assignment::Flink(KeyForm::StreamText | KeyForm::StreamLong) => {
                Assignment::Flink(KeyForm::Stream)
            }
            other => other,
        };
        let mut fields = self.key_fields();
        if self.assignment == Assignment::Flink(KeyForm::StreamText) {
            fields[0] = Field::new(fields[0].name(), DataType::Utf8, true);
        } else if self.assignment == Assignment::Flink(KeyForm::StreamLong) {
            fields[0] = Field::new(fields[0].name(), DataType::Int64, true);
        }
        fields.push(Field::new("salt", DataType::Int32, false));
        Self::new(assignment, fields, self.isa)
    }

    /// Places the keys in `columns` with `salt` added to each; of a placement made by
    /// [`Placement::salted`].
    ///
    /// # Errors
    /// As [`Placement::place`].
    pub fn place_salted(
        &self,
        columns: &[ArrayRef],
        rows: usize,
        salt: i32,
    ) -> Result<PlacedKeys, ConfigError> {
        let mut salted = Vec::with_capacity(columns.len() + 1);
        for (column, field) in columns.iter().zip(self.schema.fields()) {
            let column = arrow::compute::cast(column, field.data_type())
                .map_err(|error| ConfigError::Inconsistent(format!("keys: {error}")))?;
            salted.push(column);
        }
        salted.push(Arc::new(Int32Array::from(vec![salt; rows])));
        self.place(&salted, rows)
    }
}

impl PlacedKeys {
    /// Key group of each key, among `max_parallelism`.
    pub fn groups(&self, max_parallelism: u32, out: &mut Vec<u16>) {
        match &self.hashes {
            Hashes::Native(hashes) => {
                out.clear();
                out.extend(hashes.iter().map(|hash| key_group(*hash, max_parallelism)));
            }
            Hashes::Scrambled(hashes) => groups(self.isa, hashes, max_parallelism, out),
        }
    }
}
