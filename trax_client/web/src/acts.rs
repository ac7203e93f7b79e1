//! Acts: first a page that shows the statement and asks for the reason, then the act.
//!
//! Holds: each is one call of a public function in a transaction of its own, as the role of the
//! person; `trax.audit` has the person's name and reason in its column `program`.

use std::time::{Duration, Instant};

use axum::http::StatusCode;
use maud::{Markup, html};
use tokio_postgres::types::{ToSql, Type};

use crate::dispatch::Shared;
use crate::layout::{self, Reader};
use crate::pages::manifest;
use crate::trouble::Trouble;
use crate::visit::{Values, Visit};
use crate::work::Purpose;

/// The act that queues many jobs, and how many of them a second on average.
const REQUEUE_MANY: &str = "requeue-many";
const REQUEUED_A_SECOND: f64 = 100.0;

/// One thing that a person can do.
struct Act {
    name: &'static str,
    title: &'static str,
    /// The function whose right the button needs.
    function: &'static str,
    /// The statement; its parameters are text, and null when nothing was given.
    sql: &'static str,
    fields: &'static [Field],
    /// Where the page leads back to; `{}` is the first field.
    back: &'static str,
    /// It can be tried: done, shown and undone, for the times of a manifest.
    can_be_tried: bool,
}

/// A parameter of the statement.
struct Field {
    name: &'static str,
    label: &'static str,
    /// The link has it, or nobody does; else the person may give one.
    required: bool,
}

const fn given(name: &'static str, label: &'static str) -> Field {
    Field {
        name,
        label,
        required: true,
    }
}

const fn open(name: &'static str, label: &'static str) -> Field {
    Field {
        name,
        label,
        required: false,
    }
}

const JOB: &[Field] = &[given("job", "job")];
const GROUP: &[Field] = &[given("group", "group")];
const MANIFEST: &[Field] = &[given("manifest", "manifest")];
const LETTER: &[Field] = &[given("id", "dead letter"), open("reason", "reason")];

const MATCHING: &[Field] = &[
    open("task", "only of this task"),
    open("manifest", "only of this manifest"),
    open("group", "only of this group"),
    open("error", "only with this text in the reason or error"),
    open("reason", "note"),
    open(
        "most",
        "at most this many, the oldest first; 100 unless told, never more than 1000",
    ),
];

const ACTS: [Act; 16] = [
    Act {
        name: "cancel",
        title: "Cancel this job",
        function: "cancel",
        sql: "select trax.cancel(job_id => $1::bigint)::text",
        fields: JOB,
        back: "jobs/{}",
        can_be_tried: false,
    },
    Act {
        name: "run-now",
        title: "Run this job now",
        function: "run_now",
        sql: "select trax.run_now(job_id => $1::bigint)::text",
        fields: JOB,
        back: "jobs/{}",
        can_be_tried: false,
    },
    Act {
        name: "again",
        title: "Queue this job again",
        function: "enqueue",
        sql: include_str!("query/job_again.sql"),
        fields: JOB,
        back: "jobs/{}",
        can_be_tried: false,
    },
    Act {
        name: "requeue",
        title: "Requeue this dead letter",
        function: "requeue_dead_letter",
        sql: "select trax.requeue_dead_letter(id => $1::bigint, note => $2)::text",
        fields: LETTER,
        back: "dead",
        can_be_tried: false,
    },
    Act {
        name: "acknowledge",
        title: "Acknowledge this dead letter",
        function: "acknowledge_dead_letter",
        sql: "select trax.acknowledge_dead_letter(id => $1::bigint, note => $2)::text",
        fields: LETTER,
        back: "dead",
        can_be_tried: false,
    },
    Act {
        name: REQUEUE_MANY,
        title: "Requeue dead letters",
        function: "requeue_dead_letter",
        sql: include_str!("query/dead_requeue_many.sql"),
        fields: MATCHING,
        back: "dead",
        can_be_tried: false,
    },
    Act {
        name: "acknowledge-many",
        title: "Acknowledge dead letters",
        function: "acknowledge_dead_letter",
        sql: include_str!("query/dead_acknowledge_many.sql"),
        fields: MATCHING,
        back: "dead",
        can_be_tried: false,
    },
    Act {
        name: "enable",
        title: "Enable this manifest",
        function: "enable_manifest",
        sql: "select trax.enable_manifest(name => $1)::text",
        fields: MANIFEST,
        back: "manifests/{}",
        can_be_tried: false,
    },
    Act {
        name: "disable",
        title: "Disable this manifest",
        function: "disable_manifest",
        sql: "select trax.disable_manifest(name => $1)::text",
        fields: MANIFEST,
        back: "manifests/{}",
        can_be_tried: false,
    },
    Act {
        name: "trigger",
        title: "Trigger this manifest",
        function: "trigger",
        sql: "select trax.trigger(name => $1, input => $2::jsonb)::text",
        fields: &[
            given("manifest", "manifest"),
            open("input", "input as JSON; its own unless told"),
        ],
        back: "manifests/{}",
        can_be_tried: false,
    },
    Act {
        name: "reschedule",
        title: "Change when this manifest fires",
        function: "schedule",
        sql: include_str!("query/reschedule.sql"),
        fields: &[
            given("manifest", "manifest"),
            open("cron", "cron: 0 2 * * 1-5"),
            open("every", "or every: 15 minutes"),
            open(
                "timezone",
                "in the zone; its own unless told: Europe/Berlin",
            ),
        ],
        back: "manifests/{}",
        can_be_tried: true,
    },
    Act {
        name: "pause-group",
        title: "Pause this group",
        function: "configure_group",
        sql: "select trax.configure_group(name => $1, enabled => false)::text",
        fields: GROUP,
        back: "groups",
        can_be_tried: false,
    },
    Act {
        name: "resume-group",
        title: "Resume this group",
        function: "configure_group",
        sql: "select trax.configure_group(name => $1, enabled => true)::text",
        fields: GROUP,
        back: "groups",
        can_be_tried: false,
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
        can_be_tried: false,
    },
    Act {
        name: "pause",
        title: "Pause the scheduler",
        function: "pause",
        sql: "select trax.pause(reason => $1)::text",
        fields: &[open("reason", "reason")],
        back: "doctor",
        can_be_tried: false,
    },
    Act {
        name: "resume",
        title: "Resume the scheduler",
        function: "resume",
        sql: "select trax.resume()::text",
        fields: &[],
        back: "doctor",
        can_be_tried: false,
    },
];

