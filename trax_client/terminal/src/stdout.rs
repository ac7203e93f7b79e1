//! Standard output, whose reader may close it at any time.

use std::io::{self, Write};

use crate::failure::Failure;
use crate::text::printable;

/// Writes to standard output, without terminal control sequences except this program's colours. A
/// reader that closes it early is not an error.
pub fn say(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    written(writeln!(stdout, "{}", printable(text)).and_then(|()| stdout.flush()))
}

/// Converts the result of writing to standard output.
pub fn written(outcome: io::Result<()>) -> Result<(), Failure> {
    match outcome {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::silent()),
        Err(error) => Err(Failure::new(format!("cannot write: {error}"))),
    }
}
