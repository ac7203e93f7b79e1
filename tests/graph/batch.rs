//! Batches: opened, filled and sealed; their job runs after all.

use super::{assert_no_needs, complete, fail, states};
use harness::session::{Session, session};

async fn open(s: &Session) -> i64 {
    s.number("select trax.open_batch('report', '{\"to\": \"me\"}')")
        .await
}

async fn add(s: &Session, batch: i64) -> i64 {
    s.enqueue(&format!("'mail', batch => {batch}")).await
}

async fn seal(s: &Session, batch: i64) -> i64 {
    s.number(&format!("select trax.seal_batch({batch})")).await
}

#[tokio::test]
async fn its_job_runs_after_all_jobs_of_a_sealed_batch_whatever_they_became() {
    let (_db, s) = session().await;
    let batch = open(&s).await;
    let (first, second) = (add(&s, batch).await, add(&s, batch).await);
    let third = s
        .number(&format!(
            "select * from trax.enqueue_many('fax', '{{1}}', batch => {batch})"
        ))
        .await;
    s.get(&format!(
        "copy trax.new_job (task, batch) from program 'echo letter,{batch}' csv"
    ))
    .await;
    for _ in 0..2 {
        let mail = s.claim("tasks => '{mail}', max_jobs => 1").await.remove(0);
        s.get(&format!("select trax.complete({}, '1')", mail.key()))
            .await;
    }
    fail(&s, "fax").await;
    s.get("select * from trax.tick()").await;
    assert_eq!(seal(&s, batch).await, 4);
    assert_eq!(s.tick("promote_delayed").await, 0);
    complete(&s, "letter").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    let needs = format!("select job_id, state from trax.read_needs({batch})");
    let fourth = third + 1;
    assert_eq!(
        s.get(&needs).await,
        format!("{first}|completed\n{second}|completed\n{third}|failed\n{fourth}|completed")
    );
    assert_eq!(
        states(&s, third).await,
        "report queued, mail completed, mail completed, fax failed, letter completed"
    );
    complete(&s, "report").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn an_empty_batch_is_ready_when_it_is_sealed() {
    let (_db, s) = session().await;
    let batch = open(&s).await;
    s.get("select * from trax.tick()").await;
    assert!(s.claim("").await.is_empty());
    assert_eq!(seal(&s, batch).await, 0);
    assert_eq!(s.tick("promote_delayed").await, 1);
    complete(&s, "report").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_batch_whose_jobs_have_ended_waits_until_it_is_sealed() {
    let (_db, s) = session().await;
    let batch = open(&s).await;
    add(&s, batch).await;
    complete(&s, "mail").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    let said = s
        .get(&format!(
            "select reason, action from trax.explain_job({batch}) order by 1 desc limit 1"
        ))
        .await;
    assert_eq!(
        said,
        format!("open_batch|When all are added: select trax.seal_batch({batch})")
    );
    assert_eq!(seal(&s, batch).await, 1);
    assert_eq!(s.tick("promote_delayed").await, 1);
}

#[tokio::test]
async fn a_batch_is_sealed_once_and_says_so_twice() {
    let (_db, s) = session().await;
    let batch = open(&s).await;
    add(&s, batch).await;
    assert_eq!(seal(&s, batch).await, 1);
    assert_eq!(seal(&s, batch).await, 1);
    complete(&s, "mail").await;
    s.get("select * from trax.tick()").await;
    complete(&s, "report").await;
    assert_eq!(seal(&s, batch).await, 1);
    s.get("select * from trax.tick()").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn nobody_adds_to_a_sealed_batch_except_its_running_jobs() {
    let (_db, s) = session().await;
    let batch = open(&s).await;
    add(&s, batch).await;
    let stranger = s.enqueue("'other'").await;
    let stranger_job = s.claim_one("tasks => '{other}'").await;
    assert_eq!(stranger_job.id, stranger);
    seal(&s, batch).await;
    for sql in [
        format!("select trax.enqueue('mail', batch => {batch})"),
        format!("select * from trax.enqueue_many('mail', '{{1,2}}', batch => {batch})"),
        format!("insert into trax.new_job (task, batch) values ('mail', {batch})"),
        format!("select trax.open_batch('mail', batch => {batch})"),
        format!(
            "select trax.spawn({}, 's', 'mail', batch => {batch})",
            stranger_job.key()
        ),
        format!(
            r#"select * from trax.enqueue_graph('{{"jobs": [{{"name": "a", "task": "a", "batch": {batch}}}]}}')"#
        ),
    ] {
        let refusal = s.refusal(&sql).await;
        assert_eq!(
            (refusal.code.as_str(), refusal.message.as_str()),
            ("55000", format!("batch {batch} is sealed").as_str()),
            "{sql}"
        );
        assert!(refusal.hint.contains("trax.spawn("), "{refusal}");
    }
    let mail = s.claim_one("tasks => '{mail}'").await;
    let spawn = format!(
        "select trax.spawn({}, 's', 'more', batch => {batch})",
        mail.key()
    );
    let more = s.number(&spawn).await;
    assert_eq!(s.number(&spawn).await, more, "on a replay the same");
    s.get(&format!("select trax.complete({})", mail.key()))
        .await;
    assert_eq!(
        s.tick("promote_delayed").await,
        0,
        "for the job that it added"
    );
    complete(&s, "more").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    assert_eq!(seal(&s, batch).await, 2);
    complete(&s, "report").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_number_that_is_no_batch_is_refused() {
    let (_db, s) = session().await;
    let job = s.enqueue("'a'").await;
    for batch in [job, 999] {
        for sql in [
            format!("select trax.enqueue('mail', batch => {batch})"),
            format!("select trax.seal_batch({batch})"),
        ] {
            let refusal = s.refusal(&sql).await;
            assert_eq!(
                (refusal.code.as_str(), refusal.message.as_str()),
                ("42704", format!("batch {batch} does not exist").as_str())
            );
        }
    }
}

#[tokio::test]
async fn a_batch_may_be_one_of_the_jobs_of_another() {
    let (_db, s) = session().await;
    let outer = s.number("select trax.open_batch('outer')").await;
    let inner = s
        .number(&format!(
            "select trax.open_batch('inner', batch => {outer})"
        ))
        .await;
    add(&s, inner).await;
    assert_eq!((seal(&s, inner).await, seal(&s, outer).await), (1, 1));
    complete(&s, "mail").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    complete(&s, "inner").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    complete(&s, "outer").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn the_jobs_of_a_graph_may_be_those_of_a_batch() {
    let (_db, s) = session().await;
    let batch = open(&s).await;
    s.get(&format!(
        r#"select * from trax.enqueue_graph('{{"jobs": [{{"name": "a", "task": "a", "batch": {batch}}}, {{"name": "b", "task": "b", "needs": ["a"], "batch": {batch}}}]}}')"#
    ))
    .await;
    assert_eq!(seal(&s, batch).await, 2);
    complete(&s, "a").await;
    s.get("select * from trax.tick()").await;
    assert!(s.claim("tasks => '{report}'").await.is_empty());
    complete(&s, "b").await;
    s.get("select * from trax.tick()").await;
    complete(&s, "report").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_whose_unique_key_is_alive_is_not_one_of_the_batch() {
    let (_db, s) = session().await;
    let other = s.enqueue("'other', unique_key => 'k'").await;
    let batch = open(&s).await;
    let same = s
        .enqueue(&format!("'mail', unique_key => 'k', batch => {batch}"))
        .await;
    assert_eq!(same, other);
    s.enqueue(&format!("'mail', unique_key => 'l', batch => {batch}"))
        .await;
    assert_eq!(seal(&s, batch).await, 1);
    let opened = s
        .number("select trax.open_batch('report', unique_key => 'k')")
        .await;
    assert_eq!(opened, other, "nothing is opened while the key is alive");
}

#[tokio::test]
async fn a_cancelled_batch_leaves_its_jobs() {
    let (_db, s) = session().await;
    let batch = open(&s).await;
    add(&s, batch).await;
    s.get(&format!("select trax.cancel({batch})")).await;
    assert_eq!(s.get("select count(*) from trax.need").await, "0");
    let refusal = s
        .refusal(&format!("select trax.enqueue('mail', batch => {batch})"))
        .await;
    assert_eq!(refusal.code, "55000");
    complete(&s, "mail").await;
    s.get("select * from trax.tick()").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn a_job_that_is_added_while_the_batch_is_cancelled_leaves_a_need_until_its_end() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let batch = open(&s).await;
    other.get("begin").await;
    let added = add(&other, batch).await;
    s.get(&format!("select trax.cancel({batch})")).await;
    other.get("commit").await;
    assert_eq!(
        s.get("select needed_job_id, job_id from trax.need").await,
        format!("{added}|{batch}")
    );
    s.assert_healthy().await;
    complete(&s, "mail").await;
    s.assert_healthy().await;
    s.get("select * from trax.tick()").await;
    assert_no_needs(&s).await;
}

#[tokio::test]
async fn its_job_waits_for_a_requeued_job_of_a_batch_that_has_not_begun() {
    let (_db, s) = session().await;
    let batch = open(&s).await;
    add(&s, batch).await;
    s.enqueue(&format!("'fax', batch => {batch}")).await;
    fail(&s, "fax").await;
    s.get("select * from trax.tick()").await;
    let again = s
        .number("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    seal(&s, batch).await;
    complete(&s, "mail").await;
    assert_eq!(s.tick("promote_delayed").await, 0);
    let said = format!("select detail from trax.explain_job({batch})");
    assert!(s.get(&said).await.contains(&format!("job {again}.")));
    fail(&s, "fax").await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    // Now it is ready, and waits for no other.
    s.get("select trax.requeue_dead_letters()").await;
    complete(&s, "report").await;
    complete(&s, "fax").await;
    s.get("select * from trax.tick()").await;
    assert_no_needs(&s).await;
}
