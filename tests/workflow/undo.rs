//! Undoing the steps of a job that ends without success.

use super::running;
use harness::session::{Session, session};

async fn with_steps(s: &Session) -> harness::session::Claimed {
    let job = running(s).await;
    for (step, task) in [("reserve", "unreserve"), ("charge", "refund")] {
        s.get(&format!(
            "select trax.record_step({}, '{step}', '1', undo => '{{\"task\": \"{task}\", \"input\": {{\"of\": \"{step}\"}}}}')",
            job.key()
        ))
        .await;
    }
    s.get(&format!("select trax.record_step({}, 'mail')", job.key()))
        .await;
    job
}

#[tokio::test]
async fn steps_are_undone_one_after_the_other_the_newest_first() {
    let (_db, s) = session().await;
    let ends = [
        "select trax.fail($, 'no', permanent => true)",
        "select trax.cancel_own($)",
        "select trax.release($); select trax.cancel($job)",
    ];
    for end in ends {
        let job = with_steps(&s).await;
        let end = end
            .replace("$job", &job.id.to_string())
            .replace('$', &job.key());
        s.get(&end).await;
        let queued =
            "select task, input, waits_for, parent_job_id from trax.work_queue order by job_id";
        let id = job.id;
        assert_eq!(
            s.get(queued).await,
            format!(
                "refund|{{\"of\": \"charge\"}}||{id}\nunreserve|{{\"of\": \"reserve\"}}|jobs|{id}"
            ),
            "{end}"
        );
        s.tick("promote_delayed").await;
        let refund = s.claim_one("").await;
        assert!(s.claim("").await.is_empty(), "the other waits for it");
        // Also when it fails.
        s.get(&format!(
            "select trax.fail({}, 'no', permanent => true)",
            refund.key()
        ))
        .await;
        assert_eq!(s.tick("promote_delayed").await, 1);
        let unreserve = s.claim_one("").await;
        s.get(&format!("select trax.complete({})", unreserve.key()))
            .await;
        s.get("select count(*) from trax.tick()").await;
        s.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_job_that_succeeds_or_is_tried_again_undoes_nothing() {
    let (_db, s) = session().await;
    let job = with_steps(&s).await;
    s.get(&format!(
        "select trax.fail({}, 'no', retry_in => '0 s')",
        job.key()
    ))
    .await;
    let again = s.claim_one("").await;
    assert_eq!(again.id, job.id);
    s.get(&format!("select trax.complete({})", again.key()))
        .await;
    assert_eq!(s.get("select count(*) from trax.work_queue").await, "0");
}

#[tokio::test]
async fn a_dead_letter_is_requeued_behind_its_steps_unless_they_are_undone() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    s.get(&format!("select trax.record_step({}, 'a', '1')", job.key()))
        .await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
    let letter = s.number("select max(id) from trax.dead_letter").await;
    s.get(&format!("select trax.requeue_dead_letter({letter})"))
        .await;
    assert_eq!(
        s.get("select job_id, steps from trax.claim_next()")
            .await
            .rsplit_once('|')
            .map(|(_, steps)| steps.to_owned()),
        Some("1".to_owned())
    );
    let kept =
        "select step, output, attempt from trax.read_steps((select max(job_id) from trax.lease))";
    assert_eq!(s.get(kept).await, "a|1|1");
    let undone = with_steps(&s).await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        undone.key()
    ))
    .await;
    let letter = s.number("select max(id) from trax.dead_letter").await;
    let refusal = s
        .refusal(&format!("select trax.requeue_dead_letter({letter})"))
        .await;
    assert_eq!(refusal.code, "55000");
    assert_eq!(
        refusal.message,
        format!("the steps of job {} are being undone", undone.id)
    );
    assert_eq!(s.get("select trax.requeue_dead_letters()").await, "0");
    let fresh = format!("select trax.requeue_dead_letter({letter}, fresh => true)");
    let new = s.number(&fresh).await;
    let steps = format!("select steps from trax.work_queue where job_id = {new}");
    assert_eq!(s.get(&steps).await, "");
    s.assert_healthy().await;
}
