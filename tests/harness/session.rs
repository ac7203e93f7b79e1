//! A test's connection, with helpers: results as psql prints them, claimed jobs, errors with all
//! their parts, and whether another session waits.

use std::fmt;
use tokio::task::JoinHandle;
use tokio_postgres::{Client, Config, NoTls, SimpleQueryMessage, Transaction};
use trax_client::testkit::Database;

use crate::{PATIENCE, eventually};

/// A connection that knows its backend's process id.
pub struct Session {
    client: Client,
    pid: i32,
}

/// A claimed job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    /// The job.
    pub id: i64,
    /// Its fencing token, as text.
    pub token: String,
}

impl Claimed {
    /// The arguments `job_id` and `token` of a call.
    pub fn key(&self) -> String {
        format!("{}, '{}'", self.id, self.token)
    }
}

/// An error with its parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The SQLSTATE.
    pub code: String,
    /// The message.
    pub message: String,
    /// The DETAIL; empty when there is none.
    pub detail: String,
    /// The HINT; empty when there is none.
    pub hint: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal {
            code,
            message,
            detail,
            hint,
        } = self;
        write!(f, "{code}: {message} / DETAIL: {detail} / HINT: {hint}")
    }
}

impl Refusal {
    fn of(error: &tokio_postgres::Error) -> Self {
        match error.as_db_error() {
            Some(error) => Refusal {
                code: error.code().code().to_owned(),
                message: error.message().to_owned(),
                detail: error.detail().unwrap_or_default().to_owned(),
                hint: error.hint().unwrap_or_default().to_owned(),
            },
            None => panic!("the connection broke: {error}"),
        }
    }
}

impl Session {
    /// Opens a connection as the superuser.
    pub async fn of(database: &Database) -> Self {
        Self::with(database.config()).await
    }

    /// Opens a connection as `role`.
    pub async fn as_role(database: &Database, role: &str) -> Self {
        let mut config = database.config();
        config.user(role);
        Self::with(config).await
    }

    /// Opens a connection with this configuration.
    pub async fn with(config: Config) -> Self {
        let (client, connection) = config.connect(NoTls).await.expect("the server accepts us");
        tokio::spawn(async move {
            // The client receives the same error on its next call.
            connection.await.ok();
        });
        let row = client.query_one("select pg_backend_pid()", &[]).await;
        let pid = row.expect("a backend has a process").get(0);
        Session { client, pid }
    }

