//! Completions: leases that become runs, a batch at once and without a statement.
//!
//! Leases are taken in ascending order of their jobs, as every outcome does. One that another transaction is changing is
//! waited for: afterwards it is gone, and lost, or only extended, and still ours.

use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::lease::{Held, Leased};
use crate::spi::{arg, keeps_snapshot};
use crate::table::{Index, Inserter, Key, Row, Scan, Table, Taken, View, columns};
use pgrx::{PgSqlErrorCode, Uuid, pg_sys};

/// Jobs that are at most so far apart are found by walking on instead of a new descent.
const CLOSE: i64 = 4;

columns!(
    /// Columns of a run.
    Run in c"run" {
        JobId: c"job_id",
        QueuedAt: c"queued_at",
        RunAt: c"run_at",
        ScheduledFor: c"scheduled_for",
        StartedAt: c"started_at",
        FinishedAt: c"finished_at",
        ManifestId: c"manifest_id",
        Attempt: c"attempt",
        Priority: c"priority",
        Final: c"final",
        State: c"state",
        FailureKind: c"failure_kind",
        Task: c"task",
        GroupName: c"group_name",
        Manifest: c"manifest",
        Worker: c"worker",
        Error: c"error",
        Input: c"input",
        Detail: c"detail",
        Output: c"output",
    }
);

/// Columns that a run takes over from its lease.
const SAME: [(Run, Leased); 13] = [
    (Run::JobId, Leased::JobId),
    (Run::QueuedAt, Leased::QueuedAt),
    (Run::RunAt, Leased::RunAt),
    (Run::ScheduledFor, Leased::ScheduledFor),
    (Run::StartedAt, Leased::StartedAt),
    (Run::ManifestId, Leased::ManifestId),
    (Run::Attempt, Leased::Attempt),
    (Run::Priority, Leased::Priority),
    (Run::Task, Leased::Task),
    (Run::GroupName, Leased::GroupName),
    (Run::Manifest, Leased::Manifest),
    (Run::Worker, Leased::Worker),
    (Run::Input, Leased::Input),
];

/// Moves the leases that are still held into `trax.run`; gives their rows in ascending order of jobs.
pub(super) fn record(
    held: &Held,
    outputs: &[Option<pg_sys::Datum>],
    now: Timestamp,
) -> Result<Vec<Row>> {
    let mut ended: Vec<(Row, Option<pg_sys::Datum>)> = Vec::with_capacity(outputs.len());
    let leases = Table::open(Leased::TABLE, Leased::ALL);
    let index = Index::open(&leases, c"lease_pkey");
    let order = held.order();
    let mut left = order.as_slice();
    while !left.is_empty() {
        let view = View::of_transaction();
        let mut walk = Walk::begin(index.scan(&view, 2));
        while let [place, later @ ..] = left {
            let is_held = walk.goes_to(
                held.job_ids[*place],
                later.iter().map(|&at| held.job_ids[at]),
            ) && walk.scan.get::<Uuid>(Leased::Token) == Some(held.tokens[*place]);
            let taken = if is_held {
                leases.delete(walk.scan.tid(), &view, true)
            } else {
                Taken::No
            };
            match taken {
                Taken::Yes => ended.push((walk.scan.row(), outputs[*place])),
                Taken::No | Taken::Busy => {}
                Taken::Changed if keeps_snapshot() => return Err(serialization_failure()),
                // A new snapshot shows what it has become.
                Taken::Changed => break,
            }
            left = later;
        }
        walk.scan.end();
        view.end();
    }
    index.close();
    leases.close();
    if !ended.is_empty() {
        add_runs(&ended, now);
    }
    Ok(ended.into_iter().map(|(lease, _)| lease).collect())
}

/// A walk over leases in ascending order of their jobs, one descent of the index for jobs that stand close together.
struct Walk {
    scan: Scan,
    shown: Shown,
    /// The last job of this descent.
    last: Option<i64>,
}

/// Where a walk is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Shown {
    Nothing,
    Job(i64),
    End,
}

impl Walk {
    fn begin(scan: Scan) -> Self {
        Self {
            scan,
            shown: Shown::Nothing,
            last: None,
        }
    }

    /// Goes to the lease of a job that is not before the one it was at; false if there is none. `later` are those that
    /// will be asked for.
    fn goes_to(&mut self, job_id: i64, later: impl Iterator<Item = i64>) -> bool {
        if self.last.is_none_or(|last| last < job_id) {
            let last = later
                .scan(job_id, |last, next| {
                    let is_close = next.saturating_sub(*last) <= CLOSE;
                    *last = next;
                    is_close.then_some(next)
                })
                .last()
                .unwrap_or(job_id);
            self.scan
                .seek([Key::at_least(1, job_id), Key::at_most(1, last)]);
            self.last = Some(last);
            self.shown = Shown::Nothing;
        }
        while self.shown < Shown::Job(job_id) {
            self.shown = if self.scan.next() {
                Shown::Job(self.scan.number(Leased::JobId))
            } else {
                Shown::End
            };
        }
        self.shown == Shown::Job(job_id)
    }
}

fn add_runs(ended: &[(Row, Option<pg_sys::Datum>)], now: Timestamp) {
    let parent = Table::open(Run::TABLE, Run::ALL);
    let partition = parent.partition_for(now.0);
    let completed = arg("completed");
    let mut runs = Inserter::begin(partition.as_ref().unwrap_or(&parent));
    for (lease, output) in ended {
        let mut run = runs.row();
        for (to, from) in SAME {
            run.set(to, lease.value(from));
        }
        run.set(Run::FinishedAt, arg(now));
        run.set(Run::Final, arg(true));
        run.set(Run::State, completed);
        run.set(Run::Output, *output);
    }
    runs.end();
    if let Some(partition) = partition {
        partition.close();
    }
    parent.close();
}

fn serialization_failure() -> Error {
    Error::new(
        PgSqlErrorCode::ERRCODE_T_R_SERIALIZATION_FAILURE,
        "could not serialize access due to concurrent update",
    )
    .hint("Run the transaction again, or record outcomes in READ COMMITTED.")
}
