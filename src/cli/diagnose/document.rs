//! A report as a list of blocks, which each form of output writes in its own way.

/// Part of a report.
#[derive(Debug, Clone)]
pub(super) enum Block {
    /// A heading.
    Heading(&'static str),
    /// A paragraph.
    Text(String),
    /// Points with a title each.
    Points(Vec<(String, String)>),
    /// The same, numbered.
    Steps(Vec<(String, String)>),
    /// Rows of cells.
    Table(Table),
    /// Numbers as bars.
    Bars(Bars),
    /// Numbers over time; texts show nothing of them that a table does not.
    Series(Series),
    /// Statements to paste.
    Code(String),
}

/// Rows of cells. Columns whose head begins with `>` stand to the right.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) head: Vec<&'static str>,
    pub(super) rows: Vec<Vec<String>>,
}

impl Table {
    /// A column's head, and whether its cells stand to the right.
    pub(super) fn heads(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.head.iter().map(|head| match head.strip_prefix('>') {
            Some(head) => (head, true),
            None => (*head, false),
        })
    }
}

/// Numbers as bars.
#[derive(Debug, Clone)]
pub(super) struct Bars {
    /// What they are.
    pub(super) title: String,
    /// Label, length, and the number in words.
    pub(super) rows: Vec<(String, f64, String)>,
    /// A length to compare with, and its name.
    pub(super) reference: Option<(f64, &'static str)>,
}

/// Numbers over time.
#[derive(Debug, Clone)]
pub(super) struct Series {
    pub(super) title: String,
    /// Label and value of each moment.
    pub(super) points: Vec<(String, f64)>,
}

/// A whole number with commas between thousands.
pub(super) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thousands_are_grouped() {
        for (number, text) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(thousands(number), text);
        }
    }
}
