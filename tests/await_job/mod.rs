//! Waiting until jobs have ended: the commit that ends a job wakes the waiter, which holds nothing.

mod procedure;
mod waiter;

use harness::PATIENCE;
use harness::prompt::takes_less_than;
use harness::scheduler::{new_name, scheduling};
use harness::session::{Refusal, Session, session};
use harness::standby::Standby;
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use trax_client::testkit::Database;

/// The time limit for an answer to a signalled waiter on an idle machine; without a signal, the
/// next check is half a second away.
const PROMPT: Duration = Duration::from_millis(250);

fn wait_for(job_id: i64, timeout: &str) -> String {
    format!("call trax.await_job({job_id}, '{timeout}', null, null, null)")
}

/// A session that sleeps while it waits for a job.
struct Waiting(JoinHandle<(Session, Result<String, Refusal>)>, i32);

impl Waiting {
    async fn begin(db: &Database, s: &Session, call: &str) -> Self {
        let waiter = Session::of(db).await;
        let pid = waiter.pid();
        let waiting = Waiting(waiter.spawn(call), pid);
        waiting.asleep(s).await;
        waiting
    }

    async fn asleep(&self, s: &Session) {
        s.sees_asleep_in("await_job", self.1).await;
    }

    async fn result(self) -> (Session, Result<String, Refusal>) {
        let ended = tokio::time::timeout(PATIENCE, self.0).await;
        ended.expect("the wait ends").expect("the task ends")
    }

    async fn answer(self) -> String {
        let (_, result) = self.result().await;
        result.unwrap_or_else(|refusal| panic!("refused: {refusal}"))
    }
}

/// Ends a job by `how` while a session waits for it; returns the answer and the time from the
/// commit to the answer.
async fn heard(db: &Database, s: &Session, job_id: i64, how: &str) -> (String, Duration) {
    let waiting = Waiting::begin(db, s, &wait_for(job_id, "10 min")).await;
    s.get(how).await;
    let ended = Instant::now();
    (waiting.answer().await, ended.elapsed())
}

