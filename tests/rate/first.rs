//! The first job of a key, if it costs more than may start: the others wait for it, until another
//! job is the first one.

use super::configure;
use harness::limit::typical_buffers;
use harness::session::{Session, session};
use harness::{PATIENCE, options};

/// Queues a job that costs five and one that costs one, of a key of which one may start. Returns
/// both, and the options that name the key.
async fn behind_a_dear_job(s: &Session, key: &str) -> (i64, i64, String) {
    let of_key = format!("rate => 'api', rate_key => '{key}', priority => 5");
    let consume = format!("select granted from trax.consume_rate('api', '{key}', 4)");
    assert_eq!(s.get(&consume).await, "t");
    let dear = s
        .enqueue(&format!("'t', {of_key}, group_name => '{key}', cost => 5"))
        .await;
    let cheap = s.enqueue(&format!("'t', {of_key}")).await;
    (dear, cheap, of_key)
}

#[tokio::test]
async fn a_cheap_job_starts_as_soon_as_it_is_the_first() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    configure(&s, "api", 5).await;
    let ways = [
        "select trax.cancel({dear})",
        "select trax.cancel_group('{key}')",
        "select trax.change_job({dear}, run_at => now() + interval '1 h')",
        "select trax.change_job({dear}, priority => 4)",
        "select trax.change_job({cheap}, priority => 6)",
        "select trax.configure_group('{key}', enabled => false)",
        "select trax.limit_queue_time({dear}, '1 us'); select * from trax.tick()",
        "select trax.configure_group('{key}', max_waiting => 1, overflow => 'drop_oldest');
         select trax.enqueue('t', group_name => '{key}', run_at => '2100-01-01')",
        "update trax.work_queue set run_at = '2100-01-01', waits_for = 'time' where job_id = {dear}",
        "delete from trax.work_queue where job_id = {dear}",
    ];
    for (number, way) in ways.iter().enumerate() {
        let key = format!("k{number}");
        let (dear, cheap, _) = behind_a_dear_job(&s, &key).await;
        for session in [&s, &other, &s] {
            assert_eq!(session.claim_ids("").await, [0; 0], "{way}");
        }
        let sql = way
            .replace("{dear}", &dear.to_string())
            .replace("{cheap}", &cheap.to_string())
            .replace("{key}", &key);
        s.get(&sql).await;
        assert_eq!(other.claim_ids("").await, [cheap], "{way}");
        assert_eq!(s.claim_ids("").await, [0; 0], "{way}");
    }
}

#[tokio::test]
async fn a_more_urgent_job_passes_a_dear_one() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    configure(&s, "api", 5).await;
    let ways = [
        "select trax.enqueue('t', {of_key}, priority => 6)",
        "select trax.enqueue('another task', {of_key}, priority => 6)",
        "insert into trax.new_job (task, rate, rate_key, priority) values ('t', 'api', '{key}', 6)",
        "select trax.run_now(trax.enqueue('t', {of_key}, priority => 6, run_at => '2100-01-01'))",
        "select trax.enqueue('t', {of_key}, priority => 6, run_at => now() + interval '1 us'); select * from trax.tick()",
    ];
    for (number, way) in ways.iter().enumerate() {
        let key = format!("k{number}");
        let (dear, cheap, of_key) = behind_a_dear_job(&s, &key).await;
        for session in [&s, &other, &s] {
            assert_eq!(session.claim_ids("").await, [0; 0], "{way}");
        }
        let of_key = of_key.replace(", priority => 5", "");
        s.get(&way.replace("{of_key}", &of_key).replace("{key}", &key))
            .await;
        let urgent = s.number("select max(job_id) from trax.work_queue").await;
        assert!(urgent > dear.max(cheap), "{way}");
        assert_eq!(other.claim_ids("").await, [urgent], "{way}");
    }
}

#[tokio::test]
async fn jobs_of_a_transaction_count_for_its_own_claims_and_after_a_rollback_no_more() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    configure(&s, "api", 5).await;
    s.get("select trax.consume_rate('api', 'k', 4)").await;
    let cheap = s.enqueue("'t', rate => 'api', rate_key => 'k'").await;
    s.get("begin").await;
    s.enqueue("'t', rate => 'api', rate_key => 'k', cost => 2, priority => 6")
        .await;
    assert_eq!(s.claim_ids("").await, [0; 0], "two are needed");
    s.get("rollback").await;
    assert_eq!(other.claim_ids("").await, [cheap]);
}

#[tokio::test]
async fn a_session_that_waits_is_woken_when_a_dear_job_leaves() {
    let (db, s) = session().await;
    configure(&s, "api", 5).await;
    let (dear, cheap, _) = behind_a_dear_job(&s, "k").await;
    let worker = Session::of(&db).await;
    let pid = worker.pid();
    // A wait may also end because of jobs that were queued before it.
    let worker = tokio::spawn(async move {
        loop {
            let ids = worker.claim_ids("").await;
            if !ids.is_empty() {
                return ids;
            }
            worker.get("call trax.wait_for_work('1 h')").await;
        }
    });
    let asleep = format!(
        "select query like 'call trax.wait_for_work%' and state = 'active' and wait_event is not null
         from pg_stat_activity where pid = {pid}"
    );
    s.becomes(&asleep, "t").await;
    s.get(&format!("select trax.cancel({dear})")).await;
    let claimed = tokio::time::timeout(PATIENCE, worker).await;
    let claimed = claimed.expect("it is woken").expect("it does not panic");
    assert_eq!(claimed, [cheap]);
}

#[tokio::test]
async fn no_cheaper_job_of_another_task_passes_a_dear_one() {
    // Jobs in another database of the server may open a gate, and the claim of another task reads
    // no more than its own lane.
    let options = options().setting("trax.databases", "no_database_has_this_name");
    let server = options.start().expect("a server starts");
    let db = server.database("alone").await;
    let db = db.expect("a database with the extension is made");
    let s = Session::of(&db).await;
    configure(&s, "api", 5).await;
    behind_a_dear_job(&s, "k").await;
    s.enqueue("'another task', rate => 'api', rate_key => 'k'")
        .await;
    for tasks in ["null", "'{t}'", "'{another task}'"] {
        let ids = s.claim_ids(&format!("tasks => {tasks}")).await;
        assert_eq!(ids, [0; 0], "{tasks}");
    }
}

#[tokio::test]
async fn a_claim_does_not_read_the_keys_whose_first_jobs_are_dear() {
    const CLAIM: &str = "select * from trax.claim_next(lease => '1 h')";
    let (_db, s) = session().await;
    configure(&s, "api", 5).await;
    s.get("select count(*) from trax.enqueue_many('t', array_fill('{}'::jsonb, '{400}'))")
        .await;
    let alone = typical_buffers(&s, CLAIM).await;
    s.get("select count(trax.enqueue('t', priority => 5, rate => 'api', rate_key => i::text, cost => 5)),
        count((select granted from trax.consume_rate('api', i::text, 1))) from generate_series(1, 300) i")
        .await;
    s.get("select count(*) from trax.claim_next(max_jobs => 50)")
        .await;
    let beside = typical_buffers(&s, CLAIM).await;
    assert!(beside <= alone + 2, "{beside} buffers, and {alone} alone");
}
