//! Problems and their fixes.

use maud::{Markup, html};

use super::{Page, age, as_of, letter_path, outbox};
use crate::glance::{Answer, Question};
use crate::layout::{button, table, verbatim};
use crate::trouble::Trouble;
use crate::visit::Visit;

const DIAGNOSE: Question = Question::of(include_str!("../query/diagnose.sql"));
const STATUS: Question = Question::of(include_str!("../query/status.sql"));
const CHECK: &str = include_str!("../query/check.sql");

/// A problem.
struct Finding {
    cause: String,
    severity: String,
    detail: String,
    fix: Option<String>,
}

/// More problems of one cause than this are folded into one card.
const UNFOLDED: usize = 2;

/// Returns the problems, those of one cause together. If there are none, says so only if `says_so`
/// is set.
pub(super) fn findings(page: &Page<'_>, found: &Answer, says_so: bool) -> Result<Markup, Trouble> {
    let mut causes: Vec<Vec<Finding>> = Vec::new();
    for row in found.rows.iter() {
        let finding = Finding {
            cause: row.try_get("cause")?,
            severity: row.try_get("severity")?,
            detail: row.try_get("detail")?,
            fix: row.try_get("fix")?,
        };
        let same = |all: &&mut Vec<Finding>| {
            all[0].cause == finding.cause && all[0].severity == finding.severity
        };
        match causes.iter_mut().find(same) {
            Some(all) => all.push(finding),
            None => causes.push(vec![finding]),
        }
    }
    Ok(html! {
        @for all in &causes {
            @if all.len() > UNFOLDED { (folded(page, all)) }
            @else { @for finding in all { (card(page, finding)) } }
        }
        @if causes.is_empty() && says_so { p { "Nothing is wrong." } }
    })
}

fn class(finding: &Finding) -> &'static str {
    if finding.severity == "critical" {
        "bad"
    } else {
        "plain"
    }
}

fn title(finding: &Finding) -> Markup {
    html! { (finding.severity) ": " (finding.cause.replace('_', " ")) }
}

fn card(page: &Page<'_>, finding: &Finding) -> Markup {
    html! {
        article .finding.(class(finding)) { h3 { (title(finding)) } (body(page, finding)) }
    }
}

/// Returns several problems of one cause as one card, which shows the first.
fn folded(page: &Page<'_>, all: &[Finding]) -> Markup {
    let first = &all[0];
    html! {
        article .finding.(class(first)) {
            h3 { (title(first)) ", " (all.len()) " times" }
            (body(page, first))
            details {
                summary { (all.len() - 1) " more" }
                @for finding in &all[1..] { (body(page, finding)) }
            }
        }
    }
}

fn body(page: &Page<'_>, finding: &Finding) -> Markup {
    html! {
        p { (finding.detail) }
        @if let Some(fix) = &finding.fix { (verbatim(fix)) }
        @if let Some(mend) = mend(page, &finding.cause, finding.fix.as_deref()) { p { (mend) } }
    }
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
        "schedule_stopped" => {
            let (_, rest) = fix?.split_once("_dead_letter(")?;
            let (letter, _) = rest.split_once(')')?;
            link(&letter_path(letter.parse().ok()?), "Its dead letter")
        }
        "dead_letters" => link("dead", "The dead letters"),
        "manifests_that_cannot_be_evaluated" => link("manifests", "The manifests"),
        "group_paused" | "limit_full" => link("groups", "The groups"),
        "task_not_claimed" | "version_not_taken" => link("workers", "The workers"),
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
            html! {
                @if healthy == Some(false) { span .state.bad { "wrong" } }
                @else { span .whole { "as it should be" } }
            },
            html! { (hint.unwrap_or_default()) },
        ]);
    }
    let visit = page.visit;
    Ok(html! {
        (as_of(age(page, &[&found, &status])))
        (acts(visit, |function| page.reader.may(visit, function), button))
        (findings(page, &found, true)?)
        (outbox::show(page).await?)
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
