//! The order of locks: all calls lock in the same order, so none fails with a deadlock.

use harness::limit::waits_or_ends;
use harness::session::{Claimed, Refusal, Session, session};
use harness::{PATIENCE, eventually};
use tokio::task::JoinHandle;

type Work = JoinHandle<(Session, Result<String, Refusal>)>;

async fn succeeds(what: &str, work: Work) -> String {
    let (_, result) = work.await.expect("the session lives");
    result.unwrap_or_else(|refusal| panic!("{what}: {refusal}"))
}

const COMPLETE_ALL: &str =
    "select count(*) from trax.complete_many(array(select job_id from trax.lease order by 1),
         array(select token from trax.lease order by job_id))";

#[tokio::test]
async fn a_document_and_completions_of_its_manifests_do_not_deadlock() {
    let (db, s) = session().await;
    let (applier, completer, holder) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let pids = (applier.pid(), completer.pid());
    s.get(
        "select trax.schedule('first', 'a', every => '1 h'); select trax.schedule('second', 'a', every => '1 h');
         select trax.trigger('first'); select trax.trigger('second')",
    )
    .await;
    assert_eq!(s.claim("max_jobs => 2, lease => '1 h'").await.len(), 2);
    holder
        .get("begin; select from trax.manifest where name = 'first' for update")
        .await;
    // The document lists the second manifest first.
    let applying = applier.spawn(
        r#"select count(*) from trax.apply('{"manifests": [{"name": "second", "task": "a", "every": "2 h"},
               {"name": "first", "task": "a", "every": "2 h"}]}')"#,
    );
    s.sees_waiting(pids.0).await;
    let completion = completer.spawn(COMPLETE_ALL);
    waits_or_ends(&s, pids.1, &completion).await;
    holder.get("commit").await;
    assert_eq!(succeeds("a completion", completion).await, "2");
    assert_eq!(succeeds("a document", applying).await, "2");
    s.assert_healthy().await;
}

#[tokio::test]
async fn limits_for_several_groups_and_work_in_two_of_them_do_not_deadlock() {
    let (db, s) = session().await;
    let (applier, worker) = (Session::of(&db).await, Session::of(&db).await);
    let pid = applier.pid();
    s.enqueue("'a', group_name => 'g1'").await;
    let job = s.claim_one("lease => '1 h'").await;
    s.enqueue("'a', group_name => 'g2'").await;
    worker.get("begin").await;
    worker.claim_one("lease => '1 h'").await;
    let applying = applier.spawn(
        r#"select count(*) from trax.apply('{"groups": [{"name": "g1", "max_active_jobs": 1},
               {"name": "g2", "max_active_jobs": 1}]}')"#,
    );
    s.sees_waiting(pid).await;
    let complete = worker.spawn(format!("select trax.complete({}); commit", job.key()));
    assert_eq!(succeeds("a completion", complete).await, "t");
    assert_eq!(succeeds("a document", applying).await, "2");
    let limited = "select string_agg(group_name, ' ') from trax.lease where limited";
    assert_eq!(s.get(limited).await, "g2");
    s.assert_healthy().await;
}

