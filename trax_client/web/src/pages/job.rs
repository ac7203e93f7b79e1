//! A job: its properties, the reason it waits, its steps, children and attempts, and the acts on
//! it.

use maud::{Markup, html};
use tokio_postgres::Row;
use tokio_postgres::types::Type;
use trax_client::Json;
use trax_terminal::sql_output::as_psql;

use super::children::Children;
use super::reason::reasons;
use super::steps::Steps;
use super::{Page, job_graph, letter_path, manifest_path};
use crate::layout::{button, facts, state, table, verbatim};
use crate::moment::{Moment, length};
use crate::numbers::grouped;
use crate::trouble::Trouble;

const SHOW: &str = include_str!("../query/job_show.sql");
const ATTEMPTS: &str = include_str!("../query/job_attempts.sql");
const FAMILY: &str = include_str!("../query/job_family.sql");
const EXPLAIN: &str = include_str!("../query/job_explain.sql");

/// The maximum number of characters of a value on the page.
const VALUE: i32 = 20_000;
/// The maximum number of attempts on the page.
const MOST: i64 = 100;

pub(super) async fn show(page: &Page<'_>, id: &str) -> Result<Markup, Trouble> {
    let id: i64 = id
        .parse()
        .map_err(|_| Trouble::missing(format!("\"{id}\" is not the id of a job")))?;
    let arguments = [
        (
            &id as &(dyn tokio_postgres::types::ToSql + Sync),
            Type::INT8,
        ),
        (&VALUE, Type::INT4),
    ];
    let rows = page.work.rows(SHOW, &arguments).await?;
    let Some(row) = rows.first() else {
        return Err(Trouble::missing(format!("there is no job {id}"))
            .hint("Ended jobs are kept for trax.run_retention."));
    };
    let is: String = row.try_get("state")?;
    let (steps, children) = (
        Steps::read(page, id).await?,
        Children::read(page, id).await?,
    );
    let has_failed = matches!(is.as_str(), "failed" | "cancelled");
    Ok(html! {
        h1 { "Job " (id) " " (state(&is)) }
        (buttons(page, id, &is, row, &children)?)
        (suspended(page, id, row)?)
        @if is == "queued" { (reasons(page, "Why it waits", EXPLAIN, (&id, Type::INT8)).await?) }
        (what(page, row)?)
        @if has_failed && steps.has_undo {
            @let undo = page.visit.link_with("jobs", &[("parent", &id.to_string())]);
            p { "Jobs that undo its steps were queued: " a href=(undo) { "its jobs" } "." }
        }
        (steps.show(page, id, fork(page, id, &is, row)?.as_deref()))
        (children.show(page, id))
        (job_graph::show(page, id).await?)
        (attempts(page, id, row).await?)
        (values(row)?)
        (family(page, id).await?)
    })
}

/// A function that returns the link to a fork from a step.
type Fork<'p> = Box<dyn Fn(&str) -> String + 'p>;

/// Returns the links to forks, if the user may fork the job.
fn fork<'p>(
    page: &'p Page<'_>,
    id: i64,
    is: &str,
    row: &Row,
) -> Result<Option<Fork<'p>>, tokio_postgres::Error> {
    let task: &str = row.try_get("task")?;
    let has_ended = !matches!(is, "queued" | "in_progress");
    if !has_ended || task == "sql" || !page.reader.may(page.visit, "fork") {
        return Ok(None);
    }
    let id = id.to_string();
    Ok(Some(Box::new(move |step: &str| {
        let values = [("job", id.as_str()), ("step", step)];
        page.visit.link_with("act/fork", &values)
    })))
}

