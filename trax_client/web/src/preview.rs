//! The next times of a manifest: those that it has, and those that an act would set.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use crate::layout::{table, text};
use crate::moment::Moment;
use crate::trouble::Trouble;
use crate::work::Work;

const PREVIEW: &str = include_str!("query/manifest_preview.sql");

/// Returns a table of the next ten times of a manifest, as this transaction sees it.
pub(crate) async fn next_times(
    work: &Work<'_>,
    name: &str,
    now: Moment,
) -> Result<Markup, Trouble> {
    let mut shown = Vec::new();
    let count = 10;
    let rows = work
        .rows(PREVIEW, &[(&name, Type::TEXT), (&count, Type::INT4)])
        .await?;
    for row in &rows {
        let at: Option<Moment> = row.try_get("run_at")?;
        let local: Option<String> = row.try_get("local_time")?;
        let note: Option<String> = row.try_get("note")?;
        shown.push(vec![
            html! { @if let Some(at) = at { (at.full(now)) } },
            text(local.as_deref()),
            text(note.as_deref()),
        ]);
    }
    let head = ["fires", "in its zone", "note"];
    Ok(table(
        "Its next ten times",
        &head,
        &shown,
        "It does not fire by time.",
    ))
}
