//! Rows, values, and the writer that checks them against the schema.

use arrow::datatypes::Field;

use super::cells::Values;
use super::columns::Columns;
use crate::error::nearest_name;

/// Why a row does not fit the schema. Nothing of the row was taken.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RowError {
    /// The value is of a type that the column does not take.
    #[error("column \"{column}\" of type {data_type} does not take a value of type {found}")]
    Type {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
        /// The value's type.
        found: &'static str,
    },
    /// The value is too large or too small for the column's type.
    #[error("{value} does not fit column \"{column}\" of type {data_type}")]
    Range {
        /// The column.
        column: String,
        /// Its type.
        data_type: String,
        /// The value.
        value: String,
    },
    /// A null for a column that was declared without nulls.
    #[error(
        "column \"{column}\" was declared without nulls; give it a value, or declare it nullable"
    )]
    Null {
        /// The column.
        column: String,
    },
    /// The row has a different number of values than the schema has columns.
    #[error("the row has more values than the schema has columns, which are {columns}")]
    TooMany {
        /// Number of columns.
        columns: usize,
    },
    /// A tuple that ends early, or a column without nulls that was not set.
    #[error("the row has no value for column \"{column}\"")]
    Missing {
        /// The first column without a value.
        column: String,
    },
    /// The column was set before in this row.
    #[error("column \"{column}\" is set twice in one row")]
    Twice {
        /// The column.
        column: String,
    },
    /// No column has this name or number.
    #[error("the schema has no column {name}{}", .nearest.as_ref().map(|it| format!("; did you mean \"{it}\"?")).unwrap_or_default())]
    UnknownColumn {
        /// The name in quotes, or the number.
        name: String,
        /// The closest existing name, if any is close.
        nearest: Option<String>,
    },
    /// A value that `serde` gave cannot be a row or a cell of one.
    #[error("{0}")]
    Serialize(String),
}

/// Something that can be appended as one row: a tuple of [`Value`]s, or a closure over a [`RowWriter`].
///
/// ```
/// # use std::sync::Arc;
/// # use saltmill::arrow::datatypes::{DataType, Field, Schema};
/// # use saltmill::{Aggregate, Collected, Engine, Job};
/// let schema = Schema::new(vec![
///     Field::new("user", DataType::Utf8, false),
///     Field::new("amount", DataType::Int64, true),
/// ]);
/// let job = Job::builder(Arc::new(schema)).key(["user"]).aggregate(Aggregate::sum("amount")).build()?;
/// let engine = Engine::start(job, Collected::new())?;
/// let mut appender = engine.ingest()?.appender()?;
/// appender.append(("ann", 5))?;
/// appender.append(("bob", None::<i64>))?;
/// appender.append(|row: &mut saltmill::append::RowWriter<'_>| {
///     row.set(1, 7)?;
///     row.set_named("user", "cid")
/// })?;
/// appender.close()?;
/// assert_eq!(engine.finish()?.rows_in, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Row {
    /// Puts the row's values.
    fn put(self, row: &mut RowWriter<'_>) -> Result<(), RowError>;
}

impl<F: FnOnce(&mut RowWriter<'_>) -> Result<(), RowError>> Row for F {
    fn put(self, row: &mut RowWriter<'_>) -> Result<(), RowError> {
        self(row)
    }
}

impl Columns {
    /// Adds a row, or nothing.
    #[inline]
    pub(crate) fn append<R: Row>(&mut self, row: R) -> Result<(), RowError> {
        let mut writer = RowWriter::new(self);
        let put = row.put(&mut writer).and_then(|()| writer.finish());
        if put.is_err() {
            let rows = self.rows;
            self.cells.iter_mut().for_each(|cells| cells.truncate(rows));
        }
        put
    }
}

macro_rules! tuple_rows {
    ($($name:ident)+) => {
        impl<$($name: Value),+> Row for ($($name,)+) {
            #[inline]
            fn put(self, row: &mut RowWriter<'_>) -> Result<(), RowError> {
                #[expect(non_snake_case, reason = "types and values share their names")]
                let ($($name,)+) = self;
                $(row.next($name)?;)+
                row.is_complete()
            }
        }
    };
}

tuple_rows!(A);
tuple_rows!(A B);
tuple_rows!(A B C);
tuple_rows!(A B C D);
tuple_rows!(A B C D E);
tuple_rows!(A B C D E F);
tuple_rows!(A B C D E F G);
tuple_rows!(A B C D E F G H);
tuple_rows!(A B C D E F G H I);
tuple_rows!(A B C D E F G H I J);
tuple_rows!(A B C D E F G H I J K);
tuple_rows!(A B C D E F G H I J K L);

/// Writes one row. Columns may be set in any order; those that are not set are null.
#[derive(Debug)]
pub struct RowWriter<'a> {
    columns: &'a mut Columns,
    /// The column that [`RowWriter::next`] sets.
    next: usize,
    /// How many columns have been set.
    set: usize,
}

