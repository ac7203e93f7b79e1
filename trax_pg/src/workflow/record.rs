//! Recording a step, without a statement. `trax bench steps` compares it with commits of one row.

use super::{Contents, Kind, Place};
use crate::columns::Step;
use crate::error::{Error, Result};
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::spi::arg;
use crate::server::table;
use crate::server::table::{Index, Inserter, Key, Table, View, Written};
use pgrx::{JsonB, PgSqlErrorCode, pg_sys};
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::collections::HashMap;

/// The most steps of one job.
const STEPS_AT_MOST: i64 = 10_000;
/// After so many own steps a session counts those of the job again: others may record too.
const COUNT_AFTER: i64 = 256;
/// The most sessions that record steps of one job: each adds this part of the room that it has
/// counted before it counts again. So only steps that are not committed yet exceed the limit.
const SESSIONS_AT_MOST: i64 = 16;
/// The most jobs whose numbers of steps a session keeps.
const KNOWN_AT_MOST: usize = 1000;

/// More than the longest time in JSON has.
const TIME_BYTES: usize = 256;

/// The number of a job's steps, as a session knows it.
#[derive(Clone, Copy)]
struct Known {
    /// How many there were at the last count.
    counted: i64,
    /// How many this session has added since.
    added: i64,
}

thread_local! {
    /// The steps of the jobs for which this session has recorded some lately.
    static KNOWN: RefCell<HashMap<i64, Known>> = RefCell::default();
}

impl Known {
    /// Returns whether the job has room for one more step, whatever other sessions have added.
    fn has_room(self) -> bool {
        let share = (STEPS_AT_MOST - self.counted) / SESSIONS_AT_MOST;
        self.added < share.min(COUNT_AFTER)
    }
}

/// Returns 54000 when a job has as many steps as it may have. Counts the rows at the first step in
/// a session and after each share of the room.
fn require_room(job_id: i64, index: &Index) -> Result<()> {
    let known = KNOWN.with_borrow(|known| known.get(&job_id).copied());
    let known = known.filter(|known| known.has_room());
    let known = known.unwrap_or_else(|| Known {
        counted: count(job_id, index),
        added: 0,
    });
    if known.counted >= STEPS_AT_MOST {
        return Err(Error::new(
            PgSqlErrorCode::ERRCODE_PROGRAM_LIMIT_EXCEEDED,
            format!("job {job_id} has {} steps", known.counted),
        )
        .detail(format!("A job has at most {STEPS_AT_MOST} steps."))
        .hint(
            "Record fewer and larger steps, or let the job spawn children for parts of its work.",
        ));
    }
    KNOWN.with_borrow_mut(|jobs| {
        if jobs.len() >= KNOWN_AT_MOST {
            jobs.clear();
        }
        let added = known.added + 1;
        jobs.insert(job_id, Known { added, ..known });
    });
    Ok(())
}

fn count(job_id: i64, index: &Index) -> i64 {
    let view = View::latest();
    let scan = index.scan(&view, 1);
    scan.seek([Key::equals(1, job_id)]);
    let mut count = 0;
    while scan.next() {
        count += 1;
    }
    scan.end();
    view.end();
    count
}

impl Place {
    /// Adds the row of the step and returns true, unless the job has one of this name. Waits for
    /// another transaction that records the same step.
    pub(super) fn add(&self, attempt: i32, contents: &Contents<'_>) -> Result<bool> {
        let steps = Table::open(Step::TABLE, Step::ALL);
        let index = Index::open(&steps, c"step_pkey");
        let is_new = loop {
            // Two sessions that both find no row would both add it.
            let lock = Lock::Step(self.job_id, &self.step);
            lock.take(Mode::Alone);
            let keys = [Key::equals(1, self.job_id), Key::equals_text(2, &self.step)];
            let written = index.any_written(keys);
            if written.is_none() {
                require_room(self.job_id, &index)?;
                self.insert(&steps, attempt, contents);
            }
            lock.give_back(Mode::Alone);
            match written {
                None => break true,
                Some(Written::Already) => break false,
                Some(Written::By(other)) => other.wait(),
            }
        };
        index.close();
        steps.close();
        Ok(is_new)
    }

    fn insert(&self, steps: &Table, attempt: i32, contents: &Contents<'_>) {
        let id = table::next_ids(c"step_step_id_seq", 1)[0];
        let recorded_at = (!contents.is_open).then_some(self.now);
        let mut rows = Inserter::begin(steps, 1);
        let mut row = rows.row();
        row.set(Step::JobId, arg(self.job_id));
        row.set(Step::StepId, arg(id));
        row.set(Step::RecordedAt, recorded_at.and_then(arg));
        row.set(Step::Attempt, arg(attempt));
        row.set(Step::TimedOut, arg(false));
        row.set(Step::Name, arg(self.step.as_str()));
        row.set(Step::Kind, arg(self.kind.name()));
        row.set(Step::Output, contents.output);
        row.set(Step::Wait, self.wait(contents));
        row.set(Step::Undo, contents.undo);
        rows.end();
    }

    /// Returns since when a wait waits, until when at most, and for what.
    fn wait(&self, contents: &Contents<'_>) -> Option<pg_sys::Datum> {
        let waited_for = match self.kind {
            Kind::Step | Kind::Child => return None,
            Kind::Sleep => None,
            Kind::Signal => contents.waited_for.map(|name| ("name", name)),
            Kind::Jobs => contents.waited_for.map(|mode| ("mode", mode)),
        };
        let mut wait = Map::new();
        wait.insert("since".to_owned(), shown(self.now));
        if let Some(until) = contents.until {
            wait.insert("until".to_owned(), shown(until));
        }
        if let Some((key, value)) = waited_for {
            wait.insert(key.to_owned(), Value::from(value));
        }
        arg(JsonB(Value::Object(wait)))
    }
}

/// Returns a time as the server shows it in JSON.
fn shown(time: Timestamp) -> Value {
    let mut text = [0; TIME_BYTES];
    // SAFETY: the buffer is longer than MAXDATELEN; the function ends the text with a zero byte.
    let text = unsafe {
        let text = pg_sys::JsonEncodeDateTime(
            text.as_mut_ptr(),
            pg_sys::Datum::from(time.0),
            pg_sys::TIMESTAMPTZOID,
            std::ptr::null(),
        );
        std::ffi::CStr::from_ptr(text)
    };
    Value::from(text.to_string_lossy())
}
