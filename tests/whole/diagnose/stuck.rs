//! A scheduler whose cycles do not end, or do not begin.

use super::{beside, details, fix, is_sound, sound};
use harness::scheduler::{live_server, new_name};
use harness::session::Session;
use harness::{PATIENCE, eventually};

/// Locks the queue, makes a schedule due by a statement, and sees the stuck scheduler reported with
/// `words` until the lock is gone.
async fn is_stuck(s: &Session, cause: &str, words: &str) {
    let holder = beside(s).await;
    holder
        .get("begin; lock table trax.work_queue in exclusive mode")
        .await;
    beside(s).await.get(cause).await;
    eventually("the trouble is told", PATIENCE, async || {
        match details(s, "scheduler_stuck").await {
            seen if seen.contains(words) => Ok(()),
            seen => Err(seen),
        }
    })
    .await;
    let typed = fix(s, "scheduler_stuck").await;
    assert!(typed.contains("pg_blocking_pids"), "{typed}");
    holder.get("rollback").await;
    is_sound(s).await;
}

#[tokio::test]
async fn a_scheduler_whose_cycles_do_not_end_is_stuck() {
    let due = "select trax.schedule('m', 't', every => '1 h')";
    is_stuck(&sound().await, due, "its last cycle began").await;
}

#[tokio::test]
async fn a_scheduler_whose_first_cycle_does_not_end_is_stuck() {
    let database = live_server().plain_database(&new_name("live")).await;
    let s = Session::of(&database.expect("a database is made")).await;
    s.get("begin; create extension trax; select trax.pause(); commit")
        .await;
    eventually("the scheduler", PATIENCE, async || {
        match details(&s, "scheduler_paused").await {
            seen if seen.is_empty() => Err(seen),
            _ => Ok(()),
        }
    })
    .await;
    is_stuck(&s, "select trax.resume()", "and has ended no cycle").await;
}

#[tokio::test]
async fn who_keeps_all_cycles_out_is_named() {
    let s = sound().await;
    let holder = beside(&s).await;
    eventually("the lock of the cycle", PATIENCE, async || {
        match holder.get("begin; select count(*) from trax.tick()").await {
            seen if seen != "0" => Ok(()),
            seen => {
                holder.get("rollback").await;
                Err(seen)
            }
        }
    })
    .await;
    let kill = format!("select pg_terminate_backend({})", holder.pid());
    let status = "select value, healthy, hint from trax.status() where item = 'scheduler'";
    eventually("status names it", PATIENCE, async || {
        let seen = s.get(status).await;
        let named = format!("held up by process {}|f|", holder.pid());
        if seen.starts_with(&named) && seen.contains(&kill) {
            Ok(())
        } else {
            Err(seen)
        }
    })
    .await;
    assert!(fix(&s, "cycle_held").await.contains(&kill));
    s.get(&kill).await;
    is_sound(&s).await;
}
