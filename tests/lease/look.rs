//! Where the reaper of a scheduler looks.

use harness::scheduler::live_database;
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};

#[tokio::test]
async fn a_dead_lease_behind_many_living_ones_does_not_wait_for_the_next_interval() {
    let db = live_database().await;
    let s = Session::of(&db).await;
    let interval = "set trax.tick_interval = '10 min'";
    s.get(&format!("alter database {} {interval}", db.name()))
        .await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('1'::jsonb, array[2501]), max_retries => 0)")
        .await;
    let mut taken = 0;
    while taken < 2501 {
        taken += s.claim("max_jobs => 1000, lease => '1 h'").await.len();
    }
    s.get(
        "update trax.lease set lease_expires_at = now() where job_id = (select max(job_id) from trax.lease)",
    )
    .await;
    s.becomes("select count(*) from trax.run", "1").await;
    assert_eq!(s.number("select count(*) from trax.lease").await, 2500);
}

#[tokio::test]
async fn dead_leases_in_pages_that_were_filled_again_are_found() {
    let db = live_database().await;
    let s = Session::of(&db).await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('1'::jsonb, array[1500]), max_retries => 0)")
        .await;
    assert_eq!(
        s.claim("max_jobs => 1000, lease => '1 h'").await.len(),
        1000
    );
    s.get(
        "select count(trax.complete(l.job_id, l.token))
         from (select job_id, token from trax.lease order by job_id limit 900) l",
    )
    .await;
    let first = "select min((ctid::text::point)[0]) from trax.lease";
    let before = s.number(first).await;
    // A vacuum keeps what a snapshot of the scheduler may see, and a session goes on in the page
    // that it has written last.
    eventually(
        "a lease is in a page that was freed",
        PATIENCE,
        async || {
            s.get("vacuum trax.lease").await;
            let other = Session::of(&db).await;
            other.claim("max_jobs => 1, lease => '2 s'").await;
            match s.number(first).await {
                page if page < before => Ok(()),
                page => Err(format!("the first lease is in page {page}")),
            }
        },
    )
    .await;
    let other = Session::of(&db).await;
    other.claim("max_jobs => 500, lease => '2 s'").await;
    s.becomes(
        "select count(*) from trax.run where state = 'failed'",
        "500",
    )
    .await;
    assert_eq!(s.number("select count(*) from trax.lease").await, 100);
}

#[tokio::test]
async fn dead_leases_of_every_part_of_a_large_table_are_found() {
    let db = live_database().await;
    let s = Session::of(&db).await;
    s.get(&format!(
        "alter table trax.lease set (fillfactor = 10);
         alter database {} set trax.tick_interval = '10 min'",
        db.name()
    ))
    .await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('1'::jsonb, array[40000]), max_retries => 0)")
        .await;
    for _ in 0..40 {
        s.get("select count(*) from trax.claim_next(max_jobs => 1000, lease => '1 h')")
            .await;
    }
    let size = "select count(*), pg_relation_size('trax.lease') / 8192 > 8192 from trax.lease";
    assert_eq!(s.get(size).await, "40000|t", "two looks read it");
    s.get(
        "update trax.lease set lease_expires_at = now()
         where job_id in (select min(job_id) from trax.lease union select max(job_id) from trax.lease)",
    )
    .await;
    s.becomes("select count(*) from trax.run", "2").await;
    assert_eq!(s.number("select count(*) from trax.lease").await, 39_998);
}

#[tokio::test]
async fn leases_whose_end_cannot_be_recorded_hide_no_others() {
    let (_db, s) = session().await;
    s.get("select count(trax.enqueue('bad')) from generate_series(1, 40); select trax.enqueue('good', max_retries => 0)")
        .await;
    assert_eq!(s.claim("max_jobs => 41").await.len(), 41);
    s.get(
        "alter table trax.run add constraint none_of_bad check (task <> 'bad');
         update trax.lease set lease_expires_at = now() - interval '1 s'",
    )
    .await;
    assert_eq!(s.tick("reap_expired_leases").await, 1);
    assert_eq!(s.get("select task from trax.run").await, "good");
    s.get("alter table trax.run drop constraint none_of_bad; update trax.lease set reap_at = null")
        .await;
    assert_eq!(s.tick("reap_expired_leases").await, 40);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_lease_that_ends_within_the_grace_to_stop_is_put_off_no_longer_than_that() {
    let (_db, s) = session().await;
    s.enqueue("'a'").await;
    s.claim_one("").await;
    // The row says that the lease is over, and a recorded heartbeat that it has ten seconds left.
    s.get(
        "update trax.lease set timed_out = true, cancel_requested = true, timeout_at = now() - interval '1 ms', lease_expires_at = now() - interval '1 ms';
         insert into trax.lease_extension (job_id, token, extended_at, lease_expires_at, ahead)
         select job_id, token, now(), now() + interval '10 s', false from trax.lease",
    )
    .await;
    assert_eq!(s.tick("reap_expired_leases").await, 0);
    let put_off = "select reap_at = lease_expires_at from trax.lease";
    assert_eq!(s.get(put_off).await, "t");
    s.assert_healthy().await;
}
