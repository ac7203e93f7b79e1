//! The executors of a database, as its scheduler manages them: starts them when SQL jobs are ready,
//! cancels their statements on request, and ends the leases of executors that are gone.

use super::executor;
use crate::claim;
use crate::error::Result;
use crate::instance::State;
use crate::memory::executor as seats;
use crate::memory::executor::Executor;
use crate::memory::failed_start;
use crate::memory::worker_slot;
use crate::memory::worker_slot::{ASK_BUSY_AFTER, Wanted};
use crate::outcome::Failure;
use crate::server::backend::{my_database, my_pid};
use crate::server::clock::{Timestamp, micros};
use crate::server::spi;
use crate::server::spi::{Spi, arg, row, statement};
use crate::server::table::lock_all;
use crate::server::version;
use crate::{instance, memory, outcome, setting, sql_job, wake, worker_registry};
use pgrx::{Uuid, pg_sys};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

row! {
    /// A role with SQL jobs that are ready.
    struct Waiting {
        run_as: String,
        role_oid: Option<pg_sys::Oid>,
        jobs: i64,
        /// When the oldest of them became ready.
        since: Timestamp,
        may_connect: bool,
    }
}
row! {
    /// A role in whose session nothing may run any more.
    struct Refused {
        role_oid: pg_sys::Oid,
    }
}
row! {
    struct SqlLease {
        job_id: i64,
        token: Uuid,
        worker: String,
        cancel_requested: bool,
        is_paused: bool,
    }
}
statement!(SqlWaiting, "background/sql_waiting.sql", { at_most: INT8OID } -> Waiting);
statement!(SqlLeases, "background/sql_leases.sql" -> SqlLease);
statement!(SqlRefused, "background/sql_refused.sql", { roles: OIDARRAYOID } -> Refused);
statement!(
    SqlLost, "background/sql_lost.sql",
    { job_ids: INT8ARRAYOID, tokens: UUIDARRAYOID, now: TIMESTAMPTZOID }
);

/// How long statements wait for a worker before that is logged.
const REFUSED_LIMIT: Duration = Duration::from_secs(10);
/// Executors of one role that end at once are not started more often than this.
const START_SPACING: Duration = Duration::from_secs(1);
/// The pause before another start for a role whose session failed because the server lacked a
/// resource.
const SHORT_PAUSE: Duration = Duration::from_secs(4);
/// SQLSTATE classes that do not depend on the role: the server lacks a resource, stops, accepts no
/// sessions in this database now, or rolled a transaction back because of another.
const SHORTAGES: [&str; 4] = ["40", "53", "55", "57"];
/// The pause after another session had locked a table.
const LOCKED_PAUSE: Duration = Duration::from_millis(100);
/// How soon a cancelled statement that still runs is cancelled again.
const CANCEL_SPACING: Duration = Duration::from_millis(100);
/// How long after the last statement a notification of work may concern another one: as long as an
/// executor stays. Later statements that a limit held back wait for the scheduler's next check.
const NEEDED_FOR: Duration = Duration::from_secs(60);
/// After this time an executor without the lease of its job has lost it: it claims and ends a job a
/// moment before or after that is seen.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// The most jobs that one look fails for a role that cannot run them.
const FAIL_AT_MOST: usize = 100;
/// The worker name under which those jobs fail.
const WORKER: &str = "trax scheduler";

/// The scheduler's state of its executors.
#[derive(Default)]
pub(super) struct Executors {
    /// Since when the server has had no free worker, and whether that was logged.
    refused: Option<(Instant, bool)>,
    has_failed: bool,
    /// When there last were ready jobs or executors.
    needed_at: Option<Instant>,
    /// When executors of a role were last started, and how many.
    started: HashMap<pg_sys::Oid, (Instant, usize)>,
    /// When an executor of one role last had to end for another.
    taken_at: Option<Instant>,
    /// Executors without the lease of their job, and since when they were seen without it.
    without_lease: HashMap<(i32, i64), Instant>,
}

