//! Transactions that change or use rates and are rolled back: nothing of them stays.

use super::{configure, enqueue_of};
use harness::session::{Session, session};

#[tokio::test]
async fn what_is_rolled_back_holds_nothing_back() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get("select trax.configure_rate('api', 1000, '1 s')")
        .await;
    let claim = "select from trax.claim_next(max_jobs => 9)";
    for (number, way) in [
        "begin; select trax.close_rate('api', until => 'infinity'); {claim}; rollback",
        "begin; select trax.close_rate('api', '{key}', 'infinity'); {claim}; rollback",
        "begin; select trax.configure_rate('api', 1, '10 days'); {claim}; {claim}; rollback",
        "begin; savepoint a; select trax.close_rate('api', until => 'infinity'); {claim}; rollback to savepoint a; commit",
        "select trax.enqueue('t', rate => 'api', rate_key => '{key}');
         begin; select trax.fail(job_id, token, 'x', retry_in => '1 h', close_rate => true) from trax.claim_next(); {claim}; rollback;
         select trax.cancel(job_id) from trax.lease",
        // Takes the first job, and finds no room for the second.
        "begin; select from trax.claim_next(max_jobs => 1); select trax.consume_rate('api', '{key}', 1000); {claim}; rollback",
    ]
    .iter()
    .enumerate()
    {
        let key = format!("k{number}");
        let of_key = format!("'t', rate => 'api', rate_key => '{key}', priority => 9");
        let cheap = s.enqueue(&of_key).await;
        let dear = s.enqueue(&format!("{of_key}, cost => 1000")).await;
        let sql = way.replace("{claim}", claim).replace("{key}", &key);
        s.get(&sql).await;
        let claimed = "select job_id from trax.claim_next()";
        other.becomes(claimed, &cheap.to_string()).await;
        other.becomes(claimed, &dear.to_string()).await;
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_rolled_back_change_gives_no_start_twice() {
    let (_db, s) = session().await;
    configure(&s, "api", 5).await;
    let jobs = enqueue_of(&s, "api", 20).await;
    assert_eq!(s.claim_ids("max_jobs => 20").await, jobs[..5]);
    s.get("begin; select trax.configure_rate('api', 1000000, '1 s', 1); select * from trax.consume_rate('api'); rollback")
        .await;
    assert_eq!(s.claim_ids("max_jobs => 20").await, [0; 0]);
    s.assert_healthy().await;
}

/// The snapshot of the claim is older than the urgent job.
#[tokio::test]
async fn a_claim_that_does_not_see_the_first_job_keeps_it_back_for_a_second() {
    let (db, s) = session().await;
    let old = Session::of(&db).await;
    configure(&s, "api", 5).await;
    s.get("select granted from trax.consume_rate('api', cost => 4)")
        .await;
    s.enqueue("'t', rate => 'api', cost => 5").await;
    old.get("begin isolation level repeatable read; select 1")
        .await;
    let urgent = s.enqueue("'t', rate => 'api', priority => 5").await;
    assert_eq!(old.claim_ids("").await, [0; 0]);
    s.becomes("select job_id from trax.claim_next()", &urgent.to_string())
        .await;
    old.get("rollback").await;
}

#[tokio::test]
async fn a_job_is_queued_again_only_under_a_rate_that_it_can_have() {
    let (db, s) = session().await;
    s.get("select trax.configure_rate('gone', 1, '1 s'); select trax.configure_rate('low', 20, '1 h')")
        .await;
    for options in ["rate => 'gone'", "rate => 'low', cost => 20"] {
        let job = s
            .enqueue(&format!("'t', {options}, max_retries => 0"))
            .await;
        let claimed = s.claim_one("").await;
        assert_eq!(claimed.id, job);
        s.get(&format!("select trax.fail({}, 'no')", claimed.key()))
            .await;
    }
    s.get(
        "select trax.drop_rate('gone'); select trax.configure_rate('low', 20, '1 h', burst => 8)",
    )
    .await;
    for (letter, said) in [
        (1, "rate \"gone\" does not exist"),
        (2, "cost 20 is more than rate \"low\" ever has"),
    ] {
        for call in ["requeue_dead_letter(id)", "fork(job_id)"] {
            let sql = format!("select trax.{call} from trax.dead_letter where id = {letter}");
            assert_eq!(s.refusal(&sql).await.message, said, "{call}");
        }
    }
    let mut psql = harness::shared_server().command("psql");
    psql.args(["-XAtc", "select trax.requeue_dead_letters()", db.name()]);
    let output = psql.output().expect("psql runs");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "0");
    let warned = String::from_utf8_lossy(&output.stderr);
    let words = "WARNING:  2 dead letters were not requeued because their rate does not exist";
    assert!(warned.contains(words), "{warned}");
    s.assert_healthy().await;
}

/// A rate cannot be dropped while a transaction closes it: its closure would be that of the next
/// rate of the name.
#[tokio::test]
async fn a_closure_outlives_no_rate() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    configure(&s, "api", 1).await;
    other
        .get("begin; select trax.close_rate('api', until => 'infinity')")
        .await;
    let pid = s.pid();
    let dropping = s.spawn("select trax.drop_rate('api')");
    other.sees_waiting(pid).await;
    other.get("commit").await;
    let (s, dropped) = dropping.await.expect("the session lives");
    dropped.expect("the rate is dropped");
    assert_eq!(s.number("select count(*) from trax.rate_closure").await, 0);
}

/// In the original, jobs have started under the rate.
#[tokio::test]
async fn a_copy_begins_as_if_all_were_used_up() {
    let (db, s) = session().await;
    configure(&s, "api", 5).await;
    enqueue_of(&s, "api", 20).await;
    s.get("update trax.instance set database_oid = 1").await;
    s.get("select trax.adopt()").await;
    assert_eq!(s.claim_ids("max_jobs => 20").await, [0; 0]);
    let again = Session::of(&db).await;
    assert_eq!(
        again.get("select available from trax.rate_state").await,
        "0"
    );
}
