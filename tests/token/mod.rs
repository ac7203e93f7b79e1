//! Concurrency tokens: slots, expiry, changing limits and errors. Waiting is in `wait`, races in
//! `race`.

mod client;
mod lock;
mod race;
mod wait;

use harness::limit::buffers;
use harness::session::{Refusal, Session, session};

/// A granted token.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Grant {
    slot: i32,
    token: String,
}

impl Grant {
    /// Parses the columns slot, token and expires_at; `None` if they are null or there is no row.
    fn read(text: &str) -> Option<Self> {
        let mut columns = text.split('|');
        Some(Grant {
            slot: columns.next()?.parse().ok()?,
            token: columns.next()?.to_owned(),
        })
    }
}

fn acquire(name: &str, max_holders: i32, ttl: &str) -> String {
    format!("select * from trax.acquire_token('{name}', 'h', {max_holders}, '{ttl}')")
}

fn wait_for(name: &str, max_holders: i32, wait: &str) -> String {
    format!(
        "call trax.await_token('{name}', 'h', {max_holders}, '1 h', '{wait}', null, null, null)"
    )
}

async fn take(s: &Session, name: &str, max_holders: i32) -> Option<Grant> {
    Grant::read(&s.get(&acquire(name, max_holders, "1 h")).await)
}

async fn release(s: &Session, name: &str, grant: &Grant) -> String {
    let token = &grant.token;
    s.get(&format!("select trax.release_token('{name}', '{token}')"))
        .await
}

async fn extend(s: &Session, name: &str, grant: &Grant) -> String {
    let token = &grant.token;
    s.get(&format!(
        "select trax.extend_token('{name}', '{token}', '1 h')"
    ))
    .await
}

fn slots(grants: &[Option<Grant>]) -> Vec<Option<i32>> {
    grants.iter().map(|g| g.as_ref().map(|g| g.slot)).collect()
}

async fn take_all(s: &Session, name: &str, max_holders: i32, times: usize) -> Vec<Option<Grant>> {
    let mut taken = Vec::new();
    for _ in 0..times {
        taken.push(take(s, name, max_holders).await);
    }
    taken
}

