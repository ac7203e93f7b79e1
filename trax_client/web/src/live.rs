//! Live numbers: one statement for all viewers; at a router, one per shard.
//!
//! Invariants: the database is queried only while there are viewers, and never concurrently. If it
//! does not answer, viewers are notified that the numbers are unknown, and old numbers are not sent
//! again.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::Mutex;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Sender};
use tokio_postgres::Row;

use crate::cluster::Shards;
use crate::database::Database;
use crate::dispatch::Shared;
use crate::glance::{self, Question};
use crate::identity::Person;
use crate::layout::Reader;
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::work::Purpose;

const PERIOD: Duration = Duration::from_secs(2);
/// How long a viewer's permission is cached.
const RECHECK: Duration = Duration::from_secs(4);
/// The maximum number of concurrent viewers.
const VIEWERS: usize = 1_000;
/// Counting stops at this number, which is then shown with a plus sign.
const COUNTED: i64 = 100_000;

/// The query for the numbers.
pub(crate) const LIVE: Question = Question {
    sql: include_str!("query/live.sql"),
    limit: Some(COUNTED + 1),
};

/// The names of the numbers, which are the names of the columns.
pub(crate) const NAMES: [&str; 7] = [
    "ready", "later", "blocked", "running", "dead", "failed", "workers",
];

/// The counts, in the order of [`NAMES`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Numbers([i64; NAMES.len()]);

impl Numbers {
    /// Reads the answer to [`LIVE`].
    pub(crate) fn of(rows: &[Row]) -> Result<Self, Trouble> {
        let row = rows
            .first()
            .ok_or_else(|| Trouble::unknown("no row came back"))?;
        let mut numbers = Numbers::default();
        for (name, number) in NAMES.iter().zip(&mut numbers.0) {
            *number = row.try_get(*name)?;
        }
        Ok(numbers)
    }

    pub(crate) fn get(&self, name: &str) -> String {
        let place = NAMES.iter().position(|n| *n == name);
        place.map_or(String::new(), |place| text(self.0[place]))
    }

    /// Adds the numbers of another database. A sum with a count that stopped at the limit stays
    /// above the limit.
    pub(crate) fn add(&mut self, other: Numbers) {
        for (number, more) in self.0.iter_mut().zip(other.0) {
            *number += more;
        }
    }
}

/// The message to viewers.
struct News {
    numbers: Numbers,
    /// Shards whose numbers are missing from the sum.
    away: Vec<i32>,
}

impl News {
    /// Returns the message as JSON. Numbers consist of digits, commas and a plus sign.
    fn json(&self) -> String {
        let pair = |name: &&str| format!("\"{name}\":\"{}\"", self.numbers.get(name));
        let pairs: Vec<String> = NAMES.iter().map(pair).collect();
        format!("{{{},\"away\":{:?}}}", pairs.join(","), self.away)
    }
}

/// Returns "1,234", or "100,000+" if counting stopped.
pub(crate) fn text(number: i64) -> String {
    if number > COUNTED {
        return format!("{}+", grouped(COUNTED));
    }
    grouped(number)
}

