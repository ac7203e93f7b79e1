//! An unreachable shard stops only its own jobs.

use super::cluster::shard_server;
use super::{Cluster, has_plproxy};
use harness::session::Session;
use harness::{PATIENCE, eventually};

#[tokio::test]
async fn a_killed_shard_is_named_and_the_others_go_on() {
    if !has_plproxy() {
        return;
    }
    let (first, mut second) = (shard_server(), shard_server());
    let cluster = Cluster::on(&[&first, &second]).await;
    let (here, there) = (cluster.group_on(1).await, cluster.group_on(2).await);
    let s = &cluster.router;
    s.get(&format!(
        "select trax.schedule('near', 't', group_name => '{here}'); select trax.schedule('far', 't', group_name => '{there}')"
    ))
    .await;
    let far = s
        .number(&format!(
            "select trax.enqueue('a', group_name => '{there}')"
        ))
        .await;
    second.kill().expect("it is killed");
    // A session that was open there may detect its end a moment later.
    let gone = format!("select state from trax.get_jobs('{{{far}}}')");
    eventually("it is gone", PATIENCE, async || {
        match s.attempt(&gone).await {
            Err(refusal) if refusal.code == "08001" => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;

    let to_there = [
        format!("select trax.enqueue('a', group_name => '{there}')"),
        format!("select trax.enqueue_many('a', '{{1, 2}}', group_name => '{there}')"),
        format!("select trax.cancel({far})"),
        format!("select * from trax.get_jobs('{{{far}}}')"),
        "select trax.trigger('far')".to_owned(),
        format!("select trax.configure_group('{there}', priority => 1)"),
        format!("select trax.schedule('new', 't', group_name => '{there}')"),
    ];
    for call in &to_there {
        let refusal = s.refusal(call).await;
        assert_eq!(refusal.code, "08001", "{call}: {refusal}");
        assert_eq!(refusal.message, "shard 2 cannot be reached", "{call}");
        assert!(
            refusal.detail.starts_with("Nothing was done there."),
            "{refusal}"
        );
    }
    // Unknown while the shard that may have it is unreachable.
    s.get("delete from trax_router.manifest").await;
    let refusal = s.refusal("select trax.trigger('far')").await;
    assert_eq!(refusal.message, "shard 2 cannot be reached");

    s.get(&format!("select trax.enqueue('a', group_name => '{here}')"))
        .await;
    s.get("select trax.trigger('near')").await;
    s.get(&format!(
        "select trax.schedule('near too', 't', group_name => '{here}')"
    ))
    .await;
    // A job that may run anywhere goes to a reachable shard.
    let anywhere = "select count(distinct trax.shard_of(id)) from (
        select trax.enqueue('a') as id from generate_series(1, 50)) e";
    assert_eq!(s.get(anywhere).await, "1");
    let many = "select count(*) from trax.enqueue_many('a', array_fill('1'::jsonb, array[100]))";
    assert_eq!(s.get(many).await, "100");

    let status =
        "select item, value, shard from trax.status() where not healthy and item = 'shard'";
    assert_eq!(s.get(status).await, "shard|cannot be reached|2");
    let up = "select labels, value from trax.metrics() where name = 'trax_shard_up' order by 1";
    assert_eq!(
        s.get(up).await,
        "{\"shard\": \"1\"}|1\n{\"shard\": \"2\"}|0"
    );
    let found = "select cause, severity, shard from trax.diagnose() where cause = 'shard_away'";
    assert_eq!(s.get(found).await, "shard_away|critical|2");
    let broken = "select shard from trax.check()";
    assert_eq!(s.get(broken).await, "2");
    let states = "select shard, state like '%shard 2%' from trax_router.cluster()";
    assert_eq!(s.get(states).await, "1|f\n2|t");

    // A call for all shards is done where possible, and the error names the others.
    let refusal = s.refusal("select trax.pause('disks')").await;
    assert_eq!(refusal.message, "shard 2 cannot be reached");
    assert!(
        refusal
            .detail
            .ends_with("Done on the shards 1; their changes stay."),
        "{refusal}"
    );
    s.refusal("select trax.resume()").await;

    second.start().expect("it starts");
    for call in &to_there {
        s.get(call).await;
    }
    assert_eq!(s.get(&gone).await, "cancelled");
    assert_eq!(
        s.get("select count(*) from trax.status() where item = 'shard'")
            .await,
        "0"
    );
}

#[tokio::test]
async fn a_call_that_breaks_off_says_that_nobody_knows() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let shard = cluster.shard(1);
    shard
        .get("begin; lock table trax.work_queue in access exclusive mode")
        .await;
    let caller = Session::of(&cluster.database).await;
    let calling = caller.spawn("select trax.enqueue('a')");
    let there = "select pid from pg_stat_activity where application_name = 'trax_router' and wait_event_type = 'Lock'
        and datname = current_database()";
    // A transaction keeps its first snapshot of the activity.
    let looking = Session::of(&cluster.shards[0].0).await;
    let pid = eventually("it waits", PATIENCE, async || {
        match looking.get(there).await {
            none if none.is_empty() => Err("nobody waits".to_owned()),
            pid => Ok(pid),
        }
    })
    .await;
    shard
        .get(&format!("select pg_terminate_backend({pid})"))
        .await;
    let (caller, called) = calling.await.expect("it does not panic");
    let refusal = called.expect_err("the backend was ended");
    assert_eq!(refusal.code, "08007", "{refusal}");
    assert_eq!(refusal.message, "the connection to shard 1 broke");
    assert!(refusal.detail.contains("is not known"), "{refusal}");
    shard.get("rollback").await;
    // The same session still works.
    caller.get("select trax.enqueue('a')").await;
}

#[tokio::test]
async fn a_closed_shard_is_not_called_until_it_is_opened() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let there = cluster.group_on(2).await;
    let s = &cluster.router;
    s.get("select trax_router.close_shard(2, 'new disks')")
        .await;
    let call = format!("select trax.enqueue('a', group_name => '{there}')");
    let refusal = s.refusal(&call).await;
    assert_eq!(refusal.code, "55000");
    assert_eq!(refusal.message, "shard 2 is closed");
    assert!(refusal.detail.contains("new disks"), "{refusal}");
    assert!(
        refusal.hint.contains("trax_router.open_shard(2)"),
        "{refusal}"
    );
    let anywhere =
        "select count(*) from (select trax.enqueue('a') as id from generate_series(1, 50)) e
        where trax.shard_of(id) = 2";
    assert_eq!(s.get(anywhere).await, "0");
    let to_open = "When it may be called again: select trax_router.open_shard(2)";
    for (sql, said) in [
        (
            "select value, hint from trax.status() where shard = 2",
            "shard 2 is closed",
        ),
        (
            "select detail, fix from trax.diagnose() where shard = 2",
            "shard 2 is closed",
        ),
    ] {
        assert_eq!(s.get(sql).await, format!("{said}|{to_open}"));
    }
    let state = "select state from trax_router.cluster() where shard = 2";
    assert_eq!(s.get(state).await, "closed: new disks");
    s.get("select trax_router.open_shard(2)").await;
    s.get(&call).await;
    assert_eq!(
        s.refusal("select trax_router.close_shard(2, '')")
            .await
            .code,
        "22023"
    );
    assert_eq!(
        s.refusal("select trax_router.close_shard(9, 'x')")
            .await
            .code,
        "42704"
    );
    assert_eq!(
        s.refusal("select trax_router.open_shard(9)").await.code,
        "42704"
    );
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_the_shard() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let shard = cluster.shard(1);
    shard
        .get("begin; lock table trax.work_queue in access exclusive mode")
        .await;
    cluster.router.get("set statement_timeout = '300ms'").await;
    let refusal = cluster.router.refusal("select trax.enqueue('a')").await;
    assert_eq!(refusal.code, "57014", "{refusal}");
    shard.get("rollback").await;
    cluster.router.get("set statement_timeout = 0").await;
    shard
        .becomes(
            "select count(*) from pg_stat_activity where application_name = 'trax_router' and state = 'active'
                and datname = current_database()",
            "0",
        )
        .await;
    assert_eq!(shard.get("select count(*) from trax.work_queue").await, "0");
    cluster.router.get("select trax.enqueue('a')").await;
}

#[tokio::test]
async fn who_only_reads_does_not_hear_of_a_server_that_was_restarted() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(1).await;
    let s = &cluster.router;
    let id = s.number("select trax.enqueue('a')").await;
    s.get("select trax.schedule('m', 't')").await;
    let end = "select count(pg_terminate_backend(pid)) from pg_stat_activity
        where application_name = 'trax_router' and datname = current_database()";
    for read in [
        format!("select state from trax.get_jobs('{{{id}}}')"),
        "select count(*) from trax.status()".to_owned(),
        "select count(*) from trax.metrics()".to_owned(),
        "select count(*) from trax.check()".to_owned(),
        "select count(*) from trax.diagnose()".to_owned(),
        "select count(*) from trax.explain_manifest('m')".to_owned(),
        "select count(*) from trax.preview_cron('* * * * *')".to_owned(),
    ] {
        let before = s.get(&read).await;
        let looking = Session::of(&cluster.shards[0].0).await;
        assert_eq!(looking.get(end).await, "1");
        looking
            .becomes(&end.replace("pg_terminate_backend(pid)", "*"), "0")
            .await;
        let after = s.attempt(&read).await;
        assert!(after.is_ok(), "{read}: {after:?} after {before}");
    }
}
