//! `trax lock`: runs a program while a token is held.
//!
//! The program has TRAX_LOCK_NAME, TRAX_LOCK_SLOT and TRAX_LOCK_TOKEN in its environment, no
//! credentials, and its own process group (on a terminal, the foreground one). Signals to `trax
//! lock` are passed to that group. If the token is lost, another program may hold it, so the group
//! gets SIGTERM, and SIGKILL after the grace period. Processes that the program leaves running in
//! its group are ended in the same way before the token is released, or at once if it is lost
//! meanwhile. If `trax lock` is killed, its program is ended too.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitCode, ExitStatus};
use std::time::Duration;

use serde::Serialize;
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::Instant;
use trax_client::{Error, TokenGuard, TokenRequest};

use crate::credentials::{self, PassedVariables};
use crate::exit_code::{self, LOST, TEMPORARY_FAILURE};
use crate::host;
use crate::output::json;
use crate::process_group::{Group, Groups};
use trax_terminal::address;
use trax_terminal::print;
use trax_terminal::{Failure, LONGEST, at_least_a_second, duration};

#[derive(clap::Args)]
#[command(
    after_help = "Exit codes: the program's own; 128 and the number of the signal that ended it; 74 if the token was \
lost and the program was stopped; 75 if others held it the whole time; 126 and 127 if the program cannot be started; \
1 if the database cannot be reached; 64 for a usage error."
)]
pub(crate) struct Arguments {
    /// The name of the token, the same for all who share it
    name: String,
    /// How many may hold it at once; the most recent call counts for all
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=1000))]
    max_holders: i32,
    /// How long it stays held if this program dies or loses the database; extended every third of
    /// this time
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = at_least_a_second)]
    ttl: Duration,
    /// How long to wait for it, such as 500ms, 30s, 5m or 2h; default: without limit
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with = "no_wait")]
    wait: Option<Duration>,
    /// Do not wait at all
    #[arg(long)]
    no_wait: bool,
    /// A description of the holder; default: host and process
    #[arg(long, value_name = "NAME")]
    holder: Option<String>,
    /// How long the program may run after SIGTERM when the token is lost
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = duration)]
    grace: Duration,
    #[command(flatten)]
    passed: PassedVariables,
    /// Print one JSON array with one object at the end: the result; the standard output of COMMAND
    /// goes to standard error
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Print no message when others held it the whole time, only exit with 75
    #[arg(long, short, help_heading = "Output")]
    quiet: bool,
    /// Also log the database and the slot that is held
    #[arg(long, short, help_heading = "Output")]
    verbose: bool,
    /// The program and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

/// The result.
#[derive(Clone, Copy, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Outcome {
    /// The program ran to its end, with any exit code.
    Ended,
    NotStarted,
    NotAcquired,
    Lost,
}

/// The result in machine-readable form.
#[derive(Serialize)]
struct Report<'a> {
    name: &'a str,
    holder: &'a str,
    outcome: Outcome,
    slot: Option<i32>,
    waited_seconds: f64,
    held_seconds: Option<f64>,
    /// The exit code of the program.
    exit_code: Option<i32>,
    signal: Option<i32>,
}

pub(crate) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    credentials::hide();
    let config = address::from_environment(url.as_deref())?;
    let mut signals = Signals::hear()?;
    let holder = arguments.holder.clone().unwrap_or_else(default_holder);
    let name = arguments.name.as_str();
    if arguments.verbose {
        print::log(
            "trax",
            &format!("connecting to {}", address::describe(&config)),
        );
    }
    let request = TokenRequest::new(name, &holder)
        .max_holders(arguments.max_holders)
        .ttl(arguments.ttl);
    let begun = Instant::now();
    let acquiring = async {
        if arguments.no_wait {
            TokenGuard::try_acquire(config.clone(), request).await
        } else {
            let patience = arguments.wait.unwrap_or(LONGEST);
            TokenGuard::wait(config.clone(), request, patience).await
        }
    };
    let guard = tokio::select! {
        guard = acquiring => guard.map_err(|error| match error {
            Error::Connection(_) | Error::Tls(_) => address::unreachable(&config, &error),
            error => error.into(),
        })?,
        number = signals.next() => return Ok(exit_code::signalled(number)),
    };
    let mut report = Report {
        name,
        holder: &holder,
        outcome: Outcome::NotAcquired,
        slot: guard.as_ref().map(|guard| guard.grant().slot),
        waited_seconds: begun.elapsed().as_secs_f64(),
        held_seconds: None,
        exit_code: None,
        signal: None,
    };
    let code = match guard {
        None => ExitCode::from(TEMPORARY_FAILURE),
        Some(guard) => hold(&arguments, guard, &mut signals, &mut report).await?,
    };
    if arguments.json
        && let Err(failure) = json(&[&report])
    {
        // The program's exit code is returned even if the report has no reader.
        failure.report();
    }
    match report.outcome {
        Outcome::NotAcquired if !arguments.quiet => {
            print::log("trax", &format!("\"{name}\" is held by others"));
        }
        Outcome::Lost => print::log("trax", &format!("the token of \"{name}\" was lost")),
        _ => {}
    }
    Ok(code)
}

