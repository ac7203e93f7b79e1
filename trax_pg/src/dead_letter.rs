//! Dead letters: jobs that failed for good and wait for a person.
//!
//! Enters: a job whose attempts are spent (written by the outcome that spends them; the cycle is
//! the net under it). Leaves: a fresh job in its place, or a note that nothing more is to be done.
//! Holds: a job has one dead letter at most, and a manifest one that is unresolved; what is
//! resolved stays so.

use crate::columns::HIGHEST_PRIORITY;
use crate::error::{Error, Result};
use crate::manifest_state;
use crate::manifest_state::ParkedOn;
use crate::manifest_state::job_ended;
use crate::manifest_state::job_ended::Ended;
use crate::server::call::{Call, sql_function};
use crate::server::clock::{Timestamp, micros};
use crate::server::spi;
use crate::server::spi::{Spi, SpiRow, SpiRows, arg, statement};
use crate::setting;
use crate::work_queue;
use crate::work_queue::NewJob;
use pgrx::pg_sys;
use std::sync::atomic::{AtomicI64, Ordering};

/// How far back the net looks in its first cycle in a backend, in microseconds.
const FIRST_NET_MICROS: i64 = 10 * 60 * 1_000_000;
/// By how much it overlaps with the cycle before: an outcome commits later than its time says.
const NET_OVERLAP_MICROS: i64 = 10 * 1_000_000;
/// Most resolved dead letters that one cycle forgets.
const FORGET_AT_MOST: i64 = 1000;

statement!(
    DEAD_LETTER_REAP,
    "dead_letter/reap.sql",
    TIMESTAMPTZOID,
    TIMESTAMPTZOID
);
statement!(DEAD_LETTER_OF_JOBS, "dead_letter/of_jobs.sql", INT8ARRAYOID);
statement!(DEAD_LETTER_MANIFEST, "dead_letter/manifest.sql", INT8OID);
statement!(DEAD_LETTER_TAKE, "dead_letter/take.sql", INT8OID);
statement!(
    DEAD_LETTER_LIST,
    "dead_letter/list.sql",
    TEXTOID,
    TEXTOID,
    TEXTOID,
    TIMESTAMPTZOID,
    INT8OID
);
statement!(
    DEAD_LETTER_RESOLVE,
    "dead_letter/resolve.sql",
    INT8OID,
    TEXTOID,
    TEXTOID,
    TIMESTAMPTZOID,
    INT8OID
);
statement!(
    DEAD_LETTER_FORGET,
    "dead_letter/forget.sql",
    TIMESTAMPTZOID,
    INT8OID
);

sql_function!(
    trax_requeue_dead_letter,
    pg_finfo_trax_requeue_dead_letter,
    |call| {
        let resolution = Resolution::from_call(call)?;
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
        let names = [
            call.optional_name(0, "task")?,
            call.optional_name(1, "manifest")?,
            call.optional_name(2, "group_name")?,
        ];
        let since = call.optional::<Timestamp>(3);
        let max_count = call.optional_within(4, "max_count", 0, i32::MAX)?;
        let requeued = spi::connected(|spi| {
            let mut arguments: Vec<_> = names
                .iter()
                .map(|name| name.as_deref().and_then(arg))
                .collect();
            arguments.push(since.and_then(arg));
            arguments.push(max_count.map(i64::from).and_then(arg));
            let listed = spi.query(&DEAD_LETTER_LIST, &arguments);
            Ok(requeue_all(spi, &listed))
        })?;
        Ok(call.value(requeued))
    }
);

/// What a person decides about one dead letter.
struct Resolution {
    id: i64,
    note: Option<String>,
    now: Timestamp,
}

impl Resolution {
    fn from_call(call: &Call) -> Result<Self> {
        Ok(Self {
            id: call.required(0, "id")?,
            note: call.optional_text(1, "note")?,
            now: Timestamp::now(),
        })
    }

    fn store(&self, spi: &Spi, status: &str, job_id: Option<i64>) {
        let note = self.note.as_deref().and_then(arg);
        let arguments = [
            arg(self.id),
            arg(status),
            note,
            arg(self.now),
            job_id.and_then(arg),
        ];
        spi.execute(&DEAD_LETTER_RESOLVE, &arguments);
    }
}

/// Locks a dead letter, its manifest first: outcomes and the cycle take them in this order.
fn take(spi: &Spi, id: i64) -> SpiRows<'_> {
    let rows = spi.query(&DEAD_LETTER_MANIFEST, &[arg(id)]);
    if let Some(manifest_id) = rows.first().and_then(|row| row.get(1)) {
        manifest_state::hold(spi, vec![manifest_id]);
    }
    spi.query(&DEAD_LETTER_TAKE, &[arg(id)])
}

/// Queues a fresh job in place of the dead one, with fresh attempts.
fn requeue(spi: &Spi, resolution: &Resolution) -> Result<i64> {
    let rows = take(spi, resolution.id);
    let row = rows.first().ok_or_else(|| unknown(resolution.id))?;
    let status: String = row.must(1);
    if !is_open(&row) {
        return Err(Error::wrong_state(format!(
            "dead letter {} is already {status}",
            resolution.id
        ))
        .detail(format!("Its status is \"{status}\"."))
        .hint("Enqueue the job anew with trax.enqueue() if it should run once more."));
    }
    Ok(requeue_row(spi, resolution, &row))
}

