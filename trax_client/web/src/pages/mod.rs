//! The pages. Each is read in one transaction as the user's role; for all shards of a cluster, in
//! one per shard.

mod all;
mod audit;
mod calendar;
mod chart;
mod children;
mod dead;
mod doctor;
mod export;
mod graph;
mod group;
mod job;
mod job_graph;
mod job_list;
mod manifest;
mod manifest_list;
mod outbox;
mod overview;
mod rates;
mod reason;
mod steps;
mod token;
mod worker;

use std::sync::Arc;
use std::time::Duration;

use maud::{Markup, html};

use crate::database::Database;
use crate::glance::{Answer, Question, Start};
use crate::layout::{self, Reader};
use crate::moment;
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::work::{Purpose, Work};

pub(crate) use all::{shard_that_has, show_all};

/// The number of rows on a page.
const ROWS: usize = 50;

/// The context in which a page is built.
struct Page<'p> {
    database: &'p Arc<Database>,
    visit: &'p Visit,
    work: &'p Work<'p>,
    reader: &'p Reader,
    start: Start,
}

impl Page<'_> {
    /// Returns an answer shared by all viewers of the role.
    async fn glance(&self, question: Question) -> Result<Answer, Trouble> {
        let glances = &self.database.glances;
        glances
            .glance(&self.visit.person, self.work, self.start, question)
            .await
    }
}

/// Begins a transaction for reading. Fails if the user may not read.
async fn begin<'d>(database: &'d Database, visit: &Visit) -> Result<(Work<'d>, Reader), Trouble> {
    let work = database.pool.begin(&visit.person, Purpose::Read).await?;
    let reader = Reader::of(&work).await?;
    if reader.reads() {
        return Ok((work, reader));
    }
    Err(
        Trouble::forbidden(format!("role \"{}\" may not read trax", reader.role)).hint(format!(
            "As an admin of trax, type: trax grant ROLE reader{}",
            trax_client::Access::KEEPS_BOTH
        )),
    )
}

/// Returns a document of manifests, as JSON.
pub(crate) async fn export(database: &Database, visit: &Visit) -> Result<String, Trouble> {
    let (work, _) = begin(database, visit).await?;
    let document = export::document(&work, visit.query.get("manifest")).await?;
    work.commit().await?;
    Ok(document)
}

/// Returns the page of a path.
pub(crate) async fn show(
    database: &Arc<Database>,
    visit: &Visit,
    words: &[&str],
) -> Result<Markup, Trouble> {
    let start = database.glances.start();
    let (work, reader) = begin(database, visit).await?;
    let page = Page {
        database,
        start,
        visit,
        work: &work,
        reader: &reader,
    };
    refuse_unknown(visit, words)?;
    let name;
    let (title, body) = match words {
        [""] => {
            let shown = overview::show(&page).await?;
            ("Overview", layout::fresh(visit, &shown))
        }
        ["jobs", id] => {
            name = format!("Job {id}");
            let shown = job::show(&page, id).await?;
            (name.as_str(), layout::fresh(visit, &shown))
        }
        ["manifests", manifest] => {
            name = decoded(manifest);
            let shown = manifest::show(&page, &name).await?;
            (name.as_str(), layout::fresh(visit, &shown))
        }
        [list] => {
            let (title, head) = head(visit, list)?;
            let shown = self::list(&page).await?;
            (title, html! { (head) (layout::fresh(visit, &shown)) })
        }
        _ => return Err(Trouble::missing("there is no such page")),
    };
    let markup = layout::page(visit, &reader, title, &body);
    work.commit().await?;
    Ok(markup)
}

/// Refuses a query with a name that the page does not have: a filter with a mistake in its name
/// would show every row.
fn refuse_unknown(visit: &Visit, words: &[&str]) -> Result<(), Trouble> {
    let jobs = job_list::names();
    let known: &[&str] = match words {
        [""] => &["charts"],
        ["jobs"] => &jobs,
        ["dead"] => &dead::NAMES,
        ["manifests"] => &["task", "group", "after"],
        ["groups"] => &["after"],
        ["workers"] => &["state"],
        ["doctor"] => &["check"],
        ["audit"] | ["jobs", _] => &["before"],
        _ => &[],
    };
    let Some(name) = visit.query.names().find(|name| !known.contains(name)) else {
        return Ok(());
    };
    let hint = match known {
        [] => "Leave it out: this page has none.".to_owned(),
        known => format!("Use one of: {}", known.join(", ")),
    };
    Err(Trouble::invalid(format!("this page has no filter \"{name}\"")).hint(hint))
}

/// Returns the title of a list, and the part above it.
fn head(visit: &Visit, list: &str) -> Result<(&'static str, Markup), Trouble> {
    let plain = |title: &'static str| Ok((title, html! { h1 { (title) } }));
    match list {
        "jobs" => Ok(("Jobs", job_list::head(visit)?)),
        "dead" => Ok(("Dead letters", dead::head(visit)?)),
        "manifests" => plain("Manifests"),
        "groups" => plain("Groups"),
        "workers" => Ok(("Workers", worker::head(visit)?)),
        "tokens" => plain("Tokens and rates"),
        "doctor" => plain("Doctor"),
        "audit" => plain("Audit"),
        _ => Err(Trouble::missing("there is no such page")),
    }
}

/// Returns the list of a path.
async fn list(page: &Page<'_>) -> Result<Markup, Trouble> {
    match page.visit.path.as_str() {
        "jobs" => job_list::list(page).await,
        "dead" => dead::list(page).await,
        "manifests" => manifest_list::list(page).await,
        "groups" => group::list(page).await,
        "workers" => worker::list(page).await,
        "tokens" => token::list(page).await,
        "doctor" => doctor::list(page).await,
        "audit" => audit::list(page).await,
        _ => Err(Trouble::missing("there is no such page")),
    }
}

/// Decodes a name in a path segment.
fn decoded(word: &str) -> String {
    percent_encoding::percent_decode_str(word)
        .decode_utf8_lossy()
        .into_owned()
}

/// Returns the path of a manifest.
fn manifest_path(name: &str) -> String {
    let part: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("manifests/{}", part.replace('+', "%20"))
}

/// Returns the path of a dead letter.
fn letter_path(id: i64) -> String {
    format!("dead?status=any&id={id}")
}

/// Returns the age of the oldest of some answers that are older than the page.
fn age(page: &Page<'_>, answers: &[&Answer]) -> Option<Duration> {
    answers
        .iter()
        .filter_map(|answer| page.start.since(answer))
        .max()
}

fn as_of(age: Option<Duration>) -> Markup {
    let age = age.map(|age| moment::length(age.as_secs_f64()));
    html! { @if let Some(age) = age { p .as-of { "as of " (age) " ago" } } }
}
