//! The steps that attempts of this process reach by calls of their own clients.
//!
//! A handler that records a step in its own transaction passes by the list of steps that its worker
//! keeps. Input: the token and the step of each such call. Output: the steps of one attempt.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use crate::id::Token;

/// The reached steps of the attempts that list them, by token.
static ATTEMPTS: Mutex<BTreeMap<Uuid, BTreeSet<String>>> = Mutex::new(BTreeMap::new());

fn attempts() -> MutexGuard<'static, BTreeMap<Uuid, BTreeSet<String>>> {
    // No code panics under the lock.
    ATTEMPTS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records that a call names a step. Nothing is kept if no attempt of this process has the token.
pub(crate) fn reach(token: Token, step: &str) {
    if let Some(reached) = attempts().get_mut(&token.0) {
        reached.insert(step.to_owned());
    }
}

/// The list of an attempt, which ends with this value.
pub(crate) struct Reached(Token);

impl Reached {
    pub(crate) fn of(token: Token) -> Self {
        attempts().insert(token.0, BTreeSet::new());
        Reached(token)
    }

    pub(crate) fn len(&self) -> usize {
        attempts().get(&self.0.0).map_or(0, BTreeSet::len)
    }

    pub(crate) fn has(&self, step: &str) -> bool {
        let attempts = attempts();
        let reached = attempts.get(&self.0.0);
        reached.is_some_and(|reached| reached.contains(step))
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
    fn an_attempt_has_the_steps_of_its_token_until_it_ends() {
        let [own, other] = [1, 2].map(|token| Token(Uuid::from_u128(token)));
        let attempt = Reached::of(own);
        reach(own, "charge");
        reach(other, "mail");
        assert!(attempt.has("charge") && !attempt.has("mail"));
        drop(attempt);
        reach(own, "charge");
        assert!(!Reached::of(own).has("charge"));
    }
}
