//! SIGKILL of any participant: nothing acknowledged is lost, and nothing is done twice.

use harness::process::{Orphan, Process, Scratch, send_signal, trax_binary};
use harness::prompt::takes_less_than;
use harness::scheduler::{
    a_cycle_runs, connect, execute, live_database, scheduler_of, scheduling, value, violations,
};
use harness::{PATIENCE, eventually};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio_postgres::Client;
use trax_client::testkit::{Database, Server};
use trax_client::{ClaimOptions, Client as Trax, JobId, NewJob, Token};
use uuid::Uuid;

/// `trax.tick_interval` by default, and half of it for the cycle itself.
const CYCLE: Duration = Duration::from_millis(1500);

/// The token and the worker of the only lease.
async fn lease(client: &Client) -> Result<(Uuid, String), String> {
    let rows = client
        .query("select token, worker from trax.lease where not ahead", &[])
        .await;
    match rows.map_err(|error| format!("{error:?}"))?.as_slice() {
        [row] => Ok((row.get(0), row.get(1))),
        rows => Err(format!("{} leases", rows.len())),
    }
}

/// The rows of all tables that can hold a job.
async fn everything(client: &Client) -> String {
    let sql = "select string_agg(t, E'\\n' order by t) from (
        select 'queue ' || q::text from trax.work_queue q
        union all select 'lease ' || l::text from trax.lease l
        union all select 'run ' || r::text from trax.run r
        union all select 'dead ' || d::text from trax.dead_letter d
    ) rows (t)";
    value(client, sql).await
}

/// Waits for the second attempt and checks that the first attempt's calls are refused; returns the
/// delay from the end of the first lease to the claim, by the server's clock.
async fn the_job_runs_again(client: &Client, job: JobId, stale: Uuid) -> Duration {
    let trax = Trax::new(client);
    let end = "select (extract(epoch from lease_expires_at) * 1000)::bigint from trax.lease";
    let lease_end = value::<i64>(client, end).await;
    let claimed = eventually("the second attempt", PATIENCE, async || {
        let claimed = trax
            .claim(&ClaimOptions::new())
            .await
            .map_err(|error| error.to_string())?;
        claimed
            .into_iter()
            .next()
            .ok_or("nothing to claim".to_owned())
    })
    .await;
    assert_eq!((claimed.job_id, claimed.attempt), (job, 2));
    let taken = "select (extract(epoch from finished_at) * 1000)::bigint from trax.run";
    let took = value::<i64>(client, taken).await - lease_end;

    let before = everything(client).await;
    for outcome in [
        "complete($1, $2)",
        "release($1, $2)",
        "acknowledge_cancel($1, $2)",
    ] {
        let row = client
            .query_one(&format!("select trax.{outcome}"), &[&job.0, &stale])
            .await;
        assert!(
            !row.expect("a late outcome is a value").get::<_, bool>(0),
            "{outcome}"
        );
    }
    let row = client
        .query_one("select trax.fail($1, $2, 'late')", &[&job.0, &stale])
        .await;
    assert_eq!(
        row.expect("a late outcome is a value").get::<_, &str>(0),
        "lost"
    );
    assert_eq!(everything(client).await, before);

    assert_eq!(
        trax.complete(job, claimed.token, &"done").await.ok(),
        Some(true)
    );
    let sql = "select string_agg(concat_ws(' ', attempt, state, failure_kind), ', ' order by attempt) from trax.run";
    assert_eq!(
        value::<String>(client, sql).await,
        "1 failed lease_expired, 2 completed"
    );
    assert_eq!(violations(client).await, Vec::<String>::new());
    execute(client, "delete from trax.run").await;
    Duration::from_millis(took.try_into().expect("no lease is taken before its end"))
}

#[tokio::test]
async fn the_job_of_a_killed_session_runs_again_within_one_lease_and_one_cycle() {
    let database = live_database().await;
    let client = connect(&database).await;
    takes_less_than(CYCLE, "the cycle after the lease", async || {
        let job = Trax::new(&client)
            .enqueue(&NewJob::new("t", 1))
            .await
            .expect("a job is enqueued");
        let mut psql = harness::scheduler::live_server().command("psql");
        psql.args(["-XAtq", "-d", database.name(), "-c"]);
        psql.arg("select token from trax.claim_next(lease => '5 s')")
            .args(["-c", "select pg_sleep(60)"]);
        let worker = Process::start(psql);
        let (token, _) = eventually("the worker's lease", PATIENCE, async || {
            lease(&client).await
        })
        .await;
        send_signal("KILL", worker.id());
        the_job_runs_again(&client, job, token).await
    })
    .await;
}

