//! With `sqlx`: the feature `sqlx` of `trax_client`.

use sqlx::PgPool;
use trax_client::{JobId, NewJob};

use crate::{Result, ShipOrder};

/// Stores an order and queues its job, in one transaction.
pub async fn order(pool: &PgPool, item: &str) -> Result<JobId> {
    let mut tx = pool.begin().await?;
    let sql = "insert into orders (item) values ($1) returning id";
    let insert = sqlx::query_scalar(sql).bind(item);
    let order = insert.fetch_one(&mut *tx).await?;
    let job = NewJob::of(ShipOrder { order });
    let job_id = trax_client::sqlx::enqueue(&mut *tx, &job).await?;
    tx.commit().await?;
    Ok(job_id)
}
