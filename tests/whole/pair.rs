//! Pairs of sessions at one job, group or key: the first keeps its transaction open until
//! `pg_stat_activity` shows that the second waits, or until the second has finished without
//! waiting. No sleeps.
//!
//! The place of each pair's tests; the first call holds its transaction open:
//!
//! | pair | where |
//! |---|---|
//! | claim, claim | `claim/mod.rs` (two open transactions, old snapshots); limited: `limit/group.rs`, `limit/database.rs`; a key: here |
//! | claim, cancel | here |
//! | cancel, claim | `claim/mod.rs` (stepped over); here (after the commit) |
//! | claim, pause; pause, claim | `group/mod.rs`; a limited group: here |
//! | claim, resize | from no limit: `limit/group.rs`; growing, shrinking, no longer limited, of a key: here |
//! | resize, claim | here |
//! | complete, reap; reap, complete | `lease/race.rs`; when the first is undone: here |
//! | heartbeat, reap; reap, heartbeat | here |
//! | heartbeat, complete; complete, heartbeat | `lease/race.rs` |
//! | reap, cancel; reap, fail; reap, release | here |
//! | complete, complete | `lease/race.rs`; the first undone, lists that overlap, `complete_and_claim`: here; opposite orders: `outcome/mod.rs` |
//! | claim behind a key, complete | here |
//! | complete, fail; complete, cancel; fail, cancel; release, cancel | `lease/race.rs` |

use harness::session::{Claimed, Refusal, Session, session};
use trax_client::testkit::Database;

/// Sessions of one database: the first to call, the second, and an observer.
struct Stage {
    db: Database,
    first: Session,
    look: Session,
}

impl Stage {
    async fn set() -> Stage {
        let (db, first) = session().await;
        let look = Session::of(&db).await;
        look.get("set lock_timeout = '30 s'").await;
        Stage { db, first, look }
    }

    /// The first session runs `hold` in a transaction, the second waits for it with `then`, and the
    /// first ends with `end`. Returns the results of both.
    async fn waits(&self, hold: &str, then: &str, end: &str) -> (String, Result<String, Refusal>) {
        let second = Session::of(&self.db).await;
        self.first.get("begin").await;
        let held = self.first.get(hold).await;
        let pid = second.pid();
        let waiting = second.spawn(then);
        self.look.sees_waiting(pid).await;
        self.first.get(end).await;
        let (_, seen) = waiting.await.expect("the second session lives");
        (held, seen)
    }

    /// As [`waits`](Self::waits); returns the second session's result.
    async fn after(&self, hold: &str, then: &str, end: &str) -> String {
        let (_, seen) = self.waits(hold, then, end).await;
        seen.unwrap_or_else(|refusal| panic!("{then} after {hold}: {refusal}"))
    }

    /// Returns a job whose lease has expired.
    async fn overdue(&self) -> Claimed {
        self.first.enqueue("'a'").await;
        let job = self.first.claim_one("lease => '1 s'").await;
        self.first
            .get("update trax.lease set lease_expires_at = now(), reap_at = now()")
            .await;
        job
    }

    async fn state(&self) -> String {
        self.look.get("select state, attempt from trax.job").await
    }

    async fn running(&self) -> i64 {
        self.look.number("select count(*) from trax.lease").await
    }
}

const REAP: &str = "select affected from trax.tick() where step = 'reap_expired_leases'";
const CLAIM: &str = "select count(*) from trax.claim_next(max_jobs => 1, lease => '1 h')";

fn heartbeat(job: &Claimed) -> String {
    format!(
        "select held from trax.heartbeat(array[{}], array['{}']::uuid[], '1 h')",
        job.id, job.token
    )
}

fn complete(job: &Claimed, output: i32) -> String {
    format!("select trax.complete({}, '{output}')", job.key())
}

#[tokio::test]
async fn a_cancel_that_waits_for_a_claim_asks_its_worker_to_stop() {
    let stage = Stage::set().await;
    let id = stage.first.enqueue("'a'").await;
    let cancel = format!("select trax.cancel({id})");
    assert_eq!(stage.after(CLAIM, &cancel, "commit").await, "requested");
    let lease = "select job_id, cancel_requested from trax.lease";
    assert_eq!(stage.look.get(lease).await, format!("{id}|t"));
    stage.look.assert_healthy().await;
}

