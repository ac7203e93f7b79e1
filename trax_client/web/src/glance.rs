//! Answers shared by all viewers of a role for a few seconds: the queries of the overview and the
//! doctor are expensive, and have many viewers.
//!
//! Input: a query. Output: its answer and the answer's age, which the page shows. Invariants:
//! - An answer is never shown to another role.
//! - However many viewers there are, a role runs each statement once at a time, and once more in
//!   the background of pages that show an answer younger than [`LONGEST`].
//! - No answer from before an act is shown after it.
//! - Each page has its own transaction, so nothing is shown while the database is unavailable.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::identity::Person;
use crate::trouble::Trouble;
use crate::work::{Argument, Pool, Purpose, Work};

/// An older answer is renewed in the background of the page that shows it.
const FRESH: Duration = Duration::from_secs(1);
/// The maximum age of an answer that a page shows.
const LONGEST: Duration = Duration::from_secs(5);
/// The maximum number of answers kept.
const KEPT: usize = 1_000;

/// The role, and the question.
type Key = (Option<String>, Question);

/// The cached answers of a database.
pub(crate) struct Glances {
    pool: Arc<Pool>,
    /// The number of acts so far.
    acts: AtomicU64,
    cells: Mutex<HashMap<Key, Arc<Cell>>>,
}

#[derive(Default)]
struct Cell {
    answer: Mutex<Option<Answer>>,
    /// Held while a page waits for the database's answer.
    asking: tokio::sync::Mutex<()>,
    /// Whether the answer is being renewed in the background.
    is_renewed: AtomicBool,
}

/// A moment before a transaction begins, and the number of acts by then.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    at: Instant,
    acts: u64,
}

impl Start {
    /// Returns the age of an answer at this moment, if the answer is older.
    pub(crate) fn since(self, answer: &Answer) -> Option<Duration> {
        let age = self.at.checked_duration_since(answer.start.at)?;
        (!age.is_zero()).then_some(age)
    }
}

/// The result of a statement in a transaction that began after `start`.
#[derive(Clone)]
pub(crate) struct Answer {
    pub(crate) rows: Arc<Vec<Row>>,
    start: Start,
}

impl Answer {
    fn age(&self) -> Duration {
        self.start.at.elapsed()
    }
}

impl Cell {
    /// Returns the answer, unless it is too old or from before an act.
    fn answer(&self, acts: u64) -> Option<Answer> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answer.as_ref()?;
        (answer.start.acts >= acts && answer.age() < LONGEST).then(|| answer.clone())
    }

    /// Queries the database and caches the answer.
    async fn ask(
        &self,
        work: &Work<'_>,
        start: Start,
        question: Question,
    ) -> Result<Answer, Trouble> {
        let numbers = question.numbers.iter();
        let numbers: Vec<Argument<'_>> = numbers.map(|n| (n as _, Type::INT8)).collect();
        let rows = Arc::new(work.rows(question.sql, &numbers).await?);
        let answer = Answer { rows, start };
        let mut kept = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        // A query that began later may have finished earlier.
        if kept.as_ref().is_none_or(|kept| kept.start.at < start.at) {
            *kept = Some(answer.clone());
        }
        Ok(answer)
    }
}

impl Glances {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Glances {
            pool,
            acts: AtomicU64::new(0),
            cells: Mutex::default(),
        }
    }

    /// Returns the start for a transaction that begins now.
    pub(crate) fn start(&self) -> Start {
        Start {
            at: Instant::now(),
            acts: self.acts.load(Ordering::Acquire),
        }
    }

    /// Invalidates all answers after an act.
    pub(crate) fn forget(&self) {
        self.acts.fetch_add(1, Ordering::AcqRel);
    }

    fn cell(&self, person: &Person, question: Question) -> Arc<Cell> {
        let key = (person.role.clone(), question);
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cells.get(&key) {
            return Arc::clone(cell);
        }
        if cells.len() >= KEPT {
            cells.clear();
        }
        Arc::clone(cells.entry(key).or_default())
    }

    /// Returns the answer to a question for a user whose page has had a transaction since `start`.
    pub(crate) async fn glance(
        self: &Arc<Self>,
        person: &Person,
        work: &Work<'_>,
        start: Start,
        question: Question,
    ) -> Result<Answer, Trouble> {
        let cell = self.cell(person, question);
        if let Some(answer) = cell.answer(start.acts) {
            if answer.age() > FRESH && !cell.is_renewed.swap(true, Ordering::AcqRel) {
                let (glances, person) = (Arc::clone(self), person.clone());
                tokio::spawn(async move {
                    // The next viewer queries again and gets the error.
                    drop(glances.ask(&person, question).await);
                    cell.is_renewed.store(false, Ordering::Release);
                });
            }
            return Ok(answer);
        }
        // The holder of this lock already has a connection, so the waiters, which have theirs too,
        // cannot deadlock on the pool.
        let _asking = cell.asking.lock().await;
        // Another request has renewed it meanwhile.
        if let Some(answer) = cell.answer(start.acts) {
            return Ok(answer);
        }
        cell.ask(work, start, question).await
    }

    /// Queries the database as a user, and caches the answer for all users of the same role.
    pub(crate) async fn ask(&self, person: &Person, question: Question) -> Result<Answer, Trouble> {
        let start = self.start();
        let work = self.pool.begin(person, Purpose::Read).await?;
        let cell = self.cell(person, question);
        let answer = cell.ask(&work, start, question).await?;
        work.commit().await?;
        Ok(answer)
    }
}

/// A statement that is the same for all viewers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Question {
    pub(crate) sql: &'static str,
    /// Its arguments.
    pub(crate) numbers: &'static [i64],
}

impl Question {
    pub(crate) const fn of(sql: &'static str) -> Self {
        Question { sql, numbers: &[] }
    }
}
