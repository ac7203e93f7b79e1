//! Completing and claiming in one call.

use harness::session::session;

#[tokio::test]
async fn completions_are_recorded_and_the_next_jobs_claimed_in_one_call() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue_many('t', array['1', '2', '3', '4']::jsonb[])")
        .await;
    let held = s.claim("max_jobs => 2").await;
    let call = format!(
        "select completed_job_id, job_id, attempt, task, input from trax.complete_and_claim(
             array[{}, {}], array['{}', '{}']::uuid[], array['\"a\"', '\"b\"']::jsonb[], worker => 'w', max_jobs => 5)",
        held[1].id, held[0].id, held[1].token, held[0].token
    );
    assert_eq!(s.get(&call).await, "1||||\n2||||\n|3|1|t|3\n|4|1|t|4");
    let runs = "select job_id, state, output from trax.run order by job_id";
    assert_eq!(s.get(runs).await, "1|completed|\"b\"\n2|completed|\"a\"");
    assert_eq!(
        s.get("select job_id, worker from trax.lease order by job_id")
            .await,
        "3|w\n4|w"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_stale_token_completes_nothing_and_the_claim_goes_on() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue_many('t', array['1', '2']::jsonb[])")
        .await;
    let held = s.claim_one("max_jobs => 1").await;
    let call = format!(
        "select completed_job_id, job_id from trax.complete_and_claim(array[{}], array[gen_random_uuid()])",
        held.id
    );
    assert_eq!(s.get(&call).await, "|2");
    assert_eq!(s.get("select count(*) from trax.run").await, "0");
}

#[tokio::test]
async fn with_nothing_to_complete_it_only_claims_and_the_other_way_round() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue('t')").await;
    let claimed = s
        .get("select job_id, token from trax.complete_and_claim('{}', '{}', tasks => array['t'])")
        .await;
    let (id, token) = claimed.split_once('|').expect("two columns");
    let call = format!(
        "select completed_job_id, job_id from trax.complete_and_claim(array[{id}], array['{token}']::uuid[])"
    );
    assert_eq!(s.get(&call).await, "1|");
}

#[tokio::test]
async fn a_rollback_undoes_both_halves() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue_many('t', array['1', '2']::jsonb[])")
        .await;
    let held = s.claim_one("max_jobs => 1").await;
    let before = s.everything().await;
    s.get(&format!(
        "begin;
         select * from trax.complete_and_claim(array[{}], array['{}']::uuid[]);
         rollback",
        held.id, held.token
    ))
    .await;
    assert_eq!(s.everything().await, before);
}

#[tokio::test]
async fn mistakes_in_either_half_change_nothing() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue('t')").await;
    let held = s.claim_one("max_jobs => 1").await;
    let key = format!("array[{}], array['{}']::uuid[]", held.id, held.token);
    let before = s.everything().await;
    for (arguments, code) in [
        (format!("{key}, max_jobs => 0"), "22023"),
        (format!("{key}, lease => interval '-1 s'"), "22023"),
        (
            format!("{key}, outputs => array['1', '2']::jsonb[]"),
            "22023",
        ),
        (format!("{key}, tasks => array['t', null]"), "22004"),
        (format!("array[{}], '{{}}'", held.id), "22023"),
        ("null, null".to_owned(), "22004"),
    ] {
        let refusal = s
            .refusal(&format!(
                "select * from trax.complete_and_claim({arguments})"
            ))
            .await;
        assert_eq!(refusal.code, code, "{arguments}: {refusal}");
        assert!(!refusal.hint.is_empty(), "{arguments}: {refusal}");
    }
    assert_eq!(s.everything().await, before);
}
