//! Pages that combine all shards: the overview adds up their numbers, a list has a part for each.

use std::cmp::Reverse;
use std::pin::Pin;

use axum::http::StatusCode;
use maud::{Markup, html};
use tokio_postgres::types::Type;

use super::overview::{self, BUSY, COMING, COMING_COLUMNS, GROUP_COLUMNS, Overview};
use super::rates::{self, Rates};
use super::{Page, as_of, begin, dead, decoded, doctor, head, list, refuse_unknown};
use crate::cluster::Shards;
use crate::layout::{self, Reader, button_of_all, table};
use crate::moment::Moment;
use crate::numbers::{NAMES, Numbers};
use crate::shared::Shared;
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::work::Purpose;

const JOB_PLACE: &str = include_str!("../query/job_place.sql");
const MANIFEST_PLACE: &str = include_str!("../query/manifest_place.sql");

type Reading<'p, T> = Pin<Box<dyn Future<Output = Result<T, Trouble>> + Send + 'p>>;

/// The answers of the shards.
struct Parts<T> {
    /// The answers by shard number, with the user's rights there.
    answers: Vec<(i32, Reader, T)>,
    /// The errors of the other shards.
    away: Vec<Trouble>,
}

impl<T> Parts<T> {
    /// Queries all shards concurrently as the user.
    async fn read(
        shards: &Shards,
        visit: &Visit,
        read: impl for<'p> Fn(&'p Page<'p>) -> Reading<'p, T> + Sync,
    ) -> Self {
        let read = &read;
        let asked = shards.each(|number, database| async move {
            let visit = visit.of_shard(number, &visit.path);
            let start = database.glances.start();
            let (work, reader) = begin(&database, &visit).await?;
            let answer = read(&Page {
                database: &database,
                start,
                visit: &visit,
                work: &work,
                reader: &reader,
            })
            .await?;
            work.commit().await?;
            Ok((reader, answer))
        });
        let mut parts = Parts {
            answers: Vec::new(),
            away: Vec::new(),
        };
        for (number, answer) in asked.await {
            match answer {
                Ok((reader, answer)) => parts.answers.push((number, reader, answer)),
                Err(trouble) => parts.away.push(trouble),
            }
        }
        parts
    }

    /// Returns whether the user may call a function on at least one shard.
    fn may(&self, visit: &Visit, function: &str) -> bool {
        let mut readers = self.answers.iter().map(|(_, reader, _)| reader);
        readers.any(|reader| reader.may(visit, function))
    }

    /// Returns notices about unavailable shards, with the reasons.
    fn notices(&self, shards: &Shards, router: Option<&str>) -> Markup {
        html! {
            @if let Some(why) = router {
                (notice("The router does not answer", Some(why), Some("The shards are those that it named last.")))
            }
            @for trouble in &self.away {
                (notice(&trouble.message, trouble.detail.as_deref(), trouble.hint.as_deref()))
            }
            @if shards.all.is_empty() {
                p { "The router has no shard. Type: select trax_router.add_shard(1, 'host=... dbname=...')" }
            }
        }
    }

    /// Returns the page in its frame: the router's or, if that does not answer, a shard's.
    fn framed(
        mut self,
        router: Option<Reader>,
        visit: &Visit,
        title: &str,
        body: &Markup,
    ) -> Result<Markup, Trouble> {
        let first = || (!self.answers.is_empty()).then(|| self.answers.swap_remove(0).1);
        match router.or_else(first) {
            Some(reader) => Ok(layout::page(visit, &reader, title, body)),
            None => Err(Trouble::unknown("neither the router nor a shard answers")),
        }
    }
}

fn notice(title: &str, detail: Option<&str>, hint: Option<&str>) -> Markup {
    html! {
        article .finding.bad {
            h2 { (title) }
            @if let Some(detail) = detail { p { (detail) } }
            @if let Some(hint) = hint { p .hint { (hint) } }
        }
    }
}

/// Returns the page of a path for all shards.
pub(crate) async fn show_all(
    shared: &Shared,
    shards: &Shards,
    visit: &Visit,
    words: &[&str],
) -> Result<Markup, Trouble> {
    let [name] = words else {
        return Err(Trouble::missing("there is no such page"));
    };
    refuse_unknown(visit, words)?;
    let (mut router, mut trouble) = (None, shards.trouble.clone());
    if trouble.is_none() {
        match reader(shared, visit).await {
            Ok(reader) => router = Some(reader),
            Err(away) if away.status == StatusCode::SERVICE_UNAVAILABLE => {
                trouble = Some(away.words());
            }
            Err(refusal) => return Err(refusal),
        }
    }
    let trouble = trouble.as_deref();
    if name.is_empty() {
        let parts = Parts::read(shards, visit, |page| Box::pin(overview::read(page))).await;
        let shown = layout::fresh(visit, &parts.overview(visit));
        let body = html! { h1 { "Overview" } (parts.notices(shards, trouble)) (shown) };
        return parts.framed(router, visit, "Overview", &body);
    }
    let (title, head) = head(visit, name)?;
    let parts = Parts::read(shards, visit, |page| Box::pin(list(page))).await;
    // A filter that one shard refuses, all refuse.
    if let Some(refusal) = parts
        .away
        .iter()
        .find(|away| away.status == StatusCode::BAD_REQUEST)
    {
        return Err(refusal.clone());
    }
    let may = |function: &str| parts.may(visit, function);
    let body = html! {
        (head)
        (parts.notices(shards, trouble))
        @match *name {
            "dead" => (dead::acts_on_all(visit, may, button_on_all)),
            "doctor" => (doctor::acts(visit, may, button_on_all)),
            _ => {}
        }
        @let shown = html! {
            @for (number, _, part) in &parts.answers { h2 { "Shard " (number) } (part) }
        };
        (layout::fresh(visit, &shown))
    };
    parts.framed(router, visit, title, &body)
}

