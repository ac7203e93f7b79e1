//! A server that has no time, no lock or no room at the moment of an outcome: finished work is told again until it is kept.

use super::{enqueue, start, worker, worker_at};
use harness::scheduler::{connect, execute, value};
use harness::{PATIENCE, database, eventually};
use std::time::Duration;
use tokio::sync::watch;
use tokio_postgres::Client;
use trax_client::{Context, JobError, Worker};

/// Jobs that end when the gate opens, all of them begun.
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
            seen => Err(seen.to_string()),
        },
    )
    .await;
}

/// What was told is what the handlers said, at their first attempt.
async fn kept(client: &Client, running: super::Running, jobs: i64) {
    recorded_rightly(client, jobs).await;
    let summary = running.drain().await;
    assert_eq!(
        (
            summary.completed + summary.dead,
            summary.lost,
            summary.untold
        ),
        (jobs as u64, 0, 0),
        "{summary}"
    );
}

async fn recorded_rightly(client: &Client, jobs: i64) {
    recorded(client, jobs).await;
    let wrong = "select count(*) from trax.run
        where attempt > 1 or coalesce(error, '') <> case when (input #>> '{}')::int % 10 = 9 then 'it is a nine' else '' end";
    assert_eq!(value::<i64>(client, wrong).await, 0);
}

/// One lease is locked by somebody; the worker's calls wait for no lock longer than `setting` allows.
async fn one_is_locked(setting: &str, is_told_once: bool) {
    let database = database().await;
    let client = connect(&database).await;
    // Not behind a pooler, which takes no options.
    let mut config = database.config();
    config.options(setting);
    let worker = worker_at(config).lease(Duration::from_secs(6));
    let (running, open) = begun(&client, worker, 40).await;
    let mut locker = connect(&database).await;
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
    if is_told_once {
        return kept(&client, running, 41).await;
    }
    // A call that was given up while it waited records the outcome when the lock goes; told again it is lost.
    recorded_rightly(&client, 41).await;
    let summary = running.drain().await;
    assert_eq!(
        summary.completed + summary.dead + summary.lost,
        41,
        "{summary}"
    );
}

#[tokio::test]
async fn a_lock_timeout_costs_no_finished_work_and_holds_up_no_other() {
    one_is_locked("-c lock_timeout=50ms", true).await;
}

#[tokio::test]
async fn a_statement_timeout_costs_no_finished_work_and_holds_up_no_other() {
    one_is_locked("-c statement_timeout=200ms", true).await;
}

/// Nothing ends the wait but the worker itself.
#[tokio::test]
#[ignore = "in one of three runs two of 38 outcomes came later than 90 s; why is not known yet"]
async fn a_lock_that_lasts_costs_no_finished_work_and_holds_up_no_other() {
    one_is_locked("-c lock_timeout=0", false).await;
}

/// What records outcomes.
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
