//! Acts: a page shows the statement and asks for the reason, then the act is performed; in a
//! cluster on one shard, or on several independently.
//!
//! Invariants: each act is one call of a public function in its own transaction, as the user's
//! role. `trax.audit` has the user's name and reason in its column `program`.

mod list;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use maud::{Markup, html};
use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};
use trax_terminal::EndedJob;

use crate::cluster::Home;
use crate::database::Database;
use crate::layout::{self, Reader};
use crate::preview::next_times;
use crate::trouble::Trouble;
use crate::visit::{Values, Visit};
use crate::work::Purpose;
use list::{AGAIN, Act, REQUEUE_MANY, find, typed};
pub(crate) use list::{Scope, scope};

/// The average number of jobs per second that requeueing of many may queue.
const REQUEUED_A_SECOND: f64 = 100.0;

/// A database in which an act is performed.
pub(crate) struct Target<'d> {
    /// The number of the shard, for acts on several.
    shard: Option<i32>,
    /// The database, or the reason why it is unavailable.
    database: Result<&'d Arc<Database>, Trouble>,
    home: Home<'d>,
}

impl<'d> Target<'d> {
    /// Returns a target on one of several shards.
    pub(crate) fn of(
        shard: i32,
        database: Result<&'d Arc<Database>, Trouble>,
        home: Home<'d>,
    ) -> Self {
        Target {
            shard: Some(shard),
            database,
            home,
        }
    }

    /// Returns the only database as a target.
    pub(crate) fn only(database: &'d Arc<Database>, home: Home<'d>) -> Self {
        Target {
            shard: None,
            database: Ok(database),
            home,
        }
    }

    fn name(&self, trouble: Trouble) -> Trouble {
        match self.shard {
            Some(shard) => trouble.of_shard(shard),
            None => trouble,
        }
    }
}

/// An act to perform in a database.
struct Order<'d> {
    database: &'d Database,
    sql: &'static str,
    values: Vec<Option<String>>,
}

impl<'d> Order<'d> {
    async fn of(
        target: &Target<'d>,
        visit: &Visit,
        act: &Act,
        given: &[Option<&str>],
    ) -> Result<Self, Trouble> {
        let database = target.database.clone()?;
        let values = || given.iter().map(|value| value.map(str::to_owned)).collect();
        if act.name != AGAIN {
            return Ok(Order {
                database,
                sql: act.sql,
                values: values(),
            });
        }
        let ended = ended_job(database, target.home, visit, given).await?;
        Ok(Order {
            database: target.home.address,
            sql: ended.statement(),
            values: ended.into_values(),
        })
    }
}

/// Returns an ended job with its options. At a router its manifest may have moved to another shard
/// since.
async fn ended_job(
    database: &Database,
    home: Home<'_>,
    visit: &Visit,
    given: &[Option<&str>],
) -> Result<EndedJob, Trouble> {
    let rows = read(database, visit, EndedJob::READ, given).await?;
    let row = rows
        .first()
        .ok_or_else(|| Trouble::missing("no such job has ended here"))?;
    let mut ended = EndedJob::of(row)?;
    if let (Some(gone), Some(shards)) = (ended.gone(), home.shards) {
        let gone = gone.map(Some);
        let find = async |database: Arc<Database>| {
            let found = read(&database, visit, EndedJob::FIND_MANIFEST, &gone).await?;
            Ok(!found.is_empty())
        };
        let answers = shards.each(|_, database| find(database)).await;
        if answers
            .iter()
            .any(|(_, is_there)| matches!(is_there, Ok(true)))
        {
            ended.set_found();
        }
    }
    Ok(ended)
}

/// Returns the rows of a statement with text parameters.
async fn read(
    database: &Database,
    visit: &Visit,
    sql: &str,
    values: &[Option<&str>],
) -> Result<Vec<Row>, Trouble> {
    let work = database.pool.begin(&visit.person, Purpose::Read).await?;
    let values: Vec<_> = values
        .iter()
        .map(|value| (value as _, Type::TEXT))
        .collect();
    let rows = work.rows(sql, &values).await?;
    work.commit().await?;
    Ok(rows)
}

