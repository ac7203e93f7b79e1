//! Workers in other languages (`trax_client/examples`): their jobs end once, a heartbeat keeps
//! them, signals end them, and what a killed one leaves behind is done by the next.

use harness::process::{Process, send_signal};
use harness::scheduler::{connect, execute, live_database, live_server, value, violations};
use harness::{PATIENCE, eventually};
use std::path::{Path, PathBuf};
use std::process::Command;
use tokio_postgres::Client;
use trax_client::testkit::Database;

/// How to run each of them, from the directory of the examples.
const PYTHON: &str = "python/worker.py";
const NODE: &str = "node/worker.js";
const PSQL: &str = "psql/worker.sh";

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("the workspace").to_path_buf()
}

/// The worker, with a lease in seconds. `scripts/languages` installs what it runs on.
fn worker(script: &str, database: &Database, lease: &str) -> Process {
    let languages = root().join("target/languages");
    let path = root().join("trax_client/examples").join(script);
    let lines = std::fs::read_to_string(&path).expect("the example is there");
    assert!(
        lines.lines().count() < 60,
        "{script} is a page, not more: {} lines",
        lines.lines().count()
    );
    let mut command = match script {
        PYTHON => {
            let python = languages.join("python/bin/python3");
            assert!(python.exists(), "run scripts/languages first");
            Command::new(python)
        }
        NODE => Command::new("node"),
        _ => Command::new("bash"),
    };
    let server = live_server();
    let port = server.port().to_string();
    // What each takes; that of psql is psql's own.
    match script {
        PSQL => command
            .env("PGHOST", "127.0.0.1")
            .env("PGPORT", port)
            .env("PGUSER", "postgres")
            .env("PGDATABASE", database.name()),
        _ => command.env(
            "DATABASE_URL",
            format!("postgresql://postgres@127.0.0.1:{port}/{}", database.name()),
        ),
    };
    command
        .arg(path)
        .env("NODE_PATH", languages.join("node/node_modules"))
        .env("LEASE", lease);
    Process::start(command)
}

/// A database that reaps 20 times a second, and a session in it.
async fn hasty() -> (Database, Client) {
    let database = live_database().await;
    let client = connect(&database).await;
    let name = database.name();
    execute(
        &client,
        &format!("alter database {name} set trax.tick_interval = '50 ms'"),
    )
    .await;
    (database, client)
}

async fn enqueue(client: &Client, text: &str, seconds: f64) -> i64 {
    let sql = "select trax.enqueue('count.words', jsonb_build_object('text', $1::text, 'seconds', $2::float8))";
    let row = client.query_one(sql, &[&text, &seconds]).await;
    row.expect("a job is enqueued").get(0)
}

/// `attempt state output` of a job, once it is as wanted.
async fn becomes(client: &Client, job: i64, wanted: &str, worker: &Process) {
    let sql = format!(
        "select attempt || ' ' || state || coalesce(' ' || output::text, '') from trax.job where job_id = {job}"
    );
    eventually(
        &format!("job {job}: {wanted}"),
        PATIENCE,
        async || match value::<String>(client, &sql).await {
            seen if seen == wanted => Ok(()),
            seen => Err(format!("{seen}; the worker said: {}", worker.output())),
        },
    )
    .await;
}

/// Of the workers, in seconds: one that a busy machine holds up for a few seconds keeps it.
const LEASE: &str = "6";

