//! `trax jobs cancel` for a task, and for everything.

use super::{objects, refused, said};
use harness::session::session;
use serde_json::json;

#[tokio::test]
async fn the_live_jobs_of_a_task_or_of_all_are_cancelled_whatever_their_number() {
    let (db, s) = session().await;
    s.get("select count(*) from trax.enqueue_many('a', array_fill('1'::jsonb, array[1200]));
           select trax.enqueue('a', run_at => now() + '1 h'); select trax.enqueue('b'); select trax.enqueue('b')")
        .await;
    s.claim("max_jobs => 7, tasks => '{a}'").await;
    let live = "select (select count(*) from trax.work_queue) + (select count(*) from trax.lease where not cancel_requested)";
    let errors = refused(&db, 64, &["jobs", "cancel", "--task", "a"]);
    assert!(errors.contains("--yes"), "{errors}");
    assert_eq!(s.number(live).await, 1203);
    let cancelled = objects(&db, &["jobs", "cancel", "--task", "a", "--yes"]);
    assert_eq!(
        cancelled,
        [json!({"kind": "task", "name": "a", "cancelled": 1201})]
    );
    assert_eq!(s.number(live).await, 2);
    let text = said(&db, &["jobs", "cancel", "--all", "--yes"]);
    assert!(text.starts_with("9 jobs of database "), "{text}");
    assert_eq!(s.number(live).await, 0);
    assert_eq!(
        s.number("select count(*) from trax.lease where cancel_requested")
            .await,
        7
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_is_cancelled_with_what_it_has_spawned_or_alone() {
    let (db, s) = session().await;
    for (alone, left) in [(&["--alone"][..], 1), (&[], 0)] {
        let job = s.enqueue("'flow'").await;
        let parent = s.claim_one("tasks => '{flow}'").await;
        s.get(&format!(
            "select trax.spawn({}, 'a', 'child')",
            parent.key()
        ))
        .await;
        let job = job.to_string();
        let text = said(&db, &[&["jobs", "cancel", &job][..], alone].concat());
        assert_eq!(
            text,
            format!("job {job}: its worker was asked to stop it\n")
        );
        let children = s.claim_ids("tasks => '{child}', max_jobs => 9").await;
        assert_eq!(children.len(), left, "{alone:?}");
    }
    let errors = refused(&db, 64, &["jobs", "cancel", "--all", "--alone", "--yes"]);
    assert!(errors.contains("--alone"), "{errors}");
}