/// Runs the program while the token is held.
async fn hold(
    arguments: &Arguments,
    guard: TokenGuard,
    signals: &mut Signals,
    report: &mut Report<'_>,
) -> Result<ExitCode, Failure> {
    let begun = Instant::now();
    if arguments.verbose {
        let (slot, holders) = (guard.grant().slot, arguments.max_holders);
        print::log("trax", &format!("holds place {slot} of {holders}"));
    }
    // After `trax lock` is killed, the token is held for at least two thirds of its time to live.
    let running = Groups::new(arguments.grace.min(arguments.ttl / 3));
    let (outcome, code) = match start(arguments, &guard, &running) {
        Ok(child) => {
            let group = running.enter(child.id());
            let attending = attend(child, group, &guard, signals, arguments.grace);
            let (status, lost) = tokio::select! {
                ended = attending => ended?,
                never = running.keep_guard() => match never {},
            };
            (report.exit_code, report.signal) = (status.code(), status.signal());
            let outcome = if lost { Outcome::Lost } else { Outcome::Ended };
            (outcome, exit_code::of(status))
        }
        Err(code) => (Outcome::NotStarted, code),
    };
    let lost_at_last = is_lost_at_the_end(guard).await;
    report.held_seconds = Some(begun.elapsed().as_secs_f64());
    if outcome == Outcome::Lost || lost_at_last {
        report.outcome = Outcome::Lost;
        return Ok(ExitCode::from(LOST));
    }
    report.outcome = outcome;
    Ok(code)
}

/// Releases the token. Returns whether it was lost. A token that cannot be released expires.
async fn is_lost_at_the_end(guard: TokenGuard) -> bool {
    match guard.release().await {
        Ok(held) => !held,
        Err(error) => {
            let text = format!("the token could not be released, and will expire: {error}");
            print::log("trax", &text);
            false
        }
    }
}

fn start(
    arguments: &Arguments,
    guard: &TokenGuard,
    running: &Groups,
) -> Result<tokio::process::Child, ExitCode> {
    let program = &arguments.command[0];
    let grant = guard.grant();
    let mut command = Command::new(program);
    command
        .args(&arguments.command[1..])
        .env("TRAX_LOCK_NAME", &arguments.name)
        .env("TRAX_LOCK_SLOT", grant.slot.to_string())
        .env("TRAX_LOCK_TOKEN", grant.token.to_string());
    for name in arguments.passed.withheld() {
        command.env_remove(name);
    }
    if arguments.json {
        command.stdout(std::io::stderr());
    }
    running.prepare(&mut command);
    command.spawn().map_err(|error| {
        print::log("trax", &format!("{}: {error}", program.to_string_lossy()));
        exit_code::not_started(&error)
    })
}

/// Waits for the end of the program. Returns its exit status, and whether it was stopped because
/// the token was lost.
async fn attend(
    mut child: tokio::process::Child,
    group: Group<'_>,
    guard: &TokenGuard,
    signals: &mut Signals,
    grace: Duration,
) -> Result<(ExitStatus, bool), Failure> {
    let terminal = Terminal::give_to(&group);
    let (mut lost, mut kill_at) = (false, None);
    let status = loop {
        tokio::select! {
            status = child.wait() => break status?,
            number = signals.next() => group.signal(number),
            () = guard.lost(), if !lost => {
                lost = true;
                group.signal(libc::SIGTERM);
                // A stopped process receives other signals only once it continues.
                group.signal(libc::SIGCONT);
                kill_at = Some(Instant::now() + grace);
            }
            () = at(kill_at) => {
                group.signal(libc::SIGKILL);
                kill_at = None;
            }
        }
    };
    drop(terminal);
    // No process may continue without the token. Remaining processes get the grace period unless
    // the token is lost.
    if !lost {
        group.signal(libc::SIGTERM);
    }
    let over = Instant::now() + grace;
    while !lost {
        tokio::select! {
            () = group.gone() => break,
            () = at(Some(over)) => break,
            number = signals.next() => group.signal(number),
            () = guard.lost() => lost = true,
        }
    }
    group.leave();
    Ok((status, lost))
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The signals that are passed on to the program.
struct Signals(Vec<(i32, Signal)>);

impl Signals {
    fn hear() -> Result<Self, Failure> {
        let heard = [
            libc::SIGTERM,
            libc::SIGINT,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGUSR1,
            libc::SIGUSR2,
        ];
        let streams: Result<Vec<_>, std::io::Error> = heard
            .into_iter()
            .map(|number| Ok((number, signal(SignalKind::from_raw(number))?)))
            .collect();
        Ok(Signals(streams?))
    }

    /// Returns the next signal.
    async fn next(&mut self) -> i32 {
        std::future::poll_fn(|cx| {
            for (number, stream) in &mut self.0 {
                if let std::task::Poll::Ready(Some(())) = stream.poll_recv(cx) {
                    return std::task::Poll::Ready(*number);
                }
            }
            std::task::Poll::Pending
        })
        .await
    }
}

/// The program owns the terminal while it runs, as only the foreground group may read it.
struct Terminal;

impl Terminal {
    fn give_to(group: &Group<'_>) -> Option<Self> {
        let id = group.id().filter(|_| std::io::stdin().is_terminal())?;
        // SAFETY: plain system calls; unless SIGTTOU is ignored, taking the terminal back would
        // stop this process.
        unsafe {
            // A background process has no terminal to give.
            if libc::tcgetpgrp(libc::STDIN_FILENO) != libc::getpgrp() {
                return None;
            }
            libc::signal(libc::SIGTTOU, libc::SIG_IGN);
            if libc::tcsetpgrp(libc::STDIN_FILENO, id) != 0 {
                return None;
            }
        }
        // The program may have read the terminal too early and been stopped.
        group.signal(libc::SIGCONT);
        Some(Terminal)
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // SAFETY: plain system calls; if the terminal is gone, nothing needs to be done.
        if unsafe { libc::tcsetpgrp(libc::STDIN_FILENO, libc::getpgrp()) } != 0 {}
    }
}

fn default_holder() -> String {
    let host = host::name();
    format!("{host}:{}", std::process::id())
}
