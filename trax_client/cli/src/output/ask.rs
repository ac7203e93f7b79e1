//! Confirmation before an action that cannot be undone.

use std::io::{BufRead, IsTerminal, Write, stderr, stdin};

use trax_terminal::Failure;
use trax_terminal::text::plain;

/// Whether to ask for confirmation.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Consent {
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Asks on a terminal. Elsewhere, returns an error unless `--yes` is given.
pub(crate) fn confirmed(consent: Consent, question: &str) -> Result<bool, Failure> {
    if consent.yes {
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
