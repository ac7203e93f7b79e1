//! Waiting for a token: in order, without holding anything, and removed with the session.

use super::{Grant, acquire, release, take, wait_for};
use harness::prompt::takes_less_than;
use harness::scheduler::{new_name, scheduling};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually, shared_server};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use trax_client::testkit::{Database, Server};

/// The time limit for a woken waiter on an idle machine; without the bell, the next check is up to
/// a second away.
const PROMPT: Duration = Duration::from_millis(250);

/// A waiting session, which is in the queue and asleep.
struct Waiting {
    pid: i32,
    task: JoinHandle<(Session, Result<String, harness::session::Refusal>)>,
}

impl Waiting {
    /// Starts a wait behind `before` others.
    async fn begin(db: &Database, s: &Session, call: &str, before: i64) -> Self {
        let waiter = Session::of(db).await;
        let pid = waiter.pid();
        let task = waiter.spawn(call);
        s.sees_asleep_in("await_token", pid).await;
        let queue = "select count(*) from trax.concurrency_waiter";
        assert_eq!(s.number(queue).await, before + 1);
        Waiting { pid, task }
    }

    /// Returns the granted token.
    async fn granted(self) -> (Session, Option<Grant>) {
        let (session, result) = self.task.await.expect("the task ends");
        let text = result.unwrap_or_else(|refusal| panic!("refused: {refusal}"));
        (session, Grant::read(&text))
    }
}

async fn five_waiters(db: &Database, s: &Session) -> Vec<Waiting> {
    let mut waiting = Vec::new();
    for number in 0..5 {
        waiting.push(Waiting::begin(db, s, &wait_for("n", 1, "10 min"), number).await);
    }
    waiting
}

/// A server with the preloaded library and schedulers, a database on it, and a session in the
/// database.
async fn preloaded() -> (Server, Database, Session) {
    let server = scheduling().start().expect("a server starts");
    let database = server
        .database(&new_name("tokens"))
        .await
        .expect("a database is made");
    let session = Session::of(&database).await;
    (server, database, session)
}

/// Five waiters are served in order, each when the previous one releases its token; returns the
/// longest delay.
async fn in_order(db: &Database, s: &Session) -> Duration {
    let first = take(s, "n", 1).await.expect("granted");
    let waiting = five_waiters(db, s).await;
    assert_eq!(take(s, "n", 1).await, None);
    assert_eq!(release(s, "n", &first).await, "t");
    let (mut sessions, mut released) = (Vec::new(), Instant::now());
    let mut longest = Duration::ZERO;
    for (number, waiter) in waiting.into_iter().enumerate() {
        let (session, grant) = waiter.granted().await;
        longest = longest.max(released.elapsed());
        let grant = grant.expect("it was its turn");
        let left = s
            .number("select count(*) from trax.concurrency_waiter")
            .await;
        assert_eq!(left, 4 - number as i64, "in the order of coming");
        assert_eq!(release(&session, "n", &grant).await, "t");
        released = Instant::now();
        sessions.push(session);
    }
    s.assert_healthy().await;
    longest
}

#[tokio::test]
async fn waiters_are_served_in_the_order_in_which_they_came_and_at_once() {
    let (_server, db, s) = preloaded().await;
    let serving = async || in_order(&db, &s).await;
    takes_less_than(PROMPT, "serving each of five waiters", serving).await;
}

#[tokio::test]
async fn without_preloading_waiters_are_served_in_order_too() {
    let server = harness::options()
        .fast()
        .not_preloaded()
        .start()
        .expect("a server starts");
    let db = server.database("plain").await.expect("a database is made");
    let s = Session::of(&db).await;
    let serving = async || in_order(&db, &s).await;
    takes_less_than(Duration::from_millis(1500), "serving a waiter", serving).await;
}

#[tokio::test]
async fn a_call_that_does_not_wait_does_not_overtake() {
    let (db, s) = session().await;
    let held = super::take_all(&s, "n", 2, 2).await;
    let waiting = Waiting::begin(&db, &s, &wait_for("n", 2, "10 min"), 0).await;
    s.get("begin").await;
    let first = held[0].clone().expect("granted");
    assert_eq!(release(&s, "n", &first).await, "t");
    assert_eq!(take(&s, "n", 2).await, None, "it is for the waiter");
    s.get("commit").await;
    assert_eq!(waiting.granted().await.1.map(|g| g.slot), Some(1));
}

