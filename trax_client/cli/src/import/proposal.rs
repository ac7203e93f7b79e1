//! Proposals: the conversion of each line.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::output::{Consent, Moment, Options, Tone, one_line, paint, plain, width};
use trax_terminal::print;

/// The options for making and applying proposals; part of the arguments of each source.
#[derive(clap::Args)]
pub(super) struct ImportOptions {
    /// Create the manifests; asks for confirmation on a terminal
    #[arg(long)]
    pub(super) apply: bool,
    /// With --apply: also remove the manifests that an earlier import of the same source created
    /// and no line has any more
    #[arg(long)]
    pub(super) prune: bool,
    /// The source that the manifests belong to; default: the crontab with its machine and path,
    /// or pg_cron. No prune of another source removes them
    #[arg(long, value_name = "NAME")]
    pub(super) source: Option<String>,
    /// The task of the jobs, for which a worker runs trax import run
    #[arg(long, value_name = "TASK", default_value = "shell")]
    pub(super) task: String,
    /// The group of the manifests
    #[arg(long, value_name = "GROUP")]
    group: Option<String>,
    /// The effect of a run that failed for good on its schedule: continue, as with cron, or stop
    /// until a person resolves its dead letter
    #[arg(long, value_name = "WORD", default_value = "continue", value_parser = ["continue", "stop"])]
    on_dead_letter: String,
    /// How many future runs of each to show
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(i32).range(1..=100))]
    pub(super) count: i32,
    #[command(flatten)]
    pub(super) consent: Consent,
    #[command(flatten)]
    pub(super) output: Options,
}

/// The manifest that an earlier import may have made of a line that is left out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Former {
    Any,
    None,
    Named(String),
}

/// The conversion of a line.
#[derive(Debug, Serialize)]
pub(super) struct Proposal {
    /// The location of the line: "/etc/crontab:12".
    pub(super) source: String,
    pub(super) line: String,
    /// The manifest in the format of trax.apply; null if the line is left out.
    pub(super) manifest: Value,
    /// The reason for leaving the line out.
    pub(super) left_out: Option<String>,
    /// The differences from the original.
    pub(super) notes: Vec<String>,
    pub(super) next_runs: Vec<Moment>,
    #[serde(skip)]
    pub(super) local_times: Vec<String>,
    #[serde(skip)]
    former: Former,
}

impl Proposal {
    pub(super) fn of(source: String, line: String, manifest: Value) -> Self {
        Proposal {
            source,
            line,
            manifest,
            left_out: None,
            notes: Vec::new(),
            next_runs: Vec::new(),
            local_times: Vec::new(),
            former: Former::None,
        }
    }

    pub(super) fn left_out(source: String, line: String, reason: String, former: Former) -> Self {
        Proposal {
            left_out: Some(reason),
            former,
            ..Proposal::of(source, line, Value::Null)
        }
    }

    pub(super) fn leave_out(&mut self, reason: String) {
        self.left_out = Some(reason);
        self.former = Former::Named(self.name().to_owned());
        self.manifest = Value::Null;
    }

    /// Leaves an existing manifest enabled or disabled: a job that was moved is inactive at its
    /// source.
    pub(super) fn keep_switch(&mut self) {
        let members = self.manifest.as_object_mut();
        if members
            .and_then(|members| members.remove("enabled"))
            .is_some()
        {
            let note = "the job is inactive; its manifest stays enabled or disabled, as it is now";
            self.notes.push(note.to_owned());
        }
    }

    /// Returns whether the line is left out, and may be that of a manifest.
    pub(super) fn may_be_of(&self, manifest: &str) -> bool {
        match &self.former {
            Former::Any => true,
            Former::None => false,
            Former::Named(name) => name == manifest,
        }
    }

    pub(super) fn name(&self) -> &str {
        self.manifest["name"].as_str().unwrap_or_default()
    }

    /// Returns several lines of text.
    pub(super) fn text(&self) -> String {
        // Indented, so that no line of the command can pass for a line of this output.
        let line = plain(&self.line).replace('\n', "\n        ");
        let source = paint(&one_line(&self.source), Tone::Strong);
        let mut lines = vec![print::folded_at(&format!("{source}  {line}"), 8, width())];
        let mut add = |tone: Tone, label: &str, text: &str| {
            let text = format!("    {label}{}", one_line(text));
            let line = print::folded_at(&text, 4 + label.len(), width());
            lines.push(paint(&line, tone));
        };
        if let Some(reason) = &self.left_out {
            add(Tone::Warn, "left out: ", reason);
            return lines.join("\n");
        }
        add(Tone::Good, "becomes: ", &self.becomes());
        match self.local_times.as_slice() {
            [] => add(Tone::Warn, "next: ", "never"),
            times => add(Tone::Plain, "next: ", &times.join(", ")),
        }
        for note in &self.notes {
            add(Tone::Dim, "note: ", note);
        }
        lines.join("\n")
    }

