//! The lists of `trax top`.

use std::time::Duration;

use ratatui::layout::{Constraint, Flex, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::Text;
use ratatui::widgets::{Cell, Row};

use super::data::Screenful;
use super::view::View;
use crate::output::{cut, elapsed, plain};
use crate::status::of_shard;

/// A list: its header, the widths of its columns, and its rows.
pub(super) struct List<'a> {
    pub(super) header: Row<'a>,
    pub(super) widths: Vec<Constraint>,
    pub(super) rows: Vec<Row<'a>>,
}

/// A column: its name, its width, and whether it is right-aligned.
type Column = (&'static str, Constraint, bool);

/// The blanks between columns.
pub(super) const GAP: u16 = 1;

/// Returns a list for a terminal of this width. Cells that do not fit are visibly cut.
fn list(columns: &[Column], rows: Vec<Vec<(String, Style)>>, width: u16) -> List<'static> {
    let layout = Layout::horizontal(columns.iter().map(|(_, width, _)| *width));
    let layout = layout.flex(Flex::Start).spacing(GAP);
    let areas = layout.split(Rect::new(0, 0, width, 1));
    let cell = |text: String, style: Style, right: bool, area: &Rect| {
        let text = plain(&text).replace('\n', " ");
        let text = Text::from(cut(&text, area.width.into()));
        let text = if right { text.right_aligned() } else { text };
        Cell::from(text).style(style)
    };
    let places = || columns.iter().zip(areas.iter());
    let header = places()
        .map(|((name, _, right), area)| cell(name.to_uppercase(), Style::new(), *right, area));
    let rows = rows.into_iter().map(|cells| {
        let cells = cells.into_iter().zip(places());
        Row::new(
            cells.map(|((text, style), ((_, _, right), area))| cell(text, style, *right, area)),
        )
    });
    List {
        header: Row::new(header).dim(),
        widths: areas
            .iter()
            .map(|area| Constraint::Length(area.width))
            .collect(),
        rows: rows.collect(),
    }
}

/// Returns the width of a column of ids, which are never cut. The ids of shards have 13 to 16
/// digits.
fn ids(ids: impl Iterator<Item = i64>, least: u16) -> Constraint {
    let digits = ids.max().map_or(1, |id| id.max(1).ilog10() + 1);
    Constraint::Length(least.max(u16::try_from(digits).unwrap_or(u16::MAX)))
}

fn text(text: impl ToString) -> (String, Style) {
    (text.to_string(), Style::new())
}

fn toned(text: impl ToString, colour: Color) -> (String, Style) {
    (text.to_string(), Style::new().fg(colour))
}

/// Returns a number as text, empty for 0.
fn count(number: f64) -> (String, Style) {
    match number {
        0.0 => text(""),
        number => text(short(number)),
    }
}

/// Returns "950", "12.3k", "4.5M".
pub(super) fn short(number: f64) -> String {
    match number {
        n if n < 10_000.0 => format!("{n:.0}"),
        n if n < 1_000_000.0 => format!("{:.1}k", n / 1e3),
        n => format!("{:.1}M", n / 1e6),
    }
}

/// Returns "0.4", "37", "12.3k"; empty for 0.
pub(super) fn rate(number: f64) -> String {
    match number {
        n if n <= 0.0 => String::new(),
        n if n < 10.0 => format!("{n:.1}"),
        n => short(n),
    }
}

pub(super) fn seconds(seconds: f64) -> String {
    elapsed(Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default())
}

const NAME: Constraint = Constraint::Min(12);
const NUMBER: Constraint = Constraint::Length(8);

/// Returns the list of a view for a terminal of this width.
pub(super) fn of(view: View, screenful: &Screenful, width: u16) -> List<'static> {
    match view {
        View::Groups => groups(screenful, width),
        View::Running => running(screenful, width),
        View::Tasks => tasks(screenful, width),
        View::Workers => workers(screenful, width),
        View::Dead => dead(screenful, width),
    }
}

/// Returns the number of rows of a view.
pub(super) fn length(view: View, screenful: &Screenful) -> usize {
    let now = &screenful.now;
    match view {
        View::Groups => now.groups.len(),
        View::Running => now.running.len(),
        View::Tasks => now.tasks.len(),
        View::Workers => now.workers.len(),
        View::Dead => now.dead.len(),
    }
}

