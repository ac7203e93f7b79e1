//! Faults that apply to a server, a route or the fleet of any campaign.

use crate::fault::Fault;
use crate::fleet::Fleet;
use crate::strike::{Result, Wound, text_of};
use crate::testbed::{Address, now};
use crate::wire::{Flow, Wire};
use harness::process::send_signal;
use std::time::Duration;
use tokio::task::block_in_place;
use trax_client::testkit::{Server, Stop};

/// The sessions of schedulers and of the launcher.
pub(crate) const SCHEDULER: &str = "backend_type in ('trax scheduler', 'trax launcher')";

/// Returns one of the backends that match a condition.
pub(crate) async fn victim(address: &Address, whom: &str, pick: u64) -> Result<(String, i32)> {
    let client = address.connect().await.map_err(text_of)?;
    let sql = format!(
        "select pid, concat_ws(' ', backend_type, usename, state, wait_event, left(query, 60))
         from pg_stat_activity where ({whom}) and pid <> pg_backend_pid() order by pid"
    );
    let rows = client.query(&sql, &[]).await.map_err(text_of)?;
    let row = rows
        .get((pick % rows.len().max(1) as u64) as usize)
        .ok_or("nobody is there")?;
    Ok((row.get(1), row.get(0)))
}

/// Calls a function for one of the backends that match a condition.
pub(crate) async fn hit(
    address: &Address,
    whom: &str,
    pick: u64,
    how: &str,
) -> Result<(String, Option<Wound>)> {
    let (words, pid) = victim(address, whom, pick).await?;
    let client = address.connect().await.map_err(text_of)?;
    let sql = format!("select {how} from pg_stat_activity where pid = {pid}");
    client.simple_query(&sql).await.map_err(text_of)?;
    Ok((words, None))
}

/// Stops one of the backends that match a condition.
pub(crate) async fn freeze(
    address: &Address,
    whom: &str,
    pick: u64,
) -> Result<(String, Option<Wound>)> {
    let (words, pid) = victim(address, whom, pick).await?;
    send_signal("STOP", pid);
    Ok((words, Some(Wound::Frozen(vec![pid]))))
}

/// Runs a statement with a lock timeout of 5 s.
pub(crate) async fn execute(address: &Address, sql: &str) -> Result<()> {
    let client = address.connect().await.map_err(text_of)?;
    let set = "set lock_timeout = '5 s'";
    client.simple_query(set).await.map_err(text_of)?;
    client
        .simple_query(sql)
        .await
        .map(|_| ())
        .map_err(|error| format!("{sql}: {error:?}"))
}

/// Opens a transaction that keeps a snapshot.
pub(crate) const SNAPSHOT: &str =
    "begin isolation level repeatable read; select count(*) from trax.work_queue";

/// Runs a statement whose transaction stays open until it is healed with `end`.
pub(crate) async fn hold_by(
    address: &Address,
    sql: &str,
    end: &str,
) -> Result<(String, Option<Wound>)> {
    let client = address.connect().await.map_err(text_of)?;
    let set = "set lock_timeout = '5 s'";
    client.simple_query(set).await.map_err(text_of)?;
    client.simple_query(sql).await.map_err(text_of)?;
    Ok((sql.to_owned(), Some(Wound::Session(client, end.to_owned()))))
}

/// Locks one of the tables.
pub(crate) async fn lock_table(
    address: &Address,
    tables: &[&str],
    pick: u64,
) -> Result<(String, Option<Wound>)> {
    let table = tables[(pick % tables.len() as u64) as usize];
    let mode = ["share", "access exclusive", "share row exclusive"][(pick % 3) as usize];
    let lock = format!("begin; lock table {table} in {mode} mode");
    hold_by(address, &lock, "commit").await
}

/// Starts a maintenance statement. The campaign does not wait for it, since it may wait for a long
/// transaction.
pub(crate) async fn maintain(address: &Address, sql: &str) -> Result<(String, Option<Wound>)> {
    let client = address.connect().await.map_err(text_of)?;
    let (sql, words) = (sql.to_owned(), sql.to_owned());
    tokio::spawn(async move {
        let set = client.simple_query("set lock_timeout = '20 s'").await;
        if set.is_err() {
            return;
        }
        if let Err(error) = client.simple_query(&sql).await {
            println!("        {sql}: {error}");
        }
    });
    Ok((words, None))
}

/// Changes a default setting of a role or of the database; returns the statement that undoes it.
pub(crate) async fn set(address: &Address, database: &str, setting: &str) -> Result<String> {
    let (whose, what) = setting.split_once(" set ").unwrap_or((setting, ""));
    let whose = match whose {
        "database" => format!("database {database}"),
        role => role.to_owned(),
    };
    execute(address, &format!("alter {whose} set {what}")).await?;
    let name = what.split(' ').next().unwrap_or("");
    Ok(format!("alter {whose} reset {name}"))
}

/// Stops a server in the way of the fault and starts it again; returns the time of the crash, if
/// any.
pub(crate) fn restart(server: &mut Server, fault: Fault, hold: Duration) -> Result<Option<i64>> {
    block_in_place(|| {
        match fault {
            Fault::ServerKill => server.kill(),
            Fault::ServerRestart => server.stop(Stop::Fast).map(|_| ()),
            _ => server.stop(Stop::Immediate).map(|_| ()),
        }
        .map_err(text_of)?;
        let crashed_at = (fault != Fault::ServerRestart).then(now);
        std::thread::sleep(hold);
        server.start().map_err(text_of)?;
        Ok(crashed_at)
    })
}

/// Returns the running children of a process.
pub(crate) fn children(of: Option<u32>) -> Vec<i32> {
    let Some(pid) = of else { return Vec::new() };
    let path = format!("/proc/{pid}/task/{pid}/children");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.split_whitespace()
        .filter_map(|pid| pid.parse().ok())
        .collect()
}

/// Breaks a route; returns whether it must be healed.
pub(crate) fn break_route(wire: &Wire, route: usize, fault: Fault) -> bool {
    match fault {
        Fault::Stall => wire.set(route, Flow::Stalled),
        Fault::Silence => wire.set(route, Flow::Silent),
        Fault::HalfOpen => wire.halve(route),
        _ => wire.cut(route),
    }
    fault != Fault::Cut
}

/// Ends or stops a worker process.
pub(crate) fn strike_worker(fleet: &Fleet, fault: Fault, pick: u64) -> (String, Option<Wound>) {
    let member = (pick % fleet.len() as u64) as usize;
    let pid = fleet.pid(member);
    let (signal, wound) = match fault {
        Fault::WorkerKill => ("KILL", None),
        Fault::WorkerStop => ("TERM", None),
        _ => ("STOP", Some(Wound::Frozen(vec![pid]))),
    };
    fleet.signal(member, signal);
    (fleet.name(member).to_owned(), wound)
}
