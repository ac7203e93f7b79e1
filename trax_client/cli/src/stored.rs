//! Checks, before the program of a job starts, whether the job's input is the one that its manifest
//! stores.
//!
//! Every role that may enqueue, trigger or activate chooses an input; only roles that may change
//! manifests choose the stored one. A program that obeys its input, as `trax import run` does, must
//! know which of them it got.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::Type;
use trax_client::{Address, Context};

use trax_terminal::{Connection, Failure, address, print};

/// The environment variable with the source of a program's input.
pub(crate) const VARIABLE: &str = "TRAX_INPUT_FROM";
/// The time limit for the server's answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// The source of a job's input.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    /// The manifest, as currently stored.
    Manifest,
    /// The role that created the job.
    Job,
    /// The server did not answer.
    Unknown,
}

impl Source {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Source::Manifest => "manifest",
            Source::Job => "job",
            Source::Unknown => "unknown",
        }
    }
}

/// Queries the database of each job, over a connection that the first job of a manifest opens and
/// that is kept.
#[derive(Default)]
pub(crate) struct StoredInput {
    /// Keyed by the full address without the password. A database that does not answer delays only
    /// its own jobs.
    connections: std::sync::Mutex<HashMap<String, Arc<Mutex<Option<Connection>>>>>,
}

impl StoredInput {
    /// Returns the source of the input of a job that this worker executes.
    pub(crate) async fn source(&self, ctx: &Context) -> Source {
        if ctx.manifest().is_none() {
            return Source::Job;
        }
        let Some(address) = ctx.database() else {
            return Source::Unknown;
        };
        let connection = self.connection(address);
        // A second attempt, in case the first connection broke while idle.
        let mut last = None;
        for _ in 0..2 {
            match tokio::time::timeout(PATIENCE, ask(address, &connection, ctx)).await {
                Ok(Ok(true)) => return Source::Manifest,
                Ok(Ok(false)) => return Source::Job,
                Ok(Err(error)) => last = Some(error.to_string()),
                Err(_) => last = Some(format!("no answer within {} s", PATIENCE.as_secs())),
            }
            *connection.lock().await = None;
        }
        let error = last.unwrap_or_default();
        let text = format!(
            "job {}: cannot check whether its manifest stores its input: {error}",
            ctx.job_id()
        );
        print::log("trax", &text);
        Source::Unknown
    }

    fn connection(&self, address: &Address) -> Arc<Mutex<Option<Connection>>> {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Arc::clone(connections.entry(format!("{address:?}")).or_default())
    }
}

async fn ask(
    address: &Address,
    connection: &Mutex<Option<Connection>>,
    ctx: &Context,
) -> Result<bool, Failure> {
    let mut connection = connection.lock().await;
    let client = match &mut *connection {
        Some(client) => client,
        none => {
            // A standby may not have received the lease yet, and the input would then count as the
            // job's own.
            let mut primary = address.clone();
            if primary.get_target_session_attrs() == TargetSessionAttrs::Any {
                primary.target_session_attrs(TargetSessionAttrs::ReadWrite);
            }
            none.insert(address::connect(&primary).await?)
        }
    };
    let sql = "select trax.runs_as_stored(job_id => $1, token => $2::text::uuid)";
    let (job, token) = (ctx.job_id().0, ctx.token().to_string());
    let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
        [(&job, Type::INT8), (&token, Type::TEXT)];
    let row = client.query_typed_one(sql, &arguments).await?;
    Ok(row.try_get(0)?)
}
