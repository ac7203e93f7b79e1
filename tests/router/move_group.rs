//! Moving an active group to another shard.

use super::{Cluster, has_plproxy};
use harness::session::Session;

/// The call that moves a group.
pub(super) fn call(group: &str, shard: usize) -> String {
    format!("call trax_router.move_group('{group}', {shard}, null)")
}

/// The number of a group's rows left on a shard.
pub(super) const LEFT: &str = "select
    (select count(*) from trax.work_queue) + (select count(*) from trax.manifest)
        + (select count(*) from trax.manifest_state) + (select count(*) from trax.manifest_dependency)
        + (select count(*) from trax.unique_key) + (select count(*) from trax.departure)
        + (select count(*) from trax.manifest_group) + (select count(*) from trax.lease)
        + (select count(*) from trax.dead_letter where resolved_at is null)";

#[tokio::test]
async fn what_waits_is_carried_as_it_is_with_its_ids() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.configure_group('{group}', max_active_jobs => 70, priority => 3, max_per_key => 2)"
    ))
    .await;
    // A running job and one that failed for good; in the queue, one of each kind.
    let running = s
        .number(&format!(
            "select trax.enqueue('runs', group_name => '{group}', unique_key => 'r')"
        ))
        .await;
    let letter_job = s
        .number(&format!(
            "select trax.enqueue('fails', group_name => '{group}', max_retries => 0, version => 'v1')"
        ))
        .await;
    let first = cluster.shard(1);
    let lease = first.claim_one("worker => 'w', tasks => '{runs}'").await;
    let failed = first.claim_one("worker => 'w', tasks => '{fails}'").await;
    assert_eq!((lease.id, failed.id), (running, letter_job));
    first
        .get(&format!("select trax.fail({}, 'no')", failed.key()))
        .await;
    s.get(&format!(
        "select trax.enqueue_many('many', array(select to_jsonb(n) from generate_series(1, 2500) n), group_name => '{group}');
        select trax.enqueue('full', '{{\"a\": 1.50}}', now() + interval '1 day', '{group}', 7, 3, '90 s', 'u', 'k',
            '{{\"traceparent\": \"x\"}}', '5 s', '2 days', 'v1');
        select trax.enqueue_sql('select 1', group_name => '{group}')"
    ))
    .await;
    let queue = "select md5(string_agg((to_jsonb(q) - 'manifest_id')::text, ' ' order by job_id)), count(*) from trax.work_queue q";
    let before = first.get(queue).await;

    let mover = Session::of(&cluster.database).await;
    let moving = mover.spawn(call(&group, 2));
    let second = cluster.shard(2);
    second.becomes(queue, &before).await;
    assert!(!moving.is_finished(), "a job of the group runs");
    // During the move new jobs are on the target at once, and calls by id find the job on its
    // current shard.
    let new = s
        .number(&format!(
            "select trax.enqueue('new', group_name => '{group}')"
        ))
        .await;
    assert_eq!(new >> 43, 2);
    assert_eq!(
        s.get(&format!("select trax.cancel({new})")).await,
        "cancelled"
    );
    let state = |id: i64| format!("select state from trax.get_jobs('{{{id}}}')");
    assert_eq!(s.get(&state(running)).await, "in_progress");
    let full = second
        .number("select job_id from trax.work_queue where task = 'full'")
        .await;
    assert_eq!(full >> 43, 1);
    assert_eq!(s.get(&state(full)).await, "queued");
    let again = format!("select trax.enqueue('full', group_name => '{group}', unique_key => 'u')");
    assert_eq!(s.number(&again).await, full, "its unique key lives");
    assert_eq!(
        s.get(&format!("select trax.run_now({full})")).await,
        "ready"
    );
    let letter = "select id from trax.dead_letter where resolved_at is null";
    second
        .becomes(&format!("select count(*) from ({letter}) l"), "1")
        .await;
    let letter = second.number(letter).await;
    let requeued = s
        .number(&format!(
            "select trax.requeue_dead_letter({letter}, 'again')"
        ))
        .await;
    assert_eq!(requeued >> 43, 2);
    let version = format!("select version from trax.work_queue where job_id = {requeued}");
    assert_eq!(second.get(&version).await, "v1");
    // Running jobs end on the old shard, and their retries are moved.
    first
        .get(&format!(
            "select trax.fail({}, 'once', retry_in => '0 s')",
            lease.key()
        ))
        .await;
    let (_mover, moved) = moving.await.expect("it does not panic");
    assert_eq!(moved, Ok("2503".to_owned()));
    assert_eq!(first.get(LEFT).await, "0");
    assert_eq!(s.get(&state(running)).await, "queued");
    let settings =
        "select max_active_jobs, priority, enabled, max_per_key from trax.manifest_group";
    assert_eq!(second.get(settings).await, "70|3|t|2");
    let retried = second.claim_one("worker => 'w', tasks => '{runs}'").await;
    assert_eq!(retried.id, running);
    second
        .get(&format!("select trax.complete({})", retried.key()))
        .await;
    assert_eq!(s.get(&state(running)).await, "completed");
    let attempts = format!("select attempt from trax.get_jobs('{{{running}}}')");
    assert_eq!(s.get(&attempts).await, "2");
    let claimed = second.claim("worker => 'w', max_jobs => 1000").await;
    assert_eq!(claimed.len(), 70, "its limit is here");
    first.assert_healthy().await;
    second.assert_healthy().await;
    // Repeating the move does nothing, and moving back restores the state.
    assert_eq!(s.get(&call(&group, 2)).await, "0");
    for job in &claimed {
        second
            .get(&format!("select trax.complete({})", job.key()))
            .await;
    }
    let back = s.number(&call(&group, 1)).await;
    assert!(back > 2400, "{back}");
    let last = first
        .number("select max(job_id) from trax.work_queue")
        .await;
    let cancel = format!("select trax.cancel({last})");
    assert_eq!(s.get(&cancel).await, "cancelled");
    assert_eq!(
        second.get("select count(*) from trax.work_queue").await,
        "0"
    );
    first.assert_healthy().await;
}

