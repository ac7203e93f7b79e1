//! Recording the results of steps.

use super::{running, steps};
use harness::session::{Claimed, Session, session};
use trax_client::testkit::Database;

#[tokio::test]
async fn the_first_write_of_a_step_wins() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let record = |output: &str| {
        format!(
            "select * from trax.record_step({}, 'charge', '{output}')",
            job.key()
        )
    };
    assert_eq!(s.get(&record("{\"id\": 7}")).await, "t|{\"id\": 7}");
    assert_eq!(s.get(&record("{\"id\": 8}")).await, "f|{\"id\": 7}");
    let null = format!("select * from trax.record_step({}, 'nothing')", job.key());
    assert_eq!(s.get(&null).await, "t|");
    assert_eq!(s.get(&null).await, "f|");
    assert_eq!(
        steps(&s, job.id).await,
        "charge|step|{\"id\": 7}|t\nnothing|step||t"
    );
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_later_attempt_finds_the_steps_and_their_number() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    s.get(&format!("select trax.record_step({}, 'a', '1')", job.key()))
        .await;
    let fail = format!("select trax.fail({}, 'no', retry_in => '0 s')", job.key());
    assert_eq!(s.get(&fail).await, "retrying");
    let claim = "select attempt, steps, token from trax.claim_next()";
    let claimed = s.get(claim).await;
    let (counts, token) = claimed.rsplit_once('|').expect("a job is claimed");
    assert_eq!(counts, "2|1");
    let again = format!(
        "select * from trax.record_step({}, '{token}', 'a', '2')",
        job.id
    );
    assert_eq!(s.get(&again).await, "f|1");
    let stale = format!(
        "select count(*) from trax.record_step({}, 'b', '2')",
        job.key()
    );
    assert_eq!(
        s.get(&stale).await,
        "0",
        "the first attempt has lost its lease"
    );
    let attempts = "select step, attempt from trax.step";
    assert_eq!(s.get(attempts).await, "a|1");
    let done = format!("select trax.complete({}, '{token}')", job.id);
    assert_eq!(s.get(&done).await, "t");
    assert_eq!(s.get("select count(*) from trax.step").await, "0");
    assert_eq!(steps(&s, job.id).await, "a|step|1|t");
    let kept = "select steps #>> '{0,step}' from trax.run where final";
    assert_eq!(s.get(kept).await, "a");
    let earlier = "select count(*) from trax.run where not final and steps is not null";
    assert_eq!(s.get(earlier).await, "0");
    s.assert_healthy().await;
}

#[tokio::test]
async fn the_steps_of_a_job_end_with_it_however_it_ends() {
    let (_db, s) = session().await;
    let ends = [
        "select trax.complete($)",
        "select trax.complete_many(array[$job], array[$token])",
        "select count(*) from trax.complete_and_claim(array[$job], array[$token])",
        "select trax.fail($, 'no', permanent => true)",
        "select trax.cancel_own($)",
        "select trax.cancel($job); select trax.acknowledge_cancel($)",
        "select trax.cancel($job); select trax.release($)",
        "select trax.release($); select trax.cancel($job)",
        "update trax.lease set lease_expires_at = now() - interval '1 s', attempt = 99; select count(*) from trax.tick()",
        "select trax.release($); update trax.work_queue set expires_at = now() - interval '1 s'; select count(*) from trax.tick()",
    ];
    for end in ends {
        let job = running(&s).await;
        s.get(&format!("select trax.record_step({}, 'a', '1')", job.key()))
            .await;
        s.get(&format!(
            "select trax.send_signal({}, 'never taken')",
            job.id
        ))
        .await;
        let (id, token) = (job.id.to_string(), format!("'{}'::uuid", job.token));
        let end = end
            .replace("$job", &id)
            .replace("$token", &token)
            .replace('$', &job.key());
        s.get(&end).await;
        assert_eq!(steps(&s, job.id).await, "a|step|1|t", "{end}");
        let left = "select (select count(*) from trax.step), (select count(*) from trax.signal g
            where not exists (select from trax.dead_letter d where d.job_id = g.job_id))";
        assert_eq!(s.get(left).await, "0|0", "{end}");
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn an_output_of_null_and_none_are_the_same_of_a_job_that_has_ended() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    for step in ["'null', 'null'", "'none'", "'value', '1'"] {
        s.get(&format!("select trax.record_step({}, {step})", job.key()))
            .await;
    }
    let kept = "null|step|null|t\nnone|step||t\nvalue|step|1|t";
    assert_eq!(steps(&s, job.id).await, kept);
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(steps(&s, job.id).await, kept, "ended");
    let fork = s.number(&format!("select trax.fork({})", job.id)).await;
    assert_eq!(steps(&s, fork).await, kept, "forked");
}

