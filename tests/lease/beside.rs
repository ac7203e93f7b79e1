//! Heartbeats of leases whose rows other transactions have locked: they do not wait, and they take
//! effect.

use super::let_leases_expire;
use harness::session::{Claimed, Session, session};
use harness::{PATIENCE, eventually};
use trax_client::testkit::Server;

/// Uncommitted changes to a lease by another transaction.
const HOLDERS: [&str; 5] = [
    "select trax.complete({})",
    "select trax.fail({}, 'no')",
    "select trax.release({})",
    "select trax.cancel({id})",
    "select trax.report_progress({}, '1'), 1 from trax.lease where job_id = {id} for update",
];

fn about(sql: &str, job: &Claimed) -> String {
    sql.replace("{}", &job.key())
        .replace("{id}", &job.id.to_string())
}

/// Sends a heartbeat for these jobs; returns `true` for each one that is held and lasts an hour.
async fn beats(s: &Session, jobs: &[Claimed]) -> String {
    let list = |of: fn(&Claimed) -> String| jobs.iter().map(of).collect::<Vec<_>>().join(", ");
    let ids = list(|job| job.id.to_string());
    let tokens = list(|job| format!("'{}'", job.token));
    s.get("set lock_timeout = '5 s'").await;
    s.get(&format!(
        "select string_agg((held and lease_expires_at > now() + interval '59 min')::text, ' ')
         from trax.heartbeat(array[{ids}], array[{tokens}]::uuid[], '1 h')"
    ))
    .await
}

/// Three jobs whose leases end at once, and three sessions.
async fn three_jobs() -> (trax_client::testkit::Database, [Session; 3], Vec<Claimed>) {
    let (db, s) = session().await;
    let (sessions, jobs) = three_jobs_of(&db, s).await;
    (db, sessions, jobs)
}

async fn three_jobs_of(
    db: &trax_client::testkit::Database,
    s: Session,
) -> ([Session; 3], Vec<Claimed>) {
    s.get("select count(*) from trax.enqueue_many('a', array_fill('{}'::jsonb, array[3]))")
        .await;
    let jobs = s.claim("max_jobs => 3, lease => '1 ms'").await;
    let sessions = [Session::of(db).await, Session::of(db).await, s];
    (sessions, jobs)
}

/// Behind an administrator's DDL, which itself waits for a transaction.
#[tokio::test]
async fn a_heartbeat_that_waited_for_the_table_extends_from_then_on() {
    let (db, s) = session().await;
    s.enqueue("'a'").await;
    let job = s.claim_one("lease => '1 s'").await;
    let (worker, holder) = (Session::of(&db).await, Session::of(&db).await);
    let pid = worker.number("select pg_backend_pid()").await as i32;
    holder
        .get("begin; lock table trax.lease in access exclusive mode")
        .await;
    let sql = format!(
        "select lease_expires_at > clock_timestamp()
         from trax.heartbeat(array[{}], array['{}'::uuid], '1 s')",
        job.id, job.token
    );
    let beat = tokio::spawn(async move { worker.get(&sql).await });
    s.sees_waiting(pid).await;
    // Longer than the requested lease.
    s.get("select pg_sleep(1.2)").await;
    holder.get("rollback").await;
    assert_eq!(beat.await.expect("it answers"), "t");
}

