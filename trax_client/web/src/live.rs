//! Live numbers: one statement for all viewers; at a router, one per shard.
//!
//! Invariants: the database is queried only while there are viewers, and never concurrently. If it
//! does not answer, viewers are notified that the numbers are unknown, and old numbers are not sent
//! again.

use std::sync::Arc;
use std::time::Instant;

use axum::http::StatusCode;
use axum::response::Response;

use crate::cluster::Shards;
use crate::database::Database;
use crate::identity::Person;
use crate::layout::Reader;
use crate::numbers::{LIVE, News, Numbers, sum};
use crate::shared::Shared;
use crate::trouble::Trouble;
use crate::viewers::RECHECK;
use crate::visit::Visit;
use crate::work::Purpose;

/// Returns the stream of one database for a viewer whose role may read it.
pub(crate) async fn of_database(
    shared: &Arc<Shared>,
    database: &Arc<Database>,
    visit: &Visit,
) -> Result<Response, Trouble> {
    database.viewers.check()?;
    check_reader(database, &visit.person).await?;
    let asked = Arc::clone(database);
    let news = move || {
        let asked = Arc::clone(&asked);
        async move {
            let numbers = ask(&asked).await.ok()?;
            let away = Vec::new();
            Some(News { numbers, away })
        }
    };
    let (shared, asked, person) = (
        Arc::clone(shared),
        Arc::clone(database),
        visit.person.clone(),
    );
    let may_look = move || {
        let (shared, database, person) = (shared.clone(), asked.clone(), person.clone());
        async move { shared.identity().knows(&person) && may_read(&database, &person).await }
    };
    Ok(database.viewers.stream(news, may_look))
}

/// Returns the stream of all shards together for a viewer whose role may read all that answer.
pub(crate) async fn of_shards(
    shared: &Arc<Shared>,
    shards: &Shards,
    visit: &Visit,
) -> Result<Response, Trouble> {
    let viewers = &shared.database.viewers;
    viewers.check()?;
    let checked = shards.each(|_, shard| async move { check_reader(&shard, &visit.person).await });
    let checked: Vec<_> = checked
        .await
        .into_iter()
        .map(|(_, answer)| answer)
        .collect();
    // The sum is shown only to viewers who may read every shard in it. Unavailable shards are not
    // in it.
    let away = StatusCode::SERVICE_UNAVAILABLE;
    let is_read = checked.iter().any(Result::is_ok);
    let mut refusals = checked.into_iter().filter_map(Result::err);
    if let Some(refusal) = refusals.find(|trouble| !is_read || trouble.status != away) {
        return Err(refusal);
    }
    if !is_read {
        return Err(Trouble::missing("the router has no shard"));
    }
    let asked = Arc::clone(shared);
    let news = move || {
        let shared = Arc::clone(&asked);
        async move {
            let shards = shared.cluster.shards().await.ok()??;
            let asked = shards.each(|_, shard| async move { ask(&shard).await });
            sum(asked.await)
        }
    };
    let (asked, person) = (Arc::clone(shared), visit.person.clone());
    let may_look = move || {
        let (shared, person) = (asked.clone(), person.clone());
        async move {
            let Ok(Some(shards)) = shared.cluster.shards().await else {
                return true;
            };
            let person = &person;
            let read = shards.each(|_, shard| async move { Ok(may_read(&shard, person).await) });
            let read = read.await.into_iter().all(|(_, read)| read.unwrap_or(true));
            read && shared.identity().knows(person)
        }
    };
    Ok(viewers.stream(news, may_look))
}

/// Checks that the viewer may count the rows. While the database is unavailable this is unknown.
async fn check_reader(database: &Database, person: &Person) -> Result<(), Trouble> {
    let work = database.pool.begin(person, Purpose::Read).await?;
    let reader = Reader::of(&work).await?;
    work.commit().await?;
    if reader.reads() {
        return Ok(());
    }
    Err(Trouble::forbidden(format!(
        "role \"{}\" may not read trax",
        reader.role
    )))
}

/// Returns whether a role may still read. Checked once for all viewers of the role.
async fn may_read(database: &Database, person: &Person) -> bool {
    let mut readers = database.readers.lock().await;
    if let Some((asked, may)) = readers.get(&person.role)
        && asked.elapsed() < RECHECK
    {
        return *may;
    }
    // While the database is unavailable the right is unknown, but no numbers are sent either.
    let may = match check_reader(database, person).await {
        Ok(()) => true,
        Err(trouble) => trouble.status == StatusCode::SERVICE_UNAVAILABLE,
    };
    readers.insert(person.role.clone(), (Instant::now(), may));
    may
}

async fn ask(database: &Database) -> Result<Numbers, Trouble> {
    let answer = database.glances.ask(&Person::default(), LIVE).await?;
    Numbers::of(&answer.rows)
}
