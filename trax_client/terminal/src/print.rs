//! Output of readable lines.

use std::io::{self, IsTerminal, Write};

use console::measure_text_width;

use crate::text::one_line;

/// The maximum width of a line.
const WIDTH: usize = 80;

/// Prints `label: text` to standard error, folded on a terminal. Control characters are escaped, so
/// the text is always one line.
pub fn log(label: &str, text: &str) {
    let stderr = io::stderr();
    let text = format!("{label}: {}", one_line(text));
    let text = if stderr.is_terminal() {
        folded(&text, label.len() + 2)
    } else {
        text
    };
    // A closed standard error must not stop the program.
    writeln!(stderr.lock(), "{text}").ok();
}

/// Breaks lines at blanks so that each fits `WIDTH`, and indents continuation lines.
pub fn folded(text: &str, indent: usize) -> String {
    folded_at(text, indent, Some(WIDTH))
}

/// Breaks lines for another width, or not at all.
pub fn folded_at(text: &str, indent: usize, width: Option<usize>) -> String {
    let width = width.unwrap_or(usize::MAX);
    let lines: Vec<String> = text.lines().map(|line| fold(line, indent, width)).collect();
    lines.join("\n")
}

fn fold(line: &str, indent: usize, width: usize) -> String {
    let mut folded = String::new();
    let mut column = 0;
    // Blanks stay with the preceding word, so that a line's own indent and columns are kept.
    for word in line.split_inclusive(' ') {
        let length = measure_text_width(word.trim_end());
        if column > indent && column + length > width {
            folded.truncate(folded.trim_end().len());
            folded.push('\n');
            folded.push_str(&" ".repeat(indent));
            column = indent;
        }
        folded.push_str(word);
        column += measure_text_width(word);
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_of_two_columns_count_as_two() {
        let text = "日本語 ".repeat(20);
        let lines: Vec<String> = folded(&text, 2).lines().map(str::to_owned).collect();
        assert!(lines.len() > 1);
        for line in lines {
            assert!(measure_text_width(&line) <= WIDTH, "{line}");
        }
    }

    #[test]
    fn a_long_line_goes_on_under_its_beginning() {
        let text = format!("trax: job 7 failed: {}end", "word ".repeat(30));
        let lines: Vec<String> = folded(&text, 6).lines().map(str::to_owned).collect();
        assert!(
            lines.iter().all(|line| line.chars().count() <= WIDTH),
            "{lines:#?}"
        );
        assert!(
            lines[1..].iter().all(|line| line.starts_with("      w")),
            "{lines:#?}"
        );
        let words = |text: &str| {
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        assert_eq!(words(&lines.join(" ")), words(&text));
        assert_eq!(
            folded("  short   line\nand another", 6),
            "  short   line\nand another"
        );
        let one = format!("trax: {}", "x".repeat(200));
        assert_eq!(folded(&one, 6), one);
    }
}
