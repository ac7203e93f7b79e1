//! Graphs and batches beside full groups, and beside calls that replace a waiting job.

use super::{assert_no_needs, complete, states};
use harness::session::{Session, session};

async fn open(s: &Session) -> i64 {
    s.number("select trax.open_batch('report')").await
}

async fn full_group(s: &Session, overflow: &str) {
    s.get(&format!(
        "select trax.configure_group('g', max_waiting => 1, overflow => '{overflow}')"
    ))
    .await;
}

#[tokio::test]
async fn a_new_job_that_is_dropped_is_of_no_batch() {
    let (_db, s) = session().await;
    full_group(&s, "drop_newest").await;
    let batch = open(&s).await;
    let calls = [
        format!(
            "select count(*) from trax.enqueue_many('mail', '{{1, 2, 3}}', group_name => 'g', batch => {batch})"
        ),
        format!(
            "select trax.enqueue('mail', group_name => 'g', unique_key => 'k', batch => {batch})"
        ),
        format!(
            "insert into trax.new_job (task, group_name, batch) values ('mail', 'g', {batch}), ('fax', 'h', {batch})"
        ),
    ];
    for call in calls {
        s.get(&call).await;
    }
    let dropped = "select count(*) from trax.run where state = 'cancelled'";
    assert_eq!(s.number(dropped).await, 4);
    assert_eq!(
        s.number(&format!("select trax.seal_batch({batch})")).await,
        2
    );
    complete(&s, "mail").await;
    complete(&s, "fax").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    complete(&s, "report").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_child_that_is_dropped_is_of_no_batch() {
    let (_db, s) = session().await;
    full_group(&s, "drop_newest").await;
    s.enqueue("'mail', group_name => 'g'").await;
    let batch = open(&s).await;
    s.enqueue(&format!("'parent', batch => {batch}")).await;
    let parent = s.claim("tasks => '{parent}'").await.remove(0);
    let child = s
        .number(&format!(
            "select trax.spawn({}, 'one', 'mail', group_name => 'g', batch => {batch})",
            parent.key()
        ))
        .await;
    let state = format!("select state from trax.job where job_id = {child}");
    assert_eq!(s.get(&state).await, "cancelled");
    assert_eq!(
        s.number(&format!("select trax.seal_batch({batch})")).await,
        1
    );
    s.get(&format!("select trax.complete({})", parent.key()))
        .await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    complete(&s, "report").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_waiting_job_that_is_dropped_has_ended_for_its_batch() {
    let (_db, s) = session().await;
    full_group(&s, "drop_oldest").await;
    let batch = open(&s).await;
    s.enqueue(&format!("'mail', group_name => 'g', batch => {batch}"))
        .await;
    s.get(&format!("select trax.seal_batch({batch})")).await;
    s.enqueue("'mail', group_name => 'g'").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    assert_eq!(states(&s, batch).await, "report queued, mail cancelled");
    complete(&s, "report").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_that_is_dropped_cancels_those_of_its_graph_that_need_its_success() {
    let (_db, s) = session().await;
    let graph = s
        .number(
            r#"select job_id from trax.enqueue_graph('{"jobs": [
                {"name": "load", "task": "load", "group_name": "g"},
                {"name": "sum", "task": "sum", "needs": ["load"]}]}') where name = 'load'"#,
        )
        .await;
    // The jobs that wait already can be dropped.
    full_group(&s, "drop_oldest").await;
    s.enqueue("'mail', group_name => 'g'").await;
    s.get("select * from trax.tick()").await;
    assert_eq!(states(&s, graph).await, "load cancelled, sum cancelled");
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_full_group_takes_the_jobs_of_a_document_and_the_job_of_a_batch() {
    let (_db, s) = session().await;
    full_group(&s, "reject").await;
    s.enqueue("'mail', group_name => 'g'").await;
    let document = r#"{"jobs": [{"name": "a", "task": "a", "group_name": "g"}, {"name": "b", "task": "b", "group_name": "g", "needs": ["a"]}]}"#;
    s.get(&format!(
        "select count(*) from trax.enqueue_graph('{document}')"
    ))
    .await;
    s.get("select trax.open_batch('report', group_name => 'g')")
        .await;
    let waiting = "select count(*) from trax.work_queue where group_name = 'g'";
    assert_eq!(s.number(waiting).await, 4);
    assert_eq!(
        s.refusal("select trax.enqueue('mail', group_name => 'g')")
            .await
            .code,
        "53400"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_is_replaced_stays_in_its_batch_and_joins_no_other() {
    let (_db, s) = session().await;
    let (first, second) = (open(&s).await, open(&s).await);
    let call = |input: i32, batch: i64| {
        format!("'mail', '{input}', unique_key => 'k', on_duplicate => 'replace', batch => {batch}")
    };
    let job = s.enqueue(&call(1, first)).await;
    assert_eq!(s.enqueue(&call(2, second)).await, job);
    let row = format!(
        "insert into trax.new_job (task, input, unique_key, on_duplicate, batch) values ('mail', '3', 'k', 'replace', {second})"
    );
    s.get(&row).await;
    for (batch, count) in [(first, 1), (second, 0)] {
        let seal = format!("select trax.seal_batch({batch})");
        assert_eq!(s.number(&seal).await, count, "{batch}");
    }
    assert_eq!(s.tick("promote_delayed").await, 1);
    let input = format!("select input from trax.work_queue where job_id = {job}");
    assert_eq!(s.get(&input).await, "3");
    // A job that has begun stays as it is, and the new one is of the batch of its call.
    let mail = s.claim("tasks => '{mail}'").await.remove(0);
    let third = open(&s).await;
    let new = s.enqueue(&call(4, third)).await;
    assert_ne!(new, job);
    assert_eq!(
        s.number(&format!("select trax.seal_batch({third})")).await,
        1
    );
    s.get(&format!("select trax.complete({})", mail.key()))
        .await;
    complete(&s, "mail").await;
    assert_eq!(s.tick("promote_delayed").await, 2);
    for _ in 0..3 {
        complete(&s, "report").await;
    }
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn the_job_of_a_batch_is_replaced_while_it_waits_for_its_jobs() {
    let (_db, s) = session().await;
    let open = |input: i32| {
        format!(
            "select trax.open_batch('report', '{input}', unique_key => 'k', on_duplicate => 'replace')"
        )
    };
    let batch = s.number(&open(1)).await;
    s.enqueue(&format!("'mail', batch => {batch}")).await;
    assert_eq!(s.number(&open(2)).await, batch);
    let seen = "select input, waits_for from trax.work_queue where task = 'report'";
    assert_eq!(s.get(seen).await, "2|jobs");
    s.get(&format!("select trax.seal_batch({batch})")).await;
    complete(&s, "mail").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    complete(&s, "report").await;
    // The end of a job with a unique key leaves an event: another may just begin to wait for it.
    s.get("select * from trax.tick()").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_of_a_graph_that_has_not_begun_gets_another_time() {
    let (_db, s) = session().await;
    s.get(
        r#"select count(*) from trax.enqueue_graph('{"jobs": [
            {"name": "load", "task": "load"}, {"name": "sum", "task": "sum", "needs": ["load"]}]}')"#,
    )
    .await;
    let change = "select trax.change_job(job_id, run_at => now() + interval '1 h') from trax.work_queue where task = 'sum'";
    assert_eq!(s.get(change).await, "changed");
    let waits = "select waits_for from trax.work_queue where task = 'sum'";
    assert_eq!(s.get(waits).await, "jobs");
    complete(&s, "load").await;
    s.get("select * from trax.tick()").await;
    assert_eq!(s.get(waits).await, "time");
    s.get("select trax.run_now(job_id) from trax.work_queue where task = 'sum'")
        .await;
    complete(&s, "sum").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_that_is_replaced_or_changed_is_in_the_lane_of_its_rate() {
    let (_db, s) = session().await;
    s.get("select trax.configure_rate('api', 1, '1 h'), trax.configure_rate('other', 1000, '1 s')")
        .await;
    let seen = "select rate, rate_key, cost from trax.work_queue";
    let call = |rate: &str| format!("'mail', unique_key => 'k', on_duplicate => 'replace'{rate}");
    let job = s.enqueue(&call(", rate => 'api', rate_key => 'x'")).await;
    assert_eq!(
        s.get(&format!(
            "select trax.change_job({job}, group_name => 'h', priority => 2)"
        ))
        .await,
        "changed"
    );
    assert_eq!(s.get(seen).await, "api|x|1");
    s.assert_healthy().await;
    assert_eq!(s.enqueue(&call(", rate => 'other', cost => 3")).await, job);
    assert_eq!(s.get(seen).await, "other||3");
    s.assert_healthy().await;
    assert_eq!(s.enqueue(&call("")).await, job);
    assert_eq!(s.get(seen).await, "||");
    assert_eq!(s.claim_ids("").await, [job]);
    s.assert_healthy().await;
}
