//! `trax import crontab`.

use std::io::Read;
use std::path::Path;
use std::process::ExitCode;

use jiff::tz::TimeZone;
use serde_json::json;

use super::apply::{Import, preview_and_apply};
use super::crontab::{self, CrontabLine, Form, Job};
use super::proposal::{Former, ImportOptions, Proposal, UniqueNames, manifest};
use super::run::Input;
use crate::host;
use crate::session::Session;
use trax_terminal::Failure;

/// Variables that cron itself reads, and the note for each.
const FOR_CRON: [(&str, &str); 5] = [
    (
        "MAILTO",
        "no mail is sent (MAILTO): the error output of a failed command is in its error",
    ),
    ("MAILFROM", "no mail is sent (MAILFROM)"),
    ("CONTENT_TYPE", "no mail is sent (CONTENT_TYPE)"),
    (
        "CONTENT_TRANSFER_ENCODING",
        "no mail is sent (CONTENT_TRANSFER_ENCODING)",
    ),
    (
        "RANDOM_DELAY",
        "RANDOM_DELAY is not carried over: set the manifest's variance",
    ),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Crontabs; - is standard input, for example of crontab -l
    #[arg(required = true, value_name = "FILE")]
    files: Vec<String>,
    /// Every line contains a user; default: only in files named crontab in /etc and those in a
    /// directory cron.d
    #[arg(long, conflicts_with = "user")]
    system: bool,
    /// No line contains a user, and this one runs the commands; default: the user whose crontab it
    /// is in /var/spool/cron, or the user that runs the worker
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// The time zone; default: that of this machine. CRON_TZ in a crontab takes precedence
    #[arg(long, value_name = "ZONE")]
    timezone: Option<String>,
    #[command(flatten)]
    how: ImportOptions,
}

pub(super) async fn run(url: Option<String>, arguments: Arguments) -> Result<ExitCode, Failure> {
    let zone = match &arguments.timezone {
        Some(zone) => zone.clone(),
        None => local_zone()?,
    };
    let mut names = UniqueNames::default();
    let mut imports = Vec::new();
    for file in &arguments.files {
        let text = read(file)?;
        let lines = crontab::read(&text, arguments.form(file)).into_iter();
        imports.push(Import {
            source: arguments.source(file)?,
            proposals: lines
                .map(|line| arguments.proposal(&mut names, file, &zone, line))
                .collect(),
        });
    }
    let session = Session::open(url.as_deref(), &arguments.how.output).await?;
    preview_and_apply(&session, &arguments.how, imports).await
}

fn read(file: &str) -> Result<String, Failure> {
    let mut bytes = Vec::new();
    let read = if file == "-" {
        std::io::stdin().read_to_end(&mut bytes)
    } else {
        std::fs::File::open(file).and_then(|mut file| file.read_to_end(&mut bytes))
    };
    read.map_err(|error| Failure::usage(format!("cannot read {file}: {error}")))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = error.utf8_error().valid_up_to();
        Failure::usage(format!("{file} is not UTF-8 at byte {valid}"))
            .hint("convert it: iconv -f latin1 -t utf8")
    })
}

/// Returns the time zone that cron uses on this machine.
fn local_zone() -> Result<String, Failure> {
    let zone = TimeZone::system();
    let name = zone.iana_name().map(str::to_owned);
    name.filter(|name| name != "Etc/Unknown").ok_or_else(|| {
        Failure::usage("the time zone of this machine has no name").hint("use --timezone")
    })
}

impl Arguments {
    fn form(&self, file: &str) -> Form {
        let path = Path::new(file);
        let directory = path.parent().and_then(Path::file_name);
        let of_system = path.ends_with("etc/crontab") || directory.is_some_and(|d| d == "cron.d");
        if self.system || (of_system && self.user.is_none()) {
            Form::System
        } else {
            Form::User
        }
    }

    /// Returns the source of the manifests of a crontab: "crontab web1:/etc/crontab". The input of
    /// the command counts as the crontab of the user that runs it.
    fn source(&self, file: &str) -> Result<String, Failure> {
        let host = host::name();
        let own = || std::env::var("USER").or_else(|_| std::env::var("LOGNAME"));
        Ok(match (file, &self.user) {
            ("-", None) => match own() {
                Ok(user) => format!("crontab {host} of {user}"),
                Err(_) => format!("crontab {host}"),
            },
            ("-", Some(user)) => format!("crontab {host} of {user}"),
            (file, user) => {
                let path = std::path::absolute(file)?.display().to_string();
                let of = user
                    .as_ref()
                    .map_or(String::new(), |user| format!(" of {user}"));
                format!("crontab {host}:{path}{of}")
            }
        })
    }

    fn proposal(
        &self,
        names: &mut UniqueNames,
        file: &str,
        zone: &str,
        line: CrontabLine,
    ) -> Proposal {
        let source = format!("{file}:{}", line.number);
        let mut job = match line.job {
            Ok(job) => job,
            Err(reason) => {
                // No manifest has ever come from a line for the start of the machine.
                let is_at_start = line.text.trim_start().starts_with("@reboot");
                let former = match is_at_start {
                    true => Former::None,
                    false => Former::Any,
                };
                return Proposal::left_out(source, line.text, reason, former);
            }
        };
        let mut notes = notes(&mut job);
        let stem = Path::new(file).file_name().and_then(|name| name.to_str());
        let name = names.of(
            stem.unwrap_or("crontab").trim_start_matches('-'),
            &job.command,
        );
        let input = Input {
            command: job.command,
            environment: job.environment,
            user: job
                .user
                .or_else(|| self.user.clone())
                .or_else(|| owner(file)),
            stdin: job.stdin,
        };
        let mut manifest = manifest(&self.how, &name, json!(input));
        notes.extend(job.times.set_in(&mut manifest));
        manifest["timezone"] = json!(job.timezone.as_deref().unwrap_or(zone));
        let mut proposal = Proposal::of(source, line.text, manifest);
        proposal.notes = notes;
        proposal
    }
}

/// The directories of users' crontabs, one file per user: Debian's, Red Hat's, SUSE's.
const SPOOLS: [&str; 3] = ["spool/cron/crontabs", "spool/cron", "spool/cron/tabs"];

/// Returns the owner of a crontab, from its path. Otherwise a worker run by root would run any
/// user's lines as root.
fn owner(file: &str) -> Option<String> {
    let path = Path::new(file).canonicalize().ok()?;
    let directory = path.parent()?;
    let is_spool = SPOOLS.iter().any(|spool| directory.ends_with(spool));
    let name = path.file_name().filter(|_| is_spool)?;
    Some(name.to_str()?.to_owned())
}

/// Returns notes on the differences, and removes variables that only cron uses.
fn notes(job: &mut Job) -> Vec<String> {
    let mut notes = Vec::new();
    for (name, note) in FOR_CRON {
        let value_set = job.environment.remove(name);
        if value_set.is_some_and(|value| !value.is_empty()) {
            notes.push(note.to_owned());
        }
    }
    notes
}
