//! Dead letters: jobs that failed for good and wait for a user's decision.
//!
//! Enters: a job whose attempts are spent (the outcome that spends the last one writes the dead
//! letter; the repair writes missing ones). Leaves: a new job that replaces it, or a note that no
//! more is to be done. Holds: a job has at most one dead letter, and a manifest at most one
//! unresolved; a resolved one stays resolved.

use crate::access_scope::Scope;
use crate::audit;
use crate::audit::Kind;
use crate::columns::{HIGHEST_PRIORITY, SQL_TASK};
use crate::error::{Error, Result};
use crate::job_graph;
use crate::job_needs;
use crate::job_steps;
use crate::manifest_state;
use crate::rate;
use crate::server::call::{Call, sql_function};
use crate::server::clock::{Timestamp, micros};
use crate::server::quote::literal;
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::toast;
use crate::setting;
use crate::unique_key::KeyTaken;
use crate::work_queue;
use crate::work_queue::NewJob;
use left::Left;
use pgrx::pg_sys;
use std::sync::atomic::{AtomicI64, Ordering};

mod left;

/// How far back the first repair in a backend looks, in microseconds.
const FIRST_MICROS: i64 = 10 * 60 * 1_000_000;
/// The overlap with the previous repair: an outcome commits later than its recorded time.
const OVERLAP_MICROS: i64 = 10 * 1_000_000;
/// The most resolved dead letters that one cycle deletes.
const FORGET_AT_MOST: i64 = 1000;

statement!(
    DeadLetterRepair, "dead_letter/repair.sql",
    { since: TIMESTAMPTZOID, now: TIMESTAMPTZOID }
);
row! {
    /// A locked dead letter.
    struct Letter {
        status: String,
        job_id: i64,
        manifest_id: Option<i64>,
        task: String,
        group_name: String,
        priority: i16,
        max_retries: Option<i32>,
        timeout: Option<pg_sys::Datum>,
        retry_delay: Option<pg_sys::Datum>,
        unique_key: Option<String>,
        concurrency_key: Option<String>,
        manifest: Option<String>,
        input: Option<pg_sys::Datum>,
        trace: Option<pg_sys::Datum>,
        run_as: Option<String>,
        steps: Option<pg_sys::Datum>,
        undone: bool,
        version: Option<String>,
        rate: Option<String>,
        rate_key: Option<String>,
        cost: Option<i32>,
    }
}
row! {
    /// A dead letter of a list.
    struct Listed {
        id: i64,
        manifest_id: Option<i64>,
        unique_key: Option<String>,
    }
}
statement!(DeadLetterOfJobs, "dead_letter/of_jobs.sql", { job_ids: INT8ARRAYOID });
statement!(DeadLetterManifest, "dead_letter/manifest.sql", { id: INT8OID } -> Option<i64>);
statement!(DeadLetterTake, "dead_letter/take.sql", { id: INT8OID } -> Letter);
statement!(
    DeadLetterList, "dead_letter/list.sql",
    {
        task: TEXTOID,
        manifest: TEXTOID,
        group: TEXTOID,
        since: TIMESTAMPTZOID,
        now: TIMESTAMPTZOID,
        at_most: INT8OID,
    } -> Listed
);
statement!(
    DeadLetterLeft, "dead_letter/left.sql",
    {
        task: TEXTOID,
        manifest: TEXTOID,
        group: TEXTOID,
        since: TIMESTAMPTZOID,
        now: TIMESTAMPTZOID,
    } -> Left
);
statement!(
    DeadLetterResolve, "dead_letter/resolve.sql",
    { id: INT8OID, status: TEXTOID, note: TEXTOID, now: TIMESTAMPTZOID, requeued_job_id: INT8OID }
);
statement!(
    DeadLetterForget, "dead_letter/forget.sql",
    { resolved_before: TIMESTAMPTZOID, at_most: INT8OID }
);

sql_function!(
    trax_requeue_dead_letter,
    pg_finfo_trax_requeue_dead_letter,
    |call| {
        let resolution = Resolution {
            fresh: call.optional::<bool>(2).unwrap_or(false),
            ..Resolution::from_call(call)?
        };
        let job_id = spi::connected(|spi| requeue(spi, &resolution))?;
        Ok(call.value(job_id))
    }
);

