//! Signals: before a wait, during it, and at the same moment.

use super::{place, running, steps};
use harness::session::{Claimed, Session, session};

fn wait(job: &Claimed, step: &str, options: &str) -> String {
    format!(
        "select * from trax.await_signal({}, '{step}', 'click'{options})",
        job.key()
    )
}

fn send(job: &Claimed, payload: &str) -> String {
    format!("select trax.send_signal({}, 'click', '{payload}')", job.id)
}

#[tokio::test]
async fn a_signal_wakes_the_job_that_waits_for_it() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    assert_eq!(s.get(&wait(&job, "w", "")).await, "suspended|");
    assert_eq!(place(&s, job.id).await, "signal|0|1");
    assert!(s.claim("").await.is_empty());
    let other = format!("select trax.send_signal({}, 'other')", job.id);
    assert_eq!(s.get(&other).await, "sent");
    assert!(s.claim("").await.is_empty(), "another signal wakes nobody");
    let why = format!("select detail from trax.explain_job({})", job.id);
    let why = s.get(&why).await;
    assert!(
        why.contains("a signal \"click\". Signals of other names were sent to it: \"other\"."),
        "{why}"
    );
    assert_eq!(s.get(&send(&job, "5")).await, "sent");
    let again = s.claim_one("").await;
    assert_eq!(s.get("select attempt from trax.lease").await, "1");
    assert_eq!(s.get(&wait(&again, "w", "")).await, "received|5");
    assert_eq!(
        s.get(&wait(&again, "w", "")).await,
        "received|5",
        "on a replay"
    );
    assert_eq!(steps(&s, job.id).await, "w|signal|5|t");
    s.assert_healthy().await;
}

#[tokio::test]
async fn signals_of_one_name_are_taken_in_order_each_once() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    for payload in ["1", "2"] {
        assert_eq!(s.get(&send(&job, payload)).await, "sent");
    }
    assert_eq!(s.get(&wait(&job, "a", "")).await, "received|1");
    assert_eq!(s.get(&wait(&job, "b", "")).await, "received|2");
    assert_eq!(s.get(&wait(&job, "a", "")).await, "received|1");
    let null = format!("select trax.send_signal({}, 'click')", job.id);
    s.get(&null).await;
    assert_eq!(s.get(&wait(&job, "c", "")).await, "received|");
    assert_eq!(s.get(&wait(&job, "d", "")).await, "suspended|");
}

#[tokio::test]
async fn a_wait_ends_when_its_time_is_up() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    let soon = ", now() + interval '1 hour'";
    assert_eq!(s.get(&wait(&job, "w", soon)).await, "suspended|");
    assert_eq!(s.tick("promote_delayed").await, 0);
    // The time that was given first counts.
    s.get(
        "update trax.step set wait = wait || jsonb_build_object('until', now());
           update trax.work_queue set wait_until = now()",
    )
    .await;
    assert_eq!(s.tick("promote_delayed").await, 1);
    let again = s.claim_one("").await;
    assert_eq!(s.get(&wait(&again, "w", soon)).await, "timed_out|");
    // A signal that comes later is for a later wait.
    assert_eq!(s.get(&send(&job, "1")).await, "sent");
    assert_eq!(s.get(&wait(&again, "w", soon)).await, "timed_out|");
    let shown = format!("select step, timed_out from trax.read_steps({})", job.id);
    assert_eq!(s.get(&shown).await, "w|t");
    assert_eq!(s.get(&wait(&again, "x", "")).await, "received|1");
    let past = ", now() - interval '1 s'";
    assert_eq!(s.get(&wait(&again, "y", past)).await, "timed_out|");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_signal_of_a_transaction_that_is_open_while_the_job_waits_wakes_it() {
    let (db, s) = session().await;
    let sender = Session::of(&db).await;
    let job = running(&s).await;
    sender.get("begin").await;
    assert_eq!(sender.get(&send(&job, "1")).await, "sent");
    // The job waits for the sender, and then takes the signal.
    let pid = s.pid();
    let waits = s.spawn(wait(&job, "w", ""));
    sender.sees_waiting(pid).await;
    sender.get("commit").await;
    let (s, answer) = waits.await.expect("it ends");
    assert_eq!(answer.expect("it is answered"), "received|1");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_sender_waits_for_the_job_that_is_being_suspended_and_wakes_it() {
    let (db, s) = session().await;
    let job = running(&s).await;
    s.get("begin").await;
    assert_eq!(s.get(&wait(&job, "w", "")).await, "suspended|");
    let sender = Session::of(&db).await;
    let pid = sender.pid();
    let sends = sender.spawn(send(&job, "1"));
    s.sees_waiting(pid).await;
    s.get("commit").await;
    let (_, sent) = sends.await.expect("it ends");
    assert_eq!(sent.expect("it is sent"), "sent");
    let again = s.claim_one("").await;
    assert_eq!(s.get(&wait(&again, "w", "")).await, "received|1");
    s.assert_healthy().await;
}

#[tokio::test]
async fn a_second_sender_waits_for_the_first_so_that_signals_are_in_the_order_of_commits() {
    let (db, s) = session().await;
    let (first, second) = (Session::of(&db).await, Session::of(&db).await);
    let job = running(&s).await;
    for (end, then) in [("commit", "received|1"), ("rollback", "received|2")] {
        first.get("begin").await;
        first.get(&send(&job, "1")).await;
        let other = Session::of(&db).await;
        let pid = other.pid();
        let sends = other.spawn(send(&job, "2"));
        s.sees_waiting(pid).await;
        first.get(end).await;
        let (_, sent) = sends.await.expect("it ends");
        assert_eq!(sent.expect("it is sent"), "sent");
        let step = format!("{end} a");
        assert_eq!(s.get(&wait(&job, &step, "")).await, then);
        if end == "commit" {
            assert_eq!(s.get(&wait(&job, "b", "")).await, "received|2");
        }
    }
    // Other jobs and names wait for nobody.
    first.get("begin").await;
    first.get(&send(&job, "1")).await;
    second.get("set lock_timeout = '2 s'").await;
    let other = format!("select trax.send_signal({}, 'other')", job.id);
    assert_eq!(second.get(&other).await, "sent");
    first.get("rollback").await;
}

#[tokio::test]
async fn a_signal_with_an_id_is_kept_once() {
    let (db, s) = session().await;
    let job = running(&s).await;
    let send = |name: &str| {
        format!(
            "select trax.send_signal({}, '{name}', '1', signal_id => 'x')",
            job.id
        )
    };
    assert_eq!(s.get(&send("click")).await, "sent");
    assert_eq!(s.get(&send("click")).await, "duplicate");
    assert_eq!(s.get(&send("other")).await, "duplicate");
    assert_eq!(s.get(&wait(&job, "a", "")).await, "received|1");
    assert_eq!(
        s.get(&send("click")).await,
        "duplicate",
        "also when it was taken"
    );
    // Of two at once one is kept, also under two names.
    for name in ["click", "other"] {
        let job = running(&s).await;
        let send = |name: &str| {
            format!(
                "select trax.send_signal({}, '{name}', '1', signal_id => 'x')",
                job.id
            )
        };
        let (first, second) = (Session::of(&db).await, Session::of(&db).await);
        first.get("begin").await;
        assert_eq!(first.get(&send("click")).await, "sent");
        let pid = second.pid();
        let sends = second.spawn(send(name));
        s.sees_waiting(pid).await;
        first.get("commit").await;
        let (_, sent) = sends.await.expect("it ends");
        assert_eq!(sent.expect("it is answered"), "duplicate", "{name}");
    }
}

#[tokio::test]
async fn a_signal_to_a_job_that_has_ended_or_never_was_says_so() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    s.get(&format!("select trax.complete({})", job.key())).await;
    assert_eq!(s.get(&send(&job, "1")).await, "ended");
    assert_eq!(
        s.get("select trax.send_signal(999999, 'a')").await,
        "unknown"
    );
    let waiting = s.enqueue("'flow'").await;
    let send = format!("select trax.send_signal({waiting}, 'click', '1')");
    assert_eq!(s.get(&send).await, "sent", "to a job that has not begun");
    let job = s.claim_one("").await;
    assert_eq!(s.get(&wait(&job, "w", "")).await, "received|1");
    s.get(&format!("select trax.cancel_own({})", job.key()))
        .await;
    assert_eq!(s.get("select count(*) from trax.signal").await, "0");
}