fn find(name: &str) -> Result<&'static Act, Trouble> {
    let found = ACTS.iter().find(|act| act.name == name);
    found.ok_or_else(|| Trouble::missing(format!("there is no act \"{name}\"")))
}

impl Act {
    /// Returns the values of the parameters in their order.
    fn values<'v>(&self, values: &'v Values) -> Result<Vec<Option<&'v str>>, Trouble> {
        let value = |field: &Field| match values.get(field.name) {
            None if field.required => Err(Trouble::invalid(format!("say {}", field.label))),
            value => Ok(value),
        };
        self.fields.iter().map(value).collect()
    }

    fn back(&self, visit: &Visit, first: Option<&str>) -> String {
        let first = first.unwrap_or_default();
        let part: String = form_urlencoded::byte_serialize(first.as_bytes()).collect();
        visit.link(&self.back.replace("{}", &part.replace('+', "%20")))
    }

    /// Returns the statement as a person would type it.
    fn typed(&self, values: &[Option<&str>]) -> String {
        let code = self.sql.lines().filter(|line| !line.starts_with("--"));
        let code = code.collect::<Vec<_>>().join("\n");
        let mut parts = code.split('$');
        let mut sql = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let end = part
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(part.len());
            let place: usize = part[..end].parse().unwrap_or(0);
            let value = values.get(place.wrapping_sub(1)).copied().flatten();
            match value {
                Some(value) => sql.push_str(&format!("'{}'", value.replace('\'', "''"))),
                None => sql.push_str("null"),
            }
            sql.push_str(&part[end..]);
        }
        sql
    }
}

/// Returns the page that asks.
pub(crate) async fn ask(shared: &Shared, visit: &Visit, name: &str) -> Result<Markup, Trouble> {
    let act = find(name)?;
    let work = shared.pool.begin(&visit.person, Purpose::Read).await?;
    let reader = Reader::of(&work).await?;
    work.commit().await?;
    if !reader.may(visit, act.function) {
        return Err(refused(visit, &reader, act));
    }
    let values = act.values(&visit.query)?;
    let body = question(visit, &reader, act, &values, &html! {});
    Ok(layout::page(visit, &reader, act.title, &body))
}

/// Returns the form of an act; `tried` is what trying it has shown.
fn question(
    visit: &Visit,
    reader: &Reader,
    act: &Act,
    values: &[Option<&str>],
    tried: &Markup,
) -> Markup {
    let has_reason = act.fields.iter().any(|field| field.name == "reason");
    html! {
        h1 { (act.title) }
        form method="post" action=(visit.link(&format!("act/{}", act.name))) {
            input type="hidden" name="token" value=(visit.token);
            @for (field, value) in act.fields.iter().zip(values) {
                label {
                    (field.label)
                    @if field.required {
                        input name=(field.name) value=[*value] readonly;
                    } @else {
                        input name=(field.name) value=[*value] maxlength="900";
                    }
                }
            }
            @if !has_reason {
                label { "reason, for trax.audit" input name="reason" maxlength="900"; }
            }
            p { "This will be typed for you as role " b { (reader.role) } ":" }
            (layout::verbatim(&act.typed(values)))
            @if act.can_be_tried {
                button type="submit" name="try" value="1" { "Show its next ten times, change nothing" } " "
            }
            button type="submit" { (act.title) }
            " " a href=(act.back(visit, values.first().copied().flatten())) { "Back" }
        }
        (tried)
    }
}

