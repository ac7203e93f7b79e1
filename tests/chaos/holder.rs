//! Token holders: they acquire a token or wait for one, extend it sometimes, then release it or
//! disconnect. Each knows how long it held a token at least; these times must never exceed the
//! number of slots.

use crate::journal::Journal;
use crate::producer::Pace;
use crate::random::Random;
use crate::testbed::{connect, now};
use std::sync::Arc;
use std::time::Duration;
use tokio_postgres::{Client, Config, SimpleQueryMessage};

/// The number of slots.
pub(crate) const HOLDERS: i64 = 2;
const DEADLINE: Duration = Duration::from_secs(15);
/// The lifetime of a token, in seconds.
const TTL: i64 = 4;

/// A period in which a token was held.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Hold {
    /// The time before the request.
    pub(crate) asked: i64,
    /// The time of the answer.
    pub(crate) from: i64,
    /// The time of its release, or the earliest time of its expiry.
    pub(crate) until: i64,
}

type Result<T> = std::result::Result<T, tokio_postgres::Error>;

/// Acquires, holds and releases tokens until the campaign is over.
pub(crate) async fn run(
    name: String,
    config: Config,
    seed: u64,
    journal: Arc<Journal>,
    pace: Arc<Pace>,
) {
    let mut holder = Holder {
        random: Random::new(seed, &name),
        name,
        hold: None,
    };
    while !pace.is_finished() {
        let client = match connect(&config).await {
            Ok(client) => client,
            Err(error) => {
                journal.error("connect", &error);
                tokio::time::sleep(Duration::from_millis(300)).await;
                continue;
            }
        };
        loop {
            let done = tokio::time::timeout(DEADLINE, holder.act(&client)).await;
            // A token counts as held until its session breaks.
            if let Some(hold) = holder.hold.take() {
                let until = hold.until.min(now());
                journal.note(|pages| pages.holds.push(Hold { until, ..hold }));
            }
            match done {
                Ok(Ok(true)) if !pace.is_finished() => {}
                Ok(Ok(_)) | Err(_) => break,
                Ok(Err(error)) => {
                    journal.error("holder", &error);
                    break;
                }
            }
        }
    }
}

struct Holder {
    name: String,
    random: Random,
    hold: Option<Hold>,
}

impl Holder {
    /// Handles one token from its acquisition to its end. Returns `false` if the session
    /// disconnects and the token expires.
    async fn act(&mut self, client: &Client) -> Result<bool> {
        let asked = now();
        let given = format!("'chaos', '{}', {HOLDERS}, '{TTL} s'", self.name);
        let sql = if self.random.percent(40) {
            format!("call trax.await_token({given}, '2 s', null, null, null)")
        } else {
            format!("select slot, token from trax.acquire_token({given})")
        };
        let Some(token) = second(&client.simple_query(&sql).await?) else {
            self.rest(50, 300).await;
            return Ok(true);
        };
        let mut hold = Hold {
            asked,
            from: now(),
            until: asked + TTL * 1_000_000,
        };
        self.hold = Some(hold);
        self.rest(20, 1_500).await;
        if self.random.percent(30) {
            let asked = now();
            let sql = format!(
                "select 1, nullif(trax.extend_token('chaos', '{token}', '{TTL} s'), false)"
            );
            if second(&client.simple_query(&sql).await?).is_none() {
                return Ok(true);
            }
            hold.until = asked + TTL * 1_000_000;
            self.hold = Some(hold);
            self.rest(20, 2_000).await;
        }
        if self.random.percent(10) {
            return Ok(false);
        }
        hold.until = hold.until.min(now());
        self.hold = Some(hold);
        let sql = format!("select trax.release_token('chaos', '{token}')");
        client.simple_query(&sql).await?;
        Ok(true)
    }

    async fn rest(&mut self, least: u64, most: u64) {
        let rest = self.random.between(least, most);
        tokio::time::sleep(Duration::from_millis(rest)).await;
    }
}

/// Returns the second column of the first row.
fn second(messages: &[SimpleQueryMessage]) -> Option<String> {
    messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(1).map(str::to_owned),
        _ => None,
    })
}
