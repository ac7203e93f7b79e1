//! Confirmation before an action that cannot be undone.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use crate::Failure;
use crate::text::plain;

/// Asks on a terminal, unless `yes` is given. Elsewhere, returns an error that names `--yes`.
pub fn confirmed(yes: bool, question: &str) -> Result<bool, Failure> {
    if yes {
        return Ok(true);
    }
    if !stdin().is_terminal() || !stderr().is_terminal() {
        return Err(
            Failure::usage(format!("cannot ask for confirmation: {question}"))
                .hint("use --yes to skip the confirmation"),
        );
    }
    write!(stderr().lock(), "{} [y/N] ", plain(question))?;
    let mut answer = String::new();
    stdin().lock().read_line(&mut answer)?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}
