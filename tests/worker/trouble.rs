//! A server without time, locks or room at the moment of an outcome: finished work is reported
//! again until it is recorded.

use super::{enqueue, run, runs, start, worker, worker_at};
use harness::proxy::Proxy;
use harness::scheduler::{connect, execute, value};
use harness::{PATIENCE, database, eventually, shared_server};
use std::time::Duration;
use tokio::sync::watch;
use tokio_postgres::Client;
use trax_client::testkit::Database;
use trax_client::{Context, Event, HandlerResult, JobError, Json, Worker};

/// Jobs that end when the gate opens; returns once all have begun.
async fn begun(
    client: &Client,
    worker: Worker,
    jobs: u32,
) -> (super::Running, watch::Sender<bool>) {
    let (open, gate) = watch::channel(false);
    for number in 0..jobs {
        enqueue(client, "t", number).await;
    }
    let work = move |number: u32, _: Context| {
        let mut gate = gate.clone();
        async move {
            gate.wait_for(|open| *open).await?;
            match number % 10 {
                9 => Err(JobError::permanent("it is a nine")),
                _ => Ok(number),
            }
        }
    };
    let running = start(worker.concurrency(jobs as usize).handle("t", work));
    eventually("all run", PATIENCE, async || {
        match value::<i64>(client, "select count(*) from trax.lease").await {
            seen if seen == i64::from(jobs) => Ok(()),
            seen => Err(seen.to_string()),
        }
    })
    .await;
    (running, open)
}

async fn recorded(client: &Client, jobs: i64) {
    eventually(
        &format!("{jobs} outcomes"),
        PATIENCE,
        async || match value::<i64>(client, "select count(*) from trax.run").await {
            seen if seen == jobs => Ok(()),
            // With the sessions that wait for a lock, and their blockers.
            seen => {
                let waiting = "select coalesce(string_agg(concat_ws(' ', pid, 'waits for', pg_blocking_pids(pid), query), e'\n'), '')
                    from pg_stat_activity where wait_event_type = 'Lock'";
                Err(format!("{seen}; {}", value::<String>(client, waiting).await))
            }
        },
    )
    .await;
}

