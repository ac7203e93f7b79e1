//! Moves groups with active jobs from shard to shard. A mover is killed at any moment, and the move
//! is repeated until the whole group has arrived. Also adds the last shard midway.

use super::testbed::{MOVER, MOVING, Testbed, joining};
use crate::journal::Journal;
use crate::producer::Pace;
use crate::random::Random;
use crate::strike::{Result, text_of};
use crate::testbed::{Address, connect};
use harness::process::trax_binary;
use std::ops::AddAssign;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Config};

/// The longest time before a mover is killed; after that it may finish.
const PATIENCE: Duration = Duration::from_secs(2);
/// The time limit of an undisturbed move, which waits for running jobs.
const UNDISTURBED: Duration = Duration::from_secs(120);
/// The time limit of the session that kills a mover.
const KILLER: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(200);

/// The result of an attempt to move a group.
enum End {
    Moved,
    /// The mover was killed, or the move was refused.
    BrokenOff,
}

/// Counts of the attempts.
#[derive(Default)]
pub(crate) struct Tally {
    pub(crate) moved: usize,
    pub(crate) broken_off: usize,
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.moved += other.moved;
        self.broken_off += other.broken_off;
    }
}

/// Moves groups until the campaign is over.
pub(crate) struct Mover {
    random: Random,
    /// Direct addresses, without routes: the router, then the shards.
    addresses: Vec<Address>,
    /// The number of shards that the router knows.
    joined: Arc<AtomicU64>,
    config: Config,
    url: String,
    journal: Arc<Journal>,
    pace: Arc<Pace>,
}

impl Mover {
    pub(crate) fn new(
        name: &str,
        testbed: &Testbed,
        joined: &Arc<AtomicU64>,
        seed: u64,
        journal: Arc<Journal>,
        pace: Arc<Pace>,
    ) -> Self {
        Mover {
            random: Random::new(seed, name),
            addresses: testbed.sites().map(|site| site.address.clone()).collect(),
            joined: Arc::clone(joined),
            config: testbed.router.route(MOVER, "mover"),
            url: testbed.router.url(MOVER, "mover"),
            journal,
            pace,
        }
    }

    pub(crate) async fn run(mut self) -> Tally {
        let mut tally = Tally::default();
        while !self.pace.is_over() {
            let (group, _) = MOVING[self.random.below(MOVING.len() as u64) as usize];
            let mut target = self.target();
            let mut patience = Duration::from_millis(self.random.between(2, 400));
            while !self.pace.is_over() {
                match self.attempt(group, target, patience).await {
                    End::Moved => {
                        tally.moved += 1;
                        break;
                    }
                    End::BrokenOff => tally.broken_off += 1,
                }
                patience = patience.min(PATIENCE) * 3 / 2;
                // The next attempt may choose another target, including the original shard.
                if self.random.percent(10) {
                    target = self.target();
                }
                tokio::time::sleep(AGAIN).await;
            }
            let rest = self.random.between(50, 600);
            tokio::time::sleep(Duration::from_millis(rest)).await;
        }
        tally
    }

    fn target(&mut self) -> i32 {
        let shards = self.joined.load(Ordering::Relaxed);
        1 + self.random.below(shards) as i32
    }

    async fn attempt(&mut self, group: &str, target: i32, patience: Duration) -> End {
        let patience = match patience > PATIENCE {
            true => UNDISTURBED,
            false => patience,
        };
        let ended = match self.random.percent(30) {
            true => self.by_command(group, target, patience).await,
            false => self.by_session(group, target, patience).await,
        };
        match ended {
            Ok(end) => end,
            Err(error) => {
                self.journal.error("mover", &*error);
                End::BrokenOff
            }
        }
    }

