//! The cycle: its lock, its steps, cleanup, pause and adoption, and the rules of `trax.check()`.

mod check;
mod open;
mod partition;
mod steps;

use check::ORPHAN_SIGNAL;
use harness::session::{Session, session};
use std::collections::BTreeSet;

#[tokio::test]
async fn a_cycle_reports_its_steps_in_order() {
    let (_db, s) = session().await;
    let steps = s
        .get("select step from trax.tick() with ordinality t (step, affected, n) order by n")
        .await;
    let wanted = "cancel_timed_out\nreap_expired_leases\nreap_dead_letters\nexpire_queued\nqueue_due\npromote_delayed";
    assert_eq!(
        steps, wanted,
        "cleaning up is told when there was something"
    );
    assert_eq!(
        s.get("select count(*) filter (where affected <> 0) from trax.tick()")
            .await,
        "0"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn who_does_not_get_the_lock_returns_at_once_with_no_rows() {
    let (db, a) = session().await;
    let b = Session::of(&db).await;
    b.get("set lock_timeout = '30 s'").await;
    a.get("select trax.schedule('m', 'a', every => '1 h')")
        .await;
    a.get("begin; select * from trax.tick()").await;
    let before = b.everything().await;
    assert_eq!(b.get("select * from trax.tick()").await, "");
    assert_eq!(b.everything().await, before);
    a.get("rollback").await;
    assert_eq!(b.tick("queue_due").await, 1);
}

#[tokio::test]
async fn cycles_of_two_databases_do_not_meet() {
    let (_a, a) = session().await;
    let (_b, b) = session().await;
    a.get("begin; select * from trax.tick()").await;
    assert_ne!(b.get("select * from trax.tick()").await, "");
    a.get("rollback").await;
}

#[tokio::test]
async fn a_cycle_that_rolls_back_leaves_no_trace() {
    let (_db, s) = session().await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select trax.enqueue('b'); select trax.enqueue('c', run_at => now() + interval '1 h')").await;
    s.claim_one("").await;
    s.get(
        "update trax.lease set lease_expires_at = now() - interval '1 s', reap_at = now() - interval '1 s';
         update trax.work_queue set run_at = now() - interval '1 s'",
    )
    .await;
    let before = s.everything().await;
    s.get("begin; select * from trax.tick(); rollback").await;
    assert_eq!(s.everything().await, before);
    let acted = "select string_agg(step, ',') from trax.tick() where affected > 0";
    assert_eq!(
        s.get(acted).await,
        "reap_expired_leases,queue_due,promote_delayed"
    );
    s.assert_healthy().await;
}

/// Ticks whenever `go` names a new round; sends the number of queued jobs.
async fn tick_rounds(
    s: Session,
    mut go: tokio::sync::watch::Receiver<u32>,
    done: tokio::sync::mpsc::Sender<i64>,
) {
    while go.changed().await.is_ok() {
        let queued = s.number("select coalesce(max(affected) filter (where step = 'queue_due'), 0) from trax.tick()").await;
        if done.send(queued).await.is_err() {
            return;
        }
    }
}

/// Due times lie one second apart, so that each is distinct.
const NEXT_ROUND: &str =
    "update trax.manifest_state set next_run_at = base.at + {round} * interval '1 s',
        next_scheduled_for = base.at + {round} * interval '1 s',
        parked_on = null, parked_since = null, parked_due_at = null
    from (select '2020-01-01Z'::timestamptz as at) base";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_sessions_that_tick_together_fire_no_manifest_twice() {
    const ROUNDS: u32 = 1000;
    const MANIFESTS: i64 = 3;
    let (db, s) = session().await;
    s.get(&format!("select count(trax.schedule('m' || n, 'a', cron => '* * * * * *')) from generate_series(1, {MANIFESTS}) n")).await;
    // Years late but not a misfire: each round has its own second.
    s.get("update trax.manifest set misfire_threshold = '10 years'")
        .await;
    let (go, signal) = tokio::sync::watch::channel(0);
    let (done, mut results) = tokio::sync::mpsc::channel(2);
    for _ in 0..2 {
        tokio::spawn(tick_rounds(
            Session::of(&db).await,
            signal.clone(),
            done.clone(),
        ));
    }
    for round in 1..=ROUNDS {
        s.get(&NEXT_ROUND.replace("{round}", &round.to_string()))
            .await;
        go.send(round).expect("two sessions listen");
        let mut queued = 0;
        for _ in 0..2 {
            queued += results.recv().await.expect("both sessions answer");
        }
        assert_eq!(queued, MANIFESTS, "round {round}");
        s.get(
            "with claimed as materialized (select job_id, token from trax.claim_next(max_jobs => 100)),
                  held as (select array_agg(job_id) as ids, array_agg(token) as tokens from claimed)
             select count(*) from held, trax.complete_many(held.ids, held.tokens)",
        )
        .await;
    }
    let fired = "select count(*), count(distinct (manifest, scheduled_for)), count(distinct scheduled_for) from trax.run";
    let all = i64::from(ROUNDS) * MANIFESTS;
    assert_eq!(s.get(fired).await, format!("{all}|{all}|{ROUNDS}"));
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_pause_is_kept_with_its_reason_and_a_tick_by_hand_still_works() {
    let (_db, s) = session().await;
    let state = "select paused_at is not null, pause_reason from trax.instance";
    s.get("select trax.schedule('m', 'a', every => '1 h')")
        .await;
    assert_eq!(s.get("select trax.pause('deploy')").await, "");
    assert_eq!(s.get(state).await, "t|deploy");
    s.get("select trax.pause()").await;
    assert_eq!(s.get(state).await, "t|deploy");
    assert_eq!(s.tick("queue_due").await, 1);
    assert_eq!(s.claim("").await.len(), 1);
    s.get("select trax.resume()").await;
    assert_eq!(s.get(state).await, "f|");
    s.get("select trax.pause(); select trax.resume(); select trax.resume()")
        .await;
    assert_eq!(s.get(state).await, "f|");
}

#[tokio::test]
async fn an_adoption_that_could_not_be_read_is_read_again() {
    let (db, s) = session().await;
    s.enqueue("'a'").await;
    let fresh = Session::of(&db).await;
    s.get("begin; lock table trax.adoption in access exclusive mode")
        .await;
    fresh.get("set statement_timeout = '200 ms'").await;
    let refusal = fresh.refusal("select * from trax.claim_next()").await;
    assert_eq!(refusal.code, "57014", "{refusal}");
    s.get("rollback").await;
    assert_eq!(fresh.claim("").await.len(), 1);
}

#[tokio::test]
async fn only_rows_that_are_put_in_make_a_copy_of_a_database() {
    let (_db, s) = session().await;
    s.get("set row_security = off; delete from trax.work_queue; update trax.work_queue set priority = 1")
        .await;
    s.get("select * from trax.claim_next()").await;
    s.get("insert into trax.manifest_state select * from trax.manifest_state")
        .await;
    let refusal = s.refusal("select * from trax.claim_next()").await;
    assert_eq!(refusal.code, "55000", "{refusal}");
}

#[tokio::test]
async fn a_copy_starts_nothing_until_it_is_adopted() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); select trax.enqueue('b')")
        .await;
    s.get("select * from trax.tick()").await;
    let held = s.claim_one("").await;
    for copy in [
        "update trax.instance set system_identifier = 1",
        "update trax.instance set database_oid = 1",
        "delete from trax.instance",
        "insert into trax.instance (system_identifier, database_oid) values (1, 1)",
        "update trax.adoption set system_identifier = 1",
        "update trax.adoption set database_oid = 1",
        "delete from trax.adoption",
        "truncate trax.adoption",
    ] {
        // Both sessions have claimed before, so their cached state of the adoption is void.
        for session in [&s, &other] {
            session
                .get("begin; select * from trax.claim_next(); rollback")
                .await;
        }
        s.get(copy).await;
        for session in [&s, &other] {
            for call in [
                "select * from trax.tick()",
                "select * from trax.claim_next()",
                "select * from trax.complete_and_claim('{}', '{}')",
            ] {
                let refusal = session.refusal(call).await;
                assert_eq!(refusal.code, "55000", "{copy}: {call}: {refusal}");
                assert!(refusal.hint.contains("select trax.adopt()"), "{refusal}");
            }
        }
        other.get("begin; select trax.adopt()").await;
        assert_ne!(other.get("select * from trax.tick()").await, "", "{copy}");
        other.get("rollback").await;
        assert_eq!(
            other.refusal("select * from trax.tick()").await.code,
            "55000"
        );
        other.get("select trax.adopt()").await;
        for sql in [
            "select count(*) from trax.instance",
            "select count(*) from trax.adoption",
        ] {
            assert_eq!(s.number(sql).await, 1, "{copy}");
        }
        for session in [&s, &other] {
            assert_ne!(session.get("select * from trax.tick()").await, "", "{copy}");
            session
                .get("begin; select * from trax.claim_next(); rollback")
                .await;
        }
    }
    s.get("delete from trax.adoption").await;
    assert_eq!(
        s.get(&format!(
            "select held from trax.heartbeat('{{{}}}', '{{{}}}'); select trax.complete({})",
            held.id,
            held.token,
            held.key()
        ))
        .await,
        "t\nt",
        "what runs already may say how it went"
    );
}