#[tokio::test]
async fn a_step_and_the_rows_it_wrote_are_one_transaction() {
    let (_db, mut s) = session().await;
    let job = running(&s).await;
    s.get("create table public.charge (id int)").await;
    let transaction = s.transaction().await;
    let both = format!(
        "insert into public.charge values (1); select trax.record_step({}, 'charge', '1')",
        job.key()
    );
    transaction.batch_execute(&both).await.expect("it runs");
    transaction.rollback().await.expect("it rolls back");
    let nothing = "select (select count(*) from public.charge), (select count(*) from trax.step)";
    assert_eq!(s.get(nothing).await, "0|0");
    s.get(&both).await;
    assert_eq!(s.get(nothing).await, "1|1");
}

#[tokio::test]
async fn heartbeats_and_other_steps_wait_for_no_step() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let job = running(&s).await;
    s.get("begin").await;
    s.get(&format!("select trax.record_step({}, 'a', '1')", job.key()))
        .await;
    other.get("set lock_timeout = '2 s'").await;
    let beat = format!(
        "select held from trax.heartbeat(array[{}], array['{}'::uuid])",
        job.id, job.token
    );
    assert_eq!(other.get(&beat).await, "t");
    let extended = "select count(*) from trax.lease_extension";
    assert_eq!(other.get(extended).await, "0", "in place");
    let step = format!(
        "select recorded from trax.record_step({}, 'b', '2')",
        job.key()
    );
    assert_eq!(other.get(&step).await, "t");
    s.get("commit").await;
    assert_eq!(steps(&s, job.id).await, "a|step|1|t\nb|step|2|t");
}

#[tokio::test]
async fn of_two_who_record_a_step_at_once_the_second_gets_what_the_first_kept() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let job = running(&s).await;
    let record = |output: i32| {
        format!(
            "select * from trax.record_step({}, 'a', '{output}')",
            job.key()
        )
    };
    s.get("begin").await;
    assert_eq!(s.get(&record(1)).await, "t|1");
    let pid = other.pid();
    let second = other.spawn(record(2));
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (_, answer) = second.await.expect("it ends");
    assert_eq!(answer.expect("it is answered"), "f|1");
}

#[tokio::test]
async fn sessions_that_record_the_same_steps_record_each_once() {
    let (db, s) = session().await;
    let job = running(&s).await;
    s.get("create table recorded (number int)").await;
    let all = format!(
        "do $$
         begin
             for i in 1..300 loop
                 insert into recorded
                 select i from trax.record_step({}, 'step ' || i, to_jsonb(i)) r where r.recorded and r.output = to_jsonb(i);
                 commit;
             end loop;
         end $$",
        job.key()
    );
    let mut recorders = Vec::new();
    for _ in 0..4 {
        recorders.push(Session::of(&db).await.spawn(all.clone()));
    }
    for recorder in recorders {
        recorder.await.expect("it ends").1.expect("it records");
    }
    let once = "select count(*), count(distinct number) from recorded";
    assert_eq!(s.get(once).await, "300|300");
    let kept = "select count(*), count(distinct step_id) from trax.step";
    assert_eq!(s.get(kept).await, "300|300");
}

#[tokio::test]
async fn an_attempt_that_ends_waits_for_its_open_step() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let job = running(&s).await;
    s.get("begin").await;
    s.get(&format!("select trax.record_step({}, 'a', '1')", job.key()))
        .await;
    let pid = other.pid();
    let end = other.spawn(format!("select trax.complete({})", job.key()));
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (other, ended) = end.await.expect("it ends");
    assert_eq!(ended.expect("it completes"), "t");
    assert_eq!(steps(&other, job.id).await, "a|step|1|t");
    assert_eq!(other.get("select count(*) from trax.step").await, "0");
    let late = format!(
        "select count(*) from trax.record_step({}, 'b', '1')",
        job.key()
    );
    assert_eq!(other.get(&late).await, "0");
    other.assert_healthy().await;
}

/// Records a step in an open transaction, makes a call that waits for it, and commits; returns the
/// session of the call.
async fn ends_beside_a_step(db: &Database, s: &Session, job: &Claimed, sql: &str) -> Session {
    let other = Session::of(db).await;
    other
        .get("set default_transaction_isolation = 'repeatable read'")
        .await;
    s.get("begin").await;
    let step = format!("select trax.record_step({}, 'a', '1')", job.key());
    s.get(&step).await;
    let pid = other.pid();
    let end = other.spawn(sql.replace('$', &job.key()));
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (other, ended) = end.await.expect("it ends");
    ended.expect("it is answered");
    other
}