#[tokio::test]
async fn a_wait_of_a_stale_attempt_takes_no_signal() {
    let (_db, s) = session().await;
    let job = running(&s).await;
    s.get(&format!("select trax.release({})", job.key())).await;
    let again = s.claim_one("").await;
    s.get(&send(&job, "1")).await;
    assert_eq!(s.get(&wait(&job, "w", "")).await, "lost|");
    assert_eq!(s.get(&wait(&again, "w", "")).await, "received|1");
}

#[tokio::test]
async fn a_signal_that_is_sent_while_its_job_ends_is_swept_by_the_repair() {
    let (db, s) = session().await;
    let sender = Session::of(&db).await;
    let job = running(&s).await;
    sender.get("begin").await;
    assert_eq!(sender.get(&send(&job, "1")).await, "sent");
    s.get(&format!("select trax.complete({})", job.key())).await;
    sender.get("commit").await;
    assert_eq!(s.get("select count(*) from trax.signal").await, "1");
    let fresh = Session::of(&db).await;
    fresh.get("select count(*) from trax.tick()").await;
    assert_eq!(s.get("select count(*) from trax.signal").await, "0");
}

#[tokio::test]
async fn a_requeued_job_gets_the_signals_that_the_dead_one_has_not_taken() {
    let (db, s) = session().await;
    for resolve in ["requeue", "acknowledge"] {
        let job = running(&s).await;
        s.get(&send(&job, "1")).await;
        s.get(&send(&job, "2")).await;
        assert_eq!(s.get(&wait(&job, "w", "")).await, "received|1");
        s.get(&format!(
            "select trax.fail({}, 'no', permanent => true)",
            job.key()
        ))
        .await;
        s.get("select count(*) from trax.tick()").await;
        assert_eq!(s.get(&send(&job, "3")).await, "ended");
        let left = "select payload from trax.signal";
        assert_eq!(s.get(left).await, "2");
        let letter = s.number("select max(id) from trax.dead_letter").await;
        s.get(&format!("select trax.{resolve}_dead_letter({letter})"))
            .await;
        if resolve == "requeue" {
            let again = s.claim_one("").await;
            assert_eq!(s.get(&wait(&again, "w", "")).await, "received|1");
            assert_eq!(s.get(&wait(&again, "v", "")).await, "received|2");
            s.get(&send(&again, "4")).await;
            assert_eq!(s.get(&wait(&again, "u", "")).await, "received|4");
            s.get(&format!("select trax.complete({})", again.key()))
                .await;
        } else {
            let repair = Session::of(&db).await;
            repair.get("select count(*) from trax.tick()").await;
        }
        assert_eq!(s.get("select count(*) from trax.signal").await, "0");
    }
    s.assert_healthy().await;
}