#[tokio::test]
async fn status_says_what_to_type() {
    let (_db, s) = session().await;
    let unhealthy =
        "select count(*) from trax.status() where not healthy and coalesce(hint, '') = ''";
    assert_eq!(
        s.get("select value, healthy from trax.status() where item = 'library'")
            .await,
        "preloaded|t"
    );
    assert_eq!(
        s.get("select value, healthy from trax.status() where item = 'scheduler'")
            .await,
        "not running|f"
    );
    assert_eq!(s.number(unhealthy).await, 0);
    s.get("select trax.enqueue('a'); select trax.enqueue('a'); select trax.enqueue('a', run_at => now() + interval '1 h')").await;
    let job = s.claim_one("").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
    s.claim_one("").await;
    s.get("update trax.lease set lease_expires_at = now() - interval '1 min'; select trax.enqueue('a')").await;
    s.get("select trax.schedule('m', 'a', every => '1 h'); update trax.manifest_state set next_run_at = now() - interval '1 min'").await;
    let counts = "select item, value, healthy from trax.status()
                  where item not in ('version', 'library', 'scheduler', 'clock', 'jobs that cannot be read', 'manifests that cannot be evaluated', 'rows of the hot tables',
                      'cleanup steps that fail', 'stopped schedules') order by item";
    let expected = "dead letters|1|f\nin progress|1|t\nmanifests|1|t\noverdue leases|1|f\noverdue manifests|1|f\nsql jobs|ready: 0|t\nwaiting, behind a key|0|t\nwaiting, behind a manifest|0|t\nwaiting, delayed|1|t\nwaiting, ready|1|t\nwaiting, suspended|0|t";
    assert_eq!(s.get(counts).await, expected);
    assert_eq!(s.number(unhealthy).await, 0);
}

