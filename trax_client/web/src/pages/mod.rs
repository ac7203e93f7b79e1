//! The pages. Each reads in one transaction, as the role of the person.

mod audit;
mod dead;
mod doctor;
mod export;
mod graph;
mod group;
mod job;
mod job_list;
pub(crate) mod manifest;
mod manifest_list;
mod overview;
mod rates;
mod token;
mod worker;

use std::sync::Arc;

use maud::{Markup, html};

use crate::dispatch::Shared;
use crate::glance::{Answer, Question, Start, glance};
use crate::layout::{self, Reader};
use crate::moment;
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::work::{Purpose, Work};

/// Rows of a page.
const ROWS: usize = 50;

/// What a page is made from.
struct Page<'p> {
    shared: &'p Arc<Shared>,
    visit: &'p Visit,
    work: &'p Work<'p>,
    reader: &'p Reader,
    start: Start,
}

impl Page<'_> {
    /// Returns the answer that all viewers of the role share.
    async fn glance(&self, question: Question) -> Result<Answer, Trouble> {
        glance(
            self.shared,
            &self.visit.person,
            self.work,
            self.start,
            question,
        )
        .await
    }
}

/// Begins to read for a person who may.
async fn begin<'s>(shared: &'s Shared, visit: &Visit) -> Result<(Work<'s>, Reader), Trouble> {
    let work = shared.pool.begin(&visit.person, Purpose::Read).await?;
    let reader = Reader::of(&work).await?;
    if reader.reads() {
        return Ok((work, reader));
    }
    Err(
        Trouble::forbidden(format!("role \"{}\" may not read trax", reader.role))
            .hint("As an admin of trax, type: trax grant ROLE reader"),
    )
}

/// Returns a document of manifests, as JSON.
pub(crate) async fn export(shared: &Shared, visit: &Visit) -> Result<String, Trouble> {
    let (work, _) = begin(shared, visit).await?;
    let document = export::document(&work, visit.query.get("manifest")).await?;
    work.commit().await?;
    Ok(document)
}

/// Returns the page that a path names.
pub(crate) async fn show(
    shared: &Arc<Shared>,
    visit: &Visit,
    words: &[&str],
) -> Result<Markup, Trouble> {
    let start = shared.glances.start();
    let (work, reader) = begin(shared, visit).await?;
    let page = Page {
        shared,
        start,
        visit,
        work: &work,
        reader: &reader,
    };
    let name;
    let (title, body) = match words {
        [""] => ("Overview", overview::show(&page).await?),
        ["jobs"] => ("Jobs", job_list::show(&page).await?),
        ["jobs", id] => {
            name = format!("Job {id}");
            (name.as_str(), job::show(&page, id).await?)
        }
        ["manifests"] => ("Manifests", manifest_list::show(&page).await?),
        ["manifests", manifest] => {
            name = decoded(manifest);
            (name.as_str(), manifest::show(&page, &name).await?)
        }
        ["groups"] => ("Groups", group::show(&page).await?),
        ["dead"] => ("Dead letters", dead::show(&page).await?),
        ["workers"] => ("Workers", worker::show(&page).await?),
        ["tokens"] => ("Tokens", token::show(&page).await?),
        ["doctor"] => ("Doctor", doctor::show(&page).await?),
        ["audit"] => ("Audit", audit::show(&page).await?),
        _ => return Err(Trouble::missing("there is no such page")),
    };
    let markup = layout::page(visit, &reader, title, &body);
    work.commit().await?;
    Ok(markup)
}

/// Returns the name in a part of a path.
fn decoded(word: &str) -> String {
    percent_encoding::percent_decode_str(word)
        .decode_utf8_lossy()
        .into_owned()
}

/// Returns the part of a path that names a manifest.
fn manifest_path(name: &str) -> String {
    let part: String = form_urlencoded::byte_serialize(name.as_bytes()).collect();
    format!("manifests/{}", part.replace('+', "%20"))
}

/// Returns how old the oldest of some answers is, if it was there before the page was asked for.
fn as_of(page: &Page<'_>, answers: &[&Answer]) -> Markup {
    let ages = answers.iter().filter_map(|answer| page.start.since(answer));
    let oldest = ages.max().map(|age| moment::length(age.as_secs_f64()));
    html! { @if let Some(age) = oldest { p .as-of { "as of " (age) " ago" } } }
}
