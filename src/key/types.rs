//! Which types can be keys, and how.

use arrow::datatypes::DataType;

/// The type of a column's values: that of a dictionary's values, else its own.
pub(super) fn value_type(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Dictionary(_, values) => values,
        other => other,
    }
}

/// Whether values of this type are one canonical word.
pub(super) fn is_word(data_type: &DataType) -> bool {
    use DataType as D;
    matches!(data_type, D::Boolean | D::Date32 | D::Date64 | D::Time32(_) | D::Time64(_))
        || matches!(data_type, D::Timestamp(_, _) | D::Duration(_))
        || data_type.is_integer()
        || matches!(data_type, D::Float16 | D::Float32 | D::Float64)
}

/// Whether values of this type are bytes.
pub(super) fn is_bytes(data_type: &DataType) -> bool {
    use DataType as D;
    matches!(data_type, D::Utf8 | D::LargeUtf8 | D::Utf8View)
        || matches!(data_type, D::Binary | D::LargeBinary | D::BinaryView | D::FixedSizeBinary(_))
}

/// Bytes of a decimal value, for decimals.
pub(super) fn wide_decimal(data_type: &DataType) -> Option<usize> {
    use DataType as D;
    match data_type {
        D::Decimal32(_, _) | D::Decimal64(_, _) | D::Decimal128(_, _) => Some(16),
        D::Decimal256(_, _) => Some(32),
        _ => None,
    }
}
