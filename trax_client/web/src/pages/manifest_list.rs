//! Manifests and their next times.

use maud::{Markup, html};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{Page, ROWS, calendar, manifest_path};
use crate::layout::table;
use crate::moment::Moment;
use crate::trouble::Trouble;

const LIST: &str = include_str!("../query/manifest_list.sql");

pub(super) async fn list(page: &Page<'_>) -> Result<Markup, Trouble> {
    let (visit, now) = (page.visit, page.reader.now);
    let (task, group) = (visit.query.get("task"), visit.query.get("group"));
    let after = visit.query.get("after");
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let rows = page
        .work
        .rows(
            LIST,
            &[
                (&task, Type::TEXT),
                (&group, Type::TEXT),
                (&after, Type::TEXT),
                (&limit, Type::INT8),
            ],
        )
        .await?;
    let mut shown = Vec::new();
    let mut last = String::new();
    for row in rows.iter().take(ROWS) {
        let name: String = row.try_get("name")?;
        let task: String = row.try_get("task")?;
        let group: String = row.try_get("group_name")?;
        let success: Option<Moment> = row.try_get("last_success_at")?;
        let last_states: Vec<String> = row.try_get("outcomes")?;
        shown.push(vec![
            html! { a href=(visit.link(&manifest_path(&name))) { (name) } },
            html! { a href=(visit.link_with("manifests", &[("task", task.as_str())])) { (task) } },
            html! { a href=(visit.link_with("manifests", &[("group", group.as_str())])) { (group) } },
            html! { (schedule(row)?) },
            next(row, now)?,
            html! { @if let Some(at) = success { (at.shown(now)) } },
            outcomes(&last_states),
        ]);
        last = name;
    }
    let given = [("task", task), ("group", group)];
    let mut more: Vec<(&str, &str)> = given
        .iter()
        .filter_map(|(n, v)| Some((*n, (*v)?)))
        .collect();
    more.push(("after", last.as_str()));
    let head = [
        "manifest",
        "task",
        "group",
        "schedule",
        "fires",
        "last success",
        "last attempts",
    ];
    Ok(html! {
        p { a href=(visit.link("export")) { "Export all" } }
        @if task.is_none() && group.is_none() && after.is_none() { (calendar::week(page).await?) h2 { "All" } }
        (table("Manifests", &head, &shown, "No manifest matches."))
        @if rows.len() > ROWS { p { a rel="next" href=(visit.link_with("manifests", &more)) { "More" } } }
    })
}

/// Returns the states of the last attempts as bars, oldest first; bars of failed ones are higher.
fn outcomes(states: &[String]) -> Markup {
    if states.is_empty() {
        return html! {};
    }
    let failed = states.iter().filter(|state| *state == "failed").count();
    html! {
        svg .outcomes viewBox="0 0 72 16" role="img"
            aria-label=(format!("{failed} of the last {} failed", states.len())) {
            @for (i, state) in states.iter().rev().enumerate() {
                @let height = if state == "failed" { 16 } else { 10 };
                rect .(state) x=(i * 6) y=(16 - height) width="5" height=(height) {}
            }
        }
    }
}

/// Returns the schedule of a manifest as text.
pub(super) fn schedule(row: &Row) -> Result<String, Trouble> {
    let cron: Option<String> = row.try_get("cron")?;
    let zone: String = row.try_get("timezone")?;
    let every: Option<String> = row.try_get("every")?;
    let once: Option<Moment> = row.try_get("run_at")?;
    let mode: Option<String> = row.try_get("depends_mode")?;
    let dormant: bool = row.try_get("dormant")?;
    Ok(match (cron, every, once, mode) {
        (Some(cron), ..) => match trax_schedule::describe(&cron) {
            Ok(words) => format!("{words}, {zone}"),
            Err(_) => format!("{cron}, {zone}"),
        },
        (_, Some(every), ..) => format!("every {every}"),
        (_, _, Some(once), _) => format!("once, at {}", once.exact()),
        (_, _, _, Some(_)) if dormant => "when its parent activates it".to_owned(),
        (_, _, _, Some(mode)) => format!("after {mode} of its parents"),
        _ => "only by hand".to_owned(),
    })
}

/// Returns the next time of a manifest, or the reason why there is none.
pub(super) fn next(row: &Row, now: Moment) -> Result<Markup, Trouble> {
    let enabled: bool = row.try_get("enabled")?;
    let at: Option<Moment> = row.try_get("next_run_at")?;
    let parked: Option<String> = row.try_get("parked_on")?;
    let error: Option<String> = row.try_get("evaluation_error")?;
    Ok(html! {
        @if !enabled { span .state.plain { "disabled" } }
        @else if let Some(at) = at { (at.shown(now)) }
        @else if let Some(parked) = parked { "parked: " (parked.replace('_', " ")) }
        @if let Some(error) = error { " " span .state.bad { (error) } }
    })
}
