//! The terminal's width and colours, and text that is safe to print on it.

use std::io::{IsTerminal, stdout};
use std::sync::OnceLock;

/// The meaning of a text, shown by its colour.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tone {
    Plain,
    Strong,
    Dim,
    Good,
    Active,
    Warn,
    Bad,
}

/// Returns the maximum width of a line; `None` if the output is not a terminal.
///
/// COLUMNS takes precedence over the terminal's width, and applies without a terminal too.
pub fn width() -> Option<usize> {
    let named = std::env::var("COLUMNS").ok();
    if let Some(columns) = named.and_then(|text| text.parse().ok()) {
        return Some(columns).filter(|columns| *columns > 0);
    }
    if !stdout().is_terminal() {
        return None;
    }
    let seen = console::Term::stdout().size_checked();
    Some(seen.map_or(80, |(_, columns)| usize::from(columns)))
}

/// Returns whether standard output shows colours: a terminal, unless NO_COLOR is set or TERM is
/// dumb.
fn colours() -> bool {
    static COLOURS: OnceLock<bool> = OnceLock::new();
    *COLOURS.get_or_init(|| {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        stdout().is_terminal()
            && set("NO_COLOR").is_none()
            && set("TERM").is_none_or(|term| term != "dumb")
    })
}

/// Returns a text in the colour of its tone, if colours are shown.
pub fn paint(text: &str, tone: Tone) -> String {
    let code = match tone {
        Tone::Plain => "",
        Tone::Strong => "1",
        Tone::Dim => "2",
        Tone::Good => "32",
        Tone::Active => "36",
        Tone::Warn => "33",
        Tone::Bad => "31",
    };
    if code.is_empty() || text.is_empty() || !colours() {
        return text.to_owned();
    }
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Returns whether a character affects the display: moves the cursor, changes colours, ends a line,
/// changes the reading order, or is invisible.
pub fn steers(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{ad}'
                | '\u{61c}'
                | '\u{115f}'
                | '\u{1160}'
                | '\u{200b}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{3164}'
                | '\u{feff}'
        )
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns a text from the database without terminal control characters. Line breaks are kept, for
/// callers that indent the lines.
pub fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => '\n',
            '\t' => ' ',
            c if steers(c) => '·',
            c => c,
        })
        .collect()
}

/// Returns such a text as one line, so that no part of it can pass for a line of this program.
pub fn one_line(text: &str) -> String {
    plain(text).replace('\n', " ")
}

/// Returns text for standard output: lines, this program's colours if they are shown, and no other
/// control characters.
pub fn printable(text: &str) -> String {
    let mut printable = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let colour = colours().then(|| colour_length(rest)).flatten();
        let length = colour.unwrap_or(c.len_utf8());
        match c {
            _ if colour.is_some() => printable.push_str(&rest[..length]),
            '\n' | '\t' => printable.push(c),
            c if steers(c) => printable.push('·'),
            c => printable.push(c),
        }
        rest = &rest[length..];
    }
    printable
}

/// Returns the length of the colour sequence at the beginning of a text.
fn colour_length(text: &str) -> Option<usize> {
    let (code, _) = text.strip_prefix("\u{1b}[")?.split_once('m')?;
    let known = matches!(code, "0" | "1" | "2" | "31" | "32" | "33" | "36");
    known.then_some(code.len() + 3)
}

/// Returns JSON with terminal control characters escaped. Outside of strings JSON contains none.
pub fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            c if steers(c) => escaped.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_cannot_steer_the_terminal() {
        assert_eq!(plain("a\tb\u{1b}[2Jc\r\nd"), "a b·[2Jc·\nd");
        assert_eq!(
            one_line("a\ntrax: job 7 completed"),
            "a trax: job 7 completed"
        );
        assert_eq!(
            plain("evil\u{202e}txt.exe\u{2069}\u{9b}2J"),
            "evil·txt.exe··2J"
        );
        assert_eq!(printable("a\u{1b}]0;x\u{7}\n\u{85}"), "a·]0;x·\n·");
        assert_eq!(plain("schöne 家 👨\u{200d}👩"), "schöne 家 👨\u{200d}👩");
    }

    #[test]
    fn escaped_json_means_the_same() {
        let value = serde_json::json!(["\u{7f}\u{202e}\u{9b}", "a\nb"]);
        let text = escaped(&value.to_string());
        assert!(!text.chars().any(steers), "{text}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).ok(),
            Some(value)
        );
    }

    #[test]
    fn only_our_own_colours_are_colours() {
        assert_eq!(colour_length("\u{1b}[31mx"), Some(5));
        for other in [
            "\u{1b}[2J",
            "\u{1b}[38;5;1m",
            "\u{1b}[8m",
            "\u{1b}]0;m",
            "x",
            "",
        ] {
            assert_eq!(colour_length(other), None, "{other:?}");
        }
    }
}
