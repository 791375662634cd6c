//! The growing values of one column, and how their memory comes back.
//!
//! Arrow's builders give their memory away with every array they finish. Here a clone of each buffer is kept
//! that was lent to an array, and its memory is used again once all others have let go of it.

use std::collections::VecDeque;

use arrow::buffer::{BooleanBuffer, Buffer, NullBuffer};
use arrow::datatypes::{ArrowNativeType, DataType};

/// Buffers that are remembered while they are lent.
const LENT_MAX: usize = 64;

/// A vector whose memory is lent to arrays and comes back.
#[derive(Debug)]
pub(crate) struct Pooled<T> {
    pub(crate) values: Vec<T>,
    lent: VecDeque<Buffer>,
}

impl<T: ArrowNativeType> Pooled<T> {
    pub(crate) fn new() -> Self {
        Self { values: Vec::new(), lent: VecDeque::new() }
    }

    /// The values as a buffer; it goes on with an empty vector of as much room.
    pub(crate) fn lend(&mut self) -> Buffer {
        let next = match self.lent.iter().position(|buffer| buffer.strong_count() == 1) {
            Some(free) => self.lent.remove(free).and_then(|buffer| buffer.into_vec().ok()),
            None => None,
        };
        let mut next = next.unwrap_or_default();
        next.clear();
        next.reserve(self.values.capacity());
        let buffer = Buffer::from_vec(std::mem::replace(&mut self.values, next));
        if self.lent.len() == LENT_MAX {
            self.lent.pop_front();
        }
        self.lent.push_back(buffer.clone());
        buffer
    }
}

/// Bits, eight to a byte.
#[derive(Debug)]
pub(crate) struct Bits {
    bytes: Pooled<u8>,
    len: usize,
}

impl Bits {
    fn new() -> Self {
        Self { bytes: Pooled::new(), len: 0 }
    }

    #[inline]
    fn push(&mut self, bit: bool) {
        let (byte, shift) = (self.len / 8, self.len % 8);
        if shift == 0 {
            self.bytes.values.push(0);
        }
        self.bytes.values[byte] |= u8::from(bit) << shift;
        self.len += 1;
    }

    fn truncate(&mut self, len: usize) {
        self.len = len;
        self.bytes.values.truncate(len.div_ceil(8));
        if !len.is_multiple_of(8)
            && let Some(last) = self.bytes.values.last_mut()
        {
            *last &= (1 << (len % 8)) - 1;
        }
    }

    /// As many set bits as `len`.
    fn fill(&mut self, len: usize) {
        self.bytes.values.clear();
        self.bytes.values.resize(len.div_ceil(8), u8::MAX);
        self.truncate(len);
    }

    fn lend(&mut self) -> BooleanBuffer {
        let len = std::mem::take(&mut self.len);
        BooleanBuffer::new(self.bytes.lend(), 0, len)
    }
}

/// Which values are null; nothing is written while none is.
#[derive(Debug)]
struct Nulls {
    bits: Bits,
    any: bool,
}

/// Values of one column.
#[derive(Debug)]
pub(crate) enum Values {
    I8(Pooled<i8>),
    I16(Pooled<i16>),
    I32(Pooled<i32>),
    I64(Pooled<i64>),
    U8(Pooled<u8>),
    U16(Pooled<u16>),
    U32(Pooled<u32>),
    U64(Pooled<u64>),
    F32(Pooled<f32>),
    F64(Pooled<f64>),
    /// With the largest unscaled number of its precision.
    Decimal(Pooled<i128>, i128),
    Bool(Bits),
    /// Bytes with offsets of 32 bits.
    Bytes(Pooled<i32>, Pooled<u8>),
    /// Bytes with offsets of 64 bits.
    LargeBytes(Pooled<i64>, Pooled<u8>),
}

/// The values of one column and which of them are null.
#[derive(Debug)]
pub(crate) struct Cells {
    pub(crate) values: Values,
    /// Whether bytes are text.
    pub(crate) text: bool,
    pub(crate) nullable: bool,
    nulls: Nulls,
    len: usize,
}

/// The type in which values of `data_type` are gathered: views and dictionaries are made of plain values.
pub(crate) fn gathered(data_type: &DataType) -> &DataType {
    match data_type {
        DataType::Utf8View => &DataType::Utf8,
        DataType::BinaryView => &DataType::Binary,
        DataType::Dictionary(_, values) => gathered(values),
        other => other,
    }
}

impl Cells {
    /// Room for values of `data_type`; none if rows cannot have such values.
    pub(crate) fn new(data_type: &DataType, nullable: bool) -> Option<Self> {
        use DataType as T;
        let values = match gathered(data_type) {
            T::Int8 => Values::I8(Pooled::new()),
            T::Int16 => Values::I16(Pooled::new()),
            T::Int32 | T::Date32 | T::Time32(_) => Values::I32(Pooled::new()),
            T::Int64 | T::Date64 | T::Time64(_) | T::Timestamp(..) | T::Duration(_) => {
                Values::I64(Pooled::new())
            }
            T::UInt8 => Values::U8(Pooled::new()),
            T::UInt16 => Values::U16(Pooled::new()),
            T::UInt32 => Values::U32(Pooled::new()),
            T::UInt64 => Values::U64(Pooled::new()),
            T::Float32 => Values::F32(Pooled::new()),
            T::Float64 => Values::F64(Pooled::new()),
            T::Decimal128(precision, _) => {
                Values::Decimal(Pooled::new(), 10_i128.checked_pow((*precision).into())? - 1)
            }
            T::Boolean => Values::Bool(Bits::new()),
            T::Utf8 | T::Binary => Values::Bytes(Pooled::new(), Pooled::new()),
            T::LargeUtf8 | T::LargeBinary => Values::LargeBytes(Pooled::new(), Pooled::new()),
            _ => return None,
        };
        let text = matches!(gathered(data_type), T::Utf8 | T::LargeUtf8);
        let nulls = Nulls { bits: Bits::new(), any: false };
        let mut cells = Self { values, text, nullable, nulls, len: 0 };
        cells.start();
        Some(cells)
    }

