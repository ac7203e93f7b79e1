//! The acts available in the pages: their statements, their fields, and the page to return to.

use axum::http::StatusCode;
use trax_client::Json;
use trax_terminal::Again;

use crate::trouble::Trouble;
use crate::visit::{Values, Visit};

/// The act that queues an ended job again.
pub(super) const AGAIN: &str = "again";
/// The act that sends a signal: the only one without a row in `trax.audit`.
pub(super) const SIGNAL: &str = "send-signal";
/// The acts that queue a job, whose id is the server's answer.
pub(super) const QUEUEING: [&str; 4] = [AGAIN, "requeue", "requeue-fresh", "fork"];
/// The act that changes the times of a manifest, which a trial shows.
pub(super) const RESCHEDULE: &str = "reschedule";
/// The act that queues many jobs.
pub(super) const REQUEUE_MANY: &str = "requeue-many";

/// An act that a user can perform.
pub(super) struct Act {
    pub(super) name: &'static str,
    pub(super) title: &'static str,
    /// The function whose execute privilege the button needs.
    pub(super) function: &'static str,
    /// The statement. Its parameters are text, null if not given. That of [`AGAIN`] and its
    /// parameters are those of the original job.
    pub(super) sql: &'static str,
    pub(super) fields: &'static [Field],
    /// The page to return to; `{}` is replaced by the first field.
    back: &'static str,
}

/// A parameter of the statement.
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) label: &'static str,
    pub(super) input: Input,
}

