//! When and how a worker stops: signals, the program's own wish, or an empty queue.

use std::fmt;
use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::error::{Error, Result};

/// How far the stop has come. It never goes back.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Phase {
    /// Claims and executes.
    Running,
    /// Claims nothing, lets handlers end within the grace period.
    Draining,
    /// Gives everything back at once.
    Releasing,
}

/// A handle that stops a worker from inside the program.
#[derive(Clone, Debug)]
pub struct Shutdown(Arc<watch::Sender<Phase>>);

impl Shutdown {
    pub(crate) fn new() -> Self {
        Shutdown(Arc::new(watch::channel(Phase::Running).0))
    }

    /// Stop claiming, let handlers end within the grace period: what the first signal does.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Release everything at once: what the second signal does.
    pub fn release(&self) {
        self.advance(Phase::Releasing);
    }

    fn advance(&self, to: Phase) {
        self.0.send_if_modified(|phase| {
            let further = *phase < to;
            if further {
                *phase = to;
            }
            further
        });
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.0.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.0.subscribe()
    }

    /// Turns SIGTERM and SIGINT into phases for as long as the returned task runs.
    pub(crate) fn obey_signals(&self) -> Result<SignalTask> {
        let failed = |error: std::io::Error| Error::Conversion(error.into());
        let mut term = signal(SignalKind::terminate()).map_err(failed)?;
        let mut int = signal(SignalKind::interrupt()).map_err(failed)?;
        let shutdown = self.clone();
        Ok(SignalTask(tokio::spawn(async move {
            loop {
                let received = tokio::select! {
                    received = term.recv() => received,
                    received = int.recv() => received,
                };
                match (received, shutdown.phase()) {
                    (None, _) => return,
                    (Some(()), Phase::Running) => shutdown.drain(),
                    (Some(()), _) => shutdown.release(),
                }
            }
        })))
    }
}

/// Ends the listening for signals when the worker's run ends.
pub(crate) struct SignalTask(tokio::task::JoinHandle<()>);

impl Drop for SignalTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// How a run of a worker ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stopped {
    /// Every handler ended by itself.
    Drained,
    /// The grace period was over, or a second signal came: some jobs were given back.
    Released,
    /// The queue had nothing more (`until_empty`).
    Empty,
}

/// What a worker did in its run, counted by what the server answered.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Summary {
    /// How it ended.
    pub stopped: Stopped,
    /// Completions recorded, those by the handlers' own transactions included.
    pub completed: u64,
    /// Failed attempts that will be retried.
    pub retrying: u64,
    /// Failed for good.
    pub dead: u64,
    /// Cancellations and timeouts acknowledged.
    pub cancelled: u64,
    /// Given back without spending an attempt.
    pub released: u64,
    /// Outcomes that came after the lease was lost, or whose first answer was lost on the way.
    pub lost: u64,
    /// Outcomes that could not be told; their leases run out by themselves.
    pub untold: u64,
}

impl Default for Summary {
    fn default() -> Self {
        Summary {
            stopped: Stopped::Drained,
            completed: 0,
            retrying: 0,
            dead: 0,
            cancelled: 0,
            released: 0,
            lost: 0,
            untold: 0,
        }
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = match self.stopped {
            Stopped::Drained => "stopped, every handler ended",
            Stopped::Released => "stopped, unfinished jobs were given back",
            Stopped::Empty => "stopped, the queue is empty",
        };
        write!(
            f,
            "{how}: {} completed, {} retrying, {} dead, {} cancelled, {} released, {} lost, {} untold",
            self.completed,
            self.retrying,
            self.dead,
            self.cancelled,
            self.released,
            self.lost,
            self.untold,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stop_never_goes_back() {
        let shutdown = Shutdown::new();
        shutdown.release();
        shutdown.drain();
        assert_eq!(shutdown.phase(), Phase::Releasing);
    }
}
