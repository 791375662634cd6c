//! Whether bytes are a row in Arrow's row format, which Arrow itself does not ask: it takes bytes apart that it
//! wrote, and panics at others. Bytes of a file may be damaged, so they are walked through first.

use arrow::datatypes::{DataType, Field};

/// Before a value of one of the types of fixed width, and before a struct or a list of fixed length.
const VALID: u8 = 1;
/// Before everything that is null.
const NULL: u8 = 0;
/// Before, or instead of, byte strings.
const EMPTY: u8 = 1;
const NOT_EMPTY: u8 = 2;
/// What a value of type Null is.
const NULL_VALUE: [u8; 2] = [2, 3];
/// After a block that others follow.
const CONTINUED: u8 = 0xff;

/// Whether `row` holds values of these types, the first `required` of them not null.
pub(super) fn is_row(row: &[u8], types: &[DataType], required: usize) -> bool {
    let mut rest = row;
    let mut fields = types.iter().enumerate();
    fields.all(|(i, data_type)| pass(&mut rest, data_type, i >= required).is_some())
        && rest.is_empty()
}

/// Takes the first byte.
fn first(rest: &mut &[u8]) -> Option<u8> {
    rest.split_off_first().copied()
}

/// Goes past one value; none if it is not one.
fn pass(rest: &mut &[u8], data_type: &DataType, nullable: bool) -> Option<()> {
    let fixed = match data_type {
        DataType::Boolean => Some(1),
        DataType::FixedSizeBinary(size) => Some(usize::try_from(*size).ok()?),
        other => other.primitive_width(),
    };
    if let Some(width) = fixed {
        is_valid(rest, nullable)?;
        rest.split_off(..width)?;
        return Some(());
    }
    match data_type {
        DataType::Null => (rest.split_off(..2)? == NULL_VALUE).then_some(()),
        DataType::Binary | DataType::LargeBinary | DataType::BinaryView => {
            pass_bytes(rest, nullable)?;
            Some(())
        }
        DataType::Utf8 | DataType::LargeUtf8 | DataType::Utf8View => {
            let text = pass_bytes(rest, nullable)?;
            str::from_utf8(&text.unwrap_or_default()).ok()?;
            Some(())
        }
        DataType::Dictionary(_, values) => pass(rest, values, nullable),
        DataType::Struct(fields) => {
            // The fields of a null are there all the same.
            let valid = is_valid(rest, nullable)?;
            fields
                .iter()
                .try_for_each(|field| pass(rest, field.data_type(), field.is_nullable() || !valid))
        }
        DataType::FixedSizeList(field, size) => {
            let size = if is_valid(rest, nullable)? { *size } else { 0 };
            (0..size).try_for_each(|_| pass(rest, field.data_type(), field.is_nullable()))
        }
        DataType::List(field)
        | DataType::LargeList(field)
        | DataType::ListView(field)
        | DataType::LargeListView(field) => pass_items(rest, nullable, &[field]),
        DataType::Map(entries, _) => match entries.data_type() {
            DataType::Struct(fields) => {
                let fields: Vec<&Field> = fields.iter().map(AsRef::as_ref).collect();
                pass_items(rest, nullable, &fields)
            }
            _ => None,
        },
        DataType::RunEndEncoded(_, values) => {
            let value = pass_bytes(rest, false)?.filter(|value| !value.is_empty())?;
            is_row(&value, &[values.data_type().clone()], usize::from(!nullable)).then_some(())
        }
        DataType::Union(fields, _) => {
            let found = i8::try_from(first(rest)?).ok()?;
            let (_, field) = fields.iter().find(|(id, _)| *id == found)?;
            pass(rest, field.data_type(), true)
        }
        _ => None,
    }
}

/// Goes past the byte that says whether a value is there.
fn is_valid(rest: &mut &[u8], nullable: bool) -> Option<bool> {
    match first(rest)? {
        VALID => Some(true),
        NULL if nullable => Some(false),
        _ => None,
    }
}

/// Goes past the items of a list, each a byte string of the values `fields`.
fn pass_items(rest: &mut &[u8], nullable: bool, fields: &[&Field]) -> Option<()> {
    let mut any = false;
    loop {
        // An empty byte string is the end. A null can only be the whole list.
        let Some(item) = pass_bytes(rest, nullable && !any)? else { return Some(()) };
        if item.is_empty() {
            return Some(());
        }
        any = true;
        let mut item = item.as_slice();
        fields
            .iter()
            .try_for_each(|field| pass(&mut item, field.data_type(), field.is_nullable()))?;
        if !item.is_empty() {
            return None;
        }
    }
}

/// Goes past a byte string and answers it; none inside for a null.
#[expect(clippy::option_option, reason = "a null, and what is not a byte string")]
fn pass_bytes(rest: &mut &[u8], nullable: bool) -> Option<Option<Vec<u8>>> {
    match first(rest)? {
        NULL if nullable => return Some(None),
        EMPTY => return Some(Some(Vec::new())),
        NOT_EMPTY => {}
        _ => return None,
    }
    let mut bytes = Vec::new();
    for block in 0.. {
        // Four short blocks and then long ones, each with a byte that says how much of it is used.
        let width = if block < 4 { 8 } else { 32 };
        let content = rest.split_off(..width)?;
        match first(rest)? {
            CONTINUED => bytes.extend_from_slice(content),
            used => {
                bytes.extend_from_slice(content.get(..usize::from(used))?);
                break;
            }
        }
    }
    // No byte string is written like this: the end of a list would not be told from an item.
    (!bytes.is_empty()).then_some(Some(bytes))
}