#[tokio::test]
async fn a_waiter_wakes_when_a_token_expires() {
    let (_server, db, s) = preloaded().await;
    // Measured by the server's clock, from the end of one token to the start of the next.
    takes_less_than(PROMPT, "the wait for an expired token", async || {
        s.get(&acquire("n", 1, "700 ms")).await;
        let end =
            "select (extract(epoch from expires_at) * 1000)::bigint from trax.concurrency_token";
        let end = s.number(end).await;
        let waiter = Session::of(&db).await;
        assert!(Grant::read(&waiter.get(&wait_for("n", 1, "10 min")).await).is_some());
        let taken =
            "select (extract(epoch from acquired_at) * 1000)::bigint from trax.concurrency_token";
        let waited = s.number(taken).await - end;
        s.get("delete from trax.concurrency_token").await;
        Duration::from_millis(waited.try_into().expect("not before its end"))
    })
    .await;
}

#[tokio::test]
async fn a_wait_ends_with_nulls_when_the_time_is_up_and_leaves_no_row() {
    let (_db, s) = session().await;
    take(&s, "n", 1).await;
    takes_less_than(Duration::from_millis(400), "no wait at all", async || {
        let began = Instant::now();
        assert_eq!(s.get(&wait_for("n", 1, "0 s")).await, "||");
        began.elapsed()
    })
    .await;
    let began = Instant::now();
    assert_eq!(s.get(&wait_for("n", 1, "300 ms")).await, "||");
    assert!(began.elapsed() >= Duration::from_millis(300));
    assert!(began.elapsed() < PATIENCE);
    assert_eq!(s.get("select * from trax.concurrency_waiter").await, "");
    assert_eq!(
        s.get(&wait_for("free", 1, "0 s")).await.split('|').next(),
        Some("1")
    );
}

#[tokio::test]
async fn a_larger_limit_serves_those_who_wait_and_a_smaller_one_makes_them_wait() {
    let (_server, db, s) = preloaded().await;
    let first = take(&s, "n", 1).await.expect("granted");
    let one = Waiting::begin(&db, &s, &wait_for("n", 1, "10 min"), 0).await;
    let two = Waiting::begin(&db, &s, &wait_for("n", 1, "10 min"), 1).await;
    let third = take(&s, "n", 3).await;
    assert_eq!(third, None, "both new places are for those who wait");
    let (one, one_has) = one.granted().await;
    let (two, two_has) = two.granted().await;
    assert_eq!(
        super::slots(&[one_has.clone(), two_has.clone()]),
        [Some(2), Some(3)]
    );
    let three = Waiting::begin(&db, &s, &wait_for("n", 3, "10 min"), 0).await;
    assert_eq!(take(&s, "n", 1).await, None, "this shrinks it to one");
    release(&s, "n", &first).await;
    release(&one, "n", &one_has.expect("granted")).await;
    s.sees_asleep_in("await_token", three.pid).await;
    assert_eq!(
        s.number("select count(*) from trax.concurrency_token")
            .await,
        1
    );
    release(&two, "n", &two_has.expect("granted")).await;
    assert_eq!(three.granted().await.1.map(|g| g.slot), Some(1));
    s.assert_healthy().await;
}

/// The first of two waiters ends by `how`; a released token then serves the second at once.
async fn assert_forgotten(how: &str) {
    let (_server, db, s) = preloaded().await;
    let serving = async || forgotten(&db, &s, how).await;
    takes_less_than(PROMPT, "serving the second", serving).await;
}

/// Runs this once; returns the second waiter's delay.
async fn forgotten(db: &Database, s: &Session, how: &str) -> Duration {
    let first = take(s, "n", 1).await.expect("granted");
    let gone = Waiting::begin(db, s, &wait_for("n", 1, "10 min"), 0).await;
    let next = Waiting::begin(db, s, &wait_for("n", 1, "10 min"), 1).await;
    s.get(&how.replace("{pid}", &gone.pid.to_string())).await;
    let released = Instant::now();
    assert_eq!(release(s, "n", &first).await, "t");
    assert!(next.granted().await.1.is_some());
    let took = released.elapsed();
    assert_eq!(s.get("select * from trax.concurrency_waiter").await, "");
    if how.contains("cancel") {
        let (session, result) = gone.task.await.expect("the task ends");
        assert_eq!(result.expect_err("it was cancelled").code, "57014");
        assert_eq!(session.get("select 1").await, "1", "the session goes on");
        assert_eq!(take(&session, "m", 1).await.map(|g| g.slot), Some(1));
    }
    s.get("delete from trax.concurrency_token").await;
    took
}

#[tokio::test]
async fn a_cancelled_waiter_is_forgotten() {
    assert_forgotten("select pg_cancel_backend({pid})").await;
}

#[tokio::test]
async fn a_terminated_waiter_is_forgotten() {
    // The waiter's task panics, since its connection broke.
    assert_forgotten("select pg_terminate_backend({pid})").await;
}