impl Executors {
    /// Ends all executors, because the extension is gone: nothing could record the outcome of their
    /// statements or cancel them.
    pub(super) fn end_all() {
        if memory::available() {
            seats::terminate_all(my_database());
        }
    }

    /// Returns whether there were statements to run recently.
    pub(super) fn were_needed(&self) -> bool {
        self.needed_at.is_some_and(|at| at.elapsed() < NEEDED_FOR)
    }

    /// Manages the executors, inside a transaction of the scheduler; returns when to look again, if
    /// one was asked to end its statement or a table is locked. A failure rolls back only this
    /// work.
    pub(super) fn look(&mut self) -> Option<Duration> {
        if !memory::available() || !version::is_ours() {
            return None;
        }
        if lock_all().is_err() {
            return Some(LOCKED_PAUSE);
        }
        let mut is_ending = false;
        let looked = spi::connected_anyhow(|spi| {
            if instance::state(spi) == State::Foreign {
                return Ok(());
            }
            spi::isolated(|| self.look_within(spi, &mut is_ending))
        });
        match looked {
            Ok(()) => self.has_failed = false,
            Err(error) if !std::mem::replace(&mut self.has_failed, true) => error.warn(),
            Err(_) => {}
        }
        // A look reads two small tables.
        (is_ending || self.refused.is_some()).then_some(CANCEL_SPACING.min(worker_slot::TRY_AGAIN))
    }

    fn look_within(&mut self, spi: &Spi, is_ending: &mut bool) -> Result<()> {
        let database = my_database();
        let now = Timestamp::now();
        seats::clear_missing(database, now.0);
        let at_most = setting::max_sql_workers();
        *is_ending = self.look_at_leases(spi, database, now);
        *is_ending |= end_unwanted(spi, database, at_most, now);
        for one in seats::of(database).iter().skip(at_most) {
            if one.is_idle() {
                seats::retire(one.pid);
            }
        }
        if at_most == 0 || instance::state(spi) != State::Running {
            self.all_served();
            return Ok(());
        }
        if sql_job::may_be_renamed() {
            sql_job::follow_renames(spi);
        }
        let waiting: Vec<Waiting> = spi
            .query(SqlWaiting {
                at_most: arg(at_most as i64),
            })
            .iter()
            .collect();
        if !waiting.is_empty() || !seats::of(database).is_empty() {
            self.needed_at = Some(Instant::now());
        }
        let roles: Vec<pg_sys::Oid> = waiting.iter().filter_map(|role| role.role_oid).collect();
        self.fail_starts(spi, &waiting)?;
        let mut is_refused = false;
        for role in waiting {
            match role.role_oid.filter(|_| role.may_connect) {
                // The other jobs are younger, and need no slot if their role has an idle executor.
                Some(oid) if is_refused => seats::wake_idle(database, oid),
                Some(oid) => is_refused = !self.serve(oid, &role, &roles, at_most, now),
                // The role was renamed, or statements were queued under its old name: the next look
                // finds it.
                None if sql_job::may_be_renamed() || sql_job::follow_renames(spi) => {}
                None => fail_jobs(spi, &role.run_as, no_session(&role))?,
            }
        }
        if !is_refused {
            self.all_served();
        }
        Ok(())
    }

    /// Fails the jobs of roles whose sessions did not start. If the server lacks a resource, or
    /// stops, the jobs wait instead, and starts are tried less often.
    fn fail_starts(&mut self, spi: &Spi, waiting: &[Waiting]) -> Result<()> {
        for failed in failed_start::take(my_database()) {
            let role = waiting
                .iter()
                .find(|role| role.role_oid == Some(failed.role));
            let class = failed.sqlstate.get(..2).unwrap_or_default();
            if SHORTAGES.contains(&class) {
                let later = Instant::now() + SHORT_PAUSE;
                self.started.insert(failed.role, (later, usize::MAX));
            } else if let Some(role) = role {
                let name = &role.run_as;
                let error = format!(
                    "the session of role \"{name}\" cannot start: {}",
                    failed.message
                );
                fail_jobs(spi, name, error)?;
            }
        }
        Ok(())
    }