sql_function!(
    trax_acknowledge_dead_letter,
    pg_finfo_trax_acknowledge_dead_letter,
    |call| {
        let resolution = Resolution::from_call(call)?;
        let acknowledged = spi::connected(|spi| acknowledge(spi, &resolution))?;
        Ok(call.value(acknowledged))
    }
);

sql_function!(
    trax_requeue_dead_letters,
    pg_finfo_trax_requeue_dead_letters,
    |call| {
        let task = call.optional_name(0, "task")?;
        let manifest = call.optional_name(1, "manifest")?;
        let group = call.optional_name(2, "group_name")?;
        let since = call.optional::<Timestamp>(3);
        let max_count = call.optional_within(4, "max_count", 0, i32::MAX)?;
        let (task, manifest, group) = (
            task.and_then(arg),
            manifest.and_then(arg),
            group.and_then(arg),
        );
        let (since, now) = (since.and_then(arg), arg(Timestamp::now()));
        let requeued = spi::connected(|spi| {
            let listed = spi.query(DeadLetterList {
                task,
                manifest,
                group,
                since,
                now,
                at_most: max_count.map(i64::from).and_then(arg),
            });
            let requeued = requeue_all(spi, listed.iter());
            let left = spi.query(DeadLetterLeft {
                task,
                manifest,
                group,
                since,
                now,
            });
            left.one().warn();
            Ok(requeued)
        })?;
        Ok(call.value(requeued))
    }
);

/// A user's decision about one dead letter.
struct Resolution {
    id: i64,
    note: Option<String>,
    /// A job in its place begins from the start, without the recorded steps.
    fresh: bool,
    now: Timestamp,
}

impl Resolution {
    fn from_call(call: &Call) -> Result<Self> {
        Ok(Self {
            id: call.required(0, "id")?,
            note: call.optional_text(1, "note")?,
            fresh: false,
            now: Timestamp::now(),
        })
    }

    fn store(&self, spi: &Spi, action: &str, status: &str, job_id: Option<i64>) {
        spi.execute(DeadLetterResolve {
            id: arg(self.id),
            status: arg(status),
            note: self.note.as_deref().and_then(arg),
            now: arg(self.now),
            requeued_job_id: job_id.and_then(arg),
        });
        let name = self.id.to_string();
        audit::record(spi, action, Kind::DeadLetter, &name, self.note.as_deref());
    }
}

/// Locks a dead letter, its manifest first: outcomes and the cycle lock them in this order.
fn take(spi: &Spi, id: i64) -> Option<Letter> {
    let manifest = spi.query(DeadLetterManifest { id: arg(id) }).first();
    if let Some(Some(manifest_id)) = manifest {
        manifest_state::lock_for_outcome(spi, vec![manifest_id]);
    }
    spi.query(DeadLetterTake { id: arg(id) }).first()
}

/// Queues a new job in place of the dead one, with all its attempts.
fn requeue(spi: &Spi, resolution: &Resolution) -> Result<i64> {
    let letter = take(spi, resolution.id).ok_or_else(|| unknown(resolution.id))?;
    if !letter.is_open() {
        let status = letter.status;
        return Err(Error::wrong_state(format!(
            "dead letter {} is already {status}",
            resolution.id
        ))
        .detail(format!("Its status is \"{status}\"."))
        .hint("If it is to run once more, queue a new job."));
    }
    letter.require_role()?;
    letter.require_rate()?;
    letter.require_steps(resolution)?;
    let (id, key) = (resolution.id, letter.unique_key.clone());
    requeue_letter(spi, resolution, letter).map_err(|KeyTaken { job_id, ended }| {
        let key = key.unwrap_or_default();
        let first = if ended {
            format!(
                "When the time of the key is over, requeue it again, or free the key: delete from trax.unique_key where key = {}",
                literal(&key)
            )
        } else {
            format!("When job {job_id} has ended, requeue it again")
        };
        Error::key_taken(format!("job {job_id} has the unique key \"{key}\""))
            .detail(format!("Dead letter {id} is unchanged: a second job with this key cannot be queued."))
            .hint(format!("{first}; or: select trax.acknowledge_dead_letter({id})"))
    })
}

