//! A transfer of money that happens exactly once, whatever fails.
//!
//! A job may be executed more than once: its worker may die between the work and the report that it
//! is done. Here both are one transaction. Either it commits, and the job is over, or it does not,
//! and the next attempt finds nothing done.
//!
//! `DATABASE_URL` names the database. `BREAK_AFTER=debit` or `BREAK_AFTER=complete` kills the
//! process at that point of the first attempt.

use serde::{Deserialize, Serialize};
use trax_client::{
    Address, Client, Context, HandlerResult, JobError, Outcome, State, Task, Worker,
};

#[derive(Serialize, Deserialize)]
struct Transfer {
    from: String,
    to: String,
    amount: i64,
}

impl Task for Transfer {
    const NAME: &str = "money.transfer";
}

#[derive(Clone)]
struct Bank(Address);

async fn transfer(
    order: Transfer,
    State(bank): State<Bank>,
    ctx: Context<Bank>,
) -> HandlerResult<Outcome> {
    let mut db = bank.0.connect().await?;
    let add = "update account set balance = balance + $2 where name = $1";

    let tx = db.transaction().await?;
    tx.execute(add, &[&order.from, &-order.amount]).await?;
    break_after("debit", &ctx);
    tx.execute(add, &[&order.to, &order.amount]).await?;
    // Returns whether the lease is still held. If not, another attempt does the transfer: roll
    // back.
    let ours = Client::new(&tx)
        .complete(ctx.job_id(), ctx.token(), &order.amount)
        .await?;
    if !ours {
        return Err(JobError::new("the lease was lost"));
    }
    break_after("complete", &ctx);
    tx.commit().await?;
    Ok(Outcome::Recorded)
}

/// Ends the process as a power failure would.
fn break_after(step: &str, ctx: &Context<Bank>) {
    if ctx.attempt() == 1 && std::env::var("BREAK_AFTER").is_ok_and(|wanted| wanted == step) {
        std::process::abort();
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = Address::from_environment()?;
    let summary = Worker::with_state(address.clone(), Bank(address))
        .task(transfer)
        .lease(std::time::Duration::from_secs(2))
        .until_empty()
        .run()
        .await?;
    println!("{summary}");
    Ok(())
}