/// Requeues those of a list that are still open; returns how many. Unique keys are taken before
/// manifests, and manifests all at once: outcomes of several jobs take them in this order.
fn requeue_all(spi: &Spi, listed: &SpiRows) -> i64 {
    let key = |row: &SpiRow| row.get::<String>(3);
    let (mut keyed, others): (Vec<SpiRow>, Vec<SpiRow>) =
        listed.iter().partition(|row| key(row).is_some());
    keyed.sort_by_cached_key(key);
    let mut requeued = requeue_listed(spi, &keyed);
    let manifests: Vec<i64> = others.iter().filter_map(|row| row.get(2)).collect();
    if !manifests.is_empty() {
        manifest_state::hold(spi, manifests);
    }
    requeued += requeue_listed(spi, &others);
    requeued
}

fn requeue_listed(spi: &Spi, listed: &[SpiRow]) -> i64 {
    let mut requeued = 0;
    for row in listed {
        let resolution = Resolution {
            id: row.must(1),
            note: None,
            now: Timestamp::now(),
        };
        // Another may have resolved it since it was listed.
        let taken = spi.query(&DEAD_LETTER_TAKE, &[arg(resolution.id)]);
        if let Some(row) = taken.first().filter(is_open) {
            requeue_row(spi, &resolution, &row);
            requeued += 1;
        }
    }
    requeued
}

fn is_open(row: &SpiRow) -> bool {
    row.must::<String>(1) == "awaiting_intervention"
}

/// Requeues a dead letter that is locked and open.
fn requeue_row(spi: &Spi, resolution: &Resolution, row: &SpiRow) -> i64 {
    let job = fresh_job(row, resolution.now);
    let job_id = work_queue::enqueue(spi, &job, &[row.datum(13)])[0];
    resolution.store(spi, "requeued", Some(job_id));
    if let Some(manifest_id) = row.get(3) {
        manifest_state::await_requeued(spi, manifest_id, resolution.now);
    }
    job_id
}

fn fresh_job(row: &SpiRow, now: Timestamp) -> NewJob {
    NewJob {
        task: row.must(4),
        group: row.must(5),
        priority: i32::from(row.must::<i16>(6)).clamp(0, HIGHEST_PRIORITY),
        run_at: now,
        now,
        max_retries: row.get(7),
        timeout: row.datum(8),
        retry_delay: row.datum(9),
        unique_key: row.get(10),
        concurrency_key: row.get(11),
        trace: row.datum(14),
        manifest: row.get::<i64>(3).zip(row.get::<String>(12)),
    }
}

/// Resolves a dead letter without running anything; false when it was resolved before.
fn acknowledge(spi: &Spi, resolution: &Resolution) -> Result<bool> {
    let rows = take(spi, resolution.id);
    let row = rows.first().ok_or_else(|| unknown(resolution.id))?;
    if !is_open(&row) {
        return Ok(false);
    }
    resolution.store(spi, "acknowledged", None);
    if let Some(manifest_id) = row.get::<i64>(3) {
        manifest_state::unpark(spi, manifest_id, ParkedOn::DeadLetter);
        // One that runs once and still waits for that run's outcome has now had it.
        let ended = Ended {
            job_id: row.must(2),
            manifest_id: Some(manifest_id),
            unique_key: None,
            succeeded: false,
            done: true,
        };
        if manifest_state::awaits_only_run(spi, manifest_id) {
            job_ended::let_manifests_go_on(spi, &[ended], resolution.now);
        }
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

/// When this backend last cast the net: a hint that keeps a cycle from looking at the same failures
/// again.
static LAST_NET: AtomicI64 = AtomicI64::new(i64::MIN);

/// Gives a dead letter to failed jobs that have none. Returns how many there are of them and of the
/// jobs that this cycle has just found spent.
pub(crate) fn reap(spi: &Spi, spent: Vec<i64>, now: Timestamp) -> usize {
    let at_once = if spent.is_empty() {
        0
    } else {
        spi.query(&DEAD_LETTER_OF_JOBS, &[arg(spent)]).len()
    };
    let last = Timestamp(LAST_NET.swap(now.0, Ordering::Relaxed));
    let since = if last.is_finite() && last <= now {
        last.plus(-NET_OVERLAP_MICROS)
    } else {
        now.plus(-FIRST_NET_MICROS)
    };
    // A dead letter that was resolved and forgotten is not missed: its run is older than the
    // retention.
    let since = since.max(now.plus(-micros(setting::dead_letter_retention())));
    at_once + spi.execute(&DEAD_LETTER_REAP, &[arg(since), arg(now)])
}

/// Deletes dead letters that were resolved before `before`; returns how many.
pub(crate) fn forget_resolved(spi: &Spi, before: Timestamp) -> usize {
    let at_most: Option<pg_sys::Datum> = arg(FORGET_AT_MOST);
    spi.execute(&DEAD_LETTER_FORGET, &[arg(before), at_most])
}