    /// The driver's client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Begins a transaction of the driver.
    pub async fn transaction(&mut self) -> Transaction<'_> {
        let transaction = self.client.transaction().await;
        transaction.expect("a transaction begins")
    }

    /// The process id of the backend.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Runs statements; returns all rows as `psql -At` prints them: columns joined by `|`, one row
    /// per line.
    pub async fn attempt(&self, sql: &str) -> Result<String, Refusal> {
        let messages = self
            .client
            .simple_query(sql)
            .await
            .map_err(|error| Refusal::of(&error))?;
        let mut lines = Vec::new();
        for message in messages {
            if let SimpleQueryMessage::Row(row) = message {
                let cells: Vec<&str> = (0..row.len()).map(|i| row.get(i).unwrap_or("")).collect();
                lines.push(cells.join("|"));
            }
        }
        Ok(lines.join("\n"))
    }

    /// As [`attempt`](Self::attempt), for statements that must succeed.
    pub async fn get(&self, sql: &str) -> String {
        match self.attempt(sql).await {
            Ok(text) => text,
            Err(refusal) => panic!("{sql}\n  was refused with {refusal}"),
        }
    }

    /// Returns the error of a statement that must be refused.
    pub async fn refusal(&self, sql: &str) -> Refusal {
        match self.attempt(sql).await {
            Ok(text) => panic!("{sql}\n  was not refused and gave {text:?}"),
            Err(refusal) => refusal,
        }
    }

    /// Waits until a statement returns `wanted`.
    pub async fn becomes(&self, sql: &str, wanted: &str) {
        eventually(sql, PATIENCE, async || {
            let seen = self.get(sql).await;
            if seen == wanted { Ok(()) } else { Err(seen) }
        })
        .await;
    }

    /// Returns the number that a statement yields.
    pub async fn number(&self, sql: &str) -> i64 {
        let text = self.get(sql).await;
        text.parse()
            .unwrap_or_else(|_| panic!("{sql}\n  gave {text:?} and not a number"))
    }

    /// Claims with these arguments of `trax.claim_next`.
    pub async fn claim(&self, arguments: &str) -> Vec<Claimed> {
        let sql = format!("select job_id, token from trax.claim_next({arguments})");
        let text = self.get(&sql).await;
        let claimed = |line: &str| {
            let (id, token) = line.split_once('|').expect("two columns");
            Claimed {
                id: id.parse().expect("a job id is a number"),
                token: token.to_owned(),
            }
        };
        text.lines().map(claimed).collect()
    }

    /// Claims with these arguments and returns the ids of the jobs.
    pub async fn claim_ids(&self, arguments: &str) -> Vec<i64> {
        self.claim(arguments)
            .await
            .into_iter()
            .map(|job| job.id)
            .collect()
    }

    /// Claims the only job that matches these arguments.
    pub async fn claim_one(&self, arguments: &str) -> Claimed {
        let mut jobs = self.claim(arguments).await;
        assert_eq!(jobs.len(), 1, "one job is claimed with ({arguments})");
        jobs.remove(0)
    }

    /// Enqueues with these arguments of `trax.enqueue`.
    pub async fn enqueue(&self, arguments: &str) -> i64 {
        self.number(&format!("select trax.enqueue({arguments})"))
            .await
    }

    /// Runs a cycle and returns the number of rows affected by a step.
    pub async fn tick(&self, step: &str) -> i64 {
        let sql = format!("select max(affected) filter (where step = '{step}') from trax.tick()");
        self.number(&sql).await
    }

    /// Runs `sql` in the background; the task returns the session and its result.
    pub fn spawn(self, sql: impl Into<String>) -> JoinHandle<(Session, Result<String, Refusal>)> {
        let sql = sql.into();
        tokio::spawn(async move {
            let result = self.attempt(&sql).await;
            (self, result)
        })
    }

    /// Waits until the backend `pid` waits for a lock.
    pub async fn sees_waiting(&self, pid: i32) {
        let sql = format!(
            "select state, wait_event_type, wait_event, query from pg_stat_activity where pid = {pid}"
        );
        eventually("the wait of the other session", PATIENCE, || async {
            // Within a transaction, the first snapshot of the statistics would be seen again.
            self.get("select pg_stat_clear_snapshot()").await;
            let seen = self.get(&sql).await;
            if seen.starts_with("active|Lock|") {
                Ok(())
            } else {
                Err(seen)
            }
        })
        .await;
    }

    /// Waits until the backend `pid` sleeps in `trax.<procedure>` and holds nothing: no snapshot,
    /// no transaction id, and no transaction, unless another procedure is the caller.
    pub async fn sees_asleep_in(&self, procedure: &str, pid: i32) {
        let sql = format!(
            "select query like '%call trax.{procedure}%' and state = 'active' and wait_event_type = 'Extension',
                 backend_xmin is null and backend_xid is null
                     and (xact_start is null or query not like 'call trax.%'), to_json(a)
             from pg_stat_activity a where pid = {pid}"
        );
        eventually("a sleep that holds nothing", PATIENCE, || async {
            // Within a transaction, the first snapshot of the statistics would be seen again.
            self.get("select pg_stat_clear_snapshot()").await;
            let seen = self.get(&sql).await;
            if seen.starts_with("t|t|") {
                Ok(())
            } else {
                Err(seen)
            }
        })
        .await;
    }

    /// Makes commits of this server wait for a missing standby, and waits until they do; the
    /// checkpointer applies the change some time after the reload.
    pub async fn lose_standby(&self, database: &Database) {
        self.get("alter system set synchronous_standby_names = 'nobody'")
            .await;
        self.get("select pg_reload_conf()").await;
        eventually("a commit that waits", PATIENCE, async || {
            let probe = Session::of(database).await;
            probe.get("set synchronous_commit = on").await;
            let wait = format!(
                "select coalesce(wait_event, 'none') from pg_stat_activity where pid = {}",
                probe.pid()
            );
            let commit = probe.spawn("select pg_logical_emit_message(true, 'probe', '')");
            while !commit.is_finished() {
                if self.get(&wait).await == "SyncRep" {
                    return Ok(());
                }
            }
            Err("it does not".to_owned())
        })
        .await;
    }

    /// Ends the wait of such commits.
    pub async fn need_no_standby(&self) {
        self.get("alter system reset synchronous_standby_names")
            .await;
        self.get("select pg_reload_conf()").await;
    }

    /// Returns the contents of all tables of trax as one text; equal texts mean that no row has
    /// changed.
    pub async fn everything(&self) -> String {
        let sql = self
            .get(
                "select string_agg(format(
                     'select %L, count(*), md5(string_agg(t::text, E''\\n'' order by t::text)) from trax.%I t',
                     c.relname, c.relname), ' union all ' order by c.relname)
                 from pg_class c
                 where c.relnamespace = 'trax'::regnamespace
                     and c.relkind in ('r', 'p')
                     and not c.relispartition",
            )
            .await;
        self.get(&sql).await
    }

    /// Fails if `trax.check()` reports a violation.
    pub async fn assert_healthy(&self) {
        assert_eq!(
            self.get("select * from trax.check()").await,
            "",
            "trax.check() finds nothing"
        );
    }
}

/// Creates a database with the extension, and a session in it.
pub async fn session() -> (Database, Session) {
    let database = crate::database().await;
    let session = Session::of(&database).await;
    (database, session)
}