fn buttons(
    page: &Page<'_>,
    id: i64,
    is: &str,
    row: &Row,
    children: &Children,
) -> Result<Markup, Trouble> {
    let (visit, reader) = (page.visit, page.reader);
    let id = id.to_string();
    let job = [("job", id.as_str())];
    let lives = is == "queued" || is == "in_progress";
    let letter: Option<&str> = row.try_get("dead_letter_status")?;
    let letter_id: Option<i64> = row.try_get("dead_letter_id")?;
    let letter_id = letter_id.map(|letter| letter.to_string());
    let has_steps: bool = row.try_get("dead_letter_has_steps")?;
    let is_undone: bool = row.try_get("dead_letter_is_undone")?;
    let is_open = letter == Some("awaiting_intervention");
    // Once more is the letter's new job.
    let may_again = match letter {
        Some("requeued") => false,
        _ if is_open => !is_undone && reader.may(visit, "requeue_dead_letter"),
        _ => ["enqueue", "enqueue_sql", "trigger"]
            .iter()
            .all(|name| reader.may(visit, name)),
    };
    let waits_for: Option<&str> = row.try_get("waits_for")?;
    // Such a job runs only after its signal, or the end of the other jobs.
    let is_suspended = matches!(waits_for, Some("signal" | "jobs"));
    let fresh = letter_id
        .as_deref()
        .filter(|_| is_open && has_steps && reader.may(visit, "requeue_dead_letter"));
    let signal: Option<&str> = match row.try_get::<_, Option<&str>>("wait_kind")? {
        Some("signal") => row.try_get("waited_for")?,
        _ => None,
    };
    let signal: Vec<_> = job
        .into_iter()
        .chain(signal.map(|name| ("name", name)))
        .collect();
    Ok(html! {
        p {
            @if lives && reader.may(visit, "cancel") {
                @if children.live() {
                    (button(visit, "cancel-tree", &job, "Cancel with its children")) " "
                    (button(visit, "cancel-alone", &job, "Cancel it alone")) " "
                } @else {
                    (button(visit, "cancel", &job, "Cancel")) " "
                }
            }
            @if is == "queued" && !is_suspended && reader.may(visit, "run_now") { (button(visit, "run-now", &job, "Run now")) " " }
            @if lives && reader.may(visit, "send_signal") { (button(visit, "send-signal", &signal, "Send a signal")) " " }
            @if !lives && may_again { (button(visit, "again", &job, "Queue again")) " " }
            @if let Some(letter) = fresh { (button(visit, "requeue-fresh", &[("id", letter)], "Queue again from the start")) " " }
            @if fork(page, 0, is, row)?.is_some() { (button(visit, "fork", &job, "Fork")) }
        }
    })
}

/// Returns what a suspended job waits for.
fn suspended(page: &Page<'_>, id: i64, row: &Row) -> Result<Markup, Trouble> {
    let Some(kind) = row.try_get::<_, Option<&str>>("wait_kind")? else {
        return Ok(html! {});
    };
    let now = page.reader.now;
    let step: &str = row.try_get("wait_step")?;
    let name: Option<&str> = row.try_get("waited_for")?;
    let since: Option<Moment> = row.try_get("wait_since")?;
    let until: Option<Moment> = row.try_get("wait_until")?;
    Ok(html! {
        p .note {
            "It is suspended in step " b { (step) }
            @if let Some(since) = since { " since " (since.full(now)) }
            @match kind {
                "sleep" => ", asleep",
                "signal" => { ", for the signal " b { (name.unwrap_or_default()) } }
                _ if name == Some("any") => { ", for the end of one of " a href=(page.visit.link_with("jobs", &[("parent", &id.to_string())])) { "its children" } }
                _ => { ", for the end of all of " a href=(page.visit.link_with("jobs", &[("parent", &id.to_string())])) { "its children" } }
            }
            @if let Some(until) = until { ", until " (until.full(now)) } @else { ", without an end" }
            "."
        }
    })
}

