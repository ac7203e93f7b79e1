//! From a path to its page or act: in one database, or at a router in its shards.
//!
//! The pages of a *shard* are those of one database, under `shards/N`. Without a number the page
//! combines all shards: a list has a part for each. An act is performed on each shard
//! independently.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use maud::Markup;
use tokio_postgres::types::Type;

use crate::acts::{self, Scope, Target};
use crate::cluster::{Home, Shard, Shards};
use crate::database::Database;
use crate::response::{file, page, redirect};
use crate::shared::Shared;
use crate::trouble::Trouble;
use crate::visit::{Place, Values, Visit};
use crate::work::{Purpose, Work};
use crate::{live, pages};

const SHARDS_OF_GROUP: &str = include_str!("query/group_shards.sql");

/// Returns the page of a path.
pub(crate) async fn show(shared: &Arc<Shared>, visit: &mut Visit) -> Result<Response, Trouble> {
    match enter(shared, visit).await? {
        Some(shards) => show_at_router(shared, &shards, visit).await,
        None => show_in(shared, &shared.database, shared.home(None), visit).await,
    }
}

/// Performs the act of a form.
pub(crate) async fn act(
    shared: &Arc<Shared>,
    visit: &mut Visit,
    form: &Values,
) -> Result<Response, Trouble> {
    match enter(shared, visit).await? {
        Some(shards) => act_at_router(shared, &shards, visit, form).await,
        None => act_in(&shared.database, shared.home(None), visit, form).await,
    }
}

/// Returns the shards if the address is a router's, and records them in the visit.
async fn enter(shared: &Shared, visit: &mut Visit) -> Result<Option<Shards>, Trouble> {
    let shards = shared.cluster.shards().await?;
    if let Some(shards) = &shards {
        visit.place = Some(Place {
            home: visit.base.clone(),
            shards: shards.all.iter().map(|shard| shard.number).collect(),
            shard: None,
        });
    }
    Ok(shards)
}

/// Returns the page of a path in one database.
async fn show_in(
    shared: &Arc<Shared>,
    database: &Arc<Database>,
    home: Home<'_>,
    visit: &Visit,
) -> Result<Response, Trouble> {
    let targets = [Target::only(database, home)];
    match visit.words().as_slice() {
        ["export"] => Ok(file(pages::export(database, visit).await?)),
        ["live"] => live::of_database(shared, database, visit).await,
        ["act", name] => Ok(page(acts::ask(&targets, visit, name).await?)),
        words => Ok(page(pages::show(database, visit, words).await?)),
    }
}

/// Performs the act of a form in one database.
async fn act_in(
    database: &Arc<Database>,
    home: Home<'_>,
    visit: &Visit,
    form: &Values,
) -> Result<Response, Trouble> {
    let name = visit.act()?;
    let targets = [Target::only(database, home)];
    acts::perform(&targets, visit, name, form)
        .await
        .map(with_status)
}

/// Returns the shard that a path names, and the rest of the path.
fn split<'s>(shards: &'s Shards, path: &str) -> Result<Option<(&'s Shard, String)>, Trouble> {
    let mut words = path.splitn(3, '/');
    let (Some("shards"), Some(number)) = (words.next(), words.next()) else {
        return Ok(None);
    };
    let number = number
        .parse()
        .map_err(|_| Trouble::missing("there is no such page"))?;
    let rest = words.next().unwrap_or_default().to_owned();
    shards.find(number).map(|shard| Some((shard, rest)))
}

/// Returns the page of a path at a router: of the shard in the path, or of all shards.
async fn show_at_router(
    shared: &Arc<Shared>,
    shards: &Shards,
    visit: &mut Visit,
) -> Result<Response, Trouble> {
    if let Some((shard, path)) = split(shards, &visit.path)? {
        let home = std::mem::replace(visit, visit.of_shard(shard.number, &path));
        let shown = show_in(shared, shard.database()?, shared.home(Some(shards)), visit).await;
        return match (shown, visit.words().as_slice()) {
            // Its group may have moved to another shard.
            (Err(trouble), ["jobs", id]) if trouble.status == StatusCode::NOT_FOUND => {
                redirect(&home.link(&format!("jobs/{id}")))
            }
            (shown, _) => shown.map_err(|trouble| trouble.of_shard(shard.number)),
        };
    }
    match visit.words().as_slice() {
        ["live"] => live::of_shards(shared, shards, visit).await,
        ["act", name] => {
            let targets = targets(shared, shards, visit, name, &visit.query).await?;
            Ok(page(acts::ask(&targets, visit, name).await?))
        }
        [kind @ ("jobs" | "manifests"), name] => {
            let shard = pages::shard_that_has(shards, visit, kind, name).await?;
            redirect(&format!("{}/shards/{shard}/{}", visit.base, visit.path))
        }
        words => Ok(page(pages::show_all(shared, shards, visit, words).await?)),
    }
}

/// Performs the act of a form at a router: on the shard in the path, or on all shards that it
/// concerns.
async fn act_at_router(
    shared: &Arc<Shared>,
    shards: &Shards,
    visit: &mut Visit,
    form: &Values,
) -> Result<Response, Trouble> {
    if let Some((shard, path)) = split(shards, &visit.path)? {
        *visit = visit.of_shard(shard.number, &path);
        let done = act_in(shard.database()?, shared.home(Some(shards)), visit, form).await;
        shards.forget();
        return done.map_err(|trouble| trouble.of_shard(shard.number));
    }
    let name = visit.act()?;
    let targets = targets(shared, shards, visit, name, form).await?;
    acts::perform(&targets, visit, name, form)
        .await
        .map(with_status)
}

fn with_status((status, markup): (StatusCode, Markup)) -> Response {
    let mut response = page(markup);
    *response.status_mut() = status;
    response
}

/// Returns the shards on which the act is performed.
async fn targets<'s>(
    shared: &'s Shared,
    shards: &'s Shards,
    visit: &Visit,
    name: &str,
    values: &Values,
) -> Result<Vec<Target<'s>>, Trouble> {
    let home = shared.home(Some(shards));
    let target = |shard: &'s Shard| Target::of(shard.number, shard.database(), home);
    match acts::scope(name)? {
        Scope::Database => Ok(shards.all.iter().map(target).collect()),
        Scope::Row => Err(Trouble::invalid("this is done on the page of one shard")),
        Scope::Group => {
            let group = values.get("group");
            let work = shared
                .database
                .pool
                .begin(&visit.person, Purpose::Read)
                .await?;
            let numbers = group_shards(&work, group).await?;
            work.commit().await?;
            numbers
                .into_iter()
                .map(|number| Ok(target(shards.find(number)?)))
                .collect()
        }
    }
}

async fn group_shards(work: &Work<'_>, group: Option<&str>) -> Result<Vec<i32>, Trouble> {
    let rows = work.rows(SHARDS_OF_GROUP, &[(&group, Type::TEXT)]).await?;
    let number = |row: &tokio_postgres::Row| Ok(row.try_get("number")?);
    rows.iter().map(number).collect()
}
