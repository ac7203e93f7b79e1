//! Foreign locks do not block the router while a group moves.

use super::move_group::call;
use super::{Cluster, has_plproxy};
use harness::session::Session;

#[tokio::test]
async fn a_lock_that_lasts_on_a_shard_keeps_only_the_group_waiting() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.schedule('m', 't', group_name => '{group}'); set statement_timeout = '20 s'"
    ))
    .await;
    s.get(&format!(
        "select trax_router.begin_move('{group}', 2); select trax_router.carry('{group}', 2)"
    ))
    .await;
    let carry = format!("select outcome from trax_router.carry('{group}', 2)");
    let holder = Session::of(&cluster.shards[0].0).await;
    holder
        .get("begin; select from trax.manifest for update")
        .await;
    assert_eq!(s.get(&carry).await, "waits", "for a row to be taken");
    holder.get("rollback").await;
    let holder = Session::of(&cluster.shards[1].0).await;
    holder.get("begin; lock table trax.arrival").await;
    assert_eq!(s.get(&carry).await, "waits", "for a table to put it into");
    holder.get("rollback").await;
    assert_eq!(s.get(&carry).await, "carries");
    assert_eq!(s.get(&carry).await, "ends");
}

#[tokio::test]
async fn a_transaction_that_lasts_at_the_router_keeps_only_the_group_waiting() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    let job = s
        .number(&format!(
            "select trax.enqueue('a', group_name => '{group}')"
        ))
        .await;
    s.get(&format!("select trax_router.begin_move('{group}', 2)"))
        .await;
    let holder = Session::of(&cluster.database).await;
    holder
        .get(&format!("begin; select * from trax.get_jobs('{{{job}}}')"))
        .await;
    s.get("set statement_timeout = '20 s'").await;
    let carry = format!("select outcome from trax_router.carry('{group}', 2)");
    assert_eq!(s.get(&carry).await, "waits");
    holder.get("select trax.enqueue('b')").await;
    let mover = Session::of(&cluster.database).await;
    let moving = mover.spawn(call("another", 2));
    let (_mover, moved) = moving.await.expect("it does not panic");
    let refusal = moved.expect_err("somebody has placed something");
    assert_eq!(refusal.code, "55P03", "{refusal}");
    assert!(
        refusal
            .detail
            .contains(&format!("process {}", holder.pid())),
        "{refusal}"
    );
    assert!(
        refusal
            .hint
            .contains(&format!("pg_terminate_backend({})", holder.pid())),
        "{refusal}"
    );
    holder.get("commit").await;
    assert_eq!(s.get(&call(&group, 2)).await, "1");
}

#[tokio::test]
async fn who_places_goes_ahead_of_a_move_that_waits_for_another() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let holder = Session::of(&cluster.database).await;
    holder.get("begin; select trax.enqueue('a')").await;
    let mover = Session::of(&cluster.database).await;
    let pid = mover.pid();
    let moving = mover.spawn(call("g", 2));
    s.sees_waiting(pid).await;
    s.get("set statement_timeout = '5 s'; select trax.enqueue('b')")
        .await;
    assert!(!moving.is_finished());
    holder.get("commit").await;
    let (_mover, moved) = moving.await.expect("it does not panic");
    assert_eq!(moved, Ok("0".to_owned()));
}

#[tokio::test]
async fn a_snapshot_older_than_a_move_places_nothing() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    let enqueue = format!("select trax.shard_of(trax.enqueue('a', group_name => '{group}'))");
    assert_eq!(s.get(&enqueue).await, "1");
    let old = Session::of(&cluster.database).await;
    for level in ["repeatable read", "serializable"] {
        let other = Session::of(&cluster.database).await;
        other
            .get(&format!("begin isolation level {level}; select 1"))
            .await;
        old.get(&format!("begin isolation level {level}; select 1"))
            .await;
        s.get(&call(&group, 2)).await;
        let refusal = old.refusal(&enqueue).await;
        assert_eq!(refusal.code, "40001", "{refusal}");
        assert_eq!(refusal.hint, "Run the transaction again.");
        old.get("rollback").await;
        let schedule = format!("select trax.schedule('m', 't', group_name => '{group}')");
        assert_eq!(other.refusal(&schedule).await.code, "40001");
        other.get("rollback").await;
        old.get(&format!("begin isolation level {level}")).await;
        assert_eq!(old.get(&enqueue).await, "2");
        old.get("commit").await;
        s.get(&call(&group, 1)).await;
    }
    // No call is refused because of a group on another shard.
    old.get("begin isolation level repeatable read; select 1")
        .await;
    s.get(&call(&group, 2)).await;
    let another = format!(
        "select trax.enqueue('a', group_name => 'g' || n) from generate_series(1, 50) n
        where trax_router.place_of('g' || n) <> trax_router.place_of('{group}') limit 1"
    );
    old.get(&another).await;
    old.get("commit").await;
}

#[tokio::test]
async fn of_two_who_move_a_group_to_one_shard_none_takes_its_limit_away() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.configure_group('{group}', max_active_jobs => 3); begin; select trax.enqueue('t', group_name => '{group}')"
    ))
    .await;
    // Both calls have seen that the target has no rows of the group.
    let looking = Session::of(&cluster.database).await;
    let mut moving = Vec::new();
    for _ in 0..2 {
        let mover = Session::of(&cluster.database).await;
        let pid = mover.pid();
        moving.push(mover.spawn(call(&group, 2)));
        looking.sees_waiting(pid).await;
    }
    s.get("commit").await;
    for mover in moving {
        let (_, moved) = mover.await.expect("it does not panic");
        assert!(moved.is_ok(), "{moved:?}");
    }
    let limit = format!("select max_active_jobs from trax.manifest_group where name = '{group}'");
    assert_eq!(cluster.shard(2).get(&limit).await, "3");
}

#[tokio::test]
async fn who_waited_for_a_move_goes_where_the_group_is_then() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    s.get(
        "select trax_router.spread_group('wide'); begin; select trax_router.begin_move('wide', 2, gather => true)",
    )
    .await;
    let looking = Session::of(&cluster.database).await;
    let mut waiting = Vec::new();
    for call in [
        "select count(*) from trax.enqueue_many('t', array_fill('1'::jsonb, array[9]), group_name => 'wide')",
        "select trax.configure_group('wide', max_active_jobs => 4) is not null",
    ] {
        let session = Session::of(&cluster.database).await;
        let pid = session.pid();
        waiting.push(session.spawn(call.to_owned()));
        looking.sees_waiting(pid).await;
    }
    s.get("commit").await;
    for call in waiting {
        let (_, answer) = call.await.expect("it does not panic");
        assert!(answer.is_ok(), "{answer:?}");
    }
    let queued = "select count(*) from trax.work_queue";
    assert_eq!(cluster.shard(2).get(queued).await, "9");
    let limit = "select max_active_jobs from trax.manifest_group where name = 'wide'";
    assert_eq!(cluster.shard(2).get(limit).await, "4");
    assert_ne!(cluster.shard(1).get(limit).await, "4");
}