fn what(page: &Page<'_>, row: &Row) -> Result<Markup, Trouble> {
    let (visit, now) = (page.visit, page.reader.now);
    let plain = |name: &str| -> Result<Option<Markup>, tokio_postgres::Error> {
        let value: Option<String> = row.try_get(name)?;
        Ok(value.map(|value| html! { (value) }))
    };
    let time = |name: &str| -> Result<Option<Markup>, tokio_postgres::Error> {
        let value: Option<Moment> = row.try_get(name)?;
        Ok(value.map(|value| value.full(now)))
    };
    let task: String = row.try_get("task")?;
    let group: String = row.try_get("group_name")?;
    let manifest: Option<String> = row.try_get("manifest")?;
    let priority: i16 = row.try_get("priority")?;
    let attempt: i32 = row.try_get("attempt")?;
    let retries: Option<i32> = row.try_get("max_retries")?;
    let asked: bool = row.try_get("cancel_requested")?;
    let dead: Option<i64> = row.try_get("dead_letter_id")?;
    let status: Option<String> = row.try_get("dead_letter_status")?;
    let reason: Option<String> = row.try_get("dead_letter_reason")?;
    let again: Option<i64> = row.try_get("requeued_job_id")?;
    let worker: Option<String> = row.try_get("worker")?;
    let parent: Option<i64> = row.try_get("parent_job_id")?;
    let parent_task: Option<String> = row.try_get("parent_task")?;
    let parent_state: Option<String> = row.try_get("parent_state")?;
    let jobs = |name: &str, value: &str| visit.link_with("jobs", &[(name, value)]);
    Ok(facts(&[
        ("task", Some(html! { a href=(jobs("task", &task)) { (task) } })),
        ("group", Some(html! { a href=(jobs("group", &group)) { (group) } })),
        ("manifest", manifest.map(|name| html! { a href=(visit.link(&manifest_path(&name))) { (name) } })),
        (
            "parent",
            parent.map(|parent| {
                html! {
                    a href=(visit.link(&format!("jobs/{parent}"))) { "job " (parent) }
                    @if let Some(is) = &parent_state { " " (state(is)) }
                    @if let Some(task) = &parent_task { ", task " (task) }
                }
            }),
        ),
        ("priority", Some(html! { (priority) })),
        (
            "attempts",
            Some(html! { (attempt) @if let Some(retries) = retries { " of " (i64::from(retries) + 1) } }),
        ),
        ("asked to stop", asked.then(|| html! { "yes" })),
        ("unique key", plain("unique_key")?),
        ("concurrency key", plain("concurrency_key")?),
        ("version", plain("version")?),
        ("rate", plain("rate")?),
        ("scheduled for", time("scheduled_for")?),
        ("queued", time("queued_at")?),
        ("due", time("run_at")?),
        ("started", time("started_at")?),
        ("lease until", time("lease_expires_at")?),
        ("ended", time("finished_at")?),
        ("worker", worker.map(|name| html! { a href=(jobs("worker", &name)) { (name) } })),
        (
            "dead letter",
            dead.map(|dead| {
                html! {
                    a href=(visit.link(&letter_path(dead))) { (dead) }
                    ": " (reason.unwrap_or_default()) ", " (status.unwrap_or_default().replace('_', " "))
                    @if let Some(again) = again {
                        " as " a href=(visit.link(&format!("jobs/{again}"))) { "job " (again) }
                    }
                }
            }),
        ),
    ]))
}

/// Returns input, progress, output and error, always as plain text.
fn values(row: &Row) -> Result<Markup, Trouble> {
    let value = |name: &str| row.try_get::<_, Option<String>>(name);
    let size = |name: &str| row.try_get::<_, Option<i32>>(name);
    let task: String = row.try_get("task")?;
    let input = if task == "sql" { "statement" } else { "input" };
    let printed = value("sql_output")?
        .and_then(|text| as_psql(&text.parse::<Json>().ok()?))
        .map(|text| {
            text.chars()
                .take(usize::try_from(VALUE).unwrap_or(0))
                .collect()
        });
    let all = [
        ("error", value("error")?, None),
        ("progress", value("progress")?, None),
        (input, value("input")?, size("input_bytes")?),
        (
            "output",
            match printed {
                Some(text) => Some(text),
                None => value("output")?,
            },
            size("output_bytes")?,
        ),
        ("trace", value("trace")?, None),
    ];
    Ok(html! {
        @for (name, value, bytes) in &all {
            @if let Some(value) = value {
                h2 { (name) }
                (verbatim(value))
                @if value.chars().count() >= usize::try_from(VALUE).unwrap_or(usize::MAX) {
                    p .hint {
                        "Only the beginning is shown"
                        @if let Some(bytes) = bytes { " of " (grouped(i64::from(*bytes))) " bytes" }
                        "."
                    }
                }
            }
        }
    })
}

