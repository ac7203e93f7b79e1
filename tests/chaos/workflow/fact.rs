//! The facts about workflows: what their jobs keep, their rows, and the signals sent to them.

use super::{UNDO, WORKFLOW};
use crate::fact::Facts;
use serde_json::Value;
use std::collections::BTreeMap;
use tokio_postgres::{Client, Error, Row};

/// A workflow, or a job that undoes a step, that has ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Flow {
    /// The shard of the row; 0 without shards.
    pub(crate) shard: i32,
    pub(crate) job: i64,
    pub(crate) task: String,
    pub(crate) state: String,
    /// Its name; a job that continues from a dead letter shares it.
    pub(crate) nonce: String,
    /// Its programme.
    pub(crate) plan: String,
    /// The step that it undoes.
    pub(crate) of: Option<String>,
    pub(crate) parent: Option<i64>,
    pub(crate) output: Value,
    pub(crate) finished_at: i64,
    /// In the order of recording.
    pub(crate) steps: Vec<Kept>,
}

/// A step as the job keeps it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Kept {
    pub(crate) step: String,
    pub(crate) kind: String,
    pub(crate) output: Value,
    pub(crate) recorded_at: i64,
    pub(crate) timed_out: bool,
    /// When its wait began; 0 of other steps.
    pub(crate) since: i64,
    /// When its wait ends at the latest.
    pub(crate) until: Option<i64>,
    /// The name of the signal, or the mode, of a wait.
    pub(crate) waits_for: Option<String>,
    pub(crate) has_undo: bool,
}

/// An attempt to send a signal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Signal {
    pub(crate) job: i64,
    pub(crate) name: String,
    /// Its payload, which no other signal has.
    pub(crate) word: String,
    pub(crate) id: Option<String>,
    /// Before the call.
    pub(crate) asked: i64,
    /// The answer; empty while it is unknown.
    pub(crate) answer: String,
    /// When its commit was acknowledged.
    pub(crate) committed: Option<i64>,
    /// Whether its transaction was rolled back.
    pub(crate) is_withdrawn: bool,
}

impl Signal {
    /// When the job had it for certain.
    pub(crate) fn sent(&self) -> Option<i64> {
        self.committed.filter(|_| self.answer == "sent")
    }
}

/// Replaces the workflows and rows of a shard with the contents of its tables.
pub(crate) async fn read(client: &Client, shard: i32, facts: &mut Facts) -> Result<(), Error> {
    let flows = format!(
        "select job_id, task, state, coalesce(input->>'nonce', ''), coalesce(input->>'plan', ''), input->>'of',
             parent_job_id, output, (extract(epoch from finished_at) * 1000000)::bigint
         from trax.run where final and task in ('{WORKFLOW}', '{UNDO}')"
    );
    let steps = format!(
        "select job_id, s->>'step', s->>'kind', s->'output',
             (extract(epoch from (s->>'recorded_at')::timestamptz) * 1000000)::bigint,
             coalesce((s->>'timed_out')::boolean, false),
             (extract(epoch from (s->'wait'->>'until')::timestamptz) * 1000000)::bigint,
             coalesce(s->'wait'->>'name', s->'wait'->>'mode'), s ? 'undo',
             coalesce((extract(epoch from (s->'wait'->>'since')::timestamptz) * 1000000)::bigint, 0)
         from trax.run, jsonb_array_elements(steps) with ordinality e (s, place)
         where final and task in ('{WORKFLOW}', '{UNDO}') order by job_id, place"
    );
    let mut kept: BTreeMap<i64, Vec<Kept>> = BTreeMap::new();
    for row in client.query(&steps, &[]).await? {
        kept.entry(row.get(0)).or_default().push(step(&row));
    }
    facts.flows.retain(|flow| flow.shard != shard);
    for row in client.query(&flows, &[]).await? {
        let job = row.get(0);
        facts.flows.push(Flow {
            shard,
            job,
            task: row.get(1),
            state: row.get(2),
            nonce: row.get(3),
            plan: row.get(4),
            of: row.get(5),
            parent: row.get(6),
            output: row.get::<_, Option<Value>>(7).unwrap_or_default(),
            finished_at: row.get(8),
            steps: kept.remove(&job).unwrap_or_default(),
        });
    }
    let exists = "select to_regclass('public.deed') is not null";
    if client.query_one(exists, &[]).await?.get(0) {
        let deeds = client.query("select nonce, step from public.deed", &[]);
        let deeds = deeds.await?;
        facts
            .deeds
            .extend(deeds.iter().map(|row| (row.get(0), row.get(1))));
    }
    Ok(())
}

fn step(row: &Row) -> Kept {
    Kept {
        step: row.get(1),
        kind: row.get(2),
        output: row.get::<_, Option<Value>>(3).unwrap_or_default(),
        recorded_at: row.get::<_, Option<i64>>(4).unwrap_or(0),
        timed_out: row.get(5),
        until: row.get(6),
        waits_for: row.get(7),
        has_undo: row.get(8),
        since: row.get(9),
    }
}
