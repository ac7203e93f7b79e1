//! A round: its jobs are queued by calls and completed by sessions, all of which reconnect after a
//! fault.

use crate::check::{connect, text_of};
use crate::{DATABASE, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::task::JoinHandle;
use tokio_postgres::SimpleQueryMessage;
use trax_client::testkit::{Database, Server};

/// The jobs that a call queues.
const CALL: u64 = 1000;
/// The jobs that a session claims at once.
const BATCH: usize = 100;
const SESSIONS: usize = 3;
/// A session drops one batch of so many.
const DROPPED: u64 = 500;
/// A session fails a job of one batch of so many.
const FAILED: u64 = 50;
/// Without a completion for this long, a round is stuck.
const STUCK: Duration = Duration::from_secs(180);
const POLL: Duration = Duration::from_millis(100);

pub(crate) struct Round {
    database: Database,
    number: u64,
    jobs: u64,
    /// Whether the completion of each job has been acknowledged.
    acknowledged: Mutex<Vec<bool>>,
    count: AtomicU64,
    is_over: AtomicBool,
    wrong: Mutex<Vec<String>>,
}

/// A claimed job; the jobs of a schedule have no number.
struct Held {
    job_id: String,
    token: String,
    number: Option<u64>,
}

impl Round {
    pub(crate) fn new(server: &Server, number: u64, jobs: u64) -> Self {
        Self {
            database: server.existing(DATABASE),
            number,
            jobs,
            acknowledged: Mutex::new(vec![false; jobs as usize]),
            count: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
            wrong: Mutex::new(Vec::new()),
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    pub(crate) fn jobs(&self) -> u64 {
        self.jobs
    }

    /// The number of the first job.
    pub(crate) fn first(&self) -> u64 {
        (self.number - 1) * self.jobs + 1
    }

    /// The number of the last job.
    pub(crate) fn last(&self) -> u64 {
        self.number * self.jobs
    }

    /// Starts the sessions.
    pub(crate) fn begin(self: &Arc<Self>) -> Vec<JoinHandle<Result<()>>> {
        let sessions = (0..SESSIONS).map(|n| tokio::spawn(self.clone().complete_all(n)));
        let mut tasks: Vec<_> = sessions.collect();
        tasks.push(tokio::spawn(self.clone().queue_all()));
        tasks
    }

    /// Queues each job once: a call is recorded in its transaction, and a call whose answer was
    /// lost is made again.
    async fn queue_all(self: Arc<Self>) -> Result<()> {
        let mut client = connect(&self.database).await?;
        for first in (self.first()..=self.last()).step_by(CALL as usize) {
            let queue = format!(
                "begin; insert into soak.call values ({first});
                 select count(*) from trax.enqueue_many('soak',
                     (select array_agg(to_jsonb(n)) from generate_series({first}, {}) n),
                     group_name => 'g{}', priority => {}, max_retries => 1000);
                 commit",
                first + CALL - 1,
                first / CALL % 4,
                first / CALL % 3
            );
            while let Err(error) = client.batch_execute(&queue).await {
                if self.is_over() {
                    return Ok(());
                }
                client = connect(&self.database).await?;
                if error.code().is_some_and(|code| code.code() == "23505") {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Completes jobs until the round is over. Some batches are dropped, as by a worker that died,
    /// and some jobs fail first.
    async fn complete_all(self: Arc<Self>, session: usize) -> Result<()> {
        let mut client = connect(&self.database).await?;
        let mut held: Vec<Held> = Vec::new();
        for batch in 1u64.. {
            if self.is_over() {
                break;
            }
            if batch % DROPPED == 0 {
                held.clear();
            }
            if batch % FAILED == 0
                && let Some(job) = held.pop()
            {
                let Held { job_id, token, .. } = job;
                let fail =
                    format!("select trax.fail({job_id}, '{token}', 'again', retry_in => '1 ms')");
                // The answer does not matter: a job that did not fail is claimed again later.
                client.simple_query(&fail).await.ok();
            }
            let answer = client.simple_query(&next_batch(&held, session)).await;
            let is_idle = match answer {
                Ok(rows) => {
                    let done = std::mem::take(&mut held);
                    self.take(&rows, &done, &mut held)
                }
                Err(_) => {
                    held.clear();
                    client = connect(&self.database).await?;
                    continue;
                }
            };
            if is_idle {
                // A session that ended is noticed by its next claim.
                client
                    .simple_query("call trax.wait_for_work('100 ms')")
                    .await
                    .ok();
            }
        }
        Ok(())
    }

    /// Takes the rows of a batch: completions of `done`, and claimed jobs into `held`. Returns
    /// whether there were none.
    fn take(&self, rows: &[SimpleQueryMessage], done: &[Held], held: &mut Vec<Held>) -> bool {
        let mut is_idle = true;
        for row in rows {
            let SimpleQueryMessage::Row(row) = row else {
                continue;
            };
            is_idle = false;
            let text = |at: usize| row.get(at).unwrap_or_default().to_owned();
            if let Some(completed) = row.get(0) {
                let job = done.iter().find(|job| job.job_id == completed);
                if let Some(number) = job.and_then(|job| job.number) {
                    self.acknowledge(number);
                }
                continue;
            }
            let number = text(3).parse().ok();
            if let Some(number) = number {
                self.give_out(number);
            }
            held.push(Held {
                job_id: text(1),
                token: text(2),
                number,
            });
        }
        is_idle
    }

    fn place(&self, number: u64) -> usize {
        number.wrapping_sub(self.first()) as usize
    }

    pub(crate) fn acknowledge(&self, number: u64) {
        let mut all = lock(&self.acknowledged);
        match all.get_mut(self.place(number)) {
            Some(known) if !*known => {
                *known = true;
                self.count.fetch_add(1, Ordering::Relaxed);
            }
            Some(_) => self.is_wrong(format!("{number} was completed twice")),
            None => self.is_wrong(format!("{number} is not of this round")),
        }
    }

    pub(crate) fn give_out(&self, number: u64) {
        let all = lock(&self.acknowledged);
        if all.get(self.place(number)) == Some(&true) {
            self.is_wrong(format!("{number} was given out after its end"));
        }
    }

    fn is_wrong(&self, said: String) {
        lock(&self.wrong).push(said);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    /// Returns the faults that the sessions saw.
    pub(crate) fn wrong(&self) -> Result<()> {
        match lock(&self.wrong).as_slice() {
            [] => Ok(()),
            all => Err(format!("round {}: {}", self.number, all.join("; "))),
        }
    }

    /// Waits until this many completions have been acknowledged.
    pub(crate) async fn reaches(&self, count: u64) -> Result<()> {
        self.waits(async || self.count.load(Ordering::Relaxed) >= count)
            .await
    }

    /// Waits until all jobs have been queued and none waits or runs.
    pub(crate) async fn ends(&self) -> Result<()> {
        let ended = format!(
            "select (select count(*) from soak.call) = {}
                and not exists (select from trax.work_queue where task = 'soak')
                and not exists (select from trax.lease where task = 'soak')",
            self.jobs / CALL
        );
        self.waits(async || {
            let Ok(client) = self.database.connect().await else {
                return false;
            };
            let row = client.query_one(&ended, &[]).await;
            row.is_ok_and(|row| row.get(0))
        })
        .await?;
        self.is_over.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn waits(&self, is_so: impl AsyncFn() -> bool) -> Result<()> {
        let (mut seen, mut since) = (0, Instant::now());
        while !is_so().await {
            let count = self.count.load(Ordering::Relaxed);
            if count != seen {
                (seen, since) = (count, Instant::now());
            }
            if since.elapsed() > STUCK {
                self.is_over.store(true, Ordering::Relaxed);
                return Err(self.describe_stuck().await);
            }
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    }

    async fn describe_stuck(&self) -> String {
        let why = "select string_agg(d::text, ' ') from trax.diagnose() d";
        let why = match self.database.connect().await {
            Ok(client) => match client.query_one(why, &[]).await {
                Ok(row) => row.get::<_, Option<String>>(0).unwrap_or_default(),
                Err(error) => text_of(error),
            },
            Err(error) => error.to_string(),
        };
        let count = self.count.load(Ordering::Relaxed);
        format!("round {}: stuck after {count} jobs: {why}", self.number)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the call that completes these jobs and claims others.
fn next_batch(held: &[Held], session: usize) -> String {
    let ids: Vec<&str> = held.iter().map(|job| job.job_id.as_str()).collect();
    let tokens: Vec<&str> = held.iter().map(|job| job.token.as_str()).collect();
    format!(
        "select completed_job_id, job_id, token, input from trax.complete_and_claim(
             '{{{}}}', '{{{}}}', worker => 'w{session}', max_jobs => {BATCH}, lease => '5 s')",
        ids.join(","),
        tokens.join(",")
    )
}
