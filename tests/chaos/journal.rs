//! Records of the participants: those of clients in memory, those of worker processes in files.

use crate::fact::{Acknowledgement, Execution};
use crate::graph::fact::Added;
use crate::holder::Hold;
use crate::testbed::{SHARD, now};
use crate::workflow::fact::Signal;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The results of the campaign's own clients.
#[derive(Default)]
pub(crate) struct Journal(Mutex<Pages>);

/// The contents of the journal.
#[derive(Clone, Default)]
pub(crate) struct Pages {
    pub(crate) enqueued: Vec<Acknowledgement>,
    pub(crate) withdrawn: Vec<String>,
    pub(crate) completed: Vec<Acknowledgement>,
    pub(crate) complaints: Vec<String>,
    pub(crate) holds: Vec<Hold>,
    /// Jobs whose cancellation before their start was acknowledged.
    pub(crate) cancelled: Vec<i64>,
    /// Acknowledged requeues: the dead letter and its new job.
    pub(crate) requeued: Vec<(i64, i64)>,
    /// Attempts to send a signal to a workflow.
    pub(crate) signals: Vec<Signal>,
    /// Workflows that were cancelled with their descendants, and when that was acknowledged.
    pub(crate) felled: Vec<(i64, i64)>,
    /// Batches whose opening was acknowledged.
    pub(crate) opened: Vec<i64>,
    /// The jobs that were added to them.
    pub(crate) added: Vec<Added>,
    /// Batches that were to be sealed, and the time before the call.
    pub(crate) sealed: Vec<(i64, i64)>,
    /// Manifests that run once and were stored.
    pub(crate) scheduled: Vec<String>,
    /// The number of calls with an unknown result.
    pub(crate) unknown: usize,
    /// Errors that clients received, with their counts.
    pub(crate) errors: BTreeMap<String, usize>,
}

impl Journal {
    /// Changes the journal.
    pub(crate) fn note(&self, write: impl FnOnce(&mut Pages)) {
        write(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Records an error of the server or of a connection, without its variable parts.
    pub(crate) fn error(&self, who: &str, error: &(dyn std::error::Error + 'static)) {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text += &format!(": {error}");
            cause = error.source();
        }
        let text: String = text
            .chars()
            .map(|c| if c.is_ascii_digit() { '#' } else { c })
            .collect();
        self.note(|pages| *pages.errors.entry(format!("{who}: {text}")).or_default() += 1);
    }

    /// Returns a copy of the journal.
    pub(crate) fn read(&self) -> Pages {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The log file of a worker process. Each line is one write, so a kill leaves whole lines.
pub(crate) struct Log(Mutex<File>);

impl Log {
    /// Opens the file and records a process start, which ends all executions that were still open.
    pub(crate) fn open(path: &Path) -> std::io::Result<Self> {
        let file = File::options().create(true).append(true).open(path)?;
        let log = Log(Mutex::new(file));
        log.line("S", 0, 0, "-", "-");
        Ok(log)
    }

    fn line(&self, kind: &str, job: i64, attempt: i32, nonce: &str, word: &str) {
        let line = format!("{kind} {} {job} {attempt} {nonce} {word}\n", now());
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(line.as_bytes())
            .expect("the log can be written");
    }

    /// Records that a handler begins a job of a database.
    pub(crate) fn begin(&self, job: i64, attempt: i32, nonce: &str, database: &str) {
        self.line("B", job, attempt, nonce, database);
    }

    /// Records that the work of a step runs.
    pub(crate) fn work(&self, job: i64, attempt: i32, nonce: &str, step: &str) {
        self.line("W", job, attempt, nonce, step);
    }

    /// Records that a handler ends.
    pub(crate) fn end(&self, job: i64, attempt: i32, nonce: &str, word: &str) {
        self.line("E", job, attempt, nonce, word);
    }
}

/// Parses the executions from a worker's file.
pub(crate) fn executions(worker: &str, text: &str) -> Vec<Execution> {
    let mut found: Vec<Execution> = Vec::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [kind, at, job, attempt, nonce, word] = fields[..] else {
            continue;
        };
        let (Ok(at), Ok(job), Ok(attempt)) = (at.parse(), job.parse(), attempt.parse()) else {
            continue;
        };
        match kind {
            "S" => {
                for open in found.iter_mut().filter(|one| one.ended.is_none()) {
                    open.ended = Some(at);
                    open.word = "killed".to_owned();
                }
            }
            "B" => found.push(Execution {
                shard: word
                    .strip_prefix(SHARD)
                    .and_then(|number| number.parse().ok()),
                job,
                attempt,
                worker: worker.to_owned(),
                nonce: nonce.to_owned(),
                began: at,
                ended: None,
                word: String::new(),
                works: Vec::new(),
            }),
            _ => {
                let is_it = |one: &&mut Execution| {
                    one.ended.is_none() && (one.job, one.attempt) == (job, attempt)
                };
                let Some(open) = found.iter_mut().find(is_it) else {
                    continue;
                };
                if kind == "W" {
                    open.works.push(word.to_owned());
                } else {
                    open.ended = Some(at);
                    open.word = word.to_owned();
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_killed_process_left_open_ended_when_the_next_began() {
        let text = "S 1 0 0 - -\nB 2 7 1 a shard_3\nW 2 7 1 a note.0\nE 3 7 1 a ok\nB 4 8 1 b -\nS 9 0 0 - -\nB 10 8 2 b -\nB 11 9 1 c";
        let found = executions("w", text);
        let short: Vec<_> = found
            .iter()
            .map(|one| (one.job, one.attempt, one.shard, one.ended, &*one.word))
            .collect();
        assert_eq!(
            short,
            [
                (7, 1, Some(3), Some(3), "ok"),
                (8, 1, None, Some(9), "killed"),
                (8, 2, None, None, "")
            ]
        );
        assert_eq!(found[0].works, ["note.0"]);
    }
}
