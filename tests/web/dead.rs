//! Dead letters: grouped by their failure, and resolved together.

use super::client::Web;
use harness::session::session;
use harness::shared_server;

#[tokio::test]
async fn those_that_match_are_resolved_together_with_a_note() {
    let (database, s) = session().await;
    s.get(
        "select count(*) from trax.enqueue_many('mail', array_fill('1'::jsonb, array[5]), max_retries => 0);
        select count(*) from trax.enqueue_many('disk', array_fill('1'::jsonb, array[3]), max_retries => 0);
        select count(trax.fail(job_id, token, case job_id % 2 when 0 then 'refused <1>' else 'no route' end)) from trax.claim_next('w', 8)",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let page = web.page("/dead?task=mail&error=refused+%3C1%3E").await;
    assert!(page.contains("2 dead letters match."), "{page}");
    assert!(
        page.contains("/act/requeue-many?task=mail&amp;error=refused+%3C1%3E"),
        "{page}"
    );
    let status = "select string_agg(job_id || ' ' || status || coalesce(' ' || resolution_note, ''), ', ' order by job_id)
        from trax.dead_letter where status <> 'awaiting_intervention'";
    let made = web
        .act(
            "/act/requeue-many?task=mail",
            "task=mail&error=refused&reason=mended",
            &[],
        )
        .await;
    assert_eq!(made.status, 200, "{}", made.body);
    assert!(made.body.contains("<b>2</b>"), "{}", made.body);
    assert_eq!(s.get(status).await, "2 requeued mended, 4 requeued mended");
    let made = web
        .act("/act/acknowledge-many", "task=disk&most=2&reason=old", &[])
        .await;
    let said = "<b>2, and leaves 1 more that match</b>";
    assert!(made.body.contains(said), "{}", made.body);
    assert_eq!(
        s.get(status).await,
        "2 requeued mended, 4 requeued mended, 6 acknowledged old, 7 acknowledged old"
    );
    let left = web.page("/dead?task=disk").await;
    assert!(left.contains("1 dead letter matches."), "{left}");
    let gone = web.page("/dead?status=requeued").await;
    assert!(!gone.contains("/act/requeue-many"), "{gone}");
    let audited = "select count(*) from trax.audit where note = 'mended' and program = 'trax web'";
    assert_eq!(s.get(audited).await, "2", "each is audited");
}

#[tokio::test]
async fn those_that_remain_are_counted() {
    let (database, s) = session().await;
    s.get(
        "select count(*) from trax.enqueue_many('mail', array_fill('1'::jsonb, array[350]), max_retries => 0);
        select count(trax.fail(job_id, token, 'no')) from trax.claim_next('w', 350)",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    for (act, left) in [("requeue-many", 250), ("acknowledge-many", 150)] {
        let done = web.act(&format!("/act/{act}"), "reason=x", &[]).await;
        let said = format!("<b>100, and leaves {left} more that match</b>");
        assert!(done.body.contains(&said), "{}", done.body);
    }
}

#[tokio::test]
async fn many_are_requeued_at_a_pace() {
    let (database, s) = session().await;
    s.get(
        "select count(*) from trax.enqueue_many('mail', array_fill('1'::jsonb, array[1001]), max_retries => 0);
        select count(trax.fail(job_id, token, 'no')) from trax.claim_next('w', 1000);
        select count(trax.fail(job_id, token, 'no')) from trax.claim_next('w', 1)",
    )
    .await;
    let web = Web::of(shared_server(), &database, &[]).await;
    let many = async || {
        web.act("/act/requeue-many", "most=5000&reason=mended", &[])
            .await
    };
    let made = many().await;
    let said = "<b>1000, and leaves 1 more that match</b>";
    assert!(made.body.contains(said), "{}", made.body);
    // The limit is ten seconds per thousand.
    let refused = many().await;
    assert_eq!(refused.status, 429, "{}", refused.body);
    assert!(
        refused.body.contains("at most 100 a second"),
        "{}",
        refused.body
    );
    let waiting = "select count(*) from trax.work_queue";
    assert_eq!(s.get(waiting).await, "1000", "and nothing was requeued");
    // Single acts have no limit.
    let letter = s
        .get("select id from trax.dead_letter where status = 'awaiting_intervention'")
        .await;
    let one = web
        .act(
            &format!("/act/requeue?id={letter}"),
            &format!("id={letter}"),
            &[],
        )
        .await;
    assert_eq!(one.status, 200, "{}", one.body);
    assert_eq!(s.get(waiting).await, "1001");
}

#[tokio::test]
async fn those_whose_unique_key_another_job_has_are_counted_and_stay() {
    let (database, s) = session().await;
    for input in 1..=3 {
        s.get(&format!(
            "select trax.enqueue('pay', '{input}', unique_key => 'k', max_retries => 0);
            select trax.fail(job_id, token, 'no') from trax.claim_next('w')"
        ))
        .await;
    }
    let web = Web::of(shared_server(), &database, &[]).await;
    let made = web.act("/act/requeue-many", "reason=x", &[]).await;
    assert_eq!(made.status, 200, "{}", made.body);
    let said = "<b>1, and leaves 2 of which another job has the unique key</b>";
    assert!(made.body.contains(said), "{}", made.body);
    let letter = s
        .get("select min(id) from trax.dead_letter where status = 'awaiting_intervention'")
        .await;
    let one = format!("id={letter}");
    let one = web.act(&format!("/act/requeue?{one}"), &one, &[]).await;
    assert!(one.body.contains("has the unique key"), "{}", one.body);
    assert_eq!(s.get("select count(*) from trax.work_queue").await, "1");
}
