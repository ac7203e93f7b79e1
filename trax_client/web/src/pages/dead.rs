//! Dead letters: jobs that failed permanently.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::job_list::one_of;
use super::{Page, ROWS, letter_path, manifest_path};
use crate::layout::{button, pick, selection, state, table, text};
use crate::moment::Moment;
use crate::numbers::grouped;
use crate::trouble::Trouble;
use crate::visit::Visit;

const LIST: &str = include_str!("../query/dead_list.sql");
const COUNT: &str = include_str!("../query/dead_count.sql");
/// Counting of matching rows stops here.
const COUNTED: i64 = 10_000;

/// The filters beside the status, by their names in the URL.
const FILTERS: [&str; 5] = ["task", "group", "manifest", "error", "id"];

/// The names that the query of this page may have.
pub(super) const NAMES: [&str; 7] = [
    "status", "task", "group", "manifest", "error", "id", "before",
];
const STATUSES: [(&str, &str); 4] = [
    ("awaiting_intervention", "awaiting"),
    ("requeued", "requeued"),
    ("acknowledged", "acknowledged"),
    ("any", "any"),
];

/// Returns the filters of the visit, the status first.
fn filters(visit: &Visit) -> Vec<(&str, &str)> {
    let status = visit.query.get("status").unwrap_or("awaiting_intervention");
    let others = FILTERS.iter();
    let others = others.filter_map(|name| Some((*name, visit.query.get(name)?)));
    [("status", status)].into_iter().chain(others).collect()
}

/// Returns the part above the list.
pub(super) fn head(visit: &Visit) -> Result<Markup, Trouble> {
    let filters = filters(visit);
    let status = filters[0].1;
    one_of("status", Some(status), &STATUSES.map(|(value, _)| value))?;
    Ok(html! {
        h1 { "Dead letters" }
        p .filters {
            @for (value, name) in STATUSES {
                a href=(visit.link_with("dead", &[&[("status", value)], &filters[1..]].concat()))
                    aria-current=[(value == status).then_some("true")] { (name) }
            }
        }
        @if filters.len() > 1 {
            p .chips {
                @for (name, value) in &filters[1..] {
                    @let others: Vec<_> = filters.iter().copied().filter(|(n, _)| n != name).collect();
                    a href=(visit.link_with("dead", &others)) title="Remove this filter" {
                        (name) " " b { (value) } span aria-hidden="true" { " ×" }
                    }
                }
            }
        }
        details open[filters.len() > 1] {
            summary { "Filter" }
            form .filters method="get" action=(visit.link("dead")) {
                input type="hidden" name="status" value=(status);
                @for name in FILTERS {
                    label {
                        (if name == "error" { "text of the reason or error" } else { name })
                        input name=(name) value=[visit.query.get(name)] maxlength="300";
                    }
                }
                button type="submit" { "Filter" }
            }
        }
    })
}

/// Returns the buttons for all matching rows. `button` makes a link for one shard or for all.
pub(super) fn acts_on_all(
    visit: &Visit,
    may: impl Fn(&str) -> bool,
    button: impl Fn(&Visit, &str, &[(&str, &str)], &str) -> Markup,
) -> Markup {
    let filters = filters(visit);
    // These acts have no filter by id.
    if filters[0].1 != "awaiting_intervention" || visit.query.get("id").is_some() {
        return html! {};
    }
    html! {
        p {
            @if may("requeue_dead_letter") {
                (button(visit, "requeue-many", &filters[1..], "Requeue all that match")) " "
            }
            @if may("acknowledge_dead_letter") {
                (button(visit, "acknowledge-many", &filters[1..], "Acknowledge all that match"))
            }
        }
    }
}

