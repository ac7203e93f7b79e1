//! The steps that attempts of this process reach, and the jobs that they complete, by calls of
//! their own clients.
//!
//! A handler that records a step or the completion in its own transaction passes by its worker.
//! Input: the token of each such call, and the step; the names of the steps that earlier attempts
//! have recorded, once they are read. Output: the calls of one attempt, and the recorded steps that
//! it has not reached.

use std::collections::{BTreeSet, HashMap};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::id::Token;

/// The calls of one attempt.
#[derive(Default)]
struct Calls {
    steps: BTreeSet<String>,
    /// How many steps earlier attempts have recorded.
    earlier: usize,
    /// Their names, once they are read.
    recorded: BTreeSet<String>,
    /// In a transaction that may still roll back.
    has_completed: bool,
}

/// The calls of the attempts that run, by token.
static ATTEMPTS: LazyLock<Mutex<HashMap<Uuid, Calls>>> = LazyLock::new(Mutex::default);

fn attempts() -> MutexGuard<'static, HashMap<Uuid, Calls>> {
    // No code panics under the lock.
    ATTEMPTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that an attempt has begun a step. Nothing is kept if no attempt of this process has the
/// token.
pub(crate) fn reach(token: Token, step: &str) {
    if let Some(calls) = attempts().get_mut(&token.0) {
        calls.steps.insert(step.to_owned());
    }
}

/// Records the steps of earlier attempts.
pub(crate) fn were_recorded(token: Token, steps: impl Iterator<Item = String>) {
    if let Some(calls) = attempts().get_mut(&token.0) {
        calls.recorded = steps.collect();
    }
}

/// Returns whether [`unreached`] needs the names of the recorded steps, which are not read yet: the
/// attempt has begun fewer.
pub(crate) fn needs_names(token: Token) -> bool {
    let attempts = attempts();
    let calls = attempts.get(&token.0);
    calls.is_some_and(|calls| calls.recorded.is_empty() && calls.earlier > calls.steps.len())
}

/// Returns the recorded steps that an attempt has not reached: the code has changed under a living
/// job.
pub(crate) fn unreached(token: Token) -> Vec<String> {
    let attempts = attempts();
    let calls = attempts.get(&token.0);
    calls.map_or_else(Vec::new, |calls| {
        calls.recorded.difference(&calls.steps).cloned().collect()
    })
}

/// Records that a call has completed the job of an attempt, as [`reach`] records a step.
pub(crate) fn complete(token: Token) {
    if let Some(calls) = attempts().get_mut(&token.0) {
        calls.has_completed = true;
    }
}

/// Returns whether a call has completed the job of an attempt.
pub(crate) fn has_completed(token: Token) -> bool {
    let attempts = attempts();
    let calls = attempts.get(&token.0);
    calls.is_some_and(|calls| calls.has_completed)
}

/// The list of an attempt's calls, which ends with this value.
pub(crate) struct Reached(Token);

impl Reached {
    /// Begins the list of an attempt whose job has so many recorded steps.
    pub(crate) fn of(token: Token, earlier: usize) -> Self {
        let calls = Calls {
            earlier,
            ..Calls::default()
        };
        attempts().insert(token.0, calls);
        Reached(token)
    }

    /// Returns whether the attempt has completed its job.
    pub(crate) fn has_completed(&self) -> bool {
        has_completed(self.0)
    }
}

impl Drop for Reached {
    fn drop(&mut self) {
        attempts().remove(&self.0.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_has_the_calls_of_its_token_until_it_ends() {
        let [own, other] = [1, 2].map(|token| Token(Uuid::from_u128(token)));
        let attempt = Reached::of(own, 3);
        assert!(unreached(own).is_empty() && needs_names(own));
        were_recorded(
            own,
            ["mail", "charge", "bill"].map(str::to_owned).into_iter(),
        );
        reach(own, "charge");
        reach(other, "mail");
        complete(other);
        assert_eq!(unreached(own), ["bill", "mail"]);
        assert!(!needs_names(own) && !attempt.has_completed());
        complete(own);
        assert!(attempt.has_completed());
        drop(attempt);
        reach(own, "charge");
        complete(own);
        let next = Reached::of(own, 1);
        assert!(needs_names(own) && !next.has_completed());
        reach(own, "charge");
        assert!(!needs_names(own));
    }
}
