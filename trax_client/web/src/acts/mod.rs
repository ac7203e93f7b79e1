//! Acts: a page shows the statement and asks for the reason, then the act is performed or tried;
//! for several rows each separately, and in a cluster on one shard, or on several independently.
//!
//! Invariants: each act is one call of a public function in its own transaction, as the user's
//! role, and has a row in `trax.audit` with the user's name and reason in its column `program`. A
//! trial is rolled back.

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
use list::{Act, Field, REQUEUE_MANY, RESCHEDULE, find, typed};
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
    let act = find(name)?;
    let rows = act.values(&visit.query)?;
    let mut refusal = None;
    for target in targets {
        match orders(target, visit, act, &rows).await {
            Ok((reader, orders)) => {
                let form = Form {
                    targets,
                    act,
                    rows: &rows,
                    orders: &orders,
                };
                let body = form.question(visit, &reader, &html! {});
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

/// The form of an act.
struct Form<'f, 'd> {
    targets: &'f [Target<'d>],
    act: &'f Act,
    rows: &'f [Vec<Option<&'f str>>],
    orders: &'f [Order<'d>],
}

impl Form<'_, '_> {
    /// Returns the form; `tried` is the result of trying the act.
    fn question(&self, visit: &Visit, reader: &Reader, tried: &Markup) -> Markup {
        let act = self.act;
        let has_reason = act.fields.iter().any(|field| field.name == "reason");
        let can_be_tried = self.orders.iter().all(Order::can_be_tried);
        let shows_times = act.name == RESCHEDULE;
        let perform = html! { button type="submit" { (act.title) } " " };
        html! {
            h1 { (act.title) }
            @if let Some(shards) = shards(self.targets) {
                p { "On " (shards) ", each separately: a refusal by one does not affect the others." }
            }
            form method="post" action=(visit.link(&format!("act/{}", act.name))) {
                input type="hidden" name="token" value=(visit.token);
                @for (i, field) in act.fields.iter().enumerate() { (self.field(i, field)) }
                @if !has_reason {
                    label { "reason, for trax.audit" input name="reason" maxlength="900"; }
                }
                p {
                    @if self.orders.len() > 1 { (self.orders.len()) " statements, each a transaction, " }
                    @else { "This statement " }
                    "will run as role " b { (reader.role) } ":"
                }
                (layout::verbatim(&self.words()))
                // The first button is that of the key Enter.
                @if !shows_times { (perform) }
                @if can_be_tried {
                    button type="submit" name="try" value="1" {
                        @if shows_times { "Show its next ten times, change nothing" }
                        @else { "Try it, change nothing" }
                    }
                    " "
                }
                @if shows_times { (perform) }
                a href=(act.back(visit, self.rows)) { "Back" }
                @if !can_be_tried {
                    p .hint { "It cannot be tried: it goes through the router, where a shard commits by itself." }
                }
            }
            (tried)
        }
    }

    /// Returns the input of a field; for several rows, one for each.
    fn field(&self, place: usize, field: &Field) -> Markup {
        let values: Vec<_> = self
            .rows
            .iter()
            .map(|row| row.get(place).copied().flatten())
            .collect();
        let first = values.first().copied().flatten();
        html! {
            @if field.several && values.len() > 1 {
                @let names: Vec<&str> = values.iter().copied().flatten().collect();
                @for name in &names { input type="hidden" name=(field.name) value=(name); }
                p { (names.len()) " " (field.label) "s: " (names.join(", ")) }
            } @else {
                label {
                    (field.label)
                    @if field.required { input name=(field.name) value=[first] readonly; }
                    @else { input name=(field.name) value=[first] maxlength="900"; }
                }
            }
        }
    }

    /// Returns the statements as a user would type them.
    fn words(&self) -> String {
        words(
            self.orders
                .iter()
                .map(|order| typed(order.sql, &order.values)),
        )
    }
}

/// The maximum number of statements on a page.
const SHOWN: usize = 5;

/// Returns the first of several statements.
fn words(typed: impl ExactSizeIterator<Item = String>) -> String {
    let left = typed.len().saturating_sub(SHOWN);
    let mut shown: Vec<String> = typed.take(SHOWN).collect();
    if left > 0 {
        shown.push(format!("-- and {left} more"));
    }
    shown.join(";\n")
}

/// Performs the act and returns the page with its result.
pub(crate) async fn perform(
    targets: &[Target<'_>],
    visit: &Visit,
    name: &str,
    form: &Values,
) -> Result<Markup, Trouble> {
    let act = find(name)?;
    let rows = act.values(form)?;
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
            rows: &rows,
            orders: &done,
        };
        let body = form.question(visit, &reader, &tried);
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
    let has_reason = act.fields.iter().any(|field| field.name == "reason");
    let reason = form.get("reason").filter(|_| !has_reason);
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
    let shown = html! { b { (answer.as_deref().unwrap_or("done")) } };
    if is_trial {
        let seen =
            html! { (shown) (records(&work).await?) (times(&work, act, form, reader.now).await?) };
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
async fn records(work: &Work<'_>) -> Result<Markup, Trouble> {
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
