//! Runs a program as a handler.
//!
//! Input: the job's input as JSON on standard input, and environment variables: TRAX_JOB_ID,
//! TRAX_ATTEMPT, TRAX_MAX_ATTEMPTS, TRAX_TASK, TRAX_GROUP, TRAX_QUEUED_AT; if known, TRAX_MANIFEST,
//! TRAX_SCHEDULED_FOR and TRAX_DEADLINE (times in seconds since 1970); TRACEPARENT and TRACESTATE
//! of the enqueuing span; TRAX_INPUT_FROM, which is `manifest` if the input is the one stored in
//! the job's manifest; TRAX_STEP_SOCKET, for `trax step`. Credentials are not passed. Output: the
//! exit code is the outcome; standard output is the output (or a failure's detail): JSON as it is,
//! the end of other text as a string; the end of standard error is the error. A failing program
//! that prints {"retry_in": SECONDS} sets its retry delay, {"snooze": SECONDS} releases the job
//! without using up an attempt, {"cancel": REASON} ends the job as cancelled. No more than 1 MiB of
//! each is in memory.
//!
//! A cancelled, late, lost or suspended attempt gets SIGTERM, and SIGKILL after the grace period,
//! as a whole process group. Processes that a program leaves running in its group are ended in the
//! same way, so that nothing runs beside the next attempt. No program outlives the worker, however
//! the worker ends.

use std::convert::Infallible;
use std::os::unix::process::ExitStatusExt;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::Instant;
use trax_client::{Context, HandlerResult, JobError, Json, Outcome};

use crate::credentials::PassedVariables;
use crate::executable::Executable;
use crate::exit_code::{DATA_ERROR, NOT_EXECUTABLE, NOT_FOUND, TEMPORARY_FAILURE};
use crate::printed::{END, JSON_LIMIT, PIPE_PATIENCE, Printed};
use crate::process_group::Groups;
use crate::step::serve::{Steps, Stop};
use crate::step::wire;
use crate::stored::{self, Source, StoredInput};
use trax_terminal::{LONGEST, print};

/// The delay of a job that is released because its program cannot be started.
const RELEASED_FOR: Duration = Duration::from_secs(5);

pub(crate) struct Program {
    command: String,
    executable: Option<Executable>,
    grace: Duration,
    retry_delay: Option<Duration>,
    passed: PassedVariables,
    stored: StoredInput,
    running: Groups,
}

impl Program {
    /// `command` is run with sh -c; `grace` is the time between SIGTERM and SIGKILL; `retry_delay`
    /// replaces the job's own delay after a temporary failure; `passed` selects environment
    /// variables; `stored` looks up the inputs of manifests.
    pub(crate) fn new(
        command: String,
        grace: Duration,
        retry_delay: Option<Duration>,
        lease: Duration,
        passed: PassedVariables,
        stored: StoredInput,
    ) -> Self {
        Program {
            executable: Executable::of(&command),
            command,
            grace,
            retry_delay,
            passed,
            stored,
            // After the worker is killed, its leases last for at least two thirds of their length.
            running: Groups::new(grace.min(lease / 3)),
        }
    }

