//! The report as one page that needs nothing else: style and plots are inside, and nothing is fetched.

use std::fmt::Write as _;

use super::document::{Bars, Block, Series, Table};

/// Colours and measures; dark where the reader's system is.
const STYLE: &str = include_str!("page.css");

/// The page.
pub(super) fn page(title: &str, blocks: &[Block]) -> String {
    let title = escaped(title);
    let mut out = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; \
         img-src data:\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n"
    );
    for block in blocks {
        match block {
            Block::Heading(heading) => {
                let _ = writeln!(out, "<h2>{}</h2>", escaped(heading));
            }
            Block::Text(text) => {
                let _ = writeln!(out, "<p>{}</p>", escaped(text));
            }
            Block::Points(points) => write_points("ul", points, &mut out),
            Block::Steps(steps) => write_points("ol", steps, &mut out),
            Block::Table(table) => write_table(table, &mut out),
            Block::Bars(bars) => write_bars(bars, &mut out),
            Block::Series(series) => write_series(series, &mut out),
            Block::Code(code) => {
                let _ = writeln!(out, "<pre>{}</pre>", escaped(code));
            }
        }
    }
    out.push_str("</body>\n</html>\n");
    out
}

fn write_points(list: &str, points: &[(String, String)], out: &mut String) {
    let _ = writeln!(out, "<{list}>");
    for (title, text) in points {
        let _ = writeln!(out, "<li><b>{}</b>: {}</li>", escaped(title), escaped(text));
    }
    let _ = writeln!(out, "</{list}>");
}

/// Text in which no character means something to HTML.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\n' => out.push(c),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out
}

