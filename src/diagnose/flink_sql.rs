//! Settings and statements of Flink SQL, to paste.

use std::fmt::Write as _;

use super::predict::sidetracked;
use super::profile::Profile;
use crate::runtime::report::KeyValue;

/// What the statements are about.
#[derive(Debug, Clone, Copy)]
pub struct Query<'a> {
    /// The key columns.
    pub keys: &'a [String],
    /// The event-time column and the window's size as an interval of SQL, if there is a window.
    pub window: Option<(&'a str, &'a str)>,
    /// Over so many salts.
    pub salts: u16,
}

/// Settings for two-phase aggregation in mini-batches.
pub fn settings(mini_batch_rows: u64) -> String {
    format!(
        "SET 'table.exec.mini-batch.enabled' = 'true';\n\
         SET 'table.exec.mini-batch.allow-latency' = '1 s';\n\
         SET 'table.exec.mini-batch.size' = '{mini_batch_rows}';\n\
         SET 'table.optimizer.agg-phase-strategy' = 'TWO_PHASE';\n\
         -- for COUNT(DISTINCT ..), which two phases alone do not help:\n\
         SET 'table.optimizer.distinct-agg.split.enabled' = 'true';\n\
         SET 'table.optimizer.distinct-agg.split.bucket-num' = '1024';\n"
    )
}

/// An identifier in Flink SQL.
fn quoted(name: &str) -> String {
    format!("`{}`", name.replace('`', "``"))
}

fn literal(value: &KeyValue) -> String {
    match value {
        KeyValue::Text(text) => format!("'{}'", text.replace('\'', "''")),
        KeyValue::Boolean(value) => value.to_string().to_uppercase(),
        other => other.to_string(),
    }
}

/// `GROUP BY` over every key with a salt, and the merge; `events` and `value` stand for the reader's table and
/// column.
pub fn salted(query: &Query<'_>) -> String {
    statement(query, &format!("RAND_INTEGER({})", query.salts))
}

/// The same with salts for the hot keys only.
pub fn sidetracking(query: &Query<'_>, profile: &Profile) -> Option<String> {
    let hot = sidetracked(profile);
    if hot.is_empty() {
        return None;
    }
    let conditions = hot.iter().map(|key| {
        let fields = query.keys.iter().zip(&key.key).map(|(name, value)| match value {
            KeyValue::Null => format!("{} IS NULL", quoted(name)),
            value => format!("{} = {}", quoted(name), literal(value)),
        });
        fields.collect::<Vec<_>>().join(" AND ")
    });
    let conditions = conditions.collect::<Vec<_>>().join("\n             OR ");
    let salt =
        format!("CASE WHEN {conditions}\n           THEN RAND_INTEGER({}) ELSE 0 END", query.salts);
    Some(statement(query, &salt))
}

fn statement(query: &Query<'_>, salt: &str) -> String {
    let keys = query.keys.iter().map(|name| quoted(name)).collect::<Vec<_>>();
    let mut grouping = keys.clone();
    let mut source = format!("(\n      SELECT *, {salt} AS salt\n      FROM events\n    )");
    if let Some((time, size)) = query.window {
        source = format!(
            "TABLE(TUMBLE(\n      TABLE salted_events, DESCRIPTOR({}), INTERVAL {size}))",
            quoted(time)
        );
        grouping.splice(0..0, ["window_start".to_owned(), "window_end".to_owned()]);
    }
    let grouping = grouping.join(", ");
    let separator = if grouping.is_empty() { "" } else { ", " };
    let mut sql = String::new();
    if let Some((_, _)) = query.window {
        let _ = write!(
            sql,
            "CREATE TEMPORARY VIEW salted_events AS\nSELECT *, {salt} AS salt\nFROM events;\n\n"
        );
    }
    let _ = write!(
        sql,
        "SELECT {grouping}{separator}SUM(cnt) AS cnt, SUM(total) AS total\n\
         FROM (\n  SELECT {grouping}{separator}salt, COUNT(*) AS cnt, SUM(`value`) AS total\n  FROM {source}\n  \
         GROUP BY {grouping}{separator}salt\n)"
    );
    if !grouping.is_empty() {
        let _ = write!(sql, "\nGROUP BY {grouping}");
    }
    sql.push_str(";\n");
    sql
}

/// A length of time as an interval of SQL.
pub fn interval(size: std::time::Duration) -> String {
    let millis = size.as_millis();
    let units = [(86_400_000, "DAY"), (3_600_000, "HOUR"), (60_000, "MINUTE"), (1_000, "SECOND")];
    let whole =
        units.iter().find(|(length, _)| millis >= *length && millis.is_multiple_of(*length));
    match whole {
        // By default SQL takes two digits before the unit.
        Some((length, unit)) if millis / length < 100 => format!("'{}' {unit}", millis / length),
        Some((length, unit)) => format!("'{}' {unit}(6)", millis / length),
        None => format!("'{}.{:03}' SECOND(6, 3)", millis / 1_000, millis % 1_000),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn statements_are_whole() {
        let keys = ["user id".to_owned()];
        let query = Query { keys: &keys, window: None, salts: 16 };
        assert_eq!(
            salted(&query),
            "SELECT `user id`, SUM(cnt) AS cnt, SUM(total) AS total\nFROM (\n  SELECT `user id`, salt, \
             COUNT(*) AS cnt, SUM(`value`) AS total\n  FROM (\n      SELECT *, RAND_INTEGER(16) AS \
             salt\n      FROM events\n    )\n  GROUP BY `user id`, salt\n)\nGROUP BY `user id`;\n"
        );
        let windowed = Query { window: Some(("ts", "'1' MINUTE")), ..query };
        let sql = salted(&windowed);
        assert!(sql.contains("DESCRIPTOR(`ts`), INTERVAL '1' MINUTE"), "{sql}");
        assert!(sql.ends_with("GROUP BY window_start, window_end, `user id`;\n"), "{sql}");
        let open = sql.matches('(').count();
        assert_eq!(open, sql.matches(')').count(), "{sql}");
    }

    #[test]
    fn intervals() {
        for (millis, text) in [
            (60_000, "'1' MINUTE"),
            (86_400_000, "'1' DAY"),
            (90_000, "'90' SECOND"),
            (500, "'0.500' SECOND(6, 3)"),
            (123_000, "'123' SECOND(6)"),
        ] {
            assert_eq!(interval(Duration::from_millis(millis)), text);
        }
    }
}