/// What each of them must do.
async fn is_a_correct_worker(script: &str) {
    let (database, client) = hasty().await;
    // Text that a careless program would put into SQL, or cut at a blank.
    let two = enqueue(&client, "don't $1; \\ panic", 0.0).await;
    let none = enqueue(&client, "", 0.0).await;
    let mut one = worker(script, &database, LEASE);
    becomes(&client, two, "1 completed {\"words\": 4}", &one).await;
    becomes(&client, none, "1 completed {\"words\": 0}", &one).await;

    // Two leases long: without heartbeats it would be taken away.
    let long = enqueue(&client, "a b c", 12.0).await;
    becomes(&client, long, "1 completed {\"words\": 3}", &one).await;
    let cancelled = enqueue(&client, "never counted", 60.0).await;
    becomes(&client, cancelled, "1 in_progress", &one).await;
    execute(&client, &format!("select trax.cancel({cancelled})")).await;
    becomes(&client, cancelled, "1 cancelled", &one).await;

    // The first signal lets the job end, and nothing else is claimed.
    let last = enqueue(&client, "the last one", 5.0).await;
    becomes(&client, last, "1 in_progress", &one).await;
    let left = enqueue(&client, "left", 60.0).await;
    send_signal("TERM", one.id());
    let status = one.ends(PATIENCE).await;
    assert!(status.success(), "{status}: {}", one.output());
    becomes(&client, last, "1 completed {\"words\": 3}", &one).await;
    becomes(&client, left, "0 queued", &one).await;

    // The second one gives the job back, and spends no attempt.
    let mut two = worker(script, &database, LEASE);
    becomes(&client, left, "1 in_progress", &two).await;
    send_signal("TERM", two.id());
    two.says("stopping", PATIENCE).await;
    send_signal("TERM", two.id());
    let status = two.ends(PATIENCE).await;
    assert!(status.success(), "{status}: {}", two.output());
    becomes(&client, left, "0 queued", &two).await;
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_worker_in_python_is_a_correct_one() {
    is_a_correct_worker(PYTHON).await;
}

#[tokio::test]
async fn a_worker_in_node_is_a_correct_one() {
    is_a_correct_worker(NODE).await;
}

#[tokio::test]
async fn a_worker_of_psql_is_a_correct_one() {
    is_a_correct_worker(PSQL).await;
}

#[tokio::test]
async fn what_a_killed_worker_leaves_behind_is_done_once_by_one_of_another_language() {
    let (database, client) = hasty().await;
    execute(
        &client,
        &format!(
            "alter database {} set trax.retry_delay = '0 s'",
            database.name()
        ),
    )
    .await;
    let job = enqueue(&client, "a job for two", 2.0).await;
    let python = worker(PYTHON, &database, "3");
    becomes(&client, job, "1 in_progress", &python).await;
    send_signal("KILL", python.id());
    let node = worker(NODE, &database, LEASE);
    becomes(&client, job, "2 completed {\"words\": 4}", &node).await;
    let sql = "select string_agg(state || coalesce(' ' || failure_kind, ''), ', ' order by attempt) from trax.run";
    assert_eq!(
        value::<String>(&client, sql).await,
        "failed lease_expired, completed"
    );
    assert_eq!(violations(&client).await, Vec::<String>::new());
}

#[test]
fn no_example_of_psql_has_a_secret_among_its_arguments() {
    let path = root().join("trax_client/examples").join(PSQL);
    let script = std::fs::read_to_string(path).expect("the example is there");
    for secret in ["DATABASE_URL", "-v token", "-v o=", "-v e=", "-d "] {
        assert!(!script.contains(secret), "{secret}");
    }
}

/// Its heartbeats come from a process of their own, which a kill of the worker does not reach.
#[tokio::test]
async fn the_heart_of_a_killed_worker_of_psql_stops() {
    let (database, client) = hasty().await;
    let job = enqueue(&client, "never counted", 600.0).await;
    let psql = worker(PSQL, &database, "3");
    becomes(&client, job, "1 in_progress", &psql).await;
    send_signal("KILL", psql.id());
    let ended =
        format!("select coalesce(min(failure_kind), 'no run') from trax.run where job_id = {job}");
    eventually("the lease runs out", PATIENCE, async || {
        match value::<String>(&client, &ended).await {
            kind if kind == "lease_expired" => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    assert_eq!(violations(&client).await, Vec::<String>::new());
}