impl<'a> RowWriter<'a> {
    #[inline]
    pub(crate) fn new(columns: &'a mut Columns) -> Self {
        Self { columns, next: 0, set: 0 }
    }

    /// Sets the column after the one that this was called for before; the first one at first.
    #[inline]
    pub fn next(&mut self, value: impl Value) -> Result<(), RowError> {
        let column = self.next;
        self.next += 1;
        if column == self.columns.cells.len() {
            return Err(RowError::TooMany { columns: column });
        }
        self.set(column, value)
    }

    /// Sets the column of this number in the schema.
    #[inline]
    pub fn set(&mut self, column: usize, value: impl Value) -> Result<(), RowError> {
        let rows = self.columns.rows;
        let Some(cells) = self.columns.cells.get_mut(column) else {
            return Err(RowError::UnknownColumn {
                name: format!("number {column}"),
                nearest: None,
            });
        };
        if cells.len() != rows {
            return Err(RowError::Twice { column: self.field(column).name().clone() });
        }
        self.set += 1;
        let done = value.put(Cell { cells });
        done.map_err(|misfit| misfit.explain(self.field(column)))
    }

    /// Sets the column of this name.
    pub fn set_named(&mut self, name: &str, value: impl Value) -> Result<(), RowError> {
        let column = self.find(name)?;
        self.set(column, value)
    }

    /// The number of the column of this name.
    pub(crate) fn find(&self, name: &str) -> Result<usize, RowError> {
        let fields = self.columns.schema.fields();
        fields.iter().position(|field| field.name() == name).ok_or_else(|| {
            let names = fields.iter().map(|field| field.name().clone()).collect::<Vec<_>>();
            RowError::UnknownColumn {
                name: format!("\"{name}\""),
                nearest: nearest_name(name, &names),
            }
        })
    }

    /// The column of the struct's field number `index`, which is asked for again and again.
    #[inline]
    pub(crate) fn field_column(
        &mut self,
        index: usize,
        name: &'static str,
    ) -> Result<usize, RowError> {
        if let Some((known, column)) = self.columns.fields.get(index)
            && (std::ptr::eq(*known, name) || *known == name)
        {
            return Ok(*column);
        }
        let column = self.find(name)?;
        self.columns.fields.truncate(index);
        if self.columns.fields.len() == index {
            self.columns.fields.push((name, column));
        }
        Ok(column)
    }

    fn field(&self, column: usize) -> &Field {
        self.columns.schema.field(column)
    }

    /// Whether all columns have been set by [`RowWriter::next`].
    #[inline]
    pub(crate) fn is_complete(&self) -> Result<(), RowError> {
        if self.next < self.columns.cells.len() {
            return Err(RowError::Missing { column: self.field(self.next).name().clone() });
        }
        Ok(())
    }

    /// Ends the row: what was not set is null.
    #[inline]
    pub(crate) fn finish(self) -> Result<(), RowError> {
        let Columns { schema, cells, rows, .. } = self.columns;
        if self.set == cells.len() {
            // None is left out, as each is set once.
            *rows += 1;
            return Ok(());
        }
        for (column, cells) in cells.iter_mut().enumerate() {
            if cells.len() == *rows {
                let field = schema.field(column);
                if !field.is_nullable() {
                    return Err(RowError::Missing { column: field.name().clone() });
                }
                cells.push_null();
            }
        }
        *rows += 1;
        Ok(())
    }
}

/// One cell of the row that is being written.
#[derive(Debug)]
pub struct Cell<'a> {
    cells: &'a mut super::cells::Cells,
}

/// Why a cell does not take a value.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misfit {
    /// The value's type, by name, is not one that the column takes.
    Type(&'static str),
    /// The value, as text, is beyond what the column's type can hold.
    Range(String),
    /// The column takes no nulls.
    Null,
    /// Something else, in words.
    Other(String),
}

impl Misfit {
    #[cold]
    fn explain(self, field: &Field) -> RowError {
        let (column, data_type) = (field.name().clone(), field.data_type().to_string());
        match self {
            Self::Type(found) => RowError::Type { column, data_type, found },
            Self::Range(value) => RowError::Range { column, data_type, value },
            Self::Null => RowError::Null { column },
            Self::Other(text) => RowError::Serialize(format!("column \"{column}\": {text}")),
        }
    }
}

