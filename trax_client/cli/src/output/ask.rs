//! Confirmation before an action that cannot be undone.

use trax_terminal::Failure;

/// Whether to ask for confirmation.
#[derive(clap::Args, Clone, Copy, Debug, Default)]
pub(crate) struct Consent {
    /// Do not ask for confirmation
    #[arg(long, short)]
    pub(crate) yes: bool,
}

/// Asks on a terminal. Elsewhere, returns an error unless `--yes` is given.
pub(crate) fn confirmed(consent: Consent, question: &str) -> Result<bool, Failure> {
    trax_terminal::confirmed(consent.yes, question)
}
