//! The screen of `trax top`: state, rates, one list, and the keys.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Sparkline, Table, TableState};

use super::action::Action;
use super::data::Screenful;
use super::table::{self, rate, seconds, short};
use super::view::View;
use crate::output::plain;

/// The lines of the screen outside the rows of the list: head, rates, two of the list, foot.
pub(super) const AROUND: u16 = 1 + 4 + 2 + 1;

/// The state of the user interface.
#[derive(Default)]
pub(super) struct Screen {
    pub(super) shown: View,
    /// The selected row of each view.
    rows: [usize; View::ALL.len()],
    /// The action that waits for confirmation.
    pub(super) asked: Option<Action>,
    pub(super) message: Option<String>,
}

impl Screen {
    pub(super) fn show(&mut self, view: View) {
        self.shown = view;
    }

    pub(super) fn selected(&self) -> usize {
        self.rows[self.shown as usize]
    }

    pub(super) fn step(&mut self, screenful: &Screenful, rows: isize) {
        self.rows[self.shown as usize] = self.selected().saturating_add_signed(rows);
        self.stay_within(screenful);
    }

    /// Keeps the selection within lists that have become shorter.
    pub(super) fn stay_within(&mut self, screenful: &Screenful) {
        for view in View::ALL {
            let last = table::length(view, screenful).saturating_sub(1);
            let row = &mut self.rows[view as usize];
            *row = (*row).min(last);
        }
    }

    pub(super) fn draw(&self, frame: &mut Frame, screenful: &Screenful) {
        let [head, rates, body, foot] = Layout::vertical([
            Constraint::Length(1),
            Constraint::Length(4),
            Constraint::Min(4),
            Constraint::Length(1),
        ])
        .areas(frame.area());
        self.draw_head(frame, head, screenful);
        draw_rates(frame, rates, screenful);
        self.draw_list(frame, body, screenful);
        self.draw_foot(frame, foot);
    }

    fn draw_head(&self, frame: &mut Frame, area: Rect, screenful: &Screenful) {
        let now = &screenful.now;
        let scheduler = match (now.scheduler, now.paused) {
            (_, true) => Span::from("scheduler paused").yellow(),
            (true, false) if now.lag > 5.0 => {
                Span::from(format!("scheduler lags {}", seconds(now.lag))).yellow()
            }
            (true, false) => Span::from("scheduler runs").green(),
            (false, false) => Span::from("no scheduler: trax doctor").red().bold(),
        };
        let dead = match now.dead_letters {
            0.0 => Span::from("no dead letters").dim(),
            1.0 => Span::from("1 dead letter").red(),
            n => Span::from(format!("{} dead letters", short(n))).red(),
        };
        let stopped = match now.stopped {
            0.0 => None,
            1.0 => Some("1 schedule is stopped   ".to_owned()),
            n => Some(format!("{} schedules are stopped   ", short(n))),
        };
        let living = now.workers.iter().filter(|worker| worker.state != "gone");
        let workers = match living.count() {
            1 => "1 worker".to_owned(),
            n => format!("{n} workers"),
        };
        let away = match now.away.as_slice() {
            [] => String::new(),
            away => format!("{}   ", plain(&away.join("; "))),
        };
        let gap = || Span::from("   ");
        let name = format!("trax {} ", now.version);
        let line = Line::from(vec![
            Span::from(away).red().bold(),
            Span::from(stopped.unwrap_or_default()).red().bold(),
            Span::from(name).bold(),
            Span::from(plain(&now.database)),
            gap(),
            scheduler,
            gap(),
            Span::from(workers),
            gap(),
            dead,
        ]);
        frame.render_widget(Paragraph::new(line), area);
    }

    fn draw_list(&self, frame: &mut Frame, area: Rect, screenful: &Screenful) {
        let mut tabs = Vec::new();
        for (place, view) in View::ALL.into_iter().enumerate() {
            // In brackets, as a number alone would look like a count.
            let name = format!(" [{}] {} ", place + 1, view.name());
            let style = match view == self.shown {
                true => Style::new().add_modifier(Modifier::REVERSED | Modifier::BOLD),
                false => Style::new(),
            };
            tabs.push(Span::styled(name, style));
        }
        // A continuous bar: reversing a cell with its own colour would show as a block.
        let chosen = Style::new()
            .fg(Color::Reset)
            .add_modifier(Modifier::REVERSED);
        let list = table::of(self.shown, screenful, area.width);
        let nothing = list.rows.is_empty();
        let block = Block::new().borders(Borders::TOP).title(Line::from(tabs));
        let table = Table::new(list.rows, list.widths)
            .header(list.header)
            .column_spacing(table::GAP)
            .row_highlight_style(chosen)
            .block(block);
        let mut state = TableState::new().with_selected(Some(self.selected()));
        frame.render_stateful_widget(table, area, &mut state);
        if nothing && area.height > 2 {
            let below = Rect {
                y: area.y + 2,
                height: 1,
                ..area
            };
            let text = match self.shown {
                View::Tasks if !screenful.now.counted => {
                    "tasks are counted when the library is preloaded: trax doctor"
                }
                View::Groups => "nothing has been enqueued",
                View::Running => "nothing runs",
                View::Tasks => "nothing has run since the server started",
                View::Workers => "no live worker, now or recently",
                View::Dead => "no job waits for a person",
            };
            frame.render_widget(Paragraph::new(text).dim(), below);
        }
    }

