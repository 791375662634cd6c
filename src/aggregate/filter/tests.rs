use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanArray, Float32Array, Int8Array, UInt64Array};
use arrow::datatypes::Schema;
use arrow::record_batch::RecordBatch;

use super::mask::{Mask, Scope};
use super::*;

fn error(text: &str) -> String {
    Filter::parse(text).unwrap_err().to_string()
}

#[test]
fn a_condition_prints_as_it_is_read() {
    for (text, printed) in [
        ("x>5 AND not y", "x > 5 and (not y)"),
        ("5 < x", "x > 5"),
        ("(a = 'it''s') or (b is not null)", "a = 'it''s' or (not b is null)"),
        ("a.b in (1, -2.5, +3)", "a.b in (1, -2.5, 3)"),
        ("\"odd name\" between 1 and 2", "\"odd name\" >= 1 and \"odd name\" <= 2"),
        ("t >= timestamp '2024-01-01'", "t >= '2024-01-01'"),
        ("a = 1 or b = 2 or c = 3", "a = 1 or b = 2 or c = 3"),
        ("\"and\" <> true", "\"and\" <> true"),
        ("x < y", "x < y"),
        (
            "time > '1' and date is null and timestamp in (1)",
            "time > '1' and date is null and timestamp in (1)",
        ),
    ] {
        let filter = Filter::parse(text).unwrap();
        assert_eq!(filter.to_string(), printed);
        assert_eq!(Filter::parse(printed).unwrap(), filter, "{printed}");
    }
    let filter = Filter::parse("b = 1 and (a is null or b < c)").unwrap();
    assert_eq!(filter.columns(), ["b", "a", "c"]);
    let long = vec!["x = 1"; 2000].join(" or ");
    assert_eq!(Filter::parse(&long).unwrap().to_string(), long);
}

#[test]
fn what_is_no_condition_is_refused_with_its_place() {
    for (text, expected) in [
        ("", "at the end: expected a condition such as `x > 5`"),
        ("x >", "cannot understand filter \"x >\": "),
        ("x > 5 y", "at character 7: expected `and`, `or` or the end of the condition, not `y`"),
        ("x = null", "nothing equals null; write `is null`"),
        ("1 = 2", "`1 = 2` names no column"),
        ("x = 'a", "at character 5: this quote is never closed"),
        ("x + 1 > 5", "`x + 1 > 5` in a filter is not supported yet; a filter compares columns"),
        ("x like 'a%'", "`x LIKE 'a%'` in a filter is not supported yet"),
        ("lower(x) = 'a'", "in a filter is not supported yet"),
        ("x in (y)", "in a filter is not supported yet"),
        ("5", "in a filter is not supported yet"),
    ] {
        assert!(error(text).contains(expected), "{text}: {}", error(text));
    }
    let deep = format!("{}x > 1{}", "(".repeat(5000), ")".repeat(5000));
    assert!(error(&deep).contains("nested too deeply"));
}

fn batch() -> RecordBatch {
    let columns: Vec<(&str, ArrayRef)> = vec![
        ("i", Arc::new(Int8Array::from(vec![Some(-128), Some(0), Some(127), None]))),
        ("f", Arc::new(Float32Array::from(vec![Some(0.1), Some(-0.0), Some(-f32::NAN), None]))),
        ("u", Arc::new(UInt64Array::from(vec![0, 7, u64::MAX, 1 << 63]))),
        ("b", Arc::new(BooleanArray::from(vec![Some(true), Some(false), None, None]))),
    ];
    RecordBatch::try_from_iter(columns).unwrap()
}

fn mask(text: &str, schema: &Schema) -> Result<Mask, ConfigError> {
    let resolve = |name: &str| {
        schema.index_of(name).map_err(|_| ConfigError::AmbiguousColumn { name: name.to_owned() })
    };
    let scope = Scope { schema, resolve: &resolve, aggregate: "count" };
    Mask::new(&Filter::parse(text).unwrap(), &scope)
}

#[test]
fn literals_are_taken_exactly() {
    let (t, f) = (Some(true), Some(false));
    for (text, expected) in [
        ("i < 1000", [t, t, t, None]),
        ("i > 1e400", [f, f, f, None]),
        ("i >= -128.5", [t, t, t, None]),
        ("i > -128.00", [f, t, t, None]),
        ("i <> 0.5", [t, t, t, None]),
        ("i = -1.28e2", [t, f, f, None]),
        ("i < -127.5", [t, f, f, None]),
        ("u > 18446744073709551614", [f, f, t, f]),
        ("u < 18446744073709551616", [t, t, t, t]),
        ("u in (7, 9.5, -3, 99999999999999999999)", [f, t, f, f]),
        ("f = 0.1", [t, f, f, None]),
        ("f = 0", [f, t, f, None]),
        ("f > 'inf'", [f, f, t, None]),
        ("f = 'nan'", [f, f, t, None]),
        ("b = false", [f, t, None, None]),
        ("b or i is null", [t, f, None, t]),
        ("b and i = 0", [f, f, f, None]),
        ("i < u", [t, t, t, None]),
    ] {
        let batch = batch();
        let mask = mask(text, &batch.schema()).unwrap();
        assert_eq!(mask.evaluate(&batch).unwrap(), BooleanArray::from(expected.to_vec()), "{text}");
    }
}

#[test]
fn what_cannot_be_compared_is_said() {
    for (text, expected) in [
        (
            "i = 'a'",
            "the filter of count cannot use column \"i\" of type Int8; it is compared with 'a'; write a number",
        ),
        ("b = 1", "write true or false"),
        ("f = 'x'", "write a number, or 'nan'"),
        ("i", "a condition by itself must be a boolean column"),
        ("i = f", "it is compared with \"f\", which is Float32; give both one type"),
    ] {
        let error = mask(text, &batch().schema()).unwrap_err().to_string();
        assert!(error.contains(expected), "{text}: {error}");
    }
}
