//! Answers that all viewers of a role share for a few seconds: what the overview and the doctor ask
//! reads much, and many look.
//!
//! Enters: a question. Leaves: its answer and how old that is, which the page shows. Holds:
//! - Nobody gets what another role was answered.
//! - However many look, a role asks each statement once at a time, and once more behind the pages
//!   that show an answer younger than [`LONGEST`].
//! - Nothing from before an act is shown after it.
//! - A page comes with a transaction of its own: while the database is away nothing is shown.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use crate::database::Database;
use crate::identity::Person;
use crate::trouble::Trouble;
use crate::work::{Argument, Purpose, Work};

/// An answer is asked for again, behind the page that shows it, when it is older.
const FRESH: Duration = Duration::from_secs(1);
/// No page shows an older one.
const LONGEST: Duration = Duration::from_secs(5);
/// Most answers that are kept.
const KEPT: usize = 1_000;

/// The role and the statement.
type Key = (Option<String>, &'static str);

/// The answers.
#[derive(Default)]
pub(crate) struct Glances {
    /// Counts the acts.
    acts: AtomicU64,
    cells: Mutex<HashMap<Key, Arc<Cell>>>,
}

#[derive(Default)]
struct Cell {
    answer: Mutex<Option<Answer>>,
    /// Held while the database is asked by a page that waits for it.
    asking: tokio::sync::Mutex<()>,
    /// Whether it is asked behind a page.
    is_renewed: AtomicBool,
}

/// A time before a transaction begins, and how many acts there were by then.
#[derive(Clone, Copy)]
pub(crate) struct Start {
    at: Instant,
    acts: u64,
}

impl Start {
    /// Returns how old an answer was at this time, if it is from before.
    pub(crate) fn since(self, answer: &Answer) -> Option<Duration> {
        let age = self.at.checked_duration_since(answer.start.at)?;
        (!age.is_zero()).then_some(age)
    }
}

/// What a statement returned, in a transaction that began after `start`.
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
    /// Returns the answer, unless it is old or from before an act.
    fn answer(&self, acts: u64) -> Option<Answer> {
        let answer = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = answer.as_ref()?;
        (answer.start.acts >= acts && answer.age() < LONGEST).then(|| answer.clone())
    }

    /// Asks the database and keeps its answer.
    async fn ask(
        &self,
        work: &Work<'_>,
        start: Start,
        question: Question,
    ) -> Result<Answer, Trouble> {
        let limit = question.limit.as_ref();
        let limit: Vec<Argument<'_>> = limit
            .map(|limit| (limit as _, Type::INT8))
            .into_iter()
            .collect();
        let rows = Arc::new(work.rows(question.sql, &limit).await?);
        let answer = Answer { rows, start };
        let mut kept = self.answer.lock().unwrap_or_else(PoisonError::into_inner);
        // One that began later may have come before.
        if kept.as_ref().is_none_or(|kept| kept.start.at < start.at) {
            *kept = Some(answer.clone());
        }
        Ok(answer)
    }
}

impl Glances {
    /// Returns what a transaction that begins now may say of its age.
    pub(crate) fn start(&self) -> Start {
        Start {
            at: Instant::now(),
            acts: self.acts.load(Ordering::Acquire),
        }
    }

    /// Makes every answer old: something was done.
    pub(crate) fn forget(&self) {
        self.acts.fetch_add(1, Ordering::AcqRel);
    }

    fn cell(&self, person: &Person, question: Question) -> Arc<Cell> {
        let key = (person.role.clone(), question.sql);
        let mut cells = self.cells.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cell) = cells.get(&key) {
            return Arc::clone(cell);
        }
        if cells.len() >= KEPT {
            cells.clear();
        }
        Arc::clone(cells.entry(key).or_default())
    }
}

/// A statement that everybody asks alike.
#[derive(Clone, Copy)]
pub(crate) struct Question {
    pub(crate) sql: &'static str,
    /// Its only argument, if it has one.
    pub(crate) limit: Option<i64>,
}

impl Question {
    pub(crate) const fn of(sql: &'static str) -> Self {
        Question { sql, limit: None }
    }
}

/// Returns the answer to a question for a person, whose page has a transaction since `start`.
pub(crate) async fn glance(
    database: &Arc<Database>,
    person: &Person,
    work: &Work<'_>,
    start: Start,
    question: Question,
) -> Result<Answer, Trouble> {
    let glances = &database.glances;
    let cell = glances.cell(person, question);
    if let Some(answer) = cell.answer(start.acts) {
        if answer.age() > FRESH && !cell.is_renewed.swap(true, Ordering::AcqRel) {
            let (database, person) = (Arc::clone(database), person.clone());
            tokio::spawn(async move {
                // Who looks next asks again, and sees the trouble.
                drop(ask(&database, &person, question).await);
                cell.is_renewed.store(false, Ordering::Release);
            });
        }
        return Ok(answer);
    }
    // Whoever has this has a connection: those who wait for it with theirs wait for nobody else's.
    let _asking = cell.asking.lock().await;
    // Somebody else has asked meanwhile.
    if let Some(answer) = cell.answer(start.acts) {
        return Ok(answer);
    }
    cell.ask(work, start, question).await
}

/// Asks the database for a person, and keeps the answer for all of the same role.
pub(crate) async fn ask(
    database: &Database,
    person: &Person,
    question: Question,
) -> Result<Answer, Trouble> {
    let start = database.glances.start();
    let work = database.pool.begin(person, Purpose::Read).await?;
    let cell = database.glances.cell(person, question);
    let answer = cell.ask(&work, start, question).await?;
    work.commit().await?;
    Ok(answer)
}
