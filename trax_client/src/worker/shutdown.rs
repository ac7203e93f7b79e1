//! The stop of a worker: on signals, at the program's request, or when the queue is empty.

use std::sync::Arc;

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::error::{Error, Result};

/// The progress of a stop, which never goes back.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Phase {
    /// Claims and executes jobs.
    Running,
    /// Claims nothing and lets handlers end within the grace period.
    Draining,
    /// Releases all jobs at once.
    Releasing,
}

/// A handle that stops a worker from inside the program, and waits for its end.
#[derive(Clone, Debug)]
pub struct Shutdown {
    phase: Arc<watch::Sender<Phase>>,
    /// Whether the worker's run has ended.
    ended: Arc<watch::Sender<bool>>,
}

/// Marks the worker's run as ended when dropped.
pub(crate) struct Running(Arc<watch::Sender<bool>>);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.send_replace(true);
    }
}

impl Shutdown {
    pub(crate) fn new() -> Self {
        Shutdown {
            phase: Arc::new(watch::channel(Phase::Running).0),
            ended: Arc::new(watch::channel(false).0),
        }
    }

    /// Waits until a stop begins: by a signal, by this handle or because the queue is empty. For
    /// other parts of the program that stop with the worker.
    pub async fn requested(&self) {
        let mut phase = self.phase.subscribe();
        // Cannot fail, as this handle owns the sender.
        phase.wait_for(|phase| *phase != Phase::Running).await.ok();
    }

    /// Waits until the worker's run has ended for any reason.
    pub async fn ended(&self) {
        let mut ended = self.ended.subscribe();
        ended.wait_for(|ended| *ended).await.ok();
    }

    pub(crate) fn running(&self) -> Running {
        Running(Arc::clone(&self.ended))
    }

    /// Stops claiming and lets handlers end within the grace period, as the first signal does.
    pub fn drain(&self) {
        self.advance(Phase::Draining);
    }

    /// Releases all jobs at once, as the second signal does.
    pub fn release(&self) {
        self.advance(Phase::Releasing);
    }

    fn advance(&self, to: Phase) {
        self.phase.send_if_modified(|phase| {
            let further = *phase < to;
            if further {
                *phase = to;
            }
            further
        });
    }

    pub(crate) fn phase(&self) -> Phase {
        *self.phase.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Phase> {
        self.phase.subscribe()
    }

    /// Turns SIGTERM and SIGINT into phases until the returned task is dropped.
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

/// Stops listening for signals when the worker's run ends.
pub(crate) struct SignalTask(tokio::task::JoinHandle<()>);

impl Drop for SignalTask {
    fn drop(&mut self) {
        self.0.abort();
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
