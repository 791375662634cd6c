//! State as bytes, so that it can be saved and read again: by another process, on another machine, at another
//! number of shards.
//!
//! Numbers are little-endian and of fixed size, lengths are `u64`; a value is its fields one after the other. What
//! was saved is read by the same type; to change a type, read the old one and convert it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Bytes that are not a value of the type that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("saved state cannot be read: {0}; was it saved by another type?")]
pub struct CodecError(pub String);

/// A value that can be written as bytes and read again.
pub trait Codec: Sized {
    /// Appends the value's bytes.
    fn save(&self, out: &mut Vec<u8>);

    /// Takes the value's bytes off the front of `input`.
    ///
    /// # Errors
    /// If they are no such value.
    fn restore(input: &mut &[u8]) -> Result<Self, CodecError>;
}

/// Takes `len` bytes off the front.
pub(crate) fn take<'a>(input: &mut &'a [u8], len: usize) -> Result<&'a [u8], CodecError> {
    let (taken, rest) = input
        .split_at_checked(len)
        .ok_or_else(|| CodecError(format!("{} bytes are left of {len}", input.len())))?;
    *input = rest;
    Ok(taken)
}

macro_rules! numbers {
    ($($type:ty)+) => {$(
        impl Codec for $type {
            fn save(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
                let bytes = take(input, size_of::<$type>())?;
                Ok(Self::from_le_bytes(bytes.try_into().expect("as many bytes")))
            }
        }
    )+};
}

numbers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);

impl Codec for bool {
    fn save(&self, out: &mut Vec<u8>) {
        out.push((*self).into());
    }

    fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
        match u8::restore(input)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(CodecError(format!("{other} is neither true nor false"))),
        }
    }
}

impl Codec for () {
    fn save(&self, _: &mut Vec<u8>) {}

    fn restore(_: &mut &[u8]) -> Result<Self, CodecError> {
        Ok(())
    }
}

impl Codec for usize {
    fn save(&self, out: &mut Vec<u8>) {
        (*self as u64).save(out);
    }

    fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
        let value = u64::restore(input)?;
        value.try_into().map_err(|_| CodecError(format!("{value} does not fit a usize")))
    }
}

impl Codec for String {
    fn save(&self, out: &mut Vec<u8>) {
        self.len().save(out);
        out.extend_from_slice(self.as_bytes());
    }

    fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
        let len = usize::restore(input)?;
        let bytes = take(input, len)?.to_vec();
        Self::from_utf8(bytes).map_err(|error| CodecError(error.to_string()))
    }
}

impl<T: Codec> Codec for Option<T> {
    fn save(&self, out: &mut Vec<u8>) {
        self.is_some().save(out);
        if let Some(value) = self {
            value.save(out);
        }
    }

    fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
        bool::restore(input)?.then(|| T::restore(input)).transpose()
    }
}

/// Saves values one after the other, behind their number.
fn save_all<'a, T: Codec + 'a>(values: impl ExactSizeIterator<Item = &'a T>, out: &mut Vec<u8>) {
    values.len().save(out);
    values.for_each(|value| value.save(out));
}

/// Restores what [`save_all`] saved. Nothing is allocated on the word of a length that may be wrong.
fn restore_all<T: Codec, C: FromIterator<T>>(input: &mut &[u8]) -> Result<C, CodecError> {
    let len = usize::restore(input)?;
    (0..len).map(|_| T::restore(input)).collect()
}

impl<T: Codec> Codec for Vec<T> {
    fn save(&self, out: &mut Vec<u8>) {
        save_all(self.iter(), out);
    }

    fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
        restore_all(input)
    }
}

impl<T: Codec> Codec for VecDeque<T> {
    fn save(&self, out: &mut Vec<u8>) {
        save_all(self.iter(), out);
    }

    fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
        restore_all(input)
    }
}

impl<T: Codec + Ord> Codec for BTreeSet<T> {
    fn save(&self, out: &mut Vec<u8>) {
        save_all(self.iter(), out);
    }

    fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
        restore_all(input)
    }
}

impl<K: Codec + Ord, V: Codec> Codec for BTreeMap<K, V> {
    fn save(&self, out: &mut Vec<u8>) {
        self.len().save(out);
        for (key, value) in self {
            key.save(out);
            value.save(out);
        }
    }

    fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
        let pairs: Vec<(K, V)> = restore_all(input)?;
        Ok(pairs.into_iter().collect())
    }
}

macro_rules! tuples {
    ($($name:ident)+) => {
        impl<$($name: Codec),+> Codec for ($($name,)+) {
            fn save(&self, out: &mut Vec<u8>) {
                #[expect(non_snake_case, reason = "types and values share their names")]
                let ($($name,)+) = self;
                $($name.save(out);)+
            }

            fn restore(input: &mut &[u8]) -> Result<Self, CodecError> {
                Ok(($($name::restore(input)?,)+))
            }
        }
    };
}

tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);

/// Implements [`Codec`](crate::process::Codec) for a struct whose fields all implement it: the fields are saved in the
/// order given here.
///
/// ```
/// #[derive(Debug, Default, PartialEq)]
/// struct Visits {
///     last: Option<i64>,
///     pages: Vec<String>,
/// }
/// saltmill::keyed_state!(Visits { last, pages });
///
/// use saltmill::process::Codec;
/// let visits = Visits { last: Some(5), pages: vec!["/".to_owned()] };
/// let mut bytes = Vec::new();
/// visits.save(&mut bytes);
/// assert_eq!(Visits::restore(&mut bytes.as_slice()), Ok(visits));
/// ```
#[macro_export]
macro_rules! keyed_state {
    ($type:ty { $($field:ident),* $(,)? }) => {
        impl $crate::process::Codec for $type {
            fn save(&self, out: &mut ::std::vec::Vec<u8>) {
                $($crate::process::Codec::save(&self.$field, out);)*
                let _ = out;
            }

            fn restore(
                input: &mut &[u8],
            ) -> ::std::result::Result<Self, $crate::process::CodecError> {
                let _ = &input;
                ::std::result::Result::Ok(Self {
                    $($field: $crate::process::Codec::restore(input)?,)*
                })
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Sample = (Option<i64>, Vec<String>, BTreeMap<String, (u8, bool)>, VecDeque<u128>);

    proptest! {
        #[test]
        fn what_is_saved_is_restored(value: Sample, after: [u8; 3]) {
            let mut bytes = Vec::new();
            value.save(&mut bytes);
            let whole = bytes.len();
            bytes.extend_from_slice(&after);
            let mut input = bytes.as_slice();
            prop_assert_eq!(Sample::restore(&mut input).unwrap(), value);
            prop_assert_eq!(input, after);
            for len in (0..whole).step_by(7) {
                prop_assert!(Sample::restore(&mut &bytes[..len]).is_err());
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let _ = Sample::restore(&mut bytes.as_slice());
        }
    }
}
