//! What is known in the end: what clients were told, what handlers did, what the tables say.
//! Checkers look at nothing else. Times are microseconds since 1970; everything runs on one machine
//! and by one clock.

use crate::holder::Hold;
use harness::sweep::LimitChange;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::{Client, Row};

/// What the server has acknowledged to a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledgement {
    pub(crate) at: i64,
    /// What the job's input calls it; stays the same where ids do not.
    pub(crate) nonce: String,
    pub(crate) job: i64,
    /// The unique key it was enqueued with: the answer may be another job then.
    pub(crate) unique: Option<String>,
}

/// A server ended without warning: claims of the second before may be undone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    /// The shard that it is, where there are several.
    pub(crate) shard: Option<i32>,
    pub(crate) at: i64,
}

impl Crash {
    /// Where there are no shards.
    pub(crate) fn at(at: i64) -> Self {
        Crash { shard: None, at }
    }
}

/// An execution by a handler, as the handler's own log tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Execution {
    /// The shard that the job came from, where the log tells it.
    pub(crate) shard: Option<i32>,
    pub(crate) job: i64,
    pub(crate) attempt: i32,
    pub(crate) worker: String,
    pub(crate) nonce: String,
    pub(crate) began: i64,
    /// None: the worker was killed, or it still runs.
    pub(crate) ended: Option<i64>,
    /// How it ended: `ok`, or why not.
    pub(crate) word: String,
}

/// An attempt: of `trax.run`, or of `trax.lease` when it has not finished.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempt {
    /// Where the row is; 0 where there are no shards.
    pub(crate) shard: i32,
    pub(crate) job: i64,
    pub(crate) attempt: i32,
    pub(crate) is_final: bool,
    /// `in_progress` for a lease.
    pub(crate) state: String,
    pub(crate) kind: Option<String>,
    pub(crate) task: String,
    pub(crate) group: String,
    pub(crate) manifest: Option<String>,
    pub(crate) nonce: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) worker: Option<String>,
    pub(crate) scheduled_for: Option<i64>,
    pub(crate) queued_at: i64,
    pub(crate) started_at: Option<i64>,
    pub(crate) finished_at: Option<i64>,
}

/// A row of `trax.job`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    /// Where the row is; 0 where there are no shards.
    pub(crate) shard: i32,
    pub(crate) job: i64,
    pub(crate) state: String,
    pub(crate) nonce: Option<String>,
    pub(crate) unique: Option<String>,
    pub(crate) queued_at: i64,
    pub(crate) finished_at: Option<i64>,
}

/// A manifest whose occurrences are known.
#[derive(Clone, Debug)]
pub(crate) struct Schedule {
    pub(crate) name: String,
    pub(crate) kind: Kind,
}

/// When a manifest runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// At the multiples of so many seconds, some of them left out.
    Some(i64),
    /// At each multiple of so many seconds.
    All(i64),
    /// So many seconds after the last one's end.
    Every(i64),
    /// After a success of this parent, at most once for each.
    After(Cow<'static, str>),
    /// Once.
    Once,
}

/// A row of `trax.dead_letter`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Letter {
    pub(crate) id: i64,
    pub(crate) job: i64,
    /// Left where it was by a move; it goes on elsewhere.
    pub(crate) has_moved: bool,
    /// The job that took its place.
    pub(crate) requeued_as: Option<i64>,
}

/// What a router and its shards say when all moves are done.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// The numbers of the shards.
    pub(crate) shards: BTreeSet<i32>,
    /// Where the router says that each group is; none is on all shards.
    pub(crate) placements: BTreeMap<String, Option<i32>>,
    /// Groups of which the router says that they move.
    pub(crate) moving: Vec<String>,
    /// Batches that are no longer in one shard, and perhaps not in another.
    pub(crate) departures: Vec<String>,
    /// What waits on a shard, or is stored there: the shard, the group and what it is.
    pub(crate) holdings: Vec<(i32, String, &'static str)>,
    /// Groups that no one moved.
    pub(crate) still: Vec<&'static str>,
    pub(crate) letters: Vec<Letter>,
    /// Jobs of which a client was told that they are cancelled and never begin.
    pub(crate) cancelled: Vec<i64>,
    /// Dead letters whose requeueing was acknowledged, with the new job of each.
    pub(crate) requeued: Vec<(i64, i64)>,
}

