//! Which commits wait for the disk, tested with a stopped WAL writer: then only a waiting commit
//! flushes WAL.

use std::time::Duration;

use harness::process::Halted;
use harness::session::Session;

/// Stops the WAL writer of a test server at a moment when it holds no lock that a commit needs.
async fn halted_wal_writer(s: &Session) -> Halted {
    let writer = "select pid from pg_stat_activity where backend_type = 'walwriter'";
    let pid = s.number(writer).await as i32;
    for _ in 0..20 {
        let halted = Halted::new(pid);
        let commit = s.get("insert into mine values (0)");
        if tokio::time::timeout(Duration::from_secs(3), commit)
            .await
            .is_ok()
        {
            return halted;
        }
    }
    panic!("halting the WAL writer halts every commit");
}

/// Whether a statement was flushed to disk by its own commit.
async fn is_flushed(s: &Session, sql: &str) -> bool {
    // This commit waits, so everything before it is on disk.
    s.get("insert into mine values (0)").await;
    let before = s.get("select pg_current_wal_insert_lsn()").await;
    s.get(sql).await;
    let flushed = format!("select pg_current_wal_flush_lsn() > '{before}'");
    s.get(&flushed).await == "t"
}

#[tokio::test]
async fn only_a_claim_or_a_heartbeat_alone_and_without_limits_does_not_wait_for_the_disk() {
    let server = harness::options()
        .setting("trax.databases", "no_database_has_this_name")
        .setting("autovacuum", "off")
        .setting("bgwriter_lru_maxpages", "0")
        .start()
        .expect("a server starts");
    let database = server.database("app").await.expect("a database is made");
    let s = Session::of(&database).await;
    s.get("create table mine (n bigint)").await;
    s.get("select trax.configure_group('full', max_active_jobs => 9)")
        .await;
    for _ in 0..9 {
        s.enqueue("'free'").await;
        s.enqueue("'limited', group_name => 'full'").await;
        s.enqueue("'keyed', concurrency_key => 'k'").await;
    }
    s.get("select from trax.claim_next(tasks => array['free'], lease => '1 h')")
        .await;
    let _writer = halted_wal_writer(&s).await;
    let claim = "select from trax.claim_next(tasks => array['free'], lease => '1 h')";
    // The arguments are read and the call runs once beforehand: a read that prunes a page writes
    // WAL and makes the commit wait.
    let held = "select format('array[%s], array[%L::uuid]', job_id, token) from trax.lease limit 1";
    let heartbeat = format!("select from trax.heartbeat({})", s.get(held).await);
    s.get(&heartbeat).await;
    for lazy in [claim, &heartbeat] {
        assert!(!is_flushed(&s, lazy).await, "waits: {lazy}");
    }
    for durable in [
        "select from trax.claim_next(tasks => array['limited'])",
        "select from trax.claim_next(tasks => array['keyed'])",
        "insert into mine select job_id from trax.claim_next(tasks => array['free'], lease => '1 h')",
        "with other as (insert into mine values (1) returning n)
         select from other, trax.claim_next(tasks => array['free'], lease => '1 h')",
        "select trax.complete(job_id, token) from trax.lease where task = 'free' limit 1",
        "select trax.enqueue('free')",
        "do $$ begin perform trax.claim_next(tasks => array['free']); insert into mine values (2); end $$",
    ] {
        assert!(is_flushed(&s, durable).await, "does not wait: {durable}");
    }
    let block = format!("begin; {claim}; commit");
    assert!(is_flushed(&s, &block).await, "does not wait: {block}");
}
