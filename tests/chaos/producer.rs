//! Producers enqueue with one statement, with many, with COPY, and in transactions that commit late
//! or are rolled back. Every acknowledgement is recorded.

use crate::fact::Acknowledgement;
use crate::graph::RATE;
use crate::graph::fact::Added;
use crate::journal::Journal;
use crate::random::Random;
use crate::testbed::{connect, now};
use crate::workflow::{WORKFLOW, programme};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_postgres::{Client, Config, SimpleQueryMessage};
use trax_client::{JobOptions, NewJob, Result};

/// Producers pause while more jobs than this wait.
const BACKLOG: u64 = 200;
/// A call that takes longer counts as broken, whatever its result.
const DEADLINE: Duration = Duration::from_secs(15);

/// State shared between producers and the driver.
#[derive(Default)]
pub(crate) struct Pace {
    pub(crate) stop: AtomicBool,
    /// Set when workers should stop as well.
    pub(crate) finished: AtomicBool,
    /// The number of waiting jobs.
    pub(crate) backlog: AtomicU64,
    /// Unresolved dead letters.
    pub(crate) letters: Mutex<Vec<i64>>,
}

/// Where producers enqueue.
#[derive(Clone, Copy)]
pub(crate) struct Market {
    pub(crate) groups: &'static [&'static str],
    /// Groups that a mover moves from shard to shard, through a router.
    pub(crate) moving: &'static [&'static str],
    pub(crate) has_router: bool,
}

/// The market of a campaign on a single server.
pub(crate) const SERVER: Market = Market {
    groups: &["default", "default", "two", "five", "free"],
    moving: &[],
    has_router: false,
};

impl Pace {
    /// Whether producers should stop.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether workers should stop as well.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::Relaxed)
    }
}

/// Enqueues until the campaign is over, and reconnects when a connection breaks.
pub(crate) async fn run(
    name: String,
    config: Config,
    market: Market,
    seed: u64,
    journal: Arc<Journal>,
    pace: Arc<Pace>,
) {
    let mut producer = Producer {
        market,
        random: Random::new(seed, &name),
        name,
        made: 0,
        known: Vec::new(),
        open: Vec::new(),
        journal,
        pace: Arc::clone(&pace),
    };
    while !pace.is_over() {
        let client = match connect(&config).await {
            Ok(client) => client,
            Err(error) => {
                producer.journal.error("connect", &error);
                tokio::time::sleep(Duration::from_millis(300)).await;
                continue;
            }
        };
        while !pace.is_over() && !client.is_closed() {
            if pace.backlog.load(Ordering::Relaxed) > BACKLOG {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
            match tokio::time::timeout(DEADLINE, producer.act(&client)).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    producer.journal.error("producer", &error);
                    // The session may still have an open transaction.
                    break;
                }
                Err(_) => break,
            }
            let rest = producer.random.between(20, 160);
            tokio::time::sleep(Duration::from_millis(rest)).await;
        }
    }
}

pub(crate) struct Producer {
    market: Market,
    name: String,
    pub(crate) random: Random,
    made: u64,
    /// Jobs that this producer enqueued recently, at a router.
    pub(crate) known: Vec<i64>,
    /// The batches that it has opened and not sealed.
    pub(crate) open: Vec<i64>,
    pub(crate) journal: Arc<Journal>,
    pub(crate) pace: Arc<Pace>,
}

/// A job to enqueue.
pub(crate) struct Wanted {
    pub(crate) nonce: String,
    pub(crate) unique: Option<String>,
    /// The arguments of `trax.enqueue`.
    pub(crate) arguments: String,
}

impl Producer {
    pub(crate) fn nonce(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{}-{}", self.name, self.made)
    }

