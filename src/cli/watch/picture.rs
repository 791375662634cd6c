//! The picture: shards with bars, hot keys, alerts.

use std::fmt::Write as _;

use indicatif::{HumanBytes, HumanCount};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::symbols::bar;
use ratatui::text::Line;
use ratatui::widgets::{Block, Paragraph, Row, Table};

use super::state::{ShardRates, WatchState, rate};
use crate::skew::decision::percent;

/// Columns of the longest bar.
const BAR_WIDTH: usize = 24;

/// Draws the state.
pub(super) fn draw(frame: &mut Frame<'_>, state: &WatchState) {
    let alerts = state.alerts();
    let lines = |count: usize| u16::try_from(count).unwrap_or(u16::MAX);
    let areas = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(lines(state.shards.len()).saturating_add(3)),
        Constraint::Min(4),
        Constraint::Length(lines(alerts.len().max(1)).saturating_add(2)),
    ]);
    let [head, shards, keys, foot] = frame.area().layout(&areas);
    frame.render_widget(
        Paragraph::new(head_line(state)).block(Block::bordered().title("Saltmill")),
        head,
    );
    draw_shards(frame, state, shards);
    draw_keys(frame, state, keys);
    let (text, colour) = if alerts.is_empty() {
        (vec![Line::from("none")], Color::Green)
    } else {
        (alerts.into_iter().map(Line::from).collect(), Color::Red)
    };
    let style = Style::default().fg(colour);
    let alerts = Paragraph::new(text).style(style).block(Block::bordered().title("Alerts"));
    frame.render_widget(alerts, foot);
}

fn head_line(state: &WatchState) -> String {
    let imbalance = state.imbalance();
    let mut line = format!(
        "{:.0} s   {} rows   {}   busiest/mean {:.2}   CoV {:.2}",
        state.metrics.uptime.as_secs_f64(),
        HumanCount(state.metrics.rows_in),
        rate(state.rows_per_s),
        imbalance.max_over_mean,
        imbalance.cov
    );
    if let Some(lag) = state.lag_s() {
        let _ = write!(line, "   {lag:.1} s behind the clock");
    }
    line
}

fn head_style() -> Style {
    Style::default().add_modifier(Modifier::BOLD)
}

fn draw_shards(frame: &mut Frame<'_>, state: &WatchState, area: Rect) {
    let most = state.shards.iter().map(|shard| shard.rows_per_s).fold(1.0, f64::max);
    let rows = state.shards.iter().enumerate().map(|(id, shard)| {
        let ShardRates { queue_messages, state_keys, state_bytes, .. } = *shard;
        Row::new([
            id.to_string(),
            filled(shard.rows_per_s / most),
            rate(shard.rows_per_s),
            percent(shard.hot),
            percent(shard.busy),
            percent(shard.backpressured),
            queue_messages.to_string(),
            format!("{} keys, {}", HumanCount(state_keys), HumanBytes(state_bytes)),
        ])
    });
    let widths = [
        Constraint::Length(5),
        Constraint::Length(u16::try_from(BAR_WIDTH).expect("a small constant")),
        Constraint::Length(14),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(5),
        Constraint::Min(10),
    ];
    let head = ["shard", "", "rows", "hot", "busy", "waiting", "queue", "state"];
    let table = Table::new(rows, widths)
        .header(Row::new(head).style(head_style()))
        .block(Block::bordered().title("Shards"));
    frame.render_widget(table, area);
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "columns of a terminal"
)]
fn filled(part: f64) -> String {
    bar::FULL.repeat((part.clamp(0.0, 1.0) * BAR_WIDTH as f64).round() as usize)
}

fn draw_keys(frame: &mut Frame<'_>, state: &WatchState, area: Rect) {
    let rows = state.hot_keys.iter().map(|key| {
        let name = key.key.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        let name = name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>();
        let bounds = format!("{} to {}", percent(key.share_low), percent(key.share_high));
        Row::new([
            name,
            percent(key.share),
            bounds,
            key.salts.to_string(),
            format!("{:?}", key.cause),
        ])
    });
    let widths = [
        Constraint::Min(16),
        Constraint::Length(9),
        Constraint::Length(20),
        Constraint::Length(6),
        Constraint::Length(9),
    ];
    let title = format!(
        "Hot keys: {} now, {} promoted, {} cooled down",
        state.metrics.hot_keys, state.metrics.promotions, state.metrics.demotions
    );
    let table = Table::new(rows, widths)
        .header(Row::new(["key", "share", "surely", "salts", "cause"]).style(head_style()))
        .block(Block::bordered().title(title));
    frame.render_widget(table, area);
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::super::state::tests::skewed;
    use super::*;

    fn shown(width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        let state = skewed();
        terminal.draw(|frame| draw(frame, &state)).unwrap();
        terminal.backend().to_string()
    }

    #[test]
    fn the_picture_shows_shards_keys_and_alerts() {
        let text = shown(110, 26);
        for words in ["10,000,000 rows", "900.0K rows/s", "90 %", "Hot keys: 0 now", "CoV 0.80"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let bars = text.lines().map(|line| line.matches(bar::FULL).count()).max();
        assert_eq!(bars, Some(BAR_WIDTH), "{text}");
        assert!(text.contains("1,234 keys, 5.00 MiB"), "{text}");
    }

    #[test]
    fn a_terminal_of_any_size_will_do() {
        for (width, height) in [(1, 1), (10, 3), (40, 8), (300, 100)] {
            shown(width, height);
        }
    }
}