/// Returns the page that asks for confirmation.
pub(crate) async fn ask(
    targets: &[Target<'_>],
    visit: &Visit,
    name: &str,
) -> Result<Markup, Trouble> {
    let act = find(name)?;
    let mut refusal = None;
    for target in targets {
        let reader = match &target.database {
            Ok(database) => reader(database, visit, act).await,
            Err(away) => Err(away.clone()),
        };
        match reader {
            Ok(reader) => {
                let values = act.values(&visit.query)?;
                let order = Order::of(target, visit, act, &values).await?;
                let words = typed(order.sql, &order.values);
                let body = question(targets, visit, &reader, act, &values, &words, &html! {});
                return Ok(layout::page(visit, &reader, act.title, &body));
            }
            // Another target may answer.
            Err(trouble) => {
                refusal.get_or_insert(target.name(trouble));
            }
        }
    }
    Err(refusal.unwrap_or_else(|| Trouble::missing("no shard has this group")))
}

/// Returns the user's rights, or an error if the act is not permitted.
async fn reader(database: &Database, visit: &Visit, act: &Act) -> Result<Reader, Trouble> {
    let work = database.pool.begin(&visit.person, Purpose::Read).await?;
    let reader = Reader::of(&work).await?;
    work.commit().await?;
    match reader.may(visit, act.function) {
        true => Ok(reader),
        false => Err(refused(visit, &reader, act)),
    }
}

/// Returns the form of an act. `typed` is its statement, `tried` the result of trying it.
fn question(
    targets: &[Target<'_>],
    visit: &Visit,
    reader: &Reader,
    act: &Act,
    values: &[Option<&str>],
    typed: &str,
    tried: &Markup,
) -> Markup {
    let has_reason = act.fields.iter().any(|field| field.name == "reason");
    html! {
        h1 { (act.title) }
        @if let Some(shards) = shards(targets) {
            p { "On " (shards) ", each separately: a refusal by one does not affect the others." }
        }
        form method="post" action=(visit.link(&format!("act/{}", act.name))) {
            input type="hidden" name="token" value=(visit.token);
            @for (field, value) in act.fields.iter().zip(values) {
                label {
                    (field.label)
                    @if field.required {
                        input name=(field.name) value=[*value] readonly;
                    } @else {
                        input name=(field.name) value=[*value] maxlength="900";
                    }
                }
            }
            @if !has_reason {
                label { "reason, for trax.audit" input name="reason" maxlength="900"; }
            }
            p { "This statement will run as role " b { (reader.role) } ":" }
            (layout::verbatim(typed))
            @if act.can_be_tried {
                button type="submit" name="try" value="1" { "Show its next ten times, change nothing" } " "
            }
            button type="submit" { (act.title) }
            " " a href=(act.back(visit, values.first().copied().flatten())) { "Back" }
        }
        (tried)
    }
}

/// Performs the act and returns the page with its result.
pub(crate) async fn perform(
    targets: &[Target<'_>],
    visit: &Visit,
    name: &str,
    form: &Values,
) -> Result<Markup, Trouble> {
    let act = find(name)?;
    let values = act.values(form)?;
    let (mut results, mut seen, mut refusal) = (Vec::new(), None, None);
    let mut words = String::new();
    for target in targets {
        let outcome = match Order::of(target, visit, act, &values).await {
            Ok(order) => {
                words = typed(order.sql, &order.values);
                perform_in(&order, visit, act, form).await
            }
            Err(trouble) => Err(trouble),
        };
        let result = match outcome {
            Ok((reader, Outcome::Tried(times))) => {
                let tried = html! {
                    h2 #result { "It would fire" }
                    p { "Nothing was changed." }
                    (times)
                };
                let body = question(targets, visit, &reader, act, &values, &words, &tried);
                return Ok(layout::page(visit, &reader, act.title, &body));
            }
            Ok((reader, Outcome::Done(result))) => {
                seen.get_or_insert(reader);
                html! {
                    @if let Some(shard) = target.shard { "Shard " (shard) } @else { "The server" }
                    " answered: " b { (result.as_deref().unwrap_or("done")) }
                }
            }
            Err(trouble) => {
                let trouble = target.name(trouble);
                let words = trouble.words();
                refusal.get_or_insert(trouble);
                html! { (words) }
            }
        };
        results.push(result);
    }
    // No target performed the act.
    let Some(reader) = seen else {
        return Err(refusal.unwrap_or_else(|| Trouble::missing("no shard has this group")));
    };
    let first = values.first().copied().flatten();
    let body = html! {
        h1 { (act.title) @if refusal.is_none() { ": done" } @else { ": done in part" } }
        div #result { @for result in &results { p { (result) } } }
        (layout::verbatim(&words))
        p { a href=(act.back(visit, first)) { "Back" } }
    };
    Ok(layout::page(visit, &reader, act.title, &body))
}

/// The result of an act in one database.
enum Outcome {
    /// The server's answer.
    Done(Option<String>),
    /// The act was rolled back; the times at which the manifest would fire.
    Tried(Markup),
}

async fn perform_in(
    order: &Order<'_>,
    visit: &Visit,
    act: &Act,
    form: &Values,
) -> Result<(Reader, Outcome), Trouble> {
    let database = order.database;
    let has_reason = act.fields.iter().any(|field| field.name == "reason");
    let reason = form.get("reason").filter(|_| !has_reason);
    let program = program(visit.person.name.as_deref(), reason);
    // Concurrent requests to requeue many wait here, and are then subject to the rate limit.
    let mut pace = match act.name {
        REQUEUE_MANY => Some(database.next_requeue.lock().await),
        _ => None,
    };
    if let Some(next) = pace.as_deref() {
        check_pace(*next)?;
    }
    let work = database
        .pool
        .begin(&visit.person, Purpose::Act(&program))
        .await?;
    let reader = Reader::of(&work).await?;
    if !reader.may(visit, act.function) {
        return Err(refused(visit, &reader, act));
    }
    let arguments: Vec<(&(dyn ToSql + Sync), Type)> = order
        .values
        .iter()
        .map(|value| (value as &(dyn ToSql + Sync), Type::TEXT))
        .collect();
    let rows = work.rows(order.sql, &arguments).await?;
    if let (true, Some(_), Some(manifest)) =
        (act.can_be_tried, form.get("try"), form.get("manifest"))
    {
        let times = next_times(&work, manifest, reader.now).await?;
        work.rollback().await?;
        return Ok((reader, Outcome::Tried(times)));
    }
    let result: Option<String> = match rows.first() {
        Some(row) => row.try_get(0)?,
        None => Some("nothing was changed: there is no such row".to_owned()),
    };
    let committed = work.commit().await;
    database.glances.forget();
    committed?;
    let result = result.filter(|text| !text.is_empty());
    if let Some(next) = pace.as_deref_mut() {
        let count: f64 = result
            .as_deref()
            .and_then(|words| words.split(',').next()?.parse().ok())
            .unwrap_or(0.0);
        *next = Instant::now() + Duration::from_secs_f64(count / REQUEUED_A_SECOND);
    }
    Ok((reader, Outcome::Done(result)))
}

/// Returns the shards on which the act is performed: "shard 2", "the shards 1, 2".
fn shards(targets: &[Target<'_>]) -> Option<String> {
    let numbers: Vec<String> = targets
        .iter()
        .filter_map(|target| target.shard.map(|shard| shard.to_string()))
        .collect();
    match numbers.as_slice() {
        [] => None,
        [one] => Some(format!("shard {one}")),
        all => Some(format!("the shards {}", all.join(", "))),
    }
}

/// Refuses to requeue many until the jobs requeued last had time to begin.
fn check_pace(next: Instant) -> Result<(), Trouble> {
    let left = next.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Ok(());
    }
    let message =
        format!("earlier requeued dead letters begin first: at most {REQUEUED_A_SECOND} a second");
    let hint = format!(
        "Check their results, and try again in {:.1} s.",
        left.as_secs_f64()
    );
    Err(Trouble::new(StatusCode::TOO_MANY_REQUESTS, message).hint(hint))
}

fn refused(visit: &Visit, reader: &Reader, act: &Act) -> Trouble {
    match visit.read_only {
        Some(why) => Trouble::forbidden(why),
        None => Trouble::forbidden(format!(
            "role \"{}\" may not call trax.{}",
            reader.role, act.function
        )),
    }
}

/// Returns the value for the column program of `trax.audit`: "trax web, anna: why".
fn program(person: Option<&str>, reason: Option<&str>) -> String {
    let mut text = "trax web".to_owned();
    for (before, part) in [(", ", person), (": ", reason)] {
        if let Some(part) = part {
            text.push_str(before);
            text.push_str(part);
        }
    }
    text
}
