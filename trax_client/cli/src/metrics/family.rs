//! The metric families, with their types and descriptions.

/// The types of metrics in Prometheus.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Kind {
    Counter,
    Gauge,
    Histogram,
    Summary,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
            Kind::Summary => "summary",
        }
    }
}

use Kind::{Counter, Gauge, Histogram, Summary};

/// All families that this version of the server or this program returns.
pub(super) const FAMILIES: [(&str, Kind, &str); 55] = [
    ("trax_up", Gauge, "Whether the database answered."),
    (
        "trax_scrape_duration_seconds",
        Gauge,
        "How long the database took to answer.",
    ),
    (
        "trax_schedules_stopped",
        Gauge,
        "Schedules that queue nothing until a dead letter is resolved, 100,000 at most.",
    ),
    (
        "trax_schedule_stopped_seconds",
        Gauge,
        "How long a schedule has been stopped by a dead letter; only the hundred stopped longest.",
    ),
    ("trax_info", Gauge, "Version of the installed extension."),
    (
        "trax_library_info",
        Gauge,
        "Version of the library that the server loaded.",
    ),
    (
        "trax_queue_depth",
        Gauge,
        "Jobs that wait in a group: ready, delayed until a time, blocked behind a key, behind_manifest: behind others of their manifest, or suspended: in a wait for a signal or for jobs; estimated in a long queue.",
    ),
    (
        "trax_queue_oldest_age_seconds",
        Gauge,
        "How long the oldest ready job of a group has waited.",
    ),
    ("trax_leases", Gauge, "Jobs of a group in progress."),
    (
        "trax_lease_oldest_age_seconds",
        Gauge,
        "How long the oldest attempt of a group has been in progress.",
    ),
    (
        "trax_leases_cancel_requested",
        Gauge,
        "Attempts that were asked to stop.",
    ),
    (
        "trax_leases_expired",
        Gauge,
        "Expired leases that no cycle has removed yet.",
    ),
    (
        "trax_group_enabled",
        Gauge,
        "Whether jobs of a group may be claimed.",
    ),
    (
        "trax_group_max_active_jobs",
        Gauge,
        "Limit of a group that has one.",
    ),
    (
        "trax_max_active_jobs",
        Gauge,
        "Limit of the database, if it has one.",
    ),
    (
        "trax_enqueued_total",
        Counter,
        "Jobs that were given an id, including those rolled back or refused.",
    ),
    ("trax_claims_total", Counter, "Attempts that began."),
    (
        "trax_last_claim_timestamp_seconds",
        Gauge,
        "When a job of a task was last claimed.",
    ),
    ("trax_completions_total", Counter, "Jobs that completed."),
    (
        "trax_cancellations_total",
        Counter,
        "Jobs that ended as cancelled.",
    ),
    (
        "trax_failures_total",
        Counter,
        "Attempts that failed, by kind.",
    ),
    (
        "trax_retries_total",
        Counter,
        "Attempts that were followed by another.",
    ),
    (
        "trax_leases_lost_total",
        Counter,
        "Attempts whose lease expired without a heartbeat.",
    ),
    (
        "trax_stale_calls_total",
        Counter,
        "Outcomes and heartbeats refused because the lease was lost.",
    ),
    (
        "trax_wait_seconds",
        Histogram,
        "Time from when a job could be claimed to its claim.",
    ),
    (
        "trax_run_seconds",
        Histogram,
        "Time from the claim of an attempt to its end.",
    ),
    (
        "trax_workers",
        Gauge,
        "Live workers: they report, or claimed a job in the last two minutes.",
    ),
    (
        "trax_workers_by_state",
        Gauge,
        "Workers that are working, idle, stopping or gone (two reports are missing).",
    ),
    (
        "trax_workers_busy",
        Gauge,
        "Workers with a job in progress.",
    ),
    (
        "trax_scheduler_running",
        Gauge,
        "Whether the scheduler of the database has a process.",
    ),
    (
        "trax_scheduler_paused",
        Gauge,
        "Whether the scheduler is paused by trax.pause().",
    ),
    (
        "trax_scheduler_lag_seconds",
        Gauge,
        "How long the work that the cycle has not done yet has been due.",
    ),
    (
        "trax_cycle_duration_seconds",
        Summary,
        "Cycles of the manager and how long they took.",
    ),
    (
        "trax_last_cycle_duration_seconds",
        Gauge,
        "How long the last cycle took.",
    ),
    (
        "trax_last_cycle_timestamp_seconds",
        Gauge,
        "When the last cycle began.",
    ),
    (
        "trax_manifests",
        Gauge,
        "Manifests; estimated when there are many.",
    ),
    (
        "trax_manifests_overdue",
        Gauge,
        "Manifests that are due, 10,000 at most.",
    ),
    (
        "trax_manifests_broken",
        Gauge,
        "Manifests that cannot be evaluated.",
    ),
    (
        "trax_dead_letters",
        Gauge,
        "Jobs that failed for good and wait for a person, 100,000 at most.",
    ),
    (
        "trax_table_dead_tuples",
        Gauge,
        "Dead rows that vacuum has not removed yet.",
    ),
    (
        "trax_table_bytes",
        Gauge,
        "Size of a table with its indexes; run is all history.",
    ),
    (
        "trax_run_default_used",
        Gauge,
        "Whether runs were recorded without a daily partition.",
    ),
    (
        "trax_horizon_age_transactions",
        Gauge,
        "Age of the oldest snapshot that keeps dead rows.",
    ),
    (
        "trax_oldest_transaction_seconds",
        Gauge,
        "Length of the longest open transaction with a snapshot or an id.",
    ),
    (
        "trax_wraparound_age_transactions",
        Gauge,
        "Age of the database's oldest transaction id; PostgreSQL stops at two billion.",
    ),
    (
        "trax_rate_available",
        Gauge,
        "Starts of a rate, without a key, that may happen now.",
    ),
    ("trax_rate_closed", Gauge, "1 while a rate is closed."),
    ("trax_rate_waiting", Gauge, "Jobs of a rate that wait."),
    ("trax_tokens_held", Gauge, "Places of a name that are held."),
    (
        "trax_tokens_waiting",
        Gauge,
        "Callers that wait for a place of a name.",
    ),
    (
        "trax_outbox_waiting",
        Gauge,
        "Rows of an outbox that wait to be carried here, as its relay last said; 100,000 at most.",
    ),
    (
        "trax_outbox_oldest_age_seconds",
        Gauge,
        "How long the oldest of them had waited.",
    ),
    (
        "trax_outbox_refused",
        Gauge,
        "Rows of an outbox that this database refused, 100,000 at most.",
    ),
    (
        "trax_outbox_last_report_timestamp_seconds",
        Gauge,
        "When the relay of an outbox last reported.",
    ),
    (
        "trax_shard_up",
        Gauge,
        "1 if the router reaches the shard, 0 if it is away.",
    ),
];

/// Returns the family of a sample by its name. For an unknown family the type is derived from the
/// name.
pub(super) fn of(sample: &str) -> (&str, Kind, &'static str) {
    let known = |name: &str| FAMILIES.iter().find(|(family, ..)| *family == name);
    if let Some((family, kind, help)) = known(sample) {
        return (family, *kind, help);
    }
    let parts = ["_bucket", "_sum", "_count"];
    let base = parts.iter().find_map(|part| sample.strip_suffix(part));
    match base.and_then(known) {
        Some((family, kind @ (Histogram | Summary), help)) => (family, *kind, help),
        _ if sample.ends_with("_total") => (sample, Counter, "Of a newer version of trax."),
        _ => (sample, Gauge, "Of a newer version of trax."),
    }
}
