//! Rates: how much may start in a time, by key.

mod above_burst;
mod close;
mod consume;
mod exact;
mod first;
mod name;
mod undone;
mod wait;

use harness::session::{Session, session};

/// `burst` starts at once, then one an hour, so that tests see each start.
async fn configure(s: &Session, name: &str, burst: i32) {
    let sql = format!("select trax.configure_rate('{name}', 1, '1 h', {burst})");
    s.get(&sql).await;
}

async fn enqueue_of(s: &Session, rate: &str, count: i32) -> Vec<i64> {
    let mut jobs = Vec::new();
    for _ in 0..count {
        jobs.push(s.enqueue(&format!("'t', rate => '{rate}'")).await);
    }
    jobs
}

#[tokio::test]
async fn no_more_start_than_the_burst_and_other_jobs_go_on() {
    let (_db, s) = session().await;
    configure(&s, "api", 2).await;
    let jobs = enqueue_of(&s, "api", 4).await;
    let plain = s.enqueue("'t'").await;
    assert_eq!(
        s.claim_ids("max_jobs => 10").await,
        [jobs[0], jobs[1], plain]
    );
    for _ in 0..3 {
        assert_eq!(s.claim_ids("max_jobs => 10").await, [0; 0]);
    }
    let late = s.enqueue("'t', priority => 9").await;
    assert_eq!(s.claim_ids("max_jobs => 10").await, [late]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn each_key_has_its_own_and_the_rate_without_a_key_too() {
    let (_db, s) = session().await;
    configure(&s, "api", 1).await;
    let mut first = Vec::new();
    for key in ["'a'", "'b'", "null", "'a'", "null"] {
        first.push(
            s.enqueue(&format!("'t', rate => 'api', rate_key => {key}"))
                .await,
        );
    }
    assert_eq!(s.claim_ids("max_jobs => 10").await, first[..3]);
    assert_eq!(s.claim_ids("max_jobs => 10").await, [0; 0]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_cost_uses_as_much_and_no_cheaper_job_passes_a_dear_one() {
    let (_db, s) = session().await;
    configure(&s, "api", 5).await;
    let of_cost = async |cost: i32| {
        s.enqueue(&format!("'t', rate => 'api', cost => {cost}"))
            .await
    };
    let jobs = [of_cost(3).await, of_cost(3).await, of_cost(1).await];
    assert_eq!(s.claim_ids("max_jobs => 10").await, [jobs[0]]);
    assert_eq!(
        s.claim_ids("max_jobs => 10").await,
        [0; 0],
        "two are left, and the next needs three"
    );
    s.get("select trax.configure_rate('api', 1, '1 ms', 5)")
        .await;
    let mut started = Vec::new();
    while started.len() < 2 {
        started.extend(s.claim_ids("max_jobs => 10").await);
    }
    assert_eq!(started, jobs[1..]);
}

#[tokio::test]
async fn a_job_uses_its_rate_and_that_of_its_group_or_neither() {
    let (_db, s) = session().await;
    configure(&s, "own", 3).await;
    configure(&s, "group", 2).await;
    s.get("select trax.configure_group('g', rate => 'group')")
        .await;
    let mut jobs = Vec::new();
    for _ in 0..3 {
        jobs.push(s.enqueue("'t', group_name => 'g', rate => 'own'").await);
    }
    assert_eq!(s.claim_ids("max_jobs => 10").await, jobs[..2]);
    assert_eq!(
        s.get("select granted from trax.consume_rate('own')").await,
        "t"
    );
    assert_eq!(
        s.get("select granted from trax.consume_rate('own')").await,
        "f"
    );
    // Without its rate the group starts them again, each under its own.
    s.get("select trax.configure_group('g', rate => '')").await;
    assert_eq!(s.claim_ids("max_jobs => 10").await, [0; 0]);
    s.get("select trax.configure_rate('own', 1000, '1 s')")
        .await;
    s.becomes("select count(*) from trax.claim_next()", "1")
        .await;
}

#[tokio::test]
async fn a_group_that_names_the_rate_of_its_jobs_uses_it_once() {
    let (_db, s) = session().await;
    configure(&s, "api", 4).await;
    s.get("select trax.configure_group('g', rate => 'api')")
        .await;
    s.enqueue("'t', group_name => 'g', rate => 'api', cost => 2")
        .await;
    s.enqueue("'t', group_name => 'g'").await;
    assert_eq!(s.claim_ids("max_jobs => 10").await.len(), 2);
    let left = "select available from trax.rate_state where name = 'api'";
    assert_eq!(s.get(left).await, "1");
}

#[tokio::test]
async fn a_change_counts_at_once() {
    let (db, s) = session().await;
    configure(&s, "api", 1).await;
    let jobs = enqueue_of(&s, "api", 6).await;
    let other = Session::of(&db).await;
    assert_eq!(s.claim_ids("max_jobs => 10").await, jobs[..1]);
    assert_eq!(other.claim_ids("max_jobs => 10").await, [0; 0]);
    s.get("begin; select trax.configure_rate('api', 1000, '1 s', 2)")
        .await;
    assert_eq!(
        other.claim_ids("max_jobs => 10").await,
        [0; 0],
        "not committed"
    );
    s.get("rollback").await;
    assert_eq!(other.claim_ids("max_jobs => 10").await, [0; 0]);
    s.get("select trax.configure_rate('api', 1000, '1 s', 2)")
        .await;
    other
        .becomes("select job_id from trax.claim_next()", &jobs[1].to_string())
        .await;
    s.get("select trax.configure_rate('api', 1, '1 h')").await;
    // Its key may have been free at the change.
    let mut more = s.claim_ids("max_jobs => 10").await;
    more.extend(other.claim_ids("max_jobs => 10").await);
    assert!(more.len() <= 1, "{more:?}");
}

#[tokio::test]
async fn what_can_only_be_fetched_ahead_is_not_started() {
    let (_db, s) = session().await;
    configure(&s, "api", 10).await;
    let jobs = enqueue_of(&s, "api", 3).await;
    let plain = s.enqueue("'t'").await;
    let claimed = s.claim_ids("max_jobs => 10, places => 1").await;
    assert_eq!(claimed, [jobs[0], plain]);
    assert_eq!(s.claim_ids("max_jobs => 10, places => 0").await, [0; 0]);
    assert_eq!(s.claim_ids("max_jobs => 10").await, jobs[1..]);
}

#[tokio::test]
async fn a_job_keeps_its_rate_wherever_it_goes() {
    let (_db, s) = session().await;
    s.get("select trax.configure_rate('api', 1000, '1 s')")
        .await;
    let of = "select concat_ws(' ', rate, rate_key, cost) from trax";
    let kept = "api k 2";
    let job = s
        .enqueue("'t', rate => 'api', rate_key => 'k', cost => 2, max_retries => 1")
        .await;
    assert_eq!(s.get(&format!("{of}.job where job_id = {job}")).await, kept);
    for retries in [true, false] {
        let claimed = s.claim_one("").await;
        assert_eq!(s.get(&format!("{of}.job where job_id = {job}")).await, kept);
        s.get(&format!("select trax.release({})", claimed.key()))
            .await;
        let claimed = s.claim_one("").await;
        s.get(&format!(
            "select trax.fail({}, 'no', retry_in => '0')",
            claimed.key()
        ))
        .await;
        if retries {
            assert_eq!(
                s.get(&format!("{of}.work_queue where job_id = {job}"))
                    .await,
                kept
            );
        }
    }
    assert_eq!(s.get(&format!("{of}.dead_letter")).await, kept);
    assert_eq!(s.get(&format!("{of}.run where final")).await, kept);
    let fork = s.number(&format!("select trax.fork({job})")).await;
    assert_eq!(
        s.get(&format!("{of}.job where job_id = {fork}")).await,
        kept
    );
    let again = s
        .number("select trax.requeue_dead_letter(id) from trax.dead_letter")
        .await;
    assert_eq!(
        s.get(&format!("{of}.job where job_id = {again}")).await,
        kept
    );
    s.get(&format!("select trax.cancel({again}), trax.cancel({fork})"))
        .await;
    assert_eq!(
        s.get(&format!("{of}.run where job_id = {again}")).await,
        kept
    );
    s.get("select trax.enqueue_many('m', array['1', '2']::jsonb[], rate => 'api', rate_key => 'k', cost => 2)")
        .await;
    s.get("insert into trax.new_job (task, rate, rate_key, cost) values ('n', 'api', 'k', 2)")
        .await;
    let parent = s.enqueue("'parent'").await;
    let parent = s
        .claim("tasks => '{parent}'")
        .await
        .remove(usize::from(parent < 0));
    s.get(&format!(
        "select trax.spawn({}, 'one', 'child', rate => 'api', rate_key => 'k', cost => 2)",
        parent.key()
    ))
    .await;
    let all = "select string_agg(task || ' ' || rate || ' ' || rate_key || ' ' || cost, ', ' order by job_id) from trax.work_queue";
    assert_eq!(
        s.get(all).await,
        "m api k 2, m api k 2, n api k 2, child api k 2"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_claim_that_another_one_passes_uses_nothing() {
    let (db, s) = session().await;
    configure(&s, "api", 2).await;
    let jobs = enqueue_of(&s, "api", 2).await;
    let other = Session::of(&db).await;
    s.get("begin").await;
    assert_eq!(s.claim_ids("").await, jobs[..1]);
    // Passes over the job that is being claimed.
    assert_eq!(other.claim_ids("").await, jobs[1..]);
    s.get("commit").await;
    let left = "select available from trax.rate_state";
    assert_eq!(s.get(left).await, "0");
}

#[tokio::test]
async fn a_claim_costs_the_same_beside_many_jobs_that_a_rate_holds_back() {
    use harness::limit::typical_buffers;
    const CLAIM: &str = "select * from trax.claim_next(lease => '1 h')";
    let (_db, s) = session().await;
    configure(&s, "api", 1).await;
    s.get("select count(*) from trax.enqueue_many('t', array_fill('{}'::jsonb, '{400}'))")
        .await;
    let alone = typical_buffers(&s, CLAIM).await;
    s.get("select count(*) from trax.enqueue_many('t', array_fill('{}'::jsonb, '{5000}'), priority => 5, rate => 'api')")
        .await;
    s.get("select count(trax.enqueue('t', priority => 5, rate => 'api', rate_key => (i % 300)::text)) from generate_series(1, 600) i")
        .await;
    s.get("select count(*) from trax.claim_next(max_jobs => 301)")
        .await;
    let beside = typical_buffers(&s, CLAIM).await;
    assert!(beside <= alone + 2, "{beside} buffers, and {alone} alone");
}