    pub(crate) async fn run(&self, input: Json, ctx: Context) -> HandlerResult<Outcome> {
        let source = tokio::select! {
            source = self.stored.source(&ctx) => source,
            _ = ctx.cancelled() => Source::Unknown,
        };
        let started = Steps::open(&ctx)
            .and_then(|steps| Ok((self.start(&ctx, source, steps.name())?, steps)));
        let (mut child, mut steps) = match started {
            Ok(started) => started,
            Err(error) => {
                return Err(not_now(
                    &ctx,
                    &format!("no process can be started: {error}"),
                ));
            }
        };
        let group = self.running.enter(child.id());
        let (stdin, stdout, stderr) =
            (child.stdin.take(), child.stdout.take(), child.stderr.take());
        let (mut out, mut err) = (Printed::new(JSON_LIMIT), Printed::new(2 * END));
        let mut stop = None;
        let status = {
            let pipes = async {
                tokio::join!(
                    feed(stdin, input.text()),
                    out.read(stdout),
                    err.read(stderr),
                )
            };
            tokio::pin!(pipes);
            let mut open = true;
            let (mut ended, mut kill_at, mut killed) = (None, None, false);
            let (mut asked, mut hurried) = (false, false);
            let status = loop {
                tokio::select! {
                    _ = &mut pipes, if open => open = false,
                    status = child.wait(), if ended.is_none() => {
                        ended = Some(status?);
                        // Remaining processes get the same grace period, also if a shell in front
                        // of them has ended.
                        if kill_at.is_none() {
                            group.signal(libc::SIGTERM);
                            kill_at = Some(Instant::now() + self.grace);
                        }
                    }
                    why = steps.stopped(&ctx), if stop.is_none() => {
                        stop = Some(why);
                        group.signal(libc::SIGTERM);
                        kill_at = kill_at.or_else(|| Some(Instant::now() + self.grace));
                    }
                    () = group.gone(), if ended.is_some() => killed = true,
                    // The worker stops: the program's result is reported, and remaining processes
                    // get no more time.
                    _ = ctx.cancelled(), if ended.is_some() && !asked && !killed => {
                        group.signal(libc::SIGKILL);
                        (killed, hurried) = (true, true);
                    }
                    _ = ctx.cancelled(), if kill_at.is_none() => {
                        asked = true;
                        group.signal(libc::SIGTERM);
                        kill_at = Some(Instant::now() + self.grace);
                    }
                    () = at(kill_at.filter(|_| !killed)) => {
                        group.signal(libc::SIGKILL);
                        killed = true;
                    }
                }
                if let Some(status) = ended
                    && killed
                {
                    break status;
                }
            };
            let patience = tokio::time::timeout(PIPE_PATIENCE, &mut pipes);
            if open && !hurried && patience.await.is_err() {
                note(&ctx, "a process still holds its output open");
            }
            status
        };
        group.leave();
        match stop {
            Some(Stop::Suspended) => return ctx.suspend().await,
            // The server discards the outcome of such an attempt.
            Some(Stop::Lost) => return Err(JobError::lease_lost()),
            None => {}
        }
        if !out.is_whole() {
            note(
                &ctx,
                "standard output is longer than 1 MiB; its end is kept",
            );
        }
        if out.is_replaced() {
            note(
                &ctx,
                "its output has characters that PostgreSQL cannot store; U+FFFD replaces them",
            );
        }
        if matches!(code(status), Some(NOT_EXECUTABLE | NOT_FOUND))
            && let Some(program) = &self.executable
            && !program.exists()
        {
            let what = format!(
                "the program \"{}\" is gone or not executable",
                program.name()
            );
            return Err(not_now(&ctx, &what));
        }
        if status.success()
            && let Some(code) = failed_code(&out)
        {
            let said = out.end();
            let end = said.lines().last().unwrap_or_default();
            note(&ctx, &format!("{}: exit code {code}: {end}", ctx.task()));
        }
        judge(status, &out, &err, self.retry_delay)
    }

    /// Keeps a guard process beside the programs. Never returns.
    pub(crate) async fn keep_guard(&self) -> Infallible {
        self.running.keep_guard().await
    }

    /// Kills every program that still runs, as a last resort for abandoned handlers.
    pub(crate) fn kill_all(&self) {
        self.running.kill_all();
    }

