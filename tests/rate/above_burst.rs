//! Jobs that cost more than the burst of their rate, which was lowered: they do not start.

use super::enqueue_of;
use harness::limit::typical_buffers;
use harness::process::run;
use harness::session::{Session, session};
use harness::shared_server;

#[tokio::test]
async fn a_job_above_the_burst_does_not_start_and_says_so_and_others_pass_it() {
    let (_db, s) = session().await;
    s.get("select trax.configure_rate('api', 20, '1 h')").await;
    let dear = s.enqueue("'t', rate => 'api', cost => 20").await;
    let cheap = enqueue_of(&s, "api", 1).await[0];
    s.get("select trax.configure_rate('api', 20, '1 h', burst => 8)")
        .await;
    assert_eq!(s.claim_ids("max_jobs => 10").await, [cheap]);
    assert_eq!(s.claim_ids("max_jobs => 10").await, [0; 0]);
    let why = format!(
        "select detail || ' ' || action from trax.explain_job({dear}) where reason = 'rate'"
    );
    let free_at = "select free_at from trax.read_rate('api', cost => 20)";
    assert_eq!(s.get(free_at).await, "infinity");
    let raise = "select trax.configure_rate('api', 20, '01:00:00', burst => 20)";
    assert_eq!(
        s.get(&why).await,
        format!(
            "Job {dear} needs 20 of rate \"api\", of which at most 8 may start at once, its burst: it does not start. \
             {raise}; or: select trax.cancel({dear})"
        )
    );
    let found = s
        .get("select severity || ' ' || detail || ' ' || fix from trax.diagnose() where cause = 'cost_above_burst'")
        .await;
    assert_eq!(
        found,
        format!(
            "warning 1 jobs that wait cost up to 20 of rate \"api\", more than its burst of 8, and do not start. \
             {raise}; or cancel them: select trax.cancel(job_id) from trax.work_queue where rate = 'api' and cost > 8"
        )
    );
    s.get(raise).await;
    s.get("select trax.configure_rate('api', 1000000, '1 s', 20)")
        .await;
    s.becomes("select job_id from trax.claim_next()", &dear.to_string())
        .await;
}

#[tokio::test]
async fn who_lowers_a_burst_below_a_waiting_job_gets_a_notice() {
    let (db, s) = session().await;
    s.get("select trax.configure_rate('api', 20, '1 h')").await;
    s.enqueue("'t', rate => 'api', cost => 9").await;
    s.enqueue("'t', rate => 'api', cost => 20").await;
    let said = |burst: i32| {
        let sql = format!("select trax.configure_rate('api', 20, '1 h', burst => {burst})");
        let mut psql = shared_server().command("psql");
        let (code, _, errors) = run(psql.args(["-Xqd", db.name(), "-c", &sql]));
        assert_eq!(code, Some(0), "{errors}");
        errors
    };
    assert_eq!(said(20), "");
    let notice = said(8);
    let words =
        "NOTICE:  2 jobs that wait cost up to 20 of rate \"api\", more than its burst of 8,";
    assert!(notice.starts_with(words), "{notice}");
    assert!(said(9).starts_with("NOTICE:  1 jobs that wait cost up to 20"));
    s.get("select count(*) from trax.enqueue_many('t', array_fill('{}'::jsonb, '{1000}'), rate => 'api', cost => 9)")
        .await;
    let many = "NOTICE:  at least 1000 jobs that wait cost up to 20";
    assert!(said(8).starts_with(many));
}

#[tokio::test]
async fn a_change_of_a_rate_reads_none_of_the_jobs_below_its_burst() {
    let (db, s) = session().await;
    let change = "select trax.configure_rate('api', 20, '1 h', burst => 8)";
    s.get(change).await;
    let before = typical_buffers(&Session::of(&db).await, change).await;
    s.get("select count(*) from trax.enqueue_many('t', array_fill('{}'::jsonb, '{10000}'), rate => 'api', cost => 8)")
        .await;
    s.get("vacuum analyze trax.work_queue").await;
    let after = typical_buffers(&Session::of(&db).await, change).await;
    assert!(after < before + 12, "{before} and {after} buffers");
}

#[tokio::test]
async fn a_claim_reads_only_so_many_jobs_above_the_burst() {
    let (_db, s) = session().await;
    s.get("select trax.configure_rate('api', 20, '1 h')").await;
    s.get("select count(*) from trax.enqueue_many('t', array_fill('{}'::jsonb, '{101}'), rate => 'api', cost => 20)")
        .await;
    let cheap = enqueue_of(&s, "api", 1).await[0];
    s.get("select trax.configure_rate('api', 20, '1 h', burst => 8)")
        .await;
    assert_eq!(s.claim_ids("").await, [0; 0]);
    s.get("select trax.cancel(min(job_id)) from trax.work_queue")
        .await;
    assert_eq!(s.claim_ids("").await, [cheap]);
}

/// The bound is that of a key, and holds for a moment.
#[tokio::test]
async fn jobs_above_the_burst_of_one_rate_hold_no_other_back() {
    let (_db, s) = session().await;
    s.get("select trax.configure_rate('api', 20, '1 h'), trax.configure_rate('disk', 20, '1 h')")
        .await;
    s.get("select count(*) from trax.enqueue_many('t', array_fill('{}'::jsonb, '{150}'), rate => 'api', cost => 20)")
        .await;
    s.enqueue("'t', rate => 'disk', cost => 20").await;
    let cheap = enqueue_of(&s, "disk", 1).await[0];
    s.get("select trax.configure_rate('api', 20, '1 h', burst => 8), trax.configure_rate('disk', 20, '1 h', burst => 8)")
        .await;
    assert_eq!(s.claim_ids("").await, [cheap]);
}

#[tokio::test]
async fn a_start_uses_as_much_as_it_costs() {
    let (_db, s) = session().await;
    s.get("select trax.configure_rate('api', 20, '1 h')").await;
    let jobs = enqueue_of(&s, "api", 1).await;
    let dear = s.enqueue("'t', rate => 'api', cost => 19").await;
    assert_eq!(s.claim_ids("max_jobs => 10").await, [jobs[0], dear]);
    let left = "select available from trax.rate_state";
    assert_eq!(s.get(left).await, "0");
}