    /// Returns "manifest "x", cron 0 1 * * * in Europe/Berlin, task shell as root".
    fn becomes(&self) -> String {
        let text = |name: &str| self.manifest[name].as_str().map(str::to_owned);
        let mut parts = vec![format!("manifest \"{}\"", self.name())];
        if let Some(cron) = text("cron") {
            let zone = text("timezone").unwrap_or_else(|| "UTC".to_owned());
            parts.push(format!("cron {cron} in {zone}"));
        }
        if let Some(every) = text("every") {
            parts.push(format!("every {every}"));
        }
        if let Some(days) = self.manifest["exclusions"]["days_of_week"].as_array() {
            let days: Vec<&str> = days.iter().filter_map(Value::as_str).collect();
            parts.push(format!("not on {}", days.join(" ")));
        }
        let user = self.manifest["input"]["user"].as_str().map(str::to_owned);
        let user = user.or_else(|| text("run_as"));
        let user = user.map_or(String::new(), |user| format!(" as {user}"));
        let task = text("task").map_or("its statement".to_owned(), |task| format!("task {task}"));
        parts.push(format!("{task}{user}"));
        if self.manifest["enabled"] == json!(false) {
            parts.push("switched off".to_owned());
        }
        parts.join(", ")
    }
}

/// Makes descriptive names unique.
#[derive(Default)]
pub(super) struct UniqueNames(BTreeMap<String, usize>);

/// The maximum length of a name derived from a command.
const NAME_LENGTH: usize = 60;

impl UniqueNames {
    /// Returns a name for a command of a source, such as "crontab:run-parts-etc-cron-daily".
    pub(super) fn of(&mut self, source: &str, text: &str) -> String {
        let words = text
            .split(|c: char| !c.is_ascii_alphanumeric())
            .filter(|word| !word.is_empty());
        let mut slug = String::new();
        for word in words {
            if !slug.is_empty() && slug.len() + word.len() >= NAME_LENGTH {
                break;
            }
            if !slug.is_empty() {
                slug.push('-');
            }
            slug.extend(word.chars().take(NAME_LENGTH));
        }
        let name = format!("{source}:{}", slug.to_ascii_lowercase());
        let used = self.0.entry(name.clone()).or_default();
        *used += 1;
        match *used {
            1 => name,
            again => format!("{name}-{again}"),
        }
    }
}

/// Returns the settings common to all imported manifests, which are as close to cron as possible.
pub(super) fn manifest(how: &ImportOptions, name: &str, input: Value) -> Value {
    let work = json!({"task": how.task, "input": input});
    of_work(how, name, work)
}

/// Returns a manifest that runs a SQL statement as `role`.
pub(super) fn statement(how: &ImportOptions, name: &str, sql: &str, role: &str) -> Value {
    of_work(how, name, json!({"sql": sql, "run_as": role}))
}

/// Returns a manifest that treats failures and late runs as cron does.
fn of_work(how: &ImportOptions, name: &str, work: Value) -> Value {
    let mut manifest = json!({
        "name": name,
        "misfire": "skip",
        "on_dead_letter": how.on_dead_letter,
        "max_retries": 0,
        "timeout": "24 h",
    });
    for (key, value) in work.as_object().into_iter().flatten() {
        manifest[key] = value.clone();
    }
    if let Some(group) = &how.group {
        manifest["group_name"] = json!(group);
    }
    manifest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_command_can_be_taken_for_one_of_ours() {
        let command = "0 3 * * * a\n    becomes: b\ncron.job:2  c\u{1b}[2J";
        let manifest =
            json!({"name": "m\ntrax: n", "task": "t", "input": {"user": "u\n    note: v"}});
        let mut proposal = Proposal::of("cron.job:1".to_owned(), command.to_owned(), manifest);
        proposal.notes.push("as \"x\n    becomes: y\"".to_owned());
        let text = proposal.text();
        let starts: Vec<&str> = text
            .lines()
            .filter(|line| !line.starts_with("        "))
            .map(|line| line.trim_start().split(' ').next().unwrap_or_default())
            .collect();
        assert_eq!(
            starts,
            ["cron.job:1", "becomes:", "next:", "note:"],
            "{text}"
        );
        assert!(!text.contains("\u{1b}[2J"), "{text}");
        let left_out = Proposal::left_out(
            "a".to_owned(),
            "b".to_owned(),
            "c\ntrax: d".to_owned(),
            Former::Any,
        );
        assert_eq!(left_out.text().lines().count(), 2);
        for (former, may_be) in [
            (Former::Any, true),
            (Former::None, false),
            (Former::Named("m".to_owned()), true),
            (Former::Named("n".to_owned()), false),
        ] {
            let text = String::new;
            let line = Proposal::left_out(text(), text(), text(), former.clone());
            assert_eq!(line.may_be_of("m"), may_be, "{former:?}");
        }
        let kept = Proposal::of("a".to_owned(), "b".to_owned(), Value::Null);
        assert!(!kept.may_be_of(""));
    }

    #[test]
    fn names_say_which_command_and_are_given_once() {
        let mut names = UniqueNames::default();
        let command = "test -x /usr/sbin/anacron || ( cd / && run-parts --report /etc/cron.daily )";
        assert_eq!(
            names.of("crontab", command),
            "crontab:test-x-usr-sbin-anacron-cd-run-parts-report-etc-cron-daily"
        );
        assert_eq!(
            names.of("crontab", command),
            "crontab:test-x-usr-sbin-anacron-cd-run-parts-report-etc-cron-daily-2"
        );
        assert_eq!(names.of("a", &"x".repeat(1000)).len(), 62);
        assert_eq!(names.of("a", "é é"), "a:");
    }
}
