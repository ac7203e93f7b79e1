//! The rows and results that pass between the source and the target.

/// A waiting row.
pub(crate) struct Entry {
    pub(crate) id: i64,
    pub(crate) key: String,
    pub(crate) unique_key: Option<String>,
    /// The whole row as JSON, or the error if that is impossible: the SQLSTATE and the message.
    pub(crate) document: std::result::Result<String, (String, String)>,
}

/// A row that has become a job.
pub(crate) struct Carried {
    pub(crate) id: i64,
    pub(crate) key: String,
    pub(crate) job_id: i64,
}

/// A job that has ended, or is no longer known.
pub(crate) struct Ended {
    /// The id of the row in the outbox.
    pub(crate) id: i64,
    pub(crate) state: String,
    pub(crate) output: Option<String>,
    pub(crate) error: Option<String>,
    pub(crate) finished_at: Option<String>,
}

/// A key that was carried more than an hour ago.
pub(crate) struct OldKey {
    pub(crate) id: i64,
    pub(crate) key: String,
    pub(crate) carried_at: String,
}

/// The number of waiting rows and the age of the oldest in seconds, the number of refused rows, and
/// the number of waiting rows without a target.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Lag {
    pub(crate) waiting: i64,
    pub(crate) age: f64,
    pub(crate) refused: i64,
    pub(crate) unplaced: i64,
}