#[tokio::test]
async fn the_job_of_a_killed_worker_process_runs_again_within_one_lease_and_one_cycle() {
    let database = live_database().await;
    let client = connect(&database).await;
    takes_less_than(CYCLE, "the cycle after the lease", async || {
        let files = Scratch::new("killed-worker");
        let pid_file = files.path().join("pid");
        let job = Trax::new(&client)
            .enqueue(&NewJob::new("t", 1))
            .await
            .expect("a job is enqueued");
        let mut command = std::process::Command::new(trax_binary());
        command.arg("--database-url").arg(url(&database)).args([
            "worker",
            "--lease",
            "5",
            "--all-tasks",
            "--exec",
        ]);
        command.arg(format!("echo $$ > {}; exec sleep 60", pid_file.display()));
        let worker = Process::start(command);
        let program = eventually("the program that the worker runs", PATIENCE, async || {
            let text = std::fs::read_to_string(&pid_file).unwrap_or_default();
            text.trim()
                .parse::<i32>()
                .map(Orphan)
                .map_err(|_| format!("{text:?}; {}", worker.output()))
        })
        .await;
        let (token, name) = eventually("the worker's lease", PATIENCE, async || {
            lease(&client).await
        })
        .await;
        assert!(
            name.contains(&worker.id().to_string()),
            "{name} names the worker's process"
        );
        send_signal("KILL", worker.id());
        let took = the_job_runs_again(&client, job, token).await;
        drop(program);
        took
    })
    .await;
}

fn url(database: &Database) -> String {
    let server = harness::scheduler::live_server();
    format!(
        "host={} port={} user=postgres dbname={}",
        server.socket_dir().display(),
        server.port(),
        database.name()
    )
}

/// The work that the server acknowledged to clients.
#[derive(Default)]
struct Acknowledged {
    enqueued: BTreeSet<i64>,
    completed: BTreeSet<i64>,
}

type Shared = Arc<Mutex<Acknowledged>>;

fn count(acknowledged: &Shared) -> usize {
    let told = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
    told.completed.len()
}

/// Enqueues, claims and completes until the connection breaks, and records the acknowledgements.
async fn load(database: Database, acknowledged: Shared) {
    let Ok(client) = database.connect().await else {
        return;
    };
    let trax = Trax::new(&client);
    loop {
        let Ok(job) = trax.enqueue(&NewJob::new("load", 1)).await else {
            return;
        };
        acknowledged
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .enqueued
            .insert(job.0);
        let options = ClaimOptions::new()
            .max_jobs(2)
            .lease(Duration::from_secs(60));
        let Ok(claimed) = trax.claim(&options).await else {
            return;
        };
        let leases: Vec<(JobId, Token)> =
            claimed.iter().map(|one| (one.job_id, one.token)).collect();
        let nothing = vec![None; leases.len()];
        let Ok(done) = trax.complete_many(&leases, nothing).await else {
            return;
        };
        let mut told = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        told.completed.extend(done.iter().map(|job| job.0));
    }
}

/// Starts a load, waits until work is acknowledged, calls `strike`, and waits until every
/// connection is broken.
async fn under_load(database: &Database, acknowledged: &Shared, strike: impl AsyncFnOnce(&Client)) {
    let client = connect(database).await;
    let before = count(acknowledged);
    let loads: Vec<_> = (0..4)
        .map(|_| tokio::spawn(load(database.clone(), Arc::clone(acknowledged))))
        .collect();
    eventually("300 acknowledged completions", PATIENCE, async || {
        match count(acknowledged) - before {
            300.. => Ok(()),
            seen => Err(format!("{seen}")),
        }
    })
    .await;
    strike(&client).await;
    for load in loads {
        let ended = tokio::time::timeout(PATIENCE, load).await;
        ended
            .expect("the crash breaks every connection")
            .expect("the load does not panic");
    }
}

/// Connects once the server has recovered.
async fn after_recovery(database: &Database) -> Client {
    eventually("the recovered server", PATIENCE, async || {
        let client = database
            .connect()
            .await
            .map_err(|error| error.to_string())?;
        client
            .execute("select 1", &[])
            .await
            .map_err(|error| error.to_string())?;
        Ok(client)
    })
    .await
}

async fn ids(client: &Client, sql: &str) -> BTreeSet<i64> {
    let rows = client.query(sql, &[]).await.expect("the query is right");
    rows.iter().map(|row| row.get(0)).collect()
}