/// How the value of a parameter comes into the form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// The link contains it.
    Given,
    /// The link contains it, or several, of rows that were selected in a list: the act is performed
    /// for each.
    Selected,
    /// The user may type it.
    Open,
    /// The user must type it, as in this example.
    Needed(&'static str),
    /// The user may type JSON, as in this example.
    Json(&'static str),
    /// The user may choose one of the job's steps.
    Step,
}

impl Input {
    /// Returns whether the link must contain the value.
    pub(super) fn is_given(self) -> bool {
        matches!(self, Input::Given | Input::Selected)
    }
}

const fn field(name: &'static str, label: &'static str, input: Input) -> Field {
    Field { name, label, input }
}

const fn given(name: &'static str, label: &'static str) -> Field {
    field(name, label, Input::Given)
}

const fn selected(name: &'static str, label: &'static str) -> Field {
    field(name, label, Input::Selected)
}

const fn open(name: &'static str, label: &'static str) -> Field {
    field(name, label, Input::Open)
}

const JOB: &[Field] = &[selected("job", "job")];
const GROUP: &[Field] = &[given("group", "group")];
const MANIFEST: &[Field] = &[given("manifest", "manifest")];
const LETTER: &[Field] = &[selected("id", "dead letter"), open("reason", "reason")];

const MATCHING: &[Field] = &[
    open("task", "only of this task"),
    open("manifest", "only of this manifest"),
    open("group", "only of this group"),
    open("error", "only with this text in the reason or error"),
    open("reason", "note"),
    open(
        "most",
        "at most this many, the oldest first; default 100, at most 1000",
    ),
];

pub(super) const ACTS: [Act; 21] = [
    Act {
        name: "cancel",
        title: "Cancel this job",
        function: "cancel",
        sql: "select trax.cancel(job_id => $1::bigint)::text",
        fields: JOB,
        back: "jobs/{}",
    },
    Act {
        name: "cancel-tree",
        title: "Cancel this job and its children",
        function: "cancel",
        sql: "select trax.cancel(job_id => $1::bigint, tree => true)::text",
        fields: JOB,
        back: "jobs/{}",
    },
    Act {
        name: "cancel-alone",
        title: "Cancel this job without its children",
        function: "cancel",
        sql: "select trax.cancel(job_id => $1::bigint, tree => false)::text",
        fields: JOB,
        back: "jobs/{}",
    },
    Act {
        name: SIGNAL,
        title: "Send a signal",
        function: "send_signal",
        sql: "select trax.send_signal(job_id => $1::bigint, name => $2, payload => $3::jsonb, signal_id => $4)",
        fields: &[
            selected("job", "job"),
            field("name", "name of the signal", Input::Needed("approved")),
            field(
                "payload",
                "payload as JSON; default: none",
                Input::Json("{\"by\": \"ada\"}"),
            ),
            open(
                "signal_id",
                "id of the signal: a second one with this id is not sent",
            ),
        ],
        back: "jobs/{}",
    },
    Act {
        name: "fork",
        title: "Fork this job",
        function: "fork",
        sql: "select trax.fork(job_id => $1::bigint, from_step => $2, input => $3::jsonb)::text",
        fields: &[
            given("job", "job"),
            field("step", "the first step that runs again", Input::Step),
            field(
                "input",
                "input as JSON; default: that of the job",
                Input::Json("{\"to\": \"ada\"}"),
            ),
        ],
        back: "jobs/{}",
    },
    Act {
        name: "run-now",
        title: "Run this job now",
        function: "run_now",
        sql: "select trax.run_now(job_id => $1::bigint)::text",
        fields: JOB,
        back: "jobs/{}",
    },
    Act {
        name: AGAIN,
        title: "Queue this job again",
        function: "enqueue",
        sql: Again::Enqueue.statement(),
        fields: JOB,
        back: "jobs/{}",
    },
    Act {
        name: "requeue",
        title: "Requeue this dead letter",
        function: "requeue_dead_letter",
        sql: "select trax.requeue_dead_letter(id => $1::bigint, note => $2)::text",
        fields: LETTER,
        back: "dead",
    },
    Act {
        name: "requeue-fresh",
        title: "Requeue this dead letter from the start",
        function: "requeue_dead_letter",
        sql: "select trax.requeue_dead_letter(id => $1::bigint, note => $2, fresh => true)::text",
        fields: LETTER,
        back: "dead",
    },
    Act {
        name: "acknowledge",
        title: "Acknowledge this dead letter",
        function: "acknowledge_dead_letter",
        sql: "select trax.acknowledge_dead_letter(id => $1::bigint, note => $2)::text",
        fields: LETTER,
        back: "dead",
    },
    Act {
        name: REQUEUE_MANY,
        title: "Requeue dead letters",
        function: "requeue_dead_letter",
        sql: include_str!("../query/dead_requeue_many.sql"),
        fields: MATCHING,
        back: "dead",
    },
    Act {
        name: "acknowledge-many",
        title: "Acknowledge dead letters",
        function: "acknowledge_dead_letter",
        sql: include_str!("../query/dead_acknowledge_many.sql"),
        fields: MATCHING,
        back: "dead",
    },
    Act {
        name: "enable",
        title: "Enable this manifest",
        function: "enable_manifest",
        sql: include_str!("../query/manifest_enable.sql"),
        fields: MANIFEST,
        back: "manifests/{}",
    },
    Act {
        name: "disable",
        title: "Disable this manifest",
        function: "disable_manifest",
        sql: "select trax.disable_manifest(name => $1)::text",
        fields: MANIFEST,
        back: "manifests/{}",
    },
    Act {
        name: "trigger",
        title: "Trigger this manifest",
        function: "trigger",
        sql: "select trax.trigger(name => $1, input => $2::jsonb)::text",
        fields: &[
            given("manifest", "manifest"),
            field(
                "input",
                "input as JSON; default: the manifest's own",
                Input::Json("{\"day\": \"2030-01-31\"}"),
            ),
        ],
        back: "manifests/{}",
    },
    Act {
        name: RESCHEDULE,
        title: "Change when this manifest fires",
        function: "schedule",
        sql: include_str!("../query/reschedule.sql"),
        fields: &[
            given("manifest", "manifest"),
            open("cron", "cron: 0 2 * * 1-5"),
            open("every", "or every: 15 minutes"),
            open(
                "timezone",
                "in the zone; default: the manifest's own: Europe/Berlin",
            ),
        ],
        back: "manifests/{}",
    },
    Act {
        name: "pause-group",
        title: "Pause this group",
        function: "configure_group",
        sql: "select trax.configure_group(name => $1, enabled => false)::text",
        fields: GROUP,
        back: "groups",
    },
    Act {
        name: "resume-group",
        title: "Resume this group",
        function: "configure_group",
        sql: "select trax.configure_group(name => $1, enabled => true)::text",
        fields: GROUP,
        back: "groups",
    },
    Act {
        name: "limit-group",
        title: "Limit this group",
        function: "configure_group",
        sql: "select trax.configure_group(name => $1, max_active_jobs => $2::int)::text",
        fields: &[
            given("group", "group"),
            open("most", "jobs that may run at once; 0 is no limit"),
        ],
        back: "groups",
    },
    Act {
        name: "pause",
        title: "Pause the scheduler",
        function: "pause",
        sql: "select trax.pause(reason => $1)::text",
        fields: &[open("reason", "reason")],
        back: "doctor",
    },
    Act {
        name: "resume",
        title: "Resume the scheduler",
        function: "resume",
        sql: "select trax.resume()::text",
        fields: &[],
        back: "doctor",
    },
];

/// The object of an act, which determines where in a cluster it is performed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A row, on its shard.
    Row,
    /// A group, on every shard that has its settings.
    Group,
    /// A database, on every shard.
    Database,
}

