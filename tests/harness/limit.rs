//! Helpers for tests of limits: the number of concurrent attempts, and the cost of a statement.

use crate::session::Session;
use crate::{PATIENCE, eventually};
use tokio::task::JoinHandle;

/// Returns the most attempts that ran at one instant by the server's clock, for each value of `by`
/// (SQL over the columns that `trax.run` and `trax.lease` share), in lines such as `g=2`.
pub async fn most_at_once(s: &Session, by: &str) -> String {
    s.get(&format!(
        "with span as (
             select {by} as what, started_at, finished_at from trax.run where started_at is not null
             union all
             select {by}, started_at, 'infinity' from trax.lease
         ), event as (
             select what, started_at as at, 1 as step from span
             union all
             select what, finished_at, -1 from span
         )
         select what || '=' || max(running)
         from (select what, sum(step) over (partition by what order by at, step) as running from event) e
         where what is not null
         group by what
         order by what"
    ))
    .await
}

/// Returns the shared buffers that one execution of a statement touches.
pub async fn buffers(s: &Session, sql: &str) -> i64 {
    let plan = s
        .get(&format!("explain (analyze, buffers, format json) {sql}"))
        .await;
    let plan: serde_json::Value = serde_json::from_str(&plan).expect("explain gives JSON");
    let blocks = |key: &str| plan[0]["Plan"][key].as_i64().expect("a number of blocks");
    blocks("Shared Hit Blocks") + blocks("Shared Read Blocks")
}

/// Returns the median buffers of several executions, after some that fill this backend's caches.
pub async fn typical_buffers(s: &Session, sql: &str) -> i64 {
    for _ in 0..3 {
        s.get(sql).await;
    }
    let mut seen = Vec::new();
    for _ in 0..5 {
        seen.push(buffers(s, sql).await);
    }
    seen.sort();
    seen[2]
}

/// Waits until the backend `pid`, which runs `task`, waits for a lock, or has finished without
/// waiting.
pub async fn waits_or_ends<T>(s: &Session, pid: i32, task: &JoinHandle<T>) {
    let sql =
        format!("select state, wait_event_type, query from pg_stat_activity where pid = {pid}");
    eventually(
        "a wait or the end of the other session's work",
        PATIENCE,
        async || {
            // Within a transaction, the first snapshot of the statistics would be seen again.
            s.get("select pg_stat_clear_snapshot()").await;
            let seen = s.get(&sql).await;
            if task.is_finished() || seen.starts_with("active|Lock|") {
                Ok(())
            } else {
                Err(seen)
            }
        },
    )
    .await;
}