/// Requeues the open dead letters of a list; returns how many. Unique keys are taken before
/// manifests, and manifests all at once: outcomes of several jobs take them in this order.
fn requeue_all(spi: &Spi, listed: impl Iterator<Item = Listed>) -> i64 {
    let (mut keyed, others): (Vec<Listed>, Vec<Listed>) =
        listed.partition(|letter| letter.unique_key.is_some());
    keyed.sort_by(|one, other| one.unique_key.cmp(&other.unique_key));
    let mut requeued = requeue_listed(spi, &keyed);
    let manifests: Vec<i64> = others
        .iter()
        .filter_map(|letter| letter.manifest_id)
        .collect();
    if !manifests.is_empty() {
        manifest_state::lock_for_outcome(spi, manifests);
    }
    requeued += requeue_listed(spi, &others);
    requeued
}

fn requeue_listed(spi: &Spi, listed: &[Listed]) -> i64 {
    let mut requeued = 0;
    for letter in listed {
        let resolution = Resolution {
            id: letter.id,
            note: None,
            fresh: false,
            now: Timestamp::now(),
        };
        // Another session may have resolved it since it was listed.
        let taken = spi.query(DeadLetterTake {
            id: arg(resolution.id),
        });
        let can_run = |letter: &Letter| {
            letter.is_open()
                && !letter.undone
                && letter.require_role().is_ok()
                && letter.require_rate().is_ok()
                && letter.is_readable(resolution.id)
        };
        if let Some(letter) = taken.first().filter(can_run)
            && requeue_letter(spi, &resolution, letter).is_ok()
        {
            requeued += 1;
        }
    }
    requeued
}

impl Letter {
    fn is_open(&self) -> bool {
        self.status == "awaiting_intervention"
    }

    /// Returns whether input and trace can be read; warns if they are damaged.
    fn is_readable(&self, id: i64) -> bool {
        let values: Vec<pg_sys::Datum> = self.input.into_iter().chain(self.trace).collect();
        match toast::all_fetched(&values) {
            Ok(_) => true,
            Err(error) if error.is_unreadable() => {
                Error::wrong_state(format!(
                    "dead letter {id} cannot be read and was not requeued"
                ))
                .detail(format!(
                    "Its input is damaged on disk: {}.",
                    error.message()
                ))
                .hint(format!(
                    "Restore trax.dead_letter, or type: select trax.acknowledge_dead_letter({id})"
                ))
                .warn();
                false
            }
            Err(error) => error.raise(),
        }
    }

    /// Returns an error for a job whose steps are being undone, unless it is to begin anew.
    fn require_steps(&self, resolution: &Resolution) -> Result<()> {
        if !self.undone || resolution.fresh {
            return Ok(());
        }
        let (id, job_id) = (resolution.id, self.job_id);
        Err(Error::wrong_state(format!("the steps of job {job_id} are being undone"))
            .detail("Jobs that undo them were queued when it ended: a job in its place cannot go on after them.")
            .hint(format!(
                "Let it begin from the start: select trax.requeue_dead_letter({id}, fresh => true)"
            )))
    }

    /// Returns an error for a rate that has been dropped, or whose burst is below the cost.
    fn require_rate(&self) -> Result<()> {
        let (name, key) = (self.rate.clone(), self.rate_key.clone());
        rate::OfJob::of_ended(name, key, self.cost).map(|_| ())
    }

    /// Returns an error for a SQL job whose role is not known any more.
    fn require_role(&self) -> Result<()> {
        if self.task != SQL_TASK || self.run_as.is_some() {
            return Ok(());
        }
        let job_id = self.job_id;
        Err(Error::wrong_state(format!(
            "the role that runs the statement of job {job_id} is not known"
        ))
        .detail("The cycle wrote this dead letter from the history, which has no roles.")
        .hint("Queue the statement again: select trax.enqueue_sql('...'); and resolve the dead letter: select trax.acknowledge_dead_letter(id)"))
    }
}

