//! The report as plain text and as Markdown.

use std::fmt::Write as _;

use super::document::{Bars, Block, Table};

/// Columns of the longest bar.
const BAR_WIDTH: usize = 40;

/// Columns of running text.
const TEXT_WIDTH: usize = 100;

/// Cells of the tables of plain text are cut after so many characters.
const CELL_WIDTH: usize = 48;

/// For a terminal.
pub(super) fn plain(title: &str, blocks: &[Block]) -> String {
    let mut out = format!("{title}\n");
    for block in blocks {
        match block {
            Block::Heading(heading) => {
                let _ = writeln!(out, "\n{}", heading.to_uppercase());
            }
            Block::Text(text) => wrapped(text, "", &mut out),
            Block::Points(points) => {
                for (title, text) in points {
                    wrapped(&format!("* {title}: {text}"), "  ", &mut out);
                }
            }
            Block::Steps(steps) => {
                for (number, (title, text)) in (1..).zip(steps) {
                    wrapped(&format!("{number}. {title}: {text}"), "   ", &mut out);
                }
            }
            Block::Table(table) => plain_table(table, &mut out),
            Block::Bars(bars) => plain_bars(bars, &mut out),
            Block::Series(_) => {}
            Block::Code(code) => {
                for line in code.lines() {
                    let _ = writeln!(out, "    {line}");
                }
            }
        }
    }
    out
}

/// Breaks lines between words; those after the first begin with `indent`.
fn wrapped(text: &str, indent: &str, out: &mut String) {
    let mut width = 0;
    for word in text.split(' ') {
        let length = word.chars().count();
        if width > 0 && width + 1 + length > TEXT_WIDTH {
            let _ = write!(out, "\n{indent}{word}");
            width = indent.len() + length;
        } else {
            let separator = if width == 0 { "" } else { " " };
            let _ = write!(out, "{separator}{word}");
            width += separator.len() + length;
        }
    }
    out.push('\n');
}

/// A cell that stays on its line.
fn cell(text: &str) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut clean = clean.collect::<String>();
    if clean.chars().count() > CELL_WIDTH {
        clean = clean.chars().take(CELL_WIDTH - 2).chain("..".chars()).collect();
    }
    clean
}

fn plain_table(table: &Table, out: &mut String) {
    let heads = table.heads().collect::<Vec<_>>();
    let rows = table.rows.iter().map(|row| row.iter().map(|text| cell(text)).collect::<Vec<_>>());
    let rows = rows.collect::<Vec<_>>();
    let widths = heads.iter().enumerate().map(|(i, (head, _))| {
        let cells = rows.iter().map(|row| row[i].chars().count());
        cells.chain([head.len()]).max().unwrap_or(0)
    });
    let widths = widths.collect::<Vec<_>>();
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for ((cell, width), (_, right)) in cells.zip(&widths).zip(&heads) {
            let space = width - cell.chars().count().min(*width);
            let padding = " ".repeat(space);
            let _ = if *right {
                write!(text, "  {padding}{cell}")
            } else {
                write!(text, "  {cell}{padding}")
            };
        }
        let _ = writeln!(out, "{}", text.trim_end());
    };
    if heads.iter().any(|(head, _)| !head.is_empty()) {
        line(&mut heads.iter().map(|(head, _)| *head));
    }
    for row in &rows {
        line(&mut row.iter().map(String::as_str));
    }
}

fn plain_bars(bars: &Bars, out: &mut String) {
    let longest = bars.rows.iter().map(|(_, length, _)| *length).fold(f64::MIN_POSITIVE, f64::max);
    let labels = bars.rows.iter().map(|(label, _, _)| label.chars().count()).max().unwrap_or(0);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "columns of a terminal"
    )]
    let columns = |length: f64| (length / longest * BAR_WIDTH as f64).round() as usize;
    let reference = bars.reference.filter(|(length, _)| *length <= longest);
    let mark = reference.map(|(length, _)| columns(length).saturating_sub(1));
    let name = reference.map(|(_, name)| format!(" (| {name})")).unwrap_or_default();
    let _ = writeln!(out, "{}{name}", bars.title);
    for (label, length, text) in &bars.rows {
        let filled = columns(*length);
        let bar = (0..BAR_WIDTH).map(|column| match mark {
            Some(mark) if column == mark => '|',
            _ if column < filled => '#',
            _ => ' ',
        });
        let bar = bar.collect::<String>();
        let _ = writeln!(out, "  {label:<labels$}  {bar}  {text}");
    }
}

