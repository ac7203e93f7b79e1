//! Generates the router's version of each function that the extension grants to a role, from the
//! extension's catalog: the call to a shard, and the function of the same name that finds the
//! shard.

mod catalog;
mod write;

use catalog::functions;
use harness::database;
use harness::scheduler::connect;
use std::path::Path;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sql/router/route.sql");

const OPENING: &str = "-- Every function that a producer or an operator calls, as the extension has it: trax_router.NAME
-- calls it on a shard, trax.NAME finds the shard. Written from the catalog of the extension by:
-- TRAX_WRITE_PAGES=1 cargo test -p trax_tests router::generate
";

/// How a function finds its shards.
enum Route {
    /// By its group; in a spread group by the first non-null one of these arguments.
    Group(&'static [&'static str]),
    /// By the number in its first argument, an id, unless the id's group has moved.
    Id,
    /// By the manifest named by its first argument.
    Manifest,
    /// By its first argument, a group; a spread group is on all shards, and counts are added.
    WholeGroup,
    /// By its first argument, the name of a token.
    Token,
    /// On all shards, with the shard number in each row; an unreachable shard has this row.
    Rows(&'static str),
    /// On all shards.
    All,
    /// On the first open shard.
    Any,
    /// Written by hand; only the call to a shard is generated.
    Hand,
    /// Not routed: workers claim from the shards directly, and some functions concern one server.
    Direct,
}

/// The route of every function that `trax.functions_of()` grants.
fn route(name: &str) -> Route {
    match name {
        "enqueue" | "enqueue_sql" => Route::Group(&["concurrency_key", "unique_key"]),
        "limit_queue_time"
        | "run_now"
        | "cancel"
        | "requeue_dead_letter"
        | "acknowledge_dead_letter"
        | "explain_job" => Route::Id,
        "unschedule" | "enable_manifest" | "disable_manifest" | "trigger" | "activate"
        | "cancel_manifest" | "preview" | "explain_manifest" => Route::Manifest,
        "trigger_group" | "cancel_group" | "configure_group" => Route::WholeGroup,
        "acquire_token" | "extend_token" | "release_token" => Route::Token,
        "preview_cron" => Route::Any,
        "status" => Route::Rows("'shard', 'cannot be reached', false, failure.message"),
        "check" => Route::Rows("'every shard can be reached', failure.message"),
        "diagnose" => {
            Route::Rows("'shard_away', 'critical', failure.message, 'start its server'::text")
        }
        "metrics" => Route::Rows("'trax_shard_up', '{}'::jsonb, 0::double precision"),
        "tick" => Route::Rows("'shard cannot be reached', 0::bigint"),
        "pause" | "resume" => Route::All,
        "enqueue_many"
        | "get_jobs"
        | "await_job"
        | "await_jobs"
        | "await_token"
        | "schedule"
        | "apply"
        | "requeue_dead_letters"
        | "grant_access"
        | "revoke_access"
        | "shard_of" => Route::Hand,
        "set_shard" | "adopt" | "believe_clock" | "start_scheduler" | "where_is"
        | "record_again" => Route::Direct,
        "claim_next" | "complete_and_claim" | "wait_for_work" | "heartbeat" | "complete"
        | "complete_many" | "fail" | "release" | "acknowledge_cancel" | "cancel_own"
        | "report_progress" | "report_worker" | "waiting_tasks" | "runs_as_stored" => Route::Direct,
        other => panic!("nobody has said how the router finds the shard of trax.{other}()"),
    }
}

/// Whether a function changes nothing on a shard and may be called twice.
fn only_reads(name: &str) -> bool {
    matches!(
        name,
        "get_jobs"
            | "preview"
            | "preview_cron"
            | "explain_manifest"
            | "explain_job"
            | "status"
            | "check"
            | "diagnose"
            | "metrics"
    )
}

#[tokio::test]
async fn the_router_has_what_the_extension_grants() {
    let database = database().await;
    let client = connect(&database).await;
    let mut page = OPENING.to_owned();
    for function in functions(&client).await {
        if matches!(route(&function.name), Route::Direct)
            || function.is_procedure
            || function.name == "shard_of"
        {
            continue;
        }
        page += "\n";
        page += &function.call();
        page += &function.routed();
    }
    if std::env::var_os("TRAX_WRITE_PAGES").is_some() {
        std::fs::write(Path::new(PAGE), &page).expect("the page is written");
    }
    let stored = std::fs::read_to_string(PAGE).unwrap_or_default();
    assert!(
        page == stored,
        "sql/router/route.sql is not what the catalog says; TRAX_WRITE_PAGES=1 cargo test -p trax_tests router::generate"
    );
}