    fn all_served(&mut self) {
        if self.refused.take().is_some() {
            worker_slot::leave(my_pid());
        }
    }

    /// Cancels the statements whose jobs are to stop or whose leases are lost, and ends leases
    /// without an executor. Returns whether there are such statements: a cancel that arrives
    /// between two statements must be repeated.
    fn look_at_leases(&mut self, spi: &Spi, database: pg_sys::Oid, now: Timestamp) -> bool {
        let leases: Vec<SqlLease> = spi.query_latest(SqlLeases).iter().collect();
        // After the leases: an executor is visible before its lease.
        let mut executing: HashMap<(String, i64), Executor> = seats::of(database)
            .into_iter()
            .filter(|one| one.pid != 0 && one.job_id != 0)
            .map(|one| ((executor::worker(one.pid), one.job_id), one))
            .collect();
        let (mut job_ids, mut tokens) = (Vec::new(), Vec::new());
        let mut is_ending = false;
        for lease in leases {
            match executing.remove(&(lease.worker, lease.job_id)) {
                Some(one) if lease.cancel_requested || lease.is_paused => {
                    cancel(&one, !lease.cancel_requested, now);
                    is_ending = true;
                }
                Some(_) => {}
                None => {
                    job_ids.push(lease.job_id);
                    tokens.push(lease.token);
                }
            }
        }
        let before = std::mem::take(&mut self.without_lease);
        for one in executing.into_values() {
            let key = (one.pid, one.job_id);
            let since = before.get(&key).copied().unwrap_or_else(Instant::now);
            if since.elapsed() >= LOST_AFTER {
                cancel(&one, false, now);
            }
            self.without_lease.insert(key, since);
            is_ending = true;
        }
        if job_ids.is_empty() {
            return is_ending;
        }
        let lost = spi.execute(SqlLost {
            job_ids: arg(job_ids),
            tokens: arg(tokens),
            now: arg(now),
        });
        if lost > 0 {
            wake::mark(wake::DUE);
        }
        is_ending
    }

    /// Ensures that a role with jobs has executors; returns false when the server has no free
    /// worker. The other roles in `roles` have jobs too.
    fn serve(
        &mut self,
        role: pg_sys::Oid,
        jobs: &Waiting,
        roles: &[pg_sys::Oid],
        at_most: usize,
        now: Timestamp,
    ) -> bool {
        let database = my_database();
        seats::wake_idle(database, role);
        let all = seats::of(database);
        let comes = |one: &&Executor| one.role == role && one.job_id == 0 && !one.retires;
        let wanted = (jobs.jobs as usize).saturating_sub(all.iter().filter(comes).count());
        let room = at_most.saturating_sub(all.len());
        for _ in 0..wanted.min(room) {
            if !self.start(database, role, at_most, jobs.since, now) {
                return false;
            }
        }
        // An executor that is to end after its statement may take long.
        let is_one_leaving = all.iter().any(|one| one.is_leaving(now.0));
        if wanted > room && !is_one_leaving {
            // First an idle executor without jobs to come, then one whose role's next job is
            // younger.
            let others = || all.iter().filter(|one| one.role != role);
            let idle = others().find(|one| one.is_idle() && !roles.contains(&one.role));
            let waits_on = now.0.saturating_sub(jobs.since.0) < ASK_BUSY_AFTER
                && all.iter().any(|one| one.role == role);
            let age = |role| roles.iter().position(|one| *one == role);
            let is_younger = |one: &&Executor| {
                (one.is_idle() || one.is_busy())
                    && age(one.role).is_none_or(|its| Some(its) > age(role))
            };
            // A role without an executor takes one from a role with several, however old that
            // role's jobs are.
            let count = |role| all.iter().filter(|one| one.role == role).count();
            let own = count(role);
            let is_due = |one: &&Executor| match (own, count(one.role)) {
                (0, 2..) => one.is_idle() || one.is_busy(),
                _ => is_younger(one),
            };
            // Two roles with old jobs would take executors from each other at every look.
            let waits_on =
                waits_on || own > 0 && self.taken_at.is_some_and(|at| at.elapsed() < START_SPACING);
            let busy = || others().filter(|_| !waits_on).find(is_due);
            if let Some(one) = idle.or_else(busy) {
                seats::retire(one.pid);
                self.taken_at = Some(Instant::now());
            }
        }
        true
    }

