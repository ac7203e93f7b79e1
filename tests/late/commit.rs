//! Transactions that enqueue early and commit late.

use super::{ROUND, UNANNOUNCED, claim, pass, vacuum};
use harness::scheduler::{connect, execute, scheduling, violations};
use harness::session::{Session, session};
use harness::{PATIENCE, eventually};
use tokio_postgres::Client;

fn jobs() -> usize {
    let jobs = std::env::var("TRAX_LATE_JOBS");
    jobs.map_or(4 * ROUND, |text| {
        text.parse().expect("TRAX_LATE_JOBS is a number of jobs")
    })
}

/// Claims, and waits for work when that was not all, until `wanted` are claimed; gives how many claims found nothing.
async fn claim_all(client: &Client, mut wanted: Vec<i64>) -> usize {
    let mut vain = 0;
    while !wanted.is_empty() {
        let claimed = claim(client).await;
        vain += usize::from(claimed.is_empty());
        for job in claimed {
            assert!(wanted.contains(&job), "job {job} and not one of {wanted:?}");
            wanted.retain(|id| *id != job);
        }
        if !wanted.is_empty() {
            execute(client, "call trax.wait_for_work('10 min')").await;
        }
    }
    vain
}

/// A transaction that has enqueued into several lanes and stays open.
async fn late(s: &Session) -> Vec<i64> {
    s.get("begin").await;
    let mut ids = vec![s.enqueue("'a'").await];
    s.get("savepoint half").await;
    ids.push(s.enqueue("'a', priority => 3").await);
    ids.push(s.enqueue("'b', group_name => 'g'").await);
    ids
}

/// Waits until the session of `waiter` waits for work.
async fn waits(s: &Session, pid: i32) {
    eventually("a wait for work", PATIENCE, async || {
        let seen = s
            .get(&format!(
                "select wait_event_type, query from pg_stat_activity where pid = {pid}"
            ))
            .await;
        if seen.starts_with("Extension|call trax.wait_for_work") {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_that_commit_after_many_later_ones_have_passed_are_found_by_the_next_claim() {
    let (db, passer) = session().await;
    let (first, second, third) = (
        Session::of(&db).await,
        Session::of(&db).await,
        Session::of(&db).await,
    );
    let waiter = Session::of(&db).await;
    let firsts = late(&first).await;
    pass(passer.client()).await;
    let seconds = late(&second).await;
    vacuum(passer.client()).await;
    // Left unvacuumed from here on, as behind a snapshot that somebody holds.
    let rounds = (jobs() / ROUND).max(2);
    for _ in 2..rounds {
        pass(passer.client()).await;
    }
    let thirds = late(&third).await;
    pass(passer.client()).await;
    println!("{} jobs passed", rounds * ROUND);

    // Who waits is woken and finds them.
    let pid = waiter.pid();
    let waiting = tokio::spawn(async move {
        let vain = claim_all(waiter.client(), seconds).await;
        (waiter, vain)
    });
    waits(&passer, pid).await;
    second.get("commit").await;
    let found = tokio::time::timeout(PATIENCE, waiting).await;
    let (_, vain) = found.expect("it is woken").expect("the waiter finds them");
    assert!(vain <= 3, "{vain} claims before it found them");

    // Who has let the later ones pass finds them, with the first claim.
    first.get("commit").await;
    assert_eq!(claim_all(passer.client(), firsts).await, 0);

    // And who has seen nothing of it.
    let fresh = Session::of(&db).await;
    third.get("commit").await;
    assert_eq!(claim_all(fresh.client(), thirds).await, 0);
    passer.assert_healthy().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prepared_transaction_that_commits_late_is_found() {
    let server = scheduling()
        .setting("max_prepared_transactions", "2")
        .start()
        .expect("a server starts");
    let database = server
        .database("prepared")
        .await
        .expect("a database is made");
    let client = connect(&database).await;
    execute(&client, "begin").await;
    execute(&client, "select trax.enqueue('a')").await;
    execute(&client, "prepare transaction 'late'").await;
    pass(&client).await;
    vacuum(&client).await;
    pass(&client).await;
    execute(&client, "commit prepared 'late'").await;
    eventually("the prepared job", UNANNOUNCED, async || {
        match claim(&client).await.as_slice() {
            [1] => Ok(()),
            seen => Err(format!("{seen:?}")),
        }
    })
    .await;
    assert_eq!(violations(&client).await, Vec::<String>::new());
}