fn write_table(table: &Table, out: &mut String) {
    let heads = table.heads().collect::<Vec<_>>();
    let class = |right: bool| if right { " class=\"r\"" } else { "" };
    out.push_str("<table>\n");
    if heads.iter().any(|(head, _)| !head.is_empty()) {
        out.push_str("<tr>");
        for (head, right) in &heads {
            let _ = write!(out, "<th{}>{}</th>", class(*right), escaped(head));
        }
        out.push_str("</tr>\n");
    }
    for row in &table.rows {
        out.push_str("<tr>");
        for (cell, (_, right)) in row.iter().zip(&heads) {
            let _ = write!(out, "<td{}>{}</td>", class(*right), escaped(cell));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</table>\n");
}

/// Width of plots, in units of their own.
const WIDTH: f64 = 900.0;
/// Room for labels to the left of bars, and for numbers to the right.
const LABELS: f64 = 250.0;
const NUMBERS: f64 = 210.0;
/// Height of a bar with its gap.
const ROW: f64 = 22.0;

fn open_svg(title: &str, height: f64, out: &mut String) {
    let title = escaped(title);
    let _ = writeln!(
        out,
        "<svg viewBox=\"0 0 {WIDTH} {height:.0}\" width=\"{WIDTH}\" role=\"img\" aria-label=\"{title}\">\n\
         <text x=\"0\" y=\"14\" font-weight=\"600\">{title}</text>"
    );
}

#[expect(clippy::cast_precision_loss, reason = "few bars")]
fn write_bars(bars: &Bars, out: &mut String) {
    let longest = bars.rows.iter().map(|(_, length, _)| *length);
    let longest = longest.chain(bars.reference.map(|(length, _)| length)).fold(1e-9, f64::max);
    let scale = (WIDTH - LABELS - NUMBERS) / longest;
    let top = 40.0;
    let height = top + ROW * bars.rows.len() as f64 + 6.0;
    open_svg(&bars.title, height, out);
    let rows = || bars.rows.iter().enumerate().map(|(i, row)| (top + ROW * i as f64, row));
    for (y, (_, length, _)) in rows() {
        let _ = writeln!(
            out,
            "<rect class=\"bar\" x=\"{LABELS:.0}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.0}\" rx=\"2\"/>",
            length * scale,
            ROW - 6.0,
        );
    }
    if let Some((length, name)) = bars.reference {
        let x = LABELS + length * scale;
        let _ = writeln!(
            out,
            "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.0}\" y2=\"{height:.0}\"/>\
             <text class=\"soft\" x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\">{}</text>",
            top - 4.0,
            top - 8.0,
            escaped(name)
        );
    }
    // Over the line, which runs through the numbers of short bars.
    for (y, (label, length, text)) in rows() {
        let _ = writeln!(
            out,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{}</text>\
             <text class=\"soft\" x=\"{:.1}\" y=\"{:.0}\">{}</text>",
            LABELS - 8.0,
            y + 12.0,
            escaped(label),
            LABELS + length * scale + 8.0,
            y + 12.0,
            escaped(text)
        );
    }
    out.push_str("</svg>\n");
}

/// Points of a line; where there are more, each stands for the largest of its neighbours.
const POINTS_MAX: usize = 600;

#[expect(clippy::cast_precision_loss, reason = "few points")]
fn write_series(series: &Series, out: &mut String) {
    if series.points.is_empty() {
        return;
    }
    let step = series.points.len().div_ceil(POINTS_MAX);
    let points = series
        .points
        .chunks(step)
        .filter_map(|chunk| chunk.iter().max_by(|a, b| a.1.total_cmp(&b.1)));
    let points = points.collect::<Vec<_>>();
    let highest = points.iter().map(|(_, value)| *value).fold(1.0, f64::max);
    let (left, top, bottom) = (40.0, 30.0, 210.0);
    open_svg(&series.title, bottom + 26.0, out);
    let across = (WIDTH - left - 10.0) / (points.len().max(2) - 1) as f64;
    let y = |value: f64| bottom - value / highest * (bottom - top);
    for value in [0.0, 1.0, highest] {
        let at = y(value);
        let _ = writeln!(
            out,
            "<line class=\"axis\" x1=\"{left:.0}\" x2=\"{WIDTH:.0}\" y1=\"{at:.1}\" y2=\"{at:.1}\"/>\
             <text class=\"soft\" x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\">{value:.1}</text>",
            left - 6.0,
            at + 4.0
        );
    }
    let path = points.iter().enumerate().map(|(i, (_, value))| {
        let letter = if i == 0 { 'M' } else { 'L' };
        format!("{letter}{:.1} {:.1}", left + across * i as f64, y(*value))
    });
    let path = path.collect::<Vec<_>>().join(" ");
    let _ = writeln!(out, "<path class=\"line\" d=\"{path}\"/>");
    let worst = points.iter().enumerate().max_by(|a, b| a.1.1.total_cmp(&b.1.1));
    if let Some((i, (label, value))) = worst {
        let x = left + across * i as f64;
        let anchor = if x > WIDTH / 2.0 { "end" } else { "start" };
        let _ = writeln!(
            out,
            "<circle class=\"dot\" cx=\"{x:.1}\" cy=\"{:.1}\" r=\"4\"/>\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" dx=\"{}\">{}: {value:.2}</text>",
            y(*value),
            y(*value) + 4.0,
            if x > WIDTH / 2.0 { -8 } else { 8 },
            escaped(label)
        );
    }
    let ends = [(left, "start", points.first()), (WIDTH, "end", points.last())];
    for (x, anchor, point) in ends {
        let label = point.map(|(label, _)| escaped(label)).unwrap_or_default();
        let _ = writeln!(
            out,
            "<text class=\"soft\" x=\"{x:.0}\" y=\"{:.0}\" text-anchor=\"{anchor}\">{label}</text>",
            bottom + 18.0
        );
    }
    out.push_str("</svg>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_a_key_becomes_markup() {
        let key = "</title><script>alert(1)</script>&\"";
        let blocks = [
            Block::Table(Table { head: vec!["key"], rows: vec![vec![key.into()]] }),
            Block::Bars(Bars {
                title: key.into(),
                rows: vec![(key.into(), 1.0, key.into())],
                reference: Some((2.0, "mean")),
            }),
            Block::Series(Series {
                title: key.into(),
                points: (0..2_000).map(|i| (key.into(), f64::from(i))).collect(),
            }),
            Block::Code(key.into()),
        ];
        let page = page(key, &blocks);
        assert!(!page.contains("<script"), "{page}");
        assert!(!page.contains("http://") && !page.contains("https://"), "{page}");
        for tag in ["svg", "table", "pre", "html", "body"] {
            let (open, close) = (format!("<{tag}"), format!("</{tag}>"));
            assert_eq!(page.matches(&open).count(), page.matches(&close).count(), "{tag}");
        }
        // A long series is thinned, and its peak stays.
        assert!(page.contains("1999.00"), "the peak is named");
        assert!(page.matches(" L").count() < POINTS_MAX, "thinned");
    }
}
