//! Rows from whatever implements `serde::Serialize`.
//!
//! A thin serializer of our own, since what is asked for is narrow: each field goes straight into the cell of
//! its column. Libraries that turn sequences of objects into arrays give their buffers away with each
//! array, and cannot take half a row back.

use serde::ser::{Impossible, Serialize, Serializer};
use serde::ser::{
    SerializeMap, SerializeSeq, SerializeStruct, SerializeTuple, SerializeTupleStruct,
};

use super::row::{Cell, Misfit, Row, RowError, RowWriter, Value};

/// A struct or map as a row, its fields found by their names; a tuple or sequence, by their order.
#[derive(Debug)]
pub(crate) struct Record<'a, T: ?Sized>(pub(crate) &'a T);

impl<T: Serialize + ?Sized> Row for Record<'_, T> {
    #[inline]
    fn put(self, row: &mut RowWriter<'_>) -> Result<(), RowError> {
        self.0.serialize(Fields { row, index: 0, key: None })
    }
}

impl serde::ser::Error for RowError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Serialize(message.to_string())
    }
}

impl std::fmt::Display for Misfit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Type(found) => write!(f, "type {found} does not fit"),
            Self::Range(value) => write!(f, "{value} does not fit"),
            Self::Null => f.write_str("null does not fit"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Misfit {}

impl serde::ser::Error for Misfit {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self::Other(message.to_string())
    }
}

/// A value of any type that serde knows.
struct Any<'a, T: ?Sized>(&'a T);

impl<T: Serialize + ?Sized> Value for Any<'_, T> {
    #[inline]
    fn put(self, cell: Cell<'_>) -> Result<(), Misfit> {
        self.0.serialize(cell)
    }
}

/// The fields of a row.
struct Fields<'a, 'r> {
    row: &'a mut RowWriter<'r>,
    /// Fields of the struct so far.
    index: usize,
    /// The column of the map's next value.
    key: Option<usize>,
}

fn no_row(found: &str) -> RowError {
    RowError::Serialize(format!(
        "{found} is no row; a row is a struct, a map, a tuple or a sequence"
    ))
}

macro_rules! refuse {
    ($error:ident: $($method:ident($($type:ty),*) $found:literal;)+) => {$(
        fn $method(self, $(_: $type),*) -> Result<Self::Ok, Self::Error> {
            Err($error($found))
        }
    )+};
}

impl Serializer for Fields<'_, '_> {
    type Ok = ();
    type Error = RowError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Impossible<(), RowError>;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Impossible<(), RowError>;

