//! Jobs that match filters, newest first.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Page, ROWS};
use crate::layout::{pick, selection, state, table};
use crate::moment::{Moment, length};
use crate::numbers::grouped;
use crate::trouble::Trouble;
use crate::visit::Visit;

const LIST: &str = include_str!("../query/job_list.sql");
const SET_ZONE: &str = include_str!("../query/set_zone.sql");
const SIZE: &str = include_str!("../query/size.sql");

const STATES: [&str; 5] = ["queued", "in_progress", "completed", "failed", "cancelled"];
/// The filters, in the order of the statement's parameters: the name in the URL, and the label.
const FILTERS: [(&str, &str); 13] = [
    ("state", "state"),
    ("task", "task"),
    ("group", "group"),
    ("manifest", "manifest"),
    ("worker", "worker"),
    ("error", "text of the error"),
    ("key", "unique or concurrency key"),
    ("waits", "waits for"),
    ("from", "from"),
    ("to", "before"),
    ("within", "within"),
    ("path", "JSON path of the input"),
    ("parent", "parent job"),
];
/// The filters in the form; the others are set by links.
const ASKED: [&str; 11] = [
    "task", "group", "manifest", "worker", "key", "error", "from", "to", "within", "path", "parent",
];
const WAITS: [(&str, &str); 6] = [
    ("worker", "a worker"),
    ("time", "its time"),
    ("job", "a key or manifest"),
    ("suspended", "a signal or jobs"),
    ("signal", "a signal"),
    ("jobs", "jobs"),
];
const WITHIN: [(&str, &str); 3] = [
    ("5 minutes", "5 min"),
    ("1 hour", "an hour"),
    ("1 day", "a day"),
];

/// The number of jobs of each table that a page examines for matches.
const LOOK: i64 = 20_000;

/// Returns the names that the query of this page may have.
pub(super) fn names() -> Vec<&'static str> {
    let filters = FILTERS.iter().map(|(name, _)| *name);
    filters.chain(["zone", "before"]).collect()
}

/// Returns the part above the list.
pub(super) fn head(visit: &Visit) -> Result<Markup, Trouble> {
    one_of("state", visit.query.get("state"), &STATES)?;
    one_of(
        "waits",
        visit.query.get("waits"),
        &WAITS.map(|(value, _)| value),
    )?;
    Ok(html! { h1 { "Jobs" } (filters(visit, &given(visit))) })
}

/// Returns the filters of the visit with their values.
fn given(visit: &Visit) -> Vec<(&str, &str)> {
    let names = FILTERS.iter().map(|(name, _)| *name);
    let names = names.chain(has_times(visit).then_some("zone"));
    names
        .filter_map(|name| Some((name, visit.query.get(name)?)))
        .collect()
}

/// Returns whether there is a filter with times as a person types them, in a zone.
fn has_times(visit: &Visit) -> bool {
    ["from", "to"]
        .iter()
        .any(|name| visit.query.get(name).is_some())
}

/// Returns the name of the zone of the times in the filters: the one of the link, which another
/// person may have sent, or UTC as the pages show without their script.
fn zone(visit: &Visit) -> &str {
    visit.query.get("zone").unwrap_or("UTC")
}

pub(super) async fn list(page: &Page<'_>) -> Result<Markup, Trouble> {
    let query = &page.visit.query;
    let values: Vec<Option<&str>> = FILTERS.iter().map(|(name, _)| query.get(name)).collect();
    let before = query.number("before")?.unwrap_or(i64::MAX);
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    // Retries of other jobs lie between ended ones, so more rows than a page must be examined.
    let is_filtered = values.iter().any(Option::is_some);
    let look = if is_filtered { LOOK } else { 20 * limit };
    let mut arguments: Vec<crate::work::Argument<'_>> = Vec::new();
    for value in &values[..7] {
        arguments.push((value, Type::TEXT));
    }
    arguments.push((&before, Type::INT8));
    arguments.push((&look, Type::INT8));
    arguments.push((&limit, Type::INT8));
    for value in &values[7..] {
        arguments.push((value, Type::TEXT));
    }
    let zone = zone(page.visit);
    page.work.rows(SET_ZONE, &[(&zone, Type::TEXT)]).await?;
    let rows = page.work.rows(LIST, &arguments).await?;
    let mut jobs = Vec::new();
    let mut edge: Option<i64> = None;
    let mut matching = 0;
    for row in &rows {
        edge = row.try_get("edge")?;
        matching = row.try_get::<_, Option<i64>>("matching")?.unwrap_or(0);
        if row.try_get::<_, Option<i64>>("job_id")?.is_some() {
            jobs.push(Job::read(row)?);
        }
    }
    let more = jobs.len() > ROWS;
    jobs.truncate(ROWS);
    let given = given(page.visit);
    let from = |before: i64| {
        let before = before.to_string();
        let all = [given.as_slice(), &[("before", before.as_str())]].concat();
        page.visit.link_with("jobs", &all)
    };
    let shown: Vec<Vec<Markup>> = jobs.iter().map(|job| job.cells(page, &given)).collect();
    let head = [
        "job", "state", "task", "group", "manifest", "worker", "attempt", "when", "took", "error",
    ];
    let table = table(
        "Jobs",
        &head,
        &shown,
        "No job matches among those that were checked.",
    );
    let acts = if jobs.is_empty() {
        Vec::new()
    } else {
        acts(page)
    };
    Ok(html! {
        @if is_filtered { (matched(matching, edge, query.get("before"))) }
        @else { (sizes(page).await?) }
        (selection(page.visit, &acts, &table))
        @if more {
            @if let Some(last) = jobs.last() { p { a rel="next" href=(from(last.job_id)) { "Older" } } }
        } @else if let Some(edge) = edge {
            p {
                "All jobs down to " (edge) " were checked. "
                a rel="next" href=(from(edge)) { "Look further back" }
            }
        }
    })
}

