//! A worker program in a scenario: a separate database, and checks with a deadline that return a
//! value.

use super::log::{self, Line};
use super::program::Program;
use harness::database;
use harness::process::{Process, Scratch, is_alive, send_signal};
use harness::scheduler::{new_name, scheduler_of, violations};
use harness::{PATIENCE, scheduler};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tokio_postgres::{Client, Statement};
use trax_client::testkit::{Database, Server};

/// The result of a scenario: success, or the worker's error.
pub(super) type Verdict<T = ()> = Result<T, String>;

/// The time limit for an event without a promised time.
const LIMIT: Duration = Duration::from_secs(30);
/// The number of tries for a promised time, on a loaded machine.
const TRIES: usize = 4;

pub(super) struct Trial {
    pub(super) program: Program,
    pub(super) database: Database,
    pub(super) client: Client,
    /// Returns the `attempt state` of a job. Every wait repeats it, and planning it takes ten times
    /// as long as running it.
    state: Statement,
    port: u16,
    files: Scratch,
}

/// The options with which a worker is started.
#[derive(Clone, Copy)]
pub(super) struct Start {
    pub(super) name: &'static str,
    pub(super) concurrency: usize,
    /// In seconds.
    pub(super) lease: u32,
    /// In seconds.
    pub(super) grace: u32,
    /// The version that it names; empty for none.
    pub(super) version: &'static str,
}

impl Start {
    /// A single job at a time, with a lease that does not expire.
    pub(super) const CALM: Start = Start {
        name: "calm",
        concurrency: 1,
        lease: 30,
        grace: 20,
        version: "",
    };
}

/// A running worker program.
pub(super) struct Running(Process);

impl Running {
    /// Returns an error if the worker has ended, since waiting for it is pointless.
    fn has_ended(&self) -> Verdict {
        match is_alive(self.0.id()) {
            true => Ok(()),
            false => Err("the worker has ended".to_owned()),
        }
    }

    pub(super) fn signal(&self, signal: &str) -> Verdict {
        // A signal to an ended process would fail the test.
        self.has_ended()?;
        send_signal(signal, self.0.id());
        Ok(())
    }

    /// Waits until the worker exits with code 0.
    pub(super) async fn ends(&mut self, limit: Duration) -> Verdict {
        within("the worker ends", limit, async || match self.has_ended() {
            Ok(()) => Err("it runs".to_owned()),
            Err(_) => Ok(()),
        })
        .await?;
        let status = self.0.ends(PATIENCE).await;
        match status.success() {
            true => Ok(()),
            false => Err(format!("the worker ended with {status}")),
        }
    }
}

