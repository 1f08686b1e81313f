//! Paints the state: a line that says what is shown, the tree or text, a line about keys.

use super::state::State;
use crate::error::one_line;
use crate::render::names::middle;
use crate::render::style::Style as Plain;
use crate::render::text;
use ratatui::Frame;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::Paragraph;

const KEYS: &str = "? keys  / search  m metric  s source  1-8 reports  q leave";

pub fn draw(state: &mut State<'_>, frame: &mut Frame<'_>) {
    let area = frame.area();
    let (width, height) = (usize::from(area.width), usize::from(area.height));
    state.size = (width, height.saturating_sub(if state.text.is_some() { 2 } else { 3 }));
    let title = match &state.text {
        Some(text) => text.title.clone(),
        None => format!(
            "{} of {} contexts, by {}",
            state.kind.name(),
            state.projection.name(),
            state.metric_name()
        ),
    };
    let program = one_line(&state.catalogue.statistics.program);
    let head = Line::styled(middle(&format!("{title}: {program}"), width), Modifier::BOLD);
    let mut lines = vec![head];
    lines.extend(if state.text.is_some() { text_lines(state) } else { tree_lines(state, width) });
    lines.resize(height.saturating_sub(1).max(1), Line::default());
    let foot = match (&state.typed, state.message.as_str()) {
        (Some(typed), _) => format!("/{typed}"),
        (None, "") => KEYS.to_owned(),
        (None, message) => middle(message, width),
    };
    lines.push(Line::styled(foot, Modifier::DIM));
    frame.render_widget(Paragraph::new(lines), area);
}

fn text_lines(state: &State<'_>) -> Vec<Line<'static>> {
    let text = state.text.iter().flat_map(|text| text.lines.iter().skip(text.top));
    text.take(state.size.1).map(|line| Line::raw(line.clone())).collect()
}

/// The titles of the columns, and the rows around the cursor.
fn tree_lines(state: &mut State<'_>, width: usize) -> Vec<Line<'static>> {
    let (catalogue, metric, height) = (state.catalogue, state.metric(), state.size.1.max(1));
    let pane = state.pane();
    let top = pane.cursor.saturating_sub(height / 2).min(pane.rows.len().saturating_sub(height));
    let rows = &pane.rows[top..pane.rows.len().min(top + height)];
    let style = Plain { width, line: width, colour: false };
    let mut printed = Vec::new();
    // Memory takes all that is written.
    let _ = text::rows(&pane.view, catalogue, metric, rows, style, &mut printed);
    let printed = String::from_utf8_lossy(&printed);
    let line = |(at, line): (usize, &str)| match at {
        0 => Line::styled(line.to_owned(), Modifier::BOLD),
        at if top + at == pane.cursor + 1 => {
            Line::styled(format!("{line:<width$}"), Style::new().add_modifier(Modifier::REVERSED))
        }
        _ => Line::raw(line.to_owned()),
    };
    printed.lines().enumerate().map(line).collect()
}
