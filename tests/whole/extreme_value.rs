//! Extreme values written by hand, without the constraints. Calls may refuse them, but nothing
//! fails after a commit, and the next job runs. Infinite times that the constraints allow fail no
//! step of a cycle and no report.

use harness::session::{Refusal, Session, session};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use trax_client::testkit::Database;

/// An update with extreme values for each column that an administrator may change.
const CASES: &str = "select format('update trax.%I set %I = %s', t, a.attname, v.value)
    from unnest(array['work_queue', 'lease', 'lease_extension', 'run_default', 'manifest', 'manifest_state', 'manifest_dependency',
        'manifest_group', 'dead_letter', 'unique_key', 'worker', 'concurrency_token', 'progress']) t
    join pg_attribute a on a.attrelid = to_regclass('trax.' || t) and a.attnum > 0 and not a.attisdropped
    join (values
        ('int8', array['-9223372036854775808', '9223372036854775807']),
        ('int4', array['-2147483648', '2147483647']),
        ('int2', array['-32768', '32767', '99']),
        ('timestamptz', array['''infinity''', '''-infinity''']),
        ('interval', array['''178000000 years''', '''-178000000 years''']),
        ('text', array['''''', 'repeat(''x'', 20000)']),
        ('text[]', array['''{}''', 'array_fill(''x''::text, array[20000])']),
        ('jsonb', array['''null''', 'to_jsonb(repeat(''x'', 100000))']),
        ('uuid', array['''00000000-0000-0000-0000-000000000000''']),
        ('bool', array['true', 'false'])
    ) e (type, extremes) on e.type::regtype = a.atttypid
    cross join lateral unnest(e.extremes) v (value)
    order by 1";

/// The rows of the tables before the extreme value is written.
const ROWS: &str = "select count(trax.enqueue('a' || n, unique_key => 'u' || n, concurrency_key => 'k' || n, group_name => 'g')) from generate_series(1, 6) n;
    select trax.configure_group('g', max_active_jobs => 100);
    select trax.schedule('m', 'm', every => '1 h', max_retries => 0);
    select trax.schedule('c', 'c', depends_on => '{m}');
    select trax.trigger('m');
    select count(*) from trax.claim_next(max_jobs => 4, worker => 'w');
    select trax.fail(job_id, token, 'no', permanent => true) from trax.lease where job_id = (select min(job_id) from trax.lease);
    select trax.report_progress(job_id, token, '1') from trax.lease;
    select trax.enqueue('later', run_at => now() + interval '1 h');
    select slot from trax.acquire_token('n', 'h', 2, '1 h')";

/// Calls that write, each in its own transaction.
const CALLS: [&str; 22] = [
    "select count(*) from trax.claim_next(max_jobs => 2, worker => 'w')",
    "select count(*) from trax.heartbeat((select array_agg(job_id order by ctid) from trax.lease), (select array_agg(token order by ctid) from trax.lease))",
    "begin; select trax.complete(job_id, token) from trax.lease limit 1; select count(*) from trax.claim_next(); prepare transaction 'x'",
    "rollback prepared 'x'",
    "begin; select count(*) from trax.claim_next(max_jobs => 3); savepoint s; select trax.cancel_group('g'); rollback to s; rollback",
    "select trax.complete(job_id, token) from trax.lease limit 1",
    "begin; select count(*) from trax.claim_next(); prepare transaction 'x'",
    "commit prepared 'x'",
    "select trax.fail(job_id, token, 'no') from trax.lease limit 1",
    "select trax.release(job_id, token, delay => '1 h') from trax.lease limit 1",
    "select trax.cancel(job_id) from trax.lease",
    "select trax.acknowledge_cancel(job_id, token) from trax.lease limit 1",
    "select trax.run_now(job_id) from trax.work_queue",
    "select trax.trigger('m')",
    "select count(*) from trax.claim_next(max_jobs => 10, worker => 'w')",
    "select completed_job_id from trax.complete_and_claim((select array_agg(job_id order by ctid) from trax.lease), (select array_agg(token order by ctid) from trax.lease))",
    "select trax.cancel(job_id) from trax.work_queue limit 2",
    "select trax.requeue_dead_letter(id) from trax.dead_letter",
    "select trax.extend_token(name, token, '1 h') from trax.concurrency_token",
    "select trax.release_token(name, token) from trax.concurrency_token",
    "select trax.configure_group('g', priority => 3)",
    "select count(*) from trax.tick()",
];

