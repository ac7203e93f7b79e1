//! `trax jobs`: lists, shows, cancels, retries and watches jobs.

mod cancel;
mod change;
mod fork;
mod list;
mod retry;
mod show;
mod step;
mod watch;
mod why;

use crate::command::commands;
use crate::output::Tone;
use crate::session::Session;
use trax_terminal::Failure;

commands! {
    /// The newest jobs that match all filters, waiting, executing and ended
    List(list::Arguments) => list::run,
    /// Everything about a job: its attempts, errors, input and output
    Show(show::Arguments) => show::run,
    /// The reasons why a job waits, and what to do
    Why(why::Arguments) => why::run,
    /// Cancel jobs: those that wait end, the workers of the others are asked to stop
    Cancel(cancel::Arguments) => cancel::run,
    /// Change jobs while they wait: their input, time, priority, group and limits
    Change(change::Arguments) => change::run,
    /// Run jobs again: ended ones as a fresh job, those that wait for their next attempt now
    Retry(retry::Arguments) => retry::run,
    /// Queue a job like an ended one, with its recorded steps up to a place
    Fork(fork::Arguments) => fork::run,
    /// Follow jobs until they have ended; the exit code shows how
    Watch(watch::Arguments) => watch::run,
}

/// Returns the tone in which a state is shown.
pub(crate) fn tone(state: &str) -> Tone {
    match state {
        "completed" => Tone::Good,
        "failed" => Tone::Bad,
        "in_progress" => Tone::Active,
        "cancelled" => Tone::Dim,
        _ => Tone::Plain,
    }
}

/// Returns the error for an unknown job id.
pub(crate) fn unknown(session: &Session, job_id: i64) -> Failure {
    let failure = Failure::new(format!("job {job_id} does not exist"))
        .hint("ended jobs are kept for trax.run_retention; see: trax jobs list");
    session.absent(failure)
}