/// Returns the acts on selected jobs that the user may perform.
fn acts(page: &Page<'_>) -> Vec<(&'static str, &'static str)> {
    let may = |function: &str| page.reader.may(page.visit, function);
    let all = [
        ("cancel", "Cancel", may("cancel")),
        ("run-now", "Run now", may("run_now")),
        ("send-signal", "Send a signal", may("send_signal")),
        ("again", "Queue again", may("enqueue") && may("trigger")),
    ];
    let may = all.into_iter().filter(|(.., may)| *may);
    may.map(|(act, text, _)| (act, text)).collect()
}

pub(super) fn one_of(name: &str, value: Option<&str>, known: &[&str]) -> Result<(), Trouble> {
    match value {
        Some(value) if !known.contains(&value) => Err(Trouble::invalid(format!(
            "{name} is one of: {}",
            known.join(", ")
        ))),
        _ => Ok(()),
    }
}

fn filters(visit: &Visit, given: &[(&str, &str)]) -> Markup {
    let with = |name: &str, value: Option<&str>| {
        let others = given.iter().copied().filter(|(n, _)| *n != name);
        let all: Vec<(&str, &str)> = others.chain(value.map(|value| (name, value))).collect();
        match all.is_empty() {
            true => visit.link("jobs"),
            false => visit.link_with("jobs", &all),
        }
    };
    let link = |name: &str, value: Option<&str>, text: &str| {
        let is_it = visit.query.get(name) == value;
        html! { a href=(with(name, value)) aria-current=[is_it.then_some("true")] { (text) } }
    };
    let is_asked = |name: &&str| visit.query.get(name).is_some();
    html! {
        p .filters {
            (link("state", None, "all"))
            @for state in STATES { (link("state", Some(state), &state.replace('_', " "))) }
        }
        @if visit.query.get("state") == Some("queued") {
            p .filters {
                span { "that wait for" }
                (link("waits", None, "anything"))
                @for (value, text) in WAITS { (link("waits", Some(value), text)) }
            }
        }
        p .filters {
            span { "within" }
            (link("within", None, "all times"))
            @for (value, text) in WITHIN { (link("within", Some(value), text)) }
        }
        @if !given.is_empty() {
            p .chips {
                @for (name, label) in FILTERS {
                    @if let Some(value) = visit.query.get(name) {
                        a href=(with(name, None)) title="Remove this filter" {
                            (label) " " b { (value_shown(visit, name, value)) } span aria-hidden="true" { " ×" }
                        }
                    }
                }
            }
        }
        details open[ASKED.iter().any(is_asked)] {
            summary { "Filter" }
            form .filters method="get" action=(visit.link("jobs")) {
                @for name in ["state", "waits"] {
                    @if let Some(value) = visit.query.get(name) {
                        input type="hidden" name=(name) value=(value);
                    }
                }
                @for name in ASKED {
                    @let label = FILTERS.iter().find(|(n, _)| *n == name).map_or(name, |(_, l)| l);
                    label {
                        (label)
                        @if ["from", "to"].contains(&name) { ", " span data-zone { (zone(visit)) } }
                        input name=(name) value=[visit.query.get(name)] maxlength="300"
                            placeholder=[example(name)];
                    }
                }
                // The script writes the zone of the browser, unless there are times of another.
                input type="hidden" name="zone" value=(zone(visit))
                    data-zone=(if has_times(visit) { "given" } else { "own" });
                button type="submit" { "Filter" }
            }
        }
    }
}

