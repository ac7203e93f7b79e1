//! The columns of the tables that are read and written without statements, and their values that
//! the code depends on.

use crate::server::table::columns;
pub(crate) use crate::setting::HIGHEST_PRIORITY;

/// The group of a job without a group.
pub(crate) const DEFAULT_GROUP: &str = "default";
/// The task of every SQL job, and of no other.
pub(crate) const SQL_TASK: &str = "sql";

columns!(
    /// Columns of a waiting job.
    Waiting in c"work_queue" {
        JobId: c"job_id",
        LaneId: c"lane_id",
        QueuedAt: c"queued_at",
        RunAt: c"run_at",
        ScheduledFor: c"scheduled_for",
        ExpiresAt: c"expires_at",
        ManifestId: c"manifest_id",
        Attempts: c"attempts",
        MaxRetries: c"max_retries",
        Priority: c"priority",
        Scheduled: c"scheduled",
        WaitsFor: c"waits_for",
        Task: c"task",
        GroupName: c"group_name",
        Manifest: c"manifest",
        Timeout: c"timeout",
        RetryDelay: c"retry_delay",
        UniqueKey: c"unique_key",
        ConcurrencyKey: c"concurrency_key",
        Input: c"input",
        Trace: c"trace",
        RunAs: c"run_as",
        Steps: c"steps",
        ParentJobId: c"parent_job_id",
        WaitUntil: c"wait_until",
        Version: c"version",
        Rate: c"rate",
        RateKey: c"rate_key",
        Cost: c"cost",
    }
);

columns!(
    /// Columns of a lease.
    Leased in c"lease" {
        JobId: c"job_id",
        LaneId: c"lane_id",
        Token: c"token",
        StartedAt: c"started_at",
        LeaseExpiresAt: c"lease_expires_at",
        TimeoutAt: c"timeout_at",
        ReapAt: c"reap_at",
        QueuedAt: c"queued_at",
        RunAt: c"run_at",
        ScheduledFor: c"scheduled_for",
        ExpiresAt: c"expires_at",
        ManifestId: c"manifest_id",
        Attempt: c"attempt",
        MaxRetries: c"max_retries",
        Priority: c"priority",
        CancelRequested: c"cancel_requested",
        Cancelled: c"cancelled",
        TimedOut: c"timed_out",
        Limited: c"limited",
        Worker: c"worker",
        Task: c"task",
        GroupName: c"group_name",
        Manifest: c"manifest",
        Timeout: c"timeout",
        RetryDelay: c"retry_delay",
        UniqueKey: c"unique_key",
        ConcurrencyKey: c"concurrency_key",
        Input: c"input",
        Trace: c"trace",
        ExtendedAt: c"extended_at",
        Ahead: c"ahead",
        RunAs: c"run_as",
        ParentJobId: c"parent_job_id",
        Version: c"version",
        Rate: c"rate",
        RateKey: c"rate_key",
        Cost: c"cost",
    }
);

columns!(
    /// Columns of a heartbeat of a lease whose row another transaction had locked.
    Extension in c"lease_extension" {
        JobId: c"job_id",
        Token: c"token",
        ExtendedAt: c"extended_at",
        LeaseExpiresAt: c"lease_expires_at",
        Ahead: c"ahead",
    }
);

columns!(
    /// Columns of a run.
    Run in c"run" {
        JobId: c"job_id",
        QueuedAt: c"queued_at",
        RunAt: c"run_at",
        ScheduledFor: c"scheduled_for",
        StartedAt: c"started_at",
        FinishedAt: c"finished_at",
        ManifestId: c"manifest_id",
        Attempt: c"attempt",
        Priority: c"priority",
        Final: c"final",
        State: c"state",
        FailureKind: c"failure_kind",
        Task: c"task",
        GroupName: c"group_name",
        Manifest: c"manifest",
        Worker: c"worker",
        Error: c"error",
        Input: c"input",
        Detail: c"detail",
        Output: c"output",
        ParentJobId: c"parent_job_id",
        Steps: c"steps",
        Version: c"version",
        Rate: c"rate",
        RateKey: c"rate_key",
        Cost: c"cost",
        MaxRetries: c"max_retries",
        Timeout: c"timeout",
        RetryDelay: c"retry_delay",
        ConcurrencyKey: c"concurrency_key",
        Trace: c"trace",
    }
);

columns!(
    /// Columns of a step.
    Step in c"step" {
        JobId: c"job_id",
        StepId: c"step_id",
        RecordedAt: c"recorded_at",
        Attempt: c"attempt",
        TimedOut: c"timed_out",
        Name: c"step",
        Kind: c"kind",
        Output: c"output",
        Wait: c"wait",
        Undo: c"undo",
    }
);

columns!(
    /// Columns of a group.
    Group in c"manifest_group" {
        Name: c"name",
        Enabled: c"enabled",
        Priority: c"priority",
        MaxActiveJobs: c"max_active_jobs",
        MaxPerKey: c"max_per_key",
        CreatedAt: c"created_at",
        UpdatedAt: c"updated_at",
        Applied: c"applied",
        Source: c"source",
        Rate: c"rate",
    }
);

columns!(
    /// Columns of a rate.
    Rate in c"rate" {
        Name: c"name",
        Allowed: c"allowed",
        Period: c"period",
        Burst: c"burst",
        CreatedAt: c"created_at",
        ChangedAt: c"changed_at",
        Applied: c"applied",
        Source: c"source",
    }
);

columns!(
    /// Columns of a closure of a rate.
    Closure in c"rate_closure" {
        Rate: c"rate",
        Key: c"key",
        ClosedUntil: c"closed_until",
    }
);

columns!(
    /// Columns of a token.
    Token in c"concurrency_token" {
        Name: c"name",
        Slot: c"slot",
        MaxHolders: c"max_holders",
        Token: c"token",
        Holder: c"holder",
        AcquiredAt: c"acquired_at",
        ExpiresAt: c"expires_at",
        ExtendedAt: c"extended_at",
    }
);

/// The end of an attempt, or of a waiting job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    Cancelled,
    Error,
    LeaseExpired,
    Timeout,
    /// The job waited longer than it may.
    Expired,
}

impl Outcome {
    pub(crate) const ALL: [Self; 6] = [
        Self::Completed,
        Self::Cancelled,
        Self::Error,
        Self::LeaseExpired,
        Self::Timeout,
        Self::Expired,
    ];

    pub(crate) fn state(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Error | Self::LeaseExpired | Self::Timeout | Self::Expired => "failed",
        }
    }

    pub(crate) fn failure_kind(self) -> Option<&'static str> {
        match self {
            Self::Completed | Self::Cancelled => None,
            Self::Error => Some("error"),
            Self::LeaseExpired => Some("lease_expired"),
            Self::Timeout => Some("timeout"),
            Self::Expired => Some("expired"),
        }
    }
}