#[tokio::test]
async fn a_job_that_goes_back_while_a_step_commits_knows_the_step() {
    for sql in [
        "select trax.release($)",
        "select trax.sleep($, 'b', now() + interval '1 h')",
        "select trax.fail($, 'no', retry_in => '0')",
    ] {
        let (db, s) = session().await;
        let job = running(&s).await;
        let other = ends_beside_a_step(&db, &s, &job, sql).await;
        let counts = "select (select steps from trax.work_queue), (select count(*) from trax.step)";
        let counts = other.get(counts).await;
        assert!(["1|1", "2|2"].contains(&&*counts), "{sql}: {counts}");
        other.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_job_that_ends_while_a_step_commits_keeps_the_step() {
    for sql in [
        "select trax.complete($)",
        "select trax.fail($, 'no', permanent => true)",
        "select trax.cancel_own($)",
    ] {
        let (db, s) = session().await;
        let job = running(&s).await;
        let other = ends_beside_a_step(&db, &s, &job, sql).await;
        assert_eq!(steps(&other, job.id).await, "a|step|1|t", "{sql}");
        other.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_step_extends_the_lease_when_asked_to() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    s.get(&format!(
        "select trax.record_step({}, 'a', lease => '1 hour')",
        job.key()
    ))
    .await;
    let length = "select lease_expires_at > clock_timestamp() + interval '59 min' from trax.lease";
    assert_eq!(s.get(length).await, "t");
}

#[tokio::test]
async fn what_is_no_step_is_refused_in_words() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let cases = [
        ("''", "22023", "argument \"step\" must not be empty"),
        ("null", "22004", "argument \"step\" must not be null"),
        (
            "' a'",
            "22023",
            "argument \"step\" must not begin or end with white space",
        ),
        (
            "'a', undo => '7'",
            "22023",
            "argument \"undo\" must name a task",
        ),
        (
            "'a', undo => '{}'",
            "22023",
            "argument \"undo\" must name a task",
        ),
        (
            "'a', undo => '{\"task\": \"x\", \"inptu\": 1}'",
            "22023",
            "argument \"undo\" must name a task",
        ),
        (
            "'a', undo => '{\"task\": \"\"}'",
            "22023",
            "argument \"undo.task\" must not be empty",
        ),
        (
            "'a', lease => '0'",
            "22023",
            "argument \"lease\" must be longer than zero, at most 10 years",
        ),
    ];
    for (arguments, code, message) in cases {
        let refusal = s
            .refusal(&format!(
                "select trax.record_step({}, {arguments})",
                job.key()
            ))
            .await;
        assert_eq!(
            (refusal.code.as_str(), refusal.message.as_str()),
            (code, message)
        );
    }
    s.get("set trax.max_input_bytes = '1kB'").await;
    let large = format!(
        "select trax.record_step({}, 'a', to_jsonb(repeat(md5(random()::text), 100)))",
        job.key()
    );
    assert_eq!(s.refusal(&large).await.code, "54000");
    s.get(&format!("select trax.sleep({}, 'nap', now())", job.key()))
        .await;
    let other_kind = format!("select trax.record_step({}, 'nap', '1')", job.key());
    assert_eq!(s.refusal(&other_kind).await.code, "22023");
    assert_eq!(s.get("select count(*) from trax.step").await, "1");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_has_at_most_10_000_steps() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    s.get(&format!(
        "insert into trax.step (job_id, recorded_at, attempt, step, kind)
         select {}, now(), 1, 'step ' || n, 'step' from generate_series(1, 9999) n",
        job.id
    ))
    .await;
    let record = |step: &str| {
        format!(
            "select recorded from trax.record_step({}, '{step}')",
            job.key()
        )
    };
    s.get("begin").await;
    assert_eq!(s.get(&record("rolled back")).await, "t");
    s.get("rollback").await;
    assert_eq!(s.get(&record("last")).await, "t");
    let refusal = s.refusal(&record("one more")).await;
    assert_eq!(refusal.code, "54000");
    assert_eq!(refusal.message, format!("job {} has 10000 steps", job.id));
    let done = format!("select trax.complete({})", job.key());
    assert_eq!(s.get(&done).await, "t");
    let kept = "select jsonb_array_length(steps) from trax.run";
    assert_eq!(s.get(kept).await, "10000");
}

#[tokio::test]
async fn sessions_that_record_in_turn_keep_to_the_limit() {
    let (db, s) = session().await;
    let other = Session::of(&db).await;
    let job = running(&s).await;
    s.get(&format!(
        "insert into trax.step (job_id, recorded_at, attempt, step, kind)
         select {}, now(), 1, 'step ' || n, 'step' from generate_series(1, 9900) n",
        job.id
    ))
    .await;
    let mut refused = 0;
    for step in 0..60 {
        for (session, name) in [(&s, "a"), (&other, "b")] {
            let record = format!(
                "select recorded from trax.record_step({}, '{name} {step}')",
                job.key()
            );
            refused += usize::from(session.attempt(&record).await.is_err());
        }
    }
    assert_eq!(refused, 20);
    let kept = "select count(*) from trax.step";
    assert_eq!(s.get(kept).await, "10000");
}
