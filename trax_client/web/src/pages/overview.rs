//! What is wrong, what waits, what runs, what comes.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::rates::{self, RATES};
use super::{Page, as_of, doctor, manifest_path};
use crate::glance::{Answer, Question};
use crate::layout::{live, table};
use crate::live::{LIVE, Numbers, grouped};
use crate::moment::Moment;
use crate::trouble::Trouble;

const NEXT: &str = include_str!("../query/next_list.sql");
/// Twelve of them.
const BUSIEST: Question = Question {
    sql: include_str!("../query/busiest.sql"),
    limit: Some(12),
};

pub(super) async fn show(page: &Page<'_>) -> Result<Markup, Trouble> {
    let (counted, found) = (page.glance(LIVE).await?, doctor::found(page).await?);
    let (hour, groups) = (page.glance(RATES).await?, page.glance(BUSIEST).await?);
    let numbers = Numbers::of(&counted.rows)?;
    let visit = page.visit;
    let number = |name: &str, label: &str, link: String| {
        html! {
            a .number href=(link) { b { (live(name, numbers.get(name))) } span { (label) } }
        }
    };
    let jobs = |state: &str| visit.link_with("jobs", &[("state", state)]);
    let waits = |what: &str| visit.link_with("jobs", &[("state", "queued"), ("waits", what)]);
    Ok(html! {
        h1 { "Overview" }
        (as_of(page, &[&counted, &found, &hour, &groups]))
        (doctor::findings(page, &found, false)?)
        section .numbers aria-label="Numbers" {
            (number("running", "running", jobs("in_progress")))
            (number("ready", "ready", waits("worker")))
            (number("later", "due later", waits("time")))
            (number("blocked", "behind a key or manifest", waits("job")))
            (number("failed", "failed within the hour", jobs("failed")))
            (number("dead", "dead letters", visit.link("dead")))
            (number("workers", "workers alive", visit.link("workers")))
        }
        (rates::show(page, &hour)?)
        h2 { a href=(visit.link("groups")) { "Groups" } " with the most to do" }
        (busiest(page, &groups)?)
        h2 { "What fires next" }
        (coming(page).await?)
    })
}

fn busiest(page: &Page<'_>, groups: &Answer) -> Result<Markup, Trouble> {
    let (visit, now) = (page.visit, page.reader.now);
    let mut shown = Vec::new();
    for row in groups.rows.iter() {
        let name: String = row.try_get("name")?;
        let waiting: i64 = row.try_get("waiting")?;
        let running: i64 = row.try_get("running")?;
        let is_estimated: bool = row.try_get("estimated")?;
        let enabled: bool = row.try_get("enabled")?;
        let most: Option<i32> = row.try_get("max_active_jobs")?;
        let oldest: Option<Moment> = row.try_get("oldest")?;
        let jobs = |state| visit.link_with("jobs", &[("group", name.as_str()), ("state", state)]);
        shown.push(vec![
            html! {
                a href=(visit.link_with("jobs", &[("group", name.as_str())])) { (name) }
                @if !enabled { " " span .state.bad { "paused" } }
            },
            html! {
                a href=(jobs("queued")) { @if is_estimated { "about " } (grouped(waiting)) }
            },
            html! { @if let Some(oldest) = oldest { (oldest.shown(now)) } },
            html! {
                a href=(jobs("in_progress")) { (grouped(running)) }
                @if let Some(most) = most { " of " (grouped(most.into())) " " (share(running, most)) }
                @else { ", no limit" }
            },
        ]);
    }
    let head = ["group", "waiting", "oldest ready", "running"];
    Ok(table("Groups", &head, &shown, "No job waits or runs."))
}

/// Returns how much of a limit is used, as a bar.
fn share(running: i64, most: i32) -> Markup {
    let width = (running * 60 / i64::from(most.max(1))).clamp(0, 60);
    html! {
        svg .share viewBox="0 0 60 8" aria-hidden="true" {
            rect .ground width="60" height="8" {}
            rect .(if width == 60 { "full" } else { "used" }) width=(width) height="8" {}
        }
    }
}

async fn coming(page: &Page<'_>) -> Result<Markup, Trouble> {
    let mut coming = Vec::new();
    for row in page.work.rows(NEXT, &[(&8_i64, Type::INT8)]).await? {
        let name: String = row.try_get("name")?;
        let at: Moment = row.try_get("next_run_at")?;
        let task: String = row.try_get("task")?;
        let jobs = page.visit.link_with("jobs", &[("task", task.as_str())]);
        coming.push(vec![
            html! { a href=(page.visit.link(&manifest_path(&name))) { (name) } },
            html! { a href=(jobs) { (task) } },
            at.full(page.reader.now),
        ]);
    }
    Ok(table(
        "What fires next",
        &["manifest", "task", "fires"],
        &coming,
        "No manifest is due by time.",
    ))
}
