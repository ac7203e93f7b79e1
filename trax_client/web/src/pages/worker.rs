//! The workers, and their tasks.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::Page;
use crate::layout::{state, table, text};
use crate::moment::Moment;
use crate::numbers::grouped;
use crate::trouble::Trouble;
use crate::visit::Visit;

const LIST: &str = include_str!("../query/worker_list.sql");
const MOST: usize = 500;
/// The maximum number of tasks of a worker.
const TASKS: usize = 20;

const STATES: [&str; 2] = ["alive", "gone"];

/// Returns the part above the list.
pub(super) fn head(visit: &Visit) -> Result<Markup, Trouble> {
    let given = visit.query.get("state");
    if given.is_some_and(|state| !STATES.contains(&state)) {
        let known = STATES.join(", ");
        return Err(Trouble::invalid(format!("state is one of: {known}")));
    }
    Ok(html! {
        h1 { "Workers" }
        p .filters {
            a href=(visit.link("workers")) aria-current=[given.is_none().then_some("true")] { "all" }
            @for state in STATES {
                a href=(visit.link_with("workers", &[("state", state)]))
                    aria-current=[(given == Some(state)).then_some("true")] { (state) }
            }
        }
    })
}

pub(super) async fn list(page: &Page<'_>) -> Result<Markup, Trouble> {
    let limit = i64::try_from(MOST + 1).unwrap_or(i64::MAX);
    let wanted = page.visit.query.get("state");
    let rows = page
        .work
        .rows(LIST, &[(&limit, Type::INT8), (&wanted, Type::TEXT)])
        .await?;
    let now = page.reader.now;
    let mut shown = Vec::new();
    for row in rows.iter().take(MOST) {
        let name: String = row.try_get("name")?;
        let is: String = row.try_get("state")?;
        let started: Option<Moment> = row.try_get("started_at")?;
        let seen: Option<Moment> = row.try_get("last_seen_at")?;
        let host: Option<String> = row.try_get("host")?;
        let version: Option<String> = row.try_get("version")?;
        let running: i64 = row.try_get("running")?;
        let running_tasks: Vec<String> = row.try_get("running_tasks")?;
        let tasks: Option<Vec<String>> = row.try_get("tasks")?;
        let oldest: Option<Moment> = row.try_get("oldest_started_at")?;
        let jobs = |more: &[(&str, &str)]| {
            let all = [&[("worker", name.as_str())], more].concat();
            page.visit.link_with("jobs", &all)
        };
        shown.push(vec![
            html! { a href=(jobs(&[])) { (name) } },
            state(&is),
            html! { a href=(jobs(&[("state", "in_progress")])) { (grouped(running)) } },
            html! {
                @for task in &running_tasks {
                    a href=(jobs(&[("state", "in_progress"), ("task", task.as_str())])) { (task) } " "
                }
            },
            html! {
                @match &tasks {
                    Some(tasks) => {
                        @for task in tasks.iter().take(TASKS) {
                            a href=(page.visit.link_with("jobs", &[("task", task.as_str())])) { (task) } " "
                        }
                        @if tasks.len() > TASKS { "and more" }
                    }
                    None => @if started.is_some() { "all, or not reported" },
                }
            },
            html! { @if let Some(at) = oldest { (at.shown(now)) } },
            html! { @if let Some(at) = seen { (at.shown(now)) } },
            html! { @if let Some(at) = started { (at.shown(now)) } },
            text(host.as_deref()),
            text(version.as_deref()),
        ]);
    }
    let head = [
        "worker",
        "state",
        "running",
        "runs now",
        "takes",
        "oldest job",
        "seen",
        "started",
        "host",
        "version",
    ];
    let none = match wanted {
        Some(_) => "No worker is in this state.",
        None => "No worker has reported, and none holds a lease.",
    };
    Ok(html! {
        (table("Workers", &head, &shown, none))
        @if rows.len() > MOST { p .hint { "These are the first " (MOST) "; there are more." } }
    })
}
