//! `trax step`: a step of the job whose program calls it, under `trax worker --exec`.
//!
//! A command runs once: its output is kept, and printed by this and every later attempt. A wait
//! suspends the job: the worker ends the program, and a later attempt continues behind the wait.

pub(crate) mod serve;
pub(crate) mod wire;

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::net;
use std::process::{ExitCode, Stdio};
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use tokio::net::UnixStream;
use tokio::process::Command;
use tokio::signal::unix::{Signal, SignalKind, signal};
use trax_client::Json;

use crate::exit_code::{self, DATA_ERROR, LOST, TEMPORARY_FAILURE};
use crate::printed::Printed;
use trax_terminal::{Failure, TIMEOUT, duration, print};
use wire::{Answer, LIMIT, Request};

/// The other options that name the work of a step, beside a command.
const WAITS: [&str; 4] = ["sleep", "signal", "spawn", "children"];

/// The description of a step that a script understands.
const HELP: &str = "\
COMMAND runs once in the life of the job. Its standard output is kept, without
the newlines at its end, and printed by this and every later attempt. If COMMAND
fails, nothing is kept, and trax step exits with its code. If the worker dies
between the end of COMMAND and the record of it, COMMAND runs again.

--sleep, --signal and --children suspend the job: the worker ends the program,
as at a cancel but without an outcome, and runs it again from its top when the
wait is over; trax step then returns. It prints the payload of the signal, or
the children as a JSON array of objects with step, job_id, state and output.

A name that is used again in an attempt is the step NAME#2, then NAME#3: a step
in a loop is counted. A command that failed leaves its name to the next one.
Give steps that run side by side different names.

Exit codes: those of COMMAND, 126 and 127 if it cannot be started, 128 and the
number of the signal that ended it; 3 if the wait did not end in time; 65 if the
output cannot be kept, as in every attempt; 74 if the attempt has ended, as
another may run; 75 if the database does not answer; 64 for a usage error.

Examples:
  trax step welcome -- mail -s Welcome ada@example.org
  total=$(trax step total -- ./sum-orders)
  trax step charge --undo card.refund --undo-input '{\"cents\": 900}' -- ./charge
  trax step trial --sleep 3d
  if click=$(trax step confirmed --signal click --within 3d); then ...
  trax step thumbnail --spawn image.resize --input '{\"width\": 200}'
  trax step resized --children";

const USAGE: &str = "\
trax step [OPTIONS] <NAME> -- <COMMAND>...
       trax step <NAME> --sleep <TIME>
       trax step [OPTIONS] <NAME> --signal <SIGNAL>
       trax step [OPTIONS] <NAME> --spawn <TASK>
       trax step [OPTIONS] <NAME> --children";

#[derive(clap::Args)]
#[command(after_help = HELP)]
#[command(override_usage = USAGE)]
#[command(group = clap::ArgGroup::new("work").required(true).args(WAITS).arg("command"))]
pub(crate) struct Arguments {
    /// The name of the step, unique in the job
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    name: String,
    /// Keep the output as JSON, which it must be, and print JSON; otherwise it is a text
    #[arg(long)]
    json: bool,
    /// Queue a job of this task to undo the step if this job fails for good or is cancelled
    #[arg(long, value_name = "TASK", conflicts_with_all = WAITS, value_parser = NonEmptyStringValueParser::new())]
    undo: Option<String>,
    /// The input of that job
    #[arg(long, value_name = "JSON", requires = "undo", conflicts_with_all = WAITS)]
    undo_input: Option<String>,
    /// Suspend the job for this long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    sleep: Option<Duration>,
    /// Take the next signal of this name, and suspend the job until there is one
    #[arg(long, value_name = "SIGNAL", value_parser = NonEmptyStringValueParser::new())]
    signal: Option<String>,
    /// Queue a child, a job of this task, once, and print its id
    #[arg(long, value_name = "TASK", value_parser = NonEmptyStringValueParser::new())]
    spawn: Option<String>,
    /// The input of the child; default {}
    #[arg(long, value_name = "JSON", conflicts_with_all = ["command", "sleep", "signal", "children"])]
    input: Option<String>,
    /// Suspend the job until its children have ended, and print them as JSON
    #[arg(long)]
    children: bool,
    /// Wait for a signal or the children this long at most, then exit with 3
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["command", "sleep", "spawn"])]
    within: Option<Duration>,
    /// The command and its arguments
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