pub(crate) fn grouped(number: i64) -> String {
    let digits = number.unsigned_abs().to_string();
    let mut out = String::from(if number < 0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// The viewers of a database.
pub(crate) struct Live(Arc<Channel>);

struct Channel {
    sender: Sender<Arc<str>>,
    /// Whether each role may read, and when that was checked.
    readers: Mutex<HashMap<Option<String>, (Instant, bool)>>,
    asks: AtomicBool,
}

impl Live {
    pub(crate) fn new() -> Self {
        Live(Arc::new(Channel {
            sender: broadcast::channel(4).0,
            readers: Mutex::default(),
            asks: AtomicBool::new(false),
        }))
    }
}

/// Returns the stream of one database for a viewer whose role may read it.
pub(crate) async fn of_database(
    shared: &Arc<Shared>,
    database: &Arc<Database>,
    visit: &Visit,
) -> Result<Response, Trouble> {
    check_viewers(&database.live)?;
    check_reader(database, &visit.person).await?;
    let asked = Arc::clone(database);
    let news = move || {
        let asked = Arc::clone(&asked);
        async move {
            let numbers = ask(&asked).await.ok()?;
            let away = Vec::new();
            Some(News { numbers, away })
        }
    };
    let (shared, asked, person) = (
        Arc::clone(shared),
        Arc::clone(database),
        visit.person.clone(),
    );
    let may_look = move || {
        let (shared, database, person) = (shared.clone(), asked.clone(), person.clone());
        async move { shared.identity().knows(&person) && may_read(&database, &person).await }
    };
    Ok(stream(&database.live, news, may_look))
}

/// Returns the stream of all shards together for a viewer whose role may read all that answer.
pub(crate) async fn of_shards(
    shared: &Arc<Shared>,
    shards: &Shards,
    visit: &Visit,
) -> Result<Response, Trouble> {
    let live = &shared.database.live;
    check_viewers(live)?;
    let checked = shards.each(|_, shard| async move { check_reader(&shard, &visit.person).await });
    let checked: Vec<_> = checked
        .await
        .into_iter()
        .map(|(_, answer)| answer)
        .collect();
    // The sum is shown only to viewers who may read every shard in it. Unavailable shards are not
    // in it.
    let away = StatusCode::SERVICE_UNAVAILABLE;
    let is_read = checked.iter().any(Result::is_ok);
    let mut refusals = checked.into_iter().filter_map(Result::err);
    if let Some(refusal) = refusals.find(|trouble| !is_read || trouble.status != away) {
        return Err(refusal);
    }
    if !is_read {
        return Err(Trouble::missing("the router has no shard"));
    }
    let asked = Arc::clone(shared);
    let news = move || {
        let shared = Arc::clone(&asked);
        async move {
            let shards = shared.cluster.shards(&shared).await.ok()??;
            let asked = shards.each(|_, shard| async move { ask(&shard).await });
            sum(asked.await)
        }
    };
    let (asked, person) = (Arc::clone(shared), visit.person.clone());
    let may_look = move || {
        let (shared, person) = (asked.clone(), person.clone());
        async move {
            let Ok(Some(shards)) = shared.cluster.shards(&shared).await else {
                return true;
            };
            let person = &person;
            let read = shards.each(|_, shard| async move { Ok(may_read(&shard, person).await) });
            let read = read.await.into_iter().all(|(_, read)| read.unwrap_or(true));
            read && shared.identity().knows(person)
        }
    };
    Ok(stream(live, news, may_look))
}

/// Adds up the numbers of the shards; `None` if no shard answered.
fn sum(asked: Vec<(i32, Result<Numbers, Trouble>)>) -> Option<News> {
    let (mut sum, mut away) = (None, Vec::new());
    for (shard, answer) in asked {
        match answer {
            Ok(numbers) => sum.get_or_insert_with(Numbers::default).add(numbers),
            Err(_) => away.push(shard),
        }
    }
    sum.map(|numbers| News { numbers, away })
}

fn check_viewers(live: &Live) -> Result<(), Trouble> {
    if live.0.sender.receiver_count() < VIEWERS {
        return Ok(());
    }
    Err(Trouble::new(
        StatusCode::SERVICE_UNAVAILABLE,
        format!("{VIEWERS} people look already"),
    ))
}

/// Checks that the viewer may count the rows. While the database is unavailable this is unknown.
async fn check_reader(database: &Database, person: &Person) -> Result<(), Trouble> {
    let work = database.pool.begin(person, Purpose::Read).await?;
    let reader = Reader::of(&work).await?;
    work.commit().await?;
    if reader.reads() {
        return Ok(());
    }
    Err(Trouble::forbidden(format!(
        "role \"{}\" may not read trax",
        reader.role
    )))
}

/// Returns whether a role may still read. Checked once for all viewers of the role.
async fn may_read(database: &Database, person: &Person) -> bool {
    let mut readers = database.live.0.readers.lock().await;
    if let Some((asked, may)) = readers.get(&person.role)
        && asked.elapsed() < RECHECK
    {
        return *may;
    }
    // While the database is unavailable the right is unknown, but no numbers are sent either.
    let may = match check_reader(database, person).await {
        Ok(()) => true,
        Err(trouble) => trouble.status == StatusCode::SERVICE_UNAVAILABLE,
    };
    readers.insert(person.role.clone(), (Instant::now(), may));
    may
}

/// Returns a stream of the values of `ask`, which is called once for all viewers, until `may_look`
/// returns false.
fn stream<A, F, M, G>(live: &Live, ask: A, may_look: M) -> Response
where
    A: Fn() -> F + Send + Sync + 'static,
    F: Future<Output = Option<News>> + Send,
    M: Fn() -> G + Send + Sync + 'static,
    G: Future<Output = bool> + Send,
{
    let receiver = live.0.sender.subscribe();
    if !live.0.asks.swap(true, Ordering::AcqRel) {
        let channel = Arc::clone(&live.0);
        tokio::spawn(async move { ask_while_somebody_looks(&channel, ask).await });
    }
    let begin = (receiver, may_look, Instant::now());
    let events = stream::unfold(begin, |(mut receiver, may_look, mut asked)| async move {
        loop {
            match receiver.recv().await {
                Ok(text) => {
                    if asked.elapsed() >= RECHECK {
                        if !may_look().await {
                            return None;
                        }
                        asked = Instant::now();
                    }
                    let event = Event::default().data(text.as_ref());
                    let next = (receiver, may_look, asked);
                    return Some((Ok::<_, Infallible>(event), next));
                }
                // A slow reader gets the newest value.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let beat = KeepAlive::new().interval(Duration::from_secs(10));
    Sse::new(events).keep_alive(beat).into_response()
}

async fn ask_while_somebody_looks<F: Future<Output = Option<News>>>(
    channel: &Channel,
    ask: impl Fn() -> F,
) {
    loop {
        while channel.sender.receiver_count() > 0 {
            let text = match ask().await {
                Some(news) => news.json(),
                None => "{\"unknown\":true}".to_owned(),
            };
            // Sending fails if no viewer is left, which is not an error.
            drop(channel.sender.send(Arc::from(text)));
            tokio::time::sleep(PERIOD).await;
        }
        channel.asks.store(false, Ordering::Release);
        // A viewer that arrived meanwhile saw the flag still set.
        let nobody = channel.sender.receiver_count() == 0;
        if nobody || channel.asks.swap(true, Ordering::AcqRel) {
            return;
        }
    }
}

async fn ask(database: &Database) -> Result<Numbers, Trouble> {
    let answer = glance::ask(database, &Person::default(), LIVE).await?;
    Numbers::of(&answer.rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_end_where_counting_ends() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(-1_234_567), "-1,234,567");
        assert_eq!(text(100_000), "100,000");
        assert_eq!(text(100_001), "100,000+");
    }

    #[test]
    fn a_sum_of_shards_names_those_that_are_not_in_it() {
        let of = |ready| {
            let mut numbers = Numbers::default();
            numbers.0[0] = ready;
            numbers
        };
        let gone = || Err(Trouble::unknown("gone"));
        let asked = vec![(1, Ok(of(60_000))), (2, gone()), (3, Ok(of(50_000)))];
        let json = sum(asked).expect("two answered").json();
        assert!(
            json.starts_with("{\"ready\":\"100,000+\",\"later\":\"0\""),
            "{json}"
        );
        assert!(json.ends_with("\"away\":[2]}"), "{json}");
        assert!(sum(vec![(1, gone())]).is_none());
    }
}
