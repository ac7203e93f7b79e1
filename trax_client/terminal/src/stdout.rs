//! Standard output, which may be closed while it is written to.

use std::io::{self, Write};

use crate::failure::Failure;
use crate::text::printable;

/// Writes to standard output, nothing that steers a terminal but our own colours; who reads no
/// further has what they wanted.
pub fn say(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    written(writeln!(stdout, "{}", printable(text)).and_then(|()| stdout.flush()))
}

/// Returns what became of writing to standard output.
pub fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::silent()),
        Err(error) => Err(Failure::new(format!("cannot write: {error}"))),
    }
}
