//! The overview: problems, waiting and running jobs, and the next runs.

use std::time::Duration;

use maud::{Markup, html};
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::rates::{self, Rates};
use super::{Page, age, as_of, doctor, manifest_path, outbox};
use crate::glance::Question;
use crate::layout::{live, table};
use crate::moment::Moment;
use crate::numbers::{LIVE, Numbers, grouped};
use crate::trouble::Trouble;
use crate::visit::Visit;

const NEXT: &str = include_str!("../query/next_list.sql");
/// The number of groups shown.
pub(super) const BUSY: i64 = 12;
const BUSIEST: Question = Question {
    sql: include_str!("../query/busiest.sql"),
    numbers: &[BUSY],
};
/// The number of upcoming manifests shown.
pub(super) const COMING: i64 = 8;

/// The content of a database's overview.
pub(super) struct Overview {
    pub(super) numbers: Numbers,
    pub(super) rates: Rates,
    pub(super) findings: Markup,
    pub(super) groups: Vec<Busy>,
    pub(super) coming: Vec<Coming>,
    pub(super) outboxes: Markup,
    /// The age of the oldest part.
    pub(super) age: Option<Duration>,
}

/// A group with waiting or running jobs.
pub(super) struct Busy {
    /// The number of its waiting and running jobs.
    pub(super) jobs: i64,
    pub(super) cells: Vec<Markup>,
}

/// A manifest with an upcoming run.
pub(super) struct Coming {
    pub(super) at: Moment,
    pub(super) cells: Vec<Markup>,
}

pub(super) const GROUP_COLUMNS: [&str; 4] = ["group", "waiting", "oldest ready", "running"];
pub(super) const COMING_COLUMNS: [&str; 3] = ["manifest", "task", "fires"];

pub(super) async fn read(page: &Page<'_>) -> Result<Overview, Trouble> {
    let (counted, found) = (page.glance(LIVE).await?, doctor::found(page).await?);
    let asked = rates::asked(page.visit)?;
    let (hour, groups) = (page.glance(asked).await?, page.glance(BUSIEST).await?);
    let groups_read = groups.rows.iter().map(|row| Busy::read(page, row));
    Ok(Overview {
        numbers: Numbers::of(&counted.rows)?,
        rates: Rates::of(&hour)?,
        findings: doctor::findings(page, &found, false)?,
        groups: groups_read.collect::<Result<_, _>>()?,
        coming: coming(page).await?,
        outboxes: outbox::show(page).await?,
        age: age(page, &[&counted, &found, &hour, &groups]),
    })
}

pub(super) async fn show(page: &Page<'_>) -> Result<Markup, Trouble> {
    let overview = read(page).await?;
    let groups: Vec<_> = overview.groups.into_iter().map(|busy| busy.cells).collect();
    let coming: Vec<_> = overview.coming.into_iter().map(|one| one.cells).collect();
    Ok(html! {
        h1 { "Overview" }
        (as_of(overview.age))
        (numbers(page.visit, &overview.numbers))
        (overview.findings)
        (rates::show(page.visit, &overview.rates))
        (busiest(page.visit, &GROUP_COLUMNS, &groups))
        (fires(&COMING_COLUMNS, &coming))
        (overview.outboxes)
    })
}

/// Returns the numbers, each with a link to the rows it counts.
pub(super) fn numbers(visit: &Visit, numbers: &Numbers) -> Markup {
    let number = |name: &str, label: &str, link: String| {
        html! {
            a .number href=(link) { b { (live(name, &numbers.get(name))) } span { (label) } }
        }
    };
    let jobs = |state: &str| visit.link_with("jobs", &[("state", state)]);
    let failed = visit.link_with("jobs", &[("state", "failed"), ("within", "1 hour")]);
    let waits = |what: &str| visit.link_with("jobs", &[("state", "queued"), ("waits", what)]);
    html! {
        section .numbers aria-label="Numbers" {
            (number("running", "running", jobs("in_progress")))
            (number("ready", "ready", waits("worker")))
            (number("later", "due later", waits("time")))
            (number("blocked", "behind a key or manifest", waits("job")))
            (number("suspended", "suspended for a signal or jobs", waits("suspended")))
            (number("failed", "failed within the hour", failed))
            (number("dead", "dead letters", visit.link("dead")))
            (number("workers", "workers alive", visit.link_with("workers", &[("state", "alive")])))
        }
    }
}

