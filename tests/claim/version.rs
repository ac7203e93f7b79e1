//! Versions: a claim that names versions takes jobs of these and jobs without a version, in the
//! common order, and its cost does not depend on the others.

use harness::limit::typical_buffers;
use harness::manifest::complete;
use harness::session::{Session, session};

/// Enqueues jobs of task `t`, one of each version; an empty text is none.
async fn enqueue_versions(s: &Session, versions: &[&str]) -> Vec<i64> {
    let mut jobs = Vec::new();
    for version in versions {
        let arguments = format!("'t', version => nullif('{version}', '')");
        jobs.push(s.enqueue(&arguments).await);
    }
    jobs
}

#[tokio::test]
async fn a_claim_takes_the_versions_that_it_names_and_jobs_without_one_in_the_order_of_age() {
    let (_db, s) = session().await;
    let jobs = enqueue_versions(&s, &["v1", "v2", "", "v3", "v2", "v1", ""]).await;
    let of = |places: &[usize]| -> Vec<i64> { places.iter().map(|&place| jobs[place]).collect() };
    s.get("begin").await;
    let two = s.claim_ids("max_jobs => 10, versions => '{v2}'").await;
    assert_eq!(two, of(&[1, 2, 4, 6]));
    s.get("rollback; begin").await;
    let ids = s
        .claim_ids("max_jobs => 10, versions => '{v3,v1,v9}'")
        .await;
    assert_eq!(ids, of(&[0, 2, 3, 5, 6]));
    s.get("rollback; begin").await;
    let unknown = s.claim_ids("max_jobs => 10, versions => '{v9}'").await;
    assert_eq!(unknown, of(&[2, 6]));
    s.get("rollback").await;
    let sql = "select string_agg(job_id::text, ' ')
        from trax.complete_and_claim('{}', '{}', max_jobs => 3, versions => '{v2}')";
    let [one, two, four] = [jobs[1], jobs[2], jobs[4]];
    assert_eq!(s.get(sql).await, format!("{one} {two} {four}"));
    let rest = s.claim_ids("max_jobs => 10").await;
    assert_eq!(
        rest,
        of(&[0, 3, 5, 6]),
        "a claim without versions takes all"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn versions_count_beside_tasks_groups_and_priorities() {
    let (_db, s) = session().await;
    let low = s.enqueue("'t', version => 'v1', group_name => 'g'").await;
    let high = s
        .enqueue("'t', version => 'v1', group_name => 'g', priority => 3")
        .await;
    s.enqueue("'u', version => 'v1', group_name => 'g', priority => 9")
        .await;
    s.enqueue("'t', version => 'v1'").await;
    s.enqueue("'t', version => 'v2', group_name => 'g', priority => 9")
        .await;
    let filter = "max_jobs => 10, tasks => '{t}', groups => '{g}', versions => '{v1}'";
    assert_eq!(s.claim_ids(filter).await, [high, low]);
}

#[tokio::test]
async fn a_claim_with_versions_beside_one_without_hides_nothing() {
    let (db, s) = session().await;
    let jobs = enqueue_versions(&s, &["v1", "", "v2", "v1"]).await;
    let other = Session::of(&db).await;
    // Claims that see nothing, or take the jobs before and behind the others, publish starts.
    assert_eq!(
        s.claim_ids("tasks => '{no}', versions => '{v1}'").await,
        [0; 0]
    );
    s.get("begin").await;
    let of_s = s.claim_ids("max_jobs => 10, versions => '{v2}'").await;
    assert_eq!(of_s, [jobs[1], jobs[2]]);
    other.get("set lock_timeout = '5 s'").await;
    assert_eq!(other.claim_ids("").await, [jobs[0]]);
    assert_eq!(
        other.claim_ids("max_jobs => 10, versions => '{v2}'").await,
        [0; 0]
    );
    s.get("rollback").await;
    assert_eq!(
        other.claim_ids("max_jobs => 10").await,
        [jobs[1], jobs[2], jobs[3]]
    );
    // A session that found nothing of its version finds what comes later.
    assert_eq!(s.claim_ids("versions => '{v3}'").await, [0; 0]);
    let late = enqueue_versions(&other, &["v1", "v3"]).await;
    assert_eq!(s.claim_ids("versions => '{v3}'").await, [late[1]]);
    assert_eq!(s.claim_ids("").await, [late[0]]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_worker_that_waits_is_woken_by_a_job_of_its_version() {
    let (db, s) = session().await;
    enqueue_versions(&s, &["old"]).await;
    let worker = Session::of(&db).await;
    for _ in 0..2 {
        assert_eq!(worker.claim_ids("versions => '{new}'").await, [0; 0]);
        worker.get("call trax.wait_for_work('1 ms')").await;
    }
    assert_eq!(worker.claim_ids("versions => '{new}'").await, [0; 0]);
    let pid = worker.pid();
    let waiting = worker.spawn("call trax.wait_for_work('1 min')");
    let asleep = format!(
        "select state = 'active' and wait_event is not null and query like 'call trax.wait_for_work%'
         from pg_stat_activity where pid = {pid}"
    );
    s.becomes(&asleep, "t").await;
    let new = enqueue_versions(&s, &["new"]).await;
    let (worker, _) = waiting.await.expect("it does not panic");
    assert_eq!(worker.claim_ids("versions => '{new}'").await, new);
}

#[tokio::test]
async fn a_claim_costs_the_same_beside_many_jobs_of_a_version_that_it_does_not_take() {
    const CLAIM: &str = "select * from trax.claim_next(lease => '1 h', versions => '{new}')";
    let (db, s) = session().await;
    let cost = async || {
        s.get("truncate trax.lease").await;
        s.get("select count(trax.enqueue('t', version => 'new')) from generate_series(1, 40)")
            .await;
        s.get("vacuum analyze trax.work_queue").await;
        typical_buffers(&Session::of(&db).await, CLAIM).await
    };
    let before = cost().await;
    // Older, and of a higher priority.
    let old = harness::many(30_000);
    s.get(&format!("select count(trax.enqueue('t', version => 'old', priority => n % 3)) from generate_series(1, {old}) n"))
        .await;
    let after = cost().await;
    println!("{before} buffers before, {after} after");
    // The trees are deeper.
    assert!(after <= before + 8, "{before} before, {after} after");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_key_and_a_limit_are_shared_by_all_versions_and_hold_nobody_up() {
    let (_db, s) = session().await;
    let keyed = async |version: &str| {
        s.enqueue(&format!(
            "'t', version => nullif('{version}', ''), concurrency_key => 'k'"
        ))
        .await
    };
    let (old, new, any) = (keyed("old").await, keyed("new").await, keyed("").await);
    let older = keyed("old").await;
    // The old one is the first of the key, but nobody takes it.
    let job = s.claim_one("max_jobs => 10, versions => '{new}'").await;
    assert_eq!(job.id, new);
    assert_eq!(s.claim_ids("max_jobs => 10").await, [0; 0]);
    complete(&s, &job).await;
    let job = s.claim_one("max_jobs => 10, versions => '{new}'").await;
    assert_eq!(job.id, any, "it is not behind the old ones");
    complete(&s, &job).await;
    for wanted in [old, older] {
        let job = s.claim_one("max_jobs => 10").await;
        assert_eq!(job.id, wanted);
        complete(&s, &job).await;
    }
    s.get("select trax.configure_group('default', max_active_jobs => 1)")
        .await;
    let jobs = enqueue_versions(&s, &["old", "new"]).await;
    let job = s.claim_one("max_jobs => 10, versions => '{new}'").await;
    assert_eq!(job.id, jobs[1]);
    assert_eq!(s.claim_ids("max_jobs => 10").await, [0; 0]);
    complete(&s, &job).await;
    assert_eq!(s.claim_ids("max_jobs => 10").await, [jobs[0]]);
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_jobs_of_one_statement_may_have_several_versions() {
    let (_db, s) = session().await;
    s.get(
        "insert into trax.new_job (task, version)
         select 't', case when n % 3 > 0 then 'v' || n % 3 end from generate_series(1, 9) n",
    )
    .await;
    s.get("select trax.enqueue_many('t', '{1, 2}', version => 'v2')")
        .await;
    let counts = "select string_agg(concat_ws(':', version, count), ' ' order by version)
        from (select version, count(*) from trax.work_queue group by version) c";
    assert_eq!(s.get(counts).await, "v1:3 v2:5 3");
    s.assert_healthy().await;
    assert_eq!(
        s.claim_ids("max_jobs => 10, versions => '{v1}'")
            .await
            .len(),
        6
    );
}

#[tokio::test]
async fn a_version_of_no_name_and_a_list_without_one_are_refused() {
    let (_db, s) = session().await;
    for (call, code, named) in [
        (
            "select trax.enqueue('t', version => '')",
            "22023",
            "version",
        ),
        (
            "select trax.enqueue('t', version => 'v1 ')",
            "22023",
            "version",
        ),
        (
            "select trax.enqueue('t', version => repeat('v', 256))",
            "54000",
            "version",
        ),
        (
            "insert into trax.new_job (task, version) values ('t', ' ')",
            "22023",
            "version",
        ),
        (
            "select trax.claim_next(versions => '{}')",
            "22023",
            "versions",
        ),
        (
            "select trax.claim_next(versions => '{v1,\"\"}')",
            "22023",
            "versions",
        ),
        (
            "select trax.claim_next(versions => array[null])",
            "22004",
            "versions",
        ),
    ] {
        let refusal = s.refusal(call).await;
        assert_eq!(refusal.code, code, "{call}");
        assert!(refusal.message.contains(named), "{call}: {refusal}");
    }
}

#[tokio::test]
async fn a_role_with_few_tasks_may_name_versions_of_these() {
    let (db, s) = session().await;
    let role = format!("{}_w", db.name());
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', 'worker', tasks => '{{mail}}')"
    ))
    .await;
    let worker = Session::as_role(&db, &role).await;
    enqueue_versions(&s, &["v1"]).await;
    let mail = worker.enqueue("'mail', version => 'v1'").await;
    worker.enqueue("'mail', version => 'v2'").await;
    let claim = "max_jobs => 10, versions => '{v1}'";
    assert_eq!(worker.claim_ids(claim).await, [mail]);
}

#[tokio::test]
async fn a_version_that_was_changed_by_hand_is_found_by_check() {
    let (_db, s) = session().await;
    let jobs = enqueue_versions(&s, &["v1", "v1"]).await;
    s.get(&format!(
        "update trax.work_queue set version = 'v2' where job_id = {}",
        jobs[1]
    ))
    .await;
    let found = s.get("select rule, detail from trax.check()").await;
    let wrong = format!("a waiting job is in its lane|job {} is in lane", jobs[1]);
    assert!(found.starts_with(&wrong), "{found}");
    s.get("update trax.work_queue set lane_id = trax.lane_of(group_name, task, run_as, version)")
        .await;
    s.assert_healthy().await;
    assert_eq!(s.claim_ids("versions => '{v2}'").await, [jobs[1]]);
}