#[tokio::test]
async fn two_documents_that_name_the_same_groups_do_not_deadlock() {
    let (db, s) = session().await;
    let claimer = Session::of(&db).await;
    s.get("select trax.enqueue('a', group_name => 'g' || n) from generate_series(1, 3) n")
        .await;
    claimer.get("begin").await;
    claimer.claim_one("groups => array['g2']").await;
    let mut tasks = Vec::new();
    for names in [["g1", "g2", "g3"], ["g3", "g2", "g1"]] {
        let other = Session::of(&db).await;
        let pid = other.pid();
        let groups = names.map(|name| format!(r#"{{"name": "{name}", "priority": 3}}"#));
        let document = format!(r#"{{"groups": [{}]}}"#, groups.join(","));
        tasks.push(other.spawn(format!("select count(*) from trax.apply('{document}')")));
        s.sees_waiting(pid).await;
    }
    claimer.get("commit").await;
    for task in tasks {
        assert_eq!(succeeds("a document", task).await, "3");
    }
}

#[tokio::test]
async fn pruning_manifests_and_cancelling_what_waits_of_them_do_not_deadlock() {
    let (db, s) = session().await;
    let (applier, canceller, holder) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let pids = (applier.pid(), canceller.pid());
    s.get(
        r#"select count(*) from trax.apply('{"manifests": [{"name": "first", "task": "a"}, {"name": "second", "task": "a"}]}');
           select trax.trigger('first'); select trax.trigger('second')"#,
    )
    .await;
    holder
        .get("begin; select from trax.work_queue where manifest = 'second' for update")
        .await;
    let cancelling = canceller.spawn("select trax.cancel_group('default')");
    s.sees_waiting(pids.1).await;
    let pruning = applier.spawn("select count(*) from trax.apply('{}', prune => true)");
    waits_or_ends(&s, pids.0, &pruning).await;
    holder.get("commit").await;
    assert_eq!(succeeds("a cancellation", cancelling).await, "2");
    assert_eq!(succeeds("a document", pruning).await, "2");
    s.assert_healthy().await;
}

#[tokio::test]
async fn triggers_in_any_order_and_a_document_that_changes_their_manifests_do_not_deadlock() {
    let (db, s) = session().await;
    let (trigger, applier, holder) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let (pid, other) = (applier.pid(), trigger.pid());
    s.get("select trax.schedule('m' || n, 'a') from generate_series(1, 3) n")
        .await;
    // The document is compared with the stored manifests before any of them is locked.
    holder
        .get("begin; select from trax.manifest where name = 'm3' for update")
        .await;
    let entries = [1, 2, 3].map(|n| format!(r#"{{"name": "m{n}", "task": "b"}}"#));
    let document = format!(r#"{{"manifests": [{}]}}"#, entries.join(","));
    let applying = applier.spawn(format!("select count(*) from trax.apply('{document}')"));
    s.sees_waiting(pid).await;
    trigger.get("begin; select trax.trigger('m2')").await;
    holder.get("commit").await;
    let waits = format!("select {other} = any (pg_blocking_pids({pid}))");
    eventually("it waits or ends", PATIENCE, async || {
        match applying.is_finished() || s.get(&waits).await == "t" {
            true => Ok(()),
            false => Err("neither".to_owned()),
        }
    })
    .await;
    let triggering = trigger.spawn("select trax.trigger('m1') is null; commit");
    assert_eq!(succeeds("a trigger", triggering).await, "f");
    assert_eq!(succeeds("a document", applying).await, "3");
    s.assert_healthy().await;
}

#[tokio::test]
async fn cancelling_a_group_and_a_completion_in_it_do_not_deadlock() {
    let (db, s) = session().await;
    let holder = Session::of(&db).await;
    for call in ["cancel_group('default')", "cancel_manifest('m')"] {
        s.get("select trax.schedule('m', 'a', max_concurrency => 5); select trax.trigger('m'), trax.trigger('m')")
            .await;
        let job = s.claim_one("lease => '1 h'").await;
        // Both calls lock this row last.
        holder
            .get("begin; select from trax.manifest_state for update")
            .await;
        let (canceller, completer) = (Session::of(&db).await, Session::of(&db).await);
        let pids = (canceller.pid(), completer.pid());
        let cancelling = canceller.spawn(format!("select trax.{call}"));
        s.sees_waiting(pids.0).await;
        let completion = completer.spawn(format!("select trax.complete({})", job.key()));
        waits_or_ends(&s, pids.1, &completion).await;
        holder.get("commit").await;
        assert_eq!(succeeds("a cancellation", cancelling).await, "2");
        assert_eq!(succeeds("a completion", completion).await, "t");
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn requeueing_dead_letters_and_taking_their_unique_keys_do_not_deadlock() {
    let (db, s) = session().await;
    let (requeuer, producer) = (Session::of(&db).await, Session::of(&db).await);
    let pid = requeuer.pid();
    for key in ["k2", "k1"] {
        s.enqueue(&format!("'a', unique_key => '{key}', max_retries => 0"))
            .await;
        let job = s.claim_one("").await;
        s.get(&format!("select trax.fail({}, 'no')", job.key()))
            .await;
    }
    producer
        .get("begin; select trax.enqueue('a', unique_key => 'k1')")
        .await;
    let requeueing = requeuer.spawn("select trax.requeue_dead_letters()");
    s.sees_waiting(pid).await;
    let producing = producer.spawn("select trax.enqueue('a', unique_key => 'k2'); commit");
    succeeds("a producer", producing).await;
    assert_eq!(
        succeeds("requeueing", requeueing).await,
        "0",
        "both keys are those of other jobs"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_document_that_changes_nothing_locks_no_group_and_no_manifest() {
    let (db, s) = session().await;
    let document = r#"select count(*) from trax.apply('{"groups": [{"name": "g", "priority": 3}],
        "manifests": [{"name": "m", "task": "a", "group_name": "g", "every": "1 h"}]}')"#;
    s.get(document).await;
    s.get("select trax.trigger('m')").await;
    let job = s.claim_one("lease => '1 h'").await;
    let applier = Session::of(&db).await;
    applier.get("begin").await;
    assert_eq!(applier.get(document).await, "2");
    s.get("set lock_timeout = '5 s'").await;
    s.get("select trax.configure_group('g', priority => 3)")
        .await;
    assert_eq!(
        s.get(&format!("select trax.complete({})", job.key())).await,
        "t"
    );
    applier.get("commit").await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_log_of_the_server_names_the_statements_of_a_deadlock() {
    let (db, s) = session().await;
    let (one, other) = (Session::of(&db).await, Session::of(&db).await);
    s.get("select trax.enqueue('a'), trax.enqueue('a')").await;
    let jobs = s.claim("max_jobs => 2").await;
    let complete = |n: usize| format!("select trax.complete({})", jobs[n].key());
    one.get("begin").await;
    one.get(&complete(0)).await;
    other.get("begin").await;
    other.get(&complete(1)).await;
    let (first, second) = (one.pid(), other.pid());
    let waits = one.spawn(complete(1));
    s.sees_waiting(first).await;
    let meets = other.spawn(complete(0));
    let (waits, meets) = tokio::join!(waits, meets);
    let results = [waits, meets].map(|ended| ended.expect("the session lives").1);
    let refused: Vec<&Refusal> = results
        .iter()
        .filter_map(|one| one.as_ref().err())
        .collect();
    let [refusal] = refused.as_slice() else {
        panic!("one of them is the victim: {results:?}");
    };
    assert_eq!(refusal.code, "40P01", "{refusal}");
    assert!(!refusal.detail.contains("select"), "for the log only");
    let log = std::fs::read_to_string(harness::shared_server().log_file());
    let log = log.expect("the log can be read");
    for (pid, statement) in [(first, complete(1)), (second, complete(0))] {
        let line = format!("Process {pid}: {statement}");
        assert!(log.contains(&line), "{line}");
    }
}

#[tokio::test]
async fn cancelling_a_tree_and_completions_in_it_do_not_deadlock() {
    let (db, s) = session().await;
    let (canceller, completer, holder) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let pids = (canceller.pid(), completer.pid());
    let spawn = async |parent: &Claimed, step: &str| {
        let sql = format!("select trax.spawn({}, '{step}', 'a')", parent.key());
        s.number(&sql).await;
        s.claim_one("lease => '1 h'").await
    };
    s.enqueue("'a'").await;
    let root = s.claim_one("lease => '1 h'").await;
    let first = spawn(&root, "first").await;
    let grandchild = spawn(&first, "child").await;
    let second = spawn(&root, "second").await;
    assert!(grandchild.id < second.id);
    let lock = "begin; select from trax.lease where job_id = $ for update";
    holder
        .get(&lock.replace('$', &grandchild.id.to_string()))
        .await;
    let completion = completer.spawn(format!(
        "select count(*) from trax.complete_many(array[{}, {}], array['{}', '{}']::uuid[])",
        grandchild.id, second.id, grandchild.token, second.token
    ));
    s.sees_waiting(pids.1).await;
    let cancelling = canceller.spawn(format!("select trax.cancel({})", root.id));
    s.sees_waiting(pids.0).await;
    holder.get("commit").await;
    assert_eq!(succeeds("completions", completion).await, "2");
    assert_eq!(succeeds("a cancellation", cancelling).await, "requested");
    s.assert_healthy().await;
}
