//! The two identifiers of a piece of work: the id of the job, which never changes, and the token of
//! the lease, which changes with every attempt.

use std::fmt;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The number of a job, the same from enqueueing to the last attempt.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, Ord, PartialEq, PartialOrd, Serialize)]
#[serde(transparent)]
pub struct JobId(pub i64);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The fencing token of a lease. An outcome with a stale token changes nothing.
#[derive(Clone, Copy, Debug, Deserialize, Eq, Hash, PartialEq, Serialize)]
#[serde(transparent)]
pub struct Token(pub Uuid);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
