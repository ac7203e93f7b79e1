//! Closures: nothing of a rate starts before a time.

use super::{configure, enqueue_of};
use harness::session::{Session, session};

#[tokio::test]
async fn nothing_of_a_closed_key_or_rate_starts() {
    let (db, s) = session().await;
    configure(&s, "api", 10).await;
    let plain = enqueue_of(&s, "api", 1).await[0];
    let of_key = s.enqueue("'t', rate => 'api', rate_key => 'k'").await;
    s.get("select trax.close_rate('api', 'k', now() + interval '1 h')")
        .await;
    assert_eq!(s.claim_ids("max_jobs => 10").await, [plain]);
    let consume = "select granted, retry_after > '59 min' from trax.consume_rate('api', 'k')";
    assert_eq!(s.get(consume).await, "f|t");
    let next = enqueue_of(&s, "api", 1).await[0];
    s.get("select trax.close_rate('api', until => 'infinity')")
        .await;
    let other = Session::of(&db).await;
    assert_eq!(other.claim_ids("max_jobs => 10").await, [0; 0]);
    let closed = "select granted, retry_after is null from trax.consume_rate('api')";
    assert_eq!(s.get(closed).await, "f|t");
    // An earlier time shortens nothing; one that has passed opens.
    s.get("select trax.close_rate('api', until => now() + interval '1 min')")
        .await;
    assert_eq!(other.claim_ids("max_jobs => 10").await, [0; 0]);
    s.get("select trax.close_rate('api', until => now())").await;
    assert_eq!(other.claim_ids("max_jobs => 10").await, [next]);
    s.get("select trax.close_rate('api', 'k', now())").await;
    assert_eq!(other.claim_ids("max_jobs => 10").await, [of_key]);
}

#[tokio::test]
async fn a_handler_closes_the_rate_of_its_job_with_its_retry() {
    let (_db, s) = session().await;
    configure(&s, "api", 10).await;
    configure(&s, "of group", 10).await;
    s.get("select trax.configure_group('g', rate => 'of group')")
        .await;
    let closed = "select string_agg(concat_ws(' ', rate, nullif(key, '')), ', ' order by rate)
        from trax.rate_closure where closed_until between now() + interval '59 min' and now() + interval '1 h'";
    s.enqueue("'t', rate => 'api', rate_key => 'k', group_name => 'g'")
        .await;
    s.enqueue("'t', rate => 'api', rate_key => 'k'").await;
    let job = s.claim_one("").await;
    let fail = |arguments: &str| {
        format!(
            "select trax.fail({}, 'no', close_rate => true{arguments})",
            job.key()
        )
    };
    let refused = s.refusal(&fail("")).await;
    assert_eq!(refused.message, "argument \"close_rate\" needs retry_in");
    assert_eq!(s.get(&fail(", retry_in => '1 h'")).await, "retrying");
    assert_eq!(s.get(closed).await, "api k");
    assert_eq!(s.claim_ids("max_jobs => 10").await, [0; 0]);
    let of_group = s.enqueue("'u', group_name => 'g', max_retries => 0").await;
    let job = s.claim_one("").await;
    assert_eq!(job.id, of_group);
    let fail = format!(
        "select trax.fail({}, 'no', close_rate => true, retry_in => '1 h')",
        job.key()
    );
    assert_eq!(s.get(&fail).await, "dead");
    assert_eq!(s.get(closed).await, "api k, of group");
    assert_eq!(s.get(&fail).await, "lost", "and nothing is closed");
    s.enqueue("'v'").await;
    let job = s.claim_one("").await;
    let fail = format!(
        "select trax.fail({}, 'no', close_rate => true, retry_in => '1 h')",
        job.key()
    );
    let refused = s.refusal(&fail).await;
    assert_eq!(
        refused.message,
        format!("job {} has no rate to close", job.id)
    );
}

#[tokio::test]
async fn a_closure_that_is_over_is_removed() {
    let (_db, s) = session().await;
    configure(&s, "api", 1).await;
    s.get("insert into trax.rate_closure values ('api', 'a', now() - interval '1 s'), ('api', 'b', 'infinity')").await;
    s.get("select trax.tick()").await;
    assert_eq!(
        s.get("select string_agg(key, ' ') from trax.rate_closure")
            .await,
        "b"
    );
}
