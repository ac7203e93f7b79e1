//! Jobs that match filters, the newest first.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Page, ROWS};
use crate::layout::{state, table};
use crate::live::grouped;
use crate::moment::{Moment, length};
use crate::trouble::Trouble;

const LIST: &str = include_str!("../query/job_list.sql");
const SIZE: &str = include_str!("../query/size.sql");

const STATES: [&str; 5] = ["queued", "in_progress", "completed", "failed", "cancelled"];
const FILTERS: [&str; 7] = [
    "state", "task", "group", "manifest", "worker", "error", "key",
];

/// How many jobs of each table one page looks at for those that match.
const LOOK: i64 = 20_000;

pub(super) async fn show(page: &Page<'_>) -> Result<Markup, Trouble> {
    let query = &page.visit.query;
    let values: Vec<Option<&str>> = FILTERS.iter().map(|name| query.get(name)).collect();
    let state = values[0];
    if state.is_some_and(|state| !STATES.contains(&state)) {
        return Err(Trouble::invalid(format!(
            "a state is one of: {}",
            STATES.join(", ")
        )));
    }
    let before = query.number("before")?.unwrap_or(i64::MAX);
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    // Retries of other jobs stand between ended ones, so that a look must be longer than a page.
    let is_filtered = values.iter().any(Option::is_some);
    let look = if is_filtered { LOOK } else { 20 * limit };
    let mut arguments: Vec<crate::work::Argument<'_>> = Vec::new();
    for value in &values {
        arguments.push((value, Type::TEXT));
    }
    arguments.push((&before, Type::INT8));
    arguments.push((&look, Type::INT8));
    arguments.push((&limit, Type::INT8));
    let rows = page.work.rows(LIST, &arguments).await?;
    let mut jobs = Vec::new();
    let mut edge: Option<i64> = None;
    for row in &rows {
        edge = row.try_get("edge")?;
        if row.try_get::<_, Option<i64>>("job_id")?.is_some() {
            jobs.push(Job::read(row)?);
        }
    }
    let more = jobs.len() > ROWS;
    jobs.truncate(ROWS);
    let given: Vec<(&str, &str)> = FILTERS
        .iter()
        .zip(&values)
        .filter_map(|(name, value)| Some((*name, (*value)?)))
        .collect();
    let from = |before: i64| {
        let before = before.to_string();
        let all = [given.as_slice(), &[("before", before.as_str())]].concat();
        page.visit.link_with("jobs", &all)
    };
    let shown: Vec<Vec<Markup>> = jobs.iter().map(|job| job.cells(page, &given)).collect();
    let head = [
        "job", "state", "task", "group", "manifest", "attempt", "when", "took", "error",
    ];
    Ok(html! {
        h1 { "Jobs" }
        (filters(page, &given))
        (sizes(page).await?)
        (table("Jobs", &head, &shown, "No job matches among those that were looked at."))
        @if more {
            @if let Some(last) = jobs.last() { p { a rel="next" href=(from(last.job_id)) { "Older" } } }
        } @else if let Some(edge) = edge {
            p {
                "All jobs down to " (edge) " were looked at. "
                a rel="next" href=(from(edge)) { "Look further back" }
            }
        }
    })
}

fn filters(page: &Page<'_>, given: &[(&str, &str)]) -> Markup {
    let visit = page.visit;
    let without = |name: &str| -> Vec<(&str, &str)> {
        given.iter().copied().filter(|(n, _)| *n != name).collect()
    };
    let current = visit.query.get("state");
    html! {
        p .filters {
            a href=(visit.link_with("jobs", &without("state")))
                aria-current=[current.is_none().then_some("true")] { "all" }
            @for state in STATES {
                a href=(visit.link_with("jobs", &[without("state").as_slice(), &[("state", state)]].concat()))
                    aria-current=[(current == Some(state)).then_some("true")] { (state.replace('_', " ")) }
            }
        }
        form .filters method="get" action=(visit.link("jobs")) {
            @if let Some(state) = current { input type="hidden" name="state" value=(state); }
            @for name in &FILTERS[1..] {
                label { (name) input name=(name) value=[visit.query.get(name)] maxlength="300"; }
            }
            button type="submit" { "Filter" }
        }
    }
}

async fn sizes(page: &Page<'_>) -> Result<Markup, Trouble> {
    let rows = page.work.rows(SIZE, &[]).await?;
    let Some(row) = rows.first() else {
        return Ok(html! {});
    };
    let (waiting, runs): (i64, i64) = (row.try_get("waiting")?, row.try_get("runs")?);
    Ok(html! {
        p .hint {
            "In all about " (grouped(waiting)) " waiting jobs and " (grouped(runs))
            " ended attempts: estimates of the server's last look at the tables."
        }
    })
}

struct Job {
    job_id: i64,
    state: String,
    attempt: i32,
    task: String,
    group_name: String,
    manifest: Option<String>,
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
        vec![
            html! { a href=(visit.link(&format!("jobs/{}", self.job_id))) { (self.job_id) } },
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
            html! { @if self.attempt > 0 { (self.attempt) } },
            self.at.shown(now),
            html! { @if let Some(took) = took { (length(took)) } },
            html! { @if let Some(error) = &self.error { (error) } },
        ]
    }
}
