//! Text and binary columns of every Arrow form behind one accessor.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, AsArray, BinaryArray, BinaryViewArray, FixedSizeBinaryArray, LargeBinaryArray,
    LargeStringArray, StringArray, StringViewArray,
};
use arrow::datatypes::DataType;
use arrow::row::Rows;

/// Bytes of a batch's rows.
#[derive(Debug, Clone)]
pub(crate) enum BytesColumn {
    /// Text or binary: plain, large, view or of fixed size (dictionaries are cast to their values' type
    /// before).
    Array(ArrayRef),
    /// Several columns, encoded so that the order of the bytes is the order of the rows.
    Rows(Arc<Rows>),
}

/// An array whose values are bytes.
pub(crate) trait BytesArray {
    /// The bytes of row `row`; at a null row, anything.
    fn bytes(&self, row: usize) -> &[u8];
}

/// Work on a bytes column, compiled once for every form, so that no row asks which form it is.
pub(crate) trait BytesVisitor {
    /// What the work gives.
    type Output;

    /// Does the work.
    fn visit<A: BytesArray>(self, array: &A) -> Self::Output;
}

impl BytesColumn {
    /// Whether `data_type` is one of the forms.
    pub(crate) fn is_for(data_type: &DataType) -> bool {
        use DataType as T;
        match data_type {
            T::Utf8 | T::LargeUtf8 | T::Utf8View | T::Binary | T::LargeBinary | T::BinaryView => {
                true
            }
            // Arrow does not build arrays of values of no bytes.
            T::FixedSizeBinary(size) => *size > 0,
            _ => false,
        }
    }

    /// The column over `array`, if it is of one of the forms.
    pub(crate) fn new(array: ArrayRef) -> Option<Self> {
        Self::is_for(array.data_type()).then_some(Self::Array(array))
    }

    /// Runs `visitor` on the array in its form.
    pub(crate) fn visit<V: BytesVisitor>(&self, visitor: V) -> V::Output {
        let array = match self {
            Self::Rows(rows) => return visitor.visit(&**rows),
            Self::Array(array) => array,
        };
        match array.data_type() {
            DataType::Utf8 => visitor.visit(array.as_string::<i32>()),
            DataType::LargeUtf8 => visitor.visit(array.as_string::<i64>()),
            DataType::Utf8View => visitor.visit(array.as_string_view()),
            DataType::Binary => visitor.visit(array.as_binary::<i32>()),
            DataType::LargeBinary => visitor.visit(array.as_binary::<i64>()),
            DataType::BinaryView => visitor.visit(array.as_binary_view()),
            DataType::FixedSizeBinary(_) => visitor.visit(array.as_fixed_size_binary()),
            other => unreachable!("`new` admits no {other}"),
        }
    }
}

macro_rules! bytes_of_text {
    ($($array:ty),*) => {$(
        impl BytesArray for $array {
            #[inline(always)]
            fn bytes(&self, row: usize) -> &[u8] {
                self.value(row).as_bytes()
            }
        }
    )*};
}

macro_rules! bytes_of_binary {
    ($($array:ty),*) => {$(
        impl BytesArray for $array {
            #[inline(always)]
            fn bytes(&self, row: usize) -> &[u8] {
                self.value(row)
            }
        }
    )*};
}

impl BytesArray for Rows {
    #[inline(always)]
    fn bytes(&self, row: usize) -> &[u8] {
        self.row(row).data()
    }
}

bytes_of_text!(StringArray, LargeStringArray, StringViewArray);
bytes_of_binary!(BinaryArray, LargeBinaryArray, BinaryViewArray, FixedSizeBinaryArray);
