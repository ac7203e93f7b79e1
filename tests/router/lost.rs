//! Groups that have left a shard which is now unreachable or closed: their rows are found on the
//! new shard.

use super::{Cluster, has_plproxy};
use harness::session::Session;

/// An address where no server listens.
const NOWHERE: &str = "update trax_router.shard set address = 'host=127.0.0.1 port=1 dbname=gone'";

#[tokio::test]
async fn what_has_left_a_shard_is_called_when_that_is_closed_or_gone() {
    if !has_plproxy() {
        return;
    }
    for leave in [
        "select trax_router.close_shard(2, 'sold')".to_owned(),
        format!("{NOWHERE} where number = 2"),
    ] {
        let cluster = Cluster::of(2).await;
        let group = cluster.group_on(2).await;
        let s = &cluster.router;
        for name in ["a", "b", "c"] {
            s.get(&format!(
                "select trax.schedule('{name}', 't', group_name => '{group}')"
            ))
            .await;
        }
        let enqueue = format!("select trax.enqueue('t', group_name => '{group}')");
        let (first, second) = (s.number(&enqueue).await, s.number(&enqueue).await);
        s.get(&format!("call trax_router.move_group('{group}', 1, null)"))
            .await;
        // As if the router did not know of the move.
        s.get("update trax_router.manifest set shard = 2").await;
        let remembered = "select distinct shard from trax_router.manifest";
        s.get(&leave).await;

        assert_eq!(s.number("select trax.trigger('a')").await >> 43, 1);
        s.get("select trax.unschedule('b')").await;
        s.get("select trax.schedule('c', 't', priority => 3)").await;
        let priority = "select priority from trax.manifest where name = 'c'";
        assert_eq!(cluster.shard(1).get(priority).await, "3");
        assert_eq!(s.get(remembered).await, "1", "what was wrong is mended");
        let cancel = format!("select trax.cancel({first})");
        assert_eq!(s.get(&cancel).await, "cancelled");
        let state = format!("select state from trax.get_jobs('{{{first}, {second}}}') order by 1");
        assert_eq!(s.get(&state).await, "cancelled\nqueued");
        // A row that no reachable shard has may be on the lost one.
        for call in [
            "select trax.trigger('never')".to_owned(),
            format!("select trax.cancel({})", second + 1000),
        ] {
            let refusal = s.refusal(&call).await;
            assert!(refusal.message.starts_with("shard 2 "), "{call}: {refusal}");
        }
    }
}

#[tokio::test]
async fn jobs_of_a_shard_need_no_other_to_which_groups_have_moved() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let group = cluster.group_on(1).await;
    let enqueue = format!("select trax.enqueue('t', group_name => '{group}')");
    s.get(&enqueue).await;
    s.get(&format!("call trax_router.move_group('{group}', 2, null)"))
        .await;
    s.get("select trax_router.place_group('stays', 1)").await;
    let enqueue = "select trax.enqueue('t', group_name => 'stays')";
    let ended = s.number(enqueue).await;
    cluster
        .shard(1)
        .get("select trax.complete(job_id, token) from trax.claim_next('w')")
        .await;
    let waits = s.number(enqueue).await;
    s.get(&format!("{NOWHERE} where number = 2")).await;
    let states = format!("select state from trax.get_jobs('{{{ended}, {waits}}}') order by 1");
    assert_eq!(s.get(&states).await, "completed\nqueued");
    let cancel = format!("select trax.cancel({ended})");
    assert_eq!(s.get(&cancel).await, "finished");
    let wait = format!("call trax.await_job({ended}, '60 s', null, null, null)");
    assert_eq!(s.get(&wait).await, "completed||");
}

#[tokio::test]
async fn many_jobs_are_looked_up_with_one_call_to_each_shard() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let many =
        "select array_agg(i) from trax.enqueue_many('t', array_fill('1'::jsonb, array[100])) i";
    let ids = s.get(many).await;
    let calls = format!(
        "set track_functions = 'all'; begin; select count(*) from trax.get_jobs('{ids}');
        select string_agg(funcname || ' ' || calls, ', ' order by funcname) from pg_stat_xact_user_functions
        where schemaname = 'trax_router' and funcname in ('get_jobs', 'where_are')"
    );
    // Each in a separate session, as its first call.
    let first = Session::of(&cluster.database).await;
    assert_eq!(first.get(&calls).await, "100\nget_jobs 2");
    s.get("insert into trax_router.move values (1, 2)").await;
    let second = Session::of(&cluster.database).await;
    assert_eq!(second.get(&calls).await, "100\nget_jobs 2, where_are 1");
    let wait = format!("call trax.await_jobs('{ids}', '0 s', null)");
    assert_eq!(s.get(&wait).await, "{}");
}

#[tokio::test]
async fn a_wrong_note_of_where_a_manifest_is_mends_itself() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let group = cluster.group_on(1).await;
    s.get(&format!(
        "select trax.schedule('m', 't', group_name => '{group}')"
    ))
    .await;
    let role = format!("{}_reader", cluster.database.name());
    let make = format!("create role {role} login");
    for at in [s, cluster.shard(1), cluster.shard(2)] {
        at.get(&make).await;
    }
    s.get(&format!("select trax.grant_access('{role}', 'reader')"))
        .await;
    let reader = Session::as_role(&cluster.database, &role).await;
    let noted = "select shard from trax_router.manifest where name = 'm'";
    for lie in ["2", "null"] {
        for call in [
            "select trax.trigger('m')",
            "select trax.schedule('m', 't')",
            "select trax.explain_manifest('m')",
        ] {
            reader
                .get(&format!("select trax_router.remember('m', {lie})"))
                .await;
            assert_eq!(s.get(noted).await, "1", "{lie} is not believed");
            // As a restore of the router may leave it.
            s.get(&match lie {
                "null" => "delete from trax_router.manifest".to_owned(),
                _ => format!("update trax_router.manifest set shard = {lie}"),
            })
            .await;
            s.get(call).await;
            assert_eq!(s.get(noted).await, "1", "{lie}: {call}");
        }
    }
    // The same if the recorded shard is unreachable.
    reader.get("select trax_router.remember('m', 2)").await;
    s.get("select trax_router.close_shard(2, 'sold')").await;
    s.get("select trax.schedule('m', 't')").await;
    assert_eq!(s.get(noted).await, "1");
}