async fn attempts(page: &Page<'_>, id: i64, job: &Row) -> Result<Markup, Trouble> {
    let now = page.reader.now;
    let is_running = job.try_get::<_, &str>("state")? == "in_progress";
    let short = 2_000;
    let rows = page
        .work
        .rows(
            ATTEMPTS,
            &[
                (&id, Type::INT8),
                (&short, Type::INT4),
                (&(MOST + 1), Type::INT8),
            ],
        )
        .await?;
    let mut times: Vec<Attempt> = Vec::new();
    let mut shown = Vec::new();
    let most = usize::try_from(MOST).unwrap_or(usize::MAX);
    for row in rows.iter().take(most) {
        let attempt: i32 = row.try_get("attempt")?;
        let is: String = row.try_get("state")?;
        let kind: Option<String> = row.try_get("failure_kind")?;
        let worker: Option<String> = row.try_get("worker")?;
        let due: Moment = row.try_get("run_at")?;
        let started: Option<Moment> = row.try_get("started_at")?;
        let ended: Moment = row.try_get("finished_at")?;
        let error: Option<String> = row.try_get("error")?;
        let detail: Option<String> = row.try_get("detail")?;
        times.push(Attempt {
            state: is.clone(),
            due,
            started: started.unwrap_or(ended),
            ended,
        });
        shown.push(vec![
            html! { (attempt) },
            html! { (state(&is)) @if let Some(kind) = &kind { " " (kind.replace('_', " ")) } },
            html! { @if let Some(at) = started { (at.shown(now)) } },
            ended.shown(now),
            html! {
                @if let Some(took) = started.and_then(|at| ended.seconds_since(at)) { (length(took)) }
            },
            html! { @if let Some(worker) = &worker { (worker) } },
            html! {
                @if let Some(error) = &error { (error) }
                @if let Some(detail) = &detail { details { summary { "detail" } (verbatim(detail)) } }
            },
        ]);
    }
    if let (true, Some(started)) = (is_running, job.try_get("started_at")?) {
        times.push(Attempt {
            state: "running".to_owned(),
            due: job.try_get("run_at")?,
            started,
            ended: now,
        });
    }
    let head = [
        "attempt", "state", "started", "ended", "took", "worker", "error",
    ];
    Ok(html! {
        h2 { "Attempts" }
        (line(&times, now))
        (table("Ended attempts", &head, &shown, "None yet."))
        @if rows.len() > most { p .hint { "These are the first " (MOST) "; there are more." } }
    })
}

/// A bar of the time line.
struct Attempt {
    state: String,
    due: Moment,
    started: Moment,
    ended: Moment,
}

/// Returns a time line with the waiting and running time of each attempt.
fn line(attempts: &[Attempt], now: Moment) -> Markup {
    let (Some(first), Some(last)) = (
        attempts.iter().map(|a| a.due.min(a.started)).min(),
        attempts.iter().map(|a| a.ended).max(),
    ) else {
        return html! {};
    };
    let whole = last.seconds_since(first).unwrap_or(0.0).max(0.001);
    let at = |time: Moment| time.seconds_since(first).unwrap_or(0.0) / whole * 997.0;
    let wide = |from: Moment, to: Moment| format!("{:.1}", (at(to) - at(from)).max(3.0));
    let height = attempts.len() * 14;
    html! {
        svg .line viewBox=(format!("0 0 1000 {height}")) preserveAspectRatio="none" role="img"
            aria-label=(format!("{} attempts within {}", attempts.len(), length(whole))) {
            @for (i, attempt) in attempts.iter().enumerate() {
                @if attempt.started > attempt.due {
                    rect .waited x=(format!("{:.1}", at(attempt.due))) y=(i * 14 + 5) height="4"
                        width=(wide(attempt.due, attempt.started)) {}
                }
                rect .(attempt.state) x=(format!("{:.1}", at(attempt.started))) y=(i * 14 + 2)
                    height="10" width=(wide(attempt.started, attempt.ended)) {
                    title { (attempt.state) " after " (length(attempt.ended.seconds_since(attempt.started).unwrap_or(0.0))) }
                }
            }
        }
        p .axis { span { (first.shown(now)) } span { (length(whole)) } span { (last.shown(now)) } }
    }
}

/// Returns the jobs of the manifests before and behind a job's manifest.
async fn family(page: &Page<'_>, id: i64) -> Result<Markup, Trouble> {
    let most = 50_i64;
    let rows = page
        .work
        .rows(FAMILY, &[(&id, Type::INT8), (&most, Type::INT8)])
        .await?;
    let mut sides: [Vec<Vec<Markup>>; 2] = Default::default();
    for row in &rows {
        let side: &str = row.try_get("side")?;
        let name: String = row.try_get("name")?;
        let job: Option<i64> = row.try_get("job_id")?;
        let is: Option<String> = row.try_get("state")?;
        let at: Option<Moment> = row.try_get("at")?;
        sides[usize::from(side == "child")].push(vec![
            html! { a href=(page.visit.link(&manifest_path(&name))) { (name) } },
            html! {
                @match job {
                    Some(job) => a href=(page.visit.link(&format!("jobs/{job}"))) { (job) },
                    None => "none yet",
                }
            },
            html! { @if let Some(is) = &is { (state(is)) } },
            html! { @if let Some(at) = at { (at.shown(page.reader.now)) } },
        ]);
    }
    let head = ["manifest", "job", "state", "when"];
    Ok(html! {
        @for (title, rows) in ["Manifests before it", "Manifests behind it"].iter().zip(&sides) {
            @if !rows.is_empty() { h2 { (title) } (table(title, &head, rows, "")) }
        }
    })
}