    /// Starts an executor for jobs that have been ready since `since`; returns false when the
    /// server has no free worker.
    fn start(
        &mut self,
        database: pg_sys::Oid,
        role: pg_sys::Oid,
        at_most: usize,
        since: Timestamp,
        now: Timestamp,
    ) -> bool {
        let started = self.started.entry(role).or_insert((Instant::now(), 0));
        if started.0.elapsed() >= START_SPACING {
            *started = (Instant::now(), 0);
        }
        if started.1 >= 2 * at_most {
            return true;
        }
        if worker_slot::is_next(since.0, now.0)
            && let Some(seat) = seats::reserve(database, role, now.0)
        {
            if executor::registration(seat).load_dynamic().is_ok() {
                started.1 += 1;
                return true;
            }
            seats::clear(seat);
        }
        worker_slot::wait(Wanted::Executor, since.0, now.0);
        let (began, said) = self.refused.get_or_insert((Instant::now(), false));
        if !*said && began.elapsed() >= REFUSED_LIMIT {
            *said = true;
            no_worker();
        }
        false
    }
}

fn cancel(one: &Executor, is_paused: bool, now: Timestamp) {
    seats::cancel(
        one.pid,
        one.job_id,
        is_paused,
        now.0,
        micros(setting::cancel_grace()),
    );
}

/// Cancels statements of roles that may run nothing any more, and all statements when no executor
/// is allowed: they run later. Returns whether there are any.
fn end_unwanted(spi: &Spi, database: pg_sys::Oid, at_most: usize, now: Timestamp) -> bool {
    let mut busy = seats::of(database);
    busy.retain(|one| one.pid != 0 && one.job_id != 0);
    if busy.is_empty() {
        return false;
    }
    let is_off = at_most == 0;
    if !is_off {
        let roles: Vec<pg_sys::Oid> = busy.iter().map(|one| one.role).collect();
        let refused = spi.query_latest(SqlRefused { roles: arg(roles) });
        let refused: HashSet<pg_sys::Oid> = refused.iter().map(|row| row.role_oid).collect();
        busy.retain(|one| refused.contains(&one.role));
    }
    for one in &busy {
        cancel(one, is_off, now);
    }
    !busy.is_empty()
}

fn no_worker() {
    use pgrx::PgSqlErrorCode::ERRCODE_CONFIGURATION_LIMIT_EXCEEDED;
    crate::error::Error::new(
        ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
        "SQL jobs wait: the server has no background worker for them",
    )
    .detail("All background worker slots are in use.")
    .hint("Raise max_worker_processes and restart.")
    .warn();
}

/// Returns why nothing can run in a session of a role.
fn no_session(role: &Waiting) -> String {
    let name = &role.run_as;
    match role.role_oid {
        None => format!("role \"{name}\" does not exist"),
        Some(_) => sql_job::no_session(name),
    }
}

/// Fails the jobs of a role in whose session nothing can run.
fn fail_jobs(spi: &Spi, role: &str, error: String) -> Result<()> {
    for _ in 0..FAIL_AT_MOST {
        let Some(job) = claim::sql_job(spi, role, WORKER)? else {
            break;
        };
        let failure = Failure {
            error: error.clone(),
            detail: None,
            retry_in: None,
            permanent: false,
            was_told_to_stop: false,
        };
        // After the claim, whose time is the start of the attempt.
        outcome::fail(spi, job.job_id, job.token, failure, Timestamp::now());
    }
    // The claims have added the scheduler to the list of workers, where it does not belong.
    worker_registry::left(spi, WORKER);
    Ok(())
}