    fn draw_foot(&self, frame: &mut Frame, area: Rect) {
        let line = if let Some(action) = &self.asked {
            let question = format!("{} y: yes, any other key: no", plain(&action.question()));
            Line::from(question).fg(Color::Black).bg(Color::Yellow)
        } else if let Some(message) = &self.message {
            Line::from(plain(message)).bold()
        } else {
            let keys = [
                self.shown.keys(),
                "s scheduler",
                "Tab list",
                "\u{2191}\u{2193} row",
                "Esc or q quit",
            ];
            let keys: Vec<&str> = keys.into_iter().filter(|key| !key.is_empty()).collect();
            Line::from(keys.join("   ")).dim()
        };
        frame.render_widget(Paragraph::new(line), area);
    }
}

/// Draws the queue's counts, the rates, and the curve of completions.
fn draw_rates(frame: &mut Frame, area: Rect, screenful: &Screenful) {
    let [left, right] =
        Layout::horizontal([Constraint::Length(44), Constraint::Min(10)]).areas(area);
    let now = &screenful.now;
    let waits = format!(
        "ready {}   delayed {}   blocked {}",
        short(now.total(|group| group.ready)),
        short(now.total(|group| group.delayed)),
        short(now.total(|group| group.blocked)),
    );
    let runs = format!("running {}", short(now.total(|group| group.running)));
    let all = screenful.all();
    let or_zero = |text: String| {
        if text.is_empty() {
            "0".to_owned()
        } else {
            text
        }
    };
    let mut rates = vec![Span::from(format!(
        "in {}/s   ",
        or_zero(rate(screenful.enqueued()))
    ))];
    if now.counted {
        let done = format!("done {}/s   ", or_zero(rate(all.completions)));
        rates.push(Span::from(done).green());
        let failed = format!("failed {}/s", or_zero(rate(all.failures)));
        let failed = Span::from(failed);
        rates.push(if all.failures > 0.0 {
            failed.red()
        } else {
            failed
        });
    }
    let lines = vec![
        Line::default(),
        Line::from(waits),
        Line::from(runs),
        Line::from(rates),
    ];
    frame.render_widget(Paragraph::new(lines), left);
    if !now.counted {
        return;
    }
    // The newest values are at the right.
    let width = usize::from(right.width);
    let skip = screenful.history.len().saturating_sub(width);
    let newest = screenful.history.iter().copied().skip(skip);
    let curve: Vec<u64> = std::iter::repeat_n(0, width.saturating_sub(screenful.history.len()))
        .chain(newest)
        .collect();
    let title = Line::from("done/s").dim().right_aligned();
    let sparkline = Sparkline::default()
        .data(&curve)
        .style(Style::new().fg(Color::Green))
        .block(Block::new().title(title));
    frame.render_widget(sparkline, right);
}

#[cfg(test)]
mod tests {
    use super::super::{data, text_of};
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn drawn(screen: &Screen, width: u16, height: u16) -> String {
        let screenful = data::tests::screenful();
        let mut terminal =
            Terminal::new(TestBackend::new(width, height)).expect("memory is a terminal");
        let done = terminal.draw(|frame| screen.draw(frame, &screenful));
        done.expect("memory can be drawn on");
        text_of(terminal.backend())
    }

    #[test]
    fn each_list_is_whole_at_80_and_at_160_columns() {
        let expected = [
            (View::Groups, vec!["etl", "4", "8", "1000", "RUNNING"]),
            (
                View::Running,
                vec!["11", "report.build", "worker-1", "90 s", "stopping"],
            ),
            (
                View::Tasks,
                vec!["report.build", "30", "500 ms", "mail.send"],
            ),
            (View::Workers, vec!["worker-1", "working", "2", "3.0 s ago"]),
            (
                View::Dead,
                vec!["4", "mail.send", "nightly", "2 h ago", "no such"],
            ),
        ];
        for width in [80, 160] {
            for (view, words) in &expected {
                let screen = Screen {
                    shown: *view,
                    ..Screen::default()
                };
                let text = drawn(&screen, width, 24);
                for word in words {
                    assert!(text.contains(word), "{width} {word}:\n{text}");
                }
                assert!(text.starts_with("1 schedule is stopped"), "{text}");
                assert!(text.contains("scheduler runs"), "{text}");
                assert!(text.contains("done 30/s"), "{text}");
                assert!(!text.contains('\u{1b}'), "{text}");
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_where_it_can_be_seen() {
        let mut screenful = data::tests::screenful();
        screenful.now.running[0].task =
            "a.task.with.a.name.that.is.longer.than.its.column".to_owned();
        let screen = Screen {
            shown: View::Running,
            ..Screen::default()
        };
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).expect("memory is a terminal");
        let done = terminal.draw(|frame| screen.draw(frame, &screenful));
        done.expect("memory can be drawn on");
        let text = text_of(terminal.backend());
        assert!(text.contains("a.task.with") && text.contains('…'), "{text}");
        assert!(text.contains("etl") && text.contains("90 s"), "{text}");
    }

    #[test]
    fn a_question_stands_where_the_keys_stood() {
        let mut screen = Screen::default();
        let text = drawn(&screen, 80, 24);
        assert!(
            text.contains("[2] running") && text.ends_with("Esc or q quit"),
            "{text}"
        );
        screen.asked = Some(Action::Cancel { job_id: 12 });
        let text = drawn(&screen, 80, 24);
        assert!(
            text.contains("Cancel job 12?") && !text.contains("q quit"),
            "{text}"
        );
    }

    #[test]
    fn a_tiny_terminal_breaks_nothing() {
        for (width, height) in [(1, 1), (5, 3), (20, 6), (300, 5)] {
            drawn(&Screen::default(), width, height);
        }
    }
}
