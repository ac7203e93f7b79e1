//! Applies and heals each fault.

use crate::check::workflow::signal::PREPARED;
use crate::course::Striker;
use crate::fact::Crash;
use crate::fault::{Fault, Strike};
use crate::fleet::Fleet;
use crate::shim::Shim;
use crate::target::{
    SCHEDULER, SNAPSHOT, break_route, execute, freeze, hit, hold_by, lock_table, maintain, restart,
    set, strike_worker, victim,
};
use crate::testbed::{CHANGED, DATABASE, ROUTES, Testbed, now};
use crate::workflow::WORKFLOW;
use harness::process::{is_alive, send_signal};
use harness::sweep::LimitChange;
use tokio::task::block_in_place;
use tokio_postgres::Client;
use trax_client::testkit::Stop;

/// The effect of a fault that must be healed.
pub(crate) enum Wound {
    /// Stopped processes.
    Frozen(Vec<i32>),
    /// A route.
    Route(usize),
    /// A route to the router or to a shard.
    RouteTo(usize, usize),
    /// The standby is down.
    Standby,
    /// A session that holds a lock, a snapshot or a transaction, and the statement that ends it.
    Session(Client, String),
    /// The limit of a group is smaller than it was.
    Limit,
    /// A statement to run in a new session.
    Undo(String),
    /// A statement to run at the router or at a shard.
    UndoAt(usize, String),
    /// The clock differs from the true time.
    Clock,
    /// The disk is full: the time it began, and the number of panics in the log before it.
    Disk(i64, usize),
}

impl Wound {
    /// The name of the wound, for the printed plan.
    pub(crate) fn name(&self) -> &str {
        match self {
            Wound::Frozen(_) => "a stopped process",
            Wound::Route(_) | Wound::RouteTo(..) => "a route",
            Wound::Standby => "the standby",
            Wound::Session(_, sql) | Wound::Undo(sql) | Wound::UndoAt(_, sql) => sql,
            Wound::Limit => "the limit",
            Wound::Clock => "the clock",
            Wound::Disk(..) => "the disk",
        }
    }

    /// Whether the campaign cannot end before this is healed. Running work may block the heal.
    pub(crate) fn must_be_healed(&self) -> bool {
        matches!(
            self,
            Wound::Limit | Wound::Undo(_) | Wound::UndoAt(..) | Wound::Disk(..)
        )
    }
}

/// Damage to the servers that checkers must know.
#[derive(Default)]
pub(crate) struct Damage {
    pub(crate) crashes: Vec<Crash>,
    pub(crate) losses: Vec<(i64, i64)>,
    /// The changes to the limit of the group in `CHANGED`.
    pub(crate) limits: Vec<LimitChange>,
    /// Periods in which a statement may have paused between its start and its effect.
    pub(crate) lags: Vec<(i64, i64)>,
    /// Clock steps: the times shown before and after.
    pub(crate) steps: Vec<(i64, i64)>,
}

/// Applies faults to a server with its standby; owns access to the servers and the fleet.
pub(crate) struct Campaigner<'a> {
    pub(crate) testbed: &'a mut Testbed,
    pub(crate) fleet: &'a mut Fleet,
    pub(crate) damage: &'a mut Damage,
    pub(crate) shim: Shim,
}

/// Resumes stopped processes, if they are alive.
pub(crate) fn thaw(pids: &[i32]) {
    for pid in pids.iter().filter(|pid| is_alive(**pid)) {
        send_signal("CONT", *pid);
    }
}

pub(crate) type Result<T> = std::result::Result<T, String>;

pub(crate) fn text_of(error: impl std::fmt::Debug) -> String {
    format!("{error:?}")
}

const CLIENTS: &str = "backend_type = 'client backend' and datname = 'chaos' and usename in ('worker', 'producer', 'caller')";

/// Default settings of sessions; trax must work under each.
pub(crate) const SETTINGS: [&str; 18] = [
    "role worker set statement_timeout = '100 ms'",
    "role worker set lock_timeout = '20 ms'",
    "role producer set statement_timeout = '50 ms'",
    "role caller set idle_in_transaction_session_timeout = '300 ms'",
    "database set statement_timeout = '200 ms'",
    "database set lock_timeout = '10 ms'",
    "database set default_transaction_isolation = 'repeatable read'",
    "database set default_transaction_isolation = 'serializable'",
    "database set idle_in_transaction_session_timeout = '500 ms'",
    "database set enable_indexscan = off",
    "database set plan_cache_mode = 'force_generic_plan'",
    "database set search_path = 'nowhere'",
    "database set datestyle = 'German, DMY'",
    "database set intervalstyle = 'iso_8601'",
    "database set timezone = 'Asia/Kathmandu'",
    "database set bytea_output = 'escape'",
    "database set trax.tick_interval = '30 s'",
    "database set default_transaction_deferrable = on",
];

