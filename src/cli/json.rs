//! Writes JSON objects whose members stay in the order they were added.

use std::fmt::Write as _;

use crate::runtime::report::KeyValue;

/// An object or an array under construction.
#[derive(Debug, Clone)]
pub(super) struct Json {
    text: String,
    close: char,
}

impl Json {
    /// An empty object.
    pub(super) fn object() -> Self {
        Self { text: "{".to_owned(), close: '}' }
    }

    /// An empty array.
    pub(super) fn array() -> Self {
        Self { text: "[".to_owned(), close: ']' }
    }

    fn separate(&mut self) {
        if self.text.len() > 1 {
            self.text.push_str(", ");
        }
    }

    /// Adds a member with a value that is JSON already.
    pub(super) fn raw(&mut self, name: &str, value: &str) -> &mut Self {
        self.separate();
        let _ = write!(self.text, "{}: {value}", quoted(name));
        self
    }

    /// Adds a whole number.
    pub(super) fn int(&mut self, name: &str, value: impl Into<u128>) -> &mut Self {
        let value: u128 = value.into();
        self.raw(name, &value.to_string())
    }

    /// Adds a number; what JSON cannot write becomes null.
    pub(super) fn float(&mut self, name: &str, value: f64) -> &mut Self {
        let text = if value.is_finite() { format!("{value}") } else { "null".to_owned() };
        self.raw(name, &text)
    }

    /// Adds a text.
    pub(super) fn text(&mut self, name: &str, value: &str) -> &mut Self {
        self.raw(name, &quoted(value))
    }

    /// Adds an object or array.
    pub(super) fn member(&mut self, name: &str, value: &Self) -> &mut Self {
        self.raw(name, &value.finish())
    }

    /// Adds an element to an array.
    pub(super) fn element(&mut self, value: &Self) -> &mut Self {
        self.separate();
        self.text.push_str(&value.finish());
        self
    }

    /// Adds an element that is JSON already.
    pub(super) fn element_raw(&mut self, value: &str) -> &mut Self {
        self.separate();
        self.text.push_str(value);
        self
    }

    /// Adds a text to an array.
    pub(super) fn element_text(&mut self, value: &str) -> &mut Self {
        self.element_raw(&quoted(value))
    }

    /// Adds a value of a key to an array, as what it is where JSON has such values.
    pub(super) fn element_key(&mut self, value: &KeyValue) -> &mut Self {
        match value {
            KeyValue::Null => self.element_raw("null"),
            KeyValue::Boolean(_) | KeyValue::Integer(_) => self.element_raw(&value.to_string()),
            KeyValue::Float(float) if float.is_finite() => self.element_raw(&float.to_string()),
            _ => self.element_text(&value.to_string()),
        }
    }

    /// The text.
    pub(super) fn finish(&self) -> String {
        format!("{}{}", self.text, self.close)
    }
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_stay_in_order_and_are_valid_json() {
        let mut inner = Json::array();
        inner.element(Json::object().int("z", 1_u64)).element(Json::object().float("a", f64::NAN));
        let mut json = Json::object();
        json.text("b\"", "x\ny").float("a", 0.5).member("list", &inner);
        let text = json.finish();
        assert_eq!(text, r#"{"b\"": "x\ny", "a": 0.5, "list": [{"z": 1}, {"a": null}]}"#);
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }
}
