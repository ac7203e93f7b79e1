//! Counts of a worker's results.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

use super::unreported::Answer;

/// The way in which a run of a worker ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stopped {
    /// Every handler ended by itself.
    Drained,
    /// The grace period ended, or a second signal came: some jobs were released.
    Released,
    /// The queue was empty (`until_empty`).
    Empty,
}

/// The results of a worker, counted from the server's answers.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Summary {
    /// The way in which the run ended.
    pub stopped: Stopped,
    /// Completions recorded, including those in transactions of handlers.
    pub completed: u64,
    /// Failed attempts that will be retried.
    pub retrying: u64,
    /// Jobs that failed permanently.
    pub dead: u64,
    /// Attempts that exceeded their timeout; they count as failed.
    pub timed_out: u64,
    /// Cancellations acknowledged.
    pub cancelled: u64,
    /// Jobs released without using up an attempt.
    pub released: u64,
    /// Outcomes reported after the lease was lost, or again after their first answer was lost.
    pub lost: u64,
    /// Outcomes that could not be reported. Their leases expire.
    pub unreported: u64,
}

impl Default for Summary {
    fn default() -> Self {
        Summary {
            stopped: Stopped::Drained,
            completed: 0,
            retrying: 0,
            dead: 0,
            timed_out: 0,
            cancelled: 0,
            released: 0,
            lost: 0,
            unreported: 0,
        }
    }
}

impl Summary {
    /// Adds the counts of another database.
    pub(crate) fn add(&mut self, other: &Summary) {
        self.stopped = match (self.stopped, other.stopped) {
            (Stopped::Released, _) | (_, Stopped::Released) => Stopped::Released,
            (Stopped::Empty, _) | (_, Stopped::Empty) => Stopped::Empty,
            (Stopped::Drained, Stopped::Drained) => Stopped::Drained,
        };
        self.completed += other.completed;
        self.retrying += other.retrying;
        self.dead += other.dead;
        self.timed_out += other.timed_out;
        self.cancelled += other.cancelled;
        self.released += other.released;
        self.lost += other.lost;
        self.unreported += other.unreported;
    }

    pub(crate) fn count(&mut self, answer: Answer) {
        *match answer {
            Answer::Completed => &mut self.completed,
            Answer::Retrying => &mut self.retrying,
            Answer::Dead => &mut self.dead,
            Answer::TimedOut => &mut self.timed_out,
            Answer::Cancelled => &mut self.cancelled,
            Answer::Released => &mut self.released,
            Answer::Lost => &mut self.lost,
            Answer::Unreported => &mut self.unreported,
        } += 1;
    }
}

/// The live counts of a running worker, from [`Worker::counts`](super::Worker::counts).
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// The counts of each database.
    all: Arc<Mutex<Vec<Summary>>>,
    at: usize,
}

impl Counts {
    /// Returns the counts so far. `stopped` is meaningful only at the end of the run.
    pub fn now(&self) -> Summary {
        let mut sum = Summary::default();
        self.all().iter().for_each(|one| sum.add(one));
        sum
    }

    /// Returns the counts of a further database.
    pub(crate) fn branch(&self) -> Self {
        let mut all = self.all();
        all.push(Summary::default());
        Counts {
            all: Arc::clone(&self.all),
            at: all.len() - 1,
        }
    }

    pub(crate) fn set(&self, summary: &Summary) {
        if let Some(own) = self.all().get_mut(self.at) {
            *own = summary.clone();
        }
    }

    fn all(&self) -> MutexGuard<'_, Vec<Summary>> {
        // No code panics under the lock.
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.stopped {
            Stopped::Drained => "stopped, every handler ended",
            Stopped::Released => "stopped, unfinished jobs were released",
            Stopped::Empty => "stopped, the queue is empty",
        };
        write!(f, "{how}: {} completed", self.completed)?;
        let rest = [
            (self.retrying, "retrying"),
            (self.dead, "dead"),
            (self.timed_out, "failed (timeout)"),
            (self.cancelled, "cancelled"),
            (self.released, "released"),
            (self.lost, "lost"),
            (self.unreported, "unreported"),
        ];
        for (number, what) in rest.into_iter().filter(|(number, _)| *number > 0) {
            write!(f, ", {number} {what}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_names_only_what_happened() {
        let mut summary = Summary::default();
        assert_eq!(
            summary.to_string(),
            "stopped, every handler ended: 0 completed"
        );
        summary.count(Answer::Completed);
        summary.count(Answer::Lost);
        assert_eq!(
            summary.to_string(),
            "stopped, every handler ended: 1 completed, 1 lost"
        );
    }

    #[test]
    fn the_counts_of_several_databases_are_added() {
        let counts = Counts::default();
        let (first, second) = (counts.branch(), counts.branch());
        let mut summary = Summary::default();
        summary.count(Answer::Completed);
        first.set(&summary);
        summary.stopped = Stopped::Empty;
        summary.count(Answer::Lost);
        second.set(&summary);
        let sum = counts.now();
        assert_eq!(
            (sum.completed, sum.lost, sum.stopped),
            (2, 1, Stopped::Empty)
        );
    }
}
