//! The functions of the router match those of the extension.

use super::{Cluster, has_plproxy};
use harness::session::session;
use std::collections::BTreeSet;

/// Every function of `trax` as a caller sees it: its kind, its arguments with defaults, and its
/// result.
const SIGNATURES: &str = "select p.proname, p.prokind, pg_get_function_arguments(p.oid), coalesce(pg_get_function_result(p.oid), '')
    from pg_proc p where p.pronamespace = 'trax'::regnamespace
        and (p.proname = any ($$ROUTED$$::text[]))
    order by p.proname";

/// The functions of a level that no router has: they concern one database, or its worker.
const NOT_ROUTED: &str = "acknowledge_cancel adopt await_children await_signal believe_clock cancel_own claim_next complete complete_and_claim
    complete_many fail heartbeat limited_access record_again record_step release report_progress report_worker runs_as_stored
    set_shard sleep spawn start_scheduler wait_for_work waiting_tasks where_is";

#[tokio::test]
async fn the_router_has_what_the_extension_grants() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let granted = "select distinct f from unnest(array['reader', 'producer', 'worker', 'admin', 'limited worker']) l (level)
        cross join unnest(trax.functions_of(l.level)) f";
    let granted = cluster.shard(1).get(granted).await;
    let routed = "select p.proname from pg_proc p where p.pronamespace = 'trax'::regnamespace";
    let routed = cluster.router.get(routed).await;
    let routed: BTreeSet<&str> = routed.lines().collect();
    let granted: BTreeSet<&str> = granted.lines().collect();
    let missing: BTreeSet<&str> = granted.difference(&routed).copied().collect();
    assert_eq!(
        missing,
        NOT_ROUTED.split_whitespace().collect(),
        "the table of sql/router/route.sql says how the router finds the shard of each other one"
    );
}

#[tokio::test]
async fn names_arguments_defaults_and_results_are_those_of_the_extension() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let (_db, s) = session().await;
    let routed = cluster
        .router
        .get("select array_agg(p.proname) from pg_proc p where p.pronamespace = 'trax'::regnamespace")
        .await;
    let sql = SIGNATURES.replace("ROUTED", &routed);
    let theirs = s.get(&sql).await;
    let ours = cluster.router.get(&sql).await;
    assert!(ours.lines().count() > 35, "{ours}");
    for (ours, theirs) in ours.lines().zip(theirs.lines()) {
        // Rows from several shards have a column for the shard.
        let ours = ours.replace(", shard integer)", ")");
        assert_eq!(ours, theirs);
    }
    assert_eq!(ours.lines().count(), theirs.lines().count());
    let of_rows = ours
        .lines()
        .filter(|line| line.contains(", shard integer)"))
        .map(|line| line.split('|').next().unwrap_or_default());
    let of_rows: Vec<&str> = of_rows.collect();
    assert_eq!(of_rows, ["apply", "check", "diagnose", "status", "tick"]);
}

#[tokio::test]
async fn all_has_a_comment_and_a_fixed_search_path_and_is_nobodys() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let s = &cluster.router;
    let without = "select p.oid::regprocedure from pg_proc p
        where p.pronamespace in ('trax'::regnamespace, 'trax_router'::regnamespace)
            and (obj_description(p.oid, 'pg_proc') is null
                or p.prokind = 'f' and not coalesce('search_path=pg_catalog, pg_temp' = any (p.proconfig), false)
                or has_function_privilege('public', p.oid, 'execute'))";
    assert_eq!(s.get(without).await, "");
    let tables = "select c.oid::regclass from pg_class c
        where c.relnamespace in ('trax'::regnamespace, 'trax_router'::regnamespace) and c.relkind in ('r', 'v')
            and (obj_description(c.oid, 'pg_class') is null or has_table_privilege('public', c.oid, 'select'))";
    assert_eq!(s.get(tables).await, "");
    s.get("drop extension trax_router").await;
    let left = "select count(*) from pg_namespace where nspname like 'trax%'";
    assert_eq!(
        s.get(left).await,
        "1",
        "the schema trax, which create extension made"
    );
}

#[tokio::test]
async fn a_database_with_the_extension_is_no_router() {
    if !has_plproxy() {
        return;
    }
    let (_db, s) = session().await;
    s.get("create extension plproxy").await;
    let refusal = s.refusal("create extension trax_router").await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert!(refusal.hint.contains("create database router"), "{refusal}");
    assert_eq!(s.enqueue("'a'").await, 1, "and nothing changed");
}