/// Returns the value of a filter: a time of a link as pages show times, others with their zone.
fn value_shown(visit: &Visit, name: &str, value: &str) -> Markup {
    html! {
        @if !["from", "to"].contains(&name) { (value) }
        @else if let Some(at) = Moment::of(value) { (at.alone()) }
        @else { (value) " " (zone(visit)) }
    }
}

fn example(name: &str) -> Option<&'static str> {
    match name {
        "from" | "to" => Some("2030-01-31 08:00"),
        "within" => Some("15 minutes"),
        "path" => Some("$.to == \"ada\""),
        "parent" => Some("7"),
        _ => None,
    }
}

/// Returns the number of matching jobs, and the range examined.
fn matched(matching: i64, edge: Option<i64>, before: Option<&str>) -> Markup {
    let jobs = if matching == 1 {
        "job matches"
    } else {
        "jobs match"
    };
    html! {
        p .hint {
            (grouped(matching)) " " (jobs)
            @match (edge, before) {
                (None, None) => ".",
                (Some(edge), None) => { " among the newest, down to job " (edge) ": older ones were not checked." }
                (None, Some(before)) => { " before job " (before) "." }
                (Some(edge), Some(before)) => { " from job " (before) " down to " (edge) ": older ones were not checked." }
            }
        }
    }
}

/// Counting of all jobs stops here; larger numbers are estimates.
const COUNTED: i64 = 10_000;

async fn sizes(page: &Page<'_>) -> Result<Markup, Trouble> {
    let rows = page
        .work
        .rows(SIZE, &[(&(COUNTED + 1), Type::INT8)])
        .await?;
    let Some(row) = rows.first() else {
        return Ok(html! {});
    };
    let size = |name: &str| -> Result<Markup, tokio_postgres::Error> {
        let count: i64 = row.try_get(name)?;
        let estimate: i64 = row.try_get(format!("estimated_{name}").as_str())?;
        Ok(html! {
            @if count > COUNTED { "about " (grouped(estimate)) } @else { (grouped(count)) }
        })
    };
    Ok(html! {
        p .hint { "In all " (size("waiting")?) " waiting jobs and " (size("runs")?) " ended attempts." }
    })
}

struct Job {
    job_id: i64,
    state: String,
    attempt: i32,
    task: String,
    group_name: String,
    manifest: Option<String>,
    worker: Option<String>,
    waits_for: Option<String>,
    at: Moment,
    started_at: Option<Moment>,
    finished_at: Option<Moment>,
    error: Option<String>,
}

impl Job {
    fn read(row: &tokio_postgres::Row) -> Result<Self, tokio_postgres::Error> {
        Ok(Job {
            job_id: row.try_get("job_id")?,
            state: row.try_get("state")?,
            attempt: row.try_get("attempt")?,
            task: row.try_get("task")?,
            group_name: row.try_get("group_name")?,
            manifest: row.try_get("manifest")?,
            worker: row.try_get("worker")?,
            waits_for: row.try_get("waits_for")?,
            at: row.try_get("at")?,
            started_at: row.try_get("started_at")?,
            finished_at: row.try_get("finished_at")?,
            error: row.try_get("error")?,
        })
    }

    fn cells(&self, page: &Page<'_>, given: &[(&str, &str)]) -> Vec<Markup> {
        let (visit, now) = (page.visit, page.reader.now);
        let narrowed = |name: &str, value: &str| {
            let others = given.iter().copied().filter(|(n, _)| *n != name);
            let all: Vec<(&str, &str)> = others.chain([(name, value)]).collect();
            visit.link_with("jobs", &all)
        };
        let took = self
            .started_at
            .and_then(|at| self.finished_at.unwrap_or(now).seconds_since(at));
        let id = self.job_id.to_string();
        vec![
            html! {
                @if !acts(page).is_empty() { (pick("job", &id, "job")) " " }
                a href=(visit.link(&format!("jobs/{id}"))) { (id) }
            },
            html! {
                (state(&self.state))
                @if let Some(what) = &self.waits_for { " for " (what) }
            },
            html! { a href=(narrowed("task", &self.task)) { (self.task) } },
            html! { a href=(narrowed("group", &self.group_name)) { (self.group_name) } },
            html! {
                @if let Some(manifest) = &self.manifest {
                    a href=(narrowed("manifest", manifest)) { (manifest) }
                }
            },
            html! {
                @if let Some(worker) = &self.worker { a href=(narrowed("worker", worker)) { (worker) } }
            },
            html! { @if self.attempt > 0 { (self.attempt) } },
            self.at.shown(now),
            html! { @if let Some(took) = took { (length(took)) } },
            html! { @if let Some(error) = &self.error { (error) } },
        ]
    }
}
