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