#[tokio::test]
async fn a_waiter_hears_at_once_of_each_way_in_which_a_job_ends() {
    let (db, s) = session().await;
    for (how, answer) in [
        ("select trax.complete({}, '{\"n\": 1e400}')", "completed|"),
        (
            "select trax.fail({}, 'no such file', permanent => true)",
            "failed||no such file",
        ),
        ("select trax.cancel_own({}, 'why')", "cancelled||why"),
        (
            "select trax.cancel(job_id) from trax.lease; select trax.acknowledge_cancel({})",
            "cancelled||",
        ),
    ] {
        let ending = async || {
            let job_id = s.enqueue("'a'").await;
            let how = how.replace("{}", &s.claim_one("").await.key());
            let (said, took) = heard(&db, &s, job_id, &how).await;
            assert!(said.starts_with(answer), "{said}");
            took
        };
        takes_less_than(PROMPT, how, ending).await;
    }
    for how in [
        "select trax.cancel({})",
        "select trax.limit_queue_time({}, '1 us'); select * from trax.tick()",
    ] {
        let ending = async || {
            let job_id = s.enqueue("'a'").await;
            let how = how.replace("{}", &job_id.to_string());
            let (said, took) = heard(&db, &s, job_id, &how).await;
            let (state, _) = said.split_once('|').expect("three columns");
            assert!(["cancelled", "failed"].contains(&state), "{said}");
            took
        };
        takes_less_than(PROMPT, how, ending).await;
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_job_that_has_ended_is_answered_at_once_and_one_that_has_not_when_the_time_is_up() {
    let (_db, s) = session().await;
    let job_id = s.enqueue("'a', max_retries => 1, priority => 3").await;
    assert_eq!(s.get(&wait_for(job_id, "0")).await, "queued||");
    let job = s.claim_one("").await;
    assert_eq!(s.get(&wait_for(job_id, "10 ms")).await, "in_progress||");
    s.get(&format!("select trax.fail({}, 'once')", job.key()))
        .await;
    assert_eq!(
        s.get(&wait_for(job_id, "1 ms")).await,
        "queued||once",
        "it waits for its next attempt"
    );
    s.get(&format!("select trax.run_now({job_id})")).await;
    let job = s.claim_one("").await;
    s.get(&format!("select trax.complete({}, '[1.10]')", job.key()))
        .await;
    assert_eq!(
        s.get(&wait_for(job_id, "10 min")).await,
        "completed|[1.10]|"
    );
    let big = s.enqueue("'b'").await;
    let job = s.claim_one("tasks => '{b}'").await;
    let output = "(select to_jsonb(string_agg(md5(n::text), '')) from generate_series(1, 3000) n)";
    s.get(&format!("select trax.complete({}, {output})", job.key()))
        .await;
    let said = s.get(&wait_for(big, "10 min")).await;
    assert_eq!(
        said.len(),
        "completed||".len() + 2 + 3000 * 32,
        "it is stored out of line"
    );
    let all = format!("call trax.await_jobs(array[{job_id}, 4711, {job_id}], '10 min', null)");
    assert_eq!(s.get(&all).await, format!("{{{job_id},4711}}"));
    let got = format!(
        "select state, attempt, task, priority, output, worker is not null and finished_at is not null
         from trax.get_jobs(array[{job_id}, 4711])"
    );
    assert_eq!(s.get(&got).await, "completed|2|a|3|[1.10]|t");
    assert_eq!(
        s.get("call trax.await_jobs('{}', '1 ms', null)").await,
        "{}"
    );
}

#[tokio::test]
async fn what_cannot_be_waited_for_is_refused_with_its_reason() {
    let (_db, s) = session().await;
    let job_id = s.enqueue("'a'").await;
    for (call, code) in [
        (wait_for(4711, "1 s"), "42704"),
        (wait_for(job_id, "-1 s"), "22023"),
        (
            "call trax.await_job(null, '1 s', null, null, null)".to_owned(),
            "22004",
        ),
        (
            format!("call trax.await_job({job_id}, null, null, null, null)"),
            "22004",
        ),
        (
            "call trax.await_jobs(array[1, null], '1 s', null)".to_owned(),
            "22004",
        ),
        (
            "call trax.await_jobs(null, '1 s', null)".to_owned(),
            "22004",
        ),
        (format!("begin; {}", wait_for(job_id, "1 s")), "25001"),
        (
            "begin; call trax.await_jobs('{1}', '1 s', null)".to_owned(),
            "25001",
        ),
        (
            "call trax.await_jobs(array_fill(1::bigint, array[70000]), '1 s', null)".to_owned(),
            "54000",
        ),
        ("select * from trax.get_jobs(null)".to_owned(), "22004"),
    ] {
        let refusal = s.refusal(&call).await;
        assert_eq!(refusal.code, code, "{call}: {refusal}");
        assert!(
            !refusal.detail.is_empty() && !refusal.hint.is_empty(),
            "{call}: {refusal}"
        );
        s.get("rollback").await;
    }
}

#[tokio::test]
async fn only_what_has_committed_ends_a_wait() {
    let (db, s) = session().await;
    let job_id = s.enqueue("'a', max_retries => 3").await;
    let worker = Session::of(&db).await;
    let waiting = Waiting::begin(&db, &s, &wait_for(job_id, "10 min")).await;
    for (before, after) in [
        ("begin; select trax.complete({})", "rollback"),
        (
            "begin; savepoint s; select trax.complete({})",
            "rollback to s; commit",
        ),
        ("begin; select trax.release({})", "commit"),
    ] {
        let job = worker.claim_one("").await;
        worker.get(&before.replace("{}", &job.key())).await;
        waiting.asleep(&s).await;
        worker.get(after).await;
        waiting.asleep(&s).await;
        s.get("select trax.release(job_id, token) from trax.lease")
            .await;
    }
    let job = worker.claim_one("").await;
    worker
        .get(&format!("begin; select trax.complete({}, '7')", job.key()))
        .await;
    waiting.asleep(&s).await;
    worker.get("commit").await;
    assert_eq!(waiting.answer().await, "completed|7|");
}

#[tokio::test]
async fn a_prepared_end_of_a_job_and_one_that_is_written_by_hand_wake_too() {
    let server = scheduling()
        .setting("max_prepared_transactions", "4")
        .start()
        .expect("a server starts");
    let db = server
        .database(&new_name("ended"))
        .await
        .expect("a database is made");
    let s = Session::of(&db).await;
    let prepared = async || {
        let job_id = s.enqueue("'a'").await;
        let job = s.claim_one("").await;
        let other = Session::of(&db).await;
        other
            .get(&format!(
                "begin; select trax.complete({}, '7'); prepare transaction 'p'",
                job.key()
            ))
            .await;
        let (said, took) = heard(&db, &s, job_id, "commit prepared 'p'").await;
        assert_eq!(said, "completed|7|");
        took
    };
    takes_less_than(PROMPT, "a prepared transaction", prepared).await;
    let by_hand = async || {
        let job_id = s.enqueue("'a'").await;
        let by_hand = "with q as (delete from trax.work_queue returning *)
            insert into trax.run (job_id, queued_at, run_at, finished_at, attempt, priority, final, state, task,
                group_name, input)
            select job_id, queued_at, run_at, now(), 0, priority, true, 'cancelled', task, group_name, input from q";
        let (said, took) = heard(&db, &s, job_id, by_hand).await;
        assert_eq!(said, "cancelled||");
        took
    };
    takes_less_than(PROMPT, "a change by hand", by_hand).await;
}

#[tokio::test]
async fn a_wait_that_is_ended_leaves_nothing_behind() {
    let (db, s) = session().await;
    let (first, second) = (s.enqueue("'a'").await, s.enqueue("'a'").await);
    let waiter = Session::of(&db).await;
    waiter.get("set statement_timeout = '50 ms'").await;
    let refusal = waiter.refusal(&wait_for(first, "10 min")).await;
    assert_eq!(refusal.code, "57014");
    waiter.get("reset statement_timeout").await;
    assert_eq!(waiter.get("select 1").await, "1");
    let pid = waiter.pid();
    let waiting = Waiting(waiter.spawn(wait_for(second, "10 min")), pid);
    waiting.asleep(&s).await;
    s.get(&format!("select pg_cancel_backend({pid})")).await;
    let (waiter, result) = waiting.result().await;
    assert_eq!(result.expect_err("it is cancelled").code, "57014");
    let waiting = Waiting(waiter.spawn(wait_for(second, "10 min")), pid);
    waiting.asleep(&s).await;
    let gone = Waiting::begin(&db, &s, &wait_for(second, "10 min")).await;
    s.get(&format!("select pg_terminate_backend({}, 5000)", gone.1))
        .await;
    drop(gone);
    s.get(&format!(
        "select trax.cancel({first}), trax.cancel({second})"
    ))
    .await;
    assert_eq!(waiting.answer().await, "cancelled||");
}

#[tokio::test]
async fn a_procedure_may_wait_in_a_loop_of_its_own() {
    let (db, s) = session().await;
    let job_id = s.enqueue("'a'").await;
    let call = format!(
        "do $$ declare state text; output jsonb; error text;
         begin call trax.await_job({job_id}, '10 min', state, output, error); raise '%', state; end $$"
    );
    let waiting = Waiting::begin(&db, &s, &call).await;
    s.get(&format!("select trax.cancel({job_id})")).await;
    let (_, result) = waiting.result().await;
    assert_eq!(result.expect_err("it says so").message, "cancelled");
}

#[tokio::test]
async fn of_many_jobs_those_that_have_ended_are_returned_and_the_next_message_ends_a_wait() {
    let (db, s) = session().await;
    s.get("select trax.enqueue_many('a', array_fill('1'::jsonb, array[1000]))")
        .await;
    let wait_behind = async |id: i64| {
        let jobs = s
            .get(&format!(
                "select array_agg(job_id) from trax.job where job_id > {id}"
            ))
            .await;
        format!("call trax.await_jobs('{jobs}', '10 min', null, true)")
    };
    let waiting = Waiting::begin(&db, &s, &wait_behind(0).await).await;
    let first = s.claim_one("").await;
    s.get(&format!("select trax.complete({})", first.key()))
        .await;
    let (waiter, ended) = waiting.result().await;
    assert_eq!(ended.expect("it ends"), format!("{{{}}}", first.id));
    // A job that ends between two calls is reported by the second.
    let second = s.claim_one("").await;
    s.get(&format!("select trax.complete({})", second.key()))
        .await;
    let left = wait_behind(first.id).await;
    assert_eq!(waiter.get(&left).await, format!("{{{}}}", second.id));
    let left = wait_behind(second.id).await;
    let (ended, said) = tokio::join!(waiter.attempt(&left), waiter.attempt("select 'more'"));
    assert_eq!(ended.expect("it ends"), "{}", "there is another message");
    assert_eq!(said.expect("it is answered"), "more");
}

#[tokio::test]
async fn a_role_waits_for_what_it_may_see_and_for_nothing_else() {
    let (db, s) = session().await;
    let (own, other) = (s.enqueue("'mail'").await, s.enqueue("'bill'").await);
    for id in [own, other] {
        let job = s.claim_one("").await;
        assert_eq!(job.id, id);
        s.get(&format!(
            "select trax.complete({}, '\"secret\"')",
            job.key()
        ))
        .await;
    }
    let name = |role: &str| format!("{}_{role}", db.name());
    for (role, grant, sees_other) in [
        ("reads", "'reader'", true),
        ("makes", "'producer'", true),
        ("works", "'worker'", true),
        ("mails", "'producer', tasks => '{mail}'", false),
        ("mans", "'worker', tasks => '{mail}'", false),
    ] {
        let role = name(role);
        s.get(&format!(
            "create role {role} login; select trax.grant_access('{role}', {grant})"
        ))
        .await;
        let them = Session::as_role(&db, &role).await;
        assert_eq!(
            them.get(&wait_for(own, "1 min")).await,
            "completed|\"secret\"|"
        );
        for call in [
            wait_for(other, "1 min"),
            format!("call trax.await_jobs(array[{own}, {other}], '1 min', null)"),
            format!("select output from trax.get_jobs(array[{own}, {other}])"),
        ] {
            match them.attempt(&call).await {
                Ok(_) => assert!(sees_other, "{role}: {call}"),
                Err(refusal) => {
                    assert!(!sees_other, "{role}: {call}: {refusal}");
                    assert_eq!(refusal.code, "42501");
                    assert!(!format!("{refusal:?}").contains("secret"), "{refusal:?}");
                }
            }
        }
    }
    let nobody = name("nobody");
    s.get(&format!("create role {nobody} login")).await;
    let them = Session::as_role(&db, &nobody).await;
    assert_eq!(them.refusal(&wait_for(own, "1 min")).await.code, "42501");
}

#[tokio::test]
async fn without_preloading_and_on_a_standby_a_waiter_looks_by_itself() {
    let server = harness::options()
        .fast()
        .not_preloaded()
        .start()
        .expect("a server starts");
    let db = server.database("plain").await.expect("a database is made");
    let s = Session::of(&db).await;
    let ending = async || {
        let job_id = s.enqueue("'a'").await;
        let (said, took) = heard(&db, &s, job_id, &format!("select trax.cancel({job_id})")).await;
        assert_eq!(said, "cancelled||");
        took
    };
    takes_less_than(Duration::from_millis(1500), "without preloading", ending).await;

    let primary = scheduling().start().expect("a server starts");
    let db = primary
        .database("copied")
        .await
        .expect("a database is made");
    let s = Session::of(&db).await;
    let standby = Standby::of(&primary, &[]).await;
    let there = standby.connect("copied").await;
    let job_id = s.enqueue("'a'").await;
    let lsn = s.get("select pg_current_wal_insert_lsn()").await;
    standby.has_replayed(&there, &lsn).await;
    let call = wait_for(job_id, "1 min");
    let waiting = tokio::spawn(async move { there.simple_query(&call).await });
    s.get(&format!("select trax.cancel({job_id})")).await;
    let ended = tokio::time::timeout(PATIENCE, waiting).await;
    let messages = ended
        .expect("it ends")
        .expect("it runs")
        .expect("it is answered");
    let state = messages.iter().find_map(|message| match message {
        tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0),
        _ => None,
    });
    assert_eq!(state, Some("cancelled"));
}

#[tokio::test]
async fn to_wait_again_for_the_same_jobs_reads_no_table() {
    let (_db, s) = session().await;
    s.get("select trax.enqueue_many('a', array_fill('1'::jsonb, array[1000])); select from trax.claim_next(max_jobs => 1000)")
        .await;
    let jobs = s.get("select array_agg(job_id) from trax.lease").await;
    let wait = format!("call trax.await_jobs('{jobs}', '1 ms', null)");
    let read = async || {
        s.get("select pg_stat_force_next_flush()").await;
        s.number("select idx_scan from pg_stat_user_tables where relid = 'trax.lease'::regclass")
            .await
    };
    let before = read().await;
    s.get(&wait).await;
    let first = read().await;
    s.get(&wait).await;
    let second = read().await;
    assert!(
        (1000..1100).contains(&(first - before)),
        "one probe each: {before} {first}"
    );
    assert!(second - first < 100, "{first} {second}");
}