/// Requeues a locked, open dead letter, unless another job has its unique key.
fn requeue_letter(
    spi: &Spi,
    resolution: &Resolution,
    letter: Letter,
) -> std::result::Result<i64, KeyTaken> {
    let (replaced, manifest_id, input) = (letter.job_id, letter.manifest_id, letter.input);
    let steps = letter.steps.filter(|_| !resolution.fresh);
    let job = fresh_job(letter, resolution.now);
    let job_id = work_queue::enqueue_new(spi, &Scope::default(), &job, input)?.id();
    if let Some(steps) = steps {
        job_steps::restore_for(spi, job_id, steps);
    }
    job_steps::pass_on_signals(spi, replaced, job_id);
    job_graph::replace(spi, replaced, job_id);
    resolution.store(spi, "requeue", "requeued", Some(job_id));
    if let Some(manifest_id) = manifest_id {
        manifest_state::await_requeued(spi, manifest_id, resolution.now);
    }
    Ok(job_id)
}

fn fresh_job(letter: Letter, now: Timestamp) -> NewJob {
    NewJob {
        priority: i32::from(letter.priority).clamp(0, HIGHEST_PRIORITY),
        max_retries: letter.max_retries,
        timeout: letter.timeout,
        retry_delay: letter.retry_delay,
        unique_key: letter.unique_key,
        replaces: Some(letter.job_id),
        concurrency_key: letter.concurrency_key,
        trace: letter.trace,
        run_as: letter.run_as,
        version: letter.version,
        rate: rate::OfJob::stored(letter.rate, letter.rate_key, letter.cost),
        manifest: letter.manifest_id.zip(letter.manifest),
        ..NewJob::plain(letter.task, letter.group_name, now)
    }
}

/// Resolves a dead letter without running anything; returns false when it was resolved before.
fn acknowledge(spi: &Spi, resolution: &Resolution) -> Result<bool> {
    let letter = take(spi, resolution.id).ok_or_else(|| unknown(resolution.id))?;
    if !letter.is_open() {
        return Ok(false);
    }
    resolution.store(spi, "acknowledge", "acknowledged", None);
    job_needs::given_up(letter.job_id);
    if let Some(manifest_id) = letter.manifest_id {
        manifest_state::continue_manifest(spi, manifest_id, resolution.now);
    }
    Ok(true)
}

fn unknown(id: i64) -> Error {
    Error::unknown(format!("dead letter {id} does not exist"))
        .detail(format!("No row of trax.dead_letter has the id {id}."))
        .hint(
            "List them with: select id, task, status, last_error from trax.dead_letter order by id",
        )
}

/// Returns how many of these jobs have a dead letter.
pub(crate) fn written_for(spi: &Spi, spent: Vec<i64>) -> usize {
    if spent.is_empty() {
        return 0;
    }
    spi.query(DeadLetterOfJobs {
        job_ids: arg(spent),
    })
    .len()
}

/// When this backend last looked for missing ones: a pass does not read the same failures again.
static REPAIRED_AT: AtomicI64 = AtomicI64::new(i64::MIN);

/// Writes the dead letter of each failed job that has none; returns how many.
pub(crate) fn repair(spi: &Spi, now: Timestamp) -> usize {
    let last = Timestamp(REPAIRED_AT.load(Ordering::Relaxed));
    let since = if last.is_finite() && last <= now {
        last.plus(-OVERLAP_MICROS)
    } else {
        now.plus(-FIRST_MICROS)
    };
    // A dead letter that was resolved and deleted is not written again: its run is older than the
    // retention.
    let since = since.max(now.plus(-micros(setting::dead_letter_retention())));
    let missing = spi.execute(DeadLetterRepair {
        since: arg(since),
        now: arg(now),
    });
    // Last: after a failure the same runs are read again.
    REPAIRED_AT.store(now.0, Ordering::Relaxed);
    missing
}

/// Deletes dead letters that were resolved before `before`; returns how many.
pub(crate) fn forget_resolved(spi: &Spi, before: Timestamp) -> usize {
    let at_most: Option<pg_sys::Datum> = arg(FORGET_AT_MOST);
    spi.execute(DeadLetterForget {
        resolved_before: arg(before),
        at_most,
    })
}
