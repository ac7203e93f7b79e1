//! Posts: they send signals to workflows before and during their waits, some twice with one id, in
//! transactions that commit late or are rolled back; and cancel workflows with their descendants.

use super::fact::Signal;
use super::programme::SIGNALS;
use crate::journal::Journal;
use crate::producer::Pace;
use crate::random::Random;
use crate::testbed::{Address, connect, now};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::{Client, Config, SimpleQueryMessage};

const DEADLINE: Duration = Duration::from_secs(15);
/// The time limit for a look at a server that may be stopped.
const PATIENCE: Duration = Duration::from_secs(2);

/// Living workflows: the signal that each waits for, or null, and what it waits for.
const LIVING: &str = "
    select q.job_id, s.wait->>'name', coalesce(q.waits_for, '')
    from trax.work_queue q
    left join trax.step s on s.job_id = q.job_id and s.kind = 'signal' and s.recorded_at is null
    where q.task = 'workflow'
    union all
    select l.job_id, null, '' from trax.lease l where l.task = 'workflow'";

type Result<T> = std::result::Result<T, tokio_postgres::Error>;

/// A workflow that lives.
struct Living {
    job: i64,
    signal: Option<String>,
    waits_for: String,
}

/// Where signals are sent, and where their jobs are seen.
pub(crate) struct Office {
    pub(crate) config: Config,
    /// The databases that have the jobs, without routes.
    pub(crate) eyes: Vec<Address>,
    pub(crate) has_router: bool,
}

pub(crate) struct Post {
    name: String,
    random: Random,
    office: Office,
    made: u64,
    /// The signals of the current act.
    open: Vec<Signal>,
    journal: Arc<Journal>,
    pace: Arc<Pace>,
}

/// Sends signals until the campaign has finished, and sends to every job that waits once the
/// producers have stopped.
pub(crate) async fn run(
    name: String,
    office: Office,
    seed: u64,
    journal: Arc<Journal>,
    pace: Arc<Pace>,
) {
    let mut post = Post {
        random: Random::new(seed, &name),
        name,
        office,
        made: 0,
        open: Vec::new(),
        journal,
        pace: Arc::clone(&pace),
    };
    while !pace.is_finished() {
        let client = match connect(&post.office.config).await {
            Ok(client) => client,
            Err(error) => {
                post.journal.error("connect", &error);
                tokio::time::sleep(Duration::from_millis(300)).await;
                continue;
            }
        };
        while !pace.is_finished() {
            let done = tokio::time::timeout(DEADLINE, post.act(&client)).await;
            let open = std::mem::take(&mut post.open);
            post.journal.note(|pages| pages.signals.extend(open));
            match done {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    post.journal.error("post", &error);
                    break;
                }
                Err(_) => break,
            }
            let rest = post.random.between(30, 200);
            tokio::time::sleep(Duration::from_millis(rest)).await;
        }
    }
}

fn first(messages: Vec<SimpleQueryMessage>) -> String {
    let text = |message: SimpleQueryMessage| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    };
    messages.into_iter().find_map(text).unwrap_or_default()
}

impl Post {
    /// Looks at the jobs of one database, and acts on some.
    async fn act(&mut self, client: &Client) -> Result<()> {
        let place = self.random.below(self.office.eyes.len() as u64) as usize;
        let eye = &self.office.eyes[place];
        let looking = async {
            let session = eye.connect_as("watcher").await?;
            session.query(LIVING, &[]).await
        };
        // A server that is down or stopped is looked at again later.
        let Ok(Ok(rows)) = tokio::time::timeout(PATIENCE, looking).await else {
            return Ok(());
        };
        let is_last = self.pace.is_over();
        for row in rows {
            let living = Living {
                job: row.get(0),
                signal: row.get(1),
                waits_for: row.get(2),
            };
            let is_awaited = living.waits_for == "signal";
            let cases = match &*living.waits_for {
                "signal" => 30,
                "jobs" => 15,
                _ => 5,
            };
            if is_last && is_awaited {
                self.plain(client, &living).await?;
            } else if !is_last && self.random.percent(cases) {
                self.reach(client, &living).await?;
            }
        }
        Ok(())
    }

    /// Sends signals to a job in one of the ways, or cancels it with its descendants.
    async fn reach(&mut self, client: &Client, living: &Living) -> Result<()> {
        match self.random.below(10) {
            0 | 1 => self.twice(client, living).await,
            2 | 3 if !self.office.has_router => self.together(client, living).await,
            4..=6 if living.waits_for == "jobs" => self.fell(client, living.job).await,
            _ => self.plain(client, living).await,
        }
    }

    /// Adds a signal to send; returns its place in the open ones and its statement.
    fn write(&mut self, living: &Living, id: Option<&str>) -> (usize, String) {
        self.made += 1;
        let any = SIGNALS[self.random.below(SIGNALS.len() as u64) as usize];
        let name = living.signal.as_deref().unwrap_or(any);
        let word = format!("{}-{}", self.name, self.made);
        let named = id.map_or(String::new(), |id| format!(", signal_id => '{id}'"));
        let sql = format!(
            "select trax.send_signal({}, '{name}', '\"{word}\"'{named})",
            living.job
        );
        self.open.push(Signal {
            job: living.job,
            name: name.to_owned(),
            word,
            id: id.map(str::to_owned),
            asked: now(),
            ..Signal::default()
        });
        (self.open.len() - 1, sql)
    }

    async fn send(&mut self, client: &Client, living: &Living, id: Option<&str>) -> Result<()> {
        let (place, sql) = self.write(living, id);
        let answer = first(client.simple_query(&sql).await?);
        let signal = &mut self.open[place];
        (signal.answer, signal.committed) = (answer, Some(now()));
        Ok(())
    }

    async fn plain(&mut self, client: &Client, living: &Living) -> Result<()> {
        self.send(client, living, None).await
    }

    /// Sends a signal with an id, and another with the same id.
    async fn twice(&mut self, client: &Client, living: &Living) -> Result<()> {
        let id = format!("{}-id-{}", self.name, self.made);
        self.send(client, living, Some(&id)).await?;
        self.send(client, living, Some(&id)).await
    }

    /// Sends one or two signals in a transaction that commits, perhaps late, or is rolled back.
    async fn together(&mut self, client: &Client, living: &Living) -> Result<()> {
        client.simple_query("begin").await?;
        let from = self.open.len();
        let one = Living {
            signal: living.signal.clone().or_else(|| Some("a".to_owned())),
            waits_for: String::new(),
            ..*living
        };
        for _ in 0..self.random.between(1, 2) {
            let (place, sql) = self.write(&one, None);
            self.open[place].answer = first(client.simple_query(&sql).await?);
        }
        if self.random.percent(30) {
            let late = self.random.between(50, 2_000);
            tokio::time::sleep(Duration::from_millis(late)).await;
        }
        if self.random.percent(30) {
            // The transaction is never committed, whatever the answer.
            for signal in &mut self.open[from..] {
                signal.is_withdrawn = true;
            }
            client.simple_query("rollback").await?;
            return Ok(());
        }
        client.simple_query("commit").await?;
        for signal in &mut self.open[from..] {
            signal.committed = Some(now());
        }
        Ok(())
    }

    async fn fell(&self, client: &Client, job: i64) -> Result<()> {
        let sql = format!("select trax.cancel({job})");
        let answer = first(client.simple_query(&sql).await?);
        if matches!(&*answer, "cancelled" | "requested") {
            self.journal.note(|pages| pages.felled.push((job, now())));
        }
        Ok(())
    }
}
