//! The demo's handlers: each commits its writes in the transaction that completes its job.

use std::time::Duration;

use serde_json::Value;
use tokio_postgres::types::{ToSql, Type};
use trax_client::{Client, Context, HandlerResult, JobError, NewJob, Outcome, Worker};

use super::input::{ChainInput, Parcel};
use super::pool::{Pool, alone, lease_held};
use super::sign_up;
use super::workload::{CLOCK, DOOMED, FLAKY, LOAD, MAIL, PULSE, SALES, STEP, WEIGH};

pub(crate) fn handlers(worker: Worker<Pool>) -> Worker<Pool> {
    sign_up::handlers(worker)
        .handle(WEIGH, weigh)
        .handle(STEP, step)
        .handle(FLAKY, flaky)
        .handle(DOOMED, doomed)
        .handle(PULSE, beat)
        .handle(CLOCK, beat)
        .handle(LOAD, load)
        .handle(MAIL, mail)
}

async fn weigh(parcel: Parcel, ctx: Context<Pool>) -> HandlerResult<Outcome> {
    let grams = i32::try_from(100 + parcel.parcel % 900)?;
    let mut connection = ctx.state().get().await?;
    let tx = connection.transaction().await?;
    tx.execute_typed(
        "insert into demo.parcel (job_id, parcel, grams) values ($1, $2, $3)",
        &[
            (&ctx.job_id().0, Type::INT8),
            (&parcel.parcel, Type::INT8),
            (&grams, Type::INT4),
        ],
    )
    .await?;
    lease_held(
        Client::new(&tx)
            .complete(ctx.job_id(), ctx.token(), &grams)
            .await?,
    )?;
    tx.commit().await?;
    Ok(Outcome::Recorded)
}

/// Writes, queues the next step and completes this one, all in one transaction.
async fn step(link: ChainInput, ctx: Context<Pool>) -> HandlerResult<Outcome> {
    let mut connection = ctx.state().get().await?;
    let tx = connection.transaction().await?;
    tx.execute_typed(
        "insert into demo.step (chain, step, job_id) values ($1, $2, $3)",
        &[
            (&link.chain, Type::INT8),
            (&link.step, Type::INT8),
            (&ctx.job_id().0, Type::INT8),
        ],
    )
    .await?;
    let client = Client::new(&tx);
    if link.step < link.steps {
        client
            .enqueue(&NewJob::new(
                STEP,
                ChainInput {
                    step: link.step + 1,
                    ..link
                },
            ))
            .await?;
    }
    lease_held(client.complete(ctx.job_id(), ctx.token(), &()).await?)?;
    tx.commit().await?;
    Ok(Outcome::Recorded)
}

/// Fails twice and then succeeds.
async fn flaky(_: Value, ctx: Context<Pool>) -> HandlerResult<Value> {
    if ctx.attempt() < 3 {
        let error = JobError::new(format!(
            "the mail server was busy, attempt {}",
            ctx.attempt()
        ));
        return Err(error.retry_in(Duration::from_millis(400)));
    }
    Ok(Value::from("sent"))
}

async fn doomed(_: Value, _: Context<Pool>) -> HandlerResult<()> {
    Err(JobError::new("the report has no data and never will"))
}

async fn beat(_: Value, ctx: Context<Pool>) -> HandlerResult<Outcome> {
    let sql = "insert into demo.beat (job_id, manifest, at) values ($1, $2, clock_timestamp())";
    let (job_id, manifest) = (ctx.job_id().0, ctx.manifest().unwrap_or("none"));
    let arguments: [(&(dyn ToSql + Sync), Type); 2] =
        [(&job_id, Type::INT8), (&manifest, Type::TEXT)];
    alone(&ctx, sql, &arguments).await
}

async fn load(_: Value, ctx: Context<Pool>) -> HandlerResult<Outcome> {
    let sql = "insert into demo.sale select n % 10, n from generate_series(1, $1) n";
    alone(&ctx, sql, &[(&SALES, Type::INT8)]).await
}

async fn mail(_: Value, ctx: Context<Pool>) -> HandlerResult<Outcome> {
    let sql = "insert into demo.letter select $1, sum(sales) from demo.report";
    alone(&ctx, sql, &[(&ctx.job_id().0, Type::INT8)]).await
}
