//! The workers.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::Page;
use crate::layout::{state, table, text};
use crate::moment::Moment;
use crate::numbers::grouped;
use crate::trouble::Trouble;

const LIST: &str = include_str!("../query/worker_list.sql");
const MOST: i64 = 500;

pub(super) async fn list(page: &Page<'_>) -> Result<Markup, Trouble> {
    let rows = page.work.rows(LIST, &[(&MOST, Type::INT8)]).await?;
    let now = page.reader.now;
    let mut shown = Vec::new();
    for row in &rows {
        let name: String = row.try_get("name")?;
        let is: String = row.try_get("state")?;
        let started: Option<Moment> = row.try_get("started_at")?;
        let seen: Option<Moment> = row.try_get("last_seen_at")?;
        let host: Option<String> = row.try_get("host")?;
        let version: Option<String> = row.try_get("version")?;
        let running: i64 = row.try_get("running")?;
        let oldest: Option<Moment> = row.try_get("oldest_started_at")?;
        let jobs = page.visit.link_with("jobs", &[("worker", name.as_str())]);
        shown.push(vec![
            html! { a href=(jobs) { (name) } },
            state(&is),
            html! { (grouped(running)) },
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
        "oldest job",
        "seen",
        "started",
        "host",
        "version",
    ];
    Ok(html! {
        (table("Workers", &head, &shown, "No worker has reported, and none holds a lease."))
        @if i64::try_from(rows.len()) == Ok(MOST) { p { "These are the first " (MOST) "." } }
    })
}
