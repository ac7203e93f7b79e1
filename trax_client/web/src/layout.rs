//! The frame of every page, and the elements that pages are built from.

use maud::{DOCTYPE, Markup, html};
use trax_terminal::text::steers;

use crate::moment::Moment;
use crate::trouble::Trouble;
use crate::visit::{Place, Visit};
use crate::work::Work;

const READER: &str = include_str!("query/reader.sql");

/// The functions that buttons call.
pub(crate) const FUNCTIONS: [&str; 16] = [
    "acknowledge_dead_letter",
    "cancel",
    "configure_group",
    "disable_manifest",
    "enable_manifest",
    "enqueue",
    "enqueue_sql",
    "fork",
    "pause",
    "requeue_dead_letter",
    "resume",
    "run_now",
    "schedule",
    "send_signal",
    "status",
    "trigger",
];

/// The pages, in the order of the navigation.
const PAGES: [(&str, &str); 9] = [
    ("", "Overview"),
    ("jobs", "Jobs"),
    ("manifests", "Manifests"),
    ("groups", "Groups"),
    ("dead", "Dead letters"),
    ("workers", "Workers"),
    ("tokens", "Tokens and rates"),
    ("doctor", "Doctor"),
    ("audit", "Audit"),
];

/// The database's and the user's properties, as far as a page needs them.
pub(crate) struct Reader {
    pub(crate) role: String,
    pub(crate) database: String,
    pub(crate) now: Moment,
    standby: bool,
    functions: Vec<String>,
}

impl Reader {
    pub(crate) async fn of(work: &Work<'_>) -> Result<Self, Trouble> {
        let functions: Vec<&str> = FUNCTIONS.to_vec();
        let kind = tokio_postgres::types::Type::TEXT_ARRAY;
        let rows = work.rows(READER, &[(&functions, kind)]).await?;
        let row = rows
            .first()
            .ok_or_else(|| Trouble::unknown("no row came back"))?;
        Ok(Reader {
            role: row.try_get("role")?,
            database: row.try_get("database")?,
            now: row.try_get("now")?,
            standby: row.try_get("standby")?,
            functions: row.try_get("functions")?,
        })
    }

    /// Returns whether the role may read the tables that the pages show.
    pub(crate) fn reads(&self) -> bool {
        self.functions.iter().any(|name| name == "status")
    }

    /// Returns whether the role may call a function, and the server accepts writes.
    pub(crate) fn may(&self, visit: &Visit, function: &str) -> bool {
        visit.read_only.is_none()
            && !self.standby
            && self.functions.iter().any(|name| name == function)
    }
}

/// Returns a page in its frame.
pub(crate) fn page(visit: &Visit, reader: &Reader, title: &str, body: &Markup) -> Markup {
    let first = visit.path.split('/').next().unwrap_or_default();
    let top = html! {
        nav aria-label="Pages" {
            @for (path, name) in PAGES {
                a href=(visit.link(path)) aria-current=[(path == first).then_some("page")] { (name) }
            }
        }
        @if let Some(place) = &visit.place { (shards(visit, place)) }
        p .who {
            @if let Some(shard) = visit.place.as_ref().and_then(|place| place.shard) { "Shard " (shard) ", " }
            (reader.database) " as "
            @if let Some(person) = &visit.person.name { (person) ", role " }
            (reader.role)
            @if reader.standby { ", a standby: nothing can be changed here" }
            ", at " (reader.now.full(reader.now))
        }
        @if let Some(why) = visit.read_only { p .note { (why) } }
    };
    frame(
        visit,
        &format!("{title} · {}", reader.database),
        Some(&top),
        body,
    )
}

/// Returns links to the same page for all shards and for each shard.
fn shards(visit: &Visit, place: &Place) -> Markup {
    let link = |shard: Option<i32>, text: &str| {
        html! {
            a href=(visit.link_elsewhere(place, shard))
                aria-current=[(place.shard == shard).then_some("true")] { (text) }
        }
    };
    html! {
        nav aria-label="Shards" {
            (link(None, "All shards"))
            @for shard in &place.shards { (link(Some(*shard), &format!("Shard {shard}"))) }
        }
    }
}

/// Returns a page without information from the database.
pub(crate) fn bare(visit: &Visit, title: &str, body: &Markup) -> Markup {
    let top = html! { nav aria-label="Pages" { a href=(visit.link("")) { "Overview" } } };
    frame(
        visit,
        title,
        Some(&top).filter(|_| !visit.token.is_empty()),
        body,
    )
}

fn frame(visit: &Visit, title: &str, top: Option<&Markup>, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { (title) " · trax" }
                link rel="stylesheet" href=(visit.site_link("style.css"));
                link rel="icon" href="data:,";
                script src=(visit.site_link("script.js")) defer {}
            }
            body data-live=(visit.link("live")) data-base=(visit.site_link("")) {
                a .skip href="#main" { "To the content" }
                header { @if let Some(top) = top { (top) } }
                p #unknown role="status" hidden {}
                main #main { (body) }
            }
        }
    }
}

