//! Enqueueing through connections and transactions of `sqlx` (feature `sqlx`).
//!
//! ```no_run
//! # #[derive(serde::Serialize)] struct ShipOrder { order: i64 }
//! # impl trax_client::Task for ShipOrder { const NAME: &str = "order.ship"; }
//! # async fn example(pool: sqlx::PgPool) -> Result<(), Box<dyn std::error::Error>> {
//! use trax_client::NewJob;
//!
//! let mut tx = pool.begin().await?;
//! let order: i64 = sqlx::query_scalar("insert into orders (item) values ('tea') returning id")
//!     .fetch_one(&mut *tx)
//!     .await?;
//! trax_client::sqlx::enqueue(&mut *tx, &NewJob::of(ShipOrder { order })).await?;
//! tx.commit().await?; // the order and its job, or neither
//! # Ok(())
//! # }
//! ```

use ::sqlx::postgres::{PgArguments, PgDatabaseError, PgExecutor, Postgres};
use ::sqlx::query::QueryScalar;
use serde::Serialize;
use tokio_postgres::error::SqlState;

use crate::error::{Error, Report, Result};
use crate::id::{JobId, Token};
use crate::job::{NewJob, NewJobs};
use crate::job_options::JobOptions;
use crate::json::Json;
use crate::manifest::utc;
use crate::note::Note;
use crate::reached;
use crate::sql::Interval;
use crate::telemetry::Enqueueing;

/// Queues one job and returns its id, as [`Client::enqueue`](crate::Client::enqueue) does.
pub async fn enqueue<'e, T: Serialize>(db: impl PgExecutor<'e>, job: &NewJob<T>) -> Result<JobId> {
    let enqueueing = Enqueueing::of(&job.task, None);
    let trace = enqueueing.trace(job.options.trace.as_ref());
    let mut call = Call::of("enqueue");
    call.add("task", "text", job.task.clone());
    call.add("input", "jsonb", Json::of(&job.input)?.text().to_owned());
    call.add_options(&job.options, trace);
    let sql = call.text();
    let queued = async {
        let queued = call.query::<i64>(&sql).fetch_one(db).await;
        queued.map_err(error)
    };
    Ok(JobId(enqueueing.around(queued, |id| Some(*id)).await?))
}

/// Queues one job for each input, as [`Client::enqueue_many`](crate::Client::enqueue_many) does.
pub async fn enqueue_many<'e, T: Serialize>(
    db: impl PgExecutor<'e>,
    jobs: &NewJobs<'_, T>,
) -> Result<Vec<JobId>> {
    let enqueueing = Enqueueing::of(&jobs.task, Some(jobs.inputs.len()));
    let trace = enqueueing.trace(jobs.options.trace.as_ref());
    let mut call = Call::of("enqueue_many");
    call.add("task", "text", jobs.task.clone());
    // The inputs are sent as one JSON array, which the server splits.
    let inputs = Json::of(jobs.inputs)?.text().to_owned();
    call.add("inputs", "jsonb", inputs);
    call.add_options(&jobs.options, trace);
    let sql = call.text();
    let queued = async {
        let queued = call.query::<i64>(&sql).fetch_all(db).await;
        queued.map_err(error)
    };
    let ids = enqueueing.around(queued, |_| None).await?;
    Ok(ids.into_iter().map(JobId).collect())
}

/// Records a completion, as [`Client::complete`](crate::Client::complete) does. Use it in the
/// transaction with the effects of a handler, so that they happen exactly once. The handler then
/// returns [`Outcome::Recorded`](crate::Outcome::Recorded).
pub async fn complete<'e, T: Serialize>(
    db: impl PgExecutor<'e>,
    job_id: JobId,
    token: Token,
    output: &T,
) -> Result<bool> {
    let mut call = Call::of("complete");
    call.add("job_id", "bigint", job_id.to_string());
    call.add("token", "uuid", token.to_string());
    call.add("output", "jsonb", Json::of(output)?.text().to_owned());
    if let Some(note) = Note::of(token).json() {
        call.add("detail", "jsonb", note.text().to_owned());
    }
    let sql = call.text();
    let held = call.query::<bool>(&sql).fetch_one(db).await;
    let held = held.map_err(error)?;
    if held {
        reached::complete(token);
    }
    Ok(held)
}

