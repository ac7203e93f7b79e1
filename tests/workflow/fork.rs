//! A new job with the steps of one that has ended.

use super::{running, steps};
use harness::session::session;

#[tokio::test]
async fn a_fork_takes_over_the_steps_before_a_step() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    for step in ["a", "b", "c"] {
        s.get(&format!(
            "select trax.record_step({}, '{step}', '\"{step}\"')",
            job.key()
        ))
        .await;
    }
    let id = job.id;
    let early = s.refusal(&format!("select trax.fork({id})")).await;
    assert_eq!(
        (early.code.as_str(), early.message),
        ("55000", format!("job {id} has not ended"))
    );
    s.get(&format!("select trax.complete({})", job.key())).await;
    let fork = s
        .number(&format!("select trax.fork({id}, 'b', '{{\"x\": 1}}')"))
        .await;
    assert_eq!(steps(&s, fork).await, "a|step|\"a\"|t");
    let queued = format!("select task, input, steps from trax.work_queue where job_id = {fork}");
    assert_eq!(s.get(&queued).await, "flow|{\"x\": 1}|1");
    let whole = s.number(&format!("select trax.fork({id})")).await;
    assert_eq!(steps(&s, whole).await.lines().count(), 3);
    let first = s.number(&format!("select trax.fork({id}, 'a')")).await;
    let queued = format!("select steps, input from trax.work_queue where job_id = {first}");
    assert_eq!(s.get(&queued).await, "|{}");
    let unknown = s.refusal(&format!("select trax.fork({id}, 'x')")).await;
    assert_eq!(unknown.code, "22023");
    assert_eq!(s.refusal("select trax.fork(999999)").await.code, "42704");
    let note = "select name, note from trax.audit where action = 'fork' order by at limit 1";
    assert_eq!(
        s.get(note).await,
        format!("{id}|as job {fork}, from step b")
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_fork_does_not_take_over_a_step_that_is_undone() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    for (step, undo) in [
        ("a", ""),
        ("charge", ", undo => '{\"task\": \"refund\"}'"),
        ("c", ""),
    ] {
        let record = format!(
            "select trax.record_step({}, '{step}', '1'{undo})",
            job.key()
        );
        s.get(&record).await;
    }
    let id = job.id;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
    for from in ["", ", 'c'"] {
        let refusal = s.refusal(&format!("select trax.fork({id}{from})")).await;
        assert_eq!(refusal.code, "55000");
        assert_eq!(
            refusal.message,
            format!("step \"charge\" of job {id} is undone")
        );
        assert!(refusal.hint.contains("from_step => 'charge'"), "{refusal}");
    }
    let fork = s.number(&format!("select trax.fork({id}, 'charge')")).await;
    assert_eq!(steps(&s, fork).await, "a|step|1|t");
    let refunds = "select count(*) from trax.work_queue where task = 'refund'";
    assert_eq!(s.get(refunds).await, "1");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_steps_that_forks_take_over_are_undone_by_no_fork() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let record = |key: &str, step: &str, task: &str| {
        format!("select trax.record_step({key}, '{step}', '1', undo => '{{\"task\": \"{task}\"}}')")
    };
    s.get(&record(&job.key(), "charge", "refund")).await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    for _ in 0..2 {
        s.get(&format!("select trax.fork({})", job.id)).await;
        let fork = s.claim_one("tasks => '{flow}'").await;
        assert_eq!(steps(&s, fork.id).await, "charge|step|1|t");
        s.get(&record(&fork.key(), "ship", "recall")).await;
        s.get(&format!("select trax.cancel_own({})", fork.key()))
            .await;
    }
    let undo = "select distinct task, count(*) from trax.work_queue group by 1";
    assert_eq!(s.get(undo).await, "recall|2", "each its own step");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_fork_has_the_options_of_its_job_however_that_ended() {
    let (_db, s) = session().await;
    let options = "concurrency_key => 'k', max_retries => 7, timeout => '5 min', retry_delay => '3 s', trace => '{\"t\": 1}', priority => 4";
    for end in [
        "select trax.complete($)",
        "select trax.fail($, 'no', permanent => true)",
        "select trax.cancel_own($)",
        "select trax.release($); select trax.cancel($job)",
    ] {
        let id = s.enqueue(&format!("'flow', {options}")).await;
        let job = s.claim_one("").await;
        let end = end
            .replace("$job", &id.to_string())
            .replace('$', &job.key());
        s.get(&end).await;
        let fork = s.number(&format!("select trax.fork({id})")).await;
        let of = format!(
            "select concurrency_key, max_retries, timeout, retry_delay, trace, priority from trax.work_queue where job_id = {fork}"
        );
        assert_eq!(
            s.get(&of).await,
            "k|7|00:05:00|00:00:03|{\"t\": 1}|4",
            "{end}"
        );
        s.get(&format!("select trax.cancel({fork})")).await;
    }
    s.assert_healthy().await;
}