/// A value that a cell may take. Implement it for types of your own by calling a method of [`Cell`].
pub trait Value {
    /// Puts the value into the cell.
    fn put(self, cell: Cell<'_>) -> Result<(), Misfit>;
}

macro_rules! put_integer {
    ($cell:expr, $value:expr, $name:expr) => {{
        macro_rules! narrow {
            ($values:expr) => {
                match $value.try_into() {
                    Ok(fits) => $values.values.push(fits),
                    Err(_) => return Err(Misfit::Range($value.to_string())),
                }
            };
        }
        match &mut $cell.cells.values {
            Values::I64(values) => narrow!(values),
            Values::I32(values) => narrow!(values),
            Values::I16(values) => narrow!(values),
            Values::I8(values) => narrow!(values),
            Values::U64(values) => narrow!(values),
            Values::U32(values) => narrow!(values),
            Values::U16(values) => narrow!(values),
            Values::U8(values) => narrow!(values),
            _ => return Err(Misfit::Type($name)),
        }
        $cell.cells.count();
        Ok(())
    }};
}

impl Cell<'_> {
    /// Puts a signed integer.
    #[inline]
    pub fn i64(self, value: i64) -> Result<(), Misfit> {
        put_integer!(self, value, "i64")
    }

    /// Puts an unsigned integer.
    #[inline]
    pub fn u64(self, value: u64) -> Result<(), Misfit> {
        put_integer!(self, value, "u64")
    }

    /// Puts a float of 64 bits.
    #[inline]
    pub fn f64(self, value: f64) -> Result<(), Misfit> {
        let Values::F64(values) = &mut self.cells.values else { return Err(Misfit::Type("f64")) };
        values.values.push(value);
        self.cells.count();
        Ok(())
    }

    /// Puts a float of 32 bits.
    #[inline]
    pub fn f32(self, value: f32) -> Result<(), Misfit> {
        match &mut self.cells.values {
            Values::F32(values) => values.values.push(value),
            Values::F64(values) => values.values.push(value.into()),
            _ => return Err(Misfit::Type("f32")),
        }
        self.cells.count();
        Ok(())
    }

    /// Puts a decimal, as the unscaled number.
    #[inline]
    pub fn decimal(self, value: i128) -> Result<(), Misfit> {
        let Values::Decimal(values, max) = &mut self.cells.values else {
            return Err(Misfit::Type("i128"));
        };
        if value.unsigned_abs() > max.unsigned_abs() {
            return Err(Misfit::Range(value.to_string()));
        }
        values.values.push(value);
        self.cells.count();
        Ok(())
    }

    /// Puts a truth value.
    #[inline]
    pub fn bool(self, value: bool) -> Result<(), Misfit> {
        if !matches!(self.cells.values, Values::Bool(_)) {
            return Err(Misfit::Type("bool"));
        }
        self.cells.push_bool(value);
        Ok(())
    }

    /// Puts text.
    #[inline]
    pub fn str(self, value: &str) -> Result<(), Misfit> {
        if !self.cells.text {
            return Err(Misfit::Type("str"));
        }
        self.push_bytes(value.as_bytes())
    }

    /// Puts bytes.
    #[inline]
    pub fn bytes(self, value: &[u8]) -> Result<(), Misfit> {
        if self.cells.text {
            return Err(Misfit::Type("[u8]"));
        }
        self.push_bytes(value)
    }

    #[inline]
    fn push_bytes(self, value: &[u8]) -> Result<(), Misfit> {
        if self.cells.push_bytes(value) {
            return Ok(());
        }
        Err(match self.cells.values {
            Values::Bytes(..) | Values::LargeBytes(..) => {
                Misfit::Range(format!("a value of {} bytes", value.len()))
            }
            _ => Misfit::Type("[u8]"),
        })
    }

    /// Leaves it null.
    #[inline]
    pub fn null(self) -> Result<(), Misfit> {
        if !self.cells.nullable {
            return Err(Misfit::Null);
        }
        self.cells.push_null();
        Ok(())
    }
}

macro_rules! values {
    ($($method:ident: $($type:ty),+;)+) => {$($(
        impl Value for $type {
            #[inline]
            fn put(self, cell: Cell<'_>) -> Result<(), Misfit> {
                cell.$method(self.into())
            }
        }
    )+)+};
}

values! {
    i64: i8, i16, i32, i64;
    u64: u8, u16, u32, u64;
    f32: f32;
    f64: f64;
    decimal: i128;
    bool: bool;
    str: &str;
    bytes: &[u8];
}

impl Value for usize {
    #[inline]
    fn put(self, cell: Cell<'_>) -> Result<(), Misfit> {
        cell.u64(self as u64)
    }
}

impl Value for isize {
    #[inline]
    fn put(self, cell: Cell<'_>) -> Result<(), Misfit> {
        cell.i64(self as i64)
    }
}

impl Value for &String {
    #[inline]
    fn put(self, cell: Cell<'_>) -> Result<(), Misfit> {
        cell.str(self)
    }
}

impl Value for String {
    #[inline]
    fn put(self, cell: Cell<'_>) -> Result<(), Misfit> {
        cell.str(&self)
    }
}

impl<V: Value> Value for Option<V> {
    #[inline]
    fn put(self, cell: Cell<'_>) -> Result<(), Misfit> {
        match self {
            Some(value) => value.put(cell),
            None => cell.null(),
        }
    }
}
