//! Dormant dependents: only the running parent queues them.

use harness::manifest::{complete, complete_one, running, state, succeed};
use harness::session::session;

const DORMANT: &str = "select trax.schedule('p', 'p'); select trax.schedule('other', 'other');
    select trax.schedule('c', 'c', depends_on => '{p}', dormant => true, priority => 4, input => '{\"own\": 1}')";

#[tokio::test]
async fn a_dormant_child_is_activated_only_while_a_parent_runs() {
    let (_db, s) = session().await;
    s.get(DORMANT).await;
    succeed(&s, "p").await;
    assert_eq!(s.tick("queue_due").await, 0, "a success does not wake it");
    assert_eq!(state(&s, "c").await, "|f");
    let other = running(&s, "other").await;
    let before = s.everything().await;
    let refusal = s.refusal("select trax.activate('c')").await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert!(
        refusal.detail.contains('p') && !refusal.hint.is_empty(),
        "{refusal}"
    );
    s.get("select trax.trigger('p')").await;
    let waits = s.refusal("select trax.activate('c')").await;
    assert_eq!(waits.code, "55000", "the parent waits: {waits}");
    complete(&s, &other).await;
    let parent = s.claim_one("tasks => '{p}'").await;
    let job = s
        .number("select trax.activate('c', input => '{\"given\": 2}')")
        .await;
    let queued =
        format!("select input, priority, manifest from trax.work_queue where job_id = {job}");
    assert_eq!(s.get(&queued).await, "{\"given\": 2}|20|c");
    s.get("select trax.activate('c')").await;
    complete(&s, &parent).await;
    let ended = s.refusal("select trax.activate('c')").await;
    assert_eq!(ended.code, "55000", "the parent has ended: {ended}");
    let inputs = "select string_agg(input::text, ',' order by job_id) from trax.work_queue";
    assert_eq!(s.get(inputs).await, "{\"given\": 2},{\"own\": 1}");
    assert_ne!(s.everything().await, before);
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_activation_is_part_of_its_transaction() {
    let (_db, s) = session().await;
    s.get(DORMANT).await;
    let parent = running(&s, "p").await;
    s.get("begin; select trax.activate('c'); rollback").await;
    assert_eq!(s.claim_ids("").await, Vec::<i64>::new());
    s.get(&format!(
        "begin; select trax.activate('c'); select trax.complete({}); commit",
        parent.key()
    ))
    .await;
    complete_one(&s, "tasks => '{c}'").await;
    s.assert_healthy().await;
}

#[tokio::test]
async fn what_is_not_dormant_is_not_activated() {
    let (_db, s) = session().await;
    s.get(DORMANT).await;
    s.get("select trax.schedule('awake', 'awake', depends_on => '{p}')")
        .await;
    let _parent = running(&s, "p").await;
    let before = s.everything().await;
    for (name, code) in [("awake", "55000"), ("p", "55000"), ("nobody", "42704")] {
        let refusal = s.refusal(&format!("select trax.activate('{name}')")).await;
        assert_eq!(refusal.code, code, "{name}: {refusal}");
        assert!(
            !refusal.detail.is_empty() && !refusal.hint.is_empty(),
            "{refusal}"
        );
    }
    let null = s.refusal("select trax.activate(null)").await;
    assert_eq!(null.code, "22004", "{null}");
    s.get("select trax.disable_manifest('c')").await;
    let disabled = s.refusal("select trax.activate('c')").await;
    assert_eq!(disabled.code, "55000", "{disabled}");
    s.get("select trax.enable_manifest('c')").await;
    assert_eq!(
        s.get("select trax.trigger_group('default')").await,
        "3",
        "all but the dormant one"
    );
    assert_ne!(s.everything().await, before);
}

#[tokio::test]
async fn a_dormant_child_that_is_woken_for_good_runs_for_what_is_satisfied() {
    let (_db, s) = session().await;
    s.get(DORMANT).await;
    succeed(&s, "p").await;
    s.get("select trax.schedule('c', 'c', dormant => false)")
        .await;
    succeed(&s, "p").await;
    assert_eq!(s.tick("queue_due").await, 1);
    s.assert_healthy().await;
}
