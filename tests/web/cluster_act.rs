//! Acts on the pages of a router: performed on the shard that holds the object, after moves too.

use super::cluster::{cluster, location, waiting, web};
use crate::router::has_plproxy;

#[tokio::test]
async fn a_job_that_moved_with_its_group_is_found_where_it_is() {
    if !has_plproxy() {
        return;
    }
    let (cluster, groups) = cluster().await;
    let id = waiting(&cluster, 1).await;
    let group = &groups[0];
    cluster
        .router
        .get(&format!("call trax_router.move_group('{group}', 2, null)"))
        .await;
    let web = web(&cluster, &[]).await;
    let found = web.get(&format!("/jobs/{id}")).await;
    assert_eq!(location(&found), format!("/shards/2/jobs/{id}"));
    let old = web.get(&format!("/shards/1/jobs/{id}")).await;
    assert_eq!(location(&old), format!("/jobs/{id}"));
    // A job that ended before the move is queued again on its group's new shard.
    cluster
        .shard(2)
        .get("select trax.complete(job_id, token) from trax.claim_next('w')")
        .await;
    let back = format!("call trax_router.move_group('{group}', 1, null)");
    cluster.router.get(&back).await;
    let act = format!("/shards/2/act/again?job={id}");
    let form = web.page(&act).await;
    assert!(
        form.contains("task =&gt; &#39;waits&#39;") || form.contains("task =&gt; 'waits'"),
        "{form}"
    );
    let done = web.act(&act, &format!("job={id}"), &[]).await;
    assert_eq!(done.status, 200, "{}", done.body);
    let again = "select task, group_name from trax.work_queue";
    assert_eq!(cluster.shard(1).get(again).await, format!("waits|{group}"));
    // The shard where the job ended records the act.
    let new = cluster
        .shard(1)
        .get("select job_id from trax.work_queue")
        .await;
    let acts = "select action, name, note from trax.audit where action = 'queue_again'";
    let acted = cluster.shard(2).get(acts).await;
    assert_eq!(acted, format!("queue_again|{id}|as job {new}"));
}

#[tokio::test]
async fn a_dead_letter_that_moved_with_its_group_is_requeued_where_it_is() {
    if !has_plproxy() {
        return;
    }
    let (cluster, groups) = cluster().await;
    let group = &groups[0];
    let dies = format!("select trax.enqueue('dies', max_retries => 0, group_name => '{group}')");
    let id = cluster.router.get(&dies).await;
    let fail = "select trax.fail(job_id, token, 'no') from trax.claim_next('w', tasks => '{dies}')";
    cluster.shard(1).get(fail).await;
    let away = format!("call trax_router.move_group('{group}', 2, null)");
    cluster.router.get(&away).await;
    let web = web(&cluster, &[]).await;
    let act = format!("/shards/1/act/again?job={id}");
    let done = web.act(&act, &format!("job={id}"), &[]).await;
    assert_eq!(done.status, 200, "{}", done.body);
    let letter = "select status from trax.dead_letter";
    assert_eq!(cluster.shard(2).get(letter).await, "requeued");
    let queued = "select count(*) from trax.work_queue where task = 'dies'";
    assert_eq!(cluster.shard(2).get(queued).await, "1");
    assert_eq!(cluster.shard(1).get(queued).await, "0");
    // Once more is refused, and nothing is queued twice.
    let twice = web.act(&act, &format!("job={id}"), &[]).await;
    assert_ne!(twice.status, 200, "{}", twice.body);
    assert_eq!(cluster.shard(2).get(queued).await, "1");
}

