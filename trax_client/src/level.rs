//! The access levels of the functions in the contract, for the advice when a right is missing.

/// The lowest level that may call each function. The others need `admin`.
const LEVELS: [(&str, &[&str]); 3] = [
    (
        "reader",
        &[
            "await_job",
            "await_jobs",
            "check",
            "diagnose",
            "explain_job",
            "explain_manifest",
            "get_jobs",
            "metrics",
            "preview",
            "preview_cron",
            "read_graph",
            "read_needs",
            "read_rate",
            "read_steps",
            "status",
        ],
    ),
    (
        "producer",
        &[
            "acquire_token",
            "await_token",
            "cancel",
            "consume_rate",
            "change_job",
            "enqueue",
            "enqueue_graph",
            "enqueue_many",
            "enqueue_sql",
            "extend_token",
            "fork",
            "limit_queue_time",
            "open_batch",
            "record_again",
            "release_token",
            "run_now",
            "seal_batch",
            "send_signal",
            "trigger",
        ],
    ),
    (
        "worker",
        &[
            "acknowledge_cancel",
            "activate",
            "await_children",
            "await_signal",
            "cancel_own",
            "claim_next",
            "close_rate",
            "complete",
            "complete_and_claim",
            "complete_many",
            "fail",
            "heartbeat",
            "record_step",
            "release",
            "report_progress",
            "report_worker",
            "runs_as_stored",
            "sleep",
            "spawn",
            "wait_for_work",
            "waiting_tasks",
        ],
    ),
];

/// Belongs after advice to grant a level: how a role keeps the level that it has.
pub(crate) const KEEPS_BOTH: &str = "; this replaces another level of the role, and its limits to \
    tasks and groups: name these again; to keep two levels, grant one of them to a role that it is \
    a member of";

/// Returns the lowest level that may call a function.
pub(crate) fn of(function: &str) -> &'static str {
    let level = LEVELS
        .iter()
        .find(|(_, functions)| functions.contains(&function));
    level.map_or("admin", |(level, _)| level)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the functions that `trax.functions_of` adds at a level, and at no level before it.
    fn added(level: &str) -> Vec<&'static str> {
        let source = include_str!("../../sql/api/access.sql");
        let list = source
            .split_once(&format!("{level}_functions constant text[] := "))
            .and_then(|(_, list)| list.split_once(';'))
            .map_or("", |(list, _)| list);
        list.split('\'').skip(1).step_by(2).collect()
    }

    #[test]
    fn every_function_has_the_level_that_the_server_grants() {
        let mut known = Vec::new();
        for level in ["reader", "producer", "worker", "admin"] {
            let added = added(level);
            assert!(added.len() > 5, "{level}: {added:?}");
            for function in added {
                // Functions of the router and the shard have no call in this crate.
                let is_new = !known.contains(&function);
                if is_new && !matches!(function, "shard_of" | "where_is") {
                    assert_eq!(of(function), level, "{function}");
                }
                known.push(function);
            }
        }
        for (level, functions) in LEVELS {
            for function in functions {
                assert!(known.contains(function), "{function} of {level}");
            }
        }
    }
}
