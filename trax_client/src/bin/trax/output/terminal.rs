//! What the terminal can show: its width, colours, and text that cannot steer it.

use std::io::{IsTerminal, stdout};
use std::sync::OnceLock;

use super::table::Tone;

/// How wide a line may be; none where nobody looks: in a file or another program.
///
/// COLUMNS counts before the terminal's own word, also where there is no terminal.
pub(crate) fn width() -> Option<usize> {
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

/// Whether standard output shows colours: a terminal, unless NO_COLOR is set or TERM is dumb.
fn colours() -> bool {
    static COLOURS: OnceLock<bool> = OnceLock::new();
    *COLOURS.get_or_init(|| {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        stdout().is_terminal()
            && set("NO_COLOR").is_none()
            && set("TERM").is_none_or(|term| term != "dumb")
    })
}

/// A text in the colour of its tone, where colours are shown.
pub(crate) fn paint(text: &str, tone: Tone) -> String {
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

/// A text from the database without what would move the cursor or change the colours.
pub(crate) fn plain(text: &str) -> String {
    text.chars()
        .map(|c| match c {
            '\n' => '\n',
            '\t' => ' ',
            c if c.is_control() => '·',
            c => c,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_text_cannot_steer_the_terminal() {
        assert_eq!(plain("a\tb\u{1b}[2Jc\r\nd"), "a b·[2Jc·\nd");
    }
}