#[tokio::test]
async fn a_job_is_queued_again_by_its_manifest_wherever_that_is() {
    if !has_plproxy() {
        return;
    }
    let (cluster, groups) = cluster().await;
    let (router, group) = (&cluster.router, &groups[0]);
    let schedule = format!(
        "select trax.schedule('report', 'build', every => '1 day', group_name => '{group}')"
    );
    router.get(&schedule).await;
    let run = "select trax.complete(c.job_id, c.token)
        from trax.claim_next('w', tasks => '{build}') c";
    let id = router
        .get("select trax.trigger('report', '{\"n\": 7}')")
        .await;
    assert_eq!(cluster.shard(1).get(run).await, "t");
    let away = format!("call trax_router.move_group('{group}', 2, null)");
    router.get(&away).await;
    let web = web(&cluster, &[]).await;
    let act = format!("/shards/1/act/again?job={id}");
    let queued =
        "select concat_ws(' ', task, manifest, input) from trax.work_queue where task = 'build'";
    for (wanted, change) in [
        (
            "build report {\"n\": 7}",
            Some("select trax.unschedule('report')"),
        ),
        ("build {\"n\": 7}", Some(&*schedule)),
        // Another manifest with the same name is not the job's manifest.
        ("build {\"n\": 7}", None),
    ] {
        let done = web.act(&act, &format!("job={id}"), &[]).await;
        assert_eq!(done.status, 200, "{}", done.body);
        let there = cluster.shard(2);
        assert_eq!(there.get(queued).await, wanted, "{change:?}");
        there.get(run).await;
        if let Some(change) = change {
            router.get(change).await;
        }
    }
}

#[tokio::test]
async fn an_act_is_done_on_the_shard_or_on_each_that_it_is_about() {
    if !has_plproxy() {
        return;
    }
    let (cluster, groups) = cluster().await;
    let file = harness::process::Scratch::new("roles");
    let roles = file.path().join("roles");
    std::fs::write(&roles, "anna postgres\n").expect("it can be written");
    let roles = roles.display().to_string();
    let web = web(&cluster, &["--trust-header", "X-User", "--roles", &roles]).await;
    let anna = [("X-User", "anna")];
    let id = waiting(&cluster, 2).await;
    let done = web
        .act(
            &format!("/shards/2/act/cancel?job={id}"),
            &format!("job={id}&reason=why"),
            &anna,
        )
        .await;
    assert!(done.body.contains("<b>cancelled</b>"), "{}", done.body);
    let audit = "select program from trax.audit where action = 'cancel'";
    assert_eq!(cluster.shard(2).get(audit).await, "trax web, anna: why");
    let answer = web
        .ask("GET", &format!("/act/cancel?job={id}"), &anna, "")
        .await;
    assert_eq!(answer.status, 400, "{}", answer.body);

    // A group on one shard gets no settings on another; a spread group has them on all.
    let settings =
        |group: &str| format!("select enabled from trax.manifest_group where name = '{group}'");
    let one = &groups[1];
    let done = web
        .act(
            &format!("/act/pause-group?group={one}"),
            &format!("group={one}"),
            &anna,
        )
        .await;
    assert_eq!(done.status, 200, "{}", done.body);
    assert!(!done.body.contains("Shard 1 answered"), "{}", done.body);
    assert_eq!(cluster.shard(2).get(&settings(one)).await, "f");
    assert_eq!(cluster.shard(1).get(&settings(one)).await, "");
    let spread = "select trax_router.spread_group('wide'); select trax.configure_group('wide', priority => 3)";
    cluster.router.get(spread).await;
    let list = web.ask("GET", "/shards/1/groups", &anna, "").await;
    assert!(
        list.body.contains("href=\"/act/pause-group?group=wide\""),
        "{}",
        list.body
    );
    let form = web
        .ask("GET", "/act/pause-group?group=wide", &anna, "")
        .await;
    assert!(form.body.contains("On the shards 1, 2"), "{}", form.body);
    web.act("/act/pause-group?group=wide", "group=wide", &anna)
        .await;
    for shard in [1, 2] {
        assert_eq!(cluster.shard(shard).get(&settings("wide")).await, "f");
    }

    for shard in [1, 2] {
        let dies = "select trax.enqueue('dies', max_retries => 0);
            select trax.fail(job_id, token, 'no') from trax.claim_next('w', tasks => '{dies}')";
        cluster.shard(shard).get(dies).await;
    }
    let dead = web.ask("GET", "/dead?task=dies", &anna, "").await;
    assert!(
        dead.body.contains("href=\"/act/requeue-many?task=dies\""),
        "{}",
        dead.body
    );
    let done = web
        .act(
            "/act/requeue-many?task=dies",
            "task=dies&reason=mended",
            &anna,
        )
        .await;
    assert_eq!(
        done.body.matches("answered: <b>1</b>").count(),
        2,
        "{}",
        done.body
    );
    for shard in [1, 2] {
        let note = "select status || ' ' || resolution_note from trax.dead_letter";
        assert_eq!(cluster.shard(shard).get(note).await, "requeued mended");
    }
}
