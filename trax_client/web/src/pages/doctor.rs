//! What is wrong, and what to type.

use maud::{Markup, html};

use super::{Page, as_of};
use crate::glance::Question;
use crate::layout::{button, table, verbatim};
use crate::trouble::Trouble;

const DIAGNOSE: Question = Question::of(include_str!("../query/diagnose.sql"));
const STATUS: Question = Question::of(include_str!("../query/status.sql"));
const CHECK: &str = include_str!("../query/check.sql");

/// Returns what is wrong; nothing wrong is said only when `says_so`.
pub(super) async fn findings(page: &Page<'_>, says_so: bool) -> Result<Markup, Trouble> {
    let mut found = Vec::new();
    let answer = page.glance(DIAGNOSE).await?;
    for row in answer.rows.iter() {
        let cause: String = row.try_get("cause")?;
        let severity: String = row.try_get("severity")?;
        let detail: String = row.try_get("detail")?;
        let fix: Option<String> = row.try_get("fix")?;
        found.push((cause, severity, detail, fix));
    }
    Ok(html! {
        @for (cause, severity, detail, fix) in &found {
            article .finding.(if severity == "critical" { "bad" } else { "plain" }) {
                h3 { (severity) ": " (cause.replace('_', " ")) }
                p { (detail) }
                @if let Some(fix) = fix { (verbatim(fix)) }
            }
        }
        @if found.is_empty() && says_so { p { "Nothing is wrong." } }
        (as_of(page, &answer))
    })
}

pub(super) async fn show(page: &Page<'_>) -> Result<Markup, Trouble> {
    let mut items = Vec::new();
    let answer = page.glance(STATUS).await?;
    for row in answer.rows.iter() {
        let item: String = row.try_get("item")?;
        let value: Option<String> = row.try_get("value")?;
        let healthy: Option<bool> = row.try_get("healthy")?;
        let hint: Option<String> = row.try_get("hint")?;
        items.push(vec![
            html! { (item) },
            html! { (value.unwrap_or_default()) },
            html! { (if healthy == Some(false) { "wrong" } else { "as it should be" }) },
            html! { (hint.unwrap_or_default()) },
        ]);
    }
    let visit = page.visit;
    Ok(html! {
        h1 { "Doctor" }
        p {
            @if page.reader.may(visit, "pause") { (button(visit, "pause", &[], "Pause the scheduler")) " " }
            @if page.reader.may(visit, "resume") { (button(visit, "resume", &[], "Resume the scheduler")) }
        }
        (findings(page, true).await?)
        h2 { "State" }
        (as_of(page, &answer))
        (table("State", &["item", "value", "healthy", "what to type"], &items, "Nothing."))
        h2 { "Invariants" }
        @if visit.query.get("check").is_some() { (violations(page).await?) }
        @else { p { a href=(visit.link_with("doctor", &[("check", "1")])) { "Verify every invariant" } } }
    })
}

async fn violations(page: &Page<'_>) -> Result<Markup, Trouble> {
    let mut rows = Vec::new();
    for row in page.work.rows(CHECK, &[]).await? {
        let text: String = row.try_get(0)?;
        rows.push(vec![html! { (text) }]);
    }
    Ok(table(
        "Violations",
        &["violation"],
        &rows,
        "Every invariant holds.",
    ))
}