fn groups(screenful: &Screenful, width: u16) -> List<'static> {
    let rows = screenful.now.groups.iter().map(|group| {
        let full = group.limit.is_some_and(|limit| group.running >= limit);
        let limit = group.limit.map_or(String::new(), short);
        vec![
            text(&group.name),
            match (group.enabled, full) {
                (false, _) => toned("paused", Color::Yellow),
                (true, true) => toned("full", Color::Yellow),
                (true, false) => text(""),
            },
            count(group.running),
            text(limit),
            count(group.ready),
            count(group.delayed),
            count(group.blocked),
            text(group.oldest.map_or(String::new(), seconds)),
        ]
    });
    let columns = [
        ("group", NAME, false),
        ("", Constraint::Length(6), false),
        ("running", NUMBER, true),
        ("limit", Constraint::Length(6), true),
        ("ready", NUMBER, true),
        ("delayed", NUMBER, true),
        ("blocked", NUMBER, true),
        ("oldest", Constraint::Length(9), true),
    ];
    list(&columns, rows.collect(), width)
}

fn running(screenful: &Screenful, width: u16) -> List<'static> {
    let now = &screenful.now;
    let rows = now.running.iter().map(|job| {
        vec![
            text(job.job_id),
            text(&job.task),
            text(&job.group),
            text(&job.worker),
            text(job.attempt),
            text(seconds(job.seconds)),
            match (job.stopping, &job.progress) {
                (true, _) => toned("stopping", Color::Yellow),
                (false, Some(progress)) => text(progress),
                (false, None) => text(""),
            },
        ]
    });
    let columns = [
        (
            "job",
            ids(now.running.iter().map(|job| job.job_id), 10),
            true,
        ),
        ("task", NAME, false),
        ("group", Constraint::Max(16), false),
        ("worker", NAME, false),
        ("try", Constraint::Length(3), true),
        ("for", Constraint::Length(9), true),
        ("progress", Constraint::Length(12), false),
    ];
    list(&columns, rows.collect(), width)
}

fn tasks(screenful: &Screenful, width: u16) -> List<'static> {
    let rows = screenful.tasks().into_iter().map(|(task, rates)| {
        let failures = rate(rates.failures);
        vec![
            text(task),
            text(rate(rates.claims)),
            text(rate(rates.completions)),
            toned(failures, Color::Red),
            text(rates.wait.map_or(String::new(), seconds)),
            text(rates.run.map_or(String::new(), seconds)),
        ]
    });
    let columns = [
        ("task", NAME, false),
        ("claims/s", NUMBER, true),
        ("done/s", NUMBER, true),
        ("failed/s", NUMBER, true),
        ("waits", Constraint::Length(9), true),
        ("takes", Constraint::Length(9), true),
    ];
    list(&columns, rows.collect(), width)
}

fn workers(screenful: &Screenful, width: u16) -> List<'static> {
    let rows = screenful.now.workers.iter().map(|worker| {
        vec![
            text(of_shard(worker.shard, &worker.name)),
            match worker.state.as_str() {
                "gone" => toned("gone", Color::Red),
                state => text(state),
            },
            count(worker.running as f64),
            text(format!("{} ago", seconds(worker.seen_seconds))),
        ]
    });
    let columns = [
        ("worker", NAME, false),
        ("", Constraint::Length(8), false),
        ("running", NUMBER, true),
        ("seen", Constraint::Length(14), true),
    ];
    list(&columns, rows.collect(), width)
}

fn dead(screenful: &Screenful, width: u16) -> List<'static> {
    let now = &screenful.now;
    let rows = now.dead.iter().map(|dead| {
        vec![
            text(dead.id),
            text(&dead.task),
            toned(dead.stops.as_deref().unwrap_or_default(), Color::Red),
            text(dead.attempts),
            text(format!("{} ago", seconds(dead.seconds))),
            toned(&dead.error, Color::Red),
        ]
    });
    let columns = [
        ("id", ids(now.dead.iter().map(|dead| dead.id), 8), true),
        ("task", Constraint::Max(18), false),
        ("stops", Constraint::Max(14), false),
        ("tries", Constraint::Length(5), true),
        ("died", Constraint::Length(11), true),
        ("error", Constraint::Min(16), false),
    ];
    list(&columns, rows.collect(), width)
}
