//! Cancellation of a running handler, with its reason.

use tokio::sync::watch;

/// The reason why an attempt should stop.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Reason {
    /// The job was cancelled.
    Cancelled,
    /// The attempt has run longer than its timeout.
    Timeout,
    /// Another worker may have the job by now. No outcome of this attempt will be accepted.
    LeaseLost,
    /// This worker is stopping. The job is released without using up an attempt.
    Shutdown,
}

/// The handler's side: checks for cancellation, or waits for it.
#[derive(Clone, Debug)]
pub struct Cancellation(watch::Receiver<Option<Reason>>);

/// The worker's side.
#[derive(Clone, Debug)]
pub(crate) struct Trigger(watch::Sender<Option<Reason>>);

pub(crate) fn cancellation() -> (Trigger, Cancellation) {
    let (sender, receiver) = watch::channel(None);
    (Trigger(sender), Cancellation(receiver))
}

impl Cancellation {
    /// Returns the reason why the attempt should stop, or `None`.
    pub fn reason(&self) -> Option<Reason> {
        *self.0.borrow()
    }

    /// Returns whether the attempt should stop.
    pub fn is_cancelled(&self) -> bool {
        self.reason().is_some()
    }

    /// Completes when the attempt should stop, and otherwise never.
    pub async fn cancelled(&self) -> Reason {
        let mut receiver = self.0.clone();
        let reason = match receiver.wait_for(Option::is_some).await {
            Ok(reason) => *reason,
            Err(_) => None,
        };
        match reason {
            Some(reason) => reason,
            None => std::future::pending().await,
        }
    }
}

impl Trigger {
    /// Cancels the attempt. The first of several reasons is kept.
    pub(crate) fn cancel(&self, reason: Reason) {
        self.0.send_if_modified(|slot| {
            let first = slot.is_none();
            if first {
                *slot = Some(reason);
            }
            first
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_first_reason_stays() {
        let (trigger, cancellation) = cancellation();
        assert!(!cancellation.is_cancelled());
        trigger.cancel(Reason::Timeout);
        trigger.cancel(Reason::Shutdown);
        assert_eq!(cancellation.cancelled().await, Reason::Timeout);
    }
}
