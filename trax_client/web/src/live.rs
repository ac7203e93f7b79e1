//! Live numbers: one statement for all who look, however many.
//!
//! Holds: the database is asked while somebody looks and never twice at a time; when it does not
//! answer, everybody is told that nothing is known, and the old numbers are not sent again.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::http::StatusCode;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::broadcast::{self, Sender};
use tokio_postgres::Row;

use crate::dispatch::Shared;
use crate::glance::{self, Question};
use crate::identity::Person;
use crate::layout::Reader;
use crate::trouble::Trouble;
use crate::visit::Visit;
use crate::work::Purpose;

const PERIOD: Duration = Duration::from_secs(2);
/// Most viewers at the same time.
const VIEWERS: usize = 1_000;
/// Numbers are counted up to this, and shown with a plus sign there.
const COUNTED: i64 = 100_000;

/// The numbers.
pub(crate) const LIVE: Question = Question {
    sql: include_str!("query/live.sql"),
    limit: Some(COUNTED + 1),
};

/// The names of the numbers, which are those of the columns.
pub(crate) const NAMES: [&str; 7] = [
    "ready", "later", "blocked", "running", "dead", "failed", "workers",
];

/// What was counted, as people read it, in the order of [`NAMES`].
#[derive(Clone, Debug)]
pub(crate) struct Numbers(Vec<String>);

impl Numbers {
    /// Reads the answer to [`LIVE`].
    pub(crate) fn of(rows: &[Row]) -> Result<Self, Trouble> {
        let row = rows
            .first()
            .ok_or_else(|| Trouble::unknown("no row came back"))?;
        let number = |name: &&str| Ok(text(Row::try_get(row, *name)?));
        Ok(Numbers(
            NAMES.iter().map(number).collect::<Result<_, Trouble>>()?,
        ))
    }

    pub(crate) fn get(&self, name: &str) -> &str {
        let place = NAMES.iter().position(|n| *n == name);
        place.map_or("", |place| self.0[place].as_str())
    }

    /// Returns the numbers as JSON; they are digits, commas and a plus sign.
    fn json(&self) -> String {
        let pair = |(name, value): (&&str, &String)| format!("\"{name}\":\"{value}\"");
        let pairs: Vec<String> = NAMES.iter().zip(&self.0).map(pair).collect();
        format!("{{{}}}", pairs.join(","))
    }
}

/// Returns "1,234", or "100,000+" where counting ended.
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

/// Who looks.
pub(crate) struct Live {
    sender: Sender<Arc<str>>,
    asks: AtomicBool,
}

impl Live {
    pub(crate) fn new() -> Self {
        Live {
            sender: broadcast::channel(4).0,
            asks: AtomicBool::new(false),
        }
    }
}

/// Returns the stream for one viewer, whose role may read.
pub(crate) async fn stream(shared: &Arc<Shared>, visit: &Visit) -> Result<Response, Trouble> {
    if shared.live.sender.receiver_count() >= VIEWERS {
        return Err(Trouble::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{VIEWERS} people look already"),
        ));
    }
    // Numbers are for those who could count them; while the database is away nobody knows.
    let work = shared.pool.begin(&visit.person, Purpose::Read).await?;
    let reader = Reader::of(&work).await?;
    work.commit().await?;
    if !reader.reads() {
        return Err(Trouble::forbidden(format!(
            "role \"{}\" may not read trax",
            reader.role
        )));
    }
    let receiver = shared.live.sender.subscribe();
    if !shared.live.asks.swap(true, Ordering::AcqRel) {
        let shared = shared.clone();
        tokio::spawn(async move { ask_while_somebody_looks(&shared).await });
    }
    let events = stream::unfold(receiver, |mut receiver| async move {
        loop {
            match receiver.recv().await {
                Ok(text) => {
                    let event = Event::default().data(text.as_ref());
                    return Some((Ok::<_, Infallible>(event), receiver));
                }
                // Who reads slowly gets the newest.
                Err(RecvError::Lagged(_)) => {}
                Err(RecvError::Closed) => return None,
            }
        }
    });
    let beat = KeepAlive::new().interval(Duration::from_secs(10));
    Ok(Sse::new(events).keep_alive(beat).into_response())
}

async fn ask_while_somebody_looks(shared: &Shared) {
    loop {
        while shared.live.sender.receiver_count() > 0 {
            let text = match ask(shared).await {
                Ok(numbers) => numbers.json(),
                Err(_) => "{\"unknown\":true}".to_owned(),
            };
            // Nobody may be left, which is no failure.
            drop(shared.live.sender.send(Arc::from(text)));
            tokio::time::sleep(PERIOD).await;
        }
        shared.live.asks.store(false, Ordering::Release);
        // Somebody who came meanwhile found us still asking.
        let nobody = shared.live.sender.receiver_count() == 0;
        if nobody || shared.live.asks.swap(true, Ordering::AcqRel) {
            return;
        }
    }
}

async fn ask(shared: &Shared) -> Result<Numbers, Trouble> {
    let answer = glance::ask(shared, &Person::default(), LIVE).await?;
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
}
