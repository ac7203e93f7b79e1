//! Recording a step, without a statement. `trax bench steps` compares it with commits of one row.

use super::{Contents, Kind, Place};
use crate::columns::Step;
use crate::server::clock::Timestamp;
use crate::server::lock::{Lock, Mode};
use crate::server::spi::arg;
use crate::server::table;
use crate::server::table::{Index, Inserter, Key, Table, Written};
use pgrx::{JsonB, pg_sys};
use serde_json::{Map, Value};

/// More than the longest time in JSON has.
const TIME_BYTES: usize = 256;

impl Place {
    /// Adds the row of the step and returns true, unless the job has one of this name. Waits for
    /// another transaction that records the same step.
    pub(super) fn add(&self, attempt: i32, contents: &Contents<'_>) -> bool {
        let steps = Table::open(Step::TABLE, Step::ALL);
        let index = Index::open(&steps, c"step_pkey");
        let is_new = loop {
            // Two sessions that both find no row would both add it.
            let lock = Lock::Step(self.job_id, &self.step);
            lock.take(Mode::Alone);
            let keys = [Key::equals(1, self.job_id), Key::equals_text(2, &self.step)];
            let written = index.any_written(keys);
            if written.is_none() {
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
        is_new
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
