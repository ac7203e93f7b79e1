//! Dead letters: created once, resolved once, deleted after their retention.

mod bulk;

use harness::session::{Session, session};

const LETTERS: &str = "select status, resolution_note, requeued_job_id, resolved_at is not null
    from trax.dead_letter order by id";

/// Makes a job that fails for good; returns its id.
async fn dead_job(s: &Session, options: &str) -> i64 {
    s.enqueue(&format!("'a', '[1]' {options}")).await;
    let job = s.claim_one("").await;
    assert_eq!(
        s.get(&format!(
            "select trax.fail({}, 'no', permanent => true)",
            job.key()
        ))
        .await,
        "dead"
    );
    job.id
}

#[tokio::test]
async fn requeue_queues_a_fresh_job_in_place_of_the_dead_one() {
    let (_db, s) = session().await;
    let options = ", group_name => 'g', priority => 4, max_retries => 1, timeout => '1 min', unique_key => 'u',
        concurrency_key => 'c', trace => '9'";
    let dead = dead_job(&s, options).await;
    let fresh = s
        .number("select trax.requeue_dead_letter(id, 'fixed') from trax.dead_letter")
        .await;
    assert_ne!(fresh, dead);
    assert_eq!(s.get(LETTERS).await, format!("requeued|fixed|{fresh}|t"));
    let job = "select job_id, attempts, task, input, group_name, priority, max_retries, timeout, unique_key,
                   concurrency_key, trace, waits_for
               from trax.work_queue";
    assert_eq!(
        s.get(job).await,
        format!("{fresh}|0|a|[1]|g|4|1|00:01:00|u|c|9|")
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_requeued_job_may_die_again_and_gets_its_own_dead_letter() {
    let (_db, s) = session().await;
    dead_job(&s, "").await;
    s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, 'again', permanent => true)",
        job.key()
    ))
    .await;
    assert_eq!(
        s.get("select status, last_error from trax.dead_letter order by id")
            .await,
        "requeued|no\nawaiting_intervention|again"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_requeue_beside_a_job_with_its_unique_key_is_refused() {
    let (_db, s) = session().await;
    dead_job(&s, ", unique_key => 'u'").await;
    let alive = s.enqueue("'b', unique_key => 'u'").await;
    let before = s.everything().await;
    let refusal = s
        .refusal("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    assert_eq!(refusal.code, "23505", "{refusal}");
    let named = format!("job {alive} has the unique key \"u\"");
    assert_eq!(refusal.message, named);
    assert_eq!(s.everything().await, before);
    s.assert_healthy().await;
}

#[tokio::test]
async fn acknowledge_resolves_without_running_anything() {
    let (_db, s) = session().await;
    dead_job(&s, "").await;
    let acknowledge = "select trax.acknowledge_dead_letter(id, 'known') from trax.dead_letter";
    assert_eq!(s.get(acknowledge).await, "t");
    assert_eq!(s.get(LETTERS).await, "acknowledged|known||t");
    let before = s.everything().await;
    assert_eq!(s.get(acknowledge).await, "f");
    assert_eq!(
        s.refusal("select trax.requeue_dead_letter(id) from trax.dead_letter")
            .await
            .code,
        "55000"
    );
    assert_eq!(s.everything().await, before, "what is resolved stays so");
    assert_eq!(s.number("select count(*) from trax.work_queue").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_requeued_dead_letter_is_not_requeued_again() {
    let (_db, s) = session().await;
    dead_job(&s, "").await;
    s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    let before = s.everything().await;
    assert_eq!(
        s.refusal("select trax.requeue_dead_letter(id) from trax.dead_letter")
            .await
            .code,
        "55000"
    );
    assert_eq!(
        s.get("select trax.acknowledge_dead_letter(id) from trax.dead_letter")
            .await,
        "f"
    );
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn of_two_requeues_at_once_one_queues_a_job() {
    let (db, a) = session().await;
    let (b, looker) = (Session::of(&db).await, Session::of(&db).await);
    dead_job(&a, "").await;
    a.get("begin; select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    let pid = b.pid();
    let other = b.spawn("select trax.requeue_dead_letter(id) from trax.dead_letter");
    looker.sees_waiting(pid).await;
    a.get("commit").await;
    let (_, seen) = other.await.expect("the other session lives");
    assert_eq!(seen.expect_err("the second one is too late").code, "55000");
    assert_eq!(
        looker.number("select count(*) from trax.work_queue").await,
        1
    );
    looker.assert_healthy().await;
}

#[tokio::test]
async fn a_manifest_has_one_unresolved_dead_letter() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', max_retries => 0); select trax.trigger('m'); select trax.trigger('m')").await;
    for job in s.claim("max_jobs => 2").await {
        assert_eq!(
            s.get(&format!("select trax.fail({}, 'no')", job.key()))
                .await,
            "dead"
        );
    }
    s.tick("reap_dead_letters").await;
    assert_eq!(
        s.get("select status, manifest from trax.dead_letter").await,
        "awaiting_intervention|m"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_whose_last_lease_expired_is_reported_by_both_steps_of_one_cycle() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', max_retries => 0)")
        .await;
    for _ in 0..2 {
        s.get("select trax.trigger('m')").await;
        s.claim_one("tasks => '{a}'").await;
        s.get("update trax.lease set lease_expires_at = now(), reap_at = now()")
            .await;
        let told = "select string_agg(affected::text, ' ') from trax.tick() where step in ('reap_expired_leases', 'reap_dead_letters')";
        let letters = s.number("select count(*) from trax.dead_letter").await;
        assert_eq!(
            s.get(told).await,
            format!("1 {}", 1 - letters),
            "no second one for the manifest"
        );
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_cycle_is_a_net_under_the_outcomes() {
    let (db, s) = session().await;
    let id = dead_job(&s, "").await;
    s.get("delete from trax.dead_letter").await;
    let ticker = Session::of(&db).await;
    assert_eq!(ticker.tick("reap_dead_letters").await, 1);
    assert_eq!(ticker.tick("reap_dead_letters").await, 0);
    let letter = "select job_id, status, attempts, last_error, task, input from trax.dead_letter";
    assert_eq!(
        s.get(letter).await,
        format!("{id}|awaiting_intervention|1|no|a|[1]")
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn resolved_dead_letters_are_forgotten_after_their_retention() {
    let (db, s) = session().await;
    for _ in 0..3 {
        dead_job(&s, "").await;
    }
    s.get(
        "select trax.acknowledge_dead_letter(id) from trax.dead_letter where id < 3;
         update trax.dead_letter set resolved_at = resolved_at - interval '31 days' where id = 1;
         update trax.dead_letter set created_at = created_at - interval '99 days' where id = 3;
         update trax.run set finished_at = finished_at - interval '99 days', started_at = started_at - interval '99 days'",
    )
    .await;
    assert_eq!(Session::of(&db).await.tick("forget_dead_letters").await, 1);
    assert_eq!(
        s.get("select id from trax.dead_letter order by id").await,
        "2\n3",
        "unresolved ones stay"
    );
}

#[tokio::test]
async fn a_session_that_ticked_a_moment_ago_forgets_too() {
    let (_db, s) = session().await;
    s.get("select trax.tick()").await;
    dead_job(&s, "").await;
    s.get(
        "select trax.acknowledge_dead_letter(id) from trax.dead_letter;
         update trax.dead_letter set resolved_at = resolved_at - interval '31 days'",
    )
    .await;
    assert_eq!(s.tick("forget_dead_letters").await, 1);
}

#[tokio::test]
async fn a_forgotten_dead_letter_does_not_come_back() {
    let (db, s) = session().await;
    s.get(&format!(
        "alter database {} set trax.dead_letter_retention = 0",
        db.name()
    ))
    .await;
    dead_job(&s, "").await;
    s.get("select trax.acknowledge_dead_letter(id) from trax.dead_letter")
        .await;
    assert_eq!(Session::of(&db).await.tick("forget_dead_letters").await, 1);
    assert_eq!(Session::of(&db).await.tick("reap_dead_letters").await, 0);
    assert_eq!(s.number("select count(*) from trax.dead_letter").await, 0);
}

#[tokio::test]
async fn a_priority_that_no_job_has_is_refused_and_never_reaches_a_commit() {
    let (_db, s) = session().await;
    dead_job(&s, "").await;
    let by_hand = "update trax.dead_letter set priority = 99";
    assert_eq!(s.refusal(by_hand).await.code, "23514");
    // The same without the constraint.
    s.get("alter table trax.dead_letter drop constraint dead_letter_priority_range")
        .await;
    s.get(by_hand).await;
    s.get("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    assert_eq!(s.get("select priority from trax.work_queue").await, "31");
    s.claim_one("").await;
    let by_hand = "update trax.lease set priority = 99";
    assert_eq!(s.refusal(by_hand).await.code, "23514");
    s.assert_healthy().await;
}