#[tokio::test]
async fn a_cancel_that_waits_for_a_claim_that_is_undone_cancels_the_job() {
    let stage = Stage::set().await;
    let id = stage.first.enqueue("'a'").await;
    let cancel = format!("select trax.cancel({id})");
    assert_eq!(stage.after(CLAIM, &cancel, "rollback").await, "cancelled");
    assert_eq!(stage.state().await, "cancelled|0");
    assert!(stage.look.claim("").await.is_empty());
    stage.look.assert_healthy().await;
}

#[tokio::test]
async fn a_cancel_of_a_group_that_waits_for_a_claim_reaches_every_job() {
    for (end, asked) in [("commit", 1), ("rollback", 0)] {
        let stage = Stage::set().await;
        for _ in 0..3 {
            stage.first.enqueue("'a', group_name => 'g'").await;
        }
        let cancelled = stage
            .after(CLAIM, "select trax.cancel_group('g')", end)
            .await;
        assert_eq!(cancelled, "3", "{end}");
        let states = stage
            .look
            .get(
                "select count(*) filter (where state = 'cancelled'),
                     (select count(*) from trax.lease where cancel_requested)
                 from trax.job",
            )
            .await;
        assert_eq!(states, format!("{}|{asked}", 3 - asked), "{end}");
        stage.look.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_claim_goes_past_a_job_that_is_being_cancelled_and_never_takes_it_afterwards() {
    let stage = Stage::set().await;
    let id = stage.first.enqueue("'a'").await;
    stage
        .first
        .get(&format!("begin; select trax.cancel({id})"))
        .await;
    assert!(stage.look.claim("").await.is_empty());
    stage.first.get("commit").await;
    assert!(stage.look.claim("").await.is_empty());
    assert_eq!(stage.state().await, "cancelled|0");
}

#[tokio::test]
async fn a_claim_neither_waits_for_a_claim_of_the_same_key_nor_runs_beside_it() {
    for (end, left) in [("commit", 0), ("rollback", 1)] {
        let stage = Stage::set().await;
        stage.first.enqueue("'a', concurrency_key => 'k'").await;
        stage.first.get("begin").await;
        assert_eq!(stage.first.claim("max_jobs => 9").await.len(), 1);
        // The row is free, but the claim it waits behind has not committed.
        stage.look.enqueue("'a', concurrency_key => 'k'").await;
        assert!(stage.look.claim("max_jobs => 9").await.is_empty());
        stage.first.get(end).await;
        assert_eq!(stage.look.claim("max_jobs => 9").await.len(), left, "{end}");
        assert_eq!(stage.running().await, 1, "{end}");
        stage.look.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_completion_that_waits_for_a_claim_lets_in_what_that_claim_took_out_behind_its_key() {
    for end in ["commit", "rollback"] {
        let stage = Stage::set().await;
        stage.first.enqueue("'a', concurrency_key => 'k'").await;
        let job = stage.first.claim_one("lease => '1 h'").await;
        let next = stage.first.enqueue("'a', concurrency_key => 'k'").await;
        let (claimed, completed) = stage.waits(CLAIM, &complete(&job, 1), end).await;
        assert_eq!((claimed.as_str(), completed), ("0", Ok("t".to_owned())));
        assert_eq!(stage.look.claim_ids("max_jobs => 9").await, [next], "{end}");
        stage.look.assert_healthy().await;
    }
}

/// A group with this limit and nine jobs.
async fn limited(limit: i32) -> Stage {
    let stage = Stage::set().await;
    stage
        .first
        .get(&format!(
            "select trax.configure_group('g', max_active_jobs => {limit});
             select count(trax.enqueue('a', group_name => 'g')) from generate_series(1, 9)"
        ))
        .await;
    stage
}

fn resize(limit: i32) -> String {
    format!("select trax.configure_group('g', max_active_jobs => {limit})")
}

#[tokio::test]
async fn a_resize_waits_for_a_claim_and_counts_it() {
    // The old limit, the new limit, and the jobs running after a claim of one and then of as many
    // as allowed.
    for (from, to, most) in [(2, 4, 4), (3, 1, 1), (1, 0, 9), (2, 2, 2)] {
        for end in ["commit", "rollback"] {
            let stage = limited(from).await;
            stage.after(CLAIM, &resize(to), end).await;
            stage.look.claim("max_jobs => 100").await;
            assert_eq!(stage.running().await, most, "{from} to {to}, {end}");
            stage.look.assert_healthy().await;
        }
    }
}

#[tokio::test]
async fn a_resize_that_shrinks_below_what_a_claim_takes_ends_none_and_lets_none_in() {
    let stage = limited(3).await;
    let claim = "select count(*) from trax.claim_next(max_jobs => 3, lease => '1 h')";
    let (claimed, _) = stage.waits(claim, &resize(2), "commit").await;
    assert_eq!(claimed, "3");
    for ends in [(3, 2), (2, 2), (2, 2)] {
        let ended = "select trax.complete(job_id, token) from trax.lease order by job_id limit 1";
        assert_eq!(stage.running().await, ends.0);
        assert!(stage.look.claim("max_jobs => 9").await.is_empty());
        assert_eq!(stage.look.get(ended).await, "t");
        stage.look.claim("max_jobs => 9").await;
        assert_eq!(stage.running().await, ends.1);
    }
}

#[tokio::test]
async fn a_claim_neither_waits_for_a_resize_nor_takes_what_only_one_of_the_limits_allows() {
    for (from, to) in [(1, 3), (3, 1), (2, 0), (0, 2)] {
        for end in ["commit", "rollback"] {
            let stage = limited(from).await;
            stage.first.get("begin").await;
            stage.first.get(&resize(to)).await;
            // A wait would exceed the lock timeout.
            stage.look.claim("max_jobs => 100").await;
            assert_eq!(stage.running().await, 0, "{from} to {to}, {end}");
            stage.first.get(end).await;
            stage.look.claim("max_jobs => 100").await;
            let limit = if end == "commit" { to } else { from };
            let most = if limit == 0 { 9 } else { i64::from(limit) };
            assert_eq!(stage.running().await, most, "{from} to {to}, {end}");
        }
    }
}

#[tokio::test]
async fn a_change_of_how_many_of_a_key_run_waits_for_a_claim_and_counts_it() {
    for (to, most) in [(3, 3), (1, 1)] {
        for end in ["commit", "rollback"] {
            let stage = Stage::set().await;
            stage
                .first
                .get(
                    "select trax.configure_group('default', max_per_key => 2);
                     select count(trax.enqueue('a', concurrency_key => 'k')) from generate_series(1, 9)",
                )
                .await;
            let set = format!("select trax.configure_group('default', max_per_key => {to})");
            stage.after(CLAIM, &set, end).await;
            stage.look.claim("max_jobs => 100").await;
            assert_eq!(stage.running().await, most, "to {to}, {end}");
            stage.look.assert_healthy().await;
        }
    }
}

#[tokio::test]
async fn a_pause_of_a_limited_group_waits_for_its_claim_and_then_nothing_more_is_claimed() {
    for (end, running) in [("commit", 1), ("rollback", 0)] {
        let stage = limited(3).await;
        let pause = "select trax.configure_group('g', enabled => false)";
        stage.after(CLAIM, pause, end).await;
        assert!(stage.look.claim("max_jobs => 9").await.is_empty());
        assert_eq!(stage.running().await, running, "{end}");
    }
}

#[tokio::test]
async fn a_heartbeat_beside_the_reaper_says_lost_once_that_has_committed() {
    let stage = Stage::set().await;
    let job = stage.overdue().await;
    stage.first.get("begin").await;
    assert_eq!(stage.first.get(REAP).await, "1");
    // The heartbeat does not wait: the reaper has not committed yet.
    assert_eq!(stage.look.get(&heartbeat(&job)).await, "t");
    stage.first.get("commit").await;
    assert_eq!(stage.look.get(&heartbeat(&job)).await, "f");
    assert_eq!(stage.state().await, "queued|1");
    stage.look.assert_healthy().await;
}

#[tokio::test]
async fn a_heartbeat_beside_a_reaper_that_is_undone_keeps_the_lease() {
    let stage = Stage::set().await;
    let job = stage.overdue().await;
    stage.first.get("begin").await;
    assert_eq!(stage.first.get(REAP).await, "1");
    assert_eq!(stage.look.get(&heartbeat(&job)).await, "t");
    stage.first.get("rollback").await;
    assert_eq!(stage.look.get(REAP).await, "0");
    assert_eq!(stage.look.get(&complete(&job, 1)).await, "t");
    assert_eq!(stage.state().await, "completed|1");
    stage.look.assert_healthy().await;
}

#[tokio::test]
async fn a_cycle_steps_over_a_lease_that_is_being_extended() {
    for (end, reaped) in [("commit", "0"), ("rollback", "1")] {
        let stage = Stage::set().await;
        let job = stage.overdue().await;
        stage.first.get("begin").await;
        assert_eq!(stage.first.get(&heartbeat(&job)).await, "t");
        assert_eq!(stage.look.get(REAP).await, "0");
        stage.first.get(end).await;
        assert_eq!(stage.look.get(REAP).await, reaped, "{end}");
        stage.look.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_completion_that_waits_for_a_reaper_that_is_undone_is_recorded() {
    let stage = Stage::set().await;
    let job = stage.overdue().await;
    assert_eq!(stage.after(REAP, &complete(&job, 1), "rollback").await, "t");
    let runs = "select state, output, final from trax.run";
    assert_eq!(stage.look.get(runs).await, "completed|1|t");
    stage.look.assert_healthy().await;
}

#[tokio::test]
async fn a_lease_whose_completion_is_undone_is_reaped_by_the_next_cycle() {
    let stage = Stage::set().await;
    let job = stage.overdue().await;
    stage.first.get("begin").await;
    assert_eq!(stage.first.get(&complete(&job, 1)).await, "t");
    assert_eq!(stage.look.get(REAP).await, "0");
    stage.first.get("rollback").await;
    assert_eq!(stage.look.get(REAP).await, "1");
    assert_eq!(stage.look.get(&complete(&job, 1)).await, "f");
    assert_eq!(stage.state().await, "queued|1");
    stage.look.assert_healthy().await;
}

#[tokio::test]
async fn what_waits_for_the_reaper_finds_the_lease_lost_or_the_job_where_it_went() {
    for (then, seen, state) in [
        ("select trax.fail({}, 'no')", "lost", "queued|1"),
        ("select trax.release({})", "f", "queued|1"),
        ("select trax.acknowledge_cancel({})", "f", "queued|1"),
        ("select trax.cancel({id})", "cancelled", "cancelled|1"),
    ] {
        let stage = Stage::set().await;
        let job = stage.overdue().await;
        let then = then
            .replace("{}", &job.key())
            .replace("{id}", &job.id.to_string());
        assert_eq!(stage.after(REAP, &then, "commit").await, seen, "{then}");
        assert_eq!(stage.state().await, state, "{then}");
        stage.look.assert_healthy().await;
    }
}

#[tokio::test]
async fn a_completion_that_waits_for_one_that_is_undone_is_recorded() {
    let stage = Stage::set().await;
    stage.first.enqueue("'a'").await;
    let job = stage.first.claim_one("").await;
    let second = stage
        .after(&complete(&job, 1), &complete(&job, 2), "rollback")
        .await;
    assert_eq!(second, "t");
    assert_eq!(stage.look.get("select output from trax.run").await, "2");
    stage.look.assert_healthy().await;
}

#[tokio::test]
async fn of_two_lists_of_completions_that_overlap_each_job_is_recorded_once() {
    for (end, second) in [("commit", "4"), ("rollback", "2\n3\n4")] {
        let stage = Stage::set().await;
        stage
            .first
            .get("select trax.enqueue_many('a', array_fill('{}'::jsonb, array[4]))")
            .await;
        let jobs = stage.first.claim("max_jobs => 4").await;
        let list = |jobs: &[Claimed]| {
            let ids: Vec<String> = jobs.iter().map(|job| job.id.to_string()).collect();
            let tokens: Vec<&str> = jobs.iter().map(|job| job.token.as_str()).collect();
            format!(
                "select trax.complete_many('{{{}}}', '{{{}}}')",
                ids.join(","),
                tokens.join(",")
            )
        };
        let seen = stage.after(&list(&jobs[..3]), &list(&jobs[1..]), end).await;
        assert_eq!(seen, second, "{end}");
        assert_eq!(stage.look.get(&list(&jobs)).await, {
            if end == "commit" { "" } else { "1" }
        });
        let runs = "select count(*), count(distinct job_id) from trax.run";
        assert_eq!(stage.look.get(runs).await, "4|4", "{end}");
        stage.look.assert_healthy().await;
    }
}

#[tokio::test]
async fn completing_and_claiming_after_another_completion_claims_all_the_same() {
    for (end, seen) in [("commit", "|2"), ("rollback", "1|\n|2")] {
        let stage = Stage::set().await;
        stage.first.enqueue("'a'").await;
        let job = stage.first.claim_one("").await;
        stage.first.enqueue("'a'").await;
        let call = format!(
            "select completed_job_id, job_id from trax.complete_and_claim(array[{}], array['{}']::uuid[])",
            job.id, job.token
        );
        assert_eq!(stage.after(&complete(&job, 1), &call, end).await, seen);
        let runs = "select count(*) from trax.run";
        assert_eq!(stage.look.get(runs).await, "1", "{end}");
        stage.look.assert_healthy().await;
    }
}