/// Checks that the recorded outcomes are those of the handlers, at their first attempt.
async fn kept(client: &Client, running: super::Running, jobs: i64) {
    recorded(client, jobs).await;
    let wrong = "select count(*) from trax.run
        where attempt > 1 or coalesce(error, '') <> case when (input #>> '{}')::int % 10 = 9 then 'it is a nine' else '' end";
    assert_eq!(value::<i64>(client, wrong).await, 0);
    let summary = running.drain().await;
    assert_eq!(
        (
            summary.completed + summary.dead,
            summary.lost,
            summary.unreported
        ),
        (jobs as u64, 0, 0),
        "{summary}"
    );
}

/// Locks two leases; the worker waits for them no longer than the server allows.
async fn some_are_locked(database: &Database, worker: Worker) {
    let client = connect(database).await;
    let (running, open) = begun(&client, worker.lease(Duration::from_secs(6)), 40).await;
    let mut locker = connect(database).await;
    let lock = locker.transaction().await.expect("it begins");
    lock.execute(
        "select from trax.lease where input in ('7', '19') for update",
        &[],
    )
    .await
    .expect("they are locked");
    open.send_replace(true);
    recorded(&client, 38).await;
    let late = enqueue(&client, "t", 0).await;
    super::state_becomes(&client, late, "completed").await;
    lock.rollback().await.expect("it ends");
    kept(&client, running, 41).await;
}

/// As [`some_are_locked`], with a setting of the worker's sessions. Not behind a pooler, which
/// accepts no options.
async fn some_are_locked_with(setting: &str) {
    let database = database().await;
    let mut config = database.config();
    config.options(setting);
    some_are_locked(&database, worker_at(config)).await;
}

#[tokio::test]
async fn a_lock_timeout_costs_no_finished_work_and_holds_up_no_other() {
    some_are_locked_with("-c lock_timeout=50ms").await;
}

#[tokio::test]
async fn a_statement_timeout_costs_no_finished_work_and_holds_up_no_other() {
    some_are_locked_with("-c statement_timeout=200ms").await;
}

/// No setting ends the wait.
#[tokio::test]
async fn a_lock_that_lasts_costs_no_finished_work_and_holds_up_no_other() {
    let database = database().await;
    some_are_locked(&database, worker(&database)).await;
}

#[tokio::test]
async fn a_stop_soon_reports_again_what_was_reported_in_vain_for_long() {
    let database = database().await;
    let client = connect(&database).await;
    let (pauses, mut pause) = watch::channel(Duration::ZERO);
    let worker = worker(&database).on_event(move |event| {
        if let Event::Trouble {
            during: "outcome",
            retry_in,
            ..
        } = event
        {
            pauses.send_replace(*retry_in);
        }
    });
    let (running, open) = begun(&client, worker, 3).await;
    let mut locker = connect(&database).await;
    let lock = locker.transaction().await.expect("it begins");
    lock.execute("select from trax.lease for update", &[])
        .await
        .expect("they are locked");
    open.send_replace(true);
    let long = async {
        let long = pause
            .wait_for(|pause| *pause > Duration::from_secs(6))
            .await;
        long.expect("the worker runs");
    };
    let waited = tokio::time::timeout(PATIENCE, long).await;
    waited.expect("it is told ever less often");
    running.shutdown.drain();
    // The pause of the shutdown.
    pause.changed().await.expect("the worker runs");
    lock.rollback().await.expect("it ends");
    kept(&client, running, 3).await;
}

/// Saves the functions that record outcomes.
const SAVE: &str = "create table saved as
    select pg_get_functiondef(oid) as definition from pg_proc
    where pronamespace = 'trax'::regnamespace and proname in ('complete', 'complete_many', 'complete_and_claim', 'fail')";
const RESTORE: &str = "do $$ declare d text; begin for d in select definition from saved loop execute d; end loop; end $$";

/// Makes every outcome fail with a SQLSTATE.
fn refusing(code: &str) -> String {
    format!(
        "do $$ declare d text; begin
            for d in select definition from saved loop
                execute regexp_replace(d, '\n LANGUAGE.*', E'\\n language plpgsql as $f$ begin
                    raise exception ''could not extend'' using errcode = ''{code}''; end $f$');
            end loop;
        end $$"
    )
}

#[tokio::test]
async fn a_full_disk_or_memory_costs_no_finished_work() {
    for code in ["53100", "53200", "58030", "40001"] {
        let database = database().await;
        let client = connect(&database).await;
        let (running, open) = begun(&client, worker(&database), 20).await;
        execute(&client, SAVE).await;
        execute(&client, &refusing(code)).await;
        open.send_replace(true);
        tokio::time::sleep(Duration::from_millis(700)).await;
        assert_eq!(
            value::<i64>(&client, "select count(*) from trax.run").await,
            0
        );
        execute(&client, RESTORE).await;
        kept(&client, running, 20).await;
    }
}

/// The address of a database behind a proxy.
fn through(proxy: &Proxy, database: &Database) -> tokio_postgres::Config {
    let mut config = tokio_postgres::Config::new();
    config
        .host("127.0.0.1")
        .port(proxy.port())
        .user("postgres")
        .dbname(database.name());
    config
}

/// As with a message that is longer than the server accepts.
#[tokio::test]
async fn an_outcome_that_ends_the_connection_each_time_ends_as_failed_and_holds_up_no_other() {
    let database = database().await;
    let client = connect(&database).await;
    let proxy = Proxy::before_longer(shared_server().port(), 4500).await;
    let through = through(&proxy, &database);
    let mut jobs = Vec::new();
    for size in [10, 5000, 20, 6000, 30] {
        jobs.push(enqueue(&client, "t", size).await);
    }
    let work = |size: usize, _: Context| async move {
        match size {
            6000 => Err(JobError::permanent("y".repeat(size))),
            size => HandlerResult::Ok("x".repeat(size)),
        }
    };
    let summary = run(worker_at(through).handle("t", work)).await;
    assert!(proxy.has_cut());
    assert_eq!(
        (summary.completed, summary.retrying, summary.dead),
        (3, 0, 2),
        "{summary}"
    );
    let said = runs(&client, jobs[1]).await.join("");
    let why = "failed error the outcome was refused: the 5002 bytes of the outcome ended the connection 5 times: ";
    assert!(said.starts_with(why), "{said}");
    let said = runs(&client, jobs[3]).await.join("");
    let both = said.contains("yyy; the 6000 bytes of the outcome ended the connection 5 times: ");
    assert!(said.starts_with("failed error yyy") && both, "{said}");
    let times = "select max(finished_at) filter (where state = 'completed')
            < min(finished_at) filter (where state = 'failed') from trax.run";
    assert!(value::<bool>(&client, times).await, "the others came first");
}

/// An administrator, a failover or a pooler ends the session with an error that names the cause, so
/// the outcome is not at fault.
#[tokio::test]
async fn sessions_that_are_terminated_at_each_outcome_cost_no_finished_work() {
    let database = database().await;
    let client = connect(&database).await;
    let end = "create sequence public.told;
        create function public.terminate() returns trigger language plpgsql as $$ begin
            if nextval('public.told') <= 8 then
                perform pg_terminate_backend(pg_backend_pid());
            end if;
            return new;
        end $$;
        create trigger terminate before insert on trax.run for each row execute function public.terminate()";
    execute(&client, end).await;
    let (running, open) = begun(&client, worker(&database), 1).await;
    open.send_replace(true);
    kept(&client, running, 1).await;
    let told = "select last_value from public.told";
    assert_eq!(value::<i64>(&client, told).await, 9);
}

#[tokio::test]
async fn an_output_that_is_nested_too_deeply_ends_its_job_at_once_and_holds_up_no_other() {
    let database = database().await;
    let client = connect(&database).await;
    for depth in [1, 200_000, 2] {
        enqueue(&client, "t", depth).await;
    }
    let work = |depth: usize, _: Context| async move {
        let output = format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        Ok::<Json, JobError>(output.parse()?)
    };
    let summary = run(worker(&database).handle("t", work)).await;
    assert_eq!((summary.completed, summary.dead), (2, 1), "{summary}");
    let said = "select state || ': ' || error from trax.run where input = '200000'";
    let said = value::<String>(&client, said).await;
    assert!(
        said.starts_with("failed: the outcome was refused: stack depth limit exceeded"),
        "{said}"
    );
}

/// Sending the output takes longer than a call may.
#[tokio::test]
async fn an_output_that_takes_too_long_to_send_ends_its_job_and_holds_up_no_other() {
    let database = database().await;
    let client = connect(&database).await;
    let proxy = Proxy::still_before_longer(shared_server().port(), 100_000).await;
    let through = through(&proxy, &database);
    let long = enqueue(&client, "t", 200_000).await;
    enqueue(&client, "t", 10).await;
    let work = |size: usize, _: Context| async move { Ok::<_, JobError>("x".repeat(size)) };
    let worker = worker_at(through).lease(Duration::from_secs(4));
    let summary = run(worker.handle("t", work)).await;
    assert!(proxy.has_cut());
    assert_eq!((summary.completed, summary.dead), (1, 1), "{summary}");
    let said = runs(&client, long).await.join("");
    let why = "failed error the outcome was refused: the 200002 bytes of the outcome had no answer 2 times: connection: no answer within 2.0 s";
    assert!(said.starts_with(why), "{said}");
    let first = "select min(finished_at) filter (where state = 'completed')
            < min(finished_at) filter (where state = 'failed') from trax.run";
    assert!(value::<bool>(&client, first).await, "the other came first");
}