async fn nothing_acknowledged_is_lost(client: &Client, acknowledged: &Shared) {
    let jobs = ids(client, "select job_id from trax.job").await;
    let completed = ids(
        client,
        "select job_id from trax.run where state = 'completed' and final",
    )
    .await;
    assert_eq!(violations(client).await, Vec::<String>::new());
    let told = acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
    assert_eq!(
        told.enqueued.difference(&jobs).collect::<Vec<_>>(),
        Vec::<&i64>::new()
    );
    assert_eq!(
        told.completed.difference(&completed).collect::<Vec<_>>(),
        Vec::<&i64>::new()
    );
}

fn durable_server() -> Server {
    // fsync stays on.
    harness::options()
        .setting("max_worker_processes", "16")
        .start()
        .expect("a server starts")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_backend_loses_nothing_that_was_acknowledged() {
    let server = durable_server();
    let database = server.database("load").await.expect("a database is made");
    let acknowledged = Shared::default();
    let backend = "select pid from pg_stat_activity where query like '%complete_many%'
        and backend_type = 'client backend' and pid <> pg_backend_pid() limit 1";
    let scheduler = "select pid from pg_stat_activity where backend_type = 'trax scheduler'";
    for victim in [backend, scheduler, backend] {
        let client = after_recovery(&database).await;
        scheduler_of(&client, "load", PATIENCE).await;
        under_load(&database, &acknowledged, async |client: &Client| {
            let pid = eventually("the victim", PATIENCE, async || {
                let row = client
                    .query_opt(victim, &[])
                    .await
                    .map_err(|error| format!("{error:?}"))?;
                row.map(|row| row.get::<_, i32>(0))
                    .ok_or("nobody".to_owned())
            })
            .await;
            send_signal("KILL", pid);
        })
        .await;
        let client = after_recovery(&database).await;
        nothing_acknowledged_is_lost(&client, &acknowledged).await;
    }
    let client = after_recovery(&database).await;
    scheduler_of(&client, "load", PATIENCE).await;
    everything_ends(&client).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_server_loses_nothing_that_was_acknowledged() {
    let mut server = durable_server();
    let database = server.database("load").await.expect("a database is made");
    let acknowledged = Shared::default();
    under_load(&database, &acknowledged, async |_: &Client| {
        server.kill().expect("the postmaster is killed");
    })
    .await;
    server.start().expect("the server recovers");
    let client = after_recovery(&database).await;
    nothing_acknowledged_is_lost(&client, &acknowledged).await;
    scheduler_of(&client, "load", PATIENCE).await;
    everything_ends(&client).await;
}

/// The leases orphaned by the crash expire, their jobs run again, and all jobs complete.
async fn everything_ends(client: &Client) {
    execute(
        client,
        "update trax.lease set lease_expires_at = now(), reap_at = now()",
    )
    .await;
    a_cycle_runs(client, PATIENCE).await;
    eventually("the end of every job", PATIENCE, async || {
        execute(
            client,
            "select trax.complete(c.job_id, c.token) from trax.claim_next(max_jobs => 1000, tasks => '{load}') c",
        )
        .await;
        let sql = "select count(*) from trax.job where task = 'load' and state <> 'completed'";
        match value::<i64>(client, sql).await {
            0 => Ok(()),
            left => Err(format!("{left} left")),
        }
    })
    .await;
    let sql =
        "select count(*) - count(distinct job_id) from trax.run where task = 'load' and final";
    assert_eq!(value::<i64>(client, sql).await, 0);
    assert_eq!(violations(client).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_session_that_ends_between_claim_and_commit_leaves_the_job_to_others() {
    let server = scheduling().start().expect("a server starts");
    let database = server.database("halves").await.expect("a database is made");
    let client = connect(&database).await;
    let job = Trax::new(&client)
        .enqueue(&NewJob::new("t", 1))
        .await
        .expect("a job is enqueued");
    let claimer = connect(&database).await;
    let pid: i32 = value(&claimer, "select pg_backend_pid()").await;
    execute(&claimer, "begin; select * from trax.claim_next()").await;
    assert_eq!(
        value::<i64>(&client, "select count(*) from trax.claim_next()").await,
        0
    );
    execute(
        &client,
        &format!("select pg_terminate_backend({pid}, 5000)"),
    )
    .await;
    let sql = "select job_id from trax.claim_next() where attempt = 1";
    assert_eq!(value::<i64>(&client, sql).await, job.0);
}
