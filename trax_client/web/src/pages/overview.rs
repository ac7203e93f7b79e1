//! What is wrong, what waits, what runs, what comes.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::{Page, doctor, group, manifest_path};
use crate::layout::{live, table};
use crate::live::Numbers;
use crate::moment::Moment;
use crate::trouble::Trouble;

const NEXT: &str = include_str!("../query/next_list.sql");

pub(super) async fn show(page: &Page<'_>) -> Result<Markup, Trouble> {
    let numbers = Numbers::read(page.work).await?;
    let visit = page.visit;
    let number = |name: &str, label: &str, link: String| {
        html! {
            a .number href=(link) { b { (live(name, numbers.get(name))) } span { (label) } }
        }
    };
    let jobs = |state: &str| visit.link_with("jobs", &[("state", state)]);
    let next = page.work.rows(NEXT, &[(&8_i64, Type::INT8)]).await?;
    let now = page.reader.now;
    let mut coming = Vec::new();
    for row in &next {
        let name: String = row.try_get("name")?;
        let at: Moment = row.try_get("next_run_at")?;
        let task: String = row.try_get("task")?;
        coming.push(vec![
            html! { a href=(visit.link(&manifest_path(&name))) { (name) } },
            html! { (task) },
            at.shown(now),
        ]);
    }
    Ok(html! {
        h1 { "Overview" }
        (doctor::findings(page, false).await?)
        section .numbers aria-label="Numbers" {
            (number("running", "running", jobs("in_progress")))
            (number("ready", "ready", jobs("queued")))
            (number("later", "due later", jobs("queued")))
            (number("blocked", "behind a key or manifest", jobs("queued")))
            (number("failed", "failed within the hour", jobs("failed")))
            (number("dead", "dead letters", visit.link("dead")))
        }
        h2 { "Groups" }
        (group::list(page, None, 12).await?)
        h2 { "What fires next" }
        (table("What fires next", &["manifest", "task", "fires"], &coming, "No manifest is due by time."))
    })
}
