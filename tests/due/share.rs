//! Fair shares of a cycle between groups.

use harness::manifest::{due_since, many};
use harness::session::{Session, session};

const QUEUED: &str = "select string_agg(group_name || ' ' || n, ', ' order by group_name)
    from (select group_name, count(*) as n from trax.work_queue group by 1) q";

/// Due manifests in groups, stored by plain SQL.
async fn groups(s: &Session, groups: &[(&str, i64)]) {
    for (group, count) in groups {
        s.get(&many(group, group, *count, "now() - interval '1 s' * n"))
            .await;
    }
}

async fn limit(s: &Session, entries: i64) {
    s.get(&format!("set trax.max_entries_per_cycle = {entries}"))
        .await;
}

#[tokio::test]
async fn a_small_group_is_queued_whole_beside_one_of_thousands() {
    let (_db, s) = session().await;
    groups(&s, &[("large", 5000), ("small", 15)]).await;
    assert_eq!(s.tick("queue_due").await, 200);
    assert_eq!(s.get(QUEUED).await, "large 185, small 15");
    assert_eq!(s.tick("queue_due").await, 200);
    assert_eq!(s.get(QUEUED).await, "large 385, small 15");
    s.assert_healthy().await;
}

#[tokio::test]
async fn each_group_gets_its_share_and_the_rest_goes_by_priority() {
    let (_db, s) = session().await;
    groups(&s, &[("a", 90), ("b", 90), ("c", 90), ("d", 2)]).await;
    s.get("select trax.configure_group('b', priority => 9); select trax.configure_group('c', priority => 3)")
        .await;
    limit(&s, 41).await;
    // 10 each; the 8 unused by d and the remainder of 1 go to b.
    assert_eq!(s.tick("queue_due").await, 41);
    assert_eq!(s.get(QUEUED).await, "a 10, b 19, c 10, d 2");
    limit(&s, 100).await;
    // 33 each, and the remainder goes to b.
    assert_eq!(s.tick("queue_due").await, 100);
    assert_eq!(s.get(QUEUED).await, "a 43, b 53, c 43, d 2");
}

#[tokio::test]
async fn what_was_deferred_goes_first_next_time() {
    let (_db, s) = session().await;
    groups(&s, &[("g", 50)]).await;
    limit(&s, 20).await;
    assert_eq!(s.tick("queue_due").await, 20);
    let oldest = "select bool_and(manifest_id in (select manifest_id from trax.manifest_state where next_run_at > now()))
        from trax.work_queue";
    assert_eq!(s.get(oldest).await, "t");
    let deferred = s
        .get("select string_agg(manifest_id::text, ' ' order by next_run_at) from trax.manifest_state where next_run_at <= now()")
        .await;
    s.get(&many("later", "g", 30, "now() - interval '1 ms'"))
        .await;
    assert_eq!(s.tick("queue_due").await, 20);
    assert_eq!(s.tick("queue_due").await, 20);
    let second = "select string_agg(q.manifest_id::text, ' ' order by q.scheduled_for)
        from (select * from trax.work_queue order by job_id offset 20 limit 30) q";
    assert_eq!(s.get(second).await, deferred);
}

#[tokio::test]
async fn with_more_groups_than_entries_every_group_comes_to_its_turn() {
    let (_db, s) = session().await;
    groups(&s, &[("a", 30), ("b", 30), ("c", 30)]).await;
    limit(&s, 2).await;
    for _ in 0..15 {
        assert_eq!(s.tick("queue_due").await, 2);
    }
    let queued = s.get(QUEUED).await;
    for group in ["a ", "b ", "c "] {
        assert!(
            queued.contains(group),
            "30 queued, and nothing of {group}: {queued}"
        );
    }
}

#[tokio::test]
async fn a_group_that_is_due_again_at_once_does_not_starve_the_others() {
    let (_db, s) = session().await;
    groups(&s, &[("a", 3), ("b", 1)]).await;
    limit(&s, 1).await;
    for _ in 0..8 {
        s.tick("queue_due").await;
        s.get("delete from trax.work_queue where group_name = 'a'")
            .await;
        for n in 1..=3 {
            due_since(&s, &format!("a-{n}"), "now() - interval '1 s'").await;
        }
    }
    let waited = "select count(*) from trax.work_queue where group_name = 'b'";
    assert_eq!(
        s.number(waited).await,
        1,
        "it has been due for eight cycles"
    );
}

#[tokio::test]
async fn zero_is_no_limit() {
    let (_db, s) = session().await;
    groups(&s, &[("a", 700), ("b", 800)]).await;
    limit(&s, 0).await;
    assert_eq!(s.tick("queue_due").await, 1500);
    assert_eq!(s.tick("queue_due").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_is_parked_does_not_keep_others_waiting() {
    let (_db, s) = session().await;
    groups(&s, &[("off", 400), ("on", 100)]).await;
    s.get("select trax.configure_group('off', enabled => false)")
        .await;
    assert_eq!(s.tick("queue_due").await, 100);
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(s.get(QUEUED).await, "on 100");
    let parked = "select count(*) from trax.manifest_state where parked_on = 'group_disabled'";
    assert_eq!(s.number(parked).await, 400);
}
