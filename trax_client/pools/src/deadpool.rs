//! With `deadpool-postgres`.

use deadpool_postgres::Pool;
use trax_client::{Client, JobId, NewJob};

use crate::{Result, ShipOrder};

/// Stores an order and queues its job, in one transaction.
pub async fn order(pool: &Pool, item: &str) -> Result<JobId> {
    let mut connection = pool.get().await?;
    let tx = connection.transaction().await?;
    let sql = "insert into orders (item) values ($1) returning id";
    let order = tx.query_one(sql, &[&item]).await?.get(0);
    // The transaction of tokio-postgres inside that of the pool.
    let job = NewJob::of(ShipOrder { order });
    let job_id = Client::new(&*tx).enqueue(&job).await?;
    tx.commit().await?;
    Ok(job_id)
}