    /// Returns a job of a random kind.
    pub(crate) fn wanted(&mut self) -> Wanted {
        let market = self.market;
        let random = &mut self.random;
        let task = match random.below(20) {
            0 => "exec",
            1..=4 => WORKFLOW,
            // Workers of a router know only these three tasks.
            5..=8 if market.has_router => "work",
            5 => "count.words",
            6..=8 => "ledger",
            _ => "work",
        };
        let nap = if random.percent(5) {
            random.between(500, 5_000)
        } else {
            random.between(0, 150)
        };
        let fails = if random.percent(15) {
            random.between(1, 3)
        } else {
            0
        };
        let how = ["error", "panic", "permanent", "snooze", "deaf"][random.below(5) as usize];
        let key = random.percent(15).then(|| random.below(6));
        let unique = random.percent(10).then(|| random.below(8));
        let group = self.group();
        // Through a router, a key belongs to its group.
        let scope = if market.has_router { group } else { "" };
        let key = key.map(|key| format!("{scope}k{key}"));
        let unique = unique.map(|unique| format!("{scope}u{unique}"));
        let random = &mut self.random;
        let priority = if random.percent(20) {
            random.below(32)
        } else {
            0
        };
        let delay = if random.percent(15) {
            random.between(100, 4_000)
        } else {
            0
        };
        let timeout = random.percent(5).then_some("2 s");
        // A job that always times out would otherwise be retried for ever.
        let retries = match timeout {
            Some(_) => 2,
            None if random.percent(10) => random.below(3),
            None => 30,
        };
        let nonce = self.nonce(task);
        let random = &mut self.random;
        let mut input = format!(
            "\"nonce\": \"{nonce}\", \"nap\": {nap}, \"fails\": {fails}, \"how\": \"{how}\", \"text\": \"a b c\""
        );
        let mut arguments = format!(
            "'{task}', group_name => '{group}', priority => {priority}, max_retries => {retries}"
        );
        if task == WORKFLOW {
            let plan = programme::draw(random, !market.moving.contains(&group));
            input += &format!(", \"plan\": \"{plan}\"");
        }
        if let Some(key) = key {
            input += &format!(", \"key\": \"{key}\"");
            arguments += &format!(", concurrency_key => '{key}'");
        }
        if let Some(unique) = &unique {
            // While a group moves, each shard checks the unique key separately.
            if !market.moving.contains(&group) {
                input += &format!(", \"unique\": \"{unique}\"");
            }
            arguments += &format!(", unique_key => '{unique}'");
        }
        if task == "work" && !market.has_router && random.percent(25) {
            let cost = random.between(1, RATE.burst.unsigned_abs());
            let key = ["null", "'a'", "'b'"][random.below(3) as usize];
            arguments += &format!(
                ", rate => '{}', rate_key => {key}, cost => {cost}",
                RATE.name
            );
        }
        if delay > 0 {
            arguments += &format!(", run_at => clock_timestamp() + interval '{delay} ms'");
        }
        if let Some(timeout) = timeout {
            arguments += &format!(", timeout => '{timeout}'");
        }
        arguments += &format!(", input => '{{{input}}}'");
        Wanted {
            nonce,
            unique,
            arguments,
        }
    }