    /// Runs `trax group move` and kills it with SIGKILL; the call goes on at the router.
    async fn by_command(
        &self,
        group: &str,
        target: i32,
        patience: Duration,
    ) -> std::result::Result<End, Box<dyn std::error::Error>> {
        let mut command = tokio::process::Command::new(trax_binary());
        command
            .args(["--database-url", &self.url, "group", "move", group])
            .args(["--to", &target.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let moving = command.spawn()?.wait_with_output();
        let Ok(output) = tokio::time::timeout(patience, moving).await else {
            return Ok(End::BrokenOff);
        };
        let output = output?;
        match output.status.success() {
            true => Ok(End::Moved),
            false => Err(String::from_utf8_lossy(&output.stderr).into()),
        }
    }

    /// Calls the function in a session. Then the session is terminated, or a session of the router
    /// in a shard; or the client disconnects and the call goes on.
    async fn by_session(
        &mut self,
        group: &str,
        target: i32,
        patience: Duration,
    ) -> std::result::Result<End, Box<dyn std::error::Error>> {
        // The lock delays the batch at its target, where it still arrives after its sender is gone;
        // the next attempt sends it again.
        let gate = match patience <= PATIENCE && self.random.percent(30) {
            true => self.shut(target).await,
            false => None,
        };
        let client = connect(&self.config).await?;
        let pid: i32 = client
            .query_one("select pg_backend_pid()", &[])
            .await?
            .get(0);
        let call = move_group(group, target);
        let moving = client.batch_execute(&call);
        tokio::pin!(moving);
        if let Ok(ended) = tokio::time::timeout(patience, &mut moving).await {
            return Ok(ended.map(|()| End::Moved)?);
        }
        let (place, whom) = match self.random.below(4) {
            _ if gate.is_some() => (0, format!("pid = {pid}")),
            0 | 1 => (0, format!("pid = {pid}")),
            2 => (
                self.target(),
                "application_name = 'trax_router' and usename = 'mover'".to_owned(),
            ),
            _ => return Ok(End::BrokenOff),
        };
        let kill = format!("select pg_terminate_backend(pid) from pg_stat_activity where {whom}");
        let killing = async {
            let killer = self.addresses[place as usize].connect().await?;
            killer.batch_execute(&kill).await
        };
        // A server that is down or stopped terminates no session; a broken move is repeated anyway.
        if let Ok(killed) = tokio::time::timeout(KILLER, killing).await {
            killed?;
        }
        Ok(End::BrokenOff)
    }
}

impl Mover {
    /// Locks out moved jobs from a shard for as long as the session lives.
    async fn shut(&self, target: i32) -> Option<Client> {
        let shutting = async {
            let client = self.addresses[target as usize].connect().await?;
            let lock = "begin; lock table trax.arrival in share mode";
            client.batch_execute(lock).await?;
            Ok::<_, tokio_postgres::Error>(client)
        };
        // A server that is down or stopped is not locked.
        tokio::time::timeout(KILLER, shutting).await.ok()?.ok()
    }
}

fn move_group(group: &str, target: i32) -> String {
    format!("call trax_router.move_group('{group}', {target}, null)")
}

/// Completes all broken moves.
pub(crate) async fn finish(testbed: &Testbed) -> Result<()> {
    let begun = Instant::now();
    let mut seen = String::new();
    let moving = "select group_name, shard from trax_router.group_placement where moves_from is not null order by group_name";
    while begun.elapsed() < UNDISTURBED {
        let client = testbed.router.admin().await;
        let rows = client.query(moving, &[]).await.map_err(text_of)?;
        let Some(row) = rows.first() else {
            return Ok(());
        };
        let (group, shard): (&str, i32) = (row.get(0), row.get(1));
        let call = move_group(group, shard);
        match tokio::time::timeout(UNDISTURBED, client.batch_execute(&call)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => {
                seen = format!("{call}: {error:?}");
                println!("        {seen}");
            }
            Err(_) => seen = format!("{call} does not end; {}", state(testbed).await),
        }
    }
    Err(format!("moves do not end: {seen}"))
}

/// The waits of sessions and the remains of moves, for a report.
async fn state(testbed: &Testbed) -> String {
    const SESSIONS: &str = "select concat_ws(' ', pid, usename, state, wait_event_type, wait_event, 'blocked by', pg_blocking_pids(pid),
            now() - query_start, left(query, 100))
        from pg_stat_activity where state <> 'idle' and pid <> pg_backend_pid()";
    const MOVES: &str =
        "select concat_ws(' ', 'group', group_name, 'from', moves_from, 'to', shard)
        from trax_router.group_placement where moves_from is not null";
    const HELD: &str = "select concat_ws(' ', 'settings', name, enabled) from trax.manifest_group
        union all select concat_ws(' ', 'departure', group_name, batch, target) from trax.departure
        union all select concat_ws(' ', 'lease', group_name, job_id, worker, lease_expires_at) from trax.lease
        union all select concat_ws(' ', count(*), 'jobs', group_name, manifest) from trax.work_queue group by group_name, manifest
        union all select concat_ws(' ', 'manifest', group_name, name) from trax.manifest";
    let mut text = String::new();
    for site in testbed.sites() {
        let client = site.admin().await;
        let held = if site.number.is_some() { HELD } else { MOVES };
        for sql in [SESSIONS, held] {
            let rows = client.query(sql, &[]).await.unwrap_or_default();
            let lines = rows.iter().map(|row| row.get::<_, String>(0));
            text.extend(lines.map(|line| format!("\n    {}: {line}", site.name)));
        }
    }
    text
}

/// Adds the last shard after a while; retries until it has joined.
pub(crate) async fn grow(
    router: Address,
    after: Duration,
    sql: Vec<String>,
    joined: Arc<AtomicU64>,
    journal: Arc<Journal>,
) {
    if sql.is_empty() {
        return;
    }
    tokio::time::sleep(after).await;
    for sql in sql {
        loop {
            let client = match router.connect().await {
                Ok(client) => client,
                Err(error) => {
                    journal.error("grower", &error);
                    tokio::time::sleep(AGAIN).await;
                    continue;
                }
            };
            match client.batch_execute(&sql).await {
                Ok(()) => break,
                Err(error) => journal.error("grower", &error),
            }
            tokio::time::sleep(AGAIN).await;
        }
    }
    joined.fetch_add(1, Ordering::Relaxed);
    println!("        the last shard has joined");
}

/// The statements that add the last shard, if there are at least two shards.
pub(crate) fn growth(testbed: &Testbed) -> Vec<String> {
    match &testbed.shards[..] {
        [_, .., last] => joining(last),
        _ => Vec::new(),
    }
}
