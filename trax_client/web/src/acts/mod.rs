//! Acts: a page shows the statement and asks for the reason, then the act is performed or tried;
//! for several rows each separately, and in a cluster on one shard, or on several independently.
//!
//! Invariants: each act is one call of a public function in its own transaction, as the user's
//! role, and has a row in `trax.audit` with the user's name and reason in its column `program`; a
//! signal is kept by its job instead. A trial is rolled back.

mod form;
mod list;
mod order;

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use maud::{Markup, html};

use crate::cluster::Home;
use crate::database::Database;
use crate::layout::{self, Reader};
use crate::moment::Moment;
use crate::preview::next_times;
use crate::trouble::Trouble;
use crate::visit::{Values, Visit};
use crate::work::{Purpose, Work};
use form::{Form, typed, words};
use list::{Act, QUEUEING, REQUEUE_MANY, RESCHEDULE, find};
pub(crate) use list::{Scope, scope};
use order::Order;

const RECORDS: &str = include_str!("../query/act_records.sql");

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

/// Returns the page that asks for confirmation.
pub(crate) async fn ask(
    targets: &[Target<'_>],
    visit: &Visit,
    name: &str,
) -> Result<Markup, Trouble> {
    question(targets, visit, find(name)?, &visit.query, None).await
}

/// Returns the page with the form of an act, filled with values; `refusal` says why they were
/// refused.
async fn question(
    targets: &[Target<'_>],
    visit: &Visit,
    act: &Act,
    values: &Values,
    refusal: Option<&Trouble>,
) -> Result<Markup, Trouble> {
    let rows = act.values(values)?;
    let mut first = None;
    for target in targets {
        match orders(target, visit, act, &rows).await {
            Ok((reader, orders)) => {
                let form = Form {
                    targets,
                    act,
                    values,
                    rows: &rows,
                    orders: &orders,
                    steps: &form::steps(target, visit, act, &rows).await,
                    refusal,
                };
                let body = form.markup(visit, &reader, &html! {});
                return Ok(layout::page(visit, &reader, act.title, &body));
            }
            // Another target may answer.
            Err(trouble) => {
                first.get_or_insert(target.name(trouble));
            }
        }
    }
    Err(first.unwrap_or_else(|| Trouble::missing("no shard has this group")))
}

/// Returns the user's rights, and the orders that can be performed for the rows of a form; an error
/// if there are none.
async fn orders<'d>(
    target: &Target<'d>,
    visit: &Visit,
    act: &Act,
    rows: &[Vec<Option<&str>>],
) -> Result<(Reader, Vec<Order<'d>>), Trouble> {
    let database = target.database.clone()?;
    let work = database.pool.begin(&visit.person, Purpose::Read).await?;
    let reader = Reader::of(&work).await?;
    work.commit().await?;
    // Without this right not even the options of a job are read.
    if !reader.may(visit, act.function) {
        return Err(refused(visit, &reader, act.function));
    }
    let (mut orders, mut refusal) = (Vec::new(), None);
    for row in rows {
        match Order::of(target, visit, act, row).await {
            Ok(order) if reader.may(visit, order.function) => orders.push(order),
            Ok(order) => refusal = Some(refused(visit, &reader, order.function)),
            Err(trouble) => refusal = Some(trouble),
        }
    }
    match refusal {
        Some(refusal) if orders.is_empty() => Err(refusal),
        _ => Ok((reader, orders)),
    }
}

/// Performs the act, and returns the page with its result. If the values are refused, that is their
/// form with the reason.
pub(crate) async fn perform(
    targets: &[Target<'_>],
    visit: &Visit,
    name: &str,
    form: &Values,
) -> Result<(StatusCode, Markup), Trouble> {
    let act = find(name)?;
    let refusal = match perform_in_all(targets, visit, act, form).await {
        Ok(body) => return Ok((StatusCode::OK, body)),
        Err(refusal) => refusal,
    };
    // No other values help against a missing right, a database that is away, or haste.
    let is_about_values = matches!(
        refusal.status,
        StatusCode::BAD_REQUEST | StatusCode::CONFLICT | StatusCode::NOT_FOUND
    );
    if !is_about_values {
        return Err(refusal);
    }
    match question(targets, visit, act, form, Some(&refusal)).await {
        Ok(body) => Ok((refusal.status, body)),
        Err(_) => Err(refusal),
    }
}

async fn perform_in_all(
    targets: &[Target<'_>],
    visit: &Visit,
    act: &Act,
    form: &Values,
) -> Result<Markup, Trouble> {
    let rows = act.values(form)?;
    act.check(form)?;
    let is_trial = form.get("try").is_some();
    let (mut results, mut seen, mut refusal) = (Vec::new(), None, None);
    let mut done: Vec<Order<'_>> = Vec::new();
    for target in targets {
        for row in &rows {
            let outcome = match Order::of(target, visit, act, row).await {
                Ok(order) => {
                    let outcome = perform_in(&order, visit, act, form).await;
                    done.push(order);
                    outcome
                }
                Err(trouble) => Err(trouble),
            };
            let place = html! {
                @if let Some(shard) = target.shard { "Shard " (shard) }
                @else if let ([_, _, ..], Some(Some(value))) = (rows.as_slice(), row.first()) {
                    (act.fields[0].label) " " (value)
                } @else { "The server" }
            };
            results.push(match outcome {
                Ok((reader, outcome)) => {
                    seen.get_or_insert(reader);
                    html! { p { (place) (if is_trial { " would answer: " } else { " answered: " }) (outcome) } }
                }
                Err(trouble) => {
                    let trouble = target.name(trouble);
                    let words = trouble.words();
                    refusal.get_or_insert(trouble);
                    html! { p { @if rows.len() > 1 { (place) ": " } (words) } }
                }
            });
        }
    }
    // No target performed the act.
    let Some(reader) = seen else {
        return Err(refusal.unwrap_or_else(|| Trouble::missing("no shard has this group")));
    };
    if is_trial {
        let tried = html! {
            h2 #result { "A trial" }
            p { "Nothing was changed." }
            @for result in &results { (result) }
        };
        let form = Form {
            targets,
            act,
            values: form,
            rows: &rows,
            orders: &done,
            steps: &form::steps(&targets[0], visit, act, &rows).await,
            refusal: None,
        };
        let body = form.markup(visit, &reader, &tried);
        return Ok(layout::page(visit, &reader, act.title, &body));
    }
    let words = words(done.iter().map(|order| typed(order.sql, &order.values)));
    let body = html! {
        h1 { (act.title) @if refusal.is_none() { ": done" } @else { ": done in part" } }
        div #result { @for result in &results { (result) } }
        (layout::verbatim(&words))
        p { a href=(act.back(visit, &rows)) { "Back" } }
    };
    Ok(layout::page(visit, &reader, act.title, &body))
}

/// Performs one order, or tries it, and returns the server's answer.
async fn perform_in(
    order: &Order<'_>,
    visit: &Visit,
    act: &Act,
    form: &Values,
) -> Result<(Reader, Markup), Trouble> {
    let database = order.database;
    let reason = form.get("reason").filter(|_| act.asks_for_reason());
    let program = program(visit.person.name.as_deref(), reason);
    let is_trial = form.get("try").is_some();
    // Concurrent requests to requeue many wait here, and are then subject to the rate limit.
    let mut pace = match act.name {
        REQUEUE_MANY if !is_trial => Some(database.next_requeue.lock().await),
        _ => None,
    };
    if let Some(next) = pace.as_deref() {
        check_pace(*next)?;
    }
    if is_trial && !order.can_be_tried() {
        return Err(Trouble::invalid("an act through a router cannot be tried"));
    }
    let work = database
        .pool
        .begin(&visit.person, Purpose::Act(&program))
        .await?;
    let reader = Reader::of(&work).await?;
    if !reader.may(visit, order.function) {
        return Err(refused(visit, &reader, order.function));
    }
    let answer = order.run(&work).await?;
    if let Some(refusal) = act.refusal(answer.as_deref()) {
        work.rollback().await?;
        return Err(refusal);
    }
    let is_job = !is_trial && QUEUEING.contains(&act.name);
    let is_id = |answer: &&str| is_job && answer.parse::<i64>().is_ok();
    let new = answer.as_deref().filter(is_id);
    let shown = html! {
        b { (answer.as_deref().unwrap_or("done")) }
        // At a router, another shard may have it.
        @if let Some(new) = new { ", " a href=(visit.site_link(&format!("jobs/{new}"))) { "the new job" } }
    };
    if is_trial {
        let seen = html! { (shown) (records(&work, act).await?) (times(&work, act, form, reader.now).await?) };
        work.rollback().await?;
        return Ok((reader, seen));
    }
    let committed = work.commit().await;
    database.glances.forget();
    committed?;
    order
        .record_at_shard(visit, &program, answer.as_deref())
        .await?;
    if let Some(next) = pace.as_deref_mut() {
        let count: f64 = answer
            .as_deref()
            .and_then(|words| words.split(',').next()?.parse().ok())
            .unwrap_or(0.0);
        *next = Instant::now() + Duration::from_secs_f64(count / REQUEUED_A_SECOND);
    }
    Ok((reader, shown))
}

/// Returns the rows that a trial wrote to `trax.audit`: the changes that the act would make.
async fn records(work: &Work<'_>, act: &Act) -> Result<Markup, Trouble> {
    if !act.is_recorded() {
        return Ok(html! {});
    }
    let rows = work.rows(RECORDS, &[]).await?;
    let mut shown = Vec::new();
    for row in &rows {
        let (action, kind): (String, String) = (row.try_get("action")?, row.try_get("kind")?);
        let (name, note): (String, Option<String>) = (row.try_get("name")?, row.try_get("note")?);
        let what = [action.as_str(), kind.as_str()].join(" ").replace('_', " ");
        shown.push(vec![
            html! { (what) },
            html! { (name) },
            html! { (note.unwrap_or_default()) },
        ]);
    }
    let head = ["what", "which", "change or note"];
    Ok(layout::table(
        "Its records",
        &head,
        &shown,
        "It would change nothing.",
    ))
}

/// Returns the times at which a manifest would fire, if the act changes them.
async fn times(work: &Work<'_>, act: &Act, form: &Values, now: Moment) -> Result<Markup, Trouble> {
    match form.get("manifest").filter(|_| act.name == RESCHEDULE) {
        Some(manifest) => next_times(work, manifest, now).await,
        None => Ok(html! {}),
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
    let mut refusal = Trouble::new(StatusCode::TOO_MANY_REQUESTS, message).hint(hint);
    refusal.retry_after = Some(left);
    Err(refusal)
}

fn refused(visit: &Visit, reader: &Reader, function: &str) -> Trouble {
    match visit.read_only {
        Some(why) => Trouble::forbidden(why),
        None => Trouble::forbidden(format!(
            "role \"{}\" may not call trax.{function}",
            reader.role
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
