//! The faults of a round.

use crate::check::{connect, text_of};
use crate::{DATABASE, Result};
use harness::dice::Dice;
use harness::process::send_signal;
use tokio::task::block_in_place;
use tokio_postgres::error::SqlState;
use trax_client::testkit::{Error, Server, Stop};

#[derive(Clone, Copy, Debug)]
pub(crate) enum Strike {
    /// The server is killed, and starts again.
    Kill,
    /// The server stops without a checkpoint.
    Crash,
    Restart,
    /// A session is killed, and the server starts its processes anew.
    KillSession,
    EndSessions,
    /// An administrator changes something.
    Change(&'static str),
}

/// The changes of an administrator.
const CHANGES: [&str; 11] = [
    "vacuum full trax.work_queue",
    "vacuum full trax.lease",
    "cluster trax.work_queue using work_queue_pkey",
    "reindex table concurrently trax.work_queue",
    "reindex table trax.lease",
    "vacuum trax.run",
    "alter table trax.lease add if not exists soak int default 3; alter table trax.lease drop if exists soak",
    "create index if not exists soak on trax.work_queue ((job_id % 7)); drop index if exists trax.soak",
    "select trax.pause('soak'); select pg_sleep(0.5); select trax.resume()",
    "select trax.configure_group('g1', max_active_jobs => 1); select pg_sleep(0.5); select trax.configure_group('g1', max_active_jobs => 300)",
    "begin; lock table trax.work_queue; select pg_sleep(0.5); commit",
];

/// Returns up to three faults of a round, each with the number of jobs after which it comes.
pub(crate) fn plan(seed: u64, number: u64, jobs: u64) -> Vec<(u64, Strike)> {
    let mut dice = Dice::of(seed.wrapping_mul(1_000_003).wrapping_add(number));
    // The first numbers of neighbouring seeds are alike.
    for _ in 0..8 {
        dice.roll(2);
    }
    let mut plan = Vec::new();
    for _ in 0..dice.roll(4) {
        let at = dice.roll(jobs / 2);
        let strike = match dice.roll(10) {
            0 => Strike::Kill,
            1 => Strike::Crash,
            2 => Strike::Restart,
            3 => Strike::KillSession,
            4 => Strike::EndSessions,
            _ => Strike::Change(CHANGES[dice.roll(CHANGES.len() as u64) as usize]),
        };
        plan.push((at, strike));
    }
    plan.sort_by_key(|(at, _)| *at);
    plan
}

impl Strike {
    /// Does it; returns its name.
    pub(crate) async fn run(self, server: &mut Server) -> Result<String> {
        match self {
            Strike::Kill => again(server, Server::kill)?,
            Strike::Crash => again(server, |server| server.stop(Stop::Immediate).map(drop))?,
            Strike::Restart => again(server, |server| server.stop(Stop::Fast).map(drop))?,
            Strike::KillSession => {
                let pid = "select pid from pg_stat_activity where datname = $1 and backend_type = 'client backend'
                    and pid <> pg_backend_pid() limit 1";
                let client = connect(&server.existing(DATABASE)).await?;
                let row = client.query_opt(pid, &[&DATABASE]).await;
                if let Some(row) = row.map_err(text_of)? {
                    send_signal("KILL", row.get(0));
                }
            }
            Strike::EndSessions => {
                let end = "select pg_terminate_backend(pid) from pg_stat_activity
                    where datname = current_database() and pid <> pg_backend_pid()";
                let ended = connect(&server.existing(DATABASE))
                    .await?
                    .batch_execute(end)
                    .await;
                ended.map_err(text_of)?;
            }
            Strike::Change(sql) => {
                let client = connect(&server.existing(DATABASE)).await?;
                for statement in sql.split("; ") {
                    match client.batch_execute(statement).await {
                        // An administrator's statement may be the victim of a deadlock.
                        Err(error) if error.code() != Some(&SqlState::T_R_DEADLOCK_DETECTED) => {
                            return Err(format!("{statement}: {}", text_of(error)));
                        }
                        _ => {}
                    }
                }
                return Ok(sql.to_owned());
            }
        }
        Ok(format!("{self:?}"))
    }
}

/// Ends the server and starts it.
fn again(
    server: &mut Server,
    end: impl FnOnce(&mut Server) -> std::result::Result<(), Error>,
) -> Result<()> {
    block_in_place(|| {
        end(server).map_err(|error| error.to_string())?;
        server.start().map_err(|error| error.to_string())
    })
}
