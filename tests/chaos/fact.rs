//! The facts at the end of a campaign: acknowledgements to clients, actions of handlers and the
//! contents of the tables. Checkers use nothing else. Times are microseconds since 1970; everything
//! runs on one machine and by one clock.

use crate::graph;
use crate::graph::fact::{Added, Member};
use crate::holder::Hold;
use crate::workflow;
use crate::workflow::fact::{Flow, Signal};
use harness::sweep::LimitChange;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use tokio_postgres::{Client, Row};

/// An acknowledgement of the server to a client.
#[derive(Clone, Debug, Default)]
pub(crate) struct Acknowledgement {
    pub(crate) at: i64,
    /// The job's name in its input; unlike an id, it survives a move.
    pub(crate) nonce: String,
    pub(crate) job: i64,
    /// The unique key of the call; the answer may then be another job with that key.
    pub(crate) unique: Option<String>,
}

/// A server ended without warning; claims of the second before may be undone.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    /// The crashed shard, if the campaign has shards.
    pub(crate) shard: Option<i32>,
    pub(crate) at: i64,
}

impl Crash {
    /// A crash in a campaign without shards.
    pub(crate) fn at(at: i64) -> Self {
        Crash { shard: None, at }
    }
}

/// An execution, from the handler's own log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Execution {
    /// The shard of the job, if the log names it.
    pub(crate) shard: Option<i32>,
    pub(crate) job: i64,
    pub(crate) attempt: i32,
    pub(crate) worker: String,
    pub(crate) nonce: String,
    pub(crate) began: i64,
    /// `None`: the worker was killed, or the handler still runs.
    pub(crate) ended: Option<i64>,
    /// The result: `ok`, or the reason of the failure.
    pub(crate) word: String,
    /// The steps whose work ran.
    pub(crate) works: Vec<String>,
}

/// An attempt, from `trax.run`, or from `trax.lease` if it has not finished.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attempt {
    /// The shard of the row; 0 without shards.
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
    /// The rate under which it started, its key, and how much it used.
    pub(crate) rate: Option<String>,
    pub(crate) rate_key: Option<String>,
    pub(crate) cost: i64,
}

/// A row of `trax.job`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Job {
    /// The shard of the row; 0 without shards.
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
    /// At multiples of this many seconds, some of them left out.
    Some(i64),
    /// At every multiple of this many seconds.
    All(i64),
    /// This many seconds after the end of the previous run.
    Every(i64),
    /// After a success of this parent, at most once for each success.
    After(Cow<'static, str>),
    /// Once.
    Once,
}

/// A row of `trax.dead_letter`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Letter {
    pub(crate) id: i64,
    pub(crate) job: i64,
    /// Marked as moved to another shard, where the dead letter continues.
    pub(crate) has_moved: bool,
    /// The job that replaced it.
    pub(crate) requeued_as: Option<i64>,
}

/// The state of a router and its shards after all moves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Cluster {
    /// The numbers of the shards.
    pub(crate) shards: BTreeSet<i32>,
    /// The shard of each group according to the router; `None` means all shards.
    pub(crate) placements: BTreeMap<String, Option<i32>>,
    /// Groups that the router lists as moving.
    pub(crate) moving: Vec<String>,
    /// Batches that have left one shard and may not have arrived at another.
    pub(crate) departures: Vec<String>,
    /// Rows on a shard: the shard, the group and the kind of row.
    pub(crate) holdings: Vec<(i32, String, &'static str)>,
    /// Groups that were never moved.
    pub(crate) still: Vec<&'static str>,
    pub(crate) letters: Vec<Letter>,
    /// Jobs whose cancellation before their start was acknowledged.
    pub(crate) cancelled: Vec<i64>,
    /// Acknowledged requeues: the dead letter and its new job.
    pub(crate) requeued: Vec<(i64, i64)>,
}

