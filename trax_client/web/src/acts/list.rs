//! The acts available in the pages: their statements, their fields, and the page to return to.

use trax_terminal::Again;

use crate::numbers::grouped;
use crate::trouble::Trouble;
use crate::visit::{Values, Visit};

/// The act that queues an ended job again.
pub(super) const AGAIN: &str = "again";
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
    /// The link must contain it; otherwise the user may enter a value.
    pub(super) required: bool,
    /// The link may contain several, of rows that were selected in a list: the act is performed for
    /// each.
    pub(super) several: bool,
}

const fn given(name: &'static str, label: &'static str) -> Field {
    Field {
        name,
        label,
        required: true,
        several: false,
    }
}

const fn selected(name: &'static str, label: &'static str) -> Field {
    Field {
        name,
        label,
        required: true,
        several: true,
    }
}

const fn open(name: &'static str, label: &'static str) -> Field {
    Field {
        name,
        label,
        required: false,
        several: false,
    }
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

pub(super) const ACTS: [Act; 16] = [
    Act {
        name: "cancel",
        title: "Cancel this job",
        function: "cancel",
        sql: "select trax.cancel(job_id => $1::bigint)::text",
        fields: JOB,
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
            open("input", "input as JSON; default: the manifest's own"),
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
        Some(Field {
            name: "group",
            required: true,
            ..
        }) => Scope::Group,
        Some(Field { required: true, .. }) => Scope::Row,
        _ => Scope::Database,
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
            None if field.required => Err(Trouble::invalid(format!("say {}", field.label))),
            value => Ok(value),
        };
        let one: Vec<_> = self.fields.iter().map(value).collect::<Result<_, _>>()?;
        match self.fields.first() {
            Some(field) if field.several => Ok(values
                .all(field.name)
                .map(|first| [&[Some(first)], &one[1..]].concat())
                .collect()),
            _ => Ok(vec![one]),
        }
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

/// The number of characters of a value that a page shows.
const VALUE: usize = 1_000;

/// Returns a statement with its values filled in, as a user would type it. Of a long value only the
/// beginning is shown.
pub(super) fn typed(sql: &str, values: &[Option<String>]) -> String {
    let code = sql.lines().filter(|line| !line.starts_with("--"));
    let code = code.collect::<Vec<_>>().join("\n");
    let mut parts = code.split('$');
    let mut sql = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(part.len());
        let place: usize = part[..end].parse().unwrap_or(0);
        match values.get(place.wrapping_sub(1)) {
            Some(Some(value)) => {
                let begin: String = value.chars().take(VALUE).collect();
                sql.push_str(&format!("'{}'", begin.replace('\'', "''")));
                if let Some(left) = value.chars().count().checked_sub(VALUE).filter(|n| *n > 0) {
                    sql.push_str(&format!(
                        " /* and {} characters more */",
                        grouped(i64::try_from(left).unwrap_or(i64::MAX))
                    ));
                }
            }
            _ => sql.push_str("null"),
        }
        sql.push_str(&part[end..]);
    }
    sql
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_shown_as_it_could_be_typed() {
        let act = find("requeue").expect("it is there");
        assert_eq!(
            typed(act.sql, &[Some("7".to_owned()), Some("it's $1".to_owned())]),
            "select trax.requeue_dead_letter(id => '7'::bigint, note => 'it''s $1')::text"
        );
    }

    #[test]
    fn of_a_long_value_the_beginning_is_shown() {
        let shown = typed("select $1", &[Some("x".repeat(1_000_000))]);
        assert!(
            shown.ends_with("x' /* and 999,000 characters more */"),
            "{shown}"
        );
        assert!(shown.len() < 1_100, "{}", shown.len());
    }

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