/// Statements that break each invariant, and the rule that must report it. Each starts with a
/// waiting job 1, an executing job 2, a completed job 3, a job 4 that failed for good, and the
/// manifest `m`.
const BREAKAGES: [(&str, &str); 40] = [
    (
        "the times of a job are finite",
        "update trax.work_queue set waits_for = 'time', run_at = 'infinity' where job_id = 1",
    ),
    (
        "the times of a job are finite",
        "update trax.lease set lease_expires_at = 'infinity', reap_at = 'infinity' where job_id = 2",
    ),
    (
        "a dependency has both manifests",
        "insert into trax.manifest_dependency (child_id, parent_id) select manifest_id, 99 from trax.manifest limit 1",
    ),
    (
        "a dependency has both manifests",
        "insert into trax.manifest_dependency (child_id, parent_id) select 99, manifest_id from trax.manifest limit 1",
    ),
    (
        "a need has a living job",
        "insert into trax.need (needed_job_id, job_id, one_is_enough) values (98, 99, false)",
    ),
    (
        "a job that waits for others needs one",
        "update trax.work_queue set waits_for = 'jobs' where job_id = 1",
    ),
    (
        "jobs do not wait for each other for ever",
        "update trax.work_queue set waits_for = 'jobs' where job_id = 1; insert into trax.need values (1, 1, false)",
    ),
    ("a graph has a job", "insert into trax.graph values (99, now() - interval '1 y', false)"),
    ("a graph has a job", "insert into trax.graph values (99, now(), true)"),
    (
        "a job of a graph has a graph",
        "insert into trax.graph_job (job_id, graph_id) values (1, 99)",
    ),
    (
        "a step belongs to a living job",
        "insert into trax.step (job_id, recorded_at, attempt, step, kind) values (99, now(), 1, 's', 'step')",
    ),
    (
        "a waiting job knows its number of steps",
        "update trax.work_queue set steps = 7 where job_id = 1",
    ),
    (
        "a waiting job knows its number of steps",
        "insert into trax.step (job_id, recorded_at, attempt, step, kind) values (1, now(), 1, 's', 'step')",
    ),
    (
        "a job that waits for a signal can receive it",
        "update trax.work_queue set waits_for = 'signal' where job_id = 1",
    ),
    ("a signal has a job that can receive it", ORPHAN_SIGNAL),
    ("a child has a parent", "update trax.work_queue set parent_job_id = 99 where job_id = 1"),
    ("a child has a parent", "update trax.lease set parent_job_id = 99 where job_id = 2"),
    (
        "a live job can be read",
        "insert into trax.unreadable_job select job_id, 'missing chunk', now() from trax.lease",
    ),
    (
        "a job is in one place",
        "insert into trax.work_queue (job_id, lane_id, queued_at, run_at, task, group_name, unique_key, input)
             overriding system value
         select job_id, lane_id, queued_at, run_at, task, group_name, unique_key, input from trax.lease",
    ),
    ("a job is in one place", "update trax.run set job_id = 1 where job_id = 3"),
    ("a job is in one place", "update trax.run set job_id = 2 where job_id = 3"),
    (
        "a job is in one place",
        "insert into trax.work_queue (job_id, lane_id, queued_at, run_at, task, group_name, input)
             overriding system value
         select 1000, lane_id, queued_at, run_at, task, group_name, input from trax.work_queue where job_id = 1;
         update trax.run set job_id = 1000 where job_id = 3",
    ),
    (
        "a job ends once",
        "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input)
         select job_id, queued_at, run_at, started_at, finished_at, 2, priority, final, state, task, group_name, input
         from trax.run where job_id = 3",
    ),
    (
        "an attempt ends once",
        "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, failure_kind, task, group_name, input)
         select job_id, queued_at, run_at, started_at, finished_at, attempt, priority, false, 'failed', 'error', task, group_name, input
         from trax.run where job_id = 3",
    ),
    (
        "a job that is to be retried waits",
        "update trax.run set final = false, state = 'failed', failure_kind = 'error' where job_id = 3",
    ),
    ("an attempt ends after it began", "update trax.run set started_at = finished_at + interval '1 s' where job_id = 3"),
    ("a waiting job is in its lane", "update trax.work_queue set lane_id = lane_id + 1"),
    ("a waiting job is in its lane", "update trax.work_queue set task = task || 'x'"),
    ("a job is not claimable before its time", "update trax.work_queue set run_at = now() + interval '1 h' where job_id = 1"),
    ("the reaper looks in time", "update trax.lease set reap_at = lease_expires_at + interval '1 s'"),
    ("a unique key has a live job", "insert into trax.unique_key values ('orphan', 3)"),
    ("a live job keeps its unique key", "delete from trax.unique_key where key = 'waiting'"),
    ("a live job keeps its unique key", "delete from trax.unique_key where key = 'executing'"),
    (
        "a grant has a token of its own",
        "select trax.acquire_token('n', 'h', 2, '1 h'), trax.acquire_token('n', 'h', 2, '1 h');
         update trax.concurrency_token set token = '00000000-0000-0000-0000-000000000000'",
    ),
    ("a manifest has a state", "delete from trax.manifest_state"),
    ("a state has a manifest", "delete from trax.manifest"),
    ("an enabled schedule is due or parked", "update trax.manifest_state set next_run_at = null"),
    ("an enabled schedule is due or parked", "update trax.manifest_state set next_run_at = 'infinity'"),
    (
        "a schedule that continues waits for no dead letter",
        "update trax.manifest set on_dead_letter = 'continue';
         update trax.manifest_state set next_run_at = null, parked_on = 'dead_letter'",
    ),
    ("a manifest that awaits an outcome has a job", "update trax.manifest_state set next_run_at = null, parked_on = 'outcome'"),
];

