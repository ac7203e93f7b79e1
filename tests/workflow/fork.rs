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