const EMPTY: &str = "truncate trax.work_queue, trax.lease, trax.lease_extension, trax.manifest_state, trax.manifest_dependency,
    trax.dead_letter, trax.unique_key, trax.worker, trax.concurrency_token, trax.progress cascade;
    delete from trax.manifest; delete from trax.manifest_group where name <> 'default'; delete from trax.run";

async fn without_constraints(db: &Database) -> Session {
    let s = Session::of(db).await;
    s.get(
        "do $$ declare c record; begin
             for c in select conrelid::regclass as t, conname from pg_constraint
                 where connamespace = 'trax'::regnamespace and contype = 'c' and coninhcount = 0 loop
                 execute format('alter table %s drop constraint %I', c.t, c.conname);
             end loop;
         end $$",
    )
    .await;
    s
}

/// The results of the calls with an extreme value.
struct Outcome {
    /// False if a key refuses the value.
    written: bool,
    broken: Vec<String>,
}

/// Sends all statements before the first answer has come.
async fn answers(s: &Session, statements: &[&str]) -> Vec<Result<String, Refusal>> {
    type Call<'s> = Pin<Box<dyn Future<Output = Result<String, Refusal>> + 's>>;
    let mut calls: Vec<Call<'_>> = Vec::new();
    for sql in statements {
        calls.push(Box::pin(s.attempt(sql)));
    }
    let mut answers: Vec<Option<Result<String, Refusal>>> = vec![None; calls.len()];
    poll_fn(|context| {
        for (call, answer) in calls.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let Poll::Ready(came) = call.as_mut().poll(context)
            {
                *answer = Some(came);
            }
        }
        match answers.iter().all(Option::is_some) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
    answers.into_iter().flatten().collect()
}

/// Writes a value, makes every call, and runs another job. All statements are sent at once, since
/// each wait for an answer may lose the processor on a busy machine.
async fn play(s: &Session, case: &str) -> Outcome {
    const NEXT: [&str; 3] = [
        "select trax.enqueue('next')",
        "select job_id from trax.claim_next()",
        "select trax.complete(job_id, token) from trax.lease",
    ];
    let calls = CALLS.iter().flat_map(|call| [*call, "rollback"]);
    let statements = [ROWS, case].into_iter().chain(calls);
    let statements = statements.chain(["rollback prepared 'x'", EMPTY]);
    let statements: Vec<&str> = statements.chain(NEXT).collect();
    let answers = answers(s, &statements).await;
    let mut broken = Vec::new();
    for (call, answer) in statements.iter().zip(&answers).skip(2) {
        if let Err(refusal) = answer
            && refusal.code == "XX000"
        {
            broken.push(format!("{case}: {call}: {refusal}"));
        }
    }
    let of = |sql: &str| {
        let at = statements.iter().rposition(|statement| *statement == sql);
        answers[at.expect("it was sent")].clone()
    };
    for needed in [ROWS, EMPTY] {
        of(needed).unwrap_or_else(|refusal| panic!("{case}: {needed}: {refusal}"));
    }
    let next = NEXT.map(|sql| of(sql).unwrap_or_else(|refusal| panic!("{case}: {sql}: {refusal}")));
    assert!(next[0] == next[1] && next[2] == "t", "{case}: {next:?}");
    Outcome {
        written: answers[1].is_ok(),
        broken,
    }
}

#[tokio::test]
async fn no_value_that_somebody_writes_by_hand_breaks_a_commit() {
    let server = harness::options()
        .fast()
        .setting("trax.databases", "no_database_has_this_name")
        .setting("max_prepared_transactions", "4")
        .start()
        .expect("a server starts");
    let db = server.database("app").await.expect("a database is made");
    let s = without_constraints(&db).await;
    s.get("set client_min_messages = error; set statement_timeout = '20 s'")
        .await;
    let cases = s.get(CASES).await;
    let (mut written, mut broken) = (0, Vec::new());
    for case in cases.lines() {
        let outcome = play(&s, case).await;
        written += usize::from(outcome.written);
        broken.extend(outcome.broken);
    }
    let all = cases.lines().count();
    println!("{written} of {all} values were written");
    assert!(written > 200, "{written} of {all}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    let log = std::fs::read_to_string(server.log_file()).expect("the log can be read");
    assert!(!log.contains("it was already committed"));
}

/// Jobs that wait for everything there is to wait for, beside [`ROWS`].
const WAITING: &str = "select trax.configure_rate('r', 20, '1 h');
    select trax.close_rate('r', until => now() + interval '1 h');
    select trax.enqueue('r', rate => 'r');
    select trax.schedule('cron', 'cron', cron => '0 * * * *', misfire => 'fire_all');
    select trax.sleep(job_id, token, 's', now() + interval '1 h') from trax.lease order by job_id limit 1;
    select trax.await_signal(job_id, token, 's', 'n', now() + interval '1 h') from trax.lease order by job_id limit 1;
    select trax.send_signal(min(job_id), 'x') from trax.lease;
    select trax.limit_queue_time(trax.enqueue('limited'), '1 h');
    select trax.open_batch('batch');
    insert into trax.lease_extension select job_id, token, now(), now() + interval '1 min', false from trax.lease;
    insert into trax.unique_key values ('old', 1, true, now() + interval '1 h');
    select count(*) from trax.tick()";

/// Infinite times for each row that has one, where the row and the constraints allow it.
const INFINITE: &str = "select format('update trax.%1$I set %2$I = %3$L where %2$I is not null', c.relname, a.attname, v.value)
    from pg_class c
    join pg_attribute a on a.attrelid = c.oid and a.atttypid = 'timestamptz'::regtype and a.attnum > 0
    cross join (values ('infinity'), ('-infinity')) v (value)
    where c.relnamespace = 'trax'::regnamespace and c.relkind = 'r'
    order by 1";

#[tokio::test]
async fn no_infinite_time_that_somebody_writes_by_hand_breaks_a_cycle_or_a_report() {
    let (_db, s) = session().await;
    s.get("set client_min_messages = error; set statement_timeout = '20 s'")
        .await;
    let mut written = 0;
    let mut broken = Vec::new();
    for case in s.get(INFINITE).await.lines() {
        s.get(&format!("begin; {ROWS}; {WAITING}")).await;
        s.get("savepoint s").await;
        if s.attempt(case).await.is_err() {
            s.get("rollback").await;
            continue;
        }
        written += 1;
        s.get("select * from trax.tick(); select * from trax.tick()")
            .await;
        for step in s
            .get("select step, error from trax.failed_step")
            .await
            .lines()
        {
            broken.push(format!("{case}: {step}"));
        }
        for report in ["metrics", "status", "diagnose", "check"] {
            s.get("savepoint s").await;
            let sql = format!("select count(*) from trax.{report}()");
            if let Err(refusal) = s.attempt(&sql).await {
                broken.push(format!("{case}: {report}: {refusal}"));
            }
            s.get("rollback to s").await;
        }
        let next = s.enqueue("'next'").await;
        assert_eq!(s.claim_ids("tasks => '{next}'").await, [next], "{case}");
        s.get("rollback").await;
    }
    println!("{written} columns were set");
    assert!(written > 60, "{written}");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}
