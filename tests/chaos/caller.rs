//! SQL callers that claim and complete jobs themselves, in transactions that stay open, commit
//! late, are rolled back or lose their session. The work of a job is a row in a table, committed
//! with the completion, so each row appears exactly once.

use crate::fact::Acknowledgement;
use crate::journal::Journal;
use crate::producer::Pace;
use crate::random::Random;
use crate::testbed::{connect, now};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::{Client, Config, SimpleQueryMessage};

const DEADLINE: Duration = Duration::from_secs(15);

type Result<T> = std::result::Result<T, tokio_postgres::Error>;

/// A claimed job.
struct Claim {
    job: i64,
    token: String,
    nonce: String,
}

impl Claim {
    fn key(&self) -> String {
        format!("{}, '{}'", self.job, self.token)
    }
}

/// The next use of a caller's session.
enum Next {
    GoesOn,
    Vanishes,
}

/// Works until the campaign has finished.
pub(crate) async fn run(
    name: String,
    config: Config,
    seed: u64,
    journal: Arc<Journal>,
    pace: Arc<Pace>,
) {
    let mut caller = Caller {
        random: Random::new(seed, &name),
        name,
        journal,
    };
    // The loop also works on the jobs that were enqueued last.
    while !pace.is_finished() {
        let client = match connect(&config).await {
            Ok(client) => client,
            Err(error) => {
                caller.journal.error("connect", &error);
                tokio::time::sleep(Duration::from_millis(300)).await;
                continue;
            }
        };
        while !pace.is_finished() {
            match tokio::time::timeout(DEADLINE, caller.act(&client)).await {
                Ok(Ok(Next::GoesOn)) => {}
                Ok(Ok(Next::Vanishes)) | Err(_) => break,
                Ok(Err(error)) => {
                    caller.journal.error("caller", &error);
                    break;
                }
            }
            let rest = caller.random.between(10, 150);
            tokio::time::sleep(Duration::from_millis(rest)).await;
        }
    }
}

struct Caller {
    name: String,
    random: Random,
    journal: Arc<Journal>,
}

impl Caller {
    async fn claim(&mut self, client: &Client) -> Result<Vec<Claim>> {
        let most = self.random.between(1, 3);
        let sql = format!(
            "select job_id, token, input->>'nonce' from trax.claim_next('{}', max_jobs => {most}, \
             tasks => '{{ledger}}', lease => '4 s')",
            self.name
        );
        let claimed = |message: SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => Some(Claim {
                job: row.get(0)?.parse().ok()?,
                token: row.get(1)?.to_owned(),
                nonce: row.get(2)?.to_owned(),
            }),
            _ => None,
        };
        let messages = client.simple_query(&sql).await?;
        Ok(messages.into_iter().filter_map(claimed).collect())
    }

    /// Claims jobs, executes them and reports their outcomes, in one transaction or in several.
    async fn act(&mut self, client: &Client) -> Result<Next> {
        let in_one = self.random.percent(30);
        client.simple_query("begin").await?;
        let claims = self.claim(client).await?;
        if claims.is_empty() {
            client.simple_query("commit").await?;
            tokio::time::sleep(Duration::from_millis(100)).await;
            return Ok(Next::GoesOn);
        }
        self.sometimes_waits(20).await;
        if in_one {
            return self.finish(client, &claims).await;
        }
        if self.random.percent(10) {
            client.simple_query("rollback").await?;
            return Ok(Next::GoesOn);
        }
        client.simple_query("commit").await?;
        self.sometimes_waits(30).await;
        client.simple_query("begin").await?;
        self.finish(client, &claims).await
    }

    async fn sometimes_waits(&mut self, cases: u64) {
        if self.random.percent(cases) {
            let late = self.random.between(50, 2_500);
            tokio::time::sleep(Duration::from_millis(late)).await;
        }
    }

    /// Writes effects and completions in the open transaction; then commits, rolls back or
    /// disconnects.
    async fn finish(&mut self, client: &Client, claims: &[Claim]) -> Result<Next> {
        let mut done = Vec::new();
        for claim in claims {
            if self.random.percent(10) {
                let sql = format!(
                    "select trax.fail({}, 'as chance says', retry_in => '200 ms')",
                    claim.key()
                );
                client.simple_query(&sql).await?;
                continue;
            }
            // The effect is written only if the completion is accepted.
            let sql = format!(
                "with done as (select trax.complete({}) as counts) \
                 insert into public.ledger (job_id, nonce) select {}, '{}' from done where counts",
                claim.key(),
                claim.job,
                claim.nonce
            );
            let messages = client.simple_query(&sql).await?;
            if matches!(
                messages.last(),
                Some(SimpleQueryMessage::CommandComplete(1))
            ) {
                done.push(claim);
            }
        }
        self.sometimes_waits(30).await;
        let chance = self.random.below(100);
        if chance < 10 {
            client.simple_query("rollback").await?;
            return Ok(Next::GoesOn);
        }
        if chance < 18 {
            return Ok(Next::Vanishes);
        }
        client.simple_query("commit").await?;
        let at = now();
        let acknowledged = done.iter().map(|claim| Acknowledgement {
            at,
            nonce: claim.nonce.clone(),
            job: claim.job,
            unique: None,
        });
        self.journal
            .note(|pages| pages.completed.extend(acknowledged));
        Ok(Next::GoesOn)
    }
}