/// Returns a part of a page that the script renews while nobody reads backwards, selects or types
/// in it.
pub(crate) fn fresh(visit: &Visit, part: &Markup) -> Markup {
    // A position in a list is a look at the past, and the check of all invariants is expensive.
    let is_still = ["before", "after", "check"]
        .iter()
        .any(|name| visit.query.get(name).is_some());
    let seconds = if visit.path.is_empty() { "5" } else { "10" };
    html! { div #fresh data-seconds=[(!is_still).then_some(seconds)] { (part) } }
}

/// Returns a list of which rows can be selected, with the acts on those: the name of each, and its
/// text.
pub(crate) fn selection(visit: &Visit, acts: &[(&str, &str)], list: &Markup) -> Markup {
    html! {
        @if acts.is_empty() { (list) }
        @else {
            form .selection method="get" {
                (list)
                p .together {
                    "Selected rows: "
                    @for (act, text) in acts {
                        button type="submit" formaction=(visit.link(&format!("act/{act}"))) { (text) }
                        " "
                    }
                }
            }
        }
    }
}

/// Returns the box that selects a row.
pub(crate) fn pick(name: &str, value: &str, what: &str) -> Markup {
    html! { input type="checkbox" name=(name) value=(value) aria-label={ "Select " (what) " " (value) }; }
}

/// Returns a table. `head` has a class for columns of numbers.
pub(crate) fn table(caption: &str, head: &[&str], rows: &[Vec<Markup>], empty: &str) -> Markup {
    if rows.is_empty() {
        return html! { p .empty { (empty) } };
    }
    html! {
        div .wide tabindex="0" role="region" aria-label=(caption) {
            table {
                thead { tr { @for name in head { th scope="col" { (name) } } } }
                tbody {
                    @for row in rows {
                        tr { @for (cell, name) in row.iter().zip(head) { td data-label=(name) { div { (cell) } } } }
                    }
                }
            }
        }
    }
}

/// Returns names and values, without those that have no value.
pub(crate) fn facts(facts: &[(&str, Option<Markup>)]) -> Markup {
    html! {
        dl {
            @for (name, value) in facts {
                @if let Some(value) = value.as_ref().filter(|value| !value.0.is_empty()) {
                    dt { (name) } dd { (value) }
                }
            }
        }
    }
}

/// Returns a link to an act on a group or database, on all its shards.
pub(crate) fn button_of_all(
    visit: &Visit,
    act: &str,
    values: &[(&str, &str)],
    text: &str,
) -> Markup {
    let link = visit.site_link_with(&format!("act/{act}"), values);
    html! { a .button href=(link) { (text) } }
}

/// Returns a link to the confirmation page of an act.
pub(crate) fn button(visit: &Visit, act: &str, values: &[(&str, &str)], text: &str) -> Markup {
    html! { a .button href=(visit.link_with(&format!("act/{act}"), values)) { (text) } }
}

/// Returns a state as a coloured word.
pub(crate) fn state(name: &str) -> Markup {
    let class = match name {
        "completed" | "running" | "idle" => "good",
        "failed" | "gone" | "awaiting_intervention" => "bad",
        "in_progress" => "busy",
        _ => "plain",
    };
    html! { span .state .(class) { (name.replace('_', " ")) } }
}

/// Returns text unchanged, except that invisible characters and those that change the reading order
/// are shown by their code point.
pub(crate) fn verbatim(text: &str) -> Markup {
    let is_hidden = |c: char| steers(c) && !matches!(c, '\n' | '\r' | '\t');
    let parts = text.split_inclusive(is_hidden);
    html! {
        pre tabindex="0" {
            @for part in parts {
                @match part.chars().next_back().filter(|&c| is_hidden(c)) {
                    Some(c) => {
                        (part[..part.len() - c.len_utf8()])
                        mark { "U+" (format!("{:04X}", u32::from(c))) }
                    }
                    None => (part),
                }
            }
        }
    }
}

/// Returns the text, or nothing.
pub(crate) fn text(value: Option<&str>) -> Markup {
    html! { @if let Some(value) = value { (value) } }
}

/// Returns a number that the live stream updates.
pub(crate) fn live(name: &str, value: &str) -> Markup {
    html! { span data-number=(name) { (value) } }
}

#[cfg(test)]
mod tests {
    use super::verbatim;

    #[test]
    fn a_character_that_turns_the_text_around_it_is_shown_by_its_number() {
        let shown = |text| verbatim(text).into_string();
        assert_eq!(
            shown("'pay \u{202e}eet\u{202c} <b>'\n\tשלום"),
            "<pre tabindex=\"0\">'pay <mark>U+202E</mark>eet<mark>U+202C</mark> &lt;b&gt;'\n\tשלום</pre>"
        );
        assert_eq!(shown("\0"), "<pre tabindex=\"0\"><mark>U+0000</mark></pre>");
    }
}