/// Maintenance by an administrator on the tables of trax.
pub(crate) const MAINTENANCE: [&str; 12] = [
    "vacuum full trax.work_queue",
    "vacuum full trax.lease",
    "vacuum freeze trax.work_queue",
    "reindex schema trax",
    "reindex table concurrently trax.work_queue",
    "cluster trax.work_queue using work_queue_pkey",
    "analyze",
    "create table if not exists public.other (a int); alter table public.other add column if not exists b int",
    "vacuum full trax.manifest_state",
    "vacuum full trax.step",
    "cluster trax.signal using signal_pkey",
    "vacuum full",
];

/// Tables that an administrator locks.
const TABLES: [&str; 8] = [
    "trax.work_queue",
    "trax.lease",
    "trax.run",
    "trax.manifest_state",
    "trax.manifest",
    "trax.step",
    "trax.signal",
    "trax.need_event",
];

impl Striker for Campaigner<'_> {
    async fn strike(&mut self, strike: Strike) -> Result<(String, Option<Wound>)> {
        let Strike {
            fault, hold, pick, ..
        } = strike;
        let index = |length: usize| (pick % length as u64) as usize;
        let address = &self.testbed.address;
        match fault {
            Fault::WorkerKill | Fault::WorkerStop | Fault::WorkerFreeze => {
                Ok(strike_worker(self.fleet, fault, pick))
            }
            Fault::SessionEnd => hit(address, CLIENTS, pick, "pg_terminate_backend(pid)").await,
            Fault::SchedulerEnd => hit(address, SCHEDULER, pick, "pg_terminate_backend(pid)").await,
            Fault::Cancel => {
                let any = format!("({CLIENTS} and state = 'active') or {SCHEDULER}");
                hit(address, &any, pick, "pg_cancel_backend(pid)").await
            }
            Fault::BackendFreeze => freeze(address, CLIENTS, pick).await,
            Fault::SchedulerFreeze => freeze(address, SCHEDULER, pick).await,
            Fault::BackendKill => {
                let any = format!("{CLIENTS} or {SCHEDULER}");
                let (words, pid) = victim(address, &any, pick).await?;
                send_signal("KILL", pid);
                self.damage.crashes.push(Crash::at(now()));
                Ok((words, None))
            }
            Fault::ServerFreeze => {
                let pid = self.testbed.primary.pid().ok_or("no server")?;
                let pid = i32::try_from(pid).map_err(text_of)?;
                send_signal("STOP", pid);
                // A later heal would need a new session, which a stopped postmaster cannot start.
                tokio::time::sleep(hold).await;
                send_signal("CONT", pid);
                Ok((format!("{} ms", hold.as_millis()), None))
            }
            Fault::ServerKill | Fault::ServerRestart | Fault::ServerImmediate => {
                let crashed_at = restart(&mut self.testbed.primary, fault, hold)?;
                let crash = crashed_at.map(Crash::at);
                self.damage.crashes.extend(crash);
                Ok((String::new(), None))
            }
            Fault::Cut | Fault::Stall | Fault::Silence | Fault::HalfOpen => {
                let route = index(ROUTES);
                let is_open = break_route(&self.testbed.wire, route, fault);
                let wound = is_open.then_some(Wound::Route(route));
                Ok((format!("route {route}"), wound))
            }
            Fault::Promote => self.promote(hold).await.map(|words| (words, None)),
            Fault::StandbyStop => {
                let standby = self.testbed.standby.as_mut().ok_or("no standby")?;
                block_in_place(|| standby.stop(Stop::Immediate)).map_err(text_of)?;
                Ok((String::new(), Some(Wound::Standby)))
            }
            Fault::Prepared => self.prepare(pick).await,
            Fault::Snapshot => hold_by(address, SNAPSHOT, "commit").await,
            Fault::TableLock => lock_table(address, &TABLES, pick).await,
            Fault::Maintenance => maintain(address, MAINTENANCE[index(MAINTENANCE.len())]).await,
            Fault::Setting => {
                let setting = SETTINGS[index(SETTINGS.len())];
                let undo = set(address, DATABASE, setting).await?;
                Ok((setting.to_owned(), Some(Wound::Undo(undo))))
            }
            Fault::Operator => self.operate(pick).await,
            Fault::Trigger => {
                let table = TABLES[index(3)];
                self.execute(&format!(
                    "create or replace function public.looks() returns trigger language plpgsql as
                         'begin return coalesce(new, old); end';
                     create trigger chaos before insert or update or delete on {table}
                         for each row execute function public.looks()"
                ))
                .await?;
                // PostgreSQL drops a trigger from the partitions before it locks their parent,
                // which could deadlock with an insert.
                let undo = format!(
                    "begin; lock table {table} in access exclusive mode; drop trigger chaos on {table}; commit"
                );
                Ok((table.to_owned(), Some(Wound::Undo(undo))))
            }
            Fault::Publication => {
                self.execute("create publication chaos for all tables")
                    .await?;
                let undo = "drop publication chaos".to_owned();
                Ok((String::new(), Some(Wound::Undo(undo))))
            }
            Fault::Limit => {
                let limit = 1 + (pick % 4) as i64;
                self.limit(limit).await?;
                Ok((format!("{} of {}", limit, CHANGED.0), Some(Wound::Limit)))
            }
            Fault::Restore => self.restore().await.map(|()| (String::new(), None)),
            Fault::ClockStep => Ok(self.set_clock(pick)),
            Fault::DiskFull => self.fill_disk(pick).await,
            Fault::ZoneData => self.update_zone_data(),
            Fault::ShardClose => Err("there are no shards".to_owned()),
        }
    }

    async fn heal(&mut self, wound: &Wound) -> Result<()> {
        match wound {
            Wound::Frozen(pids) => {
                thaw(pids);
                Ok(())
            }
            Wound::Route(route) => {
                self.testbed.wire.heal(*route);
                Ok(())
            }
            Wound::RouteTo(..) | Wound::UndoAt(..) => Err("there are no shards".to_owned()),
            Wound::Standby => {
                let stopped = self.testbed.standby.as_mut();
                match stopped.filter(|standby| standby.pid().is_none()) {
                    Some(standby) => block_in_place(|| standby.start()).map_err(text_of),
                    None => Ok(()),
                }
            }
            Wound::Session(client, sql) => {
                // If a crash ended the session, it also released what the session held.
                if let Err(error) = client.simple_query(sql).await {
                    println!("        {sql}: {error}");
                }
                Ok(())
            }
            Wound::Limit => self.limit(CHANGED.1).await,
            Wound::Undo(sql) => self.execute(sql).await,
            Wound::Clock => {
                self.step_clock(0);
                Ok(())
            }
            Wound::Disk(since, panics) => self.free_disk(*since, *panics).await,
        }
    }

    fn fleet(&mut self) -> &mut Fleet {
        self.fleet
    }

    fn damage(&mut self) -> &mut Damage {
        self.damage
    }
}