async fn healthy_database() -> (trax_client::testkit::Database, Session) {
    let (db, s) = session().await;
    s.get("select trax.schedule('m', 'm', every => '1 h')")
        .await;
    let waiting = s.enqueue("'a', unique_key => 'waiting'").await;
    let executing = s.enqueue("'b', unique_key => 'executing'").await;
    let completed = s.enqueue("'c'").await;
    let failed = s.enqueue("'d'").await;
    assert_eq!([waiting, executing, completed, failed], [1, 2, 3, 4]);
    s.claim_one("tasks => array['b']").await;
    let job = s.claim_one("tasks => array['c']").await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    let job = s.claim_one("tasks => array['d']").await;
    s.get(&format!(
        "select trax.fail({}, 'no', permanent => true)",
        job.key()
    ))
    .await;
    s.assert_healthy().await;
    (db, s)
}

#[tokio::test]
async fn every_rule_of_check_fires_when_its_invariant_is_broken() {
    let (_db, s) = healthy_database().await;
    let last = (
        "a job that failed for good has a dead letter",
        "delete from trax.dead_letter",
    );
    let mut fired = BTreeSet::new();
    for (rule, breakage) in BREAKAGES.into_iter().chain([last]) {
        s.get(&format!("begin; {breakage}")).await;
        let found = s
            .get("select rule from trax.check() where detail <> ''")
            .await;
        assert!(
            found.lines().any(|line| line == rule),
            "{breakage}\n  gave {found:?} and not {rule:?}"
        );
        s.get("rollback").await;
        fired.insert(rule.to_owned());
    }
    s.assert_healthy().await;
    let rules = "select distinct m[1] from pg_proc p,
                     regexp_matches(p.prosrc, '^select ''([^'']+)''', 'gn') m
                 where p.oid = 'trax.check'::regproc";
    let rules: BTreeSet<String> = s.get(rules).await.lines().map(str::to_owned).collect();
    assert_eq!(rules, fired, "each rule has a breakage here");
}

#[tokio::test]
async fn check_reads_the_last_hour_and_more_of_history_when_asked() {
    let (_db, s) = session().await;
    let run = |hours: i32| {
        format!(
            "insert into trax.run (job_id, queued_at, run_at, started_at, finished_at, attempt, priority, final, state, task, group_name, input)
             select 9, now() - interval '9 h', t, t, t, {hours}, 0, true, 'completed', 'old', 'default', '{{}}'
             from (select now() - interval '{hours} h') v (t)"
        )
    };
    s.get(&run(2)).await;
    s.get(&run(3)).await;
    s.assert_healthy().await;
    for asked in ["'4 h'", "null"] {
        assert_eq!(
            s.get(&format!("select rule, detail from trax.check({asked})"))
                .await,
            "a job ends once|job 9 has 2 final runs"
        );
    }
    s.get(&run(0)).await;
    assert_eq!(
        s.get("select detail from trax.check() where rule = 'a job ends once'")
            .await,
        "job 9 has 3 final runs",
        "a job of this hour that was there before"
    );
}
