//! Sessions that request tokens at the same time.

use super::{acquire, extend, release, take};
use harness::PATIENCE;
use harness::eventually;
use harness::session::{Session, session};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The holds seen by the holders: their slots, and their times by the server's clock.
const HELD: &str =
    "create table held (slot int, taken timestamptz, given timestamptz, ends timestamptz)";

/// Checks that no more than `limit` recorded holds overlap, and no two in one slot.
async fn assert_never_more_than(s: &Session, limit: i64) {
    let most = "select max(n) from (
        select sum(d) over (order by at, d) as n
        from (select taken as at, 1 as d from held union all select least(given, ends), -1 from held) e
    ) x";
    let most = s.number(most).await;
    assert!(most <= limit, "{most} held at once");
    let twice = "select count(*) from held a join held b on a.slot = b.slot and a.ctid < b.ctid
        where tstzrange(a.taken, least(a.given, a.ends)) && tstzrange(b.taken, least(b.given, b.ends))";
    assert_eq!(s.number(twice).await, 0, "two held one place");
}

/// Repeatedly takes a token, records when it was certainly held, and releases it.
async fn contend(s: Session, number: usize, until: Instant) {
    let mut round = number;
    while Instant::now() < until {
        round += 1;
        let ask = if round.is_multiple_of(3) {
            "call trax.await_token('n', 'h', 4, '1 h', '2 s', null, null, null)".to_owned()
        } else {
            acquire(
                "n",
                4,
                if round.is_multiple_of(5) {
                    "3 ms"
                } else {
                    "1 h"
                },
            )
        };
        let row = s.get(&ask).await;
        let columns: Vec<&str> = row.split('|').collect();
        let &[slot, token, expires] = columns.as_slice() else {
            continue;
        };
        if slot.is_empty() {
            continue;
        }
        let taken = s.get("select clock_timestamp()").await;
        let given = s.get("select clock_timestamp()").await;
        if round.is_multiple_of(7) {
            s.get(&format!(
                "begin; select trax.release_token('n', '{token}'); commit"
            ))
            .await;
        } else {
            s.get(&format!("select trax.release_token('n', '{token}')"))
                .await;
        }
        // A token that expired before it was recorded may not have been held at all.
        s.get(&format!(
            "insert into held select {slot}, '{taken}', '{given}', '{expires}' where '{taken}'::timestamptz < '{expires}'"
        ))
        .await;
    }
}

#[tokio::test]
async fn never_more_are_held_than_the_limit_allows_under_many_sessions() {
    let (db, s) = session().await;
    s.get(HELD).await;
    let until = Instant::now() + Duration::from_secs(5);
    let mut tasks = Vec::new();
    for number in 0..16 {
        tasks.push(tokio::spawn(contend(Session::of(&db).await, number, until)));
    }
    for task in tasks {
        task.await.expect("a contender ends well");
    }
    let rounds = s.number("select count(*) from held").await;
    println!("{rounds} holds");
    assert!(rounds > 50, "{rounds} holds");
    assert_never_more_than(&s, 4).await;
    assert_eq!(s.get("select * from trax.concurrency_waiter").await, "");
    s.assert_healthy().await;
}

#[tokio::test]
async fn two_open_transactions_take_two_places_and_neither_waits() {
    let (db, a) = session().await;
    let (b, c) = (Session::of(&db).await, Session::of(&db).await);
    for s in [&a, &b, &c] {
        s.get("set lock_timeout = '30 s'; begin").await;
    }
    assert_eq!(take(&a, "n", 2).await.map(|g| g.slot), Some(1));
    assert_eq!(take(&b, "n", 2).await.map(|g| g.slot), Some(2));
    assert_eq!(take(&c, "n", 2).await, None);
    a.get("rollback").await;
    assert_eq!(take(&c, "n", 2).await.map(|g| g.slot), Some(1));
    b.get("commit").await;
    c.get("commit").await;
    assert_eq!(take(&a, "n", 2).await, None);
    a.assert_healthy().await;
}

#[tokio::test]
async fn a_release_that_has_not_committed_frees_nothing() {
    let (db, a) = session().await;
    let b = Session::of(&db).await;
    let grant = take(&a, "n", 1).await.expect("granted");
    a.get("begin").await;
    assert_eq!(release(&a, "n", &grant).await, "t");
    assert_eq!(take(&b, "n", 1).await, None);
    a.get("rollback").await;
    assert_eq!(extend(&b, "n", &grant).await, "t");
    assert_eq!(release(&b, "n", &grant).await, "t");
    assert!(take(&b, "n", 1).await.is_some());
}

