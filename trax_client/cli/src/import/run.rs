//! `trax import run`: runs imported lines, as the program of `trax worker --exec`.
//!
//! Input: an imported job's input on standard input, and the worker's confirmation that a manifest
//! stores it. Output: the effects and the exit code of the command. Invariant: only commands stored
//! in a manifest are run, by a role with the right to store it. Otherwise every role that may
//! enqueue would have a shell on the worker's machine, as any user.
//!
//! The command runs in the environment that cron provides: its user, its home as the working
//! directory, few variables, and the text after % on its standard input. Only the worker's password
//! for PostgreSQL is passed in addition.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitCode, Stdio};

use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;

use crate::output::say;
use crate::printed::{END, PIPE_PATIENCE, Printed};
use crate::stored::{self, Source};
use trax_terminal::Failure;

/// EX_DATAERR, which a worker treats as a permanent failure.
const DATA_ERROR: u8 = 65;
/// EX_TEMPFAIL: try again.
const TEMPORARY_FAILURE: u8 = 75;
/// The delay before a worker checks again whether a manifest stores the input.
const ASK_AGAIN_SECONDS: u8 = 5;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Complete the job whatever the exit code, which is stored in the output with the last 4 KiB
    /// that the command printed: as with cron, the next run comes at its time. Otherwise a command
    /// that fails becomes a dead letter
    #[arg(long)]
    like_cron: bool,
}

/// The input of an imported job.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(super) struct Input {
    /// The command for the shell.
    pub(super) command: String,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) environment: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) user: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) stdin: Option<String>,
}