    fn start(&self, ctx: &Context, source: Source, socket: &str) -> std::io::Result<Child> {
        let mut command = Command::new("sh");
        command.arg("-c").arg(&self.command);
        self.running.prepare(&mut command);
        command.env("TRAX_JOB_ID", ctx.job_id().to_string());
        command.env("TRAX_ATTEMPT", ctx.attempt().to_string());
        command.env("TRAX_MAX_ATTEMPTS", ctx.max_attempts().to_string());
        command.env("TRAX_TASK", ctx.task());
        command.env(stored::VARIABLE, source.name());
        command.env(wire::VARIABLE, socket);
        for name in self.passed.withheld() {
            command.env_remove(name);
        }
        // The service manager listens to this worker, and would take a program's messages for the
        // worker's.
        for name in ["NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"] {
            command.env_remove(name);
        }
        let since_1970 = |at: Option<SystemTime>| {
            at.and_then(|at| at.duration_since(SystemTime::UNIX_EPOCH).ok())
                .map(|since| since.as_secs().to_string())
        };
        let trace = ctx.trace_context();
        let state = trace.as_ref().and_then(|trace| trace.tracestate());
        let maybe = [
            ("TRACESTATE", state.map(str::to_owned)),
            ("TRACEPARENT", trace.map(|trace| trace.traceparent())),
            ("TRAX_GROUP", ctx.group().map(str::to_owned)),
            ("TRAX_MANIFEST", ctx.manifest().map(str::to_owned)),
            ("TRAX_QUEUED_AT", since_1970(Some(ctx.queued_at()))),
            ("TRAX_SCHEDULED_FOR", since_1970(ctx.scheduled_for())),
            ("TRAX_DEADLINE", since_1970(ctx.deadline())),
        ];
        for (name, value) in maybe {
            // A value inherited from an outer worker does not belong to this job.
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn()
    }
}

fn note(ctx: &Context, text: &str) {
    print::log("trax", &format!("job {}: {text}", ctx.job_id()));
}

/// Returns the outcome of a job that this machine cannot run now; the job is not at fault.
fn not_now(ctx: &Context, what: &str) -> JobError {
    note(
        ctx,
        &format!("{what}; it is released for {} s", RELEASED_FOR.as_secs()),
    );
    JobError::snooze(RELEASED_FOR)
}

async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// Writes the input, and closes standard input.
async fn feed(stdin: Option<ChildStdin>, input: &str) {
    if let Some(mut stdin) = stdin {
        // An error means that the program has closed its input, which it need not read.
        stdin.write_all(input.as_bytes()).await.ok();
        stdin.shutdown().await.ok();
    }
}

/// Returns the exit status as an outcome.
fn judge(
    status: ExitStatus,
    out: &Printed,
    err: &Printed,
    retry_delay: Option<Duration>,
) -> HandlerResult<Outcome> {
    if status.success() {
        return Ok(Outcome::Printed(out.json()));
    }
    let said = err.end();
    let with = |what: String| match said.trim() {
        "" => what,
        said => format!("{what}: {said}"),
    };
    let printed = out.json();
    let detail: Value = printed.read().unwrap_or_default();
    let mut mistakes = Vec::new();
    if let Some(delay) = seconds(&detail, "snooze", &mut mistakes) {
        return Err(JobError::snooze(delay));
    }
    match detail.get("cancel") {
        Some(Value::String(reason)) => {
            return Err(JobError::cancelled(reason.replace('\0', "\u{fffd}")));
        }
        None | Some(Value::Null) => {}
        Some(value) => mistakes.push(format!(
            "its \"cancel\" is {value}, but must be a text: the reason"
        )),
    }
    let mut retry_in = seconds(&detail, "retry_in", &mut mistakes);
    let with = |what: String| [vec![with(what)], mistakes.clone()].concat().join("\n");
    let error = match (code(status), status.signal()) {
        (Some(DATA_ERROR), _) => {
            retry_in = None;
            JobError::permanent(with("bad input".to_owned()))
        }
        (Some(TEMPORARY_FAILURE), _) => {
            retry_in = retry_in.or(retry_delay);
            JobError::new(with("temporary failure".to_owned()))
        }
        (Some(code), _) => JobError::new(with(format!("exit code {code}"))),
        (None, Some(signal)) => JobError::new(with(format!("killed by signal {signal}"))),
        (None, None) => JobError::new(with("ended in an unknown way".to_owned())),
    };
    let error = match retry_in {
        Some(delay) => error.retry_in(delay),
        None => error,
    };
    Err(match printed.is_null() {
        true => error,
        false => error.detail(printed),
    })
}

fn code(status: ExitStatus) -> Option<u8> {
    status.code().and_then(|code| u8::try_from(code).ok())
}

/// Returns a member of a failing program's output if it is a duration in seconds; another value is
/// a mistake.
fn seconds(detail: &Value, member: &str, mistakes: &mut Vec<String>) -> Option<Duration> {
    let value = detail.get(member).filter(|value| !value.is_null())?;
    let delay = value.as_f64().map(Duration::try_from_secs_f64);
    let delay = delay.and_then(Result::ok).filter(|delay| *delay <= LONGEST);
    if delay.is_none() {
        let most = LONGEST.as_secs();
        mistakes.push(format!(
            "its \"{member}\" is {value}, but must be a number of seconds from 0 to {most}"
        ));
    }
    delay
}

/// Returns the exit code in the output of a completed program, such as `trax import run
/// --like-cron`, unless it is 0.
fn failed_code(out: &Printed) -> Option<i64> {
    let output: Value = out.json().read().ok()?;
    let code = output.get("exit_code")?.as_i64();
    code.filter(|code| *code != 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::printed::tests::printed;

    fn judged(code: i32, out: &str, err: &str) -> HandlerResult<Outcome> {
        judge(
            ExitStatus::from_raw(code << 8),
            &printed(out.as_bytes()),
            &printed(err.as_bytes()),
            None,
        )
    }

    #[test]
    fn the_exit_code_says_what_the_failure_is() {
        let text = |code, err| {
            judged(code, "", err)
                .map_err(|error| error.to_string())
                .err()
        };
        assert_eq!(
            text(1, "no such file\n"),
            Some("exit code 1: no such file".to_owned())
        );
        assert_eq!(text(75, ""), Some("temporary failure".to_owned()));
        assert_eq!(text(65, "what?"), Some("bad input: what?".to_owned()));
        let killed = judge(ExitStatus::from_raw(9), &printed(b""), &printed(b""), None)
            .map_err(|e| e.to_string())
            .err();
        assert_eq!(killed, Some("killed by signal 9".to_owned()));
    }

    #[test]
    fn a_failing_program_may_say_when_it_is_run_again() {
        let said = |code, out| {
            judged(code, out, "")
                .map_err(|error| format!("{error:?}"))
                .err()
        };
        let kept = |text: Option<String>, part: &str| text.is_some_and(|text| text.contains(part));
        assert!(kept(said(1, "{\"retry_in\": 90}"), "90s"));
        assert!(kept(said(75, "{\"retry_in\": 0.5}"), "500ms"));
        assert!(!kept(said(65, "{\"retry_in\": 90}"), "90s"));
        assert!(!kept(said(1, "{\"retry_in\": -1}"), "retry_in: Some"));
        assert!(kept(said(75, "{\"snooze\": 5}"), "Snooze(5s)"));
        assert!(kept(said(1, "{\"cancel\": \"gone\"}"), "Cancel"));
        assert!(!kept(said(1, "{\"cancel\": true}"), "Cancel"));
        assert!(kept(said(1, "{\"line\": 7}"), "\"line\": 7"));
        assert!(kept(said(1, "step 3\n"), "detail: Some(\"step 3\")"));
        for wrong in ["1e12", "-1", "\"5m\"", "true"] {
            let text = judged(1, &format!("{{\"retry_in\": {wrong}}}"), "trouble");
            let text = text.map_err(|error| error.to_string()).err();
            assert!(kept(text.clone(), "exit code 1: trouble\n"), "{text:?}");
            assert!(
                kept(text.clone(), "a number of seconds from 0 to 315360000"),
                "{text:?}"
            );
        }
        let text = judged(1, "{\"snooze\": 1e12}", "").map_err(|error| error.to_string());
        assert!(text.is_err_and(|text| text.contains("its \"snooze\" is")));
        let text = judged(1, "{\"cancel\": 5}", "").map_err(|error| error.to_string());
        assert!(text.is_err_and(|text| text.contains("its \"cancel\" is 5, but must be a text")));
        let delay = Some(Duration::from_secs(7));
        let outcome = judge(
            ExitStatus::from_raw(75 << 8),
            &printed(b""),
            &printed(b""),
            delay,
        );
        assert!(outcome.is_err_and(|error| format!("{error:?}").contains("7s")));
    }
}