pub(crate) async fn run(_: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let request = request(&arguments)?;
    let mut worker = connect()?;
    wire::write(&mut worker, &request).await.map_err(ended)?;
    let answer = match wire::read(&mut worker).await.map_err(ended)? {
        Answer::Run => match printed_by(&arguments.command).await? {
            Ok(out) => {
                let output = kept(&out, arguments.json);
                let sent = output.as_ref().map_err(Failure::to_string);
                wire::write(&mut worker, &sent).await.map_err(ended)?;
                let answer = wire::read(&mut worker).await.map_err(ended)?;
                match (answer, output) {
                    (Answer::Failed { .. }, Err(refused)) => return Err(refused),
                    (answer, _) => answer,
                }
            }
            Err(code) => return Ok(code),
        },
        answer => answer,
    };
    match answer {
        Answer::Kept(output) => {
            say(&output, arguments.json)?;
            Ok(ExitCode::SUCCESS)
        }
        Answer::TimedOut => Ok(ExitCode::from(TIMEOUT)),
        Answer::Lost => Err(lost()),
        Answer::Failed {
            error,
            is_permanent,
        } => Err(Failure::new(error).code(match is_permanent {
            true => DATA_ERROR,
            false => TEMPORARY_FAILURE,
        })),
        Answer::Run => Err(ended(io::ErrorKind::InvalidData.into())),
    }
}

fn request(arguments: &Arguments) -> Result<Request, Failure> {
    let name = arguments.name.clone();
    let timeout = arguments.within;
    if let Some(time) = arguments.sleep {
        return Ok(Request::Sleep { name, time });
    }
    if let Some(signal) = arguments.signal.clone() {
        return Ok(Request::Signal {
            name,
            signal,
            timeout,
        });
    }
    if let Some(task) = arguments.spawn.clone() {
        let input = json("--input", arguments.input.as_deref().unwrap_or("{}"))?;
        return Ok(Request::Spawn { name, task, input });
    }
    if arguments.children {
        return Ok(Request::Children { name, timeout });
    }
    let input = match &arguments.undo_input {
        Some(text) => json("--undo-input", text)?,
        None => Json::default(),
    };
    let undo = arguments.undo.clone().map(|task| (task, input));
    Ok(Request::Step { name, undo })
}

fn json(option: &str, text: &str) -> Result<Json, Failure> {
    text.parse().map_err(|error| {
        Failure::usage(format!("{option} is not JSON: {error}")).hint(format!(
            "a text needs quotes of its own: {option} '\"ada\"'"
        ))
    })
}

/// Connects to the worker that runs this program.
fn connect() -> Result<UnixStream, Failure> {
    let Ok(name) = std::env::var(wire::VARIABLE) else {
        return Err(Failure::usage(
            "trax step works only in a program that trax worker --exec runs",
        )
        .hint(
            "type: trax worker --task TASK --exec 'sh ./script', where the script calls trax step",
        ));
    };
    let open = || {
        let stream = net::UnixStream::connect_addr(&wire::address(&name)?)?;
        stream.set_nonblocking(true)?;
        let stream = UnixStream::from_std(stream)?;
        wire::check_peer(&stream)?;
        Ok(stream)
    };
    open().map_err(|error: io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused => lost(),
        io::ErrorKind::PermissionDenied => Failure::new("the worker runs as another user")
            .hint("run the program that calls trax step as the worker's user"),
        _ => Failure::new(format!("the worker cannot be reached: {error}")),
    })
}

/// Runs a command and returns its standard output, or the exit code of its failure. SIGTERM is
/// passed on: a command that ends well in spite of it has done its step.
async fn printed_by(command: &[OsString]) -> Result<Result<Printed, ExitCode>, Failure> {
    let (program, arguments) = (&command[0], &command[1..]);
    let mut terminations = match is_ignored(libc::SIGTERM) {
        true => None,
        false => Some(signal(SignalKind::terminate())?),
    };
    let spawned = Command::new(program)
        .args(arguments)
        .stdout(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            print::log("trax", &format!("{}: {error}", program.to_string_lossy()));
            return Ok(Err(exit_code::not_started(&error)));
        }
    };
    let id = child.id().and_then(|id| i32::try_from(id).ok());
    let mut out = Printed::new(LIMIT);
    let status = {
        let ended = async {
            out.read(child.stdout.take()).await;
            child.wait().await
        };
        tokio::pin!(ended);
        loop {
            tokio::select! {
                status = &mut ended => break status?,
                () = next(&mut terminations) => if let Some(id) = id {
                    // SAFETY: the child is not yet waited for, so the id is its own.
                    unsafe { libc::kill(id, libc::SIGTERM) };
                },
            }
        }
    };
    if status.success() {
        return Ok(Ok(out));
    }
    written(out.whole().unwrap_or(out.marked_end().as_bytes()))?;
    Ok(Err(exit_code::of(status)))
}