pub(super) async fn run(_url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    authorized()?;
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    let input: Input = match serde_json::from_str(&text) {
        Ok(input) => input,
        Err(error) => {
            return Err(Failure::new(format!(
                "the input is not that of an imported line: {error}"
            ))
            .code(DATA_ERROR)
            .hint(r#"it must have a command: {"command": "date"}"#));
        }
    };
    let user = whoami(input.user.as_deref())?;
    let failed = |error| Failure::new(format!("cannot start {}: {error}", input.shell()));
    let mut command = command(&input, &user);
    let output = match arguments.like_cron {
        true => Some(both_outputs(&mut command)?),
        false => None,
    };
    let mut command = tokio::process::Command::from(command);
    let mut child = command.spawn().map_err(failed)?;
    // Its ends of the pipe would keep the pipe open.
    drop(command);
    // In a task, as the command may read its input late or never.
    let feed = input.stdin.clone().unwrap_or_default();
    let stdin = child.stdin.take();
    let feeder = tokio::spawn(async move {
        if let Some(mut stdin) = stdin {
            // An error means that the command has closed its input.
            stdin.write_all(feed.as_bytes()).await.ok();
        }
    });
    let mut printed = Printed::new(2 * END);
    let status = {
        let reading = printed.read(output);
        tokio::pin!(reading);
        let mut open = true;
        let status = loop {
            tokio::select! {
                () = &mut reading, if open => open = false,
                status = child.wait() => break status?,
            }
        };
        if open {
            // A process in the background may hold the pipe open.
            tokio::time::timeout(PIPE_PATIENCE, reading).await.ok();
        }
        status
    };
    feeder.abort();
    let code = status.code().or_else(|| status.signal().map(|n| 128 + n));
    let code = code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    if arguments.like_cron {
        let mut result = json!({ "exit_code": code });
        let text = printed.marked_end();
        if !text.is_empty() {
            result["output"] = text.into();
        }
        say(&result.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::from(code))
}

/// Joins standard output and standard error, as cron does for its mail. Returns the end to read.
fn both_outputs(command: &mut Command) -> Result<pipe::Receiver, Failure> {
    let (reader, writer) = std::io::pipe()?;
    command.stdout(writer.try_clone()?).stderr(writer);
    Ok(pipe::Receiver::from_owned_fd(reader.into())?)
}

/// Returns an error unless the worker confirms that a manifest stores the input.
fn authorized() -> Result<(), Failure> {
    let source = std::env::var(stored::VARIABLE).unwrap_or_default();
    if source == Source::Manifest.name() {
        return Ok(());
    }
    if source == Source::Unknown.name() {
        // The worker reads this and releases the attempt.
        say(&json!({ "snooze": ASK_AGAIN_SECONDS }).to_string())?;
        let failure =
            Failure::new("the database did not answer whether a manifest stores this input");
        return Err(failure.code(TEMPORARY_FAILURE));
    }
    let refused = match std::env::var("TRAX_MANIFEST") {
        Ok(name) => format!(
            "the input of this job is not the one that manifest \"{name}\" stores, so its command is not run"
        ),
        Err(_) => "this job has no manifest, so its command is not run".to_owned(),
    };
    Err(Failure::new(refused).code(DATA_ERROR).hint(
        "trax worker --exec 'trax import run' runs only commands that a manifest stores: \
         create one with trax import or trax.schedule(), and trigger it without an input",
    ))
}

/// A user of this machine.
struct User {
    name: String,
    home: String,
    /// User and group ids, if they differ from those of this process.
    other: Option<(libc::uid_t, libc::gid_t)>,
}

/// Returns the user of a line, or of this process. Only root may change to another user.
fn whoami(wanted: Option<&str>) -> Result<User, Failure> {
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    // SAFETY: a plain system call that cannot fail. The owner of /proc/self may be root.
    let mine = unsafe { libc::geteuid() }.to_string();
    let entry = |matches: &dyn Fn(&[&str]) -> bool| {
        passwd
            .lines()
            .map(|line| line.split(':').collect::<Vec<_>>())
            .find(|fields| fields.len() >= 6 && matches(fields))
            .map(|fields| {
                (
                    fields[0].to_owned(),
                    fields[2].to_owned(),
                    fields[3].to_owned(),
                    fields[5].to_owned(),
                )
            })
    };
    let me = entry(&|fields| fields[2] == mine);
    let Some(wanted) = wanted else {
        let unknown = (mine.clone(), mine, String::new(), "/".to_owned());
        let (name, _, _, home) = me.unwrap_or(unknown);
        return Ok(User {
            name,
            home,
            other: None,
        });
    };
    let Some((name, id, group, home)) = entry(&|fields| fields[0] == wanted) else {
        return Err(
            Failure::new(format!("this machine has no user \"{wanted}\"")).code(DATA_ERROR),
        );
    };
    let other = id != mine;
    if other && mine != "0" {
        let failure = Failure::new(format!("cannot become \"{wanted}\""));
        return Err(failure
            .code(DATA_ERROR)
            .hint("run the worker as root, or as that user with --group for its lines"));
    }
    let ids = match (other, id.parse(), group.parse()) {
        (false, ..) => None,
        (true, Ok(id), Ok(group)) => Some((id, group)),
        (true, ..) => {
            let text = format!("the entry of \"{name}\" in /etc/passwd has no numbers");
            return Err(Failure::new(text).code(DATA_ERROR));
        }
    };
    Ok(User {
        name,
        home,
        other: ids,
    })
}

impl Input {
    fn shell(&self) -> &str {
        self.environment
            .get("SHELL")
            .map_or("/bin/sh", String::as_str)
    }
}

fn command(input: &Input, user: &User) -> Command {
    let mut command = Command::new(input.shell());
    // No program may run as root with the environment of the line: its LD_PRELOAD is only for the
    // line's own user.
    if let Some(ids) = user.other {
        become_user(&mut command, &user.name, ids);
    }
    command.args(["-c", &input.command]).env_clear();
    let given = [
        ("PATH", "/usr/bin:/bin"),
        ("SHELL", "/bin/sh"),
        ("HOME", &user.home),
        ("LOGNAME", &user.name),
        ("USER", &user.name),
    ];
    command.envs(given);
    // psql needs these for a job of pg_cron. Another user must not see them.
    let passed = |name: &str| {
        name.starts_with("TRAX_")
            || user.other.is_none() && matches!(name, "PGPASSWORD" | "PGPASSFILE")
    };
    command.envs(std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(passed)));
    command.envs(&input.environment);
    let home = input.environment.get("HOME").unwrap_or(&user.home);
    let home = std::path::Path::new(home);
    command.current_dir(if home.is_dir() { home } else { "/".as_ref() });
    command.stdin(Stdio::piped());
    command
}

/// Makes the command start as this user, with all its groups.
fn become_user(command: &mut Command, name: &str, (user, group): (libc::uid_t, libc::gid_t)) {
    let groups = groups_of(name, group);
    let done = |outcome: i32| match outcome {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    };
    // SAFETY: between fork and exec only system calls are made; their data was prepared before.
    unsafe {
        command.pre_exec(move || {
            done(libc::setgroups(groups.len(), groups.as_ptr()))?;
            done(libc::setgid(group))?;
            done(libc::setuid(user))
        });
    }
}

/// Returns the groups of a user.
fn groups_of(name: &str, group: libc::gid_t) -> Vec<libc::gid_t> {
    // A name from /etc/passwd contains no NUL.
    let Ok(name) = std::ffi::CString::new(name) else {
        return vec![group];
    };
    let mut groups = vec![group; 64];
    loop {
        let room = groups.len();
        let mut count = room as i32;
        // SAFETY: the list has room for `count` entries.
        let found = unsafe {
            libc::getgrouplist(name.as_ptr(), group, groups.as_mut_ptr(), &raw mut count)
        };
        let count = usize::try_from(count).unwrap_or(0);
        if found >= 0 {
            groups.truncate(count);
            return groups;
        }
        // The list is too short; `count` is now the number of groups.
        groups.resize(count.max(room * 2), group);
    }
}