#[tokio::test]
async fn manifests_follow_when_none_of_their_jobs_runs() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let s = &cluster.router;
    s.get(&format!(
        "select trax.schedule('often', 't', every => '1 h', group_name => '{group}');
        select trax.schedule('after', 'after', depends_on => '{{often}}', group_name => '{group}');
        select trax.schedule('broken', 'broken', group_name => '{group}', max_retries => 0);
        select trax.trigger('broken'); select trax.trigger('after')"
    ))
    .await;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    first
        .get("update trax.manifest_state set next_run_at = now() where manifest_id = (select manifest_id from trax.manifest where name = 'often'); select trax.tick()")
        .await;
    let often = first.claim_one("worker => 'w', tasks => '{t}'").await;
    let broken = first.claim_one("worker => 'w', tasks => '{broken}'").await;
    first
        .get(&format!("select trax.fail({}, 'no')", broken.key()))
        .await;
    let mover = Session::of(&cluster.database).await;
    let moving = mover.spawn(call(&group, 2));
    let disabled = format!("select enabled from trax.manifest_group where name = '{group}'");
    first.becomes(&disabled, "f").await;
    assert_eq!(
        second.get("select count(*) from trax.manifest").await,
        "0",
        "a job of theirs runs"
    );
    let refusal = s
        .refusal(&format!(
            "select trax.schedule('often', 't', priority => 4, group_name => '{group}')"
        ))
        .await;
    assert_eq!(
        refusal.hint,
        "The group is being moved: try again when that is done."
    );
    first
        .get(&format!("select trax.complete({})", often.key()))
        .await;
    let (_mover, moved) = moving.await.expect("it does not panic");
    assert_eq!(moved, Ok("1".to_owned()));
    assert_eq!(first.get(LEFT).await, "0");
    let states = "select m.name, s.parked_on, s.next_run_at > now() from trax.manifest m
        join trax.manifest_state s using (manifest_id) order by m.name";
    assert_eq!(second.get(states).await, "after||f\nbroken||\noften||t");
    let edge = "select satisfied_at is not null from trax.manifest_dependency";
    assert_eq!(
        second.get(edge).await,
        "t",
        "the parent ended well before it left"
    );
    second.assert_healthy().await;
    first.assert_healthy().await;
    // The rows are in use there: a job runs, a dead letter's requeue frees its child, and the
    // router finds them.
    let after = second.claim_one("worker => 'w', tasks => '{after}'").await;
    second
        .get(&format!("select trax.complete({})", after.key()))
        .await;
    let letter = second
        .number("select id from trax.dead_letter where resolved_at is null")
        .await;
    s.get(&format!(
        "select trax.requeue_dead_letter({letter}, 'again'); select trax.trigger('often'); select trax.schedule('often', 't', priority => 4, group_name => '{group}')"
    ))
    .await;
    second.get("select trax.tick()").await;
    assert_eq!(
        second
            .get("select string_agg(task, ' ' order by task) from trax.work_queue")
            .await,
        "after broken t"
    );
    second.assert_healthy().await;
}