pub(super) fn busiest(visit: &Visit, columns: &[&str], groups: &[Vec<Markup>]) -> Markup {
    html! {
        h2 { a href=(visit.link("groups")) { "Groups" } " with the most to do" }
        (table("Groups", columns, groups, "No job waits or runs."))
    }
}

pub(super) fn fires(columns: &[&str], coming: &[Vec<Markup>]) -> Markup {
    html! {
        h2 { "What fires next" }
        (table("What fires next", columns, coming, "No manifest is due by time."))
    }
}

impl Busy {
    fn read(page: &Page<'_>, row: &Row) -> Result<Self, Trouble> {
        let (visit, now) = (page.visit, page.reader.now);
        let name: String = row.try_get("name")?;
        let waiting: i64 = row.try_get("waiting")?;
        let running: i64 = row.try_get("running")?;
        let is_estimated: bool = row.try_get("estimated")?;
        let enabled: bool = row.try_get("enabled")?;
        let most: Option<i32> = row.try_get("max_active_jobs")?;
        let oldest: Option<Moment> = row.try_get("oldest")?;
        let is_late: bool = row.try_get("oldest_is_late")?;
        let jobs = |state| visit.link_with("jobs", &[("group", name.as_str()), ("state", state)]);
        let cells = vec![
            html! {
                a href=(visit.link_with("jobs", &[("group", name.as_str())])) { (name) }
                @if !enabled { " " span .state.bad { "paused" } }
            },
            html! {
                a href=(jobs("queued")) { @if is_estimated { "about " } (grouped(waiting)) }
            },
            since(oldest, is_late, now),
            html! {
                a href=(jobs("in_progress")) { (grouped(running)) }
                @if let Some(most) = most { " of " (grouped(most.into())) " " (share(running, most)) }
                @else { ", no limit" }
            },
        ];
        Ok(Busy {
            jobs: waiting + running,
            cells,
        })
    }
}

/// Returns the time since which the oldest ready job waits. `is_late`: another may be older.
pub(super) fn since(oldest: Option<Moment>, is_late: bool, now: Moment) -> Markup {
    html! {
        @if let Some(oldest) = oldest { (oldest.shown(now)) @if is_late { " or earlier" } }
    }
}

/// Returns a bar for the used part of a limit.
fn share(running: i64, most: i32) -> Markup {
    let width = (running * 60 / i64::from(most.max(1))).clamp(0, 60);
    html! {
        svg .share viewBox="0 0 60 8" aria-hidden="true" {
            rect .ground width="60" height="8" {}
            rect .(if width == 60 { "full" } else { "used" }) width=(width) height="8" {}
        }
    }
}

async fn coming(page: &Page<'_>) -> Result<Vec<Coming>, Trouble> {
    let rows = page.work.rows(NEXT, &[(&COMING, Type::INT8)]).await?;
    let read = |row: &Row| {
        let name: String = row.try_get("name")?;
        let at: Moment = row.try_get("next_run_at")?;
        let task: String = row.try_get("task")?;
        let jobs = page.visit.link_with("jobs", &[("task", task.as_str())]);
        let cells = vec![
            html! { a href=(page.visit.link(&manifest_path(&name))) { (name) } },
            html! { a href=(jobs) { (task) } },
            at.full(page.reader.now),
        ];
        Ok(Coming { at, cells })
    };
    rows.iter().map(read).collect()
}
