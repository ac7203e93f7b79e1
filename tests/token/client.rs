//! The typed calls, and the guard, which reports at once that its token is lost.

use harness::scheduler::scheduling;
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use std::time::{Duration, Instant};
use trax_client::testkit::Database;
use trax_client::{Client, TokenGuard, TokenRequest};

fn request() -> TokenRequest {
    TokenRequest::new("n", "me").ttl(Duration::from_secs(3))
}

async fn guard(db: &Database, request: TokenRequest) -> TokenGuard {
    let guard = TokenGuard::try_acquire(db.config(), request).await;
    guard
        .expect("the server answers")
        .expect("the name is free")
}

#[tokio::test]
async fn the_four_calls_are_typed() {
    let (_db, s) = session().await;
    let client = Client::new(s.client());
    let ttl = Duration::from_secs(60);
    let first = client.acquire_token(&request()).await.expect("it answers");
    let first = first.expect("it is free");
    assert_eq!(first.slot, 1);
    let none = client.acquire_token(&request()).await.expect("it answers");
    assert_eq!(none, None);
    let wait = Duration::from_millis(50);
    let none = client.await_token(&request(), wait).await;
    assert_eq!(none.expect("it answers"), None);
    let two = request().max_holders(2);
    let second = client.await_token(&two, wait).await.expect("it answers");
    assert_eq!(second.map(|grant| grant.slot), Some(2));
    let extended = client.extend_token("n", first.token, ttl).await;
    assert!(extended.expect("it answers"));
    for expected in [true, false] {
        let released = client.release_token("n", first.token).await;
        assert_eq!(released.expect("it answers"), expected);
    }
}

#[tokio::test]
async fn a_guard_extends_its_token_and_gives_it_back() {
    let (db, s) = session().await;
    let guard = guard(&db, request()).await;
    let age = "select clock_timestamp() - acquired_at > interval '5 s' and expires_at > clock_timestamp() from trax.concurrency_token";
    eventually("more than its length", PATIENCE, async || {
        match s.get(age).await.as_str() {
            "t" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
    assert!(!guard.is_lost());
    let other = TokenGuard::try_acquire(db.config(), request()).await;
    assert!(other.expect("the server answers").is_none());
    assert!(guard.release().await.expect("the server answers"));
    assert_eq!(s.get("select * from trax.concurrency_token").await, "");
}

#[tokio::test]
async fn a_guard_waits_for_its_turn_and_a_dropped_wait_leaves_the_queue() {
    let (db, s) = session().await;
    let held = guard(&db, request()).await;
    let wait = |time| TokenGuard::wait(db.config(), request(), time);
    let none = wait(Duration::from_millis(100)).await;
    assert!(none.expect("the server answers").is_none());
    let waiting = "select count(*) from trax.concurrency_waiter";
    let given_up = tokio::spawn(wait(Duration::from_secs(60)));
    eventually("the wait", PATIENCE, async || {
        let seen = s.number(waiting).await;
        if seen == 1 {
            Ok(())
        } else {
            Err(seen.to_string())
        }
    })
    .await;
    given_up.abort();
    let session = "select count(*) from pg_stat_activity where query like 'call trax.await_token%' and state = 'active' and datname = current_database()";
    eventually("the end of the wait", PATIENCE, async || {
        let seen = s.number(session).await;
        if seen == 0 {
            Ok(())
        } else {
            Err(seen.to_string())
        }
    })
    .await;
    let next = tokio::spawn(wait(Duration::from_secs(60)));
    drop(held);
    let next = next.await.expect("the task ends");
    assert!(next.expect("the server answers").is_some());
}

async fn assert_lost(guard: &TokenGuard, within: Duration) {
    let told = tokio::time::timeout(within, guard.lost()).await;
    assert!(told.is_ok(), "not told within {within:?}");
    assert!(guard.is_lost());
}

#[tokio::test]
async fn a_guard_says_that_its_token_was_taken_away() {
    let (db, s) = session().await;
    // The guard asks three times during the lifetime of its token, and detects its end by itself.
    let ttl = Duration::from_secs(15);
    let guard = guard(&db, request().ttl(ttl)).await;
    s.get("delete from trax.concurrency_token").await;
    assert_lost(&guard, ttl * 2 / 3).await;
    assert!(!guard.release().await.expect("nothing is to be asked"));
}

#[tokio::test]
async fn a_guard_says_so_when_the_server_cannot_be_asked_until_the_time_has_passed() {
    let mut server = scheduling().start().expect("a server starts");
    let db = server.database("gone").await.expect("a database is made");
    let began = Instant::now();
    let guard = guard(&db, request()).await;
    server.kill().expect("the server ends");
    assert_lost(&guard, PATIENCE).await;
    assert!(
        began.elapsed() > Duration::from_millis(2900),
        "it was held until then"
    );
}

#[tokio::test]
async fn a_guard_outlives_its_connection() {
    let (db, s) = session().await;
    let guard = guard(&db, request()).await;
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity where application_name = 'trax token n' and datname = current_database()";
    assert_eq!(s.number(end).await, 1);
    let age = "select clock_timestamp() - acquired_at > interval '5 s' and expires_at > clock_timestamp() from trax.concurrency_token";
    eventually("more than its length", PATIENCE, async || {
        match s.get(age).await.as_str() {
            "t" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
    assert!(guard.release().await.expect("the server answers"));
    Session::of(&db).await.assert_healthy().await;
}
