//! A connection pool for handlers that open transactions, and the transaction of a simple one.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio_postgres::Client;
use tokio_postgres::types::{ToSql, Type};
use trax_client::{Address, Client as Trax, Context, HandlerResult, JobError, Outcome};

use trax_terminal::Failure;
use trax_terminal::address;

/// A pool with as many connections as handlers.
pub(crate) struct Pool {
    idle: Mutex<Vec<Client>>,
    free: Semaphore,
}

impl Pool {
    pub(crate) async fn open(config: &Address, size: usize) -> Result<Self, Failure> {
        let mut idle = Vec::with_capacity(size);
        for _ in 0..size {
            idle.push(address::connect(config).await?.into_client());
        }
        Ok(Pool {
            idle: Mutex::new(idle),
            free: Semaphore::new(size),
        })
    }

    /// Waits for a free connection, which returns to the pool when dropped.
    pub(crate) async fn get(&self) -> Result<Borrowed<'_>, std::io::Error> {
        let permit = self.free.acquire().await.map_err(std::io::Error::other)?;
        let client = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let client = client.ok_or_else(|| std::io::Error::other("a connection was lost"))?;
        Ok(Borrowed {
            pool: self,
            client: Some(client),
            _permit: permit,
        })
    }
}

pub(crate) struct Borrowed<'p> {
    pool: &'p Pool,
    client: Option<Client>,
    _permit: SemaphorePermit<'p>,
}

impl Deref for Borrowed<'_> {
    type Target = Client;

    fn deref(&self) -> &Client {
        self.client
            .as_ref()
            .expect("a borrowed connection is there until it is dropped")
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut Client {
        self.client
            .as_mut()
            .expect("a borrowed connection is there until it is dropped")
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            self.pool
                .idle
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push(client);
        }
    }
}

/// Runs one statement and completes the job, in one transaction.
pub(super) async fn alone(
    ctx: &Context<Pool>,
    sql: &str,
    arguments: &[(&(dyn ToSql + Sync), Type)],
) -> HandlerResult<Outcome> {
    let mut connection = ctx.state().get().await?;
    let tx = connection.transaction().await?;
    tx.execute_typed(sql, arguments).await?;
    lease_held(
        Trax::new(&tx)
            .complete(ctx.job_id(), ctx.token(), &())
            .await?,
    )?;
    tx.commit().await?;
    Ok(Outcome::Recorded)
}

/// Fails if the completion was not recorded, so that the transaction rolls back without writes.
pub(super) fn lease_held(recorded: bool) -> HandlerResult<()> {
    match recorded {
        true => Ok(()),
        false => Err(JobError::new("the lease was lost")),
    }
}