/// Repeats the probe until it succeeds or the time limit is over.
pub(super) async fn within<T>(
    what: &str,
    limit: Duration,
    mut probe: impl AsyncFnMut() -> Verdict<T>,
) -> Verdict<T> {
    let begun = Instant::now();
    loop {
        match probe().await {
            Ok(value) => return Ok(value),
            Err(seen) if begun.elapsed() >= limit => {
                return Err(format!("{what}: not within {limit:?}; last seen: {seen}"));
            }
            Err(_) => {
                let pause = begun.elapsed() / 10;
                let pause = pause.clamp(Duration::from_millis(10), Duration::from_millis(100));
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Repeats an action that must take less than `limit`, a few times at most; each try returns its
/// duration.
pub(super) async fn promptly(
    what: &str,
    limit: Duration,
    mut attempt: impl AsyncFnMut() -> Verdict<Duration>,
) -> Verdict {
    let mut took = Vec::new();
    for _ in 0..TRIES {
        took.push(attempt().await?);
        if took.last().is_some_and(|took| *took < limit) {
            return Ok(());
        }
    }
    Err(format!("{what}: more than {limit:?} each time: {took:?}"))
}

/// The time of this machine, in the log's format.
pub(super) fn now() -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.expect("after 1970").as_millis();
    i64::try_from(now).expect("before the year 292,000,000")
}

impl Trial {
    /// A new database on a server with schedulers and the role `conformance`.
    pub(super) async fn new(program: Program, server: &Server) -> Self {
        let name = new_name("conformance");
        let database = database::clone(server, &name).await;
        let database = database.expect("a database is made");
        let client = scheduler::connect(&database).await;
        scheduler::execute(
            &client,
            &format!(
                "select trax.grant_access('conformance', 'worker');
                alter database {name} set trax.max_input_bytes = '100kB';
                alter database {name} set trax.retry_delay = '0 s'"
            ),
        )
        .await;
        scheduler_of(&client, &name, PATIENCE).await;
        let state = prepared(&client).await;
        Trial {
            program,
            database,
            client,
            state,
            port: server.port(),
            files: Scratch::new("conformance"),
        }
    }

    /// Connects again, after a restart of the server.
    pub(super) async fn connect(&mut self) {
        self.client = scheduler::connect(&self.database).await;
        self.state = prepared(&self.client).await;
    }

    /// Options with a short lease.
    pub(super) fn hasty(&self) -> Start {
        Start {
            name: "hasty",
            lease: self.program.short_lease(),
            ..Start::CALM
        }
    }

    /// Starts the worker program.
    pub(super) fn start(&self, start: Start) -> Running {
        self.start_as("conformance", self.port, start)
    }

    /// Starts the program as another role.
    pub(super) fn start_unlike(&self, role: &str, start: Start) -> Running {
        self.start_as(role, self.port, start)
    }

    /// Starts the program with another port for the server, such as a proxy's.
    pub(super) fn start_through(&self, port: u16, start: Start) -> Running {
        self.start_as("conformance", port, start)
    }

    /// The port of the server itself, not of a proxy.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    fn start_as(&self, role: &str, port: u16, start: Start) -> Running {
        let database = self.database.name();
        let mut command = Command::new("sh");
        self.program.prepare(&mut command);
        command
            .env(
                "DATABASE_URL",
                format!("postgresql://{role}@127.0.0.1:{port}/{database}"),
            )
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", port.to_string())
            .env("PGUSER", role)
            .env("PGDATABASE", database)
            .env("CONFORMANCE_NAME", start.name)
            .env("CONFORMANCE_CONCURRENCY", start.concurrency.to_string())
            .env("CONFORMANCE_LEASE", start.lease.to_string())
            .env("CONFORMANCE_GRACE", start.grace.to_string())
            .env("CONFORMANCE_VERSION", start.version)
            .env("CONFORMANCE_LOG", self.files.path().join("log"))
            .env("SAID", self.files.path().join("said"));
        Running(Process::start(command))
    }

    /// The beginnings and ends of handlers.
    pub(super) fn log(&self) -> Verdict<Vec<Line>> {
        let mut lines = log::read(&self.files.path().join("log"))?;
        lines.retain(|line| !line.what.starts_with("step "));
        Ok(lines)
    }

    /// The names of the steps of a job whose functions have begun, in order.
    pub(super) fn steps_run(&self, job: i64) -> Verdict<Vec<String>> {
        let lines = log::read(&self.files.path().join("log"))?;
        let of_job = lines.iter().filter(|line| line.job == job);
        let names = of_job.filter_map(|line| line.what.strip_prefix("step "));
        Ok(names.map(str::to_owned).collect())
    }

    /// The output of the workers.
    pub(super) fn printed(&self) -> String {
        self.text("said")
    }

    fn text(&self, name: &str) -> String {
        let read = std::fs::read(self.files.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&read).into_owned()
    }

    /// The workers' output and the log, for a report.
    pub(super) fn said(&self) -> String {
        let (printed, log) = (self.printed(), self.text("log"));
        format!("\n-- printed:\n{printed}\n-- log:\n{log}")
    }

    /// Runs statements.
    pub(super) async fn execute(&self, sql: &str) -> Verdict {
        let done = self.client.batch_execute(sql).await;
        done.map_err(|error| format!("{sql}: {error:?}"))
    }

    /// Returns the text of one value; a null is empty.
    pub(super) async fn value(&self, sql: &str) -> Verdict<String> {
        let asked = format!("select ({sql})::text");
        let row = self.client.query_one(&asked, &[]).await;
        let row = row.map_err(|error| format!("{sql}: {error:?}"))?;
        Ok(row.get::<_, Option<String>>(0).unwrap_or_default())
    }

    /// Enqueues a job; `options` are further arguments of `trax.enqueue`, after a comma.
    pub(super) async fn enqueue(&self, task: &str, input: &str, options: &str) -> Verdict<i64> {
        let sql = format!("select trax.enqueue('conformance.{task}', $1::text::jsonb{options})");
        let row = self.client.query_one(&sql, &[&input]).await;
        row.map(|row| row.get(0))
            .map_err(|error| format!("{sql}: {error:?}"))
    }

    /// `attempt state` of a job.
    pub(super) async fn state(&self, job: i64) -> Verdict<String> {
        let row = self.client.query_opt(&self.state, &[&job]).await;
        let row = row.map_err(|error| format!("the state of job {job}: {error:?}"))?;
        Ok(row.map(|row| row.get(0)).unwrap_or_default())
    }

    /// Waits until a job's `attempt state` is as wanted; any other end of the job is an error.
    pub(super) async fn becomes(&self, job: i64, wanted: &str, by: &Running) -> Verdict {
        self.becomes_within(LIMIT, job, wanted, by).await
    }

    pub(super) async fn becomes_within(
        &self,
        limit: Duration,
        job: i64,
        wanted: &str,
        by: &Running,
    ) -> Verdict {
        let ends = ["completed", "failed", "cancelled"];
        let what = format!("job {job} is {wanted}");
        within(&what, limit, async || {
            let has_ended = by.has_ended();
            match self.state(job).await? {
                seen if seen == wanted => Ok(Ok(())),
                seen if is_past(&seen, wanted) || ends.iter().any(|end| seen.ends_with(end)) => {
                    Ok(Err(format!("job {job} is {seen}, not {wanted}")))
                }
                seen => match has_ended {
                    Ok(()) => Err(seen),
                    Err(ended) => Ok(Err(format!("{ended}; job {job} is {seen}, not {wanted}"))),
                },
            }
        })
        .await?
    }

    /// Waits for a line of the log for this attempt: `begin`, `done`, `stopped`, or `ended` for
    /// either end.
    pub(super) async fn logs(
        &self,
        limit: Duration,
        what: &str,
        (job, attempt): (i64, i32),
        by: &Running,
    ) -> Verdict<Line> {
        let wanted = format!("{what} of job {job}");
        within(&wanted, limit, async || {
            let has_ended = by.has_ended();
            let lines = self.log()?;
            let of_attempt = |line: &&Line| (line.job, line.attempt) == (job, attempt);
            let mut of_attempt = lines.iter().filter(of_attempt);
            match of_attempt.find(|line| line.what == what || line.what != "begin") {
                Some(line) if line.what == what || what == "ended" => Ok(Ok(line.clone())),
                Some(line) => Ok(Err(format!("{line:?}, not {what}"))),
                None => match has_ended {
                    Ok(()) => Err(format!("{lines:?}")),
                    Err(ended) => Ok(Err(format!("{ended}; no {what} of job {job}"))),
                },
            }
        })
        .await?
    }

    /// Enqueues a job that works for `ms` milliseconds, and waits until its handler has begun.
    pub(super) async fn begins(&self, ms: u32, by: &Running) -> Verdict<i64> {
        let job = self
            .enqueue("wait", &format!("{{\"ms\": {ms}}}"), "")
            .await?;
        self.logs(LIMIT, "begin", (job, 1), by).await?;
        Ok(job)
    }

    /// Checks that the worker still works: a small job completes.
    pub(super) async fn works(&self, by: &Running) -> Verdict {
        let job = self.enqueue("echo", "{}", "").await?;
        self.becomes(job, "1 completed", by).await
    }

    /// `attempt state` of the runs of a job, in order.
    pub(super) async fn runs(&self, job: i64) -> Verdict<String> {
        let sql = format!(
            "select string_agg(concat_ws(' ', attempt, state, failure_kind), ', ' order by attempt)
            from trax.run where job_id = {job}"
        );
        self.value(&sql).await
    }

    /// Checks the conditions that hold after every scenario.
    pub(super) async fn is_sound(&self) -> Verdict {
        is("violations", violations(&self.client).await, vec![])?;
        is("overlaps", log::overlaps(&self.log()?), vec![])
    }
}

async fn prepared(client: &Client) -> Statement {
    let state = "select attempt || ' ' || state from trax.job where job_id = $1";
    client.prepare(state).await.expect("it is prepared")
}

/// Whether an `attempt state` belongs to a later attempt; a running attempt may still return to 0.
fn is_past(seen: &str, wanted: &str) -> bool {
    let attempt = |state: &str| state.split(' ').next().and_then(|word| word.parse().ok());
    let is_running = seen.ends_with("in_progress");
    let (seen, wanted): (Option<i32>, Option<i32>) = (attempt(seen), attempt(wanted));
    let later = seen > wanted;
    later && (wanted > Some(0) || !is_running)
}

/// Checks that a value is as expected.
pub(super) fn is<T: PartialEq + std::fmt::Debug>(what: &str, seen: T, expected: T) -> Verdict {
    match seen == expected {
        true => Ok(()),
        false => Err(format!("{what}: {seen:?}, not {expected:?}")),
    }
}
