//! Counts the leases under a limit, beginning at its bound (`memory/bound.rs`).

use crate::changes;
use crate::columns::{Group, Leased};
use crate::memory::{Bound, Reading};
use crate::server::table::{Index, Key, Row, Table, View};

/// The tables of groups and leases, open for reading. Each read shows the rows that have committed
/// until then. A count under the lock of its limit holds until the transaction ends.
pub(crate) struct Counter {
    groups: Table,
    group_by_name: Index,
    leases: Table,
    pub(super) by_job: Index,
    pub(super) by_group: Index,
    pub(super) by_key: Index,
    pub(super) by_manifest: Index,
}

impl Counter {
    pub(crate) fn open() -> Self {
        let groups = Table::open(Group::TABLE, Group::ALL);
        let leases = Table::open(Leased::TABLE, Leased::ALL);
        Self {
            group_by_name: Index::open(&groups, c"manifest_group_pkey"),
            by_job: Index::open(&leases, c"lease_pkey"),
            by_group: Index::open(&leases, c"lease_limited"),
            by_key: Index::open(&leases, c"lease_concurrency_key"),
            by_manifest: Index::open(&leases, c"lease_manifest"),
            groups,
            leases,
        }
    }

    /// Returns the row of a group; one without a row has the defaults.
    pub(crate) fn group(&self, name: &str) -> Option<Row> {
        let view = View::latest();
        let scan = self.group_by_name.scan(&view, 1);
        scan.seek([Key::equals_text(1, name)]);
        let row = scan.next().then(|| scan.row());
        scan.end();
        view.end();
        row
    }

    /// Counts leases in an index whose last column is the job, up to `limit`, from `bound` on, and
    /// raises the bound. `what` returns the keys of the scan that begins at a job. The caller holds
    /// the lock under which such leases are granted.
    pub(super) fn count<const N: usize>(
        index: &Index,
        bound: Bound,
        what: impl Fn(i64) -> [Key; N],
        limit: i64,
    ) -> Held {
        // Bounds do not cover the rows that this transaction has written by hand.
        let mut reading = if changes::has_written_manually() {
            Reading::NONE
        } else {
            bound.read()
        };
        let (held, first) = loop {
            let view = View::latest();
            let scan = index.scan(&view, N as i32);
            scan.seek(what(reading.value.unwrap_or(i64::MIN)));
            let mut held = Held::default();
            let mut first = i64::MAX;
            while held.count < limit && scan.next() {
                if held.count == 0 {
                    first = scan.number(Leased::JobId);
                }
                held.count += 1;
                held.may_end |= scan.is_changing();
            }
            scan.end();
            view.end();
            if bound.holds(reading) {
                break (held, first);
            }
            reading = Reading::NONE;
        };
        if let Some(first) = changes::first_that_may_count(first) {
            bound.raise(reading, first);
        }
        held
    }

    pub(crate) fn close(self) {
        self.by_manifest.close();
        self.by_key.close();
        self.by_group.close();
        self.by_job.close();
        self.leases.close();
        self.group_by_name.close();
        self.groups.close();
    }
}

/// The running jobs that share a key or a manifest.
#[derive(Clone, Copy, Default)]
pub(crate) struct Held {
    pub(crate) count: i64,
    /// Some of them are being ended, by a transaction that has waited for earlier claims and not
    /// for this one.
    pub(crate) may_end: bool,
}