#[tokio::test]
async fn an_extension_in_an_open_transaction_keeps_the_place_beyond_its_time() {
    let (db, a) = session().await;
    let b = Session::of(&db).await;
    let row = a.get(&acquire("n", 1, "300 ms")).await;
    let grant = super::Grant::read(&row).expect("granted");
    a.get("begin").await;
    assert_eq!(extend(&a, "n", &grant).await, "t");
    eventually("the end of its first time", PATIENCE, async || {
        let passed = "select clock_timestamp() > expires_at from trax.concurrency_token";
        match b.get(passed).await.as_str() {
            "t" => Ok(()),
            seen => Err(seen.to_owned()),
        }
    })
    .await;
    assert_eq!(take(&b, "n", 1).await, None, "the writer has not committed");
    a.get("commit").await;
    assert_eq!(take(&b, "n", 1).await, None, "and then it is extended");
}

#[tokio::test]
async fn of_many_who_take_an_expired_place_at_once_one_gets_it() {
    let (db, s) = session().await;
    let mut sessions = Vec::new();
    for _ in 0..8 {
        sessions.push(Session::of(&db).await);
    }
    for round in 0..20 {
        s.get(&acquire("n", 1, "1 h")).await;
        s.get("update trax.concurrency_token set expires_at = clock_timestamp()")
            .await;
        let gate = Arc::new(tokio::sync::Barrier::new(sessions.len()));
        let mut tasks = Vec::new();
        for session in sessions.drain(..) {
            let gate = Arc::clone(&gate);
            tasks.push(tokio::spawn(async move {
                gate.wait().await;
                let got = take(&session, "n", 1).await.is_some();
                (session, got)
            }));
        }
        let mut got = 0;
        for task in tasks {
            let (session, granted) = task.await.expect("it ends well");
            sessions.push(session);
            got += usize::from(granted);
        }
        assert_eq!(got, 1, "in round {round}");
        s.get("delete from trax.concurrency_token").await;
    }
}

#[tokio::test]
async fn a_shrunk_limit_holds_under_many_sessions() {
    let (db, s) = session().await;
    for round in 0..20 {
        let held = super::take_all(&s, "n", 5, 5).await;
        for grant in held.iter().flatten().take(3) {
            release(&s, "n", grant).await;
        }
        // Slots 4 and 5 are held, so of three slots one may be granted.
        let mut tasks = Vec::new();
        for _ in 0..6 {
            let session = Session::of(&db).await;
            tasks.push(tokio::spawn(async move {
                take(&session, "n", 3).await.is_some()
            }));
        }
        for task in tasks {
            task.await.expect("it ends well");
        }
        let held = s
            .number("select count(*) from trax.concurrency_token")
            .await;
        assert_eq!(held, 3, "in round {round}");
        s.get("delete from trax.concurrency_token").await;
    }
}

#[tokio::test]
async fn a_session_that_prefers_serializable_waits_its_turn_without_errors() {
    let (db, s) = session().await;
    let mut tasks = Vec::new();
    for _ in 0..6 {
        let session = Session::of(&db).await;
        session
            .get("set default_transaction_isolation = 'serializable'")
            .await;
        tasks.push(tokio::spawn(async move {
            for _ in 0..15 {
                let row = session.get(&super::wait_for("n", 2, "10 min")).await;
                let grant = super::Grant::read(&row).expect("its turn comes");
                session.get("begin isolation level read committed").await;
                assert_eq!(release(&session, "n", &grant).await, "t");
                session.get("commit").await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("no call is refused");
    }
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_smaller_limit_counts_a_place_that_is_being_granted_above_it() {
    let expired = "insert into trax.concurrency_token
         (name, slot, max_holders, token, holder, acquired_at, expires_at)
         values ('n', 2, 3, gen_random_uuid(), 'gone', now() - interval '2 h', now() - interval '1 h')";
    for before in ["select 1", expired] {
        let (db, s) = session().await;
        let open = Session::of(&db).await;
        let first = take(&s, "n", 3).await.expect("granted");
        s.get(before).await;
        open.get("begin").await;
        assert_eq!(take(&open, "n", 3).await.map(|g| g.slot), Some(2));
        release(&s, "n", &first).await;
        assert_eq!(take(&s, "n", 1).await, None, "2 may come to be held");
        let beside = take(&s, "n", 2).await.expect("2 is within this limit");
        release(&s, "n", &beside).await;
        open.get("rollback").await;
        let first = take(&s, "n", 1).await.expect("granted");
        open.get("begin").await;
        let above = take(&open, "n", 3).await.expect("granted");
        release(&s, "n", &first).await;
        assert_eq!(take(&s, "n", 1).await, None, "2 may come to be held");
        open.get("commit").await;
        assert_eq!(take(&s, "n", 1).await, None, "2 is held");
        release(&s, "n", &above).await;
        assert_eq!(take(&s, "n", 1).await.map(|g| g.slot), Some(1));
        s.assert_healthy().await;
    }
}