/// Returns the object of an act.
pub(crate) fn scope(name: &str) -> Result<Scope, Trouble> {
    Ok(match find(name)?.fields.first() {
        Some(field) if !field.input.is_given() => Scope::Database,
        Some(field) if field.name == "group" => Scope::Group,
        Some(_) => Scope::Row,
        None => Scope::Database,
    })
}

pub(super) fn find(name: &str) -> Result<&'static Act, Trouble> {
    let found = ACTS.iter().find(|act| act.name == name);
    found.ok_or_else(|| Trouble::missing(format!("there is no act \"{name}\"")))
}

impl Act {
    /// Returns the values of the parameters, in order, for each row that was selected.
    pub(super) fn values<'v>(
        &self,
        values: &'v Values,
    ) -> Result<Vec<Vec<Option<&'v str>>>, Trouble> {
        let value = |field: &Field| match values.get(field.name) {
            None if field.input.is_given() => Err(Trouble::invalid(format!("say {}", field.label))),
            value => Ok(value),
        };
        let one: Vec<_> = self.fields.iter().map(value).collect::<Result<_, _>>()?;
        match self.fields.first() {
            Some(field) if field.input == Input::Selected => Ok(values
                .all(field.name)
                .map(|first| [&[Some(first)], &one[1..]].concat())
                .collect()),
            _ => Ok(vec![one]),
        }
    }

    /// Checks what the user typed, before any statement runs.
    pub(super) fn check(&self, values: &Values) -> Result<(), Trouble> {
        for field in self.fields {
            match (field.input, values.get(field.name)) {
                (Input::Needed(example), None) => {
                    let message = format!("the {} is missing", field.label);
                    return Err(
                        Trouble::invalid(message).hint(format!("Type it, for example: {example}"))
                    );
                }
                (Input::Json(example), Some(text)) => {
                    let read: Result<Json, _> = text.parse();
                    read.map_err(|error| {
                        let message = format!("the {} is not JSON: {error}", field.name);
                        Trouble::invalid(message).hint(format!(
                            "Type an object as in {example}, or a text in quotes of its own: \"yes\""
                        ))
                    })?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns whether the form asks for a reason that is no parameter of the statement.
    pub(super) fn asks_for_reason(&self) -> bool {
        self.is_recorded() && self.fields.iter().all(|field| field.name != "reason")
    }

    /// Returns whether the act has a row in `trax.audit`.
    pub(super) fn is_recorded(&self) -> bool {
        self.name != SIGNAL
    }

    /// Returns the error for an answer that says that nothing was done.
    pub(super) fn refusal(&self, answer: Option<&str>) -> Option<Trouble> {
        if self.name != SIGNAL {
            return None;
        }
        let (status, message, hint) = match answer? {
            "ended" => (
                StatusCode::CONFLICT,
                "this job has ended: the signal was not sent",
                "A fork continues its work in a new job, which takes signals.",
            ),
            "unknown" => (
                StatusCode::NOT_FOUND,
                "there is no such job: the signal was not sent",
                "Ended jobs are kept for trax.run_retention.",
            ),
            "duplicate" => (
                StatusCode::CONFLICT,
                "a signal with this id was sent to this job before: this one was not sent",
                "Leave the id empty, or type another one.",
            ),
            _ => return None,
        };
        Some(Trouble::new(status, message).hint(hint))
    }

    /// Returns the page to return to: that of the row, or the list if several were selected.
    pub(super) fn back(&self, visit: &Visit, rows: &[Vec<Option<&str>>]) -> String {
        let first = match rows {
            [row] => row.first().copied().flatten().unwrap_or_default(),
            _ => return visit.link(self.back.split('/').next().unwrap_or_default()),
        };
        let part: String = form_urlencoded::byte_serialize(first.as_bytes()).collect();
        visit.link(&self.back.replace("{}", &part.replace('+', "%20")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acts_of_a_group_or_a_database_are_for_several_shards() {
        let of = |scope_of: Scope| -> Vec<&str> {
            let all = ACTS.iter().map(|act| act.name);
            all.filter(|name| scope(name).is_ok_and(|scope| scope == scope_of))
                .collect()
        };
        assert_eq!(
            of(Scope::Group),
            ["pause-group", "resume-group", "limit-group"]
        );
        assert_eq!(
            of(Scope::Database),
            ["requeue-many", "acknowledge-many", "pause", "resume"]
        );
    }

    #[test]
    fn every_function_of_a_button_is_asked_for() {
        for act in &ACTS {
            assert!(
                crate::layout::FUNCTIONS.contains(&act.function),
                "{}",
                act.name
            );
        }
    }
}