    refuse! { no_row:
        serialize_bool(bool) "a bool";
        serialize_i8(i8) "a number";
        serialize_i16(i16) "a number";
        serialize_i32(i32) "a number";
        serialize_i64(i64) "a number";
        serialize_u8(u8) "a number";
        serialize_u16(u16) "a number";
        serialize_u32(u32) "a number";
        serialize_u64(u64) "a number";
        serialize_f32(f32) "a number";
        serialize_f64(f64) "a number";
        serialize_char(char) "a character";
        serialize_str(&str) "a text";
        serialize_bytes(&[u8]) "bytes";
        serialize_none() "nothing";
        serialize_unit() "nothing";
        serialize_unit_struct(&'static str) "a struct without fields";
        serialize_unit_variant(&'static str, u32, &'static str) "a variant";
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), RowError> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), RowError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), RowError> {
        Err(no_row("a variant"))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self, RowError> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Self, RowError> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, RowError> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, RowError> {
        Err(no_row("a variant"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self, RowError> {
        Ok(self)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, RowError> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, RowError> {
        Err(no_row("a variant"))
    }
}

impl SerializeStruct for Fields<'_, '_> {
    type Ok = ();
    type Error = RowError;

    #[inline]
    fn serialize_field<T: Serialize + ?Sized>(
        &mut self,
        name: &'static str,
        value: &T,
    ) -> Result<(), RowError> {
        let column = self.row.field_column(self.index, name)?;
        self.index += 1;
        self.row.set(column, Any(value))
    }

    #[inline]
    fn end(self) -> Result<(), RowError> {
        Ok(())
    }
}

impl SerializeMap for Fields<'_, '_> {
    type Ok = ();
    type Error = RowError;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), RowError> {
        self.key = Some(key.serialize(Key(self.row))?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), RowError> {
        let Some(column) = self.key.take() else { return Err(no_row("a value without a key")) };
        self.row.set(column, Any(value))
    }

    fn end(self) -> Result<(), RowError> {
        Ok(())
    }
}

macro_rules! in_order {
    ($($trait:ident $method:ident;)+) => {$(
        impl $trait for Fields<'_, '_> {
            type Ok = ();
            type Error = RowError;

            fn $method<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), RowError> {
                self.row.next(Any(value))
            }

            fn end(self) -> Result<(), RowError> {
                self.row.is_complete()
            }
        }
    )+};
}

in_order! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
}

/// The name of a map's value: its column.
struct Key<'a, 'r>(&'a RowWriter<'r>);

fn no_key(found: &str) -> RowError {
    RowError::Serialize(format!("{found} is no name of a column; a map has keys that are texts"))
}

impl Serializer for Key<'_, '_> {
    type Ok = usize;
    type Error = RowError;
    type SerializeSeq = Impossible<usize, RowError>;
    type SerializeTuple = Impossible<usize, RowError>;
    type SerializeTupleStruct = Impossible<usize, RowError>;
    type SerializeTupleVariant = Impossible<usize, RowError>;
    type SerializeMap = Impossible<usize, RowError>;
    type SerializeStruct = Impossible<usize, RowError>;
    type SerializeStructVariant = Impossible<usize, RowError>;

    refuse! { no_key:
        serialize_bool(bool) "a bool";
        serialize_i8(i8) "a number";
        serialize_i16(i16) "a number";
        serialize_i32(i32) "a number";
        serialize_i64(i64) "a number";
        serialize_u8(u8) "a number";
        serialize_u16(u16) "a number";
        serialize_u32(u32) "a number";
        serialize_u64(u64) "a number";
        serialize_f32(f32) "a number";
        serialize_f64(f64) "a number";
        serialize_bytes(&[u8]) "bytes";
        serialize_none() "nothing";
        serialize_unit() "nothing";
        serialize_unit_struct(&'static str) "a struct without fields";
    }

    fn serialize_char(self, name: char) -> Result<usize, RowError> {
        self.0.find(name.encode_utf8(&mut [0; 4]))
    }

    fn serialize_str(self, name: &str) -> Result<usize, RowError> {
        self.0.find(name)
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<usize, RowError> {
        self.0.find(variant)
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<usize, RowError> {
        value.serialize(self)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<usize, RowError> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<usize, RowError> {
        Err(no_key("a variant"))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, RowError> {
        Err(no_key("a sequence"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, RowError> {
        Err(no_key("a tuple"))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, RowError> {
        Err(no_key("a struct"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, RowError> {
        Err(no_key("a variant"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, RowError> {
        Err(no_key("a map"))
    }

    fn serialize_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStruct, RowError> {
        Err(no_key("a struct"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, RowError> {
        Err(no_key("a variant"))
    }
}

fn no_cell(found: &'static str) -> Misfit {
    Misfit::Type(found)
}

impl Serializer for Cell<'_> {
    type Ok = ();
    type Error = Misfit;
    type SerializeSeq = Impossible<(), Misfit>;
    type SerializeTuple = Impossible<(), Misfit>;
    type SerializeTupleStruct = Impossible<(), Misfit>;
    type SerializeTupleVariant = Impossible<(), Misfit>;
    type SerializeMap = Impossible<(), Misfit>;
    type SerializeStruct = Impossible<(), Misfit>;
    type SerializeStructVariant = Impossible<(), Misfit>;

    fn serialize_bool(self, value: bool) -> Result<(), Misfit> {
        self.bool(value)
    }

    fn serialize_i8(self, value: i8) -> Result<(), Misfit> {
        self.i64(value.into())
    }

    fn serialize_i16(self, value: i16) -> Result<(), Misfit> {
        self.i64(value.into())
    }

    fn serialize_i32(self, value: i32) -> Result<(), Misfit> {
        self.i64(value.into())
    }

    #[inline]
    fn serialize_i64(self, value: i64) -> Result<(), Misfit> {
        self.i64(value)
    }

    fn serialize_i128(self, value: i128) -> Result<(), Misfit> {
        self.decimal(value)
    }

    fn serialize_u8(self, value: u8) -> Result<(), Misfit> {
        self.u64(value.into())
    }

    fn serialize_u16(self, value: u16) -> Result<(), Misfit> {
        self.u64(value.into())
    }

    fn serialize_u32(self, value: u32) -> Result<(), Misfit> {
        self.u64(value.into())
    }

    #[inline]
    fn serialize_u64(self, value: u64) -> Result<(), Misfit> {
        self.u64(value)
    }

    fn serialize_f32(self, value: f32) -> Result<(), Misfit> {
        self.f32(value)
    }

    #[inline]
    fn serialize_f64(self, value: f64) -> Result<(), Misfit> {
        self.f64(value)
    }

    fn serialize_char(self, value: char) -> Result<(), Misfit> {
        self.str(value.encode_utf8(&mut [0; 4]))
    }

    #[inline]
    fn serialize_str(self, value: &str) -> Result<(), Misfit> {
        self.str(value)
    }

    fn serialize_bytes(self, value: &[u8]) -> Result<(), Misfit> {
        self.bytes(value)
    }

    fn serialize_none(self) -> Result<(), Misfit> {
        self.null()
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), Misfit> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), Misfit> {
        self.null()
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), Misfit> {
        self.null()
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        variant: &'static str,
    ) -> Result<(), Misfit> {
        self.str(variant)
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), Misfit> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: &T,
    ) -> Result<(), Misfit> {
        Err(no_cell("a variant with values"))
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Self::SerializeSeq, Misfit> {
        Err(no_cell("a sequence"))
    }

    fn serialize_tuple(self, _: usize) -> Result<Self::SerializeTuple, Misfit> {
        Err(no_cell("a tuple"))
    }

    fn serialize_tuple_struct(
        self,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleStruct, Misfit> {
        Err(no_cell("a tuple"))
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeTupleVariant, Misfit> {
        Err(no_cell("a variant with values"))
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Self::SerializeMap, Misfit> {
        Err(no_cell("a map"))
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self::SerializeStruct, Misfit> {
        Err(no_cell("a struct"))
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self::SerializeStructVariant, Misfit> {
        Err(no_cell("a variant with values"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema};
    use serde::Serialize;

    use super::*;
    use crate::append::columns::Columns;

    #[derive(Serialize)]
    enum Kind {
        Sale,
        Refund(i32),
    }

    #[derive(Serialize)]
    struct Event<'a> {
        // Not in the order of the schema.
        amount: Option<f64>,
        user: &'a str,
        kind: Kind,
        #[serde(skip_serializing_if = "Option::is_none")]
        at: Option<i64>,
    }

    fn columns() -> Columns {
        let fields = vec![
            Field::new("user", DataType::Utf8, false),
            Field::new("kind", DataType::Utf8, true),
            Field::new("at", DataType::Int64, true),
            Field::new("amount", DataType::Float64, true),
        ];
        Columns::new(Arc::new(Schema::new(fields))).unwrap()
    }

    #[test]
    fn structs_maps_and_tuples_are_rows() {
        let mut columns = columns();
        for at in [None, Some(7), None, Some(9)] {
            let event = Event { amount: at.map(|_| 1.5), user: "ann", kind: Kind::Sale, at };
            columns.append(Record(&event)).unwrap();
        }
        columns.append(Record(&BTreeMap::from([("user", "bob"), ("kind", "map")]))).unwrap();
        columns.append(Record(&("cid", None::<&str>, 3_u8, 2.5_f32))).unwrap();
        let refused = [
            columns.append(Record(&Event {
                amount: None,
                user: "x",
                kind: Kind::Refund(1),
                at: None,
            })),
            columns.append(Record(&BTreeMap::from([("usr", "bob")]))),
            columns.append(Record(&BTreeMap::from([(1, "bob")]))),
            columns.append(Record(&BTreeMap::from([("kind", "no user")]))),
            columns.append(Record(&("cid", "tuple"))),
            columns.append(Record(&5)),
        ];
        let texts = refused.map(|result| result.unwrap_err().to_string());
        assert!(texts[1].contains("did you mean \"user\"?"), "{texts:?}");
        assert!(texts[3].contains("no value for column \"user\""), "{texts:?}");
        let batch = columns.take().unwrap();
        assert_eq!(batch.num_rows(), 6);
        let users = batch.column(0).as_string::<i32>().iter().flatten().collect::<Vec<_>>();
        assert_eq!(users, ["ann", "ann", "ann", "ann", "bob", "cid"]);
        let kinds = batch.column(1).as_string::<i32>();
        assert_eq!((kinds.value(0), kinds.value(4), kinds.is_null(5)), ("Sale", "map", true));
        let times = batch.column(2).as_primitive::<Int64Type>().iter().collect::<Vec<_>>();
        assert_eq!(times, [None, Some(7), None, Some(9), None, Some(3)]);
        let amounts = batch.column(3).as_primitive::<Float64Type>().iter().collect::<Vec<_>>();
        assert_eq!(amounts, [None, Some(1.5), None, Some(1.5), None, Some(2.5)]);
    }
}
