//! Applies each fault to a router, its shards and the routes to them.

use super::testbed::Testbed;
use crate::course::Striker;
use crate::fact::Crash;
use crate::fault::{Fault, Strike};
use crate::fleet::Fleet;
use crate::strike::{Damage, MAINTENANCE, Result, SETTINGS, Wound, text_of, thaw};
use crate::target::{
    SCHEDULER, SNAPSHOT, break_route, children, execute, freeze, hit, hold_by, lock_table,
    maintain, restart, set, strike_worker, victim,
};
use crate::testbed::now;
use harness::process::send_signal;

/// Sessions of the participants, and those of the router in a shard.
const CLIENTS: &str =
    "backend_type = 'client backend' and usename in ('worker', 'producer', 'mover')";

/// The snapshots, and the tables that an administrator locks and maintains: at the router, at a
/// shard.
const SNAPSHOTS: [&str; 2] = [
    "begin isolation level repeatable read; select count(*) from trax_router.place",
    SNAPSHOT,
];
const TABLES: [&[&str]; 2] = [
    &[
        "trax_router.group_placement",
        "trax_router.place",
        "trax_router.manifest",
        "trax_router.move",
    ],
    &[
        "trax.work_queue",
        "trax.lease",
        "trax.manifest",
        "trax.manifest_group",
        "trax.departure",
        "trax.arrival",
        "trax.group_home",
        "trax.step",
        "trax.signal",
    ],
];
const MAINTENANCES: [&[&str]; 2] = [
    &[
        "vacuum full trax_router.group_placement",
        "vacuum full trax_router.manifest",
        "reindex schema trax_router",
        "cluster trax_router.place using place_pkey",
        "analyze",
        "vacuum full",
    ],
    &MAINTENANCE,
];

/// Applies faults to a router and its shards.
pub(crate) struct Campaigner<'a> {
    pub(crate) testbed: &'a mut Testbed,
    pub(crate) fleet: &'a mut Fleet,
    pub(crate) damage: &'a mut Damage,
}

impl Striker for Campaigner<'_> {
    async fn strike(&mut self, strike: Strike) -> Result<(String, Option<Wound>)> {
        let Strike {
            fault, hold, pick, ..
        } = strike;
        let shards = self.testbed.shards.len() as u64;
        let place = match fault {
            Fault::SchedulerEnd | Fault::SchedulerFreeze | Fault::ShardClose => 1 + pick % shards,
            _ => pick % (1 + shards),
        };
        let (place, pick) = (place as usize, pick / 8);
        let site = self.testbed.site(place);
        let (address, name) = (&site.address, site.name.clone());
        let kind = usize::from(site.number.is_some());
        let index = |length: usize| (pick % length as u64) as usize;
        let of_the_fleet = matches!(
            fault,
            Fault::WorkerKill | Fault::WorkerStop | Fault::WorkerFreeze
        );
        if site.is_frozen && !of_the_fleet {
            return Err(format!("{name} is stopped"));
        }
        let (words, wound) = match fault {
            Fault::WorkerKill | Fault::WorkerStop | Fault::WorkerFreeze => {
                return Ok(strike_worker(self.fleet, fault, pick));
            }
            Fault::SessionEnd => hit(address, CLIENTS, pick, "pg_terminate_backend(pid)").await?,
            Fault::SchedulerEnd => {
                hit(address, SCHEDULER, pick, "pg_terminate_backend(pid)").await?
            }
            Fault::Cancel => hit(address, CLIENTS, pick, "pg_cancel_backend(pid)").await?,
            Fault::BackendFreeze => freeze(address, CLIENTS, pick).await?,
            Fault::SchedulerFreeze => freeze(address, SCHEDULER, pick).await?,
            Fault::BackendKill => {
                let (words, pid) = victim(address, CLIENTS, pick).await?;
                send_signal("KILL", pid);
                self.crash(place, now());
                (words, None)
            }
            Fault::ServerKill | Fault::ServerRestart | Fault::ServerImmediate => {
                let crashed_at = restart(&mut site.server, fault, hold)?;
                if let Some(at) = crashed_at {
                    self.crash(place, at);
                }
                (String::new(), None)
            }
            Fault::ServerFreeze => {
                let postmaster = site.server.pid().ok_or("no server")?;
                let pid = i32::try_from(postmaster).map_err(text_of)?;
                // The postmaster is stopped first, so that it starts no new process.
                send_signal("STOP", pid);
                let others = children(Some(postmaster));
                for pid in &others {
                    send_signal("STOP", *pid);
                }
                site.is_frozen = true;
                let micros = i64::try_from(hold.as_micros()).unwrap_or(i64::MAX);
                self.damage.lags.push((now(), now() + micros));
                let words = format!("{} processes", 1 + others.len());
                (words, Some(Wound::Frozen([vec![pid], others].concat())))
            }
            Fault::Cut | Fault::Stall | Fault::Silence | Fault::HalfOpen => {
                let route = index(site.wire.len());
                let is_open = break_route(&site.wire, route, fault);
                let wound = is_open.then_some(Wound::RouteTo(place, route));
                (format!("route {route}"), wound)
            }
            Fault::ShardClose => {
                let number = site.number.ok_or("the router cannot be closed")?;
                let close = format!("select trax_router.close_shard({number}, 'chaos')");
                self.execute(0, &close).await?;
                let open = format!("select trax_router.open_shard({number})");
                (String::new(), Some(Wound::UndoAt(0, open)))
            }
            Fault::Snapshot => hold_by(address, SNAPSHOTS[kind], "commit").await?,
            Fault::TableLock => lock_table(address, TABLES[kind], pick).await?,
            Fault::Maintenance => {
                let all = MAINTENANCES[kind];
                maintain(address, all[index(all.len())]).await?
            }
            Fault::Setting => {
                let setting = SETTINGS[index(SETTINGS.len())].replace("caller", "mover");
                let undo = set(address, &name, &setting).await?;
                (setting, Some(Wound::UndoAt(place, undo)))
            }
            other => return Err(format!("{other:?} is not for shards")),
        };
        Ok((format!("{name} {words}"), wound))
    }

    async fn heal(&mut self, wound: &Wound) -> Result<()> {
        match wound {
            Wound::Frozen(pids) => {
                thaw(pids);
                for place in 0..=self.testbed.shards.len() {
                    let site = self.testbed.site(place);
                    let pid = site.server.pid().and_then(|pid| i32::try_from(pid).ok());
                    site.is_frozen &= !pid.is_some_and(|pid| pids.contains(&pid));
                }
                Ok(())
            }
            Wound::RouteTo(place, route) => {
                self.testbed.site(*place).wire.heal(*route);
                Ok(())
            }
            Wound::UndoAt(place, sql) => self.execute(*place, sql).await,
            // The session may have ended with its server.
            Wound::Session(client, sql) => {
                client.simple_query(sql).await.ok();
                Ok(())
            }
            other => Err(format!("{} is not of shards", other.name())),
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
    async fn execute(&mut self, place: usize, sql: &str) -> Result<()> {
        let site = self.testbed.site(place);
        if site.is_frozen {
            return Err(format!("{} is stopped", site.name));
        }
        execute(&site.address, sql).await
    }

    /// A crash of a shard undoes claims; the router has none.
    fn crash(&mut self, place: usize, at: i64) {
        let shard = self.testbed.site(place).number;
        if shard.is_some() {
            self.damage.crashes.push(Crash { shard, at });
        }
    }
}