/// For a page or a ticket.
pub(super) fn markdown(title: &str, blocks: &[Block]) -> String {
    let mut out = format!("# {}\n", escaped(title));
    for block in blocks {
        match block {
            Block::Heading(heading) => {
                let _ = writeln!(out, "\n## {heading}\n");
            }
            Block::Text(text) => {
                let _ = writeln!(out, "{}\n", escaped(text));
            }
            Block::Points(points) => {
                for (title, text) in points {
                    let _ = writeln!(out, "- **{}**: {}", escaped(title), escaped(text));
                }
                out.push('\n');
            }
            Block::Steps(steps) => {
                for (number, (title, text)) in (1..).zip(steps) {
                    let _ = writeln!(out, "{number}. **{}**: {}", escaped(title), escaped(text));
                }
                out.push('\n');
            }
            Block::Table(table) => markdown_table(table, &mut out),
            Block::Bars(bars) => {
                out.push_str("```text\n");
                plain_bars(bars, &mut out);
                out.push_str("```\n\n");
            }
            Block::Series(_) => {}
            Block::Code(code) => {
                let _ = writeln!(out, "```sql\n{code}```\n");
            }
        }
    }
    out
}

/// Text in which no character means something to Markdown.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' | '`' | '*' | '_' | '|' | '<' | '>' | '[' | ']' | '#' => {
                out.push('\\');
                out.push(c);
            }
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn markdown_table(table: &Table, out: &mut String) {
    let heads = table.heads().collect::<Vec<_>>();
    let line = |cells: &mut dyn Iterator<Item = String>| {
        format!("| {} |\n", cells.collect::<Vec<_>>().join(" | "))
    };
    out.push_str(&line(&mut heads.iter().map(|(head, _)| (*head).to_owned())));
    out.push_str(&line(
        &mut heads.iter().map(|(_, right)| if *right { "---:" } else { "---" }.to_owned()),
    ));
    for row in &table.rows {
        out.push_str(&line(&mut row.iter().map(|cell| escaped(cell))));
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<Block> {
        vec![
            Block::Heading("Heaviest keys"),
            Block::Table(Table {
                head: vec!["key", ">rows"],
                rows: vec![vec!["a|b\n".into(), "12".into()], vec!["c".into(), "3".into()]],
            }),
            Block::Bars(Bars {
                title: "Rows".into(),
                rows: vec![("0".into(), 4.0, "4".into()), ("1".into(), 2.0, "2".into())],
                reference: Some((3.0, "mean")),
            }),
        ]
    }

    #[test]
    fn plain_tables_and_bars_line_up() {
        let text = plain("T", &sample());
        assert!(text.contains("  key   rows\n  a|b     12\n  c        3\n"), "{text}");
        let bars = text.lines().filter(|line| line.contains('#')).collect::<Vec<_>>();
        assert_eq!(bars[0].matches('#').count(), 39);
        assert_eq!(bars[1].matches('#').count(), 20);
        assert_eq!(bars[0].find('|'), bars[1].find('|'));
    }

    #[test]
    fn markdown_keeps_cells_apart() {
        let text = markdown("T", &sample());
        assert!(text.contains("| key | rows |\n| --- | ---: |\n| a\\|b  | 12 |\n"), "{text}");
    }

    #[test]
    fn words_are_wrapped() {
        let mut out = String::new();
        wrapped(&"word ".repeat(40), "  ", &mut out);
        assert!(out.lines().all(|line| line.len() <= TEXT_WIDTH), "{out}");
        assert!(out.lines().nth(1).unwrap().starts_with("  word"), "{out}");
    }
}
