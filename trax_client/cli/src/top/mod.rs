//! `trax top`: a live screen.
//!
//! Input: samples of `trax.metrics()` and the rows of leases, workers and open dead letters, every
//! two seconds, and keys. Output: a screen, and the actions of the keys: cancelling a job,
//! requeueing a dead letter, pausing a group or the scheduler. Invariants: the terminal is restored
//! however the program ends; nothing is changed without a second key.

mod action;
mod data;
mod json;
mod screen;
mod table;
mod view;

use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::{Instant, sleep_until};

use crate::output::{Options, json, say, width};
use crate::session::Session;
use action::Action;
use data::{Screenful, Snapshot};
use json::TopJson;
use screen::Screen;
use trax_terminal::{Failure, address, duration_from};

const KEYS: &str = "Keys: Tab or 1 to 5 select a list, up and down a row; c cancels the job, r requeues the dead letter, p pauses or \
resumes the group, s the scheduler; y confirms, any other key does not; q or Esc quits.";

#[derive(clap::Args)]
#[command(after_help = KEYS)]
pub(crate) struct Arguments {
    /// The time between two updates
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = between_updates)]
    interval: Duration,
    /// Print one screen after one interval, and exit; works without a terminal
    #[arg(long)]
    once: bool,
    /// Print one JSON array with one object instead: what the screen shows, with every row
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Print the database on standard error
    #[arg(long, short, help_heading = "Output")]
    verbose: bool,
}

/// Shorter intervals would put a noticeable load on the database.
const SHORTEST: Duration = Duration::from_millis(500);

fn between_updates(text: &str) -> Result<Duration, String> {
    duration_from(SHORTEST, text)
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let once = arguments.once || arguments.json;
    if !once && !std::io::stdout().is_terminal() {
        return Err(Failure::usage("top needs a terminal")
            .hint("use trax top --once for one screen, or trax status"));
    }
    let options = Options {
        verbose: arguments.verbose,
        ..Options::default()
    };
    // Without reports of locks: they would fall into the screen.
    let session = Session::to(&address::from_environment(url.as_deref())?, &options).await?;
    let interval = arguments.interval;
    if once {
        let screenful = two_looks(&session, interval).await?;
        if arguments.json {
            json(&[TopJson::of(&screenful)])?;
        } else {
            say(&screen_text(&screenful)?)?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let keys = keys();
    let mut terminal = ratatui::init();
    let ended = watch(&session, &mut terminal, keys, interval).await;
    ratatui::restore();
    ended.map(|()| ExitCode::SUCCESS)
}

/// Returns the data of a screen, from two snapshots.
async fn two_looks(session: &Session, interval: Duration) -> Result<Screenful, Failure> {
    let first = Snapshot::read(session).await?;
    tokio::time::sleep(interval).await;
    let mut screenful = Screenful::of(first);
    screenful.add(Snapshot::read(session).await?);
    Ok(screenful)
}

/// Returns one screen as text.
fn screen_text(screenful: &Screenful) -> Result<String, Failure> {
    let columns = u16::try_from(width().unwrap_or(100)).unwrap_or(100);
    let mut terminal = Terminal::new(TestBackend::new(columns, height(screenful)))?;
    let screen = Screen::default();
    terminal.draw(|frame| screen.draw(frame, screenful))?;
    Ok(text_of(terminal.backend()))
}

/// Returns the number of lines needed to show all groups.
fn height(screenful: &Screenful) -> u16 {
    let groups = screenful.now.groups.len().clamp(1, 100);
    u16::try_from(groups).unwrap_or(1) + screen::AROUND
}

/// Returns the text of a drawn screen.
fn text_of(backend: &TestBackend) -> String {
    let buffer = backend.buffer();
    let lines = buffer.content.chunks(usize::from(buffer.area.width));
    let text: Vec<String> = lines
        .map(|cells| {
            let line: String = cells.iter().map(|cell| cell.symbol()).collect();
            line.trim_end().to_owned()
        })
        .collect();
    text.join("\n").trim_end().to_owned()
}

/// Returns a stream of keys and resizes. A separate thread reads them, as reading blocks.
fn keys() -> UnboundedReceiver<Event> {
    let (sender, receiver) = unbounded_channel();
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.send(event).is_err() {
                break;
            }
        }
    });
    receiver
}

