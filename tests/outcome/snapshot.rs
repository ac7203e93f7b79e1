//! Outcomes in a transaction that cannot see the lease or cannot write: none is reported as lost.

use harness::session::{Session, session};
use harness::standby::Standby;

/// Every call with a job and token.
const CALLS: [&str; 8] = [
    "trax.complete($)",
    "count(*) from trax.complete_many(array[$1], array[$2::uuid])",
    "count(*) from trax.complete_and_claim(array[$1], array[$2::uuid])",
    "count(*) from trax.heartbeat(array[$1], array[$2::uuid])",
    "trax.fail($, 'no')",
    "trax.release($)",
    "trax.cancel_own($)",
    "trax.report_progress($, '1')",
];

fn call(call: &str, id: i64, key: &str) -> String {
    let token = key.split_once(',').expect("a job and its token").1;
    let call = call.replace("$1", &id.to_string()).replace("$2", token);
    format!("select {}", call.replace('$', key))
}

#[tokio::test]
async fn a_lease_that_is_newer_than_the_snapshot_is_not_lost() {
    let (db, s) = session().await;
    let old = Session::of(&db).await;
    for isolation in ["repeatable read", "serializable"] {
        s.enqueue("'a'").await;
        let begin = format!("begin isolation level {isolation}; select count(*) from trax.run");
        old.get(&begin).await;
        let job = s.claim_one("lease => '1 h'").await;
        let later = s.enqueue("'b', run_at => now() + interval '1 h'").await;
        let calls = CALLS.map(|text| call(text, job.id, &job.key()));
        let others = [
            format!("select trax.acknowledge_cancel({})", job.key()),
            format!("select trax.cancel({later})"),
            format!("select trax.run_now({later})"),
        ];
        for call in calls.iter().chain(&others) {
            old.get("savepoint before").await;
            let refusal = old.refusal(call).await;
            assert_eq!(refusal.code, "40001", "{isolation}: {call}: {refusal}");
            old.get("rollback to before").await;
        }
        // A lost lease is lost in every snapshot.
        let lost = "select trax.complete(1, gen_random_uuid())";
        assert_eq!(old.get(lost).await, "f");
        old.get("rollback").await;
        assert_eq!(old.get(&calls[0]).await, "t");
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn where_nothing_can_be_written_an_outcome_is_refused() {
    let server = harness::options().fast().start().expect("a server starts");
    let database = server.database("app").await.expect("a database is made");
    let s = Session::of(&database).await;
    let waiting = s.enqueue("'a'").await;
    let standby = Standby::of(&server, &[]).await;
    let there = standby.connect("app").await;
    let why = format!("select string_agg(reason, ' ') from trax.explain_job({waiting})");
    let why: String = there.query_one(&why, &[]).await.expect(&why).get(0);
    assert_eq!(why, "standby no_worker");
    let paused = "select pg_wal_replay_pause()";
    there.batch_execute(paused).await.expect("a standby pauses");
    let job = s.claim_one("lease => '1 h'").await;
    let read_only = Session::of(&database).await;
    read_only
        .get("set default_transaction_read_only = on")
        .await;
    let calls = CALLS.map(|text| call(text, job.id, &job.key()));
    let others = [
        "select trax.enqueue('b')",
        "select count(*) from trax.claim_next()",
        "select count(*) from trax.acquire_token('t', 'h', 1, '1 min')",
    ]
    .map(str::to_owned);
    for call in calls.iter().chain(&others) {
        let refusal = read_only.refusal(call).await;
        assert_eq!(refusal.code, "25006", "{call}: {refusal}");
        let refusal = there
            .batch_execute(call)
            .await
            .expect_err("it cannot write");
        let code = refusal.code().map(|code| code.code().to_owned());
        assert_eq!(code.as_deref(), Some("25006"), "{call}: {refusal}");
    }
    assert_eq!(s.get(&calls[0]).await, "t");
}