#[tokio::test]
async fn a_heartbeat_waits_for_nobody_and_extends_all_leases() {
    for holder in HOLDERS {
        let (_db, [other, worker, s], jobs) = three_jobs().await;
        other
            .get(&format!("begin; {}", about(holder, &jobs[0])))
            .await;
        assert_eq!(beats(&worker, &jobs).await, "true true true", "{holder}");
        assert_eq!(s.tick("reap_expired_leases").await, 0, "{holder}");
        other.get("rollback").await;
        assert_eq!(s.tick("reap_expired_leases").await, 0, "{holder}");
        assert_eq!(
            s.number(
                "select count(*) from trax.lease where lease_expires_at > now() + interval '59 min'"
            )
            .await,
            3,
            "{holder}"
        );
        assert_eq!(beats(&worker, &jobs).await, "true true true", "{holder}");
        assert_eq!(
            s.get(&format!("select trax.complete({})", jobs[0].key()))
                .await,
            "t"
        );
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_cancel_that_commits_after_heartbeats_beside_it_leaves_the_lease_its_time() {
    let (_db, [other, worker, s], jobs) = three_jobs().await;
    other
        .get(&format!("begin; select trax.cancel({})", jobs[0].id))
        .await;
    assert_eq!(beats(&worker, &jobs).await, "true true true");
    other.get("commit").await;
    assert_eq!(s.tick("reap_expired_leases").await, 0);
    let asked = "select cancel_requested from trax.lease order by job_id limit 1";
    assert_eq!(s.get(asked).await, "t");
    assert_eq!(
        s.get(&format!(
            "select trax.acknowledge_cancel({})",
            jobs[0].key()
        ))
        .await,
        "t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cycle_of_an_older_snapshot_knows_of_heartbeats_since() {
    let (_db, [other, worker, s], jobs) = three_jobs().await;
    other
        .get(&format!("begin; select trax.complete({})", jobs[0].key()))
        .await;
    s.get("begin isolation level repeatable read; select 1")
        .await;
    s.get("select count(*) from trax.lease").await;
    assert_eq!(beats(&worker, &jobs[..1]).await, "true");
    other.get("rollback").await;
    assert_eq!(s.tick("reap_expired_leases").await, 2, "the other two");
    s.get("commit").await;
    assert_eq!(beats(&worker, &jobs).await, "true false false");
}

#[tokio::test]
async fn a_lease_that_ran_out_behind_an_open_transaction_is_reaped_when_that_ends() {
    let (_db, [other, worker, s], jobs) = three_jobs().await;
    other
        .get(&format!("begin; select trax.cancel({})", jobs[0].id))
        .await;
    assert_eq!(beats(&worker, &jobs).await, "true true true");
    // The worker died, and its last heartbeat is old.
    s.get("update trax.lease_extension set lease_expires_at = now() - interval '1 s'")
        .await;
    assert_eq!(s.tick("reap_expired_leases").await, 0);
    other.get("rollback").await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_was_said_beside_a_lease_says_nothing_of_the_next_attempt() {
    let (db, [other, worker, s], jobs) = three_jobs().await;
    other
        .get(&format!("begin; select trax.release({})", jobs[0].key()))
        .await;
    assert_eq!(beats(&worker, &jobs[..1]).await, "true");
    other.get("commit").await;
    assert_eq!(beats(&worker, &jobs[..1]).await, "false");
    s.claim_one("").await;
    let_leases_expire(&s).await;
    assert_eq!(s.tick("reap_expired_leases").await, 3);
    s.get("update trax.lease_extension set lease_expires_at = now() - interval '2 min'")
        .await;
    // A new session, which performs the cleanup.
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    assert_eq!(
        s.number("select count(*) from trax.lease_extension").await,
        0
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn who_cancels_a_group_locks_its_leases_in_the_order_of_jobs() {
    let (db, s) = session().await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('{}'::jsonb, array[500]), group_name => 'g')")
        .await;
    let jobs = s.claim("max_jobs => 500, lease => '1 h'").await;
    // The first job's row is after all others in the table, and the index points to it.
    s.get(&format!(
        "create index on trax.lease (worker); update trax.lease set worker = 'w' where job_id = {};
         analyze trax.lease",
        jobs[0].id
    ))
    .await;
    let (first, all, last) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    first
        .get(&format!("begin; select trax.complete({})", jobs[0].key()))
        .await;
    let pid = all.pid();
    let cancel = all.spawn("select trax.cancel_group('g')");
    s.sees_waiting(pid).await;
    last.get("set lock_timeout = '5 s'").await;
    let end = format!("select trax.complete({})", jobs[499].key());
    assert_eq!(last.get(&end).await, "t", "nobody has locked it yet");
    first.get("commit").await;
    let (_, cancelled) = cancel.await.expect("the session lives");
    assert_eq!(cancelled, Ok("498".to_owned()));
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_lease_that_somebody_ends_by_hand_is_over_whatever_was_said_beside_it() {
    let (_db, [other, worker, s], jobs) = three_jobs().await;
    other
        .get(&format!("begin; select trax.cancel({})", jobs[0].id))
        .await;
    assert_eq!(beats(&worker, &jobs).await, "true true true");
    other.get("rollback").await;
    s.get(&format!(
        "update trax.lease set lease_expires_at = now() - interval '1 s' where job_id = {}",
        jobs[0].id
    ))
    .await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    assert_eq!(beats(&worker, &jobs).await, "false true true");
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_a_heartbeat_beside_a_lease_said_of_the_begin_is_kept() {
    for (ahead, kept) in [
        ("null", "f|t"),
        ("array(select job_id from trax.lease)", "t|f"),
    ] {
        let (db, s) = session().await;
        let other = Session::of(&db).await;
        s.enqueue("'a', timeout => '5 min'").await;
        let job = s.claim_one("places => 0, lease => '1 ms'").await;
        s.get("update trax.lease set timeout_at = timeout_at - interval '1 min'")
            .await;
        other
            .get(&format!("begin; select trax.cancel({})", job.id))
            .await;
        let beat = format!(
            "select held from trax.heartbeat(array[{}], array['{}'::uuid], '1 h', ahead => {ahead})",
            job.id, job.token
        );
        assert_eq!(s.get(&beat).await, "t");
        other.get("rollback").await;
        assert_eq!(s.tick("reap_expired_leases").await, 0);
        let begun = "select ahead, timeout_at > now() + interval '4 min 30 s' from trax.lease";
        assert_eq!(s.get(begun).await, kept);
        s.assert_healthy().await;
    }
}

/// A separate server without a scheduler.
fn own_server() -> Server {
    harness::options()
        .setting("trax.databases", "no_database_has_this_name")
        .setting("max_prepared_transactions", "4")
        .start()
        .expect("a server starts")
}

#[tokio::test]
async fn a_heartbeat_waits_for_no_prepared_transaction() {
    let server = own_server();
    for (end, of_first) in [("commit", "false"), ("rollback", "true")] {
        let db = server.database(end).await.expect("a database is made");
        let ([other, worker, s], jobs) = three_jobs_of(&db, Session::of(&db).await).await;
        other
            .get(&format!("begin; select trax.complete({})", jobs[0].key()))
            .await;
        other.get("prepare transaction 'x'").await;
        assert_eq!(beats(&worker, &jobs).await, "true true true");
        assert_eq!(s.tick("reap_expired_leases").await, 0);
        s.get(&format!("{end} prepared 'x'")).await;
        assert_eq!(s.tick("reap_expired_leases").await, 0, "{end}");
        let all = format!("{of_first} true true");
        assert_eq!(beats(&worker, &jobs).await, all, "{end}");
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_heartbeat_waits_for_no_standby() {
    let server = own_server();
    let db = server.database("app").await.expect("a database is made");
    let ([other, worker, s], jobs) = three_jobs_of(&db, Session::of(&db).await).await;
    s.lose_standby(&db).await;
    for session in [&s, &other, &worker] {
        eventually("the setting", PATIENCE, async || {
            match session.get("show synchronous_standby_names").await {
                seen if seen == "nobody" => Ok(()),
                seen => Err(seen),
            }
        })
        .await;
    }
    let pid = other.pid();
    let key = jobs[0].key();
    let completion =
        tokio::spawn(async move { other.get(&format!("select trax.complete({key})")).await });
    eventually("the wait for the standby", PATIENCE, async || {
        let event = format!("select wait_event from pg_stat_activity where pid = {pid}");
        match s.get(&event).await {
            seen if seen == "SyncRep" => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    let alive = tokio::time::timeout(PATIENCE / 3, async {
        assert_eq!(beats(&worker, &jobs).await, "true true true");
        // A second heartbeat updates the row that the first one added.
        assert_eq!(beats(&worker, &jobs).await, "true true true");
    });
    alive.await.expect("a heartbeat does not wait");
    let left = "select count(*) from trax.lease where lease_expires_at > now() + interval '59 min'";
    assert_eq!(s.number(left).await, 2);
    s.need_no_standby().await;
    assert_eq!(completion.await.expect("it ends"), "t");
    assert_eq!(beats(&worker, &jobs).await, "false true true");
    assert_eq!(s.tick("reap_expired_leases").await, 0);
    s.assert_healthy().await;
}
