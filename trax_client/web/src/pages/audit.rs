//! The audit: acts and their roles.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Page, ROWS, letter_path, manifest_path};
use crate::layout::{table, text};
use crate::moment::Moment;
use crate::trouble::Trouble;
use crate::visit::Visit;

const LIST: &str = include_str!("../query/audit_list.sql");

pub(super) async fn list(page: &Page<'_>) -> Result<Markup, Trouble> {
    let before = page.visit.query.get("before");
    let limit = i64::try_from(ROWS + 1).unwrap_or(i64::MAX);
    let rows = page
        .work
        .rows(LIST, &[(&before, Type::TEXT), (&limit, Type::INT8)])
        .await?;
    let now = page.reader.now;
    let mut shown = Vec::new();
    let mut last = String::new();
    for row in rows.iter().take(ROWS) {
        let at: Moment = row.try_get("at")?;
        let role: String = row.try_get("role")?;
        let program: String = row.try_get("program")?;
        let action: String = row.try_get("action")?;
        let kind: String = row.try_get("kind")?;
        let name: String = row.try_get("name")?;
        let note: Option<String> = row.try_get("note")?;
        shown.push(vec![
            at.shown(now),
            html! { (role) },
            html! { (program) },
            html! { (action) " " (kind.replace('_', " ")) },
            html! { @if let Some(link) = link(page.visit, &kind, &name) { a href=(link) { (name) } } @else { (name) } },
            text(note.as_deref()),
        ]);
        last = at.exact();
    }
    // Every role may set trax.program to any text, so only the role is reliable.
    let head = [
        "when",
        "role",
        "program, as claimed",
        "what",
        "which",
        "note",
    ];
    Ok(html! {
        (table("Audit", &head, &shown, "No acts are recorded yet."))
        @if rows.len() > ROWS {
            p { a href=(page.visit.link_with("audit", &[("before", last.as_str())])) { "Older" } }
        }
    })
}

/// Returns the page of the object of an act.
fn link(visit: &Visit, kind: &str, name: &str) -> Option<String> {
    match kind {
        "job" => Some(visit.link(&format!("jobs/{name}"))),
        "dead_letter" => Some(visit.link(&letter_path(name.parse().ok()?))),
        "manifest" => Some(visit.link(&manifest_path(name))),
        "group" => Some(visit.link_with("jobs", &[("group", name)])),
        _ => None,
    }
}