#[tokio::test]
async fn a_move_that_cannot_be_is_refused_before_anything_moves() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let group = cluster.group_on(1).await;
    s.get(&format!(
        "select trax_router.place_group('other', 1);
        select trax.configure_group('{group}', max_active_jobs => 1);
        select trax.configure_group('other', max_active_jobs => 1);
        select trax.schedule('parent', 't', group_name => 'other');
        select trax.schedule('child', 't', depends_on => '{{parent}}', group_name => '{group}')"
    ))
    .await;
    for name in [&group, "other"] {
        let refusal = s.refusal(&call(name, 2)).await;
        assert_eq!(refusal.code, "0A000", "{refusal}");
        assert!(
            refusal.detail.starts_with("Manifest \"child\" of group"),
            "{refusal}"
        );
        let place = format!("select trax_router.shard_of_group('{name}')");
        assert_eq!(s.get(&place).await, "1");
        assert_eq!(cluster.shard(2).get(LEFT).await, "0", "no settings either");
    }
    for (words, code) in [
        ("'', 1", "22023"),
        ("null, 1", "22023"),
        ("'g', 9", "42704"),
        ("'g', null", "42704"),
    ] {
        let call = format!("call trax_router.move_group({words}, null)");
        assert_eq!(s.refusal(&call).await.code, code, "{words}");
    }
    let within = format!("begin; {}", call("g", 1));
    assert_eq!(s.refusal(&within).await.code, "2D000");
    s.get("rollback").await;
    let role = format!("producer_{}", cluster.database.name());
    for (database, session) in &cluster.shards {
        session.get(&format!("create role {role} login")).await;
        drop(Session::as_role(database, &role).await);
    }
    s.get(&format!(
        "create role {role} login; select trax.grant_access('{role}', 'producer')"
    ))
    .await;
    let producer = Session::as_role(&cluster.database, &role).await;
    let refusal = producer.refusal(&call("g", 2)).await;
    assert_eq!(refusal.code, "42501", "{refusal}");
}

#[tokio::test]
async fn a_batch_is_carried_once_however_often_it_is_sent() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let s = &cluster.router;
    let group = cluster.group_on(1).await;
    let job = s
        .number(&format!(
            "select trax.enqueue('a', group_name => '{group}')"
        ))
        .await;
    let (first, second) = (cluster.shard(1), cluster.shard(2));
    // A mover that stops after taking a batch, and one that continues after its successor.
    s.get(&format!("select trax_router.begin_move('{group}', 2)"))
        .await;
    let depart = format!("select batch, to_shard, count, is_over from trax.depart('{group}', 2)");
    assert_eq!(first.get(&depart).await, "||0|f");
    let taken = first.get(&depart).await;
    assert!(taken.ends_with("|2|1|f"), "{taken}");
    assert_eq!(
        first.get(&depart).await,
        taken,
        "the same until it has arrived"
    );
    for call in [
        format!("select trax.cancel({job})"),
        format!("select * from trax.get_jobs('{{{job}}}')"),
    ] {
        let refusal = s.refusal(&call).await;
        assert_eq!(
            refusal.message,
            format!("job {job} is on its way from shard 1 to another")
        );
    }
    for call in ["spread_group('$')", "place_group('$', 1)"] {
        let call = call.replace('$', &group);
        let refusal = s.refusal(&format!("select trax_router.{call}")).await;
        assert_eq!(refusal.message, format!("group \"{group}\" is being moved"));
    }
    let batch = first
        .get("select format('1, %L, %L, %L', group_name, batch, cargo) from trax.departure")
        .await;
    let arrive = format!("select trax.arrive({batch})");
    let late = Session::of(&cluster.shards[1].0).await;
    second.get("begin").await;
    assert_eq!(second.get(&arrive).await, "t");
    let pid = late.pid();
    let sending = late.spawn(arrive.clone());
    second.sees_waiting(pid).await;
    second.get("commit").await;
    let (late, again) = sending.await.expect("it does not panic");
    assert_eq!(again, Ok("f".to_owned()));
    let claimed = second.claim_one("worker => 'w'").await;
    assert_eq!(claimed.id, job);
    second
        .get(&format!("select trax.complete({})", claimed.key()))
        .await;
    assert_eq!(late.get(&arrive).await, "f", "also when it has ended");
    // Moved to another shard meanwhile: a batch in transit goes to its first target.
    assert_eq!(s.get(&call(&group, 1)).await, "0");
    assert_eq!(
        s.get(&format!(
            "select trax.shard_of(trax.enqueue('a', group_name => '{group}'))"
        ))
        .await,
        "1"
    );
    assert_eq!(first.get("select count(*) from trax.departure").await, "0");
    let carry = format!("select trax_router.carry('{group}', 2)");
    let refusal = s.refusal(&carry).await;
    assert_eq!(refusal.code, "55000", "who comes too late: {refusal}");
    assert_eq!(s.get(&call(&group, 2)).await, "1");
    assert_eq!(first.get(LEFT).await, "0");
    assert_eq!(
        s.get(&format!("select state from trax.get_jobs('{{{job}}}')"))
            .await,
        "completed"
    );
}

