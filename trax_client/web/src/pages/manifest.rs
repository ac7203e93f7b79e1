//! A manifest: its times, the reasons why it does or does not run now, and its last attempts.

use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::manifest_list::{next, schedule};
use super::reason::reasons;
use super::{Page, graph, manifest_path};
use crate::layout::{button, facts, state, table, text, verbatim};
use crate::moment::{Moment, length};
use crate::preview::next_times;
use crate::trouble::Trouble;

const SHOW: &str = include_str!("../query/manifest_show.sql");
const RUNS: &str = include_str!("../query/manifest_runs.sql");
const EXPLAIN: &str = include_str!("../query/manifest_explain.sql");

pub(super) async fn show(page: &Page<'_>, name: &str) -> Result<Markup, Trouble> {
    let (visit, reader) = (page.visit, page.reader);
    let rows = page.work.rows(SHOW, &[(&name, Type::TEXT)]).await?;
    let Some(row) = rows.first() else {
        return Err(Trouble::missing(format!("there is no manifest \"{name}\"")));
    };
    let id: i64 = row.try_get("manifest_id")?;
    let task: String = row.try_get("task")?;
    let group: String = row.try_get("group_name")?;
    let enabled: bool = row.try_get("enabled")?;
    let run_as: Option<String> = row.try_get("run_as")?;
    let input: Option<String> = row.try_get("input")?;
    let parents: Vec<String> = row.try_get("parents")?;
    let children: Vec<String> = row.try_get("children")?;
    let manifest = [("manifest", name)];
    let (cron, every): (Option<String>, Option<String>) =
        (row.try_get("cron")?, row.try_get("every")?);
    let zone: String = row.try_get("timezone")?;
    let zone = cron.as_ref().map(|_| zone);
    let now = [("cron", &cron), ("every", &every), ("timezone", &zone)];
    let now = now
        .iter()
        .filter_map(|(field, value)| Some((*field, value.as_deref()?)));
    let times: Vec<(&str, &str)> = manifest.into_iter().chain(now).collect();
    let names = |names: &[String]| {
        (!names.is_empty()).then(|| {
            html! {
                @for name in names { a href=(visit.link(&manifest_path(name))) { (name) } " " }
            }
        })
    };
    Ok(html! {
        h1 { (name) }
        p {
            @if reader.may(visit, "trigger") { (button(visit, "trigger", &manifest, "Trigger")) " " }
            @if reader.may(visit, "schedule") { (button(visit, "reschedule", &times, "Change its times")) " " }
            @if enabled && reader.may(visit, "disable_manifest") { (button(visit, "disable", &manifest, "Disable")) }
            @if !enabled && reader.may(visit, "enable_manifest") { (button(visit, "enable", &manifest, "Enable")) }
            " " a href=(visit.link_with("export", &manifest)) { "Export" }
        }
        (facts(&[
            ("schedule", Some(html! { (schedule(row)?) })),
            ("fires", Some(next(row, reader.now)?)),
            ("task", Some(html! { a href=(visit.link_with("jobs", &[("task", task.as_str())])) { (task) } })),
            ("group", Some(html! { a href=(visit.link_with("jobs", &[("group", group.as_str())])) { (group) } })),
            ("runs as", run_as.map(|role| html! { (role) })),
            ("after", names(&parents)),
            ("before", names(&children)),
        ]))
        (reasons(page, "Why it does or does not run now", EXPLAIN, (&name, Type::TEXT)).await?)
        (graph::show(page, name).await?)
        (coming(page, name).await?)
        (lately(page, id).await?)
        @if let Some(input) = &input { h2 { "Input" } (verbatim(input)) }
    })
}

async fn coming(page: &Page<'_>, name: &str) -> Result<Markup, Trouble> {
    Ok(html! {
        h2 { "Its next ten times" }
        (next_times(page.work, name, page.reader.now).await?)
    })
}

async fn lately(page: &Page<'_>, id: i64) -> Result<Markup, Trouble> {
    let most = 30_i64;
    let rows = page
        .work
        .rows(RUNS, &[(&id, Type::INT8), (&most, Type::INT8)])
        .await?;
    let mut bars: Vec<(String, f64)> = Vec::new();
    let mut shown = Vec::new();
    for row in &rows {
        let job: i64 = row.try_get("job_id")?;
        let attempt: i32 = row.try_get("attempt")?;
        let is: String = row.try_get("state")?;
        let started: Option<Moment> = row.try_get("started_at")?;
        let ended: Moment = row.try_get("finished_at")?;
        let error: Option<String> = row.try_get("error")?;
        let took = started.and_then(|at| ended.seconds_since(at));
        bars.push((is.clone(), took.unwrap_or(0.0)));
        shown.push(vec![
            html! { a href=(page.visit.link(&format!("jobs/{job}"))) { (job) } },
            html! { (attempt) },
            state(&is),
            ended.shown(page.reader.now),
            html! { @if let Some(took) = took { (length(took)) } },
            text(error.as_deref()),
        ]);
    }
    let longest = bars.iter().map(|bar| bar.1).fold(0.001, f64::max);
    let head = ["job", "attempt", "state", "ended", "took", "error"];
    Ok(html! {
        h2 { "Its last attempts" }
        @if !bars.is_empty() {
            svg .bars viewBox="0 0 300 40" role="img"
                aria-label=(format!("{} attempts, the longest {}", bars.len(), length(longest))) {
                @for (i, (is, took)) in bars.iter().rev().enumerate() {
                    @let height = (took / longest * 36.0).max(3.0);
                    rect .(is) x=(i * 10) y=(format!("{:.1}", 40.0 - height)) width="8"
                        height=(format!("{height:.1}")) { title { (is) " after " (length(*took)) } }
                }
            }
        }
        (table("Its last attempts", &head, &shown, "None yet."))
    })
}