pub(super) async fn list(page: &Page<'_>) -> Result<Markup, Trouble> {
    let (visit, reader) = (page.visit, page.reader);
    let (task, group) = (visit.query.get("task"), visit.query.get("group"));
    let (manifest, error) = (visit.query.get("manifest"), visit.query.get("error"));
    let status = visit.query.get("status").unwrap_or("awaiting_intervention");
    let wanted = Some(status).filter(|status| *status != "any");
    let (before, id) = (visit.query.number("before")?, visit.query.number("id")?);
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let rows = page
        .work
        .rows(
            LIST,
            &[
                (&task, Type::TEXT),
                (&group, Type::TEXT),
                (&manifest, Type::TEXT),
                (&wanted, Type::TEXT),
                (&before, Type::INT8),
                (&limit, Type::INT8),
                (&error, Type::TEXT),
                (&id, Type::INT8),
            ],
        )
        .await?;
    let counted = COUNTED + 1;
    let count = page
        .work
        .rows(
            COUNT,
            &[
                (&task, Type::TEXT),
                (&group, Type::TEXT),
                (&manifest, Type::TEXT),
                (&wanted, Type::TEXT),
                (&error, Type::TEXT),
                (&counted, Type::INT8),
                (&id, Type::INT8),
            ],
        )
        .await?;
    let count: i64 = count.first().map_or(Ok(0), |row| row.try_get("count"))?;
    let filters = filters(visit);
    let may = |function: &str| reader.may(visit, function);
    let acts = [
        ("requeue", "Requeue", may("requeue_dead_letter")),
        (
            "requeue-fresh",
            "Requeue from the start",
            may("requeue_dead_letter"),
        ),
        ("acknowledge", "Acknowledge", may("acknowledge_dead_letter")),
    ];
    let acts = acts.into_iter().filter(|(.., may)| *may);
    let acts: Vec<_> = acts.map(|(act, text, _)| (act, text)).collect();
    let mut shown = Vec::new();
    let mut last = String::new();
    for row in rows.iter().take(ROWS) {
        let id: i64 = row.try_get("id")?;
        let job: i64 = row.try_get("job_id")?;
        let is: String = row.try_get("status")?;
        let task: String = row.try_get("task")?;
        let of: Option<String> = row.try_get("manifest")?;
        let reason: String = row.try_get("reason")?;
        let error: Option<String> = row.try_get("last_error")?;
        let attempts: i32 = row.try_get("attempts")?;
        let at: Moment = row.try_get("created_at")?;
        let note: Option<String> = row.try_get("resolution_note")?;
        let again: Option<i64> = row.try_get("requeued_job_id")?;
        let (has_steps, is_undone): (bool, bool) =
            (row.try_get("has_steps")?, row.try_get("undone")?);
        last = id.to_string();
        let letter = [("id", last.as_str())];
        let by_task = visit.link_with("dead", &[("status", status), ("task", task.as_str())]);
        shown.push(vec![
            html! {
                @if is == "awaiting_intervention" && !acts.is_empty() { (pick("id", &last, "dead letter")) " " }
                a href=(visit.link(&letter_path(id))) { (id) }
            },
            state(&is),
            html! { a href=(visit.link(&format!("jobs/{job}"))) { (job) } },
            html! { a href=(by_task) { (task) } },
            html! {
                @if let Some(of) = &of { a href=(visit.link(&manifest_path(of))) { (of) } }
            },
            html! { (attempts) },
            html! { (reason) @if let Some(error) = &error { ": " (error) } },
            at.shown(reader.now),
            html! {
                (text(note.as_deref()))
                @if let Some(again) = again {
                    " " a href=(visit.link(&format!("jobs/{again}"))) { "job " (again) }
                }
                @if is == "awaiting_intervention" {
                    @if reader.may(visit, "requeue_dead_letter") {
                        // A job whose steps are being undone cannot continue behind them.
                        @if !is_undone { (button(visit, "requeue", &letter, "Requeue")) " " }
                        @if has_steps { (button(visit, "requeue-fresh", &letter, "Requeue from the start")) " " }
                    }
                    @if reader.may(visit, "acknowledge_dead_letter") {
                        (button(visit, "acknowledge", &letter, "Acknowledge"))
                    }
                }
            },
        ]);
    }
    let head = [
        "id", "state", "job", "task", "manifest", "attempts", "why", "when", "note",
    ];
    Ok(html! {
        p .hint {
            @if count > COUNTED { "More than " (grouped(COUNTED)) } @else { (grouped(count)) }
            (if count == 1 { " dead letter matches." } else { " dead letters match." })
        }
        @if count > 0 { (acts_on_all(visit, |function| reader.may(visit, function), button)) }
        @let table = table("Dead letters", &head, &shown, "No dead letter matches.");
        @let can_select = status == "awaiting_intervention" || status == "any";
        (selection(visit, if can_select && !shown.is_empty() { &acts } else { &[] }, &table))
        @if rows.len() > ROWS {
            p { a href=(visit.link_with("dead", &[filters.as_slice(), &[("before", last.as_str())]].concat())) { "Older" } }
        }
    })
}
