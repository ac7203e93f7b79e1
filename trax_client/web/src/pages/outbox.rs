//! The outboxes whose jobs arrive in the database, as their relays report.

use maud::{Markup, html};
use trax_terminal::outbox::{LIST, Outbox, PATIENCE};

use super::Page;
use crate::layout::{table, verbatim};
use crate::moment::length;
use crate::numbers::grouped;
use crate::trouble::Trouble;

/// Returns the outboxes and their problems; nothing if there is none.
pub(super) async fn show(page: &Page<'_>) -> Result<Markup, Trouble> {
    if !page.work.reads_relays().await? {
        return Ok(html! {});
    }
    let (mut shown, mut problems) = (Vec::new(), Vec::new());
    for row in page.work.rows(LIST, &[]).await? {
        let outbox = Outbox::read(&row, None)?;
        problems.extend(outbox.problems(PATIENCE));
        shown.push(vec![
            html! { (outbox.name) },
            counted(outbox.waiting),
            html! { @if outbox.waiting > 0 { (length(outbox.oldest.as_secs_f64())) } },
            counted(outbox.refused),
            html! { (length(outbox.silent.as_secs_f64())) " ago" },
            html! { (outbox.trouble.unwrap_or_default()) },
        ]);
    }
    if shown.is_empty() {
        return Ok(html! {});
    }
    let head = [
        "outbox in",
        "waiting",
        "the oldest for",
        "refused",
        "reported",
        "why rows wait",
    ];
    Ok(html! {
        h2 { "Outboxes" }
        @for problem in &problems {
            article .finding.plain {
                h3 { "warning: " (problem.cause.replace('_', " ")) }
                p { (problem.detail) }
                (verbatim(&problem.fix))
            }
        }
        p .hint { "As their relays reported last; a relay reports at least each minute." }
        (table("Outboxes", &head, &shown, ""))
    })
}

/// Relays count up to this number.
const COUNTED: i64 = 100_000;

fn counted(number: i64) -> Markup {
    html! { (grouped(number)) @if number >= COUNTED { " or more" } }
}