#[tokio::test]
async fn a_role_that_is_missing_there_loses_no_statement() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    let role = format!("runner_{}", cluster.database.name());
    let first = cluster.shard(1);
    first
        .get(&format!(
            "create role {role} login; select trax.grant_access('{role}', 'producer')"
        ))
        .await;
    let runner = Session::as_role(&cluster.shards[0].0, &role).await;
    runner
        .get(&format!(
            "select trax.enqueue_sql('select 1', group_name => '{group}')"
        ))
        .await;
    let s = &cluster.router;
    let refusal = s.refusal(&call(&group, 2)).await;
    assert_eq!(refusal.code, "42704", "{refusal}");
    assert!(
        refusal.hint.contains(&format!("create role {role} login")),
        "{refusal}"
    );
    assert!(refusal.detail.contains("Nothing has moved."), "{refusal}");
    let queued = "select count(*) from trax.work_queue";
    assert_eq!(first.get(queued).await, "1");
    let second = cluster.shard(2);
    second.get(&format!("create role {role} login")).await;
    s.get(&call(&group, 2)).await;
    assert_eq!(second.get("select run_as from trax.work_queue").await, role);
    assert_eq!(first.get(LEFT).await, "0");
}

#[tokio::test]
async fn a_group_on_several_shards_is_gathered_however_much_each_has() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    // A batch on one source shard, and none on the other.
    let key = "select 'k' || n from generate_series(1, 1000) n where trax_router.shard_of_group('default', 'k' || n) = 1 limit 1";
    let key = s.get(key).await;
    s.get(&format!(
        "select trax.enqueue('a', concurrency_key => '{key}')"
    ))
    .await;
    s.get("set statement_timeout = '60 s'").await;
    assert_eq!(
        s.get("call trax_router.move_group('default', 2, null, gather => true)")
            .await,
        "1"
    );
    let left = "select moves_from from trax_router.group_placement where group_name = 'default'";
    assert_eq!(s.get(left).await, "");
    for number in [1, 3] {
        assert_eq!(cluster.shard(number).get(LEFT).await, "0");
    }
    let moves = "select count(*) from trax.audit where action = 'move'";
    assert_eq!(cluster.shard(1).get(moves).await, "1");
}

#[tokio::test]
async fn whoever_schedules_and_whoever_begins_a_move_wait_for_each_other_in_one_order() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(2).await;
    let group = cluster.group_on(1).await;
    // The first of the two calls is halfway.
    let holder = Session::of(&cluster.database).await;
    holder
        .get("begin; select trax_router.hold_manifests()")
        .await;
    let scheduler = Session::of(&cluster.database).await;
    let pid = scheduler.pid();
    let scheduling = scheduler.spawn(format!(
        "select trax.schedule('m', 't', every => '1 h', group_name => '{group}') is not null"
    ));
    cluster.router.sees_waiting(pid).await;
    let mover = Session::of(&cluster.database).await;
    let pid = mover.pid();
    let moving = mover.spawn(call(&group, 2));
    cluster.router.sees_waiting(pid).await;
    holder.get("commit").await;
    let (_scheduler, scheduled) = scheduling.await.expect("it does not panic");
    assert_eq!(scheduled, Ok("t".to_owned()));
    let (_mover, moved) = moving.await.expect("it does not panic");
    assert_eq!(moved, Ok("0".to_owned()));
    let manifests = "select string_agg(name, ' ') from trax.manifest";
    assert_eq!(cluster.shard(2).get(manifests).await, "m");
}

#[tokio::test]
async fn a_spread_group_is_gathered_on_purpose_only() {
    if !has_plproxy() {
        return;
    }
    let cluster = Cluster::of(3).await;
    let s = &cluster.router;
    s.get("select trax.enqueue('a') from generate_series(1, 60)")
        .await;
    let there = cluster
        .shard(2)
        .number("select count(*) from trax.work_queue")
        .await;
    let refusal = s.refusal(&call("default", 2)).await;
    assert_eq!(refusal.code, "55000", "{refusal}");
    assert_eq!(s.get("select trax_router.is_spread('default')").await, "t");
    let gather = "call trax_router.move_group('default', 2, null, gather => true)";
    assert!(refusal.hint.ends_with(gather), "{refusal}");
    assert_eq!(s.number(gather).await, 60 - there);
    assert_eq!(s.get("select trax.shard_of(trax.enqueue('a'))").await, "2");
    let all = "select count(*), count(distinct trax.shard_of(job_id)) from trax.work_queue";
    assert_eq!(cluster.shard(2).get(all).await, "61|3");
}