#[tokio::test]
async fn the_lowest_free_place_is_given_and_no_row_when_all_are_held() {
    let (_db, s) = session().await;
    let taken = take_all(&s, "n", 3, 4).await;
    assert_eq!(slots(&taken), [Some(1), Some(2), Some(3), None]);
    let (first, second) = (taken[0].clone(), taken[1].clone());
    let (first, second) = (first.expect("granted"), second.expect("granted"));
    assert_eq!(release(&s, "n", &second).await, "t");
    assert_eq!(release(&s, "n", &first).await, "t");
    let again = take_all(&s, "n", 3, 3).await;
    assert_eq!(slots(&again), [Some(1), Some(2), None]);
    let other = take(&s, "other", 1).await;
    assert_eq!(other.map(|g| g.slot), Some(1), "names are apart");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_stale_token_changes_nothing() {
    let (_db, s) = session().await;
    let old = take(&s, "n", 1).await.expect("granted");
    assert_eq!(release(&s, "n", &old).await, "t");
    let new = take(&s, "n", 1).await.expect("granted");
    let before = s.everything().await;
    assert_eq!(release(&s, "n", &old).await, "f");
    assert_eq!(extend(&s, "n", &old).await, "f");
    assert_eq!(
        release(&s, "m", &new).await,
        "f",
        "a token is of one name only"
    );
    assert_eq!(s.everything().await, before);
    assert_eq!(extend(&s, "n", &new).await, "t");
    assert_eq!(release(&s, "n", &new).await, "t");
    assert_eq!(release(&s, "n", &new).await, "f", "given back before");
}

/// An expired token.
async fn expired(s: &Session, name: &str) -> Grant {
    let grant = take(s, name, 1).await.expect("granted");
    s.get(&format!(
        "update trax.concurrency_token set expires_at = clock_timestamp() where name = '{name}'"
    ))
    .await;
    grant
}

#[tokio::test]
async fn an_expired_token_is_lost_and_its_place_free_without_a_cycle() {
    let (_db, s) = session().await;
    let old = expired(&s, "n").await;
    let before = s.everything().await;
    assert_eq!(extend(&s, "n", &old).await, "f", "before anybody took it");
    assert_eq!(release(&s, "n", &old).await, "f");
    assert_eq!(s.everything().await, before);
    let new = take(&s, "n", 1).await.expect("its place is free");
    assert_eq!((new.slot, new.token != old.token), (1, true));
    assert_eq!(extend(&s, "n", &old).await, "f");
    assert_eq!(release(&s, "n", &old).await, "f");
    assert_eq!(extend(&s, "n", &new).await, "t");
}

#[tokio::test]
async fn a_token_lasts_for_its_ttl_from_the_grant_and_from_each_extension() {
    let (_db, s) = session().await;
    let length = "select expires_at - acquired_at from trax.concurrency_token";
    s.get(&acquire("n", 1, "100 s")).await;
    assert_eq!(s.get(length).await, "00:01:40");
    for (ttl, why) in [("2 days", "it may become longer"), ("1 h", "and shorter")] {
        // In one transaction, now() is the same in both statements.
        let sql = format!(
            "begin; select trax.extend_token(name, token, '{ttl}') from trax.concurrency_token;
             select expires_at - now() between '{ttl}' and interval '{ttl}' + '1 min' from trax.concurrency_token;
             commit"
        );
        assert_eq!(s.get(&sql).await, "t\nt", "{why}");
    }
}

#[tokio::test]
async fn a_larger_limit_counts_at_once_and_a_smaller_one_holds() {
    let (_db, s) = session().await;
    let mut held = take_all(&s, "n", 2, 2).await;
    assert_eq!(take(&s, "n", 2).await, None);
    held.extend(take_all(&s, "n", 5, 3).await);
    assert_eq!(slots(&held), [1, 2, 3, 4, 5].map(Some));
    let held: Vec<Grant> = held.into_iter().flatten().collect();
    for grant in &held[..2] {
        assert_eq!(take(&s, "n", 3).await, None);
        assert_eq!(extend(&s, "n", grant).await, "t", "nothing is taken away");
        assert_eq!(release(&s, "n", grant).await, "t");
    }
    assert_eq!(
        take(&s, "n", 3).await,
        None,
        "three are still held: 3, 4, 5"
    );
    assert_eq!(release(&s, "n", &held[2]).await, "t");
    let granted = take_all(&s, "n", 3, 2).await;
    assert_eq!(slots(&granted), [Some(1), None], "only 4 and 5 were held");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_name_that_nobody_holds_has_no_row_and_the_cycle_sweeps_what_expired() {
    let (_db, s) = session().await;
    let grant = take(&s, "released", 1).await.expect("granted");
    release(&s, "released", &grant).await;
    s.get(&acquire("held", 1, "1 h")).await;
    s.get(&acquire("forgotten", 1, "1 h")).await;
    s.get("update trax.concurrency_token set expires_at = clock_timestamp() - interval '61 s' where name = 'forgotten'").await;
    s.get("insert into trax.concurrency_waiter (name, max_holders, holder, pid, waiting_since) values ('x', 1, 'h', 1, now())").await;
    s.get("select * from trax.tick()").await;
    let left = "select name, held, waiting from trax.concurrency_limit order by 1";
    assert_eq!(s.get(left).await, "held|1|0");
}

#[tokio::test]
async fn a_grant_that_is_rolled_back_is_none() {
    let (_db, s) = session().await;
    s.get("begin").await;
    assert!(take(&s, "n", 1).await.is_some());
    assert_eq!(take(&s, "n", 1).await, None, "in the same transaction");
    s.get("rollback").await;
    s.get("begin; savepoint a").await;
    assert!(take(&s, "n", 1).await.is_some());
    s.get("rollback to a").await;
    assert!(take(&s, "n", 1).await.is_some());
    s.get("commit").await;
    assert_eq!(take(&s, "n", 1).await, None);
}

#[tokio::test]
async fn mistakes_say_what_to_type() {
    let (_db, s) = session().await;
    let long = "x".repeat(256);
    for (call, code) in [
        ("acquire_token(null, 'h', 1, '1 s')", "22004"),
        ("acquire_token('n', null, 1, '1 s')", "22004"),
        ("acquire_token('n', 'h', null, '1 s')", "22004"),
        ("acquire_token('n', 'h', 1, null)", "22004"),
        ("acquire_token('', 'h', 1, '1 s')", "22023"),
        ("acquire_token('n', '', 1, '1 s')", "22023"),
        ("acquire_token('n', 'h', 0, '1 s')", "22023"),
        ("acquire_token('n', 'h', 1001, '1 s')", "22023"),
        ("acquire_token('n', 'h', 1, '0 s')", "22023"),
        ("acquire_token('n', 'h', 1, '-1 s')", "22023"),
        ("acquire_token('n', 'h', 1, '11 years')", "22023"),
        (&format!("acquire_token('{long}', 'h', 1, '1 s')"), "54000"),
        (&format!("acquire_token('n', '{long}', 1, '1 s')"), "54000"),
        ("extend_token(null, gen_random_uuid(), '1 s')", "22004"),
        ("extend_token('n', null, '1 s')", "22004"),
        ("extend_token('n', gen_random_uuid(), null)", "22004"),
        ("extend_token('n', gen_random_uuid(), '0 s')", "22023"),
        ("release_token(null, gen_random_uuid())", "22004"),
        ("release_token('n', null)", "22004"),
    ] {
        assert_refused(&s, &format!("select trax.{call}"), code).await;
    }
    for (arguments, code) in [
        ("null, 'h', 1, '1 s', '1 s'", "22004"),
        ("'n', null, 1, '1 s', '1 s'", "22004"),
        ("'n', 'h', null, '1 s', '1 s'", "22004"),
        ("'n', 'h', 1, null, '1 s'", "22004"),
        ("'n', 'h', 1, '1 s', null", "22004"),
        ("'n', 'h', 1, '1 s', '-1 s'", "22023"),
    ] {
        let call = format!("call trax.await_token({arguments}, null, null, null)");
        assert_refused(&s, &call, code).await;
    }
    let read_only = "begin read only; select trax.acquire_token('n', 'h', 1, '1 s')";
    assert_eq!(s.refusal(read_only).await.code, "25006");
}

async fn assert_refused(s: &Session, call: &str, code: &str) {
    let refusal: Refusal = s.refusal(call).await;
    assert_eq!(refusal.code, code, "{call}: {refusal}");
    assert!(
        !refusal.detail.is_empty() && !refusal.hint.is_empty(),
        "{call}: {refusal}"
    );
}

/// Returns the median of the shared buffers that executions of a statement touch.
async fn middle_of_buffers(s: &Session, sql: &str) -> i64 {
    let mut seen = Vec::new();
    for _ in 0..7 {
        seen.push(buffers(s, sql).await);
    }
    seen.sort();
    seen[3]
}

#[tokio::test]
async fn a_token_costs_the_same_beside_a_hundred_thousand_names() {
    let (db, s) = session().await;
    s.get(&acquire("hot", 2, "1 h")).await;
    let calls = [
        acquire("hot", 1, "1 h"),
        "select trax.extend_token('hot', token, '1 h') from trax.concurrency_token where name = 'hot'".to_owned(),
        "select trax.release_token('hot', gen_random_uuid())".to_owned(),
        "select trax.release_token('other', t.token) from trax.acquire_token('other', 'h', 1, '1 h') t"
            .to_owned(),
    ];
    let costs = async |s: &Session| {
        let mut costs = Vec::new();
        for call in &calls {
            costs.push(middle_of_buffers(s, call).await);
        }
        costs
    };
    let before = costs(&Session::of(&db).await).await;
    s.get(
        "insert into trax.concurrency_token (name, slot, max_holders, token, holder, acquired_at, extended_at, expires_at)
             select 'name ' || n, 1, 1, gen_random_uuid(), 'h', now(), now(), now() + interval '1 h' from generate_series(1, 100000) n;
         insert into trax.concurrency_waiter (name, max_holders, holder, pid, waiting_since)
             select 'name ' || n, 1, 'h', 1, now() from generate_series(1, 20000) n",
    )
    .await;
    let after = costs(&Session::of(&db).await).await;
    println!(
        "acquire, extend, stale release, acquire with release: {before:?} buffers before, {after:?} after"
    );
    for (before, after) in before.iter().zip(&after) {
        assert!(
            *after <= before + 20,
            "{before} buffers before and {after} after"
        );
    }
}