/// Returns whether the program that called this one ignores the signal; commands then do, too.
fn is_ignored(number: i32) -> bool {
    // SAFETY: writes only to `now`, for which all zeros is a valid value.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        let read = libc::sigaction(number, std::ptr::null(), &raw mut now);
        read == 0 && now.sa_sigaction == libc::SIG_IGN
    }
}

async fn next(signals: &mut Option<Signal>) {
    let received = match signals {
        Some(signals) => signals.recv().await,
        None => None,
    };
    if received.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Returns the output of a command as it is kept. A retry would only run the command again.
fn kept(out: &Printed, as_json: bool) -> Result<Json, Failure> {
    let refused = |what: &str, hint: &str| {
        Failure::new(format!("the output of the command {what}, and is not kept"))
            .hint(hint)
            .code(DATA_ERROR)
    };
    let Some(bytes) = out.whole() else {
        let what = format!("has more than {} MiB", LIMIT >> 20);
        return Err(refused(
            &what,
            "write it to a file, and print the file's name",
        ));
    };
    let encode = "print it in base64: trax step NAME -- sh -c 'COMMAND | base64'";
    let text = std::str::from_utf8(bytes).map_err(|_| refused("is not UTF-8", encode))?;
    if as_json {
        return match text.trim() {
            "" => Ok(Json::default()),
            text => text.parse().map_err(|error| {
                let what = format!("is not JSON ({error})");
                refused(&what, "leave out --json to keep it as a text")
            }),
        };
    }
    if text.contains('\0') {
        return Err(refused("has a NUL, which PostgreSQL cannot store", encode));
    }
    match text.trim_end_matches(['\n', '\r']) {
        "" => Ok(Json::default()),
        text => Ok(Json::of(text).map_err(trax_client::Error::from)?),
    }
}

/// Prints a kept output: a text as it is, unless JSON is asked for.
fn say(output: &Json, as_json: bool) -> Result<(), Failure> {
    let text = match (as_json, output.read::<String>()) {
        (false, _) if output.is_null() => return Ok(()),
        (false, Ok(text)) => text,
        _ => output.text().to_owned(),
    };
    written(format!("{text}\n").as_bytes())
}

fn written(bytes: &[u8]) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    let written = stdout.write_all(bytes).and_then(|()| stdout.flush());
    match written {
        // A reader that stops early, such as head, is not an error.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns the failure of a step in an attempt that has ended.
fn lost() -> Failure {
    Failure::new("the attempt of this program has ended, and keeps no step").code(LOST).hint(
        "its lease is lost, another step has suspended the job, or the program outlives the worker: end it",
    )
}

/// Returns the failure for a connection that broke.
fn ended(error: io::Error) -> Failure {
    match error.kind() {
        io::ErrorKind::InvalidData => Failure::new("the worker is another version of trax")
            .hint("run the trax of the worker: compare trax --version"),
        _ => lost(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printed::END;
    use crate::printed::tests::printed;

    #[test]
    fn an_output_is_kept_as_a_text_without_its_last_newlines_or_as_json() {
        for (said, as_json, text) in [
            ("a\nb\n\n", false, r#""a\nb""#),
            (" a \r\n", false, r#"" a ""#),
            ("{\"n\": 1.10}\n", false, r#""{\"n\": 1.10}""#),
            ("{\"n\": 1.10}\n", true, "{\"n\": 1.10}"),
            ("", false, "null"),
            ("\n", true, "null"),
        ] {
            let output = kept(&printed(said.as_bytes()), as_json);
            let output = output.unwrap_or_else(|failure| panic!("{said:?}: {failure}"));
            assert_eq!(output.text(), text);
        }
        for said in [&b"caf\xe9"[..], b"a\0b"] {
            assert!(kept(&printed(said), false).is_err(), "{said:?}");
        }
        assert!(kept(&printed(b"hello"), true).is_err());
    }

    #[tokio::test]
    async fn an_output_that_is_too_long_is_refused_in_words() {
        let mut out = Printed::new(2 * END);
        out.read(Some("x".repeat(3 * END).as_bytes())).await;
        let refusal = kept(&out, false).expect_err("it is too long").to_string();
        let said = "the output of the command has more than 256 MiB, and is not kept";
        assert_eq!(refusal, said);
    }
}