/// Does it, and returns the page that says what came of it.
pub(crate) async fn perform(
    shared: &Shared,
    visit: &Visit,
    name: &str,
    form: &Values,
) -> Result<Markup, Trouble> {
    let act = find(name)?;
    let values = act.values(form)?;
    let has_reason = act.fields.iter().any(|field| field.name == "reason");
    let reason = form.get("reason").filter(|_| !has_reason);
    let program = program(visit.person.name.as_deref(), reason);
    // Whoever requeues many after another waits until that is over, and is told then.
    let mut pace = match act.name {
        REQUEUE_MANY => Some(shared.next_requeue.lock().await),
        _ => None,
    };
    if let Some(next) = pace.as_deref() {
        check_pace(*next)?;
    }
    let work = shared
        .pool
        .begin(&visit.person, Purpose::Act(&program))
        .await?;
    let reader = Reader::of(&work).await?;
    if !reader.may(visit, act.function) {
        return Err(refused(visit, &reader, act));
    }
    let arguments: Vec<(&(dyn ToSql + Sync), Type)> = values
        .iter()
        .map(|value| (value as &(dyn ToSql + Sync), Type::TEXT))
        .collect();
    let rows = work.rows(act.sql, &arguments).await?;
    if let (true, Some(_), Some(manifest)) =
        (act.can_be_tried, form.get("try"), form.get("manifest"))
    {
        let times = manifest::next_times(&work, manifest, reader.now).await?;
        work.rollback().await?;
        let tried = html! {
            h2 #result { "It would fire" }
            p { "Nothing was changed." }
            (times)
        };
        let body = question(visit, &reader, act, &values, &tried);
        return Ok(layout::page(visit, &reader, act.title, &body));
    }
    let result: Option<String> = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => Some("nothing: there is no such row".to_owned()),
    };
    let committed = work.commit().await;
    shared.glances.forget();
    committed?;
    let result = result.filter(|text| !text.is_empty());
    if let Some(next) = pace.as_deref_mut() {
        let count: f64 = result
            .as_deref()
            .and_then(|n| n.parse().ok())
            .unwrap_or(0.0);
        *next = Instant::now() + Duration::from_secs_f64(count / REQUEUED_A_SECOND);
    }
    let first = values.first().copied().flatten();
    let body = html! {
        h1 { (act.title) ": done" }
        p #result { "The server answered: " b { (result.as_deref().unwrap_or("done")) } }
        (layout::verbatim(&act.typed(&values)))
        p { a href=(act.back(visit, first)) { "Back" } }
    };
    Ok(layout::page(visit, &reader, act.title, &body))
}

/// Refuses to requeue many before those that were requeued last had time to begin.
fn check_pace(next: Instant) -> Result<(), Trouble> {
    let left = next.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(());
    }
    let message = format!(
        "the dead letters that were requeued before begin first: at most {REQUEUED_A_SECOND} a second"
    );
    let hint = format!(
        "Look at how they fare, and do this again in {:.1} s.",
        left.as_secs_f64()
    );
    Err(Trouble::new(StatusCode::TOO_MANY_REQUESTS, message).hint(hint))
}

fn refused(visit: &Visit, reader: &Reader, act: &Act) -> Trouble {
    match visit.read_only {
        Some(why) => Trouble::forbidden(why),
        None => Trouble::forbidden(format!(
            "role \"{}\" may not call trax.{}",
            reader.role, act.function
        )),
    }
}

/// Returns what `trax.audit` shows as the program: "trax web, anna: why".
fn program(person: Option<&str>, reason: Option<&str>) -> String {
    let mut text = "trax web".to_owned();
    for (before, part) in [(", ", person), (": ", reason)] {
        if let Some(part) = part {
            text.push_str(before);
            text.push_str(part);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_statement_is_shown_as_it_could_be_typed() {
        let act = find("requeue").expect("it is there");
        assert_eq!(
            act.typed(&[Some("7"), Some("it's $1")]),
            "select trax.requeue_dead_letter(id => '7'::bigint, note => 'it''s $1')::text"
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