    /// Offsets begin with one zero.
    fn start(&mut self) {
        match &mut self.values {
            Values::Bytes(offsets, _) => offsets.values.push(0),
            Values::LargeBytes(offsets, _) => offsets.values.push(0),
            _ => {}
        }
    }

    /// Bytes of text.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        match &self.values {
            Values::Bytes(_, bytes) | Values::LargeBytes(_, bytes) => bytes.values.len(),
            _ => 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// A value has been put into [`Cells::values`].
    #[inline]
    pub(crate) fn count(&mut self) {
        self.len += 1;
        if self.nulls.any {
            self.nulls.bits.push(true);
        }
    }

    pub(crate) fn push_null(&mut self) {
        match &mut self.values {
            Values::I8(values) => values.values.push(0),
            Values::I16(values) => values.values.push(0),
            Values::I32(values) => values.values.push(0),
            Values::I64(values) => values.values.push(0),
            Values::U8(values) => values.values.push(0),
            Values::U16(values) => values.values.push(0),
            Values::U32(values) => values.values.push(0),
            Values::U64(values) => values.values.push(0),
            Values::F32(values) => values.values.push(0.0),
            Values::F64(values) => values.values.push(0.0),
            Values::Decimal(values, _) => values.values.push(0),
            Values::Bool(bits) => bits.push(false),
            Values::Bytes(offsets, _) => offsets.values.extend_from_within(self.len..),
            Values::LargeBytes(offsets, _) => offsets.values.extend_from_within(self.len..),
        }
        if !self.nulls.any {
            self.nulls.any = true;
            self.nulls.bits.fill(self.len);
        }
        self.nulls.bits.push(false);
        self.len += 1;
    }

    /// Adds bytes; false if the column cannot hold as many.
    #[inline]
    pub(crate) fn push_bytes(&mut self, value: &[u8]) -> bool {
        match &mut self.values {
            Values::Bytes(offsets, bytes) => {
                let Ok(end) = i32::try_from(bytes.values.len() + value.len()) else {
                    return false;
                };
                bytes.values.extend_from_slice(value);
                offsets.values.push(end);
            }
            Values::LargeBytes(offsets, bytes) => {
                let Ok(end) = i64::try_from(bytes.values.len() + value.len()) else {
                    return false;
                };
                bytes.values.extend_from_slice(value);
                offsets.values.push(end);
            }
            _ => return false,
        }
        self.count();
        true
    }

    pub(crate) fn push_bool(&mut self, value: bool) {
        if let Values::Bool(bits) = &mut self.values {
            bits.push(value);
            self.count();
        }
    }

    /// Takes back all values from `len` on.
    pub(crate) fn truncate(&mut self, len: usize) {
        if len >= self.len {
            return;
        }
        self.len = len;
        match &mut self.values {
            Values::I8(values) => values.values.truncate(len),
            Values::I16(values) => values.values.truncate(len),
            Values::I32(values) => values.values.truncate(len),
            Values::I64(values) => values.values.truncate(len),
            Values::U8(values) => values.values.truncate(len),
            Values::U16(values) => values.values.truncate(len),
            Values::U32(values) => values.values.truncate(len),
            Values::U64(values) => values.values.truncate(len),
            Values::F32(values) => values.values.truncate(len),
            Values::F64(values) => values.values.truncate(len),
            Values::Decimal(values, _) => values.values.truncate(len),
            Values::Bool(bits) => bits.truncate(len),
            Values::Bytes(offsets, bytes) => {
                offsets.values.truncate(len + 1);
                bytes.values.truncate(offsets.values[len].as_usize());
            }
            Values::LargeBytes(offsets, bytes) => {
                offsets.values.truncate(len + 1);
                bytes.values.truncate(offsets.values[len].as_usize());
            }
        }
        if self.nulls.any {
            self.nulls.bits.truncate(len);
        }
    }

    /// The buffers of all values so far; it goes on empty, with memory that has come back.
    pub(crate) fn lend(&mut self) -> (Vec<Buffer>, Option<NullBuffer>) {
        let buffers = match &mut self.values {
            Values::I8(values) => vec![values.lend()],
            Values::I16(values) => vec![values.lend()],
            Values::I32(values) => vec![values.lend()],
            Values::I64(values) => vec![values.lend()],
            Values::U8(values) => vec![values.lend()],
            Values::U16(values) => vec![values.lend()],
            Values::U32(values) => vec![values.lend()],
            Values::U64(values) => vec![values.lend()],
            Values::F32(values) => vec![values.lend()],
            Values::F64(values) => vec![values.lend()],
            Values::Decimal(values, _) => vec![values.lend()],
            Values::Bool(bits) => vec![bits.lend().into_inner()],
            Values::Bytes(offsets, bytes) => vec![offsets.lend(), bytes.lend()],
            Values::LargeBytes(offsets, bytes) => vec![offsets.lend(), bytes.lend()],
        };
        let any = std::mem::take(&mut self.nulls.any);
        let nulls = any.then(|| NullBuffer::new(self.nulls.bits.lend()));
        self.len = 0;
        self.start();
        (buffers, nulls)
    }
}
