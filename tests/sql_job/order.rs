//! The order of SQL jobs: misfires, overlaps, priorities and keys work as for other jobs.

use super::{ended, live, queue_with, sleeper_of};
use harness::manifest::{Hourly, complete_one, due_since};
use harness::scheduler::violations;
use harness::session::Session;
use harness::{PATIENCE, eventually};

/// Waits until a query returns this.
async fn becomes(s: &Session, sql: &str, wanted: &str) {
    eventually(sql, PATIENCE, async || {
        let seen = s.get(sql).await;
        if seen == wanted { Ok(()) } else { Err(seen) }
    })
    .await;
}

/// Waits until this many runs of a manifest have completed.
async fn completed(s: &Session, manifest: &str, runs: &str) {
    let sql = format!(
        "select count(*) from trax.run where manifest = '{manifest}' and state = 'completed'"
    );
    becomes(s, &sql, runs).await;
}

#[tokio::test]
async fn missed_runs_of_a_statement_are_made_up_for_as_its_policy_says() {
    let (_database, s) = live().await;
    let hourly = Hourly::of(&s).await;
    for (name, misfire, since) in [
        ("once", "fire_once", 30),
        ("each", "fire_all", 4),
        ("none", "skip", 4),
    ] {
        s.get(&format!(
            "select trax.schedule('{name}', sql => 'select 1', {}, misfire => '{misfire}')",
            hourly.cron()
        ))
        .await;
        due_since(&s, name, &hourly.ago(since)).await;
    }
    completed(&s, "each", "5").await;
    completed(&s, "once", "1").await;
    let next = "select count(*) from trax.manifest_state where next_run_at > now()";
    becomes(&s, next, "3").await;
    becomes(&s, "select count(*) from trax.work_queue", "0").await;
    completed(&s, "none", "0").await;
    let back = "select count(*) from (
        select scheduled_for < lag(scheduled_for) over (order by started_at) as is_back
        from trax.run where manifest = 'each') r where is_back";
    assert_eq!(s.get(back).await, "0", "the oldest first");
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_statement_that_still_runs_when_it_is_due_again_overlaps_as_its_policy_says() {
    let (_database, s) = live().await;
    let hourly = Hourly::of(&s).await;
    s.get("create table pass (a int)").await;
    let command =
        "do $$ begin if not exists (select from pass) then perform pg_sleep(1e9); end if; end $$";
    let schedule = async |overlap: &str| {
        s.get(&format!(
            "select trax.schedule('m', sql => $sql${command}$sql$, {}, overlap => '{overlap}', max_retries => 0)",
            hourly.cron()
        ))
        .await;
    };
    schedule("skip").await;
    let first = s.number("select trax.trigger('m')").await;
    sleeper_of(&s, "from pass").await;
    due_since(&s, "m", &hourly.ago(0)).await;
    becomes(&s, "select skipped > 0 from trax.manifest_state", "t").await;
    assert_eq!(s.get("select count(*) from trax.work_queue").await, "0");
    schedule("queue").await;
    due_since(&s, "m", &hourly.ago(0)).await;
    s.get("insert into pass values (1)").await;
    assert_eq!(s.get("select count(*) from trax.run").await, "0");
    s.get(&format!("select trax.cancel({first})")).await;
    assert_eq!(ended(&s, first).await, "cancelled");
    completed(&s, "m", "1").await;
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn statements_go_by_priority_and_never_overlap_behind_a_key() {
    let (_database, s) = live().await;
    s.get(
        "create table t (what text, at timestamptz default clock_timestamp());
         select trax.configure_group('g', max_active_jobs => 1, enabled => false)",
    )
    .await;
    let mut jobs = Vec::new();
    for priority in [1, 9, 5] {
        let command = format!("insert into t values ('{priority}')");
        let options = format!("group_name => 'g', priority => {priority}");
        jobs.push(queue_with(&s, &command, &options).await);
    }
    s.get("select trax.configure_group('g', enabled => true)")
        .await;
    for job in &jobs {
        assert_eq!(ended(&s, *job).await, "completed");
    }
    let order = "select string_agg(what, ' ' order by at) from t";
    assert_eq!(s.get(order).await, "9 5 1");
    s.get("truncate t").await;
    let command =
        "insert into t values ('begin'); select pg_sleep(0.02); insert into t values ('end')";
    let mut jobs = Vec::new();
    for _ in 0..4 {
        jobs.push(queue_with(&s, command, "concurrency_key => 'k'").await);
    }
    for job in &jobs {
        assert_eq!(ended(&s, *job).await, "completed");
    }
    let overlap = "select count(*) from (select what, lag(what) over (order by at) as before from t) x where what = before";
    assert_eq!(s.get(overlap).await, "0");
    let unique = "unique_key => 'u', unique_for => '1 h'";
    let one = queue_with(&s, "select 1", unique).await;
    assert_eq!(queue_with(&s, "select 2", unique).await, one);
    assert_eq!(ended(&s, one).await, "completed");
    assert_eq!(queue_with(&s, "select 2", unique).await, one);
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_statement_follows_a_task_of_a_worker_and_another_task_follows_it() {
    let (_database, s) = live().await;
    s.get(
        "create table t (a int);
         select trax.schedule('first', 'by.worker');
         select trax.schedule('second', sql => 'insert into t values (1)', depends_on => '{first}');
         select trax.schedule('third', 'by.worker', depends_on => '{second}');
         select trax.trigger('first')",
    )
    .await;
    complete_one(&s, "").await;
    let third = "select count(*) from trax.work_queue where manifest = 'third'";
    becomes(&s, third, "1").await;
    assert_eq!(s.get("select count(*) from t").await, "1");
    complete_one(&s, "").await;
    assert_eq!(violations(s.client()).await, Vec::<String>::new());
}