    pub(crate) fn group(&mut self) -> &'static str {
        let groups = self.market.groups;
        groups[self.random.below(groups.len() as u64) as usize]
    }

    pub(crate) fn acknowledged(&self, acknowledged: Vec<Acknowledgement>) {
        let at = now();
        let acknowledged = acknowledged
            .into_iter()
            .map(|acknowledged| Acknowledgement { at, ..acknowledged });
        self.journal
            .note(|pages| pages.enqueued.extend(acknowledged));
    }

    /// Runs one call, or one transaction.
    async fn act(&mut self, client: &Client) -> Result<()> {
        if self.market.has_router {
            self.act_at_router(client).await;
            return Ok(());
        }
        match self.random.below(12) {
            0 => self.many(client).await,
            1 => self.copy(client).await,
            2..=4 => self.transaction(client, None).await,
            5 => self.graph(client).await,
            6..=7 => self.batch(client).await,
            _ => {
                let acknowledged = self.one(client, "enqueue", None).await?;
                self.acknowledged(vec![acknowledged]);
                Ok(())
            }
        }
    }

    /// Calls a function with the arguments of `trax.enqueue`.
    pub(crate) async fn one(
        &mut self,
        client: &Client,
        function: &str,
        batch: Option<i64>,
    ) -> Result<Acknowledgement> {
        let wanted = self.wanted();
        let batch = batch.map_or(String::new(), |batch| format!(", batch => {batch}"));
        let sql = format!("select trax.{function}({}{batch})", wanted.arguments);
        let job = ids(client, &sql).await?.first().copied().unwrap_or(0);
        Ok(Acknowledgement {
            at: 0,
            nonce: wanted.nonce,
            job,
            unique: wanted.unique,
        })
    }

    async fn many(&mut self, client: &Client) -> Result<()> {
        let (nonces, arguments) = self.wanted_many();
        let jobs = ids(client, &format!("select trax.enqueue_many({arguments})")).await?;
        self.acknowledged_many(nonces, jobs);
        Ok(())
    }

    /// Returns several jobs that differ only in their inputs: their nonces, and the arguments of
    /// `trax.enqueue_many`.
    pub(crate) fn wanted_many(&mut self) -> (Vec<String>, String) {
        let count = self.random.between(1, 20);
        let nonces: Vec<String> = (0..count).map(|_| self.nonce("work")).collect();
        let inputs: Vec<String> = nonces
            .iter()
            .map(|nonce| format!("'{{\"nonce\": \"{nonce}\", \"nap\": 5}}'"))
            .collect();
        let inputs = inputs.join(", ");
        let arguments = format!("'work', array[{inputs}]::jsonb[], max_retries => 30");
        (nonces, arguments)
    }

    pub(crate) fn acknowledged_many(&self, nonces: Vec<String>, jobs: Vec<i64>) {
        let acknowledged = nonces.into_iter().zip(jobs);
        let acknowledged = acknowledged.map(|(nonce, job)| Acknowledgement {
            nonce,
            job,
            ..Acknowledgement::default()
        });
        self.acknowledged(acknowledged.collect());
    }

    async fn copy(&mut self, client: &Client) -> Result<()> {
        let count = self.random.between(1, 20);
        let nonces: Vec<String> = (0..count).map(|_| self.nonce("work")).collect();
        let trax = trax_client::Client::new(client);
        let mut copy = trax.copy_in().await?;
        for nonce in &nonces {
            let input = serde_json::json!({"nonce": nonce, "nap": 5});
            let options = JobOptions::new().group("five").max_retries(30);
            copy.add(&NewJob::new("work", input).with(options)).await?;
        }
        copy.finish().await?;
        let acknowledged = nonces.into_iter().map(|nonce| Acknowledgement {
            nonce,
            ..Acknowledgement::default()
        });
        self.acknowledged(acknowledged.collect());
        Ok(())
    }

    /// Enqueues a few jobs, of a batch if there is one, waits, then commits or rolls back.
    pub(crate) async fn transaction(&mut self, client: &Client, batch: Option<i64>) -> Result<()> {
        client.simple_query("begin").await?;
        let mut acknowledged = Vec::new();
        for _ in 0..self.random.between(1, 4) {
            acknowledged.push(self.one(client, "enqueue", batch).await?);
        }
        let late = if self.random.percent(30) {
            self.random.between(100, 3_000)
        } else {
            0
        };
        tokio::time::sleep(Duration::from_millis(late)).await;
        if self.random.percent(30) {
            // The transaction is never committed, whatever the answer.
            let nonces = acknowledged
                .into_iter()
                .map(|acknowledged| acknowledged.nonce);
            self.journal.note(|pages| pages.withdrawn.extend(nonces));
            client.simple_query("rollback").await?;
        } else {
            client.simple_query("commit").await?;
            if let Some(batch) = batch {
                self.added(batch, &acknowledged);
            }
            self.acknowledged(acknowledged);
        }
        Ok(())
    }

    /// Records the jobs of a batch. With a unique key the answer may be an earlier job, which is
    /// not added.
    fn added(&self, batch: i64, acknowledged: &[Acknowledgement]) {
        let at = now();
        let new = acknowledged.iter().filter(|one| one.unique.is_none());
        let added = new.map(|one| Added {
            at,
            batch,
            job: one.job,
        });
        self.journal.note(|pages| pages.added.extend(added));
    }
}

/// Returns the ids in the result of a statement.
pub(crate) async fn ids(
    client: &Client,
    sql: &str,
) -> std::result::Result<Vec<i64>, tokio_postgres::Error> {
    let messages = client.simple_query(sql).await?;
    let number = |message: SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).and_then(|text| text.parse().ok()),
        _ => None,
    };
    Ok(messages.into_iter().filter_map(number).collect())
}