async fn watch(
    session: &Session,
    terminal: &mut ratatui::DefaultTerminal,
    mut keys: UnboundedReceiver<Event>,
    interval: Duration,
) -> Result<(), Failure> {
    let mut screenful = Screenful::of(Snapshot::read(session).await?);
    let mut screen = Screen::default();
    let mut next = Instant::now() + interval;
    // Signals are handled here, so that the terminal is restored first.
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hang_up = signal(SignalKind::hangup())?;
    loop {
        terminal.draw(|frame| screen.draw(frame, &screenful))?;
        tokio::select! {
            event = keys.recv() => match event {
                None => return Ok(()),
                Some(Event::Key(key)) if key.kind == KeyEventKind::Press => {
                    match pressed(&mut screen, &screenful, key) {
                        Pressed::Quit => return Ok(()),
                        Pressed::Nothing => {}
                        Pressed::Do(action) => {
                            screen.message = Some(action.take(session).await);
                            next = Instant::now();
                        }
                    }
                }
                Some(_) => {}
            },
            _ = terminate.recv() => return Ok(()),
            _ = hang_up.recv() => return Ok(()),
            () = sleep_until(next) => {
                screenful.add(Snapshot::read(session).await?);
                screen.stay_within(&screenful);
                next = Instant::now() + interval;
            }
        }
    }
}

/// The meaning of a key.
enum Pressed {
    Nothing,
    Quit,
    Do(Action),
}

fn pressed(screen: &mut Screen, screenful: &Screenful, key: KeyEvent) -> Pressed {
    let control = key.modifiers.contains(KeyModifiers::CONTROL);
    if matches!(key.code, KeyCode::Char('c')) && control {
        return Pressed::Quit;
    }
    if let Some(action) = screen.asked.take() {
        screen.message = Some("nothing was changed".to_owned());
        return match key.code {
            KeyCode::Char('y' | 'Y') => Pressed::Do(action),
            _ => Pressed::Nothing,
        };
    }
    screen.message = None;
    let shown = screen.shown;
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return Pressed::Quit,
        KeyCode::Tab | KeyCode::Right => screen.show(shown.next()),
        KeyCode::BackTab | KeyCode::Left => screen.show(shown.previous()),
        KeyCode::Char(digit @ '1'..='5') => {
            screen.show(view::View::ALL[digit as usize - '1' as usize])
        }
        KeyCode::Down | KeyCode::Char('j') => screen.step(screenful, 1),
        KeyCode::Up | KeyCode::Char('k') => screen.step(screenful, -1),
        KeyCode::PageDown => screen.step(screenful, 10),
        KeyCode::PageUp => screen.step(screenful, -10),
        KeyCode::Char(letter) => {
            match Action::of(letter, screen.shown, screen.selected(), screenful) {
                Ok(action) => screen.asked = action,
                Err(said) => screen.message = Some(said),
            }
        }
        _ => {}
    }
    Pressed::Nothing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(screen: &mut Screen, screenful: &Screenful, code: KeyCode) -> Pressed {
        pressed(screen, screenful, KeyEvent::new(code, KeyModifiers::NONE))
    }

    #[test]
    fn nothing_is_changed_without_a_second_key() {
        let screenful = data::tests::screenful();
        let mut screen = Screen::default();
        press(&mut screen, &screenful, KeyCode::Char('2'));
        press(&mut screen, &screenful, KeyCode::Char('c'));
        assert!(screen.asked.is_some());
        let no = press(&mut screen, &screenful, KeyCode::Char('n'));
        assert!(matches!(no, Pressed::Nothing) && screen.asked.is_none());
        press(&mut screen, &screenful, KeyCode::Down);
        press(&mut screen, &screenful, KeyCode::Char('c'));
        let yes = press(&mut screen, &screenful, KeyCode::Char('y'));
        assert!(matches!(yes, Pressed::Do(Action::Cancel { job_id: 12 })));
        assert!(matches!(
            press(&mut screen, &screenful, KeyCode::Char('q')),
            Pressed::Quit
        ));
    }

    #[test]
    fn esc_answers_no_to_a_question_and_otherwise_quits() {
        let screenful = data::tests::screenful();
        let mut screen = Screen::default();
        press(&mut screen, &screenful, KeyCode::Char('2'));
        press(&mut screen, &screenful, KeyCode::Char('c'));
        let no = press(&mut screen, &screenful, KeyCode::Esc);
        assert!(matches!(no, Pressed::Nothing) && screen.asked.is_none());
        let quit = press(&mut screen, &screenful, KeyCode::Esc);
        assert!(matches!(quit, Pressed::Quit));
    }

    #[test]
    fn a_key_for_another_list_says_which() {
        let screenful = data::tests::screenful();
        let mut screen = Screen::default();
        press(&mut screen, &screenful, KeyCode::Char('r'));
        assert!(screen.asked.is_none());
        assert!(
            screen
                .message
                .is_some_and(|said| said.contains("dead letters"))
        );
    }
}