#[tokio::test]
async fn a_waiter_that_goes_after_the_release_is_stepped_over() {
    let (_server, db, s) = preloaded().await;
    let first = take(&s, "n", 1).await.expect("granted");
    let gone = Waiting::begin(&db, &s, &wait_for("n", 1, "10 min"), 0).await;
    let next = Waiting::begin(&db, &s, &wait_for("n", 1, "10 min"), 1).await;
    harness::process::send_signal("STOP", gone.pid);
    release(&s, "n", &first).await;
    assert_eq!(take(&s, "n", 1).await, None);
    s.get(&format!("select pg_terminate_backend({})", gone.pid))
        .await;
    harness::process::send_signal("CONT", gone.pid);
    // Either the waiter took the token just before its end and holds it, or the next one has it.
    let seen = eventually("an outcome", PATIENCE, async || {
        let seen = s
            .get("select (select count(*) from trax.concurrency_token) || '|' || (select count(*) from trax.concurrency_waiter)")
            .await;
        if matches!(seen.as_str(), "1|0" | "1|1") { Ok(seen) } else { Err(seen) }
    })
    .await;
    if seen == "1|0" {
        assert!(next.granted().await.1.is_some());
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_waiter_whose_client_is_gone_ends_and_the_next_is_served() {
    let (_server, db, s) = preloaded().await;
    let first = take(&s, "n", 1).await.expect("granted");
    let (client, connection) = db
        .config()
        .connect(tokio_postgres::NoTls)
        .await
        .expect("the server accepts us");
    let socket = tokio::spawn(connection);
    let row = client.query_one("select pg_backend_pid()", &[]).await;
    let pid: i32 = row.expect("a backend has a process").get(0);
    let call = wait_for("n", 1, "10 min");
    let wait = tokio::spawn(async move { client.simple_query(&call).await });
    s.sees_asleep_in("await_token", pid).await;
    let next = Waiting::begin(&db, &s, &wait_for("n", 1, "10 min"), 1).await;
    // The socket closes as if its client had been killed.
    socket.abort();
    let answer = wait.await.expect("the call ends");
    assert!(answer.is_err(), "the connection is gone");
    let gone = format!("select count(*) from pg_stat_activity where pid = {pid}");
    eventually("the end of its session", PATIENCE, async || {
        match s.get(&gone).await.as_str() {
            "0" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
    release(&s, "n", &first).await;
    assert!(next.granted().await.1.is_some());
}

#[tokio::test]
async fn a_statement_timeout_ends_a_wait() {
    let (_db, s) = session().await;
    take(&s, "n", 1).await;
    s.get("set statement_timeout = '300 ms'").await;
    let refusal = s.refusal(&wait_for("n", 1, "10 min")).await;
    assert_eq!(refusal.code, "57014");
    s.get("reset statement_timeout").await;
    s.get("select * from trax.tick()").await;
    assert_eq!(s.get("select * from trax.concurrency_waiter").await, "");
}

#[tokio::test]
async fn a_restarted_server_knows_no_waiters() {
    let (mut server, db, s) = preloaded().await;
    let first = take(&s, "n", 1).await.expect("granted");
    let _gone = Waiting::begin(&db, &s, &wait_for("n", 1, "10 min"), 0).await;
    drop(s);
    server.restart().expect("the server starts again");
    let s = Session::of(&db).await;
    assert_eq!(release(&s, "n", &first).await, "t");
    assert!(
        take(&s, "n", 1).await.is_some(),
        "and stands in nobody's way"
    );
    // A cycle that is removing the row may not have committed.
    eventually("the row of the waiter is gone", PATIENCE, async || {
        let stale = "select count(*) from trax.concurrency_waiter";
        match s.number(stale).await {
            0 => Ok(()),
            left => Err(left.to_string()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_wait_inside_a_transaction_block_or_a_function_is_refused() {
    let (_db, s) = session().await;
    let call = wait_for("n", 1, "1 s");
    let refusal = s.refusal(&format!("begin; {call}")).await;
    assert_eq!(refusal.code, "25001");
    assert!(refusal.hint.contains("call trax.await_token("), "{refusal}");
    s.get("rollback").await;
    let body = "declare s int; k uuid; e timestamptz; begin call trax.await_token('n', 'h', 1, '1 h', '1 s', s, k, e); end";
    s.get(&format!(
        "create function waits() returns void language plpgsql as $$ {body} $$"
    ))
    .await;
    assert_eq!(s.refusal("select waits()").await.code, "25001");
    let caught = format!("do $$ begin {body}; exception when division_by_zero then null; end $$");
    assert_eq!(
        s.refusal(&caught.replace("begin declare", "begin <<x>> declare"))
            .await
            .code,
        "25001"
    );
    assert_eq!(s.get("select * from trax.concurrency_token").await, "");
}

#[tokio::test]
async fn a_block_in_the_database_may_wait() {
    let (db, s) = session().await;
    s.get(&acquire("n", 1, "400 ms")).await;
    s.get("create table got (slot int)").await;
    let block = "do $$ declare s int; k uuid; e timestamptz; begin
            call trax.await_token('n', 'h', 1, '1 h', '60 s', s, k, e);
            insert into got values (s);
            commit;
            call trax.await_token('n', 'h', 1, '1 h', '10 ms', s, k, e);
            insert into got values (s);
        end $$";
    s.get(block).await;
    assert_eq!(s.get("select count(slot), count(*) from got").await, "1|2");
    Session::of(&db).await.assert_healthy().await;
}

#[tokio::test]
async fn a_waiter_of_little_right_writes_with_its_owners_and_keeps_its_own() {
    let (db, s) = session().await;
    s.get("create role token_waiter login; select trax.grant_access('token_waiter', 'producer'); create schema trap; grant usage on schema trap to token_waiter")
        .await;
    s.get("create function trap.is_less(text, text) returns boolean language plpgsql as $$ begin raise 'trapped as %', current_user; end $$; create operator trap.= (leftarg = text, rightarg = text, function = trap.is_less)").await;
    let them = Session::as_role(&db, "token_waiter").await;
    them.get("set search_path = trap, pg_catalog").await;
    assert!(Grant::read(&them.get(&wait_for("n", 1, "1 s")).await).is_some());
    assert_eq!(them.get(&wait_for("n", 1, "100 ms")).await, "||");
    assert_eq!(them.get("select current_user").await, "token_waiter");
    assert_eq!(them.get("show search_path").await, "trap, pg_catalog");
    let write = "delete from trax.concurrency_token";
    assert_eq!(them.refusal(write).await.code, "42501");
    s.get("drop owned by token_waiter; drop role token_waiter")
        .await;
}

#[tokio::test]
async fn a_token_that_a_clock_ahead_of_now_granted_or_extended_ends_one_length_from_now() {
    let (db, s) = session().await;
    s.get("select trax.acquire_token(n, 'dead', 1, '1 s') from unnest(array['granted', 'extended', 'long']) n")
        .await;
    s.get("select trax.extend_token(name, token, '2 days') from trax.concurrency_token where name = 'long'")
        .await;
    // The effect of a grant and an extension while the clock is 400 days ahead.
    s.get("update trax.concurrency_token set extended_at = extended_at + interval '400 days', expires_at = expires_at + interval '400 days',
               acquired_at = acquired_at + case name when 'granted' then interval '400 days' else interval '0' end
           where name <> 'long'")
        .await;
    let waiting = [
        Waiting::begin(&db, &s, &wait_for("granted", 1, "10 min"), 0).await,
        Waiting::begin(&db, &s, &wait_for("extended", 1, "10 min"), 1).await,
    ];
    Session::of(&db)
        .await
        .get("select * from trax.tick()")
        .await;
    let long = "select expires_at > now() + interval '1 day' and expires_at < now() + interval '3 days' from trax.concurrency_token where name = 'long'";
    assert_eq!(s.get(long).await, "t");
    for waiter in waiting {
        let granted = tokio::time::timeout(PATIENCE, waiter.granted()).await;
        assert!(granted.expect("it ends").1.is_some());
    }
    let ahead = "select count(*) from trax.concurrency_token where acquired_at > clock_timestamp()";
    assert_eq!(s.number(ahead).await, 0);
    let log = std::fs::read_to_string(shared_server().log_file()).expect("the log can be read");
    assert!(log.contains("2 tokens expired too far ahead"));
}

#[tokio::test]
async fn a_wait_whose_procedure_is_dropped_says_so() {
    let (_server, db, s) = preloaded().await;
    let first = take(&s, "n", 1).await.expect("granted");
    let waiting = Waiting::begin(&db, &s, &wait_for("n", 1, "10 min"), 0).await;
    s.get("begin; drop extension trax; create extension trax")
        .await;
    // The waiter looks once a second, so it looks in the middle of the drop.
    Session::of(&db).await.sees_waiting(waiting.pid).await;
    s.get("commit").await;
    let (_session, result) = waiting.task.await.expect("the task ends");
    let refusal = result.expect_err("there is no such procedure any more");
    assert_eq!(refusal.code, "42883", "{refusal}");
    assert!(refusal.message.contains("was dropped"), "{refusal}");
    assert_eq!(release(&s, "n", &first).await, "f");
}