/// A call whose arguments are sent as text, so that no optional type feature of sqlx is needed.
struct Call {
    function: &'static str,
    arguments: Vec<(&'static str, &'static str, String)>,
}

impl Call {
    fn of(function: &'static str) -> Self {
        Call {
            function,
            arguments: Vec::new(),
        }
    }

    fn add(&mut self, name: &'static str, sql_type: &'static str, text: String) {
        self.arguments.push((name, sql_type, text));
    }

    fn add_options(&mut self, options: &JobOptions, trace: Option<Json>) {
        let span = Interval::text;
        let given = [
            ("run_at", "timestamptz", options.run_at.map(|at| utc(at.0))),
            ("group_name", "text", options.group_name.clone()),
            ("priority", "int", options.priority.map(|n| n.to_string())),
            (
                "max_retries",
                "int",
                options.max_retries.map(|n| n.to_string()),
            ),
            ("timeout", "interval", options.timeout.map(span)),
            ("unique_key", "text", options.unique_key.clone()),
            ("concurrency_key", "text", options.concurrency_key.clone()),
            ("trace", "jsonb", trace.map(|trace| trace.to_string())),
            ("retry_delay", "interval", options.retry_delay.map(span)),
            ("unique_for", "interval", options.unique_for.map(span)),
            ("version", "text", options.version.clone()),
            ("rate", "text", options.rate.clone()),
            ("rate_key", "text", options.rate_key.clone()),
            ("cost", "int", options.cost.map(|n| n.to_string())),
            (
                "on_duplicate",
                "text",
                options.on_duplicate.map(|choice| choice.name().to_owned()),
            ),
        ];
        for (name, sql_type, text) in given {
            if let Some(text) = text {
                self.add(name, sql_type, text);
            }
        }
    }

    /// Returns the SQL text, which contains only names written here, never a value.
    fn text(&self) -> String {
        let argument = |(i, (name, sql_type, _)): (usize, &(&str, &str, String))| {
            let n = i + 1;
            match *name {
                "inputs" => format!(
                    "inputs => array(select e.value from pg_catalog.jsonb_array_elements(cast(${n} as jsonb)) \
                     with ordinality e (value, n) order by e.n)"
                ),
                name => format!("{name} => cast(${n} as {sql_type})"),
            }
        };
        let arguments: Vec<String> = self.arguments.iter().enumerate().map(argument).collect();
        format!("select trax.{}({})", self.function, arguments.join(", "))
    }

    fn query<'q, T>(&'q self, sql: &'q str) -> QueryScalar<'q, Postgres, T, PgArguments>
    where
        (T,): for<'r> ::sqlx::FromRow<'r, ::sqlx::postgres::PgRow>,
    {
        // No statement stays prepared, so calls work behind a transaction pooler.
        let query = ::sqlx::query_scalar(sql).persistent(false);
        self.arguments
            .iter()
            .fold(query, |query, (_, _, text)| query.bind(text.as_str()))
    }
}

fn error(error: ::sqlx::Error) -> Error {
    let of_the_server = error
        .as_database_error()
        .and_then(|error| error.try_downcast_ref::<PgDatabaseError>());
    match of_the_server {
        Some(server) => Error::from_report(
            &SqlState::from_code(server.code()),
            Report {
                sqlstate: server.code().to_owned(),
                message: server.message().to_owned(),
                detail: server.detail().map(str::to_owned),
                hint: server.hint().map(str::to_owned),
            },
        ),
        None => Error::Connection(error.into()),
    }
}