/// All facts that checkers use.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    /// Acknowledged jobs.
    pub(crate) enqueued: Vec<Acknowledgement>,
    /// Jobs whose transaction was rolled back.
    pub(crate) withdrawn: Vec<String>,
    /// Acknowledged completions.
    pub(crate) completed: Vec<Acknowledgement>,
    pub(crate) executions: Vec<Execution>,
    pub(crate) jobs: Vec<Job>,
    pub(crate) attempts: Vec<Attempt>,
    /// Jobs made from dead letters; they share the input of the original job.
    pub(crate) requeued: BTreeSet<i64>,
    /// Job and nonce of each effect that was committed with a completion.
    pub(crate) ledger: Vec<(i64, String)>,
    /// The workflows and undo jobs that have ended.
    pub(crate) flows: Vec<Flow>,
    /// The workflow and the step of each row that was committed with the record of a step.
    pub(crate) deeds: Vec<(String, String)>,
    pub(crate) signals: Vec<Signal>,
    /// Workflows that were cancelled with their descendants, and when that was acknowledged.
    pub(crate) felled: Vec<(i64, i64)>,
    /// The jobs of graphs and batches.
    pub(crate) members: Vec<Member>,
    /// Acknowledged batches, and jobs in them.
    pub(crate) opened: Vec<i64>,
    pub(crate) added: Vec<Added>,
    /// Batches that were to be sealed, and the time before the call.
    pub(crate) sealed: Vec<(i64, i64)>,
    pub(crate) crashes: Vec<Crash>,
    /// Periods whose commits a promotion may have lost.
    pub(crate) losses: Vec<(i64, i64)>,
    /// The limit of each group over time.
    pub(crate) group_limits: BTreeMap<&'static str, Vec<LimitChange>>,
    /// The limit on running jobs of the database.
    pub(crate) database_limit: i64,
    /// The limit on running jobs of a manifest, where it is not 1.
    pub(crate) manifest_limits: BTreeMap<&'static str, i64>,
    /// Periods in which a statement may have paused between its start and its effect.
    pub(crate) lags: Vec<(i64, i64)>,
    /// Clock steps: the times shown before and after.
    pub(crate) steps: Vec<(i64, i64)>,
    pub(crate) schedules: Vec<Schedule>,
    /// All holds of tokens.
    pub(crate) holds: Vec<Hold>,
    /// Complaints of `trax.check()` during the campaign.
    pub(crate) complaints: Vec<String>,
    /// The state of the shards, if the campaign has any.
    pub(crate) cluster: Option<Cluster>,
    /// Whether all jobs had time to end.
    pub(crate) is_drained: bool,
}

impl Facts {
    /// Whether the interval between two recorded times touches a clock step. Two times in the range
    /// of a step do not show which event came first; the order is known if only one is in that
    /// range.
    pub(crate) fn is_stepped(&self, from: i64, until: i64) -> bool {
        let touches = |(before, after): &(i64, i64)| {
            *before.min(after) <= until && from <= *before.max(after)
        };
        self.steps.iter().any(touches)
    }

    /// Whether a commit at `at` may have been lost.
    pub(crate) fn may_be_lost(&self, at: i64) -> bool {
        self.losses
            .iter()
            .any(|(from, until)| (*from..=*until).contains(&at))
    }
}

/// A limit that applied from the start.
pub(crate) fn from_the_beginning(limit: i64) -> LimitChange {
    LimitChange {
        limit,
        began: i64::MIN,
        committed: i64::MIN,
    }
}

const ATTEMPTS: &str = "
    select job_id, attempt, final, state, failure_kind, task, group_name, manifest, input->>'nonce' as nonce,
        input->>'key' as key, worker, scheduled_for, queued_at, started_at, finished_at, rate, rate_key, cost
    from trax.run
    union all
    select job_id, attempt, false, 'in_progress', null, task, group_name, manifest, input->>'nonce', concurrency_key, worker,
        scheduled_for, queued_at, started_at, null, rate, rate_key, cost
    from trax.lease";

const MICROS: [&str; 4] = ["scheduled_for", "queued_at", "started_at", "finished_at"];

/// Replaces the facts of a shard with the contents of its tables, in one snapshot if the client's
/// transaction has one.
pub(crate) async fn read(
    client: &Client,
    shard: i32,
    facts: &mut Facts,
) -> Result<(), tokio_postgres::Error> {
    let times =
        MICROS.map(|name| format!("(extract(epoch from {name}) * 1000000)::bigint as {name}"));
    let sql = format!(
        "select job_id, attempt, final, state, failure_kind, task, group_name, manifest, nonce, key, worker, rate, rate_key,
             coalesce(cost, 0)::bigint as cost, {} from ({ATTEMPTS}) a",
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
    graph::fact::read(client, facts).await?;
    workflow::fact::read(client, shard, facts).await
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
        rate: row.get("rate"),
        rate_key: row.get("rate_key"),
        cost: row.get("cost"),
    }
}
