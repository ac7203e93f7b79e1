//! The demo's sign-up: a job of several steps, which sleeps, waits for the customer's answer and
//! has children.
//!
//! Of four customers, one withdraws while the job waits, and one orders a gift that is out of
//! stock: the jobs of these two end cancelled and failed, and their steps are undone. The last
//! customer never answers.

use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use tokio_postgres::Client as Connection;
use tokio_postgres::types::{ToSql, Type};
use trax_client::{
    Children, Client, Context, HandlerResult, JobError, JobId, JobOptions, NewJob, Outcome, Undo,
    Worker,
};

use super::input::{Answer, Customer, Shipment};
use super::pool::{Pool, alone, lease_held};
use trax_terminal::Failure;

pub(crate) const SIGN_UP: &str = "account.sign_up";
pub(crate) const ANSWER: &str = "customer.answer";
pub(crate) const SHIP: &str = "account.ship";
pub(crate) const REFUND: &str = "card.refund";
pub(crate) const CLOSE: &str = "account.close";

const PAUSE: Duration = Duration::from_millis(500);
const ANSWERS_AFTER: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(3 * 86_400);
const ITEMS: [&str; 2] = ["card", "gift"];

pub(crate) fn handlers(worker: Worker<Pool>) -> Worker<Pool> {
    worker
        .handle(SIGN_UP, sign_up)
        .handle(ANSWER, answer)
        .handle(SHIP, ship)
        .handle(REFUND, refund)
        .handle(CLOSE, close)
}

pub(crate) async fn make_tables(connection: &Connection) -> Result<(), Failure> {
    let sql = "
        create table demo.account (customer bigint primary key, closed_at timestamptz);
        create table demo.welcome (customer bigint not null);
        create table demo.charge (customer bigint primary key, refunded_at timestamptz);
        create table demo.shipment (customer bigint, item text, primary key (customer, item));";
    Ok(connection.batch_execute(sql).await?)
}

/// Queues the sign-ups of this many customers, and of one who never answers.
pub(crate) async fn begin(client: &Client<'_, Connection>, customers: i64) -> Result<(), Failure> {
    for customer in 0..=customers {
        let answers = customer < customers;
        client
            .enqueue(&NewJob::new(SIGN_UP, Customer { customer, answers }))
            .await?;
    }
    Ok(())
}

/// Returns the sign-up of the customer who never answers, once it waits for the answer.
pub(crate) async fn waiting(connection: &Connection) -> Result<Option<i64>, Failure> {
    let sql = "select job_id from trax.work_queue where task = $1 and waits_for = 'signal' \
               and not (input ->> 'answers')::boolean";
    let rows = connection
        .query_typed(sql, &[(&SIGN_UP, Type::TEXT)])
        .await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?)
}

/// Runs from its top in each attempt: after the sleep, after the answer, and after the children.
async fn sign_up(customer: Customer, ctx: Context<Pool>) -> HandlerResult<Value> {
    let number = customer.customer;
    ctx.step("open", || open(&ctx, number)).await?;
    ctx.step("welcome", || welcome(&ctx, &customer)).await?;
    ctx.sleep("pause", PAUSE).await?;
    let click: Option<Value> = ctx.signal("click", Some(PATIENCE)).await?;
    if click.is_none() {
        return Err(JobError::cancelled("the customer has not answered"));
    }
    ctx.step("charge", || charge(&ctx, number)).await?;
    for item in ITEMS {
        let child = NewJob::new(
            SHIP,
            Shipment {
                customer: number,
                item: item.to_owned(),
            },
        );
        ctx.spawn(item, &child).await?;
    }
    for child in ctx.children(Children::All).await? {
        if let Some(error) = child.error {
            return Err(JobError::permanent(format!("{}: {error}", child.step)));
        }
    }
    Ok(json!({ "shipped": ITEMS }))
}

async fn open(ctx: &Context<Pool>, customer: i64) -> HandlerResult<()> {
    let sql = "insert into demo.account (customer) values ($1)";
    let undo = Undo::new(CLOSE, customer)?;
    written(ctx, "open", sql, customer, Some(&undo), None).await
}

/// Stands for a mail, to which most customers answer after a while.
async fn welcome(ctx: &Context<Pool>, customer: &Customer) -> HandlerResult<()> {
    let sql = "insert into demo.welcome (customer) values ($1)";
    let later = SystemTime::now() + ANSWERS_AFTER;
    let answer = Answer {
        job_id: ctx.job_id().0,
        clicks: customer.customer % 4 != 0,
    };
    let answer = NewJob::new(ANSWER, answer).with(JobOptions::new().run_at(later));
    let answer = customer.answers.then_some(&answer);
    written(ctx, "welcome", sql, customer.customer, None, answer).await
}

async fn charge(ctx: &Context<Pool>, customer: i64) -> HandlerResult<()> {
    let sql = "insert into demo.charge (customer) values ($1)";
    let undo = Undo::new(REFUND, customer)?;
    written(ctx, "charge", sql, customer, Some(&undo), None).await
}

/// Executes a step's statement, queues what follows from it, and records the step, all in one
/// transaction.
async fn written(
    ctx: &Context<Pool>,
    step: &str,
    sql: &str,
    customer: i64,
    undo: Option<&Undo>,
    next: Option<&NewJob<Answer>>,
) -> HandlerResult<()> {
    let mut connection = ctx.state().get().await?;
    let tx = connection.transaction().await?;
    let client = Client::new(&tx);
    let recorded = client
        .record_step(ctx.job_id(), ctx.token(), step, &(), undo)
        .await?;
    lease_held(recorded.is_some())?;
    if recorded.is_some_and(|recorded| recorded.recorded) {
        tx.execute_typed(sql, &[(&customer, Type::INT8)]).await?;
        if let Some(next) = next {
            client.enqueue(next).await?;
        }
    }
    tx.commit().await?;
    Ok(())
}

/// The customer clicks or withdraws: the signal, or the cancel, is of the transaction that
/// completes this job.
async fn answer(answer: Answer, ctx: Context<Pool>) -> HandlerResult<Outcome> {
    let mut connection = ctx.state().get().await?;
    let tx = connection.transaction().await?;
    let client = Client::new(&tx);
    let sign_up = JobId(answer.job_id);
    if answer.clicks {
        client
            .send_signal(sign_up, "click", &json!({}), None)
            .await?;
    } else {
        client.cancel(sign_up).await?;
    }
    lease_held(client.complete(ctx.job_id(), ctx.token(), &()).await?)?;
    tx.commit().await?;
    Ok(Outcome::Recorded)
}

async fn ship(shipment: Shipment, ctx: Context<Pool>) -> HandlerResult<Outcome> {
    if shipment.item == "gift" && shipment.customer % 4 == 1 {
        return Err(JobError::permanent("out of stock"));
    }
    let sql = "insert into demo.shipment (customer, item) values ($1, $2)";
    let arguments: [(&(dyn ToSql + Sync), Type); 2] = [
        (&shipment.customer, Type::INT8),
        (&shipment.item, Type::TEXT),
    ];
    alone(&ctx, sql, &arguments).await
}

async fn refund(customer: i64, ctx: Context<Pool>) -> HandlerResult<Outcome> {
    let sql = "update demo.charge set refunded_at = clock_timestamp() where customer = $1";
    alone(&ctx, sql, &[(&customer, Type::INT8)]).await
}

async fn close(customer: i64, ctx: Context<Pool>) -> HandlerResult<Outcome> {
    let sql = "update demo.account set closed_at = clock_timestamp() where customer = $1";
    alone(&ctx, sql, &[(&customer, Type::INT8)]).await
}
