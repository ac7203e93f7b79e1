//! Producers at a router: they enqueue, schedule, cancel and requeue. Acknowledged calls are
//! recorded as done and refused ones as never done; the result of any other call is unknown.

use crate::fact::Acknowledgement;
use crate::producer::Producer;
use std::sync::PoisonError;
use std::time::Duration;
use tokio_postgres::error::SqlState;
use tokio_postgres::{Client, SimpleQueryMessage};

/// The number of its own jobs that a producer remembers.
const KNOWN: usize = 50;

/// The result of a call.
enum End {
    /// The first column of each row.
    Done(Vec<String>),
    /// No effect: the shard could not be reached or is closed, or the transaction at the router had
    /// already failed.
    Refused,
    Unknown,
}

fn first(message: SimpleQueryMessage) -> Option<String> {
    match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }
}

/// Parses an id; 0 if the text is not a number.
fn id(text: &str) -> i64 {
    text.parse().unwrap_or(0)
}

impl Producer {
    /// Runs one call, or a few in a transaction.
    pub(crate) async fn act_at_router(&mut self, client: &Client) {
        match self.random.below(40) {
            0..=3 => self.many_at_router(client).await,
            4 => self.schedule(client).await,
            5..=8 => self.cancel(client).await,
            9..=11 => self.requeue(client).await,
            12..=14 => self.in_transaction(client).await,
            _ => self.one_at_router(client).await,
        }
    }

    async fn call(&self, client: &Client, sql: &str) -> End {
        let error = match client.simple_query(sql).await {
            Ok(messages) => return End::Done(messages.into_iter().filter_map(first).collect()),
            Err(error) => error,
        };
        self.journal.error("producer", &error);
        let refused = [
            SqlState::SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION,
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            SqlState::IN_FAILED_SQL_TRANSACTION,
        ];
        if error.code().is_some_and(|code| refused.contains(code)) {
            return End::Refused;
        }
        self.journal.note(|pages| pages.unknown += 1);
        End::Unknown
    }

    async fn one_at_router(&mut self, client: &Client) {
        let wanted = self.wanted();
        let sql = format!("select trax.enqueue({})", wanted.arguments);
        match self.call(client, &sql).await {
            End::Done(rows) => {
                let job = rows.first().map_or(0, |text| id(text));
                self.known.push(job);
                if self.known.len() > KNOWN {
                    self.known.remove(0);
                }
                self.acknowledged(vec![Acknowledgement {
                    at: 0,
                    nonce: wanted.nonce,
                    job,
                    unique: wanted.unique,
                }]);
            }
            End::Refused => self
                .journal
                .note(|pages| pages.withdrawn.push(wanted.nonce)),
            End::Unknown => {}
        }
    }

    async fn many_at_router(&mut self, client: &Client) {
        let (nonces, arguments) = self.wanted_many();
        let group = self.group();
        let sql = format!("select trax.enqueue_many({arguments}, group_name => '{group}')");
        // After a refusal by one shard, another shard may have enqueued its part.
        if let End::Done(rows) = self.call(client, &sql).await {
            let jobs = rows.iter().map(|row| id(row)).collect();
            self.acknowledged_many(nonces, jobs);
        }
    }

    /// Schedules a manifest that runs once.
    async fn schedule(&mut self, client: &Client) {
        let name = self.nonce("manifest");
        let delay = self.random.between(0, 3_000);
        let sql = format!(
            "select trax.schedule('{name}', 'tick', run_at => clock_timestamp() + interval '{delay} ms',
                group_name => '{}', max_retries => 1000)",
            self.group()
        );
        if let End::Done(_) = self.call(client, &sql).await {
            self.journal.note(|pages| pages.scheduled.push(name));
        }
    }

    async fn cancel(&mut self, client: &Client) {
        // Recent jobs are more likely to wait still.
        let last = if self.random.percent(70) { 1 } else { KNOWN };
        let place = self.known.len().saturating_sub(last);
        if place == self.known.len() {
            return;
        }
        let job = self.known.remove(place);
        let sql = format!("select trax.cancel({job})");
        if let End::Done(rows) = self.call(client, &sql).await
            && rows.first().is_some_and(|word| word == "cancelled")
        {
            self.journal.note(|pages| pages.cancelled.push(job));
        }
    }

    async fn requeue(&mut self, client: &Client) {
        let letter = {
            let letters = self.pace.letters.lock();
            letters.unwrap_or_else(PoisonError::into_inner).pop()
        };
        let Some(letter) = letter else { return };
        let sql = format!("select trax.requeue_dead_letter({letter}, 'chaos')");
        if let End::Done(rows) = self.call(client, &sql).await {
            let job = rows.first().map_or(0, |text| id(text));
            self.journal
                .note(|pages| pages.requeued.push((letter, job)));
        }
    }

    /// A shard's work is committed even if the transaction at the router is rolled back.
    async fn in_transaction(&mut self, client: &Client) {
        let End::Done(_) = self.call(client, "begin").await else {
            return;
        };
        for _ in 0..self.random.between(1, 3) {
            self.one_at_router(client).await;
        }
        let late = if self.random.percent(30) {
            self.random.between(100, 2_000)
        } else {
            0
        };
        tokio::time::sleep(Duration::from_millis(late)).await;
        let end = if self.random.percent(50) {
            "rollback"
        } else {
            "commit"
        };
        self.call(client, end).await;
    }
}