fn button_on_all(visit: &Visit, act: &str, values: &[(&str, &str)], text: &str) -> Markup {
    button_of_all(visit, act, values, &format!("{text}, on all shards"))
}

/// Returns the user's rights at the router.
async fn reader(shared: &Shared, visit: &Visit) -> Result<Reader, Trouble> {
    let (work, reader) = begin(&shared.database, visit).await?;
    work.commit().await?;
    Ok(reader)
}

impl Parts<Overview> {
    fn overview(&self, visit: &Visit) -> Markup {
        let (mut numbers, mut rates) = (Numbers::default(), Rates::default());
        let (mut groups, mut coming, mut shown) = (Vec::new(), Vec::new(), Vec::new());
        let mut durations = Vec::new();
        for (number, reader, part) in &self.answers {
            numbers.add(part.numbers);
            rates.add(&part.rates);
            let of_shard = visit.of_shard(*number, "");
            let shard = || html! { a href=(of_shard.link("")) { (number) } };
            let placed = |cells: &[Markup]| [&[shard()], cells].concat();
            groups.extend(
                part.groups
                    .iter()
                    .map(|busy| (busy.jobs, placed(&busy.cells))),
            );
            coming.extend(part.coming.iter().map(|one| (one.at, placed(&one.cells))));
            let [p50, p95, p99] = part.rates.in_all();
            durations.push(vec![shard(), p50, p95, p99]);
            let mut cells = vec![shard(), html! { (reader.database) }];
            cells.extend(NAMES.map(|name| html! { (part.numbers.get(name)) }));
            shown.push(cells);
        }
        groups.sort_by_key(|(jobs, _)| Reverse(*jobs));
        coming.sort_by_key(|(at, _)| *at);
        let first = |count: i64| usize::try_from(count).unwrap_or(usize::MAX);
        let groups: Vec<_> = groups
            .into_iter()
            .take(first(BUSY))
            .map(|(_, cells)| cells)
            .collect();
        let coming: Vec<_> = coming
            .into_iter()
            .take(first(COMING))
            .map(|(_, cells)| cells)
            .collect();
        let columns = |columns: &[&'static str]| [&["shard"], columns].concat();
        html! {
            (as_of(self.answers.iter().filter_map(|(_, _, part)| part.age).max()))
            (overview::numbers(visit, &numbers))
            @for (number, _, part) in &self.answers {
                @if !part.findings.0.is_empty() { h2 { "Shard " (number) } (part.findings) }
            }
            h2 { "Shards" }
            (table("Shards", &columns(&[&["database"], NAMES.as_slice()].concat()), &shown, "No shard answers."))
            (rates::show(visit, &rates))
            h3 { "Durations of completed attempts, on each shard" }
            (table("Durations", &["shard", "p50", "p95", "p99"], &durations, "No shard answers."))
            (overview::busiest(visit, &columns(&GROUP_COLUMNS), &groups))
            (overview::fires(&columns(&COMING_COLUMNS), &coming))
            @for (number, _, part) in &self.answers {
                @if !part.outboxes.0.is_empty() { h2 { "Shard " (number) } (part.outboxes) }
            }
        }
    }
}

/// Returns the shard that has a job or a manifest: the one where it is live, otherwise the one
/// where it ended last.
pub(crate) async fn shard_that_has(
    shards: &Shards,
    visit: &Visit,
    kind: &str,
    name: &str,
) -> Result<i32, Trouble> {
    let name = decoded(name);
    let id: i64 = match kind {
        "jobs" => name
            .parse()
            .map_err(|_| Trouble::missing(format!("\"{name}\" is not a job")))?,
        _ => 0,
    };
    let name = name.as_str();
    let asked = shards.each(|_, database| async move {
        let work = database.pool.begin(&visit.person, Purpose::Read).await?;
        let rows = match kind {
            "jobs" => work.rows(JOB_PLACE, &[(&id, Type::INT8)]).await?,
            _ => work.rows(MANIFEST_PLACE, &[(&name, Type::TEXT)]).await?,
        };
        work.commit().await?;
        let found: Result<Vec<(bool, Moment)>, Trouble> = rows
            .iter()
            .map(|row| Ok((row.try_get("lives")?, row.try_get("since")?)))
            .collect();
        Ok(found?.into_iter().max())
    });
    let (mut found, mut away) = (None, None);
    for (number, answer) in asked.await {
        match answer {
            Ok(place) => found = found.max(place.map(|place| (place, number))),
            Err(trouble) => away = away.or(Some(trouble)),
        }
    }
    match (found, away) {
        (Some((_, number)), _) => Ok(number),
        (None, Some(trouble)) => Err(trouble),
        (None, None) => {
            let kind = kind.trim_end_matches('s');
            Err(Trouble::missing(format!("there is no {kind} \"{name}\"")))
        }
    }
}
