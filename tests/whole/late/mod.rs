//! The head of the queue: a job that becomes claimable after many later ones were claimed is found
//! at once, for every reason of the delay. The same holds after a crash, a restart and a promotion.
//!
//! The number of later jobs is 20,000, or `TRAX_LATE_JOBS`.

mod changed;
mod commit;
mod manual_change;
mod order;
mod restart;

use harness::scheduler::execute;
use std::time::Duration;
use tokio_postgres::Client;
use uuid::Uuid;

/// The time limit for finding unannounced rows: those of transactions prepared before a restart,
/// and restored rows. On an idle machine it takes one second.
const UNANNOUNCED: Duration = Duration::from_secs(20);
/// The number of jobs enqueued and claimed per round.
const ROUND: usize = 5_000;

/// Enqueues `ROUND` jobs, and claims and completes a thousand at a time until nothing is claimable.
async fn pass(client: &Client) {
    execute(
        client,
        &format!(
            "select count(*) from trax.enqueue_many('a', array_fill('{{}}'::jsonb, array[{ROUND}]))"
        ),
    )
    .await;
    let sql = "select completed_job_id, job_id, token
               from trax.complete_and_claim($1, $2, max_jobs => 1000)";
    let call = client.prepare(sql).await.expect("it is a statement");
    let mut held: (Vec<i64>, Vec<Uuid>) = Default::default();
    let mut completed = 0;
    loop {
        let rows = client.query(&call, &[&held.0, &held.1]).await;
        let rows = rows.expect("completing and claiming works");
        let (done, claimed): (Vec<_>, Vec<_>) = rows
            .iter()
            .partition(|row| row.get::<_, Option<i64>>(0).is_some());
        assert_eq!(done.len(), held.0.len(), "a live lease is never lost");
        completed += done.len();
        held = claimed
            .iter()
            .map(|row| (row.get::<_, i64>(1), row.get::<_, Uuid>(2)))
            .unzip();
        if held.0.is_empty() {
            break;
        }
    }
    assert_eq!(completed, ROUND, "what was just enqueued and nothing else");
}

async fn vacuum(client: &Client) {
    execute(client, "vacuum trax.work_queue").await;
    execute(client, "vacuum trax.lease").await;
}

/// Returns the jobs that one claim takes.
async fn claim(client: &Client) -> Vec<i64> {
    let sql = "select job_id from trax.claim_next(max_jobs => 100)";
    let rows = client.query(sql, &[]).await.expect("a claim works");
    rows.iter().map(|row| row.get(0)).collect()
}
