//! Whether a job is what its manifest stores: asked for each job of a manifest before its program
//! starts.
//!
//! Everybody who may enqueue, trigger or activate chooses an input; what a manifest stores, only
//! who may change manifests. A program that does whatever its input demands, as `trax import run`
//! does, needs to know which of them it got.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex;
use tokio_postgres::config::TargetSessionAttrs;
use tokio_postgres::types::Type;
use trax_client::{Address, Context};

use trax_terminal::{Connection, Failure, address, print};

/// The variable that contains where the input of a program is from.
pub(crate) const VARIABLE: &str = "TRAX_INPUT_FROM";
/// How long the answer of the server may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the input of a job is from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Source {
    /// From the manifest, as it is stored now.
    Manifest,
    /// From whoever made the job.
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

/// Asks the database of each job, over a connection that is made for the first job of a manifest
/// and kept.
#[derive(Default)]
pub(crate) struct StoredInput {
    /// By their whole addresses, without passwords: each that does not answer delays its own jobs
    /// only.
    connections: std::sync::Mutex<HashMap<String, Arc<Mutex<Option<Connection>>>>>,
}

impl StoredInput {
    /// Returns where the input of the job is from that this worker executes.
    pub(crate) async fn source(&self, ctx: &Context) -> Source {
        if ctx.manifest().is_none() {
            return Source::Job;
        }
        let Some(address) = ctx.database() else {
            return Source::Unknown;
        };
        let connection = self.connection(address);
        // The second connection is for a first that broke while it rested.
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
            // On a standby a lease may not have arrived yet, and the input would be taken for
            // somebody's.
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