/// All that checkers look at.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Jobs whose enqueueing was acknowledged.
    pub(crate) enqueued: Vec<Acknowledgement>,
    /// Jobs of transactions that were rolled back.
    pub(crate) withdrawn: Vec<String>,
    /// Completions that were acknowledged.
    pub(crate) completed: Vec<Acknowledgement>,
    pub(crate) executions: Vec<Execution>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) attempts: Vec<Attempt>,
    /// Jobs that were made of dead letters: their input is that of another.
    pub(crate) requeued: BTreeSet<i64>,
    /// Job and nonce of each effect that was committed with a completion.
    pub(crate) ledger: Vec<(i64, String)>,
    pub(crate) crashes: Vec<Crash>,
    /// Promotions that lost what was committed in between.
    pub(crate) losses: Vec<(i64, i64)>,
    /// Groups and how many of each may run, as that changed.
    pub(crate) group_limits: BTreeMap<&'static str, Vec<LimitChange>>,
    /// How many of all jobs may run.
    pub(crate) database_limit: i64,
    /// How many jobs of a manifest may run, where that is not one.
    pub(crate) manifest_limits: BTreeMap<&'static str, i64>,
    /// When a statement may have stood still between its beginning and its effect.
    pub(crate) lags: Vec<(i64, i64)>,
    /// Steps of the clock: what it showed before and after.
    pub(crate) steps: Vec<(i64, i64)>,
    pub(crate) schedules: Vec<Schedule>,
    /// Tokens that were held.
    pub(crate) holds: Vec<Hold>,
    /// What `trax.check()` said at any time.
    pub(crate) complaints: Vec<String>,
    /// Where there are shards.
    pub(crate) cluster: Option<Cluster>,
    /// Whether every job had the time to end.
    pub(crate) is_drained: bool,
}

impl Facts {
    /// Whether the clock may have stepped between two times that it showed. Where it went back a
    /// time says no more what came first; of two times of which only one is such a time it still
    /// does.
    pub(crate) fn is_stepped(&self, from: i64, until: i64) -> bool {
        let touches = |(before, after): &(i64, i64)| {
            *before.min(after) <= until && from <= *before.max(after)
        };
        self.steps.iter().any(touches)
    }

    /// Whether what was committed at `at` may be gone.
    pub(crate) fn may_be_lost(&self, at: i64) -> bool {
        self.losses
            .iter()
            .any(|(from, until)| (*from..=*until).contains(&at))
    }
}

/// A limit that was set before all else.
pub(crate) fn from_the_beginning(limit: i64) -> LimitChange {
    LimitChange {
        limit,
        began: i64::MIN,
        committed: i64::MIN,
    }
}

const ATTEMPTS: &str = "
    select job_id, attempt, final, state, failure_kind, task, group_name, manifest, input->>'nonce' as nonce,
        input->>'key' as key, worker, scheduled_for, queued_at, started_at, finished_at
    from trax.run
    union all
    select job_id, attempt, false, 'in_progress', null, task, group_name, manifest, input->>'nonce', concurrency_key, worker,
        scheduled_for, queued_at, started_at, null
    from trax.lease";

const MICROS: [&str; 4] = ["scheduled_for", "queued_at", "started_at", "finished_at"];

/// Takes what the tables of a shard say in the place of what was known of it: one snapshot, if the
/// client is in a transaction that has one.
pub(crate) async fn read(
    client: &Client,
    shard: i32,
    facts: &mut Facts,
) -> Result<(), tokio_postgres::Error> {
    let times =
        MICROS.map(|name| format!("(extract(epoch from {name}) * 1000000)::bigint as {name}"));
    let sql = format!(
        "select job_id, attempt, final, state, failure_kind, task, group_name, manifest, nonce, key, worker, {} from ({ATTEMPTS}) a",
        times.join(", ")
    );
    let attempts = client.query(&sql, &[]).await?;
    facts.attempts.retain(|one| one.shard != shard);
    facts
        .attempts
        .extend(attempts.iter().map(|row| attempt(row, shard)));
    let jobs = "select job_id, state, input->>'nonce', input->>'unique', (extract(epoch from queued_at) * 1000000)::bigint,
        (extract(epoch from finished_at) * 1000000)::bigint from trax.job";
    let job = |row: &Row| Job {
        shard,
        job: row.get(0),
        state: row.get(1),
        nonce: row.get(2),
        unique: row.get(3),
        queued_at: row.get(4),
        finished_at: row.get(5),
    };
    let jobs = client.query(jobs, &[]).await?;
    facts.jobs.retain(|one| one.shard != shard);
    facts.jobs.extend(jobs.iter().map(job));
    let requeued = "select requeued_job_id from trax.dead_letter where requeued_job_id is not null";
    let requeued = client.query(requeued, &[]).await?;
    facts
        .requeued
        .extend(requeued.iter().map(|row| row.get::<_, i64>(0)));
    let complaints = "select rule || ': ' || coalesce(detail, '') from trax.check()";
    for row in client.query(complaints, &[]).await? {
        facts.complaints.push(row.get(0));
    }
    let exists = "select to_regclass('public.ledger') is not null";
    if client.query_one(exists, &[]).await?.get(0) {
        let ledger = client
            .query("select job_id, nonce from public.ledger", &[])
            .await?;
        facts.ledger = ledger.iter().map(|row| (row.get(0), row.get(1))).collect();
    }
    Ok(())
}

fn attempt(row: &Row, shard: i32) -> Attempt {
    Attempt {
        shard,
        job: row.get("job_id"),
        attempt: row.get("attempt"),
        is_final: row.get("final"),
        state: row.get("state"),
        kind: row.get("failure_kind"),
        task: row.get("task"),
        group: row.get("group_name"),
        manifest: row.get("manifest"),
        nonce: row.get("nonce"),
        key: row.get("key"),
        worker: row.get("worker"),
        scheduled_for: row.get("scheduled_for"),
        queued_at: row.get::<_, Option<i64>>("queued_at").unwrap_or(0),
        started_at: row.get("started_at"),
        finished_at: row.get("finished_at"),
    }
}
