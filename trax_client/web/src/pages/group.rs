//! Groups: their running and waiting jobs, and their limits.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::overview::since;
use super::{Page, ROWS};
use crate::layout::{button_of_all, table};
use crate::moment::Moment;
use crate::numbers::grouped;
use crate::trouble::Trouble;

const LIST: &str = include_str!("../query/group_list.sql");
/// Counting of ready jobs in each lane stops here.
const COUNTED: i64 = 1_000;
/// Counting of suspended jobs in all groups together stops here.
const SUSPENDED: i64 = 20_000;

pub(super) async fn list(page: &Page<'_>) -> Result<Markup, Trouble> {
    let after = page.visit.query.get("after");
    let (visit, reader) = (page.visit, page.reader);
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let rows = page
        .work
        .rows(
            LIST,
            &[
                (&COUNTED, Type::INT8),
                (&after, Type::TEXT),
                (&limit, Type::INT8),
                (&SUSPENDED, Type::INT8),
            ],
        )
        .await?;
    let mut shown = Vec::new();
    let mut last = String::new();
    for row in rows.iter().take(ROWS) {
        let name: String = row.try_get("name")?;
        let enabled: bool = row.try_get("enabled")?;
        let priority: i16 = row.try_get("priority")?;
        let limit: Option<i32> = row.try_get("max_active_jobs")?;
        let max_waiting: Option<i32> = row.try_get("max_waiting")?;
        let overflow: String = row.try_get("overflow")?;
        let running: i64 = row.try_get("running")?;
        let ready: i64 = row.try_get("ready")?;
        let oldest: Option<Moment> = row.try_get("oldest")?;
        let suspended: i64 = row.try_get("suspended")?;
        let suspended_is_cut: bool = row.try_get("suspended_is_cut")?;
        let (is_cut, is_late): (bool, bool) =
            (row.try_get("ready_is_cut")?, row.try_get("oldest_is_late")?);
        let jobs = |filters: &[(&str, &str)]| {
            let all = [&[("group", name.as_str())], filters].concat();
            visit.link_with("jobs", &all)
        };
        let group = [("group", name.as_str())];
        let most = limit.map(|limit| limit.to_string());
        let limited: Vec<(&str, &str)> = group
            .into_iter()
            .chain(most.as_deref().map(|most| ("most", most)))
            .collect();
        shown.push(vec![
            html! {
                a href=(visit.link_with("jobs", &group)) { (name) }
                @if !enabled { " " span .state.bad { "paused" } }
            },
            html! { a href=(jobs(&[("state", "in_progress")])) { (grouped(running)) } },
            html! { @if let Some(limit) = limit { (limit) } @else { "none" } },
            html! {
                a href=(jobs(&[("state", "queued"), ("waits", "worker")])) {
                    (grouped(ready)) @if is_cut { " or more" }
                }
                @if let Some(most) = max_waiting { " (at most " (most) " wait: " (overflow.replace('_', " ")) ")" }
            },
            since(oldest, is_late, reader.now),
            html! {
                a href=(jobs(&[("state", "queued"), ("waits", "suspended")])) {
                    (grouped(suspended)) @if suspended_is_cut { " or more" }
                }
            },
            html! { (priority) },
            html! {
                @if reader.may(visit, "configure_group") {
                    @if enabled { (button_of_all(visit, "pause-group", &group, "Pause")) }
                    @else { (button_of_all(visit, "resume-group", &group, "Resume")) }
                    " " (button_of_all(visit, "limit-group", &limited, "Limit"))
                }
            },
        ]);
        last = name;
    }
    let head = [
        "group",
        "running",
        "limit",
        "ready",
        "oldest ready",
        "suspended",
        "priority",
        "",
    ];
    Ok(html! {
        (table("Groups", &head, &shown, "No group has settings, manifests or jobs."))
        @if rows.len() > ROWS {
            p { a href=(visit.link_with("groups", &[("after", last.as_str())])) { "More groups" } }
        }
    })
}
