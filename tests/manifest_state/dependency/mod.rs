//! Dependents: the outcomes of a parent that make a child due, their number, and the refused edges.

mod dormant;
mod race;

use harness::manifest::{complete, complete_one, running, state, succeed, waiting};
use harness::session::{Session, session};

/// Stores parents that run only when triggered, and a child of them all.
async fn family(s: &Session, parents: i64, child: &str) {
    s.get(&format!(
        "select count(trax.schedule('p' || n, 'p' || n, max_retries => 0)) from generate_series(1, {parents}) n;
         select trax.schedule('c', 'c', depends_on => array(select 'p' || n from generate_series(1, {parents}) n) {child})"
    ))
    .await;
}

#[tokio::test]
async fn a_child_of_all_runs_once_when_the_last_parent_has_succeeded() {
    let (_db, s) = session().await;
    family(&s, 3, "").await;
    for parent in ["p1", "p3", "p1"] {
        succeed(&s, parent).await;
        assert_eq!(s.tick("queue_due").await, 0, "p2 is missing");
    }
    succeed(&s, "p2").await;
    assert_eq!(state(&s, "c").await, "|t");
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(s.tick("queue_due").await, 0);
    complete_one(&s, "tasks => '{c}'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    succeed(&s, "p2").await;
    assert_eq!(
        s.tick("queue_due").await,
        0,
        "the run used up what the others had satisfied"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_child_of_any_runs_when_one_parent_has_succeeded() {
    let (_db, s) = session().await;
    family(&s, 3, ", depends_mode => 'any'").await;
    succeed(&s, "p2").await;
    assert_eq!(s.tick("queue_due").await, 1);
    complete_one(&s, "tasks => '{c}'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    for parent in ["p1", "p2", "p3"] {
        succeed(&s, parent).await;
    }
    assert_eq!(s.tick("queue_due").await, 1);
    complete_one(&s, "tasks => '{c}'").await;
    assert_eq!(s.tick("queue_due").await, 0, "once for all before the run");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_failure_a_cancellation_and_a_dead_letter_do_not_satisfy() {
    let (_db, s) = session().await;
    family(&s, 1, ", depends_mode => 'any'").await;
    let job = running(&s, "p1").await;
    let failed = format!("select trax.fail({}, 'no', permanent => true)", job.key());
    assert_eq!(s.get(&failed).await, "dead");
    assert_eq!(s.tick("queue_due").await, 0);
    let acknowledge = "select trax.acknowledge_dead_letter(id) from trax.dead_letter";
    assert_eq!(s.get(acknowledge).await, "t");
    assert_eq!(s.tick("queue_due").await, 0);
    let waiting_job = s.number("select trax.trigger('p1')").await;
    let cancel = format!("select trax.cancel({waiting_job})");
    assert_eq!(s.get(&cancel).await, "cancelled");
    let job = running(&s, "p1").await;
    s.get(&format!("select trax.cancel({})", job.id)).await;
    let acknowledged = format!("select trax.acknowledge_cancel({})", job.key());
    assert_eq!(s.get(&acknowledged).await, "t");
    let job = running(&s, "p1").await;
    s.get(&format!("select trax.release({})", job.key())).await;
    let retried = s.claim_one("tasks => '{p1}'").await;
    let retry = format!("select trax.fail({}, 'no')", retried.key());
    assert_eq!(s.get(&retry).await, "dead");
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(
        s.number("select count(*) from trax.manifest_dependency where satisfied_at is not null")
            .await,
        0
    );
    s.get("select trax.requeue_dead_letter(id) from trax.dead_letter where status = 'awaiting_intervention'")
        .await;
    complete_one(&s, "tasks => '{p1}'").await;
    assert_eq!(
        s.tick("queue_due").await,
        1,
        "the requeued job's success counts"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn completing_the_last_parent_and_the_child_being_due_is_one_commit() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    family(&s, 1, "").await;
    let job = running(&s, "p1").await;
    let before = s.everything().await;
    s.get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    assert_eq!(state(&s, "c").await, "|t");
    assert_eq!(state(&other, "c").await, "|f");
    s.get("rollback").await;
    assert_eq!(s.everything().await, before);
    s.get(&format!("begin; select trax.complete({})", job.key()))
        .await;
    assert_eq!(other.tick("queue_due").await, 0);
    s.get("commit").await;
    assert_eq!(other.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_child_whose_parents_succeed_while_it_waits_or_runs_runs_again_once() {
    let (_db, s) = session().await;
    family(&s, 2, "").await;
    for parent in ["p1", "p2"] {
        succeed(&s, parent).await;
    }
    assert_eq!(s.tick("queue_due").await, 1);
    for parent in ["p1", "p2", "p1"] {
        succeed(&s, parent).await;
    }
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(state(&s, "c").await, "queued|f");
    let first = s.claim_one("tasks => '{c}'").await;
    for parent in ["p1", "p2"] {
        succeed(&s, parent).await;
    }
    assert_eq!(s.tick("queue_due").await, 0);
    complete(&s, &first).await;
    assert_eq!(s.tick("queue_due").await, 1);
    let second = s.claim_one("tasks => '{c}'").await;
    for parent in ["p1", "p2"] {
        succeed(&s, parent).await;
    }
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(state(&s, "c").await, "executing|f");
    complete(&s, &second).await;
    assert_eq!(s.tick("queue_due").await, 1);
    complete_one(&s, "tasks => '{c}'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_child_that_failed_for_good_runs_again_after_its_dead_letter() {
    let (_db, s) = session().await;
    family(&s, 1, ", max_retries => 0").await;
    succeed(&s, "p1").await;
    s.tick("queue_due").await;
    let job = s.claim_one("tasks => '{c}'").await;
    s.get(&format!("select trax.fail({}, 'no')", job.key()))
        .await;
    assert_eq!(s.tick("queue_due").await, 0);
    succeed(&s, "p1").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(state(&s, "c").await, "dead_letter|f");
    s.get("select trax.acknowledge_dead_letter(id) from trax.dead_letter")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_dependents_priority_is_lifted_and_clamped() {
    let (_db, s) = session().await;
    family(&s, 1, ", priority => 3").await;
    s.get("select trax.schedule('d', 'd', depends_on => '{p1}', priority => 20)")
        .await;
    succeed(&s, "p1").await;
    assert_eq!(s.tick("queue_due").await, 2);
    let priorities = "select manifest, priority from trax.work_queue order by manifest";
    assert_eq!(s.get(priorities).await, "c|19\nd|31");
    s.get("select trax.trigger('c')").await;
    let by_hand = "select priority from trax.work_queue where scheduled_for is null";
    assert_eq!(s.get(by_hand).await, "3");
}

#[tokio::test]
async fn a_disabled_child_keeps_what_is_satisfied_until_it_is_enabled() {
    let (_db, s) = session().await;
    family(&s, 2, "").await;
    succeed(&s, "p1").await;
    s.get("select trax.disable_manifest('c')").await;
    succeed(&s, "p2").await;
    assert_eq!(s.tick("queue_due").await, 0);
    s.get("select trax.enable_manifest('c')").await;
    assert_eq!(s.tick("queue_due").await, 1);
    complete_one(&s, "tasks => '{c}'").await;
    assert_eq!(s.tick("queue_due").await, 0);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_child_of_a_disabled_group_runs_when_the_group_is_enabled() {
    let (_db, s) = session().await;
    family(&s, 1, ", group_name => 'g'").await;
    s.get("select trax.configure_group('g', enabled => false)")
        .await;
    succeed(&s, "p1").await;
    assert_eq!(s.tick("queue_due").await, 0);
    assert_eq!(state(&s, "c").await, "group_disabled|f");
    s.get("select trax.configure_group('g', enabled => true)")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
}

#[tokio::test]
async fn changed_parents_count_from_now_and_those_that_stay_keep_what_they_know() {
    let (_db, s) = session().await;
    family(&s, 2, "").await;
    succeed(&s, "p1").await;
    s.get(
        "select trax.schedule('p3', 'p3'); select trax.schedule('c', 'c', depends_on => '{p1,p3}')",
    )
    .await;
    assert_eq!(s.tick("queue_due").await, 0);
    succeed(&s, "p3").await;
    assert_eq!(s.tick("queue_due").await, 1, "p1 had succeeded before");
    complete_one(&s, "tasks => '{c}'").await;
    succeed(&s, "p1").await;
    s.get("select trax.schedule('c', 'c', depends_on => '{p1}')")
        .await;
    assert_eq!(
        s.tick("queue_due").await,
        1,
        "the parent it still waited for is none any more"
    );
}

#[tokio::test]
async fn mode_and_dormancy_are_kept_with_new_parents_and_changed_without() {
    let (_db, s) = session().await;
    family(&s, 3, "").await;
    let stored = "select depends_mode, dormant from trax.manifest where name = 'c'";
    s.get("select trax.schedule('c', 'c', depends_mode => 'any')")
        .await;
    assert_eq!(s.get(stored).await, "any|f");
    s.get("select trax.schedule('c', 'c', depends_on => '{p1,p2}')")
        .await;
    assert_eq!(s.get(stored).await, "any|f", "what is not given is kept");
    s.get("select trax.schedule('c', 'c', dormant => true)")
        .await;
    s.get("select trax.schedule('c', 'c', depends_on => '{p3}')")
        .await;
    assert_eq!(s.get(stored).await, "any|t", "what is not given is kept");
    s.get("select trax.schedule('c', 'c', every => '1 h')")
        .await;
    s.get("select trax.schedule('c', 'c', depends_on => '{p1}')")
        .await;
    assert_eq!(s.get(stored).await, "all|f", "of another kind meanwhile");
}

#[tokio::test]
async fn a_changed_mode_counts_at_once_for_what_is_satisfied() {
    let (_db, s) = session().await;
    family(&s, 2, "").await;
    succeed(&s, "p1").await;
    assert_eq!(s.tick("queue_due").await, 0);
    s.get("select trax.schedule('c', 'c', depends_mode => 'any')")
        .await;
    assert_eq!(s.tick("queue_due").await, 1);
    complete_one(&s, "tasks => '{c}'").await;
    succeed(&s, "p1").await;
    s.get("select trax.schedule('c', 'c', depends_mode => 'all')")
        .await;
    assert_eq!(s.tick("queue_due").await, 0, "p2 has not succeeded");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_parent_that_others_wait_for_is_not_forgotten() {
    let (_db, s) = session().await;
    family(&s, 1, "").await;
    let before = s.everything().await;
    let refusal = s.refusal("select trax.unschedule('p1')").await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert!(
        refusal.detail.contains('c') && !refusal.hint.is_empty(),
        "{refusal}"
    );
    assert_eq!(s.everything().await, before);
    s.get("select trax.unschedule('c'); select trax.unschedule('p1')")
        .await;
}

#[tokio::test]
async fn circles_are_refused_with_their_path() {
    let (_db, s) = session().await;
    s.get(
        "select trax.schedule('a', 'a'); select trax.schedule('b', 'b', depends_on => '{a}');
         select trax.schedule('c', 'c', depends_on => '{b}'); select trax.schedule('d', 'd', depends_on => '{c}')",
    )
    .await;
    let before = s.everything().await;
    let circles = [
        ("a", "{a}", "a -> a"),
        ("b", "{b}", "b -> b"),
        ("a", "{b}", "a -> b -> a"),
        ("a", "{d}", "a -> d -> c -> b -> a"),
    ];
    for (child, parents, path) in circles {
        let sql = format!("select trax.schedule('{child}', 'a', depends_on => '{parents}')");
        let refusal = s.refusal(&sql).await;
        assert_eq!(refusal.code, "22023", "{refusal}");
        assert!(refusal.detail.contains(path), "{refusal}");
        assert!(!refusal.hint.is_empty(), "{refusal}");
    }
    assert_eq!(s.everything().await, before);
    let unknown = s
        .refusal("select trax.schedule('e', 'e', depends_on => '{a,nobody}')")
        .await;
    assert_eq!(unknown.code, "42704", "{unknown}");
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn edges_of_a_deep_and_wide_net_are_checked_quickly() {
    let (_db, s) = session().await;
    // 12 layers of 5, each manifest waiting for the whole previous layer: 5^11 paths.
    s.get("set statement_timeout = '20 s'").await;
    for layer in 0..12 {
        let sql = format!(
            "select count(trax.schedule(format('%s-%s', {layer}, n), 'a', depends_on =>
                 case when {layer} > 0 then array(select format('%s-%s', {layer} - 1, k) from generate_series(1, 5) k) end))
             from generate_series(1, 5) n"
        );
        s.get(&sql).await;
    }
    let refusal = s
        .refusal("select trax.schedule('0-1', 'a', depends_on => '{11-1}')")
        .await;
    assert_eq!(refusal.code, "22023", "{refusal}");
}

#[tokio::test]
async fn a_chain_runs_through_to_its_end() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m1', 'm', every => '1 day')")
        .await;
    s.get(
        "select count(trax.schedule('m' || n, 'm', depends_on => array['m' || n - 1]))
         from generate_series(2, 20) n",
    )
    .await;
    for n in 1..=20 {
        assert_eq!(s.tick("queue_due").await, 1);
        assert_eq!(waiting(&s, &format!("m{n}")).await, 1);
        complete_one(&s, "").await;
    }
    assert_eq!(s.tick("queue_due").await, 0);
    s.assert_healthy().await;
}