impl Campaigner<'_> {
    /// Sets the limit of the group in `CHANGED`. Raising it again counts even if the result is
    /// unknown.
    async fn limit(&mut self, limit: i64) -> Result<()> {
        let (group, most) = CHANGED;
        let began = now();
        let sql = format!("select trax.configure_group('{group}', max_active_jobs => {limit})");
        let done = self.execute(&sql).await;
        if done.is_ok() || limit == most {
            let committed = now();
            self.damage.limits.push(LimitChange {
                limit,
                began,
                committed,
            });
        }
        done
    }

    async fn execute(&self, sql: &str) -> Result<()> {
        execute(&self.testbed.address, sql).await
    }

    /// Prepares a transaction with jobs and a claim, to be committed or rolled back later.
    async fn prepare(&self, pick: u64) -> Result<(String, Option<Wound>)> {
        let name = format!("chaos-{pick}");
        let signal = format!(
            "select trax.send_signal(job_id, 'a', '\"{PREPARED} {pick}\"') from (select job_id from trax.work_queue
                where task = '{WORKFLOW}' order by waits_for is distinct from 'signal', job_id limit 1) q"
        );
        let what = match pick % 5 {
            0 => "select trax.enqueue('work', '{\"nap\": 5}', group_name => 'two')",
            1 => "select trax.claim_next(tasks => '{work}', lease => '3 s')",
            2 => "select trax.enqueue('work', '{\"nap\": 5}', unique_key => 'u1')",
            3 => signal.as_str(),
            _ => {
                "select trax.cancel(job_id) from (select job_id from trax.work_queue where manifest is null order by job_id limit 3) q"
            }
        };
        let end = if pick & 16 == 0 { "commit" } else { "rollback" };
        self.execute(&format!("begin; {what}; prepare transaction '{name}'"))
            .await?;
        let undo = format!("{end} prepared '{name}'");
        Ok((what.to_owned(), Some(Wound::Undo(undo))))
    }

    async fn operate(&self, pick: u64) -> Result<(String, Option<Wound>)> {
        let (sql, undo) = match pick % 9 {
            0 => ("select trax.pause('chaos')", Some("select trax.resume()")),
            1 => (
                "select trax.configure_group('two', enabled => false)",
                Some("select trax.configure_group('two', enabled => true)"),
            ),
            2 => (
                "select trax.cancel(job_id) from (select job_id from trax.lease where manifest is null order by job_id limit 2) l",
                None,
            ),
            3 => (
                "select trax.cancel(job_id) from (select job_id from trax.work_queue where manifest is null order by job_id limit 2) q",
                None,
            ),
            4 => (
                "select trax.disable_manifest('steady')",
                Some("select trax.enable_manifest('steady')"),
            ),
            5 => (
                "select trax.configure_group('five', priority => 5)",
                Some("select trax.configure_group('five', priority => 0)"),
            ),
            6 => ("select trax.requeue_dead_letters(max_count => 5)", None),
            7 => (
                "select trax.trigger('wide') from generate_series(1, 5)",
                None,
            ),
            _ => ("select * from trax.tick()", None),
        };
        self.execute(sql).await?;
        Ok((sql.to_owned(), undo.map(|sql| Wound::Undo(sql.to_owned()))))
    }
}
