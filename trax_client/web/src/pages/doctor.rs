//! Problems and their fixes.

use maud::{Markup, html};

use super::{Page, age, as_of};
use crate::glance::{Answer, Question};
use crate::layout::{button, table, verbatim};
use crate::trouble::Trouble;
use crate::visit::Visit;

const DIAGNOSE: Question = Question::of(include_str!("../query/diagnose.sql"));
const STATUS: Question = Question::of(include_str!("../query/status.sql"));
const CHECK: &str = include_str!("../query/check.sql");

/// Returns the problems. If there are none, says so only if `says_so` is set.
pub(super) fn findings(page: &Page<'_>, found: &Answer, says_so: bool) -> Result<Markup, Trouble> {
    let mut shown = Vec::new();
    for row in found.rows.iter() {
        let cause: String = row.try_get("cause")?;
        let severity: String = row.try_get("severity")?;
        let detail: String = row.try_get("detail")?;
        let fix: Option<String> = row.try_get("fix")?;
        shown.push(html! {
            article .finding.(if severity == "critical" { "bad" } else { "plain" }) {
                h3 { (severity) ": " (cause.replace('_', " ")) }
                p { (detail) }
                @if let Some(fix) = &fix { (verbatim(fix)) }
                @if let Some(mend) = mend(page, &cause, fix.as_deref()) { p { (mend) } }
            }
        });
    }
    Ok(html! {
        @for finding in &shown { (finding) }
        @if shown.is_empty() && says_so { p { "Nothing is wrong." } }
    })
}

/// Returns the button that fixes a problem, or a link to the page where it can be fixed.
fn mend(page: &Page<'_>, cause: &str, fix: Option<&str>) -> Option<Markup> {
    let visit = page.visit;
    let link = |path: &str, text: &str| Some(html! { a href=(visit.link(path)) { (text) } });
    match cause {
        "scheduler_paused" if page.reader.may(visit, "resume") => {
            Some(button(visit, "resume", &[], "Resume the scheduler"))
        }
        "schedule_stopped" if page.reader.may(visit, "requeue_dead_letter") => {
            let (_, rest) = fix?.split_once("trax.requeue_dead_letter(")?;
            let (letter, _) = rest.split_once(')')?;
            Some(html! {
                (button(visit, "requeue", &[("id", letter)], "Requeue its dead letter")) " "
                (button(visit, "acknowledge", &[("id", letter)], "Acknowledge it"))
            })
        }
        "schedule_stopped" | "dead_letters" => link("dead", "The dead letters"),
        "manifests_that_cannot_be_evaluated" => link("manifests", "The manifests"),
        "group_paused" | "limit_full" => link("groups", "The groups"),
        "task_not_claimed" => link("workers", "The workers"),
        _ => None,
    }
}

/// Returns the problems from the shared answer.
pub(super) async fn found(page: &Page<'_>) -> Result<Answer, Trouble> {
    page.glance(DIAGNOSE).await
}

/// Returns the buttons of the scheduler. `button` makes a link for one shard or for all.
pub(super) fn acts(
    visit: &Visit,
    may: impl Fn(&str) -> bool,
    button: impl Fn(&Visit, &str, &[(&str, &str)], &str) -> Markup,
) -> Markup {
    html! {
        p {
            @if may("pause") { (button(visit, "pause", &[], "Pause the scheduler")) " " }
            @if may("resume") { (button(visit, "resume", &[], "Resume the scheduler")) }
        }
    }
}

pub(super) async fn list(page: &Page<'_>) -> Result<Markup, Trouble> {
    let mut items = Vec::new();
    let (found, status) = (found(page).await?, page.glance(STATUS).await?);
    for row in status.rows.iter() {
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
        (as_of(age(page, &[&found, &status])))
        (acts(visit, |function| page.reader.may(visit, function), button))
        (findings(page, &found, true)?)
        h2 { "State" }
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
